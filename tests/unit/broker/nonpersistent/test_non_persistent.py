"""A subscription of a non-persistent topic: connected consumers with permits get messages by its
type; dropped messages are counted.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.broker.clients.commands import (
    Acknowledge,
    KeySharedPolicy,
    Outcome,
)
from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.clients.meters import Meter
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.dispatchers.chunks import Chunk
from pulsarish.broker.dispatchers.reads import Ready
from pulsarish.broker.nonpersistent.subscription import NonPersistentSubscription
from pulsarish.broker.policies.store import Effective, broker_defaults
from pulsarish.broker.policies.topic_limits import TopicLimits
from pulsarish.model.errors import ConsumerBusy
from pulsarish.model.position import Position
from pulsarish.model.subscription_type import SubscriptionType
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.clock import SystemClock
from tests.support.dispatching import Outlet, consumer

NAME = TopicName.parse("non-persistent://public/default/t")
TYPES = list(SubscriptionType)


class Tried:
    """A subscription whose consumers are identified by their number."""

    def __init__(self, kind: SubscriptionType, **settings: object) -> None:
        clock = SystemClock()
        config = BrokerConfig(**settings)  # type: ignore[arg-type]
        topic_limits = TopicLimits(
            NAME, config, clock, Effective(broker_defaults(config)), Meter(0.0)
        )
        self.kind = kind
        self.subscription = NonPersistentSubscription(
            "s",
            NAME,
            durable=True,
            next_position=Position(0, 0),
            config=config,
            clock=clock,
            topic_limits=topic_limits,
        )
        self._came = 0

    def join(self, order: int, permits: int) -> tuple[Consumer, Outlet]:
        made, outlet = consumer(order, permits=permits)
        self.subscription.add(made, self.kind, KeySharedPolicy())
        return made, outlet

    def push(self, count: int, *, messages: int = 1, hashes: int = 50) -> None:
        entries = [
            Ready(Position(0, self._came + each), b"x", messages, None, each * 997 % hashes)
            for each in range(count)
        ]
        self._came += count
        self.subscription.push(entries)
        self.subscription.check()

    @property
    def dropped(self) -> int:
        return self.subscription.dropped.messages


@pytest.mark.parametrize("kind", TYPES)
def test_one_consumer_gets_as_much_as_it_has_permits_for_and_the_rest_is_dropped(
    kind: SubscriptionType,
) -> None:
    tried = Tried(kind)
    tried.push(3)
    assert tried.dropped == 3, "nobody was there"
    made, outlet = tried.join(0, permits=5)
    tried.push(8)
    assert (outlet.entries, tried.dropped, made.permits) == ([3, 4, 5, 6, 7], 6, 0)
    tried.subscription.flow(made, 2)
    assert len(outlet.got) == 5, "what was dropped does not come back"
    tried.push(1)
    assert (outlet.entries[-1], tried.dropped, made.unacked) == (11, 6, 0)


@pytest.mark.parametrize("kind", TYPES)
def test_a_batch_is_delivered_whole_or_dropped_whole(kind: SubscriptionType) -> None:
    tried = Tried(kind)
    made, outlet = tried.join(0, permits=3)
    tried.push(2, messages=10)
    assert (outlet.entries, made.permits, tried.dropped) == ([0], -7, 10)


@pytest.mark.parametrize("kind", TYPES)
def test_a_consumer_whose_connection_is_full_gets_nothing(kind: SubscriptionType) -> None:
    tried = Tried(kind)
    _, outlet = tried.join(0, permits=10)
    outlet.has_room = False
    tried.push(4)
    assert (outlet.got, tried.dropped) == ([], 4)


def test_many_more_messages_than_may_be_unacknowledged_are_delivered() -> None:
    tried = Tried(
        SubscriptionType.SHARED,
        max_unacked_messages_per_consumer=5,
        max_unacked_messages_per_subscription=5,
    )
    made, outlet = tried.join(0, permits=100)
    for _ in range(10):
        tried.push(10)
    assert (len(outlet.got), tried.dropped, made.pending) == (100, 0, {})


def test_what_is_left_of_an_unfinished_message_that_is_forgotten_is_dropped_too() -> None:
    tried = Tried(SubscriptionType.SHARED)
    (_, first), (_, second) = tried.join(0, permits=1), tried.join(1, permits=10_000)
    names = ["begun", "begun", *(str(number) for number in range(1_500))]
    chunks = [Chunk(("p", name), is_last=False) for name in names]
    tried.subscription.push(
        [Ready(Position(0, each), b"x", 1, None, chunk=chunk) for each, chunk in enumerate(chunks)]
    )
    tried.subscription.check()
    assert (first.entries, len(second.entries), tried.dropped) == ([0], 1_500, 1)


def test_shared_consumers_take_turns() -> None:
    tried = Tried(SubscriptionType.SHARED)
    (_, first), (_, second) = tried.join(0, permits=1000), tried.join(1, permits=1000)
    for _ in range(10):
        tried.push(1)
    assert (first.entries, second.entries) == ([0, 2, 4, 6, 8], [1, 3, 5, 7, 9])


def test_failover_hands_over_at_once_and_says_so() -> None:
    tried = Tried(SubscriptionType.FAILOVER, active_consumer_failover_delay_time_millis=1_000)
    (_, second), (active, first) = tried.join(1, permits=10), tried.join(0, permits=10)
    tried.push(2)
    assert (first.entries, second.entries, first.active(), second.active()) == (
        [0, 1],
        [],
        [True],
        [True, False],
    )
    tried.subscription.remove(active)
    tried.push(2)
    assert (second.entries, second.active(), tried.dropped) == ([2, 3], [True, False, True], 0)


def test_a_key_goes_to_one_consumer_as_long_as_both_are_there() -> None:
    tried = Tried(SubscriptionType.KEY_SHARED)
    (_, first), (_, second) = tried.join(0, permits=1000), tried.join(1, permits=1000)
    tried.push(200, hashes=65_536)
    once = set(first.entries), set(second.entries)
    tried.push(200, hashes=65_536)
    again = (
        {each - 200 for each in first.entries if each >= 200},
        {each - 200 for each in second.entries if each >= 200},
    )
    assert once == again
    assert all(once)


def test_an_exclusive_one_is_busy_and_types_do_not_mix() -> None:
    tried = Tried(SubscriptionType.EXCLUSIVE)
    tried.join(0, permits=1)
    with pytest.raises(ConsumerBusy):
        tried.join(1, permits=1)
    tried.kind = SubscriptionType.SHARED
    with pytest.raises(ConsumerBusy, match="type exclusive"):
        tried.join(1, permits=1)


def test_an_acknowledgement_is_answered_and_an_epoch_carried_on() -> None:
    tried = Tried(SubscriptionType.EXCLUSIVE)
    made, outlet = tried.join(0, permits=10)
    tried.push(1)
    tried.subscription.acknowledge(
        made, Acknowledge(0, [Position(0, 0)], request_id=7, cumulative=True)
    )
    assert outlet.answers == [Outcome(7)]
    tried.subscription.redeliver(made, (), epoch=3)
    tried.push(1)
    assert [delivery.epoch for delivery in outlet.got] == [-1, 3]
    assert outlet.entries == [0, 1]


@pytest.mark.parametrize("kind", TYPES)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["push", "flow", "leave", "join"]),
            st.integers(0, 2),
            st.integers(1, 30),
        ),
        max_size=40,
    )
)
def test_each_message_is_delivered_once_or_dropped_once(
    kind: SubscriptionType, steps: list[tuple[str, int, int]]
) -> None:
    tried = Tried(kind)
    there: dict[int, tuple[Consumer, Outlet]] = {}
    outlets: list[Outlet] = []
    came = 0
    for step, who, count in steps:
        if step == "push":
            tried.push(count)
            came += count
        elif (
            step == "join"
            and who not in there
            and (kind is not SubscriptionType.EXCLUSIVE or not there)
        ):
            there[who] = tried.join(who, permits=count)
            outlets.append(there[who][1])
        elif step == "leave" and who in there:
            tried.subscription.remove(there.pop(who)[0])
        elif step == "flow" and who in there:
            tried.subscription.flow(there[who][0], count)
        tried.subscription.check()
    delivered = [entry for outlet in outlets for entry in outlet.entries]
    assert len(delivered) == len(set(delivered))
    assert len(delivered) + tried.dropped == came
    assert all(not delivery.redelivery_count for outlet in outlets for delivery in outlet.got)
