"""Policies of consumers, in the two forms of Apache Pulsar's Python client: those that a program
makes for ``subscribe``, and the ones that their ``policy()`` returns.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Self

from pulsarish.client.checks import (
    INT64_MAX,
    check_flag,
    check_number,
    check_text,
    check_type,
    shown,
)
from pulsarish.client.enums import KeySharedMode
from pulsarish.client.errors import InvalidType
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.topic_name import TopicName, check_name
from pulsarish.wire.entry import KEY_HASHES

__all__ = [
    "BatchReceivePolicy",
    "ConsumerBatchReceivePolicy",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "DeadLetterPolicy",
    "DeadLetterPolicyBuilder",
    "KeySharedPolicy",
]

# ruff: noqa: N802  # names of Apache Pulsar's Python client


class BatchReceivePolicy:
    """When ``batch_receive`` returns: at a number of messages or bytes, or after a time in ms; 0 or
    less: no limit.
    """

    def __init__(self, max_num_message: int, max_num_bytes: int, timeout_ms: int) -> None:
        for name, value in (
            ("max_num_message", max_num_message),
            ("max_num_bytes", max_num_bytes),
            ("timeout_ms", timeout_ms),
        ):
            check_type(name, value, int, "an int")
        if max_num_message <= 0 and max_num_bytes <= 0 and timeout_ms <= 0:
            raise InvalidArgument(
                "a batch receive policy needs at least one of max_num_message, max_num_bytes, "
                "timeout_ms above 0"
            )
        self._limits = (max_num_message, max_num_bytes, timeout_ms)

    def getMaxNumMessages(self) -> int:
        return self._limits[0]

    def getMaxNumBytes(self) -> int:
        return self._limits[1]

    def getTimeoutMs(self) -> int:
        return self._limits[2]


class ConsumerBatchReceivePolicy:
    """When ``batch_receive`` returns: at a number of messages or bytes, or after a time in ms; 0 or
    less: no limit.
    """

    def __init__(
        self,
        max_num_message: int = -1,
        max_num_bytes: int = 10 * 1024 * 1024,
        timeout_ms: int = 100,
    ) -> None:
        self._policy = BatchReceivePolicy(max_num_message, max_num_bytes, timeout_ms)
        self.max_messages = max_num_message if max_num_message > 0 else INT64_MAX
        self.max_bytes = max_num_bytes if max_num_bytes > 0 else INT64_MAX
        self.timeout_seconds = timeout_ms / 1_000 if timeout_ms > 0 else None

    def policy(self) -> BatchReceivePolicy:
        return self._policy


class DeadLetterPolicy:
    """What ``DeadLetterPolicyBuilder`` builds."""

    def __init__(
        self, max_redeliver_count: int, dead_letter_topic: str, initial_subscription_name: str
    ) -> None:
        self._max_redeliver_count = max_redeliver_count
        self._dead_letter_topic = dead_letter_topic
        self._initial_subscription_name = initial_subscription_name

    def getDeadLetterTopic(self) -> str:
        return self._dead_letter_topic

    def getMaxRedeliverCount(self) -> int:
        return self._max_redeliver_count

    def getInitialSubscriptionName(self) -> str:
        return self._initial_subscription_name


class DeadLetterPolicyBuilder:
    """Collects the parts of a ``DeadLetterPolicy``; each setter returns the builder."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._count: int | None = None
        self._subscription: str | None = None

    def deadLetterTopic(self, dead_letter_topic: str) -> Self:
        self._topic = check_text("dead_letter_topic", dead_letter_topic)
        return self

    def maxRedeliverCount(self, max_redeliver_count: int) -> Self:
        self._count = check_number("max_redeliver_count", max_redeliver_count, 1)
        return self

    def initialSubscriptionName(self, initial_subscription_name: str) -> Self:
        self._subscription = check_text("initial_subscription_name", initial_subscription_name)
        return self

    def build(self) -> DeadLetterPolicy:
        """Raises ``InvalidArgument`` without ``maxRedeliverCount``."""
        if self._count is None:
            raise InvalidArgument("max_redeliver_count is not given: call maxRedeliverCount")
        return ConsumerDeadLetterPolicy(self._count, self._topic, self._subscription).policy()


class ConsumerDeadLetterPolicy:
    """Move a message to another topic and acknowledge it after ``max_redeliver_count``
    redeliveries, or calls of ``reconsume_later``.

    A topic that is ``""`` has its default: ``TOPIC-SUBSCRIPTION-DLQ``, and
    ``TOPIC-SUBSCRIPTION-RETRY`` for messages that are to be consumed later.

    ``initial_subscription_name``: a subscription of the dead letter topic, which the broker creates
    at its start before the first letter, unless there is one of this name; ``""``: none.
    """

    def __init__(
        self,
        max_redeliver_count: int,
        dead_letter_topic: str | None = None,
        initial_subscription_name: str | None = None,
        retry_letter_topic: str | None = None,
    ) -> None:
        self.max_redeliver_count = check_number("max_redeliver_count", max_redeliver_count, 1)
        self.dead_letter_topic = _topic("dead_letter_topic", dead_letter_topic)
        self.retry_letter_topic = _topic("retry_letter_topic", retry_letter_topic)
        self.initial_subscription_name = ""
        if initial_subscription_name:
            self.initial_subscription_name = check_name(
                "initial subscription",
                check_text("initial_subscription_name", initial_subscription_name),
            )
        elif initial_subscription_name is not None:
            check_text("initial_subscription_name", initial_subscription_name)

    def policy(self) -> DeadLetterPolicy:
        return DeadLetterPolicy(
            self.max_redeliver_count, self.dead_letter_topic, self.initial_subscription_name
        )


def _topic(name: str, topic: str | None) -> str:
    """Return the topic as it was given, "" for ``None``. Raises ``InvalidTopicName``."""
    if topic is None:
        return ""
    TopicName.parse(check_text(name, topic))
    return topic


class KeySharedPolicy:
    """How a key-shared subscription divides keys; each setter returns the policy."""

    def __init__(self) -> None:
        self._mode = KeySharedMode.AutoSplit
        self._is_unordered = False
        self._ranges: list[tuple[int, int]] = []

    def set_key_shared_mode(self, key_shared_mode: KeySharedMode) -> Self:
        check_type("key_shared_mode", key_shared_mode, KeySharedMode, "a pulsarish.KeySharedMode")
        self._mode = key_shared_mode
        return self

    def get_key_shared_mode(self) -> KeySharedMode:
        return self._mode

    def set_allow_out_of_order_delivery(self, allow_out_of_order_delivery: bool) -> Self:
        self._is_unordered = check_flag("allow_out_of_order_delivery", allow_out_of_order_delivery)
        return self

    def is_allow_out_of_order_delivery(self) -> bool:
        return self._is_unordered

    def set_sticky_ranges(self, sticky_ranges: list[tuple[int, int]]) -> Self:
        self._ranges = _check_ranges(sticky_ranges)
        return self

    def get_sticky_ranges(self) -> list[tuple[int, int]]:
        return list(self._ranges)


class ConsumerKeySharedPolicy:
    """How a key-shared subscription divides keys.

    All its connected consumers have the same mode and flag.

    ``sticky_ranges``: ranges of hashes, first and last included, 0 to 65535. With mode ``Sticky``
    this consumer receives the keys in them.
    """

    def __init__(
        self,
        key_shared_mode: KeySharedMode = KeySharedMode.AutoSplit,
        allow_out_of_order_delivery: bool = False,
        sticky_ranges: list[tuple[int, int]] | None = None,
    ) -> None:
        self._policy = KeySharedPolicy()
        self._policy.set_key_shared_mode(key_shared_mode)
        self._policy.set_allow_out_of_order_delivery(allow_out_of_order_delivery)
        if sticky_ranges is not None:
            self._policy.set_sticky_ranges(sticky_ranges)
        if key_shared_mode is KeySharedMode.Sticky and not self.sticky_ranges:
            raise InvalidArgument(
                "sticky_ranges is empty: with KeySharedMode.Sticky name at least one range of 0 "
                "to 65535"
            )
        if key_shared_mode is KeySharedMode.AutoSplit and self.sticky_ranges:
            raise InvalidArgument("sticky_ranges needs key_shared_mode KeySharedMode.Sticky")

    @property
    def key_shared_mode(self) -> KeySharedMode:
        return self._policy.get_key_shared_mode()

    @property
    def allow_out_of_order_delivery(self) -> bool:
        return self._policy.is_allow_out_of_order_delivery()

    @property
    def sticky_ranges(self) -> list[tuple[int, int]]:
        return self._policy.get_sticky_ranges()

    def policy(self) -> KeySharedPolicy:
        return self._policy


def _check_ranges(given: object) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    if not isinstance(given, list):
        raise InvalidType(f"sticky_ranges is {shown(given)}: pass a list of pairs (first, last)")
    for pair in given:
        is_pair = (
            isinstance(pair, (tuple, list))
            and len(pair) == 2
            and all(type(each) is int for each in pair)
        )
        if not is_pair or not 0 <= pair[0] <= pair[1] < KEY_HASHES:
            raise InvalidArgument(
                f"sticky_ranges has {shown(pair)}: pass pairs (first, last) of 0 to "
                f"{KEY_HASHES - 1}, first not above last"
            )
        ranges.append((pair[0], pair[1]))
    for before, after in pairwise(sorted(ranges)):
        if after[0] <= before[1]:
            raise InvalidArgument(
                f"sticky_ranges has {list(before)} and {list(after)}, which overlap"
            )
    return ranges
