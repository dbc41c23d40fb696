"""A broker that has lost its bundle, has not heard of it, and opens the topic again.

It reads the newest record, so the version is right. Only the lease, which names who owns the
bundle, says that it may not.

What must hold: the opening is refused. It has recovered the owner's ledger by then, so the owner
may have to load the topic again, as it does when that is all that happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.entry_caches import EntryCaches
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.managed_ledger.options import ManagedLedgerOptions, Retention
from pulsarish.managed_ledger.topics_store import create_topic
from pulsarish.metadata.paths import OWNERS, ROOTS
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import NotOwner, PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Op, World
from pulsarish.sim.workloads.topic_log import LOG_LEDGER_OPTIONS, log_bookie
from pulsarish.sim.world.nodes import Node
from pulsarish.sim.world.world import Simulation

__all__ = ["run_stale_owner"]

_NAME: Final = TopicName.parse("persistent://public/default/moved")
_BUNDLE: Final = f"{OWNERS}/bundle"
_ROUNDS: Final = 6
_BOOKIES: Final = 3


class _Listener:
    """Counts what one owner confirmed, and knows whether it has ended."""

    def __init__(self) -> None:
        self.confirmed_count = 0
        self.is_fenced = False

    def appended(self, ledger_id: int, first_entry: int, contexts: Sequence[object]) -> None:
        self.confirmed_count += len(contexts)

    def append_failed(self, contexts: Sequence[object], error: PulsarishError) -> None:
        pass

    def fenced(self, error: PulsarishError) -> None:
        self.is_fenced = True


async def _open(world: World, version: int, listener: _Listener) -> ManagedLedger:
    """Open the topic as the owner of the bundle at this version of its record."""
    ledgers = LedgerClient(world, LOG_LEDGER_OPTIONS)
    await ledgers.start()
    return await ManagedLedger.open(
        _NAME,
        ledgers,
        Records(world.metadata, world.clock, world.random),
        world,
        ManagedLedgerOptions(ensemble_size=_BOOKIES, write_quorum=_BOOKIES, ack_quorum=2),
        listener,
        caches=EntryCaches(0, 0),
        retention=Retention(-1, -1),
        lease=[Op("check", _BUNDLE, version=version)],
    )


async def _append(world: World, log: ManagedLedger, listener: _Listener) -> None:
    wanted = listener.confirmed_count + 3
    for _ in range(3):
        log.append(b"x", None)
    while listener.confirmed_count < wanted:
        assert not listener.is_fenced, "the owner of the bundle was fenced"
        await world.clock.sleep(0.001)


async def _prepare(world: World) -> None:
    records = Records(world.metadata, world.clock, world.random)
    for path in ROOTS:
        await records.ensure(path)
    await records.ensure(_BUNDLE)
    await create_topic(records, _NAME, created_ms=world.clock.wall_ms())


async def _move_about(brokers: Sequence[Node], sim: Simulation) -> None:
    for version in range(_ROUNDS):
        owner, former = brokers[version % 2], brokers[(version + 1) % 2]

        async def serve(world: World, version: int = version) -> None:
            listener = _Listener()
            log = await _open(world, version, listener)
            await _append(world, log, listener)

        async def move(world: World, version: int = version) -> None:
            await world.metadata.commit([Op("put", _BUNDLE, b"%d" % version)])

        async def intrude(world: World, version: int = version) -> None:
            await world.clock.sleep(sim.workload.random() * 0.01)
            try:
                await _open(world, version - 1, _Listener())
            except NotOwner:
                return
            raise AssertionError("a broker took a topic over whose bundle is not its own any more")

        if version:
            await owner.run(move)
        await owner.run(serve)
        if version:
            await former.run(intrude)
            await owner.run(serve)


def run_stale_owner(seed: int) -> None:
    """Run one seed. Raises ``AssertionError`` when a promise was broken."""
    sim = Simulation(seed)

    async def run() -> None:
        for number in range(_BOOKIES):
            name = f"bookie{number}"
            sim.node(name, log_bookie(name))
        brokers = [sim.node("broker0"), sim.node("broker1")]
        await brokers[0].run(_prepare)
        await asyncio.sleep(2.0)
        await _move_about(brokers, sim)

    sim.run(run, max_virtual_seconds=100)
