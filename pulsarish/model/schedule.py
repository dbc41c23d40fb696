"""Schedules of a topic: messages that repeat by a cron expression, and when they are due.

An *instant* is a due time in milliseconds since the epoch, always a whole second. Whether an
instant is published late, or left out, is decided here, without a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Final, Literal
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from pulsarish.model.errors import InvalidArgument

__all__ = [
    "CAUGHT_UP_MAX",
    "LATE_MS",
    "PAYLOAD_BYTES_MAX",
    "PER_TOPIC_MAX",
    "Due",
    "Schedule",
    "check_schedule",
    "due",
    "instant_text",
    "next_instants",
]

PER_TOPIC_MAX: Final = 16
"""Schedules of one topic."""
PAYLOAD_BYTES_MAX: Final = 16 << 10
LATE_MS: Final = 60_000
"""An instant that is later than this counts as missed. Until then it is published, only late."""
CAUGHT_UP_MAX: Final = 100
"""Missed instants that ``missed="all"`` publishes, the newest."""

_CRON_CHARACTERS_MAX: Final = 200
_PROPERTIES_MAX: Final = 32
_TEXT_CHARACTERS_MAX: Final = 1_000
_STEPS_MAX: Final = 200
_FIELDS: Final = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
_HINTS: Final = ("0-59", "0-59", "0-23", "1-31 or L", "1-12 or JAN-DEC", "0-7 or SUN-SAT")
# The clocks of nodes do not reach beyond this, and dates end with the year 9999.
_LATEST_MS: Final = 32_503_680_000_000  # the year 3000


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message and when it repeats.

    ``payload`` is base64 in JSON. ``missed`` says what becomes of instants that are later than
    ``LATE_MS``, because no broker ran or the topic could not be written: ``last`` publishes the
    newest of them unless a newer instant is due anyway, ``skip`` none, ``all`` the newest
    ``CAUGHT_UP_MAX``.
    """

    cron: Annotated[str, msgspec.Meta(description="Five fields of cron, or six with seconds.")]
    timezone: str = "UTC"
    payload: Annotated[bytes, msgspec.Meta(description="In base64.")] = b""
    key: str = ""
    properties: dict[str, str] = {}
    missed: Literal["last", "skip", "all"] = "last"
    paused: bool = False


class Due(msgspec.Struct, frozen=True):
    """What is due of one schedule: instants to publish, oldest first, and how many are left out.

    ``decided_ms``: up to here every instant is decided.
    """

    instants: tuple[int, ...]
    skipped_count: int
    decided_ms: int


def check_schedule(name: str, schedule: Schedule, now_ms: int) -> None:
    """Raise ``InvalidArgument`` that names the field and the remedy for a schedule that cannot
    be.
    """
    where = f"schedule {name!r}"
    _check_cron(where, schedule.cron)
    try:
        _ = _zone(schedule.timezone)
    except (ValueError, OSError):
        raise InvalidArgument(
            f"{where}: timezone {schedule.timezone!r} is not known; use a name of the IANA "
            "database, such as UTC or Europe/Berlin"
        ) from None
    if not next_instants(schedule, now_ms, 1):
        raise InvalidArgument(f"{where}: cron {schedule.cron!r} is never due; check day and month")
    if len(schedule.payload) > PAYLOAD_BYTES_MAX:
        raise InvalidArgument(
            f"{where}: a payload of {len(schedule.payload)} bytes; {PAYLOAD_BYTES_MAX} is the most"
        )
    texts = [schedule.key, *schedule.properties, *schedule.properties.values()]
    if len(schedule.properties) > _PROPERTIES_MAX or max(map(len, texts)) > _TEXT_CHARACTERS_MAX:
        raise InvalidArgument(
            f"{where}: at most {_PROPERTIES_MAX} properties, and {_TEXT_CHARACTERS_MAX} characters "
            "in a key, a property's name or its value"
        )


def _check_cron(where: str, cron: str) -> None:
    fields = cron.split()
    if len(cron) > _CRON_CHARACTERS_MAX or len(fields) not in (5, 6):
        raise InvalidArgument(
            f"{where}: cron {cron[:_CRON_CHARACTERS_MAX]!r} has {len(fields)} fields; use five, "
            "'minute hour day-of-month month day-of-week', or six with the second first, of at "
            f"most {_CRON_CHARACTERS_MAX} characters"
        )
    try:
        _ = CronSim(cron, datetime.fromtimestamp(0, UTC))
    except CronSimError as error:
        wrong = str(error).removeprefix("Bad ")
        if wrong not in _FIELDS:
            raise InvalidArgument(f"{where}: cron {cron!r}: {error}") from None
        index = _FIELDS.index(wrong)
        number = index - (len(fields) == 5)
        before = cron
        for field in reversed(fields[number:]):
            before = before[: before.rindex(field)]
        raise InvalidArgument(
            f"{where}: cron {cron!r}: field {number + 1} ({wrong}), {fields[number]!r} at "
            f"character {len(before) + 1}, is not valid; use {_HINTS[index]}, with *, lists, "
            "ranges and steps such as */5"
        ) from None


@lru_cache(256)
def _zone(name: str) -> ZoneInfo | None:
    """Return the time zone; None for UTC. Raises ``ValueError`` or ``OSError`` for another."""
    if name == "UTC":
        return None
    try:
        return ZoneInfo(name)
    except KeyError:
        raise ValueError(name) from None


def _search(schedule: Schedule, after_ms: int) -> CronSim:
    try:
        zone = _zone(schedule.timezone) or UTC
        return CronSim(schedule.cron, datetime.fromtimestamp(max(after_ms, 0) // 1000, zone))
    except (CronSimError, ValueError, OSError):
        # Another broker has accepted the schedule.
        raise InvalidArgument(
            f"cron {schedule.cron!r} in timezone {schedule.timezone!r} is not known to this "
            "broker; give all brokers the same version of pulsarish and the same time zones"
        ) from None


def _after(schedule: Schedule, after_ms: int) -> Iterator[int]:
    """Return the instants after a time, oldest first."""
    last_ms = after_ms
    try:
        for found in _search(schedule, after_ms):
            instant_ms = int(found.timestamp()) * 1000
            if instant_ms > _LATEST_MS:
                return
            # When clocks are set back, the search begins in an hour that comes twice.
            if instant_ms > last_ms:
                last_ms = instant_ms
                yield instant_ms
    except OverflowError:
        return


def next_instants(schedule: Schedule, after_ms: int, count: int) -> list[int]:
    """Return the next ``count`` instants after a time; none of a paused schedule.

    Raises ``InvalidArgument`` for a schedule that only other brokers understand.
    """
    found: list[int] = []
    if not schedule.paused:
        for instant_ms in _after(schedule, after_ms):
            found.append(instant_ms)
            if len(found) == count:
                break
    return found


def _newest(schedule: Schedule, after_ms: int, until_ms: int, count: int) -> list[int]:
    """Return the newest ``count`` instants in a span, oldest first.

    The span may be years long and have an instant in each second, so it is halved until few
    enough are in it.
    """
    found: deque[int] = deque(maxlen=count)
    for number, instant_ms in enumerate(_after(schedule, after_ms)):
        if instant_ms > until_ms:
            return list(found)
        if number == _STEPS_MAX:
            break
        found.append(instant_ms)
    else:
        return list(found)
    middle_ms = (after_ms + until_ms) // 2
    right = _newest(schedule, middle_ms, until_ms, count)
    if len(right) == count:
        return right
    return [*_newest(schedule, after_ms, middle_ms, count - len(right)), *right]


def due(schedule: Schedule, decided_ms: int, until_ms: int) -> Due:
    """Decide about the instants after ``decided_ms``, up to and including ``until_ms``.

    Args:
        decided_ms: up to here every instant was decided before. 0 or less: the schedule begins
            now, and its instants count from ``until_ms`` on, and from ``-decided_ms`` on.
        until_ms: the time by the clock that counts. An earlier one than before decides nothing.

    Raises ``InvalidArgument`` as ``next_instants``.
    """
    if decided_ms <= 0:
        return Due((), 0, max(until_ms, -decided_ms))
    if schedule.paused or until_ms <= decided_ms:
        return Due((), 0, decided_ms)
    late_ms = max(decided_ms, until_ms - LATE_MS)
    fresh = _newest(schedule, late_ms, until_ms, LATE_MS // 1000)
    # One more than may be published, to know whether any is left out.
    missed = (
        _newest(schedule, decided_ms, late_ms, CAUGHT_UP_MAX + 1) if late_ms > decided_ms else []
    )
    allowed = {"skip": 0, "last": 0 if fresh else 1, "all": CAUGHT_UP_MAX}[schedule.missed]
    caught_up = missed[len(missed) - min(allowed, len(missed)) :]
    return Due(
        (*caught_up, *fresh),
        len(missed) - len(caught_up),
        max([decided_ms, *missed[-1:], *fresh[-1:]]),
    )


def instant_text(instant_ms: int) -> str:
    """Return an instant as text, as in ``2026-11-27T00:05:00Z``."""
    return datetime.fromtimestamp(instant_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
