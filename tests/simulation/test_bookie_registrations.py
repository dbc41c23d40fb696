"""What a client makes of the bookies' registrations."""

from __future__ import annotations

import pytest

from pulsarish.ledger.bookies import Bookies
from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.placement import Candidate
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookieRegistration
from pulsarish.model.errors import NotEnoughDomains, PulsarishError
from pulsarish.model.ledger_metadata import LedgerPurpose, PurposeKind
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


def test_domains_come_from_registrations_and_an_enforced_rule_refuses_a_ledger() -> None:
    class Listener:
        def confirmed(self, last_confirmed: int) -> None:
            raise AssertionError

        def stopped(self, error: PulsarishError) -> None:
            raise AssertionError

    async def scenario(sim: Simulation) -> None:
        async def work(world: World) -> None:
            records = Records(world.metadata, world.clock, world.random)
            await records.ensure(paths.BOOKIES)
            row = BookieRegistration(
                "b1", "b1~1", "one:3181", "one", rack="r", zone="z", region="e"
            )
            # as a version without zones writes it
            earlier = b'{"bookie_id":"b2","instance_id":"b2~1","address":"two:3181","host":"two"}'
            for name, data in (("b1", encode_record(row)), ("b2", earlier)):
                await world.metadata.commit([Op("create", paths.bookie(name), data)])
            options = LedgerOptions(min_distinct_zones=2, min_distinct_enforced=True)
            client = LedgerClient(world, options)
            await client.start()
            assert client.bookies.describe(["b1~1", "b2~1", "b3~1"]) == [
                Candidate("b1~1", "one", "r", zone="z", region="e"),
                Candidate("b2~1", "two"),
                Candidate(
                    "b3~1", *["unknown:b3~1"] * 2, zone="unknown:b3~1", region="unknown:b3~1"
                ),
            ]
            with pytest.raises(NotEnoughDomains, match=r"2 distinct zones .* are in 1: z, and 1 "):
                await client.create(
                    ensemble_size=2,
                    write_quorum=2,
                    ack_quorum=2,
                    purpose=LedgerPurpose(PurposeKind.DIAGNOSTIC, "test"),
                    listener=Listener(),
                )
            await client.close()

        await sim.node("client").run(work)

    play(scenario)
