"""Delayed entries: when, in what order and how many are due, compared with a sorted list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.broker.clients.commands import KeySharedPolicy
from pulsarish.broker.dispatchers.delay_bucket import pack
from pulsarish.broker.dispatchers.delayed import DELAYS_OVER, DelayedEntries
from pulsarish.broker.dispatchers.key_shared import KeySharedDispatcher, LookAhead
from pulsarish.broker.dispatchers.multi_consumer import SharingLimits
from pulsarish.broker.dispatchers.reads import ReadLimits
from pulsarish.broker.dispatchers.shared import SharedDispatcher
from pulsarish.model.position import Position
from tests.support.dispatching import Log, ack, at, consumer, drive

SHARING = SharingLimits(10, 20, 0, 0)


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.integers(0, 1 << 40), st.integers(0, 1 << 30)),
        unique_by=lambda each: each[1:],
    ),
    st.integers(1, 7),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5))),
)
def test_what_is_due_is_taken_in_order_and_never_early(
    added: list[tuple[int, int, int]], tick: int, steps: list[tuple[int, int]]
) -> None:
    delayed = DelayedEntries(1_000)
    delayed.tick_ms = tick
    dull: list[tuple[int, Position]] = []
    for due, ledger, entry in added:
        delayed.add(Position(ledger, entry), due)
        dull.append((-(-due // tick) * tick, Position(ledger, entry)))
    dull.sort()
    for now, count in steps:
        assert delayed.next_due_ms == (dull[0][0] if dull else None)
        due_now = [position for due, position in dull if due <= now][:count]
        assert delayed.take_due(now, count) == due_now
        dull = [each for each in dull if each[1] not in due_now]
        assert len(delayed) == len(dull)


def test_what_was_skipped_is_not_waited_for() -> None:
    delayed = DelayedEntries(3)
    for entry in range(3):
        delayed.add(Position(5, entry), 100 - entry)
    assert delayed.is_full
    delayed.drop_through(Position(5, 1))
    assert (len(delayed), delayed.is_full) == (1, False)
    assert delayed.take_due(DELAYS_OVER, 10) == [Position(5, 2)]


def dispatcher(
    log: Log, *, by_key: bool, delayed_max: int = 100
) -> SharedDispatcher | KeySharedDispatcher:
    limits = ReadLimits(
        entries_max=10,
        bytes_max=1 << 20,
        backoff_min_seconds=0.1,
        backoff_max_seconds=1.0,
        delayed_max=delayed_max,
    )
    if not by_key:
        return SharedDispatcher(
            read_from=log.read_from, acknowledged=log.acknowledged, limits=limits, sharing=SHARING
        )
    return KeySharedDispatcher(
        read_from=log.read_from,
        acknowledged=log.acknowledged,
        limits=limits,
        sharing=SHARING,
        policy=KeySharedPolicy(),
        ring_points=100,
        look_ahead=LookAhead(10, 100, 1 << 20),
    )


@pytest.mark.parametrize("by_key", [False, True])
def test_others_pass_and_what_comes_due_is_read_and_delivered(by_key: bool) -> None:
    log = Log(
        10, due_ms=lambda entry: 100 * entry if entry % 2 else 0, key_hash=lambda entry: 1 + entry
    )
    shared = dispatcher(log, by_key=by_key)
    one, outlet = consumer(1, permits=100)
    shared.add(one)
    drive(shared, log)
    assert outlet.entries == [0, 2, 4, 6, 8]
    assert len(shared.reads.delayed) == 5
    assert shared.reads.wait_ms(40) == 60
    log.now_ms = 500
    shared.reads.release(log.now_ms)
    drive(shared, log)
    assert outlet.entries[5:] == [1, 3, 5]
    assert [delivery.redelivery_count for delivery in outlet.got] == [0] * 8
    ack(shared, log, one, *outlet.entries)
    shared.remove(one)
    two, again = consumer(2, permits=100)
    shared.add(two)
    drive(shared, log)
    assert (again.entries, len(shared.reads.delayed)) == ([], 2), (
        "who comes after a while finds the others still waiting"
    )
    log.now_ms = 1_000
    shared.reads.release(log.now_ms)
    drive(shared, log)
    assert again.entries == [7, 9]


@pytest.mark.parametrize("by_key", [False, True])
def test_at_the_limit_nothing_new_is_read(by_key: bool) -> None:
    log = Log(60, due_ms=lambda entry: 1_000 if entry < 30 else 0, key_hash=lambda entry: 1 + entry)
    shared = dispatcher(log, by_key=by_key, delayed_max=20)
    one, outlet = consumer(1, permits=100)
    shared.add(one)
    drive(shared, log)
    assert (outlet.entries, len(shared.reads.delayed)) == ([], 20)
    log.now_ms = 1_000
    shared.reads.release(log.now_ms)
    drive(shared, log)
    assert sorted(outlet.entries) == list(range(60))


def test_what_is_due_and_cannot_be_delivered_waits_where_it_takes_less_room() -> None:
    log = Log(400, due_ms=lambda entry: 1_000, key_hash=lambda entry: 1 + entry)
    shared = dispatcher(log, by_key=True, delayed_max=1_000)
    one, outlet = consumer(1, permits=1)
    shared.add(one)
    drive(shared, log)
    assert len(shared.reads.delayed) == 400
    log.now_ms = 1_000
    while shared.has_room and shared.reads.wait_ms(log.now_ms) is not None:
        shared.reads.release(log.now_ms)
        drive(shared, log)
    assert len(outlet.got) == 1
    assert len(shared.reads.delayed) >= 400 - 10 * 10 - 10
    one.permits = 400
    for _ in range(50):
        shared.reads.release(log.now_ms)
        drive(shared, log)
    assert outlet.entries == list(range(400))


@pytest.mark.parametrize("by_key", [False, True])
def test_what_was_delivered_or_came_due_waits_no_more_though_the_calendar_is_set_back(
    by_key: bool,
) -> None:
    log = Log(2, due_ms=lambda entry: 100, key_hash=lambda entry: 1 + entry)
    shared = dispatcher(log, by_key=by_key)
    one, outlet = consumer(1, permits=1)
    shared.add(one)
    drive(shared, log)
    log.now_ms = 100
    shared.reads.release(log.now_ms)
    drive(shared, log)
    log.now_ms = 0
    shared.redeliver(one, [at(0)])
    one.permits = 10
    drive(shared, log)
    assert sorted(outlet.entries) == [0, 0, 1]
    assert not shared.reads.delayed


def test_the_times_of_delayed_entries_are_known_in_memory_and_about_known_in_buckets() -> None:
    delayed = DelayedEntries(100)
    for entry in range(8):
        delayed.add(at(entry), 1_000 * (8 - entry))
    bucket = delayed.seal(0, 4, 3)
    assert bucket is not None
    delayed.add(at(9), 50)
    asked = [at(entry) for entry in (0, 5, 9, 10)]
    assert delayed.due_times(asked) == {at(0): 1_000, at(5): 1_000, at(9): 50}
    bucket.stored(77)
    assert delayed.take_due(1_000, 10) == [at(9)]
    bucket.loaded(0, [pack(1_000 * due, at(8 - due)) for due in (1, 2, 3)])
    assert delayed.take_due(1_000, 10) == [at(7)]
    assert delayed.due_times(asked) == {at(0): 2_000, at(5): 2_000}
    assert delayed.not_in_memory(asked) == asked
