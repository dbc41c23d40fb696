"""A topic that one broker deletes and creates again, while commits for the former topic wait.

A commit waits when the connection breaks, or while the broker asks whether the tree is the newest.
Versions begin again with the new topic, so the waiting commit may find the version that it expects.
The lease is the same: the broker owned the bundle all the time.

What must hold: an entry that was confirmed in the present topic is there when the topic is opened
again, in order, and nothing of a former topic is.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.entry_caches import EntryCaches
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.managed_ledger.options import ManagedLedgerOptions, Retention
from pulsarish.managed_ledger.topics_store import create_topic, delete_topic
from pulsarish.metadata.paths import ROOTS
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import PulsarishError, TopicFenced
from pulsarish.model.position import EARLIEST, Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Clock, World
from pulsarish.sim.workloads.topic_log import LOG_LEDGER_OPTIONS, log_bookie
from pulsarish.sim.world.world import Simulation

__all__ = ["RenewedCounts", "run_renewed"]

_NAME: Final = TopicName.parse("persistent://public/default/renewed")
_ROUNDS: Final = 12
_BOOKIES: Final = 3
_WAIT_SECONDS: Final = 0.2
"""The longest that a commit waits."""


@dataclass(slots=True)
class RenewedCounts:
    """Counts of what a run reached."""

    renewed: int = 0
    late: int = 0
    """Topics that were deleted while a commit of their owner waited."""
    confirmed: int = 0


class _Waits:
    """Lets the commits of one opening wait from the time when it is told to; a ``Guard``."""

    is_closed = False

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self.waits = False
        self._clock = clock
        self._random = rng

    async def check(self) -> None:
        if self.waits:
            await self._clock.sleep(self._random.random() * _WAIT_SECONDS)


class _Listener:
    """Knows which entries of one topic were confirmed."""

    def __init__(self) -> None:
        self.confirmed: list[object] = []

    def appended(self, ledger_id: int, first_entry: int, contexts: Sequence[object]) -> None:
        self.confirmed += contexts

    def append_failed(self, contexts: Sequence[object], error: PulsarishError) -> None:
        pass

    def fenced(self, error: PulsarishError) -> None:
        pass


class _Workload:
    def __init__(self, sim: Simulation, counts: RenewedCounts) -> None:
        self._sim = sim
        self._counts = counts
        self._random = sim.workload

    async def run(self) -> None:
        for number in range(_BOOKIES):
            name = f"bookie{number}"
            self._sim.node(name, log_bookie(name))
        broker = self._sim.node("broker")
        await broker.run(self._prepare)
        await asyncio.sleep(2.0)
        try:
            await broker.run(self._renew)
        except PulsarishError as error:
            raise AssertionError(f"the topic cannot be used: {error}") from error

    async def _prepare(self, world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        for path in ROOTS:
            await records.ensure(path)

    async def _renew(self, world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        ledgers = LedgerClient(world, LOG_LEDGER_OPTIONS)
        await ledgers.start()
        for round_ in range(_ROUNDS):
            await create_topic(records, _NAME, created_ms=world.clock.wall_ms())
            guard, listener = _Waits(world.clock, self._random), _Listener()
            log = await self._open(world, ledgers, listener, guard)
            await self._append(world, log, round_)
            if self._random.random() < 0.5:
                await world.clock.sleep(2 * _WAIT_SECONDS)
                await self._append(world, log, round_)
                await self._check(world, ledgers, listener)
            else:
                guard.waits = True
                change = world.tasks.spawn(self._change(log), name="change")
                await world.clock.sleep(self._random.random() * _WAIT_SECONDS)
                self._counts.late += not change.done()
            gone = TopicFenced("deleted")
            await delete_topic(records, ledgers, _NAME, marked_deleted=partial(log.abandon, gone))
            self._counts.renewed += 1
            self._counts.confirmed += len(listener.confirmed)

    async def _open(
        self, world: World, ledgers: LedgerClient, listener: _Listener, guard: _Waits
    ) -> ManagedLedger:
        return await ManagedLedger.open(
            _NAME,
            ledgers,
            Records(world.metadata, world.clock, world.random, guard=guard),
            world,
            ManagedLedgerOptions(
                ensemble_size=_BOOKIES,
                write_quorum=_BOOKIES,
                ack_quorum=2,
                min_ledger_rollover_time_minutes=0,
            ),
            listener,
            caches=EntryCaches(0, 0),
            retention=Retention(-1, -1),
        )

    async def _append(self, world: World, log: ManagedLedger, round_: int) -> None:
        for _ in range(3):
            payload = b"%d" % round_
            try:
                log.append(payload, payload)
            except PulsarishError:
                return  # refused, so not confirmed
        while log.pending_entries and not log.fenced:
            await world.clock.sleep(0.001)

    async def _change(self, log: ManagedLedger) -> None:
        """Replace the ledger, or write a cursor: a commit that may outlive the topic."""
        try:
            if self._random.random() < 0.7:
                await log.roll()
            else:
                _ = await log.open_cursor("s", initial=EARLIEST)
        except PulsarishError:
            pass  # the topic was deleted

    async def _check(self, world: World, ledgers: LedgerClient, listener: _Listener) -> None:
        log = await self._open(world, ledgers, _Listener(), _Waits(world.clock, self._random))
        found: list[object] = []
        position = Position(-1, -1)
        while entries := await log.read(position, max_entries=50, max_bytes=4_096):
            found += [bytes(entry.payload) for entry in entries]
            position = log.next_position(entries[-1].position)
        log.abandon(TopicFenced("read"))
        assert found == listener.confirmed, (
            f"{len(listener.confirmed)} entries were confirmed, and the topic has {found}"
        )


def run_renewed(seed: int) -> RenewedCounts:
    """Run one seed. Return the counts. Raises ``AssertionError`` when a promise was broken."""
    sim = Simulation(seed)
    counts = RenewedCounts()
    sim.run(_Workload(sim, counts).run, max_virtual_seconds=400)
    return counts
