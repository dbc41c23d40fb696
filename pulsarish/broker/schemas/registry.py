"""The registry of schemas: versions for one topic, or for all partitions of a partitioned topic, as
nodes below it in metadata.

TOPIC/schemas                        SchemasRecord: how many versions there have ever been
TOPIC/schemas/0000000003-<digest>    SchemaRecord: version 3; its name identifies the schema
TOPIC/schemas/0000000004-deleted     all versions before this one were deleted

A version is written in one commit with the count, by compare-and-set. So two brokers never give one
number to two schemas. The list of node names says which version a schema has, without reading a
node. A topic without schemas has none of these nodes. They are deleted in the same commit as the
topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pulsarish.broker.clients.authorization import OnCreated
from pulsarish.broker.config import BrokerConfig
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import ATTEMPTS_MAX, Records
from pulsarish.metadata.records import PartitionedTopic, SchemaRecord, SchemasRecord, TopicRecord
from pulsarish.model.errors import (
    CorruptData,
    IncompatibleSchema,
    InvalidSchema,
    LimitReached,
    MetadataUnavailable,
    SchemaNotFound,
    TopicNotFound,
)
from pulsarish.model.policy_words import SchemaStrategy
from pulsarish.model.schema import Schema, SchemaType, VersionedSchema, fingerprint
from pulsarish.model.schema_compatibility import check_consumer, check_new, check_valid
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Clock, Conflict, Op
from pulsarish.wire.json_record import encode_record

__all__ = ["SchemaRegistry"]

_DELETED: Final = "deleted"
_DIGITS: Final = 10


@dataclass(frozen=True, slots=True)
class _Slot:
    """A version, as the name of its node says."""

    version: int
    digest: str
    path: str


def _in_use(slots: Sequence[_Slot]) -> Sequence[_Slot]:
    """Return the versions since the last deletion, oldest first."""
    for index in range(len(slots) - 1, -1, -1):
        if slots[index].digest == _DELETED:
            return slots[index + 1 :]
    return slots


class SchemaRegistry:
    """The schema registry for one broker.

    Any broker may read and change the schemas of any topic.
    """

    def __init__(self, records: Records, clock: Clock, config: BrokerConfig) -> None:
        self._records = records
        self._clock = clock
        self._config = config

    async def get(self, name: TopicName, version: int | None) -> VersionedSchema:
        """Return a version in use, the newest with ``None``.

        Raises ``TopicNotFound``, ``SchemaNotFound``.
        """
        home = await self.home(name)
        slots = _in_use(await self._slots(home))
        wanted = [slot for slot in slots if version is None or slot.version == version][-1:]
        found = await self._read(wanted)
        if not found:
            which = "schema" if version is None else f"schema of version {version}"
            raise SchemaNotFound(f"topic {name.partitioned} has no {which}")
        return found[0]

    async def versions(self, name: TopicName) -> list[VersionedSchema]:
        """Return all versions in use, oldest first. Raises ``TopicNotFound``."""
        return await self._read(_in_use(await self._slots(await self.home(name))))

    async def version_of(self, name: TopicName, schema: Schema) -> int | None:
        """Return which version in use the schema is; ``None`` if it is none of them.

        Raises ``TopicNotFound``.
        """
        return _version_of(_in_use(await self._slots(await self.home(name))), fingerprint(schema))

    async def is_empty(self, name: TopicName) -> bool:
        """Return whether no schema is in use. Raises ``TopicNotFound``."""
        return not _in_use(await self._slots(await self.home(name)))

    async def check(self, name: TopicName, schema: Schema, strategy: SchemaStrategy) -> None:
        """Check that the schema could become the topic's next version.

        Raises ``IncompatibleSchema``, ``InvalidSchema``, ``TopicNotFound``.
        """
        self._check_valid(schema)
        check_new(strategy, await self.versions(name), schema)

    async def check_consumer(
        self, name: TopicName, schema: Schema, strategy: SchemaStrategy
    ) -> bool:
        """Check that a consumer may read with the schema.

        Return ``False`` when the topic has no schema.

        Raises ``IncompatibleSchema``, ``InvalidSchema``, ``TopicNotFound``.
        """
        self._check_valid(schema)
        slots = _in_use(await self._slots(await self.home(name)))
        if slots and _version_of(slots, fingerprint(schema)) is None:
            check_consumer(strategy, await self._read(slots), schema)
        return bool(slots)

    async def get_or_create(
        self,
        name: TopicName,
        schema: Schema,
        strategy: SchemaStrategy,
        *,
        may_create: bool,
        on_created: OnCreated | None = None,
    ) -> int:
        """Return the version of the schema. Add the schema if it is new, and call ``on_created``.

        Raises ``IncompatibleSchema`` (also when it is new and ``may_create`` is off),
        ``InvalidSchema``, ``LimitReached``, ``TopicNotFound``, ``MetadataUnavailable``.
        """
        digest = fingerprint(schema)
        is_known_valid = False
        for _ in range(ATTEMPTS_MAX):
            home = await self.home(name)
            known = _version_of(_in_use(await self._slots(home)), digest)
            if known is not None:
                return known
            if not may_create:
                raise IncompatibleSchema(
                    f"the schema is none of those of {name.partitioned}, and new ones are not "
                    "taken from clients (isAllowAutoUpdateSchema)"
                )
            if not is_known_valid:
                self._check_valid(schema)
                is_known_valid = True
                await self._ensure_home(name, home)
            record, version, slots = await self._for_change(home)
            used = _in_use(slots)
            if _version_of(used, digest) is not None:
                continue
            check_new(
                strategy,
                await self._read(used if strategy.endswith("_TRANSITIVE") else used[-1:]),
                schema,
            )
            self._check_room(name, record)
            made = SchemaRecord(
                int(schema.type),
                schema.name,
                schema.data,
                dict(schema.properties),
                self._clock.wall_ms(),
            )
            if await self._add(home, record, version, digest, made):
                if on_created is not None:
                    on_created(f"version {record.versions_count}, type {schema.type.name}")
                return record.versions_count
        raise MetadataUnavailable(
            f"the schemas of {name.partitioned} changed {ATTEMPTS_MAX} times while one was being "
            "added"
        )

    async def delete(self, name: TopicName, *, force: bool = False) -> int:
        """Delete all versions. Return the version number of the deletion mark.

        Later versions continue the numbers, unless ``force`` deletes the count too.

        Raises ``TopicNotFound``, ``SchemaNotFound``, ``LimitReached``, ``MetadataUnavailable``.
        """
        for _ in range(ATTEMPTS_MAX):
            home = await self.home(name)
            record, version, slots = await self._for_change(home)
            if version is None or not (slots if force else _in_use(slots)):
                raise SchemaNotFound(f"topic {name.partitioned} has no schema")
            if force:
                try:
                    await self._records.delete(
                        paths.schemas(home),
                        version,
                        before=[Op("delete", slot.path) for slot in slots],
                    )
                except Conflict:
                    continue
                return record.versions_count - 1
            self._check_room(name, record)
            marker = SchemaRecord(int(SchemaType.NONE), created_ms=self._clock.wall_ms())
            if await self._add(home, record, version, _DELETED, marker):
                return record.versions_count
        raise MetadataUnavailable(
            f"the schemas of {name.partitioned} changed {ATTEMPTS_MAX} times while they were "
            "being deleted"
        )

    # -- in metadata

    async def home(self, name: TopicName) -> str:
        """Return the path of the node above a topic's schemas. Raises ``TopicNotFound``.

        For a partition this is its partitioned topic. For a non-persistent topic the node need not
        exist.
        """
        partitioned = paths.partitioned_topic(name.partitioned)
        if not name.persistent:
            return partitioned
        whole, found = await asyncio.gather(
            self._records.get(partitioned, PartitionedTopic),
            self._records.get(paths.topic(name), TopicRecord),
        )
        if whole is not None:
            return partitioned
        if found is None or found[0].deleted:
            raise TopicNotFound(f"topic {name} does not exist")
        return paths.topic(name)

    async def _ensure_home(self, name: TopicName, home: str) -> None:
        """Create the node of a non-persistent topic.

        It has one only for data that every broker must see.
        """
        if not name.persistent:
            await self._records.update(
                home, PartitionedTopic, lambda found: PartitionedTopic(0) if found is None else None
            )

    async def _slots(self, home: str) -> list[_Slot]:
        """Return all versions ever written, by number."""
        parent = paths.schemas(home)
        return [
            _Slot(int(node[:_DIGITS]), node[_DIGITS + 1 :], f"{parent}/{node}")
            for node in await self._records.children(parent)
        ]

    async def _read(self, slots: Sequence[_Slot]) -> list[VersionedSchema]:
        found = (
            await self._records.get_many([slot.path for slot in slots], SchemaRecord)
            if slots
            else []
        )
        # A missing node was deleted with the topic, or by force.
        return [
            _versioned(slot, each[0])
            for slot, each in zip(slots, found, strict=True)
            if each is not None
        ]

    async def _for_change(self, home: str) -> tuple[SchemasRecord, int | None, list[_Slot]]:
        """Return the count, its version for the compare-and-set, and all versions.

        Versions written in between are included; the compare-and-set then fails.
        """
        found = await self._records.get(paths.schemas(home), SchemasRecord)
        if found is None:
            return SchemasRecord(), None, []
        slots = await self._slots(home)
        # A restored tree may have a version that the count does not include. Its number must not be
        # used again.
        highest = slots[-1].version if slots else -1
        return SchemasRecord(max(found[0].versions_count, highest + 1)), found[1], slots

    async def _add(
        self, home: str, record: SchemasRecord, version: int | None, digest: str, made: SchemaRecord
    ) -> bool:
        """Write the next version.

        Return ``False`` when another client has changed something, or the topic is gone.
        """
        node = f"{paths.schemas(home)}/{record.versions_count:0{_DIGITS}d}-{digest}"
        try:
            await self._records.compare_and_set(
                paths.schemas(home),
                SchemasRecord(record.versions_count + 1),
                version,
                with_ops=[Op("create", node, encode_record(made))],
                parents=False,
            )
        except Conflict:
            return False
        return True

    # -- limits

    def _check_valid(self, schema: Schema) -> None:
        size_bytes = len(schema.data) + sum(
            len(key) + len(value) for key, value in schema.properties.items()
        )
        if size_bytes > self._config.max_schema_size_bytes:
            raise InvalidSchema(
                f"a schema of {size_bytes} bytes, its properties included, is above "
                "max_schema_size_bytes"
                f" {self._config.max_schema_size_bytes}"
            )
        check_valid(schema)

    def _check_room(self, name: TopicName, record: SchemasRecord) -> None:
        if record.versions_count >= self._config.max_schema_versions_per_topic:
            raise LimitReached(
                f"{name.partitioned} has had {record.versions_count} versions of its schema, "
                "and max_schema_versions_per_topic is"
                f" {self._config.max_schema_versions_per_topic}; delete its schemas by force "
                "to begin again"
            )


def _versioned(slot: _Slot, record: SchemaRecord) -> VersionedSchema:
    try:
        kind = SchemaType(record.type)
    except ValueError:
        # It was written by a newer broker. Skipping it would admit schemas that are not compatible
        # with it.
        raise CorruptData(
            f"metadata node {slot.path} has a schema of type {record.type}, which this broker "
            "does not know"
        ) from None
    return VersionedSchema(
        slot.version, Schema(kind, record.data, record.name, record.properties), record.created_ms
    )


def _version_of(slots: Sequence[_Slot], digest: str) -> int | None:
    return next((slot.version for slot in slots if slot.digest == digest), None)
