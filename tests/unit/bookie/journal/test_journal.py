"""Journal files that are used again: which ones, under which name, and when their space is given
back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pulsarish.bookie.journal.journal import Journal
from pulsarish.bookie.journal.journal_format import JournalScanner, RecordType, file_name
from pulsarish.bookie.journal.mark import read_file
from pulsarish.runtime.seams import World
from pulsarish.sim.world.disk import Inode, SimDisk
from pulsarish.sim.world.world import Simulation

FILE_BYTES = 4096
PAYLOAD = b"p" * 960
"""Four records of this fit into a file beside its header."""


def play(work: Callable[[World, SimDisk, Journal], Awaitable[None]]) -> None:
    """Run ``work`` with an open journal."""
    sim = Simulation(1)

    async def scenario(world: World) -> None:
        journal = Journal(
            world.files,
            world.tasks,
            world.clock,
            directory="/j",
            instance_id="b1~0",
            record_key=0x0123456789ABCDEF,
            first_file_id=1,
            next_sequence=0,
            file_size_bytes=FILE_BYTES,
            group_size_bytes=FILE_BYTES,
            prepare_slice_bytes=FILE_BYTES,
            slow_sync_ms=1000,
        )
        await journal.open()
        await work(world, sim.nodes["b1"].disk, journal)

    sim.run(lambda: sim.node("b1").run(scenario))


async def fill(journal: Journal, files_count: int, payload: bytes = PAYLOAD) -> None:
    """Add records until the journal has begun so many further files."""
    first = journal.file_of(journal.queue.next_sequence)
    while journal.file_of(journal.queue.next_sequence) < first + files_count:
        sequence = journal.append(RecordType.ADD, [payload], len(payload))
        await journal.wait_synced(sequence)


def inodes(disk: SimDisk) -> dict[str, Inode]:
    return {path.rpartition("/")[2]: inode for path, inode in disk.names.items()}


def test_files_below_the_mark_become_the_next_ones() -> None:
    async def work(_world: World, disk: SimDisk, journal: Journal) -> None:
        await fill(journal, 2)
        before = inodes(disk)
        assert list(before) == [file_name(each) for each in (1, 2, 3, 4)]
        await journal.release_below(3)
        assert inodes(disk) == before, "they wait under their old names"
        await fill(journal, 2)
        after = inodes(disk)
        assert sorted(after) == [file_name(each) for each in (3, 4, 5, 6)]
        assert {id(after[file_name(each)]) for each in (5, 6)} == {
            id(before[file_name(each)]) for each in (1, 2)
        }

    play(work)


def test_a_file_that_is_used_again_reads_as_itself_only() -> None:
    async def work(world: World, disk: SimDisk, journal: Journal) -> None:
        for _ in range(3):
            await fill(journal, 2)
            await journal.release_below(journal.file_of(journal.queue.next_sequence))
        sequences: list[int] = []
        scanner = JournalScanner("/j", 0)
        current = journal.file_of(journal.queue.next_sequence)
        for file_id in (current, current + 1):
            data = await read_file(world.files, f"/j/{file_name(file_id)}")
            assert data is not None
            assert data.count(0) < len(data), "both have had an earlier life"
            assert len(data) == FILE_BYTES
            sequences += [each.sequence for each in scanner.scan(file_id, data) if each.offset]
        assert sequences[-1] == journal.queue.next_sequence - 1
        assert scanner.finish().next_sequence == journal.queue.next_sequence

    play(work)


def test_two_files_are_kept_at_most() -> None:
    async def work(_world: World, disk: SimDisk, journal: Journal) -> None:
        await fill(journal, 5)
        await journal.release_below(6)
        assert list(inodes(disk)) == [file_name(each) for each in (1, 2, 6, 7)]

    play(work)


def test_a_file_that_has_grown_is_not_used_again() -> None:
    async def work(_world: World, disk: SimDisk, journal: Journal) -> None:
        await fill(journal, 1, b"p" * 2 * FILE_BYTES)
        assert inodes(disk)[file_name(1)].current.size > FILE_BYTES
        await journal.release_below(2)
        assert list(inodes(disk)) == [file_name(each) for each in (2, 3)]

    play(work)


def test_files_are_not_kept_while_space_is_needed() -> None:
    async def work(_world: World, disk: SimDisk, journal: Journal) -> None:
        await fill(journal, 2)
        await journal.release_below(2)
        await journal.keep_spares(False)
        assert list(inodes(disk)) == [file_name(each) for each in (2, 3, 4)]
        await journal.release_below(3)
        assert list(inodes(disk)) == [file_name(each) for each in (3, 4)]
        await journal.keep_spares(True)
        await fill(journal, 1)
        await journal.release_below(4)
        assert list(inodes(disk)) == [file_name(each) for each in (3, 4, 5)]

    play(work)


def test_a_stopped_journal_leaves_the_files_that_have_records_above_the_mark() -> None:
    async def work(_world: World, disk: SimDisk, journal: Journal) -> None:
        await fill(journal, 3)
        await journal.release_below(3)
        await journal.stop()
        assert list(inodes(disk)) == [file_name(each) for each in (3, 4)]

    play(work)
