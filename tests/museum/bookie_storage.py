"""Exhibits about a bookie's disk: the journal, entry logs, the mark, and the deletion and
compaction of what is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pulsarish.bookie.checkpoint import Checkpointer
from pulsarish.bookie.garbage import GarbageCollector
from pulsarish.metadata import paths
from pulsarish.model.errors import CorruptData, LedgerFenced
from pulsarish.sim.mutants.catalogue import MUTANTS
from pulsarish.sim.workloads.safeguard import Patch, all_replaced, replaced, replacing
from pulsarish.sim.world.files import SimFile
from tests.museum.exhibit import Defect, Exhibit, Kind, from_mutant
from tests.support.bookies import BookieBench, BookieClient, make_record
from tests.unit.bookie.test_housekeeping import (
    collect,
    delete_metadata,
    fill,
    make_ledgers,
    present,
)

__all__ = ["EXHIBITS"]

MEMORY_BYTES: Final = 1 << 30
DAMAGE: Final = {
    "the header": (2, 0),
    "a chunk's magic": (25, 0),
    "a chunk's count": (40, 7),
    "a size": (50, 1),
    "a record": (400, 3),
}
"""What is damaged in an entry log: the byte, and its bit that is turned over."""


# -- apache/bookkeeper#4596


def _check_damaged_log(seed: int) -> None:
    """One entry log is damaged in one place after another; the others must be compacted, and the
    bookie must say which one it is.
    """
    for what, (offset_bytes, bit) in DAMAGE.items():
        bench = BookieBench(seed + 1)
        with replaced(SimFile, "read", _little_memory):
            bench.sim.run(
                lambda bench=bench, what=what, place=(offset_bytes, bit): _damage(  # type: ignore[misc]
                    bench, what, place
                )
            )


def _little_memory(was: Any) -> object:
    """As on a real machine, a buffer is made of the size that is asked for, not of what the file
    has.
    """

    async def read(file: SimFile, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        for _, size_bytes in spans:
            if size_bytes > MEMORY_BYTES:
                raise MemoryError(f"a buffer of {size_bytes} bytes for a read of {file.path}")
        found: list[bytes] = await was(file, spans)
        return found

    return read


async def _damage(bench: BookieBench, what: str, place: tuple[int, int]) -> None:
    await bench.client()
    await make_ledgers(bench, 1, 2, 3)
    await fill(bench, 1, 2, 3, entries=60)
    first, *others = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
    bench.node.disk.flip_bit(bench.bookie.store.logs.path(first), *place)
    for ledger_id in (1, 2):
        await delete_metadata(bench, paths.ledger(ledger_id))
    await collect(bench)
    left = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
    gone = [log_id for log_id in others if log_id not in left]
    garbage = bench.bookie.garbage
    assert gone, f"with damage in {what} of one entry log no other log is compacted"
    if first in left:
        assert first in garbage.unreadable_logs, f"nobody is told of the damage in {what}"
    else:
        assert await present(bench, 3, 60), (
            f"an entry log with damage in {what} was deleted before all that lived in it was copied"
        )
    rounds = garbage.rounds
    await make_ledgers(bench, 4)
    await fill(bench, 4)
    await delete_metadata(bench, paths.ledger(4))
    await collect(bench)
    assert garbage.rounds > rounds, f"with damage in {what} of one entry log no further round ends"


class _Quiet(Exception):
    """What nobody logs."""


def _round_ends_quietly() -> Patch:
    """What goes wrong with one log ends the round, and nothing is said."""

    def keep(_was: Any) -> object:
        def stop(_collector: GarbageCollector, _log_id: int, why: str) -> None:
            raise _Quiet(why)

        return stop

    def clean_logs(was: Any) -> object:
        async def clean(collector: GarbageCollector, *, is_forced: bool) -> None:
            try:
                await was(collector, is_forced=is_forced)
            except _Quiet:
                return

        return clean

    return all_replaced(
        replacing(GarbageCollector, "_keep", keep),
        replacing(GarbageCollector, "_clean_logs", clean_logs),
    )


# -- apache/bookkeeper#4607


def _check_header(seed: int) -> None:
    """The header of an entry log in which a ledger lives is damaged."""
    bench = BookieBench(seed + 1)

    async def scenario() -> None:
        await bench.client()
        await make_ledgers(bench, 1, 2)
        await fill(bench, 1, 2, entries=60)
        logs = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
        bench.node.disk.flip_bit(bench.bookie.store.logs.path(logs[0]), *DAMAGE["the header"])
        await delete_metadata(bench, paths.ledger(1))
        await collect(bench)
        left = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
        assert logs[0] in left, (
            "an entry log with a damaged header was taken for an empty one and deleted"
        )
        assert await present(bench, 2, 60)

    bench.sim.run(scenario)


def _weighed_by_its_header(was: Any) -> object:
    """What lives in a log is what the log itself says, and one without a header has nothing."""

    async def weigh(collector: GarbageCollector, log_id: int) -> tuple[int, int, dict[int, int]]:
        live, all_bytes, ledgers = await was(collector, log_id)
        try:
            async for _ in collector._store.logs.scan(log_id):
                break
        except CorruptData:
            return 0, all_bytes, {}
        return live, all_bytes, ledgers

    return weigh


# -- apache/bookkeeper#4843


def _check_fence_without_entries(seed: int) -> None:
    """Checkpoints move the mark past a fence while there are no entries to be written; then the
    bookie crashes.
    """
    bench = BookieBench(seed + 1)

    async def scenario() -> None:
        async def fence(client: BookieClient) -> None:
            await make_ledgers(bench, 7)
            for payload in range(3):
                assert set((await client.add([make_record(7, payload, b"x")])).values()) == {0}
            await client.world.clock.sleep(3)
            assert await client.write_lac(7, 2) == 0
            assert (await client.fence(7))[0] == 0
            await client.world.clock.sleep(3)

        await bench.with_client(fence)
        before = bench.bookie.store.checkpointer.mark
        bench.node.crash()
        bench.start()

        async def late(client: BookieClient) -> tuple[int, int]:
            codes = await client.add([make_record(7, 3, b"late")])
            return codes[7, 3], (await client.read_lac(7))[1]

        code, lac = await bench.with_client(late)
        assert before.sequence > 0
        assert code == LedgerFenced.code, (
            "a fence was answered, and after a crash the ledger takes adds of its old writer"
        )
        assert lac == 2, f"LAC 2 was answered as stored, and after a crash it is {lac}"

    bench.sim.run(scenario)


def _only_with_entries(was: Any) -> object:
    """Without entries in the write cache a checkpoint writes nothing, and moves the mark all the
    same.
    """

    async def flush(checkpointer: Checkpointer, seconds: float) -> None:
        if checkpointer._cache.active.size_bytes:
            await was(checkpointer, seconds)

    return flush


EXHIBITS: Final = (
    Exhibit(
        name="compaction_stops_silently",
        upstream=("apache/bookkeeper#4596",),
        wrong=(
            "At one damaged entry log compaction ends without a word, in every round, until "
            "the file is moved away by hand."
        ),
        here=(
            "Damages an entry log in one place after another: the other logs are compacted, "
            "and the bookie names the damaged one."
        ),
        kind=Kind.SCENARIO,
        check=_check_damaged_log,
        defects=(
            Defect(
                "round_ends_quietly",
                "damage of one log stops no other and is reported",
                _round_ends_quietly(),
            ),
        ),
    ),
    Exhibit(
        name="header_taken_for_empty",
        upstream=("apache/bookkeeper#4607", "apache/bookkeeper#4658"),
        wrong=(
            "Garbage in the header of an entry log reads as a log without ledgers, and "
            "garbage collection deletes live data."
        ),
        here=(
            "Impossible: what lives in a log is counted in the index; a log whose header "
            "cannot be read is kept."
        ),
        kind=Kind.IMPOSSIBLE,
        check=_check_header,
        defects=(
            Defect(
                "weighed_by_its_header",
                "the index knows what lives",
                replacing(GarbageCollector, "_weigh", _weighed_by_its_header),
            ),
        ),
    ),
    Exhibit(
        name="fence_lost_at_an_empty_checkpoint",
        upstream=("apache/bookkeeper#4843",),
        wrong=(
            "A checkpoint with an empty write cache writes no ledger flags and moves the "
            "mark: a crash takes a fence and a LAC away."
        ),
        here=(
            "Fences a ledger when no entries are left to be written, lets checkpoints pass, "
            "and crashes the bookie."
        ),
        kind=Kind.SCENARIO,
        check=_check_fence_without_entries,
        defects=(
            Defect(
                "only_with_entries",
                "every checkpoint writes flags",
                replacing(Checkpointer, "_flush", _only_with_entries),
            ),
        ),
    ),
    from_mutant(
        MUTANTS["acknowledge_before_sync"],
        ("apache/bookkeeper#3979",),
        "A recycled request counts as flushed already: adds are answered without a sync of the "
        "journal.",
        seed=0,
    ),
    from_mutant(
        MUTANTS["mark_by_maximum"],
        ("apache/bookkeeper#3329",),
        "The flush of one ledger directory moves the journal's mark for all: what the others had "
        "in memory is lost by a crash.",
        seed=0,
    ),
    from_mutant(
        MUTANTS["journal_deleted_before_mark"],
        ("apache/bookkeeper#4105", "apache/bookkeeper#4740"),
        "The journal's mark goes back to a file that was deleted, and the bookie does not start.",
        seed=1,
    ),
    from_mutant(
        MUTANTS["log_deleted_before_its_copy"],
        ("apache/bookkeeper#1534", "apache/bookkeeper#1536"),
        "Compaction deletes an entry log before the index that points to the copies is on disk.",
        seed=0,
    ),
    from_mutant(
        MUTANTS["garbage_without_point_read"],
        ("apache/bookkeeper#870", "apache/bookkeeper#876"),
        "A listing of ledgers that ends early counts as proof: garbage collection deletes ledgers "
        "that metadata have.",
        seed=1,
    ),
    from_mutant(
        MUTANTS["negative_on_io_error"],
        ("apache/bookkeeper#2908", "apache/bookkeeper#2909"),
        "An entry that the index has and the log cannot give is reported as absent, so that "
        "recovery truncates the ledger.",
        seed=0,
    ),
    from_mutant(
        MUTANTS["fence_not_journaled"],
        ("apache/bookkeeper#208", "apache/bookkeeper#205"),
        "A fence is answered before it is in the journal; after a crash the old writer is served "
        "again.",
        seed=0,
    ),
)
