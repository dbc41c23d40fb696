"""The ledger of a subscription's acknowledgements is gone for good: its topic waits until an
operator gives it up, and delivers again.
"""

from __future__ import annotations

import pytest

from pulsarish.client.enums import ConsumerType
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.model.errors import (
    EntryUnknown,
    InvalidArgument,
    NotAllowedError,
    PulsarishError,
    SubscriptionNotFound,
)
from pulsarish.model.position import Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = TopicName.parse("t")
BOOKIES = ("bookie0", "bookie1", "bookie2")
# Whatever has a hole takes a ledger and keeps it.
OPTIONS = ManagedLedgerOptions(
    ensemble_size=3, write_quorum=3, ack_quorum=2, max_unacked_ranges_to_persist_in_metadata_store=0
)


async def acknowledged_with_holes(brokered: Brokered) -> int:
    """A topic with a subscription that has acknowledged every second message, unloaded; the id of
    its cursor ledger.
    """
    client = brokered.client()
    consumer = await client.subscribe(TOPIC.full, "s", consumer_type=ConsumerType.Shared)
    producer = await client.create_producer(TOPIC.full, batching_enabled=False)
    for number in range(10):
        await producer.send(b"%d" % number)
    for number in range(10):
        message = await consumer.receive()
        if number % 2:
            await consumer.acknowledge(message)
            # each is an entry of its own
            await brokered.world.clock.sleep(OPTIONS.cursor_flush_interval_ms / 500)
    store = brokered.subscription(TOPIC.full, "s").cursor._store
    assert store is not None
    await client.close()
    await on_broker(brokered, "unload")
    ledger_id = store.cell.record.cursor_ledger
    assert ledger_id >= 0
    return ledger_id


async def on_broker(brokered: Brokered, work: str, *arguments: object) -> object:
    async def run(_world: World) -> object:
        topics = brokered.cluster.brokers["broker0"]._topics
        return await getattr(topics if work == "unload" else topics.lost, work)(TOPIC, *arguments)

    return await brokered.node("broker0").run(run)


async def lose(brokered: Brokered, bookie: str, ledger_id: int) -> None:
    async def run(_world: World) -> None:
        store = brokered.cluster.bookies[bookie].store
        await store.checkpoint()
        await store.index.rows.write([], await store.index.entry_keys(ledger_id, 1000), sync=True)

    await brokered.node(bookie).run(run)


def instance(brokered: Brokered, bookie: str) -> str:
    return brokered.cluster.bookies[bookie].store.instance_id


def test_a_lost_cursor_ledger_is_given_up_by_command_only_and_its_messages_come_again() -> None:
    async def scenario(brokered: Brokered) -> None:
        ledger_id = await acknowledged_with_holes(brokered)
        with pytest.raises(NotAllowedError, match=f"ledger {ledger_id} .* can be read"):
            await on_broker(brokered, "recover_subscription", "s", [instance(brokered, "bookie2")])
        await lose(brokered, "bookie0", ledger_id)
        await lose(brokered, "bookie1", ledger_id)
        brokered.node("bookie2").crash()
        gone = instance(brokered, "bookie2")
        client = brokered.client(operation_timeout_seconds=3)
        with pytest.raises(PulsarishError):
            await client.subscribe(TOPIC.full, "s", consumer_type=ConsumerType.Shared)
        with pytest.raises(EntryUnknown, match=gone):
            await on_broker(brokered, "recover_subscription", "s", [])
        with pytest.raises(InvalidArgument, match="does not lie on stranger"):
            await on_broker(brokered, "recover_subscription", "s", ["stranger"])
        with pytest.raises(SubscriptionNotFound):
            await on_broker(brokered, "recover_subscription", "other", [gone])
        mark = await on_broker(brokered, "recover_subscription", "s", [gone])
        assert isinstance(mark, Position)
        consumer = await client.subscribe(TOPIC.full, "s", consumer_type=ConsumerType.Shared)
        assert [(await consumer.receive()).data() for _ in range(10)] == [
            b"%d" % number for number in range(10)
        ]
        with pytest.raises(NotAllowedError, match="has no ledger of its own"):
            await on_broker(brokered, "recover_subscription", "s", [gone])

    play_with_brokers(scenario, managed_ledger=OPTIONS)


def test_what_the_newest_entry_builds_on_can_be_what_is_lost() -> None:
    async def scenario(brokered: Brokered) -> None:
        ledger_id = await acknowledged_with_holes(brokered)
        first_only = await first_entry_only(brokered, ledger_id)
        assert first_only > 0
        brokered.node("bookie2").crash()
        mark = await on_broker(
            brokered, "recover_subscription", "s", [instance(brokered, "bookie2")]
        )
        assert isinstance(mark, Position)

    play_with_brokers(scenario, managed_ledger=OPTIONS)


async def first_entry_only(brokered: Brokered, ledger_id: int) -> int:
    """Lose the first entry of a ledger everywhere but on bookie2; the number of the last one."""
    count = 0
    for bookie in BOOKIES[:2]:

        async def run(_world: World, bookie: str = bookie) -> int:
            store = brokered.cluster.bookies[bookie].store
            await store.checkpoint()
            keys = await store.index.entry_keys(ledger_id, 1000)
            await store.index.rows.write([], keys[:1], sync=True)
            return len(keys) - 1

        count = await brokered.node(bookie).run(run)
    return count
