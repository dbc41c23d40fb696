"""Whole brokers over whole bookies, in virtual time: the promises to clients, end to end through
the broker's own protocol.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable

import pytest

from pulsarish.broker.topics.load_turns import AT_ONCE_MAX, LoadLine
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.model.errors import (
    AlreadyClosed,
    ConsumerAssignError,
    ConsumerBusy,
    DeduplicationUncertain,
    InvalidArgument,
    InvalidPosition,
    MessageTooBig,
    NotAllowedError,
    ProducerBusy,
    ProducerFenced,
    PulsarishError,
    ServiceNotReady,
    TooManyRequests,
    TopicNotFound,
)
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Op, StreamBroken, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import encode_entry
from tests.support.brokers import BrokerCluster, ConsumeClient, PublishClient, entry, find

TOPIC = "persistent://public/default/t"


def run(
    scenario: Callable[[BrokerCluster, World], Awaitable[None]],
    *,
    brokers: int = 1,
    seed: int = 1,
    **settings: object,
) -> None:
    sim = Simulation(seed)
    cluster = BrokerCluster(sim, brokers=brokers, **settings)

    async def main() -> None:
        await cluster.start()

        async def client(world: World) -> None:
            await scenario(cluster, world)

        await sim.node("client").run(client)

    sim.run(main, 300.0)


def test_published_entries_come_back_verbatim_and_in_order() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        address = await find(world, ["broker0"], TOPIC)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        sent = [entry("p", number, b"payload %d" % number) for number in range(50)]
        await publish.send([(1, each) for each in sent[:20]])
        await publish.send([(1, each) for each in sent[20:]])
        receipts = await publish.wait(1, 50)
        assert [entry_id for _, entry_id in receipts] == list(range(50))
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC)
        got = await consume.take(50)
        assert [each.payload for each in got] == sent
        await consume.ack(7, [(got[-1].ledger, got[-1].entry)], cumulative=True)
        while publish.answered < 2:
            await publish.receive()

    run(scenario)


def test_a_topic_without_room_stops_the_streams_that_publish_to_it_and_no_other() -> None:
    """Two bookies do not answer.

    The broker reads from a client that keeps sending up to the topic's limit, then stops reading
    its stream.
    """
    log = ManagedLedgerOptions(pending_entries_max=100)

    async def scenario(cluster: BrokerCluster, world: World) -> None:
        address = await find(world, ["broker0"], TOPIC)
        publish, other = (
            await PublishClient.connect(world, address),
            await PublishClient.connect(world, address),
        )
        await publish.open(1, TOPIC)
        await find(world, ["broker0"], TOPIC + "2")
        await other.open(1, TOPIC + "2")
        stuck = [cluster.nodes[name] for name in ("bookie0", "bookie1")]
        for node in stuck:
            node.pause()
        for first in range(0, 1_000, 20):
            await publish.send([(1, entry("p", first + number)) for number in range(20)])
        await world.clock.sleep(1.0)
        logs = {
            name: topic.log for name, topic in cluster.brokers["broker0"]._topics.loaded.items()
        }
        assert logs[TOPIC].pending_entries == 100, "more was received than may wait"
        await other.send([(1, entry("p", number)) for number in range(20)])
        await world.clock.sleep(0.5)
        assert logs[TOPIC + "2"].pending_entries == 20, "another stream is held up"
        for node in stuck:
            node.resume()
        receipts = await publish.wait(1, 1_000)
        assert [entry_id for _, entry_id in receipts] == list(range(1_000))
        await other.wait(1, 20)

    run(scenario, managed_ledger=log)


def test_each_refusal_is_its_own_error() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        address = await find(world, ["broker0"], TOPIC)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC, "same")
        with pytest.raises(ProducerBusy):
            await publish.open(2, TOPIC, "same")
        await publish.open(2, TOPIC, "same", epoch=1)
        while 1 not in publish.closed:
            await publish.receive()
        assert isinstance(publish.closed[1], ProducerBusy), (
            "a newer epoch of the name replaces the older"
        )
        with pytest.raises(ProducerFenced):
            await publish.open(3, TOPIC, "z", access_mode=pb.EXCLUSIVE)
        good = entry("same", 1)
        late = encode_entry(
            MessageMetadata(
                producer_name="same", sequence_id=2, publish_time=1, deliver_at_time=1 << 60
            ),
            b"x",
        )
        big = entry("same", 2, b"x" * 12_000)
        await publish.send([(2, each) for each in (good, big, late, entry("same", 3))])
        outcomes = await publish.wait(2, 4)
        assert [type(each) for each in outcomes] == [tuple, MessageTooBig, NotAllowedError, tuple]
        assert [each for each in outcomes if isinstance(each, tuple)] == [
            (outcomes[0][0], 0),
            (outcomes[0][0], 1),
        ]  # type: ignore[index]
        while publish.answered < publish.counted:
            await publish.receive()

        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, "exclusive")
        with pytest.raises(ConsumerBusy):
            await consume.subscribe(2, TOPIC, "exclusive")
        with pytest.raises(ConsumerBusy):
            await consume.subscribe(2, TOPIC, "exclusive", type=pb.SUB_SHARED)
        with pytest.raises(ConsumerAssignError):
            await consume.subscribe(
                2,
                TOPIC,
                "keys",
                type=pb.SUB_KEY_SHARED,
                key_shared=pb.KeySharedPolicy(mode=pb.STICKY),
            )
        await consume.subscribe(3, TOPIC, "shared", type=pb.SUB_SHARED)
        (got, *_) = await consume.take(1)
        with pytest.raises(NotAllowedError):
            await consume.ack(3, [(got.ledger, got.entry)], cumulative=True)
        for position in ((got.ledger, 999), (got.ledger + 77, 0)):
            with pytest.raises(InvalidPosition):
                await consume.ack(3, [position])
        for topic in ("persistent://nowhere/default/t", "persistent://public/none/t", "a/b"):
            with pytest.raises(PulsarishError):
                await find(world, ["broker0"], topic, attempts=1)

    run(scenario, max_message_size_bytes=1024, delayed_delivery_max_delay_in_millis=1000, seed=2)


def test_acknowledgements_with_receipts_survive_the_owner() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        address = await find(world, ["broker0"], TOPIC)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        await publish.send([(1, entry("p", number)) for number in range(20)])
        await publish.wait(1, 20)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC)
        got = await consume.take(20)
        await consume.ack(1, [(each.ledger, each.entry) for each in got[:5] + got[7:10]])
        cluster.nodes["broker0"].crash()
        # The other broker names the dead owner until it has noticed the death.
        while (address := await find(world, ["broker1"], TOPIC)) != "broker1:6660":
            await world.clock.sleep(0.1)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC)
        again = await consume.take(12)
        assert [each.sequence_id for each in again] == [5, 6, *range(10, 20)]

    run(scenario, brokers=2, seed=3)


@pytest.mark.parametrize("seed", range(10, 16))
def test_a_producer_that_resends_over_failover_leaves_no_duplicate(seed: int) -> None:
    """The owner is killed while entries are in flight.

    The producer sends everything without a receipt to the next owner.
    """

    async def scenario(cluster: BrokerCluster, world: World) -> None:
        acked = 0
        names = ["broker0", "broker1"]
        for epoch in range(4):
            address = await find(world, names, TOPIC)
            publish = await PublishClient.connect(world, address)
            try:
                opened = await publish.open(1, TOPIC, epoch=epoch)
            except (PulsarishError, StreamBroken):
                continue
            assert opened.deduplication
            assert acked - 1 <= opened.last_sequence_id < acked + 60
            owner = address.split(":")[0]
            cluster.sim.at(world.random.random() * 0.02, cluster.nodes[owner].crash)
            try:
                for first in range(acked, acked + 60, 10):
                    await publish.send(
                        [(1, entry("p", number)) for number in range(first, first + 10)]
                    )
                await publish.wait(1, 60)
                await world.clock.sleep(0.1)
            except (PulsarishError, StreamBroken):
                pass
            confirmed = publish.receipts.get(1, [])
            assert not any(isinstance(each, PulsarishError) for each in confirmed)
            acked += len(confirmed)
            await world.clock.sleep(0.05)
            if not cluster.nodes[owner].alive:
                await cluster.start_broker(owner)
        address = await find(world, names, TOPIC)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, "audit")
        publish = await PublishClient.connect(world, address)
        await publish.open(2, TOPIC, "last")
        await publish.send([(2, entry("last", 10_000))])
        await publish.wait(2, 1)
        while not consume.got or consume.got[-1].sequence_id != 10_000:
            await consume.receive()
        seen = [each.sequence_id for each in consume.got[:-1]]
        assert seen == list(range(len(seen))), "a duplicate, a gap or a wrong order"
        assert len(seen) >= acked

    run(
        scenario,
        brokers=2,
        seed=seed,
        broker_deduplication_enabled=True,
        broker_deduplication_entries_interval=25,
    )


@pytest.mark.parametrize("deduplication", [True, False])
def test_nothing_is_stored_before_a_damaged_entry_that_was_sent_first(deduplication: bool) -> None:
    """If it were refused alone, its retry would be stored out of order (seed 870001593), or dropped
    as a duplicate (seed 3000091).
    """

    async def scenario(cluster: BrokerCluster, world: World) -> None:
        address = await find(world, ["broker0"], TOPIC)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        entries = [entry("p", number) for number in range(4)]
        damaged = entries[1][:-1] + b"?"
        await publish.send([(1, entries[0]), (1, damaged), (1, entries[2]), (1, entries[3])])
        while 1 not in publish.closed:
            await publish.receive()
        assert isinstance(publish.closed[1], ServiceNotReady), (
            "the client opens again and sends what has no receipt"
        )
        opened = await publish.open(1, TOPIC, epoch=1)
        assert opened.last_sequence_id == (0 if deduplication else -1)
        publish.receipts[1].clear()
        await publish.send([(1, each) for each in entries[1:]])
        receipts = await publish.wait(1, 3)
        assert [entry_id for _, entry_id in receipts] == [1, 2, 3]  # type: ignore[misc]

    run(scenario, broker_deduplication_enabled=deduplication)


def test_duplicates_are_answered_and_not_stored() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        address = await find(world, ["broker0"], TOPIC)
        publish = await PublishClient.connect(world, address)
        opened = await publish.open(1, TOPIC)
        assert (opened.last_sequence_id, opened.deduplication) == (-1, True)
        batch = entry("p", 3, batch=3, highest=5)
        await publish.send(
            [(1, entry("p", n)) for n in range(3)]
            + [(1, batch), (1, entry("p", 1)), (1, entry("p", 6))]
        )
        first = await publish.wait(1, 6)
        ledger = first[0][0]  # type: ignore[index]
        # The fifth came while all before it were in flight: it is neither new nor a duplicate yet.
        assert [each if isinstance(each, tuple) else type(each) for each in first] == [
            (ledger, 0), (ledger, 1), (ledger, 2), (ledger, 3), DeduplicationUncertain, (ledger, 4),
        ]  # fmt: skip
        await publish.send(
            [
                (1, entry("p", 1)),
                (1, batch),
                (1, entry("p", 5, batch=3, highest=7)),
                (1, entry("p", 7)),
            ]
        )
        with pytest.raises(InvalidArgument, match="make a new producer and send again"):
            await publish.wait(1, 10)
        assert publish.receipts[1][6:] == [(-1, -1), (-1, -1)]
        # No later entry was stored before the batch of which only a part is in the log.
        opened = await publish.open(1, TOPIC, epoch=1)
        assert opened.last_sequence_id == 6
        publish.receipts[1].clear()
        await publish.send([(1, entry("p", 6)), (1, entry("p", 7))])
        assert await publish.wait(1, 2) == [(-1, -1), (ledger, 5)]

    run(scenario, broker_deduplication_enabled=True, seed=4)


def test_shared_consumers_take_turns_and_redeliver() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        address = await find(world, ["broker0"], TOPIC)
        first, second = (
            await ConsumeClient.connect(world, address),
            await ConsumeClient.connect(world, address),
        )
        await first.subscribe(1, TOPIC, type=pb.SUB_SHARED)
        await second.subscribe(1, TOPIC, type=pb.SUB_SHARED)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        await publish.send([(1, entry("p", number)) for number in range(100)])
        ours, theirs = await first.take(60), await second.take(40)
        assert sorted(each.sequence_id for each in ours + theirs) == list(range(100))
        assert [each.sequence_id for each in ours[:20]] == list(range(20))
        await first.ack(1, [(each.ledger, each.entry) for each in ours[1:]])
        await first.say(
            redeliver=[
                pb.Redeliver(consumer_id=1, ledgers=[ours[0].ledger], entries=[ours[0].entry])
            ]
        )
        (again,) = await second.take(1)
        assert (again.sequence_id, again.redelivery_count) == (0, 1)
        second.stream.abort("the client goes away")
        got = await first.take(41)
        assert sorted(each.sequence_id for each in got) == sorted(
            each.sequence_id for each in [again, *theirs]
        )
        assert [each.redelivery_count for each in got] == [2] + [1] * 40

    run(scenario, seed=5)


def test_failover_hands_over_in_order_of_names() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        address = await find(world, ["broker0"], TOPIC)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        b, a = (
            await ConsumeClient.connect(world, address),
            await ConsumeClient.connect(world, address),
        )
        await b.subscribe(1, TOPIC, type=pb.SUB_FAILOVER, consumer_name="b")
        while not b.active.get(1):
            await b.receive()
        await publish.send([(1, entry("p", number)) for number in range(3)])
        got = await b.take(3)
        await b.ack(1, [(got[0].ledger, got[0].entry)])
        await a.subscribe(1, TOPIC, type=pb.SUB_FAILOVER, consumer_name="a")
        taken = await a.take(2)
        assert [each.sequence_id for each in taken] == [1, 2]
        assert [each.redelivery_count for each in taken] == [1, 1]
        while b.active.get(1):
            await b.receive()
        assert a.active == {1: True}
        await a.ask("close", consumer_id=1)
        assert [each.sequence_id for each in await b.take(2)] == [1, 2]

    run(scenario, seed=6)


def test_seek_readers_batches_and_ends() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        address = await find(world, ["broker0"], TOPIC)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        await publish.send([(1, entry("p", number, time_ms=1000 + number)) for number in range(10)])
        ids = [each for each in await publish.wait(1, 10) if isinstance(each, tuple)]
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC)
        await consume.ack(1, [ids[-1]], cumulative=True)
        consume.got.clear()
        await consume.ask(
            "seek", consumer_id=1, position=pb.MessageId(ledger=ids[7][0], entry=ids[7][1])
        )
        assert [each.sequence_id for each in (await consume.take(3))] == [7, 8, 9]
        await consume.ask("seek", consumer_id=1, publish_time_ms=1004)
        assert [each.sequence_id for each in (await consume.take(6))] == [4, 5, 6, 7, 8, 9]

        # Rule 18: refused, and the cursor has not moved.
        with pytest.raises(
            InvalidPosition, match="names ledger id 999999, which is no ledger of topic"
        ):
            await consume.ask("seek", consumer_id=1, position=pb.MessageId(ledger=999999, entry=0))
        with pytest.raises(InvalidPosition, match="no ledger of topic"):
            await consume.subscribe(
                2, TOPIC, "astray", durable=False, start=pb.MessageId(ledger=999999, entry=0)
            )
        consume.got.clear()
        await consume.ask(
            "seek", consumer_id=1, position=pb.MessageId(ledger=ids[7][0], entry=1_000_000)
        )
        await consume.ask(
            "seek", consumer_id=1, position=pb.MessageId(ledger=ids[9][0], entry=ids[9][1])
        )
        assert [each.sequence_id for each in (await consume.take(1))] == [9], (
            "beyond the end was the end"
        )

        number = consume.next_id()
        await consume.say(last_message_id=[pb.GetLastMessageId(request_id=number, consumer_id=1)])
        found: list[pb.LastMessageId] = []
        while not found:
            found = list((await consume.receive()).last_message_id)
        assert (found[0].last.ledger, found[0].last.entry, found[0].last.batch_index) == (
            *ids[-1],
            -1,
        )

        await consume.subscribe(
            2, TOPIC, "reader", durable=False, start=pb.MessageId(ledger=ids[8][0], entry=ids[8][1])
        )
        assert [each.sequence_id for each in (await consume.take(2))] == [8, 9]

        await publish.send([(1, entry("p", 20, batch=10, highest=29))])
        await publish.wait(1, 11)
        (_, batch) = await consume.take(2)
        await consume.ack(1, [(batch.ledger, batch.entry)] * 3, batch_indexes=[0, 3, 9])
        await consume.say(
            redeliver=[pb.Redeliver(consumer_id=1, ledgers=[batch.ledger], entries=[batch.entry])]
        )
        (again,) = await consume.take(1)
        assert again.ack_set is not None
        assert int.from_bytes(again.ack_set, "little") == 0b01_1111_0110
        await consume.ack(1, [(batch.ledger, batch.entry)], batch_indexes=[8], cumulative=True)
        await consume.ask("unsubscribe", consumer_id=1)
        with pytest.raises(AlreadyClosed):
            await consume.ask("seek", consumer_id=1, publish_time_ms=0)

    run(scenario, seed=7)


def test_an_acknowledged_index_that_no_batch_has_costs_nothing() -> None:
    """It is a number that a client sends, up to two thousand million."""

    async def scenario(cluster: BrokerCluster, world: World) -> None:
        address = await find(world, ["broker0"], TOPIC)
        publish, consume = (
            await PublishClient.connect(world, address),
            await ConsumeClient.connect(world, address),
        )
        await consume.subscribe(1, TOPIC)
        await publish.open(1, TOPIC)
        await publish.send([(1, entry("p", 0, batch=10, highest=9))])
        await publish.wait(1, 1)
        (batch,) = await consume.take(1)
        tracemalloc.start()
        try:
            for cumulative in (False, True):
                with pytest.raises(InvalidArgument, match="which holds 10 messages"):
                    await consume.ack(
                        1,
                        [(batch.ledger, batch.entry)],
                        batch_indexes=[2_000_000],
                        cumulative=cumulative,
                    )
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()
        await consume.ack(1, [(batch.ledger, batch.entry)], batch_indexes=[9], cumulative=True)

    run(scenario)


def test_an_entry_that_claims_more_messages_than_it_can_hold_is_refused() -> None:
    """Acknowledgements within an entry are bits of that number."""

    async def scenario(cluster: BrokerCluster, world: World) -> None:
        address = await find(world, ["broker0"], TOPIC)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        await publish.send([(1, entry("p", 0, batch=2_000_000_000, highest=1))])
        (answer,) = await publish.wait(1, 1)
        assert isinstance(answer, InvalidArgument)
        assert "1 to 1000000 are possible" in str(answer)

    run(scenario)


def test_a_topic_that_others_look_for_is_made_for_whoever_wants_it_made() -> None:
    """A request for an existing topic and one that would create it share one attempt to load it."""

    async def scenario(cluster: BrokerCluster, world: World) -> None:
        await find(world, ["broker0"], TOPIC)

        async def both(broker_world: World) -> None:
            topics, name = cluster.brokers["broker0"]._topics, TopicName.parse(TOPIC)
            looking = asyncio.ensure_future(topics.get(name, create=False))
            while not topics.loader.under_way:
                await broker_world.clock.sleep(0.0)
            made = await topics.get(name, create=True)
            assert made.name == name
            with pytest.raises(TopicNotFound):
                await looking

        await cluster.nodes["broker0"].run(both)

    run(scenario)


class _Holding:
    """A load that takes a turn and does not end."""

    def __init__(self) -> None:
        self.lines: list[LoadLine] = []

    def begin(self, turn: int) -> None:
        pass

    def give_up(self, error: PulsarishError) -> None:
        pass


def test_opens_that_wait_hold_up_no_messages_and_end_with_their_client() -> None:
    """A connection with more than 1,000 of them is still read."""
    waiting = 1_100

    async def scenario(cluster: BrokerCluster, world: World) -> None:
        publish = await PublishClient.connect(world, await find(world, ["broker0"], TOPIC))
        await publish.open(1, TOPIC)
        loader = cluster.brokers["broker0"]._topics.loader

        async def take_all_turns(_world: World) -> None:
            for _ in range(AT_ONCE_MAX):
                loader._turns.wait(_Holding(), loader._own_line, AT_ONCE_MAX)

        await cluster.nodes["broker0"].run(take_all_turns)
        opens = [
            pb.OpenProducer(
                request_id=10 + number, producer_id=10 + number, topic=f"{TOPIC}{number}"
            )
            for number in range(waiting + 1)
        ]
        await publish.stream.send([pb.PublishRequest(open=opens).SerializeToString()])
        await publish.send([(1, entry("p", 0))])
        refused: list[pb.ProducerOpened] = []
        while not publish.receipts[1] or not refused:
            refused += (await publish.receive()).opened
        assert [each.outcome.code for each in refused] == [TooManyRequests.code]
        assert len(loader.under_way) == waiting
        publish.stream.abort("the client is gone")
        await world.clock.sleep(0.1)
        assert not loader.under_way

    run(scenario, max_concurrent_topic_load_requests=AT_ONCE_MAX + waiting)


def test_a_reader_that_leaves_as_its_topic_is_lost_takes_nothing_with_it() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        address = await find(world, ["broker0"], TOPIC)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, "reader", durable=False)

        async def lose(broker_world: World) -> None:
            topics = cluster.brokers["broker0"]._topics
            topic = await topics.get(TopicName.parse(TOPIC), create=False)
            subscription = topic.subscription("reader")
            topic.remove_consumer(subscription, subscription.consumers[0])
            topics.drop_all("the metadata session is lost")
            await broker_world.clock.sleep(1)

        await cluster.nodes["broker0"].run(lose)
        assert await find(world, ["broker0"], TOPIC) == address

    run(scenario)


def test_a_graceful_stop_hands_everything_over_at_once() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        address = await find(world, ["broker0"], TOPIC)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        await publish.send([(1, entry("p", 0))])
        await publish.wait(1, 1)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC)
        stopping = world.clock.monotonic()
        await cluster.stop_broker("broker0")
        with pytest.raises(StreamBroken):
            while True:
                await publish.receive()
        with pytest.raises(StreamBroken):
            while True:
                await consume.receive()
        assert publish.closed[1].retryable
        assert consume.closed[1].retryable
        assert await find(world, ["broker1"], TOPIC, attempts=1) == "broker1:6660"
        assert world.clock.monotonic() - stopping < 3.0
        consume = await ConsumeClient.connect(world, "broker1:6660")
        await consume.subscribe(1, TOPIC)
        assert [each.sequence_id for each in await consume.take(1)] == [0]

    run(scenario, brokers=2, seed=8)


def test_a_broker_cut_off_from_metadata_stops_serving_and_comes_back() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        address = await find(world, ["broker0"], TOPIC)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        await publish.send([(1, entry("p", 0))])
        await publish.wait(1, 1)
        cluster.sim.network.partition(["broker0"], ["metadata"])
        with pytest.raises(PulsarishError) as closed:
            await publish.wait(1, 2)
        assert closed.value.retryable
        # The other broker finds out at its next ping, long before the session ends on the server.
        while await find(world, ["broker1"], TOPIC) != "broker1:6660":
            await world.clock.sleep(0.1)
        with pytest.raises(PulsarishError):
            await find(world, ["broker0"], TOPIC, attempts=1)
        cluster.sim.network.heal_all()
        assert await find(world, ["broker0"], TOPIC) == "broker1:6660"

    run(scenario, brokers=2, seed=9)


def test_a_broker_cut_off_from_metadata_stops_in_time() -> None:
    """When everything is stopped at once, the metadata service may stop first.

    What a broker cannot release then ends with its session.
    """

    async def scenario(cluster: BrokerCluster, world: World) -> None:
        for number in range(8):  # over the four bundles
            await find(world, ["broker0"], f"{TOPIC}{number}")
        publish = await PublishClient.connect(world, "broker0:6660")
        await publish.open(1, f"{TOPIC}0")
        cluster.sim.network.partition(["broker0"], ["metadata"])
        stopping = world.clock.monotonic()
        await cluster.stop_broker("broker0")
        config = cluster.config("broker0")
        assert (
            world.clock.monotonic() - stopping
            < config.broker_shutdown_timeout_seconds + 2 * config.metadata_session_timeout_ms / 1000
        )

    run(scenario, brokers=1, seed=9)


def test_an_acknowledgement_beyond_what_the_broker_knows_is_undecided_and_ends_nothing() -> None:
    """The client may have the message from a later owner.

    This owner has not learned yet that it is fenced.

    A final refusal would end the consumer, and its program, for a message that exists (rule 20).
    """

    async def scenario(cluster: BrokerCluster, world: World) -> None:
        address = await find(world, ["broker0"], TOPIC)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        await publish.send([(1, entry("p", number)) for number in range(3)])
        ids = [each for each in await publish.wait(1, 3) if isinstance(each, tuple)]
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC)
        await consume.take(3)
        ledger, last = ids[-1]

        async def refused_beyond_the_end(error: type[PulsarishError], words: str) -> None:
            for place in ((ledger, last + 1), (ledger + 1_000, 0)):
                for cumulative in (False, True):
                    with pytest.raises(error, match=words):
                        await consume.ack(1, [place], cumulative=cumulative)
            # One valid position and one beyond the end: neither is accepted.
            with pytest.raises(error, match=words):
                await consume.ack(1, [ids[0], (ledger, last + 1)])

        # No broker has opened the topic since: it knows that no owner ever gave these ids out.
        await refused_beyond_the_end(InvalidPosition, "beyond the end of topic")
        await consume.ack(1, [ids[1]])
        # As a later owner would.
        path = paths.topic(TopicName.parse(TOPIC))
        (record,) = await world.metadata.get_many([path])
        assert record is not None
        await world.metadata.commit([Op("put", path, record.data)])
        await refused_beyond_the_end(ServiceNotReady, "look the topic up again")
        assert consume.closed == {}
        await consume.ask("close", consumer_id=1)
        await consume.subscribe(2, TOPIC)
        assert [each.sequence_id for each in await consume.take(2)] == [0, 2]

    run(scenario, seed=8)
