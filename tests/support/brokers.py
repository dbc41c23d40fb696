"""A small cluster of real brokers and bookies in a simulation, and clients that speak the broker's
protocol by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pulsarish.bookie.bookie import Bookie
from pulsarish.broker.broker import Broker
from pulsarish.broker.config import BrokerConfig
from pulsarish.model.errors import PulsarishError, ServiceNotReady, error_from_code
from pulsarish.runtime.cluster_members import member_credentials
from pulsarish.runtime.seams import Stream, StreamBroken, World
from pulsarish.security.authentication import Authenticator
from pulsarish.sim.world.connections import SimConnections
from pulsarish.sim.world.nodes import Node
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import encode_entry, parse_metadata
from pulsarish.wire.framing import join_records, slice_records, split_records
from tests.support.bookies import small_config

__all__ = ["BrokerCluster", "ConsumeClient", "PublishClient", "entry", "find"]


def entry(
    producer: str,
    sequence_id: int,
    payload: bytes = b"x",
    *,
    batch: int = 0,
    highest: int = 0,
    time_ms: int = 1,
) -> bytes:
    metadata = MessageMetadata(
        producer_name=producer, sequence_id=sequence_id, publish_time=time_ms
    )
    if batch:
        metadata.num_messages_in_batch = batch
    if highest:
        metadata.highest_sequence_id = highest
    return encode_entry(metadata, payload)


class BrokerCluster:
    """Three bookies and some brokers; ``world`` is a client's."""

    def __init__(
        self,
        sim: Simulation,
        *,
        brokers: int = 1,
        authenticator: Authenticator | None = None,
        **settings: object,
    ) -> None:
        self._authenticator = authenticator
        self.sim = sim
        self.brokers: dict[str, Broker] = {}
        self.bookies: dict[str, Bookie] = {}
        self.nodes: dict[str, Node] = {}
        self._settings = settings
        self._bookies = [f"bookie{index}" for index in range(3)]
        self._names = [f"broker{index}" for index in range(brokers)]

    def config(self, name: str) -> BrokerConfig:
        addresses = {
            "listen_address": f"{name}:6660",
            "http_address": f"{name}:8080",
            "pulsar_address": f"{name}:6650",
        }
        config = BrokerConfig(broker_id=name, metadata_url="memory:", **addresses)
        return msgspec.structs.replace(config, **self._settings)  # type: ignore[arg-type]

    async def start(self) -> None:
        for name in self._bookies:
            await self.start_bookie(name)
        for name in self._names:
            await self.start_broker(name)

    async def start_bookie(self, name: str) -> None:
        config = small_config(
            name,
            entry_log_size_bytes=1 << 20,
            write_cache_size_bytes=4 << 20,
            journal_file_size_bytes=1 << 20,
            reserved_bytes=8 << 20,
            read_only_free_bytes=8 << 20,
            cluster_key_file=self._settings.get("cluster_key_file", ""),
        )

        async def run(world: World) -> None:
            bookie = self.bookies[name] = Bookie(world, config)
            await bookie.start()

        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = self.sim.node(name)
        elif not node.alive:
            node.start()
        await node.run(run)

    async def start_broker(self, name: str) -> Broker:
        async def run(world: World) -> Broker:
            config = self.config(name)
            assert isinstance(world.connections, SimConnections)
            world.connections.credentials = member_credentials(config.cluster_key_file, "broker")(
                world.clock
            )
            broker = Broker(world, config, authenticator=self._authenticator)
            await broker.start()
            return broker

        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = self.sim.node(name)
        elif not node.alive:
            node.start()
        self.brokers[name] = await node.run(run)
        return self.brokers[name]

    async def stop_broker(self, name: str) -> None:
        async def stop(world: World) -> None:
            await self.brokers[name].stop()

        await self.nodes[name].run(stop)


async def find(world: World, brokers: Sequence[str], topic: str, *, attempts: int = 100) -> str:
    """The address of a topic's owner, by asking the brokers in turn until one answers."""
    last: Exception | None = None
    for attempt in range(attempts):
        address, authoritative = f"{brokers[attempt % len(brokers)]}:6660", False
        try:
            for _ in range(5):
                request = pb.LookupsRequest(
                    lookups=[pb.LookupRequest(topic=topic, authoritative=authoritative)]
                )
                data = await world.connections.call(
                    address, "broker.lookup", request.SerializeToString(), timeout_seconds=2.0
                )
                (answer,) = pb.LookupsResponse.FromString(data).answers
                if answer.code:
                    raise error_from_code(answer.code, answer.message)
                if not answer.redirect:
                    return answer.address
                address, authoritative = answer.address, answer.authoritative
        except (PulsarishError, Exception) as error:
            if isinstance(error, PulsarishError) and not error.retryable:
                raise
            last = error
        await world.clock.sleep(0.1)
    raise ServiceNotReady(f"no owner of {topic} was found: {last}")


def _raise(outcome: pb.Outcome) -> None:
    if outcome.code:
        raise error_from_code(outcome.code, outcome.message)


@dataclass
class PublishClient:
    """One publish stream.

    ``receipts`` has ``(ledger, entry)`` for each entry of a producer in its order, or the error it
    got.
    """

    stream: Stream
    receipts: dict[int, list[tuple[int, int] | PulsarishError]] = field(default_factory=dict)
    closed: dict[int, PulsarishError] = field(default_factory=dict)
    answered: int = 0
    counted: int = 0
    _request_id: int = 0

    @classmethod
    async def connect(cls, world: World, address: str) -> PublishClient:
        return cls(await world.connections.open(address, "broker.publish"))

    async def open(
        self, producer_id: int, topic: str, name: str = "p", **fields: Any
    ) -> pb.ProducerOpened:
        self._request_id += 1
        request = pb.OpenProducer(
            request_id=self._request_id,
            producer_id=producer_id,
            topic=topic,
            producer_name=name,
            **fields,
        )
        await self.stream.send([pb.PublishRequest(open=[request]).SerializeToString()])
        while True:
            for opened in (await self.receive()).opened:
                _raise(opened.outcome)
                self.receipts.setdefault(producer_id, [])
                self.closed.pop(producer_id, None)
                return opened

    async def close(self, producer_id: int) -> None:
        self._request_id += 1
        await self.stream.send(
            [
                pb.PublishRequest(
                    close=[pb.CloseProducer(request_id=self._request_id, producer_id=producer_id)]
                ).SerializeToString()
            ]
        )
        while not (await self.receive()).outcomes:
            continue

    async def send(self, entries: Sequence[tuple[int, bytes]]) -> None:
        head = pb.PublishRequest(
            producer_ids=[p for p, _ in entries], sizes=[len(e) for _, e in entries], counted=True
        )
        self.counted += 1
        await self.stream.send(
            join_records(head, [e for _, e in entries], sum(len(e) for _, e in entries))
        )

    async def receive(self) -> pb.PublishResponse:
        data = await self.stream.receive()
        if data is None:
            raise StreamBroken("the broker finished")
        message = pb.PublishResponse.FromString(data)
        rows = zip(message.producers, message.counts, message.ledgers, message.firsts, strict=True)
        for producer, count, ledger, first in rows:
            step = 0 if ledger < 0 else 1
            self.receipts.setdefault(producer, []).extend(
                (ledger, first + step * index) for index in range(count)
            )
        for failed in message.failed:
            self.receipts.setdefault(failed.producer_id, []).append(
                error_from_code(failed.code, failed.message)
            )
        for closed in message.closed:
            self.closed[closed.producer_id] = error_from_code(closed.code, closed.message)
        assert self.answered <= message.answered <= self.counted
        self.answered = message.answered
        return message

    async def wait(self, producer_id: int, count: int) -> list[tuple[int, int] | PulsarishError]:
        """Until so many entries have their outcome."""
        while len(self.receipts[producer_id]) < count:
            if producer_id in self.closed:
                raise self.closed[producer_id]
            await self.receive()
        return self.receipts[producer_id]


@dataclass
class Got:
    consumer_id: int
    ledger: int
    entry: int
    redelivery_count: int
    payload: bytes
    ack_set: bytes | None

    @property
    def sequence_id(self) -> int:
        return int(parse_metadata(self.payload).sequence_id)


@dataclass
class ConsumeClient:
    """One consume stream."""

    stream: Stream
    got: list[Got] = field(default_factory=list)
    closed: dict[int, PulsarishError] = field(default_factory=dict)
    active: dict[int, bool] = field(default_factory=dict)
    outcomes: dict[int, PulsarishError | None] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    _counted: int = 0
    _request_id: int = 0

    @classmethod
    async def connect(cls, world: World, address: str) -> ConsumeClient:
        return cls(await world.connections.open(address, "broker.consume"))

    async def say(self, **fields: Any) -> None:
        await self.stream.send([pb.ConsumeRequest(**fields).SerializeToString()])

    def next_id(self) -> int:
        self._request_id += 1
        return self._request_id

    async def subscribe(
        self,
        consumer_id: int,
        topic: str,
        subscription: str = "s",
        *,
        permits: int = 1000,
        **fields: Any,
    ) -> None:
        number = self.next_id()
        fields = {"durable": True, "initial_position": pb.EARLIEST, **fields}
        request = pb.Subscribe(
            request_id=number,
            consumer_id=consumer_id,
            topic=topic,
            subscription=subscription,
            **fields,
        )
        await self.say(subscribe=[request])
        await self.outcome(number)
        self.closed.pop(consumer_id, None)
        if permits:
            await self.flow(consumer_id, permits)

    async def flow(self, consumer_id: int, permits: int) -> None:
        await self.say(flow_consumers=[consumer_id], flow_permits=[permits])

    async def ack(
        self,
        consumer_id: int,
        ids: Sequence[tuple[int, int]],
        *,
        receipt: bool = True,
        **fields: Any,
    ) -> None:
        number = self.next_id() if receipt else 0
        ack = pb.Ack(
            consumer_id=consumer_id,
            request_id=number,
            ledgers=[i[0] for i in ids],
            entries=[i[1] for i in ids],
            **fields,
        )
        await self.say(acks=[ack])
        if receipt:
            await self.outcome(number)

    async def ask(self, kind: str, **fields: Any) -> None:
        """seek, close or unsubscribe, until answered."""
        number = self.next_id()
        message = {"seek": pb.Seek, "close": pb.CloseConsumer, "unsubscribe": pb.Unsubscribe}[kind](
            request_id=number, **fields
        )
        await self.say(**{kind: [message]})
        await self.outcome(number)

    async def outcome(self, number: int) -> None:
        while number not in self.outcomes:
            await self.receive()
        error = self.outcomes.pop(number)
        if error is not None:
            raise error

    async def receive(self) -> pb.ConsumeResponse:
        data = await self.stream.receive()
        if data is None:
            raise StreamBroken("the broker finished")
        head, records = split_records(data)
        message = pb.ConsumeResponse.FromString(head)
        for outcome in [*message.outcomes, *(each.outcome for each in message.subscribed)]:
            self.outcomes[outcome.request_id] = (
                error_from_code(outcome.code, outcome.message) if outcome.code else None
            )
        for closed in message.closed:
            self.closed[closed.consumer_id] = error_from_code(closed.code, closed.message)
        for change in message.active:
            self.active[change.consumer_id] = change.active
        self.ended.extend(each.consumer_id for each in message.ended)
        sets = dict(zip(message.ack_set_rows, message.ack_sets, strict=True))
        payloads = slice_records(records, message.sizes)
        for row, payload in enumerate(payloads):
            self.got.append(
                Got(
                    message.consumer_ids[row],
                    message.ledgers[row],
                    message.entry_ids[row],
                    message.redelivery_counts[row],
                    bytes(payload),
                    sets.get(row),
                )
            )
        if message.counted:
            self._counted += 1
            await self.say(taken=self._counted)
        return message

    async def take(self, count: int) -> list[Got]:
        """The next ``count`` deliveries."""
        while len(self.got) < count:
            await self.receive()
        taken, self.got = self.got[:count], self.got[count:]
        return taken
