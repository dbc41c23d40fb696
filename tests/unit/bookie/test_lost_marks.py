"""A bookie with a damaged mark, cookie or index says what decides, and that does."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from pulsarish.bookie.journal.mark import MARK_NAME
from pulsarish.bookie.store import EntryStore
from pulsarish.model.errors import CorruptData
from tests.support.bookie_disks import BookieDisks
from tests.support.bookies import make_record


async def add_some(disks: BookieDisks, store: EntryStore, first: int) -> None:
    for entry in range(first, first + 20):
        await disks.add(store, [make_record(1, entry, b"%d" % entry * 300)])


def filled(home: Path) -> BookieDisks:
    """Killed, with entries in the logs and others in the journal only."""
    disks = BookieDisks(home)

    async def fill(store: EntryStore) -> None:
        await add_some(disks, store, 0)
        await store.checkpoint()
        await add_some(disks, store, 20)

    disks.with_store(fill)

    async def more(store: EntryStore) -> None:
        await add_some(disks, store, 40)

    disks.with_store(more, crash=True)
    return disks


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_a_lost_mark_is_given_up_by_the_option_that_it_names(tmp_path: Path, damage: str) -> None:
    disks = filled(tmp_path / "first")
    path = Path(disks.config.ledger_path) / MARK_NAME
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b"sequence", b"sequenze"))

    # What refuses to start keeps its files open until its process ends.
    shutil.copytree(tmp_path / "first", tmp_path / "second")

    async def must_not_start(_store: EntryStore) -> None:
        raise AssertionError("it started")

    with pytest.raises(CorruptData, match='journal_corruption = "limbo"') as caught:
        disks.with_store(must_not_start)
    assert str(path) in str(caught.value)
    disks = BookieDisks(tmp_path / "second")
    disks.config = msgspec.structs.replace(disks.config, journal_corruption="limbo")

    async def everything(store: EntryStore) -> None:
        assert store.limbo_below == 1000
        rows = await store.index.entry_locations(1, 0, 100)
        assert len(rows) == 60, "what the journal holds is replayed"

    disks.with_store(everything)
    disks.config = msgspec.structs.replace(disks.config, journal_corruption="refuse")
    disks.with_store(everything)


def test_a_table_of_the_index_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    disks = filled(tmp_path)

    async def nothing(_store: EntryStore) -> None:
        pass

    disks.with_store(nothing)  # the start puts the log of the index into a table
    for table in (tmp_path / "data/index/rows").glob("*.sst"):
        data = bytearray(table.read_bytes())
        data[len(data) // 10] ^= 4
        table.write_bytes(data)
    result = disks.command("verify", "-o", "json")
    assert result.exit_code == 1
    assert "pulsarish storage rebuild-index" in result.output, result.output
