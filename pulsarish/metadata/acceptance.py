"""Continue with a tree that came back older, by an operator's decision.

From then on the tree is treated as one that was restored from a backup. Ledgers that are open in it
may continue on bookies that their record does not name. Ids may be in use that it has not given
out. Bookies delete nothing until the operator confirms the tree.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pulsarish.metadata import paths
from pulsarish.metadata.id_counter import next_id_above
from pulsarish.metadata.ledger_walk import ledger_ids
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import LedgerIds, RestoredTree
from pulsarish.metadata.tree_age import raise_epoch
from pulsarish.model.errors import NotAllowedError
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState

__all__ = ["accept_older_tree"]


async def accept_older_tree(
    records: Records, *, ids_held: Sequence[int], ledger_id_gap: int
) -> int:
    """Let nodes make and close ledgers again.

    Return how many ledgers may continue on other bookies.

    Args:
        ids_held: the ids of the ledgers that bookies hold, ascending.
        ledger_id_gap: ids left out above all known ones.

    Raises ``NotAllowedError`` for a tree that did not come back older, ``MetadataUnavailable``.
    """
    found = await records.get(paths.RESTORED, RestoredTree)
    if found is None or not found[0].older:
        raise NotAllowedError(
            "no node has found that this tree came back older: there is nothing to accept"
        )

    def above(ids: LedgerIds | None) -> LedgerIds:
        return LedgerIds(
            next_id_above(ids.next_id if ids is not None else 0, ids_held) + ledger_id_gap
        )

    _ = await records.update(paths.LEDGER_IDS, LedgerIds, above)
    marked = 0
    async for branch in ledger_ids(records):
        for ledger_id in branch:
            stored = await records.update(paths.ledger(ledger_id), LedgerMetadata, _marked)
            marked += stored is not None and stored[0].restored
    await raise_epoch(records, found[0])
    _ = await records.update(paths.RESTORED, RestoredTree, _accepted)
    return marked


def _marked(found: LedgerMetadata | None) -> LedgerMetadata | None:
    if found is None or found.state is LedgerState.CLOSED or found.restored:
        return None
    return msgspec.structs.replace(found, restored=True)


def _accepted(mark: RestoredTree | None) -> RestoredTree | None:
    return None if mark is None else msgspec.structs.replace(mark, older=False)
