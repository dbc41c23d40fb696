"""Subscriptions: listed from metadata, everything else by the topic's owner."""

from __future__ import annotations

from typing import Any

from pulsarish.broker.dedup_log import DEDUP_CURSOR
from pulsarish.broker.http.face import Call, Route, answer, no_content
from pulsarish.broker.http.owners import Owners
from pulsarish.broker.http.peek import message_in
from pulsarish.broker.namespaces import Namespaces
from pulsarish.broker.subscription import Subscription
from pulsarish.metadata import paths
from pulsarish.metadata.update import Records
from pulsarish.model.errors import AlreadyExists, InvalidArgument, NotFound, TopicNotFound
from pulsarish.model.position import EARLIEST, LATEST, Position
from pulsarish.model.topic_name import TopicName, decode_segment
from pulsarish.runtime.seams import HttpResponse, World

__all__ = ["SubscriptionRoutes"]

_TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_SUBSCRIPTION = _TOPIC + "/subscription/{subscription}"
_PEEK_MAX = 10_000


class SubscriptionRoutes:
    def __init__(self, world: World, records: Records, namespaces: Namespaces, owners: Owners) -> None:
        self._world = world
        self._records = records
        self._namespaces = namespaces
        self._owners = owners

    def routes(self) -> list[Route]:
        return [
            Route("GET", _TOPIC + "/subscriptions", self._list),
            Route("PUT", _SUBSCRIPTION, self._create),
            Route("DELETE", _SUBSCRIPTION, self._delete),
            Route("GET", _SUBSCRIPTION + "/position/{number}", self._peek),
            Route("POST", _SUBSCRIPTION + "/skip/{count}", self._skip),
            Route("POST", _SUBSCRIPTION + "/skip_all", self._skip_all),
            Route("POST", _SUBSCRIPTION + "/resetcursor", self._reset),
            Route("POST", _SUBSCRIPTION + "/resetcursor/{timestamp}", self._reset_to_time),
            Route("POST", _SUBSCRIPTION + "/expireMessages/{seconds}", self._expire),
        ]

    async def _list(self, call: Call) -> HttpResponse:
        name = call.topic()
        partitions = await self._namespaces.partitions(name)
        names: dict[str, None] = {}
        topics = [name] if partitions is None else [name.with_partition(index) for index in range(partitions)]
        if partitions is None and not await self._namespaces.topic_exists(name):
            raise TopicNotFound(f"topic {name} does not exist")
        for topic in topics:
            names.update(dict.fromkeys(map(decode_segment, await self._records.children(paths.cursors(topic)))))
        names.pop(DEDUP_CURSOR, None)
        return answer(sorted(names))

    async def _create(self, call: Call) -> HttpResponse:
        position = _position(call.body(), default=LATEST)
        for name in await self._all(call):
            topic = await self._owners.topic(call, name)
            if call["subscription"] in topic.subscriptions:
                raise AlreadyExists(f"subscription {call['subscription']!r} of {name} exists already")
            await topic.create_subscription(call["subscription"], position)
        return no_content()

    async def _all(self, call: Call) -> list[TopicName]:
        """The topic itself; a partitioned one has no subscriptions of its own."""
        name = call.topic()
        partitions = await self._namespaces.partitions(name)
        if partitions is not None:
            raise InvalidArgument(f"{name} is a partitioned topic; name one of its partitions, {name.with_partition(0)} and on")
        return [name]

    async def _subscription(self, call: Call) -> Subscription:
        (name,) = await self._all(call)
        return (await self._owners.topic(call, name)).subscription(call["subscription"])

    async def _delete(self, call: Call) -> HttpResponse:
        (name,) = await self._all(call)
        topic = await self._owners.topic(call, name)
        await topic.unsubscribe(call["subscription"], force=call.flag("force"))
        return no_content()

    async def _peek(self, call: Call) -> HttpResponse:
        number = call.number("number")
        if not 1 <= number <= _PEEK_MAX:
            raise InvalidArgument(f"position must be 1 to {_PEEK_MAX}, not {number}")
        subscription = await self._subscription(call)
        left = number
        for entry in await subscription.unacknowledged(number):
            found = message_in(entry.payload, left - 1)
            if isinstance(found, int):
                left -= found
                continue
            position, payload = entry.position, found.payload
            headers = {"X-Pulsar-Message-ID": f"{position.ledger_id}:{position.entry_id}:{found.batch_index}", **found.headers}
            return HttpResponse(200, payload, "application/octet-stream", headers)
        raise NotFound(f"subscription {subscription.name!r} has fewer than {number} unacknowledged messages")

    async def _skip(self, call: Call) -> HttpResponse:
        count = call.number("count")
        if count < 1:
            raise InvalidArgument(f"the number of messages to skip must be at least 1, not {count}")
        await (await self._subscription(call)).skip(count)
        return no_content()

    async def _skip_all(self, call: Call) -> HttpResponse:
        await (await self._subscription(call)).skip(None)
        return no_content()

    async def _reset(self, call: Call) -> HttpResponse:
        position = _position(call.body(), default=None)
        await (await self._subscription(call)).seek(position, 0)
        return no_content()

    async def _reset_to_time(self, call: Call) -> HttpResponse:
        timestamp_ms = call.number("timestamp")
        if timestamp_ms < 0:
            raise InvalidArgument(f"timestamp must be milliseconds since the epoch, not {timestamp_ms}")
        await (await self._subscription(call)).seek(None, timestamp_ms)
        return no_content()

    async def _expire(self, call: Call) -> HttpResponse:
        """Skip what was published more than ``seconds`` ago."""
        seconds = call.number("seconds")
        if seconds < 0:
            raise InvalidArgument(f"seconds must not be negative, not {seconds}")
        await (await self._subscription(call)).expire(self._world.clock.wall_ms() - seconds * 1000)
        return no_content()


def _position(body: Any, *, default: Position | None) -> Position:
    match body:
        case None if default is not None:
            return default
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
        case {"ledgerId": int(ledger_id), "entryId": int(entry_id)}:
            return Position(ledger_id, entry_id)
        case _:
            raise InvalidArgument(f'a position is "earliest", "latest" or {{"ledgerId": 1, "entryId": 0}}, not {body!r}')
