"""``pulsarish job verify``: read every replica of every entry from every bookie that should have
it, and compare the replicas.

A task reads ranges of ledgers at single bookies. It sends its result for each chunk, a few bytes an
entry, to the task that compares the chunk's replicas. Entries of an open ledger are read up to its
LAC. Findings are checked once more at the end: a ledger may have been deleted or its replicas
moved, and the slowest replica of a new entry may still have been on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from pulsarish.ledger.reader import LedgerReader
from pulsarish.metadata import paths
from pulsarish.metadata.records import UnderReplicated
from pulsarish.model.errors import NoSuchLedger, NotEnoughBookies
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.spark.jobs.acked import audit
from pulsarish.spark.jobs.cluster_access import ClusterAccess, JobCluster, run, site, where_of_tasks
from pulsarish.spark.jobs.copies import CopyReader, Silences
from pulsarish.spark.jobs.ledger_selection import LedgerSelection, ledgers_of
from pulsarish.spark.jobs.verify_core import (
    Copy,
    CopyState,
    Finding,
    Split,
    compare,
    merge,
    plan_splits,
)

__all__ = ["FINDING_SCHEMA", "SPLIT_BYTES", "Report", "VerifiedRow", "verify"]

SPLIT_BYTES: Final = 64 << 20
_TASKS_MAX: Final = 20_000
_PAGES_MAX: Final = 512  # tasks that plan
_LOOK_AGAIN_MAX: Final = 10_000  # findings
_LOOK_AGAIN_SECONDS: Final = 2.0
_LOOK_AGAIN_AT_ONCE: Final = 32
_LOOKED_AT_AGAIN: Final = ("missing", "corrupt", "unknown", "unreachable")

FINDING_SCHEMA: Final = (
    "finding string, ledger bigint, first_entry bigint, last_entry bigint, entries bigint, bookie "
    "string, instance string, owner string, repair string, detail string"
)


class VerifiedRow(NamedTuple):
    """One finding as it is shown and saved; in the order of ``FINDING_SCHEMA``."""

    finding: str
    ledger: int
    first_entry: int
    last_entry: int
    entries: int
    bookie: str
    instance: str
    owner: str
    repair: str  # what is known about its repair
    detail: str


@dataclass(slots=True)
class Report:
    """What was read, and the findings."""

    ledgers: int = 0
    open_ledgers: int = 0
    gone_ledgers: int = 0  # deleted while the job ran
    entries: int = 0
    copies: int = 0
    read_bytes: int = 0
    acked: int = 0  # acknowledged messages of the publisher's log
    acked_trimmed: int = 0  # of them in ledgers that their topics have trimmed
    settled: int = 0  # entries that were wrong at the first check and right at the second
    findings: list[VerifiedRow] = field(default_factory=list)

    def totals(self) -> dict[str, int]:
        names = (
            "ledgers",
            "open_ledgers",
            "gone_ledgers",
            "entries",
            "copies",
            "read_bytes",
            "settled",
            "acked",
            "acked_trimmed",
        )
        return {name: getattr(self, name) for name in names}


def verify(
    spark: Any,
    where: JobCluster,
    scope: LedgerSelection,
    *,
    split_bytes: int = SPLIT_BYTES,
    acked: str | None = None,
) -> Report:
    """Verify the selected ledgers, and the acknowledgements of a publisher's log (see ``acked``).

    Raises ``NotFound`` for what does not exist, ``MetadataUnavailable``, ``InvalidArgument`` for a
    file that is not such a log.
    """
    context = spark.sparkContext
    pages = run(_pages(site(where), scope))
    tasks_where = where_of_tasks(where)
    planned = (
        context.parallelize(pages, max(1, min(len(pages), _PAGES_MAX)))
        .flatMap(partial(_plan, tasks_where, split_bytes))
        .cache()
    )
    plans = planned.map(_outline).collect()
    report = Report(
        ledgers=sum(kind == "closed" or kind == "open" for kind, _ in plans),
        open_ledgers=sum(kind == "open" for kind, _ in plans),
        gone_ledgers=sum(kind == "gone" for kind, _ in plans),
    )
    size_bytes = sum(size for _, size in plans)
    tasks = max(1, context.defaultParallelism, min(_TASKS_MAX, size_bytes // split_bytes))
    splits = (
        planned.flatMap(lambda plan: plan.splits)
        .zipWithIndex()
        .map(_turned)
        .partitionBy(tasks, _place)
        .values()
    )
    heard = splits.mapPartitions(partial(_read, tasks_where))
    judged = heard.groupByKey(tasks).map(_judge).cache()
    for entries, copies, read_bytes in judged.mapPartitions(_count).collect():
        report.entries += entries
        report.copies += copies
        report.read_bytes += read_bytes
    findings = [
        *judged.flatMap(lambda each: each[3]).collect(),
        *planned.flatMap(lambda plan: plan.findings).collect(),
    ]
    judged.unpersist()
    planned.unpersist()
    run(_look_again(site(where), list(merge(findings)), report))
    if acked is not None:
        audited = audit(spark, where, acked)
        report.acked, report.acked_trimmed = audited.acked, audited.trimmed
        report.findings += [
            _acked_row(each, audited.topics.get(each.ledger_id, ""))
            for each in merge(audited.findings)
        ]
    return report


# -- planning


class _Plan(NamedTuple):
    """Plan of one ledger.

    ``kind``: closed, open, gone (the ledger no longer exists), undecided (its LAC cannot be known
    now).
    """

    kind: str
    splits: list[Split]
    findings: list[Finding]


def _outline(plan: _Plan) -> tuple[str, int]:
    return plan.kind, sum(split.size_bytes for split in plan.splits)


def _turned(numbered: tuple[Split, int]) -> tuple[int, Split]:
    return numbered[1], numbered[0]


def _place(number: int) -> int:
    return number


async def _pages(here: ClusterAccess, scope: LedgerSelection) -> list[list[int]]:
    return [page async for page in ledgers_of(here.records, scope) if page]


def _plan(where: JobCluster, split_bytes: int, ledger_ids: list[int]) -> list[_Plan]:
    here = site(where)
    return run(_plan_all(here, split_bytes, ledger_ids))


async def _plan_all(here: ClusterAccess, split_bytes: int, ledger_ids: list[int]) -> list[_Plan]:
    found = await here.records.get_many(
        [paths.ledger(ledger_id) for ledger_id in ledger_ids], LedgerMetadata
    )
    return [
        _Plan("gone", [], []) if record is None else await _plan_one(here, record[0], split_bytes)
        for record in found
    ]


async def _plan_one(here: ClusterAccess, metadata: LedgerMetadata, split_bytes: int) -> _Plan:
    if metadata.state is LedgerState.CLOSED:
        return _Plan("closed", plan_splits(metadata, metadata.last_entry, split_bytes), [])
    reader = LedgerReader(here.world, here.options, here.pool, here.ledgers, metadata)
    try:
        last = await reader.refresh()
    except NoSuchLedger:
        return _Plan("gone", [], [])
    except NotEnoughBookies as error:
        return _Plan(
            "undecided",
            [],
            [
                Finding(
                    "undecided",
                    metadata.ledger_id,
                    0,
                    -1,
                    "",
                    f"its last confirmed entry is not known: {error}",
                )
            ],
        )
    newest = reader.metadata
    return _Plan(
        "closed" if newest.state is LedgerState.CLOSED else "open",
        plan_splits(newest, last, split_bytes),
        [],
    )


# -- reading and comparing


def _read(where: JobCluster, splits: Iterable[Split]) -> Iterator[tuple[tuple[int, int], Copy]]:
    here = site(where)
    for split in splits:
        reader = CopyReader(here.pool, here.world.clock, here.silences, split)
        for first, last in split.chunks():
            yield (split.ledger_id, first), run(reader.read(first, last))


_Judged = tuple[int, int, int, list[Finding]]


def _judge(group: tuple[tuple[int, int], Iterable[Copy]]) -> _Judged:
    (ledger_id, first), heard = group
    copies = sorted(heard)
    stored = sum(len(copy.states) - copy.states.count(CopyState.ELSEWHERE) for copy in copies)
    return (
        len(copies[0].states),
        stored,
        sum(copy.read_bytes for copy in copies),
        compare(ledger_id, first, copies),
    )


def _count(judged: Iterable[_Judged]) -> Iterator[tuple[int, int, int]]:
    entries = copies = read_bytes = 0
    for each in judged:
        entries += each[0]
        copies += each[1]
        read_bytes += each[2]
    yield entries, copies, read_bytes


# -- the second check


async def _look_again(here: ClusterAccess, findings: list[Finding], report: Report) -> None:
    if not findings:
        return
    await here.world.clock.sleep(_LOOK_AGAIN_SECONDS)
    ledger_ids = list(dict.fromkeys(finding.ledger_id for finding in findings))
    records: dict[int, LedgerMetadata] = {}
    for ledger_id in ledger_ids:
        found = await here.ledgers.read_newest(ledger_id)
        if found is not None:
            records[ledger_id] = found[0]
    under_replicated = {
        record.ledger_id: record for record in await here.ledgers.under_replicated(ledger_ids)
    }
    kept: list[Finding] = []
    silences = Silences(here.world.clock)  # a bookie that was silent at the first check may be back
    for start in range(0, len(findings), _LOOK_AGAIN_AT_ONCE):
        group = [
            each
            for each in findings[start : start + _LOOK_AGAIN_AT_ONCE]
            if each.ledger_id in records
        ]
        if start >= _LOOK_AGAIN_MAX:
            kept += group
            continue
        for still in await asyncio.gather(
            *(_still(here, silences, records[each.ledger_id], each) for each in group)
        ):
            kept += still
    report.gone_ledgers += len(ledger_ids) - len(records)
    report.settled = sum(each.entries for each in findings) - sum(each.entries for each in kept)
    report.findings = [
        _row(here, each, records[each.ledger_id], under_replicated.get(each.ledger_id))
        for each in merge(kept)
    ]


async def _still(
    here: ClusterAccess, silences: Silences, metadata: LedgerMetadata, finding: Finding
) -> list[Finding]:
    """Return the parts of a finding that still hold."""
    if finding.kind not in _LOOKED_AT_AGAIN:
        return [finding]
    left: list[Finding] = []
    for split in plan_splits(metadata, finding.last_entry, SPLIT_BYTES):
        if split.member != finding.bookie or split.last < finding.first_entry:
            continue
        narrowed = split._replace(
            first=max(split.first, finding.first_entry), last=min(split.last, finding.last_entry)
        )
        reader = CopyReader(here.pool, here.world.clock, silences, narrowed)
        for first, last in narrowed.chunks():
            left += compare(metadata.ledger_id, first, [await reader.read(first, last)])
    return left


def _row(
    here: ClusterAccess,
    finding: Finding,
    metadata: LedgerMetadata,
    under_replicated: UnderReplicated | None,
) -> VerifiedRow:
    known = under_replicated is not None and (
        not finding.bookie or finding.bookie in under_replicated.missing_members
    )
    repair = (
        ""
        if not known or under_replicated is None
        else under_replicated.reason or "known to miss copies: autorecovery is at it"
    )
    return VerifiedRow(
        finding.kind,
        finding.ledger_id,
        finding.first_entry,
        finding.last_entry,
        finding.entries,
        here.bookies.name_of(finding.bookie) if finding.bookie else "",
        finding.bookie,
        f"{metadata.purpose.kind.value} {metadata.purpose.owner}",
        repair,
        finding.detail,
    )


def _acked_row(finding: Finding, topic: str) -> VerifiedRow:
    first, last = finding.first_entry, finding.last_entry
    return VerifiedRow(
        finding.kind,
        finding.ledger_id,
        first,
        last,
        finding.entries,
        "",
        "",
        f"topic {topic}",
        "",
        finding.detail,
    )
