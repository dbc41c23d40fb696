"""The simulated metadata service: the tree's meaning, and everything that a session can meet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pulsarish.runtime.seams import (
    Conflict,
    ConflictReason,
    Op,
    OutcomeUnknown,
    SessionLost,
    SessionState,
    World,
)
from pulsarish.sim.world.metadata_service import METADATA
from pulsarish.sim.world.world import Simulation


def simulate(work: Callable[[Simulation, World], Coroutine[Any, Any, Any]], seed: int = 0) -> Any:
    sim = Simulation(seed)
    return sim.run(lambda: sim.node("a").run(lambda world: work(sim, world)), 1_000)


def cut(sim: Simulation, node: str = "a") -> None:
    sim.network.partition([node], [METADATA])


def test_commits_reads_and_conflicts() -> None:
    async def work(sim: Simulation, world: World) -> None:
        store = world.metadata
        assert await store.commit(
            [Op("create", "/x", b"1"), Op("create_sequential", "/x/n-"), Op("put", "/x", b"2", 0)]
        ) == [
            "/x",
            "/x/n-0000000000",
            1,
        ]
        assert await store.children("/x") == ["n-0000000000"]
        found, missing = await store.get_many(["/x", "/y"])
        assert found is not None
        assert (found.data, found.version, found.session_id, missing) == (b"2", 1, 0, None)
        with pytest.raises(Conflict) as caught:
            await store.commit([Op("check", "/x", version=1), Op("put", "/x", b"3", 0)])
        assert (caught.value.index, caught.value.reason) == (1, ConflictReason.BAD_VERSION)
        with pytest.raises(Conflict) as caught:
            await store.children("/none")
        assert caught.value.reason is ConflictReason.NO_NODE
        await store.sync("/")
        assert await store.get_many([]) == []
        sim.metadata.tree.check()

    simulate(work)


@pytest.mark.parametrize("seed", range(20))
def test_a_watch_comes_before_the_data_it_concerns(seed: int) -> None:
    async def write(world: World) -> None:
        for number in range(1, 20):
            await world.metadata.commit([Op("put", "/x", b"%d" % number)])

    async def work(sim: Simulation, world: World) -> None:
        sim.metadata.late_watch_chance = 0.5
        store = world.metadata
        await store.commit([Op("create", "/x", b"0")])
        writing = asyncio.ensure_future(sim.node("b").run(write))
        version = 0
        while version < 19:
            fired: list[str] = []
            (before,) = await store.get_many(["/x"], watch=fired.append)
            (after,) = await store.get_many(["/x"])
            assert before is not None
            assert after is not None
            assert after.version == before.version or fired == ["/x"], (
                "newer data, and no event before it"
            )
            version = after.version
        await writing

    simulate(work, seed)


def test_watches_fire_once_and_for_the_right_change() -> None:
    async def work(sim: Simulation, world: World) -> None:
        store = world.metadata
        fired: list[tuple[str, str]] = []
        await store.get_many(["/x", "/y"], watch=lambda path: fired.append(("data", path)))
        await store.children("/", watch=lambda path: fired.append(("children", path)))
        await store.commit([Op("create", "/x")])
        await store.sync("/")
        assert sorted(fired) == [("children", "/"), ("data", "/x")]
        await store.commit([Op("put", "/x", b"1"), Op("create", "/z")])
        await store.sync("/")
        assert len(fired) == 2

    simulate(work)


def test_a_lost_answer_leaves_the_outcome_unknown() -> None:
    def outcome(seed: int) -> bool:
        async def work(sim: Simulation, world: World) -> bool:
            store = world.metadata
            fired: list[str] = []
            await store.get_many(["/x"], watch=fired.append)
            sim.metadata.lost_answer_chance = 1.0
            with pytest.raises(OutcomeUnknown):
                await store.commit([Op("create", "/x")])
            sim.metadata.heal()
            assert fired == ["/x"], "a broken connection fires every watch"
            while store.state is not SessionState.CONNECTED:
                await world.clock.sleep(0.1)
            return await store.get_many(["/x"]) != [None]

        return bool(simulate(work, seed))

    assert {outcome(seed) for seed in range(20)} == {True, False}


def test_a_short_silence_suspends_and_keeps_the_session() -> None:
    async def work(sim: Simulation, world: World) -> None:
        store = world.metadata
        states: list[SessionState] = []
        store.listen(states.append)
        session_id = store.session_id
        await store.commit([Op("create_ephemeral", "/here")])
        sim.metadata.break_connection(session_id)
        await world.clock.sleep(5)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert store.session_id == session_id
        assert await store.get_many(["/here"]) != [None]

    simulate(work)


def test_a_long_silence_loses_the_session_by_the_node_s_own_clock() -> None:
    async def work(sim: Simulation, world: World) -> None:
        store = world.metadata
        states: list[SessionState] = []
        store.listen(states.append)
        session_id = store.session_id
        await store.commit([Op("create_ephemeral", "/here")])
        fired: list[str] = []
        await store.get_many(["/here"], watch=fired.append)
        cut(sim)
        asked = asyncio.ensure_future(store.get_many(["/here"]))
        while SessionState.LOST not in states:
            assert "/here" in sim.metadata.tree.nodes, (
                "lost for its holder while the service still holds it"
            )
            await world.clock.sleep(0.05)
        assert sim.loop.time() == pytest.approx(10, abs=0.5)
        with pytest.raises((OutcomeUnknown, SessionLost)):
            await asked
        assert fired == ["/here"]
        with pytest.raises(SessionLost):
            await store.commit([Op("create", "/too-late")])
        await world.clock.sleep(10)
        assert "/here" not in sim.metadata.tree.nodes
        sim.network.heal_all()
        await world.clock.sleep(3)
        assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
        assert store.session_id not in (0, session_id)
        await store.commit([Op("create_ephemeral", "/here")])

    simulate(work)


def test_an_expiry_by_the_service_is_heard() -> None:
    async def work(sim: Simulation, world: World) -> None:
        store = world.metadata
        states: list[SessionState] = []
        store.listen(states.append)
        await store.commit([Op("create_ephemeral", "/here")])
        sim.metadata.expire(store.session_id)
        await world.clock.sleep(3)
        assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
        assert await store.get_many(["/here"]) == [None]

    simulate(work)


def test_a_dead_node_s_ephemerals_go_with_its_session_and_a_watcher_hears_it() -> None:
    async def register(world: World) -> None:
        await world.metadata.commit([Op("create_ephemeral", "/b")])

    async def work(sim: Simulation, world: World) -> None:
        await sim.node("b").run(register)
        gone = asyncio.Event()
        await world.metadata.get_many(["/b"], watch=lambda path: gone.set())
        sim.nodes["b"].crash()
        started = sim.loop.time()
        await gone.wait()
        assert 9 < sim.loop.time() - started < 12

    simulate(work)


def test_a_paused_node_finds_its_session_lost() -> None:
    async def register(world: World) -> list[SessionState]:
        states: list[SessionState] = []
        world.metadata.listen(states.append)
        await world.metadata.commit([Op("create_ephemeral", "/b")])
        await world.clock.sleep(60)
        return states

    async def work(sim: Simulation, world: World) -> None:
        node = sim.node("b")
        sim.at(1, node.pause)
        sim.at(40, node.resume)
        assert await node.run(register) == [
            SessionState.SUSPENDED,
            SessionState.LOST,
            SessionState.CONNECTED,
        ]

    simulate(work)


def test_close_ends_the_session_at_once() -> None:
    async def work(sim: Simulation, world: World) -> None:
        store = world.metadata
        await store.commit([Op("create_ephemeral", "/here")])
        await store.close()
        assert store.state is SessionState.LOST
        assert "/here" not in sim.metadata.tree.nodes
        await world.clock.sleep(5)
        with pytest.raises(SessionLost):
            await store.commit([Op("create", "/late")])

    simulate(work)


def test_a_node_boots_only_with_a_session() -> None:
    started: list[float] = []

    async def main(world: World) -> None:
        started.append(sim.loop.time())
        assert world.metadata.state is SessionState.CONNECTED
        await world.clock.sleep(1_000)

    async def scenario() -> None:
        cut(sim)
        sim.node("a", main)
        await asyncio.sleep(20)
        assert started == []
        sim.network.heal_all()
        await asyncio.sleep(5)
        assert len(started) == 1

    sim = Simulation(0)
    sim.run(scenario, 100)


def test_a_follower_that_lags_shows_an_earlier_tree_and_keeps_its_watches_back() -> None:
    async def work(sim: Simulation, world: World) -> None:
        store, told = world.metadata, list[str]()
        await store.commit([Op("create", "/x", b"old"), Op("create", "/x/a")])
        await store.get_many(["/x"], watch=told.append)
        sim.metadata.lag(store.session_id)
        other = sim.node("b")
        await other.run(
            lambda there: there.metadata.commit(
                [Op("put", "/x", b"new"), Op("create_sequential", "/x/n-"), Op("create", "/y")]
            )
        )
        for _ in range(2):
            found, missing = await store.get_many(["/x", "/y"])
            assert found is not None
            assert (found.data, found.version, missing) == (b"old", 0, None)
            assert await store.children("/x", watch=told.append) == ["a"]
        assert told == [], "no event overtakes the view"
        await store.sync("/x")
        found, there = await store.get_many(["/x", "/y"])
        assert found is not None
        assert (found.data, there is not None, await store.children("/x")) == (
            b"new",
            True,
            ["a", "n-0000000001"],
        )
        assert sorted(told) == ["/x", "/x"], (
            "one for the data, one for the children that had changed before they were read"
        )

    simulate(work)


def test_a_commit_brings_its_follower_up_to_itself_and_so_does_a_refusal() -> None:
    async def work(sim: Simulation, world: World) -> None:
        store = world.metadata
        await store.commit([Op("create", "/x", b"0")])
        other = sim.node("b")
        for number in range(1, 3):
            sim.metadata.lag(store.session_id)
            await other.run(
                lambda there, data=b"%d" % number: there.metadata.commit([Op("put", "/x", data)])  # type: ignore[misc]
            )
            if number == 1:
                await store.commit([Op("create", "/mine")])
            else:
                with pytest.raises(Conflict):
                    await store.commit([Op("put", "/x", b"mine", 0)])
            (found,) = await store.get_many(["/x"])
            assert found is not None
            assert found.data == b"%d" % number
            sim.metadata.catch_up(store.session_id)

    simulate(work)


def test_ephemerals_of_an_expired_session_stay_in_the_view_of_a_follower_that_lags() -> None:
    async def work(sim: Simulation, world: World) -> None:
        store, told = world.metadata, list[str]()
        await store.commit([Op("create", "/live")])
        other = sim.node("b")
        await other.run(lambda there: there.metadata.commit([Op("create_ephemeral", "/live/b")]))
        assert await store.children("/live", watch=told.append) == ["b"]
        sim.metadata.lag(store.session_id)
        sim.metadata.expire(other.session_id)
        await asyncio.sleep(0.1)
        assert (await store.children("/live"), told) == (["b"], [])
        sim.metadata.heal()
        await asyncio.sleep(0.1)
        assert (await store.children("/live"), told) == ([], ["/live"])

    simulate(work)


def test_a_loose_watch_is_told_after_the_read_that_shows_its_change() -> None:
    async def work(sim: Simulation, world: World) -> None:
        sim.metadata.loose_watch_chance = 1.0
        store, told = world.metadata, list[str]()
        await store.commit([Op("create", "/x", b"0")])
        await store.get_many(["/x"], watch=told.append)
        await sim.node("b").run(lambda there: there.metadata.commit([Op("put", "/x", b"1")]))
        (found,) = await store.get_many(["/x"])
        assert found is not None
        assert (found.data, told) == (b"1", [])
        await asyncio.sleep(3)
        assert told == ["/x"]

    simulate(work)
