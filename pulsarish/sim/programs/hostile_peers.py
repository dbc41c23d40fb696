"""A peer that sends what no client sends, to brokers and bookies, by every way in that the
simulated network has.

It harms no other client: every process stays alive, what a connection makes it hold stays below the
limits (``sim/cluster/peer_limits.py``), and the promises to all others hold. As there is no login
yet, a peer may do what any client may. So its valid requests go only to topics of its own and to
ledger ids that are not given out, and it adds no entries to bookies.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from google.protobuf.message import Message

from pulsarish.runtime.seams import CallFailed, StreamBroken, World
from pulsarish.sim.cluster.stage import Stage
from pulsarish.sim.programs.hostile_frames import (
    SUBSCRIPTION,
    TOPICS,
    WILD_IDS,
    changed,
    entry,
    frame,
    garbage,
    send_frame,
)
from pulsarish.wire._pb import bookie_pb2, broker_pb2
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import FrameReader, command_frame

__all__ = ["ATTACKS", "HostilePeer"]

ATTACKS: Final = (
    "converse",
    "reopen",
    "epochs",
    "send_garbage",
    "leave_unread",
    "leave_unfinished",
    "open_many",
    "call_bookies",
    "stream",
)
"""Each is a method of ``HostilePeer``."""
_LEDGERS: Final = (2**40, 2**53, 2**62, 2**63 - 2, 2**63 - 1, -1, -(2**63))
"""Ids that no ledger of a run has."""
_CALL_SECONDS: Final = 2.0
_ANSWER_SECONDS: Final = 2.0
_CONNECTIONS: Final = 20
_OPENINGS: Final = 40
_UNREAD_REQUESTS: Final = 3_000


class _Wire(asyncio.Protocol):
    """A connection in Apache Pulsar's binary protocol."""

    def __init__(self) -> None:
        self.heard: list[pb.Command] = []
        self.lost = False
        self._reader = FrameReader(1 << 30)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.heard += [
            pb.Command.FromString(each.command) for each in self._reader.feed(bytes(data))
        ]
        del self.heard[:-100]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def eof_received(self) -> bool:
        return False

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport


def _producer(topic: str, producer_id: int, request_id: int, **fields: int) -> bytes:
    producer = pb.Producer(
        topic=topic,
        producer_id=producer_id,
        request_id=request_id,
        producer_name=f"h{producer_id}",
        **fields,  # type: ignore[arg-type]
    )
    return command_frame(pb.Command(type=5, producer=producer))


def _conversation(topic: str) -> list[pb.Command]:
    """Return the commands of a client, with answers or without."""
    place = pb.MessageIdData(ledger_id=3, entry_id=1, ack_set=[5], batch_size=4)
    schema = pb.Schema(name="", schema_data=b'{"type":"string"}', type=2)
    return [
        pb.Command(
            type=5,
            producer=pb.Producer(topic=topic, producer_id=1, request_id=1, schema=schema, epoch=1),
        ),
        pb.Command(
            type=4,
            subscribe=pb.Subscribe(
                topic=topic,
                subscription=SUBSCRIPTION,
                sub_type="SUB_SHARED",
                consumer_id=1,
                request_id=2,
            ),
        ),
        pb.Command(
            type=4,
            subscribe=pb.Subscribe(
                topic=topic,
                subscription=SUBSCRIPTION,
                sub_type="SUB_EXCLUSIVE",
                consumer_id=2,
                request_id=3,
                durable=False,
                start_message_id=place,
            ),
        ),
        pb.Command(type=11, flow=pb.Flow(consumer_id=1, message_permits=100)),
        pb.Command(
            type=10,
            ack=pb.Ack(consumer_id=1, ack_type="INDIVIDUAL", message_id=[place], request_id=4),
        ),
        pb.Command(
            type=10,
            ack=pb.Ack(consumer_id=1, ack_type="CUMULATIVE", message_id=[place], request_id=5),
        ),
        pb.Command(
            type=20,
            redeliver=pb.RedeliverUnacknowledgedMessages(
                consumer_id=1, message_ids=[place], consumer_epoch=1
            ),
        ),
        pb.Command(type=28, seek=pb.Seek(consumer_id=1, request_id=6, message_id=place)),
        pb.Command(type=28, seek=pb.Seek(consumer_id=1, request_id=7, message_publish_time=1)),
        pb.Command(type=29, get_last_message_id=pb.GetLastMessageId(consumer_id=1, request_id=8)),
        pb.Command(type=12, unsubscribe=pb.Unsubscribe(consumer_id=2, request_id=9)),
        pb.Command(type=25, consumer_stats=pb.ConsumerStats(consumer_id=1, request_id=10)),
        pb.Command(
            type=21, partitioned_metadata=pb.PartitionedMetadata(topic=topic, request_id=11)
        ),
        pb.Command(type=23, lookup=pb.LookupTopic(topic=topic, request_id=12)),
        pb.Command(
            type=32,
            get_topics_of_namespace=pb.GetTopicsOfNamespace(
                request_id=13, namespace="public/default"
            ),
        ),
        pb.Command(
            type=34, get_schema=pb.GetSchema(request_id=14, topic=topic, schema_version=b"\0" * 8)
        ),
        pb.Command(
            type=39,
            get_or_create_schema=pb.GetOrCreateSchema(request_id=15, topic=topic, schema=schema),
        ),
        pb.Command(
            type=64,
            watch_topic_list=pb.WatchTopicList(
                request_id=16, watcher_id=1, namespace="public/default", topics_pattern="hostile.*"
            ),
        ),
        pb.Command(
            type=67, watch_topic_list_close=pb.WatchTopicListClose(request_id=17, watcher_id=1)
        ),
        pb.Command(type=15, close_producer=pb.CloseProducer(producer_id=1, request_id=18)),
        pb.Command(type=16, close_consumer=pb.CloseConsumer(consumer_id=1, request_id=19)),
        pb.Command(type=50, new_txn=pb.TxnRequest(request_id=20)),
        pb.Command(type=2, connect=pb.Connect(client_version="again", protocol_version=19)),
    ]


def _bookie_calls(instance_id: str, ledger_id: int, wild: int) -> list[tuple[str, Message]]:
    return [
        ("bookie.fence", bookie_pb2.FenceRequest(instance_id=instance_id, ledger=ledger_id)),
        (
            "bookie.read_lac",
            bookie_pb2.ReadLacRequest(
                instance_id=instance_id, ledger=ledger_id, after_lac=wild, wait_ms=300
            ),
        ),
        (
            "bookie.write_lacs",
            bookie_pb2.WriteLacsRequest(instance_id=instance_id, ledgers=[ledger_id], lacs=[wild]),
        ),
        (
            "bookie.recovery_read",
            bookie_pb2.RecoveryReadRequest(
                instance_id=instance_id, ledger=ledger_id, first=wild, last=ledger_id
            ),
        ),
        (
            "bookie.list_ledgers",
            bookie_pb2.ListLedgersRequest(instance_id=instance_id, after=wild, limit=1),
        ),
        (
            "bookie.list_entries",
            bookie_pb2.ListEntriesRequest(
                instance_id=instance_id, ledger=ledger_id, first=0, last=wild
            ),
        ),
        (
            "bookie.clear_limbo",
            bookie_pb2.ClearLimboRequest(instance_id=instance_id, ledger=ledger_id, times=1),
        ),
        (
            "bookie.list_trash",
            bookie_pb2.ListTrashRequest(instance_id=instance_id, after=wild, limit=1),
        ),
        (
            "bookie.change_trash",
            bookie_pb2.ChangeTrashRequest(
                instance_id=instance_id, restore=True, ledgers=[ledger_id]
            ),
        ),
        (
            "bookie.collect_garbage",
            bookie_pb2.CollectGarbageRequest(instance_id=instance_id, begin=True),
        ),
        (
            "bookie.volume",
            bookie_pb2.VolumeRequest(
                instance_id=instance_id, directory="/data/ledgers", remove=True
            ),
        ),
        (
            "bookie.add_volume",
            bookie_pb2.AddVolumeRequest(
                instance_id=instance_id,
                journal_directory="/new/journal",
                ledger_directory="/new/ledgers",
                index_directory="/new/index",
                add=True,
            ),
        ),
    ]


@dataclass(slots=True)
class HostilePeer:
    """``attacks``: the attacks that it draws from, by name."""

    stage: Stage
    rng: random.Random
    brokers: Sequence[str]
    bookies: Sequence[str]
    attacks: Sequence[str] = ATTACKS
    _open: list[_Wire] = field(default_factory=list)

    async def session(self, world: World) -> None:
        """Attack one process a few times, then leave."""
        rng = self.rng
        self._open = []
        try:
            for _ in range(rng.randint(1, 4)):
                if self.stage.over:
                    return
                name = rng.choice(self.attacks)
                self.stage.counts.attacks += 1
                self.stage.trace(f"hostile: {name}")
                await getattr(self, f"_{name}")(world)
                await world.clock.sleep(rng.uniform(0.05, 0.5))
        except (StreamBroken, CallFailed, TimeoutError) as error:
            self.stage.trace(f"hostile: {error!r}")
            await world.clock.sleep(0.2)
        finally:
            for wire in self._open:
                wire.transport.abort()

    # -- the binary protocol

    async def _connect(self, world: World, broker: str, *, greets: bool = True) -> _Wire:
        wire = cast("_Wire", await world.connections.open_bytes(f"{broker}:6650", _Wire))
        self._open.append(wire)
        if greets:
            wire.transport.write(
                command_frame(
                    pb.Command(type=2, connect=pb.Connect(client_version="h", protocol_version=19))
                )
            )
        return wire

    async def _answer(
        self, world: World, wire: _Wire, wanted: Callable[[pb.Command], bool]
    ) -> pb.Command | None:
        """Wait for the answer. Return ``None`` when none came in time."""
        until = world.clock.monotonic() + _ANSWER_SECONDS
        while world.clock.monotonic() < until and not wire.lost:
            for command in wire.heard:
                if wanted(command):
                    return command
            await world.clock.sleep(0.02)
        return None

    async def _at_owner(self, world: World, topic: str) -> _Wire:
        """Return a connection to the topic's owner, as far as a broker says which one that is."""
        wire = await self._connect(world, self.rng.choice(self.brokers))
        wire.transport.write(
            command_frame(pb.Command(type=23, lookup=pb.LookupTopic(topic=topic, request_id=9_999)))
        )
        answer = await self._answer(world, wire, lambda each: each.type == 24)
        url = answer.lookup_response.broker_service_url if answer is not None else ""
        owner = url.partition("://")[2].partition(":")[0]
        return await self._connect(world, owner) if owner in self.brokers else wire

    async def _converse(self, world: World) -> None:
        """Send a conversation in any order, with fields changed."""
        rng = self.rng
        topic = rng.choice(TOPICS)
        wire = await self._at_owner(world, topic)
        commands = _conversation(topic)
        opening = commands[:3]
        for command in [*opening, *rng.choices(commands, k=rng.randint(5, 40))]:
            wire.transport.write(frame(changed(rng, command, most=0 if rng.random() < 0.4 else 2)))
            if rng.random() < 0.4:
                wire.transport.write(
                    send_frame(
                        1, rng.choice((1, 2, *WILD_IDS)), rng.choice((None, b"", rng.randbytes(30)))
                    )
                )
            if rng.random() < 0.3:
                await world.clock.sleep(rng.uniform(0.0, 0.2))
            if wire.lost:
                return

    async def _reopen(self, world: World) -> None:
        """Close and open producers again while their messages wait."""
        rng, topic = self.rng, TOPICS[0]
        wire = await self._at_owner(world, topic)
        request_id = 1
        wire.transport.write(_producer(topic, 1, request_id))
        _ = await self._answer(world, wire, lambda each: each.type in (13, 14, 17))
        for _ in range(rng.randint(2, 6)):
            said = [
                send_frame(1, number, rng.choice((None, None, b"", b"\x0e\x01bad")))
                for number in range(rng.randint(1, 8))
            ]
            for _ in range(rng.randint(1, 2)):
                request_id += 1
                close = pb.Command(
                    type=15, close_producer=pb.CloseProducer(producer_id=1, request_id=request_id)
                )
                said += rng.sample(
                    [command_frame(close), _producer(topic, 1, request_id + 1, epoch=request_id)],
                    rng.randint(1, 2),
                )
                request_id += 1
                said += [send_frame(1, number) for number in range(100, 100 + rng.randint(0, 3))]
            wire.transport.write(b"".join(said))
            await world.clock.sleep(rng.choice((0.0, 0.0, 0.05, 0.3)))

    async def _epochs(self, world: World) -> None:
        """Open exclusive producers with epochs and ids that were never given out.

        The broker must still serve each next one.
        """
        rng = self.rng
        topic = rng.choice(TOPICS[:2])
        wire = await self._at_owner(world, topic)
        for number, access_mode in enumerate((1, 3, 1, 2), 1):
            epoch = {"topic_epoch": rng.choice(WILD_IDS)} if rng.random() < 0.7 else {}
            wire.transport.write(
                _producer(topic, number, number, producer_access_mode=access_mode, **epoch)
            )
            _ = await self._answer(world, wire, lambda each, number=number: _is_about(each, number))  # type: ignore[misc]
            wire.transport.write(send_frame(number, number))
            close = pb.CloseProducer(producer_id=number, request_id=100 + number)
            wire.transport.write(command_frame(pb.Command(type=15, close_producer=close)))

    async def _send_garbage(self, world: World) -> None:
        """Send bytes that are not a frame, before CONNECT or after it."""
        rng = self.rng
        broker = rng.choice(self.brokers)
        for _ in range(rng.randint(1, 6)):
            wire = await self._connect(world, broker, greets=rng.random() < 0.6)
            good = command_frame(rng.choice(_conversation(TOPICS[0])))
            for _ in range(rng.randint(1, 4)):
                wire.transport.write(garbage(rng, good))
            await world.clock.sleep(rng.uniform(0.0, 0.3))

    async def _leave_unread(self, world: World) -> None:
        """Send requests whose answers are longer than themselves, and do not read the answers."""
        rng = self.rng
        broker = rng.choice(self.brokers)
        for _ in range(rng.randint(1, 3)):
            wire = await self._connect(world, broker)
            await world.clock.sleep(0.2)
            wire.transport.pause_reading()
            asked = pb.GetSchema(request_id=1, topic=TOPICS[0], schema_version=b"123")
            kinds = (
                pb.Command(type=34, get_schema=asked),
                pb.Command(type=51, new_txn_response=pb.TxnResponse(request_id=1)),
            )
            wire.transport.write(command_frame(rng.choice(kinds)) * _UNREAD_REQUESTS)
        await world.clock.sleep(rng.uniform(0.2, 2.0))

    async def _leave_unfinished(self, world: World) -> None:
        """Send frames that are never completed, on several connections."""
        rng = self.rng
        broker = rng.choice(self.brokers)
        for number in range(rng.randint(1, 12)):
            wire = await self._connect(world, broker)
            begun = send_frame(1, 1, bytes(4_000))
            wire.transport.write(begun[: rng.randrange(2_000, len(begun))])
            if number % 4 == 3:
                await world.clock.sleep(0.1)
        await world.clock.sleep(rng.uniform(0.1, 1.5))

    async def _open_many(self, world: World) -> None:
        """Open connections, or producers and consumers of one connection, beyond the limits."""
        rng = self.rng
        if rng.random() < 0.4:
            broker = rng.choice(self.brokers)
            for _ in range(_CONNECTIONS):
                _ = await self._connect(world, broker, greets=rng.random() < 0.5)
            await world.clock.sleep(rng.uniform(0.1, 1.0))
            return
        topic = rng.choice(TOPICS)
        wire = await self._at_owner(world, topic)
        for number in range(_OPENINGS):
            subscribe = pb.Subscribe(
                topic=topic,
                subscription=SUBSCRIPTION,
                sub_type="SUB_SHARED",
                consumer_id=number,
                request_id=1_000 + number,
            )
            wire.transport.write(_producer(topic, number, number))
            wire.transport.write(command_frame(pb.Command(type=4, subscribe=subscribe)))
        await world.clock.sleep(rng.uniform(0.2, 1.0))

    # -- the other listeners

    async def _call_bookies(self, world: World) -> None:
        """Call the control lane about ledgers that were never made, with valid or changed
        requests.
        """
        rng = self.rng
        address = f"{rng.choice(self.bookies)}:3181"
        encoded = await world.connections.call(
            address, "bookie.status", b"", timeout_seconds=_CALL_SECONDS
        )
        instance_id = bookie_pb2.StatusResponse.FromString(encoded).instance_id
        calls = _bookie_calls(instance_id, rng.choice(_LEDGERS), rng.choice(_LEDGERS))
        for method, request in rng.choices(calls, k=rng.randint(1, 8)):
            answer = await world.connections.call(
                address, method, request.SerializeToString(), timeout_seconds=_CALL_SECONDS
            )
            self.stage.trace(f"hostile: {method} was answered with {len(answer)} bytes")

    async def _stream(self, world: World) -> None:
        """Send messages of streams: valid at first, then changed, then bytes that are not a
        message.
        """
        rng, topic = self.rng, TOPICS[0]
        address, method, messages = rng.choice(
            (
                (f"{rng.choice(self.bookies)}:3181", "bookie.read", self._reads()),
                (f"{rng.choice(self.brokers)}:6660", "broker.publish", self._publishes(topic)),
                (f"{rng.choice(self.brokers)}:6660", "broker.consume", self._consumes(topic)),
            )
        )
        stream = await world.connections.open(address, method)
        try:
            for message in messages:
                await stream.send(
                    [changed(rng, message) if rng.random() < 0.6 else message.SerializeToString()]
                )
                await world.clock.sleep(rng.uniform(0.0, 0.2))
            await stream.send([rng.randbytes(rng.choice((1, 20, 200)))])
            await world.clock.sleep(0.2)
        finally:
            stream.abort("enough")

    def _reads(self) -> list[Message]:
        wild = self.rng.choice(_LEDGERS)
        read = bookie_pb2.Read(request_id=1, ledger=wild, spans=[0, wild], max_bytes=2**32 - 1)
        return [
            bookie_pb2.ReadRequest(
                instance_id="hostile", reads=[read] * self.rng.choice((0, 1, 30))
            )
            for _ in range(3)
        ]

    def _publishes(self, topic: str) -> list[Message]:
        entries = entry(1)
        opening = broker_pb2.OpenProducer(producer_id=1, topic=topic, producer_name="h")
        sending = broker_pb2.PublishRequest(
            producer_ids=[1], sizes=[len(entries)], counted=True, entries=entries
        )
        return [
            broker_pb2.PublishRequest(open=[opening]),
            sending,
            sending,
            broker_pb2.PublishRequest(close=[], heartbeat=True),
        ]

    def _consumes(self, topic: str) -> list[Message]:
        subscribing = broker_pb2.Subscribe(consumer_id=1, topic=topic, subscription=SUBSCRIPTION)
        return [
            broker_pb2.ConsumeRequest(subscribe=[subscribing]),
            broker_pb2.ConsumeRequest(flow_consumers=[1], flow_permits=[2**32 - 1]),
            broker_pb2.ConsumeRequest(
                acks=[broker_pb2.Ack(consumer_id=1, request_id=9, ledgers=[2**40], entries=[7])]
            ),
            broker_pb2.ConsumeRequest(taken=self.rng.choice((0, 1, 2**64 - 1))),
        ]


def _is_about(command: pb.Command, request_id: int) -> bool:
    if command.type == 17:
        return command.producer_success.request_id == request_id
    return command.type == 14 and command.error.request_id == request_id
