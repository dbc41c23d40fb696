"""The simulated metadata service: one tree, sessions under virtual time, and the ways in which
ZooKeeper's answers can fail to arrive.

The service is the network node ``metadata``. Cut or clog the link between it and a node to separate
them. The requests of a session arrive in order. So do its answers, with the watch events among
them, as ZooKeeper promises. Everything may be late. A connection may break after a commit was
applied and before its answer left (``lost_answer_chance``), or before the commit was applied.

A program may get events in another order: kazoo delivers watches and answers in two threads, so the
callback of a watch may come after the answer of a read that shows the change
(``loose_watch_chance``). A session may be on a follower that lags (``lag``): its reads show an
earlier tree and its watches wait, until the session commits or syncs, as in ZooKeeper.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pulsarish.metadata.tree.nodes import Committed, Event, EventKind, Node, Session, parent_of
from pulsarish.metadata.tree.translate import answers, refusal_error, tree_ops, versioned
from pulsarish.metadata.tree.tree import Tree
from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.seams import Conflict, ConflictReason, Op, SessionLost, Versioned
from pulsarish.sim.world.network import Network, Wire

if TYPE_CHECKING:
    from pulsarish.sim.world.metadata_store import SimMetadata

__all__ = ["METADATA", "Answer", "Connection", "MetadataService", "Request", "copy_of"]

METADATA = "metadata"  # its name in the network
SESSION_TIMEOUT_SECONDS = 10.0
TICK_SECONDS = 0.5  # how often the service checks the sessions, as ZooKeeper's tickTime
# ZooKeeper rounds the end of a session up to a tick, so a holder with an ordinary clock knows
# first. One whose clock drifts may not.
EXPIRY_GRACE_MS = 50
_PASSWORD = bytes(16)

Answer = Any


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a store.

    ``run(service, session_id)`` is called on arrival. An exception is an answer, too.
    """

    run: Callable[[MetadataService, int], Answer]
    is_commit: bool = False


class Connection:
    """One connection of a store to the service.

    The service ignores what comes over any connection but the session's current one.
    """

    def __init__(self, network: Network, store: SimMetadata) -> None:
        self.store = store
        self.out = Wire(network, store.process.node.name, METADATA)
        self.back = Wire(network, METADATA, store.process.node.name)
        self.session_id = 0
        self.given_up = False  # by the store, before it was attached


@dataclass(slots=True)
class _Lag:
    """A follower that lags.

    It has applied everything up to ``view`` and holds these events back.
    """

    view: int
    waiting: list[Event] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Before:
    """The state of a path until transaction ``zxid``."""

    zxid: int
    node: Versioned | None
    children: list[str] | None


def copy_of(tree: Tree) -> Tree:
    """Return a copy of the tree without its watches."""
    nodes = [
        (
            path,
            Node(
                n.data,
                n.czxid,
                n.mzxid,
                n.pzxid,
                n.ctime_ms,
                n.mtime_ms,
                n.version,
                n.creates,
                n.session_id,
            ),
        )
        for path, n in tree.nodes.items()
    ]
    sessions = [
        Session(s.session_id, s.password, s.timeout_ms, s.deadline_ms)
        for s in tree.sessions.values()
    ]
    return Tree.restore(tree.zxid, nodes, sessions)


class MetadataService:
    """The tree, its sessions, and the faults as plain attributes that a fault plan or a test
    sets.
    """

    def __init__(self, network: Network, random_stream: random.Random) -> None:
        self.network = network
        self.tree = Tree()
        # the chance that a connection breaks at a commit: half before the commit is applied, half
        # after
        self.lost_answer_chance = 0.0
        self.late_watch_chance = 0.0
        self.late_watch_seconds = 2.0
        # the chance that the callback comes late, after answers that came after the event
        self.loose_watch_chance = 0.0
        self.slow_write_chance = 0.0
        self.slow_write_seconds = 1.0
        self.session_timeout_seconds = SESSION_TIMEOUT_SECONDS
        self.committed: Callable[[Iterable[str]], None] | None = None
        """Called with the paths that a commit has changed, right after it.

        For checks of what must hold at every moment.
        """
        self._random = random_stream
        self._connections: dict[int, Connection] = {}  # by session, the current one
        self._lagging: dict[int, _Lag] = {}  # by session
        self._past: dict[str, list[_Before]] = {}  # what lagging sessions still see, oldest first
        self.forgotten: dict[str, None] = {}
        """Nodes that no read shows although they exist, like those that are missing in a damaged
        snapshot.
        """
        self.newer: Tree | None = None
        """The tree that was removed. The service shows an older one."""
        self._down = False
        self._next_session = 0x1000
        self._ticking = False

    # -- faults

    def stop(self) -> None:
        """Stop the process.

        Everything that it has answered is durable, sessions too. Connections and watches are gone.
        """
        if not self._down:
            self.network.trace("meta service stops")
            self._down = True
            for session_id in list(self._connections):
                self.break_connection(session_id)

    def start(self, tree: Tree | None = None) -> None:
        """Start the process again, with its old tree or with another ``tree``."""
        if not self._down:
            return
        if tree is not None:
            self.tree = tree
        self.network.trace(f"meta service starts at {self.tree.zxid}")
        self._down = False
        for session_id in self.tree.sessions:
            self.tree.drop_watches(session_id)
        self.tree.restart_timeouts(self._now_ms())
        self._tick_later()

    def go_back(self, older: Tree) -> None:
        """Restart the process with less than it had answered."""
        if self.newer is None:
            self.stop()
            self.newer = self.tree
            self.start(older)

    def bring_back(self) -> None:
        """Put the newer tree back, as an operator does. Writes to the older tree are lost."""
        if self.newer is not None:
            self.stop()
            newer, self.newer = self.newer, None
            self.start(newer)

    @property
    def truth(self) -> Tree:
        """Return the tree that was promised, whatever the service shows."""
        return self.tree if self.newer is None else self.newer

    def expire(self, session_id: int) -> None:
        """Expire a session now. Its holder learns it from the next answer of the service."""
        if session_id in self.tree.sessions:
            self.network.trace(f"meta expire {session_id:x}")
            self._close_session(session_id)

    def break_connection(self, session_id: int) -> None:
        """Break the connection of a session.

        The session stays alive and its store connects again.
        """
        connection = self._connections.pop(session_id, None)
        # The store asks the next follower for a view that is no older, and registers its watches
        # there again.
        self._forget_lag(session_id)
        if connection is not None:
            self._break(connection)

    def lag(self, session_id: int) -> None:
        """Let the follower of this session fall behind: reads are stale and watches wait until
        ``catch_up``.
        """
        if session_id in self._connections and session_id not in self._lagging:
            self.network.trace(f"meta lag {session_id:x}")
            self._lagging[session_id] = _Lag(self.tree.zxid)

    def catch_up(self, session_id: int) -> None:
        """Let the follower of this session apply everything."""
        self._advance(session_id)
        self._forget_lag(session_id)

    def heal(self) -> None:
        self.bring_back()
        self.start()
        self.lost_answer_chance = self.late_watch_chance = self.loose_watch_chance = (
            self.slow_write_chance
        ) = 0.0
        self.forgotten.clear()
        for session_id in list(self._lagging):
            self.catch_up(session_id)

    # -- what stores send

    def reachable(self, node: str) -> bool:
        return (
            not self._down
            and self.network.state(node, METADATA) == "open"
            and self.network.state(METADATA, node) == "open"
        )

    def attach(self, connection: Connection, session_id: int) -> int | None:
        """Attach a store. ``session_id`` 0 asks for a new session.

        Return the id of the session, 0 when the session has expired, or None while the service is
        down. Like production's store it does not say what it has seen: it finds out itself that the
        tree is older.
        """
        if self._down:
            return None
        now_ms = self._now_ms()
        if session_id == 0:
            self._next_session += 1
            session_id = self._next_session
            self.tree.open_session(
                session_id, _PASSWORD, int(self.session_timeout_seconds * 1000), now_ms
            )
            self._tick_later()
        elif not self.tree.touch(session_id, now_ms):
            return 0
        # A client registers its open watches again.
        self.tree.drop_watches(session_id)
        self._forget_lag(session_id)
        connection.session_id = session_id
        self._connections[session_id] = connection
        self.network.trace(f"meta attach {session_id:x} {connection.store.process}")
        return session_id

    def handle(self, connection: Connection, number: int, request: Request) -> None:
        """Handle a request that arrived over a connection.

        Its answer goes back unless something breaks.
        """
        session_id = connection.session_id
        if self._connections.get(session_id) is not connection:
            return
        self.tree.touch(session_id, self._now_ms())
        breaks = request.is_commit and self._draw(self.lost_answer_chance)
        if breaks and self._random.random() < 0.5:
            self.break_connection(session_id)
            return
        try:
            answer = request.run(self, session_id)
        except (Conflict, SessionLost, PulsarishError) as refusal:
            answer = refusal
        if breaks:
            self.break_connection(session_id)
            return
        extra = (
            self.slow_write_seconds * self._random.random()
            if request.is_commit and self._draw(self.slow_write_chance)
            else 0.0
        )
        zxid = self._view(session_id)
        connection.back.carry(
            lambda: connection.store.hear(connection, number, answer, zxid), extra
        )

    # -- requests: each runs at one moment on the tree

    def get(self, session_id: int, path: str, watch: bool) -> Answer:
        if path in self.forgotten:
            return None
        before = self._seen_by(session_id, path)
        if before is not None:
            if watch:
                self._lagging[session_id].waiting.append(Event(session_id, EventKind.CHANGED, path))
            return before.node
        if watch:
            self.tree.watch_data(session_id, path)
        return self._versioned(path)

    def children(self, session_id: int, path: str, watch: bool) -> list[str]:
        before = self._seen_by(session_id, path)
        names = before.children if before is not None else self.tree.children(path)
        if names is None:
            raise Conflict(0, ConflictReason.NO_NODE, path)
        if watch and before is not None:
            self._lagging[session_id].waiting.append(Event(session_id, EventKind.CHILD, path))
        elif watch:
            self.tree.watch_children(session_id, path)
        return names

    def commit(self, session_id: int, ops: Sequence[Op]) -> list[str | int]:
        before = self._look_at(path for op in ops for path in (op.path, parent_of(op.path)))
        outcome = self.tree.commit(session_id, tree_ops(ops), self._now_ms())
        # The answer comes when the follower has applied the commit and everything before it. A
        # refusal waits as well.
        if not isinstance(outcome, Committed):
            self._advance(session_id)
            raise refusal_error(ops, outcome)
        self.network.trace(
            f"meta commit {session_id:x} {outcome.zxid} "
            + " ".join(f"{op.kind}:{op.path}" for op in ops)
        )
        self._remember(outcome, before)
        if self.committed is not None and self.newer is None:
            self.committed(outcome.touched_paths)
        self._tell(outcome.events)
        self._advance(session_id)
        return answers(ops, outcome)

    def sync(self, session_id: int) -> None:
        self._advance(session_id)

    def close(self, session_id: int) -> None:
        """End a session for its holder. The answer is the last message on the connection."""
        self._forget_lag(session_id)
        self._end_session(session_id)
        del self._connections[session_id]

    # -- followers that lag

    def _versioned(self, path: str) -> Versioned | None:
        node = self.tree.get(path)
        return None if node is None else versioned(node)

    def _look_at(
        self, paths: Iterable[str]
    ) -> dict[str, tuple[Versioned | None, list[str] | None]]:
        """Return the current state of these paths, when some reader will still see it after the
        change.
        """
        return (
            {path: (self._versioned(path), self.tree.children(path)) for path in paths}
            if self._lagging
            else {}
        )

    def _remember(
        self, outcome: Committed, before: dict[str, tuple[Versioned | None, list[str] | None]]
    ) -> None:
        if self._lagging:
            for path in outcome.touched_paths:
                # A path without a state is a sequential node: it did not exist before.
                self._past.setdefault(path, []).append(
                    _Before(outcome.zxid, *before.get(path, (None, None)))
                )

    def _seen_by(self, session_id: int, path: str) -> _Before | None:
        """Return what the session's follower still shows of a path. ``None``: the current state."""
        lag = self._lagging.get(session_id)
        if lag is None:
            return None
        return next((before for before in self._past.get(path, ()) if before.zxid > lag.view), None)

    def _view(self, session_id: int) -> int:
        """Return the transaction up to which the session's follower has come."""
        lag = self._lagging.get(session_id)
        return self.tree.zxid if lag is None else lag.view

    def _advance(self, session_id: int) -> None:
        lag = self._lagging.get(session_id)
        if lag is not None:
            lag.view = self.tree.zxid
            waiting, lag.waiting = lag.waiting, []
            self._send_events(waiting)

    def _forget_lag(self, session_id: int) -> None:
        self._lagging.pop(session_id, None)
        if not self._lagging:
            self._past.clear()

    # -- sessions

    def _now_ms(self) -> int:
        return int(self.network.loop.time() * 1000)

    def _draw(self, chance: float) -> bool:
        return chance > 0 and self._random.random() < chance

    def _tell(self, events: Sequence[Event]) -> None:
        for event in events:
            lag = self._lagging.get(event.session_id)
            if lag is not None:
                lag.waiting.append(event)
            else:
                self._send_events([event])

    def _send_events(self, events: Sequence[Event]) -> None:
        for event in events:
            connection = self._connections.get(event.session_id)
            if connection is not None:
                late = (
                    self.late_watch_seconds * self._random.random()
                    if self._draw(self.late_watch_chance)
                    else 0.0
                )
                loose = (
                    self.late_watch_seconds * self._random.random()
                    if self._draw(self.loose_watch_chance)
                    else 0.0
                )
                self._carry_event(connection, event, late, loose)

    def _carry_event(self, connection: Connection, event: Event, late: float, loose: float) -> None:
        connection.back.carry(lambda: connection.store.hear_event(connection, event, loose), late)

    def _close_session(self, session_id: int) -> None:
        self._end_session(session_id)
        self.break_connection(session_id)

    def _end_session(self, session_id: int) -> None:
        ephemerals = self.tree.sessions[session_id].ephemerals
        before = self._look_at(
            path for ephemeral in ephemerals for path in (ephemeral, parent_of(ephemeral))
        )
        closed = self.tree.close_session(session_id)
        assert closed is not None, session_id
        self.network.trace(f"meta closed {session_id:x}")
        self._remember(closed, before)
        self._tell(closed.events)

    def _break(self, connection: Connection) -> None:
        connection.back.carry(lambda: connection.store.hear_broken(connection))

    def _tick_later(self) -> None:
        if not self._ticking:
            self._ticking = True
            self.network.loop.call_later(TICK_SECONDS, self._tick, context=self.network.context)

    def _tick(self) -> None:
        self._ticking = False
        if self._down:
            return
        for session_id in self.tree.expired(self._now_ms() - EXPIRY_GRACE_MS):
            self.network.trace(f"meta session {session_id:x} expired")
            self._close_session(session_id)
        if self.tree.sessions and not self._down:
            self._tick_later()
