"""Partitioned topics: their record in metadata, and the creation and deletion of their
partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.json_bodies import PartitionsBody
from pulsarish.broker.http.owner_calls import OwnerCall, OwnerCalls
from pulsarish.broker.http.route import (
    AUTHORITATIVE,
    Call,
    Lane,
    Parameter,
    Route,
    answer,
    no_content,
)
from pulsarish.broker.http.routes.topic_routes import FORCE, TOPIC
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.publishing.dedup_log import DEDUP_CURSOR
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import AlreadyExists, PulsarishError, TopicNotFound
from pulsarish.model.topic_name import TopicName, decode_segment
from pulsarish.runtime.seams import HttpResponse

__all__ = ["PartitionRoutes"]

_PARTITIONS = TOPIC + "/partitions"


class PartitionRoutes:
    """Routes of partitioned topics.

    ``lookups``: the namespaces for lookups, without the metadata limit of admin requests.
    """

    def __init__(
        self,
        config: BrokerConfig,
        records: Records,
        namespaces: Namespaces,
        lookups: Namespaces,
        topics: LoadedTopics,
        owners: OwnerCalls,
    ) -> None:
        self._records = records
        self._namespaces = namespaces
        self._lookups = lookups
        self._topics = topics
        self._owners = owners
        self._at_once_max = config.admin_fan_out_max

    def routes(self) -> list[Route]:
        admin, count = Permission.ADMIN_TOPIC, int | PartitionsBody
        create = Parameter(
            "checkAllowAutoCreation",
            "Make the topic if topics are made on first use.",
            bool,
            default=False,
        )
        local = Parameter(
            "createLocalTopicOnly",
            "There is one cluster: it makes no difference.",
            bool,
            default=False,
        )
        update = Parameter(
            "updateLocalTopicOnly",
            "There is one cluster: it makes no difference.",
            bool,
            default=False,
        )
        grow = (
            update,
            Parameter(
                "force", "Not needed here: subscriptions are never in the way.", bool, default=False
            ),
            AUTHORITATIVE,
        )
        schema = Parameter(
            "deleteSchema", "Schemas go with their topic anyway.", bool, default=True
        )
        return [
            Route(
                "GET",
                _PARTITIONS,
                self._get,
                Permission.LOOKUP,
                "Return how many partitions a topic has; 0: it is not partitioned.",
                parameters=(create, AUTHORITATIVE),
                answers=PartitionsBody,
                lane=Lane.PROMPT,
            ),
            Route(
                "PUT",
                _PARTITIONS,
                self._create,
                admin,
                "Create a partitioned topic.",
                parameters=(local, AUTHORITATIVE),
                body=count,
                body_required=True,
                statuses=(409,),
            ),
            Route(
                "POST",
                _PARTITIONS,
                self._grow,
                admin,
                "Add partitions to a partitioned topic.",
                parameters=grow,
                body=count,
                body_required=True,
            ),
            Route(
                "DELETE",
                _PARTITIONS,
                self._delete,
                Permission.PURGE,
                "Delete a partitioned topic with its partitions.",
                parameters=(FORCE, schema, AUTHORITATIVE),
            ),
            Route(
                "POST",
                TOPIC + "/createMissedPartitions",
                self._create_missed,
                admin,
                "Create the missing partitions of a partitioned topic.",
                statuses=(405, 409),
            ),
        ]

    async def _get(self, call: Call) -> HttpResponse:
        """Return the number of partitions. Official clients ask this before they connect."""
        name = call.topic()
        if self._owners.serves_without_metadata(name):
            return answer(PartitionsBody(0))
        await self._lookups.policies(name.tenant, name.namespace)
        found = await self._lookups.partitioned(name)
        if found is not None:
            return answer(PartitionsBody(found.partitions, properties=found.properties or None))
        if call.flag("checkAllowAutoCreation"):

            def created(detail: str) -> None:
                call.change = f"create it on first use with {detail}"

            return answer(PartitionsBody(await self._lookups.auto_partitions(name, created) or 0))
        await self._lookups.check_known(name)
        return answer(PartitionsBody(0))

    async def _create(self, call: Call) -> HttpResponse:
        name, (count, properties) = call.topic(), _requested(call.body)
        await self._namespaces.create_partitioned(name, count, properties=properties)
        await self._create_partitions(call, _to_be_made(name, range(count)))
        return no_content()

    async def _grow(self, call: Call) -> HttpResponse:
        name, (count, _) = call.topic(), _requested(call.body)
        before = await self._namespaces.partitions(name) or 0
        await self._namespaces.grow_partitioned(name, count)
        added = _to_be_made(name, range(before, count))
        await self._create_partitions(call, added)
        if before and added:
            await self._subscribe(call, name.with_partition(0), added)
        return no_content()

    async def _subscribe(self, call: Call, first: TopicName, added: Sequence[TopicName]) -> None:
        """Create the subscriptions of the first partition on new ones, from their first message on.

        So consumers miss nothing, whenever they find the new partitions.
        """
        names = set(map(decode_segment, await self._records.children(paths.cursors(first)))) - {
            DEDUP_CURSOR
        }
        errands = [
            (each, OwnerCall("PUT", ("subscription", name), body="earliest"))
            for each in added
            for name in sorted(names)
        ]
        for error in await self._owners.send_each(call, errands):
            if isinstance(error, PulsarishError) and not isinstance(error, AlreadyExists):
                raise error

    async def _create_missed(self, call: Call) -> HttpResponse:
        name = call.topic()
        partitions = await self._namespaces.partition_names(name)
        if partitions is None:
            raise TopicNotFound(f"{name} is no partitioned topic")
        await self._create_partitions(call, partitions)
        return no_content()

    async def _create_partitions(self, call: Call, names: Sequence[TopicName]) -> None:
        for start in range(0, len(names), self._at_once_max):
            call.waits_for = (
                f"{names[start]} and {len(names) - start - 1} more partitions to be made"
            )
            await asyncio.gather(
                *(self._ensure(name) for name in names[start : start + self._at_once_max])
            )

    async def _ensure(self, name: TopicName) -> None:
        try:
            await self._topics.create(name, through=self._records)
        except AlreadyExists:
            # Its first client, or an earlier attempt, created it.
            return

    async def _delete(self, call: Call) -> HttpResponse:
        """Delete the partitions first and the record last, so that the next deletion can finish one
        that stopped halfway.
        """
        name = call.topic()
        partitions = await self._namespaces.partition_names(name)
        if partitions is None:
            raise TopicNotFound(f"{name} is no partitioned topic")
        force = {"force": "true"} if call.flag("force") else {}
        for error in await self._owners.send_all(
            call, partitions, OwnerCall("DELETE", query=force)
        ):
            if isinstance(error, PulsarishError) and not isinstance(error, TopicNotFound):
                raise error
        await self._namespaces.delete_partitioned(name)
        await self._namespaces.remove_grants(name)
        return no_content()


def _to_be_made(name: TopicName, indexes: range) -> list[TopicName]:
    """Return the partitions to create.

    The first client of a non-persistent partition creates it.
    """
    return [name.with_partition(index) for index in indexes] if name.persistent else []


def _requested(body: int | PartitionsBody) -> tuple[int, dict[str, str] | None]:
    return (body, None) if isinstance(body, int) else (body.partitions, body.properties)
