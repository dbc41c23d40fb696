"""Limits on what the peers of a process may hold: connections, parts of messages, and answers that
they do not read.

Both classes follow one rule: going over the limit ends a connection, never the process. It ends the
connection that has held something for the longest time without progress. A peer that opens many
connections and sends nothing, sends parts of messages, or does not read its answers, loses its own
oldest connections. A normal client holds little, and for a short time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pulsarish.runtime.metrics import Metrics

__all__ = ["ConnectionSlots", "HeldBytes", "PeerConnection", "PeerLimits"]


class PeerConnection(Protocol):
    """One connection of a peer."""

    def abort(self, reason: str) -> None:
        """Close the connection now. Does nothing when it is closed already."""
        ...


class ConnectionSlots:
    """Limit the connections that are open at the same time, in all and for each address.

    A connection waits until the peer has shown that it is a client; then call ``mark_active``. When
    all slots are in use, the connection that has waited the longest is aborted and the new one gets
    its slot. When an address has its share, that is one from this address. When no connection
    waits, the new one is refused. Every call is O(1).

    Args:
        connections_max: connections at the same time; 0: no limit.
        per_address_max: connections from one address at the same time; 0: no limit.
        waiting_per_address_max: connections of one address that wait at the same time; 0: no limit.
            The next one ends the one that has waited the longest, so an address whose connections
            never become active takes no places of others.
        what: what is counted, for reasons.
    """

    def __init__(
        self,
        connections_max: int,
        per_address_max: int = 0,
        *,
        waiting_per_address_max: int = 0,
        what: str = "connections",
    ) -> None:
        self.connections_max = connections_max
        self.per_address_max = per_address_max
        self._waiting_per_address_max = waiting_per_address_max
        self.refused_count = 0
        """Connections refused since the start."""
        self.ended_count = 0
        """Waiting connections aborted for a new one since the start."""
        self._what = what
        self._addresses: dict[PeerConnection, str] = {}
        self._waiting: dict[PeerConnection, None] = {}  # in the order in which they began to wait
        self._per_address: dict[str, int] = {}
        # by address, in the same order
        self._waiting_at: dict[str, dict[PeerConnection, None]] = {}

    @property
    def used_count(self) -> int:
        return len(self._addresses)

    def take(self, connection: PeerConnection, address: str) -> str:
        """Give a new connection a slot.

        Args:
            address: the peer's host, without the port.

        Returns:
            Why the connection is refused; empty when it has a slot. Call ``leave`` when a
            connection with a slot ends.
        """
        if self.per_address_max and self._per_address.get(address, 0) >= self.per_address_max:
            limit = (
                f"{address} has {self.per_address_max} {self._what} open, the limit for one address"
            )
            if not self._end_oldest(self._waiting_at.get(address, {}), limit):
                return limit
        waiting = self._waiting_at.get(address, {})
        if self._waiting_per_address_max and len(waiting) >= self._waiting_per_address_max:
            limit = (
                f"{self._waiting_per_address_max} {self._what} of {address} wait, the limit for "
                "one address"
            )
            _ = self._end_oldest(waiting, limit)
        if self.connections_max and len(self._addresses) >= self.connections_max:
            limit = f"{self.connections_max} {self._what} are open, the limit"
            if not self._end_oldest(self._waiting, limit):
                return limit
        self._addresses[connection] = address
        self._per_address[address] = self._per_address.get(address, 0) + 1
        self.mark_waiting(connection)
        return ""

    def mark_active(self, connection: PeerConnection) -> None:
        """Note that the peer has shown it is a client, or that the process works for it.

        The connection is not aborted for a new one.
        """
        if connection in self._waiting:
            del self._waiting[connection]
            address = self._addresses[connection]
            del self._waiting_at[address][connection]
            if not self._waiting_at[address]:
                del self._waiting_at[address]

    def mark_waiting(self, connection: PeerConnection) -> None:
        """Note that the connection waits for its peer again.

        All that wait already are aborted before it.
        """
        address = self._addresses.get(connection)
        if address is not None:
            self.mark_active(connection)
            self._waiting[connection] = None
            self._waiting_at.setdefault(address, {})[connection] = None

    def leave(self, connection: PeerConnection) -> None:
        """Free the slot of a connection that ended. Does nothing when it has none."""
        self.mark_active(connection)
        address = self._addresses.pop(connection, None)
        if address is None:
            return
        self._per_address[address] -= 1
        if not self._per_address[address]:
            del self._per_address[address]

    def _end_oldest(self, waiting: dict[PeerConnection, None], limit: str) -> bool:
        """Abort the first of ``waiting``; False when there is none, and the new connection is
        refused.
        """
        oldest = next(iter(waiting), None)
        if oldest is None:
            self.refused_count += 1
            return False
        self.ended_count += 1
        self.leave(oldest)
        oldest.abort(f"{limit}, and this one has waited the longest for its client")
        return True


class HeldBytes:
    """Limit the bytes that all connections together hold for one reason, such as parts of messages,
    or answers that their peers do not read.

    Beyond the limit connections are aborted until the rest fits, first the one that has held
    something for the longest time. A connection that holds nothing for a moment counts from the
    beginning when it holds something again. Every call is O(1), besides the aborts.

    Args:
        limit_bytes: the limit for all connections together.
        what: what is held, for the reason of an abort ("parts of requests").
    """

    def __init__(self, limit_bytes: int, what: str) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.ended_count = 0
        """Connections aborted for the limit since the start."""
        self._what = what
        # in the order in which they began to hold something
        self._held: dict[PeerConnection, int] = {}

    def holds(self, connection: PeerConnection) -> bool:
        """Whether the connection holds anything."""
        return connection in self._held

    def set(self, connection: PeerConnection, size_bytes: int) -> None:
        """Set what a connection holds now; 0 when it holds nothing or ends.

        May abort connections, this one too.
        """
        before_bytes = self._held.get(connection, 0)
        if size_bytes == before_bytes:
            return
        if size_bytes:
            self._held[connection] = size_bytes
        else:
            del self._held[connection]
        self.used_bytes += size_bytes - before_bytes
        while self.used_bytes > self.limit_bytes:
            oldest = next(iter(self._held))
            self.used_bytes -= self._held.pop(oldest)
            self.ended_count += 1
            oldest.abort(
                f"all connections together hold more than {self.limit_bytes} bytes of "
                f"{self._what}; this one held some for the longest"
            )


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """The limits on the connections of one kind of client, over all listeners of a process."""

    slots: ConnectionSlots
    partial_input: HeldBytes
    unsent: HeldBytes

    def export(self, metrics: Metrics) -> None:
        """Add the counters and gauges of these limits to a process's metrics."""
        slots, partial_input, unsent = self.slots, self.partial_input, self.unsent
        read = metrics.read
        read(
            "pulsarish_connections_refused_total",
            "counter",
            "Connections refused, as too many were open.",
            lambda: slots.refused_count,
        )
        for limit, why, count in (
            ("slots", "before CONNECT, to make room for others", lambda: slots.ended_count),
            ("partial_input", "for incomplete frames", lambda: partial_input.ended_count),
            ("unsent", "because their clients did not receive", lambda: unsent.ended_count),
        ):
            read(
                f"pulsarish_connections_ended_for_{limit}_total",
                "counter",
                f"Connections ended {why}.",
                count,
            )
        read(
            "pulsarish_partial_input_bytes",
            "gauge",
            "Bytes of incomplete frames.",
            lambda: partial_input.used_bytes,
        )
        read(
            "pulsarish_unsent_bytes",
            "gauge",
            "Bytes sent to clients that do not receive them.",
            lambda: unsent.used_bytes,
        )
