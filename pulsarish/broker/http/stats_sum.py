"""The statistics of a partitioned topic from those of its partitions. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pulsarish.broker.stats.backlog_stats import oldest_backlog
from pulsarish.broker.stats.diagnosis import NOTHING_STUCK

__all__ = ["summed"]

# Instants, of which the earliest says how long something has lasted; 0 and below are none.
_EARLIEST: Final = (
    "Since",
    "sinceMs",
    "earliestMsgPublishTimeInBacklog",
    "earliestMsgPublishTimeInBacklogs",
    "ownerCreatedTimestamp",
    "topicCreationTimeStamp",
)
# Instants, of which the latest counts, and what one partition has most of.
_GREATEST: Final = ("Timestamp", "TimeStamp", "AgeMs", "LimitSize", "LimitTime", "lastCompactionDurationTimeInMills", "down", "needed")
_LEAST: Final = ("writable",)
# What is said of one partition and of no other: it has no sum.
_OF_ONE: Final = frozenset(("ledger", "owner", "ownerBroker", "topicEpoch", "markDeletePosition", "readPosition", "oldestUnackedPosition"))
_AS_A_WHOLE: Final = frozenset(("waiting", "lastAddFailure"))
_BY_USERS: Final = frozenset(("subscriptions", "subscriptionProperties"))  # maps whose keys are anything


def summed(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Amounts add up; of instants the earliest counts where something lasts and the latest where something was; what bookies there are
    each partition says, and the worst counts; lists are put together; maps are summed by key; of flags one that is set is enough, of what
    partitions wait for the longest wait is taken, and of texts the first that says something. What only a partition has is left out.
    """
    total: dict[str, Any] = {}
    for part in parts:
        total = _sum("", total, part)
    if total.get("msgInCounter") and "averageMsgSize" in total:
        total["averageMsgSize"] = round(total.get("bytesInCounter", 0) / total["msgInCounter"], 1)
    if "oldestBacklogMessageAgeSeconds" in total:
        total |= oldest_backlog(total["subscriptions"])
    if "diagnosis" in total:
        lines = dict.fromkeys(total["diagnosis"])
        total["diagnosis"] = [line for line in lines if line != NOTHING_STUCK] or list(lines)
    return total


def _sum(name: str, left: Any, right: Any) -> Any:
    match left, right:
        case bool(), bool():
            return left or right
        case int() | float(), int() | float():
            return _number(name, left, right)
        case list(), list():
            return left + right
        case dict(), dict() if name == "waiting":
            return min(left, right, key=_wait)
        case dict(), dict() if name == "lastAddFailure":
            return max(left, right, key=lambda failure: failure["atMs"])
        case dict(), dict():
            return _map(name, left, right)
        case _:
            return left or right


def _map(name: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    by_users = name in _BY_USERS
    found = {}
    for key in dict.fromkeys([*left, *right]):
        if by_users or key not in _OF_ONE:
            rule = "" if by_users else key
            found[key] = _sum(rule, left[key], right[key]) if key in left and key in right else _alone(rule, left.get(key, right.get(key)))
    return found


def _alone(name: str, value: Any) -> Any:
    return _map(name, value, {}) if isinstance(value, dict) and name not in _AS_A_WHOLE else value


def _number(name: str, left: Any, right: Any) -> Any:
    if name.endswith(_EARLIEST):
        return min((each for each in (left, right) if each > 0), default=left)
    if name.endswith(_GREATEST):
        return max(left, right)
    if name in _LEAST:
        return min(left, right)
    return round(left + right, 3) if isinstance(left + right, float) else left + right


def _wait(waiting: Mapping[str, Any]) -> tuple[bool, bool, int]:
    since_ms = waiting.get("sinceMs", 0)
    return waiting.get("state") != "waiting", since_ms <= 0, since_ms
