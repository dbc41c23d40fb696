"""Volumes of bookies that an operator drains and removes, one after the other, while bookies crash,
writers write, and the operator asks for the removal again and again, also much too early.

What must hold (rules 5, 7 and 12):

* all copies that the metadata name are there once a volume was removed, and its disk is destroyed;
* a writer that lives is not fenced by it, and its open ledgers hold the removal up;
* what the volume knew is fenced in another one, also after a restart;
* once all is well and the open ledgers are closed, the volume is removed, and the bookie starts
  without it;
* at the end everything that was confirmed is read with its bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.volume import Volume
from pulsarish.bookie.volume_drains import local_ledgers
from pulsarish.ledger.bookie_control import NoAnswer
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import CordonedVolumes
from pulsarish.runtime.seams import World
from pulsarish.sim.workloads.ledgers import bookie_config
from pulsarish.sim.workloads.repair import _REPAIR, RepairSettings, _Workload
from pulsarish.sim.world.world import Simulation

__all__ = ["Removals", "run_volume_removals"]

_SETTINGS: Final = RepairSettings(
    bookies=5, rounds=2, closed_ledgers=10, open_ledgers=3, quorums=((2, 2, 2), (3, 3, 3))
)
_VOLUMES: Final = 2
_KINDS: Final = ("journal", "ledger", "index")
_EARLY_SECONDS: Final = 6.0
_LOOKS_MAX: Final = 400
_LOOK_SECONDS: Final = 0.2


class Removals(_Workload):
    """One run."""

    def __init__(self, sim: Simulation) -> None:
        super().__init__(sim, _SETTINGS)
        self._places = {
            name: [f"/data/{number}" for number in range(_VOLUMES)] for name in self._names
        }
        self._removed: dict[str, list[str]] = {name: [] for name in self._names}
        self.fenced_count = 0
        """Ledgers that a removed volume knew, and that were looked for elsewhere."""

    async def run(self) -> None:
        sim = self.sim
        sim.metadata.slow_write_chance = self._settings.slow_write_chance
        for name in self._names:
            sim.node(name, self._bookie(name)).restart_after_seconds = 1.0
        writer = sim.node("writer")
        await asyncio.sleep(2.0)
        await writer.run(self._write)
        writing = asyncio.get_running_loop().create_task(writer.run(self._write_on))
        for name in sim.faults.sample(self._names, self._settings.rounds):
            await self._remove(name)
        self._over = True
        await writing
        await sim.node("final").run(self._read_everything)

    def _bookie(self, name: str) -> Callable[[World], Coroutine[Any, Any, None]]:
        async def main(world: World) -> None:
            places = self._places[name]
            config = msgspec.structs.replace(
                bookie_config(name),
                auto_recovery_daemon_enabled=True,
                auto_recovery=msgspec.structs.replace(_REPAIR, ledger=self._options),
                **{
                    f"{kind}_directories": tuple(f"{place}/{kind}" for place in places)
                    for kind in _KINDS
                },
            )
            bookie = Bookie(world, config)
            self._lives[name] = self.sim.nodes[name].incarnation, bookie
            await bookie.run()

        return main

    async def _remove(self, name: str) -> None:
        sim, node = self.sim, self.sim.nodes[name]
        operator = sim.node(f"operator-{name}")
        place = sim.faults.choice(self._places[name])
        directory = f"{place}/ledger"
        instance = self._lives[name][1].instance_id
        await self._all_up()
        bookie = self._lives[name][1]
        (volume,) = [each for each in bookie.volumes if each.config.ledger_path == directory]
        await operator.run(partial(_ask_to_drain, instance, volume.name))
        self._mending = True
        sim.at(_EARLY_SECONDS, self._heal)
        self._crash_soon(self._names)
        asking = asyncio.get_running_loop().create_task(
            operator.run(partial(self._ask_until_removed, instance, directory))
        )
        await asyncio.sleep(_EARLY_SECONDS + 1.0)
        await self._all_up()
        if not asking.done():
            # Nothing holds it up from here on.
            await sim.nodes["writer"].run(self._roll_over)
        await asking
        known: list[int] = []
        for each in self._lives[name][1].volumes:
            if each.is_removed and node.alive:  # not if it restarted meanwhile
                known = await node.run(partial(_ledgers_of, each))
        node.disk.kill(f"{place}/")
        await self._all_up()
        await self._count_copies()
        if sim.faults.random() < 0.5:  # with the lists as they were
            node.crash()
            node.revive()
            await self._all_up()
        self._places[name] = [each for each in self._places[name] if each != place]
        self._removed[name].append(place)
        node.crash()
        node.revive()
        await self._all_up()
        await self._check_fences(name, known)
        await self._count_copies()

    async def _all_up(self) -> None:
        for _ in range(_LOOKS_MAX):
            if len(list(self.bookies_up())) == len(self._names):
                return
            await asyncio.sleep(_LOOK_SECONDS)
        raise AssertionError("all is well, and a bookie does not start")

    async def _ask_until_removed(self, instance: str, directory: str, world: World) -> None:
        client = LedgerClient(world, self._options)
        await client.start()
        why = ""
        for _ in range(_LOOKS_MAX):
            try:
                state = await client.control.volume(instance, directory, remove=True)
            except NoAnswer as error:
                why = str(error)
                if "has no volume" in why:
                    return  # removed, and the bookie restarted
            else:
                if state.removed:
                    return
                why = state.refusal or f"{state.waiting[:2]}"
            await world.clock.sleep(_LOOK_SECONDS)
        raise AssertionError(f"{directory} of {instance} is not removed, and all is well: {why}")

    async def _roll_over(self, world: World) -> None:
        """Close all open ledgers, and recover those whose writers have stopped."""
        writers, self._writers = self._writers, []
        for history, writer in writers:
            if history.stopped_by is None:
                history.closed(await writer.close())
            else:
                assert self._client is not None
                while not await self._was_read(self._client, history):
                    await world.clock.sleep(_LOOK_SECONDS)

    async def _check_fences(self, name: str, known: Sequence[int]) -> None:
        """Check that another volume knows what the removed one knew, as fenced."""
        bookie = self._lives[name][1]
        self.fenced_count += len(known)

        async def look(_world: World) -> list[int]:
            left = list(known)
            for volume in bookie.live:
                left = [each for each in left if not (await volume.store.states.get(each)).fenced]
            return left

        left = await self.sim.nodes[name].run(look)
        assert not left, f"a volume was removed, and the fences of ledgers {left} with it"


async def _ledgers_of(volume: Volume, _world: World) -> list[int]:
    return await local_ledgers(volume.store)


async def _ask_to_drain(instance: str, volume: str, world: World) -> None:
    records = Records(world.metadata, world.clock, world.random)
    path = paths.cordoned_volumes(instance)
    await records.make_parents(path)
    record = CordonedVolumes("", instance, {volume: ""}, draining=(volume,))
    _ = await records.update(path, CordonedVolumes, lambda _found: record)


def run_volume_removals(seed: int) -> int:
    """Run one seed. Return the number of fences that were looked for after a removal.

    Raises ``AssertionError`` when a promise was broken.
    """
    sim = Simulation(seed)
    workload = Removals(sim)
    sim.run(workload.run, max_virtual_seconds=600)
    return workload.fenced_count
