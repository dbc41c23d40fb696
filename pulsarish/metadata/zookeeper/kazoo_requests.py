"""The operations of ``MetadataStore`` as kazoo's requests, and kazoo's errors as those of
``MetadataStore``.

kazoo's own methods (``create_async`` and others) build the same requests, each under several
wrappers and locks that cost more than the request does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    QuotaExceededError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    SetACL,
    SetData,
    Transaction,
    int_struct,
)
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id, Permissions

from pulsarish.model.errors import AuthorizationError, InvalidArgument, MetadataUnavailable
from pulsarish.runtime.seams import Conflict, ConflictReason, Op, OutcomeUnknown, SessionLost

__all__ = [
    "EVERYONE",
    "TREE_FULL",
    "Refused",
    "access_list_request",
    "barrier_request",
    "children_request",
    "commit_answer",
    "commit_refusal",
    "commit_request",
    "exists_request",
    "get_request",
    "is_denied",
    "is_unknown_access_list",
    "only_for",
    "reason_of",
    "refusal",
    "unanswered",
]

Refused: Final = KazooException
"""The server's answer instead of a result: ``reason_of``, ``refusal`` and ``commit_refusal`` say
what it means.
"""

_REASONS: Final[dict[type[BaseException], ConflictReason]] = {
    NoNodeError: ConflictReason.NO_NODE,
    NodeExistsError: ConflictReason.EXISTS,
    BadVersionError: ConflictReason.BAD_VERSION,
    NotEmptyError: ConflictReason.NOT_EMPTY,
}
_CONNECTION_ERRORS: Final = (
    ConnectionLoss,
    ConnectionClosedError,
    OperationTimeoutError,
    SessionMovedError,
)
_ROLLED_BACK: Final = (RolledBackError, RuntimeInconsistency)
EVERYONE: Final = OPEN_ACL_UNSAFE
"""The access list of a node that everyone may use."""
TREE_FULL: Final = (
    "it is full; raise tree_bytes_max of pulsarish metadata, or the quota of ZooKeeper, or delete "
    "topics"
)
_FULL_FOR_SESSION: Final = (
    "it is full, or has no room for more nodes of this session; raise tree_bytes_max or "
    "ephemeral_nodes_per_session_max of pulsarish metadata, or the quota of ZooKeeper"
)
_WATCHES_FULL: Final = (
    "it has no room for more watches of this session; raise watch_bytes_max of pulsarish metadata"
)
_CREATE_FLAGS: Final = {"create": 0, "create_ephemeral": 1, "create_sequential": 2}


def get_request(path: str) -> Any:
    return GetData(path, None)


def exists_request(path: str, watch: Callable[[object], None] | None = None) -> Any:
    return Exists(path, watch)


class _Children(GetChildren):  # type: ignore[misc]  # kazoo has no types
    """Decode a long answer in half the time: kazoo's own request decodes it name by name, and the
    loop waits for the lock.
    """

    __slots__ = ()

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[str]:
        # Each name follows its length in four bytes, of which nearly always three are zero, and no
        # byte of a name is zero.
        lengths_and_names = data[offset + int_struct.size :].decode("latin-1").split("\0\0\0")[1:]
        names = [each[1:] for each in lengths_and_names]
        is_whole = len(names) == int_struct.unpack_from(data, offset)[0] and all(
            map(str.isascii, names)
        )
        if is_whole and [ord(each[0]) for each in lengths_and_names if each] == list(
            map(len, names)
        ):
            return names
        slowly: list[str] = super().deserialize(data, offset)
        return slowly


def children_request(path: str, watch: Callable[[object], None] | None) -> Any:
    return _Children(path, watch)


def barrier_request(path: str) -> Any:
    """Return a request whose answer comes after all that was committed before it, by any client.

    It is a transaction that changes nothing, so a majority of the servers must accept it. ZooKeeper
    answers its own ``sync`` without that (ZOOKEEPER-2136): a leader that was replaced, and does not
    know it yet, answers from an older tree, and any leader may answer before it has applied what a
    follower has already confirmed to its client.

    Args:
        path: a node that exists.
    """
    return Transaction([CheckVersion(path, -1)])


def only_for(identities: Sequence[str]) -> list[Any]:
    """Return the access list of a node that only these logins may use.

    They are named, and not "the maker of the node": to ZooKeeper that would be its certificate,
    too.
    """
    return [ACL(Permissions.ALL, Id("digest", identity)) for identity in identities]


def access_list_request(path: str, access_list: Any) -> Any:
    return SetACL(path, access_list, -1)


def commit_request(
    ops: Sequence[Op], full: Callable[[str], str], access_list: Any = EVERYONE
) -> Any:
    """Return the request for a commit. ``full`` returns the server's path for an operation's.

    One operation goes alone, unless it is a check, which cannot.
    """
    if len(ops) == 1 and ops[0].kind != "check":
        return _op_request(ops[0], full, access_list)
    return Transaction([_op_request(op, full, access_list) for op in ops])


def commit_answer(ops: Sequence[Op], answer: Any, below: Callable[[str], str]) -> list[str | int]:
    """Return what ``MetadataStore.commit`` returns.

    ``below`` returns the store's path for the server's.

    Raises the error for what the server refused.
    """
    results: list[Any] = answer if isinstance(answer, list) else [answer]
    for index, result in enumerate(results):
        if isinstance(result, KazooException) and not isinstance(result, _ROLLED_BACK):
            raise commit_refusal(ops, index, result)
    found: list[str | int] = []
    for op, result in zip(ops, results, strict=True):
        match op.kind:
            case "put":
                found.append(int(result.version))
            case "check":
                found.append(op.version)
            case "delete":
                found.append(-1)
            case _:
                found.append(below(result))
    return found


def _op_request(op: Op, full: Callable[[str], str], access_list: Any) -> Any:
    path = full(op.path)
    match op.kind:
        case "put":
            return SetData(path, op.data, op.version)
        case "delete":
            return Delete(path, op.version)
        case "check":
            return CheckVersion(path, op.version)
        case kind:
            return Create(path, op.data, access_list, _CREATE_FLAGS[kind])


def unanswered(error: Exception) -> OutcomeUnknown | SessionLost | None:
    """Return the store's error when there was no answer; None when ``error`` is the server's
    answer.
    """
    if isinstance(error, SessionExpiredError):
        return SessionLost("the session has expired")
    if isinstance(error, _CONNECTION_ERRORS):
        return OutcomeUnknown("the connection to the metadata store broke before the answer")
    return None


def reason_of(error: BaseException) -> ConflictReason | None:
    """Return which conflict the server's answer is, if it is one."""
    return _REASONS.get(type(error))


def is_denied(error: BaseException) -> bool:
    """Return whether the server gives this login, or none, no right."""
    return isinstance(error, NoAuthError)


def is_unknown_access_list(error: BaseException) -> bool:
    """Return whether the server does not keep the access list of a node."""
    return isinstance(error, InvalidACLError)


def commit_refusal(ops: Sequence[Op], index: int, error: Exception) -> Exception:
    """Return the store's error for the server's answer to a commit."""
    reason, op = reason_of(error), ops[index]
    if reason is not None:
        return Conflict(index, reason, op.path)
    return refusal(
        op.path, error, _FULL_FOR_SESSION if op.kind == "create_ephemeral" else TREE_FULL
    )


def refusal(path: str, error: Exception, quota: str = _WATCHES_FULL) -> Exception:
    """Return the store's error for an answer that is not a conflict.

    Args:
        quota: what a quota error means. That of a read is about watches.
    """
    what = f"the metadata store refuses {path}: {type(error).__name__}"
    if isinstance(error, BadArgumentsError | NoChildrenForEphemeralsError | InvalidACLError):
        return InvalidArgument(what)
    if isinstance(error, NoAuthError):
        return AuthorizationError(what)
    if isinstance(error, QuotaExceededError):
        return MetadataUnavailable(f"{what}: {quota}")
    return OutcomeUnknown(what)
