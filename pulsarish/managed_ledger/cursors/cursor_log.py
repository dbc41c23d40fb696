"""One cursor ledger: append the changes of a cursor, and read them back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.reader import LedgerEntry, LedgerReader
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.managed_ledger.cursors.cursor_state import (
    CursorImage,
    EntryKind,
    decode_entry,
    decode_image,
    encode_entry,
    encode_image,
)
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.model.errors import CorruptData, LedgerClosed, PulsarishError
from pulsarish.model.ledger_metadata import LedgerPurpose
from pulsarish.model.position import NO_ENTRY

__all__ = ["CursorLog", "read_cursor_log"]

_READ_BYTES: Final = 4 << 20


class CursorLog:
    """Writes to a cursor ledger. The caller makes one write at a time."""

    def __init__(self, options: ManagedLedgerOptions, opened_at: float) -> None:
        self.opened_at = opened_at
        self._deltas = 0  # since the last snapshot
        self._delta_bytes = 0
        self._snapshot_bytes = 0
        self._options = options
        self._writer: LedgerWriter | None = None
        self._snapshot = NO_ENTRY
        self._confirmed = NO_ENTRY
        self._error: PulsarishError | None = None
        self._waiting: tuple[int, asyncio.Future[None]] | None = None

    @classmethod
    async def create(
        cls,
        ledgers: LedgerClient,
        options: ManagedLedgerOptions,
        purpose: LedgerPurpose,
        opened_at: float,
    ) -> CursorLog:
        """Create a cursor ledger. Raises ``NotEnoughBookies``, ``MetadataUnavailable``."""
        log = cls(options, opened_at)
        log._writer = await ledgers.create(
            ensemble_size=options.ensemble_size,
            write_quorum=options.write_quorum,
            ack_quorum=options.ack_quorum,
            groups=options.bookie_groups,
            purpose=purpose,
            listener=log,
        )
        return log

    @property
    def writer(self) -> LedgerWriter:
        assert self._writer is not None
        return self._writer

    @property
    def ledger_id(self) -> int:
        return self.writer.ledger_id

    @property
    def entries(self) -> int:
        return self.writer.last_add_pushed + 1

    @property
    def is_snapshot_due(self) -> bool:
        """Whether the deltas are many, and larger than a snapshot: so snapshots, however large, are
        at most half of what is written.
        """
        return (
            self._deltas >= self._options.cursor_snapshot_interval_entries
            and self._delta_bytes >= self._snapshot_bytes
        )

    def confirmed(self, last_entry: int) -> None:
        self._confirmed = last_entry
        if (
            self._waiting is not None
            and last_entry >= self._waiting[0]
            and not self._waiting[1].done()
        ):
            self._waiting[1].set_result(None)

    def stopped(self, error: PulsarishError) -> None:
        self._error = self._error or error
        if self._waiting is not None and not self._waiting[1].done():
            self._waiting[1].set_exception(error)

    def abandon(self) -> None:
        """Stop without closing.

        A waiting write fails with an unknown outcome. The writer itself makes no more calls.
        """
        self.writer.abandon()
        self.stopped(LedgerClosed(f"cursor ledger {self.ledger_id} was abandoned"))

    async def write_delta(self, image: CursorImage) -> None:
        """Write a delta.

        It is durable on return. Raises the error that stopped the writer; then the outcome is
        unknown.
        """
        body = encode_image(image)
        self._deltas += 1
        self._delta_bytes += len(body)
        await self._append([encode_entry(EntryKind.DELTA, self._snapshot, body)])

    async def write_snapshot(self, image: CursorImage) -> None:
        """Write a full snapshot, like ``write_delta``.

        A large one is cut into parts and is valid from its last part on.
        """
        body = encode_image(image)
        size = self._options.cursor_snapshot_part_bytes
        parts = [body[start : start + size] for start in range(0, len(body), size)]
        first = self.writer.last_add_pushed + 1
        payloads = [
            encode_entry(EntryKind.SNAPSHOT_PART, self._snapshot, part) for part in parts[:-1]
        ]
        end = EntryKind.SETS_END if image.sets else EntryKind.SNAPSHOT_END
        payloads.append(encode_entry(end, first, parts[-1]))
        await self._append(payloads)
        self._snapshot = first
        self._snapshot_bytes = len(body)
        self._deltas = self._delta_bytes = 0

    async def _append(self, payloads: Sequence[bytes]) -> None:
        if self._error is not None:
            raise self._error
        last = NO_ENTRY
        for payload in payloads:
            last = self.writer.append(payload)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting = (last, done)
        try:
            await done
        finally:
            self._waiting = None


async def read_cursor_log(reader: LedgerReader) -> list[CursorImage]:
    """Return the last complete snapshot of a closed cursor ledger and the deltas after it.

    Raises ``CorruptData`` when there is none, and the errors of reading.
    """
    last = reader.last_add_confirmed
    if last < 0:
        raise CorruptData(f"cursor ledger {reader.ledger_id} is empty")
    (newest,) = await reader.read(last, last, max_bytes=_READ_BYTES)
    position = decode_entry(newest.payload).snapshot
    if position < 0:
        raise CorruptData(f"cursor ledger {reader.ledger_id} holds no whole snapshot")
    images: list[CursorImage] = []
    parts: list[bytes] = []
    while position <= last:
        entries: list[LedgerEntry] = await reader.read(position, last, max_bytes=_READ_BYTES)
        for found in entries:
            entry = decode_entry(found.payload)
            match entry.kind:
                case EntryKind.DELTA if images:
                    images.append(decode_image(entry.body))
                case EntryKind.SNAPSHOT_PART:
                    parts.append(entry.body)
                case EntryKind.SNAPSHOT_END | EntryKind.SETS_END:
                    images = [decode_image(b"".join([*parts, entry.body]))]
                    parts.clear()
                case _:
                    raise CorruptData(
                        f"entry {found.entry_id} of cursor ledger {reader.ledger_id} has kind "
                        f"{entry.kind} where it cannot be"
                    )
        position = entries[-1].entry_id + 1
    if not images:
        raise CorruptData(
            f"cursor ledger {reader.ledger_id} holds no whole snapshot from entry "
            f"{decode_entry(newest.payload).snapshot} on"
        )
    return images
