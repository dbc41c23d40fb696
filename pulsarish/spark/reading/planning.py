"""Which task reads which entries. No I/O, no clock: logs and positions in, splits out.

A range of a topic goes from one position, which is excluded, to another, which is included. It is
cut about every ``split_bytes``, between ledgers and inside them, at entries. A message in chunks
belongs to the split with its last chunk; the task searches for the first chunks before its split.
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
"""Target size of a split without the option."""
SPLIT_BYTES_MIN: Final = 1 << 20
"""Minimum size of splits that are made smaller to use all cores."""
_BEFORE_LEDGERS: Final = 2


class DataLoss(NotFound):
    """Requested messages are no longer in the topic."""

    code = NotFound.code


class NoSuchPlace(InvalidPosition):
    """A position that the topic never had."""

    code = InvalidPosition.code


@dataclass(frozen=True, slots=True)
class Piece:
    """Entries ``first`` to ``last`` of one ledger.

    ``record``: its metadata, to read it from bookies; without it, the broker is used.
    """

    ledger_id: int
    first: int
    last: int
    size_bytes: int
    record: str = ""

    @property
    def entries(self) -> int:
        return self.last - self.first + 1

    def part(self, first: int, last: int) -> Piece:
        return replace(
            self,
            first=first,
            last=last,
            size_bytes=self.size_bytes * (last - first + 1) // self.entries,
        )


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads.

    ``after``: messages of the first entry up to this index are excluded. ``upto``: messages of the
    last entry after this index are excluded. -1: whole entries. ``before``: the pieces before it,
    the nearest last, for messages in chunks. ``before_all``: these are all that is kept.
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
    log: TopicLog,
    start: Place | None,
    end: Place | None,
    *,
    fail_on_loss: bool,
    option: str,
    end_option: str = "",
) -> tuple[list[Piece], list[str]]:
    """Return the entries after ``start`` up to ``end``, ledger by ledger, and the losses among
    them, as sentences.

    ``None``: from the first kept entry, to the last confirmed entry. ``option`` and ``end_option``
    name their sources. With ``fail_on_loss``, raises ``DataLoss`` instead of returning sentences.
    Raises ``NoSuchPlace``.
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
                # A partly consumed entry is read again; its task leaves the consumed part out.
                first = start.entry + (1 if start.batch_index < 0 else 0)
        if end is not None:
            if ledger.ledger_id > end.ledger:
                break
            if ledger.ledger_id == end.ledger:
                last = min(last, end.entry)
        pieces += _without_lost(ledger, max(0, first), last, log.lost)
    return pieces, lost


def _without_lost(
    ledger: Ledger, first: int, last: int, lost: Sequence[tuple[int, int, int]]
) -> Iterator[Piece]:
    """Yield the range without the entries that an operator gave up."""
    for ledger_id, lost_first, lost_last in lost:
        if ledger_id == ledger.ledger_id and first <= lost_last and lost_first <= last:
            if first < lost_first:
                yield _piece(ledger, first, lost_first - 1)
            first = lost_last + 1
    if first <= last:
        yield _piece(ledger, first, last)


def _piece(ledger: Ledger, first: int, last: int) -> Piece:
    return Piece(
        ledger.ledger_id, first, last, int((last - first + 1) * ledger.entry_bytes), ledger.record
    )


def check_places(log: TopicLog, *places: tuple[Place, str]) -> None:
    """Raise ``NoSuchPlace`` for a position that this topic never had, naming its source."""
    known = {ledger.ledger_id: ledger for ledger in log.ledgers}
    for place, source in places:
        # An empty ledger is not kept: a position before its first entry means the end of the
        # previous one.
        if place.entry < 0 or place.ledger in known or place.key <= log.trimmed.key:
            continue
        raise NoSuchPlace(
            f"{source} names {place} in topic {log.topic}, which has no ledger {place.ledger} and "
            f"never had (its ledgers are {', '.join(str(each) for each in known) or 'none'}): it "
            "is a place of another topic, or of one of the same name that was deleted"
        )


def _losses(log: TopicLog, start: Place | None, end: Place | None, option: str) -> list[str]:
    found: list[str] = []
    if start is not None and start.key < log.trimmed.key:
        kept = log.before_first.ledger
        found.append(
            f"{option} names {start} in topic {log.topic} as where reading begins, and retention "
            f"has deleted what follows it up to {log.trimmed}: what is kept begins with ledger "
            f"{kept}"
        )
    for ledger_id, first, last in log.lost:
        lies_behind = start is None or (ledger_id, last) > (start.ledger, start.entry)
        if lies_behind and (end is None or (ledger_id, first) <= (end.ledger, end.entry)):
            found.append(
                f"entries {first} to {last} of ledger {ledger_id} of topic {log.topic} were given "
                "up by an operator"
            )
    return found


def nth_entry(pieces: Sequence[Piece], index: int) -> tuple[int, int]:
    """Return ledger and entry of an entry of the pieces, counted from 0. Raises ``IndexError``."""
    for piece in pieces:
        if index < piece.entries:
            return piece.ledger_id, piece.first + index
        index -= piece.entries
    raise IndexError(f"the pieces end {index + 1} entries before")


def total_bytes(pieces: Sequence[Piece]) -> int:
    return sum(piece.size_bytes for piece in pieces)


def split_bytes_for(size_bytes: int, asked: int | None, parallelism: int) -> int:
    """Return the target size of splits: as configured, otherwise one split for each core if there
    are enough bytes.
    """
    if asked is not None:
        return asked
    return min(SPLIT_BYTES, max(SPLIT_BYTES_MIN, -(-size_bytes // max(1, parallelism))))


def cut(
    log: TopicLog, pieces: Sequence[Piece], split_bytes: int, *, after: int = -1, upto: int = -1
) -> list[Split]:
    """Return splits of about ``split_bytes`` each, in the order of the log."""
    groups: list[list[Piece]] = []
    room = 0
    for whole in pieces:
        piece: Piece | None = whole
        while piece is not None:
            if room <= 0:
                groups.append([])
                room = split_bytes
            per_entry = max(1.0, piece.size_bytes / piece.entries)
            # A rest of less than half a split does not get its own task.
            fits = (
                piece.entries if piece.size_bytes <= room * 1.5 else max(1, int(room / per_entry))
            )
            taken = piece.part(piece.first, piece.first + fits - 1)
            groups[-1].append(taken)
            room -= taken.size_bytes
            piece = piece.part(taken.last + 1, piece.last) if fits < piece.entries else None
    return [
        split_of(
            log,
            tuple(group),
            after=after if index == 0 else -1,
            upto=upto if index == len(groups) - 1 else -1,
        )
        for index, group in enumerate(groups)
    ]


def inside(pieces: Sequence[Piece], start: Place, end: Place) -> tuple[int, int]:
    """Return ``after`` and ``upto`` of a range: where it begins and ends in the middle of an
    existing entry.
    """
    after = (
        start.batch_index
        if pieces and (pieces[0].ledger_id, pieces[0].first) == (start.ledger, start.entry)
        else -1
    )
    upto = (
        end.batch_index
        if pieces and (pieces[-1].ledger_id, pieces[-1].last) == (end.ledger, end.entry)
        else -1
    )
    return after, upto


def split_of(log: TopicLog, pieces: tuple[Piece, ...], *, after: int, upto: int) -> Split:
    """Return a split of these pieces, which may be empty."""
    before, before_all = _before(log, pieces[0]) if pieces else ((), True)
    return Split(
        log.topic, TopicName.parse(log.topic).partition, pieces, before, before_all, after, upto
    )


def _before(log: TopicLog, first: Piece) -> tuple[tuple[Piece, ...], bool]:
    """Return the entries before a piece, in its ledger and some earlier ones, and whether these are
    all there are.
    """
    found: list[Piece] = []
    earlier = [
        ledger for ledger in log.ledgers if ledger.ledger_id < first.ledger_id and ledger.entries
    ]
    here = [ledger for ledger in log.ledgers if ledger.ledger_id == first.ledger_id]
    for ledger in earlier[-_BEFORE_LEDGERS:]:
        found += _without_lost(ledger, 0, ledger.entries - 1, log.lost)
    for ledger in here:
        found += _without_lost(ledger, 0, first.first - 1, log.lost)
    return tuple(found), len(earlier) <= _BEFORE_LEDGERS
