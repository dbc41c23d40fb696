"""The tree as rows of a key-value index: what a store makes durable after each batch of commits,
and reads back at start.

Keys: ``m`` the header, ``n`` + path a node, ``s`` + session id (8 bytes) a session. Values are
fixed big-endian headers followed by the data. The rows of a batch are written atomically, so the
rows read back are the state after some whole batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from pulsarish.metadata.tree.nodes import Committed, Node, Session
from pulsarish.metadata.tree.tree import Tree
from pulsarish.model.errors import CorruptData
from pulsarish.runtime.seams import KeyValueIndex

__all__ = ["Batch", "load"]

_FORMAT: Final = 1
_HEADER: Final = struct.Struct(">Iq")  # format, zxid
# czxid, mzxid, pzxid, ctime, mtime, version, creates, session
_NODE: Final = struct.Struct(">qqqqqqqq")
_SESSION: Final = struct.Struct(">i16s")  # timeout_ms, password
_HEADER_KEY: Final = b"m"
_PAGE_ROWS: Final = 5000

Row = tuple[bytes, bytes]


class Batch:
    """What a run of commits touched.

    Each row is written once per batch, in its last state, however often it changed.
    """

    def __init__(self) -> None:
        self._paths: dict[str, None] = {}
        self._sessions: dict[int, None] = {}

    def add(self, committed: Committed) -> None:
        self._paths.update(committed.touched_paths)
        for session_id in committed.touched_sessions:
            self._sessions[session_id] = None

    def __bool__(self) -> bool:
        return bool(self._paths or self._sessions)

    def rows(self, tree: Tree) -> tuple[list[Row], list[bytes]]:
        """Return rows to put and keys to delete.

        Called at the end of the batch, before the tree changes again.
        """
        puts = [(_HEADER_KEY, _HEADER.pack(_FORMAT, tree.zxid))]
        deletes: list[bytes] = []
        for path in self._paths:
            key = b"n" + path.encode()
            node = tree.nodes.get(path)
            if node is None:
                deletes.append(key)
            else:
                puts.append((key, _node_row(node)))
        for session_id in self._sessions:
            key = b"s" + struct.pack(">q", session_id)
            session = tree.sessions.get(session_id)
            if session is None:
                deletes.append(key)
            else:
                puts.append((key, _SESSION.pack(session.timeout_ms, session.password)))
        return puts, deletes


def _node_row(node: Node) -> bytes:
    return (
        _NODE.pack(
            node.czxid,
            node.mzxid,
            node.pzxid,
            node.ctime_ms,
            node.mtime_ms,
            node.version,
            node.creates,
            node.session_id,
        )
        + node.data
    )


async def load(index: KeyValueIndex) -> Tree:
    """Rebuild the tree from its rows; an empty index is an empty tree.

    Sessions' deadlines are 0: see ``Tree.restart_timeouts``.

    Raises ``CorruptData`` when the rows are of another format or do not form a tree.
    """
    (header,) = await index.get_many([_HEADER_KEY])
    if header is None:
        return Tree()
    kind, zxid = _HEADER.unpack(header)
    if kind != _FORMAT:
        raise CorruptData(
            f"the metadata store has format {kind}; this version reads format {_FORMAT}"
        )
    sessions = [
        Session(struct.unpack(">q", key[1:])[0], password, timeout_ms, 0)
        for key, value in await _scan(index, b"s")
        for timeout_ms, password in (_SESSION.unpack(value),)
    ]
    nodes = [(key[1:].decode(), _node(value)) for key, value in await _scan(index, b"n")]
    return _restored(zxid, nodes, sessions)


def _restored(zxid: int, nodes: Iterable[tuple[str, Node]], sessions: Iterable[Session]) -> Tree:
    try:
        tree = Tree.restore(zxid, nodes, sessions)
        tree.check()
    except (KeyError, AssertionError) as error:
        raise CorruptData(
            f"the rows of the metadata store do not form a tree: {error!r}"
        ) from error
    return tree


def _node(row: bytes) -> Node:
    czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, creates, session_id = _NODE.unpack_from(row)
    return Node(
        row[_NODE.size :], czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, creates, session_id
    )


async def _scan(index: KeyValueIndex, prefix: bytes) -> list[Row]:
    rows: list[Row] = []
    start, end = prefix, bytes([prefix[0] + 1])
    while True:
        page = await index.scan(start, end, limit=_PAGE_ROWS)
        rows += page
        if len(page) < _PAGE_ROWS:
            return rows
        start = page[-1][0] + b"\0"
