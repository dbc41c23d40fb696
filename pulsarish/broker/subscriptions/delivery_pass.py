"""Delivers what a topic's log just confirmed, in one pass over all its subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pulsarish.broker.subscriptions.new_entries import NewEntries
    from pulsarish.broker.subscriptions.subscription import Subscription
    from pulsarish.model.position import Position
    from pulsarish.runtime.seams import Clock

__all__ = ["deliver_new"]

_PAUSE_SHARE: Final = 2.0
"""How much longer than a pass over the subscriptions the pause after it is."""
_PAUSE_SECONDS_MAX: Final = 1.0  # also where the process was stopped during a pass


def deliver_new(
    subscriptions: Iterable[Subscription],
    first: Position,
    read: Callable[[], NewEntries],
    clock: Clock,
) -> float:
    """Deliver new entries to the subscriptions that wait for them, and wake the others.

    Return the pause in seconds until the next pass. It is in proportion to what this one took, so
    that entries which come fast are delivered some at a time.

    Args:
        first: the position of the first of the entries.
        read: returns the entries; called when a subscription waits for them.
    """
    began = clock.monotonic()
    new: NewEntries | None = None
    for subscription in list(subscriptions):
        loop = subscription.dispatch_loop
        if loop.waits_at(first):
            if new is None:
                new = read()
            if loop.deliver_new(new):
                continue
        subscription.wake()
    return min(_PAUSE_SHARE * (clock.monotonic() - began), _PAUSE_SECONDS_MAX)
