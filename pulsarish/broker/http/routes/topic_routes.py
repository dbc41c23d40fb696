"""Topics: any broker creates and lists them, their owner does everything else.

Work on a partitioned topic covers each partition.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.json_bodies import LostBody, MessageIdBody, SkipLostBody
from pulsarish.broker.http.listing import Listing
from pulsarish.broker.http.owner_calls import OwnerCall, OwnerCalls
from pulsarish.broker.http.partitions import each_done, settled
from pulsarish.broker.http.route import (
    AFTER,
    AUTHORITATIVE,
    LIMIT,
    Call,
    Parameter,
    Route,
    answer,
    no_content,
)
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import PartitionedTopic, TopicRecord
from pulsarish.model.errors import AlreadyExists, NotAllowedError, TopicNotFound
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpResponse

__all__ = ["TOPIC", "TopicRoutes"]

TOPIC: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_NAMESPACE: Final = "/admin/v2/persistent/{tenant}/{namespace}"
_ADMIN: Final = Permission.ADMIN_TOPIC

FORCE: Final = Parameter("force", "Although clients are connected.", bool, default=False)
_DELETE_SCHEMA: Final = Parameter(
    "deleteSchema", "Schemas go with their topic anyway.", bool, default=True
)
_SYSTEM: Final = Parameter(
    "includeSystemTopic", "The broker's own topics, too.", bool, default=False
)
_BUNDLE: Final = Parameter("bundle", "Only the topics of this bundle.")
_LISTED: Final = (_SYSTEM, AFTER, LIMIT)


class TopicRoutes:
    def __init__(
        self,
        records: Records,
        namespaces: Namespaces,
        topics: LoadedTopics,
        owners: OwnerCalls,
        listing: Listing,
    ) -> None:
        self._records = records
        self._namespaces = namespaces
        self._topics = topics
        self._owners = owners
        self._listing = listing

    def routes(self) -> list[Route]:
        properties, deletion = dict[str, str], (FORCE, _DELETE_SCHEMA)
        anywhere, names = (AUTHORITATIVE,), list[str]
        return [
            Route(
                "GET",
                _NAMESPACE,
                self._list,
                Permission.READ_NAMESPACE,
                "List the topics and partitions of a namespace.",
                parameters=(_BUNDLE, *_LISTED),
                answers=names,
            ),
            Route(
                "GET",
                _NAMESPACE + "/partitioned",
                self._partitioned,
                Permission.READ_NAMESPACE,
                "List the partitioned topics of a namespace.",
                parameters=_LISTED,
                answers=names,
            ),
            Route(
                "PUT",
                TOPIC,
                self._create,
                _ADMIN,
                "Create a topic.",
                parameters=anywhere,
                body=properties,
                statuses=(405, 409),
            ),
            Route(
                "DELETE",
                TOPIC,
                self._delete,
                Permission.PURGE,
                "Delete a topic and its data.",
                parameters=deletion,
                owner=True,
            ),
            Route(
                "GET",
                TOPIC + "/properties",
                self._properties,
                Permission.READ_TOPIC,
                "Show the properties of a topic.",
                parameters=anywhere,
                answers=properties,
            ),
            Route(
                "PUT",
                TOPIC + "/properties",
                self._set_properties,
                _ADMIN,
                "Set properties of a topic.",
                body=properties,
                body_required=True,
                owner=True,
            ),
            Route(
                "DELETE",
                TOPIC + "/properties",
                self._remove_property,
                _ADMIN,
                "Remove a property of a topic.",
                parameters=(Parameter("key", "Name of the property.", required=True),),
                owner=True,
            ),
            Route(
                "PUT",
                TOPIC + "/unload",
                self._unload,
                _ADMIN,
                "Unload a topic; clients reconnect to its next owner.",
                owner=True,
            ),
            Route(
                "POST",
                TOPIC + "/skipLost",
                self._skip_lost,
                Permission.PURGE,
                "Move past entries that are gone for good; refused while one of them may be read.",
                body=SkipLostBody,
                body_required=True,
                answers=LostBody,
                owner=True,
                statuses=(405,),
            ),
            Route(
                "POST",
                TOPIC + "/terminate",
                self._terminate,
                _ADMIN,
                "Terminate a topic: it accepts no further messages.",
                answers=MessageIdBody,
                statuses=(405,),
                owner=True,
            ),
            Route(
                "POST",
                TOPIC + "/terminate/partitions",
                self._terminate_partitions,
                _ADMIN,
                "Terminate every partition of a topic.",
                parameters=anywhere,
                answers=dict[str, MessageIdBody],
            ),
            Route(
                "DELETE",
                TOPIC + "/truncate",
                self._truncate,
                Permission.PURGE,
                "Acknowledge all messages for every subscription, and delete them.",
                owner=True,
            ),
            Route(
                "POST",
                TOPIC + "/trim",
                self._trim,
                _ADMIN,
                "Delete the ledgers that no subscription needs and no retention keeps, now.",
                owner=True,
            ),
        ]

    async def _list(self, call: Call) -> HttpResponse:
        return await self._listing.topics(call)

    async def _partitioned(self, call: Call) -> HttpResponse:
        return await self._listing.topics(call, partitioned=True)

    async def _create(self, call: Call) -> HttpResponse:
        name = call.topic()
        if name.partition < 0 and (count := await self._namespaces.partitions(name)) is not None:
            raise AlreadyExists(f"{name} is there already, with {count} partitions")
        await self._topics.create(name, properties=call.body, through=self._records)
        return no_content()

    async def _delete(self, call: Call) -> HttpResponse:
        name = call.topic()
        if await self._namespaces.partitions(name) is not None:
            raise TopicNotFound(f"{name} is a partitioned topic; delete it at its path /partitions")
        await self._owners.require(call, name)
        await self._topics.delete(name, force=call.flag("force"))
        if name.partition < 0:
            await self._namespaces.remove_grants(name)
        return no_content()

    # -- properties

    async def _properties(self, call: Call) -> HttpResponse:
        name = call.topic()
        return answer((await self._record(name)).properties)

    async def _record(self, name: TopicName) -> TopicRecord | PartitionedTopic:
        topic = await self._records.get(paths.topic(name), TopicRecord)
        if topic is not None and not topic[0].deleted:
            return topic[0]
        partitioned = await self._records.get(paths.partitioned_topic(name), PartitionedTopic)
        if partitioned is None:
            raise TopicNotFound(f"topic {name} does not exist")
        return partitioned[0]

    async def _set_properties(self, call: Call) -> HttpResponse:
        return await self._change_properties(call, call.body, ())

    async def _remove_property(self, call: Call) -> HttpResponse:
        return await self._change_properties(call, {}, (call.text("key"),))

    async def _change_properties(
        self, call: Call, wanted: dict[str, str], gone: tuple[str, ...]
    ) -> HttpResponse:
        """Change the properties of a topic.

        Those of a partitioned topic are in its record. Those of another topic are changed by its
        owner, because it owns the record.
        """
        name = call.topic()

        def changed(before: dict[str, str]) -> dict[str, str]:
            return {key: value for key, value in {**before, **wanted}.items() if key not in gone}

        def change(record: PartitionedTopic | None) -> PartitionedTopic:
            if record is None:
                raise TopicNotFound(f"topic {name} does not exist")
            return msgspec.structs.replace(record, properties=changed(record.properties))

        if await self._namespaces.partitions(name) is not None:
            await self._records.update(paths.partitioned_topic(name), PartitionedTopic, change)
        else:
            log = (await self._owners.topic(call, name)).log
            await log.attributes.set_properties(changed(log.attributes.properties))
        return no_content()

    # -- unloading, deleting and the like

    async def _unload(self, call: Call) -> HttpResponse:
        name = call.topic()
        errand = OwnerCall("PUT", ("unload",))
        done = await each_done(call, self._namespaces, self._owners, errand)
        if done is not None:
            return done
        await self._owners.require(call, name)
        if not await self._namespaces.topic_exists(name):
            raise TopicNotFound(f"topic {name} does not exist")
        await self._topics.unload(name)
        return no_content()

    async def _skip_lost(self, call: Call) -> HttpResponse:
        name, wanted = call.topic(), call.body
        await self._owners.require(call, name)
        call.waits_for = (
            f"the bookies to say whether they have entries of ledger {wanted.ledger_id}"
        )
        lost = await self._topics.lost.skip(
            name, wanted.ledger_id, wanted.first_entry, wanted.last_entry, wanted.given_up_bookies
        )
        return answer(
            LostBody(
                lost.ledger_id, lost.first_entry, lost.last_entry, lost.given_up, lost.skipped_ms
            )
        )

    async def _terminate(self, call: Call) -> HttpResponse:
        name = call.topic()
        if await self._namespaces.partitions(name) is not None:
            raise NotAllowedError(
                f"{name} is a partitioned topic; terminate it at its path /terminate/partitions"
            )
        topic = await self._owners.topic(call, name)
        last = await topic.terminate()
        return answer(MessageIdBody(last.ledger_id, last.entry_id, name.partition))

    async def _terminate_partitions(self, call: Call) -> HttpResponse:
        name = call.topic()
        partitions = await self._namespaces.partition_names(name)
        if partitions is None:
            raise TopicNotFound(
                f"{name} is no partitioned topic; terminate it at its path /terminate"
            )
        answers = settled(
            await self._owners.send_all(call, partitions, OwnerCall("POST", ("terminate",)))
        )
        return answer({str(index): last for index, last in enumerate(answers)})

    async def _truncate(self, call: Call) -> HttpResponse:
        name = call.topic()
        errand = OwnerCall("DELETE", ("truncate",))
        done = await each_done(call, self._namespaces, self._owners, errand)
        if done is not None:
            return done
        topic = await self._owners.topic(call, name)
        await topic.truncate()
        return no_content()

    async def _trim(self, call: Call) -> HttpResponse:
        name = call.topic()
        errand = OwnerCall("POST", ("trim",))
        done = await each_done(call, self._namespaces, self._owners, errand)
        if done is not None:
            return done
        topic = await self._owners.topic(call, name)
        await topic.log.trimmer.trim()
        return no_content()
