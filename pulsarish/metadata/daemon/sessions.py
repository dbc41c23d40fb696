"""The sessions of ``pulsarish metadata``: the connection of each, how they are made, and how many
there may be.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from pulsarish.metadata.daemon.zkwire import LongReply, encode_event
from pulsarish.metadata.tree.nodes import Event, EventKind
from pulsarish.metadata.tree.tree import WATCH_BYTES, Tree
from pulsarish.runtime.containment import Scope
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.peer_limits import ConnectionSlots
from pulsarish.runtime.seams import Clock
from pulsarish.security.metadata_login import MetadataLogins

__all__ = ["PASSWORD_BYTES", "Peer", "SessionLimits", "SessionTable"]

PASSWORD_BYTES: Final = 16
_SESSION_SHARE: Final = 10
_log = get_logger("metadata.sessions")


class Peer(Protocol):
    """A client's connection, as the jobs see it."""

    # 0 until the handshake is decided, and again when the session has moved to another connection
    session_id: int
    # whether its requests are done: it has logged in, or need not
    is_admitted: bool

    def admit(self) -> None:
        """Note that the client has logged in."""
        ...

    @property
    def address(self) -> str: ...

    @property
    def scope(self) -> Scope:
        """The scope that ends when work for the client fails."""
        ...

    def contain(self, what: str, error: Exception) -> None:
        """Count and log an error that happened during work for the client, and close now."""
        ...

    @property
    def gone(self) -> bool:
        """Whether the connection is closed."""
        ...

    def attach(self, session_id: int) -> None:
        """Use this connection for the session from now on."""
        ...

    def detach(self) -> None:
        """Take the session away from the connection.

        Its waiting requests are not done, and it ends.
        """
        ...

    def expect(self, answer: bytes | LongReply) -> None:
        """Count an answer that will be given.

        When the client has too many, its next requests wait.
        """
        ...

    def answer(self, answer: bytes | LongReply) -> None:
        """Queue an answer.

        All answers of a batch leave together. Ignored once the connection is gone.
        """
        ...

    def answered(self, size_bytes: int) -> None:
        """Note that a request of this size was answered."""
        ...

    def end(self) -> None:
        """Close after what is queued has left."""
        ...

    def abort(self, reason: str) -> None:
        """Close now."""
        ...


@dataclass(frozen=True, slots=True)
class SessionLimits:
    timeout_min_ms: int
    timeout_max_ms: int
    sessions_max: int
    per_address_max: int
    watch_bytes_max: int


class _SessionSlot:
    """A counted session. It waits while it has neither a connection nor ephemeral nodes."""

    def __init__(self, session_id: int, evicted: Callable[[int, str], None]) -> None:
        self._session_id = session_id
        self._evicted = evicted

    def abort(self, reason: str) -> None:
        self._evicted(self._session_id, reason)


class SessionTable:
    """The connection of each session, and how sessions are made.

    Args:
        end_idle: ends a session that has to make room for another one.
        logins: those that clients may log in with; ``None``: every login is as good as none.
    """

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        limits: SessionLimits,
        end_idle: Callable[[int], None],
        logins: MetadataLogins | None = None,
    ) -> None:
        self.clock = clock
        self.logins = logins
        self.attached = asyncio.Event()
        """Set when a session is opened or comes back: its timeout may pass before all others."""
        self.peers: dict[int, Peer] = {}
        self._random = rng
        self._limits = limits
        self._end_idle = end_idle
        self._slots = ConnectionSlots(limits.sessions_max, limits.per_address_max, what="sessions")
        self._slot_of: dict[int, _SessionSlot] = {}
        self._event = (EventKind.CREATED, "")
        self._event_frame = b""

    def now_ms(self) -> int:
        return int(self.clock.monotonic() * 1000)

    def new_id(self, tree: Tree) -> int:
        while True:
            session_id = self._random.getrandbits(63)
            if session_id and session_id not in tree.sessions:
                return session_id

    def new_password(self) -> bytes:
        return self._random.getrandbits(PASSWORD_BYTES * 8).to_bytes(PASSWORD_BYTES, "big")

    def negotiated_ms(self, asked_ms: int) -> int:
        return min(max(asked_ms, self._limits.timeout_min_ms), self._limits.timeout_max_ms)

    def take_over(self, tree: Tree) -> None:
        """Count the sessions that existed before this process.

        They count as used, because their clients come back.
        """
        for session_id in tree.sessions:
            # Their addresses are not known, so none of them counts against an address.
            if not self.admit(session_id, f"session {session_id:#x}"):
                self._slots.mark_active(self._slot_of[session_id])

    def admit(self, session_id: int, address: str) -> str:
        """Count a new session. Return why it is refused, or an empty string."""
        slot = _SessionSlot(session_id, self._evict)
        refused = self._slots.take(slot, address)
        if not refused:
            self._slot_of[session_id] = slot
        return refused

    def closed(self, session_id: int) -> None:
        """Note that the session has ended."""
        slot = self._slot_of.pop(session_id, None)
        if slot is not None:
            self._slots.leave(slot)

    def attach(self, session_id: int, peer: Peer) -> None:
        """Attach the session to ``peer``.

        Its former connection is closed, and waiting requests of that one are not done.
        """
        before = self.peers.get(session_id)
        if before is not None and before is not peer:
            before.detach()
        self.peers[session_id] = peer
        self.attached.set()
        peer.attach(session_id)
        # it was chosen to make room, and came back before it was ended
        if session_id not in self._slot_of:
            self.admit(session_id, peer.address)
        slot = self._slot_of.get(session_id)
        if slot is not None:
            self._slots.mark_active(slot)

    def _evict(self, session_id: int, reason: str) -> None:
        _log.warning("session ended", session=f"{session_id:#x}", reason=reason)
        del self._slot_of[session_id]
        self._end_idle(session_id)

    def detach(self, tree: Tree, session_id: int, peer: Peer) -> None:
        """Detach the session from ``peer``, if ``peer`` still has it.

        The session lives on until its timeout. Its watches do not: the client registers them again.
        """
        if self.peers.get(session_id) is not peer:
            return
        del self.peers[session_id]
        peer.session_id = 0
        tree.drop_watches(session_id)
        slot, session = self._slot_of.get(session_id), tree.sessions.get(session_id)
        if slot is not None and session is not None and not session.ephemerals:
            self._slots.mark_waiting(slot)

    def end_peer(self, session_id: int) -> None:
        """End the connection of a session that has ended."""
        peer = self.peers.pop(session_id, None)
        if peer is not None:
            peer.detach()

    def may_watch(self, tree: Tree, session_id: int, paths_bytes: int, count: int = 1) -> bool:
        """Return whether the session may set more watches.

        One session gets at most a tenth of the limit. The second half of the limit is for sessions
        that have less than an equal share of it: the first sessions must not keep the others from
        watching.
        """
        limit = self._limits.watch_bytes_max
        more_bytes = paths_bytes + count * WATCH_BYTES
        mine_bytes, all_bytes = (
            tree.watch_bytes_of(session_id) + more_bytes,
            tree.watch_bytes + more_bytes,
        )
        is_fair = all_bytes <= limit // 2 or mine_bytes <= limit // 2 // max(len(self.peers), 1)
        return is_fair and mine_bytes <= limit // _SESSION_SHARE and all_bytes <= limit

    def deliver(self, event: Event) -> None:
        peer = self.peers.get(event.session_id)
        if peer is None:
            return
        if self._event != (event.kind, event.path):
            # Sessions that wait for the same event get the same bytes.
            self._event, self._event_frame = (event.kind, event.path), encode_event(event)
        try:
            peer.expect(self._event_frame)
            peer.answer(self._event_frame)
        except Exception as error:  # noqa: BLE001
            # A failure for one peer: the others must get the event, too.
            peer.contain("watch event", error)
