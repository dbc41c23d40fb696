"""The chain of an audit trail: each way to change it is found, and its place is named."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from pulsarish.security.audit import AuditClass, AuditEvent, Disposition
from pulsarish.security.audit_chain import (
    LINE_BYTES_MAX,
    LOSE,
    NO_PREVIOUS,
    ROTATE,
    START,
    STOP,
    ChainCheck,
    event_body,
    file_name,
    file_number,
    hash_of,
    parts_of,
    record_line,
    trail_body,
)
from pulsarish.security.identity import Identity, Origin

NOW_MS = 1_800_000_000_123
FILES = [file_name(1), file_name(2)]


def event(**fields: object) -> AuditEvent:
    values = {
        "kind": AuditClass.CHANGE,
        "activity": "Change",
        "identity": Identity(
            "ann", "token", 0, "proxy", "id-1", origin=Origin("[::1]:4000", "http")
        ),
        "disposition": Disposition.FAILED,
        "action": "POST /x/{y}",
        "resource": "topic t",
        "reason": "why",
        "detail": "what",
        "path": "/x/1",
        "status": 412,
        **fields,
    }
    return AuditEvent(**values)  # type: ignore[arg-type]


def chained(bodies: list[bytes], sequence: int = 0, previous: str = NO_PREVIOUS) -> list[bytes]:
    lines = []
    for body in bodies:
        sequence += 1
        lines.append(record_line(sequence, previous, body))
        previous = hash_of(lines[-1])
    return lines


def trail() -> list[bytes]:
    bodies = [trail_body(START, NOW_MS, broker="b", torn_bytes=0)]
    bodies += [event_body(event(resource=f"topic {number}"), NOW_MS) for number in range(8)]
    return chained([*bodies, trail_body(STOP, NOW_MS, broker="b")])


def check(lines: list[bytes], first_count: int = 5, **anchors: str) -> ChainCheck:
    found = ChainCheck({int(key[1:]): value for key, value in anchors.items()})
    for name, part in zip(FILES, (lines[:first_count], lines[first_count:]), strict=True):
        found.read_file(name, b"".join(line + b"\n" for line in part))
    found.finish()
    return found


def test_a_record_says_who_where_what_and_when_in_words_of_ocsf() -> None:
    assert json.loads(record_line(7, NO_PREVIOUS, event_body(event(), NOW_MS))) == {
        "metadata": {"sequence": 7, "previous": NO_PREVIOUS},
        "time_dt": "2027-01-15T08:00:00.123Z",
        "class_name": "API Activity",
        "activity_name": "Change",
        "disposition": "Failed",
        "actor": {"user": {"name": "ann", "credential_uid": "id-1"}, "proxy": {"name": "proxy"}},
        "auth_protocol": "token",
        "src_endpoint": {"ip": "[::1]", "port": 4000},
        "face": "http",
        "api": {"operation": "POST /x/{y}"},
        "resource": {"name": "topic t"},
        "http_request": {"url": {"path": "/x/1"}},
        "status_code": "412",
        "status_detail": "why",
        "message": "what",
    }


def test_a_record_is_one_line_of_ascii_of_bounded_size_whatever_names_hold() -> None:
    wide = "\U0001f600\n\u202e" * 100_000
    names = ("action", "resource", "reason", "detail", "path")
    identity = Identity(wide, wide, 0, wide, wide, origin=Origin(f"{wide}:1", "http"))
    body = event_body(event(identity=identity, **dict.fromkeys(names, wide)), NOW_MS)
    line = record_line(2**63, NO_PREVIOUS, body)
    assert line.isascii()
    assert b"\n" not in line
    assert len(line) <= LINE_BYTES_MAX
    for wall_ms in (-(2**63), 2**63 - 1):
        assert json.loads(event_body(event(), wall_ms))["time_dt"].endswith("Z")


def test_a_whole_trail_has_no_fault() -> None:
    found = check(trail())
    assert (found.faults, found.notes, found.records_count) == ([], [], 10)
    last = trail()[-1]
    assert check(trail(), a10=hash_of(last), a3=hash_of(trail()[2])).faults == []


def _edit(lines: list[bytes]) -> None:
    lines[2] = lines[2].replace(b"ann", b"bob")


def _edit_with_its_hash(lines: list[bytes]) -> None:
    # Who edits a record and repairs the next one breaks the one after that.
    _edit(lines)
    lines[3] = record_line(4, hash_of(lines[2]), event_body(event(), NOW_MS))


def _remove(lines: list[bytes]) -> None:
    del lines[6]


def _remove_some(lines: list[bytes]) -> None:
    del lines[5:8]


def _swap(lines: list[bytes]) -> None:
    lines[2], lines[3] = lines[3], lines[2]


def _repeat(lines: list[bytes]) -> None:
    lines.insert(3, lines[2])


def _insert(lines: list[bytes]) -> None:
    lines.insert(3, record_line(4, hash_of(lines[2]), event_body(event(), NOW_MS)))


def _cut_beginning(lines: list[bytes]) -> None:
    del lines[:2]


def _garble(lines: list[bytes]) -> None:
    lines[6] = b"\0" * 100


def _renumber(lines: list[bytes]) -> None:
    lines[6] = lines[6].replace(b'"sequence":7', b'"sequence":"7"')


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_edit, "audit-0000000001.jsonl:3: record 3 is not the one that was written"),
        (_edit_with_its_hash, "audit-0000000001.jsonl:4: record 4 is not the one that was"),
        (_remove, "audit-0000000002.jsonl:2: record 7 is missing before record 8"),
        (_remove_some, "audit-0000000002.jsonl:1: records 6 to 8 are missing before record 9"),
        (_swap, "audit-0000000001.jsonl:3: record 3 is missing before record 4"),
        (_repeat, "audit-0000000001.jsonl:4: record 3 comes after record 3"),
        (_insert, "audit-0000000001.jsonl:5: record 4 comes after record 4"),
        (_cut_beginning, "records 1 to 2 are missing at the beginning"),
        (_garble, "audit-0000000002.jsonl:2: this is no record; it was changed or damaged"),
        (_renumber, "audit-0000000002.jsonl:2: this is no record; it was changed or damaged"),
    ],
)
def test_a_change_is_found_and_its_place_is_named(
    change: Callable[[list[bytes]], None], words: str
) -> None:
    lines = trail()
    change(lines)
    assert any(words in fault for fault in check(lines).faults), check(lines).faults


def test_a_removed_file_is_a_gap() -> None:
    found = ChainCheck()
    for name, part in zip((FILES[0], file_name(3)), (trail()[:3], trail()[6:]), strict=True):
        found.read_file(name, b"".join(line + b"\n" for line in part))
    found.finish()
    assert found.faults == [f"{file_name(3)}:1: records 4 to 6 are missing before record 7"]


def test_a_cut_end_is_named_as_far_as_it_can_be_known() -> None:
    cut = check(trail()[:-3])
    assert cut.faults == []
    assert "does not end with the stop" in cut.notes[0]
    # Only an anchor shows that something was there.
    anchored = check(trail()[:-3], a9=hash_of(trail()[8]))
    assert anchored.faults == ["record 9, which the anchor names, is not there"]
    # A trail that was written again is whole, and not the one of the anchor.
    again = chained([event_body(event(resource="other"), NOW_MS) for _ in range(10)])
    assert check(again).faults == []
    (fault,) = check(again, a9=hash_of(trail()[8])).faults
    assert fault.endswith("record 9 is not the one of the anchor")


def test_what_a_crash_tears_is_no_fault_and_is_shown() -> None:
    lines = trail()[:6]
    start = trail_body(START, NOW_MS, broker="b", torn_bytes=9)
    after = record_line(7, hash_of(lines[-1]), start)
    found = ChainCheck()
    found.read_file(FILES[0], b"".join(line + b"\n" for line in lines) + b'{"metadat')
    found.read_file(FILES[1], after + b"\n")
    found.finish()
    assert found.faults == []
    assert "9 bytes from here on were not whole when the broker started again" in found.notes[0]
    assert "without a stop" in found.notes[1]
    # A hole in the last write, with whole lines behind it.
    torn = b"\0" * 50 + lines[4][50:] + b"\n" + lines[5] + b"\n"
    start = trail_body(START, NOW_MS, broker="b", torn_bytes=len(torn))
    after = record_line(5, hash_of(lines[3]), start)
    found = ChainCheck()
    found.read_file(FILES[0], b"".join(line + b"\n" for line in lines[:4]) + torn)
    found.read_file(FILES[1], after + b"\n")
    found.finish()
    assert (found.faults, found.records_count) == ([], 5)
    # The same without a broker that noticed it, and with one that found less.
    for torn_bytes in (0, 9):
        start = trail_body(START, NOW_MS, broker="b", torn_bytes=torn_bytes)
        after = record_line(5, hash_of(lines[3]), start)
        found = ChainCheck()
        found.read_file(FILES[0], b"".join(line + b"\n" for line in lines[:4]) + torn)
        found.read_file(FILES[1], after + b"\n")
        found.finish()
        assert "changed or damaged" in found.faults[0]


def test_rotation_explains_a_later_beginning_and_no_more() -> None:
    lines = trail()
    rotation = trail_body(ROTATE, NOW_MS, first_sequence=3)
    lines.append(record_line(11, hash_of(lines[-1]), rotation))
    assert check(lines[2:]).faults == []
    (fault,) = check(lines[4:]).faults
    assert fault.startswith("records 3 to 4 are missing at the beginning")


def test_lost_records_are_shown() -> None:
    lines = trail()
    lines.append(record_line(11, hash_of(lines[-1]), trail_body(LOSE, NOW_MS, count=17)))
    assert "17 records were lost before record 11" in check(lines).notes[0]


def test_names_of_files_are_exact() -> None:
    assert [file_number(name) for name in (*FILES, "audit-2.jsonl", "LOCK", "audit-.jsonl")] == [
        1,
        2,
        None,
        None,
        None,
    ]


@pytest.mark.parametrize("size", [0, 1, 1_000, 1_001, 2_500])
def test_a_long_detail_is_recorded_whole_in_several_records(size: int) -> None:
    detail = "".join(chr(97 + number % 26) for number in range(size))
    records = [json.loads(event_body(each, NOW_MS)) for each in parts_of(event(detail=detail))]
    assert "".join(each.get("message", "") for each in records) == detail
    count = max(1, -(-size // 1_000))
    numbers = [each.get("part", "") for each in records]
    assert numbers == (
        [""] if count == 1 else [f"{number} of {count}" for number in range(1, count + 1)]
    )


def test_the_records_of_one_event_are_bounded() -> None:
    records = list(parts_of(event(detail="x" * 3_000_000)))
    assert len(records) == 1_000
    assert records[-1].part == "1000 of 3000"
