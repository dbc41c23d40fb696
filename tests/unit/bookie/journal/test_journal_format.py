"""What the journal's bytes promise: a torn tail is cut, damage to what was promised is refused with
file and offset (rule 10).
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
    frame_record,
    padded_size,
)
from pulsarish.model.errors import CorruptData

GROUPS = [[b"a"], [b"bb" * 10, b"", b"ccc"], [b"d" * 100]]
"""Three writes to one file: the second has three records."""


def build(
    groups: list[list[bytes]], *, file_id: int = 1, first: int = 1, reserve: int = 64
) -> tuple[bytes, list[int]]:
    """A file as the journal writes it, and the offset at which each record begins."""
    data = b"".join(frame_record(file_id, RecordType.FILE_HEADER, first, first, [b"b~1"], 3))
    offsets: list[int] = []
    sequence = synced = first
    for group in groups:
        for payload in group:
            offsets.append(len(data))
            data += b"".join(
                frame_record(
                    file_id,
                    RecordType.ADD,
                    sequence,
                    synced,
                    [payload[:1], payload[1:]],
                    len(payload),
                )
            )
            sequence += 1
        synced = sequence
    return data + bytes(reserve), offsets


def scan(files: dict[int, bytes], durable_up_to: int = 0) -> tuple[list[JournalRecord], ScanEnd]:
    scanner = JournalScanner("J", durable_up_to)
    records = [record for file_id, data in files.items() for record in scanner.scan(file_id, data)]
    return [
        record for record in records if record.type is not RecordType.FILE_HEADER
    ], scanner.finish()


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
