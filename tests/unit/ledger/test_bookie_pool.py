"""Streams to bookies that are gone are forgotten, those included whose connection another instance at the same address has taken."""

from __future__ import annotations

import asyncio

from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.bookies import Bookies
from pulsarish.ledger.options import LedgerOptions
from pulsarish.metadata.update import Records
from pulsarish.runtime.seams import Stream, World
from pulsarish.sim.world import Simulation

GONE, ADDRESS = "bookie1~00000001", "b:1"
OPTIONS = LedgerOptions(quarantine_ms=2_000, read_timeout_ms=100)


async def accept(world: World) -> None:
    async def ignore(stream: Stream) -> None:
        while await stream.receive() is not None:
            pass

    await world.connections.serve(ADDRESS, {"bookie.add": ignore, "bookie.read": ignore}, {})


def test_an_idle_stream_to_a_bookie_that_is_gone_is_closed_after_the_quarantine() -> None:
    async def connect(world: World) -> None:
        bookies = Bookies(world, OPTIONS, Records(world.metadata, world.clock, world.random))
        pool = BookiePool(world, OPTIONS, bookies)
        await pool.start()
        bookies.book.put(GONE, ADDRESS)
        stream = pool.adder(GONE, recovery=False)
        stream._wake()
        await asyncio.sleep(1.0)
        was_connected = stream.connected
        assert pool.adder(GONE, recovery=False) is stream
        await asyncio.sleep(2.0)
        assert was_connected
        assert not stream.connected
        assert GONE not in pool._adds
        pool.close()

    async def scenario() -> None:
        await sim.node("b").run(accept)
        await sim.node("a").run(connect)

    sim = Simulation(1)
    sim.run(scenario, 100)
