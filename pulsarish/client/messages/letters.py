"""What copies of messages carry in retry letter topics and dead letter topics.

The names of the properties are those of Apache Pulsar's Java client, so that consumers of both
kinds can share a subscription. The first copy names the message that it was made of, and later
copies keep that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pulsarish.client.messages.entry_encoder import Extras
from pulsarish.client.messages.message import Message, copy_extras
from pulsarish.model.topic_name import TopicName

__all__ = [
    "RECONSUMES_MAX",
    "RECONSUME_TIMES",
    "REDRIVE_TIMES",
    "dead_letter",
    "letter_topic_name",
    "redriven",
    "retry_letter",
    "times",
]

RECONSUMES_MAX: Final = 16
"""How often a message is reconsumed without a dead letter policy, as in the Java client."""

RECONSUME_TIMES: Final = "RECONSUMETIMES"
REDRIVE_TIMES: Final = "REDRIVE_TIMES"
"""Of this client: how often a message was moved back from its dead letter topic."""
_DELAY_TIME: Final = "DELAY_TIME"
_REAL_TOPIC: Final = "REAL_TOPIC"
_REAL_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"
_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
_TIMES_DIGITS_MAX: Final = 9


def letter_topic_name(topic: TopicName, subscription: str, suffix: str) -> str:
    """Return the full name of a subscription's topic with the suffix "RETRY" or "DLQ"."""
    return f"{topic.partitioned.full}-{subscription}-{suffix}"


def times(properties: Mapping[str, str], name: str) -> int:
    """Return a property that counts.

    0 when it is missing, or when a program stored there what is no number: its message must reach
    the dead letter topic all the same.
    """
    text = properties.get(name, "")
    return int(text[:_TIMES_DIGITS_MAX]) if text.isascii() and text.isdecimal() else 0


def dead_letter(message: Message, subscription: str) -> Extras:
    """Return what the copy in the dead letter topic carries."""
    return copy_extras(message, {**_origin(message, subscription), **message.properties()})


def retry_letter(
    message: Message,
    subscription: str,
    *,
    delay_ms: int,
    now_ms: int,
    properties: Mapping[str, str],
) -> tuple[int, Extras]:
    """Return how often the message was reconsumed with this time, and what its copy carries.

    Args:
        now_ms: since the epoch.
        properties: those that the program adds.
    """
    count = times(message.properties(), RECONSUME_TIMES) + 1
    carried = {
        **_origin(message, subscription),
        **message.properties(),
        **properties,
        RECONSUME_TIMES: str(count),
        _DELAY_TIME: str(delay_ms),
    }
    return count, copy_extras(message, carried, deliver_at_ms=now_ms + delay_ms if delay_ms else 0)


def redriven(message: Message, *, for_all: bool) -> Extras:
    """Return what a dead letter carries when it is moved back: its reconsumptions count from 0.

    Args:
        for_all: it goes to the topic, where other subscriptions get it, too; what names the one
            that it was refused by is removed.
    """
    before = message.properties()
    dropped = {RECONSUME_TIMES, _DELAY_TIME}
    if for_all:
        dropped |= {_REAL_TOPIC, _REAL_SUBSCRIPTION, _ORIGIN_MESSAGE_ID}
    kept = {name: value for name, value in before.items() if name not in dropped}
    return copy_extras(message, {**kept, REDRIVE_TIMES: str(times(before, REDRIVE_TIMES) + 1)})


def _origin(message: Message, subscription: str) -> dict[str, str]:
    return {
        _REAL_TOPIC: TopicName.parse(message.topic_name()).partitioned.full,
        _REAL_SUBSCRIPTION: subscription,
        _ORIGIN_MESSAGE_ID: str(message.message_id()),
    }
