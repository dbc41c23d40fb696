"""Volumes that an operator adds to bookies that run and crash meanwhile, while writers write; some
volumes are removed after that (``volume_removals``).

The bookie crashes at a drawn moment of the addition, or as soon as the volume was added. It starts
with the shorter lists, or with longer ones once the operator has changed them.

What must hold (rules 5 and 7):

* a volume that was added is used by every start, and no start is refused;
* the operator who gives the command again gets the volume added;
* each ledger lies in one volume of its bookie;
* all copies that the metadata name are there, and at the end everything that was confirmed is read
  with its bytes.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from pulsarish.bookie.volume import Volume
from pulsarish.bookie.volume_drains import local_ledgers
from pulsarish.ledger.bookie_control import NoAnswer
from pulsarish.ledger.client import LedgerClient
from pulsarish.runtime.seams import World
from pulsarish.sim.workloads.volume_removals import Removals
from pulsarish.sim.world.world import Simulation

__all__ = ["run_volume_additions"]

_KINDS: Final = ("journal", "ledger", "index")
_STEPS_SECONDS: Final = 0.06
"""An addition takes about as long when no disk and no metadata are slow."""
_LISTED_CHANCE: Final = 0.3
_LOOKS_MAX: Final = 400
_LOOK_SECONDS: Final = 0.2


class _Additions(Removals):
    def __init__(self, sim: Simulation) -> None:
        super().__init__(sim)
        self._added: dict[str, list[str]] = {name: [] for name in self._names}
        self.ledgers_count = 0
        """Ledgers that were found in volumes which had been added."""

    async def run(self) -> None:
        sim = self.sim
        sim.metadata.slow_write_chance = self._settings.slow_write_chance
        for name in self._names:
            sim.node(name, self._bookie(name)).restart_after_seconds = 1.0
        writer = sim.node("writer")
        await asyncio.sleep(2.0)
        await writer.run(self._write)
        writing = asyncio.get_running_loop().create_task(writer.run(self._write_on))
        names = sim.faults.sample(self._names, self._settings.rounds)
        for name in names:
            await self._all_up()
            await self._add(name)
        await writer.run(self._write)
        await self._count_copies()
        for name in names:
            await self._check_volumes(name)
        if sim.faults.random() < 0.5:
            await self._remove(names[0])
            await self._check_volumes(names[0])
        self._over = True
        await writing
        await sim.node("final").run(self._read_everything)

    async def _add(self, name: str) -> None:
        sim, node = self.sim, self.sim.nodes[name]
        place = "/data/new"
        instance = self._lives[name][1].instance_id
        operator = sim.node(f"adds-{name}")
        asking = asyncio.get_running_loop().create_task(
            operator.run(partial(self._ask_until_added, instance, place))
        )
        if sim.faults.random() < 0.7:
            await asyncio.sleep(sim.faults.uniform(0.0, _STEPS_SECONDS))
            node.crash()
            sim.at(0.2, node.revive)
        await asking
        self._added[name].append(place)
        if sim.faults.random() < _LISTED_CHANCE:
            self._places[name].append(place)
        # It may have taken ledgers by now.
        await asyncio.sleep(sim.faults.uniform(0.0, 1.0))
        if sim.faults.random() < 0.7:
            node.crash()
            node.revive()
            await self._all_up()
        await self._check_volumes(name)

    async def _ask_until_added(self, instance: str, place: str, world: World) -> None:
        client = LedgerClient(world, self._options)
        await client.start()
        directories = [f"{place}/{kind}" for kind in _KINDS]
        why, is_asked = "", False
        for _ in range(_LOOKS_MAX):
            try:
                state = await client.control.add_volume(instance, directories, add=not is_asked)
            except NoAnswer as error:
                why = str(error)
            else:
                if state.added:
                    return
                is_asked = state.adding
                why = state.refusal or "it is being added"
            await world.clock.sleep(_LOOK_SECONDS)
        raise AssertionError(f"{place} of {instance} is not added, and all is well: {why}")

    async def _check_volumes(self, name: str) -> None:
        """Check that a bookie uses all volumes that were added, and each ledger lies in one."""
        await self._all_up()
        bookie = self._lives[name][1]
        used = [each.config.ledger_path for each in bookie.live]
        for place in self._added[name]:
            directory = f"{place}/ledger"
            assert directory in used or place in self._removed[name], (
                f"{directory} was added to {name}, and its start left it out: it uses {used}"
            )
        found: dict[int, str] = {}
        for volume in bookie.live:
            here = await self.sim.nodes[name].run(partial(_ledgers_of, volume))
            for ledger_id in here:
                assert ledger_id not in found, f"ledger {ledger_id} lies in two volumes of {name}"
                found[ledger_id] = volume.config.ledger_path
        added = [f"{place}/ledger" for place in self._added[name]]
        self.ledgers_count += sum(path in added for path in found.values())


async def _ledgers_of(volume: Volume, _world: World) -> list[int]:
    return await local_ledgers(volume.store)


def run_volume_additions(seed: int) -> int:
    """Run one seed. Return the number of ledgers that were found in volumes which had been added.

    Raises ``AssertionError`` when a promise was broken.
    """
    sim = Simulation(seed)
    workload = _Additions(sim)
    sim.run(workload.run, max_virtual_seconds=600)
    return workload.ledgers_count
