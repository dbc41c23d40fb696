"""What the policy ``unackedRedelivery`` promises, as a part of the lives of messages.

A consumer hangs with what it has. Another one gets each of these messages when the policy's time is
over, and not before. So it is with an entry that the broker has forgotten, as by a defect.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

from pulsarish.broker.dispatchers.multi_consumer import MultiConsumerDispatcher
from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.enums import ConsumerType
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import Timeout
from pulsarish.runtime.seams import World

__all__ = ["TOPIC", "check_unacked"]

TOPIC: Final = "persistent://public/default/hung"
_MESSAGES: Final = 40
_TICK_SECONDS: Final = 2.0
_RECEIVE_MS: Final = 50
_SLACK_SECONDS: Final = 0.5


class _Deliveries:
    """When each message was delivered last, and which of them a consumer has refused since."""

    def __init__(self, world: World, seconds: int) -> None:
        self._clock = world.clock
        self._seconds = seconds
        self._last: dict[bytes, float] = {}
        self.refused: set[bytes] = set()

    def publishes(self, data: bytes) -> None:
        self._last[data] = self._clock.monotonic()

    async def receive(self, consumer: AsyncConsumer) -> Message | None:
        """Return the next message. One that comes again must not come too early."""
        try:
            message = await consumer.receive(timeout_millis=_RECEIVE_MS)
        except Timeout:
            return None
        data, now = message.data(), self._clock.monotonic()
        had_seconds, self._last[data] = now - self._last[data], now
        if message.redelivery_count() and data not in self.refused:
            assert had_seconds >= self._seconds - _SLACK_SECONDS, (
                f"message {data!r} was taken from a consumer after {had_seconds:.1f} s of "
                f"{self._seconds}"
            )
        self.refused.discard(data)
        return message


async def check_unacked(
    world: World,
    client: AsyncClient,
    rng: random.Random,
    set_policy: Callable[[int], Awaitable[None]],
    subscription_of: Callable[[], Subscription],
) -> None:
    """Let a consumer hang and the broker forget an entry. Raises ``AssertionError`` for a message
    that comes too early or too late.

    Args:
        set_policy: sets the policy of ``TOPIC``, in seconds.
        subscription_of: returns the topic's subscription.
    """
    clock, seconds = world.clock, rng.randint(4, 6)
    began = clock.monotonic()
    seen = _Deliveries(world, seconds)
    hung = await client.subscribe(
        TOPIC,
        "s",
        consumer_type=ConsumerType.Shared,
        consumer_name="hung",
        receiver_queue_size=rng.randint(4, 6),
        negative_ack_redelivery_delay_ms=400 * seconds,
    )
    helper = await client.subscribe(
        TOPIC, "s", consumer_type=ConsumerType.Shared, receiver_queue_size=2 * _MESSAGES
    )
    await set_policy(seconds)
    producer = await client.create_producer(TOPIC, batching_enabled=False)
    subscription, has_forgotten, left = subscription_of(), False, rng.randint(4, 6)
    working: list[tuple[float, Message]] = []  # what the helper acknowledges, and when
    published, published_at = 0, began
    while published < _MESSAGES or subscription.backlog:
        now = clock.monotonic()
        if published < _MESSAGES:
            began = now
        if published < _MESSAGES or now - published_at > _TICK_SECONDS:
            # Also after the one that hangs has received its last message, so that it asks for no
            # more; and then now and then, because a client gives up a broker that is silent.
            seen.publishes(str(published).encode())
            await producer.send(str(published).encode())
            published, published_at = published + 1, now
        late_seconds = now - began - 2.5 * seconds - 3
        assert late_seconds < 0, f"{subscription.backlog} messages wait for a consumer that hangs"
        if left and (message := await seen.receive(hung)) is not None:
            left -= 1
            if rng.random() < 0.5:
                seen.refused.add(message.data())
                await hung.negative_acknowledge(message)
        if (message := await seen.receive(helper)) is not None:
            takes_long = message.redelivery_count() and rng.random() < 0.7
            due = clock.monotonic() + (0.8 * seconds if takes_long else 0)
            working.append((due, message))
        for due, message in [each for each in working if each[0] <= clock.monotonic()]:
            working.remove((due, message))
            await helper.acknowledge(message)
        if not has_forgotten and clock.monotonic() - began > 1:
            has_forgotten = _forget(subscription, rng)
    for each in (producer, hung, helper):
        await each.close()


def _forget(subscription: Subscription, rng: random.Random) -> bool:
    """Have the broker forget an entry that the consumer which hangs has, if it has one."""
    dispatcher = subscription.dispatcher
    assert isinstance(dispatcher, MultiConsumerDispatcher)
    consumer = next(each for each in dispatcher.consumers if each.name == "hung")
    if not consumer.pending:
        return False
    dispatcher._forget(consumer, rng.choice(sorted(consumer.pending)))
    return True
