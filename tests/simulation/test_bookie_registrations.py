"""What a client makes of the bookies' registrations."""

from __future__ import annotations

from pulsarish.ledger.bookies import Bookies
from pulsarish.ledger.options import LedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookieRegistration
from pulsarish.runtime.seams import Op, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.json_record import encode_record
from tests.simulation.test_ledger_scripts import play


def test_of_two_instances_at_one_address_only_the_newer_is_a_bookie() -> None:
    async def scenario(sim: Simulation) -> None:
        async def register(world: World, bookie_id: str, address: str) -> None:
            row = BookieRegistration(bookie_id, f"{bookie_id}~1", address, host=bookie_id)
            await world.metadata.commit([Op("create", paths.bookie(bookie_id), encode_record(row))])

        async def work(world: World) -> None:
            records = Records(world.metadata, world.clock, world.random)
            await records.ensure(paths.BOOKIES)
            bookies = Bookies(world, LedgerOptions(), records)
            await register(world, "new", "one:3181")
            await register(world, "other", "two:3181")
            await bookies.start()
            assert bookies.members() == ["new~1", "other~1"]
            await register(world, "again", "one:3181")
            await world.clock.sleep(1)
            assert bookies.members() == ["again~1", "other~1"]
            assert [candidate.member for candidate in bookies.candidates()] == [
                "again~1",
                "other~1",
            ]
            assert not bookies.registered("new~1")
            assert bookies.name_of("new~1") == "new"
            bookies.close()

        await sim.node("client").run(work)

    play(scenario)
