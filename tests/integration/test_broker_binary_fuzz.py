"""Conversations in the binary protocol with bytes flipped, removed, doubled and drawn at random:
the broker and other clients go on.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest

from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import command_frame
from tests.support.binary_client import BinaryClient
from tests.support.brokers import BrokerCluster, entry, find

TOPIC = "persistent://public/default/t"
CONVERSATIONS = 120


def frames(draw: random.Random) -> list[bytes]:
    """Return what a client that uses every command would send, in some order."""
    numbers = iter(range(1, 1_000))

    def sends() -> Iterator[bytes]:
        for sequence_id in range(draw.randrange(4)):
            command = pb.Command(
                type=6, send=pb.Send(producer_id=draw.choice((1, 2)), sequence_id=sequence_id)
            ).SerializeToString()
            body = entry(
                "fuzz",
                sequence_id,
                draw.randbytes(draw.randrange(300)),
                batch=draw.choice((0, 0, 1, 5, 1 << 20, -1)),
            )
            body = body[draw.choice((0, 0, 0, 6)) :]
            yield struct.pack(">II", 4 + len(command) + len(body), len(command)) + command + body

    place = pb.MessageIdData(
        ledger_id=draw.choice((0, 1, 2**64 - 1)), entry_id=draw.choice((0, 3, 2**64 - 1, 2**63 - 1))
    )
    if draw.random() < 0.3:
        place.ack_set.extend([draw.randrange(-(2**63), 2**63) for _ in range(draw.randrange(3))])
    topic = draw.choice(
        (TOPIC, TOPIC, "t", "", "persistent://no/where/t", "\x00/\x00", "a" * 5_000)
    )
    kinds = [
        pb.Command(
            type=2,
            connect=pb.Connect(client_version="again", protocol_version=draw.randrange(-1, 100)),
        ),
        pb.Command(
            type=5,
            producer=pb.Producer(
                topic=topic,
                producer_id=draw.choice((1, 2)),
                request_id=next(numbers),
                producer_name="fuzz",
            ),
        ),
        pb.Command(
            type=4,
            subscribe=pb.Subscribe(
                topic=topic,
                subscription=draw.choice(("s", "", "x" * 400)),
                sub_type=draw.randrange(4),
                consumer_id=1,
                request_id=next(numbers),
                start_message_id=place,
                durable=draw.random() < 0.5,
                initial_position=pb.EARLIEST,
            ),
        ),
        pb.Command(
            type=11,
            flow=pb.Flow(
                consumer_id=draw.choice((1, 9)), message_permits=draw.choice((0, 10, 2**32 - 1))
            ),
        ),
        pb.Command(
            type=10,
            ack=pb.Ack(
                consumer_id=1,
                ack_type=draw.randrange(2),
                message_id=[place],
                request_id=next(numbers),
            ),
        ),
        pb.Command(
            type=20,
            redeliver=pb.RedeliverUnacknowledgedMessages(consumer_id=1, message_ids=[place]),
        ),
        pb.Command(
            type=28, seek=pb.Seek(consumer_id=1, request_id=next(numbers), message_id=place)
        ),
        pb.Command(
            type=29,
            get_last_message_id=pb.GetLastMessageId(
                consumer_id=draw.choice((1, 7)), request_id=next(numbers)
            ),
        ),
        pb.Command(type=12, unsubscribe=pb.Unsubscribe(consumer_id=1, request_id=next(numbers))),
        pb.Command(
            type=15,
            close_producer=pb.CloseProducer(
                producer_id=draw.choice((1, 5)), request_id=next(numbers)
            ),
        ),
        pb.Command(
            type=16,
            close_consumer=pb.CloseConsumer(
                consumer_id=draw.choice((1, 5)), request_id=next(numbers)
            ),
        ),
        pb.Command(
            type=21,
            partitioned_metadata=pb.PartitionedMetadata(topic=topic, request_id=next(numbers)),
        ),
        pb.Command(type=23, lookup=pb.LookupTopic(topic=topic, request_id=next(numbers))),
        pb.Command(
            type=25, consumer_stats=pb.ConsumerStats(consumer_id=1, request_id=next(numbers))
        ),
        pb.Command(
            type=32,
            get_topics_of_namespace=pb.GetTopicsOfNamespace(
                namespace="public/default", request_id=next(numbers), topics_pattern="("
            ),
        ),
        pb.Command(
            type=34,
            get_schema=pb.GetSchema(
                topic=topic,
                request_id=next(numbers),
                schema_version=draw.randbytes(draw.randrange(10)),
            ),
        ),
        pb.Command(
            type=39,
            get_or_create_schema=pb.GetOrCreateSchema(
                topic=topic,
                request_id=next(numbers),
                schema=pb.Schema(name="", schema_data=b"{", type=draw.choice((1, 2, 4, 99))),
            ),
        ),
        pb.Command(
            type=64,
            watch_topic_list=pb.WatchTopicList(
                request_id=next(numbers), watcher_id=1, namespace="x", topics_pattern=".*"
            ),
        ),
        pb.Command(type=draw.randrange(80)),
    ]
    draw.shuffle(kinds)
    said = [command_frame(each) for each in kinds if each.IsInitialized()]
    for frame in sends():
        said.insert(draw.randrange(len(said) + 1), frame)
    return said


def spoiled(draw: random.Random, data: bytearray) -> bytes:
    for _ in range(draw.choice((0, 0, 1, 1, 2, 5))):
        if not data:
            break
        at = draw.randrange(len(data))
        match draw.randrange(4):
            case 0:
                data[at] ^= 1 << draw.randrange(8)
            case 1:
                del data[at : at + draw.randrange(20)]
            case 2:
                data[at:at] = data[at : at + draw.randrange(200)]
            case _:
                data[at:at] = draw.randbytes(draw.randrange(50))
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_client_says_the_others_do_not_notice(seed: int) -> None:
    draw = random.Random(seed)

    async def scenario(world: World) -> None:
        assert await find(world, ["broker0"], TOPIC)
        good = await BinaryClient.connect(world, "broker0:6650")
        await good.open_producer(1, TOPIC, "good")
        ended = 0
        for number in range(CONVERSATIONS):
            bad = await BinaryClient.connect(world, "broker0:6650", shake_hands=draw.random() < 0.9)
            bad.write(spoiled(draw, bytearray(b"".join(frames(draw)))))
            await world.clock.sleep(0.2)
            good.send(1, number, entry("good", number))
            assert (await good.next(7)).command.send_receipt.sequence_id == number
            ended += bad.lost
            if bad.transport is not None:
                bad.transport.close()
        assert 0 < ended < CONVERSATIONS, "some are thrown out and some are not"
        assert not good.lost

    sim = Simulation(seed)
    cluster = BrokerCluster(sim)

    async def main() -> None:
        await cluster.start()
        await sim.node("client").run(scenario)

    sim.run(main, 3_000.0)
