"""Tenants, namespaces and what metadata says about topics.

Lists come from here; owners are never asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from pulsarish.broker.clients.authorization import OnCreated
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.placement_store import PlacementStore
from pulsarish.broker.policies.store import (
    BrokerDefaults,
    Effective,
    PolicyStore,
    Values,
    decoded,
    grants_of,
)
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import ATTEMPTS_MAX, Records
from pulsarish.metadata.records import (
    BundleOwner,
    NamespacePolicies,
    PartitionedTopic,
    TenantRecord,
    TopicRecord,
)
from pulsarish.metadata.subtrees import nodes_below
from pulsarish.model import policies as model
from pulsarish.model.errors import (
    AlreadyExists,
    InvalidArgument,
    LimitReached,
    MetadataUnavailable,
    NotAllowedError,
    NotEmpty,
    NotFound,
    NotOwner,
    TopicNotFound,
)
from pulsarish.model.grants import without_topic
from pulsarish.model.topic_name import TopicName, check_name, decode_segment
from pulsarish.runtime.seams import Conflict, ConflictReason, Op, Versioned, World
from pulsarish.wire.json_record import decode_record

__all__ = ["Namespaces"]

_CACHED_MAX = 10_000


@dataclass(slots=True)
class _Cached:
    """What brokers know of tenants and namespaces until a watch says that it may have changed."""

    namespaces: dict[str, tuple[NamespacePolicies, Values]] = field(default_factory=dict)
    """By path of a namespace's node."""
    admin_roles: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By path of a tenant's node."""
    reading: dict[str, object] = field(default_factory=dict)
    """By path: a mark of the reads in flight, which goes when the node may have changed.

    The answer of such a read may be older than the change, so it is not cached.
    """
    changes_count: int = 0


def _nobody(_path: str) -> None:
    pass


def _held(tenant: str, namespace: str) -> tuple[str, ...]:
    """Return the nodes that may keep a namespace from being deleted because something is below
    them.
    """
    return (
        paths.namespace_topics(tenant, namespace),
        paths.partitioned_namespace(tenant, namespace),
        paths.partitioned_namespace(tenant, namespace, persistent=False),
    )


class Namespaces:
    """Tenants and namespaces for one broker. Policies are cached until their node changes."""

    def __init__(self, world: World, records: Records, config: BrokerConfig) -> None:
        self._world = world
        self._records = records
        self._config = config
        self._defaults = BrokerDefaults(config)
        self.store = PolicyStore(records, self._defaults, self._forget)
        self.changed: Callable[[str], None] = _nobody
        """Called with the path of a namespace's node when it may have changed, if it was cached."""
        self.in_use: Callable[[], Iterable[str]] = tuple
        """Returns the paths for which ``changed`` must be called, cached or not."""
        self._cached = _Cached()

    def through(self, records: Records) -> Namespaces:
        """Return the same namespaces, with the same cache of policies, for a caller that reads and
        writes through ``records``.
        """
        other = copy(self)
        other._records = records
        other.store = PolicyStore(records, self._defaults, self._forget)
        other.changed = self._tell_changed
        return other

    def _tell_changed(self, path: str) -> None:
        self.changed(path)

    def options_changed(self) -> None:
        """Use the options that are in force now for what policies do not say.

        Each namespace in use counts as changed, so that its topics follow.
        """
        self._defaults.options_changed()
        for path in dict.fromkeys((*self._cached.namespaces, *self.in_use())):
            self._forget(path)

    async def start(self) -> None:
        """Create the roots of the tree, and ``public/default``, at the first start of a cluster."""
        for root in paths.ROOTS:
            await self._records.ensure(root)
        for create in (
            partial(self.create_tenant, "public", TenantRecord()),
            partial(self.create_namespace, "public", "default", None),
        ):
            try:
                await create()
            except AlreadyExists:
                continue

    # -- tenants

    async def tenants(self) -> list[str]:
        return [decode_segment(name) for name in await self._records.children(paths.TENANTS)]

    async def tenant(self, name: str) -> TenantRecord:
        found = await self._records.get(paths.tenant(name), TenantRecord)
        if found is None:
            raise NotFound(
                f"tenant {name!r} does not exist; create it with: pulsarish tenants create {name}"
            )
        return found[0]

    async def create_tenant(self, name: str, record: TenantRecord) -> None:
        """Create a tenant. Raises ``AlreadyExists``, ``InvalidTopicName``."""
        check_name("tenant", name)
        try:
            await self._records.compare_and_set(paths.tenant(name), record, None)
        except Conflict:
            raise AlreadyExists(f"tenant {name!r} exists already") from None

    async def update_tenant(
        self,
        name: str,
        *,
        admin_roles: tuple[str, ...] | None,
        allowed_clusters: tuple[str, ...] | None,
    ) -> None:
        """Change the given fields of a tenant. Raises ``NotFound``."""
        changes = {"admin_roles": admin_roles, "allowed_clusters": allowed_clusters}

        def change(record: TenantRecord | None) -> TenantRecord:
            if record is None:
                raise NotFound(f"tenant {name!r} does not exist")
            return msgspec.structs.replace(
                record, **{key: value for key, value in changes.items() if value is not None}
            )

        await self._records.update(paths.tenant(name), TenantRecord, change)
        self._forget(paths.tenant(name))

    async def delete_tenant(self, name: str) -> None:
        """Delete a tenant. Raises ``NotFound``, ``NotEmpty`` when it has namespaces."""
        await self.tenant(name)
        if await self.namespaces(name):
            raise NotEmpty(f"tenant {name!r} has namespaces; delete them first")
        await self._delete_empty(paths.namespaces(name))
        await self._delete_empty(paths.tenant_topics(name))
        await self._records.delete(paths.tenant(name))
        self._forget(paths.tenant(name))

    async def admin_roles(self, tenant: str) -> tuple[str, ...]:
        """Return the roles that administer a tenant; none when it does not exist.

        They are cached until the tenant changes. Raises ``CorruptData``, ``MetadataUnavailable``.
        """
        path, known = paths.tenant(tenant), self._cached.admin_roles
        cached = known.get(path)
        if cached is not None:
            return cached
        if not await self._is_there(path):
            return ()
        node, is_current = await self._watched(path)
        if node is None:
            return ()
        roles = decode_record(node.data, TenantRecord, path).admin_roles
        if is_current:
            if len(known) >= _CACHED_MAX:
                known.clear()
            known[path] = roles
        return roles

    async def all_tenants(self) -> dict[str, TenantRecord]:
        """Return the records of all tenants, by name, without caching them."""
        names = await self.tenants()
        found = await self._records.get_many([paths.tenant(name) for name in names], TenantRecord)
        return {name: each[0] for name, each in zip(names, found, strict=True) if each is not None}

    # -- namespaces

    async def namespaces(self, tenant: str) -> list[str]:
        return [
            f"{tenant}/{decode_segment(name)}"
            for name in await self._records.children(paths.namespaces(tenant))
        ]

    async def policies(self, tenant: str, namespace: str) -> NamespacePolicies:
        """Return the record of a namespace.

        Raises ``NotFound`` with the fix, ``CorruptData``, ``MetadataUnavailable``.
        """
        return (await self._read(tenant, namespace))[0]

    async def values(self, tenant: str, namespace: str) -> Values:
        """Return the policies that a namespace sets; none when it does not exist.

        For names that a client chooses without a permission: those that do not exist leave nothing
        behind. Raises ``CorruptData``, ``MetadataUnavailable``.
        """
        path = paths.namespace(tenant, namespace)
        cached = self._cached.namespaces.get(path)
        if cached is None:
            if not await self._is_there(path):
                return {}
            try:
                cached = await self._read(tenant, namespace)
            except NotFound:
                return {}
        return cached[1]

    async def _is_there(self, path: str) -> bool:
        """Return whether a node exists, without a watch: the watch of a missing node would stay."""
        return (await self._records.nodes([path]))[0] is not None

    async def all_values(self, tenant: str) -> dict[str, Values]:
        """Return the policies that the namespaces of a tenant set, by local name, without caching
        them.

        Raises ``CorruptData``, ``MetadataUnavailable``.
        """
        segments = await self._records.children(paths.namespaces(tenant))
        names = [decode_segment(segment) for segment in segments]
        nodes = [paths.namespace(tenant, name) for name in names]
        found = await self._records.get_many(nodes, NamespacePolicies)
        return {
            name: decoded(each[0].policies, path)
            for name, path, each in zip(names, nodes, found, strict=True)
            if each is not None
        }

    @property
    def changes_count(self) -> int:
        """How often a cached tenant or namespace may have changed, or this broker changed one.

        While it stays the same, permissions that were checked are still granted.
        """
        return self._cached.changes_count

    async def remove_grants(self, name: TopicName) -> None:
        """Remove the grants on a topic that was deleted, so that a later topic of that name has
        none.

        Raises ``CorruptData``, ``MetadataUnavailable``.
        """
        with suppress(NotFound):
            values = (await self.effective(name.tenant, name.namespace)).namespace
            if grants_of(values).of_topic(name):
                await self.store.set_grants(
                    name.tenant, name.namespace, lambda found: without_topic(found, name)
                )

    def known(self, tenant: str, namespace: str) -> NamespacePolicies | None:
        """Return the cached record of a namespace; ``None`` if it is not cached or may have
        changed.
        """
        cached = self._cached.namespaces.get(paths.namespace(tenant, namespace))
        return None if cached is None else cached[0]

    async def effective(self, tenant: str, namespace: str) -> Effective:
        """Return the policies in force for topics of the namespace without policies of their own.

        Raises the errors of ``policies``.
        """
        _, values = await self._read(tenant, namespace)
        return Effective(self.store.defaults, values)

    async def _read(self, tenant: str, namespace: str) -> tuple[NamespacePolicies, Values]:
        path, known = paths.namespace(tenant, namespace), self._cached.namespaces
        cached = known.get(path)
        if cached is not None:
            return cached
        node, is_current = await self._watched(path)
        if node is None:
            raise NotFound(
                f"namespace {tenant}/{namespace} does not exist; create it with: pulsarish "
                f"namespaces create {tenant}/{namespace}"
            )
        record = decode_record(node.data, NamespacePolicies, path)
        found = record, decoded(record.policies, path)
        if is_current:
            if len(known) >= _CACHED_MAX:
                known.clear()
            known[path] = found
        return found

    async def _watched(self, path: str) -> tuple[Versioned | None, bool]:
        """Read a node and watch it.

        Return whether no change was reported meanwhile, so that the answer may be cached.
        """
        reading = self._cached.reading
        mark = reading.setdefault(path, object())
        try:
            node = (await self._records.nodes([path], watch=self._forget))[0]
            return node, reading.get(path) is mark
        finally:
            if reading.get(path) is mark:
                del reading[path]

    def forget(self, tenant: str, namespace: str) -> None:
        """Read a namespace again when it is asked for next: what is cached of it is known to be
        old.
        """
        self._forget(paths.namespace(tenant, namespace))

    def _forget(self, path: str) -> None:
        self._cached.namespaces.pop(path, None)
        self._cached.admin_roles.pop(path, None)
        self._cached.reading.pop(path, None)
        self._cached.changes_count += 1
        self.changed(path)

    async def create_namespace(
        self,
        tenant: str,
        namespace: str,
        bundles: int | None,
        *,
        policies: Mapping[str, Any] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a namespace.

        Raises ``AlreadyExists``, ``NotFound`` (the tenant), ``InvalidTopicName``,
        ``InvalidArgument``.
        """
        check_name("namespace", namespace)
        await self.tenant(tenant)
        count = self._config.default_number_of_namespace_bundles if bundles is None else bundles
        if not 1 <= count <= 1024:
            raise InvalidArgument(f"a namespace has 1 to 1024 bundles, not {count}")
        path = paths.namespace(tenant, namespace)
        self.store.check_namespace(path, policies or {})
        group = (policies or {}).get(model.RESOURCE_GROUP.name, "")
        uses = await self.store.groups.use(group, f"{tenant}/{namespace}")
        record = NamespacePolicies(
            count,
            dict(policies or {}),
            dict(properties or {}),
            created_ms=self._world.clock.wall_ms(),
        )
        # A split may have come while an earlier namespace of this name was being deleted.
        await self._forget_owners(tenant, namespace)
        try:
            await self._records.compare_and_set(path, record, None, with_ops=uses)
        except Conflict as conflict:
            if conflict.index > 0:
                raise MetadataUnavailable(
                    f"resource group {group} changed while {tenant}/{namespace} was created; try "
                    "again"
                ) from None
            raise AlreadyExists(f"namespace {tenant}/{namespace} exists already") from None

    async def divide(
        self,
        tenant: str,
        namespace: str,
        change: Callable[[NamespacePolicies], tuple[int, ...]],
        ops: Sequence[Op],
    ) -> None:
        """Store the edges of a namespace's bundles that ``change`` returns, in one commit with
        ``ops``.

        Raises ``NotFound``, what ``change`` raises, ``NotOwner`` if the operations are refused, and
        ``MetadataUnavailable``.
        """

        def changed(record: NamespacePolicies | None) -> NamespacePolicies:
            if record is None:
                raise NotFound(f"namespace {tenant}/{namespace} does not exist")
            edges = change(record)
            return msgspec.structs.replace(record, bundles=len(edges) - 1, boundaries=edges)

        try:
            await self._records.update(
                paths.namespace(tenant, namespace),
                NamespacePolicies,
                changed,
                with_ops=lambda _: ops,
            )
        except Conflict as conflict:
            raise NotOwner(
                f"a bundle of {tenant}/{namespace} changed hands while it was split: {conflict}"
            ) from None
        finally:
            self.forget(tenant, namespace)

    async def check_empty(self, tenant: str, namespace: str) -> None:
        """Check that a namespace has no topics. Raises ``NotFound``, ``NotEmpty``."""
        await self.policies(tenant, namespace)
        for name in await self._only_schemas_of(tenant, namespace):
            await self.delete_schemas_of_not_kept(name)
        # Ask only whether there are any: there may be hundreds of thousands.
        if any([await self._records.children(path) for path in _held(tenant, namespace)]):
            raise NotEmpty(f"namespace {tenant}/{namespace} has topics; delete them first")

    async def delete_namespace(self, tenant: str, namespace: str) -> None:
        """Delete a namespace. Raises ``NotFound``, ``NotEmpty`` when it has topics.

        The owners of its bundles have released them, or keep them for a namespace of that name that
        is created again.
        """
        await self.check_empty(tenant, namespace)
        owners = paths.namespace_owners(tenant, namespace)
        await self._forget_owners(tenant, namespace)
        for path in _held(tenant, namespace):
            await self._delete_empty(path)
        # Before the record: afterwards a namespace of that name could be created with a group.
        await PlacementStore(self._records).remove_namespace(f"{tenant}/{namespace}")
        path = paths.namespace(tenant, namespace)
        await self._records.delete(path)
        self._forget(path)
        with suppress(NotEmpty):
            await self._delete_empty(owners)

    async def _forget_owners(self, tenant: str, namespace: str) -> None:
        owners = paths.namespace_owners(tenant, namespace)
        for bundle in await self._records.children(owners):
            await self._forget_owner(f"{owners}/{bundle}")

    async def _forget_owner(self, path: str) -> None:
        """Delete an owner record, unless a broker owns the bundle.

        An owner relies on its memory. Without the record, a second broker could own the bundle at
        the same time.
        """
        found = await self._records.get(path, BundleOwner)
        if found is not None and not found[0].broker_id:
            with suppress(Conflict):
                await self._records.delete(path, found[1])

    async def _delete_empty(self, path: str) -> None:
        try:
            await self._records.delete(path)
        except Conflict as conflict:
            if conflict.reason is ConflictReason.NOT_EMPTY:
                raise NotEmpty(f"{path} is in use again; something was created meanwhile") from None
            raise

    # -- topics

    async def topics(self, tenant: str, namespace: str) -> list[str]:
        """Return the full names of all topics, sorted, each partition on its own.

        Topics whose deletion was begun and not finished are included: deleting them again finishes
        it.
        """
        names = await self._records.children(paths.namespace_topics(tenant, namespace))
        return sorted(TopicName(tenant, namespace, decode_segment(name)).full for name in names)

    async def partitioned_topics(
        self, tenant: str, namespace: str, *, persistent: bool = True
    ) -> list[str]:
        names = await self._records.children(
            paths.partitioned_namespace(tenant, namespace, persistent=persistent)
        )
        found = [
            TopicName(tenant, namespace, decode_segment(name), persistent=persistent)
            for name in names
        ]
        if not persistent and found:
            counts = await self.partition_counts(found)
            found = [name for name, count in zip(found, counts, strict=True) if count]
        return sorted(name.full for name in found)

    async def _only_schemas_of(self, tenant: str, namespace: str) -> list[TopicName]:
        """Return the non-persistent topics without partitions.

        Their nodes keep the schemas that they had when they were last used.
        """
        names = await self._records.children(
            paths.partitioned_namespace(tenant, namespace, persistent=False)
        )
        found = [
            TopicName(tenant, namespace, decode_segment(name), persistent=False) for name in names
        ]
        counts = await self.partition_counts(found) if found else []
        return [name for name, count in zip(found, counts, strict=True) if not count]

    async def check_known(self, name: TopicName) -> None:
        """Check that a topic without partitions may exist.

        For a non-persistent one only its owner knows. Raises ``TopicNotFound``.
        """
        if name.persistent and not await self.topic_exists(name):
            raise TopicNotFound(f"topic {name} does not exist")

    async def topic_exists(self, name: TopicName) -> bool:
        """Return whether metadata has a partition, or a topic without partitions, of this name."""
        if not name.persistent:
            return False
        found = await self._records.get(paths.topic(name), TopicRecord)
        return found is not None and not found[0].deleted

    async def partitioned(self, name: TopicName) -> PartitionedTopic | None:
        found = await self._records.get(paths.partitioned_topic(name), PartitionedTopic)
        return None if found is None or not found[0].partitions else found[0]

    async def partitions(self, name: TopicName) -> int | None:
        """Return the number of partitions; ``None`` when there is no such partitioned topic."""
        found = await self.partitioned(name)
        return None if found is None else found.partitions

    async def partition_counts(self, names: Sequence[TopicName]) -> list[int | None]:
        """Return the numbers of partitions of several topics, read together; see ``partitions``."""
        found = await self._records.get_many(
            [paths.partitioned_topic(name) for name in names], PartitionedTopic
        )
        return [None if each is None else each[0].partitions or None for each in found]

    async def partition_names(self, name: TopicName) -> list[TopicName] | None:
        """Return the partitions of a partitioned topic; ``None`` when it is not partitioned."""
        count = await self.partitions(name)
        return None if count is None else [name.with_partition(index) for index in range(count)]

    async def create_partitioned(
        self, name: TopicName, partitions: int, *, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a partitioned topic.

        Raises ``AlreadyExists``, ``InvalidArgument``, ``NotFound`` (the namespace),
        ``LimitReached``.
        """
        if not 1 <= partitions <= 10_000:
            raise InvalidArgument(
                f"a partitioned topic has 1 to 10000 partitions, not {partitions}"
            )
        if name.partition >= 0:
            raise InvalidArgument(
                f"{name} looks like a partition; name the partitioned topic itself: "
                f"{name.partitioned}"
            )
        await self.policies(name.tenant, name.namespace)
        # A metadata server that is behind would not show a topic created a moment ago.
        await self._records.sync(paths.partitioned_topic(name))
        if await self.topic_exists(name):
            raise AlreadyExists(f"topic {name} exists already and is not partitioned")
        await self._check_count(name, partitions)
        record = PartitionedTopic(
            partitions, dict(properties or {}), created_ms=self._world.clock.wall_ms()
        )
        try:
            await self._records.compare_and_set(paths.partitioned_topic(name), record, None)
        except Conflict:
            raise AlreadyExists(f"partitioned topic {name} exists already") from None

    async def auto_partitions(
        self, name: TopicName, on_created: OnCreated | None = None
    ) -> int | None:
        """Create a partitioned topic on first use, if the policies say so.

        Return its number of partitions, ``None`` for a plain topic. ``on_created`` is called if
        this has created it.

        The owner creates a plain topic when it opens it. Raises ``TopicNotFound`` when topics are
        not created on first use.
        """
        creation = (await self.effective(name.tenant, name.namespace))[model.AUTO_TOPIC_CREATION]
        if (
            name.partition >= 0
            or creation.topic_type != "partitioned"
            or await self.topic_exists(name)
        ):
            return None
        creation = await self.auto_creation(name)
        assert creation.partitions is not None
        try:
            await self.create_partitioned(name, creation.partitions)
        except AlreadyExists:
            return await self.partitions(name)
        if on_created is not None:
            on_created(f"{creation.partitions} partitions")
        return creation.partitions

    async def grow_partitioned(self, name: TopicName, partitions: int) -> None:
        """Raise the number of partitions.

        Raises ``TopicNotFound``, ``InvalidArgument`` (it cannot be lowered).
        """

        def change(record: PartitionedTopic | None) -> PartitionedTopic:
            if record is None:
                raise TopicNotFound(f"{name} is no partitioned topic")
            if not record.partitions < partitions <= 10_000:
                raise InvalidArgument(
                    f"{name} has {record.partitions} partitions; the number can only grow, up to "
                    f"10000, not to {partitions}"
                )
            return msgspec.structs.replace(record, partitions=partitions)

        await self._records.update(paths.partitioned_topic(name), PartitionedTopic, change)

    async def delete_partitioned(self, name: TopicName) -> None:
        """Delete a partitioned topic's record, policies and schemas, in one commit."""
        await self._delete_with_all_below(name)

    async def delete_schemas_of_not_kept(self, name: TopicName) -> None:
        """Delete the schemas of a non-persistent topic without partitions, with the node that holds
        them.

        A partitioned topic of that name stays: it may have been created while the other topic was
        open, which only its owner knows.
        """
        await self._delete_with_all_below(name, only_without_partitions=True)

    async def _delete_with_all_below(
        self, name: TopicName, *, only_without_partitions: bool = False
    ) -> None:
        path = paths.partitioned_topic(name)
        version = -1
        for _ in range(ATTEMPTS_MAX):
            if only_without_partitions:
                found = await self._records.get(path, PartitionedTopic)
                if found is None or found[0].partitions:
                    return
                version = found[1]
            below = [
                Op("delete", node)
                for node in await nodes_below(
                    self._records, path, await self._records.children(path)
                )
            ]
            try:
                await self._records.delete(path, version, before=below)
                return
            except Conflict as conflict:
                if conflict.reason not in (
                    ConflictReason.NOT_EMPTY,
                    ConflictReason.NO_NODE,
                    ConflictReason.BAD_VERSION,
                ):
                    raise
        raise MetadataUnavailable(
            f"policies or schemas of {name} were set again and again while it was being deleted"
        )

    async def check_creatable(self, name: TopicName) -> int | None:
        """Check that a topic of this name may be created now, by configuration and next to the
        partitioned topics.

        Return the number of partitions of its partitioned topic; ``None``: it is not a partition.

        Raises ``TopicNotFound``, ``NotAllowedError``, ``NotFound`` (the namespace),
        ``LimitReached``.
        """
        return await self.check_beside(name, await self.partitions(name.partitioned))

    async def check_beside(self, name: TopicName, count: int | None) -> int | None:
        """Check as ``check_creatable``, for a caller that knows how many partitions the partitioned
        topic of that name has.
        """
        await self.policies(name.tenant, name.namespace)
        await self._check_count(name, 1)
        if name.partition >= 0 and count is not None:
            if name.partition >= count:
                raise TopicNotFound(
                    f"{name.partitioned} has {count} partitions, there is none with number "
                    f"{name.partition}"
                )
            return count
        if count is not None:
            raise NotAllowedError(
                f"{name} is a partitioned topic with {count} partitions; use those, "
                f"{name.with_partition(0)} and on"
            )
        return None

    async def _check_count(self, name: TopicName, more: int) -> None:
        """Check that the namespace may have ``more`` additional topics.

        Without a limit nothing is counted. Raises ``LimitReached``.
        """
        limit = (await self.effective(name.tenant, name.namespace))[model.MAX_TOPICS_PER_NAMESPACE]
        if limit:
            there = len(
                await self._records.children(paths.namespace_topics(name.tenant, name.namespace))
            )
            if there + more > limit:
                raise LimitReached(
                    f"namespace {name.tenant}/{name.namespace} has {there} topics; with {more} "
                    "more it would have more than"
                    f" max_topics_per_namespace {limit}"
                )

    async def auto_creation(self, name: TopicName) -> model.AutoTopicCreation:
        """Return how a topic is created on first use. Raises ``TopicNotFound`` when it is not."""
        creation = (await self.effective(name.tenant, name.namespace))[model.AUTO_TOPIC_CREATION]
        if not creation.allow:
            raise TopicNotFound(
                f"topic {name} does not exist, and automatic creation (autoTopicCreation) is off; "
                "create it first"
            )
        return creation
