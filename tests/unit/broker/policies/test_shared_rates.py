"""Rates that all topics of a broker share."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pulsarish.broker.clients.meters import Meter
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.store import Effective, broker_defaults
from pulsarish.broker.policies.topic_limits import TopicLimits
from pulsarish.broker.stats.wait_reasons import policy_waiting
from pulsarish.model import policies as model
from pulsarish.model.topic_name import TopicName


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


class Topics:
    """Two topics of a broker with these options."""

    def __init__(self, **options: int) -> None:
        self.clock: Any = Clock()
        self.config = BrokerConfig(**options)  # type: ignore[arg-type]
        defaults = broker_defaults(self.config)
        self.first, self.second = (
            TopicLimits(
                TopicName.parse(name), self.config, self.clock, Effective(defaults), Meter(0.0)
            )
            for name in ("public/default/first", "public/default/second")
        )

    def use(self, **options: int) -> None:
        """Change the options of the broker while it runs."""
        config = BrokerConfig(**options)  # type: ignore[arg-type]
        rates = self.first.policies.defaults.rates
        defaults = broker_defaults(config, rates)
        for topic in (self.first, self.second):
            topic.use(Effective(defaults, topic.policies.namespace))


def test_topics_publish_no_more_than_the_broker_takes_in_all() -> None:
    topics = Topics(broker_publisher_throttling_max_message_rate=10)
    published = 0
    while topics.clock.now < 110.0:
        for topic in (topics.first, topics.second):
            if not topic.publish_wait_seconds():
                topic.published(3, 1_000_000, topics.clock.now)
                published += 3
        topics.clock.now += 0.01
    assert 100 <= published <= 116, "10 a second, those saved up and one batch"


@pytest.mark.parametrize(
    ("option", "messages", "size_bytes"),
    [
        ("broker_publisher_throttling_max_message_rate", 11, 0),
        ("broker_publisher_throttling_max_byte_rate", 0, 11),
    ],
)
def test_what_one_topic_publishes_holds_the_others(
    option: str, messages: int, size_bytes: int
) -> None:
    topics = Topics(**{option: 10})
    topics.first.published(messages, size_bytes, topics.clock.now)
    assert topics.second.publish_wait_seconds() == pytest.approx(0.2)
    waiting = policy_waiting(topics.second, topics.clock.now, 1_000)
    assert waiting is not None
    unit = "messages" if messages else "bytes"
    assert (waiting.reason, waiting.explanation, waiting.retry_at_ms) == (
        "broker_rate_limited",
        f"Publishing has reached the publish rate of the broker (10 {unit} a second).",
        1_200,
    )
    topics.clock.now += 0.2
    assert policy_waiting(topics.second, topics.clock.now, 1_000) is None


def test_the_policy_of_a_topic_holds_it_beside_the_rate_of_the_broker() -> None:
    topics = Topics(broker_publisher_throttling_max_message_rate=100)
    defaults = topics.first.policies.defaults
    topics.first.use(Effective(defaults, {model.PUBLISH_RATE: model.PublishRate(1)}))
    topics.first.published(3, 0, topics.clock.now)
    assert topics.first.publish_wait_seconds() == pytest.approx(3.0)
    assert topics.second.publish_wait_seconds() == 0.0


def test_rates_begin_change_and_end_while_the_broker_runs() -> None:
    topics = Topics()
    assert topics.first.shared_rates == (), "nothing is counted while they are off"
    topics.first.published(1_000, 0, topics.clock.now)
    topics.use(broker_publisher_throttling_max_message_rate=10)
    assert topics.second.publish_wait_seconds() == 0.0
    topics.first.published(15, 0, topics.clock.now)
    assert topics.second.publish_wait_seconds() == pytest.approx(0.6)
    topics.use(broker_publisher_throttling_max_message_rate=100)
    assert topics.second.publish_wait_seconds() == pytest.approx(0.06), "the debt stays"
    topics.use()
    assert topics.second.publish_wait_seconds() == 0.0
    assert topics.second.shared_rates == ()


def test_subscriptions_of_all_topics_share_what_the_broker_delivers() -> None:
    topics = Topics(dispatch_throttling_rate_in_msg=10, dispatch_throttling_rate_in_byte=1_000)
    first, second = topics.first.dispatch_limits(), topics.second.dispatch_limits()
    assert second.allowed() == (0.0, 1, 1_000)
    first.note_read(8, 8)
    first.take(8, 100)
    assert first.allowed() == (0.0, 2, 900)
    second.take(4, 100)
    assert first.allowed() == (pytest.approx(0.3), 0, 0)
    assert first.reached() == (
        "",
        "the dispatch rate of the broker (10 messages and 1000 bytes a second)",
    )
    assert topics.first.publish_wait_seconds() == 0.0
    topics.clock.now += 0.4
    assert first.reached()[0] == "", "no policy has a rate, also when the wait is just over"
    topics.clock.now -= 0.4
    defaults = topics.first.policies.defaults
    topics.first.use(Effective(defaults, {model.DISPATCH_RATE: model.DispatchRate(1)}))
    first.policies_changed()
    first.take(5, 0)
    assert first.reached() == ("dispatch-rate", "1 message in 1 s")


def test_a_read_is_as_long_as_its_messages_are_allowed() -> None:
    topics = Topics(dispatch_throttling_rate_in_msg=1_000)
    limits = topics.first.dispatch_limits()
    read_seconds: list[float] = []
    delivered = 0
    while topics.clock.now < 110.0:
        wait_seconds, entries_max, _ = limits.allowed()
        if not wait_seconds:
            limits.note_read(entries_max, entries_max * 200)
            limits.take(entries_max * 200, entries_max)
            delivered += entries_max * 200
            read_seconds.append(topics.clock.now)
        assert delivered <= 1_000 * (topics.clock.now - 100.0) + 1_000 + 200, "and one batch"
        topics.clock.now += 0.01
    assert delivered >= 10_000
    assert max(b - a for a, b in itertools.pairwise(read_seconds)) < 0.5, "it does not stand still"


def test_a_limit_of_bytes_does_not_limit_the_entries_of_a_read() -> None:
    topics = Topics(dispatch_throttling_rate_in_byte=1_000)
    config = topics.config
    assert topics.first.dispatch_limits().allowed() == (
        0.0,
        config.dispatcher_max_read_batch_size,
        1_000,
    )
