"""Limits on what the peers of a process may hold: connections, parts of messages, and answers that they do not read.

Both classes follow one rule: going over the limit ends a connection, never the process. It ends the connection that has held something
for the longest time without progress. A peer that opens many connections and sends nothing, sends parts of messages, or does not read its
answers, loses its own oldest connections. A normal client holds little, and for a short time.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["ConnectionSlots", "HeldBytes", "PeerConnection"]


class PeerConnection(Protocol):
    """One connection of a peer."""

    def abort(self, reason: str) -> None:
        """Close the connection now. Does nothing when it is closed already."""
        ...


class ConnectionSlots:
    """Limit the connections that are open at the same time, in all and for each address.

    A connection waits until the peer has shown that it is a client; then call ``mark_active``. When all slots are in use, the connection
    that has waited the longest is aborted and the new one gets its slot. When no connection waits, the new one is refused.
    Every call is O(1).

    Args:
        connections_max: connections at the same time; 0: no limit.
        per_address_max: connections from one address at the same time; 0: no limit. Beyond it the new connection is refused.
    """

    def __init__(self, connections_max: int, per_address_max: int = 0) -> None:
        self.connections_max = connections_max
        self.per_address_max = per_address_max
        self.refused_count = 0
        """Connections refused since the start."""
        self.ended_count = 0
        """Waiting connections aborted for a new one since the start."""
        self._addresses: dict[PeerConnection, str] = {}
        self._waiting: dict[PeerConnection, None] = {}  # in the order in which they began to wait
        self._per_address: dict[str, int] = {}

    @property
    def used_count(self) -> int:
        return len(self._addresses)

    def take(self, connection: PeerConnection, address: str) -> str:
        """Give a new connection a slot.

        Args:
            address: the peer's host, without the port.

        Returns:
            Why the connection is refused; empty when it has a slot. Call ``leave`` when a connection with a slot ends.
        """
        if self.per_address_max and self._per_address.get(address, 0) >= self.per_address_max:
            self.refused_count += 1
            return f"{address} has {self.per_address_max} connections open, the limit for one address"
        if self.connections_max and len(self._addresses) >= self.connections_max:
            oldest = next(iter(self._waiting), None)
            if oldest is None:
                self.refused_count += 1
                return f"{self.connections_max} connections are open, the limit"
            self.ended_count += 1
            self.leave(oldest)
            oldest.abort(f"{self.connections_max} connections are open, the limit, and this one has waited the longest for its client")
        self._addresses[connection] = address
        self._waiting[connection] = None
        self._per_address[address] = self._per_address.get(address, 0) + 1
        return ""

    def mark_active(self, connection: PeerConnection) -> None:
        """Note that the peer has shown it is a client, or that the process works for it. The connection is not aborted for a new one."""
        self._waiting.pop(connection, None)

    def mark_waiting(self, connection: PeerConnection) -> None:
        """Note that the connection waits for its peer again. All that wait already are aborted before it."""
        if connection in self._addresses:
            self._waiting.pop(connection, None)
            self._waiting[connection] = None

    def leave(self, connection: PeerConnection) -> None:
        """Free the slot of a connection that ended. Does nothing when it has none."""
        address = self._addresses.pop(connection, None)
        if address is None:
            return
        self._waiting.pop(connection, None)
        self._per_address[address] -= 1
        if not self._per_address[address]:
            del self._per_address[address]


class HeldBytes:
    """Limit the bytes that all connections together hold for one reason, such as parts of messages, or answers that nobody reads.

    Beyond the limit connections are aborted until the rest fits, first the one that has held something for the longest time. A connection
    that holds nothing for a moment counts from the beginning when it holds something again. Every call is O(1), besides the aborts.

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
        self._held: dict[PeerConnection, int] = {}  # in the order in which they began to hold something

    def set(self, connection: PeerConnection, size_bytes: int) -> None:
        """Set what a connection holds now; 0 when it holds nothing or ends. May abort connections, this one too."""
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
                f"all connections together hold more than {self.limit_bytes} bytes of {self._what}; this one held some for the longest"
            )
