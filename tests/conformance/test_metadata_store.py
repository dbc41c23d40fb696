"""What every ``MetadataStore`` promises."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from pulsarish.metadata.zookeeper.store import ZooKeeperStore
from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.seams import (
    Conflict,
    ConflictReason,
    Op,
    OutcomeUnknown,
    SessionLost,
    SessionState,
)
from tests.support.metadata_stores import (
    CAN_LOSE_SESSIONS,
    SHORT_SESSION_MS,
    STORES,
    Scenario,
    StoreEnv,
    production,
    real_ensemble,
    until_zookeeper_serves,
)
from tests.support.until import stands_still, until
from tests.support.worlds import run_in_production_loop


class Told:
    """Collects the paths that watches name, in order, and waits for the next."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self._more = asyncio.Event()

    def __call__(self, path: str) -> None:
        self.paths.append(path)
        self._more.set()

    async def until(self, count: int) -> list[str]:
        while len(self.paths) < count:
            self._more.clear()
            await self._more.wait()
        return self.paths


async def nodes_are_made_read_changed_and_deleted(env: StoreEnv) -> None:
    store = await env.store("a")
    assert store.state is SessionState.CONNECTED
    assert store.session_id != 0
    assert await store.commit([Op("create", "/n", b"one")]) == ["/n"]
    (node,) = await store.get_many(["/n"])
    assert node is not None
    assert (node.data, node.version, node.session_id) == (b"one", 0, 0)
    assert await store.commit([Op("put", "/n", b"two", 0)]) == [1]
    assert await store.commit([Op("put", "/n", b"three")]) == [2]
    (after,) = await store.get_many(["/n"])
    assert after is not None
    assert (after.data, after.version, after.created) == (b"three", 2, node.created)
    assert await store.commit([Op("check", "/n", version=2)]) == [2]
    assert await store.commit([Op("delete", "/n", version=2)]) == [-1]
    assert await store.get_many(["/n"]) == [None]
    await store.commit([Op("create", "/n")])
    (again,) = await store.get_many(["/n"])
    assert again is not None
    assert (again.data, again.version) == (b"", 0)
    assert again.created > node.created


_CONFLICTS: list[tuple[Op, ConflictReason]] = [
    (Op("create", "/full"), ConflictReason.EXISTS),
    (Op("create_ephemeral", "/full"), ConflictReason.EXISTS),
    (Op("create", "/absent/child"), ConflictReason.NO_NODE),
    (Op("create_sequential", "/absent/child-"), ConflictReason.NO_NODE),
    (Op("put", "/absent", b""), ConflictReason.NO_NODE),
    (Op("put", "/full", b"", 0), ConflictReason.BAD_VERSION),
    (Op("put", "/full", b"", 7), ConflictReason.BAD_VERSION),
    (Op("delete", "/absent"), ConflictReason.NO_NODE),
    (Op("delete", "/absent/child"), ConflictReason.NO_NODE),
    (Op("delete", "/full/child", version=1), ConflictReason.BAD_VERSION),
    (Op("delete", "/full"), ConflictReason.NOT_EMPTY),
    (Op("check", "/absent"), ConflictReason.NO_NODE),
    (Op("check", "/full", version=0), ConflictReason.BAD_VERSION),
]


async def conflicts_name_their_reason_and_change_nothing(env: StoreEnv) -> None:
    store = await env.store("a")
    await store.commit(
        [Op("create", "/full"), Op("create", "/full/child"), Op("put", "/full", b"x")]
    )
    before = await store.get_many(["/full", "/full/child"])
    for op, reason in _CONFLICTS:
        with pytest.raises(Conflict) as alone:
            await store.commit([op])
        assert (alone.value.index, alone.value.reason, alone.value.path) == (0, reason, op.path), op
        with pytest.raises(Conflict) as third:
            await store.commit(
                [Op("create", "/new"), Op("put", "/full", b"lost"), op, Op("create", "/newer")]
            )
        assert (third.value.index, third.value.reason, third.value.path) == (2, reason, op.path), op
    assert await store.get_many(["/full", "/full/child"]) == before
    assert await store.children("/") == ["full"]


async def a_commit_sees_its_own_operations_in_order(env: StoreEnv) -> None:
    store = await env.store("a")
    assert await store.commit(
        [
            Op("create", "/t", b"0"),
            Op("create_sequential", "/t/n-"),
            Op("put", "/t", b"1", 0),
            Op("put", "/t", b"2", 1),
            Op("check", "/t", version=2),
            Op("create_sequential", "/t/n-"),
            Op("delete", "/t/n-0000000000", version=0),
        ]
    ) == ["/t", "/t/n-0000000000", 1, 2, 2, "/t/n-0000000001", -1]
    assert await store.children("/t") == ["n-0000000001"]


async def sequence_numbers_never_come_twice(env: StoreEnv) -> None:
    store = await env.store("a")
    await store.commit([Op("create", "/q")])
    assert await store.commit([Op("create_sequential", "/q/x")]) == ["/q/x0000000000"]
    await store.commit([Op("delete", "/q/x0000000000")])
    await store.commit([Op("create", "/q/plain")])
    with pytest.raises(Conflict):
        await store.commit([Op("create_sequential", "/q/x"), Op("delete", "/q/absent")])
    # Every child ever made counts, whatever its name; what was refused does not.
    assert await store.commit([Op("create_sequential", "/q/y")]) == ["/q/y0000000002"]
    assert await store.commit([Op("create_sequential", "/q/")]) == ["/q/0000000003"]


async def ephemeral_nodes_end_with_their_session(env: StoreEnv) -> None:
    mine, other = await env.store("a"), await env.store("b")
    await mine.commit(
        [
            Op("create", "/live"),
            Op("create_ephemeral", "/live/a", b"me"),
            Op("create_ephemeral", "/live/a2"),
        ]
    )
    await other.commit([Op("create_ephemeral", "/live/b")])
    (seen,) = await other.get_many(["/live/a"])
    assert seen is not None
    assert seen.session_id == mine.session_id != other.session_id
    with pytest.raises(InvalidArgument):
        await mine.commit([Op("create", "/live/a/child")])
    gone, changed = Told(), Told()
    await other.get_many(["/live/a"], watch=gone)
    await other.children("/live", watch=changed)
    await mine.close()
    assert await gone.until(1) == ["/live/a"]
    assert await changed.until(1) == ["/live"]
    await other.sync("/")
    assert await other.children("/live") == ["b"]


async def a_watch_fires_once_and_names_its_path(env: StoreEnv) -> None:
    writer, reader = await env.store("a"), await env.store("b")
    await writer.commit([Op("create", "/w")])
    await reader.sync("/")
    on_put, on_delete, on_create, never = Told(), Told(), Told(), Told()
    await reader.get_many(["/w"], watch=on_put)
    await reader.get_many(["/none"], watch=never)
    await writer.commit([Op("put", "/w", b"1")])
    await writer.commit([Op("put", "/w", b"2")])
    assert await on_put.until(1) == ["/w"]
    await reader.sync("/")  # its server of an ensemble may not know of the second change
    await reader.get_many(["/w"], watch=on_delete)
    await writer.commit([Op("delete", "/w")])
    assert await on_delete.until(1) == ["/w"]
    assert await reader.get_many(["/w"], watch=on_create) == [None]
    await writer.commit([Op("create", "/w")])
    assert await on_create.until(1) == ["/w"]
    # A round trip of the reader: what was to be told has been told.
    await reader.sync("/")
    await reader.get_many(["/w"])
    assert (on_put.paths, on_delete.paths, on_create.paths, never.paths) == (
        ["/w"],
        ["/w"],
        ["/w"],
        [],
    )


async def a_watch_on_many_paths_fires_once_each(env: StoreEnv) -> None:
    writer, reader = await env.store("a"), await env.store("b")
    paths = [f"/p{number}" for number in range(5)]
    told = Told()
    await reader.get_many(paths, watch=told)
    await reader.get_many(paths, watch=told)
    await writer.commit([Op("create", path) for path in paths[:3]])
    assert sorted(await told.until(3)) == paths[:3]
    await reader.sync("/")
    await reader.get_many(paths)
    assert sorted(told.paths) == paths[:3]


async def children_watches_fire_for_children_only(env: StoreEnv) -> None:
    writer, reader = await env.store("a"), await env.store("b")
    await writer.commit([Op("create", "/c"), Op("create", "/c/x")])
    await reader.sync("/")
    told, gone = Told(), Told()
    assert await reader.children("/c", watch=told) == ["x"]
    await writer.commit(
        [Op("put", "/c", b"1"), Op("put", "/c/x", b"1"), Op("create", "/c/x/deeper")]
    )
    await reader.sync("/")
    assert await reader.children("/c") == ["x"]
    assert told.paths == []
    await writer.commit([Op("create", "/c/w")])
    assert await told.until(1) == ["/c"]
    assert await reader.children("/c", watch=told) == ["w", "x"]
    await writer.commit([Op("delete", "/c/w")])
    assert await told.until(2) == ["/c", "/c"]
    await reader.children("/c/x", watch=gone)
    await writer.commit([Op("delete", "/c/x/deeper"), Op("delete", "/c/x")])
    assert await gone.until(1) == ["/c/x"]
    with pytest.raises(Conflict) as absent:
        await reader.children("/c/x", watch=gone)
    assert (absent.value.index, absent.value.reason) == (0, ConflictReason.NO_NODE)
    # Where there was no node nothing waits.
    await writer.commit([Op("create", "/c/x")])
    await reader.sync("/")
    await reader.children("/c")
    assert gone.paths == ["/c/x"]


async def a_reader_sees_the_event_before_the_change(env: StoreEnv) -> None:
    writer, reader = await env.store("a"), await env.store("b")
    await writer.commit([Op("create", "/e")])
    await reader.sync("/")
    for version in range(1, 6):
        told = Told()
        await reader.get_many(["/e"], watch=told)
        await writer.commit([Op("put", "/e", str(version).encode())])
        while True:
            (node,) = await reader.get_many(["/e"])
            assert node is not None
            if node.version == version:
                break
        assert told.paths == ["/e"]


async def many_requests_at_once_are_answered(env: StoreEnv) -> None:
    store = await env.store("a")
    await store.commit([Op("create", "/m")])
    made = await asyncio.gather(
        *[store.commit([Op("create_sequential", "/m/n")]) for _ in range(500)]
    )
    # In no order among themselves: they are tasks.
    assert sorted(made) == [[f"/m/n{number:010d}"] for number in range(500)]
    paths = [f"/m/n{number:010d}" for number in range(1000)]
    found = await store.get_many(paths)
    assert [node is not None for node in found] == [number < 500 for number in range(1000)]
    assert await store.children("/m") == [path.rsplit("/", 1)[1] for path in paths[:500]]


async def exactly_one_of_many_writers_wins(env: StoreEnv) -> None:
    stores = [await env.store(name) for name in "abc"]
    await stores[0].commit([Op("create", "/race")])
    for version in range(5):
        outcomes = await asyncio.gather(
            *[store.commit([Op("put", "/race", b"", version)]) for store in stores],
            return_exceptions=True,
        )
        assert outcomes.count([version + 1]) == 1, outcomes
        assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 2, outcomes


async def sync_shows_what_others_committed(env: StoreEnv) -> None:
    writer, reader = await env.store("a"), await env.store("b")
    for number in range(5):
        await writer.commit([Op("create", f"/s{number}")])
        await reader.sync("/")
        assert len(await reader.children("/")) == number + 1


async def bad_arguments_are_refused(env: StoreEnv) -> None:
    store = await env.store("a")
    for path in [
        "",
        "a",
        "/a/",
        "//a",
        "/a//b",
        "/a/./b",
        "/../a",
        "/a\0b",
        "/a\x01",
        "/\ud7ff\ue000",
        "/\U0001f600",
    ]:
        with pytest.raises(InvalidArgument):
            await store.commit([Op("create", path)])
    with pytest.raises(InvalidArgument, match="1000000"):
        await store.commit([Op("create", "/big", bytes(1_000_001))])
    await store.commit([Op("create", "/big", bytes(900_000)), Op("create", "/ünïcödé ☃ name")])
    (big,) = await store.get_many(["/big"])
    assert big is not None
    assert len(big.data) == 900_000
    assert await store.children("/") == ["big", "ünïcödé ☃ name"]
    assert await store.commit([]) == []


async def a_closed_store_refuses(env: StoreEnv) -> None:
    store = await env.store("a")
    states: list[SessionState] = []
    store.listen(states.append)
    await store.close()
    assert store.state is SessionState.LOST
    assert states == [SessionState.LOST]
    for request in (
        store.get_many(["/"]),
        store.children("/"),
        store.commit([Op("create", "/x")]),
        store.sync("/"),
    ):
        with pytest.raises(SessionLost):
            await request
    await store.close()


async def an_expired_session_is_followed_by_a_new_one(env: StoreEnv) -> None:
    store, other = await env.store("a"), await env.store("b")
    await store.commit([Op("create_ephemeral", "/mine"), Op("create", "/kept")])
    told, states, again = Told(), [], asyncio.Event()

    def changed(state: SessionState) -> None:
        states.append(state)
        if state is SessionState.CONNECTED and SessionState.LOST in states:
            again.set()

    store.listen(changed)
    old = store.session_id
    await store.get_many(["/kept", "/none"], watch=told)
    await store.children("/", watch=told)
    await env.expire("a")
    await again.wait()
    assert store.session_id not in (0, old)
    # The server of an ensemble that the other client chose ends the store's connection at once, so
    # that the store may come back with its old session first. It loses that session once.
    lost = states.index(SessionState.LOST)
    assert SessionState.LOST not in states[lost + 1 :]
    assert [state for state in states[lost:] if state is not SessionState.SUSPENDED] == [
        SessionState.LOST,
        SessionState.CONNECTED,
    ]
    assert sorted(told.paths) == ["/", "/kept", "/none"]
    await store.sync("/")
    assert await store.get_many(["/mine"]) == [None]
    await store.commit([Op("create_ephemeral", "/mine")])
    (mine,) = await other.get_many(["/mine"])
    assert mine is None or mine.session_id == store.session_id


async def a_broken_connection_keeps_the_session(env: StoreEnv) -> None:
    store = await env.store("a")
    await store.commit([Op("create_ephemeral", "/mine")])
    told, states, again = Told(), [], asyncio.Event()

    def changed(state: SessionState) -> None:
        states.append(state)
        if state is SessionState.CONNECTED:
            again.set()

    store.listen(changed)
    old = store.session_id
    await store.get_many(["/mine"], watch=told)
    await env.drop("a")
    await again.wait()
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    assert store.session_id == old
    # It fires because nothing is registered any more.
    assert told.paths == ["/mine"]
    (mine,) = await store.get_many(["/mine"])
    assert mine is not None
    assert mine.session_id == old


async def a_holder_that_is_cut_off_decides_by_its_own_clock(env: StoreEnv) -> None:
    store, other = await env.store("a", session_timeout_ms=SHORT_SESSION_MS), await env.store("b")
    await store.commit([Op("create_ephemeral", "/mine")])
    lost, again, gone = asyncio.Event(), asyncio.Event(), Told()
    given_away_before: list[str] = []

    def changed(state: SessionState) -> None:
        if state is SessionState.LOST:
            given_away_before.extend(gone.paths)
            lost.set()
        elif state is SessionState.CONNECTED:
            again.set()

    store.listen(changed)
    old = store.session_id
    await other.sync("/")
    (seen,) = await other.get_many(["/mine"], watch=gone)
    assert seen is not None
    await env.cut("a")
    pending = asyncio.ensure_future(store.commit([Op("put", "/mine", b"?")]))
    await lost.wait()
    # The holder knows before the server has given the node away.
    assert given_away_before == []
    with pytest.raises((SessionLost, OutcomeUnknown)):
        await pending
    with pytest.raises(SessionLost):
        await store.get_many(["/mine"])
    await gone.until(1)
    await env.mend("a")
    await again.wait()
    assert store.session_id not in (0, old)
    await store.sync("/")
    assert await store.get_many(["/mine"]) == [None]


async def every_answer_says_how_far_the_tree_has_come(env: StoreEnv) -> None:
    store, other = await env.store("a"), await env.store("b")
    await store.sync("/")
    before = store.zxid
    await store.commit([Op("create", "/n")])
    own = store.zxid
    assert own > before
    await other.sync("/")
    assert other.zxid >= own


_EVERYWHERE: list[Scenario] = [
    every_answer_says_how_far_the_tree_has_come,
    nodes_are_made_read_changed_and_deleted,
    conflicts_name_their_reason_and_change_nothing,
    a_commit_sees_its_own_operations_in_order,
    sequence_numbers_never_come_twice,
    ephemeral_nodes_end_with_their_session,
    a_watch_fires_once_and_names_its_path,
    a_watch_on_many_paths_fires_once_each,
    children_watches_fire_for_children_only,
    a_reader_sees_the_event_before_the_change,
    many_requests_at_once_are_answered,
    exactly_one_of_many_writers_wins,
    sync_shows_what_others_committed,
    bad_arguments_are_refused,
    a_closed_store_refuses,
]
_WITH_SESSIONS: list[Scenario] = [
    an_expired_session_is_followed_by_a_new_one,
    a_broken_connection_keeps_the_session,
    a_holder_that_is_cut_off_decides_by_its_own_clock,
]


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("scenario", _EVERYWHERE, ids=lambda scenario: scenario.__name__)
def test_store(kind: str, scenario: Scenario) -> None:
    STORES[kind](scenario)


@pytest.mark.parametrize("kind", CAN_LOSE_SESSIONS)
@pytest.mark.parametrize("scenario", _WITH_SESSIONS, ids=lambda scenario: scenario.__name__)
def test_session(kind: str, scenario: Scenario) -> None:
    STORES[kind](scenario)


def test_a_leader_that_has_lost_its_followers_confirms_no_sync() -> None:
    """They may have chosen another leader meanwhile, and that one may have accepted changes."""
    pids = real_ensemble()
    modes = {address: until_zookeeper_serves(address) for address in pids}
    (leader,) = [address for address, mode in modes.items() if mode == "leader"]
    followers = [pid for address, pid in pids.items() if address != leader]

    async def run() -> None:
        node = production()
        store = ZooKeeperStore(leader, "/leader", clock=node.clock, tasks=node.tasks)
        try:
            await store.start()
            await store.sync("/")
            for pid in followers:
                os.kill(pid, signal.SIGSTOP)
            # A thread that waits for a processor stops only when it gets one.
            until("the followers stand still", lambda: all(map(stands_still, followers)))
            with pytest.raises((OutcomeUnknown, SessionLost)):
                await store.sync("/")
        finally:
            for pid in followers:
                os.kill(pid, signal.SIGCONT)
            await store.close()
            await node.close()

    run_in_production_loop(run)
    for address in pids:
        until_zookeeper_serves(address)
