"""ZooKeeper's nodes, sessions, transactions and watches as one plain object.

It is the core of the in-memory, the embedded and the simulated store and of ``pulsarish metadata``.
It does no I/O, reads no clock and draws no random number: times, session ids and passwords are
inputs. Every commit returns its results, the watch events it caused and the paths and sessions it
touched. So a store can make exactly those durable before it answers any client (see ``rows.py``).

It promises what ZooKeeper 3.9 does, and the differential test checks that: all-or-nothing commits,
versions, sequence numbers counted per parent, one-shot watches, and ephemeral nodes that vanish
with their session in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsarish.metadata.tree.nodes import (
    INT32_MAX,
    ROOT,
    Check,
    Committed,
    Create,
    Delete,
    Event,
    EventKind,
    Node,
    Put,
    Refusal,
    Refuse,
    Refused,
    Result,
    Session,
    Stat,
    TreeOp,
    parent_of,
    path_is_valid,
    wrapped,
)

__all__ = [
    "ROOT",
    "WATCH_BYTES",
    "Check",
    "Committed",
    "Create",
    "Delete",
    "Event",
    "EventKind",
    "Node",
    "Put",
    "Refusal",
    "Refused",
    "Result",
    "Session",
    "Stat",
    "Tree",
    "TreeLimits",
    "TreeOp",
    "parent_of",
    "path_is_valid",
]


@dataclass(slots=True)
class _Transaction:
    zxid: int
    wall_ms: int
    session_id: int
    touched: dict[str, None] = field(default_factory=dict)
    fired: list[tuple[EventKind, str]] = field(default_factory=list)
    undo: list[tuple[str, Node, str, Node, int, int]] = field(default_factory=list)


# The memory of a node besides its path and data, about.
_NODE_BYTES: Final = 600
WATCH_BYTES: Final = 400


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """The limits of what peers may fill. None: no limit."""

    size_bytes_max: int | None = None
    """Of all nodes with their paths, data and other memory. Deletion still works above it."""
    ephemerals_max: int | None = None
    """Ephemeral nodes of one session. They are deleted in one transaction."""


_Watches = dict[str, dict[int, None]]


def _size_of(path: str, data: bytes) -> int:
    return _NODE_BYTES + len(path) + len(data)


class Tree:
    """The whole state. Sequential: one call at a time, each takes effect at once."""

    def __init__(self) -> None:
        self.zxid = 0
        self.limits = TreeLimits()
        self.size_bytes = _size_of(ROOT, b"")
        """The memory of all nodes, about."""
        self.ephemeral_count = 0
        self.watch_count = 0
        self.watch_bytes = 0
        """The memory of all watches, about."""
        self.changing = False
        """Set while a change is not complete.

        It stays set after an error: the tree is then in no valid state.
        """
        self.nodes: dict[str, Node] = {ROOT: Node(b"", 0, 0, 0, 0, 0)}
        self.sessions: dict[int, Session] = {}
        # A session that waits on a path gets one event for data and existence, and one for
        # children.
        self._data_watches: _Watches = {}
        self._child_watches: _Watches = {}
        self._watched_by: dict[int, dict[tuple[bool, str], None]] = {}
        self._watch_bytes: dict[int, int] = {}  # by session

    @classmethod
    def restore(
        cls, zxid: int, nodes: Iterable[tuple[str, Node]], sessions: Iterable[Session]
    ) -> Tree:
        """Rebuild a tree from durable nodes and sessions.

        Nodes come without children, sessions without ephemerals; watches are gone.
        """
        tree = cls()
        tree.zxid = zxid
        tree.size_bytes = 0
        tree.nodes.update(nodes)
        for session in sessions:
            tree.sessions[session.session_id] = session
        for path in sorted(tree.nodes):
            node = tree.nodes[path]
            tree.size_bytes += _size_of(path, node.data)
            if node.session_id:
                tree.ephemeral_count += 1
                tree.sessions[node.session_id].ephemerals[path] = None
            if path != ROOT:
                parent = tree.nodes[parent_of(path)]
                if parent.children is None:
                    parent.children = {}
                parent.children[path[path.rfind("/") + 1 :]] = None
        return tree

    def open_session(
        self, session_id: int, password: bytes, timeout_ms: int, now_ms: int
    ) -> Committed:
        """Begin a session. ``session_id`` is a number never used before and not 0."""
        assert session_id != 0, "0 means no session"
        assert session_id not in self.sessions, session_id
        self.zxid += 1
        self.sessions[session_id] = Session(session_id, password, timeout_ms, now_ms + timeout_ms)
        return Committed(self.zxid, [], [], {}, (session_id,))

    def touch(self, session_id: int, now_ms: int) -> bool:
        """Start the session's timeout again, because its client sent something.

        Return False when the session does not exist.
        """
        session = self.sessions.get(session_id)
        if session is None:
            return False
        session.deadline_ms = now_ms + session.timeout_ms
        return True

    def expired(self, now_ms: int) -> list[int]:
        """Return the sessions whose timeout has passed, oldest first.

        The caller closes each with ``close_session``.
        """
        return [
            session.session_id
            for session in self.sessions.values()
            if session.deadline_ms <= now_ms
        ]

    def restart_timeouts(self, now_ms: int) -> None:
        """Start all timeouts now: before a restart has finished no client could send anything."""
        for session in self.sessions.values():
            session.deadline_ms = now_ms + session.timeout_ms

    def close_session(self, session_id: int) -> Committed | None:
        """End a session (closed or expired), and delete its ephemeral nodes in one transaction.

        Return None when it does not exist.
        """
        session = self.sessions.pop(session_id, None)
        if session is None:
            return None
        self.changing = True
        self.drop_watches(session_id)
        transaction = _Transaction(self.zxid + 1, 0, session_id)
        for path in session.ephemerals:
            self._remove(path, self.nodes[path], transaction)
        return self._finish(transaction, [], (session_id,))

    def get(self, path: str) -> Node | None:
        return self.nodes.get(path)

    def children(self, path: str) -> list[str] | None:
        """Return the sorted names of the children; None when there is no such node."""
        node = self.nodes.get(path)
        if node is None:
            return None
        return sorted(node.children) if node.children else []

    def watch_data(self, session_id: int, path: str) -> None:
        """Send the session one event when ``path`` is created, changed or deleted."""
        self._watch(False, session_id, path)

    def watch_children(self, session_id: int, path: str) -> None:
        """Send the session one event when a child of ``path`` is created or deleted, or ``path``
        itself is deleted.
        """
        self._watch(True, session_id, path)

    def _watch(self, children: bool, session_id: int, path: str) -> None:
        watchers = (self._child_watches if children else self._data_watches).setdefault(path, {})
        if session_id not in watchers:
            watchers[session_id] = None
            self._watched_by.setdefault(session_id, {})[(children, path)] = None
            size_bytes = WATCH_BYTES + len(path)
            self.watch_count += 1
            self.watch_bytes += size_bytes
            self._watch_bytes[session_id] = self._watch_bytes.get(session_id, 0) + size_bytes

    def watch_bytes_of(self, session_id: int) -> int:
        """Return the memory of the session's watches, about."""
        return self._watch_bytes.get(session_id, 0)

    def drop_watches(self, session_id: int) -> None:
        """Forget all watches of a session: its connection is gone, and a client registers again
        what it still waits for.
        """
        mine = self._watched_by.pop(session_id, {})
        self.watch_count -= len(mine)
        self.watch_bytes -= self._watch_bytes.pop(session_id, 0)
        for children, path in mine:
            watches = self._child_watches if children else self._data_watches
            watchers = watches[path]
            del watchers[session_id]
            if not watchers:
                del watches[path]

    def _take_watchers(self, children: bool, path: str) -> dict[int, None] | None:
        watchers = (self._child_watches if children else self._data_watches).pop(path, None)
        if watchers:
            size_bytes = WATCH_BYTES + len(path)
            self.watch_count -= len(watchers)
            self.watch_bytes -= len(watchers) * size_bytes
            for session_id in watchers:
                self._watch_bytes[session_id] -= size_bytes
                mine = self._watched_by[session_id]
                del mine[(children, path)]
                if not mine:
                    del self._watched_by[session_id]
                    del self._watch_bytes[session_id]
        return watchers

    def _fire(self, fired: Sequence[tuple[EventKind, str]]) -> list[Event]:
        if not self._watched_by:
            return []
        events: list[Event] = []
        for kind, path in fired:
            if kind is not EventKind.CHILD:
                notified = self._take_watchers(False, path) or {}
                events += [Event(session_id, kind, path) for session_id in notified]
                if kind is EventKind.DELETED:
                    # A session that watches both the node and its children gets one event for the
                    # deletion.
                    for session_id in self._take_watchers(True, path) or ():
                        if session_id not in notified:
                            events.append(Event(session_id, kind, path))
            else:
                events += [
                    Event(session_id, kind, path)
                    for session_id in self._take_watchers(True, path) or ()
                ]
        return events

    def commit(self, session_id: int, ops: Sequence[TreeOp], wall_ms: int) -> Committed | Refused:
        """Do all of ``ops``, in order, or none.

        Each sees what those before it did. ``wall_ms`` stamps what is written.
        """
        if session_id not in self.sessions:
            return Refused(0, Refusal.SESSION_EXPIRED)
        transaction = _Transaction(self.zxid + 1, wall_ms, session_id)
        results: list[Result] = []
        self.changing = True
        for index, op in enumerate(ops):
            try:
                result = self._apply(op, transaction)
            except Exception:
                self._undo(transaction)
                raise
            if isinstance(result, Refusal):
                self._undo(transaction)
                return Refused(index, result)
            results.append(result)
        return self._finish(transaction, results, ())

    def _finish(
        self, transaction: _Transaction, results: list[Result], sessions: tuple[int, ...]
    ) -> Committed:
        # A commit without changes leaves no row, so it must not count: a client that saw its number
        # would be ahead after a restart.
        if transaction.touched or sessions:
            self.zxid = transaction.zxid
        committed = Committed(
            self.zxid, results, self._fire(transaction.fired), transaction.touched, sessions
        )
        self.changing = False
        return committed

    def _apply(self, op: TreeOp, transaction: _Transaction) -> Result | Refusal:
        match op:
            case Create():
                return self._create(op, transaction)
            case Put():
                return self._put(op, transaction)
            case Delete():
                return self._delete(op, transaction)
            case Check():
                node = self._expect(op.path, op.version)
                return node if isinstance(node, Refusal) else Result(op.path, node.stat())
            case Refuse():
                return op.reason

    def _expect(self, path: str, version: int) -> Node | Refusal:
        node = self.nodes.get(path)
        if node is None:
            return Refusal.NO_NODE if path_is_valid(path) else Refusal.BAD_ARGUMENTS
        if version not in (-1, node.version):
            return Refusal.BAD_VERSION
        return node

    def _create(self, op: Create, transaction: _Transaction) -> Result | Refusal:
        path = op.path
        slash = path.rfind("/")
        if slash < 0 or "\0" in path:
            return Refusal.BAD_ARGUMENTS
        parent_path = path[:slash] or ROOT
        parent = self.nodes.get(parent_path)
        if parent is None:
            return Refusal.NO_NODE
        if op.sequential:
            path = f"{path}{parent.creates:010d}"
        if path in self.nodes:
            return Refusal.EXISTS
        if not path_is_valid(path):
            return Refusal.BAD_ARGUMENTS
        if parent.session_id:
            return Refusal.NO_CHILDREN_FOR_EPHEMERALS
        if self._has_no_room(_size_of(path, op.data)) or (
            op.ephemeral and self._has_all_ephemerals(transaction.session_id)
        ):
            return Refusal.QUOTA_EXCEEDED
        zxid, wall_ms = transaction.zxid, transaction.wall_ms
        node = Node(
            op.data,
            zxid,
            zxid,
            zxid,
            wall_ms,
            wall_ms,
            0,
            0,
            transaction.session_id if op.ephemeral else 0,
        )
        transaction.undo.append(("create", node, path, parent, parent.creates, parent.pzxid))
        self._link(path, node, parent)
        parent.creates += 1
        parent.pzxid = zxid
        transaction.touched[path] = None
        transaction.touched[parent_path] = None
        transaction.fired.append((EventKind.CREATED, path))
        transaction.fired.append((EventKind.CHILD, parent_path))
        return Result(path, node.stat())

    def _put(self, op: Put, transaction: _Transaction) -> Result | Refusal:
        node = self._expect(op.path, op.version)
        if isinstance(node, Refusal):
            return node
        growth = len(op.data) - len(node.data)
        if growth > 0 and self._has_no_room(growth):
            return Refusal.QUOTA_EXCEEDED
        before = Node(node.data, 0, node.mzxid, 0, 0, node.mtime_ms, node.version)
        transaction.undo.append(("put", node, op.path, before, 0, 0))
        self.size_bytes += growth
        node.data = op.data
        node.version += 1
        if node.version > INT32_MAX:
            node.version = wrapped(node.version)
        node.mzxid = transaction.zxid
        node.mtime_ms = transaction.wall_ms
        transaction.touched[op.path] = None
        transaction.fired.append((EventKind.CHANGED, op.path))
        return Result(op.path, node.stat())

    def _delete(self, op: Delete, transaction: _Transaction) -> Result | Refusal:
        if op.path == ROOT or "/" not in op.path or "\0" in op.path:
            return Refusal.BAD_ARGUMENTS
        node = self.nodes.get(op.path)
        if node is None:
            return Refusal.NO_NODE  # ZooKeeper answers so, whatever the rest of the path is
        if op.version not in (-1, node.version):
            return Refusal.BAD_VERSION
        if node.children:
            return Refusal.NOT_EMPTY
        self._remove(op.path, node, transaction)
        return Result(op.path)

    def _remove(self, path: str, node: Node, transaction: _Transaction) -> None:
        parent_path = parent_of(path)
        parent = self.nodes[parent_path]
        transaction.undo.append(("delete", node, path, parent, parent.creates, parent.pzxid))
        self._unlink(path, node, parent)
        parent.pzxid = transaction.zxid
        transaction.touched[path] = None
        transaction.touched[parent_path] = None
        transaction.fired.append((EventKind.DELETED, path))
        transaction.fired.append((EventKind.CHILD, parent_path))

    def _has_no_room(self, growth_bytes: int) -> bool:
        limit_bytes = self.limits.size_bytes_max
        return limit_bytes is not None and self.size_bytes + growth_bytes > limit_bytes

    def _has_all_ephemerals(self, session_id: int) -> bool:
        limit = self.limits.ephemerals_max
        return limit is not None and len(self.sessions[session_id].ephemerals) >= limit

    def _link(self, path: str, node: Node, parent: Node) -> None:
        self.nodes[path] = node
        self.size_bytes += _size_of(path, node.data)
        if parent.children is None:
            parent.children = {}
        parent.children[path[path.rfind("/") + 1 :]] = None
        if node.session_id:
            self.ephemeral_count += 1
            self.sessions[node.session_id].ephemerals[path] = None

    def _unlink(self, path: str, node: Node, parent: Node) -> None:
        del self.nodes[path]
        self.size_bytes -= _size_of(path, node.data)
        self.ephemeral_count -= node.session_id != 0
        assert parent.children is not None
        del parent.children[path[path.rfind("/") + 1 :]]
        # When the session itself is being closed it is no longer in the table.
        owner = self.sessions.get(node.session_id)
        if owner is not None:
            del owner.ephemerals[path]

    def _undo(self, transaction: _Transaction) -> None:
        for what, node, path, other, creates, pzxid in reversed(transaction.undo):
            if what == "put":
                self.size_bytes += len(other.data) - len(node.data)
                node.data, node.version, node.mzxid, node.mtime_ms = (
                    other.data,
                    other.version,
                    other.mzxid,
                    other.mtime_ms,
                )
                continue
            if what == "create":
                self._unlink(path, node, other)
            else:
                self._link(path, node, other)
            other.creates, other.pzxid = creates, pzxid
        self.changing = False

    def check(self) -> None:
        """Assert what must hold between calls.

        It walks the whole tree: for tests and simulation.
        """
        listed = size_bytes = 0
        for path, node in self.nodes.items():
            assert path_is_valid(path), path
            assert node.czxid <= node.mzxid <= self.zxid, path
            assert node.czxid <= node.pzxid <= self.zxid, path
            children = node.children or {}
            assert node.creates >= len(children), path
            assert not (node.session_id and children), path
            listed += len(children)
            size_bytes += _size_of(path, node.data)
            for name in children:
                assert f"{path if path != ROOT else ''}/{name}" in self.nodes, (path, name)
            if node.session_id:
                assert path in self.sessions[node.session_id].ephemerals, path
        assert listed == len(self.nodes) - 1, "every node but the root is listed by its parent"
        assert self.size_bytes == size_bytes, "the size is that of all nodes"
        assert self.ephemeral_count == sum(
            len(session.ephemerals) for session in self.sessions.values()
        )
        for session in self.sessions.values():
            for path in session.ephemerals:
                assert self.nodes[path].session_id == session.session_id, path
        waiting = {
            (session_id, key) for session_id, keys in self._watched_by.items() for key in keys
        }
        registered = {
            (who, (False, path))
            for path, watchers in self._data_watches.items()
            for who in watchers
        }
        registered |= {
            (who, (True, path))
            for path, watchers in self._child_watches.items()
            for who in watchers
        }
        assert self.watch_count == len(waiting)
        sizes = {
            who: sum(WATCH_BYTES + len(path) for _, path in keys)
            for who, keys in self._watched_by.items()
        }
        assert self._watch_bytes == sizes
        assert self.watch_bytes == sum(sizes.values())
        assert waiting == registered, "watches and their owners agree"
        assert all(session_id in self.sessions for session_id in self._watched_by)
