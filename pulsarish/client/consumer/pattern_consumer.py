"""A consumer of all topics of a namespace that match a pattern, also of those that come later.

A broker answers when the list of topics changes. ``PatternTopics`` compares the list with what is
open. A topic that comes after the first list is read from its first message, whatever the initial
position is: it was created after the consumer, so all of it is new to the subscription. The same
holds for a topic that was deleted and created again.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final, Self

from pulsarish.client.connection.ack_tracker import Done
from pulsarish.client.connection.context import ClientContext, retrying
from pulsarish.client.connection.lookup import TopicList
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.consumer.multi_consumer import MultiConsumer
from pulsarish.client.consumer.pattern_topics import PatternTopics
from pulsarish.client.consumer.topic_consumer import TopicConsumer
from pulsarish.client.consumer.writer_schemas import WriterSchemas
from pulsarish.client.enums import InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.model.errors import (
    AlreadyClosed,
    InvalidArgument,
    NotAllowedError,
    PulsarishError,
    TopicNotFound,
    UnknownError,
)
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.backoff import Backoff
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger

__all__ = ["PatternConsumer"]

_log = get_logger("client.consumer")

_WAIT_SECONDS: Final = 10.0
"""A call that lists topics waits this long for a change."""
_PAUSE_SECONDS: Final = 0.1
"""Between two such calls."""
_FAILED_SECONDS_MAX: Final = 1.0
_REFUSED_SECONDS_MAX: Final = 30.0
_OPENING_MAX: Final = 100
"""Topics that are opened at a time."""


class _TopicLeft(TopicNotFound):
    """A message's topic is not among those of the consumer now."""

    code = TopicNotFound.code


class PatternConsumer(MultiConsumer):
    """Opened by ``open``."""

    def __init__(
        self, options: ConsumerOptions[Any], parts: ClientContext, inbox: MessageQueue
    ) -> None:
        super().__init__(options, parts, inbox, [])
        found = options.filter
        assert found is not None
        self._filter = found
        self._writers = WriterSchemas(options.schema, parts, inbox)
        self._topics = PatternTopics()
        self._lists: dict[bool, TopicList] = {}
        self._changed = asyncio.Event()
        self._may_open = asyncio.Semaphore(_OPENING_MAX)
        self._following: list[asyncio.Task[None]] = []
        self._is_closing = False

    @classmethod
    async def open(cls, options: ConsumerOptions[Any], parts: ClientContext) -> Self:
        """Subscribe on every topic that matches now, and follow the list.

        Raises the broker's refusal; then no topic stays subscribed.
        """
        if options.receiver_queue_size == 0:
            raise InvalidArgument(
                "receiver_queue_size is 0, which works on one topic without partitions only: "
                "make it 1 or more"
            )
        consumer = cls(options, parts, MessageQueue(parts.handoff.lock()))
        try:
            await consumer._start()
        except BaseException as error:
            consumer.shutdown(
                error
                if isinstance(error, PulsarishError)
                else AlreadyClosed("the consumer was not opened")
            )
            raise
        return consumer

    async def _start(self) -> None:
        for persistent, is_listed in (
            (True, self._filter.persistent),
            (False, self._filter.non_persistent),
        ):
            if is_listed:
                what = f"listing the topics of {self.topic}"
                await retrying(self._parts, what, partial(self._list, persistent=persistent))
        opens = self._topics.plan(self._now()).opens
        await asyncio.gather(*(self._open_first(name) for name in opens))
        self._follow()

    async def _open_first(self, name: str) -> None:
        try:
            await self._open_topic(name)
        except TopicNotFound as error:
            _log.debug("topic is gone before it was open", topic=name, reason=error)

    # The list.

    def _follow(self) -> None:
        tasks, clock = self._parts.tasks, self._parts.clock
        run = partial(run_in_background, tasks, clock)
        self._following = [run(f"topics of {self.topic}", self._keep_open)]
        if self.options.discovery_seconds:
            self._following += [
                run(f"list of {self.topic}", partial(self._keep_listed, persistent=persistent))
                for persistent in self._lists
            ]

    async def _list(self, *, persistent: bool, wait_seconds: float = 0.0) -> None:
        known = self._lists.get(persistent)
        found = await self._parts.lookup.topics(
            self._filter.namespace,
            self._filter.pattern,
            persistent=persistent,
            known=known,
            wait_seconds=wait_seconds,
        )
        if found is not known:
            self._lists[persistent] = found
            self._topics.listed(found.names, persistent=persistent)
            self._changed.set()

    async def _keep_listed(self, *, persistent: bool) -> None:
        """Read the list when it changes, and once in a discovery period in any case.

        Brokers report no changes of non-persistent topics.
        """
        clock, period = self._parts.clock, self.options.discovery_seconds
        failed = Backoff(_PAUSE_SECONDS, _FAILED_SECONDS_MAX, jitter=self._parts.random)
        refused = Backoff(_FAILED_SECONDS_MAX, _REFUSED_SECONDS_MAX, jitter=self._parts.random)
        is_failing = False
        whole_at = clock.monotonic() + period
        while True:
            left = whole_at - clock.monotonic()
            if not persistent and left > 0:
                await clock.sleep(left)
                left = 0.0
            try:
                wait_seconds = min(max(left, 0.0), _WAIT_SECONDS)
                await self._list(persistent=persistent, wait_seconds=wait_seconds)
            except PulsarishError as error:
                if not is_failing:
                    _log.warning("topics not listed", pattern=self.topic, reason=error)
                is_failing = True
                await clock.sleep((failed if error.retryable else refused).next_seconds())
                continue
            is_failing = False
            failed.reset()
            refused.reset()
            if left <= 0:
                whole_at = clock.monotonic() + period
            await clock.sleep(_PAUSE_SECONDS)

    # The topics.

    async def _keep_open(self) -> None:
        """Open the topics that came, close those that left, and open again what has ended."""
        clock = self._parts.clock
        while True:
            self._changed.clear()
            plan = self._topics.plan(clock.monotonic())
            for name in plan.closes:
                self._leave(name)
            for name in plan.opens:
                _ = self._parts.tasks.spawn(self._open_found(name), name=f"found {name}")
            due = self._topics.next_due()
            try:
                async with clock.timeout(None if due is None else due - clock.monotonic()):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _open_found(self, name: str) -> None:
        try:
            await self._open_topic(name)
        except PulsarishError as error:
            _log.debug("topic of a pattern not open", topic=name, reason=error)

    async def _open_topic(self, name: str) -> None:
        """Subscribe on a topic. Raises the broker's refusal, or ``Timeout``."""
        async with self._may_open:
            if self._is_closing or name in self._by_topic or not self._topics.is_begun(name):
                return
            options = self.options.of_found_topic()
            if self._topics.is_new(name):
                options.initial_position = InitialPosition.Earliest
            child = self._add(TopicName.parse(name), options)
            try:
                await child.session.open()
            except BaseException as error:
                self._ended(
                    child,
                    error if isinstance(error, PulsarishError) else UnknownError(repr(error)),
                )
                raise
            self._topics.opened(name)
            # Without its subscription, the topic that is opened next by this name is a new one.
            options.initial_position = InitialPosition.Earliest

    def _add(self, name: TopicName, options: ConsumerOptions[Any]) -> TopicConsumer:
        count = max(1, len(self._topics.wanted))
        child = TopicConsumer(
            name,
            options,
            self._parts,
            self.inbox,
            self._writers,
            queue_size=max(
                1, min(options.receiver_queue_size, options.receiver_queue_total // count)
            ),
            partition=name.partition,
            ended=self._ended,
        )
        self._by_topic[name.full] = child
        self.children.append(child)
        with self.inbox.lock:
            self.inbox.sources.append(child)
        return child

    def _remove(self, child: TopicConsumer) -> bool:
        """Forget a topic consumer. Return whether it was known."""
        if self._by_topic.get(child.topic.full) is not child:
            return False
        del self._by_topic[child.topic.full]
        self.children.remove(child)
        self._count_ended(child)
        with self.inbox.lock:
            self.inbox.sources.remove(child)
        return True

    def _ended(self, child: TopicConsumer, error: PulsarishError) -> None:
        """Note that a topic consumer has ended: its topic was deleted, or it was refused."""
        if self._is_closing or not self._remove(child):
            return
        is_deleted = isinstance(error, TopicNotFound)
        is_first = self._topics.ended(child.topic.full, self._now(), is_deleted=is_deleted)
        if is_first and self._following and not is_deleted:
            _log.warning("topic of a pattern not open", topic=child.topic, reason=error)
        self._changed.set()

    def _leave(self, name: str) -> None:
        """Close a topic that is no longer listed."""
        self._topics.ended(name, self._now())
        child = self._by_topic.get(name)
        if child is not None:
            self._remove(child)
            _ = self._parts.tasks.spawn(child.close(), name=f"left {name}")

    def _now(self) -> float:
        return self._parts.clock.monotonic()

    # Calls of the program.

    @property
    def topic(self) -> str:
        return self._filter.text

    def _child(self, message_id: MessageId) -> TopicConsumer:
        name = message_id.topic_name()
        if not name:
            raise InvalidArgument(
                f"message id {message_id} does not say of which topic it is: pass the message"
            )
        child = self._by_topic.get(name)
        if child is None:
            raise _TopicLeft(f"the consumer of {self.topic} does not have the topic {name} now")
        return child

    def acknowledge(self, what: object, done: Done | None) -> None:
        """Acknowledge as ``MultiConsumer``.

        Messages of a topic that was deleted need no acknowledgement. Those of one that was refused
        and is listed come again: for them ``done`` gets an error.
        """
        while True:
            try:
                super().acknowledge(what, done)
            except _TopicLeft as error:
                what, done = self._of_present(what, done, error)
            else:
                return

    def acknowledge_cumulative(self, what: object, done: Done | None) -> None:
        try:
            super().acknowledge_cumulative(what, done)
        except _TopicLeft as error:
            self.acknowledge(*self._of_present(what, done, error))

    def _of_present(
        self, what: object, done: Done | None, error: _TopicLeft
    ) -> tuple[object, Done | None]:
        """Return what can be acknowledged, and what is called with the outcome of all."""
        items: Any = what if isinstance(what, (list, tuple)) else [what]
        here: list[object] = []
        left: list[str] = []
        for item in items:
            name = item.topic_name()  # a message or its id: others were refused before
            if name in self._by_topic:
                here.append(item)
            else:
                left.append(name)
        if done is None or not any(map(self._topics.is_refused, left)):
            return here, done
        whole = done
        return here, lambda failure: whole(failure or error)

    def negative_acknowledge(self, what: object) -> None:
        try:
            super().negative_acknowledge(what)
        except _TopicLeft as error:
            _log.debug("not refused", reason=error)

    def ack_extend(self, what: object) -> None:
        try:
            super().ack_extend(what)
        except _TopicLeft as error:
            _log.debug("not extended", reason=error)

    async def last_message_id(self) -> MessageId:
        self.check_open()
        raise NotAllowedError(
            "get_last_message_id needs a single topic: subscribe to one topic to ask for its last "
            "message"
        )

    async def unsubscribe(self, *, force: bool = False) -> None:
        self.check_open()
        self._stop_following()
        try:
            await super().unsubscribe(force=force)
        except BaseException:
            if not self._is_closing:
                self._follow()
            raise

    def _stop_following(self) -> None:
        for task in self._following:
            task.cancel()
        self._following = []

    async def close(self) -> None:
        self._end_following()
        await super().close()
        self.inbox.fail(AlreadyClosed(f"consumer on {self.topic} was closed: subscribe again"))

    def shutdown(self, error: PulsarishError) -> None:
        self._end_following()
        super().shutdown(error)
        self.inbox.fail(error)

    def _end_following(self) -> None:
        self._is_closing = True
        self._stop_following()
