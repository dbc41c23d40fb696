"""Damage to the files of a stopped bookie: what disks and mistakes do to copies."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pulsarish.bookie.ledger_index import LedgerIndex, ledger_key
from pulsarish.runtime.lanes import Lanes, OutsideWork
from pulsarish.runtime.rocks.index import open_rocks_index
from pulsarish.wire.record import RECORD_HEAD, RECORD_HEAD_SIZE

__all__ = ["forget_ledger", "spoil_entry"]


def spoil_entry(bookie: Path, ledger_id: int, entry_id: int) -> None:
    """Turn a byte of an entry's payload over, in each place of the entry logs where it lies.

    ``bookie`` is its data directory.
    """
    ids = RECORD_HEAD.pack(0, ledger_id, entry_id, 0, 0)[4:20]
    count = 0
    for log in sorted((bookie / "ledgers").glob("*.log")):
        data = bytearray(log.read_bytes())
        at = data.find(ids)
        while at >= 0:
            data[at - 4 + RECORD_HEAD_SIZE + 3] ^= 0x55
            count += 1
            at = data.find(ids, at + 1)
        log.write_bytes(data)
    assert count, f"entry {entry_id} of ledger {ledger_id} is in no entry log of {bookie}"


def forget_ledger(bookie: Path, ledger_id: int) -> None:
    """Take a ledger out of the index: the bookie says then that it never had it."""

    async def work() -> None:
        lanes = Lanes(OutsideWork())
        rows = await open_rocks_index(str(bookie / "index" / "rows"), lane=lanes.get("index"))
        index = LedgerIndex(rows)
        assert (await index.ledger_rows([ledger_id]))[0] is not None, (
            f"ledger {ledger_id} is not at {bookie}"
        )
        while keys := await index.entry_keys(ledger_id, 1_000):
            await rows.write([], keys, sync=True)
        await rows.write([], [ledger_key(ledger_id)], sync=True)
        await rows.close()
        await lanes.close()

    asyncio.run(work())
