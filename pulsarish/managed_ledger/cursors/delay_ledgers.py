"""The ledgers that hold a subscription's buckets of delayed entries, and their names in the
cursor's record.

Promises: a ledger is named only once it is whole and closed. The commit that ends the use of a
ledger lists it for deletion, so that this owner or the next one deletes it. A crash before a ledger
is named leaves one that no record names, as with a cursor's own ledger; ``pulsarish job leaks``
finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pulsarish.ledger.reader import LedgerReader
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.managed_ledger.cursors.cursor_store import CursorStore
from pulsarish.model.errors import PulsarishError, ServiceNotReady, TopicFenced
from pulsarish.runtime.seams import Conflict

__all__ = ["DelayLedgers"]

_READ_BYTES: Final = 8 << 20


class _Silent:
    """A listener of a writer. The close of the ledger reports what it would hear."""

    def confirmed(self, last_entry: int) -> None:
        pass

    def stopped(self, error: PulsarishError) -> None:
        pass


class DelayLedgers:
    """The bucket ledgers of one durable cursor. The caller makes one change at a time.

    Args:
        ended: returns why the cursor has ended, or ``None``.
        fence: ends this owner when another one has changed the record.
    """

    __slots__ = ("_ended", "_fence", "_store")

    def __init__(
        self,
        store: CursorStore,
        ended: Callable[[], PulsarishError | None],
        fence: Callable[[PulsarishError], None],
    ) -> None:
        self._store = store
        self._ended = ended
        self._fence = fence

    @property
    def named(self) -> tuple[int, ...]:
        """The ids of the ledgers that the cursor's record names."""
        return self._store.cell.record.delayed

    async def write(self, payloads: Sequence[bytes]) -> LedgerWriter:
        """Write a ledger and close it. ``name`` makes it the cursor's.

        Raises ``NotEnoughBookies``, ``MetadataUnavailable``, or why the writer stopped.
        """
        writer = await self._store.create_ledger(_Silent())
        try:
            for payload in payloads:
                writer.append(payload)
            await writer.close()
        except PulsarishError:
            writer.abandon()
            await self.discard(writer.ledger_id)
            raise
        return writer

    async def name(self, ids: Sequence[int], new: LedgerWriter | None = None) -> None:
        """Name these ledgers, of which one may be new, durably. Those that were named before and
        are not among them are deleted.

        Raises ``TopicFenced``, why the cursor has ended, ``MetadataUnavailable``, and
        ``ServiceNotReady`` when another process has changed or deleted the new ledger.
        """
        store = self._store
        async with store.lock:
            if (ended := self._ended()) is not None:
                raise ended
            try:
                await store.name_delayed(tuple(ids), () if new is None else new.unchanged())
            except TopicFenced as error:
                self._fence(error)
                raise
            except Conflict as conflict:
                raise ServiceNotReady(
                    f"a bucket ledger of cursor {store.name} was changed by another process: "
                    f"{conflict}"
                ) from conflict

    async def discard(self, ledger_id: int) -> None:
        """Delete a ledger that was written and is not named."""
        await self._store.discard(ledger_id)

    async def open(self, ledger_id: int) -> LedgerReader:
        """Open a ledger for ``read``. Raises as ``LedgerClient.open``."""
        return await self._store.open_ledger(ledger_id)

    @staticmethod
    async def read(reader: LedgerReader, entry_id: int) -> bytes | memoryview:
        """Return an entry. Raises the errors of ``LedgerReader.read``."""
        (entry,) = await reader.read(entry_id, entry_id, max_bytes=_READ_BYTES)
        return entry.payload
