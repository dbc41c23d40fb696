"""Entries of backlogs that were read from bookies, for other readers of the same backlog, within
one limit in bytes.

Scan-resistant, by the rules of S3-FIFO: what is read once passes through a small queue. Only what
another reader uses there, or asks for again soon after it has left, gets into the main queue, so
that one reader of a long backlog does not drop what several readers share.

Entries do not change, so nothing here is ever wrong. The unit is a run: consecutive entries of one
ledger that came in one answer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

__all__ = ["Payload", "ReadCache"]

Payload = bytes | memoryview

ENTRY_OVERHEAD_BYTES: Final = 200
"""The cost of an entry besides its bytes: its object and its place in a list."""
RUN_OVERHEAD_BYTES: Final = 500
"""The cost of a run: its object, its lists, its key and its places."""
GHOST_BYTES: Final = 250
"""The cost of remembering a block of entries that has left the small queue."""
_BLOCK_ENTRIES: Final = 64
"""Runs of two readers begin at different entries, so that what has left is remembered by blocks."""
_SMALL_SHARE: Final = 0.1
_USES_MAX: Final = 3
_COPIED_SHARE: Final = 0.75
"""Entries that are a smaller share of the answer in which they came are copied out of it."""

_Key = tuple[int, int]


class _Run:
    """Consecutive entries of one ledger."""

    __slots__ = ("first", "ledger_id", "payload_bytes", "payloads", "size_bytes", "uses")

    def __init__(
        self, ledger_id: int, first: int, payloads: Sequence[Payload], *, is_ahead: bool
    ) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.payload_bytes = sum(map(len, payloads))
        self.payloads, held_bytes = _held(payloads, self.payload_bytes)
        self.size_bytes = held_bytes + ENTRY_OVERHEAD_BYTES * len(payloads) + RUN_OVERHEAD_BYTES
        # The one for whom a run was read ahead uses it once, as if it had just been read.
        self.uses = -1 if is_ahead else 0

    @property
    def end(self) -> int:
        return self.first + len(self.payloads)

    def blocks(self) -> Iterator[_Key]:
        for block in range(self.first // _BLOCK_ENTRIES, (self.end - 1) // _BLOCK_ENTRIES + 1):
            yield self.ledger_id, block


def _held(payloads: Sequence[Payload], payload_bytes: int) -> tuple[list[Payload], int]:
    """Return what to keep of the payloads of one run, and the bytes that this holds in memory.

    A view holds the whole answer in which it came. When that is little more than the run, the
    views are kept, because a copy costs new memory pages. Otherwise each payload is copied.
    """
    answer = payloads[0].obj if isinstance(payloads[0], memoryview) else None
    if answer is not None and all(
        isinstance(payload, memoryview) and payload.obj is answer for payload in payloads
    ):
        answer_bytes = memoryview(answer).nbytes
        if payload_bytes >= _COPIED_SHARE * answer_bytes:
            return list(payloads), answer_bytes
    return [bytes(payload) for payload in payloads], payload_bytes


class _Runs:
    """The runs of one ledger, in order. They do not overlap."""

    __slots__ = ("firsts", "runs")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.runs: list[_Run] = []

    def index(self, entry_id: int) -> int:
        """Return the index of the run that has this entry, or -1."""
        index = bisect_right(self.firsts, entry_id) - 1
        return index if index >= 0 and entry_id < self.runs[index].end else -1

    def next_first(self, entry_id: int, end: int) -> int:
        """Return where the next run after this entry begins, at most ``end``."""
        index = bisect_right(self.firsts, entry_id)
        return min(end, self.firsts[index]) if index < len(self.firsts) else end

    def add(self, run: _Run) -> None:
        index = bisect_left(self.firsts, run.first)
        self.firsts.insert(index, run.first)
        self.runs.insert(index, run)

    def remove(self, run: _Run) -> None:
        index = bisect_left(self.firsts, run.first)
        del self.firsts[index], self.runs[index]


class ReadCache:
    """The cache, shared by the topics of a process. ``limit_bytes`` 0 caches nothing."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.hits = 0
        """Entries that were read from here."""
        self.hit_bytes = 0
        self.misses = 0
        """Reads that went to bookies; counted by the reader of the log."""
        self.evicted = 0
        """Entries that left to make room."""
        self.ahead_bytes = 0
        """Bytes that were read before a reader asked for them."""
        self.ahead_unused_bytes = 0
        """Those of them that left before a reader asked for them."""
        self._ledgers: dict[int, _Runs] = {}
        self._small: OrderedDict[_Key, _Run] = OrderedDict()
        self._main: OrderedDict[_Key, _Run] = OrderedDict()
        # blocks of which a run has left the small queue, the oldest first: bytes that left
        self._ghosts: OrderedDict[_Key, int] = OrderedDict()
        self._small_bytes = self._main_bytes = self._ghosts_of_bytes = 0
        self.small_limit_bytes = int(limit_bytes * _SMALL_SHARE)
        """What is read once has at least this much room."""

    @property
    def size_bytes(self) -> int:
        return self._small_bytes + self._main_bytes + GHOST_BYTES * len(self._ghosts)

    def read(
        self, ledger_id: int, first_entry: int, last_entry: int, max_bytes: int
    ) -> list[Payload]:
        """Return consecutive payloads from ``first_entry`` on, up to ``last_entry`` and
        ``max_bytes`` but at least one; [] on a miss.
        """
        ledger = self._ledgers.get(ledger_id)
        index = -1 if ledger is None else ledger.index(first_entry)
        if ledger is None or index < 0:
            return []
        found: list[Payload] = []
        room = max_bytes
        entry_id = first_entry
        while index < len(ledger.runs) and ledger.firsts[index] <= entry_id <= last_entry:
            run = ledger.runs[index]
            if entry_id == run.first:
                # Readers go through a run in several reads. Each counts once.
                run.uses = min(run.uses + 1, _USES_MAX)
            if entry_id == run.first and run.end - 1 <= last_entry and run.payload_bytes <= room:
                found += run.payloads
                room -= run.payload_bytes
            else:
                for payload in run.payloads[entry_id - run.first : last_entry + 1 - run.first]:
                    room -= len(payload)
                    if room < 0 and found:
                        return self._hit(found)
                    found.append(payload)
            entry_id = run.end
            index += 1
        return self._hit(found)

    def _hit(self, found: list[Payload]) -> list[Payload]:
        self.hits += len(found)
        self.hit_bytes += sum(map(len, found))
        return found

    def end_of_kept(self, ledger_id: int, entry_id: int) -> int:
        """Return the first entry from ``entry_id`` on that is not here."""
        ledger = self._ledgers.get(ledger_id)
        while ledger is not None and (index := ledger.index(entry_id)) >= 0:
            entry_id = ledger.runs[index].end
        return entry_id

    def insert(
        self,
        ledger_id: int,
        first_entry: int,
        payloads: Sequence[Payload],
        *,
        is_ahead: bool = False,
    ) -> None:
        """Add consecutive entries that a bookie gave. Those that are here already stay.

        ``is_ahead``: the reader for whom they were read has not asked for them yet.
        """
        if self.limit_bytes == 0:
            return
        entry_id, end = first_entry, first_entry + len(payloads)
        while entry_id < end:
            ledger = self._ledgers.get(ledger_id)
            index = -1 if ledger is None else ledger.index(entry_id)
            if ledger is not None and index >= 0:
                entry_id = ledger.runs[index].end
                continue
            until = end if ledger is None else ledger.next_first(entry_id, end)
            part = payloads[entry_id - first_entry : until - first_entry]
            run = _Run(ledger_id, entry_id, part, is_ahead=is_ahead)
            if is_ahead:
                self.ahead_bytes += run.payload_bytes
            self._add(run)
            entry_id = until

    def _add(self, run: _Run) -> None:
        if run.size_bytes > self.limit_bytes:
            return
        self._ledgers.setdefault(run.ledger_id, _Runs()).add(run)
        if any(block in self._ghosts for block in run.blocks()):
            self._main[run.ledger_id, run.first] = run
            self._main_bytes += run.size_bytes
        else:
            self._small[run.ledger_id, run.first] = run
            self._small_bytes += run.size_bytes
        while self.size_bytes > self.limit_bytes:
            if self._small and (self._small_bytes > self.small_limit_bytes or not self._main):
                self._leave_small()
            elif self._main:
                self._leave_main()
            else:
                self._forget_ghost()

    def _leave_small(self) -> None:
        key, run = self._small.popitem(last=False)
        self._small_bytes -= run.size_bytes
        if run.uses > 0:
            run.uses = 0
            self._main[key] = run
            self._main_bytes += run.size_bytes
            return
        self._drop(run)
        blocks = list(run.blocks())
        for block in blocks:
            size = run.size_bytes // len(blocks)
            self._ghosts[block] = self._ghosts.get(block, 0) + size
            self._ghosts_of_bytes += size
        # What left longer ago than the main queue could have kept it is not shared.
        while self._ghosts_of_bytes > self.limit_bytes - self.small_limit_bytes:
            self._forget_ghost()

    def _leave_main(self) -> None:
        key, run = self._main.popitem(last=False)
        if run.uses > 0:
            run.uses -= 1
            self._main[key] = run
            return
        self._main_bytes -= run.size_bytes
        self._drop(run)

    def _forget_ghost(self) -> None:
        _, size = self._ghosts.popitem(last=False)
        self._ghosts_of_bytes -= size

    def _drop(self, run: _Run) -> None:
        self.evicted += len(run.payloads)
        if run.uses < 0:
            self.ahead_unused_bytes += run.payload_bytes
        ledger = self._ledgers[run.ledger_id]
        ledger.remove(run)
        if not ledger.runs:
            del self._ledgers[run.ledger_id]

    def forget(self, ledger_id: int) -> None:
        """Drop a ledger, because it was deleted or its topic left this process."""
        ledger = self._ledgers.pop(ledger_id, None)
        if ledger is None:
            return
        for run in ledger.runs:
            if self._small.pop((ledger_id, run.first), None) is not None:
                self._small_bytes -= run.size_bytes
            else:
                del self._main[ledger_id, run.first]
                self._main_bytes -= run.size_bytes

    def check(self) -> None:
        assert self.size_bytes <= self.limit_bytes
        for queue, size in ((self._small, self._small_bytes), (self._main, self._main_bytes)):
            assert size == sum(run.size_bytes for run in queue.values())
            assert all(key == (run.ledger_id, run.first) for key, run in queue.items())
        assert not self._small.keys() & self._main.keys()
        assert self._ghosts_of_bytes == sum(self._ghosts.values())
        listed = 0
        for ledger_id, ledger in self._ledgers.items():
            assert ledger.runs
            assert ledger.firsts == [run.first for run in ledger.runs]
            for run in ledger.runs:
                assert run.ledger_id == ledger_id
                assert run.payload_bytes == sum(map(len, run.payloads))
                held = {
                    id(each.obj): each.obj for each in run.payloads if isinstance(each, memoryview)
                }
                held_bytes = sum(memoryview(each).nbytes for each in held.values())
                assert run.size_bytes == RUN_OVERHEAD_BYTES + ENTRY_OVERHEAD_BYTES * len(
                    run.payloads
                ) + (held_bytes or run.payload_bytes)
            assert all(one.end <= other.first for one, other in pairwise(ledger.runs))
            listed += len(ledger.runs)
        assert listed == len(self._small) + len(self._main)
