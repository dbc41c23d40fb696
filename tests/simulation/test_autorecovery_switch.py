"""Operators switch auto-recovery off and on, and ask it for looks, while bookies go and come."""

from __future__ import annotations

from typing import Any

import msgspec

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import AutoRecoverySwitch
from pulsarish.sim.world.world import Simulation
from tests.simulation.test_autorecovery import (
    Repaired,
    held,
    lacking,
    lose_entries,
    metadata,
    read_all,
    until_mended,
    written,
)
from tests.simulation.test_ledger_scripts import Client, entries, play


async def ask(client: Client, **fields: Any) -> None:
    """Change what operators ask of auto-recovery."""
    records = Records(client.world.metadata, client.world.clock, client.world.random)
    await client.do(records.make_parents(paths.autorecovery_switch()))
    await client.do(
        records.update(
            paths.autorecovery_switch(),
            AutoRecoverySwitch,
            lambda now: msgspec.structs.replace(now or AutoRecoverySwitch(), **fields),
        )
    )


async def asked(client: Client) -> AutoRecoverySwitch:
    records = Records(client.world.metadata, client.world.clock, client.world.random)
    found = await client.do(records.get(paths.autorecovery_switch(), AutoRecoverySwitch))
    assert found is not None
    switch: AutoRecoverySwitch = found[0]
    return switch


def test_nothing_is_copied_while_auto_recovery_is_off_and_all_of_it_afterwards() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 5)
        client = await cluster.client()
        closed = await written(client)
        still_open, _ = await client.create()
        await client.append(still_open, entries(5))
        await ask(client, off_since_ms=client.world.clock.wall_ms(), reason="new disks")
        await client.do(client.world.clock.sleep(1.0))
        gone = closed.metadata.last_segment.members[0]
        cluster.lose(gone)
        # The writer replaces it by itself, and publishes what is missing as before.
        await client.append(still_open, entries(5, 5))
        for _ in range(3):
            await client.do(client.world.clock.sleep(10.0))
            found = await metadata(client, closed.ledger_id)
            assert found.last_segment.members == closed.metadata.last_segment.members
            assert sum(each.worker.counts.attempts for each in cluster.recoveries()) == 0
            assert sum(each.auditor.counts.walks for each in cluster.recoveries()) == 0
        assert all("new disks" in each.switch.off_reason for each in cluster.recoveries())
        # A node that starts while it is off is off, too.
        node = sim.nodes[cluster.name_of(closed.metadata.last_segment.members[1])]
        node.crash()
        await client.do(client.world.clock.sleep(1.0))
        node.revive()
        await client.do(client.world.clock.sleep(10.0))
        assert sum(each.worker.counts.attempts for each in cluster.recoveries()) == 0
        await ask(client, off_since_ms=0)
        await until_mended(client)
        assert gone not in (await metadata(client, closed.ledger_id)).last_segment.members
        assert await read_all(client, closed.ledger_id) == entries(30)
        assert not any(each.switch.off_reason for each in cluster.recoveries())

    play(scenario)


def test_a_copy_under_way_stops_when_auto_recovery_is_switched_off() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4, replication_rate_bytes=1_024)
        client = await cluster.client()
        writer = await written(client, 3, 3, 2, count=200)
        gone = writer.metadata.last_segment.members[0]
        cluster.lose(gone)
        while not sum(each.worker.repair.copied.entries for each in cluster.recoveries()):
            await client.do(client.world.clock.sleep(0.2))
        await ask(client, off_since_ms=1)
        await client.do(client.world.clock.sleep(3.0))
        before = sum(each.worker.repair.copied.entries for each in cluster.recoveries())
        await client.do(client.world.clock.sleep(20.0))
        assert before == sum(each.worker.repair.copied.entries for each in cluster.recoveries())
        assert before < 200
        assert gone in (await metadata(client, writer.ledger_id)).last_segment.members
        await ask(client, off_since_ms=0)
        while gone in (await metadata(client, writer.ledger_id)).last_segment.members:
            await client.do(client.world.clock.sleep(0.2))
        assert await read_all(client, writer.ledger_id) == entries(200)

    play(scenario)


def test_an_operator_sets_the_delay_of_lost_bookies_and_asks_for_a_look() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4, lost_bookie_recovery_delay_seconds=1_000_000.0)
        client = await cluster.client()
        writer = await written(client)
        gone = writer.metadata.last_segment.members[0]
        await ask(client, looks_asked=1)
        while (await asked(client)).looks_done < 1:
            await client.do(client.world.clock.sleep(0.2))
        assert sum(each.auditor.counts.walks for each in cluster.recoveries()) == 1
        cluster.lose(gone)
        await client.do(client.world.clock.sleep(30.0))
        assert not await lacking(client)
        await ask(client, lost_bookie_recovery_delay_seconds=2)
        await until_mended(client)
        assert gone not in (await metadata(client, writer.ledger_id)).last_segment.members

    play(scenario)


def test_a_look_that_asks_the_bookies_finds_a_hole_at_once() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3)
        client = await cluster.client()
        writer = await written(client)
        member = writer.metadata.last_segment.members[0]
        await lose_entries(cluster, member, writer.ledger_id, 7)
        await ask(client, looks_asked=1)
        while (await asked(client)).looks_done < 1:
            await client.do(client.world.clock.sleep(0.2))
        assert 7 not in await held(cluster, client, writer.ledger_id, member)
        await ask(client, looks_asked=2, looks_asking_bookies=2)
        await until_mended(client)
        assert (await asked(client)).looks_done == 2
        assert 7 in await held(cluster, client, writer.ledger_id, member)

    play(scenario)
