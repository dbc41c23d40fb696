"""A topic's log from outside: appending, reading, replacing ledgers, taking over, trimming,
ending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import pytest

from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.managed_ledger.options import Retention
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import (
    InvalidPosition,
    NoSuchLedger,
    NotEnoughBookies,
    ServiceNotReady,
    TopicFenced,
    TopicNotFound,
    TopicTerminated,
)
from pulsarish.model.ledger_metadata import LedgerPurpose, LedgerState, PurposeKind
from pulsarish.model.position import EARLIEST, LATEST, Position
from pulsarish.runtime.seams import MetadataStore, Op, OutcomeUnknown, World
from tests.support.logs import NAME, Shelf, names, simulate
from tests.support.memory_ledgers import MemoryLedgerClient


def test_entries_are_confirmed_in_order_and_read_back() -> None:
    async def scenario(shelf: Shelf) -> None:
        log, heard = await shelf.open()
        await shelf.append(log, names(0, 20))
        assert heard.confirmed == names(0, 20)
        assert await shelf.read_all(log) == names(0, 20)
        assert log.entries == 20
        assert log.last_confirmed == heard.appended_at[-1][0]

    simulate(scenario)


def test_reopening_after_close_keeps_all_and_recovers_nothing() -> None:
    async def scenario(shelf: Shelf) -> None:
        log, heard = await shelf.open()
        await shelf.append(log, names(0, 3))
        await shelf.on("b1", lambda world: log.close())
        assert heard.fences == []
        with pytest.raises(TopicFenced):
            log.append(b"late", None)
        again, _ = await shelf.open("b2")
        assert shelf.ledgers.recovered == []
        assert await shelf.read_all(again, "b2") == names(0, 3)

    simulate(scenario)


def test_a_full_ledger_is_replaced_and_positions_go_on() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(max_entries_per_ledger=5)
        log, heard = await shelf.open()
        for number in range(12):
            await shelf.append(log, names(number, number + 1))
            await shelf.sleep(0.1)
        assert [ledger.entries for ledger in log.ledgers] == [5, 5, 2]
        assert heard.confirmed == names(0, 12)
        assert await shelf.read_all(log) == names(0, 12)
        first, last = heard.appended_at[0][0], heard.appended_at[-1][0]
        assert log.entries_between(first, last) == 11
        assert log.next_position(heard.appended_at[4][0]) == heard.appended_at[5][0]

    simulate(scenario)


def test_a_full_ledger_waits_for_the_least_age_and_an_old_one_goes_by_age() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(
            max_entries_per_ledger=2,
            min_ledger_rollover_time_minutes=1,
            max_ledger_rollover_time_minutes=10,
            rollover_jitter=0,
        )
        log, _ = await shelf.open()
        await shelf.append(log, names(0, 5))
        assert len(log.ledgers) == 1
        await shelf.sleep(61)
        await shelf.append(log, names(5, 6))
        await shelf.sleep(1)
        assert [ledger.entries for ledger in log.ledgers] == [6, 0]
        await shelf.append(log, names(6, 7))
        await shelf.sleep(601)
        await shelf.on("b1", lambda world: log.maintain())
        await shelf.sleep(1)
        assert log.ledgers[-1].entries == 0, "age alone replaces a ledger that has entries"
        await shelf.sleep(700)
        before = log.ledgers
        await shelf.on("b1", lambda world: log.maintain())
        await shelf.sleep(1)
        assert log.ledgers == before, "an empty one is left, whatever its age"

    simulate(scenario)


def test_appends_go_on_in_order_while_the_ledger_is_replaced() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(max_entries_per_ledger=3)
        log, heard = await shelf.open()

        async def work(world: World) -> None:
            for number in range(200):
                log.append(f"m{number}".encode(), f"m{number}".encode())
                if number % 3 == 0:
                    await world.clock.sleep(0.001)
            while log.pending_entries:
                await world.clock.sleep(0.001)

        await shelf.on("b1", work)
        assert len(log.ledgers) > 5
        assert heard.confirmed == names(0, 200)
        assert heard.failed == []
        assert await shelf.read_all(log) == names(0, 200)

    for seed in range(5):
        simulate(scenario, seed)


@pytest.mark.parametrize("kept", [0, 2, 5])
def test_after_a_writer_error_recovery_says_what_is_sent_again(kept: int) -> None:
    """The duplicates of Pulsar's #7490: of five entries with an unknown outcome ``kept`` are in the
    ledger.
    """

    async def scenario(shelf: Shelf) -> None:
        log, heard = await shelf.open()
        await shelf.append(log, names(0, 3))

        async def work(world: World) -> None:
            shelf.ledgers.hold = True
            for payload in names(3, 8):
                log.append(payload, payload)
            await world.clock.sleep(0.01)
            shelf.ledgers.hold = False
            shelf.ledgers.break_writer(
                log.ledgers[-1].ledger_id, kept, NotEnoughBookies("two bookies are down")
            )
            log.append(b"m8", b"m8")
            while log.pending_entries:
                await world.clock.sleep(0.001)

        await shelf.on("b1", work)
        assert heard.confirmed == names(0, 9)
        assert heard.failed == []
        assert [ledger.entries for ledger in log.ledgers] == [3 + kept, 6 - kept]
        assert await shelf.read_all(log) == names(0, 9)

    simulate(scenario)


def test_a_failed_ledger_without_entries_leaves_the_list_and_is_deleted() -> None:
    async def scenario(shelf: Shelf) -> None:
        log, heard = await shelf.open()
        empty = log.ledgers[-1].ledger_id
        shelf.ledgers.hold = True
        await shelf.on("b1", lambda world: world.clock.sleep(0))
        log.append(b"m0", b"m0")
        shelf.ledgers.hold = False
        shelf.ledgers.break_writer(empty, 0, NotEnoughBookies("down"))
        await shelf.sleep(1)
        assert heard.confirmed == [b"m0"]
        assert len(log.ledgers) == 1
        assert empty in shelf.ledgers.deleted
        record = await shelf.record()
        assert [ledger.ledger_id for ledger in record.ledgers] == [log.ledgers[0].ledger_id]
        assert record.deleting == ()

    simulate(scenario)


def test_a_shortage_is_bridged_when_short_and_said_when_long() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(append_hold_ms=200)
        log, heard = await shelf.open()
        await shelf.append(log, names(0, 1))
        shelf.ledgers.refuse_create = [NotEnoughBookies("one of two")] * 3
        shelf.ledgers.break_writer(log.ledgers[-1].ledger_id, 0, NotEnoughBookies("down"))
        await shelf.append(log, names(1, 3))
        assert heard.failed == []
        assert heard.confirmed == names(0, 3)

        shelf.ledgers.refuse_create = [NotEnoughBookies("one of two")] * 40
        shelf.ledgers.break_writer(log.ledgers[-1].ledger_id, 0, NotEnoughBookies("down"))
        await shelf.sleep(0.001)
        log.append(b"x", b"x")
        await shelf.sleep(1)
        with pytest.raises(NotEnoughBookies):
            log.append(b"y", b"y")
        assert not log.fenced
        assert [type(error) for _, error in heard.failed] in ([], [NotEnoughBookies])
        await shelf.sleep(5)
        shelf.ledgers.refuse_create.clear()
        await shelf.sleep(1)
        failed = [context for context, _ in heard.failed]
        assert (failed == [b"x"]) != (b"x" in heard.confirmed), "failed or confirmed, never both"
        await shelf.append(log, [b"z"])
        assert heard.confirmed[-1] == b"z"

    simulate(scenario)


def test_a_roll_over_that_finds_no_bookies_leaves_the_current_ledger_in_use() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(max_entries_per_ledger=2)
        log, heard = await shelf.open()
        shelf.ledgers.refuse_create = [NotEnoughBookies("none")] * 10
        for number in range(6):
            await shelf.append(log, names(number, number + 1))
        assert len(log.ledgers) == 1
        assert heard.confirmed == names(0, 6)
        await shelf.sleep(5)
        assert [ledger.entries for ledger in log.ledgers] == [6, 0]

    simulate(scenario)


def test_a_new_owner_ends_the_old_one_for_good() -> None:
    async def scenario(shelf: Shelf) -> None:
        old, heard_old = await shelf.open("b1")
        await shelf.append(old, names(0, 3))
        shelf.ledgers.hold = True
        old.append(b"pending", b"pending")
        new, _ = await shelf.open("b2")
        shelf.ledgers.release()
        await shelf.sleep(1)
        assert old.fenced
        assert len(heard_old.fences) == 1
        assert [context for context, _ in heard_old.failed] == [b"pending"]
        with pytest.raises(TopicFenced):
            old.append(b"more", None)
        await shelf.append(new, names(3, 5), "b2")
        assert await shelf.read_all(new, "b2") == names(0, 5)
        record = await shelf.record()
        with pytest.raises(TopicFenced):
            await shelf.on("b1", lambda world: old.roll())
        assert await shelf.record() == record

    simulate(scenario)


@pytest.mark.parametrize("ending", ["close", "terminate"])
@pytest.mark.parametrize("step", range(40))
def test_an_end_wished_at_any_moment_of_a_replacement_ends_the_new_ledger_too(
    ending: str, step: int
) -> None:
    """Entries that waited for the new ledger are confirmed or failed, never forgotten, and no
    ledger of the list is left open.
    """

    async def scenario(shelf: Shelf) -> None:
        log, heard = await shelf.open("b1")
        await shelf.append(log, names(0, 2))

        async def replace() -> None:
            with suppress(TopicFenced, TopicTerminated):
                await log.roll()

        async def replace_and_end(world: World) -> None:
            rolling = world.tasks.spawn(replace(), name="roll")
            await world.clock.sleep(0.0003 * step)
            log.append(b"late", b"late")
            await world.clock.sleep(0.0001 * (step % 7))
            await (log.close() if ending == "close" else log.terminate())
            await rolling

        await shelf.on("b1", replace_and_end)
        assert heard.confirmed[2:] + [context for context, _ in heard.failed] == [b"late"]
        record = await shelf.record()
        assert all(ledger.closed_ms > 0 for ledger in record.ledgers)
        assert all(
            shelf.ledgers.find(ledger.ledger_id).state is LedgerState.CLOSED
            for ledger in record.ledgers
        )
        assert sum(ledger.entries for ledger in record.ledgers) == len(heard.confirmed)

    simulate(scenario)


def test_an_idle_old_owner_is_stopped_by_the_version_alone() -> None:
    """It never appends, so no bookie tells it; the list does when it wants to change it."""

    async def scenario(shelf: Shelf) -> None:
        old, _ = await shelf.open("b1")
        cursor = await shelf.on("b1", lambda world: old.open_cursor("s", initial=EARLIEST))
        await shelf.append(old, names(0, 3))
        await shelf.on("b1", lambda world: old.roll())
        await shelf.open("b2")
        await shelf.sleep(1)
        record = await shelf.record()
        assert not old.fenced
        cursor.acknowledge([Position(old.ledgers[0].ledger_id, 2)])
        with pytest.raises(TopicFenced):
            await shelf.on("b1", lambda world: cursor.flush())
        assert await shelf.record() == record
        assert old.fenced

    simulate(scenario)


def test_two_that_open_at_once_leave_one_owner_and_no_ledger_behind() -> None:
    async def scenario(shelf: Shelf) -> None:
        import asyncio

        first, _ = await shelf.open("b1")
        await shelf.append(first, names(0, 3))
        found = await asyncio.gather(shelf.open("b2"), shelf.open("b3"), return_exceptions=True)
        await shelf.sleep(1)
        logs = [one[0] for one in found if not isinstance(one, BaseException)]
        for one in found:
            assert not isinstance(one, BaseException) or isinstance(one, TopicFenced), one
        record = await shelf.record()
        owners = [log for log in logs if log.ledgers[-1].ledger_id == record.ledgers[-1].ledger_id]
        assert len(owners) == 1
        named = {ledger.ledger_id for ledger in record.ledgers} | set(record.deleting)
        assert set(shelf.ledgers.ledgers) <= named | {log.ledgers[-1].ledger_id for log in logs}

    for seed in range(10):
        simulate(scenario, seed)


def test_a_lost_ledger_is_an_error_that_names_it() -> None:
    async def scenario(shelf: Shelf) -> None:
        log, _ = await shelf.open("b1")
        await shelf.append(log, names(0, 3))
        lost = log.ledgers[-1].ledger_id
        await shelf.on("b1", lambda world: log.roll())
        await shelf.append(log, names(3, 4))
        shelf.ledgers.lose(lost)
        log._reader._caches.forget(lost)
        with pytest.raises(NoSuchLedger, match=str(lost)):
            await shelf.read_all(log)
        last = log.ledgers[-1].ledger_id
        shelf.ledgers.lose(last)
        with pytest.raises(NoSuchLedger, match=str(last)):
            await shelf.open("b2")

    simulate(scenario)


def test_catch_up_reads_come_from_the_ledgers_and_are_shared() -> None:
    async def scenario(shelf: Shelf) -> None:
        import asyncio

        shelf.cache_bytes = 0
        shelf.set(max_entries_per_ledger=4)
        log, _ = await shelf.open()
        for number in range(0, 12, 2):
            await shelf.append(log, names(number, number + 2))
            await shelf.sleep(0.1)
        assert await shelf.read_all(log) == names(0, 12)
        shelf.ledgers.reads = 0

        async def work(world: World) -> None:
            found = await asyncio.gather(
                *[log.read(EARLIEST, max_entries=3, max_bytes=100) for _ in range(5)]
            )
            assert all(len(entries) == 3 for entries in found)

        await shelf.on("b1", work)
        assert shelf.ledgers.reads == 1

    simulate(scenario)


def test_a_read_keeps_its_limits_and_gives_one_entry_whatever_its_size() -> None:
    async def scenario(shelf: Shelf) -> None:
        for cache_bytes in (0, 1 << 20):
            shelf.cache_bytes = cache_bytes
            log, _ = await shelf.open()
            await shelf.append(log, [b"x" * 100] * 10)
            start = Position(log.ledgers[-1].ledger_id, 0)

            async def sizes(entries: int, size: int, log=log, start=start) -> int:  # type: ignore[no-untyped-def]
                return len(
                    await shelf.on(
                        "b1", lambda world: log.read(start, max_entries=entries, max_bytes=size)
                    )
                )

            assert await sizes(3, 10_000) == 3
            assert await sizes(100, 450) == 4
            assert await sizes(100, 1) == 1
            assert (
                await shelf.on(
                    "b1",
                    lambda world, log=log: log.read(  # type: ignore[misc]
                        log.next_position(log.last_confirmed), max_entries=9, max_bytes=9
                    ),
                )
                == []
            )
            await shelf.on("b1", lambda world, log=log: log.close())  # type: ignore[misc]

    simulate(scenario)


@pytest.mark.parametrize(
    ("retention", "wait", "left"),
    [
        (Retention(0, 0), 1, 1),
        (Retention(-1, -1), 10_000, 4),
        (Retention(10, -1), 300, 4),
        (Retention(10, -1), 700, 1),
        (Retention(-1, 1), 10_000, 3),
        (Retention(10, 1), 300, 3),
        (Retention(10, 100), 700, 1),
    ],
)
def test_retention_keeps_what_is_acknowledged(retention: Retention, wait: float, left: int) -> None:
    async def scenario(shelf: Shelf) -> None:
        log, _ = await shelf.open()
        for _ in range(3):
            await shelf.append(log, [b"x" * 700_000])
            await shelf.on("b1", lambda world: log.roll())
        log.trimmer.retention = retention
        await shelf.sleep(wait)
        await shelf.on("b1", lambda world: log.trimmer.trim())
        assert len(log.ledgers) == left
        record = await shelf.record()
        assert len(record.ledgers) == left
        assert record.deleting == ()
        assert len(shelf.ledgers.deleted) == 4 - left

    simulate(scenario, max_virtual_seconds=20_000)


def test_trimming_goes_by_what_cursors_have_stored() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(cursor_flush_interval_ms=60_000)
        shelf.retention = Retention()
        log, heard = await shelf.open()
        cursor = await shelf.on("b1", lambda world: log.open_cursor("s", initial=EARLIEST))
        other = await shelf.on("b1", lambda world: log.open_cursor("t", initial=EARLIEST))
        for number in range(3):
            await shelf.append(log, names(number, number + 1))
            await shelf.on("b1", lambda world: log.roll())
        await shelf.on("b1", lambda world: log.trimmer.trim())
        assert len(log.ledgers) == 4
        for one in (cursor, other):
            one.acknowledge([position for position, _ in heard.appended_at[:2]])
        assert await shelf.on("b1", lambda world: log.trimmer.trim()) == 0, (
            "acknowledged in memory only"
        )
        await shelf.on("b1", lambda world: cursor.flush())
        assert await shelf.on("b1", lambda world: log.trimmer.trim()) == 0, (
            "the other cursor has stored nothing"
        )
        await shelf.on("b1", lambda world: other.flush())
        assert await shelf.on("b1", lambda world: log.trimmer.trim()) == 2
        assert [ledger.entries for ledger in log.ledgers] == [1, 0]
        assert cursor.backlog() == 1
        record = await shelf.record("b1")
        assert (record.trimmed_ledger, record.trimmed_entry) == heard.appended_at[1][0], (
            "whoever stands behind it has missed nothing"
        )
        await shelf.on("b1", lambda world: log.delete_cursor("t"))
        await shelf.on("b1", lambda world: log.delete_cursor("s"))
        await shelf.sleep(1)
        assert [ledger.entries for ledger in log.ledgers] == [0], (
            "without a subscription nothing is kept"
        )

    simulate(scenario)


def test_ledgers_whose_deletion_failed_are_deleted_by_the_next_owner() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.retention = Retention()
        log, _ = await shelf.open()
        await shelf.append(log, names(0, 3))
        shelf.ledgers.refuse_delete = [NotEnoughBookies("none to fence with")]
        await shelf.on("b1", lambda world: log.roll())
        await shelf.sleep(1)
        gone = (await shelf.record()).deleting
        assert len(gone) == 1
        assert gone[0] in shelf.ledgers.ledgers
        await shelf.open("b2")
        await shelf.sleep(1)
        assert (await shelf.record()).deleting == ()
        assert gone[0] not in shelf.ledgers.ledgers

    simulate(scenario)


def test_terminate_seals_for_good() -> None:
    async def scenario(shelf: Shelf) -> None:
        log, heard = await shelf.open()
        cursor = await shelf.on("b1", lambda world: log.open_cursor("s", initial=EARLIEST))
        await shelf.append(log, names(0, 3))
        last = await shelf.on("b1", lambda world: log.terminate())
        assert last == heard.appended_at[-1][0]
        with pytest.raises(TopicTerminated):
            log.append(b"more", None)
        assert await shelf.read_all(log) == names(0, 3)
        cursor.acknowledge([last])
        await shelf.on("b1", lambda world: cursor.flush())
        created = len(shelf.ledgers.created)
        again, _ = await shelf.open("b2")
        assert len(shelf.ledgers.created) == created, "a sealed log needs no ledger"
        assert again.terminated
        with pytest.raises(TopicTerminated):
            again.append(b"more", None)
        assert await shelf.read_all(again, "b2") == names(0, 3)
        taken = await shelf.on("b2", lambda world: again.open_cursor("s"))
        assert taken.is_acknowledged(last)
        cursor.acknowledge([Position(last.ledger_id, 0)])
        with pytest.raises(TopicFenced):
            await shelf.on("b1", lambda world: cursor.flush())
        await shelf.on("b2", lambda world: again.close())

    simulate(scenario)


def test_finding_by_time_is_a_binary_search_over_the_chain() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.cache_bytes = 0
        shelf.set(max_entries_per_ledger=10)
        log, heard = await shelf.open()
        for number in range(0, 50, 5):
            await shelf.append(log, names(number, number + 5))
            await shelf.sleep(0.1)

        def time_of(entry) -> int:  # type: ignore[no-untyped-def]
            return 10 * int(bytes(entry.payload)[1:])

        for wanted in (-5, 0, 1, 10, 255, 489, 490):
            shelf.ledgers.reads = 0
            found = await shelf.on(
                "b1",
                lambda world, wanted=wanted: log.find_by_time(wanted, time_of),  # type: ignore[misc]
            )
            assert found == heard.appended_at[max(0, -(-wanted // 10))][0]
            assert shelf.ledgers.reads <= 6
        assert await shelf.on("b1", lambda world: log.find_by_time(491, time_of)) is None

    simulate(scenario)


@pytest.mark.parametrize("wanted", [0, 3, 7, 12])
def test_finding_by_time_goes_on_when_trimming_takes_away_what_it_looked_at(wanted: int) -> None:
    """At whichever of its reads the first two of four ledgers go."""

    def time_of(entry) -> int:  # type: ignore[no-untyped-def]
        return int(bytes(entry.payload)[1:])

    async def find(shelf: Shelf, trim_at: int) -> bool:
        shelf.cache_bytes = 0
        log, ledgers = await filled(shelf)
        read, reads = log._reader.read, 0

        async def counted(*args: Any, **options: Any) -> Any:
            nonlocal reads
            reads += 1
            found = await read(*args, **options)
            if reads == trim_at:
                await log.trimmer.trim()
            return found

        log._reader.read = counted  # type: ignore[method-assign]
        found = await shelf.on("b1", lambda world: log.find_by_time(wanted, time_of))
        kept = max(wanted, 6) if reads >= trim_at else wanted
        assert found == (Position(ledgers[kept // 3], kept % 3) if wanted < 12 else None)
        return reads >= trim_at

    trim_at = 1
    while simulate(lambda shelf, at=trim_at: find(shelf, at)):  # type: ignore[misc]
        trim_at += 1
    assert trim_at > 2


@pytest.mark.parametrize("wanted", [12, 13, 14])
def test_finding_by_time_looks_at_what_is_appended_while_it_looks(wanted: int) -> None:
    """All that was there is older: whoever then went to the end would miss what has come since."""

    async def scenario(shelf: Shelf) -> None:
        shelf.cache_bytes = 0
        log, ledgers = await filled(shelf)
        read, reads = log._reader.read, 0

        async def counted(*args: Any, **options: Any) -> Any:
            nonlocal reads
            reads += 1
            found = await read(*args, **options)
            if reads == 1:
                await shelf.append(log, names(12, 14))
            return found

        log._reader.read = counted  # type: ignore[method-assign]
        found = await shelf.on(
            "b1",
            lambda world: log.find_by_time(wanted, lambda entry: int(bytes(entry.payload)[1:])),
        )
        assert found == (Position(ledgers[4], wanted - 12) if wanted < 14 else None)

    simulate(scenario)


@pytest.mark.parametrize("wanted", [3, 12, 13, 14])
def test_finding_by_time_looks_at_what_came_when_all_that_it_looked_at_is_trimmed(
    wanted: int,
) -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.cache_bytes = 0
        log, ledgers = await filled(shelf)
        cursor = await shelf.on("b1", lambda world: log.open_cursor("keeper"))
        read, reads = log._reader.read, 0

        async def counted(*args: Any, **options: Any) -> Any:
            nonlocal reads
            reads += 1
            found = await read(*args, **options)
            if reads == 1:
                await log.roll()
                cursor.acknowledge_cumulative(log.last_confirmed)
                await cursor.flush()
                await log.trimmer.trim(Retention())
                await shelf.append(log, names(12, 14))
                assert {link.ledger_id for link in log.ledgers}.isdisjoint(ledgers[:4])
            return found

        log._reader.read = counted  # type: ignore[method-assign]
        found = await shelf.on(
            "b1",
            lambda world: log.find_by_time(wanted, lambda entry: int(bytes(entry.payload)[1:])),
        )
        (kept,) = [link.ledger_id for link in log.ledgers]
        assert found == (Position(kept, max(0, wanted - 12)) if wanted < 14 else None)

    simulate(scenario)


def test_room_comes_back_when_entries_are_confirmed() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(pending_entries_max=5)
        log, heard = await shelf.open()
        shelf.ledgers.hold = True

        async def work(world: World) -> float:
            for payload in names(0, 5):
                assert log.has_room
                log.append(payload, payload)
            assert not log.has_room
            began = world.clock.monotonic()
            await log.wait_for_room()
            return world.clock.monotonic() - began

        shelf.sim.at(3.0, shelf.ledgers.release)
        assert await shelf.on("b1", work) > 2.9
        assert heard.confirmed == names(0, 5)

    simulate(scenario)


def test_a_topic_that_is_not_there_or_going_is_not_found() -> None:
    from pulsarish.managed_ledger.topics_store import create_topic, delete_topic
    from pulsarish.metadata import paths
    from pulsarish.model.errors import AlreadyExists

    async def scenario(shelf: Shelf) -> None:
        log, _ = await shelf.open("b1")
        await shelf.append(log, names(0, 3))
        cursor = await shelf.on("b1", lambda world: log.open_cursor("s/%", initial=LATEST))
        assert cursor.backlog() == 0

        async def again(world: World) -> None:
            with pytest.raises(AlreadyExists):
                await create_topic(shelf.records(world), NAME, created_ms=2)

        async def delete(world: World) -> list[str]:
            client = MemoryLedgerClient(shelf.ledgers)
            await delete_topic(shelf.records(world), client, NAME)  # type: ignore[arg-type]
            with pytest.raises(TopicNotFound):
                await delete_topic(shelf.records(world), client, NAME)  # type: ignore[arg-type]
            return await shelf.records(world).children(paths.namespace_topics("public", "default"))

        await shelf.on("b2", again)
        assert await shelf.on("b2", delete) == []
        assert shelf.ledgers.ledgers == {}
        with pytest.raises(TopicNotFound):
            await shelf.open("b3")
        log.append(b"x", b"x")
        await shelf.sleep(5)
        assert log.fenced

    simulate(scenario)


def test_a_deletion_that_somebody_else_finishes_leaves_the_topic_alone_that_was_made_anew() -> None:
    from pulsarish.managed_ledger.topics_store import create_topic, delete_topic

    async def scenario(shelf: Shelf) -> None:
        reached, go_on = asyncio.Event(), asyncio.Event()

        class Slow(MemoryLedgerClient):
            async def delete(self, ledger_id: int) -> None:
                reached.set()
                await go_on.wait()
                await super().delete(ledger_id)

        async def delete(world: World, client: MemoryLedgerClient) -> None:
            await delete_topic(shelf.records(world), client, NAME)  # type: ignore[arg-type]

        async def make_anew(world: World) -> None:
            await delete(world, MemoryLedgerClient(shelf.ledgers))
            await create_topic(shelf.records(world), NAME, created_ms=2)

        before, _ = await shelf.open("b1")
        await shelf.append(before, names(0, 3))
        slow = asyncio.create_task(shelf.on("b1", lambda world: delete(world, Slow(shelf.ledgers))))
        await reached.wait()
        await shelf.on("b2", make_anew)
        log, _ = await shelf.open("b2")
        await shelf.append(log, names(3, 6), "b2")
        go_on.set()
        await slow
        assert not (await shelf.record("b2")).deleted
        again, _ = await shelf.open("b3")
        assert await shelf.read_all(again, "b3") == names(3, 6)

    simulate(scenario)


def test_a_deletion_without_an_answer_spares_the_next_topic_at_the_same_version() -> None:
    from pulsarish.managed_ledger.topics_store import create_topic, delete_topic
    from pulsarish.metadata import paths

    async def scenario(shelf: Shelf) -> None:
        async def make_anew(world: World) -> None:
            await create_topic(shelf.records(world), NAME, created_ms=2)

        class Forgetful:
            """A store that loses its answer to the first deletion of the topic's node; then the
            topic is created again.
            """

            def __init__(self, store: MetadataStore) -> None:
                self._store = store
                self.lost = False

            def __getattr__(self, name: str) -> Any:
                return getattr(self._store, name)

            async def commit(self, ops: Sequence[Op]) -> list[str | int]:
                answer = await self._store.commit(ops)
                if (ops[-1].kind, ops[-1].path) == ("delete", paths.topic(NAME)) and not self.lost:
                    self.lost = True
                    await shelf.on("b2", make_anew)
                    log, _ = await shelf.open("b2")
                    await shelf.append(log, names(3, 6), "b2")
                    await shelf.on("b2", lambda world: log.attributes.set_properties({"a": "b"}))
                    raise OutcomeUnknown("lost")
                return answer

        async def delete(world: World) -> None:
            store = Forgetful(world.metadata)
            records = Records(cast("MetadataStore", store), world.clock, world.random)
            await delete_topic(records, MemoryLedgerClient(shelf.ledgers), NAME)  # type: ignore[arg-type]
            assert store.lost

        before, _ = await shelf.open("b1")
        await shelf.append(before, names(0, 3))
        await shelf.on("b1", delete)
        again, _ = await shelf.open("b3")
        assert await shelf.read_all(again, "b3") == names(3, 6)

    simulate(scenario)


def test_a_slow_deletion_spares_the_next_topic_at_the_same_version() -> None:
    from pulsarish.managed_ledger.topics_store import create_topic, delete_topic
    from pulsarish.metadata import paths
    from pulsarish.metadata.records import TopicRecord

    async def scenario(shelf: Shelf) -> None:
        async def swift(world: World) -> None:
            records = shelf.records(world)
            found = await records.get(paths.topic(NAME), TopicRecord)
            assert found is not None
            await delete_topic(records, MemoryLedgerClient(shelf.ledgers), NAME)  # type: ignore[arg-type]
            await create_topic(records, NAME, created_ms=2)
            log, _ = await shelf.open("b2")
            while log.version < found[1]:
                await shelf.on(
                    "b2", lambda world: log.attributes.set_properties({"version": str(log.version)})
                )
            await shelf.append(log, names(3, 6), "b2")

        class Slow(MemoryLedgerClient):
            async def delete(self, ledger_id: int) -> None:
                await super().delete(ledger_id)
                await shelf.on("b2", swift)

        async def delete(world: World) -> None:
            await delete_topic(shelf.records(world), Slow(shelf.ledgers), NAME)  # type: ignore[arg-type]

        before, _ = await shelf.open("b1")
        await shelf.append(before, names(0, 3))
        await shelf.on("b1", delete)
        again, _ = await shelf.open("b3")
        assert await shelf.read_all(again, "b3") == names(3, 6)

    simulate(scenario)


def test_a_deletion_by_an_owner_that_was_replaced_is_refused() -> None:
    from pulsarish.managed_ledger.topics_store import delete_topic

    async def scenario(shelf: Shelf) -> None:
        async def delete(world: World) -> None:
            client = MemoryLedgerClient(shelf.ledgers)
            await delete_topic(shelf.records(world), client, NAME, version=before.version)  # type: ignore[arg-type]

        before, _ = await shelf.open("b1")
        await shelf.append(before, names(0, 3))
        log, _ = await shelf.open("b2")
        with pytest.raises(TopicFenced, match="not deleted"):
            await shelf.on("b1", delete)
        assert await shelf.read_all(log, "b2") == names(0, 3)
        before = log
        await shelf.on("b2", delete)
        with pytest.raises(TopicNotFound):
            await shelf.open("b3")

    simulate(scenario)


def test_a_record_that_was_read_before_is_good_only_while_nobody_else_opens() -> None:
    from pulsarish.metadata import paths
    from pulsarish.metadata.records import TopicRecord

    async def scenario(shelf: Shelf) -> None:
        async def read(world: World) -> tuple[TopicRecord, int]:
            found = await shelf.records(world).get(paths.topic(NAME), TopicRecord)
            assert found is not None
            return found

        fresh = await shelf.on("b1", read)
        log, _ = await shelf.open("b1", found=fresh)
        await shelf.append(log, names(0, 3))
        ledgers = dict(shelf.ledgers.ledgers)
        with pytest.raises(TopicFenced):
            await shelf.open("b2", found=fresh)
        assert dict(shelf.ledgers.ledgers) == ledgers, "what the refused one had made is gone again"
        await shelf.append(log, names(3, 5))
        assert log.entries == 5

    simulate(scenario)


def test_a_position_of_another_topic_is_refused() -> None:
    async def scenario(shelf: Shelf) -> None:
        log, _ = await shelf.open()
        cursor = await shelf.on("b1", lambda world: log.open_cursor("s", initial=EARLIEST))
        await shelf.append(log, names(0, 3))
        ledger = log.ledgers[-1].ledger_id
        for wrong in (Position(ledger + 1, 0), Position(ledger, 3), Position(ledger - 1, 0)):
            assert not log.contains(wrong)
        for wrong in (Position(ledger + 1, 0), Position(ledger, 3)):
            with pytest.raises(InvalidPosition):
                cursor.acknowledge([Position(ledger, 0), wrong])
            with pytest.raises(InvalidPosition):
                cursor.acknowledge_cumulative(wrong)
            with pytest.raises(InvalidPosition):
                cursor.acknowledge_batch(wrong, 2, [0])
        assert cursor.backlog() == 3

    simulate(scenario)


async def filled(shelf: Shelf) -> tuple[ManagedLedger, list[int]]:
    """Four ledgers of three entries and an empty one; nothing but ``trim`` takes any away, and that
    the first two.
    """
    log, _ = await shelf.open()
    keeper = await shelf.on("b1", lambda world: log.open_cursor("keeper", initial=EARLIEST))
    for number in range(4):
        await shelf.append(log, names(number * 3, number * 3 + 3))
        await shelf.on("b1", lambda world: log.roll())
    ledgers = [ledger.ledger_id for ledger in log.ledgers]
    keeper.acknowledge_cumulative(Position(ledgers[1], 2))
    await shelf.on("b1", lambda world: keeper.flush())
    log.trimmer.retention = Retention()
    return log, ledgers


def test_where_delivery_begins_for_a_position_that_somebody_names() -> None:
    async def scenario(shelf: Shelf) -> None:
        log, ledgers = await filled(shelf)
        purpose = LedgerPurpose(PurposeKind.TOPIC, "persistent://public/default/other")
        above = shelf.ledgers.make(purpose).ledger_id
        assert await shelf.on("b1", lambda world: log.trimmer.trim()) == 2

        async def begins(ledger_id: int, entry_id: int) -> tuple[Position, int]:
            landing = await shelf.on("b1", lambda world: log.landing(Position(ledger_id, entry_id)))
            cursor = await shelf.on(
                "b1", lambda world: log.open_cursor("probe", initial=landing, durable=False)
            )
            await shelf.on("b1", lambda world: log.delete_cursor("probe"))
            return cursor.read_from, cursor.trimmed_positions

        first, end = Position(ledgers[2], 0), Position(ledgers[4], 0)
        assert await begins(*EARLIEST) == (first, 0)
        assert await begins(*LATEST) == (end, 0)
        assert await begins(ledgers[2], 1) == (Position(ledgers[2], 1), 0)
        assert await begins(ledgers[2], 1_000) == (Position(ledgers[3], 0), 0), (
            "beyond the end of a closed ledger"
        )
        assert await begins(ledgers[4], 1_000) == (end, 0), "beyond the end of the log"
        assert await begins(ledgers[3], -1) == (Position(ledgers[3], 0), 0)
        assert await begins(ledgers[0], 1) == (first, 1), "trimmed, and told"
        for ledger_id in (above, above + 1_000):
            with pytest.raises(
                InvalidPosition,
                match=f"ledger id {ledger_id}, which is no ledger of topic persistent://",
            ):
                await begins(ledger_id, 0)
        # Among the topic's own ids too.
        await shelf.on("b1", lambda world: log.roll())
        await shelf.append(log, names(12, 13))
        await shelf.on("b1", lambda world: log.roll())
        assert log.ledgers[-1].ledger_id > above
        with pytest.raises(InvalidPosition, match="no ledger of topic"):
            await begins(above, 0)

    simulate(scenario)


def test_an_owner_that_was_replaced_does_not_refuse_a_ledger_of_its_successor() -> None:
    async def scenario(shelf: Shelf) -> None:
        log, _ = await shelf.open("b1")
        newer, _ = await shelf.open("b2")
        ledger_id = newer.ledgers[-1].ledger_id
        with pytest.raises(ServiceNotReady, match="look it up again"):
            await shelf.on("b1", lambda world: log.landing(Position(ledger_id, 0)))

    simulate(scenario)


def test_a_reader_that_trimming_overtakes_goes_on_at_the_first_entry_kept_and_says_so() -> None:
    async def scenario(shelf: Shelf) -> None:
        log, ledgers = await filled(shelf)
        slow = await shelf.on(
            "b1", lambda world: log.open_cursor("slow", initial=EARLIEST, durable=False)
        )
        quick = await shelf.on(
            "b1", lambda world: log.open_cursor("quick", initial=EARLIEST, durable=False)
        )
        quick.acknowledge_cumulative(Position(ledgers[1], 2))
        await shelf.on("b1", lambda world: log.trimmer.trim())
        assert slow.read_from == quick.read_from == Position(ledgers[2], 0)
        assert (slow.trimmed_positions, quick.trimmed_positions) == (1, 0), (
            "one had read all that was trimmed"
        )

    simulate(scenario)
