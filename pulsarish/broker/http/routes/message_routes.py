"""Single messages of a topic: by id, by time, or counted from either end of the log; the trace of
one; and the size of the backlog after a message.
"""

from __future__ import annotations

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.clients.entry_checks import publish_time
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.json_bodies import MessageIdBody, PositionBody, TraceBody
from pulsarish.broker.http.message_trace import MessageTrace
from pulsarish.broker.http.message_view import whole_entry
from pulsarish.broker.http.owner_calls import OwnerCalls
from pulsarish.broker.http.route import Call, Handler, Parameter, Route, answer
from pulsarish.broker.http.routes.topic_routes import TOPIC
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.topics.topic import Topic
from pulsarish.ledger.client import LedgerClient
from pulsarish.model.errors import NoSuchEntry, NotAllowedError
from pulsarish.model.position import Position
from pulsarish.runtime.seams import HttpResponse, World

__all__ = ["MessageRoutes"]

_READ_BYTES_MAX = 1


class MessageRoutes:
    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        ledgers: LedgerClient,
        namespaces: Namespaces,
        owners: OwnerCalls,
    ) -> None:
        self._world = world
        self._config = config
        self._ledgers = ledgers
        self._namespaces = namespaces
        self._owners = owners

    def routes(self) -> list[Route]:
        consume = Permission.CONSUME
        timestamp = Parameter("timestamp", "Milliseconds since the epoch.", int, minimum=0)
        end = Parameter(
            "initialPosition",
            "From which end to count.",
            choices=("latest", "earliest"),
            default="latest",
        )
        place = Parameter(
            "messagePosition", "The entry's place from there, from 1.", int, minimum=1, default=1
        )
        entry = (
            Parameter("ledger", "A ledger's id.", int, minimum=0),
            Parameter("entry", "An entry's id in it.", int, minimum=0),
        )
        traced = (
            Parameter("batchIndex", "Index of the message in its batch, from 0.", int, minimum=0),
            Parameter("copies", "Read the entry from each of its bookies.", bool, default=False),
            Parameter("subscription", "Only this subscription."),
        )
        return [
            _one(
                "GET",
                "/lastMessageId",
                self._last,
                consume,
                "Show the id of the topic's last message; entry -1 when there is none.",
            ),
            _one(
                "GET",
                "/messageid/{timestamp}",
                self._by_time,
                consume,
                "Show the id of the first message published at a time or later, else of the last.",
                timestamp,
            ),
            Route(
                "GET",
                TOPIC + "/examinemessage",
                self._examine,
                consume,
                "Return an entry of the topic by its position from one end of the log.",
                parameters=(end, place),
                answers=bytes,
                answer_type="application/octet-stream",
                large=True,
                statuses=(405, 501),
                owner=True,
            ),
            Route(
                "GET",
                TOPIC + "/ledger/{ledger}/entry/{entry}",
                self._entry,
                consume,
                "Return an entry of the topic by its id.",
                parameters=entry,
                answers=bytes,
                answer_type="application/octet-stream",
                large=True,
                statuses=(405, 501),
                owner=True,
            ),
            Route(
                "GET",
                TOPIC + "/ledger/{ledger}/entry/{entry}/trace",
                self._trace,
                consume,
                "Show where a message is: its bookies, and its state for each subscription.",
                parameters=(*entry, *traced),
                answers=TraceBody,
                large=True,
                statuses=(405,),
                owner=True,
            ),
            Route(
                "PUT",
                TOPIC + "/backlogSize",
                self._backlog_size,
                consume,
                "Return the bytes in the topic's log after a message.",
                body=PositionBody,
                body_required=True,
                answers=int,
                statuses=(405,),
                owner=True,
            ),
        ]

    async def _topic(self, call: Call) -> Topic:
        name = call.topic()
        count = await self._namespaces.partitions(name)
        if count is not None:
            raise NotAllowedError(
                f"{name} is a partitioned topic; name one of its {count} partitions, "
                f"{name.with_partition(0)} and on"
            )
        return await self._owners.topic(call, name)

    async def _last(self, call: Call) -> HttpResponse:
        topic = await self._topic(call)
        return answer(_message_id(topic, topic.log.last_confirmed))

    async def _by_time(self, call: Call) -> HttpResponse:
        topic = await self._topic(call)
        found = await topic.log.find_by_time(call.number("timestamp"), publish_time)
        return answer(_message_id(topic, found or topic.log.last_confirmed))

    async def _examine(self, call: Call) -> HttpResponse:
        topic = await self._topic(call)
        place, entries = call.number("messagePosition"), topic.log.entries
        if place > entries:
            raise NoSuchEntry(
                f"topic {topic.name} has {entries} entries; there is none at place {place}"
            )
        left = place - 1 if call.text("initialPosition") == "earliest" else entries - place
        for ledger in topic.log.ledgers:
            if left < ledger.entries:
                return await self._read(call, topic, Position(ledger.ledger_id, left))
            left -= ledger.entries
        raise NoSuchEntry(f"topic {topic.name} was trimmed meanwhile; try again")

    async def _entry(self, call: Call) -> HttpResponse:
        return await self._read(
            call, await self._topic(call), Position(call.number("ledger"), call.number("entry"))
        )

    async def _trace(self, call: Call) -> HttpResponse:
        topic = await self._topic(call)
        call.waits_for = "the bookies of the entry"
        trace = MessageTrace(
            topic,
            self._ledgers,
            self._world.clock,
            Position(call.number("ledger"), call.number("entry")),
            call.given("batchIndex"),
            wait_seconds=self._config.stats_read_wait_ms / 1000,
        )
        return answer(
            await trace.report(copies=call.flag("copies"), subscription=call.text("subscription"))
        )

    async def _read(self, call: Call, topic: Topic, position: Position) -> HttpResponse:
        # Rule 18: a position named by a client must belong to this topic.
        found = (
            await topic.log.read(position, max_entries=1, max_bytes=_READ_BYTES_MAX)
            if topic.log.contains(position)
            else []
        )
        if not found or found[0].position != position:
            raise NoSuchEntry(f"topic {topic.name} has no entry {position}")
        entry = whole_entry(found[0].payload)
        headers = {
            "X-Pulsar-Message-ID": f"{position.ledger_id}:{position.entry_id}",
            **entry.headers,
        }
        return HttpResponse(200, entry.payload, "application/octet-stream", headers)

    async def _backlog_size(self, call: Call) -> HttpResponse:
        topic, body = await self._topic(call), call.body
        return answer(topic.log.bytes_above(Position(body.ledger_id, body.entry_id)))


def _one(
    method: str,
    words: str,
    handler: Handler,
    permission: Permission,
    summary: str,
    *parameters: Parameter,
) -> Route:
    return Route(
        method,
        TOPIC + words,
        handler,
        permission,
        summary,
        parameters=parameters,
        answers=MessageIdBody,
        statuses=(405,),
        owner=True,
    )


def _message_id(topic: Topic, position: Position) -> MessageIdBody:
    return MessageIdBody(position.ledger_id, position.entry_id, topic.name.partition)
