"""Tenants, namespaces and what metadata says of topics: lists are answered from here, never by asking owners."""

from __future__ import annotations

import msgspec

from pulsarish.broker.config import BrokerConfig
from pulsarish.managed_ledger.options import Retention
from pulsarish.metadata import paths
from pulsarish.metadata.records import NamespacePolicies, PartitionedTopic, TenantRecord, TopicRecord
from pulsarish.metadata.update import Records
from pulsarish.model.errors import (
    AlreadyExists,
    InvalidArgument,
    MetadataUnavailable,
    NotAllowed,
    NotEmpty,
    NotFound,
    TopicNotFound,
)
from pulsarish.model.topic_name import TopicName, check_name, decode_segment
from pulsarish.runtime.seams import Conflict, ConflictReason, OutcomeUnknown, SessionLost, World
from pulsarish.wire.json_record import decode_record

__all__ = ["Namespaces"]

_CACHED_MAX = 10_000


class Namespaces:
    """Typed access for one broker. Policies are cached until their node changes."""

    def __init__(self, world: World, records: Records, config: BrokerConfig) -> None:
        self._world = world
        self._records = records
        self._config = config
        self._policies: dict[str, NamespacePolicies] = {}

    async def start(self) -> None:
        """Make the roots of the tree, and ``public/default``, at the first start of a cluster."""
        for root in paths.ROOTS:
            await self._records.ensure(root)
        for create in (self.create_tenant("public", TenantRecord()), self.create_namespace("public", "default", None)):
            try:
                await create
            except AlreadyExists:
                continue

    # -- tenants

    async def tenants(self) -> list[str]:
        return [decode_segment(name) for name in await self._records.children(paths.TENANTS)]

    async def tenant(self, name: str) -> TenantRecord:
        found = await self._records.get(paths.tenant(name), TenantRecord)
        if found is None:
            raise NotFound(f"tenant {name!r} does not exist; create it with: pulsarish tenants create {name}")
        return found[0]

    async def create_tenant(self, name: str, record: TenantRecord) -> None:
        """Raises ``AlreadyExists``, ``InvalidTopicName``."""
        check_name("tenant", name)
        try:
            await self._records.compare_and_set(paths.tenant(name), record, None)
        except Conflict:
            raise AlreadyExists(f"tenant {name!r} exists already") from None

    async def delete_tenant(self, name: str) -> None:
        """Raises ``NotFound``, ``NotEmpty`` when it has namespaces."""
        await self.tenant(name)
        if await self.namespaces(name):
            raise NotEmpty(f"tenant {name!r} has namespaces; delete them first")
        await self._delete_empty(paths.namespaces(name))
        await self._delete_empty(paths.tenant_topics(name))
        await self._records.delete(paths.tenant(name))

    # -- namespaces

    async def namespaces(self, tenant: str) -> list[str]:
        return [f"{tenant}/{decode_segment(name)}" for name in await self._records.children(paths.namespaces(tenant))]

    async def policies(self, tenant: str, namespace: str) -> NamespacePolicies:
        """Raises ``NotFound`` with what to do."""
        path = paths.namespace(tenant, namespace)
        cached = self._policies.get(path)
        if cached is not None:
            return cached
        try:
            node = (await self._world.metadata.get_many([path], watch=self._forget))[0]
        except (OutcomeUnknown, SessionLost) as error:
            raise MetadataUnavailable(f"the metadata store did not answer a read of {path}: {error}") from error
        if node is None:
            raise NotFound(
                f"namespace {tenant}/{namespace} does not exist; create it with: pulsarish namespaces create {tenant}/{namespace}"
            )
        policies = decode_record(node.data, NamespacePolicies, path)
        if len(self._policies) >= _CACHED_MAX:
            self._policies.clear()
        self._policies[path] = policies
        return policies

    def _forget(self, path: str) -> None:
        self._policies.pop(path, None)

    async def create_namespace(self, tenant: str, namespace: str, bundles: int | None) -> None:
        """Raises ``AlreadyExists``, ``NotFound`` (the tenant), ``InvalidTopicName``, ``InvalidArgument``."""
        check_name("namespace", namespace)
        await self.tenant(tenant)
        count = self._config.default_number_of_namespace_bundles if bundles is None else bundles
        if not 1 <= count <= 1024:
            raise InvalidArgument(f"a namespace has 1 to 1024 bundles, not {count}")
        record = NamespacePolicies(bundles=count, created_ms=self._world.clock.wall_ms())
        try:
            await self._records.compare_and_set(paths.namespace(tenant, namespace), record, None)
        except Conflict:
            raise AlreadyExists(f"namespace {tenant}/{namespace} exists already") from None

    async def set_policies(self, tenant: str, namespace: str, **changes: object) -> None:
        def change(record: NamespacePolicies | None) -> NamespacePolicies:
            if record is None:
                raise NotFound(f"namespace {tenant}/{namespace} does not exist")
            return msgspec.structs.replace(record, **changes)

        path = paths.namespace(tenant, namespace)
        await self._records.update(path, NamespacePolicies, change)
        self._forget(path)

    async def delete_namespace(self, tenant: str, namespace: str) -> None:
        """Raises ``NotFound``, ``NotEmpty`` when it has topics."""
        await self.policies(tenant, namespace)
        if await self.topics(tenant, namespace) or await self.partitioned_topics(tenant, namespace):
            raise NotEmpty(f"namespace {tenant}/{namespace} has topics; delete them first")
        owners = paths.namespace_owners(tenant, namespace)
        for bundle in await self._records.children(owners):
            await self._records.delete(f"{owners}/{bundle}")
        for path in (owners, paths.namespace_topics(tenant, namespace), paths.partitioned_namespace(tenant, namespace)):
            await self._delete_empty(path)
        path = paths.namespace(tenant, namespace)
        await self._records.delete(path)
        self._forget(path)

    async def _delete_empty(self, path: str) -> None:
        try:
            await self._records.delete(path)
        except Conflict as conflict:
            if conflict.reason is ConflictReason.NOT_EMPTY:
                raise NotEmpty(f"{path} is in use again; something was created meanwhile") from None
            raise

    def retention(self, policies: NamespacePolicies) -> Retention:
        """What the namespace says, or this broker's default."""
        if policies.retention_minutes is None or policies.retention_mb is None:
            return Retention(self._config.default_retention_time_minutes, self._config.default_retention_size_mb)
        return Retention(policies.retention_minutes, policies.retention_mb)

    def deduplication(self, policies: NamespacePolicies) -> bool:
        return self._config.broker_deduplication_enabled if policies.deduplication is None else policies.deduplication

    # -- topics

    async def topics(self, tenant: str, namespace: str) -> list[str]:
        """Full names, partitions one by one, sorted.

        A topic whose deletion was begun and not finished is there too: deleting it again finishes that.
        """
        names = await self._records.children(paths.namespace_topics(tenant, namespace))
        return sorted(TopicName(tenant, namespace, decode_segment(name)).full for name in names)

    async def partitioned_topics(self, tenant: str, namespace: str) -> list[str]:
        names = await self._records.children(paths.partitioned_namespace(tenant, namespace))
        return sorted(TopicName(tenant, namespace, decode_segment(name)).full for name in names)

    async def topic_exists(self, name: TopicName) -> bool:
        found = await self._records.get(paths.topic(name), TopicRecord)
        return found is not None and not found[0].deleted

    async def partitions(self, name: TopicName) -> int | None:
        """How many partitions; ``None`` when no such partitioned topic exists."""
        found = await self._records.get(paths.partitioned_topic(name), PartitionedTopic)
        return None if found is None else found[0].partitions

    async def create_partitioned(self, name: TopicName, partitions: int) -> None:
        """Raises ``AlreadyExists``, ``InvalidArgument``, ``NotFound`` (the namespace)."""
        if not 1 <= partitions <= 10_000:
            raise InvalidArgument(f"a partitioned topic has 1 to 10000 partitions, not {partitions}")
        if name.partition >= 0:
            raise InvalidArgument(f"{name} looks like a partition; name the partitioned topic itself: {name.partitioned}")
        await self.policies(name.tenant, name.namespace)
        if await self.topic_exists(name):
            raise AlreadyExists(f"topic {name} exists already and is not partitioned")
        record = PartitionedTopic(partitions, created_ms=self._world.clock.wall_ms())
        try:
            await self._records.compare_and_set(paths.partitioned_topic(name), record, None)
        except Conflict:
            raise AlreadyExists(f"partitioned topic {name} exists already") from None

    async def grow_partitioned(self, name: TopicName, partitions: int) -> None:
        """The number may only grow. Raises ``TopicNotFound``, ``InvalidArgument``."""

        def change(record: PartitionedTopic | None) -> PartitionedTopic:
            if record is None:
                raise TopicNotFound(f"{name} is no partitioned topic")
            if not record.partitions < partitions <= 10_000:
                raise InvalidArgument(
                    f"{name} has {record.partitions} partitions; the number can only grow, up to 10000, not to {partitions}"
                )
            return msgspec.structs.replace(record, partitions=partitions)

        await self._records.update(paths.partitioned_topic(name), PartitionedTopic, change)

    async def delete_partitioned(self, name: TopicName) -> None:
        await self._records.delete(paths.partitioned_topic(name))

    async def check_creatable(self, name: TopicName) -> None:
        """Whether a topic of this name may be made now: by configuration, and beside the partitioned topics.

        Raises ``TopicNotFound``, ``NotAllowed``, ``NotFound`` (the namespace).
        """
        await self.policies(name.tenant, name.namespace)
        count = await self.partitions(name.partitioned)
        if name.partition >= 0 and count is not None:
            if name.partition >= count:
                raise TopicNotFound(f"{name.partitioned} has {count} partitions, there is none with number {name.partition}")
            return
        if count is not None:
            raise NotAllowed(f"{name} is a partitioned topic with {count} partitions; use those, {name.with_partition(0)} and on")

    def check_auto_creation(self, name: TopicName) -> None:
        """Raises ``TopicNotFound`` unless topics are made on first use."""
        if not self._config.allow_auto_topic_creation:
            raise TopicNotFound(f"topic {name} does not exist, and allow_auto_topic_creation is off; create it first")
