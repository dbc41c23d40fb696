"""The channel: queues, exchanges and bindings of AMQP, made of topics and subscriptions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import partial
from queue import Empty
from typing import TYPE_CHECKING, Any, Final

from kombu.transport import virtual

from pulsarish.client.messages.message import Message
from pulsarish.integrations.kombu.addresses import bound_filter, bound_subscription
from pulsarish.integrations.kombu.envelope import payload_of
from pulsarish.integrations.kombu.queues import Delivery, OpenQueue, QueueKind
from pulsarish.integrations.kombu.sources import Accepts, Source
from pulsarish.model.errors import AlreadyClosed, ForkedProcess, PulsarishError
from pulsarish.runtime.background import monotonic

if TYPE_CHECKING:
    from pulsarish.integrations.kombu.transport import Transport

__all__ = ["Channel"]

_GET_SECONDS: Final = 0.5
"""How long ``basic_get`` waits for the broker before it calls a queue empty."""
_tags = itertools.count(1)


class QoS(virtual.QoS):
    """Messages that the program has and has not settled. Any thread may settle one."""

    restore_at_shutdown = False

    def ack(self, delivery_tag: str) -> None:
        self.channel.settle(delivery_tag)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        self.channel.settle(delivery_tag, requeue=requeue)
        self._quick_ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Have all that is not settled delivered again."""
        self._flush()
        for tag in list(self._delivered):
            self.reject(tag, requeue=True)
        self._flush()
        return []


class Channel(virtual.Channel):
    """A channel of a connection to Pulsarish.

    What is published to a queue goes to the topic of its name, and what is published to an exchange
    to the topic of the exchange. A queue receives from its topic and, for each binding, from the
    topic of the exchange. A queue that is kept does so by shared subscriptions, a temporary one by
    readers.
    """

    QoS = QoS
    do_restore = False
    supports_fanout = True
    body_encoding = None

    def __init__(self, connection: Transport, **arguments: Any) -> None:
        self._transport = connection  # also when the channel is closed and has no connection
        self._queues: dict[str, OpenQueue] = {}
        self._deliveries: dict[str, tuple[OpenQueue, Delivery]] = {}
        self._turn = 0
        super().__init__(connection, **arguments)

    # -- declarations

    def _new_queue(
        self,
        queue: str,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        **_: Any,
    ) -> None:
        if queue in self._queues:
            return
        kind = QueueKind.of(durable=durable, exclusive=exclusive, auto_delete=auto_delete)
        self._transport.address.queue_topic(queue)
        if kind is QueueKind.KEPT:
            self._transport.ensure_subscription(*self._own(queue))
        else:
            self._queues[queue] = OpenQueue(queue, kind)

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **more: Any,
    ) -> None:
        exchange = exchange or "amq.direct"
        if exchange not in self.state.exchanges:
            kind = exchange.removeprefix("amq.")
            self.exchange_declare(exchange, kind if kind in self.exchange_types else "direct")
        super().queue_bind(queue, exchange, routing_key, arguments, **more)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: Any, queue: str) -> None:
        opened = self._queues.get(queue)
        if opened is None:
            self._transport.ensure_subscription(*self._bound(queue, exchange, routing_key))
            return
        if opened.kind is QueueKind.AUTO_DELETED and self.typeof(exchange).type == "fanout":
            # What is told to all is worth nothing to one that is gone.
            opened.kind = QueueKind.TEMPORARY
        if opened.kind is QueueKind.TEMPORARY or opened.is_consumed:
            self._open_bound(opened, exchange, routing_key)
        else:
            self._transport.ensure_subscription(*self._bound(queue, exchange, routing_key))

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **more: Any,
    ) -> None:
        exchange = exchange or "amq.direct"
        super().queue_unbind(queue, exchange, routing_key, arguments, **more)
        topic, subscription, _ = self._bound(queue, exchange, routing_key)
        opened = self._queues.get(queue)
        source = opened.sources.pop((topic, routing_key), None) if opened else None
        if source is not None:
            source.close(delete=True)
        elif opened is None or opened.kind is not QueueKind.TEMPORARY:
            self._transport.delete_subscription(topic, subscription)

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any
    ) -> None:
        """Delete the subscriptions of a queue, as far as this connection knows its bindings.

        ``if_empty``: does nothing, because a client cannot know whether a subscription is empty.
        """
        if if_empty:
            return
        opened = self._queues.pop(queue, None)
        if opened is not None:
            opened.close(delete=True)
        if opened is None or opened.kind is not QueueKind.TEMPORARY:
            for topic, subscription, _filter in [
                self._own(queue),
                *(
                    self._bound(queue, binding.exchange, binding.routing_key)
                    for binding in list(self.state.queue_bindings(queue))
                ),
            ]:
                self._transport.delete_subscription(topic, subscription, force=not if_unused)
        self._forget_bindings(queue)

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Forget an exchange. Its topic and what queues have of it stay."""
        self.state.exchanges.pop(exchange, None)

    def _forget_bindings(self, queue: str) -> None:
        state = self._transport.state
        for binding in list(state.queue_bindings(queue)):
            table = state.exchanges.get(binding.exchange, {}).get("table", [])
            table[:] = [entry for entry in table if entry[2] != queue]
        state.queue_bindings_delete(queue)

    def _own(self, queue: str) -> tuple[str, str, str | None]:
        return self._transport.address.queue_topic(queue), queue, None

    def _bound(self, queue: str, exchange: str, routing_key: str) -> tuple[str, str, str | None]:
        """Return topic, subscription and filter of a binding."""
        kind = self.typeof(exchange).type
        return (
            self._transport.address.exchange_topic(exchange),
            bound_subscription(kind, queue, routing_key),
            bound_filter(kind, routing_key),
        )

    # -- publishing

    def basic_publish(
        self, message: dict[str, Any], exchange: str, routing_key: str, **_: Any
    ) -> None:
        """Publish, and wait until the message is stored."""
        self._open_undecided()
        self._inplace_augment_message(message, exchange, routing_key)
        address = self._transport.address
        topic = address.exchange_topic(exchange) if exchange else address.queue_topic(routing_key)
        self._transport.publish(topic, message, routing_key)

    def _next_delivery_tag(self) -> str:
        return f"{self.channel_id}.{next(_tags)}"

    # -- receiving

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Callable[[Any], object],
        consumer_tag: str,
        **arguments: Any,
    ) -> None:
        self._open_undecided()
        opened = self._open(queue)
        super().basic_consume(queue, no_ack, callback, consumer_tag, **arguments)
        opened.callback = self._transport._callbacks[queue]
        opened.is_acknowledged, opened.was_consumed = not no_ack, True
        self._transport.wake()

    def basic_cancel(self, consumer_tag: str) -> None:
        opened = self._queues.get(self._tag_to_queue.get(consumer_tag, ""))
        super().basic_cancel(consumer_tag)
        if opened is not None and opened.name not in self._active_queues:
            opened.callback = None
            while opened.ready and opened.kind is not QueueKind.TEMPORARY:
                self._requeue(opened.ready.popleft())

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        """Return the next message of a queue. Raises ``Empty`` when none comes in time."""
        self._open_undecided()
        opened = self._open(queue)
        opened.is_got_from = True
        deadline = monotonic() + (_GET_SECONDS if timeout is None else timeout)
        try:
            while not opened.ready:
                seen = self._transport.changes_count
                opened.ask()
                if not opened.ready and not self._transport.wait(seen, deadline):
                    raise Empty
        finally:
            opened.is_got_from = False
        return self._hand_out(opened, opened.ready.popleft())

    def basic_get(self, queue: str, no_ack: bool = False, **arguments: Any) -> Any:
        message = super().basic_get(queue, no_ack, **arguments)
        if message is not None and no_ack:
            self.settle(message.delivery_tag)
        return message

    def deliver_next(self) -> bool:
        """Give the next message to its consumer, and ask for more. Return whether there was one."""
        queues = [each for each in self._queues.values() if each.is_consumed]
        self._turn += 1
        for index in range(len(queues)):
            opened = queues[(self._turn + index) % len(queues)]
            if opened.ready and opened.callback is not None:
                payload = self._hand_out(opened, opened.ready.popleft())
                if not opened.is_acknowledged:
                    self.settle(payload["properties"]["delivery_tag"])
                opened.callback(payload)
                return True
        if self._has_room():
            for opened in queues:
                opened.ask()
        return False

    def _has_room(self) -> bool:
        """Whether the program may get one more message, with all that wait for it."""
        limit = self.qos.prefetch_count
        waiting = sum(len(each.ready) for each in list(self._queues.values()))
        return not limit or len(self._deliveries) + waiting < limit

    def on_message(self, opened: OpenQueue, source: Source, message: Message) -> None:
        """Keep a message for the program, in the source's thread. One that it has no room for goes
        back, for another consumer.
        """
        if self.closed:
            return  # the source is being closed, and what it has not settled is delivered again
        delivery = Delivery(source, message, message.redelivery_count() > 0)
        source.is_asked = False
        has_use = opened.is_wanted and self._has_room()
        if has_use or not source.requeue(message):
            opened.ready.append(delivery)
        self._transport.wake()

    def _hand_out(self, opened: OpenQueue, delivery: Delivery) -> dict[str, Any]:
        tag = self._next_delivery_tag()
        self._deliveries[tag] = opened, delivery
        return payload_of(delivery.message, tag, redelivered=delivery.redelivered)

    # -- settling

    def settle(self, tag: str, *, requeue: bool = False) -> None:
        """Acknowledge a message, or have it delivered again, in any thread.

        Does nothing for an unknown tag. Raises ``AlreadyClosed``.
        """
        if self.closed:
            raise AlreadyClosed("the channel is closed: its messages are delivered again")
        found = self._deliveries.pop(tag, None)
        if found is None:
            return
        opened, delivery = found
        if not requeue:
            delivery.source.acknowledge(delivery.message)
        elif not self._requeue(delivery):
            delivery.redelivered = True
            opened.ready.appendleft(delivery)
        self._transport.wake()

    def _requeue(self, delivery: Delivery) -> bool:
        return delivery.source.requeue(delivery.message)

    def extend(self) -> None:
        """Say of all messages that the program has that they are worked on."""
        for _opened, delivery in list(self._deliveries.values()):
            delivery.source.extend(delivery.message)

    def _purge(self, queue: str) -> int:
        """Acknowledge what waits in a queue. Delayed messages that are not due stay."""
        count = 0
        while True:
            try:
                payload = self._get(queue)
            except Empty:
                return count
            self.settle(payload["properties"]["delivery_tag"])
            count += 1

    # -- sources

    def _open(self, queue: str) -> OpenQueue:
        """Return a queue with all its sources."""
        opened = self._queues.setdefault(queue, OpenQueue(queue, QueueKind.KEPT))
        if opened.kind is QueueKind.TEMPORARY:
            return opened
        topic, subscription, condition = self._own(queue)
        if (topic, "") not in opened.sources:
            opened.sources[topic, ""] = self._transport.subscribe(
                topic, subscription, condition, None, _Inbox(self, opened)
            )
        for binding in list(self.state.queue_bindings(queue)):
            self._open_bound(opened, binding.exchange, binding.routing_key)
        return opened

    def _open_bound(self, opened: OpenQueue, exchange: str, routing_key: str) -> None:
        topic, subscription, condition = self._bound(opened.name, exchange, routing_key)
        if (topic, routing_key) in opened.sources:
            return
        accepts = self._accepts(exchange, routing_key)
        inbox = _Inbox(self, opened)
        opened.sources[topic, routing_key] = (
            self._transport.read(topic, accepts, inbox)
            if opened.kind is QueueKind.TEMPORARY
            else self._transport.subscribe(topic, subscription, condition, accepts, inbox)
        )

    def _open_undecided(self) -> None:
        """Open the queues that were declared and of which only now is known whether they are bound.

        A temporary queue that is bound receives from its exchanges alone: a topic of its own would
        stay behind.
        """
        for opened in list(self._queues.values()):
            if opened.sources or opened.is_consumed:
                continue
            if opened.kind is QueueKind.TEMPORARY:
                topic, _, _ = self._own(opened.name)
                opened.sources[topic, ""] = self._transport.read(topic, None, _Inbox(self, opened))
            elif opened.kind is QueueKind.AUTO_DELETED:
                self._transport.ensure_subscription(*self._own(opened.name))

    def _accepts(self, exchange: str, routing_key: str) -> Accepts | None:
        kind = self.typeof(exchange)
        if kind.type == "fanout":
            return None
        if kind.type == "direct":
            return partial(str.__eq__, routing_key)
        pattern = re.compile(kind.key_to_pattern(routing_key))
        return lambda key: pattern.match(key) is not None

    # -- the end

    def close(self) -> None:
        """Close all queues: what is not acknowledged is delivered again."""
        was_closed = self.closed
        super().close()
        if was_closed:
            return
        self._deliveries.clear()
        for opened in self._queues.values():
            if opened.kind is QueueKind.TEMPORARY:
                self._forget_bindings(opened.name)
        try:
            for opened in self._queues.values():
                opened.close(delete=opened.kind is QueueKind.AUTO_DELETED and opened.was_consumed)
        except ForkedProcess:
            return  # the parent has the sources
        except PulsarishError:
            self.end_sources()
            raise

    def end_sources(self) -> None:
        """End the threads of a channel whose client is closed."""
        for opened in self._queues.values():
            opened.end()


class _Inbox:
    """Takes what a source receives for a queue of a channel."""

    def __init__(self, channel: Channel, opened: OpenQueue) -> None:
        self._channel = channel
        self._opened = opened

    def on_message(self, source: Source, message: Message) -> None:
        self._channel.on_message(self._opened, source, message)

    def on_failure(self, error: PulsarishError) -> None:
        self._channel._transport.fail(error)
