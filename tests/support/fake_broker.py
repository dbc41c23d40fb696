"""A small broker in memory that speaks the client's protocol over any ``Connections``: a fake, for
the client's tests and bench.

It keeps topics as lists of entries in one ledger each, so its answers are easy to reason about. A
test can make it refuse, close, drop or break what it wants. Subscriptions deliver in order, by
permits, and redeliver what is not acknowledged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from pulsarish.model.errors import (
    AlreadyClosed,
    AuthenticationError,
    ConsumerBusy,
    InvalidPosition,
    NotAllowedError,
    ProducerBusy,
    ServiceNotReady,
    TopicNotFound,
)
from pulsarish.runtime.seams import (
    TLS,
    Buffer,
    Connections,
    Listener,
    Stream,
    StreamBroken,
    Tasks,
)
from pulsarish.security.credentials import Caller, Credentials
from pulsarish.security.tls import TlsServerConfig
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire.entry import parse_metadata, verify_entry
from pulsarish.wire.framing import join_records, slice_records, split_records

LATEST = 2**63 - 1


@dataclass
class FakeSubscription:
    kind: int
    durable: bool
    read: int = 0  # next entry to deliver for the first time
    acked: set[int] = field(default_factory=set)
    again: deque[int] = field(default_factory=deque)
    counts: dict[int, int] = field(default_factory=dict)
    consumers: dict[tuple[int, int], FakeConsumer] = field(default_factory=dict)

    @property
    def mark_delete(self) -> int:
        at = -1
        while at + 1 in self.acked:
            at += 1
        return at


@dataclass
class FakeConsumer:
    session: ConsumeSession
    consumer_id: int
    topic: FakeTopic
    name: str
    permits: int = 0
    held: dict[int, None] = field(default_factory=dict)


@dataclass
class FakeTopic:
    name: str
    ledger: int
    entries: list[bytes] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)  # producer name -> highest sequence id
    producers: dict[str, tuple[PublishSession, int, int]] = field(default_factory=dict)
    subscriptions: dict[str, FakeSubscription] = field(default_factory=dict)


class FakeCluster:
    """What the fake brokers of one test share: topics and who owns them."""

    def __init__(self, *, deduplication: bool = False) -> None:
        self.topics: dict[str, FakeTopic] = {}
        self.partitions: dict[str, int] = {}
        self.owner: FakeBroker | None = None
        self.deduplication = deduplication
        self.names = count(1)
        self.keep = True  # False: entries are counted and forgotten, for benches

    def topic(self, name: str) -> FakeTopic:
        if name not in self.topics:
            self.topics[name] = FakeTopic(name, len(self.topics) + 1)
        return self.topics[name]


class FakeBroker:
    def __init__(self, cluster: FakeCluster, connections: Connections, tasks: Tasks) -> None:
        self.cluster = cluster
        self.address = ""
        self.hold_seeks = False  # they are not answered
        self.is_old = False  # it answers no redeliveries
        self.hold_receipts = False  # entries are stored and not answered
        self.drop_entries = False  # entries are taken from the wire and lost
        self.refuse_open: list[Exception] = []  # the next openings are refused with these
        self.refuse_entries: list[Exception] = []  # the next entries are
        self.max_message_bytes = 5 << 20
        self.damage_next = 0  # so many deliveries are flipped on the wire
        self.stale_lookups = 0  # so many lookups are answered with "not now"
        self.redirect_to = ""
        self.refusal: Callable[[Credentials, str], str] = lambda credentials, method: ""
        """Why it refuses credentials for a method; empty: it takes them."""
        self.shown: list[Credentials] = []  # with each stream and lookup
        self.lookups = 0
        self.publish_messages = 0
        self.acks: list[pb.Ack] = []
        self.sessions: list[PublishSession | ConsumeSession] = []
        self._connections = connections
        self.tasks = tasks
        self._listener: Listener | None = None
        self._framed_address = ""

    async def start(
        self, address: str, *, framed: bool = False, tls: TlsServerConfig | None = None
    ) -> None:
        """Serve gRPC, and frames, too, with ``framed``."""
        streams = {"broker.publish": self._publish, "broker.consume": self._consume}
        calls = {"broker.lookup": self._lookups, "broker.ping": self._ping}
        self._listener = await self._connections.serve(address, streams, calls, tls=tls)
        self.address = self._listener.address
        if framed:
            host = address.rpartition(":")[0]
            listener = await self._connections.serve_framed(f"{host}:0", streams, calls, tls=tls)
            self._framed_address = listener.address
        if self.cluster.owner is None:
            self.cluster.owner = self

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.stop(0)

    def break_streams(self) -> None:
        for session in list(self.sessions):
            session.stream.abort("the test breaks it")

    async def _publish(self, stream: Stream) -> None:
        if self._accepts(stream, "broker.publish"):
            await PublishSession(self, stream).run()

    async def _consume(self, stream: Stream) -> None:
        if self._accepts(stream, "broker.consume"):
            await ConsumeSession(self, stream).run()

    def _why_refused(self, caller: Caller, method: str) -> str:
        self.shown.append(caller.credentials)
        return self.refusal(caller.credentials, method)

    def _accepts(self, stream: Stream, method: str) -> bool:
        """Break the stream of a caller that is refused, as a broker does."""
        refused = self._why_refused(stream.caller, method)
        if refused:
            stream.abort(f"AuthenticationError: {refused}")
        return not refused

    async def _lookups(self, data: bytes, caller: Caller) -> bytes:
        refused = self._why_refused(caller, "broker.lookup")
        answers = [
            pb.LookupResponse(code=AuthenticationError.code, message=refused)
            if refused
            else self._lookup(request)
            for request in pb.LookupsRequest.FromString(data).lookups
        ]
        return pb.LookupsResponse(answers=answers).SerializeToString()

    def _lookup(self, request: pb.LookupRequest) -> pb.LookupResponse:
        if request.wanted != pb.OWNER:
            partitions = self.cluster.partitions.get(request.topic, 0)
            if partitions or request.wanted == pb.PARTITIONS:
                return pb.LookupResponse(partitions=partitions)
        self.lookups += 1
        if self.stale_lookups:
            self.stale_lookups -= 1
            return pb.LookupResponse(code=ServiceNotReady.code, message="ownership is moving")
        if request.topic.endswith("/missing"):
            return pb.LookupResponse(code=TopicNotFound.code, message="no such topic")
        if self.redirect_to and not request.authoritative:
            return pb.LookupResponse(redirect=True, address=self.redirect_to)
        owner = self.cluster.owner
        assert owner is not None
        if owner.address.startswith(TLS):
            return pb.LookupResponse(
                broker_id="owner",
                address_tls=owner.address,
                framed_address_tls=owner._framed_address,
            )
        return pb.LookupResponse(address=owner.address, framed_address=owner._framed_address)

    async def _ping(self, data: bytes, caller: Caller) -> bytes:
        return pb.PingResponse(serving=True).SerializeToString()

    def pump(self, topic: FakeTopic) -> None:
        for subscription in topic.subscriptions.values():
            for consumer in list(subscription.consumers.values()):
                consumer.session.fill(consumer, subscription)


class _Session:
    def __init__(self, broker: FakeBroker, stream: Stream) -> None:
        self.broker = broker
        self.stream = stream
        self.wake = asyncio.Event()
        self.over = False
        self.number = next(broker.cluster.names)

    async def run(self) -> None:
        self.broker.sessions.append(self)  # type: ignore[arg-type]
        self.broker.tasks.spawn(self._write(), name="fake writer")
        try:
            while (data := await self.stream.receive()) is not None:
                self.handle(data)
        except StreamBroken:
            pass
        finally:
            self.over = True
            self.wake.set()
            self.broker.sessions.remove(self)  # type: ignore[arg-type]
            self.ended()

    async def _write(self) -> None:
        try:
            while not self.over:
                parts = self.gather()
                if parts is None:
                    await self.wake.wait()
                    self.wake.clear()
                else:
                    await self.stream.send(parts)
        except StreamBroken:
            return

    def handle(self, data: bytes) -> None:
        raise NotImplementedError

    def gather(self) -> list[Buffer] | None:
        raise NotImplementedError

    def ended(self) -> None:
        raise NotImplementedError


class PublishSession(_Session):
    def __init__(self, broker: FakeBroker, stream: Stream) -> None:
        super().__init__(broker, stream)
        self.out = pb.PublishResponse()
        self.full: deque[pb.PublishResponse] = deque()
        self.news = False
        self.counted = 0
        self.producers: dict[int, tuple[FakeTopic, str]] = {}

    def handle(self, data: bytes) -> None:
        head, records = split_records(data)
        request = pb.PublishRequest.FromString(head)
        for command in request.open:
            self._open(command)
        for close in request.close:
            self._drop(close.producer_id)
            self.out.outcomes.add(request_id=close.request_id)
            self.tell()
        if not request.counted:
            return
        self.counted += 1
        self.broker.publish_messages += 1
        if self.broker.drop_entries:
            return
        touched: dict[str, FakeTopic] = {}
        for producer_id, entry in zip(
            request.producer_ids, slice_records(records, request.sizes), strict=True
        ):
            if producer_id in self.producers:
                topic, name = self.producers[producer_id]
                self._store(producer_id, topic, name, entry)
                touched[topic.name] = topic
        self.out.answered = self.counted
        self.tell()
        for topic in touched.values():
            self.broker.pump(topic)

    def _open(self, command: pb.OpenProducer) -> None:
        cluster = self.broker.cluster
        name = command.producer_name or f"fake-{next(cluster.names)}"
        topic = cluster.topic(command.topic)
        opened = self.out.opened.add(producer_id=command.producer_id, producer_name=name)
        opened.outcome.request_id = command.request_id
        self.tell()
        error: Exception | None = (
            self.broker.refuse_open.pop(0) if self.broker.refuse_open else None
        )
        old = topic.producers.get(name)
        if error is None and old is not None and command.epoch <= old[2]:
            error = ProducerBusy(f"producer {name} is connected")
        if error is not None:
            opened.outcome.code, opened.outcome.message = error.code, str(error)  # type: ignore[attr-defined]
            return
        topic.producers[name] = (self, command.producer_id, command.epoch)
        self.producers[command.producer_id] = (topic, name)
        opened.last_sequence_id = topic.marks.get(name, -1) if cluster.deduplication else -1
        opened.deduplication = cluster.deduplication
        opened.max_message_bytes = self.broker.max_message_bytes

    def _store(self, producer_id: int, topic: FakeTopic, name: str, entry: memoryview) -> None:
        verify_entry(entry)
        metadata = parse_metadata(entry)
        highest = max(metadata.sequence_id, metadata.highest_sequence_id)
        if self.broker.refuse_entries:
            error = self.broker.refuse_entries.pop(0)
            self.out.failed.add(
                producer_id=producer_id,
                sequence_id=metadata.sequence_id,
                code=error.code,
                message=str(error),
            )  # type: ignore[attr-defined]
            return
        ledger, at = topic.ledger, len(topic.entries)
        if self.broker.cluster.deduplication and metadata.sequence_id <= topic.marks.get(name, -1):
            ledger = at = -1
        else:
            if metadata.chunk_id >= metadata.num_chunks_from_msg - 1:
                topic.marks[name] = max(highest, topic.marks.get(name, -1))
            topic.entries.append(bytes(entry) if self.broker.cluster.keep else b"")
            topic.times.append(metadata.publish_time)
            topic.messages.append(metadata.num_messages_in_batch)
        if self.broker.hold_receipts:
            return
        if self.out.failed:
            # In one message receipts come before failures, so later receipts need another.
            self.full.append(self.out)
            self.out = pb.PublishResponse(answered=self.out.answered)
        out = self.out
        last = len(out.producers) - 1
        if (
            last >= 0
            and out.producers[last] == producer_id
            and ledger == out.ledgers[last] >= 0
            and not out.failed
        ):
            out.counts[last] += 1
            out.sequence_ids[last] = metadata.sequence_id
        else:
            out.producers.append(producer_id)
            out.counts.append(1)
            out.ledgers.append(ledger)
            out.firsts.append(at)
            out.sequence_ids.append(metadata.sequence_id)

    def _drop(self, producer_id: int) -> None:
        found = self.producers.pop(producer_id, None)
        if found is not None and found[0].producers.get(found[1], (None,))[0] is self:
            del found[0].producers[found[1]]

    def close_producers(self, error: Exception) -> None:
        for producer_id in list(self.producers):
            self._drop(producer_id)
            self.out.closed.add(producer_id=producer_id, code=error.code, message=str(error))  # type: ignore[attr-defined]
        self.tell()

    def tell(self) -> None:
        self.news = True
        self.wake.set()

    def gather(self) -> list[Buffer] | None:
        if self.full:
            return [self.full.popleft().SerializeToString()]
        if not self.news:
            return None
        out, self.out, self.news = self.out, pb.PublishResponse(answered=self.out.answered), False
        return [out.SerializeToString()]

    def ended(self) -> None:
        for producer_id in list(self.producers):
            self._drop(producer_id)


class ConsumeSession(_Session):
    def __init__(self, broker: FakeBroker, stream: Stream) -> None:
        super().__init__(broker, stream)
        self.out = pb.ConsumeResponse()
        self.news = False
        self.deliveries: deque[tuple[int, FakeTopic, int, int]] = deque()
        self.sent = 0
        self.taken = 0
        self.consumers: dict[int, tuple[FakeSubscription, FakeConsumer, str]] = {}

    def tell(self) -> None:
        self.news = True
        self.wake.set()

    def handle(self, data: bytes) -> None:
        request = pb.ConsumeRequest.FromString(data)
        self.taken = request.taken
        self.wake.set()
        for command in request.subscribe:
            self._subscribe(command)
        for ack in request.acks:
            self._ack(ack)
        for again in request.redeliver:
            if again.consumer_id in self.consumers:
                subscription, consumer, _ = self.consumers[again.consumer_id]
                self._again(subscription, consumer, list(again.entries))
            if again.request_id and not self.broker.is_old:
                self.out.outcomes.append(
                    pb.Outcome(request_id=again.request_id)
                    if again.consumer_id in self.consumers
                    else self._unknown(again.request_id)
                )
                self.tell()
        for seek in request.seek:
            self._seek(seek)
        for consumer_id, permits in zip(request.flow_consumers, request.flow_permits, strict=True):
            if consumer_id in self.consumers:
                subscription, consumer, _ = self.consumers[consumer_id]
                consumer.permits += permits
                self.fill(consumer, subscription)
        for ask in request.last_message_id:
            if ask.consumer_id not in self.consumers:
                answer = self.out.last_message_id.add()
                answer.outcome.CopyFrom(self._unknown(ask.request_id))
                continue
            subscription, consumer, _ = self.consumers[ask.consumer_id]
            topic = consumer.topic
            answer = self.out.last_message_id.add()
            answer.outcome.request_id = ask.request_id
            size = topic.messages[-1] if topic.entries else 1
            last = pb.MessageId(
                ledger=topic.ledger,
                entry=len(topic.entries) - 1,
                batch_index=size - 1 if size > 1 else -1,
            )
            answer.last.CopyFrom(last)
            answer.mark_delete.CopyFrom(
                pb.MessageId(ledger=topic.ledger, entry=subscription.mark_delete, batch_index=-1)
            )
            self.tell()
        for unsubscribe in request.unsubscribe:
            if unsubscribe.consumer_id not in self.consumers:
                self.out.outcomes.append(self._unknown(unsubscribe.request_id))
                continue
            _, consumer, name = self.consumers[unsubscribe.consumer_id]
            consumer.topic.subscriptions.pop(name, None)
            self.out.outcomes.add(request_id=unsubscribe.request_id)
            self.tell()
        for close in request.close:
            self._drop(close.consumer_id)
            self.out.outcomes.add(request_id=close.request_id)
            self.tell()

    def _unknown(self, request_id: int) -> pb.Outcome:
        """What a broker says to a consumer that it has closed and that has not heard of it yet."""
        self.tell()
        return pb.Outcome(
            request_id=request_id, code=AlreadyClosed.code, message="the consumer is not connected"
        )

    def _subscribe(self, command: pb.Subscribe) -> None:
        topic = self.broker.cluster.topic(command.topic)
        answer = self.out.subscribed.add(consumer_id=command.consumer_id)
        answer.outcome.request_id = command.request_id
        self.tell()
        subscription = topic.subscriptions.get(command.subscription)
        error: Exception | None = (
            self.broker.refuse_open.pop(0) if self.broker.refuse_open else None
        )
        if (
            error is None
            and subscription is not None
            and subscription.consumers
            and subscription.kind != pb.SUB_SHARED
        ):
            error = ConsumerBusy(
                f"subscription {command.subscription} has an exclusive consumer: use another name "
                "or type"
            )
        if error is not None:
            answer.outcome.code, answer.outcome.message = error.code, str(error)  # type: ignore[attr-defined]
            return
        if subscription is None:
            subscription = topic.subscriptions[command.subscription] = FakeSubscription(
                command.type, command.durable
            )
            start = 0 if command.initial_position == pb.EARLIEST else len(topic.entries)
            if not command.durable:
                start = {-1: 0, LATEST: len(topic.entries)}.get(
                    command.start.ledger, min(max(0, command.start.entry), len(topic.entries))
                )
            subscription.acked = set(range(start))
            subscription.read = start
        subscription.kind = command.type
        consumer = FakeConsumer(self, command.consumer_id, topic, command.consumer_name)
        subscription.consumers[self.number, command.consumer_id] = consumer
        self.consumers[command.consumer_id] = (subscription, consumer, command.subscription)

    def fill(self, consumer: FakeConsumer, subscription: FakeSubscription) -> None:
        topic = consumer.topic
        while consumer.permits > 0:
            if subscription.again:
                at = subscription.again.popleft()
            elif subscription.read < len(topic.entries):
                at = subscription.read
                subscription.read += 1
            else:
                break
            if at in subscription.acked:
                continue
            consumer.permits -= topic.messages[at]
            consumer.held[at] = None
            self.deliveries.append(
                (consumer.consumer_id, topic, at, subscription.counts.get(at, 0))
            )
        self.wake.set()

    def _ack(self, ack: pb.Ack) -> None:
        self.broker.acks.append(ack)
        error: Exception | None = AlreadyClosed("the consumer is not connected")
        if ack.consumer_id in self.consumers:
            error = None
            subscription, consumer, _ = self.consumers[ack.consumer_id]
            if ack.cumulative and subscription.kind == pb.SUB_SHARED:
                error = NotAllowedError("cumulative acknowledgement on a shared subscription")
            elif ack.cumulative:
                subscription.acked.update(range(ack.entries[0] + 1))
            else:
                indexes = ack.batch_indexes or [-1] * len(ack.entries)
                subscription.acked.update(
                    entry for entry, index in zip(ack.entries, indexes, strict=True) if index < 0
                )
            for entry in list(consumer.held):
                if entry in subscription.acked:
                    del consumer.held[entry]
        if ack.request_id:
            outcome = self.out.outcomes.add(request_id=ack.request_id)
            if error is not None:
                outcome.code, outcome.message = error.code, str(error)  # type: ignore[attr-defined]
            self.tell()

    def _again(
        self, subscription: FakeSubscription, consumer: FakeConsumer, entries: list[int]
    ) -> None:
        if not entries:
            withdrawn = [row for row in self.deliveries if row[0] == consumer.consumer_id]
            consumer.permits += sum(consumer.topic.messages[row[2]] for row in withdrawn)
            self.deliveries = deque(
                row for row in self.deliveries if row[0] != consumer.consumer_id
            )
        for entry in sorted(entries or consumer.held):
            if entry not in subscription.acked and entry not in subscription.again:
                subscription.counts[entry] = subscription.counts.get(entry, 0) + 1
                subscription.again.append(entry)
        if subscription.kind != pb.SUB_SHARED:
            subscription.again = deque(sorted(subscription.again))
        self.fill(consumer, subscription)

    def _seek(self, seek: pb.Seek) -> None:
        if seek.consumer_id not in self.consumers:
            self.out.outcomes.append(self._unknown(seek.request_id))
            return
        subscription, consumer, _ = self.consumers[seek.consumer_id]
        topic = consumer.topic
        if self.broker.hold_seeks:
            return
        if seek.HasField("position") and seek.position.ledger not in (-1, LATEST, topic.ledger):
            self.out.outcomes.add(
                request_id=seek.request_id,
                code=InvalidPosition.code,
                message="no ledger of the topic",
            )
            self.tell()
            return
        if seek.HasField("position"):
            at = {-1: 0, LATEST: len(topic.entries)}.get(
                seek.position.ledger, min(seek.position.entry, len(topic.entries))
            )
        else:
            at = next(
                (index for index, time in enumerate(topic.times) if time >= seek.publish_time_ms),
                len(topic.entries),
            )
        withdrawn = [row for row in self.deliveries if row[0] == seek.consumer_id]
        consumer.permits += sum(topic.messages[row[2]] for row in withdrawn)
        self.deliveries = deque(row for row in self.deliveries if row[0] != seek.consumer_id)
        subscription.acked = set(range(at))
        subscription.read = at
        subscription.again.clear()
        consumer.held.clear()
        self.out.outcomes.add(request_id=seek.request_id)
        self.tell()
        self.fill(consumer, subscription)

    def close_consumers(self, error: Exception) -> None:
        for consumer_id in list(self.consumers):
            self._drop(consumer_id)
            self.out.closed.add(consumer_id=consumer_id, code=error.code, message=str(error))  # type: ignore[attr-defined]
        self.tell()

    def _drop(self, consumer_id: int) -> None:
        found = self.consumers.pop(consumer_id, None)
        if found is None:
            return
        subscription, consumer, name = found
        subscription.consumers.pop((self.number, consumer_id), None)
        for entry in consumer.held:
            if entry not in subscription.acked:
                subscription.counts[entry] = subscription.counts.get(entry, 0) + 1
                subscription.again.append(entry)
        if subscription.kind != pb.SUB_SHARED:
            subscription.again = deque(sorted(set(subscription.again)))
        self.deliveries = deque(row for row in self.deliveries if row[0] != consumer_id)
        if not subscription.durable and not subscription.consumers:
            consumer.topic.subscriptions.pop(name, None)
        self.broker.pump(consumer.topic)

    def gather(self) -> list[Buffer] | None:
        may_deliver = bool(self.deliveries) and self.sent - self.taken < 2
        if not self.news and not may_deliver:
            return None
        out, self.out, self.news = self.out, pb.ConsumeResponse(), False
        records: list[bytes] = []
        size = 0
        if may_deliver:
            self.sent += 1
            out.counted = True
            while self.deliveries and size < 1 << 20:
                consumer_id, topic, at, redelivered = self.deliveries.popleft()
                entry = topic.entries[at]
                if self.broker.damage_next:
                    self.broker.damage_next -= 1
                    entry = entry[:-1] + bytes((entry[-1] ^ 1,))
                out.consumer_ids.append(consumer_id)
                out.ledgers.append(topic.ledger)
                out.entry_ids.append(at)
                out.redelivery_counts.append(redelivered)
                out.sizes.append(len(entry))
                records.append(entry)
                size += len(entry)
        return join_records(out, records, size)

    def ended(self) -> None:
        for consumer_id in list(self.consumers):
            self._drop(consumer_id)
