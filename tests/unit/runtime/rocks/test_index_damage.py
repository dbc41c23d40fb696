"""A RocksDB index with one flipped bit, a cut file or an older one: what was synced is there, or
the error says that it is not.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from pulsarish.model.errors import CorruptData
from pulsarish.runtime.lanes import Lanes, OutsideWork
from pulsarish.runtime.rocks.index import (
    RocksIndex,
    accept_index_loss,
    open_rocks_index,
    synced_path,
)
from pulsarish.runtime.rocks.index_evidence import SyncedFile
from pulsarish.runtime.seams import IndexCorrupt

T = TypeVar("T")
Rows = dict[bytes, bytes]

WRITES = 400
ROWS_A_WRITE = 10
LAST_WRITE_BYTES_MAX = 1_600
BACKGROUND_WORK = (
    "mem-table-flush-pending",
    "num-running-flushes",
    "compaction-pending",
    "num-running-compactions",
)


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


def image(source: Path, target: Path) -> Path:
    """What a SIGKILL leaves: the files as they are."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    shutil.copy(synced_path(str(source)), synced_path(str(target)))
    return target


def make_killed(directory: Path, writes: int) -> Rows:
    """Make an index of two openings as a SIGKILL left it, ``directory / "killed"``.

    Returns all its rows, which are synced.
    """
    chance = random.Random(1)
    rows: Rows = {}

    async def write(lanes: Lanes, count: int, *, close: bool) -> None:
        index = await opened(lanes, directory / "index")
        for _ in range(count):
            puts = {
                b"n%06d" % chance.randrange(1500): chance.randbytes(100)
                for _ in range(ROWS_A_WRITE)
            }
            await index.write(list(puts.items()), sync=True)
            rows.update(puts)
        if close:
            await index.close()
        else:
            # A copy is not made in one moment: a flush or compaction that goes on meanwhile would
            # leave tables that nothing names.
            while any(  # noqa: ASYNC110
                index._database.property_int_value(f"rocksdb.{name}") for name in BACKGROUND_WORK
            ):
                await asyncio.sleep(0.01)
            image(directory / "index", directory / "killed")
            await index.close()

    in_loop(lambda lanes: write(lanes, 30, close=True))
    in_loop(lambda lanes: write(lanes, writes, close=False))
    assert list((directory / "killed").glob("*.sst"))
    return rows


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows]:
    """An index with rows in tables and in the log, and all its rows."""
    directory = tmp_path_factory.mktemp("whole")
    rows = make_killed(directory, WRITES)
    assert newest(directory / "killed", "*.log").stat().st_size > 10_000
    return directory / "killed", rows


def newest(directory: Path, pattern: str) -> Path:
    return max(directory.glob(pattern))


def flip(path: Path, at: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def outcome(directory: Path, rows: Rows) -> str:
    """Open it and read everything, by scan both ways and by key: "whole", "refused" or
    "unreadable". Fails when a row is not there.
    """

    async def read(lanes: Lanes) -> str:
        before = contents(directory)
        try:
            index = await opened(lanes, directory)
        except CorruptData:
            assert contents(directory) == before, "a refused index is as it was"
            return "refused"
        try:
            for reverse in (False, True):
                found = await index.scan(b"n", b"o", limit=10_000, reverse=reverse)
                assert dict(found) == rows, f"{len(rows) - len(found)} rows are silently gone"
            assert await index.get_many(list(rows)) == list(rows.values())
        except OSError:
            return "unreadable"
        finally:
            await index.close()
        return "whole"

    return in_loop(read)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if path.suffix in (".log", ".sst") or "MANIFEST" in path.name
    }


def places(size: int, count: int) -> list[int]:
    """Places all over a file, its ends among them."""
    chance = random.Random(7)
    return sorted(
        {
            *range(min(size, 8)),
            *range(max(0, size - 8), size),
            *(chance.randrange(size) for _ in range(count)),
        }
    )


def test_what_a_kill_leaves_is_whole(killed: tuple[Path, Rows], tmp_path: Path) -> None:
    assert outcome(image(killed[0], tmp_path / "index"), killed[1]) == "whole"


def test_a_flipped_bit_anywhere_in_the_log_is_refused(
    killed: tuple[Path, Rows], tmp_path: Path
) -> None:
    """But in the last write, which nothing in the log follows: the file next to the index has that
    one.
    """
    chance = random.Random(2)
    size = newest(killed[0], "*.log").stat().st_size
    seen = []
    for at in places(size, 40):
        directory = image(killed[0], tmp_path / "index")
        flip(newest(directory, "*.log"), at, chance.randrange(8))
        seen.append((at, outcome(directory, killed[1])))
    assert {result for at, result in seen if at < size - LAST_WRITE_BYTES_MAX} == {"refused"}
    assert "whole" in {result for at, result in seen if at >= size - LAST_WRITE_BYTES_MAX}


def test_a_record_type_that_rocksdb_would_read_for_ever_is_refused(
    killed: tuple[Path, Rows], tmp_path: Path
) -> None:
    for pattern in ("*.log", "MANIFEST*"):
        directory = image(killed[0], tmp_path / "index")
        flip(newest(directory, pattern), 6, 2)
        assert outcome(directory, killed[1]) == "refused"


def test_a_log_that_is_cut_or_gone_is_refused(killed: tuple[Path, Rows], tmp_path: Path) -> None:
    size = newest(killed[0], "*.log").stat().st_size
    for at in (0, 1, size // 2, size - 2 * LAST_WRITE_BYTES_MAX, size - 1):
        directory = image(killed[0], tmp_path / "index")
        with newest(directory, "*.log").open("r+b") as log:
            log.truncate(at)
        assert outcome(directory, killed[1]) == ("refused" if at < size - 1 else "whole"), (
            f"cut at {at}"
        )
    directory = image(killed[0], tmp_path / "index")
    newest(directory, "*.log").unlink()
    assert outcome(directory, killed[1]) == "refused"


def test_a_manifest_that_is_damaged_or_cut_is_refused(
    killed: tuple[Path, Rows], tmp_path: Path
) -> None:
    """A cut one names older tables, and the log that follows them is whole: without the trail rows
    would be gone in between. Some cuts take nothing away that matters.
    """
    size = newest(killed[0], "MANIFEST*").stat().st_size
    for at in range(0, size, 43):
        directory = image(killed[0], tmp_path / "index")
        flip(newest(directory, "MANIFEST*"), at, at % 8)
        assert outcome(directory, killed[1]) == "refused", f"flipped at {at}"
    seen = []
    for at in range(0, size, 43):
        directory = image(killed[0], tmp_path / "index")
        with newest(directory, "MANIFEST*").open("r+b") as manifest:
            manifest.truncate(at)
        seen.append(outcome(directory, killed[1]))
    assert dict.fromkeys(seen).keys() <= {"refused", "whole"}
    assert seen.count("refused") > len(seen) // 2


def test_a_damaged_or_missing_current_is_refused(killed: tuple[Path, Rows], tmp_path: Path) -> None:
    for at in range(16):
        directory = image(killed[0], tmp_path / "index")
        flip(directory / "CURRENT", at, at % 8)
        assert outcome(directory, killed[1]) == "refused", f"flipped at {at}"
    directory = image(killed[0], tmp_path / "index")
    (directory / "CURRENT").unlink()
    assert outcome(directory, killed[1]) == "refused"


def test_a_damaged_table_is_an_error_and_never_an_end(
    killed: tuple[Path, Rows], tmp_path: Path
) -> None:
    chance = random.Random(3)
    seen = []
    for at in places(newest(killed[0], "*.sst").stat().st_size, 30):
        directory = image(killed[0], tmp_path / "index")
        flip(newest(directory, "*.sst"), at, chance.randrange(8))
        seen.append(outcome(directory, killed[1]))
    assert seen.count("unreadable") > 20
    directory = image(killed[0], tmp_path / "index")
    newest(directory, "*.sst").unlink()
    assert outcome(directory, killed[1]) == "refused"


def test_an_index_that_is_gone_is_refused_and_not_begun_anew(
    killed: tuple[Path, Rows], tmp_path: Path
) -> None:
    directory = image(killed[0], tmp_path / "index")
    shutil.rmtree(directory)
    with pytest.raises(CorruptData, match="is gone"):
        in_loop(lambda lanes: opened(lanes, directory))


def test_an_older_copy_of_the_index_is_refused(tmp_path: Path) -> None:
    async def write(lanes: Lanes) -> None:
        index = await opened(lanes, tmp_path / "index")
        await index.write([(b"a", b"1")], sync=True)
        shutil.copytree(tmp_path / "index", tmp_path / "older")
        await index.write([(b"b", b"1")], sync=True)
        await index.write([(b"c", b"1")], sync=True)
        await index.close()
        shutil.rmtree(tmp_path / "index")
        (tmp_path / "older").rename(tmp_path / "index")
        with pytest.raises(CorruptData, match="ends at write 1, and all up to write 3 was synced"):
            await opened(lanes, tmp_path / "index")

    in_loop(write)


def test_the_file_beside_the_index_is_missed(killed: tuple[Path, Rows], tmp_path: Path) -> None:
    directory = image(killed[0], tmp_path / "index")
    Path(synced_path(str(directory))).unlink()
    assert outcome(directory, killed[1]) == "refused"


def test_the_torn_end_of_what_was_not_synced_is_no_damage(tmp_path: Path) -> None:
    async def write(lanes: Lanes) -> None:
        index = await opened(lanes, tmp_path / "index")
        await index.write([(b"a", b"1")], sync=True)
        await index.write([(b"b", b"1" * 500)], sync=False)
        image(tmp_path / "index", tmp_path / "killed")
        await index.close()
        log = newest(tmp_path / "killed", "*.log")
        flip(log, log.stat().st_size - 100, 1)
        torn = await opened(lanes, tmp_path / "killed")
        assert await torn.get_many([b"a", b"b"]) == [b"1", None]
        assert torn.synced == 1
        await torn.write([(b"c", b"1")], sync=True)
        await torn.close()
        again = await opened(lanes, tmp_path / "killed")
        assert await again.get_many([b"a", b"b", b"c"]) == [b"1", None, b"1"]
        await again.close()

    in_loop(write)


def test_what_was_served_after_an_opening_counts_as_synced(tmp_path: Path) -> None:
    async def write(lanes: Lanes) -> None:
        index = await opened(lanes, tmp_path / "index")
        await index.write([(b"a", b"1")], sync=False)
        image(tmp_path / "index", tmp_path / "killed")
        await index.close()
        index = await opened(lanes, tmp_path / "killed")
        assert await index.get_many([b"a"]) == [b"1"]
        assert index.synced == 1
        assert SyncedFile(synced_path(str(tmp_path / "killed"))).read() == 1
        await index.close()

    in_loop(write)


def test_an_operator_takes_what_is_left_for_all_of_it(
    killed: tuple[Path, Rows], tmp_path: Path
) -> None:
    directory = image(killed[0], tmp_path / "index")
    log = newest(directory, "*.log")
    flip(log, log.stat().st_size // 2, 1)
    replayed, synced = accept_index_loss(str(directory))
    assert replayed < synced == 30 + WRITES

    async def use(lanes: Lanes) -> None:
        for number in range(2):
            index = await opened(lanes, directory)
            assert index.synced == synced + 1 + number, "numbers are never given twice"
            assert len(await index.scan(b"n", b"o", limit=10_000)) > 1000
            await index.write([(b"after", b"1")], sync=True)
            await index.close()

    in_loop(use)


def test_an_operator_takes_an_index_with_a_gap(tmp_path: Path) -> None:
    """The newest table is gone, and the log that follows it is whole."""
    # One flush: a compaction would have deleted the tables that the cut manifest names.
    rows = make_killed(tmp_path, 100)
    directory = tmp_path / "killed"
    manifest = newest(directory, "MANIFEST*")
    while outcome(image(directory, tmp_path / "copy"), rows) == "whole":
        with manifest.open("r+b") as file:
            file.truncate(manifest.stat().st_size - 20)
    accept_index_loss(str(directory))
    in_loop(lambda lanes: _reopen(lanes, directory))


async def _reopen(lanes: Lanes, directory: Path) -> None:
    await (await opened(lanes, directory)).close()


def test_an_index_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    from rocksdict import Options, Rdict

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    old = Rdict(str(tmp_path / "index"), options)
    old[b"a"] = b"1"
    old.close()

    async def use(lanes: Lanes) -> None:
        for _ in range(2):
            index = await opened(lanes, tmp_path / "index")
            assert await index.get_many([b"a"]) == [b"1"]
            await index.write([(b"b", b"1")], sync=True)
            await index.close()

    in_loop(use)


def test_after_a_failed_write_nothing_more_is_written(tmp_path: Path) -> None:
    async def use(lanes: Lanes) -> None:
        index = await opened(lanes, tmp_path / "index")
        await index.write([(b"a", b"1")], sync=True)
        index._synced_file.close()
        os.unlink(synced_path(str(tmp_path / "index")))
        with pytest.raises(FileNotFoundError):
            await index.write([(b"b", b"1")], sync=True)
        with pytest.raises(OSError, match="takes no more writes"):
            await index.write([(b"c", b"1")], sync=True)
        assert index.synced == 1
        await index.close()

    in_loop(use)


def test_errors_of_rocksdb_are_oserrors(tmp_path: Path) -> None:
    async def use(lanes: Lanes) -> None:
        index = await opened(lanes, tmp_path / "index")
        await index.close()
        for work in (
            index.get_many([b"a"]),
            index.scan(b"a", b"b", limit=1),
            index.write([(b"a", b"1")], sync=True),
        ):
            with pytest.raises(OSError, match="failed"):
                await work

    in_loop(use)


def test_a_kill_while_an_index_is_first_made_does_not_keep_it_from_being_made(
    tmp_path: Path,
) -> None:
    """RocksDB writes its manifest before the file that names it."""
    directory = tmp_path / "index"
    in_loop(lambda lanes: _reopen(lanes, directory))
    for path in [*directory.glob("*.log"), *directory.glob("*.sst"), directory / "CURRENT"]:
        path.unlink()
    assert list(directory.glob("MANIFEST*"))
    SyncedFile(synced_path(str(directory))).create(0)
    in_loop(lambda lanes: _reopen(lanes, directory))


def test_a_damaged_table_is_named_as_such_when_it_is_read(tmp_path: Path) -> None:
    make_killed(tmp_path, WRITES)
    killed = image(tmp_path / "index", tmp_path / "damaged")

    async def read_all(lanes: Lanes) -> None:
        index = await opened(lanes, killed)
        try:
            await index.scan(b"", b"\xff", limit=10_000)
        finally:
            await index.close()

    for table in killed.glob("*.sst"):
        data = bytearray(table.read_bytes())
        data[len(data) // 3] ^= 4
        table.write_bytes(data)
    with pytest.raises(IndexCorrupt, match="Corruption"):
        in_loop(read_all)
