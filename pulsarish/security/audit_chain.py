"""The records of an audit trail as lines of JSON, each chained to the one before by its hash, and
the check of such a chain.

A record carries its number and the SHA-256 of the whole line before it. So an edited, removed,
inserted or moved line breaks the chain at a place that can be named. What the chain cannot show:
an end that was cut off, and a trail that was written again from some record to its end. Only a
number and hash that were kept elsewhere (an anchor) show these.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from pulsarish.security.audit import AuditClass, AuditEvent, Disposition

__all__ = [
    "LINE_BYTES_MAX",
    "LOSE",
    "NO_PREVIOUS",
    "PUBLISHED",
    "ROTATE",
    "START",
    "STOP",
    "TORN_BYTES_MAX",
    "ChainCheck",
    "Link",
    "event_body",
    "file_name",
    "file_number",
    "hash_of",
    "parse_link",
    "parts_of",
    "record_line",
    "trail_body",
]

NO_PREVIOUS: Final = "0" * 64
"""What the first record of a trail has for a hash."""
LINE_BYTES_MAX: Final = 64 << 10
"""No line is longer."""
TORN_BYTES_MAX: Final = 256 << 10
"""No crash damages more at the end of a trail: that much is written at a time."""
START: Final = "Start"
STOP: Final = "Stop"
ROTATE: Final = "Rotate"
LOSE: Final = "Lose"
PUBLISHED: Final = "published"
"""Of a stop: the newest record that the topic is known to have; 0: it may have any or none."""

_TEXT_CHARACTERS_MAX: Final = 400
"""Of one field. An escaped character has up to twelve bytes, so a line stays below its limit with
all its fields."""
_DETAIL_CHARACTERS_MAX: Final = 1_000
_PARTS_MAX: Final = 1_000
"""Of one event: a million characters, which no grant of a sensible size has."""
_PREFIX: Final = "audit-"
_SUFFIX: Final = ".jsonl"
_FAULTS_MAX: Final = 100


def file_name(number: int) -> str:
    """Return the name of the file with a number; names sort as numbers."""
    return f"{_PREFIX}{number:010d}{_SUFFIX}"


def file_number(name: str) -> int | None:
    """Return the number of a file of a trail; ``None`` for any other name."""
    digits = name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    is_one = digits.isascii() and digits.isdecimal() and file_name(int(digits)) == name
    return int(digits) if is_one else None


def hash_of(line: bytes) -> str:
    """Return the hash by which the next record knows a line, which is without its line end."""
    return hashlib.sha256(line).hexdigest()


def _time(wall_ms: int) -> str:
    try:
        when = datetime.fromtimestamp(wall_ms / 1_000, UTC)
    except (OverflowError, OSError, ValueError):
        when = datetime.fromtimestamp(0, UTC)  # a clock beyond every calendar
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _short(text: str, characters_max: int = _TEXT_CHARACTERS_MAX) -> str:
    return text if len(text) <= characters_max else text[:characters_max] + "..."


def _encoded(fields: Mapping[str, Any]) -> bytes:
    # ASCII only: no terminal or viewer is misled by a name.
    return json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode()


def parts_of(event: AuditEvent) -> Iterator[AuditEvent]:
    """Return the event, as several when one record cannot hold its whole detail."""
    detail, size = event.detail, _DETAIL_CHARACTERS_MAX
    count = -(-len(detail) // size)
    if count <= 1:
        yield event
        return
    for number in range(1, min(count, _PARTS_MAX) + 1):
        part = detail[(number - 1) * size : number * size]
        yield replace(event, detail=part, part=f"{number} of {count}")


def event_body(event: AuditEvent, wall_ms: int) -> bytes:
    """Return a record of an event as a JSON object, without its place in the chain."""
    identity, origin = event.identity, event.identity.origin
    fields: dict[str, Any] = {
        "time_dt": _time(wall_ms),
        "class_name": event.kind.value,
        "activity_name": event.activity,
        "disposition": event.disposition.value,
    }
    user = {"name": _short(identity.role), "credential_uid": _short(identity.credential_id)}
    actor: dict[str, Any] = {"user": {key: value for key, value in user.items() if value}}
    if identity.proxy_role:
        actor["proxy"] = {"name": _short(identity.proxy_role)}
    fields["actor"] = actor
    host, _, port = origin.peer.rpartition(":")
    optional: dict[str, Any] = {
        "auth_protocol": _short(identity.method),
        "src_endpoint": {"ip": _short(host), "port": int(port)} if port.isdecimal() else {},
        "face": origin.face,
        "api": {"operation": _short(event.action)} if event.action else {},
        "resource": {"name": _short(event.resource)} if event.resource else {},
        "http_request": {"url": {"path": _short(event.path)}} if event.path else {},
        "status_code": str(event.status) if event.status else "",
        "status_detail": _short(event.reason),
        "message": _short(event.detail, _DETAIL_CHARACTERS_MAX),
        "part": event.part,
    }
    return _encoded(fields | {key: value for key, value in optional.items() if value})


def trail_body(activity: str, wall_ms: int, **fields: str | int) -> bytes:
    """Return a record of the trail itself, as ``event_body``."""
    return _encoded(
        {
            "time_dt": _time(wall_ms),
            "class_name": AuditClass.TRAIL.value,
            "activity_name": activity,
            "disposition": Disposition.ALLOWED.value,
            **fields,
        }
    )


def record_line(sequence: int, previous: str, body: bytes) -> bytes:
    """Return the line of a record, without its line end."""
    return b'{"metadata":{"sequence":%d,"previous":"%b"},%b' % (
        sequence,
        previous.encode(),
        body[1:],
    )


@dataclass(frozen=True, slots=True)
class Link:
    """A record as the chain sees it."""

    sequence: int
    previous: str
    hash: str
    trail: Mapping[str, Any] = field(default_factory=dict)
    """The fields of a record of the trail itself; empty for others."""

    @property
    def activity(self) -> str:
        return str(self.trail.get("activity_name", ""))

    def count(self, name: str) -> int:
        """Return a number of a record of the trail itself; 0 when it has none."""
        value = self.trail.get(name)
        return value if type(value) is int else 0


def parse_link(line: bytes) -> Link | None:
    """Return what a line says about the chain; ``None`` when it is no record."""
    try:
        record = json.loads(line)
        metadata = record["metadata"]
        sequence, previous = metadata["sequence"], metadata["previous"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if type(sequence) is not int or sequence < 1 or type(previous) is not str:
        return None
    of_trail = record.get("class_name") == AuditClass.TRAIL.value
    return Link(sequence, previous, hash_of(line), record if of_trail else {})


@dataclass(slots=True)
class _Fork:
    """Where the chain broke off, in case that a crash explains it."""

    last: Link | None
    place: str
    last_place: str
    first: Link | None
    records_count: int
    faults_count: int
    notes_count: int
    size_bytes: int = 0


class ChainCheck:
    """Reads a trail line by line, oldest first, and finds where it is not as it was written.

    Args:
        anchors: hashes of records by their numbers, as they were kept elsewhere.
    """

    def __init__(self, anchors: Mapping[int, str] | None = None) -> None:
        self.faults: list[str] = []
        """What was changed, removed or moved, and where."""
        self.notes: list[str] = []
        """What is no fault of the chain, and matters to who reads the trail."""
        self.records_count = 0
        self.first: Link | None = None
        self.last: Link | None = None
        self._anchors = dict(anchors or {})
        self._place = ""
        self._partial = ""
        """Where a line without an end stands; empty when the line before has one."""
        self._fork: _Fork | None = None
        self._is_export = False
        self._first_kept = 1
        """The oldest record that rotation left, as the newest rotation says."""

    def read_file(self, name: str, content: bytes) -> None:
        """Check the lines of the next file."""
        lines = content.split(b"\n")
        end = lines.pop()
        for number, line in enumerate(lines, 1):
            self._read(f"{name}:{number}", line)
        if end:
            # Only what was being written when a process died ends so.
            self._read(f"{name}:{len(lines) + 1}", end, is_whole=False)

    def read_export(self, name: str, content: bytes) -> None:
        """Check lines of one broker that were taken from a topic, instead of files.

        They may come in any order and more than once, and begin with any record: what a topic
        keeps, and how it is read, proves nothing. The hashes show the order.
        """
        self._is_export = True
        places: dict[bytes, int] = {}
        repeated_count = 0
        for number, line in enumerate(content.splitlines(), 1):
            if line and places.setdefault(line, number) != number:
                repeated_count += 1
        links = {line: parse_link(line) for line in places}
        for line in sorted(links, key=lambda each: link.sequence if (link := links[each]) else 0):
            self._read(f"{name}:{places[line]}", line)
        if repeated_count:
            self.notes.append(f"{name}: {repeated_count} lines came a second time")

    def finish(self) -> None:
        """Check what only the end shows."""
        if self._partial:
            self.notes.append(
                f"{self._partial}: this is no whole record: it was being written when the broker "
                "died, or was cut"
            )
        if self.first is not None and self.first.sequence > self._first_kept:
            missing = f"records {self._first_kept} to {self.first.sequence - 1} are missing at the "
            if self._is_export:
                self.notes.append(f"{missing}beginning: they are not in what was taken")
            else:
                self._fault(f"{missing}beginning, and rotation did not remove them")
        for sequence in sorted(self._anchors):
            self._fault(f"record {sequence}, which the anchor names, is not there")
        if self.last is not None and self.last.activity != STOP:
            self.notes.append(
                "the trail does not end with the stop of the broker: it runs, was killed, or the "
                "end was cut off, which a chain alone cannot tell"
            )

    def _fault(self, text: str) -> None:
        if len(self.faults) < _FAULTS_MAX:
            self.faults.append(text)

    def _read(self, place: str, line: bytes, *, is_whole: bool = True) -> None:
        link = parse_link(line) if is_whole else None
        is_after_crash = link is not None and self._goes_on_after_crash(link)
        if self._partial and not is_after_crash:
            self._fault(f"{self._partial}: this is no record; it was changed or damaged")
        self._partial = "" if is_whole else place
        fits = link is not None and self._fits(link, self.last)
        if not fits and self._fork is None:
            self._fork = _Fork(
                self.last,
                place,
                self._place,
                self.first,
                self.records_count,
                len(self.faults),
                len(self.notes),
            )
        if self._fork is not None:
            self._fork.size_bytes += len(line) + is_whole
            if self._fork.size_bytes > TORN_BYTES_MAX:
                self._fork = None  # no crash damages as much
        if link is None:
            if is_whole:
                self._fault(f"{place}: this is no record; it was changed or damaged")
            return
        self._check(place, link)
        self.records_count += 1
        self.first = self.first or link
        self.last, self._place = link, place
        if link.activity == ROTATE:
            self._first_kept = max(self._first_kept, link.count("first_sequence"))
        elif link.activity == LOSE:
            self.notes.append(
                f"{place}: {link.count('count')} records were lost before record {link.sequence}: "
                "they could not be written"
            )

    def _fits(self, link: Link, last: Link | None) -> bool:
        if last is not None:
            return (link.sequence, link.previous) == (last.sequence + 1, last.hash)
        # An older beginning may have been removed by rotation.
        return link.sequence > 1 or link.previous == NO_PREVIOUS

    def _goes_on_after_crash(self, link: Link) -> bool:
        """Return whether a broker started here after a crash had torn the end of the trail.

        It says how many bytes it found behind the last record, and goes on behind that one.
        """
        fork, torn_bytes = self._fork, link.count("torn_bytes")
        if (
            fork is None
            or link.activity != START
            or torn_bytes != fork.size_bytes
            or not self._fits(link, fork.last)
        ):
            return False
        del self.faults[fork.faults_count :], self.notes[fork.notes_count :]
        self.last, self._place, self.first = fork.last, fork.last_place, fork.first
        self.records_count = fork.records_count
        self._fork = None
        self.notes.append(
            f"{fork.place}: {torn_bytes} bytes from here on were not whole when the broker "
            f"started again at record {link.sequence}: a crash of the machine, or a cut"
        )
        return True

    def _check(self, place: str, link: Link) -> None:
        last = self.last
        anchor = self._anchors.pop(link.sequence, None)
        if anchor is not None and anchor != link.hash:
            self._fault(f"{place}: record {link.sequence} is not the one of the anchor")
        if last is None:
            if not self._fits(link, None):
                self._fault(f"{place}: the first record names one before it")
            return
        if link.sequence > last.sequence + 1:
            missing = (
                f"record {last.sequence + 1} is"
                if link.sequence == last.sequence + 2
                else f"records {last.sequence + 1} to {link.sequence - 1} are"
            )
            self._fault(f"{place}: {missing} missing before record {link.sequence}")
        elif link.sequence <= last.sequence:
            self._fault(
                f"{place}: record {link.sequence} comes after record {last.sequence} at "
                f"{self._place}: it was moved, repeated or inserted"
            )
        elif link.previous != last.hash:
            self._fault(
                f"{self._place}: record {last.sequence} is not the one that was written: record "
                f"{link.sequence} at {place} has another hash for it"
            )
        if link.activity == START and last.activity != STOP:
            self.notes.append(
                f"{place}: the broker started at record {link.sequence} without a stop before it: "
                "it was killed, so its last records of up to a second may be missing, or the end "
                "was cut off"
            )
