"""The statistics of a partitioned topic from those of its partitions. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["summed"]

# Instants, of which the earliest says how long something has lasted; 0 and below are none.
_EARLIEST: Final = ("Since", "sinceMs", "earliestMsgPublishTimeInBacklog", "earliestMsgPublishTimeInBacklogs", "ownerCreatedTimestamp")


def summed(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Numbers add up, except instants, of which the earliest counts; lists are put together; maps are summed by key; of flags one that is
    set is enough, and of texts the first that says something is taken.
    """
    total: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = _sum(name, total[name], value) if name in total else _copy(value)
    if total.get("msgInCounter") and "averageMsgSize" in total:
        total["averageMsgSize"] = round(total.get("bytesInCounter", 0) / total["msgInCounter"], 1)
    return total


def _copy(value: Any) -> Any:
    match value:
        case dict():
            return {name: _copy(each) for name, each in value.items()}
        case list():
            return list(value)
        case _:
            return value


def _sum(name: str, left: Any, right: Any) -> Any:
    match left, right:
        case bool(), bool():
            return left or right
        case int() | float(), int() | float():
            if name.endswith(_EARLIEST):
                instants = [each for each in (left, right) if each > 0]
                return min(instants) if instants else left
            return round(left + right, 3) if isinstance(left + right, float) else left + right
        case list(), list():
            return left + right
        case dict(), dict():
            return {
                key: _sum(key, left[key], right[key]) if key in left and key in right else left.get(key, right.get(key))
                for key in dict.fromkeys([*left, *right])
            }
        case _:
            return left or right
