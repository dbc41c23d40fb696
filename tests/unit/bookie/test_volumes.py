"""A bookie with several volumes: where ledgers lie, what a lost volume takes with it, and which
directories make a start.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.http import BookieHttp
from pulsarish.bookie.rebuild import rebuild_bookie
from pulsarish.bookie.space import SpaceMode
from pulsarish.bookie.volumes import Volumes
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookieRegistration, Cookie, LedgerIds
from pulsarish.metadata.session_watch import SessionWatch
from pulsarish.model.errors import (
    BookieIOError,
    BookieReadOnly,
    ConfigError,
    EntryUnknown,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
)
from pulsarish.runtime.disk_errors import is_full
from pulsarish.runtime.seams import World
from pulsarish.wire.bookie import ReadItem
from tests.support.bookies import BookieBench, BookieClient, make_record

OK = 0
GIVEN_OUT = 100


def lists(*places: str) -> dict[str, object]:
    return {
        "journal_directories": tuple(f"{place}/journal" for place in places),
        "ledger_directories": tuple(f"{place}/ledgers" for place in places),
        "index_directories": tuple(f"{place}/index" for place in places),
    }


def bench_of(*places: str, **settings: object) -> BookieBench:
    return BookieBench(1, **lists(*places), **settings)


def change(bench: BookieBench, **settings: object) -> None:
    bench.config = msgspec.structs.replace(bench.config, **settings)  # type: ignore[arg-type]


def empty(bench: BookieBench, place: str) -> None:
    """Remove everything below a place from the disk of a machine that is down."""
    disk = bench.node.disk
    for path in [path for path in disk.names if path.startswith(f"{place}/")]:
        disk.unlink(path)
        disk.sync_directory(path.rpartition("/")[0])
    for path in [path for path in disk.indexes if path.startswith(f"{place}/")]:
        del disk.indexes[path]


async def give_out_ids(bench: BookieBench) -> None:
    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        await records.compare_and_set(paths.LEDGER_IDS, LedgerIds(GIVEN_OUT), None)

    await bench.client_node.run(work)


async def cookie_of(bench: BookieBench) -> Cookie:
    async def work(world: World) -> Cookie:
        records = Records(world.metadata, world.clock, world.random)
        found = await records.get(paths.cookie("b1"), Cookie)
        assert found is not None
        return found[0]

    return await bench.client_node.run(work)


async def registration_of(bench: BookieBench) -> BookieRegistration:
    async def work(world: World) -> BookieRegistration:
        records = Records(world.metadata, world.clock, world.random)
        found = await records.get(paths.bookie("b1"), BookieRegistration)
        assert found is not None
        return found[0]

    return await bench.client_node.run(work)


async def fill(bench: BookieBench, ledger_ids: range, *, together: bool = False) -> None:
    """Add entry 0 of each ledger."""

    async def work(client: BookieClient) -> None:
        records = [make_record(each, 0, b"%d" % each) for each in ledger_ids]
        for batch in [records] if together else [[each] for each in records]:
            assert set((await client.add(batch)).values()) == {OK}

    await bench.with_client(work)


def volumes_of(bench: BookieBench) -> Volumes:
    found = bench.bookie.entries
    assert isinstance(found, Volumes)
    return found


async def places_of(bench: BookieBench, ledger_ids: range) -> dict[int, str]:
    """The ledger directory where each ledger is, by what the volumes know."""
    found: dict[int, str] = {}
    for volume in bench.bookie.live:
        known = await bench.in_bookie(
            lambda _bookie, store=volume.store: store.knows(list(ledger_ids))
        )
        for ledger_id, here in zip(ledger_ids, known, strict=True):
            if here:
                assert ledger_id not in found, "a ledger lies in one volume"
                found[ledger_id] = volume.config.ledger_path
    return found


async def codes(bench: BookieBench, ledger_ids: range) -> dict[int, int]:
    """The code of a read of entry 0 of each ledger; checks the payload of what is there."""

    async def work(client: BookieClient) -> dict[int, int]:
        found: dict[int, int] = {}
        for ledger_id in ledger_ids:
            code, payloads = await client.read(ledger_id, 0, 0)
            found[ledger_id] = code
            assert payloads in ({}, {0: b"%d" % ledger_id})
            assert bool(payloads) == (code == OK)
        return found

    return await bench.with_client(work)


async def serves(bench: BookieBench) -> None:
    await bench.client()


async def refused_start(bench: BookieBench) -> str:
    bench.node.expect(ConfigError)
    before = len(bench.node.ends)
    bench.start()

    async def wait(world: World) -> None:
        while len(bench.node.ends) == before:
            await world.clock.sleep(0.01)

    await bench.client_node.run(wait)
    return str(bench.node.ends[-1])


def run(bench: BookieBench, scenario: Callable[[], Awaitable[None]]) -> None:
    bench.sim.run(scenario)


LEDGERS = range(12)


def test_each_ledger_lies_in_one_volume_and_is_found_there_after_a_crash() -> None:
    bench = bench_of("/a", "/b", open_ledgers_max=3)

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        before = await places_of(bench, LEDGERS)
        assert set(before.values()) == {"/a/ledgers", "/b/ledgers"}
        for _ in range(2):
            bench.node.crash()
            bench.start()
            assert set((await codes(bench, LEDGERS)).values()) == {OK}
            assert await places_of(bench, LEDGERS) == before

        async def work(client: BookieClient) -> None:
            assert await client.ledgers() == list(LEDGERS)
            # More entries go where the ledger is, in one message for both volumes.
            batch = [make_record(each, 1, b"more") for each in LEDGERS]
            assert set((await client.add(batch)).values()) == {OK}
            answers = await client.read_many(
                [ReadItem(each, each, [(0, 1)], 1 << 20) for each in LEDGERS]
            )
            assert [answer.request_id for answer in answers] == list(LEDGERS)
            assert {len(answer.records) for answer in answers} == {2}
            assert await client.fence(3) == (OK, 0)
            assert await client.fence(3) == (OK, 0)
            assert (await client.read(77, 0, 0))[0] == NoSuchLedger.code
            assert (await client.read(5, 9, 9))[0] == NoSuchEntry.code

        await bench.with_client(work)
        assert await places_of(bench, LEDGERS) == before
        assert next(iter((await cookie_of(bench)).volumes)) == ""
        assert len((await cookie_of(bench)).volumes) == 2

    run(bench, scenario)


def test_new_ledgers_of_one_message_are_spread_and_answered_together() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await fill(bench, LEDGERS, together=True)
        assert set((await places_of(bench, LEDGERS)).values()) == {"/a/ledgers", "/b/ledgers"}
        assert set((await codes(bench, LEDGERS)).values()) == {OK}

    run(bench, scenario)


def test_a_full_volume_takes_no_new_ledger() -> None:
    bench = bench_of("/a", "/b", disk_check_interval_seconds=1000.0)

    async def scenario() -> None:
        await serves(bench)
        first, second = bench.bookie.volumes
        first.store.space = SpaceMode.READ_ONLY
        await fill(bench, LEDGERS)
        assert set((await places_of(bench, LEDGERS)).values()) == {"/b/ledgers"}
        assert bench.bookie.entries.is_writable
        second.store.space = SpaceMode.RESERVED
        assert not bench.bookie.entries.is_writable

        async def work(client: BookieClient) -> None:
            found = await client.add([make_record(50, 0, b"x")])
            assert found == {(50, 0): BookieReadOnly.code}
            assert await client.fence(51) == (OK, -1)

        await bench.with_client(work)
        assert (await places_of(bench, range(51, 52))) == {51: "/a/ledgers"}

    run(bench, scenario)


def test_a_missing_volume_refuses_the_start_and_is_given_up_on_an_operators_word() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await give_out_ids(bench)
        await fill(bench, LEDGERS)
        before = await places_of(bench, LEDGERS)
        bench.node.crash()
        empty(bench, "/b")
        refusal = await refused_start(bench)
        assert "/b/journal, /b/ledgers, /b/index is missing" in refusal
        assert 'volume_loss = "limbo"' in refusal
        change(bench, volume_loss="limbo", **lists("/a"))
        bench.start()
        expected = {
            each: OK if place == "/a/ledgers" else EntryUnknown.code
            for each, place in before.items()
        }
        assert await codes(bench, LEDGERS) == expected
        lost = next(each for each, place in before.items() if place == "/b/ledgers")
        kept = next(each for each, place in before.items() if place == "/a/ledgers")

        async def work(client: BookieClient) -> None:
            # Nothing of the lost volume begins again without its fence.
            assert await client.add([make_record(lost, 1, b"x")]) == {(lost, 1): EntryUnknown.code}
            assert await client.fence(lost) == (EntryUnknown.code, -1)
            assert (await client.read_lac(lost))[0] == EntryUnknown.code
            assert (await client.read(GIVEN_OUT - 1, 0, 0))[0] == EntryUnknown.code
            assert await client.add([make_record(kept, 1, b"x")]) == {(kept, 1): OK}
            assert await client.add([make_record(GIVEN_OUT, 0, b"x")]) == {(GIVEN_OUT, 0): OK}
            # What auto-recovery does.
            copy = [make_record(lost, 0, b"%d" % lost)]
            assert await client.add(copy, recovery=True) == {(lost, 0): OK}

        await bench.with_client(work)
        found = await registration_of(bench)
        assert found.lost_directories == ()  # the operator has taken them out of the lists
        assert (found.limbo_below_ledger, found.limbo_times) == (GIVEN_OUT, 1)
        assert [each.is_lost for each in (await cookie_of(bench)).volumes.values()] == [False, True]

        async def mend(client: BookieClient) -> None:
            entries = bench.bookie.entries
            assert (
                await bench.in_bookie(lambda _bookie: entries.clear_limbo(lost, 0))
                == EntryUnknown.code
            )
            assert await bench.in_bookie(lambda _bookie: entries.clear_limbo(lost, 1)) == OK
            assert (await client.read(lost, 5, 5))[0] == NoSuchEntry.code

        await bench.with_client(mend)
        # The directories are a new volume now, which is in the same doubt.
        change(bench, volume_loss="refuse", **lists("/a", "/b"))
        bench.node.crash()
        bench.start()
        expected[lost] = OK
        assert await codes(bench, LEDGERS) == expected
        assert [volume.store.limbo.absent_below for volume in bench.bookie.volumes] == [
            GIVEN_OUT,
            GIVEN_OUT,
        ]
        assert len((await cookie_of(bench)).volumes) == 3
        assert bench.bookie.lost_directories == []

    run(bench, scenario)


def test_a_volume_that_was_given_up_is_not_used_again() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await give_out_ids(bench)
        await fill(bench, LEDGERS)
        before = await places_of(bench, LEDGERS)
        bench.node.crash()
        bench.node.disk.kill("/b/")
        change(bench, volume_loss="limbo")
        bench.start()
        await serves(bench)
        assert [volume.config.ledger_path for volume in bench.bookie.volumes] == ["/a/ledgers"]
        assert len(bench.bookie.lost_directories) == 3
        bench.node.crash()
        bench.node.disk.heal()
        change(bench, volume_loss="refuse")
        bench.start()
        found = await codes(bench, LEDGERS)
        assert found == {
            each: OK if place == "/a/ledgers" else EntryUnknown.code
            for each, place in before.items()
        }

    run(bench, scenario)


def test_ids_that_a_peer_names_put_none_in_doubt_that_is_still_to_be_given_out() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await give_out_ids(bench)
        await fill(bench, LEDGERS)

        async def name_any(client: BookieClient) -> None:
            for more in range(16):
                assert await client.fence((1 << 40) + more) == (OK, -1)

        await bench.with_client(name_any)
        before = await places_of(bench, LEDGERS)
        lost = next(each for each, place in before.items() if place == "/b/ledgers")
        (volume,) = [each for each in bench.bookie.volumes if "/b" in each.where]
        assert volume.highest >= 1 << 40
        bench.node.disk.kill("/b/")

        async def work(client: BookieClient) -> None:
            await client.add([make_record(lost, 1, b"x")])
            while not volumes_of(bench).settled_names:
                await client.world.clock.sleep(0.1)
            assert (await client.read(lost, 0, 0))[0] == EntryUnknown.code
            assert await client.add([make_record(GIVEN_OUT, 0, b"new")]) == {(GIVEN_OUT, 0): OK}

        await bench.with_client(work)
        assert (await registration_of(bench)).limbo_below_ledger <= GIVEN_OUT

    run(bench, scenario)


def test_while_the_metadata_are_away_the_ledgers_of_a_lost_volume_get_errors() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await give_out_ids(bench)
        await fill(bench, LEDGERS)
        before = await places_of(bench, LEDGERS)
        lost = next(each for each, place in before.items() if place == "/b/ledgers")
        kept = next(each for each, place in before.items() if place == "/a/ledgers")
        bench.sim.metadata.stop()
        bench.node.disk.kill("/b/")

        async def work(client: BookieClient) -> None:
            await client.add([make_record(lost, 1, b"x")])
            await client.world.clock.sleep(1.0)
            assert (await client.fence(lost))[0] == BookieIOError.code
            assert await client.add([make_record(kept, 1, b"x")]) == {(kept, 1): OK}
            bench.sim.metadata.start()
            while not volumes_of(bench).settled_names:
                await client.world.clock.sleep(0.1)
            assert await client.fence(lost) == (EntryUnknown.code, -1)

        await bench.with_client(work)

    run(bench, scenario)


def test_a_disk_that_dies_takes_its_ledgers_and_no_other() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await give_out_ids(bench)
        await fill(bench, LEDGERS)
        before = await places_of(bench, LEDGERS)
        lost = next(each for each, place in before.items() if place == "/b/ledgers")
        kept = next(each for each, place in before.items() if place == "/a/ledgers")
        bench.node.disk.kill("/b/")

        async def work(client: BookieClient) -> None:
            found = await client.add([make_record(lost, 1, b"x"), make_record(kept, 1, b"x")])
            assert found == {(lost, 1): BookieIOError.code, (kept, 1): OK}
            while not volumes_of(bench).settled_names:
                # Until the other volume knows it durably, nothing is said of the ledger.
                assert (await client.fence(lost))[0] in (BookieIOError.code, EntryUnknown.code)
            assert (await client.read(lost, 0, 0))[0] == EntryUnknown.code
            assert await client.fence(lost) == (EntryUnknown.code, -1)
            assert await client.add([make_record(lost, 1, b"x")]) == {(lost, 1): LedgerFenced.code}
            # No ledger from here on was ever in the lost volume.
            assert await client.add([make_record(50, 0, b"50")]) == {(50, 0): OK}

        await bench.with_client(work)
        assert bench.node.ends == []
        assert await codes(bench, LEDGERS) == {
            each: OK if place == "/a/ledgers" else EntryUnknown.code
            for each, place in before.items()
        }
        found = await registration_of(bench)
        assert found.lost_directories == ("/b/journal", "/b/ledgers", "/b/index")
        assert (found.read_only, found.limbo_times) == (False, 1)
        # The next start does without the disk, and without an operator.
        bench.node.crash()
        bench.start()
        assert (await codes(bench, range(50, 51))) == {50: OK}
        assert (await codes(bench, LEDGERS))[lost] == EntryUnknown.code
        another = [make_record(kept, 2, b"x")]
        assert await bench.with_client(lambda client: client.add(another)) == {(kept, 2): OK}

    run(bench, scenario)


def test_a_second_volume_may_fail_while_the_loss_of_the_first_one_is_noted() -> None:
    bench = bench_of("/a", "/b", "/c")

    async def scenario() -> None:
        await give_out_ids(bench)
        await fill(bench, LEDGERS)
        before = await places_of(bench, LEDGERS)
        _, second, third = bench.bookie.volumes

        async def flush() -> None:
            raise BookieIOError("the index cannot be read")

        second.store.checkpointer.flush = flush  # type: ignore[method-assign]
        bench.node.disk.kill("/c/")
        lost = next(each for each, place in before.items() if place == "/c/ledgers")

        async def work(client: BookieClient) -> None:
            _ = await client.add([make_record(lost, 1, b"x")])
            while len(volumes_of(bench).settled_names) < 2:
                await client.world.clock.sleep(0.1)

        await bench.with_client(work)
        assert bench.node.ends == []
        assert volumes_of(bench).settled_names == [second.name, third.name]
        assert await codes(bench, LEDGERS) == {
            each: OK if place == "/a/ledgers" else EntryUnknown.code
            for each, place in before.items()
        }

    run(bench, scenario)


def test_health_and_metrics_name_the_volume_that_has_failed() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        bench.node.disk.kill("/b/")

        async def look(world: World) -> tuple[str, str]:
            while not volumes_of(bench).settled_names:
                await world.clock.sleep(0.1)
            http = BookieHttp(bench.bookie, SessionWatch(world), None)
            return http._health().body.decode(), (await http.metrics.scrape()).decode()

        bench.bookie.upkeep[0].garbage.ended_ms = 5000
        health, metrics = await bench.node.run(look)
        assert 'pulsarish_bookie_gc_last_round_seconds{bookie="b1"} 5' in metrics
        assert '"status":"ok"' in health
        assert '"lost_directories":["/b/journal","/b/ledgers","/b/index"]' in health
        assert "empty the directories" in health
        assert 'pulsarish_bookie_volume_state{bookie="b1",directory="/a/ledgers"} 1' in metrics
        assert 'pulsarish_bookie_volume_state{bookie="b1",directory="/b/ledgers"} -1' in metrics
        assert 'pulsarish_bookie_lost_directories{bookie="b1"} 3' in metrics
        assert 'bookie_ledger_writable_dirs{bookie="b1"} 1' in metrics
        here = list((await places_of(bench, LEDGERS)).values())
        assert set(here) == {"/a/ledgers"}
        assert f'bookie_ledgers_count{{bookie="b1"}} {len(here)}' in metrics

    run(bench, scenario)


def test_a_volume_is_added_to_a_bookie_with_one() -> None:
    bench = BookieBench(1)

    async def scenario() -> None:
        await fill(bench, range(3))
        bench.node.crash()
        change(
            bench,
            journal_directories=("/b1/journal", "/new/journal"),
            ledger_directories=("/b1/ledgers", "/new/ledgers"),
            index_directories=("/b1/index", "/new/index"),
        )
        bench.start()
        await fill(bench, LEDGERS)
        found = await places_of(bench, LEDGERS)
        assert {found[each] for each in range(3)} == {"/b1/ledgers"}
        assert set(found.values()) == {"/b1/ledgers", "/new/ledgers"}
        bench.node.crash()
        # One of several cannot be left out by leaving its directories out.
        change(bench, **lists())
        assert "/new/ledgers, /new/index is missing" in await refused_start(bench)

    run(bench, scenario)


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        (
            {"ledger_directories": ("/b/ledgers", "/a/ledgers")},
            "/a/journal, /b/ledgers, /a/index are of different volumes",
        ),
        (lists("/a"), "/b/journal, /b/ledgers, /b/index is missing"),
        (lists("/a", "/c"), "/c/journal, /c/ledgers, /c/index: nothing"),
    ],
)
def test_directories_that_do_not_fit_are_refused(settings: dict[str, object], refusal: str) -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        bench.node.crash()
        change(bench, **settings)
        assert refusal in await refused_start(bench)

    run(bench, scenario)


def test_directories_with_the_cookies_and_nothing_else_are_no_volume() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        bench.node.crash()
        disk = bench.node.disk
        kept = {path: disk.names[path] for path in disk.names if path.startswith("/b/")}
        empty(bench, "/b")
        for path, inode in kept.items():
            if path.endswith("/cookie"):
                disk.link(path, inode)
                disk.sync_directory(path.rpartition("/")[0])
        assert "hold the cookies and nothing else" in await refused_start(bench)

    run(bench, scenario)


def test_a_full_disk_is_no_lost_volume() -> None:
    assert is_full(OSError(errno.ENOSPC, "full"))
    assert is_full(OSError(errno.EIO, "IO error: No space left on device: /b/index/000012.log"))
    assert not is_full(OSError(errno.EIO, "cannot write"))


def test_an_index_is_rebuilt_for_one_volume_at_a_time() -> None:
    bench = bench_of("/a", "/b")

    async def rebuild(world: World, config: BookieConfig) -> None:
        async def given_out() -> int:
            return GIVEN_OUT

        await rebuild_bookie(
            world.files,
            world.open_index,
            config,
            given_out=given_out,
            remove=lambda _path: None,
            replace=bench.node.disk.replace_index,
            progress=lambda *_counts: None,
        )

    async def scenario() -> None:
        await give_out_ids(bench)
        await fill(bench, LEDGERS)
        await bench.in_bookie(lambda bookie: bookie.stop())
        one = bench.config.volumes()[1]
        bench.node.crash()
        bench.node.start(lambda world: world.clock.sleep(1000.0))
        await bench.node.run(lambda world: rebuild(world, one))
        bench.node.crash()
        bench.start()
        assert set((await codes(bench, LEDGERS)).values()) == {OK}
        # What only the old index knew may have been in the rebuilt volume.
        assert await codes(bench, range(60, 61)) == {60: EntryUnknown.code}
        assert [volume.store.limbo.below for volume in bench.bookie.volumes] == [
            GIVEN_OUT,
            GIVEN_OUT,
        ]

    run(bench, scenario)
