"""The awaitable face when brokers, streams and answers fail, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from pulsarish.client.api.asyncio_consumer import AsyncConsumer, AsyncReader
from pulsarish.client.connection.broker_stream import StreamLimits
from pulsarish.client.connection.lookup import Lookup
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_policies import (
    ConsumerDeadLetterPolicy,
)
from pulsarish.model.errors import (
    AlreadyClosed,
    ConnectError,
    InvalidPosition,
    MessageTooBig,
    ProducerBusy,
    ProducerFenced,
    ProducerQueueIsFull,
    ServiceNotReady,
    Timeout,
    TopicTerminated,
    UnknownError,
)
from pulsarish.sim.workloads.safeguard import replaced
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire._pb.message_pb2 import MessageMetadata, SingleMessageMetadata
from pulsarish.wire.entry import encode_entry, split_entry
from tests.support.client_world import Cast, play
from tests.support.fake_broker import PublishSession

TOPIC = "persistent://public/default/t"


async def outcomes(sent: list[Awaitable[MessageId]]) -> list[MessageId | BaseException]:
    return await asyncio.gather(*sent, return_exceptions=True)


def stored(cast: Cast, topic: str = TOPIC) -> list[bytes]:
    """The payloads in the log; the tests that use this send without batching."""
    return [bytes(split_entry(entry)[1]) for entry in cast.cluster.topic(topic).entries]


def test_resends_in_order_after_every_break() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer(
            "t", batching_enabled=False, producer_name="p", max_pending_messages=10_000
        )
        sent = []
        for round_number in range(8):
            sent += [
                producer.send_soon(b"%d" % (round_number * 50 + number)) for number in range(50)
            ]
            await cast.sleep(cast.sim.workload.random() * 0.003)
            cast.broker.hold_receipts = round_number % 2 == 0
            cast.broker.break_streams()
            await cast.sleep(0.001)
            cast.broker.hold_receipts = False
        results = await outcomes(sent)
        assert not [result for result in results if isinstance(result, BaseException)]
        # With deduplication the broker drops what was resent and had arrived, so the log holds each
        # message once, in order.
        assert stored(cast) == [b"%d" % number for number in range(400)]

    play(scenario, deduplication=True, seeds=8)


def test_batches_keep_their_boundaries_when_resent() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer(
            "t", producer_name="p", max_pending_messages=10_000, batching_max_messages=7
        )
        reader = await client.create_reader("t", MessageId.earliest)
        sent = []
        for round_number in range(6):
            sent += [
                producer.send_soon(b"%d" % (round_number * 50 + number)) for number in range(50)
            ]
            await cast.sleep(cast.sim.workload.random() * 0.02)
            cast.broker.break_streams()
        assert not [result for result in await outcomes(sent) if isinstance(result, BaseException)]
        assert [(await reader.read_next(timeout_millis=5_000)).data() for _ in range(300)] == [
            b"%d" % number for number in range(300)
        ]
        assert not await reader.has_message_available()

    play(scenario, deduplication=True, seeds=8)


def test_dead_owner_is_found_through_another_broker() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", batching_enabled=False)
        consumer = await client.subscribe("t", "me", initial_position=InitialPosition.Earliest)
        await producer.send(b"before")
        began = cast.world.clock.monotonic()
        cast.sim.nodes["broker1"].crash()
        cast.cluster.owner = cast.brokers[1]
        cast.cluster.topic(TOPIC).producers.clear()
        cast.cluster.topic(TOPIC).subscriptions.clear()
        await producer.send(b"after")
        assert cast.world.clock.monotonic() - began < 0.5, (
            "the refused connection was answered by asking the other broker at once"
        )
        await consumer.receive(timeout_millis=1_000)
        assert cast.brokers[1].lookups > 0

    play(scenario, seeds=6)


def test_silent_broker_is_found_out_by_a_ping() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", batching_enabled=False)
        await producer.send(b"before")
        began = cast.world.clock.monotonic()
        cast.sim.nodes["broker1"].pause()
        cast.cluster.owner = cast.brokers[1]
        cast.cluster.topic(TOPIC).producers.clear()
        await producer.send(b"after")
        assert cast.world.clock.monotonic() - began < 12

    play(scenario, seeds=4)


def test_idle_streams_are_kept_alive_and_a_dead_one_is_noticed() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client(stream_limits=StreamLimits(heartbeat_seconds=1, silence_seconds=3))
        consumer = await client.subscribe("t", "me")
        assert consumer.subscribed_count() == 1
        cast.sim.network.partition(["app"], ["broker1"])
        await cast.sleep(5)
        assert not consumer.is_connected(), (
            "the fake sends no heartbeats, so silence ends the stream"
        )
        cast.sim.network.heal_all()
        await cast.sleep(4)
        while not consumer.is_connected():
            await cast.sleep(0.1)
        assert consumer.subscribed_count() > 1
        await cast.sleep(16)

    play(scenario, seeds=2)


def test_sends_fail_together_when_the_oldest_times_out_and_not_before() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer(
            "t", batching_enabled=False, send_timeout_millis=5_000
        )
        cast.broker.drop_entries = True
        early = producer.send_soon(b"early")
        await cast.sleep(3)
        late = producer.send_soon(b"late")
        await cast.sleep(1.9)
        assert not early.done()
        await cast.sleep(0.3)
        with pytest.raises(Timeout, match="not known"):
            await early
        with pytest.raises(Timeout, match="nothing passes"):
            await late
        cast.broker.drop_entries = False
        cast.broker.break_streams()
        await producer.send(b"next")
        assert stored(cast) == [b"next"], "what has timed out is not sent again"

    play(scenario)


def test_sends_that_timed_out_are_sent_again_by_the_program_without_loss_or_duplicate() -> None:
    """No broker serves the topic for longer than the time-out; half of what is pending had reached
    the former owner.
    """

    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer(
            "t", producer_name="p", batching_enabled=False, send_timeout_millis=5_000
        )
        await producer.send(b"0", sequence_id=0)
        cast.broker.hold_receipts = True
        sent = [producer.send_soon(b"%d" % number, sequence_id=number) for number in range(1, 6)]
        await cast.sleep(0.1)
        cast.broker.drop_entries = True
        sent += [producer.send_soon(b"%d" % number, sequence_id=number) for number in range(6, 11)]
        failed = [
            number
            for number, outcome in enumerate(await outcomes(sent), start=1)
            if isinstance(outcome, Timeout)
        ]
        assert failed == list(range(1, 11))
        cast.broker.drop_entries = cast.broker.hold_receipts = False
        cast.broker.break_streams()
        await outcomes(
            [producer.send_soon(b"%d" % number, sequence_id=number) for number in failed]
        )
        await producer.send(b"11", sequence_id=11)
        assert stored(cast) == [b"%d" % number for number in range(12)]

    play(scenario, deduplication=True)


def test_full_queue() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        cast.broker.drop_entries = True
        refusing = await client.create_producer(
            "t", batching_enabled=False, max_pending_messages=10
        )
        sent = [refusing.send_soon(b"x") for _ in range(10)]
        with pytest.raises(ProducerQueueIsFull, match="max_pending_messages"):
            await refusing.send(b"x")
        waiting = await client.create_producer(
            "u", batching_enabled=False, max_pending_messages=10, block_if_queue_full=True
        )
        tasks = asyncio.gather(*(waiting.send(b"%d" % number) for number in range(100)))
        await cast.sleep(1)
        cast.broker.drop_entries = False
        cast.broker.break_streams()
        await tasks
        await asyncio.gather(*sent)
        assert len(cast.cluster.topic("persistent://public/default/u").entries) == 100

    play(scenario)


def test_refused_messages_fail_alone() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", batching_enabled=False)
        cast.broker.refuse_entries = [TopicTerminated("the topic is terminated")]
        refused, good = producer.send_soon(b"1"), producer.send_soon(b"2")
        with pytest.raises(TopicTerminated):
            await refused
        assert (await good).entry_id() == 0
        cast.broker.max_message_bytes = 1_000
        small = await client.create_producer("small", batching_enabled=True)
        with pytest.raises(MessageTooBig, match="1000 bytes"):
            await small.send(b"x" * 1_001)
        # Together they would be too big, since the limit is one of entries: they are two.
        first, second = await outcomes([small.send_soon(b"x" * 600), small.send_soon(b"x" * 600)])
        assert (first.entry_id(), second.entry_id()) == (0, 1)
        await small.flush()

    play(scenario)


def test_closed_by_the_broker() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", batching_enabled=False, producer_name="p")
        consumer = await client.subscribe("t", "me")
        await producer.send(b"1")
        for session in list(cast.broker.sessions):
            for name in ("close_producers", "close_consumers"):
                if hasattr(session, name):
                    getattr(session, name)(ServiceNotReady("the bundle moves"))
        await producer.send(b"2")
        received = {(await consumer.receive(timeout_millis=5_000)).data() for _ in range(2)}
        assert received == {b"1", b"2"}
        for session in list(cast.broker.sessions):
            if hasattr(session, "close_producers"):
                session.close_producers(ProducerFenced("a newer producer has the topic"))
        await cast.sleep(1)
        with pytest.raises(ProducerFenced):
            await producer.send(b"3")

    play(scenario)


def test_opening_waits_for_a_busy_cluster_and_gives_up_in_time() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client(operation_timeout_seconds=5)
        cast.broker.stale_lookups = 3
        cast.broker.refuse_open = [ServiceNotReady("loading")]
        await client.create_producer("t")
        cast.broker.refuse_open = [ProducerBusy("connected already")]
        with pytest.raises(ProducerBusy):
            await client.create_producer("t")
        cast.broker.stale_lookups = 1_000
        began = cast.world.clock.monotonic()
        with pytest.raises(Timeout, match="ownership is moving"):
            await client.create_producer("u")
        assert 4 < cast.world.clock.monotonic() - began < 8
        nowhere = cast.client(addresses="idle:1", operation_timeout_seconds=2)
        with pytest.raises(ConnectError, match="idle:1"):
            await nowhere.create_producer("t")

    play(scenario)


def test_redirected_lookup() -> None:
    async def scenario(cast: Cast) -> None:
        cast.brokers[1].redirect_to = cast.broker.address
        client = cast.client(addresses=cast.brokers[1].address)
        producer = await client.create_producer("t")
        await producer.send(b"1")
        assert cast.brokers[1].lookups
        assert cast.broker.lookups

    play(scenario)


def test_durable_consumer_gets_again_what_was_not_acknowledged() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe("t", "me", receiver_queue_size=10)
        producer = await client.create_producer("t", batching_enabled=False)
        for number in range(30):
            await producer.send(b"%d" % number)
        for _ in range(10):
            await consumer.acknowledge(await consumer.receive(timeout_millis=5_000))
        unacknowledged = [await consumer.receive(timeout_millis=5_000) for _ in range(5)]
        assert [message.data() for message in unacknowledged] == [
            b"%d" % number for number in range(10, 15)
        ]
        await cast.sleep(0.5)
        cast.broker.break_streams()
        await cast.sleep(2)
        rest = [await consumer.receive(timeout_millis=5_000) for _ in range(20)]
        assert sorted(int(message.data()) for message in rest) == list(range(10, 30))

    play(scenario)


def test_reader_goes_on_where_it_was() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer(
            "t", batching_max_messages=3, max_pending_messages=10_000
        )
        early = await client.create_reader("t", MessageId.earliest, receiver_queue_size=5)
        late = await client.create_reader("t", MessageId.latest)
        seen = []
        for round_number in range(10):
            await asyncio.gather(
                *(producer.send_soon(b"%d" % (round_number * 10 + number)) for number in range(10))
            )
            seen += [int((await early.read_next(timeout_millis=5_000)).data()) for _ in range(8)]
            cast.broker.break_streams()
        while await early.has_message_available():
            seen.append(int((await early.read_next(timeout_millis=5_000)).data()))
        assert seen == list(range(100))
        assert int((await late.read_next(timeout_millis=5_000)).data()) == 0, (
            "nothing is skipped although it was never connected for long"
        )

    play(scenario, deduplication=True, seeds=6)


def test_reader_gets_nothing_twice_that_it_took_while_it_subscribed_again() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", batching_enabled=False)
        sent = [await producer.send(b"%d" % number) for number in range(20)]
        reader = await client.create_reader("t", MessageId.earliest, receiver_queue_size=10)
        await reader.read_next(timeout_millis=5_000)
        await reader.seek(sent[2])
        assert (await reader.read_next(timeout_millis=5_000)).data() == b"3"
        subscriptions = cast.cluster.topic(TOPIC).subscriptions
        cast.broker.break_streams()
        while subscriptions:
            await cast.sleep(0.0001)
        while not subscriptions:
            await cast.sleep(0.0001)
        # The broker has put it behind the third message; its answer is under way, and the queue
        # holds what came before the break.
        assert not reader.is_connected()
        seen = [int((await reader.read_next(timeout_millis=5_000)).data()) for _ in range(16)]
        assert seen == list(range(4, 20))
        assert not await reader.has_message_available()

    play(scenario, seeds=4)


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared, None])
def test_a_refused_seek_loses_nothing_that_came_meanwhile(kind: ConsumerType | None) -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", batching_enabled=False)
        receiving: AsyncConsumer | AsyncReader
        if kind is None:
            receiving = await client.create_reader("t", MessageId.earliest)
        else:
            receiving = await client.subscribe(
                "t", "me", consumer_type=kind, initial_position=InitialPosition.Earliest
            )
        foreign = MessageId(-1, 999_999, 0)
        seen: list[int] = []
        sent = []
        while len(set(seen)) < 60:
            if len(sent) < 60:
                sent += [producer.send_soon(b"%d" % (len(sent) + number)) for number in range(3)]
            with pytest.raises(InvalidPosition):
                await receiving.seek(foreign)
            for _ in range(3):
                message = await (
                    receiving.read_next(5_000)
                    if isinstance(receiving, AsyncReader)
                    else receiving.receive(5_000)
                )
                seen.append(int(message.data()))
                if isinstance(receiving, AsyncConsumer):
                    await receiving.acknowledge(message)
        if kind is not None:
            # What came and was not acknowledged when it subscribed again comes once more.
            seen = list(dict.fromkeys(seen))
        assert (sorted(seen) if kind is ConsumerType.Shared else seen) == list(range(60))

    play(scenario, seeds=6)


def test_a_seek_that_a_former_owner_never_answers_drops_nothing_of_the_next_ones() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", batching_enabled=False)
        for number in range(10):
            await producer.send(b"%d" % number)
        consumer = await client.subscribe(
            "t", "me", initial_position=InitialPosition.Earliest, receiver_queue_size=2
        )
        seen = [int((await consumer.receive(timeout_millis=5_000)).data())]
        former, cast.brokers[0].hold_seeks = cast.broker, True
        seeking = asyncio.ensure_future(consumer.seek(MessageId(-1, 999_999, 0)))
        await cast.sleep(0.05)
        cast.cluster.owner = cast.brokers[1]
        for session in list(former.sessions):
            if hasattr(session, "close_consumers"):
                session.close_consumers(ServiceNotReady("the bundle moves"))
        # The connection to the former owner lives on, and with it the seek that it owes an answer
        # to.
        while seen[-1] < 9:
            seen.append(int((await consumer.receive(timeout_millis=5_000)).data()))
        assert list(dict.fromkeys(seen)) == list(range(10))
        assert not seeking.done()
        former.break_streams()
        with pytest.raises(InvalidPosition):
            await seeking

    play(scenario, seeds=4)


@pytest.mark.parametrize("cumulative", [True, False])
def test_what_was_acknowledged_before_a_seek_is_not_acknowledged_after_it(cumulative: bool) -> None:
    """Acknowledgements wait a little to be sent together; behind the seek they would pass over what
    it leads to.
    """

    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", batching_enabled=False)
        ids = [await producer.send(b"%d" % number) for number in range(10)]
        consumer = await client.subscribe(
            "t", "me", initial_position=InitialPosition.Earliest, receiver_queue_size=1
        )
        for _ in range(10):
            message = await consumer.receive(timeout_millis=5_000)
            if not cumulative:
                await consumer.acknowledge(message)
        if cumulative:
            await consumer.acknowledge_cumulative(message)
        await consumer.seek(ids[2])
        await cast.sleep(1.0)
        seen = [int((await consumer.receive(timeout_millis=5_000)).data()) for _ in range(7)]
        assert seen == list(range(3, 10))

    play(scenario, seeds=4)


@pytest.mark.parametrize("kind", [ConsumerType.Shared, ConsumerType.Exclusive])
def test_what_was_acknowledged_without_a_connection_is_not_delivered_again(
    kind: ConsumerType,
) -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe("t", "me", consumer_type=kind)
        producer = await client.create_producer("t", batching_enabled=False)
        for number in range(5):
            await producer.send(b"%d" % number)
        messages = [await consumer.receive() for _ in range(4)]
        cast.broker.break_streams()
        while consumer.is_connected():
            await cast.sleep(0.001)
        for message in messages:
            await consumer.acknowledge(message)
        assert (await consumer.receive()).data() == b"4"
        await producer.send(b"5")
        assert (await consumer.receive()).data() == b"5"

    play(scenario)


def test_a_reader_that_cannot_begin_at_the_last_message_is_closed() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client(operation_timeout_seconds=2)
        producer = await client.create_producer("t")
        await producer.send(b"last")
        cast.broker.hold_seeks = True
        with pytest.raises(Timeout):
            await client.create_reader("t", MessageId.latest, start_message_id_inclusive=True)
        await cast.sleep(1.0)
        assert cast.cluster.topic(TOPIC).subscriptions == {}

    play(scenario)


def test_acknowledgement_with_receipt_survives_a_break() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe(
            "t", "me", consumer_type=ConsumerType.Shared, ack_receipt_enabled=True
        )
        producer = await client.create_producer("t", batching_enabled=False)
        await producer.send(b"1")
        message = await consumer.receive(timeout_millis=5_000)
        cast.broker.break_streams()
        await consumer.acknowledge(message)
        assert cast.cluster.topic(TOPIC).subscriptions["me"].acked == {0}

    play(scenario)


def test_requests_that_cross_the_closing_of_their_consumer() -> None:
    """The broker says that it knows no such consumer; the client has only not heard yet why."""

    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", batching_enabled=False)
        ids = [await producer.send(b"%d" % number) for number in range(5)]
        consumer = await client.subscribe(
            "t", "me", initial_position=InitialPosition.Earliest, ack_receipt_enabled=True
        )
        reader = await client.create_reader("t", MessageId.latest)

        def close_all() -> None:
            for session in list(cast.broker.sessions):
                if hasattr(session, "close_consumers"):
                    session.close_consumers(ServiceNotReady("the bundle moves"))

        message = await consumer.receive(timeout_millis=5_000)
        close_all()
        await consumer.acknowledge(message)
        close_all()
        assert await consumer.get_last_message_id() == ids[-1]
        close_all()
        await consumer.seek(ids[2])
        assert (await consumer.receive(timeout_millis=5_000)).data() == b"3"
        close_all()
        assert not await reader.has_message_available()
        await producer.send(b"5")
        assert (await reader.read_next(timeout_millis=5_000)).data() == b"5"
        close_all()
        await consumer.unsubscribe()
        assert "me" not in cast.cluster.topic(TOPIC).subscriptions

    play(scenario, seeds=8)


def test_nothing_comes_before_a_damaged_entry_where_order_counts() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", batching_enabled=False)
        for number in range(20):
            await producer.send(b"%d" % number)
        consumer = await client.subscribe(
            "t", "me", initial_position=InitialPosition.Earliest, receiver_queue_size=4
        )
        reader = await client.create_reader("t", MessageId.earliest, receiver_queue_size=4)
        seen, read = [], []
        for number in range(20):
            cast.broker.damage_next = 1 if number % 5 == 0 else 0
            seen.append(int((await consumer.receive(timeout_millis=20_000)).data()))
            read.append(int((await reader.read_next(timeout_millis=20_000)).data()))
            cast.broker.damage_next = 0
        assert read == list(range(20)), "a reader gets each once"
        firsts = [number for index, number in enumerate(seen) if number not in seen[:index]]
        assert firsts == list(range(len(firsts))), "a consumer jumps over nothing"

    play(scenario, seeds=6)


def test_no_message_of_a_key_comes_before_a_damaged_one() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", batching_enabled=False)
        for number in range(20):
            await producer.send(b"%d" % number, partition_key="k")
        consumer = await client.subscribe(
            "t",
            "me",
            ConsumerType.KeyShared,
            initial_position=InitialPosition.Earliest,
            receiver_queue_size=4,
        )
        seen: list[int] = []
        for number in range(20):
            cast.broker.damage_next = 1 if number % 5 == 0 else 0
            seen.append(int((await consumer.receive(timeout_millis=20_000)).data()))
            cast.broker.damage_next = 0
        firsts = [number for index, number in enumerate(seen) if number not in seen[:index]]
        assert firsts == list(range(len(firsts))), "a message of the key was passed over"

    play(scenario, seeds=6)


def test_everything_again_leaves_nothing_out_where_order_counts() -> None:
    """What was under way when everything was asked for again must not come first: acknowledged
    cumulatively, it would skip the rest.
    """

    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer(
            "t", batching_enabled=False, max_pending_messages=5_000
        )
        consumer = await client.subscribe(
            "t", "me", initial_position=InitialPosition.Earliest, receiver_queue_size=10
        )
        sent = [producer.send_soon(b"%d" % number) for number in range(300)]
        for _ in range(10):
            for _ in range(cast.sim.workload.randrange(1, 20)):
                await consumer.receive(timeout_millis=5_000)
            consumer.redeliver_unacknowledged_messages()
            again = [int((await consumer.receive(timeout_millis=5_000)).data()) for _ in range(12)]
            assert again == list(range(12))
        await asyncio.gather(*sent)

    play(scenario, seeds=6)


def test_damaged_delivery_is_asked_for_again() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe("t", "me", consumer_type=ConsumerType.Shared)
        producer = await client.create_producer("t", batching_enabled=False)
        cast.broker.damage_next = 1
        await producer.send(b"whole")
        assert (await consumer.receive(timeout_millis=5_000)).data() == b"whole"

    play(scenario)


def test_dead_letters() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe(
            "t",
            "me",
            consumer_type=ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=ConsumerDeadLetterPolicy(2),
        )
        producer = await client.create_producer("t", batching_enabled=False)
        sent = await producer.send(b"poison", properties={"a": "b"}, partition_key="k")
        for redeliveries in range(3):
            message = await consumer.receive(timeout_millis=5_000)
            assert message.redelivery_count() == redeliveries
            await consumer.negative_acknowledge(message)
        with pytest.raises(Timeout):
            await consumer.receive(timeout_millis=2_000)
        dead = await client.create_reader("t-me-DLQ", MessageId.earliest)
        letter = await dead.read_next(timeout_millis=1_000)
        assert letter.data() == b"poison"
        assert letter.properties() == {
            "a": "b",
            "REAL_TOPIC": TOPIC,
            "REAL_SUBSCRIPTION": "me",
            "ORIGIN_MESSAGE_ID": str(sent),
        }
        assert letter.partition_key() == "k"
        assert cast.cluster.topic(TOPIC).subscriptions["me"].acked == {0}

    play(scenario)


def test_the_initial_subscription_comes_with_the_first_dead_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, str]] = []
    open_one = PublishSession._open

    def noted(session: PublishSession, command: pb.OpenProducer) -> None:
        asked.append((command.topic, command.initial_subscription))
        open_one(session, command)

    monkeypatch.setattr(PublishSession, "_open", noted)

    async def scenario(cast: Cast) -> None:
        asked.clear()
        client = cast.client()
        consumer = await client.subscribe(
            "t",
            "me",
            consumer_type=ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=ConsumerDeadLetterPolicy(1, initial_subscription_name="graves"),
        )
        await (await client.create_producer("t")).send(b"poison")
        for _ in range(2):
            await consumer.negative_acknowledge(await consumer.receive(timeout_millis=5_000))
        await cast.sleep(2)
        assert asked == [(TOPIC, ""), (f"{TOPIC}-me-DLQ", "graves")]

    play(scenario)


def test_unacknowledged_message_is_taken_back() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe(
            "t", "me", consumer_type=ConsumerType.Shared, unacked_messages_timeout_ms=10_000
        )
        producer = await client.create_producer("t", batching_enabled=False)
        await producer.send(b"kept")
        await producer.send(b"forgotten")
        await consumer.acknowledge(await consumer.receive(timeout_millis=5_000))
        await consumer.receive(timeout_millis=5_000)
        with pytest.raises(Timeout):
            await consumer.receive(timeout_millis=9_000)
        again = await consumer.receive(timeout_millis=3_000)
        assert (again.data(), again.redelivery_count()) == (b"forgotten", 1)

    play(scenario)


def test_after_close() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "me")
        waiting = consumer.receive()
        task = asyncio.gather(waiting, return_exceptions=True)
        await cast.sleep(0.1)
        sent = producer.send_soon(b"flushed by close")
        await client.close()
        assert (await sent).entry_id() == 0
        (failure,) = await task
        assert isinstance(failure, AlreadyClosed)
        with pytest.raises(AlreadyClosed):
            await producer.send(b"x")
        with pytest.raises(AlreadyClosed):
            await consumer.receive()
        with pytest.raises(AlreadyClosed):
            await client.create_producer("t")
        await client.close()

    play(scenario)


def test_late_receipt_of_a_closed_producer_is_dropped() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer(
            "t", batching_enabled=False, send_timeout_millis=1_000
        )
        other = await client.create_producer("t", batching_enabled=False)
        cast.broker.drop_entries = True
        sent = producer.send_soon(b"x")
        await cast.sleep(1.5)
        with pytest.raises(Timeout):
            await sent
        await producer.close()
        for session in cast.broker.sessions:
            if hasattr(session, "close_producers"):
                session.out.producers.append(1)
                session.out.counts.append(1)
                session.out.ledgers.append(1)
                session.out.firsts.append(1)
                session.out.sequence_ids.append(0)
                session.tell()
        cast.broker.drop_entries = False
        await other.send(b"y")

    play(scenario)


def test_nonsense_from_the_broker_ends_the_stream_only() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", batching_enabled=False)
        for session in cast.broker.sessions:
            if hasattr(session, "close_producers"):
                session.out.producers.append(1)
                session.out.counts.append(7)
                session.out.ledgers.append(1)
                session.out.firsts.append(1)
                session.out.sequence_ids.append(0)
                session.tell()
        await cast.sleep(0.5)
        await producer.send(b"y")

    play(scenario)


def test_closed_while_no_broker_is_there() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", send_timeout_millis=2_000)
        consumer = await client.subscribe("t", "me")
        for name in ("broker1", "broker2"):
            cast.sim.nodes[name].crash()
        sent = producer.send_soon(b"x")
        await client.close()
        with pytest.raises((Timeout, AlreadyClosed)):
            await sent
        with pytest.raises((AlreadyClosed, ConnectError)):
            await consumer.receive()

    play(scenario)


def test_an_entry_that_this_client_cannot_read_does_not_stop_a_listener() -> None:
    """What it says to be compressed is not: shown in the log, left for who can read it."""

    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", batching_enabled=False)
        heard: list[bytes] = []
        await client.subscribe(
            "t", "s", message_listener=lambda _consumer, message: heard.append(message.data())
        )
        await producer.send(b"before")
        topic = cast.cluster.topic(TOPIC)
        metadata = MessageMetadata(
            producer_name="other", sequence_id=0, publish_time=1, compression=4, uncompressed_size=5
        )
        topic.entries.append(encode_entry(metadata, b"snap"))
        topic.times.append(1)
        topic.messages.append(1)
        await producer.send(b"after")
        await cast.sleep(1)
        assert heard == [b"before", b"after"]

    play(scenario, seeds=1)


def test_a_defect_while_opening_reaches_the_program() -> None:
    """Nothing would open the consumer again, so that its program would wait forever."""

    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe("t", "s")
        cast.sim.nodes["app"].expect(ZeroDivisionError)

        def failing(_was: object) -> object:
            async def owner(*_given: object, **_named: object) -> str:
                raise ZeroDivisionError

            return owner

        with replaced(Lookup, "owner", failing):
            cast.broker.break_streams()
            with pytest.raises(
                UnknownError, match="consumer on persistent://public/default/t failed in the client"
            ):
                await consumer.receive(timeout_millis=60_000)
            with pytest.raises(UnknownError, match="failed in the client"):
                await client.subscribe("t", "s2")

    play(scenario)


def test_a_reader_with_room_for_one_message_gets_past_what_it_had_before_the_break() -> None:
    def single(payload: bytes, *, compacted_out: bool) -> bytes:
        head = SingleMessageMetadata(
            payload_size=len(payload), compacted_out=compacted_out
        ).SerializeToString()
        return len(head).to_bytes(4, "big") + head + payload

    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", batching_max_messages=3)
        await asyncio.gather(*(producer.send_soon(b"%d" % number) for number in range(3)))
        entries = cast.cluster.topic(TOPIC).entries
        metadata, _ = split_entry(entries[0])
        # Compaction has removed the last message, so the reader does not know that it had all.
        entries[0] = encode_entry(
            metadata,
            b"".join(single(b"%d" % number, compacted_out=number == 2) for number in range(3)),
        )
        reader = await client.create_reader("t", MessageId.earliest, receiver_queue_size=1)
        for number in range(2):
            assert (await reader.read_next(timeout_millis=1_000)).data() == b"%d" % number
        cast.broker.break_streams()
        # The batch comes again, and the program asks only once it is there.
        await cast.sleep(2.0)
        await producer.send(b"3")
        assert (await reader.read_next(timeout_millis=5_000)).data() == b"3"

    play(scenario)
