"""What a program may pass to subscribe to more than the topics that it names."""

from __future__ import annotations

import re

import pytest

from pulsarish.client.enums import RegexSubscriptionMode
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.options import topics_of
from pulsarish.client.messages.topic_filter import TopicFilter, Wildcard, filter_of
from pulsarish.model.errors import InvalidArgument, InvalidTopicName, PulsarishError
from pulsarish.model.topic_pattern import compile_pattern

PERSISTENT = RegexSubscriptionMode.PersistentOnly


def found(topic: re.Pattern[str] | Wildcard, *names: str) -> list[str]:
    matches = compile_pattern(filter_of(topic, PERSISTENT).pattern)
    return [name for name in names if matches(name)]


@pytest.mark.parametrize(
    ("text", "namespace"),
    [
        ("persistent://acme/shop/orders-.*", "acme/shop"),
        ("non-persistent://acme/shop/orders-.*", "acme/shop"),
        ("acme/shop/orders-.*", "acme/shop"),
        ("orders-.*", "public/default"),
    ],
)
def test_a_pattern_has_the_namespace_that_stands_before_it(text: str, namespace: str) -> None:
    chosen = filter_of(re.compile(text), PERSISTENT)
    assert (chosen.namespace, chosen.text) == (namespace, text)
    names = (f"{namespace}/orders-1", f"{namespace}/more-orders-1", "other/ns/orders-1")
    assert found(re.compile(text), *names) == [names[0]]


def test_the_dots_of_a_namespace_are_no_part_of_the_pattern() -> None:
    assert found(re.compile("acme/my.shop/a|b"), "acme/my.shop/b", "acme/my-shop/b") == [
        "acme/my.shop/b"
    ]


def test_a_wildcard_has_its_namespace_and_cannot_be_confused_with_a_name() -> None:
    names = ("acme/shop/orders.eu.created", "acme/shop/orders.created")
    assert found(Wildcard("acme/shop/orders.*.created"), *names) == [names[0]]
    assert found(Wildcard("persistent://acme/shop/orders.>"), *names) == list(names)
    assert found(Wildcard("orders.>"), "public/default/orders.eu") == ["public/default/orders.eu"]
    # the same text is the name of one topic
    assert topics_of("orders.*.created")[0].local == "orders.*.created"


def test_letters_of_any_case_match_if_the_pattern_says_so() -> None:
    pattern = re.compile("orders-.*", re.IGNORECASE)
    assert found(pattern, "public/default/ORDERS-1") == ["public/default/ORDERS-1"]


@pytest.mark.parametrize(
    ("mode", "persistent", "non_persistent"),
    [
        (RegexSubscriptionMode.PersistentOnly, True, False),
        (RegexSubscriptionMode.NonPersistentOnly, False, True),
        (RegexSubscriptionMode.AllTopics, True, True),
    ],
)
def test_the_mode_says_which_kinds_of_topics(
    mode: RegexSubscriptionMode, persistent: bool, non_persistent: bool
) -> None:
    options = ConsumerOptions(re.compile("orders-.*"), "s", regex_subscription_mode=mode)
    assert isinstance(options.filter, TopicFilter)
    assert (options.filter.persistent, options.filter.non_persistent) == (
        persistent,
        non_persistent,
    )
    assert options.topics == []


@pytest.mark.parametrize(
    ("pattern", "kind", "text"),
    [
        (re.compile("persistent://public/.*/orders"), InvalidTopicName, "topics of one namespace"),
        (re.compile("public/orders"), InvalidTopicName, "no tenant/namespace/name"),
        (re.compile("kafka://public/default/x"), InvalidTopicName, "unknown domain 'kafka'"),
        (re.compile("persistent://orders-.*"), InvalidTopicName, "no tenant/namespace/name"),
        (re.compile("orders(?=x)"), InvalidArgument, "(?= at character 7"),
        (re.compile("x" * 1_000), InvalidArgument, "at most 1000"),
        (re.compile("x", re.VERBOSE), InvalidArgument, "VERBOSE"),
        (re.compile(b"x"), InvalidArgument, "bytes"),
    ],
)
def test_a_wrong_pattern_is_refused_before_a_broker_is_asked(
    pattern: re.Pattern[str], kind: type[PulsarishError], text: str
) -> None:
    with pytest.raises(kind) as refused:
        ConsumerOptions(pattern, "s")
    assert text in str(refused.value)


def test_a_wildcard_without_a_namespace_is_shown_one_that_has_it() -> None:
    with pytest.raises(InvalidTopicName, match=r"like persistent://public/default/orders\.\*$"):
        Wildcard("acme/orders.>")


@pytest.mark.parametrize("text", ["acme/orders.*", "acme/*/orders", "orders.>.x", "kafka://a/b/c"])
def test_a_wrong_wildcard_is_refused(text: str) -> None:
    with pytest.raises((InvalidArgument, InvalidTopicName)):
        Wildcard(text)
