"""A topic and its first ledger are made in one commit, whatever becomes of its answer: no topic
names a ledger that is not there, and no ledger is there that no topic names.
"""

from __future__ import annotations

import pytest

from pulsarish.client.enums import InitialPosition
from pulsarish.managed_ledger.entry_caches import EntryCaches
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import TopicRecord
from pulsarish.model.errors import AlreadyExists, NotEnoughBookies
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation
from tests.simulation.test_ledger_scripts import Client, Cluster, play
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.logs import Heard

TOPICS = 40
OPTIONS = ManagedLedgerOptions(ensemble_size=3, write_quorum=3, ack_quorum=2)


def name_of(number: int) -> TopicName:
    return TopicName("public", "default", f"t{number}")


class Maker:
    """A broker's part in making topics."""

    def __init__(self, client: Client, options: ManagedLedgerOptions = OPTIONS) -> None:
        self.client = client
        self.options = options
        world = client.world
        self.records = Records(world.metadata, world.clock, world.random)
        self.heard: dict[int, Heard] = {}

    async def create(self, number: int) -> ManagedLedger:
        heard = self.heard[number] = Heard()

        async def work(world: World) -> ManagedLedger:
            return await ManagedLedger.create(
                name_of(number),
                self.client.ledgers,
                self.records,
                world,
                self.options,
                heard,
                caches=EntryCaches(1 << 20, 1 << 20),
            )

        return await self.client.node.run(work)

    async def open(self, number: int) -> ManagedLedger:
        heard = self.heard[number] = Heard()

        async def work(world: World) -> ManagedLedger:
            return await ManagedLedger.open(
                name_of(number),
                self.client.ledgers,
                self.records,
                world,
                self.options,
                heard,
                caches=EntryCaches(1 << 20, 1 << 20),
            )

        return await self.client.node.run(work)

    async def append(self, log: ManagedLedger, payload: bytes) -> None:
        async def work(world: World) -> None:
            log.append(payload, payload)
            while log.pending_entries:
                await world.clock.sleep(0.001)

        await self.client.node.run(work)

    async def topic(self, number: int) -> tuple[TopicRecord, int] | None:
        return await self.client.do(self.records.get(paths.topic(name_of(number)), TopicRecord))  # type: ignore[no-any-return]


def ledgers_in(sim: Simulation) -> set[int]:
    return {
        paths.ledger_id_of(path)
        for path in sim.metadata.tree.nodes
        if path.startswith(f"{paths.LEDGERS}/") and path.count("/") == 4
    }


def test_a_new_topic_is_one_commit_and_the_next_owner_recovers_it() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        first, second = Maker(await cluster.client("one")), Maker(await cluster.client("two"))
        await first.create(0)  # makes the nodes above, and draws the block of ids
        before = sim.metadata.tree.zxid
        log = await first.create(1)
        assert sim.metadata.tree.zxid == before + 1
        found = await first.topic(1)
        assert found is not None
        assert [link.ledger_id for link in found[0].ledgers] == [found[0].highest_ledger]
        await first.append(log, b"one")
        taken = await second.open(1)
        assert taken.entries == 1
        await second.append(taken, b"two")
        log.append(b"late", b"late")
        await first.client.node.run(lambda world: world.clock.sleep(2))
        assert log.fenced
        assert second.heard[1].confirmed == [b"two"]

    play(scenario)


def test_what_exists_is_not_made_again() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        maker = Maker(await cluster.client())
        log = await maker.create(0)
        ledgers = ledgers_in(sim)
        try:
            await maker.create(0)
        except AlreadyExists:
            assert ledgers_in(sim) == ledgers
        else:
            raise AssertionError("it was made twice")
        await maker.append(log, b"x")

    play(scenario)


def test_without_bookies_no_topic_is_left() -> None:
    async def scenario(sim: Simulation) -> None:
        maker = Maker(await Cluster(sim, 1).client())
        try:
            await maker.create(0)
        except NotEnoughBookies:
            assert await maker.topic(0) is None
        else:
            raise AssertionError("one bookie is not enough")

    play(scenario)


def test_a_ledger_below_policy_is_published_with_its_topic() -> None:
    async def scenario(sim: Simulation) -> None:
        maker = Maker(await Cluster(sim, 2).client())
        log = await maker.create(0)
        lacking = await maker.client.lacking(log.ledgers[0].ledger_id)
        assert lacking is not None
        assert lacking.below_policy
        await maker.append(log, b"x")

    play(scenario)


def test_lost_answers_leave_neither_a_ledger_without_topic_nor_a_topic_without_ledger() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        maker = Maker(await cluster.client())
        sim.metadata.lost_answer_chance = 0.4
        logs = [await maker.create(number) for number in range(TOPICS)]
        sim.metadata.heal()
        named = set()
        for number, log in enumerate(logs):
            found = await maker.topic(number)
            assert found is not None
            named |= {link.ledger_id for link in found[0].ledgers}
            await maker.append(log, b"x")
        assert named == ledgers_in(sim)

    for seed in range(1, 6):
        play(scenario, seed)


def test_a_topic_that_was_made_anew_meanwhile_is_not_deleted_by_who_finishes_a_deletion() -> None:
    async def scenario(brokered: Brokered) -> None:
        name = name_of(0)
        swift, slow = (
            brokered.cluster.brokers[broker]._topics for broker in ("broker0", "broker1")
        )
        finish = slow._finish_deletion

        async def half_deleted(_world: World) -> None:
            _, version = await swift.create(name)
            await swift._records.compare_and_set(
                paths.topic(name), TopicRecord(deleted=True), version
            )

        async def after_another_has_made_it(name: TopicName) -> None:
            await brokered.node("broker0").run(lambda _world: swift.create(name))
            producer = await client.create_producer(name.full)
            await producer.send(b"kept")
            await finish(name)

        client = brokered.client()
        await brokered.node("broker0").run(half_deleted)
        slow._finish_deletion = after_another_has_made_it  # type: ignore[method-assign]
        with pytest.raises(AlreadyExists):
            await brokered.node("broker1").run(lambda _world: slow.create(name))
        consumer = await client.subscribe(name.full, "s", initial_position=InitialPosition.Earliest)
        assert (await consumer.receive(timeout_millis=5_000)).data() == b"kept"

    play_with_brokers(scenario, brokers=2)
