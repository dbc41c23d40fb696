"""The schedules of a topic at its owner: their definitions, and the publishing of what is due.

Each instant is published once, also over a crash and over a change of owners. Before the owner
publishes, it notes in the topic's record, behind which entry of the log it will do so. Afterwards
it notes up to which instant all are decided. A later run that finds only the first note reads the
log behind that entry: a message of a schedule has the producer ``schedule/NAME``, and its sequence
id is the instant. Only the owner can write either, so the next owner knows what the last one
published. What may have to be read is not trimmed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from pulsarish.broker.clients.producer import Flights
from pulsarish.broker.publishing.own_messages import OwnMessages, PublishedLog
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import ATTEMPTS_MAX, Records
from pulsarish.metadata.records import ScheduledTopics, ScheduleMarks, TopicSchedules
from pulsarish.model.errors import (
    LimitReached,
    MetadataUnavailable,
    NotFound,
    PulsarishError,
    ServiceNotReady,
)
from pulsarish.model.position import Position
from pulsarish.model.schedule import (
    PER_TOPIC_MAX,
    Due,
    Schedule,
    check_schedule,
    due,
    instant_text,
    next_instants,
)
from pulsarish.model.topic_name import check_name
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Conflict, Op, World
from pulsarish.wire._pb.message_pb2 import KeyValue, MessageMetadata
from pulsarish.wire.entry import encode_entry, parse_metadata
from pulsarish.wire.json_record import encode_record

if TYPE_CHECKING:
    from pulsarish.managed_ledger.managed_ledger import ManagedLedger

__all__ = ["OwnedSchedules", "ScheduleCounts"]

_log = get_logger("broker.schedules")

NAME_PROPERTY: Final = "schedule"
DUE_PROPERTY: Final = "schedule-due"
TOPICS_MAX: Final = 2_000
"""Topics of a cluster that have schedules: they share one node of the metadata."""

_READ_ENTRIES: Final = 100
_READ_BYTES: Final = 1 << 20


class ScheduledTopic(PublishedLog, Protocol):
    """What ``OwnedSchedules`` needs of a topic."""

    log: ManagedLedger

    @property
    def world(self) -> World: ...

    @property
    def flights(self) -> Flights: ...


class ScheduleCounts:
    """What the schedules of one broker's topics came to since its start."""

    def __init__(self) -> None:
        self.published = 0
        self.missed = 0
        self.failures = 0


def _producer(name: str) -> str:
    return f"schedule/{name}"


class OwnedSchedules:
    """The schedules of a topic that is loaded here. One change or run at a time."""

    def __init__(self, topic: ScheduledTopic, records: Records, counts: ScheduleCounts) -> None:
        self._topic = topic
        self._records = records
        self._counts = counts
        self._lock = asyncio.Lock()
        self._is_publishing = False
        self._known: Mapping[str, Schedule] | None = None
        self._next_ms: dict[str, float] = {}  # before it there is nothing to decide

    # -- definitions

    async def read(self) -> Mapping[str, Schedule]:
        """Return the schedules by name. Raises ``MetadataUnavailable``, ``CorruptData``."""
        if self._known is None:
            path = paths.topic_schedules(self._topic.name)
            found = await self._records.get(path, TopicSchedules)
            self._known = {} if found is None else found[0].schedules
        return self._known

    def decided_ms(self, name: str) -> int:
        """Return up to when a schedule is decided; 0 or less: it was changed since."""
        marks = self._topic.log.attributes.schedule_marks
        return 0 if marks is None else marks.decided_ms.get(name, 0)

    async def set(self, name: str, schedule: Schedule) -> None:
        """Create or replace a schedule. Its instants count from now on.

        Raises ``InvalidArgument`` (names the field), ``LimitReached``, and the errors of a change
        of the topic's record.
        """
        check_name("schedule", name)
        check_schedule(name, schedule, self._now_ms())

        def change(found: dict[str, Schedule]) -> None:
            if name not in found and len(found) >= PER_TOPIC_MAX:
                raise LimitReached(
                    f"topic {self._topic.name} has {len(found)} schedules, which is the most; "
                    "remove one first"
                )
            found[name] = schedule

        await self._change(name, change)

    async def remove(self, name: str) -> None:
        """Remove a schedule. Raises ``NotFound``, and the errors of a change."""

        def change(found: dict[str, Schedule]) -> None:
            del found[self._there(found, name)]

        await self._change(name, change)

    async def pause(self, name: str, *, paused: bool) -> None:
        """Pause or resume a schedule. The instants of a pause are left out.

        Raises ``NotFound``, and the errors of a change.
        """

        def change(found: dict[str, Schedule]) -> None:
            before = found[self._there(found, name)]
            found[name] = msgspec.structs.replace(before, paused=paused)

        await self._change(name, change)

    def _there(self, found: Mapping[str, Schedule], name: str) -> str:
        if name not in found:
            raise NotFound(f"topic {self._topic.name} has no schedule {name!r}")
        return name

    def _now_ms(self) -> int:
        return self._topic.world.clock.wall_ms()

    async def _change(self, name: str, change: Callable[[dict[str, Schedule]], None]) -> None:
        """Store changed schedules, the mark of ``name`` and the topic's place in the list of
        topics with schedules, in one commit.
        """
        attributes, records = self._topic.log.attributes, self._records
        path = paths.topic_schedules(self._topic.name)
        async with self._lock:
            for _ in range(ATTEMPTS_MAX):
                await records.sync(paths.SCHEDULES)
                own, index = await records.get_pair(
                    path, TopicSchedules, paths.SCHEDULES, ScheduledTopics
                )
                wanted = {} if own is None else dict(own[0].schedules)
                change(wanted)
                listed = self._listed(
                    ScheduledTopics() if index is None else index[0], is_listed=bool(wanted)
                )
                ops = [
                    self._op(path, TopicSchedules(wanted), None if own is None else own[1])
                    if wanted or own is None
                    else Op("delete", path, version=own[1]),
                    self._op(paths.SCHEDULES, listed, None if index is None else index[1]),
                ]
                before = attributes.schedule_marks or ScheduleMarks()
                decided = {each: before.decided_ms.get(each, 0) for each in wanted}
                if name in wanted:
                    # What was due before is not due by the new definition, which begins at the
                    # leader's next request: only its clock counts.
                    decided[name] = -abs(decided[name])
                marks = msgspec.structs.replace(before, decided_ms=decided) if wanted else None
                self._known = None
                self._next_ms.clear()
                try:
                    await attributes.set_schedule_marks(marks, with_ops=ops)
                except Conflict:
                    continue  # schedules of another topic were changed meanwhile
                return
        raise MetadataUnavailable(
            f"the list of topics with schedules changed {ATTEMPTS_MAX} times while the schedules "
            f"of {self._topic.name} were changed; try again"
        )

    def _listed(self, index: ScheduledTopics, *, is_listed: bool) -> ScheduledTopics:
        full = self._topic.name.full
        topics = {name: number for name, number in index.topics.items() if name != full}
        number = index.changes_count + 1
        if is_listed:
            if full not in index.topics and len(topics) >= TOPICS_MAX:
                raise LimitReached(
                    f"{len(topics)} topics of the cluster have schedules, which is the most; "
                    "remove those of another topic first"
                )
            topics[full] = number
        return ScheduledTopics(topics, number)

    def _op(self, path: str, record: TopicSchedules | ScheduledTopics, version: int | None) -> Op:
        data = encode_record(msgspec.structs.replace(record, token=self._records.token()))
        return Op("create", path, data) if version is None else Op("put", path, data, version)

    # -- publishing

    async def publish_due(self, until_ms: int) -> None:
        """Publish what is due up to a time, and note it.

        ``until_ms``: the wall clock time of the leader broker, in milliseconds.

        Raises ``NotFound`` when the topic has no schedules, as after it was deleted and created
        again; ``ServiceNotReady`` while an earlier call has not ended, so that calls do not pile up
        behind one that is stuck; and the first error. What was not published then is due at the
        next call.
        """
        if self._is_publishing:
            raise ServiceNotReady(
                f"earlier messages of the schedules of {self._topic.name} are still being stored"
            )
        self._is_publishing = True
        try:
            async with self._lock:
                if not await self.read():
                    raise NotFound(f"topic {self._topic.name} has no schedules")
                try:
                    await self._publish_due(until_ms)
                except PulsarishError:
                    self._counts.failures += 1
                    raise
        finally:
            self._is_publishing = False

    async def _publish_due(self, until_ms: int) -> None:
        attributes, schedules = self._topic.log.attributes, await self.read()
        decided = await self._settled()
        found = self._due(schedules, decided, until_ms)
        if any(each.instants for each in found.values()):
            after = self._topic.log.last_confirmed
            await attributes.set_schedule_marks(
                ScheduleMarks(dict(decided), (after.ledger_id, after.entry_id))
            )
        failed: PulsarishError | None = None
        for name, each in found.items():
            try:
                for instant_ms in each.instants:
                    await self._publish(name, schedules[name], instant_ms)
                    decided[name] = instant_ms
            except _Refused as refused:
                failed = failed or refused.error
                continue
            decided[name] = each.decided_ms
            self._counts.missed += each.skipped_count
        if found:
            await attributes.set_schedule_marks(ScheduleMarks(decided))
        for name in found:
            following = next_instants(schedules[name], decided[name], 1)
            self._next_ms[name] = following[0] if following else math.inf
        if failed is not None:
            raise failed

    def _due(
        self, schedules: Mapping[str, Schedule], decided: Mapping[str, int], until_ms: int
    ) -> dict[str, Due]:
        """Return what is to be decided now, by schedule."""
        found: dict[str, Due] = {}
        for name, schedule in schedules.items():
            if until_ms >= self._next_ms.get(name, 0):
                before_ms = decided.get(name, 0)
                each = due(schedule, before_ms, until_ms)
                if each.decided_ms > before_ms:
                    found[name] = each
        return found

    async def _settled(self) -> dict[str, int]:
        """Return up to when the instants of each schedule are decided.

        Where an earlier run has not noted what became of its messages, the log tells.
        """
        attributes, log = self._topic.log.attributes, self._topic.log
        # A broker of an earlier version that owned the topic has dropped the marks.
        marks = attributes.schedule_marks or ScheduleMarks()
        after = attributes.unsettled_after
        if after is None:
            return dict(marks.decided_ms)
        for name in marks.decided_ms:
            await self._topic.flights.landed_of(_producer(name))
        decided = await published(log, after, marks.decided_ms)
        await attributes.set_schedule_marks(ScheduleMarks(decided))
        return dict(decided)

    async def _publish(self, name: str, schedule: Schedule, instant_ms: int) -> None:
        """Publish the message of an instant.

        Raises ``_Refused`` when it is certainly not in the log, and other errors when only the log
        can tell.
        """
        clock = self._topic.world.clock
        properties = {
            **schedule.properties,
            NAME_PROPERTY: name,
            DUE_PROPERTY: instant_text(instant_ms),
        }
        metadata = MessageMetadata(
            producer_name=_producer(name),
            sequence_id=instant_ms,
            publish_time=clock.wall_ms(),
            event_time=instant_ms,
            partition_key=schedule.key or None,
            properties=[KeyValue(key=key, value=value) for key, value in properties.items()],
        )
        messages = OwnMessages(self._topic, clock, 1)
        try:
            await messages.open(_producer(name), 0, "the topic's owner")
            await messages.publish([encode_entry(metadata, schedule.payload)])
        except PulsarishError as error:
            if messages.is_in_doubt:
                raise
            raise _Refused(error) from error
        finally:
            messages.close()
        self._counts.published += 1
        _log.debug("scheduled message published", topic=self._topic.name, schedule=name)


class _Refused(Exception):
    """A message is not in the log: it was not appended."""

    def __init__(self, error: PulsarishError) -> None:
        super().__init__(str(error))
        self.error = error


async def published(
    log: ManagedLedger, after: Position, decided_ms: Mapping[str, int]
) -> dict[str, int]:
    """Return ``decided_ms`` with the instants whose messages are in the log behind an entry.

    Raises the errors of a read.
    """
    found = dict(decided_ms)
    names = {_producer(name): name for name in decided_ms}
    start = log.next_position(after)
    while start <= log.last_confirmed:
        entries = await log.read(start, max_entries=_READ_ENTRIES, max_bytes=_READ_BYTES)
        if not entries:
            break
        for _, payload in entries:
            metadata = parse_metadata(payload)
            name = names.get(metadata.producer_name)
            if name is not None:
                latest_ms = max(abs(found[name]), metadata.sequence_id)
                found[name] = latest_ms if found[name] > 0 else -latest_ms
        last = entries[-1].position
        start = Position(last.ledger_id, last.entry_id + 1)
    return found
