"""The tree machine beside a dumb oracle: a dictionary of paths that is copied before each commit,
and scanned for everything.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field

import pytest

from pulsarish.metadata.tree.nodes import (
    Check,
    Committed,
    Create,
    Delete,
    EventKind,
    Put,
    Refusal,
    Refused,
    TreeOp,
    parent_of,
    path_is_valid,
)
from pulsarish.metadata.tree.tree import Tree


@dataclass
class OracleNode:
    data: bytes
    version: int = 0
    made_children: int = 0
    owner: int = 0


@dataclass
class Oracle:
    """Says what a commit answers and what watches it fires, in the slowest way."""

    nodes: dict[str, OracleNode] = field(default_factory=lambda: {"/": OracleNode(b"")})
    data_watches: set[tuple[int, str]] = field(default_factory=set)
    child_watches: set[tuple[int, str]] = field(default_factory=set)

    def children(self, path: str) -> list[str]:
        return sorted(
            other.rsplit("/", 1)[1]
            for other in self.nodes
            if other != "/" and parent_of(other) == path
        )

    def fire(self, kind: EventKind, path: str) -> set[tuple[int, EventKind, str]]:
        fired: set[tuple[int, EventKind, str]] = set()
        if kind is not EventKind.CHILD:
            fired |= {(who, kind, path) for who, where in self.data_watches if where == path}
            self.data_watches = {watch for watch in self.data_watches if watch[1] != path}
        if kind in (EventKind.CHILD, EventKind.DELETED):
            fired |= {(who, kind, path) for who, where in self.child_watches if where == path}
            self.child_watches = {watch for watch in self.child_watches if watch[1] != path}
        return fired

    def commit(
        self, session_id: int, ops: list[TreeOp]
    ) -> tuple[object, set[tuple[int, EventKind, str]]]:
        before = copy.deepcopy(self.nodes)
        results: list[str] = []
        happened: list[tuple[EventKind, str]] = []
        for index, op in enumerate(ops):
            answer = self.apply(session_id, op, happened)
            if isinstance(answer, Refusal):
                self.nodes = before
                return (index, answer), set()
            results.append(answer)
        fired: set[tuple[int, EventKind, str]] = set()
        for kind, path in happened:
            fired |= self.fire(kind, path)
        return results, fired

    def apply(
        self, session_id: int, op: TreeOp, happened: list[tuple[EventKind, str]]
    ) -> str | Refusal:
        node = self.nodes.get(op.path)
        if isinstance(op, Create):
            parent = self.nodes.get(parent_of(op.path))
            if parent is None:
                return Refusal.NO_NODE
            path = op.path + (str(parent.made_children).zfill(10) if op.sequential else "")
            if path in self.nodes:
                return Refusal.EXISTS
            if parent.owner:
                return Refusal.NO_CHILDREN_FOR_EPHEMERALS
            parent.made_children += 1
            self.nodes[path] = OracleNode(op.data, owner=session_id if op.ephemeral else 0)
            happened += [(EventKind.CREATED, path), (EventKind.CHILD, parent_of(path))]
            return path
        if node is None:
            return Refusal.NO_NODE
        if op.version >= 0 and op.version != node.version:
            return Refusal.BAD_VERSION
        if isinstance(op, Put):
            node.data, node.version = op.data, node.version + 1
            happened.append((EventKind.CHANGED, op.path))
        elif isinstance(op, Delete):
            if self.children(op.path):
                return Refusal.NOT_EMPTY
            del self.nodes[op.path]
            happened += [(EventKind.DELETED, op.path), (EventKind.CHILD, parent_of(op.path))]
        return op.path

    def end_session(self, session_id: int) -> set[tuple[int, EventKind, str]]:
        self.data_watches = {watch for watch in self.data_watches if watch[0] != session_id}
        self.child_watches = {watch for watch in self.child_watches if watch[0] != session_id}
        fired: set[tuple[int, EventKind, str]] = set()
        for path in [path for path, node in self.nodes.items() if node.owner == session_id]:
            del self.nodes[path]
            fired |= self.fire(EventKind.DELETED, path) | self.fire(
                EventKind.CHILD, parent_of(path)
            )
        return fired


PATHS = ["/a", "/b", "/a/x", "/a/y", "/a/x/deep", "/b/s-", "/a/s-"]
SESSIONS = [11, 12, 13]


def random_op(rng: random.Random) -> TreeOp:
    path = rng.choice(PATHS)
    version = rng.choice([-1, -1, 0, 1, 2])
    match rng.randrange(8):
        case 0 | 1 | 2:
            return Create(
                path, rng.randbytes(2), ephemeral=rng.random() < 0.3, sequential=path.endswith("-")
            )
        case 3 | 4:
            return Put(path, rng.randbytes(2), version)
        case 5 | 6:
            return Delete(path, version)
        case _:
            return Check(path, version)


@pytest.mark.parametrize("seed", range(60))
def test_the_tree_agrees_with_the_oracle(seed: int) -> None:
    rng = random.Random(seed)
    tree, oracle = Tree(), Oracle()
    for session_id in SESSIONS:
        tree.open_session(session_id, bytes(16), 1000, 0)
    for step in range(300):
        session_id = rng.choice(SESSIONS)
        path = rng.choice(PATHS)
        match rng.randrange(20):
            case 0:
                closed = tree.close_session(session_id)
                assert closed is not None
                assert {
                    (event.session_id, event.kind, event.path) for event in closed.events
                } == oracle.end_session(session_id)
                tree.open_session(session_id, bytes(16), 1000, 0)
            case 1 | 2 | 3:
                tree.watch_data(session_id, path)
                oracle.data_watches.add((session_id, path))
            case 4 | 5:
                tree.watch_children(session_id, path)
                oracle.child_watches.add((session_id, path))
            case 6:
                tree.drop_watches(session_id)
                oracle.data_watches = {
                    watch for watch in oracle.data_watches if watch[0] != session_id
                }
                oracle.child_watches = {
                    watch for watch in oracle.child_watches if watch[0] != session_id
                }
            case _:
                ops = [random_op(rng) for _ in range(rng.choice([1, 1, 1, 2, 3, 5]))]
                zxid = tree.zxid
                outcome = tree.commit(session_id, ops, step)
                expected, fired = oracle.commit(session_id, ops)
                if isinstance(outcome, Refused):
                    assert (outcome.index, outcome.reason) == expected, ops
                    assert tree.zxid == zxid
                else:
                    assert [result.path for result in outcome.results] == expected, ops
                    events = [
                        (event.session_id, event.kind, event.path) for event in outcome.events
                    ]
                    assert len(events) == len(set(events))
                    assert set(events) == fired, ops
        tree.check()
        assert {
            path: (node.data, node.version, node.creates, node.session_id)
            for path, node in tree.nodes.items()
        } == {
            path: (node.data, node.version, node.made_children, node.owner)
            for path, node in oracle.nodes.items()
        }
        assert tree.children("/") == oracle.children("/")


def test_a_refused_commit_restores_every_field() -> None:
    tree = Tree()
    tree.open_session(1, bytes(16), 1000, 0)
    tree.commit(1, [Create("/p", b"p"), Create("/p/e", b"e", ephemeral=True), Put("/p", b"p1")], 5)
    before = {path: (node.stat(), node.data) for path, node in tree.nodes.items()}
    ephemerals = dict(tree.sessions[1].ephemerals)
    ops: list[TreeOp] = [
        Put("/p", b"p2"),
        Delete("/p/e"),
        Create("/p/e", b"other"),
        Create("/p/s", sequential=True, ephemeral=True),
        Put("/p", b"p3"),
        Delete("/p/e"),
        Delete("/p/s0000000002"),
        Check("/absent"),
    ]
    assert tree.commit(1, ops, 9) == Refused(7, Refusal.NO_NODE)
    assert {path: (node.stat(), node.data) for path, node in tree.nodes.items()} == before
    assert tree.sessions[1].ephemerals == ephemerals
    tree.check()


def test_events_come_in_the_order_of_the_operations() -> None:
    tree = Tree()
    tree.open_session(1, bytes(16), 1000, 0)
    tree.commit(1, [Create("/a"), Create("/b")], 0)
    for path in ("/a", "/b", "/c"):
        tree.watch_data(1, path)
    tree.watch_children(1, "/")
    tree.watch_children(1, "/b")
    outcome = tree.commit(1, [Put("/a", b""), Delete("/b"), Create("/c"), Delete("/c")], 0)
    assert isinstance(outcome, Committed)
    assert [(event.kind, event.path) for event in outcome.events] == [
        (EventKind.CHANGED, "/a"),
        (EventKind.DELETED, "/b"),  # once, though both the node and its children were waited for
        (EventKind.CHILD, "/"),
        (EventKind.CREATED, "/c"),
    ]


def test_sessions_expire_by_the_time_they_were_last_heard() -> None:
    tree = Tree()
    tree.open_session(1, b"a", 1000, 0)
    tree.open_session(2, b"b", 500, 0)
    assert tree.expired(499) == []
    assert tree.expired(500) == [2]
    assert tree.touch(2, 500)
    assert tree.expired(999) == []
    assert tree.expired(1000) == [1, 2]
    tree.restart_timeouts(2000)
    assert tree.expired(2499) == []
    assert tree.close_session(2) is not None
    assert tree.close_session(2) is None
    assert not tree.touch(2, 2100)
    assert tree.commit(2, [Create("/x")], 0) == Refused(0, Refusal.SESSION_EXPIRED)


@pytest.mark.parametrize(
    ("path", "valid"),
    [
        ("/", True),
        ("/a", True),
        ("/a/b", True),
        ("/a b/ü☃", True),
        ("/...", True),
        ("/.a", True),
        ("/a.", True),
        ("/zookeeper", True),
        ("", False),
        ("a", False),
        ("/a/", False),
        ("//", False),
        ("/a//b", False),
        ("/.", False),
        ("/..", False),
        ("/a/./b", False),
        ("/a/..", False),
        ("/\0", False),
        ("/\x1f", False),
        ("/\x7f", False),
        ("/\x9f", False),
        ("/\xa0", True),
        ("/\ud800", False),
        ("/\uf8ff", False),
        ("/\uf900", True),
        ("/\uffef", True),
        ("/\ufff0", False),
        ("/\U00010000", False),
        ("/a\n", False),
    ],
)
def test_path_rules(path: str, valid: bool) -> None:
    assert path_is_valid(path) is valid
