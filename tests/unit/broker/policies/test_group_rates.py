"""The rates of resource groups on one broker: topics of a group share them, others are not held."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from pulsarish.broker.clients.meters import Meter
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.group_rates import GroupRates, Groups, Wish
from pulsarish.broker.policies.store import Effective, broker_defaults
from pulsarish.broker.policies.topic_limits import TopicLimits
from pulsarish.broker.stats.wait_reasons import policy_waiting
from pulsarish.model import policies as model
from pulsarish.model.topic_name import TopicName
from tests.unit.broker.policies.test_shared_rates import Clock

GROUP = {model.RESOURCE_GROUP: "g"}


class Topics:
    """Topics of one broker: two of a group, and one of none."""

    def __init__(self) -> None:
        self.clock: Any = Clock()
        self.config = BrokerConfig()
        self.defaults = broker_defaults(self.config)
        self.first, self.second = self.topic(GROUP), self.topic({}, GROUP)
        self.other = self.topic({})

    def topic(self, namespace: Any, own: Any = None) -> TopicLimits:
        policies = Effective(self.defaults, namespace, own or {})
        name = TopicName.parse("public/default/t")
        return TopicLimits(name, self.config, self.clock, policies, Meter(0.0))

    @property
    def rates(self) -> GroupRates:
        return self.defaults.groups.in_use()["g"]

    def limit(self, **limits: int) -> GroupRates:
        rates = self.rates
        rates.use(model.ResourceGroup(**limits), self.clock.now)
        return rates


def test_topics_of_a_group_share_what_is_published_and_others_are_free() -> None:
    topics = Topics()
    topics.limit(publish_messages=10)
    topics.first.published(15, 1_000_000, topics.clock.now)
    assert topics.second.publish_wait_seconds() == pytest.approx(0.6)
    assert topics.other.publish_wait_seconds() == 0.0
    assert topics.other.shared_rates == ()
    waiting = policy_waiting(topics.second, topics.clock.now, 1_000)
    assert waiting is not None
    assert (waiting.reason, waiting.explanation, waiting.data) == (
        "rate_limited",
        "Publishing has reached the publish rate of resource group 'g' (10 messages a second).",
        {"policy": "resource-group", "rateCommand": "get-resource-group"},
    )


def test_subscriptions_of_topics_of_a_group_share_what_is_delivered() -> None:
    topics = Topics()
    first, second = topics.first.dispatch_limits(), topics.second.dispatch_limits()
    other = topics.other.dispatch_limits()
    assert first.is_unlimited
    topics.limit(dispatch_bytes=1_000, dispatch_messages=10)
    assert not second.is_unlimited
    assert other.is_unlimited
    first.note_read(10, 10)
    first.take(10, 1_500)
    assert second.allowed()[0] == pytest.approx(0.501)
    assert second.reached() == (
        "resource-group",
        "the dispatch rate of resource group 'g' (10 messages and 1000 bytes a second)",
    )
    assert topics.first.publish_wait_seconds() == 0.0


def test_of_two_shared_rates_the_one_that_holds_longer_is_named() -> None:
    topics = Topics()
    topics.config = BrokerConfig(dispatch_throttling_rate_in_msg=10)
    topics.defaults = broker_defaults(topics.config, groups=topics.defaults.groups)
    topic = topics.topic(GROUP)
    topics.limit(dispatch_messages=5)
    limits = topic.dispatch_limits()
    limits.take(20, 0)
    assert limits.reached()[0] == "resource-group"
    topics.limit(dispatch_messages=100)
    limits.take(10, 0)
    assert limits.reached()[0] == ""


def test_a_share_is_put_in_force_at_once_and_a_debt_is_paid_at_the_new_rate() -> None:
    topics = Topics()
    rates = topics.limit(publish_messages=100)
    topics.first.published(200, 0, topics.clock.now)
    assert topics.first.publish_wait_seconds() == pytest.approx(1.0, abs=0.02)
    for share in (0.5, 0.01, 1.0, 0.25):
        rates.divide([share] * 4, topics.clock.now + 5.0, topics.clock.now)
    assert topics.first.publish_wait_seconds() == pytest.approx(4.0, abs=0.05)
    assert rates.publish.messages.rate == 25.0
    rates.expire(0.1, topics.clock.now + 4.9)
    assert rates.shares == (0.25,) * 4
    rates.expire(0.1, topics.clock.now + 5.0)
    assert rates.shares == (0.1,) * 4
    rates.use(model.ResourceGroup(), topics.clock.now)
    assert topics.first.publish_wait_seconds() == 0.0


def test_a_batch_during_the_first_share_waits_no_longer_once_the_share_is_the_whole() -> None:
    topics = Topics()
    rates = topics.limit(publish_messages=1_000)
    rates.divide([0.01] * 4, 1e9, topics.clock.now)
    topics.first.published(1_000, 0, topics.clock.now)
    rates.divide([1.0] * 4, 1e9, topics.clock.now)
    assert topics.first.publish_wait_seconds() == pytest.approx(1.0, abs=0.05)


def test_a_share_of_less_than_a_message_lets_one_through_now_and_then() -> None:
    topics = Topics()
    topics.limit(publish_messages=1).divide([0.02] * 4, 1e9, topics.clock.now)
    published = 0
    while topics.clock.now < 1_100.0:
        if not topics.first.publish_wait_seconds():
            topics.first.published(1, 0, topics.clock.now)
            published += 1
        topics.clock.now += 0.5
    assert 19 <= published <= 22


def test_wishes_say_what_was_used_of_each_limit_and_whether_it_was_enough() -> None:
    topics = Topics()
    rates = topics.limit(publish_messages=100, publish_bytes=1_000)
    nothing = Wish(0.0, False, 1.0)
    assert rates.wishes(topics.clock.now) == [nothing] * 4
    rates.divide((0.2, 0.5, 1.0, 1.0), 1e9, topics.clock.now)
    topics.first.published(19, 100, topics.clock.now)
    topics.clock.now += 0.4
    assert rates.wishes(topics.clock.now)[0].demand == 0.0, "too short to tell"
    topics.clock.now += 0.6
    assert rates.wishes(topics.clock.now) == [
        Wish(pytest.approx(0.19), True, 0.2),
        Wish(pytest.approx(0.1), False, 0.5),
        nothing,
        nothing,
    ]
    topics.clock.now += 1.0
    messages = rates.wishes(topics.clock.now)[0]
    assert (messages.demand, messages.is_short) == (pytest.approx(0.152), False)
    topics.first.published(100, 0, topics.clock.now)
    topics.clock.now += 0.1
    assert rates.wishes(topics.clock.now)[0].is_short, "it owes more than it may publish now"


def test_a_group_is_in_use_while_topics_are_in_it() -> None:
    came: list[str] = []
    groups = Groups()
    groups.came = came.append
    groups.first_share = lambda: 0.1
    topics = Topics()
    topics.defaults = broker_defaults(topics.config, groups=groups)
    one, two = topics.topic(GROUP), topics.topic(GROUP)
    assert came == ["g"]
    assert groups.in_use()["g"].shares == (0.1,) * 4
    one.close()
    gc.collect()
    assert list(groups.in_use()) == ["g"]
    two.use(Effective(topics.defaults))
    gc.collect()
    assert groups.in_use() == {}


def test_a_change_of_other_policies_keeps_the_rates_of_the_only_topic_of_a_group() -> None:
    topics = Topics()
    topics.second.close()
    topics.limit(publish_messages=10)
    topics.first.published(15, 0, topics.clock.now)
    topics.first.use(Effective(topics.defaults, {**GROUP, model.MESSAGE_TTL: 5}))
    assert topics.first.publish_wait_seconds() == pytest.approx(0.6)
