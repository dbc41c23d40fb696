"""Sum the statistics of a partitioned topic's partitions. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pulsarish.broker.stats.backlog_stats import oldest_backlog
from pulsarish.broker.stats.diagnosis import NOTHING_STUCK

__all__ = ["summed"]

# Times whose earliest value counts, because something lasts since then; 0 and below mean none.
_EARLIEST: Final = (
    "Since",
    "sinceMs",
    "earliestMsgPublishTimeInBacklog",
    "earliestMsgPublishTimeInBacklogs",
    "ownerCreatedTimestamp",
    "topicCreationTimeStamp",
)
# Times whose latest value counts, and numbers whose largest value counts.
_GREATEST: Final = (
    "Timestamp",
    "TimeStamp",
    "AgeMs",
    "LimitSize",
    "LimitTime",
    "lastCompactionDurationTimeInMills",
    "down",
    "needed",
)
_LEAST: Final = ("writable",)
# Values of a single partition, which have no sum.
_OF_ONE: Final = frozenset(
    (
        "ledger",
        "owner",
        "ownerBroker",
        "topicEpoch",
        "markDeletePosition",
        "readPosition",
        "oldestUnackedPosition",
    )
)
_AS_A_WHOLE: Final = frozenset(("waiting", "lastAddFailure"))
# maps with arbitrary keys
_BY_USERS: Final = frozenset(("subscriptions", "subscriptionProperties"))


def summed(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of the partitions' statistics.

    * Amounts are added. Lists are joined. Maps are summed by key.
    * Of times, the earliest counts where something lasts, and the latest where something happened.
    * Of the numbers of bookies, which each partition reports, the worst counts.
    * Of flags, one that is set is enough. Of waits, the longest counts. Of texts, the first that is
      not empty.
    * Values that make sense only for one partition are left out.
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
            found[key] = (
                _sum(rule, left[key], right[key])
                if key in left and key in right
                else _alone(rule, left.get(key, right.get(key)))
            )
    return found


def _alone(name: str, value: Any) -> Any:
    return _map(name, value, {}) if isinstance(value, dict) and name not in _AS_A_WHOLE else value


def _number(name: str, left: Any, right: Any) -> Any:
    if name.endswith(_EARLIEST):
        return min((each for each in (left, right) if each > 0), default=left)
    if name.endswith(_GREATEST):
        return max(left, right)
    if name in _LEAST or (name == "backlogSize" and right < 0):
        return min(left, right)
    return round(left + right, 3) if isinstance(left + right, float) else left + right


def _wait(waiting: Mapping[str, Any]) -> tuple[bool, bool, int]:
    since_ms = waiting.get("sinceMs", 0)
    return waiting.get("state") != "waiting", since_ms <= 0, since_ms
