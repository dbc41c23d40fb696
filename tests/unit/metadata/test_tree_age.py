"""A metadata tree that comes back older: who notices, what is refused, and how an operator ends
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest

from pulsarish.metadata import paths
from pulsarish.metadata.acceptance import accept_older_tree
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import AgeRecord, LedgerIds, RestoredTree
from pulsarish.metadata.tree.tree import Tree
from pulsarish.metadata.tree_age import TreeAge, confirm_tree
from pulsarish.metadata.tree_state import NOTHING_SEEN, TreeState
from pulsarish.model.errors import MetadataUnavailable, NotAllowedError
from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)
from pulsarish.model.position import ID_MAX
from pulsarish.runtime.seams import MetadataStore, Op, OutcomeUnknown, SessionState, World
from pulsarish.sim.world.metadata_service import copy_of
from pulsarish.sim.world.world import Simulation

Work = Callable[[Simulation, World], Awaitable[None]]


def simulate(work: Work, seed: int = 1) -> None:
    sim = Simulation(seed)

    async def inside(world: World) -> None:
        await work(sim, world)

    sim.run(lambda: sim.node("a").run(inside), 1_000)


def records(world: World, age: TreeAge | None = None) -> Records:
    return Records(world.metadata, world.clock, world.random, guard=age)


def watching(world: World, seen: TreeState = NOTHING_SEEN) -> TreeAge:
    """A node's memory, which follows its store."""
    age = TreeAge(records(world), world.clock, seen=seen)
    age.holder = "broker a"
    _ = world.tasks.spawn(age.watch(1.0), name="metadata-age")
    return age


async def connected(world: World) -> None:
    while world.metadata.state is not SessionState.CONNECTED:
        await world.clock.sleep(0.1)


async def roll_back(sim: Simulation, world: World, commits: int = 3) -> None:
    """The service loses commits that it had answered."""
    older = copy_of(sim.metadata.tree)
    for number in range(commits):
        _ = await world.metadata.commit([Op("create", f"/lost-{sim.metadata.tree.zxid}-{number}")])
    sim.metadata.stop()
    sim.metadata.start(older)
    await world.clock.sleep(2.0)
    await connected(world)


def test_a_service_that_restarts_with_all_it_had_is_no_older() -> None:
    async def work(sim: Simulation, world: World) -> None:
        age = watching(world)
        _ = await world.metadata.commit([Op("create", "/x")])
        await age.check()
        seen = age.seen
        session = world.metadata.session_id
        sim.metadata.stop()
        await asyncio.sleep(3.0)
        with pytest.raises(MetadataUnavailable):
            await age.check()
        sim.metadata.start()
        await asyncio.sleep(3.0)
        await age.check()
        assert (age.mark, world.metadata.session_id) == (None, session)
        assert not age.seen.is_older_than(seen)

    simulate(work)


def test_a_node_remembers_beyond_its_session_and_marks_an_older_tree() -> None:
    async def work(sim: Simulation, world: World) -> None:
        age = watching(world)
        await age.check()
        seen = sim.metadata.tree.zxid
        await roll_back(sim, world)
        with pytest.raises(MetadataUnavailable, match="broker a found transaction"):
            await age.check()
        assert age.is_older
        found = await records(world).get(paths.RESTORED, RestoredTree)
        assert found is not None
        mark = found[0]
        assert (mark.older, mark.found_by, mark.seen.epoch) == (True, "broker a", 0)
        assert mark.found.zxid < seen + 3 <= mark.seen.zxid
        # Its memory does not grow with an older tree, however far that goes.
        for number in range(10):
            _ = await world.metadata.commit([Op("create", f"/{number}")])
        await asyncio.sleep(3.0)
        assert age.seen.zxid == mark.seen.zxid < sim.metadata.tree.zxid
        assert age.is_older

    simulate(work)


def test_nothing_that_outlives_a_session_is_written_to_an_older_tree() -> None:
    async def work(sim: Simulation, world: World) -> None:
        age = watching(world)
        mine = records(world, age)
        _ = await mine.compare_and_set(paths.LEDGER_IDS, LedgerIds(1), None)
        await mine.ensure(paths.BOOKIES)
        await roll_back(sim, world)
        for refused in (
            mine.compare_and_set(paths.LEDGER_IDS, LedgerIds(2), 0),
            mine.update(paths.LEDGER_IDS, LedgerIds, lambda _found: LedgerIds(2)),
            mine.delete(paths.LEDGER_IDS),
            mine.ensure("/new"),
            mine.commit([Op("put", paths.LEDGER_IDS, b"{}")]),
        ):
            with pytest.raises(MetadataUnavailable, match="came back older"):
                await refused
        await mine.commit([Op("create_ephemeral", paths.bookie("b1"))])

    simulate(work)


def test_changes_are_refused_at_once_while_no_broker_reaches_the_service() -> None:
    async def work(sim: Simulation, world: World) -> None:
        age = watching(world)
        mine = records(world, age)
        _ = await mine.compare_and_set(paths.LEDGER_IDS, LedgerIds(1), None)
        sim.metadata.stop()
        age.outage = "the metadata service is away"
        await world.clock.sleep(60.0)  # the session is over
        began = world.clock.monotonic()
        for refused in (
            mine.update(paths.LEDGER_IDS, LedgerIds, lambda _found: LedgerIds(2)),
            mine.delete(paths.LEDGER_IDS),
        ):
            with pytest.raises(MetadataUnavailable, match="the metadata service is away"):
                await refused
        assert world.clock.monotonic() == began

    simulate(work)


def test_nothing_that_outlives_a_session_is_read_in_an_older_tree() -> None:
    """What it does not have may be there again once the newer tree is back: nobody is answered that
    it is gone.
    """

    async def work(sim: Simulation, world: World) -> None:
        age = watching(world)
        mine = records(world, age)
        await mine.ensure(paths.BOOKIES)
        await mine.ensure(paths.TOPICS)
        older = copy_of(sim.metadata.tree)
        await mine.ensure(paths.LEDGERS)
        _ = await mine.compare_and_set(paths.LEDGER_IDS, LedgerIds(1), None)
        newer = sim.metadata.tree
        sim.metadata.stop()
        sim.metadata.start(older)
        await world.clock.sleep(2.0)
        await connected(world)
        for refused in (
            mine.get(paths.LEDGER_IDS, LedgerIds),
            mine.get_pair(paths.LEDGER_IDS, LedgerIds, paths.AGE, AgeRecord),
            mine.nodes([paths.LEDGER_IDS]),
            mine.children(paths.LEDGERS),
            mine.watch_children(paths.TOPICS, lambda _path: None),
            mine.update(paths.LEDGER_IDS, LedgerIds, lambda _found: None),
            mine.delete(paths.LEDGER_IDS),
        ):
            with pytest.raises(MetadataUnavailable, match="came back older"):
                await refused
        # Who is up is known from the sessions of this tree.
        await mine.commit([Op("create_ephemeral", paths.bookie("b1"))])
        assert await mine.children(paths.BOOKIES) == ["b1"]
        sim.metadata.stop()
        sim.metadata.start(newer)
        await world.clock.sleep(2.0)
        await connected(world)
        assert await mine.get(paths.LEDGER_IDS, LedgerIds) is not None

    simulate(work)


def test_what_is_learnt_during_a_look_is_compared_before_anything_is_decided() -> None:
    async def work(sim: Simulation, world: World) -> None:
        age = TreeAge(records(world), world.clock)
        checking = asyncio.ensure_future(age.check())
        await world.clock.sleep(0.0001)
        assert not checking.done()
        age.learn(TreeState(0, 100, 1_000))
        with pytest.raises(MetadataUnavailable, match="came back older"):
            await checking

    simulate(work)


class CountedSyncs:
    """A node's store that counts what every look begins with."""

    def __init__(self, world: World) -> None:
        self._store = world.metadata
        self.count = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def sync(self, path: str) -> None:
        self.count += 1
        await self._store.sync(path)


def test_many_that_ask_at_once_share_a_look() -> None:
    async def work(sim: Simulation, world: World) -> None:
        store = CountedSyncs(world)
        age = TreeAge(Records(cast("MetadataStore", store), world.clock, world.random), world.clock)
        mine = records(world, age)
        _ = await mine.compare_and_set(paths.LEDGER_IDS, LedgerIds(1), None)
        sim.metadata.break_connection(world.metadata.session_id)
        await world.clock.sleep(2.0)
        store.count = 0
        _ = await asyncio.gather(*[mine.get(paths.LEDGER_IDS, LedgerIds) for _ in range(100)])
        assert store.count == 1
        await mine.get(paths.LEDGER_IDS, LedgerIds)
        assert store.count == 1, (
            "nothing is asked while the connection is the one that was looked at"
        )

    simulate(work)


def test_a_write_whose_answer_was_lost_is_not_tried_again_on_an_older_tree() -> None:
    async def work(sim: Simulation, world: World) -> None:
        age = watching(world)
        mine = records(world, age)
        _ = await mine.compare_and_set(paths.LEDGER_IDS, LedgerIds(1), None)
        await age.check()
        older = copy_of(sim.metadata.tree)
        for number in range(5):
            _ = await world.metadata.commit([Op("create", f"/{number}")])
        sim.metadata.lost_answer_chance = 1.0
        writing = asyncio.ensure_future(mine.compare_and_set(paths.LEDGER_IDS, LedgerIds(2), 0))
        await asyncio.sleep(0.05)
        sim.metadata.lost_answer_chance = 0.0
        sim.metadata.stop()
        sim.metadata.start(older)
        with pytest.raises(MetadataUnavailable):
            await writing
        node = sim.metadata.tree.get(paths.LEDGER_IDS)
        assert node is not None
        assert node.version == 0

    simulate(work)


def test_a_write_that_begins_while_the_connection_is_broken_is_retried_when_it_is_back() -> None:
    async def work(sim: Simulation, world: World) -> None:
        age = watching(world)
        mine = records(world, age)
        await mine.ensure(paths.BOOKIES)
        await age.check()
        broken = asyncio.Event()
        world.metadata.listen(lambda _state: broken.set())
        sim.metadata.break_connection(world.metadata.session_id)
        await broken.wait()
        _ = await mine.compare_and_set(paths.LEDGER_IDS, LedgerIds(1), None)
        assert not age.is_older

    simulate(work)


def test_everything_goes_on_once_the_newer_tree_is_back() -> None:
    async def work(sim: Simulation, world: World) -> None:
        age = watching(world)
        await age.check()
        newer = sim.metadata.tree
        await roll_back(sim, world)
        with pytest.raises(MetadataUnavailable):
            await age.check()
        sim.metadata.stop()
        sim.metadata.start(newer)
        await asyncio.sleep(25.0)
        await connected(world)
        await age.check()
        assert (age.mark, await records(world).get(paths.RESTORED, RestoredTree)) == (None, None)

    simulate(work)


def test_a_follower_that_lags_is_not_taken_for_an_older_tree() -> None:
    async def work(sim: Simulation, world: World) -> None:
        age = watching(world)
        await age.check()
        sim.metadata.lag(world.metadata.session_id)
        other = sim.node("b")

        async def write(theirs: World) -> None:
            for number in range(5):
                _ = await theirs.metadata.commit([Op("create", f"/{number}")])

        await other.run(write)
        age.learn(TreeState(0, 0, sim.metadata.tree.zxid))
        await age.check()
        assert age.mark is None

    simulate(work)


def test_an_older_tree_is_known_though_its_transaction_ids_have_gone_on() -> None:
    """As an ensemble's do with each election, and any server's with each session."""

    async def work(sim: Simulation, world: World) -> None:
        age = watching(world)
        await asyncio.sleep(3.0)
        older = copy_of(sim.metadata.tree)
        _ = await world.metadata.commit([Op("create", "/lost")])
        await asyncio.sleep(3.0)
        older.zxid += 1 << 32
        sim.metadata.stop()
        sim.metadata.start(older)
        await asyncio.sleep(15.0)
        assert sim.metadata.tree.zxid > age.seen.zxid
        with pytest.raises(MetadataUnavailable):
            await age.check()

    simulate(work)


def test_a_tree_that_nobody_changes_is_not_written() -> None:
    async def work(sim: Simulation, world: World) -> None:
        ages = [watching(world), watching(world)]
        await asyncio.sleep(3.0)
        before = sim.metadata.tree.zxid
        await asyncio.sleep(30.0)
        assert sim.metadata.tree.zxid == before
        _ = await world.metadata.commit([Op("create", "/new")])
        await asyncio.sleep(30.0)
        found = await records(world).get(paths.AGE, AgeRecord)
        assert found is not None
        assert found[0].count == ages[0].seen.counted == ages[1].seen.counted
        assert sim.metadata.tree.zxid == before + 2  # the change, and one count for all

    simulate(work)


def test_a_tree_that_nobody_changes_is_not_asked_for_its_age() -> None:
    async def work(sim: Simulation, world: World) -> None:
        mine = records(world)
        looks: list[str] = []
        sync = mine.sync

        async def counted(path: str) -> None:
            looks.append(path)
            await sync(path)

        mine.sync = counted  # type: ignore[method-assign]
        age = TreeAge(mine, world.clock)
        _ = world.tasks.spawn(age.watch(1.0), name="metadata-age")
        await asyncio.sleep(20.0)
        looks.clear()
        await asyncio.sleep(30.0)
        assert looks == []
        # Another session's change is noticed by the transaction id of this session's heartbeats.
        other = sim.node("b")
        await other.run(lambda elsewhere: elsewhere.metadata.commit([Op("create", "/new")]))
        changed = sim.metadata.tree.zxid
        await asyncio.sleep(30.0)
        assert 0 < len(looks) < 5
        assert age.seen.zxid > changed

    simulate(work)


def test_a_node_that_has_seen_nothing_learns_from_others() -> None:
    async def work(sim: Simulation, world: World) -> None:
        age = watching(world)
        await age.check()
        age.learn(TreeState(0, 0, sim.metadata.tree.zxid + 100))
        with pytest.raises(MetadataUnavailable):
            await age.check()

    simulate(work)


def ledger(ledger_id: int, *, closed: bool) -> LedgerMetadata:
    made = LedgerMetadata(
        ledger_id=ledger_id,
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        purpose=LedgerPurpose(PurposeKind.TOPIC, "persistent://public/default/t"),
        segments=(Segment(0, ("b1~1",)),),
    )
    return made.closed(3, 30, made.segments, ()) if closed else made


def test_an_accepted_tree_is_treated_as_a_restored_one_until_it_is_confirmed() -> None:
    async def work(sim: Simulation, world: World) -> None:
        age = watching(world)
        mine, operator = records(world, age), records(world)
        with pytest.raises(NotAllowedError):
            _ = await accept_older_tree(operator, ids_held=[], ledger_id_gap=100)
        for each in (ledger(1, closed=True), ledger(2, closed=False)):
            _ = await mine.compare_and_set(paths.ledger(each.ledger_id), each, None)
        await roll_back(sim, world)
        with pytest.raises(MetadataUnavailable):
            await age.check()
        assert await accept_older_tree(operator, ids_held=[7, ID_MAX], ledger_id_gap=100) == 1
        await age.check()
        assert age.mark is not None  # bookies delete nothing yet
        found = await operator.get_many([paths.ledger(1), paths.ledger(2)], LedgerMetadata)
        assert [row is not None and (row[0].state, row[0].restored) for row in found] == [
            (LedgerState.CLOSED, False),
            (LedgerState.OPEN, True),
        ]
        ids = await operator.get(paths.LEDGER_IDS, LedgerIds)
        assert ids is not None
        assert ids[0].next_id == 108
        await confirm_tree(operator)
        await age.check()
        assert age.mark is None
        assert age.seen.epoch == 2

    simulate(work)


def test_an_accepted_tree_that_comes_back_older_before_it_is_confirmed_is_marked_again() -> None:
    async def work(sim: Simulation, world: World) -> None:
        age = watching(world)
        mine, operator = records(world, age), records(world)
        await age.check()
        await roll_back(sim, world)
        with pytest.raises(MetadataUnavailable):
            await age.check()
        for epoch in (1, 2):
            _ = await accept_older_tree(operator, ids_held=[], ledger_id_gap=0)
            for number in range(3):
                _ = await mine.compare_and_set(
                    paths.ledger(10 * epoch + number),
                    ledger(10 * epoch + number, closed=True),
                    None,
                )
            await world.clock.sleep(3.0)
            assert age.seen.epoch == epoch
            await roll_back(sim, world)
            with pytest.raises(MetadataUnavailable, match="came back older"):
                await mine.compare_and_set(paths.ledger(100), ledger(100, closed=True), None)
        _ = await accept_older_tree(operator, ids_held=[], ledger_id_gap=0)
        await confirm_tree(operator)
        await age.check()
        assert (age.mark, age.seen.epoch) == (None, 4)

    simulate(work)


def test_a_tree_out_of_a_backup_is_not_compared_before_it_is_confirmed() -> None:
    async def work(sim: Simulation, world: World) -> None:
        age = watching(world)
        _ = await records(world).update(
            paths.RESTORED, RestoredTree, lambda _found: RestoredTree("of the backup", 1, 2)
        )
        await age.check()
        await roll_back(sim, world)
        await age.check()
        assert age.mark is not None
        assert not age.mark.older

    simulate(work)


def test_a_node_that_was_away_takes_a_confirmed_tree_for_newer_than_what_it_saw() -> None:
    async def work(sim: Simulation, world: World) -> None:
        age = watching(world)
        await age.check()
        await roll_back(sim, world)
        with pytest.raises(MetadataUnavailable):
            await age.check()
        operator = records(world)
        _ = await accept_older_tree(operator, ids_held=[], ledger_id_gap=0)
        await confirm_tree(operator)
        away = TreeAge(records(world), world.clock, seen=TreeState(0, 1_000, 1_000_000))
        await away.check()
        assert away.seen.epoch == 2

    simulate(work)


def test_who_saw_more_than_the_mark_says_raises_what_a_confirmation_must_go_beyond() -> None:
    async def work(sim: Simulation, world: World) -> None:
        age = watching(world)
        await age.check()
        await roll_back(sim, world)
        with pytest.raises(MetadataUnavailable):
            await age.check()
        late = TreeAge(records(world), world.clock, seen=TreeState(4, 1, 9))
        with pytest.raises(MetadataUnavailable):
            await late.check()
        found = await records(world).get(paths.RESTORED, RestoredTree)
        assert found is not None
        assert (found[0].seen, found[0].found_by) == (TreeState(4, 1, 9), "broker a")
        _ = await accept_older_tree(records(world), ids_held=[], ledger_id_gap=0)
        await confirm_tree(records(world))
        await late.check()
        assert late.seen.epoch == 6

    simulate(work)


class SwappedBeforeCommit:
    """A store whose connection breaks before the first commit to ``path`` is answered, and which is
    then connected to another tree.
    """

    def __init__(self, world: World, path: str, swap: Callable[[], Awaitable[None]]) -> None:
        self._store = world.metadata
        self._path = path
        self._swap = swap
        self._swapped = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def commit(self, ops: Sequence[Op]) -> list[str | int]:
        if ops[0].path == self._path and not self._swapped:
            self._swapped = True
            await self._swap()
            raise OutcomeUnknown("the connection broke")
        return await self._store.commit(ops)


def swapping(sim: Simulation, world: World, path: str, tree: Tree) -> Records:
    async def swap() -> None:
        sim.metadata.stop()
        sim.metadata.start(tree)
        await world.clock.sleep(3.0)
        await connected(world)

    return Records(
        cast("MetadataStore", SwappedBeforeCommit(world, path, swap)), world.clock, world.random
    )


def test_a_mark_meant_for_an_older_tree_is_not_put_on_the_next_one() -> None:
    """As when the one server that was left behind, which cannot commit, is left for the others."""

    async def work(sim: Simulation, world: World) -> None:
        older = copy_of(sim.metadata.tree)
        for number in range(3):
            _ = await world.metadata.commit([Op("create", f"/{number}")])
        newer = sim.metadata.tree
        seen = TreeState(0, 0, newer.zxid)
        sim.metadata.stop()
        sim.metadata.start(older)
        await world.clock.sleep(3.0)
        await connected(world)
        age = TreeAge(swapping(sim, world, paths.RESTORED, newer), world.clock, seen=seen)
        with pytest.raises(MetadataUnavailable):
            await age.check()
        await age.check()
        assert await records(world).get(paths.RESTORED, RestoredTree) is None

    simulate(work)


def test_nothing_is_read_when_no_node_is_named() -> None:
    async def work(sim: Simulation, world: World) -> None:
        await connected(world)
        assert await records(world, watching(world)).nodes([]) == []

    simulate(work)


def test_a_count_meant_for_one_tree_is_not_written_to_the_next() -> None:
    async def work(sim: Simulation, world: World) -> None:
        await connected(world)
        older = copy_of(sim.metadata.tree)
        for number in range(3):
            _ = await world.metadata.commit([Op("create", f"/{number}")])
        age = TreeAge(swapping(sim, world, paths.AGE, older), world.clock)
        _ = world.tasks.spawn(age.watch(1.0), name="metadata-age")
        await asyncio.sleep(15.0)
        assert age.seen.counted == 0
        with pytest.raises(MetadataUnavailable):
            await age.check()
        assert await records(world).get(paths.AGE, AgeRecord) is None

    simulate(work)


def test_what_a_node_counted_in_an_older_tree_is_forgotten_once_the_tree_is_marked() -> None:
    """Otherwise the newer tree, which lacks that count, would look older when it is put back."""

    async def work(sim: Simulation, world: World) -> None:
        ignorant = watching(world)
        await asyncio.sleep(3.0)
        assert ignorant.seen.counted == 1
        newest = TreeState(0, 0, sim.metadata.tree.zxid + 100)
        with pytest.raises(MetadataUnavailable):
            await TreeAge(records(world), world.clock, seen=newest).check()
        await asyncio.sleep(3.0)
        assert ignorant.is_older
        assert ignorant.seen == newest

    simulate(work)
