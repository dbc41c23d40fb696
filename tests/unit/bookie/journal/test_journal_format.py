"""What the journal's bytes promise: a torn tail is cut, damage to what was promised is refused with
file and offset (rule 10), and records of a file's earlier life are neither.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.bookie.journal.journal_format import (
    HEAD_SIZE,
    JournalRecord,
    JournalScanner,
    RecordType,
    ScanEnd,
    file_id_of,
    file_name,
    frame_header,
    frame_record,
    header_instance_id,
    padded_size,
)
from pulsarish.model.errors import CorruptData

GROUPS = [[b"a"], [b"bb" * 10, b"", b"ccc"], [b"d" * 100]]
"""Three writes to one file: the second has three records."""


KEY = 0x0123456789ABCDEF


def build(
    groups: list[list[bytes]],
    *,
    file_id: int = 1,
    first: int = 1,
    reserve: int = 64,
    key: int = KEY,
    over: bytes = b"",
) -> tuple[bytes, list[int]]:
    """A file as the journal writes it over its earlier life, and the offset at which each record
    begins.
    """
    data = b"".join(frame_header(file_id, key, first, b"b~1"))
    offsets: list[int] = []
    sequence = synced = first
    for group in groups:
        for payload in group:
            offsets.append(len(data))
            data += b"".join(
                frame_record(
                    file_id,
                    key,
                    RecordType.ADD,
                    sequence,
                    synced,
                    [payload[:1], payload[1:]],
                    len(payload),
                )
            )
            sequence += 1
        synced = sequence
    return data + (over[len(data) :] or bytes(reserve)), offsets


def scan(files: dict[int, bytes], durable_up_to: int = 0) -> tuple[list[JournalRecord], ScanEnd]:
    scanner = JournalScanner("J", durable_up_to)
    records = [record for file_id, data in files.items() for record in scanner.scan(file_id, data)]
    return [record for record in records if record.offset], scanner.finish()


def payloads(records: list[JournalRecord]) -> list[bytes]:
    return [bytes(record.payload) for record in records]


ALL = [payload for group in GROUPS for payload in group]


def test_a_whole_journal_reads_back() -> None:
    data, _ = build(GROUPS)
    records, end = scan({1: data})
    assert payloads(records) == ALL
    assert [record.sequence for record in records] == [1, 2, 3, 4, 5]
    assert end == ScanEnd(1, len(data) - 64, 6, torn=False)


def test_records_are_aligned_and_sizes_agree() -> None:
    data, offsets = build(GROUPS, reserve=0)
    assert all(offset % 8 == 0 for offset in offsets)
    assert offsets[1] - offsets[0] == padded_size(1)
    assert len(data) - offsets[-1] == padded_size(100)


@pytest.mark.parametrize("zeroes", [0, 64])
def test_a_tail_torn_at_any_byte_is_cut_there(zeroes: int) -> None:
    """The last group was written and not synced: whatever prefix of it a crash left, all before it
    is read, nothing else.
    """
    data, offsets = build(GROUPS, reserve=0)
    for cut in range(offsets[-1], len(data)):
        records, end = scan({1: data[:cut] + bytes(zeroes)})
        # The padding behind a record belongs to nobody: a cut in it loses nothing.
        whole = cut >= offsets[-1] + HEAD_SIZE + 100
        assert payloads(records) == (ALL if whole else ALL[:-1]), cut
        assert end.next_sequence == (6 if whole else 5)
        if not whole:
            assert end.offset == offsets[-1]
            assert end.torn == any(data[offsets[-1] : cut])


def test_any_subset_of_an_unsynced_group_may_survive() -> None:
    """Sectors reach the disk in any order: a later record of the same group proves nothing about an
    earlier one.
    """
    data, offsets = build(GROUPS[:2])
    broken = bytearray(data)
    broken[offsets[1] + HEAD_SIZE] ^= 1
    records, end = scan({1: bytes(broken)})
    assert payloads(records) == ALL[:1]
    assert (end.offset, end.next_sequence, end.torn) == (offsets[1], 2, True)


def test_every_bit_flip_in_what_was_synced_is_refused_with_file_and_offset() -> None:
    data, offsets = build(GROUPS, reserve=16)
    # The second group is proved by the third record behind it; its own first record by the third
    # group too.
    for byte in range(offsets[0], offsets[4]):
        record = max(number for number, offset in enumerate(offsets) if offset <= byte)
        if byte >= offsets[record] + HEAD_SIZE + len(ALL[record]):
            continue  # padding
        for bit in (0, 7):
            broken = bytearray(data)
            broken[byte] ^= 1 << bit
            with pytest.raises(
                CorruptData,
                match=(
                    rf"J/{file_name(1)} is damaged at offset {offsets[record]}: record "
                    rf"{record + 1} "
                ),
            ):
                scan({1: bytes(broken)})


def test_a_flip_in_the_last_group_is_refused_when_the_mark_proves_it() -> None:
    data, offsets = build(GROUPS)
    broken = bytearray(data)
    broken[offsets[-1] + HEAD_SIZE] ^= 1
    _, end = scan({1: bytes(broken)}, durable_up_to=5)
    assert end.torn
    with pytest.raises(CorruptData, match="all up to record 5 was synced"):
        scan({1: bytes(broken)}, durable_up_to=6)


def test_a_next_file_proves_all_before_it() -> None:
    first, offsets = build(GROUPS)
    second, _ = build([[b"next"]], file_id=2, first=6)
    assert payloads(scan({1: first, 2: second})[0]) == [*ALL, b"next"]
    with pytest.raises(
        CorruptData, match=f"offset {offsets[-1]}: record 5 .*goes on with record 6"
    ):
        scan({1: first[: offsets[-1]], 2: second})


def test_records_of_a_later_file_prove_even_when_its_header_is_gone() -> None:
    first, offsets = build(GROUPS)
    second = bytearray(build([[b"next"], [b"more"]], file_id=2, first=6)[0])
    second[20] ^= 1
    with pytest.raises(CorruptData, match=f"offset {offsets[-1]}: record 5 "):
        scan({1: first[: offsets[-1]], 2: bytes(second)})


def test_records_behind_the_damaged_header_of_the_first_file_are_refused() -> None:
    """No key is known then, and the mark may say that replay begins with record 0."""
    data, _ = build(GROUPS, first=0)
    broken = bytearray(data)
    broken[20] ^= 1
    with pytest.raises(CorruptData, match=r"offset 0: .*records follow the header"):
        scan({1: bytes(broken)})
    header = bytearray(build([], first=0)[0])
    header[20] ^= 1
    records, end = scan({1: bytes(header)})
    assert (records, end.next_sequence) == ([], 0)


def test_a_prepared_file_of_zeroes_is_no_evidence() -> None:
    data, _ = build(GROUPS)
    records, end = scan({1: data, 2: bytes(4096), 3: b""})
    assert payloads(records) == ALL
    assert (end.file_id, end.next_sequence) == (1, 6)


def test_a_file_that_was_cut_and_then_continued_reads_on() -> None:
    """A crash tore record 5, replay cut it off, and the next file took up the number again."""
    first, offsets = build(GROUPS)
    second, _ = build([[b"again"]], file_id=2, first=5)
    records, end = scan({1: first[: offsets[-1]], 2: second})
    assert payloads(records) == [*ALL[:-1], b"again"]
    assert end.next_sequence == 6


def test_stale_bytes_of_another_file_are_no_records() -> None:
    old, _ = build(GROUPS, file_id=7)
    records, end = scan({8: old})
    assert records == []
    assert (end.offset, end.torn) == (0, True)


OLD = build([[b"older"] * 3] * 4 + [[b"o" * 100]], file_id=3, first=1_000)[0]
"""An earlier life of a file, in which more was durable than in the present one."""


def test_records_of_an_earlier_life_are_the_end() -> None:
    """They lie exactly where the scanner looks, and each says that all before it was synced."""
    same = [[b"x"], [b"x", b"x"], [b"x"], [b"x"]]
    old, _ = build(same, file_id=3, first=1)
    for groups in (same[:2], same[:3], same):
        data, _ = build(groups, file_id=9, first=1, over=old)
        records, end = scan({9: data})
        assert payloads(records) == [b"x"] * sum(map(len, groups))
        assert end.next_sequence == len(records) + 1
        assert end.torn == (groups is not same), "what is left of the earlier life is cut off"


def test_a_file_that_has_another_name_and_no_header_yet_is_no_evidence() -> None:
    """Its old header has a sequence that does not follow."""
    data, _ = build(GROUPS)
    records, end = scan({1: data, 2: OLD})
    assert payloads(records) == ALL
    assert (end.file_id, end.next_sequence) == (1, 6)


@pytest.mark.parametrize("sector", [8, 64])
def test_any_part_of_a_torn_group_over_an_earlier_life_is_cut(sector: int) -> None:
    """Each sector of the last group has its new or its old bytes."""
    old, _ = build([[b"bb" * 10, b"", b"ccc"]] * 8, file_id=3, first=1_000)
    synced, offsets = build([[b"a"], [b"bb" * 10]], file_id=9, over=old)
    written, more = build([[b"a"], [b"bb" * 10], [b"ccc" * 9, b"", b"d" * 50]], file_id=9, over=old)
    first = more[len(offsets)]
    end_of_group = first + padded_size(27) + padded_size(0) + padded_size(50)
    places = range(first, end_of_group, sector)
    for kept in range(1, 1 << min(len(places), 10)):
        data = bytearray(synced)
        for number, place in enumerate(places):
            if kept >> number % 10 & 1:
                data[place : place + sector] = written[place : place + sector]
        records, end = scan({9: bytes(data)})
        assert payloads(records)[:2] == [b"a", b"bb" * 10]
        assert payloads(records)[2:] == [b"ccc" * 9, b"", b"d" * 50][: len(records) - 2]
        assert end.next_sequence == len(records) + 1


def test_damage_over_an_earlier_life_is_refused_all_the_same() -> None:
    data, offsets = build(GROUPS, file_id=9, over=OLD)
    for byte in range(offsets[0], offsets[-1]):
        record = max(number for number, offset in enumerate(offsets) if offset <= byte)
        if byte >= offsets[record] + HEAD_SIZE + len(ALL[record]):
            continue  # padding
        broken = bytearray(data)
        broken[byte] ^= 1
        with pytest.raises(CorruptData, match=f"is damaged at offset {offsets[record]}: "):
            scan({9: bytes(broken)})


@pytest.mark.parametrize("key", [0, KEY ^ 1, KEY ^ (1 << 32)])
def test_what_a_client_made_up_is_neither_a_record_nor_evidence(key: int) -> None:
    """A message of the earlier life has records of the file's next life in it. They have the right
    file id and sequence, and lie where the scanner looks, but the client does not know the key.
    """

    def made_up(sequence: int) -> bytes:
        parts = frame_record(9, key, RecordType.FENCE, sequence, 1 << 40, [bytes(8)], 8)
        return b"".join(parts)

    data, _ = build([[b"a"]], file_id=9, reserve=0)
    for sequence in (2, 1 << 39):
        records, end = scan({9: data + made_up(sequence) * 20})
        assert payloads(records) == [b"a"]
        assert (end.offset, end.next_sequence) == (len(data), 2)
        # Nor in a file that has only the name of the next one.
        records, end = scan({8: build([[b"a"]], file_id=8)[0], 9: OLD + made_up(sequence) * 20})
        assert (end.file_id, end.next_sequence) == (8, 2)
    known = frame_record(9, KEY, RecordType.FENCE, 2, 2, [bytes(8)], 8)
    assert scan({9: data + b"".join(known)})[1].next_sequence == 3


def test_files_without_a_key_are_read_and_continued_by_files_with_one() -> None:
    """The journal of a version that had no keys."""
    old = b"".join(frame_record(1, 0, RecordType.KEYLESS_FILE_HEADER, 1, 1, [b"b~1"], 3))
    old += b"".join(frame_record(1, 0, RecordType.ADD, 1, 1, [b"old"], 3)) + bytes(64)
    new, _ = build([[b"new"]], file_id=2, first=2)
    records, end = scan({1: old, 2: new})
    assert payloads(records) == [b"old", b"new"]
    assert end.next_sequence == 3
    scanner = JournalScanner("J", 0)
    headers = [next(scanner.scan(file_id, data)) for file_id, data in ((1, old), (2, new))]
    assert [header_instance_id(header) for header in headers] == [b"b~1", b"b~1"]


@given(
    st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=4), min_size=1, max_size=6),
    st.integers(min_value=0, max_value=10**6),
    st.integers(min_value=0, max_value=255),
)
def test_damage_never_yields_a_record_that_was_not_written(
    groups: list[list[bytes]], place: int, value: int
) -> None:
    """One byte anywhere takes any value: what is read is a prefix of what was written, or the
    damage is refused.
    """
    data, offsets = build(groups, reserve=8)
    broken = bytearray(data)
    broken[place % len(data)] = value
    written = [payload for group in groups for payload in group]
    try:
        records, end = scan({1: bytes(broken)})
    except CorruptData:
        return
    assert payloads(records) == written[: len(records)]
    # All but the last group were proved by it.
    if place % len(data) < offsets[len(written) - len(groups[-1])]:
        assert len(groups) == 1 or len(records) >= len(written) - len(groups[-1])
    assert end.next_sequence == len(records) + 1


@pytest.mark.parametrize(
    ("name", "file_id"),
    [("0000000012.journal", 12), ("LOCK", None), ("x.journal", None), (".journal", None)],
)
def test_file_names(name: str, file_id: int | None) -> None:
    assert file_id_of(name) == file_id
    if file_id is not None:
        assert file_name(file_id) == name
