"""Readers that keep their positions in a topic, over crashes, compactions and rivals."""

from __future__ import annotations

from functools import partial

import pytest

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncReader
from pulsarish.client.enums import ProducerAccessMode
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import InvalidArgument, InvalidPosition, ProducerBusy, ProducerFenced
from pulsarish.runtime.seams import World
from pulsarish.sim.workloads.reader_checkpoints import (
    run_late_reader_checkpoints,
    run_reader_checkpoints,
)
from pulsarish.sim.world.connections import client_connections
from tests.support.brokered import Brokered, play_with_brokers

LOG = "persistent://public/default/log"
POSITIONS = "persistent://public/default/positions"


async def reader_of(client: AsyncClient, name: str = "r", topic: str = LOG) -> AsyncReader:
    return await client.create_reader(
        topic, MessageId.earliest, reader_name=name, checkpoint_topic=POSITIONS
    )


def client_of(world: World) -> AsyncClient:
    """Return a client on a machine of its own."""
    return AsyncClient(
        "pulsarish://broker0:6660",
        clock=world.clock,
        random=world.random,
        tasks=world.tasks,
        connect=partial(client_connections, world.connections),
    )


async def publish(client: AsyncClient, count: int, topic: str = LOG) -> None:
    """Publish in batches, so that positions lie within entries, too."""
    producer = await client.create_producer(topic)
    for number in [producer.send_soon(b"%d" % number) for number in range(count)]:
        await number
    await producer.close()


async def next_number(reader: AsyncReader) -> int:
    return int((await reader.read_next(5_000)).data())


@pytest.mark.parametrize("seed", range(3))
def test_a_reader_goes_on_after_its_checkpoint_whatever_died_meanwhile(seed: int) -> None:
    run_reader_checkpoints(seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_reader_that_stood_still_stores_nothing_after_its_rival(seed: int) -> None:
    run_late_reader_checkpoints(seed)


def test_positions_are_by_reader_and_by_topic() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        other = "persistent://public/default/other"
        await publish(client, 5)
        await publish(client, 5, other)
        first = await reader_of(client, "first")
        await first.checkpoint(await first.read_next(5_000))
        for name, topic in (("second", LOG), ("first", other)):
            reader = await reader_of(client, name, topic)
            assert reader.last_checkpoint() is None
            assert await next_number(reader) == 0
        await first.close()
        assert await next_number(await reader_of(client, "first")) == 1

    play_with_brokers(scenario, seeds=1)


def test_the_newest_position_outlives_compaction_of_a_topic_that_is_not_retained() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, 200)
        reader = await reader_of(client)
        for _ in range(150):
            message = await reader.read_next(5_000)
            await reader.checkpoint(message)
        await reader.close()
        positions = brokered.topic(POSITIONS)
        await positions.compaction.settled()
        assert positions.compaction.succeeded_count > 1, "the policy compacts by itself"
        positions.compaction.start()
        await brokered.until(lambda: not positions.compaction.running)
        await positions.log.roll()
        await positions.log.trimmer.trim()
        assert positions.log.entries < 150
        assert await next_number(await reader_of(client)) == 150

    play_with_brokers(
        scenario,
        seeds=1,
        broker_service_compaction_threshold_in_bytes=4_000,
        managed_ledger_maintenance_interval_seconds=1.0,
    )


def test_one_reader_of_a_name_is_open_at_a_time() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, 5)
        reader = await reader_of(client)
        with pytest.raises(ProducerBusy, match=f"a reader named 'r' of {LOG} is open already") as e:
            await reader_of(brokered.client())
        assert "producer names" not in str(e.value)
        await reader.close()
        await (await reader_of(brokered.client())).close()
        # Another reason is said as it is.
        alone = await client.create_producer(POSITIONS, access_mode=ProducerAccessMode.Exclusive)
        with pytest.raises(ProducerBusy, match="exclusive producer"):
            await reader_of(client)
        await alone.close()

    play_with_brokers(scenario, seeds=1)


@pytest.mark.parametrize("rival_stores", [True, False])
def test_a_reader_whose_machine_stood_still_stores_no_older_position(rival_stores: bool) -> None:
    async def scenario(brokered: Brokered) -> None:
        rival = brokered.client()
        await publish(rival, 9)
        machine = brokered.sim.node("machine")
        opened: list[AsyncReader] = []

        async def read(world: World) -> None:
            reader = await reader_of(client_of(world))
            await reader.checkpoint(await reader.read_next(5_000))
            opened.append(reader)

        await machine.run(read)
        machine.pause()
        await brokered.world.clock.sleep(60.0)
        reader = await reader_of(rival)
        assert await next_number(reader) == 1
        for _ in range(5):
            message = await reader.read_next(5_000)
        if rival_stores:
            await reader.checkpoint(message)
        await reader.close()
        machine.resume()
        (late,) = opened

        async def go_on(_world: World) -> None:
            message = await late.read_next(5_000)
            if rival_stores:
                for _ in range(2):
                    with pytest.raises(ProducerFenced, match="another reader has stored"):
                        await late.checkpoint(message)
            else:
                await late.checkpoint(message)
            await late.close()

        await machine.run(go_on)
        assert await next_number(await reader_of(rival)) == (7 if rival_stores else 2)

    play_with_brokers(scenario, seeds=3)


def test_what_is_refused() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, 2)
        plain = await client.create_reader(LOG, MessageId.earliest)
        message = await plain.read_next(5_000)
        with pytest.raises(InvalidArgument, match="pass checkpoint_topic and reader_name"):
            await plain.checkpoint(message)
        reader = await reader_of(client)
        for wrong in (MessageId.earliest, MessageId.latest, b"1:2"):
            with pytest.raises(InvalidArgument, match=r"pass a Message or|stands for no message"):
                await reader.checkpoint(wrong)  # type: ignore[arg-type]
        assert reader.last_checkpoint() is None
        await reader.close()
        await brokered.administer("PUT", "persistent/public/default/parts/partitions", 2)
        for options, said in (
            ({"checkpoint_topic": POSITIONS}, "needs reader_name"),
            ({"checkpoint_topic": LOG, "reader_name": "r"}, "the topic that is read"),
            ({"checkpoint_topic": "a//b", "reader_name": "r"}, "checkpoint_topic 'a//b'"),
            ({"checkpoint_topic": "parts", "reader_name": "r"}, "has partitions"),
            (
                {"checkpoint_topic": "non-persistent://public/default/p", "reader_name": "r"},
                "needs persistent topics",
            ),
        ):
            with pytest.raises(InvalidArgument, match=said):
                await client.create_reader(LOG, MessageId.earliest, **options)

    play_with_brokers(scenario, seeds=1)


def test_values_that_are_no_positions_of_the_topic() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, 2)
        positions = await client.create_producer(POSITIONS)
        await positions.send(b"rubbish", partition_key=f"r on {LOG}")
        with pytest.raises(InvalidArgument, match="holds no position"):
            await reader_of(client)
        await positions.send(MessageId(-1, 9_999, 0).serialize(), partition_key=f"r on {LOG}")
        with pytest.raises(InvalidPosition):
            await reader_of(client)
        # An empty value takes the position back.
        await positions.send(b"", partition_key=f"r on {LOG}")
        assert await next_number(await reader_of(client)) == 0

    play_with_brokers(scenario, seeds=1)
