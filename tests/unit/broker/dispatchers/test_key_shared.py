"""The core of key-shared dispatching: a key is at one consumer at a time; order, draining, limits
of reading ahead.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.broker.clients.commands import KeySharedMode, KeySharedPolicy
from pulsarish.broker.clients.consumer import Consumer, Delivery
from pulsarish.broker.dispatchers.key_shared import Draining, KeySharedDispatcher, LookAhead
from pulsarish.broker.dispatchers.multi_consumer import SharingLimits
from pulsarish.model.errors import ConsumerAssignError, ConsumerBusy
from tests.support.dispatching import LIMITS, Log, Outlet, ack, at, consumer, drive, forget

PER_CONSUMER = LookAhead(
    entries_max_consumer=100, entries_max_subscription=1_000, payload_bytes_max=1 << 20
)


def key_shared(
    log: Log,
    policy: KeySharedPolicy | None = None,
    look_ahead: LookAhead = PER_CONSUMER,
    **changes: int,
) -> KeySharedDispatcher:
    settings = {
        "consumers_max": 10,
        "turn_messages": 20,
        "unacked_max_consumer": 0,
        "unacked_max_subscription": 0,
        **changes,
    }
    return KeySharedDispatcher(
        read_from=log.read_from,
        acknowledged=log.acknowledged,
        limits=LIMITS,
        sharing=SharingLimits(**settings),
        policy=policy or KeySharedPolicy(KeySharedMode.STICKY),
        ring_points=100,
        look_ahead=look_ahead,
    )


def sticky(order: int, *ranges: tuple[int, int], permits: int = 1_000) -> tuple[Consumer, Outlet]:
    made, outlet = consumer(order, permits=permits)
    made.hash_ranges = ranges
    return made, outlet


def by_parity(entry: int) -> int:
    """Return the hash 1 for odd and 2 for even entries."""
    return 1 if entry % 2 else 2


AUTO = KeySharedPolicy(KeySharedMode.AUTO_SPLIT)


def joined(
    dispatcher: KeySharedDispatcher, count: int, permits: int = 1_000
) -> list[tuple[Consumer, Outlet]]:
    made = [consumer(order, permits=permits) for order in range(count)]
    for each, _ in made:
        dispatcher.add(each)
    return made


def test_what_is_not_acknowledged_in_time_is_delivered_again_by_its_key() -> None:
    log = Log(6, key_hash=by_parity)
    dispatcher = key_shared(log)
    (one, a), (two, b) = sticky(1, (1, 1)), sticky(2, (2, 2))
    dispatcher.add(one)
    dispatcher.add(two)
    drive(dispatcher, log)
    ack(dispatcher, log, two, 0, 2)
    assert dispatcher.redeliver_unacked(0.0, 10) == 0
    assert dispatcher.redeliver_unacked(10.0, 10) == 4
    drive(dispatcher, log)
    assert (a.entries, b.entries) == ([1, 3, 5, 1, 3, 5], [0, 2, 4, 4])
    dispatcher.check()


def test_a_forgotten_entry_goes_to_the_consumer_of_its_key() -> None:
    log = Log(12, key_hash=by_parity)
    dispatcher = key_shared(log)
    (one, a), (two, _) = sticky(1, (1, 1)), sticky(2, (2, 2), permits=2)
    dispatcher.add(one)
    dispatcher.add(two)
    drive(dispatcher, log)
    forget(one, dispatcher, at(3))
    assert dispatcher.redeliver_forgotten(0.0, 10, log.holes) == 0
    assert dispatcher.redeliver_forgotten(10.0, 10, log.holes) == 1, "kept ones are not forgotten"
    drive(dispatcher, log)
    assert a.entries == [1, 3, 5, 7, 9, 11, 3]
    dispatcher.check()


def test_each_consumer_gets_its_keys_in_order() -> None:
    log = Log(40, key_hash=by_parity)
    dispatcher = key_shared(log)
    (one, a), (two, b) = sticky(1, (1, 1)), sticky(2, (2, 2))
    dispatcher.add(one)
    dispatcher.add(two)
    drive(dispatcher, log)
    assert (a.entries, b.entries) == (list(range(1, 40, 2)), list(range(0, 40, 2)))


def test_a_slow_consumer_holds_nobody_up_and_finds_its_own_in_order() -> None:
    log = Log(40, key_hash=by_parity)
    dispatcher = key_shared(log)
    (one, a), (two, b) = sticky(1, (1, 1), permits=3), sticky(2, (2, 2))
    dispatcher.add(one)
    dispatcher.add(two)
    drive(dispatcher, log)
    assert (a.entries, b.entries) == ([1, 3, 5], list(range(0, 40, 2)))
    one.permits = 100
    drive(dispatcher, log)
    assert a.entries == list(range(1, 40, 2))
    assert all(delivery.redelivery_count == 0 for delivery in a.got)


def test_it_reads_ahead_up_to_the_limit_and_goes_on_when_there_is_room() -> None:
    log = Log(200, key_hash=lambda entry: 2 if entry == 150 else 1)
    dispatcher = key_shared(log, look_ahead=LookAhead(25, 1_000, 1 << 20))
    (one, a), (two, b) = sticky(1, (1, 1), permits=0), sticky(2, (2, 2))
    dispatcher.add(one)
    dispatcher.add(two)
    drive(dispatcher, log)
    assert 50 <= dispatcher.waiting_count < 50 + LIMITS.entries_max, "25 for each of two consumers"
    assert b.entries == []
    one.permits = 100
    drive(dispatcher, log)
    assert a.entries == list(range(100))
    one.permits = 100
    drive(dispatcher, log)
    assert b.entries == [150]
    assert a.entries == [entry for entry in range(200) if entry != 150]


def test_payloads_beyond_the_limit_are_read_again_in_their_order() -> None:
    log = Log(60, key_hash=by_parity)
    dispatcher = key_shared(log, look_ahead=LookAhead(100, 1_000, 3))
    (one, a), (two, b) = sticky(1, (1, 1), permits=0), sticky(2, (2, 2))
    dispatcher.add(one)
    dispatcher.add(two)
    drive(dispatcher, log)
    assert len(b.got) == 30
    assert a.entries == []
    one.permits = 7
    drive(dispatcher, log)
    assert a.entries == list(range(1, 14, 2))
    one.permits = 100
    drive(dispatcher, log)
    assert a.entries == list(range(1, 60, 2))


def test_what_is_gone_from_the_log_when_its_turn_comes_is_forgotten() -> None:
    log = Log(20, key_hash=by_parity)
    dispatcher = key_shared(log, look_ahead=LookAhead(100, 1_000, 0))
    (one, a), (two, _) = sticky(1, (1, 1), permits=0), sticky(2, (2, 2))
    dispatcher.add(one)
    dispatcher.add(two)
    drive(dispatcher, log)
    log.lost = {1, 5, 19}
    one.permits = 100
    drive(dispatcher, log)
    assert a.entries == [3, 7, 9, 11, 13, 15, 17]
    assert dispatcher.waiting_count == 0


def test_keys_in_no_range_wait_for_somebody_and_are_seen() -> None:
    log = Log(10, key_hash=by_parity)
    dispatcher = key_shared(log)
    two, b = sticky(2, (2, 2))
    dispatcher.add(two)
    drive(dispatcher, log)
    assert b.entries == [0, 2, 4, 6, 8]
    assert dispatcher.barred_counts == (0, 5)
    one, a = sticky(1, (0, 1))
    dispatcher.add(one)
    drive(dispatcher, log)
    assert a.entries == [1, 3, 5, 7, 9]
    assert dispatcher.barred_counts == (0, 0)


def test_a_refused_consumer_changes_nothing() -> None:
    log = Log(10, key_hash=by_parity)
    dispatcher = key_shared(log, consumers_max=2)
    dispatcher.add(sticky(1, (0, 10))[0])
    with pytest.raises(ConsumerAssignError, match="overlaps"):
        dispatcher.add(sticky(2, (10, 20))[0])
    dispatcher.add(sticky(3, (11, 20))[0])
    with pytest.raises(ConsumerBusy, match="max_consumers"):
        dispatcher.add(sticky(4, (21, 22))[0])
    dispatcher.check()
    assert [each.order for each in dispatcher.consumers] == [1, 3]


def moved(
    log: Log, policy: KeySharedPolicy
) -> tuple[KeySharedDispatcher, Consumer, Outlet, Consumer, Outlet, int]:
    """Give the whole log to a first consumer, then add a second one.

    Return them with a hash that moved to the second.
    """
    dispatcher = key_shared(log, policy)
    ((one, a),) = joined(dispatcher, 1)
    drive(dispatcher, log)
    assert a.entries == list(range(log.count))
    two, b = consumer(2, permits=1_000)
    dispatcher.add(two)
    hashes = [log.key_hash(entry) for entry in range(log.count)]
    taken = [
        hashed
        for hashed in hashes
        if any(first <= hashed <= last for first, last in dispatcher.ranges(two))
    ]
    assert taken, "the second has none of the hashes in use"
    log.count *= 2
    drive(dispatcher, log)
    return dispatcher, one, a, two, b, taken[0]


def wide(entry: int) -> int:
    return 1 + entry % 20 * 3_000


def test_a_key_that_moved_waits_until_its_holder_has_acknowledged_all_of_it() -> None:
    log = Log(40, key_hash=wide)
    dispatcher, one, _, two, b, key_hash = moved(log, AUTO)
    assert b.entries == [], "everything that moved is held by the first"
    first, second = (entry for entry in range(40) if wide(entry) == key_hash)
    drained = dispatcher.draining()
    assert drained[two.order] == []
    assert Draining(key_hash, 2, 2) in drained[one.order]
    ack(dispatcher, log, one, first)
    drive(dispatcher, log)
    assert b.entries == []
    ack(dispatcher, log, one, second)
    drive(dispatcher, log)
    assert b.entries == [first + 40, second + 40]
    assert dispatcher.cleared[one.order] == 1
    assert key_hash not in [each.key_hash for each in dispatcher.draining()[one.order]]


def test_a_key_that_moved_is_free_when_its_holder_leaves_or_gives_it_back() -> None:
    log = Log(40, key_hash=wide)
    dispatcher, one, _, _, b, key_hash = moved(log, AUTO)
    mine = [entry for entry in range(80) if wide(entry) == key_hash]
    dispatcher.redeliver(one, [at(entry) for entry in mine[:2]])
    drive(dispatcher, log)
    assert b.entries == mine
    assert [delivery.redelivery_count for delivery in b.got] == [1, 1, 0, 0]
    dispatcher.remove(one)
    drive(dispatcher, log)
    assert sorted(b.entries) == list(range(80))
    assert dispatcher.draining() == {2: []}


def test_out_of_order_nothing_drains() -> None:
    log = Log(40, key_hash=wide)
    policy = KeySharedPolicy(KeySharedMode.AUTO_SPLIT, allow_out_of_order_delivery=True)
    dispatcher, _, a, _, b, key_hash = moved(log, policy)
    assert [entry for entry in range(40, 80) if wide(entry) == key_hash] == [
        entry for entry in b.entries if wide(entry) == key_hash
    ]
    assert sorted(a.entries + b.entries) == list(range(80))
    assert all(not held for held in dispatcher.draining().values())


def skipped(log: Log) -> tuple[KeySharedDispatcher, Consumer, Consumer, Outlet, list[int]]:
    """Move a key, and skip what its first consumer holds of it.

    Return the entries of that key too.
    """
    dispatcher, one, _, two, b, key_hash = moved(log, AUTO)
    first, second, *later = (entry for entry in range(log.count) if wide(entry) == key_hash)
    log.acked.update(range(second + 1))
    dispatcher.acknowledged_through(at(second))
    drive(dispatcher, log)
    return dispatcher, one, two, b, [first, second, *later]


def test_what_is_skipped_in_a_consumers_hands_still_bars_its_key() -> None:
    log = Log(40, key_hash=wide)
    dispatcher, one, _, b, (first, second, *later) = skipped(log)
    assert not set(b.entries) & set(later), (
        "the first consumer may still be at work on what was skipped"
    )
    assert Draining(log.key_hash(first), 1, 2) in dispatcher.draining()[one.order]
    assert at(second) not in one.pending, "it does not count as unacknowledged any more"
    ack(dispatcher, log, one, second)
    drive(dispatcher, log)
    assert set(later) <= set(b.entries)


def test_a_restart_of_the_plan_keeps_what_was_skipped_in_a_consumers_hands() -> None:
    log = Log(40, key_hash=wide)
    dispatcher, one, _, b, (_, second, *later) = skipped(log)
    dispatcher.restart()
    drive(dispatcher, log)
    assert not set(b.entries) & set(later)
    ack(dispatcher, log, one, second)
    drive(dispatcher, log)
    assert set(later) <= set(b.entries)


def test_a_restart_with_nothing_left_but_what_was_skipped_keeps_that() -> None:
    log = Log(20, key_hash=wide)
    dispatcher = key_shared(log, AUTO)
    ((one, _),) = joined(dispatcher, 1)
    drive(dispatcher, log)
    log.acked.update(range(20))
    dispatcher.acknowledged_through(at(19))
    two, b = consumer(2, permits=1_000)
    dispatcher.add(two)
    dispatcher.restart()
    log.count = 40
    drive(dispatcher, log)
    assert b.entries == [], "the first consumer may still be at work on each key"
    ack(dispatcher, log, one, *range(20))
    drive(dispatcher, log)
    dispatcher.check()
    moved_to_it = [
        entry
        for entry in range(20, 40)
        if any(low <= wide(entry) <= high for low, high in dispatcher.ranges(two))
    ]
    assert b.entries == moved_to_it != []


@pytest.mark.parametrize("how", ["refuses it", "refuses all", "leaves", "is followed by a seek"])
def test_a_key_of_which_entries_were_skipped_is_free_when_its_consumer(how: str) -> None:
    log = Log(40, key_hash=wide)
    dispatcher, one, _, b, (_, second, *later) = skipped(log)
    match how:
        case "refuses it":
            dispatcher.redeliver(one, [at(second)])
        case "refuses all":
            dispatcher.redeliver(one, [])
        case "leaves":
            dispatcher.remove(one)
        case _:
            dispatcher.reset()
    drive(dispatcher, log)
    assert set(later) <= set(b.entries)


def test_whoever_acknowledges_a_later_entry_of_a_key_is_done_with_what_was_skipped_of_it() -> None:
    log = Log(10, key_hash=lambda entry: 7)
    dispatcher = key_shared(log, AUTO)
    ((one, a),) = joined(dispatcher, 1)
    drive(dispatcher, log)
    log.acked.update(range(5))
    dispatcher.acknowledged_through(at(4))
    for number in range(1, 5):
        dispatcher.add(consumer(number, permits=100)[0])
    ack(dispatcher, log, one, 5)
    assert a.entries == list(range(10))
    ack(dispatcher, log, one, *range(6, 10))
    assert dispatcher.draining()[one.order] == []
    dispatcher.check()


def test_the_one_key_of_all_consumers_that_come_back_stays_where_it_was() -> None:
    log = Log(4, key_hash=lambda _: 7)
    dispatcher = key_shared(log, AUTO)
    made = joined(dispatcher, 3)
    drive(dispatcher, log)
    (owner,) = [each for each, outlet in made if outlet.got]
    dispatcher.remove(owner)
    again, outlet = consumer(9, permits=10, name=owner.name)
    dispatcher.add(again)
    drive(dispatcher, log)
    assert outlet.entries == [0, 1, 2, 3]


def test_permits_are_messages_and_a_batch_is_delivered_whole() -> None:
    log = Log(5, messages=3)
    dispatcher = key_shared(log, AUTO)
    one, outlet = consumer(1, permits=4)
    dispatcher.add(one)
    drive(dispatcher, log)
    assert (outlet.entries, one.permits) == ([0, 1], -2)


def test_a_seek_forgets_what_waited() -> None:
    log = Log(20, key_hash=by_parity)
    dispatcher = key_shared(log)
    (one, a), (two, b) = sticky(1, (1, 1), permits=2), sticky(2, (2, 2))
    dispatcher.add(one)
    dispatcher.add(two)
    drive(dispatcher, log)
    log.acked = set(range(10))
    dispatcher.reset()
    one.permits = 100
    drive(dispatcher, log)
    assert (a.entries, b.entries[10:]) == ([1, 3, 11, 13, 15, 17, 19], [10, 12, 14, 16, 18])
    dispatcher.acknowledged_through(at(15))
    dispatcher.check()


class Watched:
    """What is promised for each delivery, checked in the simplest way."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.held: dict[int, int] = {}  # entry -> consumer
        # the same for entries that were skipped while they were held
        self.skipped: dict[int, int] = {}
        self.in_order = True

    def heard(self, consumer_id: int, delivery: Delivery) -> None:
        entry = delivery.position.entry_id
        key_hash = self.log.key_hash(entry)
        assert entry not in self.held, f"{entry} is delivered and held"
        assert entry not in self.log.acked, f"{entry} is delivered and acknowledged"
        if self.in_order:
            for other, who in self.skipped.items():
                assert self.log.key_hash(other) != key_hash or who == consumer_id, (
                    f"{who} may be at work on {other} of the key of {entry}"
                )
            for other in range(self.log.count):
                if self.log.key_hash(other) == key_hash and other not in self.log.acked:
                    assert self.held.get(other, consumer_id) == consumer_id, (
                        f"the key of {entry} is held by {self.held[other]}, too"
                    )
                    assert other >= entry or other in self.held, (
                        f"{entry} was delivered before {other} of the same key"
                    )
        self.held[entry] = consumer_id

    def skip_through(self, entry: int) -> None:
        self.skipped.update(
            (other, self.held.pop(other)) for other in list(self.held) if other <= entry
        )
        self.log.acked.update(range(entry + 1))

    def done(self, entry: int) -> None:
        """Note that the consumer is done with an entry, and so with earlier entries of its key."""
        self.held.pop(entry, None)
        for other in [
            other
            for other in self.skipped
            if other <= entry and self.log.key_hash(other) == self.log.key_hash(entry)
        ]:
            del self.skipped[other]

    def left(self, consumer_id: int) -> None:
        self.held = {entry: who for entry, who in self.held.items() if who != consumer_id}
        self.skipped = {entry: who for entry, who in self.skipped.items() if who != consumer_id}


def say(
    dispatcher: KeySharedDispatcher, log: Log, watched: Watched, rng: random.Random, who: Consumer
) -> None:
    """Let a consumer ask for more, acknowledge, or refuse some of what it holds."""
    some = [position.entry_id for position in who.pending if rng.random() < 0.5]
    match rng.choice(["flow", "flow", "acknowledge", "acknowledge", "refuse"]):
        case "flow":
            who.permits += rng.randint(1, 10)
        case "acknowledge":
            some += [
                entry
                for entry, holder in watched.skipped.items()
                if holder == who.consumer_id and rng.random() < 0.5
            ]
            ack(dispatcher, log, who, *some)
            for entry in some:
                watched.done(entry)
        case _ if some:
            for entry in some:
                del watched.held[entry]
            dispatcher.redeliver(who, [at(entry) for entry in some])


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 1 << 32),
    st.booleans(),
    st.sampled_from([1, 3]),
    st.sampled_from([0, 3, 1 << 20]),
    st.sampled_from([1, 4, 100]),
)
def test_a_key_is_at_one_consumer_in_order_and_nothing_is_lost(
    seed: int, in_order: bool, messages: int, payload_bytes: int, ahead: int
) -> None:
    rng = random.Random(seed)
    keys = [rng.randrange(1, 65_536) for _ in range(rng.randint(1, 12))]
    chosen = [rng.choice(keys) for _ in range(rng.randint(1, 60))]
    log = Log(len(chosen), messages=messages, key_hash=lambda entry: chosen[entry])
    policy = KeySharedPolicy(KeySharedMode.AUTO_SPLIT, allow_out_of_order_delivery=not in_order)
    turn, most = rng.choice([1, 4, 20]), rng.choice([0, 7])
    dispatcher = key_shared(
        log,
        policy,
        LookAhead(ahead, 100, payload_bytes),
        turn_messages=turn,
        unacked_max_consumer=most,
    )
    watched = Watched(log)
    watched.in_order = in_order
    here: list[Consumer] = []
    order = 0
    for _ in range(120):
        action = rng.random()
        if action < 0.2 and len(here) < 4:
            made, outlet = consumer(order, permits=rng.randint(0, 5), name=rng.choice("abc"))
            outlet.heard = watched.heard
            order += 1
            here.append(made)
            dispatcher.add(made)
        elif action < 0.3 and here:
            gone = here.pop(rng.randrange(len(here)))
            watched.left(gone.consumer_id)
            dispatcher.remove(gone)
        elif action < 0.33:
            entry = rng.randrange(log.count)
            watched.skip_through(entry)
            dispatcher.acknowledged_through(at(entry))
        elif here:
            say(dispatcher, log, watched, rng, rng.choice(here))
        drive(dispatcher, log)
        dispatcher.check()
        assert not here or not dispatcher.forgotten(log.holes)
    for each in here:
        watched.left(each.consumer_id)
        dispatcher.remove(each)
    last, outlet = consumer(order, permits=10_000)
    outlet.heard = watched.heard
    dispatcher.add(last)
    while True:
        drive(dispatcher, log)
        if not last.pending:
            break
        entries = [position.entry_id for position in last.pending]
        for entry in entries:
            del watched.held[entry]
        ack(dispatcher, log, last, *entries)
    assert log.acked == set(range(log.count))


def test_what_expires_is_not_delivered_and_its_key_stays_where_it_is() -> None:
    log = Log(
        8,
        key_hash=lambda entry: 1 + entry % 4 * 12_345,
        expires_ms=lambda entry: 50 if entry in (0, 2, 3, 5) else 0,
    )
    dispatcher = key_shared(log, AUTO)
    first, got = consumer(1, permits=4)
    dispatcher.add(first)
    drive(dispatcher, log)
    dispatcher.reads.note_expiry(50)
    assert got.entries == [0, 1, 2, 3]
    second, got_second = consumer(2)
    dispatcher.add(second)
    assert dispatcher.take_expired(49) == []
    assert dispatcher.reads.first_expiry_ms == 50
    assert dispatcher.take_expired(50) == [at(5)], "of what no consumer holds"
    assert dispatcher.reads.first_expiry_ms == 0
    log.acked.update((0, 2, 3, 5))
    dispatcher.expired([at(0), at(2), at(3), at(5)])
    dispatcher.check()
    assert dispatcher.unacked() == 1
    first.permits = second.permits = 100
    drive(dispatcher, log)
    moved = [entry for entry in (4, 6, 7) if entry not in got.entries]
    assert moved, "a key has moved"
    assert not got_second.entries, "the first consumer may still work on what has expired"
    ack(dispatcher, log, first, 0, 1, 2, 3)
    drive(dispatcher, log)
    assert got_second.entries == moved
    assert sorted((*got.entries, *moved)) == [0, 1, 2, 3, 4, 6, 7]
    dispatcher.check()
