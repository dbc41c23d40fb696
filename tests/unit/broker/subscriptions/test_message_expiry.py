"""The upkeep's expiry on a log in memory: which entries it acknowledges, which it reads, and how
much it does in one round.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final, cast

import pytest

from pulsarish.broker.subscriptions import message_expiry
from pulsarish.broker.subscriptions.message_expiry import MessageExpiry
from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.log_reader import LogEntry
from pulsarish.metadata.records import TopicLedger
from pulsarish.model.errors import NotEnoughBookies
from pulsarish.model.policies import DELAYED_DELIVERY, MESSAGE_TTL, DelayedDelivery
from pulsarish.model.position import Position
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import EXPIRES_PROPERTY, encode_entry, message_times

SECOND: Final = 1_000
START: Final = Position(1, -1)


def entry(publish_s: int, *, due_s: int = 0, expires_s: int = 0) -> bytes:
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=publish_s * SECOND,
        deliver_at_time=due_s * SECOND,
    )
    if expires_s:
        metadata.properties.add(key=EXPIRES_PROPERTY, value=str(expires_s * SECOND))
    return encode_entry(metadata, b"x")


class Log:
    """Ledgers from 1 on; the last one is open."""

    def __init__(self, *ledgers: list[bytes], unknown: tuple[int, ...] = ()) -> None:
        self.entries = dict(enumerate(ledgers, 1))
        self.reads = 0
        self.name = "t"
        self.unreadable = 0
        self.chain = Chain(
            TopicLedger(
                number,
                len(entries),
                100 * len(entries),
                1 if number < len(ledgers) else 0,
                -1
                if number in unknown
                else max((max(message_times(e)[1:]) for e in entries), default=0),
            )
            for number, entries in self.entries.items()
        )
        self.position_before = self.chain.position_before

    @property
    def ledgers(self) -> tuple[TopicLedger, ...]:
        return tuple(
            TopicLedger(e.ledger_id, e.entries, e.size_bytes, e.closed_ms, e.own_times_ms)
            for e in self.chain.links
        )

    @property
    def names_no_times(self) -> bool:
        return not any(link.own_times_ms for link in self.chain.links)

    @property
    def last_confirmed(self) -> Position:
        return self.chain.last_position()

    def learned_own_times(self, ledger_id: int, latest_ms: int) -> None:
        link = self.chain.find(ledger_id)
        assert link is not None
        link.own_times_ms = latest_ms

    async def read(self, start: Position, *, max_entries: int, max_bytes: int) -> list[LogEntry]:
        if start.ledger_id == self.unreadable:
            raise NotEnoughBookies("no bookie answers")
        entries = self.entries[start.ledger_id][start.entry_id : start.entry_id + max_entries]
        self.reads += len(entries)
        return [
            LogEntry(Position(start.ledger_id, start.entry_id + i), e)
            for i, e in enumerate(entries)
        ]

    async def find_by_time(self, time_ms: int, time_of: Any) -> Position | None:
        for number, entries in self.entries.items():
            for index, each in enumerate(entries):
                position = Position(number, index)
                if time_of(LogEntry(position, each)) >= time_ms:
                    return position
        return None


@dataclass
class Subscription:
    """A subscription and its cursor."""

    log: Log
    name: str = "s"
    acked: set[Position] = field(default_factory=set)
    mark_delete: Position = START
    closed: None = None
    seek_count: int = 0
    has_many_holes: bool = False
    flushes: int = 0

    @property
    def cursor(self) -> Subscription:
        return self

    @property
    def read_from(self) -> Position:
        return self.log.chain.next_position(self.mark_delete)

    def is_acknowledged(self, position: Position) -> bool:
        return position <= self.mark_delete or position in self.acked

    async def flush(self) -> None:
        self.flushes += 1

    async def oldest_publish_ms(self) -> int | None:
        position = self.read_from
        while position <= self.log.last_confirmed:
            if not self.is_acknowledged(position):
                return message_times(self.log.entries[position.ledger_id][position.entry_id])[0]
            position = self.log.chain.next_position(position)
        return None

    async def expire_through(self, last: Position) -> None:
        self.mark_delete = max(self.mark_delete, last)

    def acknowledge_expired(self, positions: list[Position]) -> None:
        self.acked.update(positions)
        while self.read_from in self.acked:
            self.mark_delete = self.read_from

    @property
    def left(self) -> list[tuple[int, int]]:
        return [
            (number, index)
            for number, entries in self.log.entries.items()
            for index in range(len(entries))
            if not self.is_acknowledged(Position(number, index))
        ]


def expire(
    expiry: MessageExpiry,
    subscription: Subscription,
    now_s: int,
    ttl_s: int = 0,
    *,
    delays: bool = True,
) -> None:
    policies = {MESSAGE_TTL: ttl_s, DELAYED_DELIVERY: DelayedDelivery(active=delays)}
    asyncio.run(
        expiry.expire(
            cast("Any", {subscription.name: subscription}), cast("Any", policies), now_s * SECOND
        )
    )


def of(log: Log) -> tuple[MessageExpiry, Subscription]:
    return MessageExpiry(cast("Any", log)), Subscription(log)


def test_in_ordinary_ledgers_no_entry_is_read() -> None:
    log = Log([entry(1), entry(2)], [entry(3), entry(20)])
    expiry, subscription = of(log)
    expire(expiry, subscription, 11, 5)
    assert subscription.left == [(2, 1)]
    assert log.reads == 0


def test_the_ttl_of_a_delayed_entry_counts_from_when_it_is_due() -> None:
    log = Log([entry(1), entry(1, due_s=30), entry(2)], [entry(3)], [entry(4), entry(40)])
    expiry, subscription = of(log)
    expire(expiry, subscription, 15, 5)
    assert subscription.left == [(1, 1), (3, 1)]
    assert subscription.flushes == 1
    expire(expiry, subscription, 35, 5)
    assert subscription.left == [(1, 1), (3, 1)], "not a moment before"
    expire(expiry, subscription, 36, 5)
    assert subscription.left == [(3, 1)]


def test_where_delays_are_not_obeyed_it_counts_from_publishing() -> None:
    expiry, subscription = of(Log([entry(1), entry(1, due_s=30)]))
    expire(expiry, subscription, 15, 5, delays=False)
    assert subscription.left == []


def test_an_expiry_needs_no_ttl_and_the_longer_one_does_not_win() -> None:
    log = Log([entry(1), entry(1, expires_s=10), entry(1, expires_s=20)], [entry(2, expires_s=99)])
    expiry, subscription = of(log)
    expire(expiry, subscription, 9)
    assert subscription.left == [(1, 0), (1, 1), (1, 2), (2, 0)]
    expire(expiry, subscription, 10)
    assert subscription.left == [(1, 0), (1, 2), (2, 0)]
    expire(expiry, subscription, 20, 15)
    assert subscription.left == []


def test_a_ledger_is_read_again_only_when_something_in_it_is_over() -> None:
    log = Log([entry(1), entry(1, expires_s=10), entry(1, due_s=50)], [entry(2)])
    expiry, subscription = of(log)
    for now_s in (3, 4, 5, 9):
        expire(expiry, subscription, now_s)
    assert log.reads == 3
    expire(expiry, subscription, 10)
    expire(expiry, subscription, 11)
    assert log.reads == 6


def test_what_is_published_later_into_the_open_ledger_is_found() -> None:
    log = Log([entry(1, expires_s=10)])
    expiry, subscription = of(log)
    expire(expiry, subscription, 5)
    log.entries[1].append(entry(6, expires_s=7))
    log.chain.grow(1, 100)
    expire(expiry, subscription, 8)
    assert subscription.left == [(1, 0)]
    assert log.reads == 2


def test_a_seek_brings_expired_entries_back_for_one_round_only() -> None:
    log = Log([entry(1, expires_s=10), entry(1, due_s=90)], [entry(2)], [])
    expiry, subscription = of(log)
    expire(expiry, subscription, 20, 15)
    assert subscription.left == [(1, 1)]
    subscription.acked, subscription.mark_delete = set(), Position(1, -1)
    subscription.seek_count += 1
    expire(expiry, subscription, 20, 15)
    assert subscription.left == [(1, 1)]


@pytest.mark.parametrize("ttl_s", [0, 5])
def test_of_an_unknown_ledger_it_is_found_out_once(ttl_s: int) -> None:
    log = Log([entry(1), entry(1, expires_s=10)], [entry(1), entry(2)], [entry(40)], unknown=(1, 2))
    expiry, subscription = of(log)
    expire(expiry, subscription, 12, ttl_s)
    assert [each.own_times_ms for each in log.ledgers] == [10 * SECOND, 0, 0]
    assert subscription.left == ([(3, 0)] if ttl_s else [(1, 0), (2, 0), (2, 1), (3, 0)])
    reads = log.reads
    expire(expiry, subscription, 13, ttl_s)
    assert log.reads == reads


@pytest.mark.parametrize("unknown", [(), (1, 2)])
def test_a_round_is_bounded_and_the_next_ones_finish(
    monkeypatch: pytest.MonkeyPatch, unknown: tuple[int, ...]
) -> None:
    monkeypatch.setattr(message_expiry, "_ENTRIES_MAX", 7)
    monkeypatch.setattr(message_expiry, "_READ_ENTRIES", 3)
    ledger = [entry(1, expires_s=10 + index) for index in range(10)]
    log = Log([entry(1, due_s=99), *ledger], list(ledger), [entry(1)] * 10, [], unknown=unknown)
    expiry, subscription = of(log)
    rounds = 0
    while len(subscription.left) > 1:
        before = log.reads
        expire(expiry, subscription, 50, 20)
        assert log.reads - before <= 2 * 7
        rounds += 1
        assert rounds < 20, "it does not come to an end"
    assert subscription.left == [(1, 0)]


def test_it_stops_half_way_to_the_limit_of_holes() -> None:
    expiry, subscription = of(Log([entry(1), entry(1, expires_s=10)]))
    subscription.has_many_holes = True
    expire(expiry, subscription, 20)
    assert subscription.left == [(1, 0), (1, 1)]


@pytest.mark.parametrize("unknown", [(), (1,)])
def test_what_cannot_be_read_now_expires_in_a_later_round(unknown: tuple[int, ...]) -> None:
    log = Log([entry(1, expires_s=10)], [entry(2, expires_s=10), entry(3)], [], unknown=unknown)
    log.unreadable = 1
    expiry, subscription = of(log)
    expire(expiry, subscription, 20)
    log.unreadable = 0
    expire(expiry, subscription, 20)
    assert subscription.left == [(2, 1)]
