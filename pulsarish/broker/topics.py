"""The topics that this broker has loaded: opened on demand by the owner of their bundle, closed when the bundle leaves.

Order at a load (rule 14): own the bundle, recover the log and swing its list, rebuild deduplication, then serve. The bundle is asked for
again at the end, so that a topic never outlives an ownership that was lost meanwhile.
"""

from __future__ import annotations

import asyncio

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.namespaces import Namespaces
from pulsarish.broker.ownership.bundles import Bundle, bundle_of
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.topic import Topic
from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.managed_ledger.tail_cache import TailCache
from pulsarish.managed_ledger.topics_store import create_topic, delete_topic
from pulsarish.metadata import paths
from pulsarish.metadata.records import TopicRecord
from pulsarish.metadata.update import Records
from pulsarish.model.errors import AlreadyExists, NotOwner, PulsarishError, ServiceNotReady, TooManyRequests, TopicFenced, TopicNotFound
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

__all__ = ["Topics"]

_log = get_logger("broker.topics")


class _Load:
    """A topic on its way in or out; ``done`` is set when that has ended, one way or the other."""

    __slots__ = ("done", "error", "topic")

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.topic: Topic | None = None
        self.error: PulsarishError | None = None


class Topics:
    """The ``TopicSource`` of sessions."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        records: Records,
        ledgers: LedgerClient,
        namespaces: Namespaces,
        ownership: Ownership,
    ) -> None:
        self.loaded: dict[str, Topic] = {}
        self.loads_count = 0
        self.cache = TailCache(config.managed_ledger_cache_size_bytes)
        self._world = world
        self._config = config
        self._options = config.managed_ledger
        self._records = records
        self._ledgers = ledgers
        self._namespaces = namespaces
        self._ownership = ownership
        self._loading: dict[str, _Load] = {}
        self._closing: dict[str, _Load] = {}
        self._stopped = False

    # -- getting a topic

    async def topic(self, name: str) -> Topic:
        """The loaded topic, made if it may be. Raises ``NotOwner``, ``TopicNotFound``, ``InvalidTopicName``, ``ServiceNotReady``, ..."""
        return await self.get(TopicName.parse(name), create=True)

    async def get(self, name: TopicName, *, create: bool) -> Topic:
        topic = self.loaded.get(name.full)
        if topic is not None and topic.closed is None:
            return topic
        load = self._loading.get(name.full)
        if load is None:
            if len(self._loading) >= self._config.max_concurrent_topic_load_requests:
                raise TooManyRequests(f"{len(self._loading)} topics are being loaded, the limit max_concurrent_topic_load_requests")
            load = self._loading[name.full] = _Load()
            _ = self._world.tasks.spawn(self._load(name, load, create=create), name=f"load {name}")
        try:
            async with self._world.clock.timeout(self._config.topic_load_timeout_seconds):
                await load.done.wait()
        except TimeoutError:
            raise ServiceNotReady(
                f"topic {name} is still being loaded after {self._config.topic_load_timeout_seconds} s; try again"
            ) from None
        if load.topic is None:
            assert load.error is not None
            raise load.error
        return load.topic

    async def bundle(self, name: TopicName) -> Bundle:
        """Raises ``NotFound`` (the namespace)."""
        policies = await self._namespaces.policies(name.tenant, name.namespace)
        return bundle_of(name, policies.bundles)

    async def _load(self, name: TopicName, load: _Load, *, create: bool) -> None:
        try:
            load.topic = await self._open(name, create=create)
        except PulsarishError as error:
            load.error = error
            if not isinstance(error, TopicNotFound | NotOwner):
                _log.warning("topic not loaded", topic=name, reason=f"{type(error).__name__}: {error}")
        finally:
            del self._loading[name.full]
            if load.topic is None and load.error is None:
                load.error = ServiceNotReady(f"topic {name} could not be loaded; try again")
            load.done.set()

    async def _open(self, name: TopicName, *, create: bool) -> Topic:
        closing = self._closing.get(name.full)
        if closing is not None:
            await closing.done.wait()
        bundle = await self.bundle(name)
        epoch = self._ownership.owned.epoch(bundle)
        if epoch is None:
            raise NotOwner(f"this broker does not serve {name}; look it up again")
        await self._ensure_exists(name, create=create)
        policies = await self._namespaces.policies(name.tenant, name.namespace)
        topic = Topic(name, self._world, self._config, self._died)
        topic.log = await ManagedLedger.open(
            name,
            self._ledgers,
            self._records,
            self._world,
            self._options,
            topic,
            cache=self.cache,
            retention=self._namespaces.retention(policies),
        )
        try:
            await topic.start(deduplication=self._namespaces.deduplication(policies))
        except PulsarishError as error:
            await self._close_log(topic, error)
            raise
        if topic.closed is not None or self._ownership.owned.epoch(bundle) != epoch:
            reason = topic.closed or NotOwner(f"{name} was given to another broker while it was loaded; look it up again")
            await self._close_log(topic, reason)
            raise reason
        self.loaded[name.full] = topic
        self.loads_count += 1
        return topic

    async def _close_log(self, topic: Topic, error: PulsarishError) -> None:
        topic.stop_serving(error)
        try:
            await topic.log.close()
        except PulsarishError as failure:
            _log.warning("log not closed", topic=topic.name, reason=failure)

    async def _ensure_exists(self, name: TopicName, *, create: bool) -> None:
        if await self._namespaces.topic_exists(name):
            return
        if not create:
            raise TopicNotFound(f"topic {name} does not exist")
        if name.partition < 0 or await self._namespaces.partitions(name.partitioned) is None:
            # Partitions of an existing partitioned topic are made on first use whatever the configuration says.
            self._namespaces.check_auto_creation(name)
        try:
            await self.create(name)
        except AlreadyExists:
            return

    async def create(self, name: TopicName) -> None:
        """Make a topic without partitions. Raises ``AlreadyExists``, ``NotFound`` (the namespace), ``NotAllowed``, ``TopicNotFound``."""
        await self._namespaces.check_creatable(name)
        found = await self._records.get(paths.topic(name), TopicRecord)
        if found is not None and found[0].deleted:
            # Its deletion was begun and not finished, perhaps by a broker that is gone: finish it.
            await self._finish_deletion(name)
        await create_topic(self._records, name, created_ms=self._world.clock.wall_ms())

    async def _finish_deletion(self, name: TopicName) -> None:
        try:
            await delete_topic(self._records, self._ledgers, name)
        except TopicNotFound:
            return

    # -- letting topics go

    def _died(self, topic: Topic) -> None:
        """A topic stopped by itself (fenced, or to be recovered): drop it, so that the next who asks loads it anew or is sent on."""
        if self.loaded.get(topic.name.full) is topic:
            _ = self._world.tasks.spawn(self._unload(topic, topic.closed or TopicFenced("fenced")), name=f"drop {topic.name}")

    async def _unload(self, topic: Topic, error: PulsarishError) -> None:
        full = topic.name.full
        if self.loaded.get(full) is not topic:
            closing = self._closing.get(full)
            if closing is not None:
                await closing.done.wait()
            return
        del self.loaded[full]
        load = self._closing[full] = _Load()
        try:
            await topic.close(error)
        except PulsarishError as failure:
            _log.warning("topic closed with an error", topic=full, reason=failure)
        finally:
            del self._closing[full]
            load.done.set()

    async def unload(self, name: TopicName) -> None:
        """Close a topic; its users look it up again. Not loaded: nothing to do."""
        topic = self.loaded.get(name.full)
        if topic is not None:
            await self._unload(topic, TopicFenced(f"topic {name} is being unloaded; look it up again"))

    async def unload_bundle(self, bundle: Bundle) -> None:
        """Close a bundle's topics, then release it."""
        policies = await self._namespaces.policies(bundle.tenant, bundle.namespace)
        topics = [
            topic
            for topic in self.loaded.values()
            if topic.name.tenant == bundle.tenant
            and topic.name.namespace == bundle.namespace
            and bundle_of(topic.name, policies.bundles) == bundle
        ]
        await self._unload_all(topics, "its bundle is being unloaded")
        await self._ownership.release(bundle)

    async def close_all(self, reason: str) -> None:
        """Close everything, at a graceful stop."""
        await self._unload_all(list(self.loaded.values()), reason)

    async def _unload_all(self, topics: list[Topic], reason: str) -> None:
        for topic in topics:
            topic.stop_serving(TopicFenced(f"topic {topic.name} leaves this broker: {reason}; look it up again"))
        await asyncio.gather(*(self._unload(topic, topic.closed or TopicFenced(reason)) for topic in topics))

    def drop_all(self, reason: str) -> None:
        """The ownership of everything is gone: stop serving at once. The logs are given up without touching what another may own."""
        topics = list(self.loaded.values())
        self.loaded.clear()
        for topic in topics:
            topic.stop_serving(TopicFenced(f"topic {topic.name} is not served here any more: {reason}; look it up again"))
            topic.log.abandon(TopicFenced(reason))

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Delete a topic and its data. Raises ``TopicNotFound``, ``SubscriptionBusy`` when somebody is connected without ``force``."""
        try:
            topic = await self.get(name, create=False)
        except TopicNotFound:
            found = await self._records.get(paths.topic(name), TopicRecord)
            if found is None:
                raise
            # Its deletion was begun and not finished, perhaps by a broker that is gone.
            await self._finish_deletion(name)
            return
        topic.check_deletable(force=force)
        del self.loaded[name.full]
        load = self._closing[name.full] = _Load()
        try:
            gone = TopicNotFound(f"topic {name} was deleted")
            topic.stop_serving(gone)
            topic.log.abandon(gone)
            await self._finish_deletion(name)
        finally:
            del self._closing[name.full]
            load.done.set()

    # -- looking after them

    def start(self) -> None:
        _ = self._world.tasks.spawn(self._maintain(), name="topic maintenance")

    async def _maintain(self) -> None:
        """Now and then: replace ledgers by age, trim, finish deletions."""
        while not self._stopped:
            await self._world.clock.sleep(self._config.managed_ledger_maintenance_interval_seconds)
            for topic in list(self.loaded.values()):
                if topic.closed is not None:
                    continue
                try:
                    await topic.log.maintain()
                except PulsarishError as error:
                    _log.warning("maintenance goes on later", topic=topic.name, reason=error)

    def stop(self) -> None:
        self._stopped = True
