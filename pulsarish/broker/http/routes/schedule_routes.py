"""The schedules of a topic: messages that repeat by a cron expression; and the request of the
leader to the owner of a topic to publish what is due.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pulsarish.broker.clients.authorization import BROKER_ITSELF, Permission
from pulsarish.broker.http.json_bodies import ScheduleBody
from pulsarish.broker.http.owner_calls import OwnerCall, OwnerCalls
from pulsarish.broker.http.route import Call, Parameter, Route, answer, no_content
from pulsarish.broker.http.routes.topic_routes import TOPIC
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.broker.topics.topic import Topic
from pulsarish.broker.topics.topic_schedules import OwnedSchedules
from pulsarish.model.errors import AuthorizationError, NotAllowedError, NotFound
from pulsarish.model.schedule import Schedule, instant_text, next_instants
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpResponse, World

__all__ = ["ScheduleRoutes"]

_SCHEDULES: Final = TOPIC + "/schedules"
_ONE: Final = _SCHEDULES + "/{schedule}"
_DUE: Final = "schedulesDue"


class _Until(msgspec.Struct, forbid_unknown_fields=True):
    until_ms: int


class ScheduleRoutes:
    def __init__(
        self, world: World, namespaces: Namespaces, topics: LoadedTopics, owners: OwnerCalls
    ) -> None:
        self._world = world
        self._namespaces = namespaces
        self._topics = topics
        self._owners = owners

    def routes(self) -> list[Route]:
        read, write = Permission.READ_POLICIES, Permission.WRITE_POLICIES
        count = Parameter(
            "count",
            "How many of the next instants to show.",
            int,
            minimum=0,
            maximum=100,
            default=5,
        )
        return [
            Route(
                "GET",
                _SCHEDULES,
                self._list,
                read,
                "List the topic's schedules, by name.",
                parameters=(count,),
                answers=dict[str, ScheduleBody],
                statuses=(405,),
                owner=True,
            ),
            Route(
                "GET",
                _ONE,
                self._get,
                read,
                "Show a schedule of the topic with its next instants.",
                parameters=(count,),
                answers=ScheduleBody,
                statuses=(405,),
                owner=True,
            ),
            Route(
                "PUT",
                _ONE,
                self._set,
                write,
                "Create or replace a schedule: the topic's owner publishes its message whenever "
                "the cron expression says so.",
                body=Schedule,
                body_required=True,
                statuses=(405,),
                owner=True,
            ),
            Route(
                "DELETE",
                _ONE,
                self._remove,
                write,
                "Remove a schedule of the topic.",
                statuses=(405,),
                owner=True,
            ),
            Route(
                "POST",
                _ONE + "/pause",
                self._pause,
                write,
                "Pause a schedule of the topic.",
                statuses=(405,),
                owner=True,
            ),
            Route(
                "POST",
                _ONE + "/resume",
                self._resume,
                write,
                "Resume a schedule of the topic; what was due in the pause is left out.",
                statuses=(405,),
                owner=True,
            ),
            Route(
                "POST",
                f"{TOPIC}/{_DUE}",
                self._publish_due,
                Permission.SUPER_USER,
                "Publish what is due of the topic's schedules; the leader broker asks for it.",
                body=_Until,
                body_required=True,
                owner=True,
                described=False,
            ),
        ]

    async def ask(self, name: TopicName, until_ms: int) -> None:
        """Have the owner of a topic publish what is due, whichever broker it is.

        Raises its error.
        """
        await self._owners.send(name, OwnerCall("POST", (_DUE,), body=_Until(until_ms)))

    async def _publish_due(self, call: Call) -> HttpResponse:
        if call.identity is not BROKER_ITSELF:
            raise AuthorizationError("only the leader broker says what is due of schedules")
        name = call.topic()
        await self._owners.require(call, name)
        schedules = await self._of(name)
        call.waits_for = f"scheduled messages of {name} to be stored"
        await schedules.publish_due(call.body.until_ms)
        return no_content()

    async def _of(self, name: TopicName) -> OwnedSchedules:
        topic = await self._topics.topic(name.full, create=False)
        assert isinstance(topic, Topic)
        return self._topics.schedules(topic)

    async def _schedules(self, call: Call) -> OwnedSchedules:
        name = call.topic()
        count = await self._namespaces.partitions(name)
        if count is not None:
            raise NotAllowedError(
                f"{name} is a partitioned topic, and a schedule belongs to one partition; name "
                f"one of its {count} partitions, such as {name.with_partition(0)}"
            )
        await self._owners.require(call, name)
        return await self._of(name)

    async def _list(self, call: Call) -> HttpResponse:
        schedules = await self._schedules(call)
        found = await schedules.read()
        return answer({name: self._body(call, schedules, name, found[name]) for name in found})

    async def _get(self, call: Call) -> HttpResponse:
        schedules, name = await self._schedules(call), call["schedule"]
        found = (await schedules.read()).get(name)
        if found is None:
            raise NotFound(f"topic {call.topic()} has no schedule {name!r}")
        return answer(self._body(call, schedules, name, found))

    def _body(
        self, call: Call, schedules: OwnedSchedules, name: str, schedule: Schedule
    ) -> ScheduleBody:
        decided_ms = schedules.decided_ms(name)
        start_ms = max(decided_ms, self._world.clock.wall_ms())
        count = call.number("count")
        following = next_instants(schedule, start_ms, count) if count else []
        return ScheduleBody(
            schedule.cron,
            schedule.timezone,
            schedule.payload,
            schedule.key,
            schedule.properties,
            schedule.missed,
            schedule.paused,
            instant_text(decided_ms) if decided_ms > 0 else "",
            [instant_text(each) for each in following],
        )

    async def _set(self, call: Call) -> HttpResponse:
        schedule: Schedule = call.body
        call.change = f"schedule {call['schedule']!r}: cron {schedule.cron!r} {schedule.timezone}"
        await (await self._schedules(call)).set(call["schedule"], schedule)
        return no_content()

    async def _remove(self, call: Call) -> HttpResponse:
        call.change = f"remove schedule {call['schedule']!r}"
        await (await self._schedules(call)).remove(call["schedule"])
        return no_content()

    async def _pause(self, call: Call) -> HttpResponse:
        call.change = f"pause schedule {call['schedule']!r}"
        await (await self._schedules(call)).pause(call["schedule"], paused=True)
        return no_content()

    async def _resume(self, call: Call) -> HttpResponse:
        call.change = f"resume schedule {call['schedule']!r}"
        await (await self._schedules(call)).pause(call["schedule"], paused=False)
        return no_content()
