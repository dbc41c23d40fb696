"""The dispatch task of a subscription: reads as the dispatcher plans it, and delivers the entries
to consumers.

It waits until a consumer has permits, the log has grown, or something is due. A read that fails is
retried after a wait. Consumers wait meanwhile, and the topic's statistics show the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pulsarish.broker.clients.commands import EndOfTopic
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.dispatchers.dispatcher import Dispatcher, DispatcherKind
from pulsarish.broker.dispatchers.factory import ReadyMaker
from pulsarish.broker.dispatchers.reads import Read, Reads, Ready, has_expired
from pulsarish.broker.policies.topic_limits import DispatchLimits, TopicLimits
from pulsarish.broker.subscriptions.delay_storage import DelayStorage
from pulsarish.model.errors import ChecksumError, PulsarishError
from pulsarish.model.policies import UNACKED_REDELIVERY
from pulsarish.runtime.containment import Scope
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

if TYPE_CHECKING:
    from pulsarish.broker.dispatchers.priority_window import PriorityWindow
    from pulsarish.broker.subscriptions.new_entries import NewEntries
    from pulsarish.broker.subscriptions.read_source import ReadSource
    from pulsarish.broker.subscriptions.subscription import Subscription
    from pulsarish.managed_ledger.cursors.cursor import Cursor
    from pulsarish.managed_ledger.log_reader import LogEntry
    from pulsarish.managed_ledger.readable_log import ReadableLog
    from pulsarish.model.position import Position

__all__ = ["DispatchLoop"]

_log = get_logger("broker.subscription")

# how often to look for unacknowledged messages in the time that the policy gives them
_LOOKS: Final = 8


def _may_be_acknowledged(cursor: Cursor, entries: Sequence[Ready]) -> bool:
    """Return whether some of these entries, or messages of them, are acknowledged already."""
    return cursor.mark_delete >= entries[0].position or (
        cursor.hole_count > 0
        and any(
            cursor.is_acknowledged(each.position) or cursor.ack_set(each.position) is not None
            for each in entries
        )
    )


async def _raising(error: Exception) -> None:
    raise error


class DispatchLoop:
    """Reads for a subscription and delivers to its consumers, while consumers are connected.

    The subscription sets ``woken`` when there may be something to do.
    """

    def __init__(
        self,
        subscription: Subscription,
        woken: asyncio.Event,
        log: ReadableLog,
        world: World,
        config: BrokerConfig,
        topic_limits: TopicLimits,
        scope: Scope,
    ) -> None:
        """``scope``: what ends when storing delayed entries, or reading ahead, fails for an unknown
        reason.
        """
        self._subscription = subscription
        self._woken = woken
        self._log = log
        self._world = world
        self._config = config
        self._topic_limits = topic_limits
        self._limits = topic_limits.dispatch_limits()
        self._making = ReadyMaker(subscription.type, subscription.cursor, topic_limits, world.clock)
        self._scope = scope
        self._delays = self._storage()
        self._ahead = log.read_ahead(
            world.tasks, config.managed_ledger_read_ahead_size_bytes, scope
        )
        self._is_running = False
        self._is_waiting = False  # the task has nothing to do
        self._task: asyncio.Task[None] | None = None
        # the task that lets a new active consumer begin after a delay
        self._handing_over: asyncio.Task[None] | None = None
        self.reads_begun = 0
        self.unacked_redelivered = 0
        """How many entries the policy for unacknowledged messages had delivered again."""
        self._look_at = 0.0  # when to look for them next (monotonic)

    def policies_changed(self) -> None:
        self._limits.policies_changed()

    def type_changed(self) -> None:
        subscription = self._subscription
        self._making = ReadyMaker(
            subscription.type, subscription.cursor, self._topic_limits, self._world.clock
        )
        self._delays.close()
        self._delays = self._storage()

    def _storage(self) -> DelayStorage:
        subscription = self._subscription
        cursor = subscription.cursor
        return DelayStorage(
            subscription,
            subscription.dispatcher.reads,
            lambda: cursor.mark_delete,
            cursor.delay_ledgers if subscription.type.is_spread else None,
            self._world,
            self._config,
            self._scope,
        )

    def close(self) -> None:
        """End what runs beside the task. The subscription is closed."""
        self._delays.close()
        self._ahead.close()

    def skipped(self) -> None:
        """Note that entries were skipped or expired: buckets of delayed ones may be used up."""
        self._delays.look(self._delays.now_ms)

    def start(self) -> None:
        """Start dispatching if it is not running."""
        if not self._is_running:
            self._is_running = True
            name = f"dispatch {self._subscription.topic} {self._subscription.name}"
            self._task = self._world.tasks.spawn(self._run(), name=name)

    @property
    def hand_over_ms(self) -> int:
        return self._config.active_consumer_failover_delay_time_millis

    @property
    def limits(self) -> DispatchLimits:
        return self._limits

    @property
    def reading_ms(self) -> int:
        """How long a read has been in flight, whatever the calendar did; 0: none is."""
        marks = self._subscription.marks
        if not marks.reading_since_ms:
            return 0
        return int((self._world.clock.monotonic() - marks.reading_since_seconds) * 1000)

    def restart(self) -> None:
        """Cancel what the task does or waits for, and start again.

        The dispatcher plans its read again.
        """
        if self._task is not None:
            self._task.cancel()
        if self._handing_over is not None:
            self._handing_over.cancel()
            self._handing_over = None
        self._is_running = False
        marks = self._subscription.marks
        marks.reading_since_ms = marks.retry_at_ms = marks.rate_since_ms = 0
        self.hand_over_later()
        if self._subscription.consumers and self._subscription.closed is None:
            self.start()
        self._woken.set()

    async def _run(self) -> None:
        subscription = self._subscription
        while subscription.consumers and subscription.closed is None:
            await self._wait_for_work()
            self._woken.clear()
            if not self._delays.is_ready:
                self._note_reading()
                await self._delays.prepare()
                subscription.marks.reading_since_ms = 0
                self._woken.set()
                continue
            self._redeliver_unacked()
            await self._dispatch(subscription.dispatcher)
        self._is_running = False

    def _note_reading(self) -> None:
        marks, clock = self._subscription.marks, self._world.clock
        marks.reading_since_ms, marks.reading_since_seconds = clock.wall_ms(), clock.monotonic()

    async def _wait_for_work(self) -> None:
        wait_seconds = self._making.wait_seconds(self._subscription.dispatcher)
        if self._topic_limits.policies[UNACKED_REDELIVERY]:
            look_seconds = max(self._look_at - self._world.clock.monotonic(), 0.0)
            wait_seconds = min(look_seconds, look_seconds if wait_seconds is None else wait_seconds)
        self._is_waiting = True
        try:
            if wait_seconds is None:
                await self._woken.wait()
                return
            with suppress(TimeoutError):  # something has come due
                async with self._world.clock.timeout(wait_seconds):
                    await self._woken.wait()
        finally:
            self._is_waiting = False

    @property
    def waits_for_acks(self) -> bool:
        """Whether the task may have something to do after the next acknowledgement.

        Not when it waits and there is one active consumer: what it waits for then is permits or
        new entries, unless there are too many acknowledged ranges.
        """
        subscription = self._subscription
        return (
            not self._is_waiting
            or subscription.dispatcher.kind is not DispatcherKind.SINGLE_ACTIVE
            or subscription.cursor.blocked
            or subscription.source.is_compacted
        )

    def waits_at(self, position: Position) -> bool:
        """Return whether consumers have got everything before ``position``, and nothing else is to
        be done for them.
        """
        return (
            self._is_waiting
            and self._delays.is_ready
            and self._subscription.dispatcher.reads.waits_at(position)
        )

    def deliver_new(self, new: NewEntries) -> bool:
        """Deliver entries that were just confirmed, without the task, where ``waits_at`` holds.

        Return ``False`` when the task has to look.
        """
        try:
            return self._deliver_new(new)
        except Exception as error:  # noqa: BLE001
            # Whatever it is: it ends this subscription, and no other one.
            _ = self._world.tasks.spawn(
                _raising(error),
                name=f"dispatch {self._subscription.topic} {self._subscription.name}",
            )
            return True

    def _deliver_new(self, new: NewEntries) -> bool:
        subscription = self._subscription
        dispatcher = subscription.dispatcher
        try:
            ready = new.ready(hashes_keys=dispatcher.kind is DispatcherKind.KEY_SHARED)
        except ChecksumError:
            return False  # the task tells it as a read that failed
        if (
            not ready
            or not dispatcher.wants_new
            or subscription.cursor.blocked
            or subscription.source.is_compacted
            or subscription.filter is not None
            or not self._limits.is_unlimited
            or _may_be_acknowledged(subscription.cursor, ready)
        ):
            return False
        dispatcher.reads.came(ready)
        dispatcher.deliver()
        return new.is_whole

    def _redeliver_unacked(self) -> None:
        """If a policy says so, redeliver what consumers have not acknowledged for too long, and
        what should have been with a consumer for that long.
        """
        seconds = self._topic_limits.policies[UNACKED_REDELIVERY]
        now = self._world.clock.monotonic()
        if not seconds or now < self._look_at:
            return
        self._look_at = now + seconds / _LOOKS
        subscription = self._subscription
        dispatcher, cursor = subscription.dispatcher, subscription.cursor
        redelivered = dispatcher.redeliver_unacked(now, seconds)
        forgotten = dispatcher.redeliver_forgotten(now, seconds, cursor.holes)
        self.unacked_redelivered += redelivered + forgotten
        if forgotten:
            _log.error(
                "entries that no consumer had and nothing delivered are delivered again",
                topic=subscription.topic,
                subscription=subscription.name,
                entries=forgotten,
                seconds=seconds,
            )
        if redelivered:
            _log.info(
                "entries that consumers had for too long are delivered again",
                topic=subscription.topic,
                subscription=subscription.name,
                entries=redelivered,
                seconds=seconds,
            )

    async def _dispatch(self, dispatcher: Dispatcher) -> None:
        subscription, log, reads = self._subscription, self._log, dispatcher.reads
        cursor, marks = subscription.cursor, subscription.marks
        while subscription.closed is None:
            self._deliver(dispatcher)
            wait_seconds, entries_max, bytes_max = self._limits.allowed()
            if wait_seconds:
                now_ms = self._world.clock.wall_ms()
                marks.rate_since_ms, marks.rate_until_ms = (
                    marks.rate_since_ms or now_ms,
                    now_ms + int(wait_seconds * 1000),
                )
                await self._world.clock.sleep(wait_seconds)
                continue
            marks.rate_since_ms = 0
            self._making.release(dispatcher)
            if self._delays.is_active:
                self._delays.look(self._making.now_ms)
            source = subscription.source
            end = source.end()
            read = dispatcher.plan(end, blocked=cursor.blocked)
            if read is None:
                break
            self._note_reading()
            self.reads_begun += 1
            try:
                entries = await self._read(source, read, reads.window, entries_max, bytes_max)
                self._read_ahead(read, entries)
                ready = source.completed([self._making.make(entry) for entry in entries])
            except PulsarishError as error:
                if not reads.failure:
                    _log.warning(
                        "read failed",
                        topic=subscription.topic,
                        subscription=subscription.name,
                        position=read.start,
                        reason=error,
                    )
                now_ms = self._world.clock.wall_ms()
                wait_seconds = reads.failed(read, f"{type(error).__name__}: {error}", now_ms)
                marks.reading_since_ms, marks.retry_at_ms = 0, now_ms + int(wait_seconds * 1000)
                await self._world.clock.sleep(wait_seconds)
                continue
            if marks.retry_at_ms:
                marks.retry_at_ms = 0
                _log.info(
                    "reads work again",
                    topic=subscription.topic,
                    subscription=subscription.name,
                    position=read.start,
                )
            if log.has_own_times(entries):
                ready = self._sort_out_expired(reads, ready)
            if subscription.filter is None or read.priority is not None:
                messages = sum(entry.messages for entry in ready)
                size_bytes = sum(len(entry.payload) for entry in ready)
            else:
                ready, messages, size_bytes = await subscription.filter.sort_out(
                    dispatcher, read, ready
                )
            marks.reading_since_ms = 0
            reads.succeeded(read, ready, end)
            if messages:
                self._limits.note_read(len(ready), messages)
            self._count_read(read, reads, messages, size_bytes)
        if (
            log.terminated
            and reads.at_end(subscription.source.end())
            and not dispatcher.waiting_count
            and not reads.delayed
        ):
            for consumer in dispatcher.consumers:
                if not consumer.ended:
                    consumer.ended = True
                    consumer.outlet.put(EndOfTopic(consumer.consumer_id))

    async def _read(
        self,
        source: ReadSource,
        read: Read,
        window: PriorityWindow[Ready] | None,
        entries_max: int,
        bytes_max: int,
    ) -> list[LogEntry]:
        """Carry out a read. Rates allow ``entries_max`` and ``bytes_max`` to be delivered."""
        if window is not None and read.priority is None:
            # It only looks what there is. Rates count what is delivered. A look-ahead takes many
            # reads, and the cache answers at once: the event loop gets its turn between them.
            await self._world.clock.sleep(0)
            entries_max, bytes_max = read.entries_max, self._config.dispatcher_max_read_size_bytes
        return await source.read(
            read.start, max_entries=min(read.entries_max, entries_max), max_bytes=bytes_max
        )

    def _count_read(self, read: Read, reads: Reads, messages: int, size_bytes: int) -> None:
        """Count for the rates what a read has brought for delivery."""
        window = reads.window
        if window is None:
            if messages:
                self._limits.take(messages, size_bytes)
        elif read.priority is None and not self._limits.is_unlimited:
            # It has only looked what there is. What is delivered is read when rates allow it.
            window.forget_payloads()

    def _read_ahead(self, read: Read, entries: Sequence[LogEntry]) -> None:
        if not read.again and not self._subscription.source.is_compacted:
            self._ahead.follow(read.start, entries)

    def _deliver(self, dispatcher: Dispatcher) -> None:
        """Deliver what is ready, but nothing that has expired since it was read."""
        first_ms = dispatcher.reads.first_expiry_ms
        if first_ms and (now_ms := self._world.clock.wall_ms()) >= first_ms:
            self._subscription.acknowledge_expired(dispatcher.take_expired(now_ms))
        if dispatcher.reads.window is None:
            dispatcher.deliver()
            return
        # Entries may be read more than once, so they count when they are delivered.
        out = self._subscription.out
        messages, size_bytes = out.messages, out.size_bytes
        dispatcher.deliver()
        if out.messages > messages:
            self._limits.take(out.messages - messages, out.size_bytes - size_bytes)

    def _sort_out_expired(self, reads: Reads, entries: Sequence[Ready]) -> list[Ready]:
        """Return entries that were read with their expiry times. Those that have expired are
        acknowledged, and so count as delivered.
        """
        dated = self._making.with_expiry(entries)
        now_ms = self._world.clock.wall_ms()
        expired = [each.position for each in dated if has_expired(each, now_ms)]
        if expired:
            self._subscription.acknowledge_expired(expired)
        for each in dated:
            if each.expires_ms > now_ms:
                reads.note_expiry(each.expires_ms)
        return dated

    def hand_over_later(self) -> None:
        """If another consumer has become the active one, let it begin after the failover delay."""
        dispatcher = self._subscription.dispatcher
        if dispatcher.handing_over and self._handing_over is None:
            self._subscription.marks.handing_over_since_ms = self._world.clock.wall_ms()
            name = f"hand over {self._subscription.topic} {self._subscription.name}"
            self._handing_over = self._world.tasks.spawn(self._hand_over(), name=name)

    async def _hand_over(self) -> None:
        await self._world.clock.sleep(
            self._config.active_consumer_failover_delay_time_millis / 1000
        )
        self._handing_over = None
        self._subscription.marks.handing_over_since_ms = 0
        # The type may have changed and changed back in the meantime.
        dispatcher = self._subscription.dispatcher
        if dispatcher.handing_over:
            dispatcher.hand_over()
            self._woken.set()
