"""A topic's statistics with Apache Pulsar's names, computed on request, and details for operators.

The details say what each part waits for and since when (``waiting``), describe the ledger and its
bookies, and sum it all up in a few lines (``diagnosis``).

Everything is in memory except the age of the oldest unacknowledged messages, the records of
under-replicated ledgers and, if the request wants it, what is missing for exact counts of messages.
The request waits a short time for these, and answers without what is still missing then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from pulsarish.broker.clients.client_stats import consumer_stats, iso_time, producer_stats
from pulsarish.broker.clients.commands import NO_EPOCH
from pulsarish.broker.clients.entry_checks import message_count
from pulsarish.broker.clients.producer import PendingEntry
from pulsarish.broker.clients.wait_reasons import IDLE, waiting_row
from pulsarish.broker.compaction.compaction import compaction_stats
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.nonpersistent.stats import non_persistent_stats
from pulsarish.broker.nonpersistent.topic import NonPersistentTopic
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.progress.collect import next_ledger, snapshot_of
from pulsarish.broker.progress.explain import explain
from pulsarish.broker.progress.snapshot import BookieState
from pulsarish.broker.stats.backlog_stats import backlog_stats
from pulsarish.broker.stats.diagnosis import diagnose
from pulsarish.broker.stats.unloaded_stats import read_unloaded
from pulsarish.broker.stats.wait_reasons import (
    load_waiting,
    log_waiting,
    policy_waiting,
    producer_waiting,
    terminated,
    turn_waiting,
)
from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.broker.topics.topic import Topic
from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.chain_core import Phase
from pulsarish.managed_ledger.message_counter import HOLES_MAX
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import UnderReplicated
from pulsarish.metadata.session_watch import SessionWatch
from pulsarish.model.errors import PulsarishError
from pulsarish.model.policies import DEDUPLICATION
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import SessionState, World

__all__ = ["Statistics"]

_log = get_logger("broker.statistics")

_LEDGERS_ASKED_MAX: Final = 500  # newest ledgers of a topic that are checked for missing replicas
_PRECISE_WAIT_SECONDS: Final = 5.0  # how long an answer waits for exact counts of messages
_PHASES: Final = {
    Phase.WRITING: "open",
    Phase.DRAINING: "closing",
    Phase.REPLACING: "recovering",
    Phase.SEALED: "terminated",
    Phase.STOPPED: "fenced",
}


class Statistics:
    """The statistics of the topics of one broker."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        topics: LoadedTopics,
        ownership: Ownership,
        ledgers: LedgerClient,
        session: SessionWatch,
    ) -> None:
        self._world = world
        self._config = config
        self._topics = topics
        self._ownership = ownership
        self._ledgers = ledgers
        self._session = session

    async def topic(self, topic: Topic, *, precise: bool = False) -> dict[str, Any]:
        """Return the statistics of a loaded topic.

        ``precise``: read what is missing for exact numbers of unacknowledged messages. What takes
        too long is still estimated in the answer, and read for the next one.
        """
        stale = [
            each
            for each in topic.subscriptions.values()
            if each.cursor.backlog() and each.oldest_known() is None
        ]
        bookies: dict[int, Sequence[BookieState]] = {}
        read_of = {
            ledger
            for each in topic.subscriptions.values()
            if (ledger := next_ledger(each)) is not None
        }
        asked = [self._read_bookies(ledger, bookies) for ledger in sorted(read_of)]
        if precise:
            asked.append(self._read_messages(topic))
        missing = await self._read_what_is_not_known(
            [ledger.ledger_id for ledger in topic.log.ledgers],
            stale,
            asked,
            wait_seconds=_PRECISE_WAIT_SECONDS
            if precise
            else self._config.stats_read_wait_ms / 1000,
        )
        clock, full = self._world.clock, topic.name.full
        now, now_ms = clock.monotonic(), clock.wall_ms()
        condition = topic.log.condition()
        waits_since_ms = self._oldest_pending(topic, now, now_ms)
        log = log_waiting(
            condition, min(waits_since_ms.values(), default=0), self._session.state, now_ms
        )
        if log.state != "waiting":
            log = policy_waiting(topic.topic_limits, now, now_ms) or log
        if topic.log.terminated:
            log = terminated(topic.log.last_confirmed)
        queue = [*topic.producers, *topic.publishing.waiting_producers]
        subscriptions = {
            name: self._subscription(topic, subscription, now, now_ms, bookies, precise=precise)
            for name, subscription in sorted(topic.subscriptions.items())
        }
        traffic = topic.traffic
        message_rate, byte_rate = traffic.came.rates(now)
        sizes = [
            topic.log.bytes_above(subscription.cursor.mark_delete)
            for subscription in topic.subscriptions.values()
        ]
        failure = topic.publishing.last_add_failure
        stats = {
            "msgRateIn": round(message_rate, 3),
            "msgThroughputIn": round(byte_rate, 3),
            "msgRateOut": _sum(subscriptions, "msgRateOut"),
            "msgThroughputOut": _sum(subscriptions, "msgThroughputOut"),
            "msgInCounter": traffic.came.messages,
            "bytesInCounter": traffic.came.size_bytes,
            "msgOutCounter": int(_sum(subscriptions, "msgOutCounter")),
            "bytesOutCounter": int(_sum(subscriptions, "bytesOutCounter")),
            "averageMsgSize": round(traffic.came.size_bytes / traffic.came.messages, 1)
            if traffic.came.messages
            else 0.0,
            "storageSize": topic.log.size_bytes,
            "backlogSize": max(sizes, default=0),
            **backlog_stats(subscriptions, topic.topic_limits.policies.quotas()),
            "lastPublishTimeStamp": topic.publishing.last_published_ms,
            "topicCreationTimeStamp": topic.log.attributes.created_ms,
            "offloadedStorageSize": 0,
            "replication": {},
            "ownerBroker": self._config.broker_id or self._owner()["address"],
            "owner": {**self._owner(), "loadedSince": iso_time(topic.loaded_ms)},
            "duplicatesDropped": topic.publishing.duplicates,
            "deduplicationStatus": "Enabled" if topic.deduplication else "Disabled",
            "pendingEntries": condition.pending_entries,
            "pendingBytes": condition.pending_bytes,
            "oldestPendingAgeMs": now_ms - min(waits_since_ms.values()) if waits_since_ms else None,
            "lastAddFailure": None
            if failure is None
            else {"error": f"{type(failure[0]).__name__}: {failure[0]}", "atMs": failure[1]},
            "compaction": compaction_stats(topic.log.views.current, topic.compaction),
            "ledger": self._ledger(topic),
            "underReplicated": None
            if missing is None
            else [_lacking(record) for record in missing],
            **self._surroundings(),
            "waiting": waiting_row(log, full),
            "topicEpoch": topic.log.attributes.producer_epoch
            if topic.log.attributes.producer_epoch != NO_EPOCH
            else None,
            "waitingPublishers": len(topic.publishing.waiting_producers),
            "publishersInTurn": [
                {"producerName": name, "waiting": waiting_row(turn_waiting(ahead), full)}
                for ahead, name in pairwise(queue)
                if name in topic.publishing.waiting_producers
            ],
            "publishers": [
                {
                    **producer_stats(producer, now),
                    "waiting": waiting_row(
                        producer_waiting(producer, log, waits_since_ms.get(producer.name, 0)), full
                    ),
                }
                for producer in topic.producers.values()
            ],
            "subscriptions": subscriptions,
        }
        return {**stats, "diagnosis": diagnose(stats, now_ms)}

    def unloaded(self, name: TopicName) -> dict[str, Any] | None:
        """Return the statistics of a topic that this broker owns and that is not open; ``None``
        when nothing prevents opening it.
        """
        waiting = load_waiting(
            self._topics.loader.since_ms(name), self._topics.loader.failure(name)
        )
        if waiting.state != "waiting":
            return None
        stats: dict[str, Any] = {
            "owner": self._owner(),
            **self._surroundings(),
            "waiting": waiting_row(waiting, name.full),
            "publishers": [],
            "publishersInTurn": [],
            "subscriptions": {},
        }
        return {**stats, "diagnosis": diagnose(stats, self._world.clock.wall_ms())}

    async def resting(self, name: TopicName, records: Records) -> dict[str, Any] | None:
        """Return the statistics of a topic that this broker owns and no client uses, without
        loading it.

        ``None`` when its records do not say everything. Raises ``MetadataUnavailable``,
        ``CorruptData``.
        """
        topic, policies = await asyncio.gather(
            read_unloaded(name, records), self._topics.policies(name)
        )
        if topic is None:
            return None
        missing = await self._read_what_is_not_known(
            topic.ledger_ids, (), wait_seconds=self._config.stats_read_wait_ms / 1000
        )
        found = topic.stats(deduplication=policies[DEDUPLICATION])
        stats = {
            **found,
            **backlog_stats(found["subscriptions"], policies.quotas()),
            "ownerBroker": self._config.broker_id or self._owner()["address"],
            "owner": {**self._owner(), "loadedSince": None},
            "underReplicated": None
            if missing is None
            else [_lacking(record) for record in missing],
            **self._surroundings(),
            "waiting": waiting_row(IDLE, name.full),
        }
        return {**stats, "diagnosis": diagnose(stats, self._world.clock.wall_ms())}

    def not_kept(self, topic: NonPersistentTopic) -> dict[str, Any]:
        """Return the statistics of a non-persistent topic."""
        return {
            **non_persistent_stats(topic, self._world.clock.monotonic()),
            "ownerBroker": self._config.broker_id or self._owner()["address"],
            "owner": {**self._owner(), "loadedSince": iso_time(topic.loaded_ms)},
        }

    # -- parts of the answer

    def _owner(self) -> dict[str, str]:
        me = self._ownership.registry.me
        return {"broker": "", "address": "", "httpAddress": ""} if me is None else {
            "broker": me.broker_id,
            "address": me.address,
            "httpAddress": me.http_address,
        }  # fmt: skip

    def _surroundings(self) -> dict[str, Any]:
        """Return the state that all topics of the broker share."""
        bookies = self._ledgers.bookies
        return {
            "bookies": {
                "writable": len(bookies.candidates()),
                "down": bookies.down_count(),
                "needed": self._config.managed_ledger.ack_quorum,
            },
            "metadata": {
                "state": self._session.state.value,
                "since": iso_time(self._session.since_ms),
            },
        }

    def _ledger(self, topic: Topic) -> dict[str, Any]:
        condition = topic.log.condition()
        writer = condition.writer
        found: dict[str, Any] = {"state": _PHASES[condition.phase], "step": condition.step}
        if writer is None:
            return found
        metadata, bookies = writer.metadata, self._ledgers.bookies
        return {
            **found,
            "ledgerId": metadata.ledger_id,
            "lastAddConfirmed": writer.last_add_confirmed,
            "lastAddPushed": writer.last_add_pushed,
            "ensembleSize": metadata.ensemble_size,
            "writeQuorum": metadata.write_quorum,
            "ackQuorum": metadata.ack_quorum,
            "belowPolicy": metadata.below_policy,
            "changing": writer.changing,
            "crowded": writer.crowded,
            "ensemble": [
                {
                    "bookie": bookies.name_of(member),
                    "instance": member,
                    "registered": bookies.registered(member),
                    "missing": member in writer.missing,
                    "silent": member in writer.silent,
                }
                for member in writer.members
            ],
        }

    def _oldest_pending(self, topic: Topic, now: float, now_ms: int) -> dict[str, int]:
        """Return since when (wall clock) the oldest unconfirmed entry of each producer waits, by
        producer name.
        """
        found: dict[str, int] = {}
        for context in topic.log.pending_contexts():
            if isinstance(context, PendingEntry) and context.producer.name not in found:
                found[context.producer.name] = now_ms - int((now - context.request.received) * 1000)
        return found

    def _subscription(
        self,
        topic: Topic,
        subscription: Subscription,
        now: float,
        now_ms: int,
        bookies: Mapping[int, Sequence[BookieState]],
        *,
        precise: bool,
    ) -> dict[str, Any]:
        dispatcher, cursor, marks = subscription.dispatcher, subscription.cursor, subscription.marks
        message_rate, byte_rate = subscription.out.rates(now)
        active = dispatcher.active
        oldest = subscription.oldest_known()
        waiting = explain(
            snapshot_of(subscription, now_ms, bookies.get(dispatcher.reads.position.ledger_id, ()))
        )
        by_consumer = dispatcher.consumer_stats()
        holes = cursor.count_holes()
        messages = topic.log.messages.backlog(cursor, holes_max=None if precise else HOLES_MAX)
        return {
            "type": subscription.type.title,
            "msgBacklog": cursor.backlog(),
            "msgBacklogNoDelayed": max(0, cursor.backlog() - len(dispatcher.reads.delayed)),
            "backlogMessages": messages.messages,
            "backlogMessagesEstimated": messages.is_estimate,
            "backlogSize": topic.log.bytes_above(cursor.mark_delete),
            "earliestMsgPublishTimeInBacklog": 0 if oldest is None else oldest[1],
            "unackedMessages": dispatcher.unacked(),
            "msgRateOut": round(message_rate, 3),
            "msgThroughputOut": round(byte_rate, 3),
            "msgOutCounter": subscription.out.messages,
            "bytesOutCounter": subscription.out.size_bytes,
            "msgRateRedeliver": round(subscription.redelivered.rates(now)[0], 3),
            "messageAckRate": round(subscription.acked.rates(now)[0], 3),
            "msgRateExpired": round(subscription.expired.rates(now)[0], 3),
            "totalMsgExpired": subscription.expired.messages,
            "filterProcessedMsgCount": subscription.filter_counts.processed,
            "filterAcceptedMsgCount": subscription.filter_counts.accepted,
            "filterRejectedMsgCount": subscription.filter_counts.rejected,
            "lastExpireTimestamp": marks.last_expire_ms,
            "lastConsumedFlowTimestamp": marks.last_flow_ms,
            "lastConsumedTimestamp": marks.last_consumed_ms,
            "lastAckedTimestamp": marks.last_acked_ms,
            "lastMarkDeleteAdvancedTimestamp": marks.mark_delete_advanced_ms,
            "isDurable": cursor.durable,
            "isReplicated": False,
            "activeConsumerName": active.name if active is not None else "",
            "blockedSubscriptionOnUnackedMsgs": dispatcher.blocked,
            "nonContiguousDeletedMessagesRanges": cursor.hole_count,
            "holes": holes,
            "entriesInHoles": cursor.entries_in_holes(),
            "oldestHoleAgeMs": max(0, now_ms - oldest[1]) if holes and oldest is not None else None,
            "messagesToRedeliver": dispatcher.again_count,
            "unackedRedelivered": subscription.dispatch_loop.unacked_redelivered,
            "msgInReplay": dispatcher.again_count,
            "msgDelayed": len(dispatcher.reads.delayed),
            "delayedMessageIndexSizeInBytes": dispatcher.reads.delayed.size_bytes,
            "delayedMessageBuckets": len(dispatcher.reads.delayed.buckets),
            "markDeletePosition": str(cursor.mark_delete),
            "readPosition": str(dispatcher.reads.position),
            "trimmedPositions": cursor.trimmed_positions,
            "subscriptionProperties": dict(cursor.subscription_properties),
            "oldestUnackedPosition": None if oldest is None else str(oldest[0]),
            "oldestUnackedAgeMs": None if oldest is None else max(0, now_ms - oldest[1]),
            **dispatcher.stats(),
            "waiting": waiting_row(waiting, topic.name.full, subscription.name),
            "consumers": [
                {**consumer_stats(consumer, now), **by_consumer.get(consumer.order, {})}
                for consumer in subscription.consumers
            ],
        }

    # -- what must be read

    async def _read_what_is_not_known(
        self,
        ledger_ids: Sequence[int],
        stale: Sequence[Subscription],
        more: Sequence[Coroutine[Any, Any, None]] = (),
        *,
        wait_seconds: float,
    ) -> list[UnderReplicated] | None:
        """Return the under-replicated ledgers of a topic; ``None`` when they are not known now.

        Also reads the oldest messages of the ``stale`` subscriptions, and runs ``more`` at the same
        time.
        """
        missing: list[list[UnderReplicated]] = [] if ledger_ids else [[]]
        works: list[Coroutine[Any, Any, None]] = [
            _read_oldest(each) for each in stale[: self._config.stats_oldest_messages_max]
        ]
        works.extend(more)
        if self._session.state is SessionState.CONNECTED and ledger_ids:
            works.append(self._read_lacking(ledger_ids[-_LEDGERS_ASKED_MAX:], missing))
        await self._together(works, wait_seconds)
        return missing[0] if missing else None

    async def _read_lacking(
        self, ledger_ids: Sequence[int], found: list[list[UnderReplicated]]
    ) -> None:
        try:
            found.append(await self._ledgers.under_replicated(ledger_ids))
        except PulsarishError:
            return  # shown as "not known", next to the state of the metadata session

    async def _read_messages(self, topic: Topic) -> None:
        """Read what is missing to count the unacknowledged messages, up to a limit."""
        try:
            await topic.log.messages.complete(
                [each.cursor for each in topic.subscriptions.values()],
                message_count,
                entries_max=self._config.subscription_backlog_scan_max_entries,
            )
        except PulsarishError as error:
            _log.warning("messages are not counted", topic=topic.name, reason=error)

    async def _read_bookies(self, ledger_id: int, found: dict[int, Sequence[BookieState]]) -> None:
        """Read the bookies of a ledger that is being read, for the explanation."""
        try:
            metadata = await self._ledgers.metadata(ledger_id)
        except PulsarishError:
            return  # the statistics have the state of the metadata session too
        if metadata is not None:
            bookies = self._ledgers.bookies
            members = dict.fromkeys(
                member for segment in metadata.segments for member in segment.members
            )
            found[ledger_id] = [
                BookieState(bookies.name_of(member), bookies.registered(member))
                for member in members
            ]

    async def _together(
        self, works: Sequence[Coroutine[Any, Any, None]], wait_seconds: float
    ) -> None:
        """Run all of it and wait for it. What takes longer continues, for the next request."""
        left = len(works)
        if not left:
            return
        done = asyncio.Event()

        async def run(work: Coroutine[Any, Any, None]) -> None:
            nonlocal left
            try:
                await work
            finally:
                left -= 1
                if not left:
                    done.set()

        for work in works:
            _ = self._world.tasks.spawn(run(work), name="statistics")
        try:
            async with self._world.clock.timeout(wait_seconds):
                await done.wait()
        except TimeoutError:
            return  # answer without it


async def _read_oldest(subscription: Subscription) -> None:
    if subscription.reading_oldest:
        return
    subscription.reading_oldest = True
    try:
        await subscription.oldest_publish_ms()
    except PulsarishError:
        return  # the read for the consumers reports that it failed
    finally:
        subscription.reading_oldest = False


def _lacking(record: UnderReplicated) -> dict[str, Any]:
    return {
        "ledgerId": record.ledger_id,
        "missingMembers": list(record.missing_members),
        "belowPolicy": record.below_policy,
        "sinceMs": record.since_ms,
    }


def _sum(subscriptions: Mapping[str, Mapping[str, Any]], name: str) -> float:
    return round(float(sum(each[name] for each in subscriptions.values())), 3)
