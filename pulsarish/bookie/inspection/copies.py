"""What the directories of a bookie know of the metadata: its cookies, and its copies of ledgers'
records.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.inspection.directories import Inspected
from pulsarish.bookie.ledger_index import ROWS_MAX, LedgerIndex
from pulsarish.bookie.limbo import Limbo
from pulsarish.bookie.store import has_data
from pulsarish.metadata.backup.ledger_copies import BookieCopies, HeldRecord
from pulsarish.metadata.records import Cookie, VolumeRecord
from pulsarish.model.errors import ConfigError, NotFound

__all__ = ["read_copies"]


async def read_copies(volumes: Sequence[tuple[BookieConfig, Inspected]]) -> BookieCopies:
    """Return what one bookie knows, from all its volumes.

    Raises ``NotFound`` without a cookie, ``ConfigError`` for directories of several bookies,
    ``CorruptData``, ``BookieIOError``, ``OSError``.
    """
    records: dict[int, HeldRecord] = {}
    held: set[int] = set()
    deleted: set[int] = set()
    used: set[int] = set()
    missing: list[str] = []
    for _, inspected in volumes:
        async with inspected.opened_indexes() as indexes:
            for each in indexes:
                if each.missing:
                    missing.append(f"{each.path}: {each.missing}")
                await _read_index(each.index, records, held, deleted, used)
    return BookieCopies(
        await _cookie_of(volumes),
        dict(sorted(records.items())),
        held=tuple(sorted(held)),
        deleted=tuple(sorted(deleted - held)),
        used=tuple(sorted(used)),
        missing="; ".join(missing),
    )


async def _read_index(
    index: LedgerIndex,
    records: dict[int, HeldRecord],
    held: set[int],
    deleted: set[int],
    used: set[int],
) -> None:
    after = -1
    while copies := await index.records_after(after, ROWS_MAX):
        for ledger_id, kept in copies:
            record = HeldRecord(kept.epoch, kept.version, kept.data)
            before = records.get(ledger_id)
            if before is None or (before.epoch, before.version) < (kept.epoch, kept.version):
                records[ledger_id] = record
        after = copies[-1][0]
    after = -1
    while ledgers := await index.ledgers(after, ROWS_MAX):
        held.update(ledger_id for ledger_id, _ in ledgers)
        after = ledgers[-1][0]
    after = -1
    while gone := await index.deleted_after(after, ROWS_MAX):
        deleted.update(gone)
        after = gone[-1]
    for log_id in await index.logs_begun():
        used.update(await index.log_ledgers(log_id))


async def _cookie_of(volumes: Sequence[tuple[BookieConfig, Inspected]]) -> Cookie:
    """Return the cookie as the metadata are to have it."""
    found: list[Cookie] = []
    known: dict[str, VolumeRecord] = {}
    lost: dict[str, None] = {}
    limbo_times = 0
    for config, inspected in volumes:
        cookie = await inspected.cookie_in(config.ledger_path)
        if cookie is None:
            raise NotFound(
                f"{config.ledger_path} has no cookie of a bookie: use the directories of the "
                "bookie, or write lost cookies again after the metadata are there"
            )
        found.append(cookie)
        if (cookie.instance_id, cookie.cluster_id) != (found[0].instance_id, found[0].cluster_id):
            raise ConfigError(
                f"{config.ledger_path} belongs to {cookie.instance_id} of cluster "
                f"{cookie.cluster_id}, and another directory to {found[0].instance_id} of cluster "
                f"{found[0].cluster_id}: give the directories of one bookie"
            )
        known[cookie.volume] = VolumeRecord(
            tuple(config.paths), is_opened=await has_data(inspected.files, config)
        )
        limbo = Limbo(inspected.files, config.ledger_path)
        await limbo.load()
        limbo_times = max(limbo_times, limbo.times)
        lost |= dict.fromkeys(limbo.lost)
    known |= {
        name: VolumeRecord((), is_opened=True, is_lost=True) for name in lost if name not in known
    }
    has_several = len(known) > 1 or "" not in known
    return msgspec.structs.replace(
        found[0],
        volume="",
        journal_position=0,
        limbo_times=limbo_times,
        volumes=known if has_several else {},
    )
