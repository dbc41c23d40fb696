"""The topics that this broker has loaded.

The owner of a bundle loads a topic on demand and unloads it when the bundle leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

from pulsarish.broker.clients.authorization import OnCreated
from pulsarish.broker.clients.client_errors import topic_leaves
from pulsarish.broker.clients.interfaces import ServedTopic
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.lost_data import LostData
from pulsarish.broker.nonpersistent.topics import NonPersistentTopics
from pulsarish.broker.ownership.bundles import Bundle, bundle_of, topic_hash
from pulsarish.broker.ownership.ownership import BundleSplit, Ownership
from pulsarish.broker.ownership.served_bundles import ServedBundles
from pulsarish.broker.ownership.splits import divided, inner_edges
from pulsarish.broker.policies.live import LivePolicies
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.policies.store import Effective
from pulsarish.broker.replicas.replicas import Replicas
from pulsarish.broker.schemas.registry import SchemaRegistry
from pulsarish.broker.schemas.topic_schemas import TopicSchemas
from pulsarish.broker.topics.load_turns import LoadLine
from pulsarish.broker.topics.loader import MakeTopic, TopicLoader
from pulsarish.broker.topics.maintenance import Maintenance
from pulsarish.broker.topics.policy_enforcement import abandoned_still
from pulsarish.broker.topics.quota_watch import QuotaWatch
from pulsarish.broker.topics.topic import Topic
from pulsarish.broker.topics.topic_schedules import OwnedSchedules, ScheduleCounts
from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.entry_caches import EntryCaches
from pulsarish.managed_ledger.topics_store import create_topic, delete_topic
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration, TopicRecord
from pulsarish.model.errors import (
    AlreadyExists,
    MetadataUnavailable,
    PulsarishError,
    TopicFenced,
    TopicNotFound,
)
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Op, World

__all__ = ["LoadedTopics"]

_log = get_logger("broker.topics")


class LoadedTopics:
    """The loaded topics of a broker; the ``TopicSource`` of sessions."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        records: Records,
        ledgers: LedgerClient,
        namespaces: Namespaces,
        ownership: Ownership,
        make_topic: MakeTopic = Topic,
    ) -> None:
        self.loaded: dict[str, Topic] = {}
        self.caches = EntryCaches(
            config.managed_ledger_cache_size_bytes, config.managed_ledger_read_cache_size_bytes
        )
        self._world = world
        self._config = config
        self._records = records
        self._ledgers = ledgers
        self._namespaces = namespaces
        self._confirm_changes = ownership.confirm_changes
        self.bundles = ServedBundles(world.clock, ownership)
        self._policies = LivePolicies(
            world,
            namespaces,
            lambda: [*self.served(), *self.replicas.open.values()],
            self._policies_changed,
        )
        self.not_kept = NonPersistentTopics(
            world, config, namespaces, epoch=self.bundles.served_epoch, opened=self._policies.loaded
        )
        self.schemas = TopicSchemas(
            SchemaRegistry(records, world.clock, config), self._policies.read
        )
        self.replicas = Replicas(
            world,
            config,
            records,
            ledgers,
            self.caches,
            namespaces,
            self._policies,
            self.loaded,
        )
        self.schedule_counts = ScheduleCounts()
        self.lost = LostData(self, ledgers, records, world.clock)
        self._maintenance = Maintenance(world, config, self)
        self._quotas = QuotaWatch(world)
        # topics that are being closed or deleted: set when that has ended
        self._closing: dict[str, asyncio.Event] = {}
        self.loader = TopicLoader(
            world,
            config,
            records,
            ledgers,
            namespaces,
            self.bundles,
            self._policies,
            self.caches,
            loaded=self.loaded,
            closing=self._closing,
            died=self._died,
            quotas=self._quotas,
            make_topic=make_topic,
        )

    # -- getting a topic

    async def topic(
        self,
        name: str,
        *,
        create: bool = True,
        on_created: OnCreated | None = None,
        line: LoadLine | None = None,
    ) -> ServedTopic:
        """Return the topic, loaded.

        With ``create`` a missing topic is created if its policies allow it. ``on_created`` is
        called if this request has created it. ``line``: as in ``TopicLoader.load``.

        Partitions of a partitioned topic count as existing before their first use.

        Raises ``NotOwner``, ``TopicNotFound``, ``InvalidTopicName``, ``ServiceNotReady``, ...
        """
        parsed = TopicName.parse(name)
        found = self.loaded.get(parsed.full)
        if found is not None and found.closed is None:
            return found  # also while the metadata are away
        bundle = await self.bundle(parsed)
        if not self.bundles.serves(bundle):
            try:
                await self.bundles.learn(bundle)
            except BundleSplit:
                self._namespaces.forget(parsed.tenant, parsed.namespace)
                raise
        if not create and parsed.partition >= 0:
            create = parsed.partition < (await self._namespaces.partitions(parsed.partitioned) or 0)
        return await (
            self.get(parsed, create=create, on_created=on_created, line=line)
            if parsed.persistent
            else self.not_kept.get(parsed, create=create, on_created=on_created)
        )

    async def replica(self, name: str) -> ServedTopic:
        """Return the topic for readers; another broker may own it.

        Raises as ``Replicas.get``.
        """
        return await self.replicas.get(name)

    def served(self) -> list[ServedTopic]:
        """Return all topics that clients can use on this broker now."""
        return [*self.loaded.values(), *self.not_kept.open.values()]

    def is_open(self, name: TopicName) -> bool:
        """Return whether clients can use the topic on this broker now."""
        return name.full in self.loaded or name.full in self.not_kept.open

    async def lease(self, name: TopicName) -> Sequence[Op]:
        """Return the conditions on metadata under which the topic may be changed.

        Raises ``NotFound`` (the namespace), ``NotOwner``.
        """
        return self.bundles.lease(name, await self.bundle(name))

    async def get(
        self,
        name: TopicName,
        *,
        create: bool,
        on_created: OnCreated | None = None,
        line: LoadLine | None = None,
    ) -> Topic:
        """Return a persistent topic, loading it if necessary.

        Raises the errors of ``topic``, and ``TooManyRequests``.
        """
        return await self.loader.load(name, create=create, on_created=on_created, line=line)

    def schedules(self, topic: Topic) -> OwnedSchedules:
        """Return the schedules of a loaded topic."""
        if topic.schedules is None:
            topic.schedules = OwnedSchedules(topic, self._records, self.schedule_counts)
        return topic.schedules

    async def bundle(self, name: TopicName) -> Bundle:
        """Return the bundle of a topic. Raises ``NotFound`` (the namespace)."""
        policies = await self._namespaces.policies(name.tenant, name.namespace)
        return bundle_of(name, policies)

    async def policies(self, name: TopicName) -> Effective:
        """Return the policies in force for an existing topic or partition.

        Raises the errors of ``LivePolicies.read``.
        """
        return await self._policies.read(name)

    async def create(
        self,
        name: TopicName,
        *,
        properties: Mapping[str, str] | None = None,
        through: Records | None = None,
    ) -> tuple[TopicRecord, int]:
        """Create a topic without partitions. Return its record and version.

        ``through``: the metadata access to use, for a caller with a metadata budget of its own.

        Raises ``AlreadyExists``, ``NotFound`` (the namespace), ``NotAllowedError``,
        ``TopicNotFound``.
        """
        records = through or self._records
        await self._namespaces.through(records).check_creatable(name)
        created_ms = self._world.clock.wall_ms()
        try:
            return await create_topic(records, name, created_ms=created_ms, properties=properties)
        except AlreadyExists:
            found = await records.get(paths.topic(name), TopicRecord)
            if found is not None and not found[0].deleted:
                raise
            # A deletion was begun and not finished, perhaps by a broker that died: finish it.
            await self._finish_deletion(name)
            return await create_topic(records, name, created_ms=created_ms, properties=properties)

    async def _finish_deletion(self, name: TopicName) -> None:
        await delete_topic(self._records, self._ledgers, name, begun=True)

    # -- unloading and deleting

    def _died(self, topic: Topic) -> None:
        """Drop a topic that stopped by itself (fenced, or to be recovered).

        The next request loads it again, or is sent to its owner.
        """
        if self.loaded.get(topic.name.full) is topic:
            _ = self._world.tasks.spawn(
                self._unload(topic, topic.closed or TopicFenced("fenced")),
                name=f"drop {topic.name}",
                scope=Scope(ScopeKind.TOPIC, topic.name.full),
            )

    async def _unload(self, topic: Topic, error: PulsarishError) -> None:
        full = topic.name.full
        if self.loaded.get(full) is not topic:
            closing = self._closing.get(full)
            if closing is not None:
                await closing.wait()
            return
        del self.loaded[full]
        closed = self._closing[full] = asyncio.Event()
        try:
            await topic.close(error)
            _log.info("topic unloaded", topic=full, reason=error)
        except PulsarishError as failure:
            _log.warning("topic closed with an error", topic=full, reason=failure)
        finally:
            del self._closing[full]
            closed.set()

    async def unload(self, name: TopicName) -> None:
        """Close a topic; its clients look it up again. Does nothing if it is not loaded.

        Raises ``MetadataUnavailable`` while no broker could load it again.
        """
        if name.full in self.loaded:
            await self._confirm_changes()
        topic = self.loaded.get(name.full)
        if topic is not None:
            await self._unload(
                topic, TopicFenced(f"topic {name} is being unloaded; look it up again")
            )

    async def unload_bundle(self, bundle: Bundle, to: BrokerRegistration | None = None) -> None:
        """Close the topics of a bundle, then release it or hand it over to the broker ``to``.

        If the bundle is being unloaded already, wait for that and raise its error if it fails.

        Raises the errors of ``ServedBundles.unload``, and ``MetadataUnavailable`` while no broker
        could take the bundle.
        """
        await self._confirm_changes()
        await self.bundles.unload(bundle, partial(self._close_bundle, to=to), to)

    async def split_bundle(
        self, bundle: Bundle, algorithm: str = "", boundaries: Sequence[int] = ()
    ) -> list[Bundle]:
        """Split a bundle of this broker, which owns the parts afterwards. Return them.

        Its persistent topics stay open. Its non-persistent ones close: what rules capture of them
        is sent for one bundle.

        Args:
            algorithm: one of ``ALGORITHMS``; empty: the one of the configuration.
            boundaries: for ``specified_positions_divide``, the hashes at which parts begin.

        Raises ``InvalidArgument``, ``NotFound`` (the bundle), ``LimitReached``, and the errors of
        ``ServedBundles.split``.
        """
        policies = await self._namespaces.policies(bundle.tenant, bundle.namespace)
        hashes = [topic_hash(topic.name) for topic in self.served() if bundle.covers(topic.name)]
        algorithm = algorithm or self._config.default_namespace_bundle_split_algorithm
        edges = inner_edges(bundle, algorithm, hashes, boundaries)
        _ = divided(policies, bundle, edges)
        low, high = bundle.edges
        parts = [bundle.part(*edge) for edge in pairwise((low, *edges, high))]

        async def commit(ops: Sequence[Op]) -> None:
            await self.not_kept.unload_bundle(bundle, "its bundle is being split")
            await self._namespaces.divide(
                bundle.tenant, bundle.namespace, lambda now: divided(now, bundle, edges), ops
            )

        await self.bundles.split(bundle, parts, commit, partial(self._renew_leases, parts))
        _log.info("bundle split", bundle=bundle, parts=" ".join(part.range for part in parts))
        return parts

    def _renew_leases(self, bundles: Sequence[Bundle]) -> None:
        """Give the loaded topics of these bundles their present leases."""
        for topic in self.loaded.values():
            for bundle in bundles:
                if bundle.covers(topic.name):
                    topic.log.renew_lease(self.bundles.lease(topic.name, bundle))

    async def _close_bundle(self, bundle: Bundle, to: BrokerRegistration | None) -> None:
        await self.not_kept.unload_bundle(bundle, "its bundle is being unloaded", to)
        topics = [topic for topic in self.loaded.values() if bundle.covers(topic.name)]
        await self._unload_all(topics, "its bundle is being unloaded", to)

    async def hand_over_all(self) -> None:
        """Hand over all bundles at a graceful stop, one after the other.

        While one bundle moves, the others are served. So each topic is closed for no longer than
        its own move takes.
        """
        tried: set[Bundle] = set()
        # Again for the parts of a bundle that was just being split.
        while bundles := [bundle for bundle in self.bundles.owned() if bundle not in tried]:
            tried.update(bundles)
            for bundle in bundles:
                await self._hand_over(bundle)
        self.not_kept.close_all("the broker stops")
        await self._unload_all(list(self.loaded.values()), "the broker stops")

    async def _hand_over(self, bundle: Bundle) -> None:
        try:
            await self.bundles.unload(bundle, partial(self._close_bundle, to=None))
        except Exception as error:  # noqa: BLE001
            # Whatever it is: hand over the other bundles, then stop.
            _log.warning(
                "bundle not handed over; its next owner recovers its topics",
                bundle=bundle,
                reason=repr(error),
            )

    async def _unload_all(
        self, topics: list[Topic], reason: str, to: BrokerRegistration | None = None
    ) -> None:
        for topic in topics:
            topic.stop_taking(topic_leaves(topic.name, reason, to))
        await asyncio.gather(
            *(self._unload(topic, topic.closed or TopicFenced(reason)) for topic in topics)
        )

    def drop_all(self, reason: str) -> None:
        """Stop serving all topics at once, because this broker has lost all its ownership.

        The logs are abandoned without touching anything that another broker may own by now.
        """
        topics = list(self.loaded.values())
        _log.warning("all topics are dropped", topics=len(topics), reason=reason)
        self.not_kept.close_all(reason)
        self._drop(topics, reason)

    def drop_bundles(self, bundles: Sequence[Bundle], reason: str) -> None:
        """Stop serving the topics of these bundles at once, as ``drop_all`` does."""
        topics = [
            topic
            for topic in self.loaded.values()
            if any(bundle.covers(topic.name) for bundle in bundles)
        ]
        _log.warning("topics are dropped", topics=len(topics), reason=reason)
        for bundle in bundles:
            self.not_kept.close_bundle(bundle, reason)
        self._drop(topics, reason)

    def _drop(self, topics: Sequence[Topic], reason: str) -> None:
        for topic in topics:
            del self.loaded[topic.name.full]
            try:
                topic.stop_serving(
                    TopicFenced(
                        f"topic {topic.name} is not served here any more: {reason}; look it up "
                        "again"
                    )
                )
                topic.log.abandon(TopicFenced(reason))
            except Exception as error:  # noqa: BLE001
                # An error of one topic: stop serving the others too.
                self._world.tasks.contain(f"drop {topic.name}", error, topic.scope)

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Delete a topic and its data.

        A topic that is not loaded has no clients and is not loaded for this.

        Raises ``TopicNotFound``, ``NotOwner``, ``SubscriptionBusy`` when clients are connected and
        ``force`` is off.
        """
        topic, lease = await self._to_delete(name)
        await self._delete(name, topic, lease, force=force)

    async def delete_unused(self, topic: Topic) -> None:
        """Delete an abandoned topic, unless it has been used since that was found, here or at
        another owner.
        """
        found, lease = await self._to_delete(topic.name)
        if found is not topic or not abandoned_still(topic, self._world.clock.wall_ms()):
            return
        _log.warning(
            "unused topic deleted",
            topic=topic.name,
            since_ms=topic.log.attributes.inactive_since_ms,
        )
        await self._delete(topic.name, topic, lease, force=False, version=topic.log.version)

    async def _to_delete(self, name: TopicName) -> tuple[Topic | None, Sequence[Op]]:
        """Wait until the topic is neither loading nor closing.

        Return it if it is loaded, and the conditions for its deletion.

        Raises ``NotOwner``.
        """
        bundle = await self.bundle(name)
        topic = await self._settled(name)
        return topic, self.bundles.lease(name, bundle)

    async def _delete(
        self,
        name: TopicName,
        topic: Topic | None,
        lease: Sequence[Op],
        *,
        force: bool,
        version: int | None = None,
    ) -> None:
        if topic is not None:
            topic.check_deletable(force=force)
            del self.loaded[name.full]
        closed = self._closing[name.full] = asyncio.Event()

        def end(error: PulsarishError) -> None:
            if topic is not None:
                topic.stop_serving(error)
                topic.log.abandon(error)

        try:
            if topic is not None:
                topic.hold(TopicFenced(f"topic {name} is being deleted"))
            # This also finishes a deletion that was begun and not finished, perhaps by a broker
            # that died. Clients are informed only after the deletion is stored: if the answer of
            # the store is lost, they must not end although the topic still exists.
            gone = TopicNotFound(f"topic {name} was deleted")
            await delete_topic(
                self._records,
                self._ledgers,
                name,
                version=version,
                lease=lease,
                marked_deleted=lambda: end(gone),
            )
        except BaseException as error:
            end(TopicFenced(f"deleting topic {name} failed: {error!r}; look it up again"))
            raise
        finally:
            del self._closing[name.full]
            closed.set()

    async def _settled(self, name: TopicName) -> Topic | None:
        """Wait until the topic is neither loading nor closing.

        Return it; ``None`` if it is not loaded then.
        """
        while True:
            closing = self._closing.get(name.full)
            if closing is not None:
                await closing.wait()
            elif name.full in self.loader.under_way:
                await self.loader.ended(name)
            else:
                return self.loaded.get(name.full)

    # -- maintenance

    def start(self) -> None:
        self._maintenance.start()
        self._quotas.start()

    async def look_after_closed(self, names: Sequence[TopicName]) -> None:
        """Open topics, do the maintenance that is due, and close those that no client uses.

        Topics that are already open are skipped; the broker maintains them anyway. Raises the first
        error; the remaining topics are left for the next time.
        """
        for name in names:
            if (
                name.full in self.loaded
                or name.full in self.loader.under_way
                or name.full in self._closing
            ):
                continue
            found = await self._records.get(paths.topic(name), TopicRecord)
            if found is None:
                continue
            if found[0].deleted:
                await self._finish_deletion(name)
                continue
            topic = await self.get(name, create=False)
            await self._maintenance.look_after(topic)
            _ = topic.world.tasks.spawn(self._close_unused(topic), name=f"close {name}")

    async def _close_unused(self, topic: Topic) -> None:
        """Close a topic that was opened only for maintenance, once that is done."""
        await topic.compaction.settled()
        try:
            await self._confirm_changes()
        except MetadataUnavailable as error:
            _log.debug("topic stays open", topic=topic.name, reason=error)
            return
        if self.loaded.get(topic.name.full) is topic and not topic.connected:
            await self._unload(
                topic,
                TopicFenced(f"topic {topic.name} was open for maintenance; look it up again"),
            )

    def _policies_changed(self, topic: ServedTopic, policies: Effective) -> None:
        """Apply changed policies to a topic that is served here. Called by ``LivePolicies``."""
        topic.use(policies)
        if isinstance(topic, Topic):
            self._quotas.follow(topic)
            _ = topic.world.tasks.spawn(
                self._maintenance.look_after(topic), name=f"policies of {topic.name}"
            )

    def stop(self) -> None:
        self._maintenance.stop()
        self.replicas.close_all()
        self._quotas.stop()
