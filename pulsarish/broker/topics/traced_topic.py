"""Topics that make spans of OpenTelemetry for messages whose producer traces them.

A broker without ``tracing_endpoint`` does not import this module, and its topics are of the plain
class, so its messages pay nothing. What fails here is logged and does not touch the messages.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from pulsarish.broker.clients.consumer import Delivery, Outlet
from pulsarish.broker.subscriptions.filtering import batch_metadata, unpacked_batch
from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.broker.topics.topic import Topic
from pulsarish.model.errors import ChecksumError, ConfigError, PulsarishError
from pulsarish.model.position import Position
from pulsarish.runtime.extras import install_command
from pulsarish.runtime.log import get_logger
from pulsarish.wire.entry import (
    ENTRY_HEAD_SIZE,
    as_text,
    decode_metadata,
    encoded_metadata,
    is_plain,
)

try:
    from opentelemetry.context import Context
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import (
        Link,
        NonRecordingSpan,
        SpanContext,
        SpanKind,
        get_current_span,
        set_span_in_context,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:
    raise ConfigError(
        "tracing_endpoint needs OpenTelemetry's SDK and its exporter for OTLP over HTTP: "
        f"{install_command('tracing')}"
    ) from None

if TYPE_CHECKING:
    from pulsarish.broker.clients.commands import Acknowledge, Answer, Subscribe
    from pulsarish.broker.clients.consumer import Consumer
    from pulsarish.broker.clients.producer import PendingEntry
    from pulsarish.runtime.seams import Clock
    from pulsarish.wire._pb.message_pb2 import MessageMetadata, SingleMessageMetadata

__all__ = ["BrokerSpans", "TracedTopic", "otlp_provider"]

_log = get_logger("broker.tracing")

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_FIELD: Final = "traceparent"
_KEY_BYTES: Final = b"\n\x0b" + _FIELD.encode() + b"\x12"
"""The field as a property has it: tag, size, name, and the tag of the value."""
_FIELDS: Final = frozenset(("traceparent", "tracestate"))
_SAMPLED_VALUE: Final = "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf]"
_SAMPLED_FIELD: Final = re.compile(_SAMPLED_VALUE)
# The size of the value has one byte or two.
_SAMPLED: Final = re.compile(_KEY_BYTES + b".{1,2}?" + _SAMPLED_VALUE.encode(), re.DOTALL)
_SAMPLED_MAX: Final = 10_000
"""Sampled entries that a topic remembers. With more it begins again."""
_LINKS_MAX: Final = 128
"""Links of one span, which is also the limit of OpenTelemetry's SDK."""
_CONTEXTS_MAX: Final = 10_000
"""Contexts of messages that a broker keeps from their store until they are dispatched, and as many
from then until they are acknowledged: a few MB.
"""


class _Kept(NamedTuple):
    """What is kept of an entry that was stored, or that went to a consumer."""

    at: float  # monotonic seconds
    contexts: Sequence[SpanContext]


class KeptContexts:
    """The contexts of entries, by topic, subscription and position.

    When there are more than ``contexts_max``, those that were added first are forgotten.
    """

    def __init__(self, contexts_max: int = _CONTEXTS_MAX) -> None:
        self._contexts_max = contexts_max
        self._count = 0
        self._kept: OrderedDict[tuple[str, str, Position], _Kept] = OrderedDict()
        self._positions: dict[tuple[str, str], set[Position]] = {}

    def add(self, topic: str, subscription: str, position: Position, found: _Kept) -> None:
        """Keep the contexts of an entry, instead of those that were kept of it before."""
        self.take(topic, subscription, position)
        self._kept[topic, subscription, position] = found
        self._positions.setdefault((topic, subscription), set()).add(position)
        self._count += len(found.contexts)
        while self._count > self._contexts_max:
            self.take(*next(iter(self._kept)))

    def get(self, topic: str, subscription: str, position: Position) -> _Kept | None:
        return self._kept.get((topic, subscription, position))

    def take(self, topic: str, subscription: str, position: Position) -> _Kept | None:
        """Return what is kept of an entry, and keep it no longer."""
        found = self._kept.pop((topic, subscription, position), None)
        if found is not None:
            self._count -= len(found.contexts)
            positions = self._positions[topic, subscription]
            positions.remove(position)
            if not positions:
                del self._positions[topic, subscription]
        return found

    def named_by(self, topic: str, subscription: str, command: Acknowledge) -> list[Position]:
        """Return the kept entries that a command names, in the order of the log."""
        positions = self._positions.get((topic, subscription))
        if not positions:
            return []
        if command.cumulative:
            return sorted(each for each in positions if each <= command.positions[0])
        return sorted(positions.intersection(command.positions))


def otlp_provider(endpoint: str, broker_id: str) -> Any:
    """Return a tracer provider that sends spans to a collector, from a thread of its own.

    Args:
        endpoint: the URL for traces, such as ``http://127.0.0.1:4318/v1/traces``.
    """
    provider = TracerProvider(
        resource=Resource.create(
            {"service.name": "pulsarish-broker", "service.instance.id": broker_id}
        )
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return provider


class BrokerSpans:
    """Makes the spans of one broker.

    An entry gets one span: below the first of its messages that are sampled, with links to the
    others.
    """

    def __init__(self, provider: Any, broker_id: str, clock: Clock) -> None:
        self._tracer = provider.get_tracer("pulsarish.broker")
        self._broker_id = broker_id
        self._clock = clock
        self._stored = KeptContexts()
        self._unacknowledged = KeptContexts()

    def sampled(self, topic: str, payload: bytes | memoryview) -> Sequence[SpanContext]:
        """Return the contexts of an entry's messages that are sampled, at most one and its
        links.
        """
        try:
            return list(islice(_sampled(payload), _LINKS_MAX + 1))
        except Exception as error:  # noqa: BLE001
            # The messages of the topic must not stop for a span.
            _log.warning("entry not traced", topic=topic, reason=error)
            return ()

    def stored(
        self, topic: str, position: Position, contexts: Sequence[SpanContext], received: float
    ) -> None:
        """Make the span of an entry that is confirmed.

        Args:
            received: when it came, in monotonic seconds.
        """
        self._stored.add(topic, "", position, _Kept(received, contexts))
        began_ms = self._clock.wall_ms() - (self._clock.monotonic() - received) * 1000
        self._make("store", SpanKind.SERVER, topic, position, contexts, {}, int(began_ms))

    def dispatched(
        self, topic: str, subscription: str, consumer: str, deliveries: Sequence[Delivery]
    ) -> None:
        """Make the spans of entries that go to a consumer."""
        now, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        for each in deliveries:
            kept = self._stored.get(topic, "", each.position)
            contexts = kept.contexts if kept else self.sampled(topic, each.payload)
            if contexts:
                attributes = {
                    **_of_consumer(subscription, consumer),
                    "pulsarish.redelivery_count": each.redelivery_count,
                }
                kind = SpanKind.PRODUCER
                self._make("dispatch", kind, topic, each.position, contexts, attributes, now_ms)
                self._unacknowledged.add(topic, subscription, each.position, _Kept(now, contexts))

    def acknowledged(
        self,
        topic: str,
        subscription: str,
        consumer: str,
        command: Acknowledge,
        is_acknowledged: Callable[[Position], bool],
    ) -> None:
        """Make the spans of entries of which a command has acknowledged the last message.

        Args:
            is_acknowledged: whether no message of an entry will be delivered any more.
        """
        for position in self._unacknowledged.named_by(topic, subscription, command):
            if is_acknowledged(position):
                found = self._unacknowledged.take(topic, subscription, position)
                assert found is not None
                waited_ms = int((self._clock.monotonic() - found.at) * 1000)
                self._make(
                    "acknowledge",
                    SpanKind.SERVER,
                    topic,
                    position,
                    found.contexts,
                    {
                        **_of_consumer(subscription, consumer),
                        "pulsarish.unacknowledged_ms": waited_ms,
                    },
                    self._clock.wall_ms(),
                )

    def _make(
        self,
        name: str,
        kind: SpanKind,
        topic: str,
        position: Position,
        contexts: Sequence[SpanContext],
        attributes: dict[str, Any],
        began_ms: int,
    ) -> None:
        try:
            self._tracer.start_span(
                f"{name} {topic}",
                context=set_span_in_context(NonRecordingSpan(contexts[0]), Context()),
                kind=kind,
                links=[Link(each) for each in contexts[1:]],
                start_time=began_ms * 1_000_000,
                attributes={
                    "messaging.system": "pulsar",
                    "messaging.operation.name": name,
                    "messaging.destination.name": topic,
                    "messaging.message.id": str(position),
                    "pulsarish.broker": self._broker_id,
                    **attributes,
                },
            ).end()
        except Exception as error:  # noqa: BLE001
            _log.warning("span not made", topic=topic, position=position, reason=error)


def _of_consumer(subscription: str, consumer: str) -> dict[str, str]:
    named = {"messaging.client.id": consumer} if consumer else {}
    return {"messaging.destination.subscription.name": subscription, **named}


def _sampled(payload: bytes | memoryview) -> Iterator[SpanContext]:
    """Yield the contexts of the messages of an entry whose producers sampled them.

    Nearly all entries have none. That is found out without reading each message of a batch: its
    first one tells whether its producer traces. Those that do put a context into each message,
    whether it is sampled or not.
    """
    encoded = encoded_metadata(payload)
    if is_plain(encoded):
        return
    metadata = decode_metadata(encoded)
    if not metadata.HasField("num_messages_in_batch"):
        if _SAMPLED.search(encoded):
            yield from _contexts_of(metadata)
        return
    body = memoryview(payload)[ENTRY_HEAD_SIZE + len(encoded) :]
    if not metadata.compression and not _begins_with_context(body):
        return
    content = unpacked_batch(metadata, body)
    if content is not None and _begins_with_context(content) and _SAMPLED.search(content):
        try:
            for each in batch_metadata(content, metadata.num_messages_in_batch):
                if each.properties:
                    yield from _contexts_of(each)
        except ChecksumError:
            return


def _begins_with_context(batch: bytes | memoryview) -> bool:
    """Return whether the first message of a batch carries a context."""
    size = int.from_bytes(batch[:4], "big")
    return _KEY_BYTES in bytes(batch[4 : 4 + size])


def _contexts_of(metadata: MessageMetadata | SingleMessageMetadata) -> Iterator[SpanContext]:
    properties = metadata.properties
    for each in properties:
        if each.key == _FIELD and _SAMPLED_FIELD.match(as_text(each.value)):
            break
    else:
        # Most are not sampled, and shall cost little.
        return
    carried = {as_text(each.key): as_text(each.value) for each in properties if each.key in _FIELDS}
    context = _PROPAGATOR.extract(carried, context=Context())
    found = get_current_span(context).get_span_context()
    if found.trace_flags.sampled:
        yield found


class ExaminedEntries:
    """Which of the newest entries of a topic carry sampled contexts.

    They were looked at when they came, so that a dispatch does not have to.
    """

    __slots__ = ("_first", "_last", "_ledger_id", "_sampled")

    def __init__(self) -> None:
        self._ledger_id = self._first = self._last = -1
        self._sampled: set[int] = set()

    def add(self, ledger_id: int, first_entry: int, count: int, sampled: Sequence[int]) -> None:
        """Note entries that follow each other.

        Those that do not follow the ones before begin again.

        Args:
            sampled: the ids of the entries with sampled contexts.
        """
        if (
            ledger_id != self._ledger_id
            or first_entry != self._last + 1
            or len(self._sampled) >= _SAMPLED_MAX
        ):
            self._ledger_id, self._first = ledger_id, first_entry
            self._sampled.clear()
        self._last = first_entry + count - 1
        self._sampled.update(sampled)

    def can_be_sampled(self, position: Position) -> bool:
        ledger_id, entry_id = position
        if ledger_id != self._ledger_id or not self._first <= entry_id <= self._last:
            return True
        return entry_id in self._sampled


class _TracedOutlet:
    """The ``Outlet`` of a consumer, with a span for each entry that goes to it."""

    def __init__(self, outlet: Outlet, dispatched: Callable[[Sequence[Delivery]], None]) -> None:
        self._outlet = outlet
        self._dispatched = dispatched
        self.withdraw = outlet.withdraw
        self.doubt = outlet.doubt

    @property
    def has_room(self) -> bool:
        return self._outlet.has_room

    def put(self, answer: Answer) -> None:
        self._outlet.put(answer)

    def deliver(self, consumer_id: int, deliveries: Sequence[Delivery]) -> None:
        self._outlet.deliver(consumer_id, deliveries)
        self._dispatched(deliveries)


class _TracedSubscription(Subscription):
    """A subscription that makes spans for what its consumers acknowledge."""

    def __init__(self, *parts: Any, spans: BrokerSpans) -> None:
        super().__init__(*parts)
        self._spans = spans

    def acknowledge(self, consumer: Consumer, command: Acknowledge) -> None:
        super().acknowledge(consumer, command)
        self._note_acknowledged(consumer, command)

    async def _acknowledge_parts(
        self, consumer: Consumer, command: Acknowledge, seeks: int
    ) -> None:
        await super()._acknowledge_parts(consumer, command, seeks)
        self._note_acknowledged(consumer, command)

    def _note_acknowledged(self, consumer: Consumer, command: Acknowledge) -> None:
        self._spans.acknowledged(
            self.topic, self.name, consumer.name, command, self.source.is_acknowledged
        )


class TracedTopic(Topic):
    """A topic that makes spans for what it stores and dispatches, and what is acknowledged."""

    __slots__ = ("_arrived", "_examined", "_spans")

    def __init__(self, *parts: Any, spans: BrokerSpans) -> None:
        super().__init__(*parts)
        self._spans = spans
        self._examined = ExaminedEntries()
        self._arrived: dict[object, Sequence[SpanContext]] = {}
        """The contexts of entries that the log has not confirmed yet."""

    def make_subscription(self, *parts: Any) -> Subscription:
        return _TracedSubscription(*parts, spans=self._spans)

    @property
    def append(self) -> Callable[[bytes, object], None]:
        return self._append

    def _append(self, payload: bytes, context: object) -> None:
        """Append an entry, and look at it: its checksum was computed a moment ago, so that it is
        in the caches of the processor.
        """
        contexts = self._spans.sampled(self.name.full, payload)
        if contexts:
            self._arrived[context] = contexts
        try:
            self.log.append(payload, context)
        except PulsarishError:
            self._arrived.pop(context, None)
            raise

    def appended(self, ledger_id: int, first_entry: int, contexts: Sequence[object]) -> None:
        super().appended(ledger_id, first_entry, contexts)
        sampled = []
        if self._arrived:
            for entry_id, each in enumerate(contexts, first_entry):
                if found := self._arrived.pop(each, None):
                    sampled.append(entry_id)
                    received = cast("PendingEntry", each).request.received
                    position = Position(ledger_id, entry_id)
                    self._spans.stored(self.name.full, position, found, received)
        self._examined.add(ledger_id, first_entry, len(contexts), sampled)

    def append_failed(self, contexts: Sequence[object], error: PulsarishError) -> None:
        super().append_failed(contexts, error)
        for each in contexts:
            self._arrived.pop(each, None)

    async def subscribe(
        self, command: Subscribe, outlet: Outlet, address: str
    ) -> tuple[Subscription, Consumer]:
        def dispatched(deliveries: Sequence[Delivery]) -> None:
            sampled = [each for each in deliveries if self._examined.can_be_sampled(each.position)]
            if sampled:
                self._spans.dispatched(self.name.full, command.subscription, command.name, sampled)

        return await super().subscribe(command, _TracedOutlet(outlet, dispatched), address)
