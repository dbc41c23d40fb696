"""``pulsarish job usage``: what bookies store, by tenant, namespace, topic and bookie, and what
could be freed.

Changes nothing.

Sizes come from the records of ledgers; for an open ledger, its confirmed entries count. Keys and
compressibility come from a sample of entries, taken at evenly spaced positions of each topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import functions as sql

from pulsarish.ledger.reader import LedgerReader
from pulsarish.ledger.reading import read_records
from pulsarish.managed_ledger.options import Retention
from pulsarish.metadata import paths
from pulsarish.metadata.records import TopicRecord
from pulsarish.model.errors import EntryUnknown, NoSuchEntry, NoSuchLedger, NotEnoughBookies
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState, PurposeKind
from pulsarish.model.topic_name import TopicName
from pulsarish.spark.jobs.cluster_access import ClusterAccess, JobCluster, run, site, where_of_tasks
from pulsarish.spark.jobs.leaks_core import trimmable_of
from pulsarish.spark.jobs.ledger_inventory import cursors_of
from pulsarish.spark.jobs.ledger_selection import LedgerSelection, named_by_topic, topics_of
from pulsarish.spark.jobs.policies import retentions_of
from pulsarish.spark.jobs.usage_core import (
    LEDGER_SCHEMA,
    Facts,
    LedgerUse,
    Sample,
    places,
    skew,
    use_of,
)

_MIB = 1 << 20
__all__ = ["SAMPLES", "Usage", "draw", "usage"]

SAMPLES: Final = 20
"""Positions in each topic at which entries are read."""
_SAMPLE_BYTES: Final = 256 << 10
_PAGE: Final = 50  # topics in a task
_TASKS_MAX: Final = 2_000
_TOP_KEYS: Final = 5
_LEVELS: Final = (
    ("tenants", ["tenant"]),
    ("namespaces", ["namespace"]),
    ("topics", ["tenant", "namespace", "topic"]),
)

Row = dict[str, Any]


@dataclass(slots=True)
class Usage:
    """Rows by subject, largest first. ``skew``: the fullest bookie relative to the mean."""

    total: Row = field(default_factory=dict)
    tenants: list[Row] = field(default_factory=list)
    namespaces: list[Row] = field(default_factory=list)
    topics: list[Row] = field(default_factory=list)
    bookies: list[Row] = field(default_factory=list)
    skew: float = 0.0

    def record(self) -> Row:
        return {
            "total": self.total,
            "tenants": self.tenants,
            "namespaces": self.namespaces,
            "topics": self.topics,
            "bookies": self.bookies,
            "skew": round(self.skew, 3),
        }


def usage(
    spark: Any,
    where: JobCluster,
    scope: LedgerSelection,
    *,
    retention: Retention,
    wanted: Retention | None = None,
    samples: int = SAMPLES,
    topics_max: int,
) -> Usage:
    """Sum up the topics of a selection.

    Args:
        retention: the retention where no policy sets one.
        wanted: replaces all policies, to show what it would free.
        samples: positions in each topic of the answer at which entries are read; 0: none.
        topics_max: topics in the answer, the largest.

    Raises ``NotFound`` for what does not exist, ``MetadataUnavailable``.
    """
    context = spark.sparkContext
    here = site(where)
    now_ms = here.world.clock.wall_ms()
    pages = run(_pages(here, scope))
    slices = max(1, min(len(pages), _TASKS_MAX))
    tasks_where = where_of_tasks(where)
    used = context.parallelize(pages, slices).flatMap(
        partial(_used, tasks_where, retention, wanted, now_ms)
    )
    ledgers = spark.createDataFrame(used, LEDGER_SCHEMA).persist(StorageLevel.MEMORY_AND_DISK)
    found = Usage()
    try:
        (found.total,) = _summed(ledgers, [], now_ms) or [{}]
        for name, columns in _LEVELS:
            setattr(
                found,
                name,
                _summed(ledgers, columns, now_ms, topics_max if name == "topics" else None),
            )
        found.bookies = _by_bookie(here, ledgers)
        found.skew = skew([row["stored_bytes"] for row in found.bookies])
    finally:
        ledgers.unpersist()
    if samples:
        names = [row["topic"] for row in found.topics]
        looked = (
            context.parallelize(names, max(1, len(names)))
            .map(partial(_sampled, tasks_where, samples))
            .collect()
        )
        for row, (_, sample) in zip(found.topics, looked, strict=True):
            row.update(_stored_row(sample))
    return found


async def _pages(here: ClusterAccess, scope: LedgerSelection) -> list[list[str]]:
    found: list[list[str]] = []
    async for topics in topics_of(here.records, scope):
        found += [
            [name.full for name in topics[start : start + _PAGE]]
            for start in range(0, len(topics), _PAGE)
        ]
    return found


# -- ledgers


def _used(
    where: JobCluster, retention: Retention, wanted: Retention | None, now_ms: int, page: list[str]
) -> list[LedgerUse]:
    return run(
        _page(site(where), retention, wanted, now_ms, [TopicName.parse(name) for name in page])
    )


async def _page(
    here: ClusterAccess,
    retention: Retention,
    wanted: Retention | None,
    now_ms: int,
    topics: list[TopicName],
) -> list[LedgerUse]:
    retentions = await retentions_of(here.records, topics, retention)
    records = await here.records.get_many([paths.topic(name) for name in topics], TopicRecord)
    found: list[LedgerUse] = []
    for name, own, record in zip(topics, retentions, records, strict=True):
        if record is None:
            continue
        cursors = await cursors_of(here, paths.topic(name))
        over = trimmable_of(record[0], cursors.values(), wanted or own, now_ms)
        freeable = {link.ledger_id for link in record[0].ledgers[:over]}
        closed = {link.ledger_id: link.closed_ms for link in record[0].ledgers}
        ids = named_by_topic(record[0]) + [
            ledger_id for cursor in cursors.values() for ledger_id in cursor.ledgers_in_use
        ]
        there = (
            await here.records.get_many([paths.ledger(each) for each in ids], LedgerMetadata)
            if ids
            else []
        )
        found += [
            await _use(here, name, ledger[0], closed, freeable)
            for ledger in there
            if ledger is not None
        ]
    return found


async def _use(
    here: ClusterAccess,
    name: TopicName,
    metadata: LedgerMetadata,
    closed: dict[int, int],
    freeable: set[int],
) -> LedgerUse:
    if metadata.state is LedgerState.CLOSED:
        known = metadata.last_entry + 1, metadata.length_bytes
    else:
        known = await _confirmed(here, metadata)
    return use_of(
        name,
        metadata,
        Facts(*known, closed.get(metadata.ledger_id, 0), metadata.ledger_id in freeable),
    )


async def _confirmed(here: ClusterAccess, metadata: LedgerMetadata) -> tuple[int, int]:
    """Return the confirmed entries and bytes of an open ledger, as far as they can be known now."""
    try:
        last = await LedgerReader(
            here.world, here.options, here.pool, here.ledgers, metadata
        ).refresh()
        if last < 0:
            return 0, 0
        (record, *_) = (
            await read_records(here.pool, here.options, metadata, last, last, max_bytes=1)
        ).records
    except (NotEnoughBookies, NoSuchLedger, NoSuchEntry, EntryUnknown):
        return 0, 0
    return last + 1, record.length_bytes


# -- sums


def _summed(ledgers: Any, columns: list[str], now_ms: int, limit: int | None = None) -> list[Row]:
    rows = ledgers.groupBy(*columns).agg(
        sql.count_distinct("topic").alias("topics"),
        sql.count("*").alias("ledgers"),
        sql.sum(
            sql.when(sql.col("kind") == PurposeKind.TOPIC.value, sql.col("entries")).otherwise(0)
        ).alias("entries"),
        sql.sum("length_bytes").alias("bytes"),
        sql.sum("stored_bytes").alias("stored_bytes"),
        sql.sum(sql.when(sql.col("freeable"), sql.col("stored_bytes")).otherwise(0)).alias(
            "freeable_bytes"
        ),
        sql.min("created_ms").alias("oldest_ms"),
        sql.max(
            sql.when(sql.col("closed_ms") > 0, sql.col("closed_ms")).otherwise(sql.lit(now_ms))
        ).alias("newest_ms"),
    )
    rows = rows.orderBy(sql.desc("stored_bytes"), *columns)
    found = [row.asDict() for row in (rows.limit(limit) if limit is not None else rows).collect()]
    for row in found:
        span_ms = max(1, (row.pop("newest_ms") or 0) - (row["oldest_ms"] or 0))
        row["entries_per_second"] = round((row["entries"] or 0) * 1000 / span_ms, 3)
        row["bytes_per_second"] = round((row["bytes"] or 0) * 1000 / span_ms, 1)
    return [row for row in found if row["ledgers"]]


def _by_bookie(here: ClusterAccess, ledgers: Any) -> list[Row]:
    each = ledgers.select("freeable", sql.explode("held").alias("held"))
    rows = each.groupBy("held.bookie").agg(
        sql.count("*").alias("ledgers"),
        sql.sum("held.bytes").alias("stored_bytes"),
        sql.sum(sql.when(sql.col("freeable"), sql.col("held.bytes")).otherwise(0)).alias(
            "freeable_bytes"
        ),
    )
    found = {row["bookie"]: row.asDict() for row in rows.collect()}
    for member in here.bookies.members():
        found.setdefault(
            member, {"bookie": member, "ledgers": 0, "stored_bytes": 0, "freeable_bytes": 0}
        )
    named = [
        {**row, "instance": member, "bookie": here.bookies.name_of(member)}
        for member, row in found.items()
    ]
    return sorted(named, key=lambda row: (-row["stored_bytes"], row["bookie"]))


# -- samples


def _sampled(where: JobCluster, count: int, topic: str) -> tuple[str, Sample]:
    sample = Sample()
    for entry in _entries(where, count, topic):
        sample.take(entry)
    return topic, sample


def _entries(where: JobCluster, count: int, topic: str) -> Iterator[memoryview]:
    here = site(where)
    ledgers = run(_readable(here, TopicName.parse(topic)))
    for index, first in places([last + 1 for _, last in ledgers], count):
        metadata, last = ledgers[index]
        try:
            found = run(
                read_records(
                    here.pool,
                    here.options,
                    metadata,
                    first,
                    last,
                    max_bytes=_SAMPLE_BYTES // max(1, count),
                )
            )
        except (NoSuchEntry, EntryUnknown):
            continue  # ``verify`` reports what cannot be read
        yield from (record.payload for record in found.records)


async def _readable(here: ClusterAccess, name: TopicName) -> list[tuple[LedgerMetadata, int]]:
    """Return a topic's ledgers with their last entries."""
    record = await here.records.get(paths.topic(name), TopicRecord)
    ids = [] if record is None else [link.ledger_id for link in record[0].ledgers]
    found: list[tuple[LedgerMetadata, int]] = []
    for ledger in (
        await here.records.get_many([paths.ledger(each) for each in ids], LedgerMetadata)
        if ids
        else []
    ):
        if ledger is None:
            continue
        metadata = ledger[0]
        entries = (
            metadata.last_entry + 1
            if metadata.state is LedgerState.CLOSED
            else (await _confirmed(here, metadata))[0]
        )
        if entries:
            found.append((metadata, entries - 1))
    return found


def _stored_row(sample: Sample) -> Row:
    compressibility = sample.compressibility
    return {
        "sampled_entries": sample.entries,
        "messages_per_entry": round(sample.messages / sample.entries, 2)
        if sample.entries
        else None,
        "message_bytes": round(sample.plain_bytes / sample.messages, 1)
        if sample.messages
        else None,
        "compressed_to": round(sample.packed_bytes / sample.plain_bytes, 3)
        if sample.plain_bytes
        else None,
        "compressible_to": None if compressibility is None else round(compressibility, 3),
        "top_keys": [
            {"key": key, "share": round(share, 4)} for key, share in sample.top_keys(_TOP_KEYS)
        ],
    }


def draw(found: Usage, path: str) -> None:
    """Draw what each topic and each bookie stores, and how much of it could be freed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 7), layout="constrained")
    for axes, rows, name in zip(
        figure.subplots(1, 2), (found.topics[:20], found.bookies), ("topic", "bookie"), strict=True
    ):
        labels = [str(row[name]).removeprefix("persistent://") for row in rows]
        kept = [(row["stored_bytes"] - row["freeable_bytes"]) / _MIB for row in rows]
        axes.barh(labels, kept, color="#3b6ea5", label="needed")
        axes.barh(
            labels,
            [row["freeable_bytes"] / _MIB for row in rows],
            left=kept,
            color="#e0a458",
            label="could go now",
        )
        axes.invert_yaxis()
        axes.set_xlabel("MiB on bookies, all copies")
        axes.set_title(
            f"By {name}"
            + (f" (fullest: {found.skew:.2f} times the mean)" if name == "bookie" else "")
        )
    # Outside the axes, where it covers no bar.
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=110)
