"""Buckets of delayed entries: their stored form, and random scripts of a subscription whose owner
crashes and whose consumers leave: nothing is early, held twice or never delivered.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.broker.clients.commands import KeySharedPolicy
from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.dispatchers.delay_bucket import Bucket, EntryBits, pack, position_of
from pulsarish.broker.dispatchers.delayed import DELAYS_OVER, DelayedEntries
from pulsarish.broker.dispatchers.key_shared import KeySharedDispatcher, LookAhead
from pulsarish.broker.dispatchers.multi_consumer import SharingLimits
from pulsarish.broker.dispatchers.reads import Reads
from pulsarish.broker.dispatchers.shared import SharedDispatcher
from pulsarish.model.errors import CorruptData
from pulsarish.model.position import Position
from tests.support.dispatching import LIMITS, Log, Outlet, ack, at, consumer, drive

positions = st.tuples(st.integers(0, 3), st.integers(0, 60))
entries = st.lists(
    st.tuples(st.integers(0, 1_000), positions), min_size=1, unique_by=lambda each: each[1]
)


def bucket_of(found: list[tuple[int, tuple[int, int]]], segment_entries: int) -> Bucket:
    return Bucket.of(sorted(pack(due, Position(*at)) for due, at in found), segment_entries)


def store(bucket: Bucket, ledger_id: int) -> list[bytes]:
    """What its ledger holds; from now on the bucket loads from there."""
    stored = [bucket.encode_segment(number) for number in range(bucket.segments)]
    stored.append(bucket.encode_index())
    bucket.stored(ledger_id)
    return stored


def load(bucket: Bucket, stored: list[bytes], until_ms: int = DELAYS_OVER) -> None:
    while (number := bucket.segment_due(until_ms)) is not None:
        bucket.loaded(number, bucket.decode_segment(number, stored[number]))


@given(entries, st.integers(1, 7), st.integers(0, 5))
def test_a_bucket_read_from_its_ledger_is_the_same(
    found: list[tuple[int, tuple[int, int]]], segment_entries: int, taken: int
) -> None:
    written = bucket_of(found, segment_entries)
    in_order = sorted((due, Position(*at)) for due, at in found)
    for _ in range(min(taken, len(found))):
        written.take()
    stored = store(written, 7)
    assert written.next_due_ms is None or written.next_due_ms == in_order[written.taken][0]
    read = Bucket.decode(7, stored[-1])
    for bucket, rest in ((written, in_order[written.taken :]), (read, in_order)):
        bucket.check()
        assert bucket.last == max(Position(*at) for _, at in found)
        got: list[tuple[int, Position]] = []
        load(bucket, stored)
        while (head := bucket.head) is not None:
            due_ms = bucket.next_due_ms
            assert due_ms is not None
            got.append((due_ms, position_of(head)))
            bucket.take()
            bucket.check()
            load(bucket, stored)
        assert (got, bucket.left, bucket.next_due_ms) == (rest, 0, None)
        bucket.rewind(Position(0, 0))
        assert bucket.left == len(found)


@given(entries, entries, positions, st.integers(1, 40))
def test_reading_passes_what_is_in_buckets_and_nothing_else(
    one: list[tuple[int, tuple[int, int]]],
    two: list[tuple[int, tuple[int, int]]],
    start: tuple[int, int],
    length: int,
) -> None:
    first = {Position(*at) for _, at in one}
    both = first | {Position(*at) for _, at in two}
    delayed = DelayedEntries(1_000)
    delayed.adopt([bucket_of(one, 3)])
    second = [each for each in two if Position(*each[1]) not in first]
    if second:
        delayed.adopt([bucket_of(second, 3)])
    position = delayed.next_to_read(Position(*start))
    assert position not in both
    assert position >= Position(*start)
    skipped = [Position(start[0], entry) for entry in range(start[1], position.entry_id)]
    assert both.issuperset(skipped)
    read = delayed.read_length(position, length)
    assert 1 <= read <= length
    if read < length:
        assert all(
            Position(position.ledger_id, position.entry_id + read + entry) in both
            for entry in range(8)
        )
    for entry in range(70):
        each = Position(start[0], entry)
        assert (delayed.reaches(each) and delayed.holds(each)) == (each in both)


@given(entries, positions)
def test_entries_that_were_skipped_are_not_counted(
    found: list[tuple[int, tuple[int, int]]], through: tuple[int, int]
) -> None:
    delayed = DelayedEntries(1_000)
    delayed.adopt([bucket_of(found, 3)])
    delayed.drop_through(Position(*through))
    assert len(delayed) == sum(at > through for _, at in found)


def test_damaged_bytes_are_refused() -> None:
    stored = store(bucket_of([(5, (1, 2)), (6, (1, 3)), (7, (1, 4))], 2), 9)
    with pytest.raises(CorruptData, match="ledger 9 is damaged"):
        Bucket.decode(9, stored[-1][:-1])
    bucket = Bucket.decode(9, stored[-1])
    with pytest.raises(CorruptData, match="segment of delayed entries is damaged"):
        bucket.decode_segment(0, stored[0][:-1])
    with pytest.raises(CorruptData, match="segment 1 of bucket ledger 9 has 2 entries"):
        bucket.decode_segment(1, stored[0])


def test_entries_that_are_due_soon_and_few_entries_go_into_no_bucket() -> None:
    delayed = DelayedEntries(100)
    delayed.tick_ms = 50
    for entry in range(6):
        delayed.add(at(entry), 500 if entry < 5 else 5_000)
    assert not delayed.may_seal(0, 7)
    assert delayed.may_seal(0, 6)
    assert delayed.seal(0, 6, 2) is None
    assert not delayed.may_seal(300, 6), "not looked at again at once"
    for entry in range(6, 8):
        delayed.add(at(entry), 5_000 + entry)
    assert delayed.may_seal(600, 6)
    sealed = delayed.seal(600, 6, 2)
    assert sealed is not None
    assert (sealed.count, len(delayed), delayed.in_memory) == (3, 8, 8)
    assert not delayed.may_seal(DELAYS_OVER, 1)


SHARING = SharingLimits(10, 20, 0, 0)
SEGMENT, SOON_MS, MIN = 3, 10, 4


@dataclass
class Script:
    """A subscription with its log, and ledgers of buckets that survive its owner."""

    rng: random.Random
    by_key: bool
    log: Log = field(default_factory=lambda: Log(0))
    dues: list[int] = field(default_factory=list)
    ledgers: dict[int, list[bytes]] = field(default_factory=dict)
    named: set[int] = field(default_factory=set)
    """What the cursor's record names."""
    who: Consumer | None = None
    outlet: Outlet = field(default_factory=Outlet)
    heard: int = 0
    delivered: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.log.due_ms = lambda entry: self.dues[entry]
        self.log.key_hash = lambda entry: 1 + entry % 5
        self.dispatcher = self._made()

    def _made(self) -> SharedDispatcher | KeySharedDispatcher:
        if not self.by_key:
            return SharedDispatcher(
                read_from=self.log.read_from,
                acknowledged=self.log.acknowledged,
                limits=LIMITS,
                sharing=SHARING,
            )
        return KeySharedDispatcher(
            read_from=self.log.read_from,
            acknowledged=self.log.acknowledged,
            limits=LIMITS,
            sharing=SHARING,
            policy=KeySharedPolicy(),
            ring_points=10,
            look_ahead=LookAhead(10, 100, 1 << 20),
        )

    @property
    def reads(self) -> Reads:
        return self.dispatcher.reads

    def publish(self) -> None:
        for _ in range(self.rng.randrange(1, 12)):
            later = self.log.now_ms + self.rng.choice((5, 50, 500, 2_000))
            self.dues.append(later if self.rng.random() < 0.7 else 0)
        self.log.count = len(self.dues)

    def consume(self) -> None:
        if self.who is None:
            self.who, self.outlet = consumer(self.rng.randrange(1, 1 << 30))
            self.heard = 0
            self.reads.rewind(self.log.read_from())
            self.dispatcher.add(self.who)
        self.who.permits += self.rng.choice((0, 3, 100))
        self.look()

    def look(self) -> None:
        self.reads.release(self.log.now_ms)
        drive(self.dispatcher, self.log)
        for entry in self.outlet.entries[self.heard :]:
            assert self.dues[entry] <= self.log.now_ms, f"{entry} is early"
            self.delivered.add(entry)
        self.heard = len(self.outlet.entries)

    def pass_time(self) -> None:
        self.log.now_ms += self.rng.choice((1, 20, 300, 1_000))

    def acknowledge(self) -> None:
        if self.who is not None:
            held = [each.entry_id for each in self.who.pending if self.rng.random() < 0.5]
            ack(self.dispatcher, self.log, self.who, *held)

    def leave(self) -> None:
        if self.who is not None:
            self.dispatcher.remove(self.who)
            self.who = None

    def crash(self) -> None:
        self.who, self.outlet, self.heard = None, Outlet(), 0
        self.dispatcher = self._made()
        self.reads.delayed.adopt(
            Bucket.decode(each, self.ledgers[each][-1]) for each in sorted(self.named)
        )

    def skip(self) -> None:
        through = self.log.read_from().entry_id + self.rng.randrange(20)
        through = min(through, self.log.count - 1)
        skipped = range(through + 1)
        self.log.acked.update(skipped)
        self.dispatcher.acknowledged_through(at(through))

    def seal(self) -> None:
        delayed = self.reads.delayed
        if delayed.may_seal(self.log.now_ms, MIN):
            _ = delayed.seal(self.log.now_ms, MIN, SEGMENT)

    def write(self) -> None:
        for bucket in self.reads.delayed.buckets:
            if bucket.ledger_id < 0:
                ledger_id = len(self.ledgers)
                self.named -= set(bucket.replaces)
                self.ledgers[ledger_id] = store(bucket, ledger_id)
                self.named.add(ledger_id)
        passed = self.reads.delayed.passed(self.reads.position)
        used = [bucket for bucket in passed if not bucket.left]
        self.reads.delayed.remove(*used)
        self.named &= {bucket.ledger_id for bucket in self.reads.delayed.buckets}

    def load(self) -> None:
        for bucket in self.reads.delayed.buckets:
            if bucket.ledger_id >= 0:
                load(bucket, self.ledgers[bucket.ledger_id], self.log.now_ms + 100)

    def merge(self) -> None:
        delayed = self.reads.delayed
        passed = delayed.passed(self.reads.position)
        parts = [bucket for bucket in passed if bucket.ledger_id >= 0][:2]
        found: list[tuple[Bucket, int, list[int]]] = []
        bits = EntryBits()
        for bucket in parts:
            number = bucket.taken // SEGMENT
            stored = self.ledgers[bucket.ledger_id]
            rest = [
                entry
                for each in range(number, bucket.segments)
                for entry in bucket.decode_segment(each, stored[each])
            ]
            found.append((bucket, number * SEGMENT, rest))
            bits.add(rest)
        if len(found) == 2:
            delayed.merge(found, bits, SEGMENT)

    def lose(self) -> None:
        """A bucket is unreadable: consumers subscribe again."""
        delayed = self.reads.delayed
        if delayed.buckets:
            lost = self.rng.choice(delayed.buckets)
            self.named.discard(lost.ledger_id)
            delayed.remove(lost)
            self.leave()

    def finish(self) -> None:
        self.log.now_ms += 10_000
        for _ in range(200):
            self.load()
            self.consume()
            self.write()
            if self.who is not None:
                ack(
                    self.dispatcher,
                    self.log,
                    self.who,
                    *(each.entry_id for each in list(self.who.pending)),
                )
        assert self.log.acked == set(range(self.log.count))
        assert not self.reads.delayed
        assert self.named == set()


STEPS = {
    Script.publish: 6,
    Script.consume: 6,
    Script.look: 4,
    Script.pass_time: 3,
    Script.acknowledge: 3,
    Script.seal: 6,
    Script.write: 5,
    Script.load: 4,
    Script.merge: 1,
    Script.leave: 1,
    Script.crash: 1,
    Script.skip: 0.3,
    Script.lose: 0.3,
}


@pytest.mark.parametrize("by_key", [False, True])
@given(st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_random_scripts_deliver_everything_and_nothing_early(
    by_key: bool, rng: random.Random
) -> None:
    script = Script(random.Random(rng.getrandbits(64)), by_key)
    steps, weights = list(STEPS), list(STEPS.values())
    for step in script.rng.choices(steps, weights, k=80):
        step(script)
        script.dispatcher.check()
    script.finish()
