"""What the producers and consumers of one client share, and the loop that retries their
requests.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from pulsarish.client.connection.consume_stream import ConsumeStream
from pulsarish.client.connection.lookup import Lookup
from pulsarish.client.connection.loop_bridge import LoopBridge
from pulsarish.client.connection.opening_turns import OpeningTurns
from pulsarish.client.connection.publish_stream import PublishStream
from pulsarish.client.connection.stream_pool import StreamPool
from pulsarish.client.connection.timers import Timers
from pulsarish.model.errors import (
    AuthenticationError,
    ConnectError,
    ConsumerAssignError,
    ConsumerBusy,
    ProducerBusy,
    PulsarishError,
    Timeout,
)
from pulsarish.runtime.backoff import Backoff
from pulsarish.runtime.seams import Clock, Tasks

__all__ = ["ClientContext", "may_retry", "retrying"]

T = TypeVar("T")


@dataclass(slots=True)
class ClientContext:
    clock: Clock
    random: random.Random
    tasks: Tasks
    alarms: Timers
    turns: OpeningTurns
    handoff: LoopBridge
    lookup: Lookup
    publish: StreamPool[PublishStream]
    consume: StreamPool[ConsumeStream]
    operation_timeout_seconds: float
    callback_failed: Callable[[BaseException], None]
    """Called with what a callback or listener of the program raised."""
    cluster: str = ""
    """The service URL of the cluster in use, of a client that may go to another one."""


def may_retry(error: PulsarishError, *, first: bool) -> bool:
    """Return whether opening again may help.

    After the first opening, "busy" means that the broker has not noticed our lost connection, and
    refused credentials that they have expired: the program renews them.
    """
    return error.retryable or (
        not first
        and isinstance(
            error, (ProducerBusy, ConsumerBusy, ConsumerAssignError, AuthenticationError)
        )
    )


async def retrying(parts: ClientContext, what: str, work: Callable[[], Awaitable[T]]) -> T:
    """Run ``work`` until it does not raise a retryable error, within the operation timeout.

    Raises ``Timeout`` with the last reason, or ``ConnectError`` when no broker could be reached at
    all.
    """
    deadline = parts.clock.monotonic() + parts.operation_timeout_seconds
    backoff = Backoff(0.1, 1.0, jitter=parts.random)
    last: PulsarishError | None = None
    while True:
        left_seconds = deadline - parts.clock.monotonic()
        try:
            # The first try has limits of its own, and says which one was reached.
            async with parts.clock.timeout(None if last is None else left_seconds):
                return await work()
        except PulsarishError as error:
            if not error.retryable:
                raise
            last = error
        except TimeoutError:
            if last is None:
                raise
        pause_seconds = backoff.next_seconds()
        if parts.clock.monotonic() + pause_seconds >= deadline:
            # No broker was reachable all the time: the address is wrong, or nothing runs there.
            kind = ConnectError if isinstance(last, ConnectError) else Timeout
            raise kind(
                f"{what} was not possible in {parts.operation_timeout_seconds} s: {last}"
            ) from None
        await parts.clock.sleep(pause_seconds)
