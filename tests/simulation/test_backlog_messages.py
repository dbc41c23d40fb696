"""The unacknowledged messages of a subscription are counted through batches and holes, whichever
broker owns the topic.
"""

from __future__ import annotations

import json

from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.runtime.seams import World
from tests.simulation.test_topic_stats import TOPIC, ask, now_ms, run, stats
from tests.support.brokers import BrokerCluster, ConsumeClient, PublishClient, entry, find

SIZES = [1 + number * 7 % 5 for number in range(40)]
SMALL_LEDGERS = ManagedLedgerOptions(max_entries_per_ledger=12, min_ledger_rollover_time_minutes=0)


async def published(
    cluster: BrokerCluster, world: World, address: str, sizes: list[int]
) -> PublishClient:
    publish = await PublishClient.connect(world, address)
    await publish.open(1, TOPIC)
    first = 0
    for number, size in enumerate(sizes):
        batch = entry("p", first, batch=size, highest=first + size - 1, time_ms=now_ms(cluster))
        await publish.send([(1, batch)])
        await publish.wait(1, number + 1)
        first += size
    return publish


async def counted(cluster: BrokerCluster, **query: str) -> tuple[int, int, bool]:
    """The entries and messages of the backlog, and whether the messages are estimated."""
    found = (await stats(cluster, **query))["subscriptions"]["s"]
    return found["msgBacklog"], found["backlogMessages"], found["backlogMessagesEstimated"]


def test_messages_are_counted_through_batches_and_holes_by_every_owner() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC, type=1)
        publish = await published(cluster, world, address, SIZES)
        got = await consume.take(len(SIZES))
        at = [(each.ledger, each.entry) for each in got]
        await consume.ack(7, [*at[:6], *at[9:12], at[25]])
        assert SIZES[16] > 2
        await consume.ack(7, [at[16]] * 2, batch_indexes=[0, 1])
        done = sum(SIZES[:6]) + sum(SIZES[9:12]) + SIZES[25] + 2
        left = (len(SIZES) - 10, sum(SIZES) - done)
        assert await counted(cluster) == (*left, False), "the owner counted as it appended"
        found = (await stats(cluster))["subscriptions"]["s"]
        assert found["unackedMessages"] == left[1], "all are delivered"
        assert found["consumers"][0]["unackedMessages"] == left[1]
        await consume.stream.finish()
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(8, TOPIC, type=1)
        await consume.take(left[0])
        found = (await stats(cluster))["subscriptions"]["s"]
        assert found["unackedMessages"] == left[1], "what was read again counts its rest"
        for side in (publish, consume):
            await side.stream.finish()
        # A crash: nothing is in memory, and of the open ledger no total is stored.
        cluster.nodes["broker0"].crash()
        await cluster.start_broker("broker0")
        await find(world, ["broker0"], TOPIC)
        entries, _, is_estimate = await counted(cluster)
        assert (entries, is_estimate) == (left[0], True)
        assert await counted(cluster, getPreciseBacklog="true") == (*left, False)
        assert await counted(cluster) == (*left, False), "what was read is kept"
        # What comes then is counted on top, also in a ledger that follows.
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC, "q")
        for number in range(15):
            await publish.send([(1, entry("q", 3 * number, batch=3, highest=3 * number + 2))])
            await publish.wait(1, number + 1)
        await publish.stream.finish()
        left = (left[0] + 15, left[1] + 45)
        assert await counted(cluster) == (*left, False)
        # Handed over in order: the totals are stored with the ledgers.
        await ask(cluster, "PUT", "unload")
        assert await counted(cluster, getPreciseBacklog="true") == (*left, False)
        await ask(cluster, "POST", "subscription/s/skip/4")
        assert await counted(cluster) == (left[0] - 1, left[1] - 4, False), "messages are skipped"

    run(scenario, managed_ledger=SMALL_LEDGERS)


def test_single_messages_are_counted_without_reading_whoever_owns_the_topic() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC, type=1)
        publish = await published(cluster, world, address, [1] * 30)
        got = await consume.take(30)
        await consume.ack(7, [(each.ledger, each.entry) for each in got[5:20]])
        assert await counted(cluster) == (15, 15, False)
        for side in (publish, consume):
            await side.stream.finish()
        await ask(cluster, "PUT", "unload")
        assert await counted(cluster) == (15, 15, False)

    run(scenario, managed_ledger=SMALL_LEDGERS)


def test_the_options_of_a_request_mean_what_they_mean_in_apache_pulsar() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        await published(cluster, world, address, [2, 2])
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC, "s", permits=0)
        await consume.subscribe(8, TOPIC, "done", initial_position=0)
        found = await stats(cluster)
        behind, done = found["subscriptions"]["s"], found["subscriptions"]["done"]
        assert behind["backlogSize"] == found["backlogSize"] > 0
        assert behind["earliestMsgPublishTimeInBacklog"] == 0, "no request wanted it"
        assert found["earliestMsgPublishTimeInBacklogs"] == 0
        found = await stats(
            cluster, subscriptionBacklogSize="false", getEarliestTimeInBacklog="true"
        )
        behind, done = found["subscriptions"]["s"], found["subscriptions"]["done"]
        assert (behind["backlogSize"], done["backlogSize"]) == (-1, -1)
        assert found["backlogSize"] > 0
        assert 0 < behind["earliestMsgPublishTimeInBacklog"] <= now_ms(cluster)
        assert done["earliestMsgPublishTimeInBacklog"] == -1
        assert (
            found["earliestMsgPublishTimeInBacklogs"] == behind["earliestMsgPublishTimeInBacklog"]
        )
        analysis = json.loads(await ask(cluster, "POST", "subscription/s/analyzeBacklog"))
        assert analysis["messages"] == behind["backlogMessages"] == 4

    run(scenario)
