"""Reads while a bookie stands still: another replica is asked, too, and what a read answers is what
all replicas say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pulsarish.ledger.reader import LedgerReader
from pulsarish.ledger.reading import read_records
from pulsarish.model.errors import EntryUnknown, NoSuchEntry, PulsarishError
from pulsarish.sim.world.nodes import Node
from pulsarish.sim.world.world import Simulation
from tests.simulation.test_ledger_scripts import OPTIONS, Client, Cluster, entries, play

TIMEOUT_MS = 3_000
COUNT = 50


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Bench:
    """Closed ledgers on three bookies, and a client that has not read any."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.cluster = Cluster(sim, 3)
        self.client: Client = None  # type: ignore[assignment]  # prepare
        self.readers: list[LedgerReader] = []

    async def prepare(self, ledgers: int, quorums: Sequence[int] = (), **options: Any) -> None:
        writing = await self.cluster.client("writer")
        written = [(await writing.create(*quorums))[0] for _ in range(ledgers)]
        for writer in written:
            await writing.append(writer, entries(COUNT))
            await writing.do(writer.close())
        self.client = await self.cluster.client(read_timeout_ms=TIMEOUT_MS, **options)
        for writer in written:
            self.readers.append(await self.client.do(self.client.ledgers.open(writer.ledger_id)))

    def first_choice(self, reader: LedgerReader) -> Node:
        assert reader._prefer is not None
        return self.sim.nodes[reader._prefer.partition("~")[0]]

    async def read(self, reader: LedgerReader, first: int = 0) -> float:
        """Read to the end. Return how long it took."""
        began = self.client.world.clock.monotonic()
        found = await self.client.do(reader.read(first, COUNT - 1, max_bytes=1 << 20))
        assert [bytes(entry.payload) for entry in found] == entries(COUNT)[
            first : first + len(found)
        ]
        return self.client.world.clock.monotonic() - began

    @property
    def sent(self) -> int:
        return self.client.ledgers.slow_bookies.sent_count


def test_a_read_does_not_wait_until_a_stopped_bookie_counts_as_failed() -> None:
    async def scenario(sim: Simulation) -> None:
        bench = Bench(sim)
        await bench.prepare(1)
        bench.first_choice(bench.readers[0]).pause()
        assert await bench.read(bench.readers[0]) < TIMEOUT_MS / 1000 / 3
        assert bench.sent == 1

    play(scenario)


def test_the_next_reads_ask_a_stopped_bookie_last() -> None:
    """Those of other ledgers, too, which would begin at it."""

    async def scenario(sim: Simulation) -> None:
        bench = Bench(sim)
        await bench.prepare(9)
        stopped = bench.first_choice(bench.readers[0])
        others = [reader for reader in bench.readers[1:] if bench.first_choice(reader) is stopped]
        assert others
        stopped.pause()
        _ = await bench.read(bench.readers[0])
        for reader in others:
            _ = await bench.read(reader)
        assert bench.sent == 1, "no other read waited for it"
        stopped.resume()
        await bench.client.do(bench.client.world.clock.sleep(11.0))
        for reader in others:
            reader._prefer = next(
                member
                for member in reader.metadata.last_segment.members
                if member.startswith(f"{stopped.name}~")
            )
            _ = await bench.read(reader)
            assert bench.first_choice(reader) is stopped, "it answers again, and is asked first"
        assert bench.sent == 1

    play(scenario)


@pytest.mark.parametrize("resumes", [True, False])
def test_a_stopped_bookie_is_waited_for_before_an_entry_counts_as_gone(resumes: bool) -> None:
    async def scenario(sim: Simulation) -> None:
        bench = Bench(sim)
        await bench.prepare(1)
        metadata = bench.readers[0].metadata
        stopped = bench.first_choice(bench.readers[0])
        stopped.pause()

        async def read_beyond() -> PulsarishError:
            with pytest.raises((NoSuchEntry, EntryUnknown)) as caught:
                await read_records(
                    bench.client.ledgers._pool,
                    OPTIONS,
                    metadata,
                    COUNT,
                    COUNT,
                    max_bytes=1,
                    prefer=bench.readers[0]._prefer,
                )
            error = caught.value
            assert isinstance(error, PulsarishError)
            return error

        reading = asyncio.ensure_future(bench.client.do(read_beyond()))
        await asyncio.sleep(0.4)
        assert not reading.done(), "two of three said that they do not have it"
        if resumes:
            stopped.resume()
        assert type(await reading) is (NoSuchEntry if resumes else EntryUnknown)

    play(scenario)


def test_a_striped_ledger_is_read_around_a_stopped_bookie() -> None:
    async def scenario(sim: Simulation) -> None:
        bench = Bench(sim)
        await bench.prepare(1, (3, 2, 2))
        bench.first_choice(bench.readers[0]).pause()
        reader = bench.readers[0]
        began = bench.client.world.clock.monotonic()
        assert await bench.client.read_all(reader) == entries(COUNT)
        assert bench.client.world.clock.monotonic() - began < TIMEOUT_MS / 1000
        assert bench.sent <= 1

    play(scenario)


def test_reads_that_are_all_late_do_not_double_themselves() -> None:
    async def scenario(sim: Simulation) -> None:
        bench = Bench(sim)
        await bench.prepare(1)
        for node in bench.cluster.bookies:
            node.pause()
        reading = [
            asyncio.ensure_future(bench.client.do(bench.readers[0].read(0, 9, max_bytes=1_000)))
            for _ in range(100)
        ]
        await asyncio.sleep(1.5)
        for node in bench.cluster.bookies:
            node.resume()
        for answer in await asyncio.gather(*reading):
            assert [bytes(entry.payload) for entry in answer] == entries(10)
        assert 20 <= bench.sent <= 30, "20 at once and a tenth of the reads"

    play(scenario)


def test_without_a_share_no_second_replica_is_asked_before_the_timeout() -> None:
    async def scenario(sim: Simulation) -> None:
        bench = Bench(sim)
        await bench.prepare(1, speculative_reads_share_max=0)
        bench.first_choice(bench.readers[0]).pause()
        assert await bench.read(bench.readers[0]) >= TIMEOUT_MS / 1000
        assert bench.sent == 0

    play(scenario)
