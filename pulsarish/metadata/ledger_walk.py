"""Walk all ledgers of the cluster, in order, one branch of the tree at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records

__all__ = ["ledger_ids"]


async def ledger_ids(records: Records, *, after: int = -1) -> AsyncIterator[list[int]]:
    """Yield the ids above ``after``, ascending, in lists of at most 10,000.

    Nodes that are not ledgers' are left out.

    Raises ``MetadataUnavailable``.
    """
    floor = paths.ledger(max(after, 0)).split("/")[2:]
    # Ids of more than ten digits have a longer first part: shorter ones come first.
    for high in sorted(await records.children(paths.LEDGERS), key=lambda name: (len(name), name)):
        if (len(high), high) < (len(floor[0]), floor[0]):
            continue
        for middle in await records.children(f"{paths.LEDGERS}/{high}"):
            if high == floor[0] and middle < floor[1]:
                continue
            branch = f"{paths.LEDGERS}/{high}/{middle}"
            found = [
                paths.ledger_id_of(f"{branch}/{leaf}") for leaf in await records.children(branch)
            ]
            yield [ledger_id for ledger_id in found if ledger_id is not None and ledger_id > after]
