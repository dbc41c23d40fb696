"""Translation between the operations of ``MetadataStore`` and the tree's, for every store that has
the tree in its own process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pulsarish.metadata.tree.nodes import (
    Check,
    Committed,
    Create,
    Delete,
    Node,
    Put,
    Refusal,
    Refused,
    TreeOp,
    path_is_valid,
)
from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.seams import Conflict, ConflictReason, Op, SessionLost, Versioned

__all__ = ["COMMIT_MAX_BYTES", "answers", "check_ops", "refusal_error", "tree_ops", "versioned"]

# ZooKeeper's own default limit of a request (jute.maxbuffer) less room for the frame and the
# operations' headers.
COMMIT_MAX_BYTES: Final = 1_000_000

_REASONS: Final = {
    Refusal.NO_NODE: ConflictReason.NO_NODE,
    Refusal.EXISTS: ConflictReason.EXISTS,
    Refusal.BAD_VERSION: ConflictReason.BAD_VERSION,
    Refusal.NOT_EMPTY: ConflictReason.NOT_EMPTY,
}


def check_ops(ops: Sequence[Op]) -> None:
    """Refuse what no store could accept: a path outside ZooKeeper's rules or more than
    ``COMMIT_MAX_BYTES``.

    Raises ``InvalidArgument``.
    """
    size = 0
    for op in ops:
        # A sequential node's path may end in a slash: its name is then the number alone.
        if not path_is_valid(op.path + "0" if op.kind == "create_sequential" else op.path):
            raise InvalidArgument(
                f"{op.path!r} is no metadata path: absolute, no empty or dotted segment, no end "
                "slash, no controls"
            )
        size += len(op.path) + len(op.data) + 64
    if size > COMMIT_MAX_BYTES:
        raise InvalidArgument(
            f"a metadata commit of {size} bytes; at most {COMMIT_MAX_BYTES} are possible"
        )


def tree_ops(ops: Sequence[Op]) -> list[TreeOp]:
    translated: list[TreeOp] = []
    for op in ops:
        match op.kind:
            case "create":
                translated.append(Create(op.path, op.data))
            case "create_ephemeral":
                translated.append(Create(op.path, op.data, ephemeral=True))
            case "create_sequential":
                translated.append(Create(op.path, op.data, sequential=True))
            case "put":
                translated.append(Put(op.path, op.data, op.version))
            case "delete":
                translated.append(Delete(op.path, op.version))
            case "check":
                translated.append(Check(op.path, op.version))
    return translated


def answers(ops: Sequence[Op], committed: Committed) -> list[str | int]:
    """Return what ``MetadataStore.commit`` returns: path created, new version of a put, version
    checked, -1 for a delete.
    """
    found: list[str | int] = []
    for op, result in zip(ops, committed.results, strict=True):
        match op.kind:
            case "put":
                assert result.stat is not None, "only a delete has no stat"
                found.append(result.stat[4])
            case "check":
                found.append(op.version)
            case "delete":
                found.append(-1)
            case _:
                found.append(result.path)
    return found


def refusal_error(ops: Sequence[Op], refused: Refused) -> Exception:
    """Return the exception of ``MetadataStore`` for a refused commit."""
    reason = _REASONS.get(refused.reason)
    path = ops[refused.index].path
    if reason is not None:
        return Conflict(refused.index, reason, path)
    if refused.reason is Refusal.SESSION_EXPIRED:
        return SessionLost("the session has expired or was closed")
    return InvalidArgument(f"operation {refused.index} on {path}: {refused.reason.value}")


def versioned(node: Node) -> Versioned:
    return Versioned(node.data, node.version, node.czxid, node.session_id)
