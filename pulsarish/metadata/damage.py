"""A stored tree that is damaged: the text of the refusal, and how an operator continues with what
is left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from pulsarish.metadata import paths
from pulsarish.metadata.backup.restore import LEDGER_ID_GAP
from pulsarish.metadata.records import LedgerIds, RestoredTree
from pulsarish.metadata.tree.local import LocalTree
from pulsarish.metadata.tree.rows import load
from pulsarish.metadata.tree.tree import Tree
from pulsarish.metadata.tree_age import REBUILT, why_older
from pulsarish.model.errors import CorruptData
from pulsarish.runtime.seams import Clock, Files, KeyValueIndex, MetadataStore, Op
from pulsarish.wire.json_record import decode_record, encode_record

__all__ = [
    "CutNotFinished",
    "check_cut_is_finished",
    "cut_path",
    "index_directory",
    "mark_incomplete",
    "open_tree",
    "what_may_be_lost",
]

_CUT_NAME: Final = "cut-begun"


def index_directory(directory: str) -> str:
    """Return where the rows of the tree in ``directory`` are."""
    return f"{directory}/index"


def cut_path(directory: str) -> str:
    """Return the file that shows an unfinished cut.

    It exists from the moment in which a cut may have given something up until the tree is marked
    for it.
    """
    return f"{directory}/{_CUT_NAME}"


class CutNotFinished(CorruptData):
    """A cut gave up a part of the tree, and the tree is not marked as incomplete: bookies would
    delete the missing ledgers.
    """


async def check_cut_is_finished(files: Files, directory: str) -> None:
    """Raise ``CutNotFinished`` when a cut of this tree was interrupted."""
    if _CUT_NAME in await files.list(directory):
        raise CutNotFinished(
            f"a cut of the tree in {directory} was interrupted; finish it: pulsarish metadata cut "
            f"{directory}"
        )


async def open_tree(
    open_index: Callable[[str], Awaitable[KeyValueIndex]], directory: str
) -> tuple[KeyValueIndex, Tree]:
    """Open the rows of the tree in ``directory``, and the tree.

    Raises ``CorruptData`` that says what can be done.
    """
    try:
        index = await open_index(index_directory(directory))
    except CorruptData as error:
        raise CorruptData(f"{error}. {_remedy(directory)}") from error
    try:
        return index, await load(index)
    except (CorruptData, OSError) as error:
        await index.close()
        raise CorruptData(
            f"the metadata in {directory} cannot be read: {error}. {_remedy(directory)}"
        ) from error


def _remedy(directory: str) -> str:
    return (
        f"Put back an equally new copy of {directory}; or move it aside, start with an empty one "
        "and restore a backup (pulsarish metadata restore); or give up what is missing: "
        f"pulsarish metadata cut {directory}"
    )


def what_may_be_lost(mark: RestoredTree, url: str) -> str:
    """Return what an operator has to know of a tree with this mark when its cluster starts.

    Args:
        url: the tree as ``pulsarish metadata`` reaches it.
    """
    if mark.older:
        return f"{why_older(mark)} {url}"
    origin = "come from a backup" if mark.backup_sha256 else "were cut after damage"
    if mark.backup_sha256 == REBUILT:
        origin = "were rebuilt from what bookies know"
    return (
        f"the metadata {origin} and do not have later changes: topics, subscriptions, "
        "acknowledgements and the messages of"
        " newer ledgers may be lost. Bookies delete nothing. To list what they hold and the "
        "metadata do not name: pulsarish metadata audit"
        f" {url}; to let them delete again: pulsarish metadata confirm {url}"
    )


async def mark_incomplete(local: LocalTree, store: MetadataStore, clock: Clock) -> list[str]:
    """Mark every cluster's tree as one that may be older than what bookies hold, as after a
    restore.

    Bookies delete nothing until it is confirmed, and ledger ids that may have been given out are
    not given out again. Return the roots of these trees.
    """
    roots = [
        path.removesuffix(paths.CLUSTER)
        for path in local.engine.tree.nodes
        if path.endswith(paths.CLUSTER)
    ]
    mark = encode_record(RestoredTree("", 0, clock.wall_ms()))
    for root in roots:
        found, ids = await store.get_many([root + paths.RESTORED, root + paths.LEDGER_IDS])
        ops = [] if found is not None else [Op("create", root + paths.RESTORED, mark)]
        if ids is not None:
            raised = LedgerIds(
                decode_record(ids.data, LedgerIds, paths.LEDGER_IDS).next_id + LEDGER_ID_GAP
            )
            ops.append(Op("put", root + paths.LEDGER_IDS, encode_record(raised)))
        if ops:
            await store.commit(ops)
    return roots
