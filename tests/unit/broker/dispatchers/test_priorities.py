"""Shared subscriptions that deliver by priority: order, bounds, and that nothing is lost or comes
twice, whatever happens meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from pulsarish.broker.clients.consumer import Consumer, Delivery
from pulsarish.broker.dispatchers.priority_window import PriorityWindow
from pulsarish.broker.dispatchers.reads import Read, Ready
from pulsarish.broker.dispatchers.shared import SharedDispatcher
from pulsarish.model.position import Position
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import PRIORITY_DEFAULT, PRIORITY_PROPERTY, encode_entry
from tests.support.dispatching import Log, Outlet, ack, at, consumer, drive
from tests.unit.broker.dispatchers.test_dispatchers import shared

WINDOW = 40


def payload(priority: int) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    if priority != PRIORITY_DEFAULT:
        metadata.properties.add(key=PRIORITY_PROPERTY, value=str(priority))
    return encode_entry(metadata, b"")


PAYLOADS = [payload(priority) for priority in range(10)]


def log_of(priorities: Sequence[int], **changes: int) -> Log:
    return Log(len(priorities), payload=lambda entry: PAYLOADS[priorities[entry]], **changes)


def by_priority(log: Log, *, window: int = WINDOW, **changes: int) -> SharedDispatcher:
    dispatcher = shared(log, **changes)
    dispatcher.prioritise(window, lambda: log.end)
    return dispatcher


def joined(dispatcher: SharedDispatcher, order: int, permits: int) -> tuple[Consumer, Outlet]:
    who, outlet = consumer(order, permits=permits)
    dispatcher.add(who)
    return who, outlet


def test_the_highest_priority_comes_first_and_within_one_the_order_of_the_log() -> None:
    log = log_of([4, 0, 9, 4, 9, 7, 0, 4])
    dispatcher = by_priority(log)
    _, outlet = joined(dispatcher, 1, 100)
    drive(dispatcher, log)
    assert outlet.entries == [2, 4, 5, 0, 3, 7, 1, 6]
    assert not len(dispatcher.reads.window or ())


def test_what_consumers_take_at_once_is_read_once() -> None:
    log = log_of([4, 0, 9, 4, 9, 7, 0, 4])
    dispatcher = by_priority(log)
    _, outlet = joined(dispatcher, 1, 100)
    assert drive(dispatcher, log) == 1
    assert len(outlet.entries) == 8


def test_consumers_take_turns_and_no_one_gets_more_than_it_asked_for() -> None:
    log = log_of([0, 9] * 10)
    dispatcher = by_priority(log, turn_messages=2)
    one, first = joined(dispatcher, 1, 3)
    _, second = joined(dispatcher, 2, 4)
    drive(dispatcher, log)
    assert (len(first.got), len(second.got), one.permits) == (3, 4, 0)
    assert sorted(first.entries + second.entries) == [1, 3, 5, 7, 9, 11, 13]


def test_what_comes_later_goes_first_if_its_priority_is_higher() -> None:
    priorities = [4] * 20
    log = log_of(priorities)
    dispatcher = by_priority(log)
    one, outlet = joined(dispatcher, 1, 2)
    drive(dispatcher, log)
    priorities += [9, 3, 5]
    log.count = len(priorities)
    one.permits = 3
    drive(dispatcher, log)
    assert outlet.entries == [0, 1, 20, 22, 2]


def test_the_window_is_bounded_and_moves_on() -> None:
    priorities = [0] * 300 + [9] * 10
    log = log_of(priorities)
    dispatcher = by_priority(log)
    one, outlet = joined(dispatcher, 1, 1)
    drive(dispatcher, log)
    window = dispatcher.reads.window
    assert window is not None
    assert WINDOW - window.step <= len(window) + 1 <= WINDOW
    assert dispatcher.reads.position <= at(WINDOW)
    assert dispatcher.stats() == {
        "messagePriorities": {"window": WINDOW, "entries": {"0": len(window)}, "unsorted": 0}
    }
    while len(outlet.got) < 310:
        ack(dispatcher, log, one, *outlet.entries)
        one.permits += 7
        drive(dispatcher, log)
        assert len(window) <= WINDOW
    assert outlet.entries.index(300) <= 300 - WINDOW + window.step + 7
    assert sorted(outlet.entries) == list(range(310))


def test_a_window_of_one_entry_keeps_the_order_of_the_log() -> None:
    log = log_of([4, 0, 9, 4])
    dispatcher = by_priority(log, window=1)
    _, outlet = joined(dispatcher, 1, 100)
    drive(dispatcher, log)
    assert outlet.entries == [0, 1, 2, 3]


def test_what_is_delivered_again_competes_with_its_priority() -> None:
    log = log_of([9, 0, 4, 4, 4, 4])
    dispatcher = by_priority(log)
    one, first = joined(dispatcher, 1, 2)
    drive(dispatcher, log)
    assert first.entries == [0, 2]
    dispatcher.redeliver(one, [at(0), at(2)])
    one.permits = 100
    drive(dispatcher, log)
    assert first.entries[2:] == [0, 2, 3, 4, 5, 1]
    assert [each.redelivery_count for each in first.got[2:]] == [1, 1, 0, 0, 0, 0]


def test_what_a_lost_consumer_had_goes_to_another_by_priority() -> None:
    log = log_of([9, 0, 4, 7, 1])
    dispatcher = by_priority(log)
    one, _ = joined(dispatcher, 1, 100)
    drive(dispatcher, log)
    ack(dispatcher, log, one, 3)
    _, second = joined(dispatcher, 2, 100)
    dispatcher.remove(one)
    drive(dispatcher, log)
    assert second.entries == [0, 2, 4, 1]


def test_without_consumers_nothing_is_kept_in_memory() -> None:
    log = log_of([4] * 30)
    dispatcher = by_priority(log)
    one, _ = joined(dispatcher, 1, 5)
    drive(dispatcher, log)
    dispatcher.remove(one)
    assert dispatcher.waiting_count == 0
    assert dispatcher.reads.position == at(0)


def test_what_is_skipped_or_has_expired_leaves_the_window() -> None:
    log = log_of([4] * 10)
    dispatcher = by_priority(log)
    one, outlet = joined(dispatcher, 1, 1)
    drive(dispatcher, log)
    log.acked.update(range(4))
    dispatcher.acknowledged_through(at(3))
    log.acked.add(7)
    dispatcher.expired([at(7)])
    assert dispatcher.waiting() == {at(entry) for entry in (4, 5, 6, 8, 9)}
    dispatcher.check()
    one.permits = 100
    drive(dispatcher, log)
    assert outlet.entries == [0, 4, 5, 6, 8, 9]


def test_what_expires_while_it_waits_is_not_delivered() -> None:
    log = log_of([4] * 6)
    log.expires_ms = lambda entry: 50 if entry in (1, 3) else 0
    dispatcher = by_priority(log)
    one, outlet = joined(dispatcher, 1, 1)
    dispatcher.reads.note_expiry(50)
    drive(dispatcher, log)
    assert dispatcher.take_expired(49) == []
    assert dispatcher.take_expired(50) == [at(1), at(3)]
    assert dispatcher.reads.first_expiry_ms == 0
    one.permits = 100
    drive(dispatcher, log)
    assert outlet.entries == [0, 2, 4, 5]


def test_an_entry_that_was_acknowledged_while_it_waited_does_not_come() -> None:
    log = log_of([4] * 6)
    dispatcher = by_priority(log)
    one, outlet = joined(dispatcher, 1, 1)
    drive(dispatcher, log)
    ack(dispatcher, log, one, 1, 4)
    one.permits = 100
    drive(dispatcher, log)
    assert outlet.entries == [0, 2, 3, 5]


def test_entries_that_were_acknowledged_while_they_waited_are_forgotten() -> None:
    window = 8
    log = log_of([4] * 200)
    dispatcher = by_priority(log, window=window)
    one, _ = joined(dispatcher, 1, 1)
    drive(dispatcher, log)
    for entry in range(1, 199, 2):
        ack(dispatcher, log, one, entry)
        one.permits = 1
        drive(dispatcher, log)
    assert len(dispatcher.reads.gone) <= window


def test_a_batch_of_which_a_part_is_acknowledged_is_read_again() -> None:
    log = log_of([4] * 6, messages=2)
    dispatcher = by_priority(log)
    one, outlet = joined(dispatcher, 1, 2)
    drive(dispatcher, log)
    dispatcher.partly_acknowledged(one, at(1), 1)
    one.permits = 100
    assert drive(dispatcher, log) > 0, "what was read before would bring all of the batch"
    assert outlet.entries == [0, 1, 2, 3, 4, 5]


def test_delayed_entries_compete_once_they_are_due() -> None:
    log = log_of([4, 9, 4, 0, 4])
    log.due_ms = lambda entry: 100 if entry in (1, 3) else 0
    dispatcher = by_priority(log)
    one, outlet = joined(dispatcher, 1, 1)
    drive(dispatcher, log)
    log.now_ms = 2_000
    dispatcher.reads.release(log.now_ms)
    one.permits = 100
    drive(dispatcher, log)
    assert outlet.entries == [0, 1, 2, 4, 3]


def test_what_is_known_comes_though_only_delayed_entries_are_left_to_look_at() -> None:
    delayed = range(8, 24)
    log = log_of([4] * delayed.stop)
    log.due_ms = lambda entry: 1_000 if entry in delayed else 0
    dispatcher = by_priority(log)
    one, _ = joined(dispatcher, 1, 100)
    drive(dispatcher, log)
    reads = dispatcher.reads
    assert reads.delayed.seal(0, len(delayed), 10) is not None
    dispatcher.remove(one)
    _, outlet = joined(dispatcher, 2, 100)
    drive(dispatcher, log)
    assert outlet.entries == list(range(delayed.start))


def test_due_entries_have_room_beside_a_full_window() -> None:
    log = log_of([4] * 400)
    log.due_ms = lambda entry: 100 if entry == 0 else 0
    dispatcher = by_priority(log)
    joined(dispatcher, 1, 1)
    drive(dispatcher, log)
    assert dispatcher.reads.wait_ms(0) == 100


def test_while_the_cursor_is_full_nothing_new_is_read_ahead() -> None:
    log = log_of([4] * 10 + [9])
    dispatcher = shared(log)
    dispatcher.prioritise(4, lambda: None)
    one, outlet = joined(dispatcher, 1, 1)
    assert drive(dispatcher, log, blocked=True) == 0
    dispatcher.prioritise(4, lambda: log.end)
    drive(dispatcher, log)
    dispatcher.prioritise(4, lambda: None)
    one.permits = 100
    drive(dispatcher, log, blocked=True)
    assert outlet.entries == [0, 1, 2, 3], "and what was read comes"


def test_an_entry_that_cannot_be_read_does_not_hold_up_what_is_known() -> None:
    log = log_of([4] * 30)
    dispatcher = by_priority(log)
    _, outlet = joined(dispatcher, 1, 100)
    reads = dispatcher.reads
    for _ in range(40):
        dispatcher.deliver()
        read = dispatcher.plan(log.end, blocked=False)
        assert read is not None
        if read.start <= at(15) < at(read.start.entry_id + read.entries_max):
            reads.failed(read, "no bookie answers", 5)
        else:
            reads.succeeded(read, log.read(read), log.end)
    assert outlet.entries == list(range(15))
    drive(dispatcher, log)
    assert outlet.entries == list(range(30))


@pytest.mark.parametrize("is_known", [True, False])
def test_a_read_that_ends_early_loses_nothing(*, is_known: bool) -> None:
    log = log_of([4] * 25)
    dispatcher = by_priority(log)
    one, outlet = joined(dispatcher, 1, 1)
    drive(dispatcher, log)
    if not is_known:
        dispatcher.redeliver(one, [at(0)])
    one.permits = 100
    reads = dispatcher.reads
    dispatcher.deliver()
    while (read := dispatcher.plan(log.end, blocked=False)) is not None:
        reads.succeeded(read, log.read(read)[:1], log.end)
        dispatcher.deliver()
        dispatcher.check()
    assert outlet.entries == [0, *range(1 if is_known else 0, 25)]


def test_payloads_of_a_few_reads_are_kept_and_no_more() -> None:
    window: PriorityWindow[Ready] = PriorityWindow(10, 1_000)
    window.entries_max = 1_000
    for first in range(0, 500, 10):
        window.add([Ready(at(first + i), PAYLOADS[4], 1, None) for i in range(10)])
        window.check()
    assert sum(position in window._kept for position in window.positions) <= 20
    window.add([Ready(at(1_000), PAYLOADS[4] + bytes(1_900), 1, None)])
    assert window._kept.keys() == {at(1_000)}
    window.check()


@dataclass
class _Run:
    """A subscription under random events, and what each delivery is judged by."""

    rng: random.Random
    priorities: list[int] = field(default_factory=list)
    expired: set[int] = field(default_factory=set)
    delivered: dict[int, int] = field(default_factory=dict)
    reasons: dict[int, int] = field(default_factory=dict)
    """How often an entry was given back, or lost with all consumers."""
    failing: bool = False

    def __post_init__(self) -> None:
        self.log = log_of(self.priorities)
        self.log.due_ms = lambda entry: 1_000 * (entry // 3) if entry % 11 == 5 else 0
        self.dispatcher = shared(self.log)
        self.joined = 0

    def prioritise(self, entries_max: int) -> None:
        self.dispatcher.prioritise(entries_max, lambda: self.log.end)

    def publish(self) -> None:
        self.priorities += [self.rng.randrange(10) for _ in range(self.rng.randrange(12))]
        self.log.count = len(self.priorities)

    def join(self) -> None:
        who, outlet = consumer(self.joined, permits=self.rng.randrange(8))
        outlet.heard = self.heard
        self.joined += 1
        if not self.dispatcher.consumers:
            self.dispatcher.reads.rewind(self.log.read_from())
        self.dispatcher.add(who)

    def heard(self, _consumer_id: int, delivery: Delivery) -> None:
        entry = delivery.position.entry_id
        self.delivered[entry] = self.delivered.get(entry, 0) + 1
        assert self.delivered[entry] <= 1 + self.reasons.get(entry, 0), "it comes twice"
        window = self.dispatcher.reads.window
        assert window is None or entry not in self.log.acked, "it is acknowledged"
        if window is not None and not self.failing:
            own = (-self.priorities[entry], entry)
            assert not any(
                (-self.priorities[other.entry_id], other.entry_id) < own
                for other in window.positions
            ), "a higher priority waits, or an earlier one with the same"

    def give_back(self, who: Consumer) -> None:
        for position in who.pending:
            self.reasons[position.entry_id] = self.reasons.get(position.entry_id, 0) + 1

    def event(self) -> None:
        rng, dispatcher = self.rng, self.dispatcher
        who = rng.choice(dispatcher.consumers) if dispatcher.consumers else None
        kind = rng.randrange(12)
        if kind < 2:
            self.publish()
        elif who is None or (kind == 2 and len(dispatcher.consumers) < 3):
            self.join()
        elif kind < 5:
            who.permits += rng.randrange(1, 10)
        elif kind < 7 and who.pending:
            some = [each.entry_id for each in who.pending if rng.random() < 0.6]
            ack(dispatcher, self.log, who, *some)
        elif kind == 7 and who.pending:
            position = rng.choice(list(who.pending))
            self.reasons[position.entry_id] = self.reasons.get(position.entry_id, 0) + 1
            dispatcher.redeliver(who, [position])
        elif kind == 8 and rng.random() < 0.3:
            self.give_back(who)
            dispatcher.remove(who)
        elif kind == 9:
            self.prioritise(rng.choice((0, 3, 25, 200)))
        elif kind == 10:
            self.end_some()
        elif kind == 11 and rng.random() < 0.3:
            dispatcher.restart()

    def end_some(self) -> None:
        if self.rng.random() < 0.2:
            last = self.log.read_from().entry_id + self.rng.randrange(3)
            if last < self.log.count:
                self.log.acked.update(range(last + 1))
                self.dispatcher.acknowledged_through(at(last))
        elif self.priorities:
            entry = self.rng.randrange(len(self.priorities))
            self.log.acked.add(entry)
            self.dispatcher.expired([at(entry)])

    def work(self, reads_max: int, fail_chance: float, event_chance: float) -> None:
        """Do what the subscription's task does, and stop after some reads, as a task may that
        other ones interrupt.
        """
        reads = self.dispatcher.reads
        self.log.now_ms += self.rng.randrange(500)
        reads.release(self.log.now_ms)
        self.dispatcher.deliver()
        for _ in range(reads_max):
            read = self.dispatcher.plan(self.log.end, blocked=False)
            if read is None:
                return
            if self.rng.random() < event_chance:
                self.event()  # during the read
            self.failing = self.rng.random() < fail_chance
            if self.failing:
                reads.failed(read, "no bookie answers", 1)
            else:
                self.answer(read)
            self.dispatcher.deliver()
            self.dispatcher.check()

    def answer(self, read: Read) -> None:
        found = self.log.read(read)
        if self.rng.random() < 0.2:
            found = found[: self.rng.randrange(1, len(found) + 1)] if found else found
        self.dispatcher.reads.succeeded(read, found, self.log.end)


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_or_comes_twice_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    run = _Run(rng)
    run.prioritise(rng.choice((0, 5, 50)))
    run.publish()
    run.join()
    for _ in range(400):
        run.event()
        run.work(rng.randrange(5), 0.1, 0.2)
    for who in list(run.dispatcher.consumers):
        run.give_back(who)
        run.dispatcher.remove(who)
    run.join()
    (last,) = run.dispatcher.consumers
    run.log.now_ms = 1 << 40
    for _ in range(3 + len(run.priorities)):
        last.permits += 50
        run.work(10_000, 0, 0)
        ack(run.dispatcher, run.log, last, *[each.entry_id for each in last.pending])
    assert run.log.acked == set(range(len(run.priorities))), "some never came"
    assert run.dispatcher.holds_nothing


def test_positions_in_several_ledgers_are_read_ledger_by_ledger() -> None:
    window: PriorityWindow[Ready] = PriorityWindow(10, 1_000)
    window.entries_max = 100
    window.put_back([Position(2, 0), Position(1, 7), Position(1, 5), Position(1, 60)], 3)
    window.put_back([Position(3, 0)], 8)
    runs = [window.take_first(10) for _ in range(5)]
    assert runs == [
        ([Position(3, 0)], 8),
        ([Position(1, 5), Position(1, 7)], 3),
        ([Position(1, 60)], 3),
        ([Position(2, 0)], 3),
        ([], -1),
    ]
