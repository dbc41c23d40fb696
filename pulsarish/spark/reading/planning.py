"""Which entries are read by which task. No I/O, no clock: logs and places in, splits out.

A range of a topic goes from one place, outside of it, to another one, in it. It is cut where about ``split_bytes`` are full, between
ledgers and inside of them alike, at entries. A message in chunks belongs to the split in which its last chunk lies, since that is where
it comes to be: the task looks for the first ones before its split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pulsarish.model.errors import InvalidPosition, NotFound
from pulsarish.model.topic_name import TopicName
from pulsarish.spark.positions import Place
from pulsarish.spark.reading.log import Ledger, TopicLog

__all__ = [
    "SPLIT_BYTES",
    "SPLIT_BYTES_MIN",
    "DataLoss",
    "Piece",
    "Split",
    "cut",
    "inside",
    "nth_entry",
    "pieces_of",
    "split_bytes_for",
    "split_of",
    "total_bytes",
]

SPLIT_BYTES: Final = 64 << 20
"""What a split aims at where nothing else is asked for."""
SPLIT_BYTES_MIN: Final = 1 << 20
"""Splits are not made smaller than this to occupy all cores."""
_BEFORE_LEDGERS: Final = 2


class DataLoss(NotFound):
    """What was asked for is not in the topic any more."""

    code = NotFound.code


class NoSuchPlace(InvalidPosition):
    """A place that the topic never had."""

    code = InvalidPosition.code


@dataclass(frozen=True, slots=True)
class Piece:
    """Entries ``first`` to ``last`` of one ledger. ``record``: its metadata, to read it from bookies; without, through the broker."""

    ledger_id: int
    first: int
    last: int
    size_bytes: int
    record: str = ""

    @property
    def entries(self) -> int:
        return self.last - self.first + 1

    def part(self, first: int, last: int) -> Piece:
        return replace(self, first=first, last=last, size_bytes=self.size_bytes * (last - first + 1) // self.entries)


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads.

    ``after``: messages of the first entry up to this index are not wanted; ``upto``: of the last one those behind it are not; -1: whole
    entries. ``before``: what lies in front of it, the nearest last, for messages in chunks; ``before_all``: that is all that is kept.
    """

    topic: str
    partition: int
    pieces: tuple[Piece, ...]
    before: tuple[Piece, ...] = ()
    before_all: bool = True
    after: int = -1
    upto: int = -1

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)


def pieces_of(
    log: TopicLog, start: Place | None, end: Place | None, *, fail_on_loss: bool, option: str, end_option: str = ""
) -> tuple[list[Piece], list[str]]:
    """The entries behind ``start`` up to ``end``, ledger by ledger, and what was found to be lost of them, as sentences.

    ``None``: from the first one kept, to the last one confirmed. ``option`` and ``end_option`` are what they came from.
    Raises ``DataLoss`` instead of answering sentences when ``fail_on_loss``, and ``NoSuchPlace``.
    """
    named = ((start, option), (end, end_option or option))
    check_places(log, *((place, source) for place, source in named if place is not None))
    lost = _losses(log, start, end, option)
    if lost and fail_on_loss:
        raise DataLoss(f"{lost[0]}; set option 'failOnDataLoss' to 'false' to read what is there")
    pieces: list[Piece] = []
    for ledger in log.ledgers:
        first, last = 0, ledger.entries - 1
        if start is not None:
            if ledger.ledger_id < start.ledger:
                continue
            if ledger.ledger_id == start.ledger:
                # An entry of which a part is consumed is read again; its task leaves that part out.
                first = start.entry + (1 if start.batch_index < 0 else 0)
        if end is not None:
            if ledger.ledger_id > end.ledger:
                break
            if ledger.ledger_id == end.ledger:
                last = min(last, end.entry)
        pieces += _without_lost(ledger, max(0, first), last, log.lost)
    return pieces, lost


def _without_lost(ledger: Ledger, first: int, last: int, lost: Sequence[tuple[int, int, int]]) -> Iterator[Piece]:
    """The range without what an operator gave up."""
    for ledger_id, lost_first, lost_last in lost:
        if ledger_id == ledger.ledger_id and first <= lost_last and lost_first <= last:
            if first < lost_first:
                yield _piece(ledger, first, lost_first - 1)
            first = lost_last + 1
    if first <= last:
        yield _piece(ledger, first, last)


def _piece(ledger: Ledger, first: int, last: int) -> Piece:
    return Piece(ledger.ledger_id, first, last, int((last - first + 1) * ledger.entry_bytes), ledger.record)


def check_places(log: TopicLog, *places: tuple[Place, str]) -> None:
    """Raises ``NoSuchPlace`` for a place that this topic never had, with what named it."""
    known = {ledger.ledger_id: ledger for ledger in log.ledgers}
    for place, source in places:
        # An empty ledger is not kept: a place before its first entry means where it was.
        if place.entry < 0 or place.ledger in known or place.key <= log.trimmed.key:
            continue
        raise NoSuchPlace(
            f"{source} names {place} in topic {log.topic}, which has no ledger {place.ledger} and never had (its ledgers are "
            f"{', '.join(str(each) for each in known) or 'none'}): it is a place of another topic, or of one of the same name "
            "that was deleted"
        )


def _losses(log: TopicLog, start: Place | None, end: Place | None, option: str) -> list[str]:
    found: list[str] = []
    if start is not None and start.key < log.trimmed.key:
        kept = log.before_first.ledger
        found.append(
            f"{option} names {start} in topic {log.topic} as where reading begins, and retention has deleted what follows it up to "
            f"{log.trimmed}: what is kept begins with ledger {kept}"
        )
    for ledger_id, first, last in log.lost:
        lies_behind = start is None or (ledger_id, last) > (start.ledger, start.entry)
        if lies_behind and (end is None or (ledger_id, first) <= (end.ledger, end.entry)):
            found.append(f"entries {first} to {last} of ledger {ledger_id} of topic {log.topic} were given up by an operator")
    return found


def nth_entry(pieces: Sequence[Piece], index: int) -> tuple[int, int]:
    """Ledger and entry of an entry of the pieces, counted from 0. Raises ``IndexError``."""
    for piece in pieces:
        if index < piece.entries:
            return piece.ledger_id, piece.first + index
        index -= piece.entries
    raise IndexError(f"the pieces end {index + 1} entries before")


def total_bytes(pieces: Sequence[Piece]) -> int:
    return sum(piece.size_bytes for piece in pieces)


def split_bytes_for(size_bytes: int, asked: int | None, parallelism: int) -> int:
    """What a split aims at: as asked, otherwise so that each core has one when there is enough for that."""
    if asked is not None:
        return asked
    return min(SPLIT_BYTES, max(SPLIT_BYTES_MIN, -(-size_bytes // max(1, parallelism))))


def cut(log: TopicLog, pieces: Sequence[Piece], split_bytes: int, *, after: int = -1, upto: int = -1) -> list[Split]:
    """Splits of about ``split_bytes`` each, in the order of the log."""
    groups: list[list[Piece]] = []
    room = 0
    for whole in pieces:
        piece: Piece | None = whole
        while piece is not None:
            if room <= 0:
                groups.append([])
                room = split_bytes
            per_entry = max(1.0, piece.size_bytes / piece.entries)
            # A rest of less than half a split is not worth a task of its own.
            fits = piece.entries if piece.size_bytes <= room * 1.5 else max(1, int(room / per_entry))
            taken = piece.part(piece.first, piece.first + fits - 1)
            groups[-1].append(taken)
            room -= taken.size_bytes
            piece = piece.part(taken.last + 1, piece.last) if fits < piece.entries else None
    return [
        split_of(log, tuple(group), after=after if index == 0 else -1, upto=upto if index == len(groups) - 1 else -1)
        for index, group in enumerate(groups)
    ]


def inside(pieces: Sequence[Piece], start: Place, end: Place) -> tuple[int, int]:
    """``after`` and ``upto`` of a range: where it begins and ends in the middle of an entry that is there."""
    after = start.batch_index if pieces and (pieces[0].ledger_id, pieces[0].first) == (start.ledger, start.entry) else -1
    upto = end.batch_index if pieces and (pieces[-1].ledger_id, pieces[-1].last) == (end.ledger, end.entry) else -1
    return after, upto


def split_of(log: TopicLog, pieces: tuple[Piece, ...], *, after: int, upto: int) -> Split:
    """A split of these pieces, which may be none."""
    before, before_all = _before(log, pieces[0]) if pieces else ((), True)
    return Split(log.topic, TopicName.parse(log.topic).partition, pieces, before, before_all, after, upto)


def _before(log: TopicLog, first: Piece) -> tuple[tuple[Piece, ...], bool]:
    """The entries in front of a piece, in its ledger and some of those before it; and whether these are all there are."""
    found: list[Piece] = []
    earlier = [ledger for ledger in log.ledgers if ledger.ledger_id < first.ledger_id and ledger.entries]
    here = [ledger for ledger in log.ledgers if ledger.ledger_id == first.ledger_id]
    for ledger in earlier[-_BEFORE_LEDGERS:]:
        found += _without_lost(ledger, 0, ledger.entries - 1, log.lost)
    for ledger in here:
        found += _without_lost(ledger, 0, first.first - 1, log.lost)
    return tuple(found), len(earlier) <= _BEFORE_LEDGERS
