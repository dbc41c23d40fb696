"""A disk that comes back older as a whole agrees with itself: the metadata know how far the
bookie's journal was durable.
"""

from __future__ import annotations

import msgspec
import pytest

from pulsarish.metadata import paths
from pulsarish.metadata.records import Cookie
from pulsarish.model.errors import CorruptData, EntryUnknown, NoSuchEntry
from pulsarish.runtime.seams import Op
from pulsarish.sim.world.disk import DiskImage
from pulsarish.wire.json_record import decode_record
from tests.support.bookies import BookieBench, BookieClient, make_record

OK = 0


async def add(bench: BookieBench, first: int, count: int) -> None:
    async def work(client: BookieClient) -> None:
        codes = await client.add(
            [make_record(1, entry, b"x") for entry in range(first, first + count)]
        )
        assert set(codes.values()) == {OK}

    await bench.with_client(work)


async def wait(bench: BookieBench, seconds: float) -> None:
    await bench.client_node.run(lambda world: world.clock.sleep(seconds))


def stored(bench: BookieBench) -> tuple[Cookie, int]:
    node = bench.sim.metadata.tree.get(paths.cookie("b1"))
    assert node is not None
    return decode_record(node.data, Cookie, "b1"), node.version


def put_back(bench: BookieBench, image: DiskImage) -> None:
    bench.node.crash()
    bench.node.disk.put_back(image)
    bench.start()


def test_an_older_disk_is_refused_and_says_what_is_missing() -> None:
    bench = BookieBench(1, journal_position_interval_seconds=0.5)

    async def scenario() -> None:
        await add(bench, 0, 3)
        image = bench.node.disk.image()
        await add(bench, 3, 5)
        await wait(bench, 2.0)
        position = stored(bench)[0].journal_position
        bench.node.expect(CorruptData)
        put_back(bench, image)
        await wait(bench, 2.0)
        assert not bench.node.alive
        said = str(bench.node.ends[-1])
        assert f"all records below {position} were durable" in said
        assert "journal_corruption" in said

    bench.sim.run(scenario)


def test_an_older_disk_whose_loss_is_given_up_is_in_limbo_and_accepted_from_then_on() -> None:
    bench = BookieBench(2, journal_position_interval_seconds=0.5, journal_corruption="limbo")

    async def scenario() -> None:
        await add(bench, 0, 3)
        image = bench.node.disk.image()
        for times in (1, 2):
            if times == 1:
                await add(bench, 1000, 5)
            await wait(bench, 2.0)
            put_back(bench, image)

            async def look(client: BookieClient) -> None:
                assert (await client.read(1, 0, 2))[0] == OK
                assert (await client.read(1, 1000, 1000))[0] == EntryUnknown.code

            await bench.with_client(look)
            await wait(bench, 2.0)
            # Whoever repaired after the first limbo must see that this is another one, although the
            # disk has forgotten that one.
            assert bench.bookie.store.limbo.times == stored(bench)[0].limbo_times == times
        bench.config = msgspec.structs.replace(bench.config, journal_corruption="refuse")
        bench.node.crash()
        bench.start()
        await bench.client()

    bench.sim.run(scenario)


def test_what_was_never_stored_in_the_metadata_is_not_missed() -> None:
    """The limit of what is covered: nobody outside has heard of these entries."""
    bench = BookieBench(3, journal_position_interval_seconds=1000.0)

    async def scenario() -> None:
        await add(bench, 0, 3)
        image = bench.node.disk.image()
        await add(bench, 3, 5)
        put_back(bench, image)

        async def look(client: BookieClient) -> None:
            assert (await client.read(1, 4, 4))[0] == NoSuchEntry.code

        await bench.with_client(look)

    bench.sim.run(scenario)


def test_a_bookie_that_stops_stores_the_last_position() -> None:
    bench = BookieBench(4, journal_position_interval_seconds=1000.0)

    async def scenario() -> None:
        await add(bench, 0, 3)
        image = bench.node.disk.image()
        await add(bench, 3, 5)
        await bench.in_bookie(lambda bookie: bookie.stop())
        bench.node.expect(CorruptData)
        put_back(bench, image)
        await wait(bench, 2.0)
        assert not bench.node.alive

    bench.sim.run(scenario)


@pytest.mark.parametrize("seed", range(5))
def test_a_power_cut_after_any_add_loses_nothing_that_was_stored(seed: int) -> None:
    bench = BookieBench(
        seed, journal_position_interval_seconds=0.01, checkpoint_interval_seconds=0.05
    )

    async def scenario() -> None:
        for number in range(20):
            await add(bench, 10 * number, 10)
            bench.node.crash()
            bench.start()
        await add(bench, 200, 1)

    bench.sim.run(scenario)


def test_an_idle_bookie_writes_nothing() -> None:
    """Its probes are in the journal, too, and are nobody's entries."""
    bench = BookieBench(5, journal_position_interval_seconds=0.5, add_probe_interval_seconds=1.0)

    async def scenario() -> None:
        await add(bench, 0, 3)
        await wait(bench, 2.0)
        before = stored(bench)
        end = bench.bookie.store.journal.queue.next_sequence
        await wait(bench, 20.0)
        assert bench.bookie.store.journal.queue.next_sequence > end
        assert stored(bench) == before

    bench.sim.run(scenario)


def test_a_bookie_that_was_decommissioned_makes_no_cookie_anew() -> None:
    bench = BookieBench(6, journal_position_interval_seconds=0.5)

    async def scenario() -> None:
        await add(bench, 0, 3)
        await bench.client_node.run(
            lambda world: world.metadata.commit([Op("delete", paths.cookie("b1"), version=-1)])
        )
        await add(bench, 3, 3)
        await wait(bench, 2.0)
        assert bench.sim.metadata.tree.get(paths.cookie("b1")) is None

    bench.sim.run(scenario)
