"""The clock of all schedules: the leader broker knows when messages of schedules are due, and asks
the owners of their topics to publish them.

Only the leader's wall clock counts, so the clocks of owners need not agree. An owner decides by its
own notes what was published before. So a second leader that asks for the same for a moment does no
harm, and a new leader asks for every topic once. An owner loads the topic if it is not loaded.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import ScheduledTopics, TopicSchedules
from pulsarish.model.errors import NotFound, PulsarishError, TopicTerminated
from pulsarish.model.schedule import Schedule, next_instants
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.containment import Scope, ScopeKind, run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World
from pulsarish.wire.json_record import decode_record

__all__ = ["AskOwner", "ScheduleClock"]

_log = get_logger("broker.schedules")

_LOOK_SECONDS: Final = 5.0
"""How often a broker looks whether it leads, and whether its wall clock was moved."""
_RETRY_SECONDS: Final = 5.0
_LOG_FAILURES: Final = 12
_ASK_AT_ONCE_MAX: Final = 64
_READ_AT_ONCE: Final = 100

AskOwner = Callable[[TopicName, int], Awaitable[None]]
"""Have the owner of a topic publish what is due up to a time, in milliseconds of the wall clock."""


@dataclass(slots=True)
class _Scheduled:
    """A topic with schedules, as the leader knows it. ``next_ms``: when to ask its owner next."""

    change: int
    schedules: Mapping[str, Schedule]
    next_ms: float = 0  # at once: its owner may have missed instants
    is_asked: bool = False
    failures: int = 0


class ScheduleClock:
    """Asks for what is due while this broker is the leader. Runs on every broker."""

    def __init__(self, world: World, records: Records, ownership: Ownership, ask: AskOwner) -> None:
        self._world = world
        self._records = records
        self._ownership = ownership
        self._ask = ask
        self._topics: dict[str, _Scheduled] = {}
        self._changed = asyncio.Event()  # the list of topics, or when to ask next
        self._is_listed = False
        self._places = asyncio.Semaphore(_ASK_AT_ONCE_MAX)
        self._stopped = False

    @property
    def topics_count(self) -> int:
        """Topics with schedules, on the leader; 0 on another broker."""
        return len(self._topics)

    def start(self) -> None:
        _ = run_in_background(self._world.tasks, self._world.clock, "schedule clock", self._run)

    def stop(self) -> None:
        self._stopped = True
        self._changed.set()

    @property
    def _leading(self) -> bool:
        return not self._stopped and self._ownership.serving and self._ownership.leader.is_leader

    async def _run(self) -> None:
        clock = self._world.clock
        while not self._stopped:
            if not self._leading:
                self._topics, self._is_listed = {}, False
                await clock.sleep(_LOOK_SECONDS)
                continue
            if not self._is_listed:
                try:
                    await self._list()
                except PulsarishError as error:
                    _log.warning("schedules are read later", reason=error)
                    await clock.sleep(_LOOK_SECONDS)
                    continue
            self._ask_due()
            self._changed.clear()
            if self._is_listed:
                await self._wait()

    async def _wait(self) -> None:
        """Wait until the next instant, or until something has changed."""
        first_ms = min(
            (each.next_ms for each in self._topics.values() if not each.is_asked), default=math.inf
        )
        seconds = (first_ms - self._world.clock.wall_ms()) / 1000
        try:
            async with self._world.clock.timeout(min(max(seconds, 0.0), _LOOK_SECONDS)):
                await self._changed.wait()
        except TimeoutError:
            return

    # -- which topics have schedules

    def _list_again(self, _path: str = "") -> None:
        self._is_listed = False
        self._changed.set()

    async def _list(self) -> None:
        """Read the list of topics, and the schedules of those that have changed."""
        self._is_listed = True
        try:
            node = (await self._records.nodes([paths.SCHEDULES], watch=self._list_again))[0]
            index = (
                ScheduledTopics()
                if node is None
                else decode_record(node.data, ScheduledTopics, paths.SCHEDULES)
            )
            for full in [full for full in self._topics if full not in index.topics]:
                del self._topics[full]
            wanted = [
                (full, number)
                for full, number in index.topics.items()
                if full not in self._topics or self._topics[full].change != number
            ]
            for start in range(0, len(wanted), _READ_AT_ONCE):
                await self._read(dict(wanted[start : start + _READ_AT_ONCE]))
        except BaseException:
            self._is_listed = False
            raise

    async def _read(self, wanted: Mapping[str, int]) -> None:
        nodes = [paths.topic_schedules(TopicName.parse(full)) for full in wanted]
        found = await self._records.get_many(nodes, TopicSchedules)
        for (full, number), record in zip(wanted.items(), found, strict=True):
            if record is None:
                await self._forget(full, number)
            else:
                self._topics[full] = _Scheduled(number, record[0].schedules)

    async def _forget(self, full: str, number: int) -> None:
        """Take a topic off the list: it was deleted, and its schedules with it."""

        def without(index: ScheduledTopics | None) -> ScheduledTopics | None:
            if index is None or index.topics.get(full) != number:
                return None
            kept = {name: each for name, each in index.topics.items() if name != full}
            return msgspec.structs.replace(index, topics=kept)

        await self._records.update(paths.SCHEDULES, ScheduledTopics, without)

    # -- asking

    def _ask_due(self) -> None:
        now_ms = self._world.clock.wall_ms()
        for full, each in self._topics.items():
            if each.next_ms <= now_ms and not each.is_asked:
                each.is_asked = True
                name = TopicName.parse(full)
                _ = self._world.tasks.spawn(
                    self._ask_owner(name, each),
                    name=f"schedules of {name}",
                    scope=Scope(ScopeKind.TASK, f"schedules of {full}"),
                )

    async def _ask_owner(self, name: TopicName, topic: _Scheduled) -> None:
        clock = self._world.clock
        try:
            async with self._places:
                until_ms = clock.wall_ms()
                await self._ask(name, until_ms)
            following = [
                instant_ms
                for schedule in topic.schedules.values()
                for instant_ms in next_instants(schedule, until_ms, 1)
            ]
        except TopicTerminated as error:
            topic.next_ms = math.inf
            _log.warning("schedules of a terminated topic; remove them", topic=name, reason=error)
        except PulsarishError as error:
            topic.failures += 1
            topic.next_ms = 0
            if topic.failures % _LOG_FAILURES == 1:
                _log.warning("scheduled messages are published later", topic=name, reason=error)
            await clock.sleep(_RETRY_SECONDS)
            if isinstance(error, NotFound) and topic is self._topics.get(name.full):
                del self._topics[name.full]  # deleted, or created again without schedules
                self._list_again()
        else:
            topic.failures = 0
            topic.next_ms = min(following, default=math.inf)
        finally:
            topic.is_asked = False
            self._changed.set()
