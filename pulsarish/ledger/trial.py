"""Write a ledger, read it again and delete it: whether bookies store and give back what they take,
without a broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pulsarish.ledger.client import LedgerClient
from pulsarish.model.errors import CorruptData, PulsarishError
from pulsarish.model.ledger_metadata import LedgerPurpose, PurposeKind
from pulsarish.runtime.seams import Clock

__all__ = ["Trial", "write_and_read"]

_PURPOSE: Final = LedgerPurpose(PurposeKind.DIAGNOSTIC, "bookies simple-test")
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Trial:
    """The result: the ledger, the bookies that took it, and how long each part took."""

    ledger_id: int
    members: Sequence[str]
    entries: int
    size_bytes: int
    write_seconds: float
    read_seconds: float


class _Stopped:
    """The listener of the trial's writer, whose ``close`` waits and raises."""

    def confirmed(self, last_entry: int) -> None:
        pass

    def stopped(self, error: PulsarishError) -> None:
        pass


async def write_and_read(
    client: LedgerClient,
    clock: Clock,
    *,
    entries: int,
    entry_bytes: int,
    ensemble_size: int,
    write_quorum: int,
    ack_quorum: int,
) -> Trial:
    """Write ``entries`` entries of ``entry_bytes`` bytes to a new ledger, read and compare them,
    and delete the ledger, also after a failure.

    Raises ``InvalidArgument`` for quorums that do not fit, ``CorruptData`` when another entry is
    read than was written, and what ``LedgerClient`` raises.
    """
    began = clock.monotonic()
    writer = await client.create(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        purpose=_PURPOSE,
        listener=_Stopped(),
    )
    try:
        for number in range(entries):
            await writer.wait_for_room()
            _ = writer.append(_payload(number, entry_bytes))
        metadata = await writer.close()
        wrote = clock.monotonic()
        reader = await client.open(writer.ledger_id)
        first = 0
        while first < entries:
            for entry in await reader.read(first, entries - 1, max_bytes=_READ_BYTES):
                if (entry.entry_id, bytes(entry.payload)) != (first, _payload(first, entry_bytes)):
                    raise CorruptData(
                        f"entry {first} of ledger {writer.ledger_id} is not read as it was written"
                    )
                first += 1
        read = clock.monotonic()
        if metadata.last_entry != entries - 1:
            raise CorruptData(
                f"ledger {writer.ledger_id} ends with entry {metadata.last_entry}, and {entries} "
                "entries were written"
            )
    except BaseException:
        # The first failure is the one to report.
        with suppress(PulsarishError, asyncio.CancelledError):
            await client.delete(writer.ledger_id)
        raise
    await client.delete(writer.ledger_id)
    return Trial(
        writer.ledger_id,
        metadata.last_segment.members,
        entries,
        entries * entry_bytes,
        wrote - began,
        read - wrote,
    )


def _payload(number: int, size_bytes: int) -> bytes:
    """Return bytes that differ from entry to entry."""
    beginning = b"%d " % number
    return (beginning * (size_bytes // len(beginning) + 1))[:size_bytes]
