"""``pulsarish storage verify``: what is damaged or missing is found and named, and nothing else."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pulsarish.bookie.inspection.logs import InspectedLogs
from pulsarish.bookie.inspection.verify import Verification
from pulsarish.bookie.ledger_index import entry_key
from pulsarish.bookie.store import EntryStore
from pulsarish.cli.storage.access import inspect
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie
from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)
from pulsarish.runtime.seams import Op
from tests.support.bookie_disks import INSTANCE, BookieDisks
from tests.support.bookies import make_record

ENTRIES = 40
LEDGERS = (3, 4)


async def fill(disks: BookieDisks, store: EntryStore) -> None:
    for first in range(0, ENTRIES, 4):
        await disks.add(
            store,
            [
                make_record(ledger, entry, b"x" * 1000)
                for ledger in LEDGERS
                for entry in range(first, first + 4)
            ],
        )
    await store.checkpoint()
    await disks.add(store, [make_record(5, entry, b"late") for entry in range(4)])


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


def verified(disks: BookieDisks, *words: str) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
    result = disks.command("verify", *words, "-o", "json")
    assert result.stdout.startswith("{"), result.output
    found = json.loads(result.stdout)
    return result.exit_code, found["counts"], found["findings"]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def ledger(
    ledger_id: int,
    last_entry: int,
    *,
    members: tuple[str, ...] = (INSTANCE,),
    write_quorum: int = 1,
    state: LedgerState = LedgerState.CLOSED,
) -> LedgerMetadata:
    return LedgerMetadata(
        ledger_id,
        len(members),
        write_quorum,
        1,
        LedgerPurpose(PurposeKind.DIAGNOSTIC, "test"),
        (Segment(0, members),),
        state=state,
        last_entry=last_entry,
    )


def put_ledgers(disks: BookieDisks, *ledgers: LedgerMetadata) -> None:
    async def work(records: Records) -> None:
        for each in ledgers:
            await records.compare_and_set(paths.ledger(each.ledger_id), each, None)

    disks.with_metadata(work)


def test_a_whole_bookie_has_no_findings(disks: BookieDisks) -> None:
    put_ledgers(disks, *(ledger(each, ENTRIES - 1) for each in LEDGERS), ledger(5, 3))
    status, counts, findings = verified(disks, "--metadata")
    assert (status, findings) == (0, [])
    assert (counts["ledgers"], counts["index_entries"], counts["log_entries"]) == (2, 80, 80)
    assert (counts["journal_records"], counts["metadata_ledgers"]) == (1, 3)
    result = disks.command("verify")
    assert result.exit_code == 0
    assert "verified: 80 entries of the index in 2 ledgers" in result.output
    assert "nothing is wrong" in result.output


def test_several_volumes_are_compared_with_the_metadata_together(
    disks: BookieDisks, tmp_path: Path
) -> None:
    other = BookieDisks(tmp_path / "other")

    async def add(store: EntryStore) -> None:
        await other.add(store, [make_record(7, entry, b"other") for entry in range(4)])
        await store.checkpoint()

    other.with_store(add)
    lists = [
        f"--set={kind}_directories={mine},{theirs}"
        for kind, mine, theirs in zip(
            ("journal", "ledger", "index"), disks.directories, other.directories, strict=True
        )
    ]
    put_ledgers(disks, *(ledger(each, ENTRIES - 1) for each in LEDGERS), ledger(5, 3), ledger(7, 3))
    status, counts, findings = verified(disks, "--metadata", *lists)
    assert (status, findings) == (0, [])
    assert (counts["ledgers"], counts["index_entries"], counts["metadata_ledgers"]) == (3, 84, 4)
    one = ("--volume", other.config.ledger_path)
    assert verified(disks, *one, *lists)[1]["index_entries"] == 4
    # What no volume has is missing, whichever of them is verified.
    put_ledgers(disks, ledger(8, 0))
    for words in ((), one):
        status, _, (missing,) = verified(disks, "--metadata", *words, *lists)
        assert (status, missing["finding"], missing["ledger"]) == (1, "ledger-missing", 8)
    # The bookie says itself that it does not know: a volume was lost.
    limbo = '{"ledgers_below":0,"reason":"r","times":1,"absent_below":9,"lost":["1"]}'
    Path(f"{other.config.ledger_path}/limbo").write_text(limbo)
    assert verified(disks, "--metadata", *lists)[0] == 0
    # A volume that cannot be read is named, and then nothing is missed.
    shutil.rmtree(f"{other.config.index_path}/rows", ignore_errors=True)
    Path(f"{other.config.ledger_path}/limbo").write_text("damaged")
    status, _, findings = verified(
        disks, "--metadata", "--volume", disks.config.ledger_path, *lists
    )
    assert (status, [each["finding"] for each in findings]) == (1, ["index"])
    assert "the metadata are not compared" in findings[0]["reason"]


def test_copies_that_the_metadata_do_not_name_are_not_missed(disks: BookieDisks) -> None:
    async def drop(store: EntryStore) -> None:
        page = await store.index.entry_locations(LEDGERS[0], 0, ENTRIES)
        await store.index.drop_entries(LEDGERS[0], page[:10])

    disks.with_store(drop)
    status, counts, findings = verified(disks)
    assert (status, findings) == (0, [])
    assert counts["log_entries"] > counts["index_entries"]
    put_ledgers(disks, *(ledger(each, ENTRIES - 1) for each in LEDGERS), ledger(5, 3))
    status, _, (missing,) = verified(disks, "--metadata")
    assert (status, missing["finding"], missing["entries"]) == (1, "entries-missing", 10)


def test_a_bookie_that_is_written_meanwhile_has_no_findings(tmp_path: Path) -> None:
    disks = BookieDisks(tmp_path)

    async def work(store: EntryStore) -> None:
        await fill(disks, store)
        look = asyncio.create_task(asyncio.to_thread(verified, disks))
        entry = 0
        while not look.done():
            records = [make_record(9, entry + more, b"y" * 500) for more in range(10)]
            await disks.add(store, records)
            entry += 10
            await store.checkpoint()
        assert (await look)[::2] == (0, [])
        assert entry > 10

    disks.with_store(work)


def test_an_entry_that_cannot_be_read_is_named_with_its_place(disks: BookieDisks) -> None:
    rows = disks.rows("entry-log", "dump", "0")
    bad = rows[3]
    flip(Path(bad["file"]), bad["offset"] + 100)
    status, _, findings = verified(disks)
    assert status == 1
    kinds = {each["finding"]: each for each in findings}
    assert set(kinds) == {"entry-unreadable", "log-damaged"}
    found = kinds["entry-unreadable"]
    assert (found["ledger"], found["first"], found["last"]) == (
        bad["ledger"],
        bad["entry"],
        bad["entry"],
    )
    assert (found["file"], found["offset"]) == (bad["file"], bad["offset"])
    assert "CRC32C" in found["reason"]
    assert found["decides"] == f"pulsarish bookies recover b1 --ledger {bad['ledger']}"
    text = disks.command("verify").output
    assert (
        f"entry-unreadable: ledger {bad['ledger']}, entry {bad['entry']}, {bad['file']} at" in text
    )
    assert f"  decides: pulsarish bookies recover b1 --ledger {bad['ledger']}\n" in text


def test_a_deleted_log_leaves_entries_unreadable(disks: BookieDisks) -> None:
    lost = disks.rows("entry-log", "dump", "0")
    Path(lost[0]["file"]).unlink()
    status, counts, findings = verified(disks)
    assert status == 1
    assert {each["finding"] for each in findings} == {"entry-unreadable"}
    assert sum(each["entries"] for each in findings) == len(lost)
    assert counts["index_entries"] == 80


def test_rows_that_the_index_lost_are_found_in_the_logs(disks: BookieDisks) -> None:
    async def forget(store: EntryStore) -> None:
        keys = [entry_key(3, entry) for entry in (7, 8, ENTRIES - 1)]
        await store.index.rows.write([], keys, sync=True)

    disks.with_store(forget)
    status, _, findings = verified(disks)
    (found,) = findings
    assert (status, found["finding"], found["ledger"]) == (1, "entry-not-in-index", 3)
    # No entry above the LAC was acknowledged to a writer, as far as this bookie knows.
    assert (found["entries"], found["first"], found["last"]) == (2, 7, 8)
    assert "bookies recover b1 --ledger 3" in found["decides"]


def test_a_row_that_the_index_lacks_does_not_matter_before_the_checkpoint(
    disks: BookieDisks,
) -> None:
    async def forget(store: EntryStore) -> None:
        await disks.add(store, [make_record(3, ENTRIES, b"x"), make_record(3, ENTRIES + 1, b"x")])
        await store.checkpointer.flush()  # into logs and index, and the mark stays
        await store.index.rows.write([], [entry_key(3, ENTRIES)], sync=True)

    disks.with_store(forget, crash=True)
    assert verified(disks)[::2] == (0, [])


def test_damage_to_the_journal_is_wrong_above_the_mark_only(disks: BookieDisks) -> None:
    adds = [row for row in disks.rows("journal", "dump") if row.get("type") == "ADD"]
    flip(Path(adds[0]["file"]), adds[0]["offset"] + 60)
    assert verified(disks)[0] == 0
    (mark,) = disks.rows("last-mark")
    needed = Path(disks.config.journal_path, f"{mark['file_id']:010d}.journal")
    needed.unlink()
    status, _, findings = verified(disks)
    assert status == 1
    assert [each["finding"] for each in findings] == ["journal"]
    assert f"{needed} is missing" in findings[0]["reason"]


def test_a_journal_that_ends_before_what_the_metadata_know_is_wrong(disks: BookieDisks) -> None:
    async def later(records: Records) -> None:
        found = await records.get(paths.cookie("b1"), Cookie)
        assert found is not None
        cookie = msgspec.structs.replace(found[0], journal_position=10_000)
        await records.compare_and_set(paths.cookie("b1"), cookie, found[1])

    assert verified(disks, "--metadata")[0] == 0
    disks.with_metadata(later)
    status, _, findings = verified(disks, "--metadata")
    assert status == 1
    assert "is older than it was" in findings[0]["reason"]


def test_cookies_and_mark_are_verified(disks: BookieDisks) -> None:
    Path(disks.config.journal_path, "cookie").unlink()
    flip(Path(disks.config.ledger_path, "last-mark"), 12)
    status, _, findings = verified(disks)
    assert status == 1
    assert [each["finding"] for each in findings] == ["cookie", "mark"]
    assert "pulsarish storage cookie create" in findings[0]["decides"]


def test_an_index_that_lost_synced_rows_is_named(disks: BookieDisks) -> None:
    rows = Path(disks.config.index_path, "rows")
    for each in rows.glob("*.sst"):
        each.unlink()
    for each in rows.glob("*.log"):
        each.write_bytes(b"")
    status, _, findings = verified(disks)
    assert status == 1
    assert [each["finding"] for each in findings] == ["index"]
    assert "storage rebuild-index" in findings[0]["decides"]


def test_a_log_that_the_index_does_not_know_is_named(disks: BookieDisks) -> None:
    source = disks.rows("entry-log", "dump", "0")[0]["file"]
    shutil.copy(source, Path(disks.config.ledger_path) / "0000000099.log")
    findings = verified(disks)[2]
    assert [each["finding"] for each in findings] == ["log-unknown", "log-damaged"]


def test_what_the_metadata_name_and_the_bookie_lacks_is_found(disks: BookieDisks) -> None:
    others = ("a~1", INSTANCE, "c~1")
    put_ledgers(
        disks,
        ledger(3, ENTRIES + 5, members=others, write_quorum=2),
        ledger(6, 3),
        ledger(7, 0, members=others),  # entry 0 is on the first member only
        ledger(8, -1, state=LedgerState.OPEN),
    )
    status, _, findings = verified(disks, "--metadata")
    assert status == 1
    by_kind = {(each["finding"], each["ledger"]): each for each in findings}
    assert set(by_kind) == {
        ("ledger-unnamed", 4),
        ("entries-missing", 3),
        ("ledger-missing", 6),
    }
    # Of 40 to 45, entries e with e mod 3 of 0 and 1 are on the second of three members.
    missing = by_kind["entries-missing", 3]
    assert (missing["entries"], missing["first"], missing["last"]) == (4, 40, 45)
    assert by_kind["ledger-missing", 6]["decides"] == "pulsarish bookies recover b1 --ledger 6"
    assert by_kind["ledger-unnamed", 4]["wrong"] is False


def test_a_ledger_that_no_metadata_name_is_no_fault_of_the_bookie(disks: BookieDisks) -> None:
    status, _, findings = verified(disks, "--metadata")
    assert status == 0
    assert [(each["finding"], each["ledger"]) for each in findings] == [
        ("ledger-unnamed", 3),
        ("ledger-unnamed", 4),
    ]


def test_a_record_that_cannot_be_read_hides_no_other(disks: BookieDisks) -> None:
    async def spoil(records: Records) -> None:
        await records.make_parents(paths.ledger(4))
        await records.commit([Op("create", paths.ledger(4), b"{")])

    put_ledgers(disks, ledger(3, ENTRIES - 1), ledger(6, 3))
    disks.with_metadata(spoil)
    status, _, findings = verified(disks, "--metadata")
    assert status == 1
    assert [(each["finding"], each["ledger"]) for each in findings] == [
        ("metadata", 4),
        ("ledger-missing", 6),
    ]


def test_every_byte_that_is_read_counts_for_the_rate(disks: BookieDisks) -> None:
    taken: list[float] = []

    async def rate(count: float) -> None:
        taken.append(count)

    async def work(inspected: Any) -> None:
        await Verification(inspected, "b1", rate=rate).run(None)

    inspect(disks.config, work)
    journals = sum(
        each.stat().st_size for each in Path(disks.config.journal_path).glob("*.journal")
    )
    assert sum(taken) == journals + 2 * 80 * 1036
    result = disks.command("verify", "--rate", "0")
    assert result.exit_code == 2
    assert "would never end" in result.output


def test_a_place_that_is_whole_at_the_second_look_is_no_damage(
    disks: BookieDisks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bookie may be writing the end of its log while it is read."""
    read, half_written = InspectedLogs.read, [True]

    async def racing(logs: InspectedLogs, locations: Any) -> Any:
        found = await read(logs, locations)
        if half_written and len(locations) == ENTRIES:  # a chunk, not a page of the index
            half_written.pop()
            found[0] = bytes(len(found[0]))  # type: ignore[arg-type]
        return found

    monkeypatch.setattr(InspectedLogs, "read", racing)
    assert verified(disks)[::2] == (0, [])
    assert not half_written
    monkeypatch.undo()
    flip(Path(disks.rows("entry-log", "dump", "0")[0]["file"]), 24 + 9)
    assert "log-damaged" in {each["finding"] for each in verified(disks)[2]}
