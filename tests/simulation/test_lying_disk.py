"""A disk that answers a sync without doing it, and then a power cut: what one such disk costs, and
what finds it out.

The disk keeps what it had when it began to lie and loses all that came after that. This is the
worst that it can do: what is left agrees with itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from pulsarish.bookie.bookie import Bookie
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.model.errors import CorruptData, PulsarishError
from pulsarish.runtime.seams import World
from pulsarish.sim.workloads.ledgers import bookie_config
from pulsarish.sim.world.disk import DiskImage
from pulsarish.sim.world.world import Simulation
from tests.simulation.test_ledger_scripts import Client, Cluster, entries, play

NEVER = 1_000.0
SOON = 0.5


class Telling(Cluster):
    """Bookies that store the position of their journal so often."""

    def __init__(self, sim: Simulation, bookies: int, interval_seconds: float) -> None:
        self._interval_seconds = interval_seconds
        super().__init__(sim, bookies)

    def _main(self, name: str) -> Callable[[World], Coroutine[Any, Any, None]]:
        async def main(world: World) -> None:
            config = msgspec.structs.replace(
                bookie_config(name), journal_position_interval_seconds=self._interval_seconds
            )
            self.running[name] = bookie = Bookie(world, config)
            await bookie.run()

        return main


@dataclass
class Lied:
    """Ten entries are confirmed, on two bookies, and one of these loses five of them; the writer is
    dead, the other bookie is down.
    """

    cluster: Telling
    rival: Client
    writer: LedgerWriter


async def lie(sim: Simulation, interval_seconds: float, *, closed: bool = False) -> Lied:
    cluster = Telling(sim, 3, interval_seconds)
    client, rival = await cluster.client(), await cluster.client("rival")
    writer, listener = await client.create(3, 3, 2)
    await client.append(writer, entries(5))
    if not closed:
        sim.network.cut("client", "b2")
    image: DiskImage = sim.nodes["b0"].disk.image()
    await client.append(writer, entries(5, start=5))
    assert listener.last == 9
    if closed:
        await client.do(writer.close())
    await asyncio.sleep(1.0)
    sim.nodes["client"].crash()
    sim.nodes["b1"].crash()
    liar = sim.nodes["b0"]
    liar.expect(CorruptData)
    liar.crash()
    liar.disk.put_back(image)
    liar.start()
    await asyncio.sleep(1.0)
    return Lied(cluster, rival, writer)


def test_one_is_enough_for_an_open_ledger_as_long_as_nobody_knows_of_the_entries() -> None:
    """The control: this is the loss of which the guarantees warn."""

    async def scenario(sim: Simulation) -> None:
        lied = await lie(sim, NEVER)
        assert sim.nodes["b0"].alive
        reader = await lied.rival.do(lied.rival.ledgers.open(lied.writer.ledger_id))
        assert await lied.rival.read_all(reader) == entries(5)

    play(scenario)


def test_it_is_found_out_once_the_metadata_know_how_far_its_journal_was_durable() -> None:
    async def scenario(sim: Simulation) -> None:
        lied = await lie(sim, SOON)
        assert not sim.nodes["b0"].alive
        assert "older than it was" in str(sim.nodes["b0"].ends[-1])
        with pytest.raises(PulsarishError):
            await lied.rival.do(lied.rival.ledgers.open(lied.writer.ledger_id))
        sim.nodes["b1"].start()
        await asyncio.sleep(2.0)
        reader = await lied.rival.do(lied.rival.ledgers.open(lied.writer.ledger_id))
        assert await lied.rival.read_all(reader) == entries(10)

    play(scenario)


def test_a_closed_ledger_loses_nothing_by_one() -> None:
    async def scenario(sim: Simulation) -> None:
        lied = await lie(sim, NEVER, closed=True)
        assert sim.nodes["b0"].alive
        reader = await lied.rival.do(lied.rival.ledgers.open(lied.writer.ledger_id))
        assert await lied.rival.read_all(reader) == entries(10)

    play(scenario)
