"""``pulsarish storage``: what commands show of a bookie's disks, while it runs and when it is
stopped.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from pulsarish.bookie.cookies import COOKIE_NAME
from pulsarish.bookie.store import EntryStore
from pulsarish.metadata.records import VolumeRecord
from pulsarish.wire.json_record import encode_record
from tests.support.bookie_disks import INSTANCE, BookieDisks
from tests.support.bookies import make_record

LEDGERS = (3, 4)
ENTRIES = 40


async def fill(disks: BookieDisks, store: EntryStore) -> None:
    """Entries of two ledgers in entry logs and index, and newer ones in the journal only."""
    for first in range(0, ENTRIES, 4):
        entries = range(first, first + 4)
        await disks.add(
            store, [make_record(each, entry, b"x" * 1000) for each in LEDGERS for entry in entries]
        )
    _ = await store.fence(4)
    await store.checkpoint()
    await disks.add(store, [make_record(5, 0, b"late"), make_record(5, 1, b"later")])


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    disks = BookieDisks(tmp_path_factory.mktemp("filled"))
    disks.with_store(lambda store: fill(disks, store), crash=True)
    disks.make_tree()
    return disks.home


@pytest.fixture
def disks(filled: Path, tmp_path: Path) -> BookieDisks:
    shutil.copytree(filled, tmp_path / "bookie")
    return BookieDisks(tmp_path / "bookie")


def on_disk(disks: BookieDisks) -> dict[str, tuple[int, int]]:
    """Every file of the bookie, with its size and when it was changed."""
    return {
        path: (status.st_size, status.st_mtime_ns)
        for directory, _, names in os.walk(f"{disks.home}/data")
        for name in names
        if (status := os.stat(path := f"{directory}/{name}"))
    }


def logs_of(disks: BookieDisks) -> list[Path]:
    return sorted(Path(disks.config.ledger_path).glob("*.log"))


def journals_of(disks: BookieDisks) -> list[Path]:
    return sorted(Path(disks.config.journal_path).glob("*.journal"))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


READS = (
    ("journal", "list"),
    ("journal", "dump"),
    ("entry-log", "list"),
    ("entry-log", "dump", "0"),
    ("index", "dump", "3"),
    ("ledger", "list"),
    ("ledger", "dump", "3"),
    ("last-mark",),
    ("cookie", "show"),
)


def test_commands_that_read_change_no_file_of_a_stopped_bookie(disks: BookieDisks) -> None:
    before = on_disk(disks)
    for words in READS:
        result = disks.command(*words)
        assert result.exit_code == 0, (words, result.output)
        assert "DAMAGED /" not in result.output
    assert on_disk(disks) == before


def test_one_of_several_volumes_is_named(disks: BookieDisks) -> None:
    kinds = ("journal", "ledger", "index")
    lists = [
        f"--set={kind}_directories={here},{disks.home}/other-{kind}"
        for kind, here in zip(kinds, disks.directories, strict=True)
    ]
    ledgers = disks.config.ledger_path
    refused = disks.command("ledger", "list", *lists)
    assert refused.exit_code == 1, refused.output
    assert f"--volume is needed; the ledger directories are {ledgers}, " in refused.output
    strange = disks.command("ledger", "list", "--volume", "/nowhere", *lists)
    assert strange.exit_code == 1
    assert "--volume names no volume: /nowhere; " in strange.output
    found = disks.command("ledger", "list", "--volume", ledgers, *lists)
    assert found.exit_code == 0, found.output
    assert found.output == disks.command("ledger", "list").output


def test_a_volume_that_was_added_while_the_bookie_ran_is_not_left_out(disks: BookieDisks) -> None:
    other = [f"{disks.home}/other/{kind}" for kind in ("journal", "ledger", "index")]
    added = msgspec.structs.replace(disks.cookie, volume="1f")
    noted = {"1f": VolumeRecord(tuple(other), is_opened=True, is_unlisted=True)}
    own = Path(disks.config.ledger_path) / COOKIE_NAME
    own.write_bytes(encode_record(msgspec.structs.replace(disks.cookie, volumes=noted)))
    for directory in other:
        Path(directory).mkdir(parents=True)
        (Path(directory) / COOKIE_NAME).write_bytes(encode_record(added))
    refused = disks.command("ledger", "list")
    assert refused.exit_code == 1
    assert f"are {disks.config.ledger_path}, {other[1]}" in refused.output
    found = disks.command("ledger", "list", "--volume", disks.config.ledger_path)
    assert found.exit_code == 0
    assert f"also has the volume {other[1]}" in found.output
    # The disk is not mounted: a start would be refused, and what is there can be looked at.
    shutil.rmtree(f"{disks.home}/other")
    assert disks.command("ledger", "list").exit_code == 0


def test_a_running_bookie_is_read_beside_its_lock(tmp_path: Path) -> None:
    disks = BookieDisks(tmp_path)

    async def work(store: EntryStore) -> None:
        await fill(disks, store)
        for words in READS:
            result = await asyncio.to_thread(disks.command, *words)
            assert result.exit_code == 0, (words, result.output)
            assert "DAMAGED /" not in result.output
        shown = await asyncio.to_thread(disks.rows, "ledger", "list")
        assert [row["ledger"] for row in shown] == [3, 4]
        # The bookie goes on, and the next look shows what it wrote.
        await store.checkpoint()
        shown = await asyncio.to_thread(disks.rows, "ledger", "list")
        assert [row["ledger"] for row in shown] == [3, 4, 5]
        await disks.add(store, [make_record(5, 2, b"last")])

    disks.with_store(work)


def test_ledgers_are_listed_with_what_the_index_knows(disks: BookieDisks) -> None:
    third, fourth = disks.rows("ledger", "list")
    assert (third["ledger"], third["fenced"], third["limbo"]) == (3, False, False)
    assert (third["lac"], third["last_entry"]) == (ENTRIES - 2, ENTRIES - 1)
    assert third["log_bytes"] == ENTRIES * 1036
    assert (fourth["ledger"], fourth["fenced"], fourth["state"]) == (4, True, "here")


def test_entries_of_a_ledger_are_read_where_the_index_says(disks: BookieDisks) -> None:
    rows = disks.rows("ledger", "dump", "3", "--first", "10", "--payload")
    assert [row["entry"] for row in rows] == list(range(10, ENTRIES))
    assert rows[0]["payload"] == "eHh4" * 333 + "eA=="
    assert "no row of ledger 5" in disks.command("ledger", "dump", "5").output
    places = disks.rows("index", "dump", "3")
    assert places[0]["last_entry"] == ENTRIES - 1
    assert [row["entry"] for row in places[1:]] == list(range(ENTRIES))


def test_the_journal_shows_what_no_checkpoint_has_written(disks: BookieDisks) -> None:
    (late,) = disks.rows("journal", "dump", "--ledger", "5")
    assert late["type"] == "ADD"
    assert [(each["ledger"], each["entry"]) for each in late["entries"]] == [(5, 0), (5, 1)]
    assert late["text"] == "ledger 5, entries 0 to 1"
    (fence,) = [row for row in disks.rows("journal", "dump") if row.get("type") == "FENCE"]
    assert fence["text"] == "ledger 4"
    (mark,) = disks.rows("last-mark")
    needed = [row for row in disks.rows("journal", "list") if row["state"] == "needed"]
    assert needed[0]["file_id"] == mark["file_id"]
    assert late["sequence"] >= mark["sequence"]


def test_a_damaged_journal_record_is_shown_and_the_next_ones_are_read(disks: BookieDisks) -> None:
    before = [row for row in disks.rows("journal", "dump") if row.get("type") == "ADD"]
    damaged = before[5]
    flip(Path(damaged["file"]), damaged["offset"] + 60)
    after = disks.rows("journal", "dump")
    assert [row for row in after if row.get("type") == "ADD"] == [
        row for row in before if row is not damaged
    ]
    (gap,) = [row for row in after if row.get("damaged")]
    assert (gap["file"], gap["offset"]) == (damaged["file"], damaged["offset"])
    assert "says that it was synced" in gap["reason"]


def test_a_journal_file_without_its_header_is_read_with_the_key_before(disks: BookieDisks) -> None:
    first, second = journals_of(disks)[:2]
    before = len(disks.rows("journal", "dump", "--file", str(int(second.stem))))
    flip(second, 20)
    rows = disks.rows("journal", "dump", "--file", str(int(second.stem)))
    assert rows[0]["damaged"]
    assert rows[0]["reason"] == "the header cannot be read"
    assert len(rows) == before, "the header is one row less, and the damage one more"
    flip(first, 20)  # the key of no file is known now
    rows = disks.rows("journal", "dump", "--file", str(int(first.stem)))
    assert [row["damaged"] for row in rows] == [True]


def test_damage_in_an_entry_log_does_not_end_its_listing(disks: BookieDisks) -> None:
    log = logs_of(disks)[0]
    before = disks.rows("entry-log", "dump", "0")
    assert all(row["live"] for row in before)
    flip(log, before[3]["offset"] + 500)
    rows = disks.rows("entry-log", "dump", "0")
    (bad,) = [row for row in rows if row.get("damaged")]
    assert (bad["file"], bad["offset"]) == (str(log), before[3]["offset"])
    assert "CRC32C" in bad["reason"]
    assert [row for row in rows if row is not bad] == [*before[:3], *before[4:]]


def test_a_chunk_that_cannot_be_read_hides_only_itself(disks: BookieDisks) -> None:
    with_two = next(
        number
        for number in range(len(logs_of(disks)))
        if len({row["ledger"] for row in disks.rows("entry-log", "dump", str(number))}) == 2
    )
    log = logs_of(disks)[with_two]
    before = disks.rows("entry-log", "dump", str(with_two))
    flip(log, 24 + 9)  # in the head of the first chunk
    rows = disks.rows("entry-log", "dump", str(with_two))
    assert rows[0]["damaged"]
    assert rows[0]["offset"] == 24
    hidden = before[0]["ledger"]
    left = [row for row in rows if "entry" in row]
    assert left
    assert left == before[-len(left) :]
    assert any(row["ledger"] != hidden for row in left)
    flip(log, 0)
    rows = disks.rows("entry-log", "dump", str(with_two))
    assert [row["offset"] for row in rows if row.get("damaged")] == [0, 24]


def test_a_torn_end_of_a_log_is_no_damage(disks: BookieDisks) -> None:
    log = logs_of(disks)[-1]
    with log.open("ab") as file:
        file.write(b"torn")
    number = str(int(log.stem))
    rows = disks.rows("entry-log", "dump", number)
    assert rows[-1]["damaged"] is False
    assert "none follows" in rows[-1]["reason"]


def test_logs_are_listed_with_their_rows(disks: BookieDisks) -> None:
    rows = disks.rows("entry-log", "list")
    assert [row["file"] for row in rows] == [str(each) for each in logs_of(disks)]
    assert all(row["in_index"] for row in rows)
    assert sum(row["bytes_put"] for row in rows) == 2 * ENTRIES * 1036
    shutil.copy(logs_of(disks)[0], Path(disks.config.ledger_path) / "0000000099.log")
    assert disks.rows("entry-log", "list")[-1]["in_index"] is False


def test_cookies_are_shown_also_where_one_is_missing_or_damaged(disks: BookieDisks) -> None:
    rows = disks.rows("cookie", "show", "--metadata")
    assert [row["instance_id"] for row in rows] == [INSTANCE] * 4
    Path(disks.config.journal_path, "cookie").unlink()
    Path(disks.config.ledger_path, "cookie").write_text("{")
    journal, ledgers, index = disks.rows("cookie", "show")
    assert journal["problem"] == "there is none"
    assert "ledgers/cookie" in ledgers["problem"]
    assert index["instance_id"] == INSTANCE


def test_directories_that_are_not_there_are_named(tmp_path: Path) -> None:
    result = BookieDisks(tmp_path).command("ledger", "list")
    assert result.exit_code == 1
    assert f"there is no directory {tmp_path}/data/journal" in result.output
