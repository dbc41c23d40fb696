"""What every dispatcher offers: which consumers get which entries of a subscription, without I/O.

The rest of the broker knows only this class. A new dispatcher is a subclass, a ``DispatcherKind``
and a case in ``factory.py``. What only some dispatchers have is empty here: an active consumer,
chunks, keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from pulsarish.broker.clients.commands import KeySharedPolicy
from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.dispatchers.reads import Read, Reads
from pulsarish.managed_ledger.cursors.holes import Hole
from pulsarish.model.position import Position

__all__ = ["NO_KEYS", "Dispatcher", "DispatcherKind", "DrainingKey", "Holes", "KeysState", "Place"]


Holes: TypeAlias = Callable[[Position, Position], Iterator[Hole]]
"""The runs of unacknowledged entries between two positions, both ends included."""


class DispatcherKind(Enum):
    SINGLE_ACTIVE = "single active"  # exclusive and failover
    SHARED = "shared"
    KEY_SHARED = "key-shared"


@dataclass(frozen=True, slots=True)
class DrainingKey:
    """A key hash whose entries wait until ``holder`` acknowledges the entries it holds."""

    key_hash: int
    holder: str
    held: int
    waiting: int


@dataclass(frozen=True, slots=True)
class KeysState:
    """Keys of a key-shared subscription.

    ``look_ahead_max``: entries that may be read and not delivered.
    """

    draining: tuple[DrainingKey, ...] = ()
    unassigned: int = 0
    kept: int = 0
    look_ahead_max: int = 0

    @property
    def has_room(self) -> bool:
        return self.kept < self.look_ahead_max


NO_KEYS: Final = KeysState()


class Place(NamedTuple):
    """Where an unacknowledged entry is.

    * ``consumer``: delivered to ``consumer``, which has it at least since ``since`` (monotonic
      seconds; ``None``: not known).
    * ``waiting``: it was read, or is to be read again, and waits to be delivered.
    * ``delayed``: not due before ``due_ms`` (wall clock). Of an entry whose time only a bucket
      ledger has, this is when the next entry of the bucket is due.
    * ``unread``: reading has not come to it.
    * ``forgotten``: see ``Dispatcher.forgotten``.
    """

    state: Literal["consumer", "waiting", "delayed", "unread", "forgotten"]
    consumer: Consumer | None = None
    since: float | None = None
    due_ms: int = 0


class Dispatcher(ABC):
    """The core of a subscription's delivery."""

    kind: ClassVar[DispatcherKind]

    def __init__(self, reads: Reads) -> None:
        self.consumers: list[Consumer] = []
        self.reads = reads
        self.active: Consumer | None = None
        """The one consumer that gets entries, if the type has one."""
        self.handing_over = False
        """The active consumer waits, so that the previous one can still acknowledge what it works
        on.
        """
        self.blocked = False
        """The subscription has too many unacknowledged messages."""

    # -- consumers

    @abstractmethod
    def limit(
        self, *, consumers_max: int, unacked_max_consumer: int, unacked_max_subscription: int
    ) -> None:
        """Apply new limits; 0: no limit. Connected consumers stay."""

    def prioritise(self, _entries_max: int, _new_end: Callable[[], Position | None]) -> None:
        """Deliver the highest priority first, if the type can.

        Args:
            entries_max: how many entries to read ahead of the consumers; 0: deliver in log order.
            new_end: returns up to where new entries may be read; ``None``: none may.
        """
        return

    @abstractmethod
    def add(self, consumer: Consumer) -> None:
        """Connect a consumer. Raises ``ConsumerBusy``, ``ConsumerAssignError``."""

    @abstractmethod
    def remove(self, consumer: Consumer) -> None:
        """Disconnect a consumer. Its unacknowledged entries are redelivered."""

    def takes(self, _policy: KeySharedPolicy) -> bool:
        """Return whether a consumer with this policy may join."""
        return True

    @property
    def shown_policy(self) -> str:
        """The policy that consumers have to share, for an error text; empty: none."""
        return ""

    def hand_over(self) -> None:
        """Let the active consumer begin, if it waits for the previous one."""
        self.handing_over = False

    # -- entries

    @abstractmethod
    def plan(self, end: Position, *, blocked: bool) -> Read | None:
        """Return the next read.

        ``blocked``: deliver nothing new, because the cursor could not store the acknowledgements.
        """

    @abstractmethod
    def deliver(self) -> None:
        """Deliver the ready entries."""

    @abstractmethod
    def redeliver(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """Redeliver entries that a consumer holds; all of them when ``positions`` is empty."""

    def redeliver_unacked(self, _now: float, _seconds: float) -> int:
        """Redeliver entries that consumers have had for ``seconds`` without acknowledging them, and
        return how many these are. ``now``: monotonic seconds.

        An entry's time counts from the first call that sees it, so that deliveries pay nothing.
        """
        return 0

    def extend_ack(self, _consumer: Consumer, _positions: Sequence[Position], _now: float) -> None:
        """Count the time of ``redeliver_unacked`` from ``now`` for entries that a consumer
        holds.
        """
        return

    def redeliver_forgotten(self, _now: float, _seconds: float, _holes: Holes) -> int:
        """Redeliver forgotten entries once they have been so for ``seconds``, and return how many
        these are. ``now``: monotonic seconds.
        """
        return 0

    def forgotten(self, _holes: Holes) -> list[Position]:
        """Return entries that were read, that no consumer has and nothing waits to deliver.

        Only a defect leaves such entries. They are not known for one active consumer, which gets
        them when it subscribes again. ``holes`` finds what is not acknowledged.
        """
        return []

    @abstractmethod
    def redelivery_count(self, position: Position) -> int:
        """Return how often an entry was redelivered."""

    @abstractmethod
    def acknowledged(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """Handle acknowledged entries of a consumer."""

    def partly_acknowledged(
        self, _consumer: Consumer | None, _position: Position, _left: int
    ) -> None:
        """Handle a batch of which some messages are acknowledged.

        Args:
            consumer: whose acknowledgement it is, if one is known.
            left: how many of its messages are not acknowledged.
        """
        return

    @abstractmethod
    def acknowledged_through(self, position: Position) -> None:
        """Handle an acknowledgement of everything up to a position."""

    @abstractmethod
    def expired(self, positions: Sequence[Position]) -> None:
        """Handle entries that have expired and that the cursor has acknowledged."""

    def take_expired(self, now_ms: int) -> list[Position]:
        """Remove the entries that were read, were not delivered and have expired. Return them."""
        return self.reads.take_expired(now_ms)

    @abstractmethod
    def reset(self) -> None:
        """Start again from the cursor after it was moved. Earlier deliveries do not count."""

    @abstractmethod
    def restart(self) -> None:
        """Plan and count again from facts: consumers keep what they hold, the rest is read in
        order.
        """

    def drop_waiting(self) -> int:
        """Drop the entries that were not delivered. Return how many messages these were."""
        return self.reads.drop_ready()

    # -- state

    @property
    def has_room(self) -> bool:
        """Whether more may be read that cannot be delivered at once."""
        return True

    @property
    @abstractmethod
    def wants_new(self) -> bool:
        """Whether a consumer can get the entry behind those that were read, and no other one must
        come before it. ``False`` also where this is not known.
        """

    @property
    def holds_nothing(self) -> bool:
        """Whether no entry is held by a consumer or waits for one.

        ``False`` where this is not known.
        """
        return False

    def places(self, positions: Sequence[Position]) -> list[Place]:
        """Return where unacknowledged entries are. Costs a step for each entry in memory."""
        delivered = self._delivered(positions)
        waiting, due_ms = self.waiting(), self.reads.delayed.due_times(positions)
        found: list[Place] = []
        for position in positions:
            place = delivered.get(position)
            if place is None and position in waiting:
                place = Place("waiting")
            elif place is None and position in due_ms:
                place = Place("delayed", due_ms=due_ms[position])
            elif place is None and position < self.reads.position:
                place = self._passed()
            found.append(place or Place("unread"))
        return found

    def _delivered(self, _positions: Sequence[Position]) -> dict[Position, Place]:
        """Return those of the entries that a consumer is known to hold."""
        return {}

    def _passed(self) -> Place:
        """Return where an entry is that was read, and that nothing else is known of."""
        return Place("forgotten" if self.active is None else "consumer", self.active)

    def waiting(self) -> set[Position]:
        """Return the entries that were read but not delivered, or wait for redelivery, without
        delayed ones.
        """
        return self.reads.waiting()

    @property
    def again_count(self) -> int:
        """Number of entries that wait for redelivery."""
        return self.reads.again_count

    @property
    def waiting_count(self) -> int:
        """Number of entries that were read but not delivered, or wait for redelivery."""
        return len(self.reads.ready) + self.again_count + self.reads.ahead_count

    @abstractmethod
    def unacked(self) -> int:
        """Return the number of delivered, unacknowledged messages."""

    @property
    def chunks_held(self) -> Mapping[str, tuple[int, bool]]:
        """By consumer name: how many chunks wait for the consumer, and whether it could receive
        them.
        """
        return {}

    def lined_up(self, _consumer: Consumer) -> int:
        """Return how many entries of its keys wait for this consumer only."""
        return 0

    def keys(self) -> KeysState:
        """Return the state of the keys."""
        return NO_KEYS

    def stats(self) -> dict[str, Any]:
        """Return the statistics that only this type has, with Apache Pulsar's names."""
        return {}

    def consumer_stats(self) -> dict[int, dict[str, Any]]:
        """Return the same for each consumer, by its join order."""
        return {}

    @abstractmethod
    def check(self) -> None:
        """Assert the invariants."""
