"""Statistics of topics by their owner, and their ledgers and cursors from metadata or by their
owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.json_bodies import (
    CursorInfoBody,
    Json,
    LedgerInfoBody,
    LogInfoBody,
    MessageIdBody,
)
from pulsarish.broker.http.owner_calls import OwnerCall, OwnerCalls
from pulsarish.broker.http.partitions import explain_partitions, explained, settled
from pulsarish.broker.http.route import AUTHORITATIVE, Call, Parameter, Route, answer
from pulsarish.broker.http.routes.topic_routes import TOPIC
from pulsarish.broker.http.stats_sum import summed
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.progress.report import subscription_report, topic_report
from pulsarish.broker.stats.backlog_stats import show_earliest
from pulsarish.broker.stats.internal_stats import topic_internal_stats
from pulsarish.broker.stats.topic_stats import Statistics
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.broker.topics.topic import Topic
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import CursorRecord, TopicRecord
from pulsarish.model.errors import NotFound, PulsarishError, TopicNotFound
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.model.position import EARLIEST, Position
from pulsarish.model.topic_name import TopicName, decode_segment
from pulsarish.runtime.seams import HttpResponse

__all__ = ["StatsRoutes"]

_OPTIONS = (
    Parameter(
        "getPreciseBacklog",
        "Read what is missing to know backlogMessages exactly; entries and bytes need no reading.",
        bool,
        default=False,
    ),
    Parameter(
        "subscriptionBacklogSize",
        "With the bytes of each subscription's backlog; without it they are -1.",
        bool,
        default=True,
    ),
    Parameter(
        "getEarliestTimeInBacklog",
        "With when the oldest unacknowledged message was published; -1: there is none.",
        bool,
        default=False,
    ),
    Parameter("excludePublishers", "Without the list of producers.", bool, default=False),
    Parameter("excludeConsumers", "Without the lists of consumers.", bool, default=False),
)


class StatsRoutes:
    def __init__(
        self,
        records: Records,
        namespaces: Namespaces,
        topics: LoadedTopics,
        owners: OwnerCalls,
        statistics: Statistics,
    ) -> None:
        self._records = records
        self._namespaces = namespaces
        self._topics = topics
        self._owners = owners
        self._statistics = statistics

    def routes(self) -> list[Route]:
        read = Permission.READ_TOPIC
        metadata = (
            Parameter(
                "metadata",
                "With each ledger's record, as JSON in a text, when the topic was made, what was "
                "trimmed.",
                bool,
                default=False,
            ),
        )
        each = (
            Parameter("perPartition", "With the statistics of each partition.", bool, default=True),
            *_OPTIONS,
            AUTHORITATIVE,
        )
        total, internal = TOPIC + "/partitioned-stats", TOPIC + "/partitioned-internalStats"
        return [
            Route(
                "GET",
                TOPIC + "/stats",
                self._stats,
                read,
                "Show statistics of a topic.",
                parameters=_OPTIONS,
                answers=Json,
                owner=True,
            ),
            Route(
                "GET",
                TOPIC + "/internalStats",
                self._internal,
                read,
                "Show the state of a topic's log: its ledgers and cursors.",
                parameters=metadata,
                answers=Json,
                owner=True,
            ),
            Route(
                "GET",
                TOPIC + "/internal-info",
                self._info,
                read,
                "Show a topic's ledgers and cursors from the metadata.",
                parameters=(AUTHORITATIVE,),
                answers=LogInfoBody,
            ),
            Route(
                "GET",
                total,
                self._partitioned,
                read,
                "Show statistics of all partitions of a topic.",
                parameters=each,
                answers=Json,
            ),
            Route(
                "GET",
                TOPIC + "/explain",
                self._explain,
                read,
                "Explain what a topic waits for.",
                answers=Json,
                owner=True,
            ),
            Route(
                "GET",
                TOPIC + "/subscription/{subscription}/explain",
                self._explain_subscription,
                read,
                "Explain what a subscription waits for.",
                answers=Json,
                owner=True,
            ),
            Route(
                "GET",
                internal,
                self._partitioned_internal,
                read,
                "Show the state of the logs of all partitions of a topic.",
                parameters=(AUTHORITATIVE,),
                answers=Json,
            ),
        ]

    async def _stats(self, call: Call) -> HttpResponse:
        found = await self._found(call, precise=call.flag("getPreciseBacklog"))
        if not call.flag("subscriptionBacklogSize"):
            for subscription in found["subscriptions"].values():
                subscription["backlogSize"] = -1
        show_earliest(found, is_wanted=call.flag("getEarliestTimeInBacklog"))
        if call.flag("excludePublishers"):
            found["publishers"] = []
        if call.flag("excludeConsumers"):
            for subscription in found["subscriptions"].values():
                subscription["consumers"] = []
        return answer(found)

    async def _found(self, call: Call, *, precise: bool = False) -> dict[str, Any]:
        """Return the statistics of a topic that is not partitioned."""
        name = call.topic()
        here = self._topics.loaded.get(name.full)
        if here is not None and here.closed is None:
            # Answer without metadata, which may be what everything waits for.
            return await self._statistics.topic(here, precise=precise)
        await self._owners.require(call, name)
        # A request that asks why a topic does not open must not wait until it does.
        found = self._statistics.unloaded(name) if self._topics.loader.since_ms(name) else None
        if (
            found is None
            and name.full not in self._topics.loaded
            and self._topics.loader.failure(name) is None
        ):
            found = await self._statistics.resting(name, self._records)
        if found is None:
            try:
                found = await self._statistics.topic(await self._topic(call), precise=precise)
            except PulsarishError:
                found = self._statistics.unloaded(name)
                if found is None:
                    raise
        return found

    # -- why something does not move

    async def _explain(self, call: Call) -> HttpResponse:
        return await explained(call, self._report(call))

    async def _report(self, call: Call) -> HttpResponse:
        done = await self._explain_partitions(call, "explain")
        return done or answer(topic_report(call.topic().full, await self._found(call)))

    async def _explain_subscription(self, call: Call) -> HttpResponse:
        name = call["subscription"]
        return await explained(call, self._report_subscription(call, name), name)

    async def _report_subscription(self, call: Call, name: str) -> HttpResponse:
        done = await self._explain_partitions(call, "subscription", name, "explain")
        return done or answer(subscription_report(call.topic().full, name, await self._found(call)))

    async def _explain_partitions(self, call: Call, *words: str) -> HttpResponse | None:
        if call.topic().full in self._topics.loaded:
            return None  # it is not partitioned; this is known without metadata
        return await explain_partitions(call, self._namespaces, self._owners, words)

    # -- more of a topic

    async def _internal(self, call: Call) -> HttpResponse:
        topic = await self._topic(call)
        found = topic_internal_stats(topic)
        if call.flag("metadata"):
            await self._describe(topic.name, found)
        return answer(found)

    async def _describe(self, name: TopicName, found: dict[str, Any]) -> None:
        """Add to each ledger its metadata record, so that one request covers many ledgers.

        A deleted ledger gets ``None``.
        """
        topic = await self._records.get(paths.topic(name), TopicRecord)
        found["creationDate"] = topic[0].created_ms if topic is not None else 0
        found["trimmedPosition"] = str(
            Position(topic[0].trimmed_ledger, topic[0].trimmed_entry)
            if topic is not None
            else EARLIEST
        )
        ledgers = found["ledgers"]
        records = (
            await self._records.get_many(
                [paths.ledger(each["ledgerId"]) for each in ledgers], LedgerMetadata
            )
            if ledgers
            else []
        )
        for each, record in zip(ledgers, records, strict=True):
            each["metadata"] = None if record is None else msgspec.json.encode(record[0]).decode()

    async def _topic(self, call: Call) -> Topic:
        name = call.topic()
        try:
            return await self._owners.topic(call, name)
        except TopicNotFound:
            count = await self._namespaces.partitions(name)
            if count is None:
                raise
            raise TopicNotFound(
                f"{name} is a partitioned topic with {count} partitions; ask at its path "
                "/partitioned-stats"
            ) from None

    async def _info(self, call: Call) -> HttpResponse:
        name = call.topic()
        record = await self._records.get(paths.topic(name), TopicRecord)
        if record is None or record[0].deleted:
            raise TopicNotFound(f"topic {name} does not exist")
        cursors = await self._records.children(paths.cursors(name))
        found = (
            await self._records.get_many(
                [f"{paths.cursors(name)}/{each}" for each in cursors], CursorRecord
            )
            if cursors
            else []
        )
        return answer(
            LogInfoBody(
                record[1],
                record[0].created_ms,
                [
                    LedgerInfoBody(each.ledger_id, each.entries, each.size_bytes, each.closed_ms)
                    for each in record[0].ledgers
                ],
                {
                    decode_segment(cursor): CursorInfoBody(
                        each[1],
                        each[0].created_ms,
                        each[0].cursor_ledger,
                        MessageIdBody(each[0].mark_ledger, each[0].mark_entry),
                    )
                    for cursor, each in zip(cursors, found, strict=True)
                    if each is not None
                },
                record[0].properties,
            )
        )

    # -- partitioned topics

    async def _of_partitions(
        self, call: Call, words: tuple[str, ...], query: dict[str, str]
    ) -> dict[str, Any]:
        name = call.topic()
        partitions = await self._partitions(name)
        answers = await self._owners.send_all(call, partitions, OwnerCall("GET", words, query))
        # A partition that was never used need not exist.
        there = [
            (each, found)
            for each, found in zip(partitions, answers, strict=True)
            if not isinstance(found, NotFound)
        ]
        return {
            each.full: found
            for (each, _), found in zip(there, settled([found for _, found in there]), strict=True)
        }

    async def _partitions(self, name: TopicName) -> Sequence[TopicName]:
        partitions = await self._namespaces.partition_names(name)
        if partitions is None:
            raise TopicNotFound(f"{name} is no partitioned topic; ask at its path /stats")
        return partitions

    async def _partitioned(self, call: Call) -> HttpResponse:
        query = {option.name: "true" if call.flag(option.name) else "false" for option in _OPTIONS}
        found = await self._of_partitions(call, ("stats",), query)
        metadata = {"partitions": len(await self._partitions(call.topic())), "deleted": False}
        each = found if call.flag("perPartition") else {}
        return answer({**summed(list(found.values())), "metadata": metadata, "partitions": each})

    async def _partitioned_internal(self, call: Call) -> HttpResponse:
        found = await self._of_partitions(call, ("internalStats",), {})
        metadata = {"partitions": len(await self._partitions(call.topic())), "deleted": False}
        return answer({"metadata": metadata, "partitions": found})
