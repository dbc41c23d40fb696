"""An index that was rebuilt from a log that a kill has torn: what is whole is served and collected,
and ``storage verify`` has nothing to say about the torn end.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.entry_logs.entry_log_format import encode_chunk_head
from pulsarish.bookie.store import EntryStore
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import LedgerIds
from pulsarish.runtime.seams import World
from tests.support.bookie_disks import BookieDisks
from tests.support.bookies import BookieBench, BookieClient, make_record
from tests.unit.bookie.test_housekeeping import (
    collect,
    delete_metadata,
    fill,
    make_ledgers,
    present,
)
from tests.unit.bookie.test_rebuild_trash import rebuild

LEDGER = 3
ENTRIES = 60


def torn_chunk(log_id: int) -> bytes:
    """Return a chunk of three records of which the second is cut, as a kill leaves it."""
    records = [make_record(LEDGER, ENTRIES + more, b"torn" * 50) for more in range(3)]
    head = encode_chunk_head(log_id, LEDGER, [len(each) for each in records])
    return head + records[0] + records[1][:50]


TAILS = {
    "no chunk": lambda _log_id: b"torn",
    "sizes": lambda log_id: torn_chunk(log_id)[:30],
    "records": torn_chunk,
    "zeroes": lambda _log_id: bytes(1000),
}


def filled(tmp_path: Path) -> BookieDisks:
    disks = BookieDisks(tmp_path)

    async def fill_it(store: EntryStore) -> None:
        for first in range(0, ENTRIES, 4):
            entries = range(first, first + 4)
            for ledger_id in (LEDGER - 1, LEDGER):
                records = [make_record(ledger_id, each, b"x" * 1000) for each in entries]
                await disks.add(store, records)
        await store.checkpoint()

    disks.with_store(fill_it, crash=True)
    disks.make_tree()
    return disks


def logs_of(disks: BookieDisks) -> list[Path]:
    return sorted(Path(disks.config.ledger_path).glob("*.log"))


def findings(disks: BookieDisks) -> tuple[int, list[dict[str, str]]]:
    result = disks.command("verify", "-o", "json")
    return result.exit_code, json.loads(result.stdout)["findings"]


@pytest.mark.parametrize("name", TAILS)
def test_a_torn_end_is_known_as_such(tmp_path: Path, name: str) -> None:
    disks = filled(tmp_path)
    last = logs_of(disks)[-1]
    with last.open("ab") as file:
        file.write(TAILS[name](int(last.stem)))
    (said,) = disks.rows("rebuild-index")
    assert said["damaged_logs"] == []
    assert list(said["unfinished_logs"]) == ([] if name == "records" else [str(int(last.stem))])
    status, found = findings(disks)
    assert (status, [each for each in found if each["wrong"]]) == (0, [])

    async def look(store: EntryStore) -> int:
        assert await store.index.logs_begun() == [int(each.stem) for each in logs_of(disks)]
        return len(await store.index.entry_locations(LEDGER, 0, 2 * ENTRIES))

    assert disks.with_store(look) == ENTRIES + (name == "records")
    assert findings(disks)[0] == 0


def test_of_a_log_that_a_kill_left_without_a_header_nothing_is_kept(tmp_path: Path) -> None:
    disks = filled(tmp_path)
    empty = Path(disks.config.ledger_path, f"{int(logs_of(disks)[-1].stem) + 1:010d}.log")
    empty.write_bytes(b"")
    (said,) = disks.rows("rebuild-index")
    assert said["damaged_logs"] == []
    assert findings(disks) == (0, [])


def test_a_damaged_log_has_a_remedy_that_ends_the_finding(tmp_path: Path) -> None:
    disks = filled(tmp_path)
    first = logs_of(disks)[0]
    data = bytearray(first.read_bytes())
    data[24 + 9] ^= 4  # in the head of its first chunk, and others follow
    first.write_bytes(data)
    (said,) = disks.rows("rebuild-index")
    assert said["damaged_logs"] == [0]
    status, found = findings(disks)
    (unknown,) = [each for each in found if each["wrong"]]
    assert (status, unknown["finding"], unknown["file"]) == (1, "log-unknown", str(first))
    assert "pulsarish storage rebuild-index" not in unknown["decides"]
    assert unknown["decides"].startswith("move the file away with the bookie stopped")
    first.rename(tmp_path / "aside")
    assert findings(disks) == (0, [])


def test_the_space_of_a_torn_log_comes_back() -> None:
    bench = BookieBench(1)

    async def give_out(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        await records.update(paths.LEDGER_IDS, LedgerIds, lambda _found: LedgerIds(10))

    async def tear(bookie: Bookie) -> list[int]:
        store = bookie.store
        async with store.checkpointer.lock:
            log_id, offset = store.logs.end
            inode = bench.node.disk.names[store.logs.path(log_id)]
            inode.change((offset, torn_chunk(log_id)))
            inode.sync(len(inode.unsynced))
            return await store.logs.ids()

    async def scenario() -> None:
        await bench.client_node.run(give_out)
        await bench.client()
        await make_ledgers(bench, 1, 2, LEDGER)
        await fill(bench, 1, 2, LEDGER, entries=ENTRIES)
        logs = await bench.in_bookie(tear)
        await rebuild(bench)
        for ledger_id in (1, 2):
            await delete_metadata(bench, paths.ledger(ledger_id))
        for _ in range(3):
            await collect(bench)
            await asyncio.sleep(bench.config.trash_grace_seconds + 1.0)
        left = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
        assert not set(logs) & set(left), "the torn log was rewritten as the others"
        assert bench.bookie.garbage.unreadable_logs == {}
        assert await present(bench, LEDGER, ENTRIES)

        async def read_last(client: BookieClient) -> None:
            assert await client.read(LEDGER, ENTRIES, ENTRIES) == (0, {ENTRIES: b"torn" * 50})

        await bench.with_client(read_last)

    bench.sim.run(scenario, 1000.0)
