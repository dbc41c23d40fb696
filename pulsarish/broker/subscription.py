"""A subscription of a loaded topic: its cursor, its connected consumers, and the task that reads for them.

Acknowledgements go to the cursor at once; a receipt is answered when the cursor has made them durable, all that wait by one write
(rule 16). A read that fails is repeated by the dispatcher's plan; consumers wait meanwhile and see why in the topic's statistics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, assert_never

from pulsarish.broker.commands import Acknowledge, ConsumerClosed, EndOfTopic, Outcome, SubscriptionType
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.consumer import Consumer
from pulsarish.broker.dispatchers.reads import ReadLimits, Ready
from pulsarish.broker.dispatchers.shared import SharedDispatcher
from pulsarish.broker.dispatchers.single_active import SingleActiveDispatcher
from pulsarish.broker.rates import Meter
from pulsarish.model.errors import (
    ConsumerBusy,
    InvalidArgument,
    InvalidPosition,
    NotAllowed,
    PulsarishError,
    ServiceNotReady,
    UnsupportedFeature,
)
from pulsarish.model.position import LATEST, Position
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World
from pulsarish.wire.entry import parse_metadata

if TYPE_CHECKING:
    from pulsarish.managed_ledger.cursor import Cursor
    from pulsarish.managed_ledger.log_reader import LogEntry
    from pulsarish.managed_ledger.managed_ledger import ManagedLedger

__all__ = ["Subscription"]

_log = get_logger("broker.subscription")

Dispatcher = SingleActiveDispatcher | SharedDispatcher


class Subscription:
    """Made by its topic around an open cursor."""

    def __init__(
        self, name: str, topic: str, partition: int, log: ManagedLedger, cursor: Cursor, world: World, config: BrokerConfig
    ) -> None:
        self.name = name
        self.topic = topic
        self.cursor = cursor
        self.type = SubscriptionType.EXCLUSIVE
        self.closed: PulsarishError | None = None
        self.out = Meter(world.clock.monotonic())
        self._partition = partition
        self._log = log
        self._world = world
        self._config = config
        self._dispatcher: Dispatcher = self._make_dispatcher(self.type)
        self._wake = asyncio.Event()
        self._pumping = False
        self._joined = 0
        self._ack_waiters: list[tuple[Consumer, int]] = []
        self._flushing = False

    def _make_dispatcher(self, kind: SubscriptionType) -> Dispatcher:
        config = self._config
        limits = ReadLimits(
            config.dispatcher_max_read_batch_size,
            config.dispatcher_max_read_size_bytes,
            config.dispatcher_read_failure_backoff_initial_time_ms / 1000,
            config.dispatcher_read_failure_backoff_max_time_ms / 1000,
        )
        match kind:
            case SubscriptionType.EXCLUSIVE | SubscriptionType.FAILOVER:
                return SingleActiveDispatcher(
                    failover=kind is SubscriptionType.FAILOVER,
                    partition=self._partition,
                    read_from=self._read_from,
                    acknowledged=self.cursor.is_acknowledged,
                    limits=limits,
                    consumers_max=config.max_consumers_per_subscription,
                )
            case SubscriptionType.SHARED:
                return SharedDispatcher(
                    read_from=self._read_from,
                    acknowledged=self.cursor.is_acknowledged,
                    limits=limits,
                    consumers_max=config.max_consumers_per_subscription,
                    turn_messages=config.dispatcher_max_round_robin_batch_size,
                    unacked_max_consumer=config.max_unacked_messages_per_consumer,
                    unacked_max_subscription=config.max_unacked_messages_per_subscription,
                )
            case SubscriptionType.KEY_SHARED:
                raise UnsupportedFeature("key_shared subscriptions are not supported yet; use shared, failover or exclusive")
            case _:
                assert_never(kind)

    def _read_from(self) -> Position:
        return self.cursor.read_from

    # -- consumers

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self._dispatcher.consumers

    def add(self, consumer: Consumer, kind: SubscriptionType) -> None:
        """Connect a consumer. Raises ``ConsumerBusy``, ``UnsupportedFeature``, or why the subscription is closed."""
        if self.closed is not None:
            raise self.closed
        if kind is not self.type or kind is SubscriptionType.KEY_SHARED:
            if self.consumers:
                raise ConsumerBusy(
                    f"subscription {self.name!r} is in use with type {self.type.name.lower()}; its consumers must leave before"
                    f" it can be used with type {kind.name.lower()}"
                )
            self._dispatcher = self._make_dispatcher(kind)
            self.type = kind
        elif not self.consumers:
            # Nobody was here: acknowledgements and seeks may have moved the cursor since. Redelivery counts go on.
            self._dispatcher.reads.rewind(self._read_from())
        consumer.order = self._joined
        self._joined += 1
        self._dispatcher.add(consumer)
        if not self._pumping:
            self._pumping = True
            _ = self._world.tasks.spawn(self._pump(), name=f"dispatch {self.topic} {self.name}")
        self._wake.set()

    def remove(self, consumer: Consumer) -> None:
        """Disconnect a consumer: what it holds goes to others."""
        if consumer.closed:
            return
        consumer.closed = True
        consumer.outlet.withdraw(consumer.consumer_id)
        self._dispatcher.remove(consumer)
        self._wake.set()

    def close_consumers(self, error: PulsarishError, *, but: Consumer | None = None) -> None:
        """Tell consumers to subscribe anew, or that it is over, as the error says."""
        for consumer in [consumer for consumer in self.consumers if consumer is not but]:
            self.remove(consumer)
            consumer.outlet.put(ConsumerClosed(consumer.consumer_id, error))

    def close(self, error: PulsarishError) -> None:
        """Stop for good on this broker."""
        self.closed = error
        self.close_consumers(error)
        self._wake.set()

    # -- what consumers say

    def flow(self, consumer: Consumer, permits: int) -> None:
        if not consumer.closed:
            consumer.permits += permits
            self._wake.set()

    def wake(self) -> None:
        """There may be something to do: the log has grown, or an outlet has room again."""
        self._wake.set()

    def redeliver(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """Raises ``InvalidPosition``."""
        for position in positions:
            self._check_position(position)
        if not consumer.closed:
            self._dispatcher.redeliver(consumer, positions)
            self._wake.set()

    def _check_position(self, position: Position) -> None:
        # Rule 18; what is at or below the mark may have been trimmed, and is not delivered again anyway.
        if position > self.cursor.mark_delete and not self._log.contains(position):
            raise InvalidPosition(f"position {position} is not in topic {self.topic}")

    def acknowledge(self, consumer: Consumer, command: Acknowledge) -> None:
        """Take acknowledgements; a wished receipt is put into the consumer's outlet once they are durable.

        Raises ``InvalidPosition``, ``NotAllowed`` (cumulative on shared), ``InvalidArgument``, or why the subscription is closed.
        """
        if self.closed is not None:
            raise self.closed
        positions = command.positions
        if command.batch_indexes and len(command.batch_indexes) != len(positions):
            raise InvalidArgument(f"{len(command.batch_indexes)} batch indexes for {len(positions)} positions")
        if command.cumulative:
            if self.type in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
                raise NotAllowed(
                    f"cumulative acknowledgement is not possible on the {self.type.name.lower()} subscription {self.name!r};"
                    " acknowledge messages one by one"
                )
            if len(positions) != 1:
                raise InvalidArgument(f"a cumulative acknowledgement names one position, not {len(positions)}")
        if positions and max(positions) > self._log.last_confirmed:
            # The client has it from an owner after this one, which does not know yet that it is none (rule 20: undecided, so retryable).
            raise ServiceNotReady(f"position {max(positions)} is beyond what this broker knows of {self.topic}; look the topic up again")
        parts = [(position, index) for position, index in zip(positions, command.batch_indexes, strict=False) if index >= 0]
        if parts:
            # The entry's own metadata says how many messages it has; only then is the rest decided, receipt included.
            work = self._acknowledge_parts(consumer, command, parts)
            _ = self._world.tasks.spawn(work, name=f"acknowledge {self.topic} {self.name}")
            return
        self._acknowledge_whole(consumer, positions, cumulative=command.cumulative)
        self._receipt(consumer, command.request_id)

    def _acknowledge_whole(self, consumer: Consumer, positions: Sequence[Position], *, cumulative: bool) -> None:
        if cumulative:
            through: Position | None = positions[0]
            if positions[0].entry_id < 0:
                # A part of the first batch of a ledger is done: everything before that ledger is.
                self._check_position(Position(positions[0].ledger_id, 0))
                through = self._before(Position(positions[0].ledger_id, 0))
            if through is not None:
                self.cursor.acknowledge_cumulative(through)
                self._dispatcher.acknowledged_through(through)
        else:
            self.cursor.acknowledge(positions)
            self._dispatcher.acknowledged(consumer, positions)
        self._wake.set()

    async def _acknowledge_parts(self, consumer: Consumer, command: Acknowledge, parts: Sequence[tuple[Position, int]]) -> None:
        try:
            # One command may name an entry by some of its messages and then as a whole, once the last of them is done.
            whole = [position for position, index in zip(command.positions, command.batch_indexes, strict=True) if index < 0]
            indexes: dict[Position, list[int]] = {}
            for position, index in parts:
                indexes.setdefault(position, []).extend(range(index + 1) if command.cumulative else (index,))
            sizes = {position: await self._batch_size(consumer, position) for position in indexes}
            for position, acknowledged in indexes.items():
                if max(acknowledged) >= sizes[position]:
                    raise InvalidArgument(f"batch index {max(acknowledged)} of {position}, which holds {sizes[position]} messages")
            for position, acknowledged in indexes.items():
                if command.cumulative and (before := self._before(position)) is not None:
                    self.cursor.acknowledge_cumulative(before)
                self.cursor.acknowledge_batch(position, sizes[position], acknowledged)
                if self.cursor.is_acknowledged(position):
                    self._dispatcher.acknowledged(consumer, [position])
            if whole:
                self._acknowledge_whole(consumer, whole, cumulative=False)
        except PulsarishError as error:
            if command.request_id:
                consumer.outlet.put(Outcome(command.request_id, error))
            else:
                _log.warning("acknowledgement refused", topic=self.topic, subscription=self.name, reason=error)
            return
        self._wake.set()
        self._receipt(consumer, command.request_id)

    async def _batch_size(self, consumer: Consumer, position: Position) -> int:
        held = consumer.pending.get(position)
        if held is not None:
            return held
        entries = await self._log.read(position, max_entries=1, max_bytes=1)
        if not entries or entries[0].position != position:
            # Trimmed already: whatever is said of it changes nothing.
            return 1 << 31
        return int(parse_metadata(entries[0].payload).num_messages_in_batch)

    def _receipt(self, consumer: Consumer, request_id: int) -> None:
        if not request_id:
            return
        self._ack_waiters.append((consumer, request_id))
        if not self._flushing:
            self._flushing = True
            _ = self._world.tasks.spawn(self._flush(), name=f"flush {self.topic} {self.name}")

    async def _flush(self) -> None:
        while self._ack_waiters:
            answered, self._ack_waiters = self._ack_waiters, []
            error: PulsarishError | None = None
            try:
                await self.cursor.flush()
            except PulsarishError as failure:
                error = failure
            for consumer, request_id in answered:
                consumer.outlet.put(Outcome(request_id, error))
        self._flushing = False

    def _before(self, position: Position) -> Position | None:
        """The entry before this one in the log, if there is one."""
        if position.entry_id > 0:
            return Position(position.ledger_id, position.entry_id - 1)
        for ledger in reversed(self._log.ledgers):
            if ledger.ledger_id < position.ledger_id and ledger.entries:
                return Position(ledger.ledger_id, ledger.entries - 1)
        return None

    # -- moving the cursor

    async def seek(self, position: Position | None, publish_time_ms: int, *, by: Consumer | None = None) -> None:
        """Deliver from a position (inclusive) or from the first entry published at or after a time. Other consumers must come anew."""
        if self.closed is not None:
            raise self.closed
        self.close_consumers(ServiceNotReady(f"subscription {self.name!r} was moved by a seek; subscribe again"), but=by)
        if position is None:
            position = await self._log.find_by_time(publish_time_ms, _publish_time) or LATEST
        try:
            await self.cursor.reset(position)
        finally:
            # Also when it could not be made durable: in memory the cursor has moved.
            self._dispatcher.reset()
            self._wake.set()

    async def skip(self, messages: int | None) -> None:
        """Acknowledge the next ``messages`` that are not (all without a number), durably."""
        end: Position | None = None
        if messages is None:
            end = self._log.last_confirmed
        else:
            for entry in await self.unacknowledged(messages):
                size = parse_metadata(entry.payload).num_messages_in_batch
                left = self.cursor.ack_set(entry.position)
                indexes = [index for index in range(size) if left is None or left >> index & 1]
                if len(indexes) > messages:
                    # A batch is skipped in part: the rest of it stays.
                    self.cursor.acknowledge_batch(entry.position, size, indexes[:messages])
                    break
                messages -= len(indexes)
                end = entry.position
                if not messages:
                    break
        if end is not None and end.entry_id >= 0:
            self.cursor.acknowledge_cumulative(end)
            self._dispatcher.acknowledged_through(end)
        await self.cursor.flush()
        self._wake.set()

    async def expire(self, before_ms: int) -> None:
        """Acknowledge what was published before a time, durably."""
        first = await self._log.find_by_time(before_ms, _publish_time)
        if first is None:
            await self.skip(None)
            return
        last = self._before(first)
        if last is not None and last > self.cursor.mark_delete:
            self.cursor.acknowledge_cumulative(last)
            self._dispatcher.acknowledged_through(last)
            await self.cursor.flush()
            self._wake.set()

    async def unacknowledged(self, count: int) -> list[LogEntry]:
        """The first ``count`` entries that are not acknowledged."""
        found: list[LogEntry] = []
        start = self.cursor.read_from
        while len(found) < count and start <= self._log.last_confirmed:
            entries = await self._log.read(
                start, max_entries=self._config.dispatcher_max_read_batch_size, max_bytes=self._config.dispatcher_max_read_size_bytes
            )
            if not entries:
                break
            found.extend(entry for entry in entries if not self.cursor.is_acknowledged(entry.position))
            last = entries[-1].position
            start = Position(last.ledger_id, last.entry_id + 1)
        return found[:count]

    # -- the dispatching task

    async def _pump(self) -> None:
        while self._dispatcher.consumers and self.closed is None:
            await self._wake.wait()
            self._wake.clear()
            await self._dispatch(self._dispatcher)
        self._pumping = False

    async def _dispatch(self, dispatcher: Dispatcher) -> None:
        log, cursor, reads = self._log, self.cursor, dispatcher.reads
        dispatcher.deliver()
        while self.closed is None:
            end = log.last_confirmed
            read = dispatcher.plan(end, blocked=cursor.blocked)
            if read is None:
                break
            try:
                entries = await log.read(read.start, max_entries=read.entries_max, max_bytes=self._config.dispatcher_max_read_size_bytes)
                ready = [self._ready(entry) for entry in entries]
            except PulsarishError as error:
                if not reads.failure:
                    _log.warning("read failed", topic=self.topic, subscription=self.name, position=read.start, reason=error)
                wait_seconds = reads.failed(read, f"{type(error).__name__}: {error}", self._world.clock.wall_ms())
                await self._world.clock.sleep(wait_seconds)
                continue
            reads.succeeded(read, ready, end)
            if ready:
                self.out.add(
                    sum(entry.messages for entry in ready), sum(len(entry.payload) for entry in ready), self._world.clock.monotonic()
                )
            dispatcher.deliver()
        if log.terminated and reads.position > log.last_confirmed and not reads.ready:
            for consumer in dispatcher.consumers:
                if not consumer.ended:
                    consumer.ended = True
                    consumer.outlet.put(EndOfTopic(consumer.consumer_id))

    def _ready(self, entry: LogEntry) -> Ready:
        position, payload = entry
        messages = parse_metadata(payload).num_messages_in_batch
        left = self.cursor.ack_set(position) if messages > 1 else None
        return Ready(position, payload, messages, None if left is None else left.to_bytes((messages + 7) // 8, "little"))

    # -- statistics, by Apache Pulsar's names

    def blocked_reason(self) -> tuple[str, int]:
        """Why consumers get nothing although there is something, and since when (0: not known); empty when nothing is wrong."""
        reads = self._dispatcher.reads
        if reads.failure:
            return reads.failure, reads.failed_since_ms
        if self.cursor.blocked:
            return "too many holes between acknowledged entries; acknowledge the oldest messages", 0
        if isinstance(self._dispatcher, SharedDispatcher) and self._dispatcher.blocked:
            return "max_unacked_messages_per_subscription reached", 0
        return "", 0

    @property
    def unacked(self) -> int:
        return self._dispatcher.unacked()

    def stats(self) -> dict[str, Any]:
        reason, since_ms = self.blocked_reason()
        message_rate, byte_rate = self.out.rates(self._world.clock.monotonic())
        active = self._dispatcher.active if isinstance(self._dispatcher, SingleActiveDispatcher) else None
        return {
            "type": {"EXCLUSIVE": "Exclusive", "SHARED": "Shared", "FAILOVER": "Failover", "KEY_SHARED": "Key_Shared"}[self.type.name],
            "msgBacklog": self.cursor.backlog(),
            "unackedMessages": self._dispatcher.unacked(),
            "msgRateOut": round(message_rate, 3),
            "msgThroughputOut": round(byte_rate, 3),
            "msgOutCounter": self.out.messages,
            "bytesOutCounter": self.out.size_bytes,
            "isDurable": self.cursor.durable,
            "activeConsumerName": active.name if active is not None else "",
            "blockedSubscriptionOnUnackedMsgs": isinstance(self._dispatcher, SharedDispatcher) and self._dispatcher.blocked,
            "blockedReason": reason,
            "blockedSince": since_ms,
            "messagesToRedeliver": self._dispatcher.reads.again_count,
            "markDeletePosition": str(self.cursor.mark_delete),
            "readPosition": str(self._dispatcher.reads.position),
            "consumers": [_consumer_stats(consumer) for consumer in self.consumers],
        }

    def check(self) -> None:
        self._dispatcher.check()


def _publish_time(entry: LogEntry) -> int:
    return int(parse_metadata(entry.payload).publish_time)


def _consumer_stats(consumer: Consumer) -> dict[str, Any]:
    return {
        "consumerName": consumer.name,
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.unacked,
        "blockedConsumerOnUnackedMsgs": consumer.blocked,
        "priorityLevel": consumer.priority_level,
        "msgOutCounter": consumer.messages_out,
        "bytesOutCounter": consumer.bytes_out,
        "messagesRedelivered": consumer.redelivered_out,
        "address": consumer.address,
        "connectedSince": consumer.connected_ms,
        "metadata": dict(consumer.properties),
    }
