"""Everything that decides whether a subscription can move, as plain values.

``collect.py`` copies it from live objects; tests make it by hand.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pulsarish.broker.dispatchers.dispatcher import NO_KEYS, DispatcherKind, KeysState

__all__ = ["BookieState", "ConsumerState", "SubscriptionSnapshot"]


class ConsumerState(msgspec.Struct, frozen=True):
    """A consumer of the subscription. Times are wall clock, 0: never."""

    name: str
    permits: int = 0
    unacked: int = 0
    """Unacknowledged messages; for exclusive and failover subscriptions the entries that the active
    consumer holds.
    """
    is_blocked: bool = False
    """It holds too many unacknowledged messages, so it gets no more."""
    has_room: bool = True
    """Its connection accepts more deliveries."""
    is_active: bool = True
    """It may get messages: in an exclusive or failover subscription only one consumer may."""
    lined_up: int = 0
    """Key-shared: entries of its keys that wait for it, and for no acknowledgement of another
    consumer.
    """
    flow_ms: int = 0
    delivered_ms: int = 0
    connected_ms: int = 0

    @property
    def can_take(self) -> bool:
        return self.is_active and self.permits > 0 and self.has_room and not self.is_blocked


class BookieState(msgspec.Struct, frozen=True):
    """A bookie that should have the ledger of the next read."""

    name: str
    is_registered: bool


class SubscriptionSnapshot(msgspec.Struct, frozen=True):
    """A subscription at one moment. Times in milliseconds of the wall clock, 0: not set."""

    kind: DispatcherKind = DispatcherKind.SINGLE_ACTIVE
    now_ms: int = 0
    backlog: int = 0
    consumers: tuple[ConsumerState, ...] = ()
    unused_since_ms: int = 0
    last_consumed_ms: int = 0
    last_acked_ms: int = 0

    read_position: str = ""
    has_unread: bool = False
    """The log has entries behind the read position."""
    ready: int = 0
    """Entries that are ready to be delivered, or must be read again."""
    lost_sight: bool = False
    """There is a backlog, but the dispatcher holds none of it, waits for none of it and cannot read
    any of it.
    """

    reading_since_ms: int = 0
    reading_ms: int = 0
    """How long the read has been in flight, whatever the calendar did."""
    failure: str = ""
    failed_since_ms: int = 0
    retry_at_ms: int = 0
    ledger_id: int = -1
    """Ledger of the next read."""
    bookies: tuple[BookieState, ...] = ()
    """Bookies that should have the ledger, if they are known."""

    rate_since_ms: int = 0
    rate_until_ms: int = 0
    rate: str = ""
    """The rate of the policy that limits deliveries, as text."""
    rate_policy: str = "dispatch-rate"
    """Empty: a rate of the broker limits them."""

    seeking_since_ms: int = 0
    handing_over_since_ms: int = 0
    handing_over_max_ms: int = 0

    delayed: int = 0
    delayed_full: bool = False
    next_due_ms: int = 0

    holes: int = 0
    holes_since_ms: int = 0
    is_beyond_holes: bool = False
    first_unacked: str = ""

    unacked: int = 0
    unacked_max: int = 0
    unacked_max_consumer: int = 0
    is_blocked: bool = False
    """All consumers together hold too many unacknowledged messages, so nothing more is
    delivered.
    """

    chunks_held: int = 0
    """Entries put aside for the consumer that has the first chunks of their message."""
    chunks_ready: int = 0
    """Those of them whose consumer could receive them."""
    chunk_holders: tuple[str, ...] = ()

    keys: KeysState = NO_KEYS

    stalled_since_ms: int = 0
    """Since then the watchdog has seen no progress and no reason to wait."""

    def shown(self) -> dict[str, Any]:
        """Return all fields that differ from their defaults, by name."""
        return {
            name: value
            for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True)
            if (value := getattr(self, name)) != default
        }
