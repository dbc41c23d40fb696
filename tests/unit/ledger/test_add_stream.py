"""When the next message of adds goes out while one is unanswered."""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.ledger.add_stream import AddStream, encode_chunk
from pulsarish.ledger.options import LedgerOptions
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.seams import Stream, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.bookie import decode_add, encode_add_response

MEMBER, ADDRESS = "bookie-1", "b:1"
OPTIONS = LedgerOptions(overlap_bytes=1_000)


class StubbornBookie:
    """Notes how many entries came in each message, and answers when it is told to."""

    def __init__(self) -> None:
        self.entries: list[int] = []
        self._stream: Stream | None = None

    async def serve(self, world: World) -> None:
        await world.connections.serve(ADDRESS, {"bookie.add": self._take}, {})

    async def _take(self, stream: Stream) -> None:
        self._stream = stream
        while (message := await stream.receive()) is not None:
            self.entries.append(len(decode_add(message).records))

    async def answer(self, count: int) -> None:
        assert self._stream is not None
        await self._stream.send([encode_add_response(count, [])])


@pytest.mark.parametrize(("waiting", "overlaps"), [([100, 100], False), ([100, 900], True)])
def test_only_what_is_worth_it_overlaps_an_answer(waiting: list[int], overlaps: bool) -> None:
    bookie = StubbornBookie()

    async def write(world: World) -> None:
        book = AddressBook()
        book.put(MEMBER, ADDRESS)
        stream = AddStream(world, OPTIONS, book, MEMBER, recovery=False)
        assert stream.push(encode_chunk(7, [b"x" * 100], [100])) is None
        await asyncio.sleep(1.0)
        assert bookie.entries == [1]
        for size in waiting:
            assert stream.push(encode_chunk(7, [b"x" * size], [size])) is None
        await asyncio.sleep(1.0)
        assert bookie.entries == ([1, 2] if overlaps else [1])
        await bookie.answer(1)
        await asyncio.sleep(1.0)
        assert bookie.entries == [1, 2], "what waited goes out with the answer, as one message"
        assert stream.push(encode_chunk(7, [b"x"], [1])) is None
        await bookie.answer(2)
        await asyncio.sleep(1.0)
        assert bookie.entries == [1, 2, 1]
        stream.close()

    async def scenario() -> None:
        await sim.node("b").run(bookie.serve)
        await sim.node("a").run(write)

    sim = Simulation(1)
    sim.run(scenario, 100)
