"""Asking brokers again while they say that it may work a moment later, as while one takes over from another."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from pulsarish.model.errors import ConnectError, PulsarishError

__all__ = ["retry_while_retryable"]

_PATIENCE_SECONDS: Final = 30.0
"""A topic changes its broker in less."""
_UNREACHED_SECONDS: Final = 10.0
"""The same where no broker can be reached at all: the address may be wrong."""
_PAUSE_SECONDS: Final = 0.2

T = TypeVar("T")


def retry_while_retryable(ask: Callable[[], T], seconds: float | None = None) -> T:
    """What is answered at last. ``seconds``: for how long it is asked for. Raises what cannot be repaired by waiting, and what was not."""
    began = time.perf_counter()
    while True:
        try:
            return ask()
        except PulsarishError as error:
            patience = _UNREACHED_SECONDS if isinstance(error, ConnectError) else _PATIENCE_SECONDS
            if not error.retryable or time.perf_counter() - began >= (patience if seconds is None else seconds):
                raise
        time.sleep(_PAUSE_SECONDS)
