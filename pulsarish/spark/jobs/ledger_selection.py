"""The ledgers that a job works on: of named topics, of a namespace, or all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from pulsarish.metadata import paths
from pulsarish.metadata.ledger_walk import ledger_ids
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import (
    CursorRecord,
    NamespacePolicies,
    PartitionedTopic,
    TopicRecord,
)
from pulsarish.model.errors import InvalidArgument, NotFound, TopicNotFound
from pulsarish.model.topic_name import TopicName, decode_segment

__all__ = [
    "PAGE",
    "LedgerSelection",
    "kept_topic",
    "ledgers_of",
    "named_by_topic",
    "namespaces_of",
    "topics_of",
]

PAGE: Final = 500
"""Metadata nodes in one request."""


@dataclass(frozen=True, slots=True)
class LedgerSelection:
    """Without topics and namespace: the whole cluster. Names are as the user typed them."""

    topics: tuple[str, ...] = ()
    namespace: str = ""

    def __post_init__(self) -> None:
        if self.topics and self.namespace:
            raise InvalidArgument("give topics or --namespace, not both")
        if self.namespace and self.namespace.count("/") != 1:
            raise InvalidArgument(f"--namespace {self.namespace!r} must look like tenant/namespace")

    @property
    def is_everything(self) -> bool:
        return not self.topics and not self.namespace


async def namespaces_of(records: Records, scope: LedgerSelection) -> list[tuple[str, str]]:
    """Return the namespaces of a selection that names none.

    Raises ``NotFound``, ``MetadataUnavailable``.
    """
    if scope.namespace:
        tenant, _, name = scope.namespace.partition("/")
        if await records.get(paths.namespace(tenant, name), NamespacePolicies) is None:
            raise NotFound(f"namespace {scope.namespace} does not exist")
        return [(tenant, name)]
    found: list[tuple[str, str]] = []
    for tenant in await records.children(paths.NAMESPACES):
        found += [
            (decode_segment(tenant), decode_segment(name))
            for name in await records.children(f"{paths.NAMESPACES}/{tenant}")
        ]
    return found


async def topics_of(records: Records, scope: LedgerSelection) -> AsyncIterator[list[TopicName]]:
    """Yield the topics in pages; for a partitioned topic, its partitions.

    Raises ``TopicNotFound``, ``NotFound``, ``MetadataUnavailable``.
    """
    if scope.topics:
        yield [
            each
            for text in scope.topics
            for each in await _with_partitions(records, kept_topic(text))
        ]
        return
    for tenant, namespace in await namespaces_of(records, scope):
        names = await records.children(paths.namespace_topics(tenant, namespace))
        for start in range(0, len(names), PAGE):
            yield [
                TopicName(tenant, namespace, decode_segment(name))
                for name in names[start : start + PAGE]
            ]


def kept_topic(text: str) -> TopicName:
    """Return the name of a topic.

    Raises ``InvalidTopicName``, and ``InvalidArgument`` for a topic without storage.
    """
    name = TopicName.parse(text)
    if not name.persistent:
        raise InvalidArgument(f"topic {name} has no ledgers: what is not persistent is not stored")
    return name


async def _with_partitions(records: Records, name: TopicName) -> list[TopicName]:
    partitioned = await records.get(paths.partitioned_topic(name), PartitionedTopic)
    wanted = (
        [name]
        if partitioned is None
        else [name.with_partition(index) for index in range(partitioned[0].partitions)]
    )
    found = await records.get_many([paths.topic(each) for each in wanted], TopicRecord)
    there = [each for each, record in zip(wanted, found, strict=True) if record is not None]
    if not there and partitioned is None:
        raise TopicNotFound(f"topic {name} does not exist")
    return there


async def ledgers_of(records: Records, scope: LedgerSelection) -> AsyncIterator[list[int]]:
    """Yield ledger ids in pages: those of the topics, of their compacted views and of their
    cursors.

    Raises the errors of ``topics_of``.
    """
    if scope.is_everything:
        async for branch in ledger_ids(records):
            for start in range(0, len(branch), PAGE):
                yield branch[start : start + PAGE]
        return
    async for topics in topics_of(records, scope):
        found: list[int] = []
        for name, record in zip(
            topics,
            await records.get_many([paths.topic(name) for name in topics], TopicRecord),
            strict=True,
        ):
            if record is not None:
                found += named_by_topic(record[0])
                found += await _of_cursors(records, name)
        for start in range(0, len(found), PAGE):
            yield found[start : start + PAGE]


def named_by_topic(record: TopicRecord) -> list[int]:
    """Return the ledgers that a topic uses, with those of its compacted view."""
    view = record.compacted
    return [link.ledger_id for link in record.ledgers] + (
        [view.ledger_id] if view is not None and view.ledger_id >= 0 else []
    )


async def _of_cursors(records: Records, name: TopicName) -> Sequence[int]:
    nodes = [
        f"{paths.cursors(name)}/{child}" for child in await records.children(paths.cursors(name))
    ]
    found = await records.get_many(nodes, CursorRecord) if nodes else []
    return [ledger_id for row in found if row is not None for ledger_id in row[0].ledgers_in_use]
