"""The read replicas of one broker: opened for their first reader, closed after their last one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pulsarish.broker.clients.interfaces import ServedTopic
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.live import LivePolicies
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.replicas.topic import ReplicaTopic
from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.entry_caches import EntryCaches
from pulsarish.managed_ledger.followed_log import FollowedLog
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import NotAllowedError, PulsarishError, ServiceNotReady, TooManyRequests
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

__all__ = ["Replicas"]

_log = get_logger("broker.replicas")


class Replicas:
    """Args:
    caches: what the ledgers of replicas are looked for in.
    owned: the topics that this broker owns, which need no replica.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        records: Records,
        ledgers: LedgerClient,
        caches: EntryCaches,
        namespaces: Namespaces,
        policies: LivePolicies,
        owned: Mapping[str, ServedTopic],
    ) -> None:
        self.open: dict[str, ReplicaTopic] = {}
        self._world = world
        self._config = config
        self._records = records
        self._ledgers = ledgers
        self._caches = caches
        self._namespaces = namespaces
        self._policies = policies
        self._owned = owned
        self._opening: dict[str, asyncio.Future[ReplicaTopic]] = {}

    @property
    def readers_count(self) -> int:
        return sum(len(topic.subscriptions) for topic in self.open.values())

    @property
    def held_up_count(self) -> int:
        """Number of replicas that cannot be followed now."""
        return sum(1 for topic in self.open.values() if topic.log.failure)

    @property
    def lag_seconds(self) -> float:
        """The greatest lag of a replica behind the bookies; 0 without replicas."""
        return max((topic.log.lag_seconds for topic in self.open.values()), default=0.0)

    async def get(self, topic: str) -> ServedTopic:
        """Return the topic to read here: the owned one, or a replica, opened if necessary.

        Raises ``TopicNotFound``, ``NotAllowedError`` for a topic that stores nothing,
        ``TooManyRequests`` at ``replica_topics_max``, and the errors of ``FollowedLog.open``.
        """
        name = TopicName.parse(topic)
        if not name.persistent:
            raise NotAllowedError(f"topic {name} stores nothing, so it has no replicas")
        if (mine := self._owned.get(name.full)) is not None:
            return mine
        if (known := self.open.get(name.full)) is not None:
            return known
        opening = self._opening.get(name.full)
        if opening is None:
            if len(self.open) + len(self._opening) >= self._config.replica_topics_max:
                raise TooManyRequests(
                    f"this broker follows {self._config.replica_topics_max} topics for their "
                    "readers, the limit replica_topics_max: read from another broker"
                )
            opening = self._opening[name.full] = asyncio.get_running_loop().create_future()
            _ = self._world.tasks.spawn(self._open(name, opening), name=f"replica of {name}")
        # Shielded: others wait for it, too.
        return await asyncio.shield(opening)

    async def _open(self, name: TopicName, opening: asyncio.Future[ReplicaTopic]) -> None:
        try:
            space = await self._namespaces.policies(name.tenant, name.namespace)
            policies = await self._policies.read(name)
            topic = ReplicaTopic(name, self._world, self._config, policies, unused=self._unused)
            log = await FollowedLog.open(
                name,
                self._ledgers,
                self._records,
                self._world,
                self._caches,
                grew=topic.grew,
                trimmed=topic.trimmed,
            )
            while (
                now := await self._namespaces.policies(name.tenant, name.namespace)
            ) is not space:
                space = now
                topic.use(await self._policies.read(name))
            topic.start(log)
        except PulsarishError as error:
            opening.set_exception(error)
            opening.exception()  # retrieved here: its client may have left
        except BaseException as error:
            opening.set_exception(ServiceNotReady(f"a replica of {name} failed here: {error!r}"))
            opening.exception()
            raise
        else:
            # Nothing is awaited since the policies were looked at: a change finds the topic.
            self.open[name.full] = topic
            self._policies.loaded(name, space)
            opening.set_result(topic)
            _log.info("replica opened", topic=name, end=log.last_confirmed)
        finally:
            del self._opening[name.full]

    def _unused(self, topic: ReplicaTopic) -> None:
        self._close(
            topic, ServiceNotReady(f"the replica of {topic.name} had no readers; subscribe again")
        )

    def _close(self, topic: ReplicaTopic, error: PulsarishError) -> None:
        if self.open.get(topic.name.full) is topic:
            del self.open[topic.name.full]
        topic.close(error)
        _log.info("replica closed", topic=topic.name, reason=error)

    def close_all(self) -> None:
        """Close all replicas, because the broker stops."""
        for topic in list(self.open.values()):
            self._close(
                topic, ServiceNotReady(f"the broker with this replica of {topic.name} stops")
            )
