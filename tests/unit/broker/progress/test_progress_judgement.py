"""The judgement of progress compared with real dispatchers: they move exactly when it says so.

A restart changes neither which consumer holds what, nor the order.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pulsarish.broker.clients.commands import KeySharedMode, KeySharedPolicy
from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.dispatchers.chunks import Chunk
from pulsarish.broker.dispatchers.factory import Dispatcher
from pulsarish.broker.dispatchers.key_shared import KeySharedDispatcher, LookAhead
from pulsarish.broker.dispatchers.multi_consumer import SharingLimits
from pulsarish.broker.dispatchers.shared import SharedDispatcher
from pulsarish.broker.dispatchers.single_active import SingleActiveDispatcher
from pulsarish.broker.progress.explain import can_move, explain
from tests.support.dispatching import LIMITS, Log, Outlet, ack, at, consumer
from tests.support.progress import DispatchedLog

_UNACKED_MAX_CONSUMER = 12
_UNACKED_MAX = 20


def exclusive(log: Log) -> Dispatcher:
    return SingleActiveDispatcher(
        failover=False,
        partition=-1,
        read_from=log.read_from,
        acknowledged=log.acknowledged,
        limits=LIMITS,
        consumers_max=10,
    )


def failover(log: Log) -> Dispatcher:
    return SingleActiveDispatcher(
        failover=True,
        partition=-1,
        read_from=log.read_from,
        acknowledged=log.acknowledged,
        limits=LIMITS,
        consumers_max=10,
    )


def shared(log: Log) -> Dispatcher:
    sharing = SharingLimits(10, 3, _UNACKED_MAX_CONSUMER, _UNACKED_MAX)
    return SharedDispatcher(
        read_from=log.read_from, acknowledged=log.acknowledged, limits=LIMITS, sharing=sharing
    )


def key_shared(log: Log) -> Dispatcher:
    return KeySharedDispatcher(
        read_from=log.read_from,
        acknowledged=log.acknowledged,
        limits=LIMITS,
        sharing=SharingLimits(10, 3, _UNACKED_MAX_CONSUMER, _UNACKED_MAX),
        policy=KeySharedPolicy(KeySharedMode.AUTO_SPLIT),
        ring_points=20,
        look_ahead=LookAhead(8, 16, 40),
    )


KINDS = [exclusive, failover, shared, key_shared]


class Script:
    """What clients and the log do, drawn at random."""

    def __init__(self, make: Callable[[Log], Dispatcher], seed: int) -> None:
        self.rng = random.Random(f"{make.__name__}:{seed}")
        chunked = make is shared and seed % 2 == 1
        self.log = Log(
            5,
            key_hash=lambda entry: entry * 7919 % 6,
            due_ms=lambda entry: (
                entry * 40 if make in (shared, key_shared) and not chunked and entry % 5 == 4 else 0
            ),
            chunk=lambda entry: Chunk(("p", str(entry // 4)), entry % 4 == 3) if chunked else None,
        )
        self.dispatcher = make(self.log)
        self.subscription = DispatchedLog(
            self.dispatcher, self.log, _UNACKED_MAX_CONSUMER, _UNACKED_MAX
        )
        self.joined = 0
        self.is_exclusive = make is exclusive
        self.outlets: dict[int, Outlet] = {}

    def step(self) -> None:
        rng, consumers = self.rng, list(self.dispatcher.consumers)
        who = rng.choice(consumers) if consumers else None
        match rng.randrange(9):
            case 0:
                self.log.count += rng.randrange(1, 12)
            case 1 | 2 if who is not None:
                who.permits += rng.randrange(1, 9)
            case 3 if not (self.is_exclusive and consumers) and len(consumers) < 4:
                self.join()
            case 4 if who is not None and rng.random() < 0.4:
                who.closed = True
                self.dispatcher.remove(who)
            case 5 if who is not None:
                outlet = self.outlets[who.order]
                outlet.has_room = not outlet.has_room
            case 6 if who is not None:
                self.acknowledge(who, rng.randrange(1, 9))
            case 7 if who is not None:
                given = [
                    each.position
                    for each in self.outlets[who.order].got
                    if not self.log.acknowledged(each.position)
                ]
                self.dispatcher.redeliver(who, given[: rng.randrange(4)])
            case 8:
                self.log.now_ms += rng.randrange(2_000)
            case _:
                return

    def join(self) -> Consumer:
        made, outlet = consumer(self.joined, permits=self.rng.randrange(6))
        self.outlets[self.joined] = outlet
        self.joined += 1
        self.subscription.add(made)
        return made

    def acknowledge(self, who: Consumer, count: int) -> None:
        got = dict.fromkeys(each.position.entry_id for each in self.outlets[who.order].got)
        left = [entry for entry in got if entry not in self.log.acked][:count]
        ack(self.dispatcher, self.log, who, *left)

    def finish(self) -> None:
        """Let everything flow: consumers receive and acknowledge all entries."""
        self.log.now_ms += 10_000_000
        if not self.dispatcher.consumers:
            self.join()
        for _ in range(500):
            for each in list(self.dispatcher.consumers):
                self.outlets[each.order].has_room = True
                each.permits = max(each.permits, 0) + 50
            self.subscription.work()
            for each in list(self.dispatcher.consumers):
                self.acknowledge(each, 1_000)
            if len(self.log.acked) == self.log.count:
                return
        raise AssertionError(
            f"{self.log.count - len(self.log.acked)} entries are not delivered: "
            f"{self.subscription.snapshot()}"
        )


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("restarts", [False, True], ids=["alone", "restarted"])
def test_what_can_move_is_what_the_dispatcher_moves(
    make: Callable[[Log], Dispatcher], *, restarts: bool
) -> None:
    moves = waits = 0
    for seed in range(60):
        script = Script(make, seed)
        script.join()
        subscription = script.subscription
        for _ in range(80):
            script.step()
            if restarts and script.rng.random() < 0.2:
                held = {each.order: dict(each.pending) for each in subscription.consumers}
                script.dispatcher.restart()
                script.dispatcher.check()
                assert {each.order: each.pending for each in subscription.consumers} == held
            could, snapshot = can_move(subscription.snapshot()), subscription.snapshot()
            moved = subscription.work()
            moves += could
            after = subscription.snapshot()
            # Chunks may be put aside for their consumer: then nothing is delivered, and nothing
            # more can be.
            assert moved or after != snapshot or not could, (
                f"it should move and does not: {snapshot}"
            )
            assert not can_move(after), f"it could go on and does not: {after}"
            if after.backlog and after.consumers:
                found = explain(after)
                assert (found.state, bool(found.explanation)) == ("waiting", True), after
                waits += 1
        script.finish()
    assert moves > 200
    assert waits > 200


@pytest.mark.parametrize("make", [exclusive, failover], ids=lambda make: make.__name__)
def test_a_restart_delivers_nothing_again_and_keeps_the_order(
    make: Callable[[Log], Dispatcher],
) -> None:
    log = Log(60)
    dispatcher = make(log)
    one, outlet = consumer(1, permits=7)
    dispatcher.add(one)
    subscription = DispatchedLog(dispatcher, log)
    for _ in range(12):
        subscription.work()
        # A read is in flight and will not be answered.
        one.permits += 1
        dispatcher.plan(log.end, blocked=False)
        dispatcher.restart()
        one.permits += 4
    subscription.work()
    assert outlet.entries == list(range(60))
    assert not any(each.redelivery_count for each in outlet.got)


def test_a_restart_keeps_each_key_with_its_consumer_and_in_order() -> None:
    log = Log(120, key_hash=lambda entry: entry % 7)
    dispatcher = key_shared(log)
    subscription = DispatchedLog(dispatcher, log, _UNACKED_MAX_CONSUMER, _UNACKED_MAX)
    members = [consumer(order, permits=2) for order in range(3)]
    for member, _ in members:
        subscription.add(member)
    for _ in range(300):
        subscription.work()
        dispatcher.restart()
        dispatcher.check()
        for member, outlet in members:
            ack(dispatcher, log, member, *[each.entry_id for each in list(member.pending)[:1]])
            member.permits = 3
            assert outlet.has_room
    subscription.work()
    got = [entry for _, outlet in members for entry in outlet.entries]
    assert sorted(got) == list(range(120)), "each once"
    for _, outlet in members:
        for key in range(7):
            mine = [entry for entry in outlet.entries if entry % 7 == key]
            assert mine == sorted(mine)


@pytest.mark.parametrize(
    "damage",
    [
        lambda dispatcher: setattr(
            dispatcher.reads, "_out", dispatcher.plan(at(99), blocked=False)
        ),
        lambda dispatcher: setattr(dispatcher.reads, "_empty_at", at(19)),
        lambda dispatcher: setattr(dispatcher, "blocked", True),
        lambda dispatcher: [setattr(each, "blocked", True) for each in dispatcher.consumers],
        lambda dispatcher: setattr(dispatcher.reads, "position", at(20)),
    ],
    ids=[
        "a read that is never answered",
        "an end that moved",
        "blocked for nothing",
        "a consumer blocked for nothing",
        "entries passed over",
    ],
)
@pytest.mark.parametrize("make", [shared, key_shared], ids=lambda make: make.__name__)
def test_a_restart_mends_what_stopped_the_dispatcher(
    make: Callable[[Log], Dispatcher], damage: Callable[[Dispatcher], object]
) -> None:
    log = Log(20)
    dispatcher = make(log)
    subscription = DispatchedLog(dispatcher, log, _UNACKED_MAX_CONSUMER, _UNACKED_MAX)
    one, outlet = consumer(1, permits=100)
    subscription.add(one)
    damage(dispatcher)
    assert not subscription.work()
    assert can_move(subscription.snapshot()), "what the dispatcher does not see is seen"
    dispatcher.restart()
    subscription.work()
    assert outlet.entries[:5] == [0, 1, 2, 3, 4]
