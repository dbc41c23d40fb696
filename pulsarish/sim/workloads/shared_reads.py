"""Readers of one backlog that share their reads of bookies, with read-ahead, while the log grows.

What must hold: each reader gets exactly the entries that it asked for, in order and within its
limits, at least one when there is one, and none above the last confirmed entry. That holds
although the reads of others end early, fail, or are given up.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from pulsarish.ledger.reader import LedgerEntry
from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.entry_caches import EntryCaches
from pulsarish.managed_ledger.log_reader import LogEntry, LogReader
from pulsarish.managed_ledger.read_ahead import ReadAhead
from pulsarish.metadata.records import TopicLedger
from pulsarish.model.errors import ServiceNotReady
from pulsarish.model.position import Position
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation

__all__ = ["check_shared_reads"]

_LEDGER: Final = 7
_ENTRIES: Final = 400
_READERS: Final = 5
_READS_MAX: Final = 2_000
_AHEAD_BYTES: Final = 8_000


def _payload(entry_id: int) -> bytes:
    return b"%d" % entry_id + b"." * (entry_id * 7 % 90)


class _Bookies:
    """The ledger's reader: late, with as many entries as it likes, and now and then an error."""

    def __init__(self, world: World, rng: random.Random, chain: Chain) -> None:
        self._world = world
        self._random = rng
        self._chain = chain

    async def read(self, first: int, last: int, *, max_bytes: int) -> list[LedgerEntry]:
        confirmed = self._chain.last_position().entry_id
        assert first <= last <= confirmed, f"asked for {first} to {last} of {confirmed}"
        await self._world.clock.sleep(self._random.uniform(0.001, 0.02))
        if self._random.random() < 0.05:
            raise ServiceNotReady("not now")
        end = last + 1 if self._random.random() < 0.7 else self._random.randint(first + 1, last + 1)
        found: list[LedgerEntry] = []
        for entry_id in range(first, end):
            payload = _payload(entry_id)
            max_bytes -= len(payload)
            if max_bytes < 0 and found:
                break
            found.append(LedgerEntry(entry_id, memoryview(payload), entry_id))
        return found


class _Readers:
    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._random = rng
        self._chain = Chain([TopicLedger(_LEDGER)])
        bookies: Any = _Bookies(world, rng, self._chain)
        self._log = LogReader(
            self._chain,
            self._open_ledger,
            EntryCaches(0, rng.choice((20_000, 200_000))),
            lambda: bookies,
        )

    async def _open_ledger(self, ledger_id: int) -> Any:
        raise AssertionError(f"ledger {ledger_id} is not closed")

    async def run(self) -> None:
        self._grow(self._random.randint(100, 200))
        async with asyncio.TaskGroup() as readers:
            for _ in range(_READERS):
                _ = readers.create_task(self._read_all())
            while self._chain.last_position().entry_id < _ENTRIES - 1:
                await self._world.clock.sleep(self._random.uniform(0.0, 0.05))
                left = _ENTRIES - 1 - self._chain.last_position().entry_id
                self._grow(min(left, self._random.randint(1, 30)))

    def _grow(self, entries: int) -> None:
        start = self._chain.last_position().entry_id + 1
        size_bytes = sum(len(_payload(entry_id)) for entry_id in range(start, start + entries))
        self._chain.grow(entries, size_bytes)

    async def _read_all(self) -> None:
        """Read from the first entry to the last, and now and then some of it again."""
        rng, fail = self._random, Scope(ScopeKind.TOPIC, "t", _fail)
        ahead = ReadAhead(self._log, self._world.tasks, _AHEAD_BYTES, fail)
        next_entry = 0
        for _ in range(_READS_MAX):
            if next_entry == _ENTRIES:
                break
            if rng.random() < 0.05:
                next_entry = rng.randint(0, next_entry)
            start, most, max_bytes = next_entry, rng.randint(1, 20), rng.randint(1, 1_000)
            is_there = start <= self._chain.last_position().entry_id
            read = asyncio.ensure_future(
                self._log.read(Position(_LEDGER, start), max_entries=most, max_bytes=max_bytes)
            )
            if rng.random() < 0.1:
                await self._world.clock.sleep(rng.uniform(0.0, 0.02))
                _ = read.cancel()
            done, _ = await asyncio.wait([read])
            if read.cancelled() or isinstance(read.exception(), ServiceNotReady):
                continue
            (found,) = (each.result() for each in done)
            self._check(start, most, max_bytes, found)
            assert found or not is_there, f"nothing was read at {start}, which is there"
            ahead.follow(Position(_LEDGER, start), found)
            next_entry = start + len(found)
            await self._world.clock.sleep(rng.uniform(0.0, 0.01))
        ahead.close()
        assert next_entry == _ENTRIES, f"a reader came to entry {next_entry} of {_ENTRIES}"

    def _check(self, start: int, most: int, max_bytes: int, found: list[LogEntry]) -> None:
        got = [entry.position.entry_id for entry in found]
        asked = f"asked for {most} entries and {max_bytes} bytes from {start} on"
        assert got == list(range(start, start + len(got))), f"{asked}, got {got}"
        assert len(got) <= most, f"{asked}, got {len(got)} entries"
        size_bytes = sum(len(entry.payload) for entry in found)
        assert size_bytes <= max_bytes or len(got) == 1, f"{asked}, got {size_bytes} bytes"
        assert not got or got[-1] <= self._chain.last_position().entry_id, f"{asked}, got {got}"
        for entry in found:
            assert entry.payload == _payload(entry.position.entry_id), f"{asked}: other payloads"


def _fail(error: BaseException) -> None:
    raise AssertionError(f"read-ahead failed: {error!r}") from error


def check_shared_reads(seed: int) -> None:
    """Run one seed. Raises ``AssertionError`` when a reader got anything else."""
    sim, rng = Simulation(seed), random.Random(f"{seed}:shared reads")

    async def scenario() -> None:
        await sim.node("broker").run(lambda world: _Readers(world, rng).run())

    sim.run(scenario, 300.0)
