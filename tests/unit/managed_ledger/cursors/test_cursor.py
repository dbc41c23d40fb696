"""Cursors from outside: acknowledging, making durable, changing places between node and ledger,
loading, taking over.
"""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.managed_ledger.cursors.cursor import Cursor
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.managed_ledger.options import Retention
from pulsarish.model.errors import (
    ChecksumError,
    MetadataUnavailable,
    NotEnoughBookies,
    PulsarishError,
    ServiceNotReady,
    SubscriptionNotFound,
    TopicFenced,
)
from pulsarish.model.position import EARLIEST, LATEST, Position
from tests.support.logs import Shelf, names, seek, simulate


async def opened(
    shelf: Shelf, count: int, node: str = "b1", name: str = "s"
) -> tuple[ManagedLedger, Cursor, list[Position]]:
    """A topic with ``count`` entries and a cursor at its beginning."""
    log, heard = await shelf.open(node)
    await shelf.append(log, names(0, count), node)
    cursor = await shelf.on(node, lambda world: log.open_cursor(name, initial=EARLIEST))
    return log, cursor, [position for position, _ in heard.appended_at]


async def taken_over(shelf: Shelf, node: str = "b2", name: str = "s") -> Cursor:
    log, _ = await shelf.open(node)
    return await shelf.on(node, lambda world: log.open_cursor(name))


def state(cursor: Cursor, positions: list[Position]) -> list[int | bool]:
    """For each entry: acknowledged, or the indexes that remain."""
    found: list[int | bool] = []
    for position in positions:
        remaining = cursor.ack_set(position)
        found.append(cursor.is_acknowledged(position) if remaining is None else remaining)
    return found


@pytest.mark.parametrize("node_writes", [0, 1_000])
def test_what_was_flushed_is_there_for_the_next_owner(node_writes: int) -> None:
    """In the node and in a cursor ledger alike."""

    async def scenario(shelf: Shelf) -> None:
        shelf.set(cursor_node_writes_max=node_writes, cursor_snapshot_interval_entries=3)
        _, cursor, at = await opened(shelf, 20)
        for step in (
            [at[0], at[1]],
            [at[5]],
            [at[7], at[6]],
            [at[2]],
            [at[10]],
            [at[12]],
            [at[15]],
        ):
            cursor.acknowledge(step)
            await shelf.on("b1", lambda world: cursor.flush())
        cursor.acknowledge_batch(at[18], 4, [0, 2])
        await shelf.on("b1", lambda world: cursor.flush())
        assert cursor.has_ledger == (node_writes == 0)
        assert cursor.mark_delete == at[2]
        assert cursor.backlog() == 20 - 3 - 6
        before = state(cursor, at)
        other = await taken_over(shelf)
        assert state(other, at) == before
        assert other.backlog() == cursor.backlog()
        assert other.read_from == at[3]
        assert other.ack_set(at[18]) == 0b1010

    simulate(scenario)


def test_acknowledgements_that_nobody_waits_for_become_durable_by_themselves() -> None:
    async def scenario(shelf: Shelf) -> None:
        _, cursor, at = await opened(shelf, 5)
        cursor.acknowledge(at[:2])
        assert cursor.mark_delete == at[1]
        assert cursor.persisted_mark_delete < at[0]
        await shelf.sleep(1.5)
        assert cursor.persisted_mark_delete == at[1]
        assert (await taken_over(shelf)).mark_delete == at[1]

    simulate(scenario)


def test_all_acknowledgements_that_wait_go_in_one_entry() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(cursor_node_writes_max=0)
        log, cursor, at = await opened(shelf, 200)

        async def one(position: Position) -> None:
            cursor.acknowledge([position])
            await cursor.flush()

        await shelf.on("b1", lambda world: one(at[0]))
        (ledger_id,) = [
            found
            for found in shelf.ledgers.ledgers
            if found not in {link.ledger_id for link in log.ledgers}
        ]
        before = len(shelf.ledgers.ledgers[ledger_id].entries)

        async def many() -> None:
            await asyncio.gather(*[one(position) for position in at[1:]])

        await shelf.on("b1", lambda world: many())
        assert len(shelf.ledgers.ledgers[ledger_id].entries) - before <= 2

    simulate(scenario)


def test_a_busy_cursor_takes_a_ledger_and_a_quiet_one_gives_it_up() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(cursor_node_writes_max=3, cursor_idle_seconds=60)
        _, cursor, at = await opened(shelf, 20)
        for position in at[:3]:
            cursor.acknowledge([position])
            await shelf.on("b1", lambda world: cursor.flush())
        assert not cursor.has_ledger
        cursor.acknowledge([at[3]])
        await shelf.on("b1", lambda world: cursor.flush())
        assert cursor.has_ledger
        record = await shelf.cursor()
        assert record is not None
        ledger_id = record.cursor_ledger
        assert ledger_id in shelf.ledgers.ledgers
        await shelf.sleep(30)
        cursor.acknowledge([at[5]])
        await shelf.on("b1", lambda world: cursor.flush())
        await shelf.sleep(45)
        assert cursor.has_ledger
        await shelf.sleep(20)
        assert not cursor.has_ledger
        assert ledger_id in shelf.ledgers.deleted
        record = await shelf.cursor()
        assert record is not None
        assert (record.cursor_ledger, record.mark_entry, record.ranges) == (
            -1,
            3,
            (at[5].ledger_id, 5, 5),
        )
        created = len(shelf.ledgers.created)
        other = await taken_over(shelf)
        assert state(other, at) == state(cursor, at)
        assert len(shelf.ledgers.created) == created + 1, "only the topic's own"

    simulate(scenario)


def test_a_cursor_too_great_for_its_node_takes_a_ledger_and_loses_nothing() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(
            max_unacked_ranges_to_persist_in_metadata_store=10,
            cursor_snapshot_part_bytes=256,
            pending_entries_max=10_000,
        )
        _, cursor, at = await opened(shelf, 6_000)
        cursor.acknowledge(at[1::2])
        await shelf.on("b1", lambda world: cursor.flush())
        assert cursor.has_ledger
        assert cursor.hole_count == cursor.entries_in_holes() == 3_000
        record = await shelf.cursor()
        assert record is not None
        assert record.ranges == (), "the node keeps the mark alone"
        assert len(shelf.ledgers.ledgers[record.cursor_ledger].entries) > 2, "the snapshot was cut"
        other = await taken_over(shelf)
        assert state(other, at) == state(cursor, at)
        cursor_two = other
        cursor_two.acknowledge(at[0::2])
        await shelf.on("b2", lambda world: cursor_two.flush())
        assert cursor_two.backlog() == 0
        assert (await taken_over(shelf, "b3")).mark_delete == at[-1]

    simulate(scenario)


def test_a_full_cursor_ledger_is_replaced_and_deleted() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(
            cursor_node_writes_max=0,
            cursor_max_entries_per_ledger=4,
            cursor_snapshot_interval_entries=2,
        )
        log, cursor, at = await opened(shelf, 30)
        for position in at[::2]:
            cursor.acknowledge([position])
            await shelf.on("b1", lambda world: cursor.flush())
        assert len(shelf.ledgers.deleted) >= 3
        assert len(shelf.ledgers.ledgers) == len(log.ledgers) + 1
        assert state(await taken_over(shelf), at) == state(cursor, at)

    simulate(scenario)


def test_a_broken_cursor_ledger_is_replaced_under_the_flush() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(cursor_node_writes_max=0)
        _, cursor, at = await opened(shelf, 10)
        cursor.acknowledge([at[1]])
        await shelf.on("b1", lambda world: cursor.flush())
        record = await shelf.cursor()
        assert record is not None
        shelf.ledgers.break_writer(record.cursor_ledger, 0, NotEnoughBookies("down"))
        cursor.acknowledge([at[3]])
        await shelf.on("b1", lambda world: cursor.flush())
        again = await shelf.cursor()
        assert again is not None
        assert again.cursor_ledger not in (-1, record.cursor_ledger)
        # And when no ledger is to be had, the node takes it.
        shelf.ledgers.break_writer(again.cursor_ledger, 0, NotEnoughBookies("down"))
        shelf.ledgers.refuse_create = [NotEnoughBookies("none")] * 10
        cursor.acknowledge([at[5]])
        await shelf.on("b1", lambda world: cursor.flush())
        shelf.ledgers.refuse_create.clear()
        assert not cursor.has_ledger
        assert state(await taken_over(shelf), at) == state(cursor, at)

    simulate(scenario)


def test_a_flush_that_cannot_be_done_says_so_and_a_later_one_takes_it_along() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(max_unacked_ranges_to_persist_in_metadata_store=0, cursor_node_writes_max=0)
        _, cursor, at = await opened(shelf, 10)
        shelf.ledgers.refuse_create = [NotEnoughBookies("one of two")]
        cursor.acknowledge([at[1]])
        with pytest.raises(NotEnoughBookies):
            await shelf.on("b1", lambda world: cursor.flush())
        assert cursor.is_acknowledged(at[1])
        await shelf.on("b1", lambda world: cursor.flush())
        assert (await taken_over(shelf)).is_acknowledged(at[1])

    simulate(scenario)


@pytest.mark.parametrize("kind", ["lost", "damaged", "unreadable"])
def test_an_unreadable_cursor_ledger_leads_to_redelivery_never_to_a_skip(kind: str) -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(cursor_node_writes_max=2)
        _, cursor, at = await opened(shelf, 10)
        for position in at[:6]:
            cursor.acknowledge([position])
            await shelf.on("b1", lambda world: cursor.flush())
        record = await shelf.cursor()
        assert record is not None
        match kind:
            case "lost":
                shelf.ledgers.lose(record.cursor_ledger)
            case "damaged":
                shelf.ledgers.ledgers[record.cursor_ledger].entries[-1] = b"\xc1 nonsense"
            case "unreadable":
                shelf.ledgers.refuse_open[record.cursor_ledger] = [ChecksumError("all copies")]
        other = await taken_over(shelf)
        assert other.mark_delete == Position(record.mark_ledger, record.mark_entry)
        assert at[0] < other.mark_delete <= at[5]
        assert other.backlog() >= 4

    simulate(scenario)


def test_a_cursor_ledger_that_cannot_be_read_now_is_not_passed_over() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(cursor_node_writes_max=0)
        _, cursor, at = await opened(shelf, 10)
        cursor.acknowledge([at[0], at[1]])
        await shelf.on("b1", lambda world: cursor.flush())
        record = await shelf.cursor()
        assert record is not None
        shelf.ledgers.refuse_open[record.cursor_ledger] = [NotEnoughBookies("now")]
        log, _ = await shelf.open("b2")
        with pytest.raises(NotEnoughBookies):
            await shelf.on("b2", lambda world: log.open_cursor("s"))
        again = await shelf.on("b2", lambda world: log.open_cursor("s"))
        assert again.mark_delete == at[1]

    simulate(scenario)


@pytest.mark.parametrize("node_writes", [0, 1_000])
def test_a_stale_owner_persists_nothing(node_writes: int) -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(cursor_node_writes_max=node_writes)
        old, cursor, at = await opened(shelf, 10)
        cursor.acknowledge([at[0]])
        await shelf.on("b1", lambda world: cursor.flush())
        new = await taken_over(shelf)
        cursor.acknowledge([at[1]])
        with pytest.raises(TopicFenced):
            await shelf.on("b1", lambda world: cursor.flush())
        assert old.fenced
        new.acknowledge([at[2]])
        await shelf.on("b2", lambda world: new.flush())
        last = await taken_over(shelf, "b3")
        assert state(last, at[:4]) == [True, False, True, False]

    simulate(scenario)


def test_a_stale_owner_makes_and_deletes_no_subscription() -> None:
    async def scenario(shelf: Shelf) -> None:
        old, _, _ = await opened(shelf, 3)
        new, _ = await shelf.open("b2")
        with pytest.raises(TopicFenced):
            await shelf.on("b1", lambda world: old.open_cursor("other"))
        again, _ = await shelf.open("b3")
        assert again.cursor_names() == ["s"]
        with pytest.raises(TopicFenced):
            await shelf.on("b2", lambda world: new.delete_cursor("s"))
        assert (await shelf.cursor("b3")) is not None

    simulate(scenario)


def test_seeking_back_and_forth_is_durable() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(cursor_node_writes_max=1)
        log, cursor, at = await opened(shelf, 10)
        for position in at[:5]:
            cursor.acknowledge([position])
            await shelf.on("b1", lambda world: cursor.flush())
        cursor.acknowledge([at[8]])
        for where, first, backlog in [
            (at[2], at[2], 8),
            (LATEST, None, 0),
            (EARLIEST, at[0], 10),
            (at[9], at[9], 1),
        ]:
            await shelf.on("b1", lambda world, where=where, cursor=cursor: seek(cursor, where))  # type: ignore[misc]
            assert cursor.backlog() == backlog
            record = await shelf.cursor()
            assert record is not None
            assert record.cursor_ledger == -1, (
                "the node must not say a greater mark than the cursor has: trimming goes by it"
            )
            assert Position(record.mark_ledger, record.mark_entry) == cursor.mark_delete
            other = await taken_over(shelf)
            assert other.backlog() == backlog
            if first is not None:
                assert other.read_from == first
            # Back to the first owner, with everything as it is stored.
            log, _ = await shelf.open("b1")
            cursor = await shelf.on("b1", lambda world, log=log: log.open_cursor("s"))  # type: ignore[misc]

    simulate(scenario)


def test_properties_and_mark_are_one_step() -> None:
    async def scenario(shelf: Shelf) -> None:
        for node_writes in (0, 1_000):
            shelf.set(cursor_node_writes_max=node_writes)
            log, heard = await shelf.open("b1")
            await shelf.append(log, names(0, 5))
            at = [position for position, _ in heard.appended_at]
            cursor = await shelf.on(
                "b1",
                lambda world, log=log: log.open_cursor(f"pulsar.dedup{node_writes}"),  # type: ignore[misc] # noqa: B023
            )
            await shelf.append(log, names(5, 8))
            at = [position for position, _ in heard.appended_at]
            for number in (5, 6):
                await shelf.on(
                    "b1",
                    lambda world, number=number, cursor=cursor, at=at: cursor.set_properties(  # type: ignore[misc]
                        {"p": number}, at[number]
                    ),
                )
            other = await taken_over(shelf, name=cursor.name)
            assert other.properties == {"p": 6}
            assert other.mark_delete == at[6]

    simulate(scenario)


def test_too_many_holes_stop_dispatch_visibly_and_are_kept() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(max_unacked_ranges_to_persist=5)
        _, cursor, at = await opened(shelf, 30)
        cursor.acknowledge(at[1:10:2])
        assert cursor.blocked
        cursor.acknowledge(at[11::2])
        await shelf.on("b1", lambda world: cursor.flush())
        other = await taken_over(shelf)
        assert state(other, at) == state(cursor, at), "more than the limit is still kept"
        assert other.blocked
        other.acknowledge(at[0:24:2])
        assert not other.blocked
        shelf.set(max_unacked_ranges_to_persist=100, max_unacked_ranges_bytes=4_096)
        other = await taken_over(shelf, "b3")
        assert not other.blocked
        other.acknowledge_batch(at[24], 32_000, [0])
        assert other.blocked, "its memory has a limit, too"

    simulate(scenario)


def test_cursors_that_are_not_durable_leave_nothing_behind() -> None:
    async def scenario(shelf: Shelf) -> None:
        log, _, at = await opened(shelf, 5)
        reader = await shelf.on(
            "b1", lambda world: log.open_cursor("r", initial=at[2], durable=False)
        )
        assert not reader.durable
        assert reader.read_from == at[2]
        assert reader.backlog() == 3
        reader.acknowledge([at[2], at[4]])
        await shelf.on("b1", lambda world: reader.flush())
        assert reader.backlog() == 1
        assert log.cursor_names() == ["s"]
        assert await shelf.cursor(name="r") is None
        await shelf.on("b1", lambda world: log.delete_cursor("r"))
        with pytest.raises(SubscriptionNotFound):
            await shelf.on("b1", lambda world: log.delete_cursor("r"))

    simulate(scenario)


def test_deleting_a_subscription_takes_its_ledger_along_and_a_new_one_starts_afresh() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(cursor_node_writes_max=0)
        log, cursor, at = await opened(shelf, 5)
        cursor.acknowledge([at[0]])
        await shelf.on("b1", lambda world: cursor.flush())
        record = await shelf.cursor()
        assert record is not None
        await shelf.on("b1", lambda world: log.delete_cursor("s"))
        assert await shelf.cursor() is None
        assert record.cursor_ledger in shelf.ledgers.deleted
        cursor.acknowledge([at[1]])
        with pytest.raises(PulsarishError):
            await shelf.on("b1", lambda world: cursor.flush())
        again = await shelf.on("b1", lambda world: log.open_cursor("s", initial=EARLIEST))
        assert again.backlog() == 5

    simulate(scenario)


def test_a_half_deleted_subscription_is_gone_and_finished_by_the_next_owner() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(cursor_node_writes_max=0)
        log, cursor, at = await opened(shelf, 5)
        cursor.acknowledge([at[0]])
        await shelf.on("b1", lambda world: cursor.flush())
        shelf.ledgers.refuse_delete = [NotEnoughBookies("later")]
        await shelf.on("b1", lambda world: log.delete_cursor("s"))
        assert log.cursor_names() == []
        assert await shelf.cursor() is not None
        other, _ = await shelf.open("b2")
        assert other.cursor_names() == []
        await shelf.sleep(1)
        assert await shelf.cursor() is None
        assert len(shelf.ledgers.ledgers) == len(other.ledgers)

    simulate(scenario)


def test_subscribing_fails_while_a_deletion_cannot_be_finished() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(cursor_node_writes_max=0)
        log, cursor, at = await opened(shelf, 5)
        cursor.acknowledge([at[0]])
        await shelf.on("b1", lambda world: cursor.flush())
        shelf.ledgers.refuse_delete = [NotEnoughBookies("later"), NotEnoughBookies("still")]
        await shelf.on("b1", lambda world: log.delete_cursor("s"))
        with pytest.raises(ServiceNotReady, match="being deleted"):
            await shelf.on("b1", lambda world: log.open_cursor("s", initial=EARLIEST))
        assert not log.fenced
        again = await shelf.on("b1", lambda world: log.open_cursor("s", initial=EARLIEST))
        assert again.backlog() == 5

    simulate(scenario)


def test_closing_makes_everything_durable_in_the_node() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(cursor_node_writes_max=0)
        log, cursor, at = await opened(shelf, 5)
        cursor.acknowledge([at[0]])
        await shelf.on("b1", lambda world: cursor.flush())
        cursor.acknowledge([at[2]])
        await shelf.on("b1", lambda world: log.close())
        record = await shelf.cursor()
        assert record is not None
        assert record.cursor_ledger == -1
        assert len(shelf.ledgers.ledgers) == 1
        shelf.ledgers.recovered.clear()
        other = await taken_over(shelf)
        assert state(other, at) == [True, False, True, False, False]
        assert shelf.ledgers.recovered == []

    simulate(scenario)


def test_a_cursor_whose_making_had_an_unknown_outcome_holds_trimming_back() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.retention = Retention()
        log, _ = await shelf.open()
        await shelf.append(log, names(0, 3))
        shelf.sim.network.partition(["b1"], ["metadata"])

        async def make() -> None:
            with pytest.raises(PulsarishError):
                await log.open_cursor("s", initial=EARLIEST)

        await shelf.on("b1", lambda world: make())
        shelf.sim.network.heal_all()
        await shelf.sleep(30)
        await shelf.on("b1", lambda world: log.roll())
        assert log.entries == 3
        cursor = await shelf.on("b1", lambda world: log.open_cursor("s", initial=LATEST))
        assert cursor.backlog() == 3

    simulate(scenario)


def test_a_subscription_opened_after_an_unknown_deletion_is_there_for_the_next_owner() -> None:
    async def scenario(shelf: Shelf) -> None:
        log, _, at = await opened(shelf, 5)
        shelf.sim.network.cut("metadata", "b1")

        async def delete() -> None:
            with pytest.raises(MetadataUnavailable):
                await log.delete_cursor("s")

        await shelf.on("b1", lambda world: delete())
        shelf.sim.network.heal_all()
        record = await shelf.cursor("b3")
        assert record is not None
        assert record.deleted
        cursor = await shelf.on("b1", lambda world: log.open_cursor("s"))
        other, _ = await shelf.open("b2")
        assert other.cursor_names() == ["s"], "whoever has subscribed loses what comes"
        assert (
            (await shelf.on("b2", lambda world: other.open_cursor("s"))).backlog()
            == cursor.backlog()
            == len(at)
        )

    simulate(scenario)


def test_a_mark_on_an_emptied_log_passes_nothing_over_that_comes_later() -> None:
    """The chain may lose its last ledger (empty, closed); the next one must lie above every mark
    that was ever taken from it.
    """

    async def scenario(shelf: Shelf) -> None:
        log, _ = await shelf.open("b1")
        await shelf.on("b1", lambda world: log.open_cursor("s", initial=LATEST))
        highest = log.ledgers[-1].ledger_id
        await shelf.on("b1", lambda world: log.close())
        for node in ("b2", "b3"):
            other, _ = await shelf.open(node)
            await shelf.sleep(1, node)
            record = await shelf.record(node)
            assert record.deleting == ()
            assert record.highest_ledger == other.ledgers[-1].ledger_id > highest
            await shelf.on(node, lambda world, other=other: other.close())  # type: ignore[misc]
        assert (await shelf.record("b3")).highest_ledger > highest
        last, _ = await shelf.open("b1")
        await shelf.append(last, names(0, 3))
        cursor = await shelf.on("b1", lambda world: last.open_cursor("s"))
        assert cursor.backlog() == 3
        assert cursor.read_from == last.first_position

    simulate(scenario)
