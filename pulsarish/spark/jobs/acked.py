"""Audit a publisher's log: whether every acknowledged message is stored at its acknowledged id,
with the content that was sent.

The log is JSON lines, one for each acknowledged message, as ``pulsarish produce --acked`` and
``perf produce --acked`` write them: ``{"topic": ..., "id": "LEDGER:ENTRY:PARTITION:INDEX",
"crc32c": ...}``. The checksum is that of the message's payload; it may be absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from google_crc32c import extend

from pulsarish.client.messages.message import Entry, open_entry
from pulsarish.ledger.reader import LedgerReader
from pulsarish.ledger.reading import read_records
from pulsarish.metadata import paths
from pulsarish.metadata.records import TopicRecord
from pulsarish.model.errors import (
    EntryUnknown,
    InvalidArgument,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
    PulsarishError,
)
from pulsarish.model.ledger_metadata import LedgerState
from pulsarish.spark.jobs.cluster_access import ClusterAccess, JobCluster, run, site, where_of_tasks
from pulsarish.spark.jobs.ledger_selection import kept_topic, named_by_topic
from pulsarish.spark.jobs.verify_core import Finding
from pulsarish.wire._pb.message_pb2 import MessageMetadata

__all__ = ["Acked", "Audit", "audit", "parse_acked"]

_SCHEMA: Final = "topic string, id string, crc32c bigint, damaged string"
_GROUP_ENTRIES: Final = 4096
"""Entries of a ledger whose acknowledgements one task checks at a time."""
_READ_BYTES: Final = 1 << 20


class Acked(NamedTuple):
    """One acknowledged message.

    ``batch_index`` is -1 outside of a batch, ``crc32c`` -1 where it is unknown.
    """

    topic: str
    ledger_id: int
    entry_id: int
    partition: int
    batch_index: int
    crc32c: int


class Audit(NamedTuple):
    """Result of an audit.

    ``trimmed``: acknowledged messages whose ledgers retention or deletion has removed from their
    topics.
    """

    acked: int
    trimmed: int
    findings: list[Finding]
    topics: dict[int, str]  # the topic of each ledger with a finding


def parse_acked(topic: str, message_id: str, crc32c: int | None) -> Acked:
    """Return one line's message. Raises ``InvalidArgument`` for an invalid id."""
    parts = message_id.split(":")
    try:
        ledger_id, entry_id, partition, index = (int(part) for part in parts)
    except ValueError:
        raise InvalidArgument(
            f"{message_id!r} of {topic} must look like LEDGER:ENTRY:PARTITION:INDEX"
        ) from None
    return Acked(topic, ledger_id, entry_id, partition, index, -1 if crc32c is None else crc32c)


def audit(spark: Any, where: JobCluster, file: str) -> Audit:
    """Look for every message of a log. Raises ``InvalidArgument`` for a log with invalid lines."""
    options = {"columnNameOfCorruptRecord": "damaged", "mode": "PERMISSIVE"}
    lines = spark.read.schema(_SCHEMA).options(**options).json(file).cache()
    bad = lines.where("damaged is not null or topic is null or id is null").head(1)
    if bad:
        raise InvalidArgument(
            f'{file}: {bad[0]["damaged"] or bad[0].asDict()!r} is no line like {{"topic": ..., '
            f'"id": "1:2:-1:0"}}'
        )
    keyed = lines.rdd.map(_keyed)
    looked_up = keyed.groupByKey().map(partial(_look, where_of_tasks(where))).collect()
    lines.unpersist()
    findings = [one for each in looked_up for one in each.findings]
    topics = {ledger_id: topic for each in looked_up for ledger_id, topic in each.topics.items()}
    return Audit(
        sum(each.acked for each in looked_up),
        sum(each.trimmed for each in looked_up),
        findings,
        topics,
    )


def _keyed(row: Any) -> tuple[tuple[int, int], Acked]:
    acked = parse_acked(row["topic"], row["id"], row["crc32c"])
    return (acked.ledger_id, acked.entry_id // _GROUP_ENTRIES), acked


def _look(where: JobCluster, group: tuple[tuple[int, int], Iterable[Acked]]) -> Audit:
    here = site(where)
    acked = sorted(group[1], key=lambda each: (each.entry_id, each.batch_index))
    return run(_look_at(here, group[0][0], acked))


async def _look_at(here: ClusterAccess, ledger_id: int, acked: Sequence[Acked]) -> Audit:
    topics = {ledger_id: acked[0].topic}
    found = await here.ledgers.read_newest(ledger_id)
    if found is None:
        if await _is_named(here, acked[0], ledger_id):
            missing = [
                _finding("acked-missing", each, "its ledger is gone, and its topic names it")
                for each in acked
            ]
            return Audit(len(acked), 0, missing, topics)
        return Audit(len(acked), len(acked), [], {})
    metadata = found[0]
    last = metadata.last_entry
    if metadata.state is not LedgerState.CLOSED:
        try:
            last = await LedgerReader(
                here.world, here.options, here.pool, here.ledgers, metadata
            ).refresh()
        except (NotEnoughBookies, NoSuchLedger) as error:
            return Audit(
                len(acked),
                0,
                [_finding("acked-unreadable", each, str(error)) for each in acked],
                topics,
            )
    findings: list[Finding] = []
    records: dict[int, bytes] = {}
    for each in acked:
        if each.entry_id > last:
            findings.append(_finding("acked-missing", each, f"its ledger ends with entry {last}"))
            continue
        if each.entry_id not in records:
            records.clear()
            try:
                read = await read_records(
                    here.pool, here.options, metadata, each.entry_id, last, max_bytes=_READ_BYTES
                )
            except NoSuchEntry:
                findings.append(
                    _finding("acked-missing", each, "no bookie of its write set has its entry")
                )
                continue
            except EntryUnknown as error:
                findings.append(_finding("acked-unreadable", each, str(error)))
                continue
            records.update((record.entry_id, bytes(record.payload)) for record in read.records)
        why = _differs(each, records[each.entry_id])
        if why:
            findings.append(_finding("acked-different", each, why))
    return Audit(len(acked), 0, findings, topics)


async def _is_named(here: ClusterAccess, acked: Acked, ledger_id: int) -> bool:
    name = kept_topic(acked.topic)
    if acked.partition >= 0 and name.partition < 0:
        name = name.with_partition(acked.partition)
    record = await here.records.get(paths.topic(name), TopicRecord)
    return record is not None and ledger_id in named_by_topic(record[0])


def _finding(kind: str, acked: Acked, detail: str) -> Finding:
    return Finding(kind, acked.ledger_id, acked.entry_id, acked.entry_id, "", detail)


def _as_it_is(_metadata: MessageMetadata | None) -> Any:
    return bytes


def _differs(acked: Acked, data: bytes) -> str:
    """Return why an entry does not hold an acknowledged message; empty when it does, or when it
    cannot be decoded.
    """
    try:
        metadata, messages = open_entry(
            Entry(acked.ledger_id, acked.entry_id, 0, data), acked.topic, acked.partition, _as_it_is
        )
    except PulsarishError as error:
        return f"its entry cannot be opened: {error}"
    if metadata is not None and (metadata.num_chunks_from_msg > 1 or metadata.encryption_keys):
        return ""
    mine = [
        message for message in messages if message.message_id().batch_index() == acked.batch_index
    ]
    if not mine:
        return f"its entry holds {len(messages)} messages, and none with index {acked.batch_index}"
    if acked.crc32c >= 0 and extend(0, mine[0].data()) != acked.crc32c:
        return "its payload is another one than was sent"
    return ""
