"""Exhibits about key-shared subscriptions: the order of a key when its consumer changes."""

from __future__ import annotations

from typing import Any, Final

from pulsarish.broker.dispatchers.key_shared import KeySharedDispatcher
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.model.errors import Timeout
from pulsarish.sim.mutants.catalogue import MUTANTS
from pulsarish.sim.workloads.safeguard import replacing
from tests.museum.exhibit import Defect, Exhibit, Kind
from tests.support.brokered import Brokered, play_with_brokers

__all__ = ["EXHIBITS"]

TOPIC: Final = "persistent://public/default/t"
KEYS: Final = 30
LATER_MS: Final = 600_000


async def _take(consumer: AsyncConsumer) -> list[str]:
    """The keys of what comes, until nothing more does."""
    taken: list[str] = []
    while True:
        try:
            message = await consumer.receive(timeout_millis=300)
        except Timeout:
            return taken
        taken.append(message.partition_key())


async def _moved(brokered: Brokered, how: str) -> None:
    """A consumer is at work on one message of each key when others come; what it holds may be
    skipped or expire then.
    """
    client = brokered.client()
    producer = await client.create_producer(TOPIC)
    options: dict[str, Any] = {
        "consumer_type": ConsumerType.KeyShared,
        "initial_position": InitialPosition.Earliest,
    }
    first = await client.subscribe(TOPIC, "s", consumer_name="first", **options)
    for number in range(KEYS):
        await producer.send(b"1", partition_key=f"key {number}")
    held = [await first.receive() for _ in range(KEYS)]
    await client.subscribe(TOPIC, "s", consumer_name="second", **options)
    third = await client.subscribe(TOPIC, "s", consumer_name="third", **options)
    node, subscription = brokered.node("broker0"), brokered.subscription(TOPIC, "s")
    if how == "skip":
        await node.run(lambda world: subscription.skip(KEYS))
    elif how == "expire":
        await node.run(lambda world: subscription.expire(world.clock.wall_ms() + LATER_MS))
    assert subscription.backlog == (KEYS if how == "acknowledge" else 0)
    for number in range(KEYS):
        await producer.send(b"2", partition_key=f"key {number}")
    early = await _take(third)
    assert not early, (
        f"the consumer at work on {early[0]} is not done, and another has the next message of "
        "that key"
    )
    for message in held:
        await first.acknowledge(message)
    assert await _take(third), "the keys stay barred although their consumer is done with them"


def _check_skipped(seed: int) -> None:
    for how in ("skip", "expire"):
        play_with_brokers(
            lambda brokered, how=how: _moved(brokered, how),
            seeds=1,
            max_virtual_seconds=120,  # type: ignore[misc]
        )


def _check_draining(seed: int) -> None:
    play_with_brokers(
        lambda brokered: _moved(brokered, "acknowledge"), seeds=1, max_virtual_seconds=120
    )


def _forgotten(_was: Any) -> object:
    def skip(_dispatcher: KeySharedDispatcher, _position: object) -> None:
        return

    return skip


EXHIBITS: Final = (
    Exhibit(
        name="order_broken_by_skip_or_expiry",
        upstream=("apache/pulsar#25627",),
        wrong=(
            "When skipping or expiry moves the mark, entries that a consumer holds are "
            "forgotten; its keys go to another at once."
        ),
        here=(
            "Skips and expires what one consumer is at work on: another must not get the next "
            "message of those keys before it is done."
        ),
        kind=Kind.SCENARIO,
        check=_check_skipped,
        defects=(
            Defect(
                "skipped_is_done",
                "what is skipped in a consumer's hands bars its key",
                replacing(KeySharedDispatcher, "_skip", _forgotten),
            ),
        ),
    ),
    Exhibit(
        name="key_at_two_consumers",
        upstream=("apache/pulsar#23309", "apache/pulsar#23352"),
        wrong=(
            "Before draining hashes a key that moved to a new consumer could be with two at "
            "once, and come out of order."
        ),
        here=(
            "Consumers join while the first one is at work on every key: they must not get "
            "the next messages before it is done."
        ),
        kind=Kind.SCENARIO,
        check=_check_draining,
        defects=(
            Defect(
                "draining_ignored",
                "a key drains before it moves",
                MUTANTS["draining_ignored"].patch,
            ),
        ),
    ),
)
