"""``pulsarish job export`` and ``import``: write topics to Parquet with the connector's columns,
and publish them from it, each message once.

An export is a folder: ``messages.parquet`` with the connector's columns, and ``export.json``, which
is written last. It identifies the export and holds the topics' partitions, schemas and number of
messages. An import publishes each partition's messages in the order of their ids. The producer's
name contains the export's id, and the messages' ordinals are the sequence ids. Messages that the
log already has are skipped. Deduplication drops what a failed task repeats, so an import without it
is rejected. Publish times and ids in the log are new. On request the old ones are added as
properties.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark import TaskContext

import pulsarish.spark
from pulsarish.admin import Admin
from pulsarish.client.api.batch_publisher import BatchPublisher
from pulsarish.client.api.blocking_client import Client
from pulsarish.client.messages.entry_encoder import Extras
from pulsarish.model.errors import (
    AlreadyExists,
    CorruptData,
    InvalidArgument,
    NotAllowedError,
    NotFound,
    SchemaNotFound,
    TopicNotFound,
)
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.background import background
from pulsarish.spark.access import BrokerAccess
from pulsarish.spark.jobs.ledger_selection import kept_topic
from pulsarish.spark.writing.batches import Filling
from pulsarish.spark.writing.numbering import attempt_epoch

__all__ = [
    "EXPORT_FILE",
    "ExportedTopic",
    "Imported",
    "Manifest",
    "export",
    "import_",
    "read_manifest",
]

EXPORT_FILE: Final = "export.json"
_MESSAGES: Final = "messages.parquet"
_FORMAT: Final = "pulsarish-export"
_VERSION: Final = 1
_ORIGIN: Final = "pulsarish.origin."
"""Prefix of the properties with a message's origin."""


class ExportedTopic(msgspec.Struct, frozen=True):
    """``partitions`` is 0 for a topic without partitions; ``schema`` as the admin API returns it,
    if there is one.
    """

    topic: str
    partitions: int
    messages: int
    schema: dict[str, Any] | None = None


class Manifest(msgspec.Struct, frozen=True):
    """Description of an export.

    ``export_id`` is new for each, so that deduplication never confuses two exports.
    """

    format: str
    version: int
    export_id: str
    made_ms: int
    topics: tuple[ExportedTopic, ...]


@dataclass(slots=True)
class Imported:
    """Messages by target topic: those published now, and those that an earlier attempt had
    published.
    """

    published: dict[str, int] = field(default_factory=dict)
    passed_over: dict[str, int] = field(default_factory=dict)


def read_manifest(folder: Path) -> Manifest:
    """Return the description of an export.

    Raises ``NotFound`` for a folder that is not a complete export, ``CorruptData``.
    """
    try:
        manifest = msgspec.json.decode((folder / EXPORT_FILE).read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise NotFound(
            f"{folder} is no export, or one that did not come to its end: there is no "
            f"{EXPORT_FILE} in it"
        ) from None
    except msgspec.MsgspecError as error:
        raise CorruptData(f"{folder / EXPORT_FILE} cannot be read: {error}") from None
    if (manifest.format, manifest.version) != (_FORMAT, _VERSION):
        raise CorruptData(
            f"{folder} is {manifest.format!r} version {manifest.version}; this program reads "
            f"{_FORMAT!r} {_VERSION}"
        )
    return manifest


# -- export


def export(spark: Any, brokers: BrokerAccess, topics: Sequence[str], folder: Path) -> Manifest:
    """Write topics, up to their current ends, to a new folder that Spark's executors and this
    process can both access.

    Raises ``AlreadyExists`` for an existing folder, ``TopicNotFound``.
    """
    if folder.exists():
        raise AlreadyExists(f"{folder} exists already: give a new name")
    pulsarish.spark.register(spark)
    admin = brokers.admin()
    names = list(dict.fromkeys(kept_topic(text).full for text in topics))
    partitions = {name: admin.topics.partitions(name) for name in names}
    for name in names:
        if not partitions[name]:
            _ = admin.topics.internal_stats(name)  # raises for a topic that does not exist
    where = {**brokers.options(), "topics": ",".join(names)}
    spark.read.format(pulsarish.spark.FORMAT).options(**where).load().write.parquet(
        str(folder / _MESSAGES)
    )
    counted = spark.read.parquet(str(folder / _MESSAGES)).groupBy("topic").count().collect()
    counts = {row["topic"]: row["count"] for row in counted}
    world = background().world
    exported = tuple(
        ExportedTopic(name, partitions[name], counts.get(name, 0), _schema(admin, name))
        for name in names
    )
    manifest = Manifest(
        _FORMAT, _VERSION, f"{world.random.getrandbits(48):012x}", world.clock.wall_ms(), exported
    )
    _ = (folder / EXPORT_FILE).write_bytes(
        msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    )
    return manifest


def _schema(admin: Admin, topic: str) -> dict[str, Any] | None:
    try:
        found = admin.schemas.get(topic)
    except (SchemaNotFound, TopicNotFound):
        return None
    return {
        "type": found["type"],
        "data": found["data"],
        "properties": found.get("properties") or {},
    }


# -- import


def import_(
    spark: Any,
    brokers: BrokerAccess,
    folder: Path,
    *,
    namespace: str = "",
    enable_deduplication: bool = False,
    keep_origin: bool = False,
) -> Imported:
    """Publish an export.

    Repeating it, also after a failure, duplicates nothing for as long as the broker remembers a
    producer (``broker_deduplication_producer_inactivity_timeout_minutes``).

    Args:
        namespace: ``tenant/namespace`` for all topics, in place of their own.
        enable_deduplication: enable it for the topics where it is disabled.
        keep_origin: add the old ids, times and producers as properties that begin with
            ``pulsarish.origin.``.

    Raises ``NotAllowedError`` for a topic without deduplication, ``InvalidArgument`` for one with
    another number of partitions.
    """
    manifest = read_manifest(folder)
    admin = brokers.admin()
    targets = {each.topic: _target(each.topic, namespace) for each in manifest.topics}
    for each in manifest.topics:
        _prepare(admin, each, targets[each.topic], enable_deduplication=enable_deduplication)
    rows = spark.read.parquet(str(folder / _MESSAGES))
    logs = max(1, sum(max(1, each.partitions) for each in manifest.topics))
    # One task publishes the messages of a log in order; other tasks publish other logs.
    ordered = rows.repartition(min(logs, 1_000), "topic", "partition").sortWithinPartitions(
        "topic", "partition", "message_id"
    )
    planned_ms = background().world.clock.wall_ms()
    results = ordered.rdd.mapPartitions(
        partial(_publish, brokers, manifest.export_id, targets, keep_origin, planned_ms)
    ).collect()
    done = Imported(dict.fromkeys(targets.values(), 0), dict.fromkeys(targets.values(), 0))
    for topic, published, passed_over in results:
        done.published[topic] += published
        done.passed_over[topic] += passed_over
    for each in manifest.topics:
        count = done.published[targets[each.topic]] + done.passed_over[targets[each.topic]]
        if count != each.messages:
            raise CorruptData(
                f"{folder} holds {count} messages of {each.topic}, and its {EXPORT_FILE} says "
                f"{each.messages}"
            )
    return done


def _target(topic: str, namespace: str) -> str:
    name = TopicName.parse(topic)
    if not namespace:
        return name.full
    if namespace.count("/") != 1:
        raise InvalidArgument(f"--namespace {namespace!r} must look like tenant/namespace")
    return TopicName.parse(f"persistent://{namespace}/{name.local}").full


def _prepare(admin: Admin, each: ExportedTopic, target: str, *, enable_deduplication: bool) -> None:
    try:
        partitions = admin.topics.partitions(target)
        if not partitions:
            _ = admin.topics.internal_stats(target)
    except TopicNotFound:
        admin.topics.create(target, partitions=each.partitions)
        partitions = each.partitions
    if partitions != each.partitions:
        raise InvalidArgument(
            f"{target} has {partitions} partitions and {each.topic} was exported with "
            f"{each.partitions}"
        )
    if not admin.topics.get_policy(target, "deduplication", applied=True):
        if not enable_deduplication:
            raise NotAllowedError(
                f"deduplication is off for {target}, and without it a repeated import would leave "
                "duplicates: --enable-deduplication switches it on"
            )
        admin.topics.set_policy(target, "deduplication", True)
    if each.schema is not None and _schema(admin, target) is None:
        _ = admin.schemas.upload(
            target, each.schema["type"], each.schema["data"], each.schema["properties"]
        )


def _publish(
    brokers: BrokerAccess,
    export_id: str,
    targets: Mapping[str, str],
    keep_origin: bool,
    planned_ms: int,
    rows: Iterable[Any],
) -> Iterator[tuple[str, int, int]]:
    # Of two tasks for one log the later one wins, and a task of an earlier import ends, whatever
    # their machines' clocks show.
    epoch = attempt_epoch(planned_ms, TaskContext.get().taskAttemptId())
    client = Client(brokers.service_url, **brokers.client_arguments())
    try:
        for (topic, partition), mine in groupby(
            rows, key=lambda row: (row["topic"], row["partition"])
        ):
            target = TopicName.parse(targets[topic])
            log = target.full if partition < 0 else target.with_partition(partition).full
            yield (
                target.full,
                *_publish_log(
                    client, log, f"import-{export_id}", mine, epoch=epoch, keep_origin=keep_origin
                ),
            )
    finally:
        client.close()


def _publish_log(
    client: Client, log: str, name: str, rows: Iterable[Any], *, epoch: int, keep_origin: bool
) -> tuple[int, int]:
    """Publish the messages of a log. Return how many were published now, and how many before."""
    publisher = BatchPublisher.open(client, log, name, epoch=epoch)
    if not publisher.deduplication:
        publisher.abandon()
        raise NotAllowedError(
            f"deduplication is off for {log}: what is repeated of this import would be there twice"
        )
    published = passed_over = 0
    batch = Filling()
    try:
        for ordinal, row in enumerate(rows):
            if ordinal <= publisher.last_sequence_id:
                passed_over += 1
                continue
            made = batch.add(
                bytes(row["value"] or b""), _extras(row, keep_origin=keep_origin), ordinal
            )
            if made is not None:
                publisher.add(*made)
            published += 1
        if (made := batch.take()) is not None:
            publisher.add(*made)
        publisher.finish()
    finally:
        publisher.abandon()
    return published, passed_over


def _extras(row: Any, *, keep_origin: bool) -> Extras | None:
    properties = dict(row["properties"] or {})
    if keep_origin:
        place = row["message_id"]
        message_id = ":".join(
            str(place[part]) for part in ("ledger", "entry", "partition", "batch_index")
        )
        properties |= {
            f"{_ORIGIN}id": message_id,
            f"{_ORIGIN}publish_time": str(_milliseconds(row["publish_time"])),
            f"{_ORIGIN}producer": row["producer_name"] or "",
            f"{_ORIGIN}sequence_id": str(row["sequence_id"]),
        }
    event_ms = _milliseconds(row["event_time"])
    is_null = row["value"] is None
    if not properties and row["key"] is None and not event_ms and not is_null:
        return None
    return Extras(properties or None, row["key"], event_timestamp_ms=event_ms, is_null=is_null)


def _milliseconds(time: Any) -> int:
    """Spark returns timestamps as times in this machine's zone, without a zone."""
    return 0 if time is None else round(time.timestamp() * 1000)
