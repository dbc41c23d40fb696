"""Topics: created and listed by any broker, everything else by their owner."""

from __future__ import annotations

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.face import Call, Route, answer, no_content
from pulsarish.broker.http.owners import Owners
from pulsarish.broker.namespaces import Namespaces
from pulsarish.broker.stats import topic_internal_stats, topic_stats
from pulsarish.broker.topics import Topics
from pulsarish.model.errors import InvalidArgument, TopicNotFound
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpResponse, World

__all__ = ["TopicRoutes"]

_TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"


class TopicRoutes:
    def __init__(self, world: World, config: BrokerConfig, namespaces: Namespaces, topics: Topics, owners: Owners) -> None:
        self._world = world
        self._config = config
        self._namespaces = namespaces
        self._topics = topics
        self._owners = owners

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/admin/v2/persistent/{tenant}/{namespace}", self._list),
            Route("GET", "/admin/v2/persistent/{tenant}/{namespace}/partitioned", self._list_partitioned),
            Route("PUT", _TOPIC, self._create),
            Route("DELETE", _TOPIC, self._delete),
            Route("GET", _TOPIC + "/partitions", self._partitions),
            Route("PUT", _TOPIC + "/partitions", self._create_partitioned),
            Route("POST", _TOPIC + "/partitions", self._grow),
            Route("DELETE", _TOPIC + "/partitions", self._delete_partitioned),
            Route("GET", _TOPIC + "/stats", self._stats),
            Route("GET", _TOPIC + "/internalStats", self._internal_stats),
            Route("GET", _TOPIC + "/lastMessageId", self._last_message_id),
            Route("PUT", _TOPIC + "/unload", self._unload),
            Route("POST", _TOPIC + "/terminate", self._terminate),
        ]

    async def _list(self, call: Call) -> HttpResponse:
        await self._namespaces.policies(call["tenant"], call["namespace"])
        return answer(await self._namespaces.topics(call["tenant"], call["namespace"]))

    async def _list_partitioned(self, call: Call) -> HttpResponse:
        await self._namespaces.policies(call["tenant"], call["namespace"])
        return answer(await self._namespaces.partitioned_topics(call["tenant"], call["namespace"]))

    async def _create(self, call: Call) -> HttpResponse:
        await self._topics.create(call.topic())
        return no_content()

    async def _delete(self, call: Call) -> HttpResponse:
        name = call.topic()
        await self._owners.require(call, name)
        await self._topics.delete(name, force=call.flag("force"))
        return no_content()

    async def _partitions(self, call: Call) -> HttpResponse:
        name = call.topic()
        await self._namespaces.policies(name.tenant, name.namespace)
        return answer({"partitions": await self._namespaces.partitions(name) or 0})

    async def _create_partitioned(self, call: Call) -> HttpResponse:
        name, count = call.topic(), _count(call)
        await self._namespaces.create_partitioned(name, count)
        await self._create_partitions(name, range(count))
        return no_content()

    async def _grow(self, call: Call) -> HttpResponse:
        name, count = call.topic(), _count(call)
        before = await self._namespaces.partitions(name) or 0
        await self._namespaces.grow_partitioned(name, count)
        await self._create_partitions(name, range(before, count))
        return no_content()

    async def _create_partitions(self, name: TopicName, indexes: range) -> None:
        for index in indexes:
            partition = name.with_partition(index)
            if not await self._namespaces.topic_exists(partition):
                await self._topics.create(partition)

    async def _delete_partitioned(self, call: Call) -> HttpResponse:
        """The partitions first and the record last, so that a deletion that stopped half-way is taken up by the next one."""
        name = call.topic()
        count = await self._namespaces.partitions(name)
        if count is None:
            raise TopicNotFound(f"{name} is no partitioned topic")
        for index in range(count):
            try:
                await self._owners.delete(name.with_partition(index), force=call.flag("force"))
            except TopicNotFound:
                continue
        await self._namespaces.delete_partitioned(name)
        return no_content()

    async def _stats(self, call: Call) -> HttpResponse:
        topic = await self._owners.topic(call, call.topic())
        return answer(topic_stats(topic, self._world.clock.monotonic()))

    async def _internal_stats(self, call: Call) -> HttpResponse:
        return answer(topic_internal_stats(await self._owners.topic(call, call.topic())))

    async def _last_message_id(self, call: Call) -> HttpResponse:
        topic = await self._owners.topic(call, call.topic())
        last = topic.log.last_confirmed
        return answer({"ledgerId": last.ledger_id, "entryId": last.entry_id, "partitionIndex": topic.name.partition})

    async def _unload(self, call: Call) -> HttpResponse:
        name = call.topic()
        await self._owners.require(call, name)
        if not await self._namespaces.topic_exists(name):
            raise TopicNotFound(f"topic {name} does not exist")
        await self._topics.unload(name)
        return no_content()

    async def _terminate(self, call: Call) -> HttpResponse:
        topic = await self._owners.topic(call, call.topic())
        last = await topic.terminate()
        return answer({"ledgerId": last.ledger_id, "entryId": last.entry_id, "partitionIndex": topic.name.partition})


def _count(call: Call) -> int:
    count = call.body()
    if not isinstance(count, int) or isinstance(count, bool):
        raise InvalidArgument(f"the body must be the number of partitions, not {count!r}")
    return count
