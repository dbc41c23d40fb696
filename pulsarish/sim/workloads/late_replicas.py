"""A ledger whose entries one replica does not have, read while another replica stands still.

What must hold: the read gets every entry from the third replica. What one replica does not have is
not missing while another one is late.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.model.errors import PulsarishError
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, PurposeKind
from pulsarish.runtime.seams import World
from pulsarish.sim.workloads.topic_log import log_bookie
from pulsarish.sim.world.world import Simulation

__all__ = ["run_late_replicas"]

_BOOKIES: Final = 3
_PAYLOADS: Final = [b"entry %d" % number for number in range(20)]
_OPTIONS: Final = LedgerOptions(add_timeout_ms=300, check_interval_ms=50)


class _Listener:
    def confirmed(self, last_entry: int) -> None:
        pass

    def stopped(self, error: PulsarishError) -> None:
        raise AssertionError(f"the writer was stopped: {error}")


async def _client(world: World) -> LedgerClient:
    ledgers = LedgerClient(world, _OPTIONS)
    await ledgers.start()
    return ledgers


async def _create(ledgers: LedgerClient) -> LedgerWriter:
    return await ledgers.create(
        ensemble_size=_BOOKIES,
        write_quorum=_BOOKIES,
        ack_quorum=2,
        purpose=LedgerPurpose(PurposeKind.DIAGNOSTIC, "late"),
        listener=_Listener(),
    )


async def _write(world: World, writer: LedgerWriter) -> LedgerMetadata:
    for payload in _PAYLOADS:
        writer.append(payload)
    while writer.last_add_confirmed < len(_PAYLOADS) - 1:
        await world.clock.sleep(0.01)
    return await writer.close()


async def _read(ledgers: LedgerClient, ledger_id: int) -> None:
    reader = await ledgers.open(ledger_id)
    first = 0
    while first < len(_PAYLOADS):
        entries = await reader.read(first, len(_PAYLOADS) - 1, max_bytes=200)
        for entry in entries:
            assert bytes(entry.payload) == _PAYLOADS[first], f"entry {first} has other bytes"
            first += 1


def run_late_replicas(seed: int) -> None:
    """Run one seed. Raises ``AssertionError`` when a promise was broken."""
    sim = Simulation(seed)

    async def run() -> None:
        for number in range(_BOOKIES):
            name = f"bookie{number}"
            sim.node(name, log_bookie(name))
        writing, reading = sim.node("writer"), sim.node("reader")
        await asyncio.sleep(2.0)
        ledgers = await writing.run(_client)
        writer = await writing.run(lambda _: _create(ledgers))
        members = list(writer.metadata.last_segment.members)
        # A reader asks this one first, and then the first of the others.
        late = members.pop(writer.ledger_id % _BOOKIES).partition("~")[0]
        sim.network.cut("writer", members[0].partition("~")[0])
        _ = await writing.run(lambda world: _write(world, writer))
        sim.nodes[late].pause()
        ledgers = await reading.run(_client)
        try:
            await reading.run(lambda _: _read(ledgers, writer.ledger_id))
        except PulsarishError as error:
            raise AssertionError(f"a confirmed entry is not read: {error}") from error

    sim.run(run, max_virtual_seconds=100)
