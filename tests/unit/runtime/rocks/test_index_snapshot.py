"""A snapshot of an index: complete, or it says what is missing; and it changes nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pulsarish.model.errors import CorruptData
from pulsarish.runtime.lanes import Lane, Lanes, OutsideWork
from pulsarish.runtime.rocks import index as rocks_index
from pulsarish.runtime.rocks.index import open_rocks_index, open_rocks_snapshot, synced_path

ROWS = [(b"%05d" % number, b"x" * 100) for number in range(5000)]


def run(work: Callable[[Lane, Lane], Awaitable[None]]) -> None:
    async def main() -> None:
        lanes = Lanes(OutsideWork())
        await work(lanes.get("writer"), lanes.get("reader"))
        await lanes.close()

    asyncio.run(main())


def state_of(directory: str) -> dict[str, tuple[int, int]]:
    return {
        name: (status.st_size, status.st_mtime_ns)
        for name in os.listdir(directory)
        if (status := os.stat(f"{directory}/{name}"))
    }


def test_it_keeps_its_rows_while_the_owner_rewrites_all_tables(tmp_path: Path) -> None:
    directory = str(tmp_path / "index")

    async def work(writer: Lane, reader: Lane) -> None:
        index = await open_rocks_index(directory, lane=writer, write_buffer_bytes=64 << 10)
        for first in range(0, len(ROWS), 500):
            await index.write(ROWS[first : first + 500], sync=True)
        snapshot = await open_rocks_snapshot(directory, lane=reader)
        for _ in range(5):
            for first in range(0, len(ROWS), 500):
                some = [(key, b"y" * 100) for key, _ in ROWS[first : first + 500]]
                await index.write(some, sync=True)
        assert await snapshot.scan(b"", b"\xff", limit=10_000) == ROWS
        assert await snapshot.get_many([ROWS[7][0], b"none"]) == [ROWS[7][1], None]
        assert (snapshot.missing, snapshot.synced >= 10) == ("", True)
        with pytest.raises(OSError, match="reads only"):
            await snapshot.write([(b"k", b"v")], sync=True)
        newer = await open_rocks_snapshot(directory, lane=reader)
        assert await newer.get_many([ROWS[7][0]]) == [b"y" * 100]
        await newer.close()
        await snapshot.close()
        await index.close()

    run(work)


def test_it_changes_no_file_and_says_what_is_missing(tmp_path: Path) -> None:
    directory = str(tmp_path / "killed")

    async def work(writer: Lane, reader: Lane) -> None:
        index = await open_rocks_index(str(tmp_path / "index"), lane=writer)
        await index.write(ROWS[:10], sync=True)
        await index.write(ROWS[10:1000], sync=False)
        await index.write([], sync=True)
        # What is on disk when the process is killed here.
        shutil.copytree(tmp_path / "index", directory)
        shutil.copy(synced_path(str(tmp_path / "index")), synced_path(directory))
        await index.close()
        before = state_of(directory)
        snapshot = await open_rocks_snapshot(directory, lane=reader)
        assert (snapshot.missing, len(await snapshot.scan(b"", b"\xff", limit=2000))) == ("", 1000)
        await snapshot.close()
        assert state_of(directory) == before
        (log,) = [name for name in before if name.endswith(".log") and before[name][0] > 0]
        os.truncate(f"{directory}/{log}", before[log][0] // 2)
        snapshot = await open_rocks_snapshot(directory, lane=reader)
        assert "synced writes are missing" in snapshot.missing
        assert (await snapshot.get_many([ROWS[3][0]])) == [ROWS[3][1]]
        await snapshot.close()
        with pytest.raises(CorruptData, match="there is no index"):
            await open_rocks_snapshot(str(tmp_path / "none"), lane=reader)

    run(work)


@pytest.mark.parametrize("overtaken_count", [1, 1000])
def test_an_opening_that_its_owner_overtook_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overtaken_count: int
) -> None:
    directory = str(tmp_path / "index")
    deleted = f"{directory}/999999.log"
    overtaken = list[str]()
    check = rocks_index._check_readable

    def make_log() -> None:
        os.close(os.open(deleted, os.O_CREAT | os.O_WRONLY))

    def check_late(path: str) -> None:
        if path.endswith("/999999.log"):
            os.unlink(deleted)
            overtaken.append(path)
        try:
            check(path)
        finally:
            if path.endswith("/999999.log") and len(overtaken) < overtaken_count:
                make_log()

    async def work(writer: Lane, reader: Lane) -> None:
        index = await open_rocks_index(directory, lane=writer)
        await index.write(ROWS[:10], sync=True)
        make_log()
        monkeypatch.setattr(rocks_index, "_check_readable", check_late)
        monkeypatch.setattr(rocks_index, "_SNAPSHOT_PAUSE_SECONDS", 0.0)
        if overtaken_count == 1:
            snapshot = await open_rocks_snapshot(directory, lane=reader)
            assert await snapshot.scan(b"", b"\xff", limit=100) == ROWS[:10]
            await snapshot.close()
        else:
            with pytest.raises(OSError, match=r"deleted 999999\.log meanwhile; try again"):
                await open_rocks_snapshot(directory, lane=reader)
            os.unlink(deleted)
        await index.close()
        assert len(overtaken) == min(overtaken_count, rocks_index._SNAPSHOT_ATTEMPTS)

    run(work)
