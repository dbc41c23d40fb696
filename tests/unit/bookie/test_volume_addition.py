"""A volume is added to a bookie that runs: what refuses it, what a crash at each step leaves, and
what starts with the shorter lists do.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from pulsarish.bookie.volume_addition import (
    AdditionState,
    VolumeAdditions,
    check_new_directories,
)
from pulsarish.metadata import paths
from pulsarish.metadata.records import Cookie
from pulsarish.model.errors import LedgerFenced, NotAllowedError
from pulsarish.runtime.seams import World
from pulsarish.wire._pb import bookie_pb2 as pb
from pulsarish.wire.json_record import encode_record
from tests.support.bookies import BookieBench, BookieClient, small_config
from tests.unit.bookie.test_cordoned_volumes import add, sleep, store
from tests.unit.bookie.test_volumes import (
    LEDGERS,
    OK,
    bench_of,
    change,
    codes,
    cookie_of,
    empty,
    fill,
    lists,
    places_of,
    refused_start,
    registration_of,
    run,
    serves,
)

NEW = range(40, 80)
STEPS = ("_prepare", "_note", "_note_in_others", "_take_in")


def three(place: str) -> tuple[str, str, str]:
    return f"{place}/journal", f"{place}/ledgers", f"{place}/index"


async def begin(bench: BookieBench, directories: tuple[str, str, str]) -> AdditionState:
    additions = bench.bookie._additions
    assert additions is not None

    async def work(_bookie: object) -> AdditionState:
        return additions.begin(directories)

    return await bench.in_bookie(work)


async def add_volume(bench: BookieBench, directories: tuple[str, str, str]) -> str:
    """Return why it was not added; empty: it was."""
    state = await begin(bench, directories)
    while state.is_running:
        await sleep(bench, 0.05)
    assert state.is_added is not bool(state.refusal)
    return state.refusal


async def restart(bench: BookieBench) -> None:
    bench.node.crash()
    bench.start()
    await serves(bench)


def names_below(bench: BookieBench, place: str) -> list[str]:
    return sorted(path for path in bench.node.disk.names if path.startswith(f"{place}/"))


def test_new_ledgers_go_there_at_once_and_every_start_finds_them() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        before = await places_of(bench, LEDGERS)
        assert await add_volume(bench, three("/c")) == ""
        assert await add_volume(bench, three("/c/")) == ""  # it is there
        await fill(bench, NEW)
        assert await places_of(bench, LEDGERS) == before
        places = await places_of(bench, NEW)
        assert "/c/ledgers" in places.values()
        (there, *_) = [each for each, place in places.items() if place == "/c/ledgers"]

        async def fence(client: BookieClient) -> None:
            assert await client.fence(there) == (OK, -1)

        await bench.with_client(fence)
        # With the shorter lists, the longer ones, and those in another order.
        for places_now in (("/a", "/b"), ("/a", "/b"), ("/a", "/b", "/c"), ("/c", "/b", "/a")):
            change(bench, **lists(*places_now))
            await restart(bench)
            assert await places_of(bench, LEDGERS) == before
            assert await places_of(bench, NEW) == places
            assert set((await codes(bench, NEW)).values()) == {OK}
            assert await add(bench, there, 1) == LedgerFenced.code
            (record,) = [
                each
                for each in (await cookie_of(bench)).volumes.values()
                if each.directories == three("/c")
            ]
            assert record.is_unlisted is ("/c" not in places_now)
            assert (await registration_of(bench)).lost_directories == ()
        # The lists decide now.
        change(bench, **lists("/a", "/b"))
        bench.node.crash()
        assert "/c/journal, /c/ledgers, /c/index is missing" in await refused_start(bench)

    run(bench, scenario)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_each_step_leaves_a_volume_or_none(
    monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        before = await places_of(bench, LEDGERS)
        additions = bench.bookie._additions
        was = getattr(additions, step)

        async def crash(*given: object) -> object:
            done = await was(*given) if after else None
            await asyncio.sleep(0.001)
            bench.node.crash()
            await asyncio.Event().wait()
            return done

        monkeypatch.setattr(additions, step, crash)
        await begin(bench, three("/c"))
        await sleep(bench, 2.0)
        assert not bench.node.alive
        bench.start()
        await serves(bench)
        known = [each.directories for each in (await cookie_of(bench)).volumes.values()]
        is_known = step != "_prepare" and (step, after) != ("_note", False)
        assert (three("/c") in known) is is_known
        assert [each.config.ledger_path for each in bench.bookie.live] == [
            "/a/ledgers",
            "/b/ledgers",
            *["/c/ledgers"] * is_known,
        ]
        assert await add_volume(bench, three("/c")) == ""
        await fill(bench, NEW)
        places = await places_of(bench, NEW)
        assert "/c/ledgers" in places.values()
        await restart(bench)
        assert await places_of(bench, NEW) == places
        assert await places_of(bench, LEDGERS) == before
        assert set((await codes(bench, NEW)).values()) == {OK}

    run(bench, scenario)


def test_refusals_name_the_directory_and_change_nothing() -> None:
    bench = bench_of("/a", "/b", read_only_free_bytes=1 << 20)

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        before, disk = await cookie_of(bench), bench.node.disk

        async def write(path: str, content: bytes) -> None:
            await bench.in_bookie(lambda bookie: bookie._world.files.replace(path, content))

        own = msgspec.structs.replace(before, volumes={}, volume="")
        await write("/full/ledgers/x.log", b"x")
        await write(
            "/other/index/cookie", encode_record(msgspec.structs.replace(own, instance_id="o~1"))
        )
        await write("/torn/index/cookie", b"{")
        await write("/known/index/cookie", encode_record(own))
        refusals = {
            ("j", "/c/ledgers", "/c/index"): "journal_directory 'j' is not an absolute path",
            ("", "/c/ledgers", "/c/index"): "journal_directory '' is not an absolute path",
            ("/c/j,k", "/c/ledgers", "/c/index"): "'/c/j,k' has a comma",
            ("/c/j", "/c/l\0", "/c/index"): r"ledger_directory '/c/l\x00' has characters that",
            ("/a/journal", "/c/ledgers", "/c/index"): "/a/journal is one that the bookie uses",
            ("/c/j", "/a/ledgers", "/c/index"): "/a/ledgers is one that the bookie uses",
            ("/a/journal/new", "/c/ledgers", "/c/index"): "/a/journal/new and /a/journal",
            ("/c/j", "/c/ledgers", "/"): "index_directory / and /a/journal",
            ("/c/j", "/c/j", "/c/index"): "ledger_directory /c/j is one that is to be added",
            three("/full"): "/full/ledgers is not empty, it has x.log: empty it, or name another",
            three("/other"): "/other/index belongs to bookie o~1",
            three("/torn"): "/torn/index/cookie",
            three("/known"): "/known/index is not empty, it has cookie: empty it",
        }
        there = sorted(disk.names)
        for directories, words in refusals.items():
            assert words in await add_volume(bench, directories)
        disk.capacity_bytes = disk.used_bytes() + (1 << 20) - 1
        assert "the disk of /c/journal has" in await add_volume(bench, three("/c"))
        disk.capacity_bytes = 1 << 40
        disk.kill("/c/index")
        assert "of a disk that works" in await add_volume(bench, three("/c"))
        disk.heal()
        assert sorted(disk.names) == there
        assert (await cookie_of(bench)).volumes == before.volumes
        # A caller that was refused may have repaired what was wrong.
        assert await add_volume(bench, three("/c")) == ""
        assert await add_volume(bench, ("/d/j", "/c/ledgers", "/d/index")) != ""
        await restart(bench)
        assert len(bench.bookie.live) == 3

    run(bench, scenario)


def test_a_directory_that_another_process_uses_is_refused() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await serves(bench)
        other = bench.sim.node("other")
        bench.node.disk.lock("/c/index", other)  # type: ignore[arg-type]  # a process that lives
        assert "/c/index is held by" in await add_volume(bench, three("/c"))
        bench.node.disk.unlock("/c/index", other)  # type: ignore[arg-type]
        assert await add_volume(bench, three("/c")) == ""

    run(bench, scenario)


def test_a_disk_that_fails_on_the_way_gives_the_volume_up_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        additions = bench.bookie._additions
        was = VolumeAdditions._note_in_others

        async def kill(self: VolumeAdditions, cookie: Cookie) -> None:
            await was(self, cookie)
            bench.node.disk.kill("/c/ledgers")

        monkeypatch.setattr(VolumeAdditions, "_note_in_others", kill)
        refusal = await add_volume(bench, three("/c"))
        assert "Name other directories; /c/journal, /c/ledgers, /c/index can be given" in refusal
        monkeypatch.undo()
        assert additions is bench.bookie._additions, "the bookie runs on"
        bench.node.disk.heal()
        assert "the bookie uses already" in await add_volume(bench, three("/c"))
        assert await add_volume(bench, three("/d")) == ""
        await restart(bench)
        assert [each.config.ledger_path for each in bench.bookie.live] == [
            "/a/ledgers",
            "/b/ledgers",
            "/d/ledgers",
        ]
        assert (await registration_of(bench)).lost_directories == ()
        # As the refusal said: once they are empty and the bookie was restarted.
        empty(bench, "/c")
        assert await add_volume(bench, three("/c")) == ""

    run(bench, scenario)


def test_a_start_finds_an_added_volume_also_with_older_metadata() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        older = await cookie_of(bench)
        assert await add_volume(bench, three("/c")) == ""
        await fill(bench, NEW)
        places = await places_of(bench, NEW)
        newer = await cookie_of(bench)
        bench.node.crash()
        await store(bench, paths.cookie("b1"), encode_record(older))
        bench.start()
        await serves(bench)
        assert await places_of(bench, NEW) == places
        assert (await cookie_of(bench)).volumes.keys() == newer.volumes.keys()

    run(bench, scenario)


def test_shorter_lists_after_longer_ones_are_refused_also_with_older_metadata() -> None:
    """The metadata know no volume but the two in the lists then, and the third one has promised
    entries.
    """
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        older = await cookie_of(bench)
        assert await add_volume(bench, three("/c")) == ""
        await fill(bench, NEW)
        places = await places_of(bench, NEW)
        change(bench, **lists("/a", "/b", "/c"))
        await restart(bench)
        bench.node.crash()
        await store(bench, paths.cookie("b1"), encode_record(older))
        change(bench, **lists("/a", "/b"))
        assert "/c/journal, /c/ledgers, /c/index is missing" in await refused_start(bench)
        change(bench, **lists("/a", "/b", "/c"))
        bench.start()
        await serves(bench)
        assert await places_of(bench, NEW) == places

    run(bench, scenario)


def test_an_added_volume_that_is_missing_refuses_the_start() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await serves(bench)
        assert await add_volume(bench, three("/c")) == ""
        await fill(bench, NEW)
        bench.node.crash()
        empty(bench, "/c")
        assert "/c/journal, /c/ledgers, /c/index is missing" in await refused_start(bench)
        assert names_below(bench, "/c") == []
        change(bench, volume_loss="limbo")
        bench.start()
        await serves(bench)
        assert len(bench.bookie.live) == 2
        assert names_below(bench, "/c") == []

    run(bench, scenario)


def test_an_added_volume_is_in_the_doubt_of_the_others_and_can_be_lost_like_them() -> None:
    bench = bench_of("/a", "/b", "/x")

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        lost = next(v for v in bench.bookie.volumes if v.config.ledger_path == "/x/ledgers")
        bench.node.disk.kill("/x/")
        while not lost.is_settled:
            await sleep(bench, 0.1)
        assert await add_volume(bench, three("/c")) == ""
        added = bench.bookie.volumes[-1]
        first = bench.bookie.volumes[0].store.limbo
        assert added.store.limbo.absent_below == first.absent_below > 0
        assert (added.store.limbo.lost, added.store.limbo.times) == (first.lost, first.times)
        await fill(bench, NEW)
        places = await places_of(bench, NEW)
        bench.node.disk.kill("/c/")
        while not added.is_settled:
            await sleep(bench, 0.1)
        assert len(bench.bookie.live) == 2
        found = await codes(bench, NEW)
        for each, place in places.items():
            assert (found[each] == OK) is (place != "/c/ledgers")
        assert "/c/ledgers" in (await registration_of(bench)).lost_directories

    run(bench, scenario)


def test_an_addition_waits_for_the_metadata_and_ends_with_the_bookie() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        await add_volume(bench, three("/c"))
        bookie = bench.bookie

        async def stop(_world: World) -> None:
            await bookie.stop()

        await bench.node.run(stop)
        assert "the bookie stops" in (await begin(bench, three("/d"))).refusal

    run(bench, scenario)


def test_the_directories_of_a_bookie_with_relative_paths_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = small_config(data_directory="data")
    check_new_directories(config, three("/c"))
    used = f"{tmp_path}/data/ledgers"
    with pytest.raises(NotAllowedError, match=f"{used} is one that the bookie uses already"):
        check_new_directories(config, ("/c/journal", used, "/c/index"))


def test_a_bookie_with_one_volume_needs_lists_first() -> None:
    bench = BookieBench(1)

    async def call(client: BookieClient) -> pb.AddVolumeResponse:
        request = pb.AddVolumeRequest(
            instance_id=client.instance_id,
            journal_directory="/c/journal",
            ledger_directory="/c/ledgers",
            index_directory="/c/index",
            add=True,
        )
        answer = await client._call("bookie.add_volume", request.SerializeToString())
        return pb.AddVolumeResponse.FromString(answer)

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        refusal = (await bench.with_client(call)).refusal
        assert "--set journal_directories=/b1/journal --set ledger_directories=" in refusal
        bench.node.crash()
        change(bench, **lists("/b1"))
        bench.start()
        await serves(bench)
        state = await bench.with_client(call)
        assert (state.adding, state.refusal) == (True, "")
        while not (await bench.with_client(call)).added:
            await sleep(bench, 0.1)
        await fill(bench, NEW)
        assert set((await places_of(bench, NEW)).values()) == {"/b1/ledgers", "/c/ledgers"}
        for settings in (lists("/b1"), {**lists(), "data_directory": "/b1"}):
            change(bench, **settings)
            await restart(bench)
            assert set((await codes(bench, LEDGERS)).values()) == {OK}
            assert len(bench.bookie.live) == 2
        # A call for another instance changes nothing.
        wrong = pb.AddVolumeRequest(instance_id="b1~0", add=True)

        async def ask(client: BookieClient) -> int:
            answer = await client._call("bookie.add_volume", wrong.SerializeToString())
            return pb.AddVolumeResponse.FromString(answer).code

        assert await bench.with_client(ask) != 0

    run(bench, scenario)
