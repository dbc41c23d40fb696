"""The copying of entries of a ledger to a bookie, by more than one task of a process."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from pulsarish.ledger.add_stream import AddStream
from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.repair.copier import Copied, Copier
from pulsarish.model.errors import ServiceNotReady
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.seams import Stream, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.bookie import AddResult, decode_add, encode_add_response
from pulsarish.wire.record import Record, peek_ids

MEMBER, ADDRESS = "bookie-1", "b:1"
LEDGER = 7


class SlowBookie:
    """Takes a second for each message of adds."""

    def __init__(self) -> None:
        self.entries: list[int] = []

    async def serve(self, world: World) -> None:
        await world.connections.serve(ADDRESS, {"bookie.add": self._take}, {})

    async def _take(self, stream: Stream) -> None:
        answered = 0
        while (message := await stream.receive()) is not None:
            added = [peek_ids(record)[2] for record in decode_add(message).records]
            await asyncio.sleep(1.0)
            self.entries += added
            answered += 1
            rows = [AddResult(LEDGER, entry_id, entry_id, 0) for entry_id in added]
            await stream.send([encode_add_response(answered, rows)])


class OneStream:
    """A pool with one stream, which all copiers share."""

    def __init__(self, stream: AddStream) -> None:
        self._stream = stream

    def adder(self, _member: str, *, recovery: bool) -> AddStream:
        assert recovery
        return self._stream


def _record(entry_id: int) -> Record:
    return Record(LEDGER, entry_id, entry_id - 1, 1, memoryview(b"x"))


def test_two_copiers_of_a_ledger_to_one_bookie_do_not_take_each_others_answers() -> None:
    """A repair and a move of copies may choose the same bookie at the same time."""
    bookie = SlowBookie()

    async def no_pause(_size_bytes: int) -> None:
        pass

    async def write(world: World) -> None:
        book = AddressBook()
        book.put(MEMBER, ADDRESS)
        options = LedgerOptions()
        stream = AddStream(world, options, book, MEMBER, recovery=True)
        pool = cast(BookiePool, OneStream(stream))
        move, repair = (Copier(pool, options, Copied(), no_pause, 1 << 20) for _ in range(2))
        moving = asyncio.create_task(move.write(LEDGER, MEMBER, [_record(0)]))
        await asyncio.sleep(0.1)
        with pytest.raises(ServiceNotReady, match="ledger 7 are being copied to bookie-1 already"):
            await repair.write(LEDGER, MEMBER, [_record(1)])
        await moving
        await repair.write(LEDGER, MEMBER, [_record(1)])
        assert bookie.entries == [0, 1]
        stream.close()

    async def scenario() -> None:
        await sim.node("b").run(bookie.serve)
        await sim.node("a").run(write)

    sim = Simulation(1)
    sim.run(scenario, 100)
