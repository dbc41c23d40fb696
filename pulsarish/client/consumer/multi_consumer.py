"""A consumer of one or several topics and all their partitions, as the blocking and the asyncio API
use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import Any, Final

from pulsarish.client.checks import check_flag, check_mapping, check_number, check_type, shown
from pulsarish.client.connection.ack_tracker import Done
from pulsarish.client.connection.context import ClientContext, retrying
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.consumer.topic_consumer import TopicConsumer
from pulsarish.client.consumer.writer_schemas import WriterSchemas
from pulsarish.client.errors import CumulativeAcknowledgementNotAllowedError, InvalidType
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.message import Message
from pulsarish.client.stats import ConsumerStats
from pulsarish.model.errors import (
    AlreadyClosed,
    InvalidArgument,
    InvalidConfiguration,
    NotAllowedError,
    OperationNotSupported,
    PulsarishError,
    SchemaNotFound,
)
from pulsarish.model.schema import Schema
from pulsarish.model.topic_name import TopicName

__all__ = ["MultiConsumer"]

_DELAY_MS_MAX: Final = 100 * 365 * 24 * 3_600_000
"""A hundred years: the time of delivery stays within what the brokers count in."""


class MultiConsumer:
    """Opened by ``open``.

    ``acknowledge*`` and ``negative_acknowledge`` may be called from any thread; coroutines run in
    the loop.
    """

    def __init__(
        self,
        options: ConsumerOptions[Any],
        parts: ClientContext,
        inbox: MessageQueue,
        children: list[TopicConsumer],
    ) -> None:
        self.options = options
        self.inbox = inbox
        self.children = children
        self._parts = parts
        # Of topics that are consumed no more.
        self._ended_acknowledged = 0
        self._ended_refused = 0
        self._by_topic = {child.topic.full: child for child in children}
        self._topics_or_none = (*self._by_topic, "")
        # by partition only where the partition identifies the topic
        self._by_partition = (
            {child.partition: child for child in children} if len(options.topics) == 1 else {}
        )

    @classmethod
    async def open(cls, options: ConsumerOptions[Any], parts: ClientContext) -> MultiConsumer:
        """Subscribe on every partition of every topic.

        Raises the broker's refusal; then nothing stays subscribed.
        """
        if not options.consumer_name and options.start is None:
            # In the order of time, as consumers of a Failover subscription are by their names.
            made = parts.random.getrandbits(32)
            options.consumer_name = f"{parts.clock.wall_ms():x}-{made:08x}"
        topics: list[tuple[TopicName, int]] = []
        for name in options.topics:
            topics += await _partitions(name, parts)
        if len(topics) > 1:
            _check_partitioned_reader(options)
        inbox = MessageQueue(parts.handoff.lock())
        size = options.receiver_queue_size
        if len(topics) > 1:
            if size == 0:
                raise InvalidConfiguration(
                    "receiver_queue_size is 0, which works on one topic without partitions only: "
                    "make it 1 or more"
                )
            size = max(1, min(size, options.receiver_queue_total // len(topics)))
        writers = WriterSchemas(options.schema, parts, inbox)
        children = [
            TopicConsumer(name, options, parts, inbox, writers, queue_size=size, partition=index)
            for name, index in topics
        ]
        inbox.sources = list(children)
        consumer = cls(options, parts, inbox, children)
        try:
            await asyncio.gather(*(child.session.open() for child in children))
            if options.start == MessageId.latest and options.start_inclusive:
                await consumer._start_at_last()
        except BaseException as error:
            reason = (
                error
                if isinstance(error, PulsarishError)
                else AlreadyClosed("the consumer was not opened")
            )
            consumer.shutdown(reason)
            raise
        return consumer

    async def _start_at_last(self) -> None:
        """Have a reader begin with the last message of each partition that has one."""
        for child in self.children:
            if child.topic.persistent:
                last, _ = await child.seeker.last_message_id()
                if last.entry_id() >= 0:
                    await child.seeker.seek(last)

    # Acknowledgements.

    def _child(self, message_id: MessageId) -> TopicConsumer:
        if len(self.children) == 1:
            child = self.children[0]
            # An id that was stored, rather than received, does not name its topic.
            if message_id.topic_name() not in self._topics_or_none:
                raise InvalidArgument(
                    f"message id {message_id} is of topic {message_id.topic_name()}, and this "
                    f"consumer is on {child.topic}"
                )
            return child
        found = self._by_topic.get(message_id.topic_name()) or self._by_partition.get(
            message_id.partition()
        )
        if found is None:
            raise InvalidArgument(
                f"message id {message_id} does not say of which topic it is: pass the message"
            )
        return found

    def own_id(self, what: object) -> MessageId:
        """Return the id of a message of this consumer. Raises ``InvalidArgument`` for others."""
        message_id = _id_of(what)
        self._child(message_id)
        return message_id

    def check_open(self) -> None:
        """Raise why no more messages come, if so."""
        self.inbox.check_open()

    def acknowledge(self, what: object, done: Done | None) -> None:
        """Acknowledge a message, its id, or a list of them.

        ``done`` is called in the loop when all are durable.

        Raises ``InvalidArgument`` or ``AlreadyClosed``.
        """
        self.check_open()
        if type(what) is Message and done is None:
            child = self._by_topic.get(what.topic_name()) or self._child(what.message_id())
            child.acks.acknowledge_soon(what)
            return
        if not isinstance(what, (list, tuple)):
            message_id = _id_of(what)
            self._child(message_id).acks.acknowledge((message_id,), done)
            return
        if not what:
            if done is not None:
                self._parts.handoff.post(partial(done, None))
            return
        if set(map(type, what)) == {Message}:
            messages = self._by_child(what)
            done = _after(len(messages), done)
            for child, batch in messages.items():
                child.acks.acknowledge_messages(batch, done)
            return
        ids: dict[TopicConsumer, list[MessageId]] = {}
        for item in what:
            message_id = _id_of(item)
            ids.setdefault(self._child(message_id), []).append(message_id)
        done = _after(len(ids), done)
        for child, group in ids.items():
            child.acks.acknowledge(group, done)

    def _by_child(self, messages: Sequence[Message]) -> dict[TopicConsumer, list[Message]]:
        found: dict[TopicConsumer, list[Message]] = {}
        for topic, run in groupby(messages, Message.topic_name):
            of_topic = list(run)
            child = self._by_topic.get(topic) or self._child(of_topic[0].message_id())
            found.setdefault(child, []).extend(of_topic)
        return found

    def acknowledge_cumulative(self, what: object, done: Done | None) -> None:
        """Acknowledge up to and including a message.

        Raises ``CumulativeAcknowledgementNotAllowedError`` on a shared subscription.
        """
        self.check_open()
        if self.options.consumer_type.is_spread:
            raise CumulativeAcknowledgementNotAllowedError(
                "cumulative acknowledgement is not possible on a "
                f"{self.options.consumer_type.name} subscription:"
                " acknowledge each message, or use ConsumerType.Exclusive or Failover"
            )
        message_id = _id_of(what)
        self._child(message_id).acks.acknowledge_cumulative(message_id, done)

    def negative_acknowledge(self, what: object) -> None:
        self.check_open()
        message_id = _id_of(what)
        self._child(message_id).acks.negative_acknowledge(
            message_id, what.redelivery_count() if isinstance(what, Message) else 0
        )

    def ack_extend(self, what: object) -> None:
        self.check_open()
        message_id = _id_of(what)
        self._child(message_id).acks.extend(message_id)

    async def reconsume_later(
        self, message: object, delay: object, properties: Mapping[str, str] | None
    ) -> None:
        """Store a copy of a message that comes after ``delay``, a ``timedelta``. The caller then
        acknowledges the message.

        Raises ``InvalidArgument``, ``NotAllowedError``, or why the copy was not stored.
        """
        self.check_open()
        check_type("message", message, Message, "a Message that was received")
        check_type("delay", delay, timedelta, "a datetime.timedelta")
        assert isinstance(message, Message)
        assert isinstance(delay, timedelta)
        delay_ms = delay // timedelta(milliseconds=1)
        if not 0 <= delay_ms <= _DELAY_MS_MAX:
            raise InvalidArgument(
                f"delay is {delay}: it must be 0 or more, and at most {_DELAY_MS_MAX} ms"
            )
        added = check_mapping("properties", properties)
        if self.options.retry_topic is None:
            raise NotAllowedError(
                "reconsume_later needs a retry letter topic: subscribe with retry_enabled=True"
            )
        acks = self._child(message.message_id()).acks
        await acks.reconsume_later(message, delay_ms, added)

    # Questions of the program.

    @property
    def is_closed(self) -> bool:
        return self.inbox.failure is not None

    @property
    def is_connected(self) -> bool:
        return all(child.session.is_open for child in self.children)

    @property
    def subscribed_count(self) -> int:
        return sum(child.session.subscribed_count for child in self.children)

    def stats(self) -> ConsumerStats:
        """Return the sums of all topics; may be called from any thread."""
        inbox, options = self.inbox, self.options
        with inbox.lock:
            children = list(self.children)
            unacked = [child.acks.unacked for child in children]
            return ConsumerStats(
                self.topic,
                options.subscription_name if options.start is None else "",
                options.consumer_name,
                inbox.taken_count,
                inbox.opened_bytes,
                inbox.redelivered_count,
                self._ended_acknowledged + sum(each.acknowledged_count for each in unacked),
                self._ended_refused + sum(each.refused_count for each in unacked),
                len(inbox.ready) + sum(child.waiting_count() for child in children),
            )

    def _count_ended(self, child: TopicConsumer) -> None:
        """Keep the counts of a topic that is consumed no more."""
        self._ended_acknowledged += child.acks.unacked.acknowledged_count
        self._ended_refused += child.acks.unacked.refused_count

    @property
    def topic(self) -> str:
        return ",".join(name.full for name in self.options.topics)

    def redeliver_unacknowledged(self) -> None:
        """Request redelivery, in the loop.

        A topic consumer that was closed in the meantime is skipped.
        """
        for child in list(self.children):
            child.redeliverer.redeliver_all()

    async def seek(self, position: MessageId | int) -> None:
        """Seek to a ``MessageId``, or to a time in milliseconds since the epoch."""
        self.check_open()
        if isinstance(position, MessageId):
            if position not in (MessageId.earliest, MessageId.latest):
                await self._child(position).seeker.seek(position)
                return
        else:
            check_type(
                "messageid", position, int, "a MessageId or a publish time in ms since the epoch"
            )
            check_number("messageid", position, 0)
        await asyncio.gather(*(child.seeker.seek(position) for child in self.children))

    async def last_message_id(self) -> MessageId:
        self.check_open()
        if len(self.children) > 1:
            raise OperationNotSupported(
                "get_last_message_id needs a single topic: subscribe to one partition to ask for "
                "its last message"
            )
        return (await self.children[0].seeker.last_message_id())[0]

    async def newest_schema(self, topic: str) -> Schema | None:
        """Return the newest schema of a topic; ``None`` when it has none."""
        try:
            return await retrying(
                self._parts, f"schema of {topic}", lambda: self._parts.lookup.schema(topic, b"")
            )
        except SchemaNotFound:
            return None

    async def has_message_available(self) -> bool:
        """Whether a reader has a message that it has not read."""
        self.check_open()
        if self.inbox.has_message():
            return True
        for child in self.children:
            if await _has_more(child):
                return True
        return self.inbox.has_message()

    async def unsubscribe(self, *, force: bool = False) -> None:
        self.check_open()
        check_flag("force", force)
        await asyncio.gather(*(child.session.unsubscribe(force=force) for child in self.children))
        await self.close()

    async def close(self) -> None:
        await asyncio.gather(*(child.close() for child in self.children))

    def shutdown(self, error: PulsarishError) -> None:
        for child in list(self.children):
            child.shutdown(error)


def _check_partitioned_reader(options: ConsumerOptions[Any]) -> None:
    if options.start in (None, MessageId.earliest, MessageId.latest):
        if not options.checkpoint_topic and not options.replica:
            return
        raise OperationNotSupported(
            "checkpoint_topic and replica are not supported for readers of partitioned topics: "
            f"read the partitions of {options.topics[0]}"
        )
    raise NotAllowedError(
        f"start_message_id {options.start} is a place in one partition: begin with "
        f"MessageId.earliest or latest, or read that partition of {options.topics[0]}"
    )


async def _has_more(child: TopicConsumer) -> bool:
    """Return whether a reader's topic has a message after its position."""
    last, _ = await child.seeker.last_message_id()
    if last.entry_id() < 0:
        return False
    position, inclusive = child.seeker.reader_position()
    if position == MessageId.earliest:
        return True
    if (last.ledger_id(), last.entry_id()) != (position.ledger_id(), position.entry_id()):
        return (last.ledger_id(), last.entry_id()) > (position.ledger_id(), position.entry_id())
    return inclusive or 0 <= position.batch_index() < last.batch_index()


async def _partitions(name: TopicName, parts: ClientContext) -> Sequence[tuple[TopicName, int]]:
    if name.partition >= 0:
        return [(name, name.partition)]
    count = await retrying(parts, f"lookup of {name}", lambda: parts.lookup.partitions(name.full))
    return (
        [(name.with_partition(index), index) for index in range(count)] if count else [(name, -1)]
    )


def _id_of(what: Any) -> MessageId:
    if isinstance(what, Message):
        return what.message_id()
    if not isinstance(what, MessageId):
        raise InvalidType(
            f"message is {shown(what)} of type {type(what).__name__}: pass a Message or a "
            "MessageId that was received"
        )
    if what.ledger_id() < 0 or what.entry_id() < 0 or what == MessageId.latest:
        raise InvalidArgument(
            f"message is {what!r}, which stands for no message: pass one that was received, or "
            "its id"
        )
    return what


def _after(count: int, done: Done | None) -> Done | None:
    """Return a callback that calls ``done`` once after ``count`` calls, with the first error."""
    if done is None:
        return None
    left = count
    failure: BaseException | None = None

    def one(error: BaseException | None) -> None:
        nonlocal left, failure
        left -= 1
        failure = failure or error
        if left == 0:
            done(failure)

    return one
