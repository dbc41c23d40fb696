"""Reads of closed ledgers without a metadata connection.

The caller brings the ledgers' records and the addresses of their bookies.

The promise is that of ``LedgerReader`` for a closed ledger: every record is checked, and when one
replica does not give an entry, the next one is asked. The reader cannot learn that a ledger has
moved to other bookies since its record was read. Its error names the bookies that failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pulsarish.ledger.bookie_stream import StreamWorld
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.read_stream import ReadStream
from pulsarish.ledger.reading import read_records
from pulsarish.ledger.slow_bookies import SlowBookies
from pulsarish.model.errors import EntryUnknown, NoSuchEntry
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.wire.record import Record

__all__ = ["DirectReads"]

_WAIT_SECONDS_MIN: Final = 0.2
_WAIT_SECONDS_MAX: Final = 0.8
"""The longest wait.

While no replica gives an entry, the read is repeated after waits that double.
"""


class DirectReads:
    """Streams to bookies whose addresses are given.

    Made and used in one event loop, for the life of the process.
    """

    def __init__(self, world: StreamWorld, options: LedgerOptions) -> None:
        self._world = world
        self._options = options
        self._book = AddressBook()
        self.clock = world.clock
        self.slow = SlowBookies(options)
        self.local = None  # it is not known where the bookies are
        self._streams: dict[str, ReadStream] = {}
        self._closed = False

    def start(self) -> None:
        _ = run_in_background(self._world.tasks, self._world.clock, "direct-reads", self._tick)

    def learn(self, addresses: Mapping[str, str]) -> None:
        """Add the addresses of bookies, by instance id. Known addresses of others stay."""
        for member, address in addresses.items():
            self._book.put(member, address)

    def reader(self, member: str) -> ReadStream:
        stream = self._streams.get(member)
        if stream is None:
            stream = self._streams[member] = ReadStream(
                self._world, self._options, self._book, member, self.slow
            )
        return stream

    async def read(
        self, metadata: LedgerMetadata, first: int, last: int, *, max_bytes: int, prefer: str | None
    ) -> list[Record]:
        """Return consecutive records of a closed ledger from ``first`` on, at least one, not beyond
        ``last`` or about ``max_bytes``.

        Raises ``NoSuchEntry`` when all replicas say that they do not have the first entry, and the
        retryable ``EntryUnknown`` when no replica gives it now. Both name the bookies, their
        addresses and their answers.
        """
        assert metadata.state is LedgerState.CLOSED
        wait_seconds = _WAIT_SECONDS_MIN
        while True:
            try:
                found = await read_records(
                    self, self._options, metadata, first, last, max_bytes=max_bytes, prefer=prefer
                )
            except (EntryUnknown, NoSuchEntry) as error:
                if isinstance(error, EntryUnknown) and wait_seconds <= _WAIT_SECONDS_MAX:
                    # It is rare that all replicas are busy or restarting at once, and it is over
                    # soon.
                    await self._world.clock.sleep(wait_seconds)
                    wait_seconds *= 2
                    continue
                where = ", ".join(
                    f"{member} at {self._book.get(member) or 'no known address'}"
                    for member in metadata.write_set(first)
                )
                raise type(error)(f"{error} (its bookies: {where})") from None
            return found.records

    def close(self) -> None:
        self._closed = True
        for stream in self._streams.values():
            stream.close()

    async def _tick(self) -> None:
        while not self._closed:
            await self._world.clock.sleep(self._options.check_interval_ms / 1000)
            for stream in list(self._streams.values()):
                stream.tick()
