"""Streams to bookies that are gone are forgotten, those included whose connection another instance
at the same address has taken.

Without streams the pool sets no timer.
"""

from __future__ import annotations

import asyncio

from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.bookies import Bookies
from pulsarish.ledger.options import LedgerOptions
from pulsarish.metadata.record_store import Records
from pulsarish.runtime.seams import Stream, World
from pulsarish.sim.world.world import Simulation

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


def test_a_pool_ticks_only_while_there_is_a_stream_or_a_callback_wants_it() -> None:
    async def use(world: World) -> None:
        bookies = Bookies(world, OPTIONS, Records(world.metadata, world.clock, world.random))
        pool = BookiePool(world, OPTIONS, bookies)
        ticks: list[float] = []
        wanted: list[str] = []
        pool.each_tick(lambda: ticks.append(world.clock.monotonic()), lambda: bool(wanted))
        await pool.start()

        async def ticks_now() -> bool:
            await asyncio.sleep(2.0)  # the last tick that was asked for
            ticks.clear()
            await asyncio.sleep(30.0)
            return bool(ticks)

        assert not await ticks_now()
        wanted.append("a writer")
        pool.wake()
        assert await ticks_now()
        wanted.clear()
        assert not await ticks_now()
        bookies.book.put(GONE, ADDRESS)
        _ = pool.adder(GONE, recovery=False)
        await asyncio.sleep(2.0)
        assert ticks
        # The bookie is not registered, so its stream is forgotten.
        assert not await ticks_now()
        pool.close()

    sim = Simulation(1)
    sim.run(lambda: sim.node("a").run(use), 300)
