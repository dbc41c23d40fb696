"""The sweeper of the leader broker: policies also apply to topics that no client has opened since a
restart.

It reads the metadata of all topics in pages, at a bounded rate. When something is due in a topic,
it asks the owner of the topic's bundle. The owner opens the topic, does what is due, and closes it
again. The sweeper deletes nothing itself and makes no final decision, so a second leader that does
the same for a moment does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.ownership.bundles import Bundle, bundle_of
from pulsarish.broker.ownership.core import Unowned
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.policies.store import Effective, Values, decoded, policies_path
from pulsarish.broker.topics.sweep_plan import due, overdue_ms
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import CursorRecord, TopicPolicies, TopicRecord
from pulsarish.model.errors import NotFound, PulsarishError
from pulsarish.model.topic_name import TopicName, decode_segment
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.rate_limiter import RateLimiter
from pulsarish.runtime.seams import World

__all__ = ["Sweeper"]

_log = get_logger("broker.sweeper")

_LOGGED_OVERDUE_MS: Final = 86_400_000
_NOT_OVERDUE: Final[tuple[int, TopicName | None]] = (0, None)

Ask = Callable[[Bundle, Sequence[str]], Awaitable[None]]
"""Ask the owner of a bundle to maintain topics of it, given by their local names."""


class Sweeper:
    """Walks over all topics while this broker is the leader. Runs on every broker."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        records: Records,
        namespaces: Namespaces,
        ownership: Ownership,
        ask: Ask,
    ) -> None:
        self.walks_count = 0
        self.due_count = 0
        """Number of topics in which something was due."""
        self.overdue_ms = 0
        """How long ago, at the last walk, the retention of the oldest ledger of all topics was over
        that no subscription needs; 0 where there is none, and on a broker that does not lead.
        """
        self._overdue = _NOT_OVERDUE
        self._logged_topic: TopicName | None = None
        self._world = world
        self._config = config
        self._records = records
        self._namespaces = namespaces
        self._ownership = ownership
        self._ask = ask
        self._stopped = False

    def start(self) -> None:
        _ = run_in_background(self._world.tasks, self._world.clock, "sweeper", self._run)

    def stop(self) -> None:
        self._stopped = True

    @property
    def _leading(self) -> bool:
        return not self._stopped and self._ownership.serving and self._ownership.leader.is_leader

    async def _run(self) -> None:
        while not self._stopped:
            await self._world.clock.sleep(self._config.sweeper_interval_seconds)
            if not self._leading:
                self.overdue_ms = 0
                continue
            try:
                await self.walk()
            except PulsarishError as error:
                _log.warning("the walk over all topics goes on later", reason=error)

    async def walk(self) -> None:
        """Walk once over all topics, while this broker leads.

        Raises ``MetadataUnavailable``, ``CorruptData``.
        """
        self._overdue = _NOT_OVERDUE
        for tenant in await self._namespaces.tenants():
            for full in await self._namespaces.namespaces(tenant):
                namespace = full.partition("/")[2]
                try:
                    await self._walk_namespace(tenant, namespace)
                except NotFound:
                    continue  # the namespace was deleted in the meantime
        self.walks_count += 1
        self.overdue_ms, topic = self._overdue
        if topic != self._logged_topic and self.overdue_ms >= _LOGGED_OVERDUE_MS:
            _log.warning(
                "a topic keeps a ledger that neither its retention nor a subscription needs",
                topic=topic,
                overdue_seconds=self.overdue_ms // 1000,
            )
            self._logged_topic = topic

    async def _walk_namespace(self, tenant: str, namespace: str) -> None:
        names = await self._records.children(paths.namespace_topics(tenant, namespace))
        page = self._config.sweeper_page_topics
        owned: dict[Bundle, bool] = {}
        rate = RateLimiter(
            self._world.clock, self._config.sweeper_topics_per_second, saved_max=page
        )
        for start in range(0, len(names), page):
            if not self._leading:
                return
            topics = [
                TopicName(tenant, namespace, decode_segment(name))
                for name in names[start : start + page]
            ]
            await self._sweep(topics, owned)
            rate.limit(self._config.sweeper_topics_per_second)
            await rate.take(len(topics))

    async def _sweep(self, topics: Sequence[TopicName], owned: dict[Bundle, bool]) -> None:
        space = await self._namespaces.policies(topics[0].tenant, topics[0].namespace)
        effective = await self._namespaces.effective(topics[0].tenant, topics[0].namespace)
        found = await self._records.get_many([paths.topic(name) for name in topics], TopicRecord)
        own = await self._own_policies(topics)
        cursors = await asyncio.gather(*(self._cursors(name) for name in topics))
        wanted: dict[Bundle, list[str]] = {}
        for name, record, of_topic in zip(topics, found, cursors, strict=True):
            if record is None:
                continue
            bundle = bundle_of(name, space)
            if bundle not in owned:
                owned[bundle] = not isinstance(await self._ownership.owner(bundle), Unowned)
            policies = Effective(effective.defaults, effective.namespace, own[name])
            now_ms = self._world.clock.wall_ms()
            overdue = overdue_ms(record[0], of_topic, policies, now_ms)
            if overdue > self._overdue[0]:
                self._overdue = overdue, name
            reason = due(
                record[0],
                of_topic,
                policies,
                now_ms,
                owned=owned[bundle],
                interval_seconds=self._config.managed_ledger_maintenance_interval_seconds,
            )
            if reason:
                _log.debug("topic is due", topic=name, reason=reason)
                wanted.setdefault(bundle, []).append(name.local)
        for bundle, locals_ in wanted.items():
            await self._have_looked_after(bundle, locals_)

    async def _own_policies(self, topics: Sequence[TopicName]) -> Mapping[TopicName, Values]:
        nodes = [policies_path(name) for name in topics]
        found = await self._records.get_many(nodes, TopicPolicies)
        return {
            name: {} if record is None else decoded(record[0].policies, node)
            for name, node, record in zip(topics, nodes, found, strict=True)
        }

    async def _cursors(self, name: TopicName) -> dict[str, CursorRecord]:
        segments = await self._records.children(paths.cursors(name))
        if not segments:
            return {}
        found = await self._records.get_many(
            [f"{paths.cursors(name)}/{segment}" for segment in segments], CursorRecord
        )
        return {
            decode_segment(segment): record[0]
            for segment, record in zip(segments, found, strict=True)
            if record is not None
        }

    async def _have_looked_after(self, bundle: Bundle, names: Sequence[str]) -> None:
        self.due_count += len(names)
        size = self._config.sweeper_errand_topics_max
        for start in range(0, len(names), size):
            try:
                await self._ask(bundle, names[start : start + size])
            except PulsarishError as error:
                # The next walk finds the rest due again.
                _log.warning(
                    "topics are looked after later",
                    bundle=bundle,
                    topics=len(names) - start,
                    reason=error,
                )
                return
