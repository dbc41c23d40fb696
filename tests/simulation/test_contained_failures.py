"""What one client, one topic or one ledger meets ends that and nothing else: the node serves on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pulsarish.broker.broker import Broker
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.model.errors import MetadataUnavailable, PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.metadata import METADATA
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.brokers import ConsumeClient, PublishClient, entry, find

TOPIC = "persistent://public/default/t"


async def _one_message(brokered: Brokered) -> tuple[str, tuple[int, int]]:
    """Publish one; the owner's address, and the position."""
    address = await find(brokered.world, list(brokered.cluster.brokers), TOPIC)
    publisher = await PublishClient.connect(brokered.world, address)
    await publisher.open(1, TOPIC)
    await publisher.send([(1, entry("p", 0))])
    (position,) = await publisher.wait(1, 1)
    assert isinstance(position, tuple)
    return address, position


def test_an_acknowledgement_beyond_the_end_without_metadata_is_refused_and_the_broker_serves_on() -> None:
    async def scenario(brokered: Brokered) -> None:
        address, (ledger, last) = await _one_message(brokered)
        consumer = await ConsumeClient.connect(brokered.world, address)
        await consumer.subscribe(1, TOPIC)
        (got,) = await consumer.take(1)
        (name,) = brokered.cluster.brokers
        life = brokered.node(name).incarnation
        brokered.sim.network.partition([name], [METADATA])
        brokered.sim.metadata.break_connection(brokered.node(name).session_id)
        with pytest.raises(PulsarishError) as refused:
            await consumer.ack(1, [(ledger, last + 5)])
        assert refused.value.retryable
        assert brokered.node(name).alive
        assert brokered.node(name).incarnation == life
        brokered.sim.network.heal_all()
        await consumer.ack(1, [(got.ledger, got.entry)])

    play_with_brokers(scenario)


async def _create_partitioned(broker: Broker) -> None:
    await broker._namespaces.create_partitioned(TopicName("public", "default", "parts"), 2)


async def _set_policy(broker: Broker) -> None:
    await broker._namespaces.store.clear_topic(TopicName("public", "default", "t"))


async def _list_lacking(broker: Broker) -> None:
    _ = await LedgerStore(broker._records, broker._world.clock).lacking([0])


@pytest.mark.parametrize("change", [_create_partitioned, _set_policy, _list_lacking])
def test_what_needs_metadata_raises_that_they_are_unavailable(change: Callable[[Broker], Awaitable[None]]) -> None:
    async def scenario(brokered: Brokered) -> None:
        _ = await _one_message(brokered)
        ((name, broker),) = brokered.cluster.brokers.items()
        brokered.sim.network.partition([name], [METADATA])
        brokered.sim.metadata.break_connection(brokered.node(name).session_id)

        async def attempt(_world: World) -> None:
            with pytest.raises(MetadataUnavailable):
                await change(broker)

        await brokered.node(name).run(attempt)
        brokered.sim.network.heal_all()

    play_with_brokers(scenario)
