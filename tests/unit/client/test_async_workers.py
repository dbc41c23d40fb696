"""Workers of an event loop, on a simulated cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import AlreadyClosed, NotAllowedError
from pulsarish.testing import SimulatedCluster, simulate

TOPIC = "persistent://public/default/orders"


async def publish(cluster: SimulatedCluster, count: int) -> None:
    producer = await cluster.client().create_producer(TOPIC)
    await asyncio.gather(*(producer.send(b"%d" % number) for number in range(count)))


async def wait_until(what: asyncio.Event) -> None:
    async with asyncio.timeout(3_600):
        await what.wait()


def test_messages_are_handled_several_at_a_time() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await publish(cluster, 40)
        found: list[bytes] = []
        at_work, most, done = 0, 0, asyncio.Event()

        @cluster.client().worker(TOPIC, "billing", concurrency=4)
        async def bill(message: Message) -> None:
            nonlocal at_work, most
            at_work += 1
            most = max(most, at_work)
            await asyncio.sleep(cluster.random.random())
            at_work -= 1
            found.append(message.data())
            if len(found) == 40:
                done.set()

        async with bill:
            await wait_until(done)
        assert sorted(found) == sorted(b"%d" % number for number in range(40))
        assert (most, bill.handled_count, bill.failed_count) == (4, 40, 0)
        consumer = await cluster.client().subscribe(TOPIC, "billing")
        with pytest.raises(TimeoutError):
            await consumer.receive(timeout_millis=20_000)

    simulate(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_a_crash_of_the_owner_loses_no_message(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        handled: Counter[bytes] = Counter()
        done = asyncio.Event()

        @cluster.client().worker(
            TOPIC, "billing", concurrency=3, retry_delay=timedelta(milliseconds=100)
        )
        async def bill(message: Message) -> None:
            await asyncio.sleep(cluster.random.random() / 10)
            if cluster.random.random() < 0.2:
                raise ValueError("not now")
            handled[message.data()] += 1
            if len(handled) == 60:
                done.set()

        async with bill:
            publishing = asyncio.ensure_future(publish(cluster, 60))
            await asyncio.sleep(cluster.random.random())
            owner = cluster.owner(TOPIC)
            assert owner is not None
            cluster.crash(owner)
            await publishing
            await wait_until(done)
        assert bill.failed_count > 0

    simulate(scenario, seed=seed)


def test_what_fails_too_often_goes_to_the_dead_letters() -> None:
    async def scenario(cluster: SimulatedCluster) -> list[int]:
        client = cluster.client()
        dead = await client.subscribe(f"{TOPIC}-billing-DLQ", "look")
        attempts: list[int] = []

        @client.worker(TOPIC, "billing", attempts_max=3)
        async def bill(message: Message) -> None:
            attempts.append(message.redelivery_count())
            raise ValueError("never")

        async with bill:
            await publish(cluster, 1)
            letter = await dead.receive(timeout_millis=600_000)
        assert letter.data() == b"0"
        return attempts

    assert simulate(scenario) == [0, 1, 2]


def test_a_stop_waits_for_what_is_worked_on_and_gives_the_rest_back() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await publish(cluster, 3)
        began: list[bytes] = []
        both = asyncio.Event()

        @client.worker(TOPIC, "billing", concurrency=2)
        async def bill(message: Message) -> None:
            began.append(message.data())
            if len(began) == 2:
                both.set()
            await asyncio.sleep(5 if len(began) == 1 else 10_000)

        await bill.start()
        with pytest.raises(NotAllowedError, match="was started before"):
            await bill.start()
        await wait_until(both)
        assert not await bill.stop(timeout_seconds=60)
        assert await bill.stop()
        assert bill.handled_count >= 1
        consumer = await client.subscribe(TOPIC, "billing")
        left = {(await consumer.receive(timeout_millis=60_000)).data() for _ in range(2)}
        assert began[0] not in left

    simulate(scenario)


def test_long_work_is_not_taken_away() -> None:
    async def scenario(cluster: SimulatedCluster) -> int:
        client = cluster.client()
        await publish(cluster, 1)
        calls, done = 0, asyncio.Event()

        @client.worker(TOPIC, "billing", concurrency=2, unacked_messages_timeout_ms=30_000)
        async def bill(_message: Message) -> None:
            nonlocal calls
            calls += 1
            await asyncio.sleep(200)
            done.set()

        async with bill:
            await wait_until(done)
        return calls

    assert simulate(scenario) == 1


def test_run_works_until_it_is_stopped_or_cancelled() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await publish(cluster, 1)

        async def handle(_message: Message) -> None:
            first.set()

        for way in ("stop", "cancel"):
            first = asyncio.Event()
            worker = client.worker(TOPIC, way)(handle)
            running = asyncio.ensure_future(worker.run())
            await wait_until(first)
            if way == "stop":
                await worker.stop()
                await running
            else:
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
            assert "0 of 1 at work, 1 handled" in repr(worker)

    simulate(scenario)


def test_the_function_can_still_be_called() -> None:
    async def scenario(cluster: SimulatedCluster) -> object:
        @cluster.client().worker(TOPIC, "billing")
        async def bill(message: Message) -> int:
            return message.size()

        await publish(cluster, 1)
        reader = await cluster.client().create_reader(TOPIC, MessageId.earliest)
        return await bill(await reader.read_next())

    assert simulate(scenario) == 1


def test_the_function_may_end_its_worker() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        for _ in range(3):
            await publish(cluster, 1)
        handled = 0

        @cluster.client().worker(TOPIC, "billing")
        async def bill(_message: Message) -> None:
            nonlocal handled
            handled += 1
            if handled == 2:
                assert not await bill.stop()

        await bill.run()
        assert bill.handled_count == 2

    simulate(scenario)


def test_a_worker_whose_client_is_closed_says_why_it_ends() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        client = cluster.client()

        async def handle(_message: Message) -> None: ...

        running = asyncio.ensure_future(client.worker(TOPIC, "billing")(handle).run())
        await asyncio.sleep(1)
        await client.close()
        with pytest.raises(AlreadyClosed):
            await running

    simulate(scenario)
