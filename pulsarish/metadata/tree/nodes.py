"""The values of the metadata tree: paths, nodes, sessions, operations, answers and watch events.

``tree.py`` works on them.
"""

from __future__ import annotations

import re
from enum import Enum, IntEnum

import msgspec

__all__ = [
    "INT32_MAX",
    "ROOT",
    "Check",
    "Committed",
    "Create",
    "Delete",
    "Event",
    "EventKind",
    "Node",
    "Put",
    "Refusal",
    "Refuse",
    "Refused",
    "Result",
    "Session",
    "Stat",
    "TreeOp",
    "parent_of",
    "path_is_valid",
    "wrapped",
]

ROOT = "/"

# czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeral owner, data length, children,
# pzxid: the order of the wire.
Stat = tuple[int, int, int, int, int, int, int, int, int, int, int]

# ZooKeeper refuses control characters, surrogates, private use and specials (so everything outside
# the basic plane, too).
_PATH = re.compile(
    r"/|(/(?!\.{1,2}(/|$))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]+)+"
)


def path_is_valid(path: str) -> bool:
    """Return whether ZooKeeper accepts ``path``: absolute, no empty, ``.`` or ``..`` segment, no
    end slash, no control characters.
    """
    return _PATH.fullmatch(path) is not None


def parent_of(path: str) -> str:
    """Return the path of the parent; the root is its own parent."""
    return path[: path.rfind("/")] or ROOT


INT32_MAX = 0x7FFFFFFF


def wrapped(count: int) -> int:
    """Return a count as the 32 bits of the wire, which wrap to the negative end, as in
    ZooKeeper.
    """
    return (count + 0x80000000 & 0xFFFFFFFF) - 0x80000000


class Node(msgspec.Struct):
    """One node.

    ``creates`` counts the children ever created: it numbers sequential nodes, and ``cversion``
    derives from it.
    """

    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int = 0
    creates: int = 0
    session_id: int = 0  # the owner of an ephemeral node, otherwise 0
    children: dict[str, None] | None = None  # names, made with the first child

    def stat(self) -> Stat:
        """The Stat of the wire.

        ZooKeeper reports creates and deletes of children together as ``cversion``.
        """
        count = len(self.children) if self.children else 0
        changes = self.creates * 2 - count
        if changes > INT32_MAX:
            changes = wrapped(changes)
        return (
            self.czxid, self.mzxid, self.ctime_ms, self.mtime_ms, self.version, changes, 0,
            self.session_id, len(self.data), count, self.pzxid,
        )  # fmt: skip


class Session(msgspec.Struct):
    """A client's session.

    ``deadline_ms`` is on the caller's monotonic clock; everything else is durable.
    """

    session_id: int
    password: bytes
    timeout_ms: int
    deadline_ms: int
    ephemerals: dict[str, None] = msgspec.field(default_factory=dict)


class Create(msgspec.Struct):
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Put(msgspec.Struct):
    path: str
    data: bytes
    version: int = -1


class Delete(msgspec.Struct):
    path: str
    version: int = -1


class Check(msgspec.Struct):
    path: str
    version: int = -1


class Refusal(Enum):
    NO_NODE = "no_node"
    EXISTS = "exists"
    BAD_VERSION = "bad_version"
    NOT_EMPTY = "not_empty"
    NO_CHILDREN_FOR_EPHEMERALS = "no_children_for_ephemerals"
    BAD_ARGUMENTS = "bad_arguments"
    INVALID_ACL = "invalid_acl"
    SESSION_EXPIRED = "session_expired"
    QUOTA_EXCEEDED = "quota_exceeded"


class Refuse(msgspec.Struct):
    """An operation that a server does not support, such as an access list.

    It fails its commit in its turn, after what fails before it.
    """

    path: str
    reason: Refusal


TreeOp = Create | Put | Delete | Check | Refuse


class EventKind(IntEnum):
    """Why a watch fired, with the wire's numbers."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILD = 4


class Event(msgspec.Struct):
    session_id: int
    kind: EventKind
    path: str


class Result(msgspec.Struct):
    """The answer to one operation: the path it worked on (with its number when sequential) and the
    node's stat right after it.
    """

    path: str
    stat: Stat | None = None  # None for a delete


class Committed(msgspec.Struct):
    """A transaction that happened. ``events`` precede the answer.

    Touched paths that no longer exist were deleted; so were touched sessions.
    """

    zxid: int
    results: list[Result]
    events: list[Event]
    touched_paths: dict[str, None]
    touched_sessions: tuple[int, ...] = ()


class Refused(msgspec.Struct):
    """A transaction that did not happen: operation ``index`` was refused, nothing changed."""

    index: int
    reason: Refusal
