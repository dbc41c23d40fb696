"""The index of a real bookie process is damaged: it refuses to start, or answers errors, and is
rebuilt from the entry logs.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pulsarish.model.errors import BookieIOError, EntryUnknown, LedgerFenced
from tests.integration.test_bookie_process import Process, talk
from tests.support.bookies import BookieClient, make_record

ENTRIES = 400
PER_ADD = 20


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a bookie that was killed when its entries were in the entry logs and, of the
    index, in RocksDB's log.
    """
    bookie = Process(tmp_path_factory.mktemp("bookie"))
    bookie.up()

    async def begin(client: BookieClient) -> None:
        assert set((await client.add([make_record(3, 0, b"x")])).values()) == {0}

    talk(bookie, begin)
    bookie.kill()
    bookie.up()  # and notes in the metadata that these ledger ids are in use

    async def fill(client: BookieClient) -> None:
        for first in range(0, ENTRIES, PER_ADD):
            records = [
                make_record(ledger, entry, b"%d/%d" % (ledger, entry))
                for entry in range(first, first + PER_ADD)
                for ledger in (1, 2)
            ]
            assert set((await client.add(records)).values()) == {0}
        assert (await client.fence(2))[0] == 0
        # Later than the next two checkpoints nothing of this is needed of the journal.
        for entry in range(1, 4):
            await asyncio.sleep(0.5)
            assert set((await client.add([make_record(3, entry, b"x")])).values()) == {0}
        await asyncio.sleep(0.5)

    talk(bookie, fill)
    bookie.kill()
    return bookie.home


def copied(filled: Path, target: Path) -> Process:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(filled, target)
    # The cookie knows its directories by name only.
    return Process(target)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def newest_log(bookie: Process) -> Path:
    return max((bookie.home / "data/index/rows").glob("*.log"))


def rebuild(bookie: Process) -> subprocess.CompletedProcess[str]:
    settings = [
        "bookie_id=b1",
        f"metadata_url=embedded:{bookie.home}/metadata",
        f"data_directory={bookie.home}/data",
    ]
    command = [
        sys.executable,
        "-m",
        "pulsarish",
        "storage",
        "rebuild-index",
        "-o",
        "json",
        *(f"--set={each}" for each in settings),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_flipped_bit_in_the_log_of_the_index_is_refused(filled: Path, tmp_path: Path) -> None:
    chance = random.Random(1)
    size = newest_log(Process(filled)).stat().st_size
    for at in (0, size // 2, size - 3, chance.randrange(size)):
        bookie = copied(filled, tmp_path / "bookie")
        flip(newest_log(bookie), at)
        process = bookie.start()
        _, text = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "synced writes are missing" in text
        assert "pulsarish storage rebuild-index" in text


def test_an_older_index_with_its_file_is_refused_because_of_the_mark(
    filled: Path, tmp_path: Path
) -> None:
    bookie = copied(filled, tmp_path / "bookie")
    index = bookie.home / "data/index"
    shutil.copytree(index, tmp_path / "older")
    bookie.up()

    async def more(client: BookieClient) -> None:
        assert set((await client.add([make_record(3, 10, b"y")])).values()) == {0}
        await asyncio.sleep(0.8)

    talk(bookie, more)
    bookie.kill()
    shutil.rmtree(index)
    (tmp_path / "older").rename(index)
    process = bookie.start()
    _, text = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "is older than the mark" in text


def test_a_rebuilt_index_gives_every_entry_and_no_negative(filled: Path, tmp_path: Path) -> None:
    bookie = copied(filled, tmp_path / "bookie")
    flip(newest_log(bookie), 100)
    done = rebuild(bookie)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["entries"] >= 2 * ENTRIES
    assert report["unreadable_records"] == 0
    assert Path(report["old_index"]).is_dir()
    bookie.up()

    async def look(client: BookieClient) -> None:
        for ledger in (1, 2):
            code, found = await client.read(ledger, 0, ENTRIES - 1)
            assert (code, len(found)) == (0, ENTRIES)
            assert found[7] == b"%d/7" % ledger
            assert (await client.read(ledger, ENTRIES, ENTRIES))[0] == EntryUnknown.code
        # The fence of ledger 2 was in the index alone; whether ledger 1 was fenced is not known
        # either.
        for ledger in (1, 2):
            codes = await client.add([make_record(ledger, ENTRIES, b"late")])
            assert set(codes.values()) <= {EntryUnknown.code, LedgerFenced.code}

    talk(bookie, look)
    running = rebuild(bookie)
    assert (running.returncode, "in use by process" in running.stderr) == (1, True), running.stderr
    bookie.kill()
    bookie.up()
    talk(bookie, look)
    bookie.kill()


def test_a_flipped_bit_in_a_table_is_never_an_absence(filled: Path, tmp_path: Path) -> None:
    bookie = copied(filled, tmp_path / "bookie")
    bookie.up()
    bookie.kill()  # the start has put the log into tables
    whole = bookie.home
    tables = sorted((whole / "data/index/rows").glob("*.sst"))
    assert tables
    refused = unreadable = 0
    for share in (0.02, 0.3, 0.6):
        other = copied(whole, tmp_path / "other")
        table = max(
            (other.home / "data/index/rows").glob("*.sst"), key=lambda path: path.stat().st_size
        )
        flip(table, int(table.stat().st_size * share))
        process = other.start()
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            _, text = process.communicate()
            assert "rebuild-index" in text
            refused += 1
            continue
        other.process, other.address = process, line.split()[-2].split("=")[1]
        codes = read_codes(other)
        assert set(codes) <= {0, BookieIOError.code}
        unreadable += BookieIOError.code in codes
        other.kill()
    assert refused + unreadable > 0


def read_codes(bookie: Process) -> list[int]:
    """Of reads of single entries."""
    codes: list[int] = []

    async def read(client: BookieClient) -> None:
        codes.extend(
            [
                (await client.read(ledger, entry, entry))[0]
                for ledger in (1, 2)
                for entry in range(0, ENTRIES, 40)
            ]
        )

    talk(bookie, read)
    return codes
