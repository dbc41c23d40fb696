"""The cores of dispatchers: permits, turns, redelivery, failover order, disconnects, limits,
failing reads.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.dispatchers import multi_consumer
from pulsarish.broker.dispatchers.chunks import Chunk
from pulsarish.broker.dispatchers.dispatcher import Dispatcher
from pulsarish.broker.dispatchers.multi_consumer import SharingLimits
from pulsarish.broker.dispatchers.reads import Reads, Ready
from pulsarish.broker.dispatchers.shared import SharedDispatcher
from pulsarish.broker.dispatchers.single_active import SingleActiveDispatcher
from pulsarish.model.errors import ConsumerBusy
from pulsarish.model.position import Position
from tests.support.dispatching import LIMITS, Log, ack, at, consumer, drive, forget


def shared(log: Log, **changes: int) -> SharedDispatcher:
    settings = {
        "consumers_max": 10,
        "turn_messages": 20,
        "unacked_max_consumer": 0,
        "unacked_max_subscription": 0,
        **changes,
    }
    return SharedDispatcher(
        read_from=log.read_from,
        acknowledged=log.acknowledged,
        limits=LIMITS,
        sharing=SharingLimits(**settings),
    )


def single(
    log: Log, *, failover: bool = False, partition: int = -1, slowly: bool = False
) -> SingleActiveDispatcher:
    return SingleActiveDispatcher(
        failover=failover,
        partition=partition,
        read_from=log.read_from,
        acknowledged=log.acknowledged,
        limits=LIMITS,
        consumers_max=10,
        hands_over_slowly=slowly,
    )


class TestSingleActive:
    def test_permits_are_messages_and_a_batch_is_delivered_whole(self) -> None:
        log = Log(5, messages=3)
        dispatcher = single(log)
        one, outlet = consumer(1, permits=4)
        dispatcher.add(one)
        drive(dispatcher, log)
        assert outlet.entries == [0, 1]
        assert one.permits == -2, "one batch too far is allowed, not two"
        one.permits += 2
        drive(dispatcher, log)
        assert outlet.entries == [0, 1]
        one.permits += 1
        drive(dispatcher, log)
        assert outlet.entries == [0, 1, 2]

    def test_without_room_nothing_is_read_or_delivered(self) -> None:
        log = Log(5)
        dispatcher = single(log)
        one, outlet = consumer(1, permits=10)
        outlet.has_room = False
        dispatcher.add(one)
        assert drive(dispatcher, log) == 0
        outlet.has_room = True
        drive(dispatcher, log)
        assert outlet.entries == [0, 1, 2, 3, 4]

    def test_a_second_exclusive_consumer_is_refused(self) -> None:
        dispatcher = single(Log(1))
        dispatcher.add(consumer(1)[0])
        with pytest.raises(ConsumerBusy, match="c1"):
            dispatcher.add(consumer(2)[0])

    @pytest.mark.parametrize(
        ("members", "partition", "active"),
        [
            ([("b", 0), ("a", 0)], -1, "a"),
            ([("b", 0), ("a", 1)], -1, "b"),
            ([("a", 0), ("b", 0), ("c", 0)], 1, "b"),
            ([("a", 0), ("b", 0), ("c", 0)], 5, "c"),
            ([("c", 1), ("b", 1), ("a", 2)], 0, "b"),
        ],
    )
    def test_the_active_one_is_by_level_then_name_rotated_by_partition(
        self, members: list[tuple[str, int]], partition: int, active: str
    ) -> None:
        dispatcher = single(Log(1), failover=True, partition=partition)
        for order, (name, level) in enumerate(members):
            dispatcher.add(consumer(order, name=name, level=level)[0])
            dispatcher.check()
        assert dispatcher.active is not None
        assert dispatcher.active.name == active

    def test_the_next_one_gets_what_was_not_acknowledged_and_the_old_one_nothing_more(self) -> None:
        log = Log(6)
        dispatcher = single(log, failover=True)
        old, old_outlet = consumer(1, permits=4, name="b")
        dispatcher.add(old)
        drive(dispatcher, log)
        ack(dispatcher, log, old, 0, 2)
        new, new_outlet = consumer(2, permits=10, name="a")
        dispatcher.add(new)
        drive(dispatcher, log)
        assert new_outlet.entries == [1, 3, 4, 5]
        assert [delivery.redelivery_count for delivery in new_outlet.got] == [1, 1, 0, 0]
        assert old_outlet.entries == [0, 1, 2, 3]
        assert (old_outlet.active(), new_outlet.active()) == ([True, False], [True])
        dispatcher.remove(new)
        old.permits = 10
        drive(dispatcher, log)
        assert [delivery.redelivery_count for delivery in old_outlet.got[4:]] == [2, 2, 1, 1]

    def test_who_is_replaced_may_acknowledge_before_the_next_one_begins(self) -> None:
        log = Log(6)
        dispatcher = single(log, failover=True, slowly=True)
        old, old_outlet = consumer(1, permits=4, name="c")
        dispatcher.add(old)
        drive(dispatcher, log)
        middle, middle_outlet = consumer(2, permits=10, name="b")
        new, new_outlet = consumer(3, permits=10, name="a")
        for each in (middle, new):
            dispatcher.add(each)
            drive(dispatcher, log)
            dispatcher.check()
        assert dispatcher.active is new
        assert (old_outlet.active(), middle_outlet.active(), new_outlet.active()) == (
            [True, False],
            [],
            [],
        )
        assert old_outlet.entries == [0, 1, 2, 3]
        ack(dispatcher, log, old, 0, 1, 2)
        dispatcher.hand_over()
        drive(dispatcher, log)
        assert (middle_outlet.entries, new_outlet.entries, new_outlet.active()) == (
            [],
            [3, 4, 5],
            [True],
        )
        dispatcher.remove(new)
        drive(dispatcher, log)
        assert middle_outlet.entries == [3, 4, 5], "from one that is gone nothing more comes"
        dispatcher.hand_over()
        assert middle_outlet.active() == [True]

    def test_counts_of_redelivery_never_fall(self) -> None:
        log = Log(3)
        dispatcher = single(log)
        one, outlet = consumer(1, permits=100)
        dispatcher.add(one)
        counts = []
        for positions in ([], [at(1)], [at(1)], [], [at(1)], []):
            dispatcher.redeliver(one, positions)
            drive(dispatcher, log)
            counts.append(
                next(
                    each.redelivery_count for each in reversed(outlet.got) if each.position == at(1)
                )
            )
        assert counts == sorted(counts)
        assert counts[-1] == 5

    def test_some_are_redelivered_alone_and_all_from_the_first(self) -> None:
        log = Log(5)
        dispatcher = single(log)
        one, outlet = consumer(1, permits=100)
        dispatcher.add(one)
        drive(dispatcher, log)
        dispatcher.redeliver(one, [at(3), at(1)])
        drive(dispatcher, log)
        assert outlet.entries[5:] == [1, 3]
        assert [delivery.redelivery_count for delivery in outlet.got[5:]] == [1, 1]
        ack(dispatcher, log, one, 1)
        outlet.unsent = 7
        permits = one.permits
        dispatcher.redeliver(one, [])
        assert one.permits == permits + 7, "what had not left is taken back with its permits"
        drive(dispatcher, log)
        assert outlet.entries[7:] == [0, 2, 3, 4]

    def test_a_read_that_was_out_while_the_cursor_moved_counts_for_nothing(self) -> None:
        log = Log(5)
        dispatcher = single(log)
        one, outlet = consumer(1, permits=100)
        dispatcher.add(one)
        read = dispatcher.plan(log.end, blocked=False)
        assert read is not None
        log.acked.update(range(4))
        dispatcher.reset()
        dispatcher.reads.succeeded(read, log.read(read), log.end)
        dispatcher.deliver()
        assert outlet.entries == []
        drive(dispatcher, log)
        assert outlet.entries == [4]

    def test_too_many_holes_stop_what_is_new_but_not_what_fills_them(self) -> None:
        log = Log(8)
        dispatcher = single(log)
        one, outlet = consumer(1, permits=5)
        dispatcher.add(one)
        drive(dispatcher, log)
        one.permits = 100
        dispatcher.reads.ready.clear()
        dispatcher.redeliver(one, [at(2)])
        drive(dispatcher, log, blocked=True)
        assert outlet.entries == [0, 1, 2, 3, 4, 2]


class TestShared:
    def test_turns_go_round_by_permits(self) -> None:
        log = Log(50)
        dispatcher = shared(log, turn_messages=5)
        (one, a), (two, b), (three, c) = (
            consumer(1, permits=100),
            consumer(2, permits=7),
            consumer(3),
        )
        for each in (one, two, three):
            dispatcher.add(each)
        drive(dispatcher, log)
        assert a.entries[:5] == [0, 1, 2, 3, 4]
        assert b.entries == [5, 6, 7, 8, 9, 15, 16]
        assert c.entries == []
        assert sorted(a.entries + b.entries) == list(range(50))
        assert (one.unacked, two.unacked, dispatcher.unacked()) == (43, 7, 50)

    def test_the_lowest_level_comes_first(self) -> None:
        log = Log(10)
        dispatcher = shared(log, turn_messages=2)
        (low, a), (high, b) = consumer(1, permits=100, level=1), consumer(2, permits=6, level=0)
        dispatcher.add(low)
        dispatcher.add(high)
        drive(dispatcher, log)
        assert (b.entries, a.entries) == ([0, 1, 2, 3, 4, 5], [6, 7, 8, 9])

    def test_what_a_consumer_holds_when_it_goes_is_delivered_again_with_a_count(self) -> None:
        log = Log(10)
        dispatcher = shared(log, turn_messages=5)
        (one, _), (two, b) = consumer(1, permits=5), consumer(2, permits=100)
        dispatcher.add(one)
        drive(dispatcher, log)
        ack(dispatcher, log, one, 1)
        dispatcher.add(two)
        drive(dispatcher, log)
        assert b.entries == [5, 6, 7, 8, 9]
        dispatcher.remove(one)
        drive(dispatcher, log)
        assert b.entries[5:] == [0, 2, 3, 4]
        assert [delivery.redelivery_count for delivery in b.got] == [0] * 5 + [1] * 4

    def test_counts_go_on_when_nobody_was_there_for_a_while(self) -> None:
        log = Log(2)
        dispatcher = shared(log)
        for _ in range(3):
            one, outlet = consumer(1, permits=10)
            dispatcher.add(one)
            drive(dispatcher, log)
            dispatcher.remove(one)
        assert [delivery.redelivery_count for delivery in outlet.got] == [2, 2]

    def test_only_what_a_consumer_holds_is_its_to_give_back(self) -> None:
        log = Log(4)
        dispatcher = shared(log, turn_messages=2)
        (one, a), (two, b) = consumer(1, permits=2), consumer(2, permits=100)
        dispatcher.add(one)
        dispatcher.add(two)
        drive(dispatcher, log)
        dispatcher.redeliver(two, [at(0), at(77)])
        drive(dispatcher, log)
        assert (a.entries, b.entries) == ([0, 1], [2, 3])
        dispatcher.redeliver(one, [at(0)])
        drive(dispatcher, log)
        assert b.entries == [2, 3, 0]
        assert list(one.pending) == [at(1)]

    def test_an_acknowledgement_may_come_over_another_connection(self) -> None:
        log = Log(2)
        dispatcher = shared(log)
        (one, _), (two, _) = consumer(1, permits=10), consumer(2, permits=0)
        dispatcher.add(one)
        dispatcher.add(two)
        drive(dispatcher, log)
        ack(dispatcher, log, two, 0)
        assert list(one.pending) == [at(1)]
        dispatcher.check()

    def test_a_consumer_with_too_many_unacknowledged_waits_until_below_half(self) -> None:
        log = Log(100)
        dispatcher = shared(log, unacked_max_consumer=10, turn_messages=5)
        one, outlet = consumer(1, permits=100)
        dispatcher.add(one)
        drive(dispatcher, log)
        assert len(outlet.got) == 10
        assert one.blocked
        ack(dispatcher, log, one, *range(5))
        drive(dispatcher, log)
        assert len(outlet.got) == 10, "at half it still waits"
        ack(dispatcher, log, one, 5)
        drive(dispatcher, log)
        assert len(outlet.got) == 16

    def test_acknowledged_messages_of_a_batch_do_not_count(self) -> None:
        log = Log(5, messages=4)
        dispatcher = shared(log, unacked_max_consumer=8, unacked_max_subscription=20)
        one, outlet = consumer(1, permits=100)
        dispatcher.add(one)
        drive(dispatcher, log)
        assert (outlet.entries, one.unacked, one.blocked) == ([0, 1], 8, True)
        dispatcher.partly_acknowledged(one, at(1), 3)
        dispatcher.partly_acknowledged(one, at(1), 1)
        dispatcher.partly_acknowledged(None, at(0), 2)
        dispatcher.partly_acknowledged(one, at(4), 2)
        dispatcher.check()
        assert (one.unacked, dispatcher.unacked(), one.blocked) == (3, 3, False)
        ack(dispatcher, log, one, 1)
        assert (one.unacked, dispatcher.unacked()) == (2, 2)
        dispatcher.restart()
        assert (one.unacked, dispatcher.unacked()) == (2, 2)
        dispatcher.redeliver(one, [at(0)])
        assert (one.unacked, dispatcher.unacked()) == (0, 0)
        part = Ready(at(0), b"x", 4, b"\6")
        read = dispatcher.plan(log.end, blocked=False)
        assert read is not None
        dispatcher.reads.succeeded(read, [part], log.end)
        dispatcher.deliver()
        assert outlet.entries == [0, 1, 0, 2, 3]
        assert (one.unacked, one.pending[at(0)]) == (2 + 4 + 4, 4)
        dispatcher.check()
        dispatcher.reset()
        assert not one.partly
        dispatcher.check()

    def test_what_a_consumer_has_for_too_long_goes_to_another_one(self) -> None:
        log = Log(6)
        dispatcher = shared(log, turn_messages=3)
        (one, a), (two, b) = consumer(1, permits=3), consumer(2, permits=3)
        dispatcher.add(one)
        dispatcher.add(two)
        drive(dispatcher, log)
        assert (a.entries, b.entries) == ([0, 1, 2], [3, 4, 5])
        assert dispatcher.redeliver_unacked(100.0, 10) == 0
        ack(dispatcher, log, two, 3, 4, 5)
        ack(dispatcher, log, one, 1)
        assert dispatcher.redeliver_unacked(109.0, 10) == 0
        dispatcher.redeliver(one, [at(2)])
        two.permits += 3
        drive(dispatcher, log)
        assert b.entries == [3, 4, 5, 2]
        assert dispatcher.redeliver_unacked(110.0, 10) == 1, "the third was delivered since"
        drive(dispatcher, log)
        assert b.entries == [3, 4, 5, 2, 0]
        assert dispatcher.redelivery_count(at(0)) == 1
        assert dispatcher.redeliver_unacked(119.0, 10) == 0
        assert dispatcher.redeliver_unacked(120.0, 10) == 1
        dispatcher.check()

    def test_a_consumer_that_goes_on_working_keeps_its_entry(self) -> None:
        log = Log(3)
        dispatcher = shared(log)
        (one, _), (two, _) = consumer(1, permits=3), consumer(2, permits=3)
        dispatcher.add(one)
        drive(dispatcher, log)
        dispatcher.add(two)
        assert dispatcher.redeliver_unacked(0.0, 10) == 0
        dispatcher.extend_ack(one, [at(0), at(7)], 6.0)
        dispatcher.extend_ack(two, [at(1)], 6.0)
        assert dispatcher.redeliver_unacked(10.0, 10) == 2, "another consumer cannot extend it"
        assert [*one.pending] == [at(0)]
        assert dispatcher.redeliver_unacked(16.0, 10) == 1
        dispatcher.check()

    def test_an_entry_that_no_consumer_has_and_nothing_delivers_is_delivered_in_time(self) -> None:
        log = Log(40, due_ms=lambda entry: 1 if entry in (12, 13) else 0, lost={20})
        dispatcher = shared(log)
        one, outlet = consumer(1, permits=30)
        dispatcher.add(one)
        drive(dispatcher, log)
        ack(dispatcher, log, one, 5, 6, 7)
        dispatcher.redeliver(one, [at(9)])
        assert dispatcher.redeliver_forgotten(0.0, 10, log.holes) == 0
        forget(one, dispatcher, at(3), at(8))
        assert dispatcher.redeliver_forgotten(1.0, 10, log.holes) == 0
        log.acked.add(8)
        assert dispatcher.redeliver_forgotten(10.9, 10, log.holes) == 0
        assert dispatcher.redeliver_forgotten(11.0, 10, log.holes) == 1
        assert dispatcher.redeliver_forgotten(99.0, 10, log.holes) == 0, "it waits for permits"
        one.permits += 30
        drive(dispatcher, log)
        assert [outlet.entries.count(entry) for entry in (3, 9, 8, 12, 20)] == [2, 2, 1, 0, 0]
        dispatcher.check()

    def test_each_entry_is_with_a_consumer_or_waits_or_is_delayed_or_unread(self) -> None:
        log = Log(40, due_ms=lambda entry: 500 + entry if entry in (2, 4) else 0)
        dispatcher = shared(log, turn_messages=2)
        (one, _), (two, _) = consumer(1, permits=2), consumer(2, permits=2)
        assert {each.state for each in dispatcher.places([at(0), at(39)])} == {"unread"}
        dispatcher.add(one)
        dispatcher.add(two)
        drive(dispatcher, log)
        dispatcher.redeliver_unacked(7.0, 10)
        dispatcher.redeliver(one, [at(1)])
        forget(two, dispatcher, at(3))
        found = dispatcher.places([at(entry) for entry in (0, 1, 2, 3, 4, 5, 6, 39)])
        assert [each.state for each in found] == [
            "consumer",
            "waiting",
            "delayed",
            "forgotten",
            "delayed",
            "consumer",
            "waiting",
            "unread",
        ]
        assert (found[0].consumer, found[5].consumer, found[0].since) == (one, two, 7.0)
        assert (found[2].due_ms, found[4].due_ms) == (502, 504)
        dispatcher.redeliver(one, [at(0)])
        two.permits = 10
        drive(dispatcher, log)
        again = dispatcher.places([at(0)])[0]
        assert (again.consumer, again.since) == (two, None), "it was delivered since"

    def test_a_forgotten_entry_is_found_whatever_is_before_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(multi_consumer, "_STEPS_MAX", 7)
        log = Log(40)
        dispatcher = shared(log)
        one, outlet = consumer(1, permits=40)
        dispatcher.add(one)
        drive(dispatcher, log)
        forget(one, dispatcher, at(38), at(39))
        looks = [dispatcher.redeliver_forgotten(float(now), 3, log.holes) for now in range(40)]
        assert (sum(looks), sum(looks[:15])) == (2, 0), "a part of what was read at each look"
        one.permits = 2
        drive(dispatcher, log)
        assert outlet.entries[-2:] == [38, 39]

    def test_the_time_that_a_consumer_has_begins_again_with_a_seek(self) -> None:
        log = Log(2)
        dispatcher = shared(log)
        one, outlet = consumer(1, permits=2)
        dispatcher.add(one)
        drive(dispatcher, log)
        assert dispatcher.redeliver_unacked(0.0, 10) == 0
        dispatcher.reset()
        one.permits = 2
        drive(dispatcher, log)
        assert outlet.entries == [0, 1, 0, 1]
        assert dispatcher.redeliver_unacked(10.0, 10) == 0
        assert dispatcher.redeliver_unacked(20.0, 10) == 2

    def test_the_subscription_has_a_limit_of_its_own(self) -> None:
        log = Log(100)
        dispatcher = shared(log, unacked_max_subscription=20, turn_messages=5)
        (one, a), (two, b) = consumer(1, permits=100), consumer(2, permits=100)
        dispatcher.add(one)
        dispatcher.add(two)
        drive(dispatcher, log)
        assert len(a.got) + len(b.got) == 20
        assert dispatcher.blocked
        dispatcher.remove(one)
        drive(dispatcher, log)
        assert len(b.got) == 10, "half of the limit is still out"
        ack(dispatcher, log, two, b.entries[0])
        drive(dispatcher, log)
        assert dispatcher.unacked() == 20
        assert b.entries[10:20] == a.entries, "what was given back comes first"

    @pytest.mark.parametrize("seed", range(60))
    def test_nothing_is_lost_and_nobody_holds_what_another_holds(self, seed: int) -> None:
        """Random joins, leaves, permits, acknowledgements and redeliveries.

        The promise: everything gets acknowledged.
        """
        rng = random.Random(seed)
        log = Log(rng.randint(1, 60), messages=rng.choice([1, 3]))
        dispatcher = shared(
            log, turn_messages=rng.choice([1, 4, 20]), unacked_max_consumer=rng.choice([0, 7])
        )
        here: list[Consumer] = []
        joined = 0
        for _ in range(300):
            action = rng.random()
            if action < 0.15 and len(here) < 4:
                made, _ = consumer(joined, permits=rng.randint(0, 5), level=rng.choice([0, 0, 1]))
                joined += 1
                here.append(made)
                dispatcher.add(made)
            elif action < 0.2 and here:
                dispatcher.remove(here.pop(rng.randrange(len(here))))
            elif here:
                who = rng.choice(here)
                held = [position.entry_id for position in who.pending]
                some = rng.sample(held, rng.randint(0, len(held)))
                if action < 0.5:
                    who.permits += rng.randint(1, 10)
                elif action < 0.8:
                    ack(dispatcher, log, who, *some)
                elif some:
                    dispatcher.redeliver(who, [at(entry) for entry in some])
            drive(dispatcher, log)
            dispatcher.check()
            assert not here or not dispatcher.forgotten(log.holes)
        last, _ = consumer(joined, permits=10_000)
        for each in here:
            dispatcher.remove(each)
        dispatcher.add(last)
        while True:
            drive(dispatcher, log)
            if not last.pending:
                break
            ack(dispatcher, log, last, *(position.entry_id for position in list(last.pending)))
        assert log.acked == set(range(log.count))


class TestPlaces:
    def test_what_was_delivered_is_with_the_active_consumer(self) -> None:
        log = Log(40)
        dispatcher = single(log)
        one, _ = consumer(1, permits=3)
        dispatcher.add(one)
        drive(dispatcher, log)
        found = dispatcher.places([at(2), at(3), at(39)])
        assert [each.state for each in found] == ["consumer", "waiting", "unread"]
        assert found[0].consumer is one


class TestReads:
    def test_a_failing_read_waits_longer_each_time_and_starts_small_again(self) -> None:
        log = Log(100)
        reads = Reads(at(0), LIMITS, log.acknowledged)
        waits = []
        for _ in range(6):
            read = reads.plan(log.end, new_allowed=True)
            assert read is not None
            assert read.start == at(0), "no place is lost"
            waits.append(reads.failed(read, "disk on fire", now_ms=5))
        assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
        assert (reads.failure, reads.failed_since_ms) == ("disk on fire", 5)
        sizes = []
        for _ in range(6):
            read = reads.plan(log.end, new_allowed=True)
            assert read is not None
            sizes.append(read.entries_max)
            reads.succeeded(read, log.read(read), log.end)
            reads.ready.clear()
            assert reads.failure == ""
        assert sizes == [1, 2, 4, 8, 10, 10]

    def test_a_failed_redelivery_is_not_forgotten(self) -> None:
        reads = Reads(at(50), LIMITS, lambda _: False)
        reads.deliver_again([at(3), at(4), at(49)])
        read = reads.plan(at(49), new_allowed=True)
        assert read is not None
        assert read.again == (at(3), at(4)), "49 is too far for one read"
        reads.failed(read, "no", 1)
        assert reads.again_count == 3
        again = reads.plan(at(49), new_allowed=True)
        assert again is not None
        assert again.again == (at(3),), "after a failure one at a time"

    def test_what_a_short_read_did_not_reach_is_read_next(self) -> None:
        reads = Reads(at(50), LIMITS, lambda _: False)
        reads.deliver_again([at(3), at(4), at(5)])
        read = reads.plan(at(49), new_allowed=True)
        assert read is not None
        reads.succeeded(read, [Ready(at(3), b"", 1, None)], at(49))
        reads.ready_again.clear()
        following = reads.plan(at(49), new_allowed=True)
        assert following is not None
        assert following.again == (at(4), at(5))

    def test_an_empty_read_is_not_repeated_until_the_log_grows(self) -> None:
        reads = Reads(Position(1, 5), LIMITS, lambda _: False)
        end = Position(2, -1)
        read = reads.plan(end, new_allowed=True)
        assert read is not None
        reads.succeeded(read, [], end)
        assert reads.plan(end, new_allowed=True) is None
        assert reads.plan(Position(2, 0), new_allowed=True) is not None


class TestExpiry:
    @pytest.mark.parametrize("make", [shared, single])
    def test_what_expires_before_it_is_delivered_is_taken_out(
        self, make: Callable[[Log], Dispatcher]
    ) -> None:
        log = Log(6, expires_ms=lambda entry: {1: 50, 3: 50, 4: 70}.get(entry, 0))
        dispatcher = make(log)
        only, got = consumer(1, permits=2)
        dispatcher.add(only)
        drive(dispatcher, log)
        for expires_ms in (70, 50):
            dispatcher.reads.note_expiry(expires_ms)
        assert got.entries == [0, 1]
        assert dispatcher.reads.first_expiry_ms == 50
        assert dispatcher.take_expired(60) == [at(3)]
        assert dispatcher.reads.first_expiry_ms == 70
        log.acked.update((1, 3))
        dispatcher.expired([at(1), at(3)])
        assert dispatcher.unacked() == (1 if isinstance(dispatcher, SharedDispatcher) else 0)
        only.permits = 10
        drive(dispatcher, log)
        assert got.entries == [0, 1, 2, 4, 5]

    def test_an_expired_entry_that_is_to_be_redelivered_is_gone(self) -> None:
        log = Log(3)
        dispatcher = shared(log)
        only, got = consumer(1, permits=3)
        dispatcher.add(only)
        drive(dispatcher, log)
        dispatcher.redeliver(only, [at(1)])
        log.acked.add(1)
        dispatcher.expired([at(1)])
        only.permits = 10
        drive(dispatcher, log)
        assert got.entries == [0, 1, 2]
        assert dispatcher.redelivery_count(at(1)) == 0

    def test_a_chunk_that_expires_while_it_waits_for_its_consumer_is_forgotten(self) -> None:
        log = Log(3, chunk=lambda entry: Chunk(("p", "m"), entry == 2))
        dispatcher = shared(log)
        first, _ = consumer(1, permits=1)
        other, got = consumer(2, permits=10)
        dispatcher.add(first)
        drive(dispatcher, log)
        dispatcher.add(other)
        drive(dispatcher, log)
        assert not got.entries, "they wait for the consumer of the first chunk"
        log.acked.update((0, 1, 2))
        dispatcher.expired([at(0), at(1), at(2)])
        dispatcher.check()
        first.permits = 10
        drive(dispatcher, log)
        assert dispatcher.unacked() == 0
        assert dispatcher.chunks_held == {}
