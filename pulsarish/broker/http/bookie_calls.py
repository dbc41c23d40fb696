"""A request that asks a bookie, and waits for its answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pulsarish.broker.http.route import Call
from pulsarish.ledger.bookie_control import NoAnswer
from pulsarish.model.errors import ServiceNotReady

__all__ = ["asking_bookie"]


@contextmanager
def asking_bookie(call: Call) -> Iterator[None]:
    """Say for what a request waits. Raises ``ServiceNotReady`` when the bookie does not answer."""
    call.waits_for = "the bookie"
    try:
        yield
    except NoAnswer as error:
        raise ServiceNotReady(str(error)) from None
