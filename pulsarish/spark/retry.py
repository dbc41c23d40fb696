"""Retry requests to brokers while their errors are retryable, such as during a change of the
owner.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from pulsarish.model.errors import ConnectError, PulsarishError

__all__ = ["retry_while_retryable"]

_PATIENCE_SECONDS: Final = 30.0
"""A change of a topic's owner takes less."""
_UNREACHED_SECONDS: Final = 10.0
"""Limit where no broker can be reached at all: the address may be wrong."""
_PAUSE_SECONDS: Final = 0.2

T = TypeVar("T")


def retry_while_retryable(ask: Callable[[], T], seconds: float | None = None) -> T:
    """Return the first success.

    ``seconds``: how long to retry. Raises an error that is not retryable, or the last one.
    """
    began = time.perf_counter()
    while True:
        try:
            return ask()
        except PulsarishError as error:
            patience = _UNREACHED_SECONDS if isinstance(error, ConnectError) else _PATIENCE_SECONDS
            if not error.retryable or time.perf_counter() - began >= (
                patience if seconds is None else seconds
            ):
                raise
        time.sleep(_PAUSE_SECONDS)
