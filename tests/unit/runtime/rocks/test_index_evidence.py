"""Whether an index is complete: the decision, and the file that says up to where it was synced."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsarish.model.errors import CorruptData
from pulsarish.runtime.rocks.index_evidence import (
    TRAIL_SLOTS,
    Counter,
    SyncedFile,
    missing_from,
    trail_key,
    trail_keys,
    trail_row,
)


def trail_of(counter: Counter) -> list[bytes | None]:
    rows = dict(
        trail_row(number)
        for number in range(max(1, counter.trail - TRAIL_SLOTS + 1), counter.trail + 1)
    )
    return [rows.get(key) for key in trail_keys(counter)]


@pytest.mark.parametrize("trail", [0, 1, 5, TRAIL_SLOTS, TRAIL_SLOTS + 7])
def test_an_index_that_has_what_was_synced_is_complete(trail: int) -> None:
    counter = Counter(10, trail, 0)
    assert not missing_from(counter, trail_of(counter), 10)
    assert not missing_from(counter, trail_of(counter), 9), "more than was synced is no loss"


def test_an_index_that_ends_before_what_was_synced_says_how_much_is_missing() -> None:
    assert "write 10, and all up to write 13 was synced: 3 synced writes" in missing_from(
        Counter(10, 0, 0), [], 13
    )
    assert "write 0, and all up to write 13" in missing_from(Counter.decode(None), [], 13)


def test_a_gap_in_the_trail_is_a_loss_although_the_end_is_there() -> None:
    counter = Counter(10, TRAIL_SLOTS + 7, 0)
    trail = trail_of(counter)
    trail[3] = None
    assert "from number 11 on" in missing_from(counter, trail, 10)
    trail[3] = trail_row(11 - 8)[1]
    assert "1 of its trail" in missing_from(counter, trail, 10), (
        "an older row in its place is a loss too"
    )


def test_what_an_operator_gave_up_is_not_missed_again() -> None:
    counter = Counter(10, 5, 4)
    assert trail_keys(counter) == [trail_key(5)]
    assert not missing_from(counter, trail_of(counter), 10)


def test_an_index_with_a_number_and_without_its_file_is_refused() -> None:
    assert "missing" in missing_from(Counter(1, 0, 0), [], None)
    assert not missing_from(Counter.decode(None), [], None), (
        "of an index that is older than the file nothing is known"
    )


def test_the_file_gives_back_the_greatest_number(tmp_path: Path) -> None:
    path = str(tmp_path / "index.synced")
    file = SyncedFile(path)
    assert file.read() is None
    file.create(0)
    for number in (3, 4, 9):
        file.write(number)
        assert SyncedFile(path).read() == number
    file.close()


def test_damage_to_one_slot_leaves_the_other(tmp_path: Path) -> None:
    path = tmp_path / "index.synced"
    file = SyncedFile(str(path))
    file.create(0)
    for number in range(1, 5):
        file.write(number)
    file.close()
    whole = path.read_bytes()
    for at in (*range(16), *range(4096, 4112)):
        data = bytearray(whole)
        data[at] ^= 4
        path.write_bytes(data)
        assert SyncedFile(str(path)).read() in (3, 4)
    data = bytearray(whole)
    data[5] ^= 1
    data[4096 + 5] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptData, match="neither of its two slots"):
        SyncedFile(str(path)).read()


def test_a_write_after_damage_goes_to_the_damaged_slot(tmp_path: Path) -> None:
    path = tmp_path / "index.synced"
    SyncedFile(str(path)).create(7)
    data = bytearray(path.read_bytes())
    data[6] ^= 1
    path.write_bytes(data)
    file = SyncedFile(str(path))
    assert file.read() == 7
    file.write(8)
    file.close()
    assert SyncedFile(str(path)).read() == 8
    assert path.read_bytes()[4096:].startswith(b"PIX1\0\0\0\0\0\0\0\7")
