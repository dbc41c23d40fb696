"""Where in a topic reading begins and ends: the user's values, and the positions in offsets.

No I/O.

A position names the last message that is *consumed*, so a range goes from one position, which is
excluded, to another, which is included. ``batch_index`` -1 means the whole entry.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pulsarish.model.topic_name import TopicName

__all__ = [
    "EARLIEST",
    "LATEST",
    "NOWHERE",
    "Bound",
    "Edge",
    "Place",
    "parse_bound",
    "parse_time_ms",
]

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

_ID: Final = re.compile(r"\(?(\d+)[:,]\s*(\d+)(?:[:,]\s*(-?\d+))?(?:[:,]\s*(-?\d+))?\)?")
_ALLOWED: Final = (
    "earliest, latest, a message id LEDGER:ENTRY or LEDGER:ENTRY:BATCH_INDEX, or JSON such as"
)
_EXAMPLE: Final = '{"orders-partition-0": "12:34", "orders-partition-1": "latest"}'


class Place(NamedTuple):
    """A consumed message; all before it are consumed too.

    Positions of one topic compare by ``key``.
    """

    ledger: int
    entry: int
    batch_index: int = -1

    @property
    def key(self) -> tuple[int, int, float]:
        """A sort key. A whole entry comes after each of its messages."""
        return (
            self.ledger,
            self.entry,
            self.batch_index if self.batch_index >= 0 else float("inf"),
        )

    @property
    def before(self) -> Place:
        """Return the position after which this message is the next one."""
        if self.batch_index > 0:
            return Place(self.ledger, self.entry, self.batch_index - 1)
        return Place(self.ledger, self.entry - 1)

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}" + (
            f":{self.batch_index}" if self.batch_index >= 0 else ""
        )


NOWHERE: Final = Place(-1, -1)
"""Before everything."""

Edge = str | Place
"""``earliest``, ``latest``, or a message id from the user."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Where all topics begin or end, or some of them by name."""

    everywhere: Edge | None = None
    by_topic: dict[str, Edge] = field(default_factory=dict)
    """By the full names of topics, of partitioned topics for all partitions, or of partitions."""

    def of(self, topic: str, default: Edge) -> Edge:
        named = self.by_topic.get(topic) or self.by_topic.get(
            TopicName.parse(topic).partitioned.full
        )
        return named or self.everywhere or default


def parse_bound(text: str) -> Bound:
    """Parse a bound. Raises ``ValueError`` that describes what is allowed."""
    if not text.lstrip().startswith("{"):
        return Bound(everywhere=_edge(text))
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is no JSON ({error}); allowed are {_ALLOWED} {_EXAMPLE}") from None
    by_topic: dict[str, Edge] = {}
    for name, value in found.items():
        topic = TopicName.parse(name)
        if isinstance(value, dict):
            for number, edge in value.items():
                by_topic[topic.with_partition(_partition(name, number)).full] = _edge(edge)
        else:
            by_topic[topic.full] = _edge(value)
    return Bound(by_topic=by_topic)


def _partition(topic: str, number: str) -> int:
    if not number.isdecimal():
        raise ValueError(f"{topic!r} names partition {number!r}, which is no number")
    return int(number)


def _edge(value: Any) -> Edge:
    text = str(value).strip()
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    found = _ID.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no place in a topic; allowed are {_ALLOWED} {_EXAMPLE}")
    # The form in which a message id prints itself: (ledger,entry,partition,batch index).
    index = found[4] if found[4] is not None else found[3]
    return Place(int(found[1]), int(found[2]), int(index) if index is not None else -1)


def parse_time_ms(text: str) -> int | None:
    """Return milliseconds since the epoch from a number, or from a date and time in ISO 8601, in
    UTC by default.

    Raises ``ValueError``.
    """
    if text.isdecimal():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            "it must be milliseconds since the epoch or a time such as 2026-01-31T12:00:00Z"
        ) from None
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1_000)
