"""Filters that Spark pushes down: which ledgers and topics need not be read, and which rows the
executor drops.

A ledger's times are those at which brokers stored its messages. Publish times come from the
producers' clocks. So ledgers are skipped with a slack between the two clocks, and only the row
itself decides about a row.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pulsarish.model.topic_name import TopicName
from pulsarish.spark.reading.log import TopicLog
from pulsarish.spark.reading.planning import Piece

__all__ = ["Condition", "condition_of", "selects_topic", "without_old"]

_COMPARED: Final = {
    "EqualTo": "equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
    "StringStartsWith": "starts_with",
    "In": "is_in",
    "IsNotNull": "is_valid",
}
_COLUMNS: Final = frozenset(
    {"publish_time", "event_time", "key", "topic", "partition", "producer_name"}
)
_EXACT: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "equal": operator.eq,
    "is_in": lambda found, values: found in values,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """``column`` compared with ``value`` by the Arrow function ``test``."""

    column: str
    test: str
    value: Any = None

    def mask(self, column: Any) -> Any:
        """Return which rows of an Arrow column satisfy the condition."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.test == "is_valid":
            return column.is_valid()
        if self.test == "is_in":
            return pc.is_in(column, pa.array(list(self.value), column.type))
        if self.test == "starts_with":
            return pc.starts_with(column, self.value)
        return pc.call_function(self.test, [column, pa.scalar(self.value, column.type)])


def condition_of(given: Any) -> Condition | None:
    """Return Spark's filter as a condition; ``None`` for a filter that Spark must apply itself."""
    test = _COMPARED.get(type(given).__name__)
    if test is None or len(given.attribute) != 1 or given.attribute[0] not in _COLUMNS:
        return None
    value: Any = getattr(given, "value", None)
    if test == "is_in":
        values = tuple(_aware(each) for each in value)
        return None if None in values else Condition(given.attribute[0], test, values)
    if test != "is_valid" and value is None:
        return None
    return Condition(given.attribute[0], test, _aware(value))


def _aware(value: Any) -> Any:
    """Return an aware time: Spark's timestamps are instants."""
    return (
        value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
    )


def selects_topic(conditions: Iterable[Condition], topic: str) -> bool:
    """Whether rows of a topic, or partition, can satisfy the conditions."""
    name = TopicName.parse(topic)
    facts = {"topic": name.partitioned.full, "partition": name.partition}
    return all(_may_be(each, facts[each.column]) for each in conditions if each.column in facts)


def _may_be(condition: Condition, fact: Any) -> bool:
    """Whether the condition may hold.

    A column to which the user gave another type is compared in the executor.
    """
    test = _EXACT.get(condition.test)
    values = condition.value if condition.test == "is_in" else (condition.value,)
    return (
        test is None
        or not all(type(value) is type(fact) for value in values)
        or test(fact, condition.value)
    )


def without_old(
    log: TopicLog, pieces: Sequence[Piece], conditions: Iterable[Condition], slack_ms: int
) -> list[Piece]:
    """Return the pieces without those of ledgers that were closed before, or created after, every
    requested publish time.
    """
    after, before = float("-inf"), float("inf")
    for each in conditions:
        if each.column == "publish_time" and isinstance(each.value, datetime):
            time_ms = each.value.timestamp() * 1_000
            if each.test in ("greater", "greater_equal", "equal"):
                after = max(after, time_ms)
            if each.test in ("less", "less_equal", "equal"):
                before = min(before, time_ms)
    ledgers = {ledger.ledger_id: ledger for ledger in log.ledgers}
    kept: list[Piece] = []
    for piece in pieces:
        ledger = ledgers[piece.ledger_id]
        too_old = ledger.closed_ms and ledger.closed_ms + slack_ms < after
        too_new = ledger.created_ms and ledger.created_ms - slack_ms > before
        if not too_old and not too_new:
            kept.append(piece)
    return kept
