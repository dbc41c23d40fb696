"""What workers of threads and of an event loop have in common: their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pulsarish.client.backoff import MultiplierRedeliveryBackoff
from pulsarish.client.checks import check_number, check_text, check_type
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.client.messages.consumer_policies import ConsumerDeadLetterPolicy
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import InvalidArgument

__all__ = ["EXTEND_SECONDS", "WorkerOptions", "worker_options"]

EXTEND_SECONDS: Final = 10.0
"""How often a worker says that it goes on working on a message."""
_CONCURRENCY_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """``consumer``: the arguments of ``subscribe``."""

    topic: object
    subscription_name: str
    concurrency: int
    attempts_max: int | None
    consumer: Mapping[str, Any]

    def outcome(self, message: Message) -> str:
        """Return what becomes of a message whose handler failed."""
        attempt = message.redelivery_count() + 1
        if self.attempts_max is None:
            return f"attempt {attempt}, again later"
        if attempt < self.attempts_max:
            return f"attempt {attempt} of {self.attempts_max}, again later"
        return f"attempt {attempt} of {self.attempts_max}, to the dead letters"


def worker_options(
    topic: object,
    subscription_name: str,
    concurrency: int,
    attempts_max: int | None,
    retry_delay: timedelta,
    dead_letter_topic: str | None,
    more: Mapping[str, Any],
) -> WorkerOptions:
    """Check the arguments of a worker.

    Raises ``InvalidArgument`` that names the argument.
    """
    check_text("subscription_name", subscription_name)
    check_number("concurrency", concurrency, 1)
    if concurrency > _CONCURRENCY_MAX:
        raise InvalidArgument(f"concurrency is at most {_CONCURRENCY_MAX}, not {concurrency}")
    check_type("retry_delay", retry_delay, timedelta, "a timedelta")
    if retry_delay < timedelta(milliseconds=1):
        raise InvalidArgument(f"retry_delay is at least a millisecond, not {retry_delay}")
    delay_ms = retry_delay // timedelta(milliseconds=1)
    options: dict[str, Any] = {
        "consumer_type": ConsumerType.Shared,
        # A new subscription of a queue has what waits in it.
        "initial_position": InitialPosition.Earliest,
        # Messages that wait in a worker are no work for others.
        "receiver_queue_size": concurrency,
        "negative_ack_redelivery_backoff": MultiplierRedeliveryBackoff(
            delay_ms, max(delay_ms, 60_000)
        ),
    }
    if attempts_max is None:
        if dead_letter_topic is not None:
            raise InvalidArgument(
                f"dead_letter_topic={dead_letter_topic!r} needs attempts_max: after how many "
                "failures a message goes there"
            )
    else:
        check_number("attempts_max", attempts_max, 2)
        options["dead_letter_policy"] = ConsumerDeadLetterPolicy(
            attempts_max - 1, dead_letter_topic
        )
    if twice := sorted(options.keys() & more.keys() & {"dead_letter_policy"}):
        raise InvalidArgument(f"{twice[0]}: give attempts_max and dead_letter_topic, or this alone")
    return WorkerOptions(topic, subscription_name, concurrency, attempts_max, {**options, **more})
