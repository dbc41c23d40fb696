"""Load topics: take over or create their logs, and restore what they need before they are served.

Order of a load (rule 14): own the bundle, recover the log and swing its list, rebuild
deduplication, then serve. The ownership of the bundle is checked again at the end, so that a topic
never outlives an ownership that was lost during the load.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from pulsarish.broker.clients.authorization import OnCreated
from pulsarish.broker.compaction.compaction import CompactionGate
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.ownership.bundles import bundle_of
from pulsarish.broker.ownership.served_bundles import ServedBundles
from pulsarish.broker.policies.live import LivePolicies
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.policies.store import Effective
from pulsarish.broker.topics.load_turns import LoadLine, LoadTurns
from pulsarish.broker.topics.policy_enforcement import check_quota
from pulsarish.broker.topics.quota_watch import QuotaWatch
from pulsarish.broker.topics.topic import Topic
from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.entry_caches import EntryCaches
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.managed_ledger.message_counts import BlockCounts
from pulsarish.managed_ledger.topics_store import delete_topic
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import PartitionedTopic, TopicRecord
from pulsarish.model.errors import (
    AlreadyExists,
    NotOwner,
    PulsarishError,
    ServiceNotReady,
    TopicNotFound,
)
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.metrics import Histogram
from pulsarish.runtime.seams import Op, World

__all__ = ["TopicLoader"]

_FAILED_LOADS_MAX: Final = 1_000  # number of topics whose last failed load is remembered

_log = get_logger("broker.topics")


class _Load:
    """A topic that is to be loaded. ``done`` is set when that has ended, with success or not."""

    __slots__ = (
        "_loader",
        "create",
        "done",
        "error",
        "lines",
        "name",
        "on_created",
        "since_ms",
        "topic",
    )

    def __init__(
        self,
        loader: TopicLoader,
        name: TopicName,
        since_ms: int,
        *,
        create: bool,
        on_created: OnCreated | None,
    ) -> None:
        self.lines: list[LoadLine] = []
        self.name = name
        self.create = create
        self.on_created = on_created
        self.since_ms = since_ms
        self.done = asyncio.Event()
        self.topic: Topic | None = None
        self.error: PulsarishError | None = None
        self._loader = loader

    def begin(self, turn: int) -> None:
        self._loader.begin(self, turn)

    def give_up(self, error: PulsarishError) -> None:
        self.error = error
        self._loader.ended_load(self)


MakeTopic: TypeAlias = Callable[
    [TopicName, World, BrokerConfig, Effective, Callable[[Topic], None], CompactionGate], Topic
]
"""``Topic``, or what makes a topic with more to it."""


class TopicLoader:
    """Loads the topics of one broker, each once at a time.

    Args:
        loaded: gets each topic that was loaded, by its name.
        closing: the topics that are being closed or deleted; a load waits for that.
        died: called when a topic stops by itself and must be loaded again.
        quotas: watches the quotas of each topic that was loaded.
        make_topic: makes a topic without a log.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        records: Records,
        ledgers: LedgerClient,
        namespaces: Namespaces,
        bundles: ServedBundles,
        policies: LivePolicies,
        caches: EntryCaches,
        *,
        loaded: dict[str, Topic],
        closing: Mapping[str, asyncio.Event],
        died: Callable[[Topic], None],
        quotas: QuotaWatch,
        make_topic: MakeTopic = Topic,
    ) -> None:
        self.count = 0
        """Topics loaded since the start."""
        self.failures_count = 0
        self.seconds = Histogram()
        """Durations of loads, failed loads included."""
        self.under_way: dict[str, _Load] = {}
        """The topics that are being loaded or wait for their turn, by name."""
        self._own_line = LoadLine()  # of requests that come from no session
        self._turns = LoadTurns(world.clock, world.tasks)
        self._make_topic = make_topic
        self._world = world
        self._config = config
        self._records = records
        self._ledgers = ledgers
        self._namespaces = namespaces
        self._bundles = bundles
        self._policies = policies
        self._caches = caches
        self._blocks = BlockCounts()
        self._compactions = CompactionGate(world, config)
        self._loaded = loaded
        self._closing = closing
        self._died = died
        self._quotas = quotas
        # the last failed load of a topic, and since when its loads fail
        self._failed: dict[str, tuple[PulsarishError, int]] = {}

    def since_ms(self, name: TopicName) -> int:
        """Return since when the topic is to be loaded (wall clock, ms); 0: it is not."""
        load = self.under_way.get(name.full)
        return 0 if load is None else load.since_ms

    def failure(self, name: TopicName) -> tuple[PulsarishError, int] | None:
        """Return the error of the last load and since when loads fail (wall clock, ms); ``None`` if
        the last load succeeded.
        """
        return self._failed.get(name.full)

    async def ended(self, name: TopicName) -> None:
        """Wait until the load of a topic has ended, if it is being loaded."""
        load = self.under_way.get(name.full)
        if load is not None:
            await load.done.wait()

    async def load(
        self,
        name: TopicName,
        *,
        create: bool,
        on_created: OnCreated | None = None,
        line: LoadLine | None = None,
    ) -> Topic:
        """Return the topic, loaded: now, by the load that is under way, or before.

        With ``create`` a missing topic is created if its policies allow it. ``on_created`` is
        called if this request has created it.

        Args:
            line: where the load waits for its turn; without one, where those of this broker wait.

        Raises why it cannot be loaded, and ``TooManyRequests``.
        """
        topic = self._loaded.get(name.full)
        if topic is not None and topic.closed is None:
            return topic
        load = self.under_way.get(name.full)
        is_new = load is None
        if load is None:
            load = self.under_way[name.full] = _Load(
                self, name, self._world.clock.wall_ms(), create=create, on_created=on_created
            )
        if is_new or load.lines:
            try:
                self._turns.wait(
                    load, line or self._own_line, self._config.max_concurrent_topic_load_requests
                )
            except PulsarishError:
                if is_new:
                    del self.under_way[name.full]
                raise
        try:
            async with self._world.clock.timeout(self._config.topic_load_timeout_seconds):
                await load.done.wait()
        except TimeoutError:
            raise ServiceNotReady(
                f"topic {name} is still being loaded after "
                f"{self._config.topic_load_timeout_seconds} s; try again"
            ) from None
        if load.topic is None:
            assert load.error is not None
            if create and not load.create and isinstance(load.error, TopicNotFound):
                # the request that began the load did not want a new topic
                return await self.load(name, create=True, on_created=on_created, line=line)
            raise load.error
        return load.topic

    def begin(self, load: _Load, turn: int) -> None:
        """Begin a load whose turn has come."""
        _ = self._world.tasks.spawn(
            self._load(load, turn),
            name=f"load {load.name}",
            scope=Scope(ScopeKind.TOPIC, load.name.full),
        )

    def ended_load(self, load: _Load) -> None:
        """Forget a load that has ended, and tell those that wait for it."""
        del self.under_way[load.name.full]
        load.done.set()

    async def _load(self, load: _Load, turn: int) -> None:
        name = load.name
        began = self._world.clock.monotonic()
        try:
            load.topic = await self._open(name, create=load.create, on_created=load.on_created)
            self._failed.pop(name.full, None)
        except PulsarishError as error:
            load.error = error
            if isinstance(error, TopicNotFound | NotOwner):
                self._failed.pop(name.full, None)
            else:
                self._load_failed(name, error)
        finally:
            self.seconds.observe(self._world.clock.monotonic() - began)
            if load.topic is None and load.error is None:
                load.error = ServiceNotReady(f"topic {name} could not be loaded; try again")
            self.ended_load(load)
            self._turns.end(turn)

    def _load_failed(self, name: TopicName, error: PulsarishError) -> None:
        self.failures_count += 1
        before = self._failed.pop(name.full, None)
        if before is None or str(before[0]) != str(error):
            # Clients retry again and again: log each reason once. Statistics show it all the time.
            _log.warning("topic not loaded", topic=name, reason=f"{type(error).__name__}: {error}")
        self._failed[name.full] = (
            error,
            before[1] if before is not None else self._world.clock.wall_ms(),
        )
        if len(self._failed) > _FAILED_LOADS_MAX:
            del self._failed[next(iter(self._failed))]

    async def _open(
        self, name: TopicName, *, create: bool, on_created: OnCreated | None = None
    ) -> Topic:
        closing = self._closing.get(name.full)
        if closing is not None:
            await closing.wait()
        space = await self._namespaces.policies(name.tenant, name.namespace)
        bundle = bundle_of(name, space)
        epoch, lease = self._bundles.epoch(bundle), self._bundles.lease(name, bundle)
        found = await self._existing(name, create=create)
        space = await self._namespaces.policies(name.tenant, name.namespace)
        policies = await self._policies.read(name, is_new=found is None)
        topic = self._make_topic(
            name, self._world, self._config, policies, self._died, self._compactions
        )
        try:
            # This broker's own view of the ownership is not enough: it may have been evicted
            # without knowing it yet.
            topic.log = await self._log(topic, found, lease)
        except NotOwner:
            self._bundles.lost(bundle, epoch)
            raise
        except AlreadyExists:
            # Another client created it in the meantime. Requests that got "not found" had not asked
            # for a new topic.
            return await self._open(name, create=False)
        if found is None and on_created is not None:
            on_created("")
        try:
            await topic.start()
            await check_quota(topic, self._world.clock.wall_ms())
            while (
                now := await self._namespaces.policies(name.tenant, name.namespace)
            ) is not space:
                space = now
                topic.use(await self._policies.read(name))
        except PulsarishError as error:
            await self._close_log(topic, error)
            raise
        if (
            topic.closed is not None
            or self._bundles.epoch(bundle) != epoch
            or not self._bundles.serves(bundle)
        ):
            reason = topic.closed or NotOwner(
                f"{name} was given to another broker while it was loaded; look it up again"
            )
            await self._close_log(topic, reason)
            raise reason
        # Nothing is awaited between the last check of the policies and this line: from here on a
        # policy change finds the topic.
        self._loaded[name.full] = topic
        self._policies.loaded(name, space)
        self._quotas.follow(topic)
        self.count += 1
        ledgers = topic.log.ledgers
        newest = ledgers[-1].ledger_id if ledgers else None
        _log.info(
            "topic loaded",
            topic=name,
            ledger=newest,
            ledgers=len(ledgers),
            entries=topic.log.entries,
        )
        return topic

    async def _close_log(self, topic: Topic, error: PulsarishError) -> None:
        topic.stop_serving(error)
        try:
            await topic.log.close()
        except PulsarishError as failure:
            _log.warning("log not closed", topic=topic.name, reason=failure)

    async def _existing(self, name: TopicName, *, create: bool) -> tuple[TopicRecord, int] | None:
        """Return the topic's record and version; ``None`` when the topic is to be created."""
        found, partitioned = await self._records.get_pair(
            paths.topic(name),
            TopicRecord,
            paths.partitioned_topic(name.partitioned),
            PartitionedTopic,
        )
        if found is not None and not found[0].deleted:
            return found
        if not create:
            raise TopicNotFound(f"topic {name} does not exist")
        partitions = await self._namespaces.check_beside(
            name, None if partitioned is None else partitioned[0].partitions
        )
        if name.partition < 0 or partitions is None:
            # Partitions of an existing partitioned topic are created on first use whatever the
            # configuration says.
            await self._namespaces.auto_creation(name)
        if found is not None:
            # A deletion was begun and not finished, perhaps by a broker that died: finish it.
            await delete_topic(self._records, self._ledgers, name, begun=True)
        return None

    async def _log(
        self, topic: Topic, found: tuple[TopicRecord, int] | None, lease: Sequence[Op]
    ) -> ManagedLedger:
        """Open or create the topic's log.

        Raises ``AlreadyExists`` when the topic exists but was not ``found``, and the errors of
        ``ManagedLedger.open`` and ``create``.
        """
        topic_limits = topic.topic_limits
        parts = (
            topic.name,
            self._ledgers,
            self._records,
            topic.world,
            topic_limits.log_options(),
            topic,
        )
        if found is None:
            return await ManagedLedger.create(
                *parts,
                caches=self._caches,
                blocks=self._blocks,
                retention=topic_limits.retention(),
                lease=lease,
            )
        return await ManagedLedger.open(
            *parts,
            caches=self._caches,
            blocks=self._blocks,
            retention=topic_limits.retention(),
            found=found,
            lease=lease,
        )
