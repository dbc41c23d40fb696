"""The holes of a cursor: runs of entries that are not acknowledged. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pulsarish.managed_ledger.chain import Chain, Link
from pulsarish.model.ack_ranges import AckRanges
from pulsarish.model.position import Position

__all__ = ["Hole", "count_holes", "holes_between"]


class Hole(NamedTuple):
    """Unacknowledged entries of one ledger, both ends included. None of them is lost."""

    ledger_id: int
    first_entry: int
    last_entry: int


def holes_between(acks: AckRanges, chain: Chain, first: Position, last: Position) -> Iterator[Hole]:
    """Yield the holes from ``first`` to ``last``, in the order of the log.

    A run over the end of a ledger is a hole in each of the two.
    """
    start = max(first, Position(acks.mark.ledger_id, acks.mark.entry_id + 1))
    for link in chain.links_from(start.ledger_id):
        if link.ledger_id > last.ledger_id:
            break
        begin = max(start.entry_id, 0) if link.ledger_id == start.ledger_id else 0
        end = link.entries - 1
        if link.ledger_id == last.ledger_id:
            end = min(end, last.entry_id)
        if begin <= end:
            yield from _holes_of(acks, chain, link, begin, end)


def _holes_of(acks: AckRanges, chain: Chain, link: Link, begin: int, end: int) -> Iterator[Hole]:
    ledger_id = link.ledger_id
    has_lost = chain.has_lost(ledger_id)
    for first, last in acks.gaps(ledger_id, begin, end):
        if not has_lost:
            yield Hole(ledger_id, first, last)
            continue
        entry = first
        while entry <= last:
            position = Position(ledger_id, entry)
            lost = chain.lost_at(position)
            until = chain.readable_until(position, last) if lost is None else lost.last_entry
            if lost is None:
                yield Hole(ledger_id, entry, until)
            entry = until + 1


def count_holes(acks: AckRanges, chain: Chain) -> int:
    """Return the number of holes below the highest acknowledged entry.

    Costs a step for each ledger there, and one for each hole of a ledger with lost entries.
    """
    mark, highest = acks.mark, acks.highest
    count = 0
    for link in chain.links_from(mark.ledger_id) if highest > mark else ():
        if link.ledger_id > highest.ledger_id:
            break
        begin = max(mark.entry_id + 1, 0) if link.ledger_id == mark.ledger_id else 0
        end = highest.entry_id if link.ledger_id == highest.ledger_id else link.entries - 1
        if begin > end:
            continue
        if chain.has_lost(link.ledger_id):
            count += sum(1 for _ in _holes_of(acks, chain, link, begin, end))
        else:
            count += acks.gap_count(link.ledger_id, begin, end)
    return count
