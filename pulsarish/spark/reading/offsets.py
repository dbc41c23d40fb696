"""The offsets of a streaming query: the content of its checkpoint. No I/O.

For each topic (each partition separately) an offset has the position up to which it is consumed,
when the topic was created, and the *cuts*: the positions at which the batch that ends here is
divided among tasks. Since the cuts are part of the offset, a batch that is planned again after a
restart is divided in the same way, whatever the cluster looks like then. Exactly-once writing
relies on that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pulsarish.model.errors import CorruptData
from pulsarish.spark.positions import Place
from pulsarish.spark.reading.log import TopicLog
from pulsarish.spark.reading.planning import Piece, Split, cut, inside, split_of, total_bytes

__all__ = [
    "Offset",
    "TopicOffset",
    "begin_of",
    "capped",
    "divided",
    "end_of",
    "splits_between",
    "without_cuts",
]

_VERSION: Final = 1
_ROUNDING: Final = 1e-6
"""Shares are fractions: a share that is less than a whole entry by at most this counts as one."""


@dataclass(frozen=True, slots=True)
class TopicOffset:
    """``begun``: the position after which the query began to read the topic."""

    place: Place
    begun: Place
    created_ms: int
    cuts: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Offset:
    topics: Mapping[str, TopicOffset] = field(default_factory=dict)

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Offset:
        """Decode an offset. Raises ``CorruptData`` when it does not have this format."""
        if found.get("version") != _VERSION or not isinstance(found.get("topics"), dict):
            raise CorruptData(
                f"the checkpoint's offset {str(found)[:200]} is none of format 'pulsarish' in "
                f"version {_VERSION}: another source wrote it"
            )
        return cls(
            {
                topic: TopicOffset(
                    _place(each["place"]),
                    _place(each["begun"]),
                    int(each["created"]),
                    tuple(_place(one) for one in each.get("cuts", ())),
                )
                for topic, each in found["topics"].items()
            }
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "topics": {
                topic: {
                    "place": list(each.place),
                    "begun": list(each.begun),
                    "created": each.created_ms,
                    **({"cuts": [list(one) for one in each.cuts]} if each.cuts else {}),
                }
                for topic, each in sorted(self.topics.items())
            },
        }


def _place(found: Sequence[int]) -> Place:
    return Place(*(int(number) for number in found))


def begin_of(start: Offset, topic: str, end: TopicOffset) -> Place:
    """Return the position after which a batch with this end begins.

    A checkpoint does not keep where a query began. Spark asks for that again when it plans a first
    batch, also when it runs one again, and ``latest`` may have moved by then. So the end carries
    it.
    """
    before = start.topics.get(topic)
    return before.place if before is not None and before.begun == end.begun else end.begun


def end_of(log: TopicLog, place: Place) -> Place:
    """Return the same position, named by the newest ledger when everything before that ledger is
    consumed: an older ledger may be deleted.
    """
    for ledger in log.ledgers:
        if (
            ledger.ledger_id == place.ledger
            and ledger.closed_ms
            and place.batch_index < 0
            and place.entry >= ledger.entries - 1
        ):
            later = [each for each in log.ledgers if each.ledger_id > place.ledger]
            return end_of(log, Place(later[0].ledger_id, -1)) if later else place
    return place


def capped(
    available: Mapping[str, Sequence[Piece]],
    *,
    bytes_max: float,
    entries_max: Mapping[str, float],
    ledgers_max: float,
    owed: dict[str, float] | None = None,
) -> dict[str, list[Piece]]:
    """Return what one batch may hold of the available entries: of each topic its share, at least
    one entry of some topic.

    Args:
        entries_max: of each topic, for a limit in messages. Topics with the most bytes get ledgers
            first, so that each has its turn.
        owed: kept from batch to batch: the part of an entry that a topic with a share below one
            entry was due.
    """
    owed = {} if owed is None else owed
    total = sum(map(total_bytes, available.values()))
    share = min(1.0, bytes_max / total) if total else 1.0
    chosen: dict[str, list[Piece]] = {}
    ledgers_left = ledgers_max
    for topic, pieces in sorted(
        available.items(), key=lambda each: (-total_bytes(each[1]), each[0])
    ):
        entries = sum(piece.entries for piece in pieces)
        due = min(entries * share, entries_max.get(topic, float("inf"))) + owed.get(topic, 0.0)
        room = int(due + _ROUNDING)
        owed[topic] = 0.0 if room else due
        taken: list[Piece] = []
        for piece in pieces:
            fits = min(room, piece.entries)
            if fits < 1 or ledgers_left < 1:
                break
            taken.append(piece.part(piece.first, piece.first + fits - 1))
            room -= fits
            ledgers_left -= 1
        if taken:
            chosen[topic] = taken
    if not chosen:
        topic = max(sorted(available), key=lambda each: total_bytes(available[each]))
        first = available[topic][0]
        chosen[topic] = [first.part(first.first, first.first)]
        owed[topic] = 0.0
    return chosen


def divided(log: TopicLog, pieces: Sequence[Piece], split_bytes: int) -> tuple[Place, ...]:
    """Return where a range is cut: the last positions of all its splits but the last one."""
    splits = cut(log, pieces, split_bytes)
    return tuple(Place(split.pieces[-1].ledger_id, split.pieces[-1].last) for split in splits[:-1])


def splits_between(
    log: TopicLog, pieces: Sequence[Piece], start: Place, end: TopicOffset
) -> list[Split]:
    """Return the splits of a batch, from the cuts in its end only.

    A split of which nothing is left stays in the list: the numbers of splits matter.
    """
    edges = [*end.cuts, end.place]
    after, upto = inside(pieces, start, end.place)
    splits: list[Split] = []
    left = list(pieces)
    for index, edge in enumerate(edges):
        group: list[Piece] = []
        while left and (left[0].ledger_id, left[0].first) <= (edge.ledger, edge.entry):
            piece = left.pop(0)
            if piece.ledger_id == edge.ledger and piece.last > edge.entry:
                left.insert(0, piece.part(edge.entry + 1, piece.last))
                piece = piece.part(piece.first, edge.entry)
            group.append(piece)
        splits.append(
            split_of(
                log,
                tuple(group),
                after=after if index == 0 else -1,
                upto=upto if index == len(edges) - 1 else -1,
            )
        )
    return splits


def without_cuts(offset: TopicOffset, place: Place) -> TopicOffset:
    return replace(offset, place=place, cuts=())
