"""Volumes that an operator has cordoned: what goes there still, what the bookie says, and when it
is read-only.
"""

from __future__ import annotations

from collections.abc import Callable

from pulsarish.bookie.http import BookieHttp
from pulsarish.bookie.space import SpaceMode
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import CordonedVolumes, ReadOnlyBookie
from pulsarish.metadata.session_watch import SessionWatch
from pulsarish.model.errors import BookieReadOnly
from pulsarish.runtime.seams import Op, World
from pulsarish.wire.json_record import encode_record
from tests.support.bookies import BookieBench, BookieClient, make_record
from tests.unit.bookie.test_volumes import (
    LEDGERS,
    OK,
    bench_of,
    codes,
    fill,
    places_of,
    registration_of,
    run,
    serves,
    volumes_of,
)

LATER = range(20, 32)


async def cordon(bench: BookieBench, *places: str, reason: str = "") -> None:
    """Ask for exactly these volumes, and wait until the bookie has followed and said so."""
    directories = [f"{place}/ledgers" for place in places]
    names = {
        volume.name: reason
        for volume in bench.bookie.volumes
        if volume.config.ledger_path in directories
    }
    instance = bench.bookie.instance_id

    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        path = paths.cordoned_volumes(instance)
        await records.make_parents(path)
        _ = await records.update(
            path, CordonedVolumes, lambda _found: CordonedVolumes("b1", instance, names)
        )

    await bench.client_node.run(work)
    await until(bench, lambda: bench.bookie.cordoned_directories == directories)
    while (await registration_of(bench)).cordoned_directories != tuple(directories):
        await sleep(bench, 0.1)


async def store(bench: BookieBench, path: str, data: bytes) -> None:
    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        await records.make_parents(path)
        (node,) = await records.nodes([path])
        await records.commit([Op("create" if node is None else "put", path, data)])

    await bench.client_node.run(work)


async def sleep(bench: BookieBench, seconds: float) -> None:
    async def work(world: World) -> None:
        await world.clock.sleep(seconds)

    await bench.client_node.run(work)


async def until(bench: BookieBench, is_so: Callable[[], bool]) -> None:
    while not is_so():
        await sleep(bench, 0.1)


async def add(bench: BookieBench, ledger_id: int, entry_id: int, *, recovery: bool = False) -> int:
    async def work(client: BookieClient) -> int:
        record = make_record(ledger_id, entry_id, b"%d" % ledger_id)
        return (await client.add([record], recovery=recovery))[ledger_id, entry_id]

    return await bench.with_client(work)


async def shown(bench: BookieBench) -> tuple[str, str]:
    """The bookie's ``/health`` and metrics."""

    async def look(world: World) -> tuple[str, str]:
        http = BookieHttp(bench.bookie, SessionWatch(world), None)
        return http._health().body.decode(), (await http.metrics.scrape()).decode()

    return await bench.node.run(look)


def test_a_cordoned_volume_takes_no_new_ledger_and_its_ledgers_go_on() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        before = await places_of(bench, LEDGERS)
        free_bytes = (await registration_of(bench)).free_bytes
        await cordon(bench, "/a", reason="it clicks")
        for start in (LATER, range(40, 52)):
            await fill(bench, start)
            assert set((await places_of(bench, start)).values()) == {"/b/ledgers"}
            for ledger_id in LEDGERS:
                assert await add(bench, ledger_id, start.start) == OK
            assert await places_of(bench, LEDGERS) == before
            found = await registration_of(bench)
            assert not found.read_only
            # Writers choose bookies by what new ledgers can have.
            assert 0 < found.free_bytes < free_bytes
            health, metrics = await shown(bench)
            assert '"status":"ok"' in health
            assert '"cordoned_directories":["/a/ledgers"]' in health
            assert "(it clicks); to end that: pulsarish storage uncordon b1 /a/ledgers" in health
            assert 'volume_state{bookie="b1",directory="/a/ledgers"} 0' in metrics
            assert 'volume_state{bookie="b1",directory="/b/ledgers"} 1' in metrics
            # The bookie remembers.
            bench.node.crash()
            bench.start()
            await serves(bench)
            assert bench.bookie.cordoned_directories == ["/a/ledgers"]
        await cordon(bench)
        await fill(bench, range(60, 72))
        assert "/a/ledgers" in (await places_of(bench, range(60, 72))).values()

    run(bench, scenario)


def test_a_bookie_whose_volumes_are_all_cordoned_is_read_only() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        await cordon(bench, "/a", "/b")
        found = await registration_of(bench)
        assert found.read_only
        assert "uncordon b1 /a/ledgers" in found.read_only_reason
        assert "uncordon b1 /b/ledgers" in found.read_only_reason
        # Writers of open ledgers replace it, as one that is set read-only.
        assert await add(bench, 0, 1) == BookieReadOnly.code
        assert await add(bench, 50, 0) == BookieReadOnly.code
        assert await add(bench, 51, 0, recovery=True) == OK
        assert set((await codes(bench, LEDGERS)).values()) == {OK}
        await cordon(bench, "/b")
        assert not (await registration_of(bench)).read_only
        await fill(bench, LATER)
        assert set((await places_of(bench, LATER)).values()) == {"/a/ledgers"}

    run(bench, scenario)


def test_open_ledgers_of_a_cordoned_volume_go_on_while_the_others_are_full() -> None:
    bench = bench_of("/a", "/b", disk_check_interval_seconds=1000.0)

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        places = await places_of(bench, LEDGERS)
        of_a = next(each for each, place in places.items() if place == "/a/ledgers")
        second = bench.bookie.volumes[1]
        second.store.space, second.space_reason = SpaceMode.READ_ONLY, "the disk of /b is full"
        await cordon(bench, "/a")
        found = await registration_of(bench)
        assert found.read_only
        assert "the disk of /b is full; an operator cordoned" in found.read_only_reason
        assert await add(bench, of_a, 1) == OK
        assert await add(bench, 50, 0) == BookieReadOnly.code
        assert await add(bench, 51, 0, recovery=True) == OK
        assert await places_of(bench, range(51, 52)) == {51: "/b/ledgers"}
        # Its probe goes on, so it stays ready without adds.
        await sleep(bench, 3 * bench.config.add_probe_timeout_seconds)
        assert bench.bookie.is_ready

    run(bench, scenario)


def test_a_bookie_that_keeps_cordoned_volumes_only_is_read_only() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        await cordon(bench, "/a")
        bench.node.disk.kill("/b/")
        await until(bench, lambda: bool(volumes_of(bench).settled_names))
        while not (await registration_of(bench)).read_only:
            await sleep(bench, 0.1)
        assert await add(bench, 50, 0) == BookieReadOnly.code
        assert "uncordon b1 /a/ledgers" in bench.bookie.read_only_reason

    run(bench, scenario)


def test_a_request_that_cannot_be_read_keeps_its_place_and_hides_no_other() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await serves(bench)
        await cordon(bench, "/a")
        instance = bench.bookie.instance_id
        cordoned, read_only = paths.cordoned_volumes(instance), paths.read_only_bookie(instance)
        await store(bench, cordoned, b"damaged")
        await store(bench, read_only, encode_record(ReadOnlyBookie("b1", instance)))
        await until(bench, lambda: "set-writable b1" in bench.bookie.read_only_reason)
        assert bench.bookie.cordoned_directories == ["/a/ledgers"]
        # A start knows nothing of what was there before.
        bench.node.crash()
        bench.start()
        await serves(bench)
        assert "set-writable b1" in bench.bookie.read_only_reason
        assert bench.bookie.cordoned_directories == []
        await store(bench, read_only, b"damaged")
        names = {each.name: "" for each in bench.bookie.volumes[1:]}
        await store(bench, cordoned, encode_record(CordonedVolumes("b1", instance, names)))
        await until(bench, lambda: bench.bookie.cordoned_directories == ["/b/ledgers"])
        assert "set-writable b1" in bench.bookie.read_only_reason

    run(bench, scenario)
