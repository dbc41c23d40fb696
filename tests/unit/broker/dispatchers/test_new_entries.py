"""Entries that are delivered as they are confirmed: each consumer gets what it would get from a
read.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.dispatchers.dispatcher import Dispatcher
from pulsarish.broker.dispatchers.reads import Read
from tests.support.dispatching import Log, Outlet, ack, at, consumer, drive
from tests.unit.broker.dispatchers.test_dispatchers import shared, single
from tests.unit.broker.dispatchers.test_key_shared import AUTO, by_parity, key_shared

MAKERS: dict[str, Callable[[Log], Dispatcher]] = {
    "exclusive": single,
    "failover": lambda log: single(log, failover=True),
    "shared": lambda log: shared(log, turn_messages=2, unacked_max_consumer=7),
    "key-shared": lambda log: key_shared(log, AUTO, unacked_max_subscription=9),
}


class Side:
    """A subscription; ``direct``: it gets new entries without a read where it can."""

    def __init__(self, kind: str, *, direct: bool) -> None:
        self.log = Log(0, key_hash=by_parity)
        self.dispatcher = MAKERS[kind](self.log)
        self.direct = direct
        self.here: list[tuple[Consumer, Outlet]] = []
        self.got: list[tuple[int, int]] = []
        self.direct_count = 0

    def join(self, order: int, permits: int) -> None:
        made, outlet = consumer(order, permits=permits)
        outlet.heard = lambda number, delivery: self.got.append(
            (number, delivery.position.entry_id)
        )
        self.dispatcher.add(made)
        self.here.append((made, outlet))

    def append(self, count: int) -> None:
        first = self.log.count
        self.log.count += count
        dispatcher = self.dispatcher
        if self.direct and dispatcher.reads.waits_at(at(first)) and dispatcher.wants_new:
            self.direct_count += 1
            dispatcher.reads.came(self.log.read(Read(at(first), count, 0, ())))
            dispatcher.deliver()


@pytest.mark.parametrize("kind", list(MAKERS))
def test_what_is_new_goes_where_a_read_would_take_it(kind: str) -> None:
    direct_counts = [_compare(kind, seed) for seed in range(25)]
    assert sum(direct_counts) > 20


def _compare(kind: str, seed: int) -> int:
    """Do the same to a subscription with and one without; return how often it mattered."""
    rng = random.Random(seed)
    sides = [Side(kind, direct=True), Side(kind, direct=False)]
    joined = 0
    for _ in range(150):
        action, number = rng.random(), rng.randint(1, 4)
        here = len(sides[0].here)
        chosen = rng.randrange(here) if here else 0
        share = rng.random()
        for side in sides:
            if action < 0.1 and here < (1 if kind == "exclusive" else 3):
                side.join(joined, permits=number * 9)
            elif action < 0.13 and here:
                side.dispatcher.remove(side.here.pop(chosen)[0])
            elif action < 0.5:
                side.append(number)
            elif here:
                who, outlet = side.here[chosen]
                held = [
                    entry
                    for order, entry in dict.fromkeys(side.got)
                    if order == who.order
                    and entry not in side.log.acked
                    and (kind in ("exclusive", "failover") or at(entry) in who.pending)
                ]
                some = held[: int(len(held) * share) + 1]
                if action < 0.7:
                    who.permits += number * 5
                elif action < 0.9:
                    ack(side.dispatcher, side.log, who, *some)
                elif action < 0.93:
                    outlet.has_room = not outlet.has_room
                elif some:
                    side.dispatcher.redeliver(who, [at(entry) for entry in some])
            drive(side.dispatcher, side.log)
            side.dispatcher.check()
        joined += action < 0.1
        assert sides[0].got == sides[1].got
    return sides[0].direct_count


def test_who_has_all_waits_for_the_next() -> None:
    log = Log(3)
    dispatcher = single(log)
    one, _ = consumer(1, permits=2)
    dispatcher.add(one)
    drive(dispatcher, log)
    reads = dispatcher.reads
    assert not reads.waits_at(at(3))
    one.permits += 1
    drive(dispatcher, log)
    assert reads.waits_at(at(3))
    assert not reads.waits_at(at(4)), "another one is before it"
    assert not dispatcher.wants_new
    dispatcher.redeliver(one, [at(1)])
    assert not reads.waits_at(at(3))
