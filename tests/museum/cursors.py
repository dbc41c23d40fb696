"""Exhibits about cursors: seeks, marks and acknowledged ranges, and what of them the next owner of
a topic finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.cursors import cursor as cursor_module
from pulsarish.managed_ledger.cursors import cursors as cursors_module
from pulsarish.managed_ledger.cursors.cursor import Cursor
from pulsarish.managed_ledger.cursors.cursor_core import CursorCore
from pulsarish.managed_ledger.cursors.cursor_state import CursorImage
from pulsarish.managed_ledger.cursors.cursor_store import CursorStore
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.model.errors import NotEnoughBookies
from pulsarish.model.position import EARLIEST, LATEST, Position
from pulsarish.sim.workloads.safeguard import Patch, all_replaced, replacing
from tests.museum.exhibit import Defect, Exhibit, Kind
from tests.support.logs import Shelf, names, simulate

__all__ = ["EXHIBITS"]

ENTRIES: Final = 40


async def _opened(shelf: Shelf, node: str = "b1") -> tuple[ManagedLedger, Cursor, list[Position]]:
    log, heard = await shelf.open(node)
    await shelf.append(log, names(0, ENTRIES), node)
    cursor = await shelf.on(node, lambda world: log.open_cursor("s", initial=EARLIEST))
    return log, cursor, [position for position, _ in heard.appended_at]


async def _next_owner(shelf: Shelf, node: str) -> Cursor:
    log, _ = await shelf.open(node)
    return await shelf.on(node, lambda world: log.open_cursor("s"))


# -- apache/pulsar#26304


def _check_seek(seed: int) -> None:
    """Seek back while acknowledgements are queued behind the seek, and while one is being written
    before it.
    """

    async def behind(shelf: Shelf) -> None:
        _, cursor, at = await _opened(shelf)
        cursor.acknowledge(at[:20])
        await shelf.on("b1", lambda world: cursor.flush())

        async def both() -> None:
            cursor.move(at[5])
            sought = asyncio.ensure_future(cursor.flush())
            cursor.acknowledge([at[30]])
            acknowledged = asyncio.ensure_future(cursor.flush())
            await sought
            await acknowledged

        await shelf.on("b1", lambda world: both())
        await _sought(shelf, cursor, at)

    async def under_way(shelf: Shelf) -> None:
        _, cursor, at = await _opened(shelf)
        cursor.acknowledge(at[:20])

        async def both() -> None:
            acknowledged = asyncio.ensure_future(cursor.flush())
            await asyncio.sleep(0)
            cursor.move(at[5])
            await cursor.flush()
            await acknowledged

        await shelf.on("b1", lambda world: both())
        await _sought(shelf, cursor, at)

    for node_writes in (1_000, 0):
        for scenario in (behind, under_way):

            async def prepared(
                shelf: Shelf, scenario: Any = scenario, node_writes: int = node_writes
            ) -> None:
                shelf.set(cursor_node_writes_max=node_writes)
                await scenario(shelf)

            simulate(prepared, seed + 1)


async def _sought(shelf: Shelf, cursor: Cursor, at: Sequence[Position]) -> None:
    assert cursor.mark_delete == at[4], (
        f"the seek reported success, and the cursor is at {cursor.mark_delete}"
    )
    after = await _next_owner(shelf, "b2")
    assert after.mark_delete == at[4], (
        f"the seek reported success, and the next owner begins behind {after.mark_delete}"
    )


def _staged_seek() -> Patch:
    """The seek is an element of a queue of writes, and only the last element is carried out."""
    staged: dict[int, Position] = {}

    def move(was: Any) -> object:
        def stage(cursor: Cursor, position: Position) -> None:
            staged[id(cursor)] = position
            cursor._core.changes += 1

        return stage

    def acknowledge(was: Any) -> object:
        def queue(cursor: Cursor, positions: Sequence[Position]) -> None:
            staged.pop(id(cursor), None)
            was(cursor, positions)

        return queue

    def write(was: Any) -> object:
        async def carry_out(cursor: Cursor, store: CursorStore, done: Any) -> None:
            position = staged.pop(id(cursor), None)
            if position is not None:
                cursor._core.reset(Position(position.ledger_id, position.entry_id - 1))
            await was(cursor, store, done)

        return carry_out

    return all_replaced(
        replacing(Cursor, "move", move),
        replacing(Cursor, "acknowledge", acknowledge),
        replacing(Cursor, "_write_round", write),
    )


def _skip_backwards(was: Any) -> object:
    async def write(store: CursorStore, core: CursorCore) -> None:
        if core.acks.mark < core.persisted:
            core.stored = core.changes
            return
        await was(store, core)

    return write


# -- apache/pulsar#26485


def _check_no_cursor_ledger(seed: int) -> None:
    """A cursor in the middle of its topic is acknowledged while no ledger can be made for it."""

    async def scenario(shelf: Shelf) -> None:
        shelf.set(cursor_node_writes_max=0)
        _, cursor, at = await _opened(shelf)
        shelf.ledgers.refuse_create = [NotEnoughBookies("all bookies are read-only")] * 20
        cursor.acknowledge([*at[:5], at[7]])
        await shelf.on("b1", lambda world: cursor.flush())
        shelf.ledgers.refuse_create.clear()
        after = await _next_owner(shelf, "b2")
        assert (after.mark_delete, after.is_acknowledged(at[7])) == (at[4], True), (
            "what was acknowledged is not in metadata"
        )

    simulate(scenario, seed + 1)


def _only_caught_up(was: Any) -> object:
    def fits_node(store: CursorStore, core: CursorCore) -> bool:
        return core.acks.mark.entry_id == ENTRIES - 1 and bool(was(store, core))

    return fits_node


# -- apache/pulsar#22709


def _check_restarts(seed: int) -> None:
    """Every second entry is acknowledged, while cursor ledgers break off and one owner dies after
    another.
    """

    async def scenario(shelf: Shelf) -> None:
        shelf.set(
            cursor_node_writes_max=0,
            cursor_snapshot_interval_entries=3,
            max_unacked_ranges_to_persist_in_metadata_store=2,
        )
        _, cursor, at = await _opened(shelf)
        done: set[Position] = set()
        for number, node in enumerate(("b1", "b2", "b3", "b4")):
            if number:
                cursor = await _next_owner(shelf, node)
            for step in range(number, ENTRIES, 8):
                cursor.acknowledge([at[step]])
                await shelf.on(node, lambda world, cursor=cursor: cursor.flush())  # type: ignore[misc]
                done.add(at[step])
                if step == number + 16:
                    shelf.ledgers.break_writer(
                        cursor.ledger_id, 0, NotEnoughBookies("the bookies are restarted")
                    )
            shelf.sim.nodes[node].crash()
            shelf.sim.nodes[node].start()
        cursor = await _next_owner(shelf, "b5")
        lost = [
            position for position in at if position in done and not cursor.is_acknowledged(position)
        ]
        skipped = [
            position for position in at if position not in done and cursor.is_acknowledged(position)
        ]
        assert not lost, (
            f"{len(lost)} of {len(done)} entries were acknowledged durably and are delivered again"
        )
        assert not skipped, f"{len(skipped)} entries were never acknowledged and are not delivered"

    simulate(scenario, seed + 1)


def _ranges_cut(was: Any) -> object:
    def of(kind: type[CursorImage], *state: Any) -> CursorImage:
        whole: CursorImage = was.__func__(kind, *state)
        return msgspec.structs.replace(whole, ranges=whole.ranges[:6], sets=())

    return classmethod(of)


def _snapshot_only(was: Any) -> object:
    async def load(store: CursorStore, successor: Any) -> CursorCore:
        record = store.cell.record
        store.cell.record = msgspec.structs.replace(record, cursor_ledger=-1)
        try:
            core: CursorCore = await was(store, successor)
        finally:
            store.cell.record = record
        return core

    return load


# -- apache/pulsar#18236


def _check_begun_at_the_end(seed: int) -> None:
    """A cursor begins, or is moved, at the end of the topic; messages come, and the owner dies
    before any is acknowledged.
    """

    async def scenario(shelf: Shelf, sought: bool, node_writes: int) -> None:
        shelf.set(cursor_node_writes_max=node_writes)
        log, heard = await shelf.open("b1")
        if sought:
            await shelf.append(log, names(0, 3))
        cursor = await shelf.on(
            "b1", lambda world: log.open_cursor("s", initial=EARLIEST if sought else LATEST)
        )
        if sought:
            cursor.acknowledge([heard.appended_at[0][0]])
            cursor.move(LATEST)
        await shelf.on("b1", lambda world: cursor.flush())
        await shelf.append(log, names(3, 5))
        shelf.sim.nodes["b1"].crash()
        after = await _next_owner(shelf, "b2")
        first = heard.appended_at[-2][0]
        assert after.read_from == first, (
            f"delivery was to begin at {first}, and begins at {after.read_from} after the owner's "
            "death"
        )

    for sought in (False, True):
        for node_writes in (0, 1_000):

            async def prepared(
                shelf: Shelf, sought: bool = sought, node_writes: int = node_writes
            ) -> None:
                await scenario(shelf, sought, node_writes)

            simulate(prepared, seed + 1)


def _read_position_stored(was: Any) -> object:
    """Where reading goes on is stored as if it were acknowledged."""

    def mark_before(chain: Chain, position: Position) -> Position:
        mark: Position = was(chain, position)
        return Position(mark.ledger_id, mark.entry_id + 1)

    return mark_before


EXHIBITS: Final = (
    Exhibit(
        name="seek_discarded_behind_mark_delete",
        upstream=("apache/pulsar#26304",),
        wrong=(
            "A seek reports success and has no effect, because a mark-delete is queued behind "
            "it or is under way before it."
        ),
        here=(
            "Seeks back on a cursor with acknowledgements before and behind the seek, and "
            "asks the next owner where it begins."
        ),
        kind=Kind.SCENARIO,
        check=_check_seek,
        defects=(
            Defect(
                "last_write_wins",
                "a seek is carried out even if something is acknowledged behind it",
                _staged_seek(),
            ),
            Defect(
                "backwards_skipped",
                "a mark that goes back is written",
                replacing(CursorStore, "write", _skip_backwards),
            ),
        ),
    ),
    Exhibit(
        name="no_fallback_behind_the_end",
        upstream=("apache/pulsar#26485", "apache/pulsar#20935"),
        wrong=(
            "When no cursor ledger can be created, acknowledgements go to metadata only if "
            "the cursor is at the end of its topic."
        ),
        here=(
            "Acknowledges in the middle of a topic while no ledger can be made, and asks the "
            "next owner."
        ),
        kind=Kind.SCENARIO,
        check=_check_no_cursor_ledger,
        defects=(
            Defect(
                "only_caught_up",
                "metadata take a cursor wherever it is when no ledger is to be had",
                replacing(CursorStore, "_fits_node", _only_caught_up),
            ),
        ),
    ),
    Exhibit(
        name="acknowledgements_lost_over_restarts",
        upstream=("apache/pulsar#22709",),
        wrong=(
            "Acknowledgements are lost when bookies and brokers restart; the thread suspects "
            "acknowledgement holes and names no cause."
        ),
        here=(
            "Acknowledges with holes while cursor ledgers break off and four owners die, and "
            "compares what the fifth one knows."
        ),
        kind=Kind.SCENARIO,
        check=_check_restarts,
        defects=(
            Defect(
                "ranges_cut",
                "every acknowledged range is stored",
                replacing(CursorImage, "of", _ranges_cut),
            ),
            Defect(
                "snapshot_only",
                "a new owner reads the cursor ledger",
                replacing(CursorStore, "load", _snapshot_only),
            ),
        ),
    ),
    Exhibit(
        name="first_message_lost_after_reset",
        upstream=("apache/pulsar#18236", "apache/pulsar#18237"),
        wrong=(
            "A cursor at the end of its topic stores its read position as its mark: when the "
            "broker is killed the next message is lost."
        ),
        here=(
            "Begins and moves cursors at the end, publishes and kills the owner: the next one "
            "must begin with the first message."
        ),
        kind=Kind.SCENARIO,
        check=_check_begun_at_the_end,
        defects=(
            Defect(
                "read_position_stored",
                "the mark is the last position that needs no delivery",
                all_replaced(
                    replacing(cursor_module, "mark_before", _read_position_stored),
                    replacing(cursors_module, "mark_before", _read_position_stored),
                ),
            ),
        ),
    ),
)
