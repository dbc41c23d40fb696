"""A broker with a defect that stops a dispatcher: the watchdog counts it, logs it and repairs it,
and nothing is lost or out of order.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pulsarish.broker.dispatchers.reads import Reads
from pulsarish.broker.dispatchers.single_active import SingleActiveDispatcher
from pulsarish.broker.subscriptions.dispatch_loop import DispatchLoop
from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.managed_ledger.readable_log import ReadableLog
from pulsarish.runtime.containment import ScopeKind
from pulsarish.runtime.seams import HttpRequest, World
from pulsarish.sim.workloads.safeguard import Patch, replacing
from pulsarish.sim.world.logs import logs_into
from pulsarish.sim.world.world import Simulation
from tests.support.brokers import BrokerCluster, ConsumeClient, Got, PublishClient, entry, find

TOPIC = "persistent://public/default/t"
TYPES = {"exclusive": 0, "shared": 1, "failover": 2, "key-shared": 3}
TIMEOUT_SECONDS = 30.0
NOTICED_SECONDS = TIMEOUT_SECONDS * 4 / 3 + 1.0

Scenario = Callable[[BrokerCluster, World, str], Awaitable[None]]


def run(scenario: Scenario, **settings: object) -> list[str]:
    """The lines that the watchdog wrote."""
    sim, lines = Simulation(3), list[str]()
    # Clients of these tests send no heartbeats.
    cluster = BrokerCluster(sim, keep_alive_timeout_seconds=10_000.0, **settings)

    async def main() -> None:
        await cluster.start()

        async def client(world: World) -> None:
            await scenario(cluster, world, await find(world, ["broker0"], TOPIC))

        await sim.node("client").run(client)

    with logs_into(lines.append):
        sim.run(main, 600.0)
    return [line for line in lines if "broker.progress" in line]


def stalls(cluster: BrokerCluster) -> int:
    return cluster.brokers["broker0"].stalls_count


async def explained(cluster: BrokerCluster) -> dict[str, Any]:
    path = ("admin", "v2", "persistent", "public", "default", "t", "subscription", "s", "explain")

    async def work(_world: World) -> bytes:
        return (
            await cluster.brokers["broker0"].http.handle(
                HttpRequest("GET", "/" + "/".join(path), {}, {}, b"", path)
            )
        ).body

    return json.loads(await cluster.nodes["broker0"].run(work))  # type: ignore[no-any-return]


async def published(world: World, address: str, count: int, topic: str = TOPIC) -> PublishClient:
    publish = await PublishClient.connect(world, address)
    await publish.open(1, topic)
    await publish.send([(1, entry("p", number)) for number in range(count)])
    await publish.wait(1, count)
    return publish


class Defect(Exception):
    """An unforeseen error."""


def cannot_be_counted(_was: object) -> object:
    def unacked(_dispatcher: SingleActiveDispatcher) -> int:
        raise Defect

    return unacked


def flow_wakes_nobody(_was: object) -> object:
    def flow(subscription: Subscription, consumer: Any, permits: int) -> None:
        consumer.permits += permits

    return flow


def planned_once(was: Any) -> object:
    """A read that was planned is never carried out."""
    planned: list[object] = []

    def plan(reads: Reads, *args: Any, **kwargs: Any) -> object:
        found = was(reads, *args, **kwargs)
        if found is not None and not planned:
            planned.append(found)
            return None
        return found

    return plan


def never_answered(was: Any) -> object:
    asked: list[object] = []

    async def read(log: ManagedLedger, start: Any, **limits: Any) -> object:
        if not asked:
            asked.append(start)
            await log._world.clock.sleep(1e9)
        return await was(log, start, **limits)

    return read


def task_that_ended(was: Any) -> object:
    ended: list[object] = []

    async def dispatch(loop: DispatchLoop, dispatcher: Any) -> None:
        await was(loop, dispatcher)
        if not ended:
            ended.append(loop)
            loop._subscription.dispatcher.reads.check()
            await loop._world.clock.sleep(1e9)

    return dispatch


FORGOTTEN_WAKE = replacing(Subscription, "flow", flow_wakes_nobody)


@pytest.mark.parametrize("kind", TYPES)
def test_a_lost_wake_up_is_noticed_explained_and_repaired(kind: str) -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, permits=4, type=TYPES[kind])
        await published(world, address, 10)
        held = await consume.take(4)
        await consume.flow(1, 100)
        await world.clock.sleep(TIMEOUT_SECONDS)
        found = await explained(cluster)
        assert (found["reason"], stalls(cluster)) == ("stalled", 0)
        assert found["help"] == f"pulsarish topics unload {TOPIC}"
        got = await consume.take(6)
        assert [each.sequence_id for each in held + got] == list(range(10)), (
            "in order, and nothing that was held again"
        )
        assert not any(each.redelivery_count for each in got)
        assert stalls(cluster) == 1
        await consume.ack(1, [(each.ledger, each.entry) for each in held + got])
        assert (await explained(cluster))["state"] == "idle"

    with FORGOTTEN_WAKE():
        (line,) = run(scenario)
    for part in ("subscription=s", f"topic={TOPIC}", "restarted=True", "backlog=10", "permits=100"):
        assert part in line


READS_ONLY = replacing(DispatchLoop, "deliver_new", lambda _was: lambda *_new: False)
"""Nothing is delivered as it is confirmed: all entries are read."""


@pytest.mark.parametrize(
    "defect",
    [replacing(Reads, "plan", planned_once), replacing(DispatchLoop, "_dispatch", task_that_ended)],
    ids=["a planned read is forgotten", "the task hangs"],
)
@pytest.mark.parametrize("kind", TYPES)
def test_what_the_dispatcher_forgot_is_planned_again(kind: str, defect: Patch) -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, type=TYPES[kind])
        await published(world, address, 10)
        began = world.clock.monotonic()
        got = await consume.take(10)
        assert world.clock.monotonic() - began < NOTICED_SECONDS
        assert [each.sequence_id for each in got] == list(range(10))
        assert stalls(cluster) == 1

    with defect(), READS_ONLY():
        assert len(run(scenario)) == 1


def test_a_read_that_never_answers_is_given_up_after_minutes() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC)
        await published(world, address, 10)
        await world.clock.sleep(60.0)
        assert ((await explained(cluster))["reason"], stalls(cluster)) == ("reading", 0)
        got: list[Got] = await consume.take(10)
        assert [each.sequence_id for each in got] == list(range(10))
        assert stalls(cluster) == 1

    with replacing(ReadableLog, "read", never_answered)(), READS_ONLY():
        run(scenario)


def test_a_hand_over_that_was_forgotten_is_begun_again() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        one, two = (
            await ConsumeClient.connect(world, address),
            await ConsumeClient.connect(world, address),
        )
        await one.subscribe(1, TOPIC, type=2, consumer_name="b", permits=4)
        await published(world, address, 10)
        await one.take(4)
        await two.subscribe(2, TOPIC, type=2, consumer_name="a")
        got = await two.take(10)
        assert [each.sequence_id for each in got] == list(range(10)), (
            "the former one has acknowledged nothing"
        )
        assert stalls(cluster) == 1

    def never(was: Any) -> object:
        calls: list[object] = []

        async def hand_over(loop: DispatchLoop) -> None:
            calls.append(loop)
            if len(calls) > 1:
                await was(loop)
            else:
                await loop._world.clock.sleep(1e9)

        return hand_over

    with replacing(DispatchLoop, "_hand_over", never)():
        run(scenario)


def test_a_subscription_that_cannot_be_looked_at_ends_its_topic_and_hides_no_other() -> None:
    bad = f"{TOPIC}-before"

    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        cluster.nodes["broker0"].expect(Defect)
        await find(world, ["broker0"], bad)
        stuck = await ConsumeClient.connect(world, address)
        await stuck.subscribe(1, bad, permits=4)
        await published(world, address, 10, bad)
        await stuck.take(4)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, permits=4, type=TYPES["shared"])
        await published(world, address, 10)
        await consume.take(4)
        await consume.flow(1, 100)
        began = world.clock.monotonic()
        await consume.take(6)
        assert world.clock.monotonic() - began < NOTICED_SECONDS
        broker = cluster.nodes["broker0"].world
        assert broker is not None
        failures = broker.tasks.contained_failures
        assert failures[ScopeKind.TOPIC] > 0 == failures[ScopeKind.BACKGROUND]

    with FORGOTTEN_WAKE(), replacing(SingleActiveDispatcher, "unacked", cannot_be_counted)():
        run(scenario)


def test_switched_off_it_counts_and_says_and_leaves_it() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, permits=4)
        await published(world, address, 10)
        await consume.take(4)
        await consume.flow(1, 100)
        await world.clock.sleep(NOTICED_SECONDS)
        assert stalls(cluster) == 1
        assert (await explained(cluster))["state"] != "idle"
        await world.clock.sleep(2 * TIMEOUT_SECONDS)
        assert stalls(cluster) > 1
        assert not consume.got

    with FORGOTTEN_WAKE():
        lines = run(scenario, unblock_stuck_subscription_enabled=False)
    assert "restarted=False" in lines[0]


def test_who_waits_for_a_reason_is_left_alone() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, "no permits", permits=0)
        await consume.subscribe(2, TOPIC, "slow", type=1)
        await consume.subscribe(3, TOPIC, "idle")
        await consume.subscribe(4, TOPIC, "gone")
        await consume.ask("close", consumer_id=4)
        await published(world, address, 10)
        got = await consume.take(20)
        await consume.ack(3, [(each.ledger, each.entry) for each in got if each.consumer_id == 3])
        await world.clock.sleep(5 * NOTICED_SECONDS)
        assert stalls(cluster) == 0

    assert run(scenario) == []


def test_a_broker_that_was_stopped_for_a_while_is_not_taken_for_one_that_does_not_move() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, permits=4)
        await published(world, address, 10)
        await consume.take(4)
        cluster.nodes["broker0"].pause()
        await consume.flow(1, 100)
        await world.clock.sleep(5.0)
        cluster.nodes["broker0"].resume()
        await consume.take(6)
        assert stalls(cluster) == 0

    run(scenario, dispatcher_progress_timeout_ms=3_000)
