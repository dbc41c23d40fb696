"""How often a consumer may subscribe."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from pulsarish.broker.clients.commands import Subscribe
from pulsarish.broker.clients.meters import Meter
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.nonpersistent.topic import NonPersistentTopic
from pulsarish.broker.policies.store import Effective, broker_defaults
from pulsarish.broker.policies.topic_limits import TopicLimits
from pulsarish.broker.subscriptions.subscriptions import TopicSubscriptions
from pulsarish.model import policies as model
from pulsarish.model.errors import TooManyRequests
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation

NAME = TopicName.parse("public/default/t")
NOT_KEPT = TopicName.parse("non-persistent://public/default/t")
TWICE = {model.SUBSCRIBE_RATE: model.SubscribeRate(2, 30)}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def subscribe(name: str = "me", consumer_id: int = 1) -> Subscribe:
    return Subscribe(1, consumer_id, NAME.full, "s", name=name)


def limits_of(clock: Any, policies: Any, **options: int) -> TopicLimits:
    config = BrokerConfig(**options)  # type: ignore[arg-type]
    return TopicLimits(NAME, config, clock, Effective(broker_defaults(config), policies), Meter(0))


def test_each_consumer_of_each_host_has_its_own_rate() -> None:
    clock = Clock()
    limits = limits_of(clock, TWICE)
    for _ in range(2):
        limits.check_subscribe_rate(subscribe(), "10.0.0.1:5000")
    with pytest.raises(TooManyRequests, match=r"2 times in 30 s.*\(subscribe_rate\).*in 15.0 s"):
        limits.check_subscribe_rate(subscribe(), "10.0.0.1:5001")
    limits.check_subscribe_rate(subscribe(), "10.0.0.2:5000")
    limits.check_subscribe_rate(subscribe("other"), "10.0.0.1:5000")
    limits.check_subscribe_rate(subscribe(consumer_id=2), "10.0.0.1:5000")
    clock.now = 15.0
    limits.check_subscribe_rate(subscribe(), "10.0.0.1:5002")
    assert TooManyRequests("").retryable, "or the consumer would end"


def test_the_options_limit_where_no_policy_does_and_a_policy_may_lift_them() -> None:
    options = {
        "subscribe_throttling_rate_per_consumer": 1,
        "subscribe_rate_period_per_consumer_in_second": 5,
    }
    limits = limits_of(Clock(), {}, **options)
    limits.check_subscribe_rate(subscribe(), "h:1")
    with pytest.raises(TooManyRequests, match="1 times in 5 s"):
        limits.check_subscribe_rate(subscribe(), "h:1")
    lifted = {model.SUBSCRIBE_RATE: model.SubscribeRate(-1, 30)}
    limits.use(Effective(limits.policies.defaults, lifted))
    for _ in range(100):
        limits.check_subscribe_rate(subscribe(), "h:1")


def test_a_refused_consumer_makes_no_subscription() -> None:
    sim = Simulation(1)
    node = sim.node("broker")

    async def work(world: World) -> None:
        config = BrokerConfig()
        policies = Effective(
            broker_defaults(config), {model.SUBSCRIBE_RATE: model.SubscribeRate(1, 30)}
        )
        outlet: Any = SimpleNamespace(has_room=True)
        topic = NonPersistentTopic(NOT_KEPT, world, config, policies, failed=lambda _: None)
        await topic.subscribe(subscribe(), outlet, "h:1")
        other = replace(subscribe(), subscription="other")
        with pytest.raises(TooManyRequests):
            await topic.subscribe(other, outlet, "h:1")
        assert list(topic.subscriptions) == ["s"]
        limits = TopicLimits(NAME, config, world.clock, policies, Meter(0.0))
        limits.check_subscribe_rate(subscribe(), "h:1")
        kept: Any = None
        with pytest.raises(TooManyRequests):
            await TopicSubscriptions(kept, world, config, limits).subscribe(
                subscribe(), outlet, "h:1"
            )

    async def scenario() -> None:
        await node.run(work)

    sim.run(scenario, 60.0)
