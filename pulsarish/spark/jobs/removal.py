"""Remove orphan ledgers in two phases: make a plan, and after a grace period execute it, with a
backup first.

Nothing is removed on an incomplete view. A bookie that does not answer, a failed listing, or
metadata that no operator has confirmed after a restore ends the removal, and the error names it. A
planned orphan must still be the same node and still an orphan when everything is read again, and
once more just before it is removed. An orphan that is not closed is recovered first, which fences a
possible writer.

The backup is a folder: ``ledgers.jsonl``, a metadata backup of the removed nodes, and
``entries.parquet``, every entry as its bookies had it. Deletion begins only after both have been
read back and are on disk. Bookies learn of the deletion by themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.reading import read_records
from pulsarish.ledger.repair.copier import Copied, Copier
from pulsarish.managed_ledger.options import Retention
from pulsarish.metadata import paths
from pulsarish.metadata.backup.file_format import BackupWriter, read_backup
from pulsarish.metadata.records import ClusterRecord
from pulsarish.model.errors import (
    AlreadyExists,
    CorruptData,
    NotAllowedError,
    NotEnoughBookies,
    PulsarishError,
)
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState, Segment
from pulsarish.runtime.modes import DIRECTORY_MODE
from pulsarish.runtime.seams import Conflict
from pulsarish.spark.jobs.cluster_access import ClusterAccess, JobCluster, run, site, where_of_tasks
from pulsarish.spark.jobs.leaks import Leaks, find_leaks, is_orphan
from pulsarish.spark.jobs.leaks_core import LeakKind
from pulsarish.wire.json_record import decode_record, encode_record
from pulsarish.wire.record import decode_entry_record, restamp_lac

__all__ = [
    "GRACE_MS",
    "Plan",
    "PlannedLedger",
    "Removal",
    "make_plan",
    "read_plan",
    "remove",
    "restore",
    "write_plan",
]

GRACE_MS: Final = 3_600_000
"""Age that a plan must have before it is executed."""
_PLAN_FORMAT: Final = "pulsarish-leaks-plan"
_PLAN_VERSION: Final = 1
_READ_BYTES: Final = 1 << 20
_WRITE_BYTES: Final = 1 << 20
_NODES_FILE: Final = "ledgers.jsonl"
_ENTRIES_FOLDER: Final = "entries.parquet"
_ENTRY_SCHEMA: Final = "ledger bigint, entry bigint, record binary"


class PlannedLedger(msgspec.Struct, frozen=True):
    """An orphan at the time of the plan.

    ``node_created`` distinguishes its node from a later one at the same path.
    """

    ledger_id: int
    owner: str
    size_bytes: int
    created_ms: int
    node_created: int


class Plan(msgspec.Struct, frozen=True):
    """Removable ledgers that ``leaks`` found."""

    format: str
    version: int
    cluster_id: str
    made_ms: int
    ledgers: tuple[PlannedLedger, ...]


@dataclass(slots=True)
class Removal:
    """The outcome for each ledger of a plan: removed, or why not."""

    removed: list[int] = field(default_factory=list)
    kept: dict[int, str] = field(default_factory=dict)
    entries: int = 0
    size_bytes: int = 0


# -- the plan


def make_plan(where: JobCluster, leaks: Leaks) -> Plan:
    """Return the plan. Raises ``NotAllowedError`` for an incomplete view."""
    _check_whole(leaks, "a plan is")
    return run(_plan(site(where), leaks))


async def _plan(here: ClusterAccess, leaks: Leaks) -> Plan:
    planned: list[PlannedLedger] = []
    for leak in leaks.found:
        if leak.kind != LeakKind.ORPHAN:
            continue
        node = (await here.records.nodes([paths.ledger(leak.ledger_id)]))[0]
        if node is not None:
            planned.append(
                PlannedLedger(
                    leak.ledger_id, leak.owner, leak.size_bytes, leak.created_ms, node.created
                )
            )
    return Plan(
        _PLAN_FORMAT,
        _PLAN_VERSION,
        await _cluster_id(here),
        here.world.clock.wall_ms(),
        tuple(planned),
    )


async def _cluster_id(here: ClusterAccess) -> str:
    found = await here.records.get(paths.CLUSTER, ClusterRecord)
    return "" if found is None else found[0].cluster_id


def _check_whole(leaks: Leaks, what: str) -> None:
    if leaks.gaps:
        unread = "; ".join(f"{name}: {why}" for name, why in leaks.gaps)
        raise NotAllowedError(
            f"{what} not made of an incomplete view, and this could not be read: {unread}"
        )
    if leaks.restored:
        raise NotAllowedError(
            f"{what} not made while the metadata are restored ones that are not confirmed yet: "
            "pulsarish metadata confirm"
        )


def write_plan(plan: Plan, file: Path) -> None:
    """Write the plan to a new file. Raises ``AlreadyExists``, ``OSError``."""
    if file.exists():
        raise AlreadyExists(f"{file} exists already: give a new name")
    _ = file.write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n")


def read_plan(file: Path) -> Plan:
    """Read a plan. Raises ``CorruptData``, ``OSError``."""
    try:
        plan = msgspec.json.decode(file.read_bytes(), type=Plan)
    except msgspec.MsgspecError as error:
        raise CorruptData(f"{file} is no plan of pulsarish job leaks: {error}") from None
    if (plan.format, plan.version) != (_PLAN_FORMAT, _PLAN_VERSION):
        raise CorruptData(
            f"{file} is {plan.format!r} version {plan.version}; this program reads "
            f"{_PLAN_FORMAT!r} {_PLAN_VERSION}"
        )
    return plan


# -- execution


def remove(
    spark: Any,
    where: JobCluster,
    plan: Plan,
    backup: Path,
    *,
    retention: Retention,
    min_age_ms: int,
    grace_ms: int = GRACE_MS,
) -> Removal:
    """Remove the ledgers of the plan that are still orphans.

    Args:
        backup: a new folder that Spark's executors and this process can both access.
        grace_ms: the age that the plan must have.

    Raises ``NotAllowedError`` (another cluster's plan, too young a plan, an incomplete view),
    ``AlreadyExists`` for the folder, ``CorruptData`` when the backup does not hold what was
    written.
    """
    here = site(where)
    if plan.cluster_id != run(_cluster_id(here)):
        raise NotAllowedError(f"the plan is of cluster {plan.cluster_id}, and this is another one")
    age_ms = here.world.clock.wall_ms() - plan.made_ms
    if age_ms < grace_ms:
        raise NotAllowedError(
            f"the plan was made {age_ms // 1000} s ago and may be carried out after "
            f"{grace_ms // 1000} s (--grace)"
        )
    if backup.exists():
        raise AlreadyExists(f"{backup} exists already: a backup never replaces another")
    leaks = find_leaks(spark, where, retention=retention, min_age_ms=min_age_ms)
    _check_whole(leaks, "a removal is")
    removal = Removal()
    orphans = {leak.ledger_id for leak in leaks.found if leak.kind == LeakKind.ORPHAN}
    ready = run(_prepare(here, plan, orphans, removal))
    if not ready:
        return removal
    backup.mkdir(DIRECTORY_MODE, parents=True)
    _write_nodes(
        where, backup / _NODES_FILE, [data for _, data, _ in ready], here.world.clock.wall_ms()
    )
    records = [metadata for metadata, _, _ in ready]
    folder = str(backup / _ENTRIES_FOLDER)
    _write_entries(spark, where, records, folder)
    counts = _count_entries(spark, folder)
    for metadata, _, _ in ready:
        if counts.get(metadata.ledger_id, 0) != metadata.last_entry + 1:
            raise CorruptData(
                f"the backup in {backup} holds {counts.get(metadata.ledger_id, 0)} of "
                f"{metadata.last_entry + 1} entries of ledger {metadata.ledger_id}: nothing is "
                "removed"
            )
    _make_durable(backup)
    for metadata, _, version in ready:
        run(_remove_one(here, metadata, version, removal))
    return removal


_Ready = tuple[LedgerMetadata, bytes, int]
"""A ledger that may be removed: its record, the record's bytes, the node's version."""


async def _prepare(
    here: ClusterAccess, plan: Plan, orphans: set[int], removal: Removal
) -> list[_Ready]:
    ready: list[_Ready] = []
    client = LedgerClient(here.world, here.options)
    await client.start()
    try:
        for planned in plan.ledgers:
            found = await _closed(here, client, planned, orphans)
            if isinstance(found, str):
                removal.kept[planned.ledger_id] = found
            else:
                ready.append(found)
    finally:
        await client.close()
    return ready


async def _closed(
    here: ClusterAccess, client: LedgerClient, planned: PlannedLedger, orphans: set[int]
) -> _Ready | str:
    """Return the orphan, closed, or why it must not be removed."""
    path = paths.ledger(planned.ledger_id)
    await here.records.sync(path)
    node = (await here.records.nodes([path]))[0]
    if node is None:
        return "it is gone already"
    if node.created != planned.node_created:
        return "it is another ledger of the same number by now"
    metadata = decode_record(node.data, LedgerMetadata, path)
    # Before the recovery, which would fence an owner that has started to write it.
    if planned.ledger_id not in orphans or not await is_orphan(here, metadata):
        return "it is no orphan any more"
    if metadata.state is not LedgerState.CLOSED:
        try:
            _ = await client.open(planned.ledger_id)
        except PulsarishError as error:
            return f"it is not closed and cannot be recovered now: {error}"
        node = (await here.records.nodes([path]))[0]
        if node is None:
            return "it is gone already"
        metadata = decode_record(node.data, LedgerMetadata, path)
    return metadata, node.data, node.version


def _make_durable(backup: Path) -> None:
    """Sync the whole backup, names included: Spark does not, and a ledger cannot be restored
    without it once its record is deleted.
    """
    for path in (*backup.rglob("*"), backup, backup.absolute().parent):
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _write_nodes(where: JobCluster, file: Path, nodes: Sequence[bytes], now_ms: int) -> None:
    with file.open("wb") as out:
        writer = BackupWriter(lambda data: _put(out, data), source=where.url, started_ms=now_ms)
        for data in nodes:
            writer.node(paths.ledger(decode_record(data, LedgerMetadata, "").ledger_id), data)
        _ = writer.finish(ephemeral_left_out=0, finished_ms=now_ms)
    with file.open("rb") as lines:
        _ = read_backup(lines, str(file))


def _put(out: Any, data: bytes) -> None:
    out.write(data)


def _write_entries(
    spark: Any, where: JobCluster, records: Sequence[LedgerMetadata], folder: str
) -> None:
    context = spark.sparkContext
    encoded = [encode_record(metadata) for metadata in records]
    rows = context.parallelize(
        encoded, max(1, min(len(encoded), 4 * context.defaultParallelism))
    ).mapPartitions(partial(_entries, where_of_tasks(where)))
    spark.createDataFrame(rows, _ENTRY_SCHEMA).write.parquet(folder)


def _entries(where: JobCluster, encoded: Iterable[bytes]) -> Iterator[tuple[int, int, bytearray]]:
    here = site(where)
    for data in encoded:
        metadata = decode_record(data, LedgerMetadata, "a record")
        first = 0
        while first <= metadata.last_entry:
            found = run(
                read_records(
                    here.pool,
                    here.options,
                    metadata,
                    first,
                    metadata.last_entry,
                    max_bytes=_READ_BYTES,
                )
            )
            for record in found.records:
                yield (
                    metadata.ledger_id,
                    record.entry_id,
                    bytearray(restamp_lac(record, record.lac)),
                )
            first = found.records[-1].entry_id + 1


def _count_entries(spark: Any, folder: str) -> dict[int, int]:
    """Return for each ledger the number of its entries that can be read back and are correct."""
    rows = spark.read.parquet(folder).rdd.map(_checked)
    return dict(rows.reduceByKey(lambda one, other: one + other).collect())


def _checked(row: Any) -> tuple[int, int]:
    _ = decode_entry_record(bytes(row.record), row.ledger, row.entry)
    return row.ledger, 1


async def _remove_one(
    here: ClusterAccess, metadata: LedgerMetadata, version: int, removal: Removal
) -> None:
    try:
        if not await is_orphan(here, metadata):
            removal.kept[metadata.ledger_id] = "it is no orphan any more"
            return
        await here.ledgers.delete(metadata.ledger_id, version)
    except Conflict:
        removal.kept[metadata.ledger_id] = "it was changed while it was backed up"
        return
    except PulsarishError as error:
        # Reported next to what was removed: nothing else would report it.
        removal.kept[metadata.ledger_id] = f"whether it was removed is not known: {error}"
        return
    removal.removed.append(metadata.ledger_id)
    removal.entries += metadata.last_entry + 1
    removal.size_bytes += metadata.length_bytes * metadata.write_quorum


# -- restore


def restore(spark: Any, where: JobCluster, backup: Path) -> Removal:
    """Restore what a removal has removed: the records, then the entries.

    Entries go to the bookies of the records that are alive, otherwise to other bookies: of the
    ledger's groups, if it has any, and in other domains, as in a change of members. A second call
    completes an interrupted one. ``removed`` of the result are the restored ledgers.

    Raises ``CorruptData`` for an incomplete backup, ``NotEnoughBookies``, ``ServiceNotReady``.
    """
    here = site(where)
    with (backup / _NODES_FILE).open("rb") as lines:
        saved = read_backup(lines, str(backup / _NODES_FILE))
    records = [decode_record(data, LedgerMetadata, path) for path, data in saved.nodes.items()]
    counts = _count_entries(spark, str(backup / _ENTRIES_FOLDER))
    for metadata in records:
        if counts.get(metadata.ledger_id, 0) != metadata.last_entry + 1:
            raise CorruptData(
                f"{backup} holds {counts.get(metadata.ledger_id, 0)} of {metadata.last_entry + 1} "
                f"entries of {metadata.ledger_id}"
            )
    entries = spark.read.parquet(str(backup / _ENTRIES_FOLDER))
    restored = Removal()
    for metadata in records:
        placed = run(_place(here, metadata))
        if isinstance(placed, str):
            restored.kept[metadata.ledger_id] = placed
            continue
        rows = (
            entries.where(entries.ledger == metadata.ledger_id).orderBy("entry").toLocalIterator()
        )
        for batch in _batches(rows):
            run(_write_back(here, placed, batch))
        restored.removed.append(metadata.ledger_id)
        restored.entries += metadata.last_entry + 1
        restored.size_bytes += metadata.length_bytes * metadata.write_quorum
    return restored


async def _place(here: ClusterAccess, metadata: LedgerMetadata) -> LedgerMetadata | str:
    """Return the record as it is stored now, or why the ledger stays unchanged.

    The record comes first: entries without one are garbage.
    """
    found = await here.ledgers.read_newest(metadata.ledger_id)
    if found is not None:
        same = found[0].state is LedgerState.CLOSED and (
            found[0].last_entry,
            found[0].length_bytes,
            found[0].created_ms,
        ) == (
            metadata.last_entry,
            metadata.length_bytes,
            metadata.created_ms,
        )
        return found[0] if same else "there is a ledger of this number already, another one"
    registered = here.bookies.members()
    segments = tuple(
        Segment(each.first_entry, _members(here, metadata, each.members, registered))
        for each in metadata.segments
    )
    placed = msgspec.structs.replace(metadata, segments=segments)
    _ = await here.ledgers.store(placed, None)
    return placed


def _members(
    here: ClusterAccess,
    metadata: LedgerMetadata,
    members: tuple[str, ...],
    registered: Sequence[str],
) -> tuple[str, ...]:
    """Return the members, with registered bookies in place of missing ones: in other domains than
    the rest of their write quorums, where there are such, and of the ledger's groups.

    Raises ``NotEnoughBookies``.
    """
    found = list(members)
    groups = metadata.bookie_groups
    for index, member in enumerate(members):
        if member in registered:
            continue
        chosen = here.pool.placement.replacement(
            here.bookies.candidates(),
            here.bookies.describe(found),
            index,
            metadata.write_quorum,
            groups=groups,
        )
        if chosen is None:
            of_groups = (
                ""
                if groups is None
                else f" of the groups {', '.join((*groups.primary, *groups.secondary))}"
            )
            raise NotEnoughBookies(
                f"ledger {metadata.ledger_id} is not restored: bookie {member} is gone, and no "
                f"other bookie{of_groups} can take its place"
            )
        found[index] = chosen.member
    return tuple(found)


def _batches(rows: Iterable[Any]) -> Iterator[list[tuple[int, bytes]]]:
    batch: list[tuple[int, bytes]] = []
    size_bytes = 0
    for row in rows:
        batch.append((row.entry, bytes(row.record)))
        size_bytes += len(row.record)
        if size_bytes >= _WRITE_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


async def _write_back(
    here: ClusterAccess, metadata: LedgerMetadata, batch: Sequence[tuple[int, bytes]]
) -> None:
    async def pace(_size_bytes: int) -> None:
        return

    copier = Copier(here.pool, here.options, Copied(), pace, _WRITE_BYTES)
    records = [decode_entry_record(data, metadata.ledger_id, entry_id) for entry_id, data in batch]
    by_member: dict[str, list[Any]] = {}
    for record in records:
        for member in metadata.write_set(record.entry_id):
            by_member.setdefault(member, []).append(record)
    for member, mine in by_member.items():
        await copier.write(metadata.ledger_id, member, mine)
