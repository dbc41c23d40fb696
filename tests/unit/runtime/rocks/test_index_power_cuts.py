"""A small synced write goes to RocksDB's log and to the file next to it at the same time: all that
a power cut may leave of the two.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from pulsarish.model.errors import CorruptData
from pulsarish.runtime.lanes import Lanes, OutsideWork
from pulsarish.runtime.rocks.index import (
    RocksIndex,
    accept_index_loss,
    look_at_index,
    open_rocks_index,
    synced_path,
)
from pulsarish.runtime.rocks.index_evidence import REDO_BYTES_MAX, SyncedFile

T = TypeVar("T")
SLOT_BYTES = 4096


def in_loop(work: Callable[[Lanes], Awaitable[T]]) -> T:
    async def main() -> T:
        lanes = Lanes(OutsideWork())
        try:
            return await work(lanes)
        finally:
            await lanes.close()

    return asyncio.run(main())


async def opened(lanes: Lanes, directory: Path) -> RocksIndex:
    return await open_rocks_index(
        str(directory), lane=lanes.get("x"), write_buffer_bytes=64 << 10, block_cache_bytes=1 << 20
    )


def put_together(log_of: Path, evidence_of: Path, target: Path) -> Path:
    """The index as one moment had it on the disk, next to the file as another moment had it."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(log_of, target)
    shutil.copy(synced_path(str(evidence_of)), synced_path(str(target)))
    return target


async def moments(
    lanes: Lanes, directory: Path, writes: Sequence[tuple[list[tuple[bytes, bytes]], list[bytes]]]
) -> list[Path]:
    """The state before these writes and after each of them, as a SIGKILL would leave it."""
    index = await opened(lanes, directory / "index")
    found = [put_together(directory / "index", directory / "index", directory / "at-0")]
    for number, (puts, deletes) in enumerate(writes, 1):
        await index.write(puts, deletes, sync=True)
        assert index.synced == number
        found.append(
            put_together(directory / "index", directory / "index", directory / f"at-{number}")
        )
    await index.close()
    return found


async def rows_of(lanes: Lanes, directory: Path) -> dict[bytes, bytes]:
    index = await opened(lanes, directory)
    try:
        return dict(await index.scan(b"", b"z", limit=1_000))
    finally:
        await index.close()


WRITES: list[tuple[list[tuple[bytes, bytes]], list[bytes]]] = [
    ([(b"a", b"1"), (b"b", b"1")], []),
    ([(b"a", b"2"), (b"c", b"2")], [b"b"]),
    ([(b"d", b"3"), (b"e", b"")], [b"e"]),
]
AFTER = [
    {},
    {b"a": b"1", b"b": b"1"},
    {b"a": b"2", b"c": b"2"},
    {b"a": b"2", b"c": b"2", b"d": b"3"},
]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_write_that_only_the_file_has_is_there_after_the_opening(
    tmp_path: Path, number: int
) -> None:
    async def work(lanes: Lanes) -> None:
        states = await moments(lanes, tmp_path, WRITES)
        cut = put_together(states[number - 1], states[number], tmp_path / "cut")
        assert not look_at_index(str(cut)).missing
        index = await opened(lanes, cut)
        assert index.synced == number
        # Killed at once, the index has it by itself, whatever the next write makes of the file.
        again = put_together(cut, cut, tmp_path / "again")
        await index.write([(b"x", b"9")], sync=True)
        await index.close()
        SyncedFile(synced_path(str(again))).create(number)
        assert await rows_of(lanes, again) == AFTER[number]
        assert await rows_of(lanes, cut) == {**AFTER[number], b"x": b"9"}

    in_loop(work)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_write_that_only_the_log_has_is_no_damage(tmp_path: Path, number: int) -> None:
    async def work(lanes: Lanes) -> None:
        states = await moments(lanes, tmp_path, WRITES)
        assert (
            await rows_of(lanes, put_together(states[number], states[number - 1], tmp_path / "cut"))
            == AFTER[number]
        )

    in_loop(work)


def tear(before: Path, index: Path, kept: int) -> None:
    """Keep this many bytes of what was written to the index's file since ``before``."""
    was, file = Path(synced_path(str(before))).read_bytes(), Path(synced_path(str(index)))
    now = file.read_bytes()
    at = 0 if was[:SLOT_BYTES] != now[:SLOT_BYTES] else SLOT_BYTES
    file.write_bytes(now[: at + kept] + was[at + kept :])


@pytest.mark.parametrize("kept", [0, 1, 20, 30, 60])
def test_a_torn_slot_leaves_the_one_before(tmp_path: Path, kept: int) -> None:
    async def work(lanes: Lanes) -> None:
        states = await moments(lanes, tmp_path, WRITES)
        for log_of, there in ((states[2], 2), (states[3], 3)):
            cut = put_together(log_of, states[3], tmp_path / "cut")
            tear(states[2], cut, kept)
            assert await rows_of(lanes, cut) == AFTER[there]

    in_loop(work)


def test_two_missing_writes_are_damage(tmp_path: Path) -> None:
    async def work(lanes: Lanes) -> None:
        states = await moments(lanes, tmp_path, WRITES)
        cut = put_together(states[1], states[3], tmp_path / "cut")
        with pytest.raises(CorruptData, match="ends at write 1, and all up to write 3 was synced"):
            await opened(lanes, cut)

    in_loop(work)


def test_a_write_of_another_index_is_not_taken(tmp_path: Path) -> None:
    async def work(lanes: Lanes) -> None:
        (tmp_path / "other").mkdir()
        states, others = (
            await moments(lanes, tmp_path, WRITES),
            await moments(lanes, tmp_path / "other", WRITES),
        )
        mixed = put_together(states[1], others[2], tmp_path / "mixed")
        with pytest.raises(CorruptData, match="1 synced writes are missing"):
            await opened(lanes, mixed)

    in_loop(work)


def test_a_missing_table_is_damage_although_the_file_has_the_last_write(tmp_path: Path) -> None:
    async def work(lanes: Lanes) -> None:
        index = await opened(lanes, tmp_path / "index")
        await index.write([(b"a%06d" % number, b"v" * 100) for number in range(2_000)], sync=True)
        await index.close()
        index = await opened(lanes, tmp_path / "index")
        await index.write([(b"b", b"1")], sync=True)
        before = put_together(tmp_path / "index", tmp_path / "index", tmp_path / "before")
        await index.write([(b"c", b"1")], sync=True)
        cut = put_together(before, tmp_path / "index", tmp_path / "cut")
        await index.close()
        next(iter(sorted(cut.glob("*.sst")))).unlink()
        with pytest.raises(CorruptData):
            await opened(lanes, cut)

    in_loop(work)


def test_only_a_small_write_that_is_the_first_since_the_last_sync_goes_into_the_file(
    tmp_path: Path,
) -> None:
    async def work(lanes: Lanes) -> None:
        index = await opened(lanes, tmp_path / "index")
        evidence = SyncedFile(synced_path(str(tmp_path / "index")))

        def slot() -> tuple[int | None, bool]:
            return evidence.read(), evidence.redo is not None

        await index.write([(b"a", b"1")], sync=True)
        assert slot() == (1, True)
        await index.write([(b"b", b"1" * REDO_BYTES_MAX)], sync=True)
        assert slot() == (2, False)
        await index.write([(b"c", b"1")], sync=False)
        await index.write([(b"d", b"1")], sync=True)
        assert slot() == (4, False)
        await index.write([(b"e", b"1")], sync=False)
        await index.write([], sync=True)
        assert slot() == (5, False)
        await index.write([], [b"a"], sync=True)
        assert slot() == (6, True)
        await index.close()

    in_loop(work)


def test_an_operator_who_accepts_a_loss_keeps_the_write_that_the_file_has(tmp_path: Path) -> None:
    async def work(lanes: Lanes) -> None:
        states = await moments(lanes, tmp_path, WRITES)
        cut = put_together(states[2], states[3], tmp_path / "cut")
        assert accept_index_loss(str(cut)) == (3, 3)
        assert await rows_of(lanes, cut) == AFTER[3]

    in_loop(work)


def test_a_file_of_the_version_before_is_read(tmp_path: Path) -> None:
    """Its slots have numbers only."""

    async def work(lanes: Lanes) -> None:
        states = await moments(lanes, tmp_path, WRITES)
        SyncedFile(synced_path(str(states[3]))).create(3)
        assert await rows_of(lanes, states[3]) == AFTER[3]
        SyncedFile(synced_path(str(states[2]))).create(3)
        with pytest.raises(CorruptData, match="ends at write 2, and all up to write 3 was synced"):
            await opened(lanes, states[2])

    in_loop(work)
