"""Producers and consumers that behave like the SDK, while brokers and bookies die, restart and are
cut off, in virtual time.

The oracle is the promise. With deduplication on, everything acknowledged is in the log once and in
each producer's order. A durable subscription gets all of it. A message acknowledged with a receipt
is not redelivered.
"""

from __future__ import annotations

import random

import pytest

from pulsarish.model.errors import AlreadyClosed, ProducerBusy, PulsarishError
from pulsarish.runtime.seams import StreamBroken, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire.entry import parse_metadata
from tests.support.brokers import BrokerCluster, ConsumeClient, PublishClient, entry, find

TOPIC = "persistent://public/default/chaos"
BROKERS = ["broker0", "broker1", "broker2"]
FAULTS_SECONDS = 12.0


class Chaos:
    def __init__(self, cluster: BrokerCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.over = False
        self.settled = False
        self.sent = {"p0": 0, "p1": 0}  # entries with a receipt: sequence ids 0 to this - 1
        self.acked: dict[tuple[int, int], None] = {}  # with a receipt
        self.came_back: list[tuple[int, int]] = []
        self.seen: dict[tuple[str, int], None] = {}

    async def produce(self, world: World, name: str) -> None:
        """Send continuously.

        After any error look up, reconnect and send again everything without a receipt.
        """
        epoch = 0
        while not self.over:
            epoch += 1
            try:
                publish = await PublishClient.connect(world, await find(world, BROKERS, TOPIC))
                opened = await publish.open(1, TOPIC, name, epoch=epoch)
                # Entries without a receipt may be in the log too.
                assert opened.last_sequence_id >= self.sent[name] - 1, (
                    "an acknowledged message is not in the log"
                )
                for _ in range(20):
                    first, count = self.sent[name], self.rng.randint(1, 30)
                    before = len(publish.receipts[1])
                    await publish.send(
                        [(1, entry(name, number)) for number in range(first, first + count)]
                    )
                    if self.rng.random() < 0.2:
                        await world.clock.sleep(self.rng.random() * 0.01)
                        break  # away in the middle, and back at once
                    outcomes = (await publish.wait(1, before + count))[before:]
                    for outcome in outcomes:
                        if isinstance(outcome, PulsarishError):
                            raise outcome
                    self.sent[name] += count
                    await world.clock.sleep(self.rng.random() * 0.2)
                publish.stream.abort("reconnect now and then")
            except (PulsarishError, StreamBroken) as error:
                self.check(error, ProducerBusy)
                await world.clock.sleep(0.05)

    async def consume(self, world: World, number: int) -> None:
        """Receive and acknowledge with receipts. After any error subscribe again."""
        while not self.over:
            try:
                consume = await ConsumeClient.connect(world, await find(world, BROKERS, TOPIC))
                await consume.subscribe(
                    1, TOPIC, "shared", type=pb.SUB_SHARED, permits=100, consumer_name=f"c{number}"
                )
                while not self.over:
                    while not consume.got:
                        if 1 in consume.closed:
                            raise consume.closed[1]
                        await consume.receive()
                    got, consume.got = consume.got, []
                    for each in got:
                        # During faults, an owner that was paused may still deliver for a moment; it
                        # can make nothing durable.
                        if self.settled and (each.ledger, each.entry) in self.acked:
                            self.came_back.append((each.ledger, each.entry))
                    kept = [each for each in got if self.rng.random() < 0.9]
                    # Before the answer: an acknowledgement without one may count too.
                    self.seen.update(
                        dict.fromkeys(
                            (str(parse_metadata(each.payload).producer_name), each.sequence_id)
                            for each in kept
                        )
                    )
                    if kept:
                        await consume.ack(1, [(each.ledger, each.entry) for each in kept])
                        self.acked.update(dict.fromkeys((each.ledger, each.entry) for each in kept))
                    lost = [each for each in got if each not in kept]
                    if lost:
                        ids = {
                            "ledgers": [each.ledger for each in lost],
                            "entries": [each.entry for each in lost],
                        }
                        await consume.say(redeliver=[pb.Redeliver(consumer_id=1, **ids)])
                    await consume.flow(1, len(got))
            except (PulsarishError, StreamBroken) as error:
                self.check(error, AlreadyClosed)
                await world.clock.sleep(0.05)

    def check(self, error: Exception, also: type[PulsarishError]) -> None:
        """Check that an error is of a type after which a client retries."""
        assert (
            not isinstance(error, PulsarishError) or error.retryable or isinstance(error, also)
        ), error

    async def break_things(self, world: World) -> None:
        """Cause one fault after another, and heal each before the next."""
        cluster, network = self.cluster, self.cluster.sim.network
        end = world.clock.monotonic() + FAULTS_SECONDS
        while world.clock.monotonic() < end:
            await world.clock.sleep(self.rng.random() * 3)
            victim = self.rng.choice(BROKERS)
            bookie = self.rng.choice(["bookie0", "bookie1", "bookie2"])
            match self.rng.choice(["kill", "kill", "bookie", "metadata", "pause", "peers", "stop"]):
                case "kill":
                    cluster.nodes[victim].crash()
                    await world.clock.sleep(self.rng.random() * 2)
                    await cluster.start_broker(victim)
                case "stop":
                    await cluster.stop_broker(victim)
                    cluster.nodes[victim].crash()
                    await cluster.start_broker(victim)
                case "bookie":
                    cluster.nodes[bookie].crash()
                    await world.clock.sleep(self.rng.random() * 2)
                    await cluster.start_bookie(bookie)
                case "metadata":
                    network.partition([victim], ["metadata"])
                    await world.clock.sleep(self.rng.random() * 15)
                    network.heal_all()
                case "pause":
                    cluster.nodes[victim].pause()
                    await world.clock.sleep(self.rng.random() * 8)
                    cluster.nodes[victim].resume()
                case "peers":
                    network.partition([victim], [name for name in BROKERS if name != victim])
                    await world.clock.sleep(self.rng.random() * 6)
                    network.heal_all()

    async def audit(self, world: World) -> None:
        """Read the log from its start and compare."""
        target = dict(self.sent)
        found: dict[str, list[int]] = {name: [] for name in target}
        while any(len(found[name]) < count for name, count in target.items()):
            found = {name: [] for name in target}
            try:
                consume = await ConsumeClient.connect(world, await find(world, BROKERS, TOPIC))
                await consume.subscribe(1, TOPIC, "audit", permits=1_000_000)
                while any(len(found[name]) < count for name, count in target.items()):
                    await consume.receive()
                    for each in consume.got:
                        found[str(parse_metadata(each.payload).producer_name)].append(
                            each.sequence_id
                        )
                    consume.got.clear()
            except (PulsarishError, StreamBroken):
                await world.clock.sleep(0.1)
        for name, ids in found.items():
            assert ids == list(range(len(ids))), (
                f"{name}: a duplicate, a gap or a wrong order in the log"
            )


def run(seed: int) -> Chaos:
    sim = Simulation(seed)
    cluster = BrokerCluster(
        sim, brokers=3, broker_deduplication_enabled=True, broker_deduplication_entries_interval=100
    )
    chaos = Chaos(cluster, sim.workload)

    async def main() -> None:
        await cluster.start()
        node = sim.node("client")

        async def client(world: World) -> None:
            # From the start, so that nothing is trimmed before the audit has seen it.
            keep = await ConsumeClient.connect(world, await find(world, BROKERS, TOPIC))
            await keep.subscribe(1, TOPIC, "audit", permits=0)
            keep.stream.abort("until the audit")
            for name in chaos.sent:
                _ = world.tasks.spawn(chaos.produce(world, name), name=f"produce {name}")
            for number in range(2):
                _ = world.tasks.spawn(chaos.consume(world, number), name=f"consume {number}")
            await chaos.break_things(world)
            # Healed: it must continue without help.
            before = dict(chaos.sent)
            deadline = world.clock.monotonic() + 60
            while any(chaos.sent[name] <= count for name, count in before.items()):
                assert world.clock.monotonic() < deadline, "nothing is published any more"
                await world.clock.sleep(0.1)
            target = dict(chaos.sent)
            while any(
                (name, number) not in chaos.seen
                for name, count in target.items()
                for number in range(count)
            ):
                assert world.clock.monotonic() < deadline + 60, (
                    "the subscription does not get everything"
                )
                await world.clock.sleep(0.5)
            for name in BROKERS:
                cluster.nodes[name].crash()
            for name in BROKERS:
                await cluster.start_broker(name)
            chaos.settled = True
            await world.clock.sleep(5.0)
            chaos.over = True
            await chaos.audit(world)
            assert not chaos.came_back, "acknowledged with a receipt, and delivered again"

        await node.run(client)

    sim.run(main, 600.0)
    return chaos


@pytest.mark.parametrize("seed", range(4))
def test_the_promise_holds_through_faults(seed: int) -> None:
    run(seed)
