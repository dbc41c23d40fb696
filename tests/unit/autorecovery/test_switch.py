"""What a node takes from the record with which operators steer auto-recovery."""

from __future__ import annotations

import asyncio

from pulsarish.autorecovery.switch import Switch
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import AutoRecoverySwitch
from pulsarish.runtime.seams import Op, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.json_record import encode_record


def test_a_record_that_cannot_be_read_changes_nothing() -> None:
    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        path = paths.autorecovery_switch()
        await records.make_parents(path)
        off = encode_record(AutoRecoverySwitch(off_since_ms=1, reason="new disks"))
        await records.commit([Op("create", path, off)])
        switch = Switch(world, records, lambda: None)
        following = asyncio.get_running_loop().create_task(switch.run())
        await world.clock.sleep(1.0)
        assert (switch.is_on, "new disks" in switch.off_reason) == (False, True)
        await world.metadata.commit([Op("put", path, b"{", -1)])
        await world.clock.sleep(5.0)
        assert (switch.is_on, "new disks" in switch.off_reason) == (False, True)
        await world.metadata.commit([Op("put", path, encode_record(AutoRecoverySwitch()), -1)])
        await world.clock.sleep(5.0)
        assert (switch.is_on, switch.off_reason) == (True, "")
        switch.stop()
        await following

    sim = Simulation(0)

    async def main() -> None:
        await sim.node("bookie").run(work)

    sim.run(main, max_virtual_seconds=60.0)
