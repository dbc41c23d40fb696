"""Records that readers have read from the entry logs, for the next readers, within one limit in
bytes.

Scan-resistant, by the rules of 2Q. Of the first read of an entry only its number is remembered
(``FirstReads``), so readers that come once pay for no copies. What is read from a log again goes
into the first queue, which it leaves in the order of arrival, used or not. Its places are
remembered for a while. Only what is read from the log again in that time gets into the second
queue, which is an LRU. So readers that go through a long backlog, alone or side by side, never drop
what others come back to.

The key is the record's place: log, offset and size. What the index has named is never written
again, so a record that is here is what was read there. The index alone says which place an entry
has now. A reader looks there first, so an entry that was deleted, moved or written again is never
taken from here by its old place.

The unit of the queues is a run: some records that were read together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from pulsarish.bookie.first_reads import GROUP_BYTES, FirstReads
from pulsarish.bookie.ledger_index import Location

__all__ = ["ENTRY_OVERHEAD_BYTES", "PLACE_BYTES", "RUN_BYTES", "ReadCache"]

ENTRY_OVERHEAD_BYTES: Final = 350
"""The memory of one entry besides its bytes: its object, its place, its keys."""
PLACE_BYTES: Final = 250
"""The memory of a place that is remembered."""
RUN_BYTES: Final = 600
"""The memory of a run besides its entries."""
_RUN_ENTRIES_MAX: Final = 64
_RUN_BYTES_MAX: Final = 64 << 10
_RUN_SHARE: Final = 0.25
"""The share of the first queue's room that a run may take; one larger record is a run alone."""
_FIRST_SHARE: Final = 0.2
"""The share of the limit that the first queue has for itself."""
_FIRST_READS_SHARE: Final = 0.05
"""The share of the limit, besides it, that the memory of first reads may take."""
_GROUPS_MIN: Final = 64
_PLACES_SHARE: Final = 0.1
"""The share of the limit that remembered places may take."""


class _Run:
    """Records by place. One that has left the first queue has its places only."""

    __slots__ = ("is_again", "places", "records", "size_bytes")

    def __init__(self) -> None:
        self.places: list[Location] = []
        self.records: dict[Location, bytes] = {}
        self.size_bytes = RUN_BYTES
        self.is_again = False
        """Whether some of it had left the first queue a while ago."""


_Queue = OrderedDict[_Run, None]


class ReadCache:
    """The cache of one bookie. ``limit_bytes`` 0 keeps nothing."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.hits = 0
        """Entries that were read from here."""
        self.misses = 0
        """Entries that had to be read from a log."""
        self.entries_count = 0
        self._first_reads = FirstReads(
            max(_GROUPS_MIN, int(limit_bytes * _FIRST_READS_SHARE) // GROUP_BYTES)
        )
        self._first: _Queue = OrderedDict()
        self._again: _Queue = OrderedDict()
        self._left: _Queue = OrderedDict()
        self._run_of: dict[Location, _Run] = {}
        self._first_bytes = self._again_bytes = 0
        self._left_bytes = self._left_places = (
            0  # what the runs that have left had, and their number
        )
        self._first_limit_bytes = int(limit_bytes * _FIRST_SHARE)
        self._places_limit_bytes = int(limit_bytes * _PLACES_SHARE)
        self._run_limit_bytes = min(_RUN_BYTES_MAX, int(self._first_limit_bytes * _RUN_SHARE))

    @property
    def size_bytes(self) -> int:
        return self._first_bytes + self._again_bytes + self._places_bytes

    @property
    def _places_bytes(self) -> int:
        """The memory of the places that are remembered."""
        return PLACE_BYTES * self._left_places + RUN_BYTES * len(self._left)

    def may_have(self, ledger_id: int, first: int, last: int) -> bool:
        """Return whether ``get`` may find some of these entries."""
        return self.entries_count > 0 and self._first_reads.knows(ledger_id, first, last)

    def has(self, place: Location) -> bool:
        """Return whether the record that lies at this place is here, without using it."""
        run = self._run_of.get(place)
        return run is not None and place in run.records

    def missed(self, ledger_id: int, first: int, last: int, count: int) -> bool:
        """Note that ``count`` entries in a range are read from a log, and return whether to ``put``
        them: most had been read before.
        """
        self.misses += count
        return self._first_reads.add(ledger_id, first, last)

    def get(self, place: Location) -> bytes | None:
        """Return the record that lies at this place, if it is here."""
        run = self._run_of.get(place)
        if run is None or (record := run.records.get(place)) is None:
            return None
        self.hits += 1
        if run.is_again:
            self._again.move_to_end(run)
        return record

    def put(self, places: Sequence[Location], records: Sequence[bytes | memoryview]) -> None:
        """Keep records that were read together from these places and match their checksums.

        A view is copied, because it holds all that was read together with it. A record that is
        larger than the room of the first queue is not kept.
        """
        run = _Run()
        for place, record in zip(places, records, strict=True):
            known = self._run_of.get(place)
            if place in run.records or (known is not None and place in known.records):
                continue  # another read, of this request or another one, wanted it too
            size_bytes = place[2] + ENTRY_OVERHEAD_BYTES
            if (
                len(run.places) >= _RUN_ENTRIES_MAX
                or run.size_bytes + size_bytes > self._run_limit_bytes
            ):
                self._add(run)
                run = _Run()
            run.is_again = run.is_again or known is not None
            run.places.append(place)
            run.records[place] = bytes(record)
            run.size_bytes += size_bytes
        self._add(run)

    def _add(self, run: _Run) -> None:
        if not run.places or run.size_bytes > self._first_limit_bytes:
            return
        self._run_of.update(dict.fromkeys(run.places, run))
        self.entries_count += len(run.records)
        if run.is_again:
            self._again[run] = None
            self._again_bytes += run.size_bytes
        else:
            self._first[run] = None
            self._first_bytes += run.size_bytes
        while self.size_bytes > self.limit_bytes:
            if self._first_bytes > self._first_limit_bytes or not self._again:
                self._leave_first()
            else:
                dropped, _ = self._again.popitem(last=False)
                self._again_bytes -= dropped.size_bytes
                self._forget(dropped)

    def _leave_first(self) -> None:
        run, _ = self._first.popitem(last=False)
        self._first_bytes -= run.size_bytes
        self.entries_count -= len(run.records)
        run.records = {}
        self._left[run] = None
        self._left_bytes += run.size_bytes
        self._left_places += len(run.places)
        # The second queue could not have kept what left longer ago.
        while (
            self._left_bytes > self.limit_bytes - self._first_limit_bytes
            or self._places_bytes > self._places_limit_bytes
        ):
            forgotten, _ = self._left.popitem(last=False)
            self._left_bytes -= forgotten.size_bytes
            self._left_places -= len(forgotten.places)
            self._forget(forgotten)

    def _forget(self, run: _Run) -> None:
        self.entries_count -= len(run.records)
        for place in run.places:
            if self._run_of.get(place) is run:
                del self._run_of[place]

    def drop(self, places: Iterable[Location | None]) -> None:
        """Free the memory of records to whose places the index does not point any more."""
        for place in places:
            if place is None or (run := self._run_of.pop(place, None)) is None:
                continue
            if run.records.pop(place, None) is None:
                continue  # the place stays in its run until that is forgotten
            size_bytes = place[2] + ENTRY_OVERHEAD_BYTES
            run.size_bytes -= size_bytes
            self.entries_count -= 1
            if run.is_again:
                self._again_bytes -= size_bytes
            else:
                self._first_bytes -= size_bytes

    def check(self) -> None:
        """Assert what always holds."""
        assert self.size_bytes <= self.limit_bytes
        assert self.entries_count == sum(
            len(run.records) for queue in (self._first, self._again) for run in queue
        )
        for queue, size_bytes in (
            (self._first, self._first_bytes),
            (self._again, self._again_bytes),
        ):
            assert size_bytes == sum(run.size_bytes for run in queue)
            for run in queue:
                assert run.is_again == (queue is self._again)
                assert run.size_bytes == RUN_BYTES + sum(
                    len(record) + ENTRY_OVERHEAD_BYTES for record in run.records.values()
                )
                assert all(place[2] == len(record) for place, record in run.records.items())
                assert all(self._run_of[place] is run for place in run.records)
        assert self._left_bytes == sum(run.size_bytes for run in self._left)
        assert self._left_bytes <= self.limit_bytes - self._first_limit_bytes
        assert self._places_bytes <= self._places_limit_bytes
        assert self._left_places == sum(len(run.places) for run in self._left)
        assert not any(run.records for run in self._left)
        runs = {*self._first, *self._again, *self._left}
        assert all(run in runs and place in run.places for place, run in self._run_of.items())
