"""How many messages lie in the entries of a topic's log, without I/O. An entry is what a producer
shipped at once: a message or a batch.

The owner counts as it appends. Of each ledger it keeps the sum of every block of entries, and the
total is stored with the ledger when that is closed. A count that ends inside a block needs the
messages of each entry there: those of the newest blocks are kept, older ones are read again for an
exact number. A block that has as many messages as entries needs neither.

What is not known is never taken for known: a count says whether it is exact, and what to read.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from pulsarish.managed_ledger.chain import Chain, Link
from pulsarish.managed_ledger.ledger_counts import BLOCK_ENTRIES, UNKNOWN, LedgerCounts
from pulsarish.model.ack_ranges import AckedRange
from pulsarish.model.position import Position

__all__ = ["Block", "BlockCounts", "MessageBacklog", "MessageCounts"]

_BLOCKS_MAX: Final = 4_000  # each has at most 2,000 bytes


class Block(NamedTuple):
    """The entries of a ledger from ``number * BLOCK_ENTRIES`` on."""

    ledger_id: int
    number: int


class MessageBacklog(NamedTuple):
    """The unacknowledged messages of a cursor.

    ``missing``: blocks whose entries must be read before the number is exact.
    """

    messages: int
    is_estimate: bool
    missing: tuple[Block, ...] = ()


class BlockCounts:
    """The messages of each entry of some blocks, for all topics of a process. Those not used for
    longest are given up.
    """

    __slots__ = ("_blocks", "_blocks_max")

    def __init__(self, blocks_max: int = _BLOCKS_MAX) -> None:
        self._blocks: OrderedDict[Block, array[int]] = OrderedDict()
        self._blocks_max = blocks_max

    def get(self, block: Block) -> array[int] | None:
        found = self._blocks.get(block)
        if found is not None:
            self._blocks.move_to_end(block)
        return found

    def put(self, block: Block, counts: array[int]) -> None:
        self._blocks[block] = counts
        self._blocks.move_to_end(block)
        while len(self._blocks) > self._blocks_max:
            self._blocks.popitem(last=False)


class MessageCounts:
    """The messages of one chain."""

    __slots__ = ("_blocks", "_chain")

    def __init__(self, chain: Chain, blocks: BlockCounts) -> None:
        self._chain = chain
        self._blocks = blocks

    # -- what becomes known

    def add(self, first_entry: int, counts: Sequence[int]) -> None:
        """Note the messages of entries of the current ledger that were confirmed.

        After entries that were not noted here nothing is counted: they are read when asked for.
        """
        link = self._chain.links[-1]
        known = link.counts
        if known is None:
            known = link.counts = LedgerCounts()
            if len(self._chain) > 1:
                self._end(self._chain.links[-2])
        if first_entry == known.counted:
            known.counted += len(counts)
            known.tail.extend(counts)
            while len(known.tail) >= BLOCK_ENTRIES:
                self._end_block(link, known)

    def _end_block(self, link: Link, known: LedgerCounts) -> None:
        counts = known.tail[:BLOCK_ENTRIES]
        del known.tail[:BLOCK_ENTRIES]
        messages = sum(counts)
        if messages != len(counts):
            self._blocks.put(Block(link.ledger_id, len(known.sums)), counts)
        known.sums.append(messages)

    def _end(self, link: Link) -> None:
        """Give the memory for a closed ledger's last entries free."""
        known = link.counts
        if known is not None and known.tail and known.counted == link.entries:
            self._end_block(link, known)

    def put(self, block: Block, counts: array[int]) -> None:
        """Note the messages of each entry of a block, from its first one on, as they were read."""
        link = self._chain.find(block.ledger_id)
        if link is None:
            return
        self._blocks.put(block, counts)
        known = link.counts
        if known is None:
            known = link.counts = LedgerCounts()
        if known.counted != link.entries:
            # Some entries were not noted. Count no more: what is read replaces it.
            known.counted = UNKNOWN
            del known.tail[:]
        size = min(BLOCK_ENTRIES, link.entries - block.number * BLOCK_ENTRIES)
        # The last block of an open ledger still grows.
        if len(counts) == size and (link.closed_ms or size == BLOCK_ENTRIES):
            known.note(block.number, sum(counts))

    # -- counting

    def unacknowledged(
        self,
        mark: Position,
        acknowledged: Iterable[AckedRange] = (),
        partly: Iterable[tuple[Position, int]] = (),
    ) -> MessageBacklog:
        """Count the messages above ``mark`` that are not acknowledged.

        Args:
            acknowledged: ranges of entries above ``mark``.
            partly: batches above ``mark`` with the indexes that remain, as bits.
        """
        counting = _Counting(self._chain, self._blocks)
        messages = counting.above(mark)
        messages -= counting.of_ranges(acknowledged)
        for position, remaining in partly:
            link = self._chain.find(position.ledger_id)
            if link is not None and self._chain.lost_at(position) is None:
                # What remains is known, also where the size of the batch is an estimate.
                entry = position.entry_id
                messages += remaining.bit_count() - counting.of(link, entry, entry)
        missing = tuple(counting.missing)
        return MessageBacklog(max(0, round(messages)), bool(missing), missing)


class _Counting:
    """One count. What it does not know it estimates, and notes in ``missing``."""

    def __init__(self, chain: Chain, blocks: BlockCounts) -> None:
        self._chain = chain
        self._blocks = blocks
        self.missing: dict[Block, None] = {}
        # Of a block: how many messages are before each of its entries, and in all of it.
        self._up_to: dict[Block, Sequence[int]] = {}
        self._about: dict[Block, Sequence[float]] = {}

    def above(self, mark: Position) -> float:
        messages = 0.0
        for link in self._chain.links_from(mark.ledger_id):
            first = max(mark.entry_id + 1, 0) if link.ledger_id == mark.ledger_id else 0
            messages += self._to_end(link, first)
        return messages

    def _to_end(self, link: Link, first: int) -> float:
        """Count the messages from an entry to the end of its ledger.

        If the total is known, those before the entry say the same: the smaller part is read.
        """
        there, total = self.missing, link.messages_total
        self.missing = {}
        messages, missing = self.of(link, first, link.entries - 1), self.missing
        if missing and total != UNKNOWN:
            self.missing = {}
            before = self.of(link, 0, first - 1)
            if len(self.missing) < len(missing):
                messages, missing = total - before, self.missing
        self.missing = there | missing
        return messages

    def of_ranges(self, ranges: Iterable[AckedRange]) -> float:
        messages = 0.0
        link: Link | None = None
        is_one_each = False
        for ledger_id, first, last in ranges:
            if link is None or link.ledger_id != ledger_id:
                link = self._chain.find(ledger_id)
                if link is None:
                    continue
                is_one_each = self._is_one_each(link)
            if is_one_each:
                messages += last - first + 1
                continue
            number = first // BLOCK_ENTRIES
            start = number * BLOCK_ENTRIES
            block = Block(ledger_id, number)
            up_to: Sequence[float] | None = self._up_to.get(block)
            if up_to is None and (up_to := self._about.get(block)) is not None:
                self.missing[block] = None
            if up_to is not None and last - start + 1 < len(up_to):
                messages += up_to[last - start + 1] - up_to[first - start]
            else:
                messages += self.of(link, first, min(last, link.entries - 1))
        return messages

    def _is_one_each(self, link: Link) -> bool:
        return link.messages_total == link.entries and not self._chain.has_lost(link.ledger_id)

    def of(self, link: Link, first: int, last: int) -> float:
        """Count the messages of entries of one ledger, both ends included."""
        if last < first:
            return 0
        is_all = first == 0 and last == link.entries - 1
        total, known = link.messages_total, link.counts
        if is_all and total != UNKNOWN:
            return total
        if self._is_one_each(link):
            return last - first + 1
        if is_all and known is None:
            self.missing[Block(link.ledger_id, 0)] = None  # and then the others
            return link.entries
        messages = 0.0
        for number in range(first // BLOCK_ENTRIES, last // BLOCK_ENTRIES + 1):
            start = number * BLOCK_ENTRIES
            size = min(BLOCK_ENTRIES, link.entries - start)
            low, high = max(first - start, 0), min(last - start + 1, size)
            whole = UNKNOWN if known is None else known.sum_of(number)
            if whole != UNKNOWN and high - low == size:
                messages += whole
            else:
                up_to = self._messages_up_to(link, number, size, whole)
                messages += up_to[high] - up_to[low]
        return messages

    def _messages_up_to(self, link: Link, number: int, size: int, whole: int) -> Sequence[float]:
        block = Block(link.ledger_id, number)
        found = self._up_to.get(block)
        if found is not None:
            return found
        counts = self._entries(link, block)
        if whole == size and not self._chain.has_lost(link.ledger_id):
            found = self._up_to[block] = range(size + 1)  # one each
        elif counts is not None and len(counts) >= size:
            found = self._up_to[block] = [0, *accumulate(counts)]
        if found is not None:
            return found
        self.missing[block] = None
        about = self._about.get(block)
        if about is None:
            mean = self._mean(link) if whole == UNKNOWN else whole / size
            about = self._about[block] = [mean * entries for entries in range(size + 1)]
        return about

    def _entries(self, link: Link, block: Block) -> array[int] | None:
        known = link.counts
        if known is not None and known.tail and block.number == len(known.sums):
            return known.tail
        return self._blocks.get(block)

    @staticmethod
    def _mean(link: Link) -> float:
        total = link.messages_total
        return 1.0 if total == UNKNOWN else total / link.entries
