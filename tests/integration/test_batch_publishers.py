"""Batches that the program makes, under a name that the newest of several holders owns.

Whole brokers and bookies run in virtual time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pulsarish.client.api.batch_publisher import BatchPublisher
from pulsarish.client.enums import InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.entry_encoder import Extras, encode_batch
from pulsarish.client.messages.options import ProducerOptions
from pulsarish.client.messages.pending_entries import PendingEntry
from pulsarish.client.producer.partitioned_producer import PartitionedProducer
from pulsarish.model.errors import MessageTooBig, ProducerFenced, PulsarishError, Timeout
from pulsarish.spark.writing.batches import Filling
from pulsarish.wire.entry import EXPIRES_PROPERTY
from tests.integration.test_policies import broker_ms
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/t"


def send(publishing: PartitionedProducer, first: int, last: int) -> None:
    child = publishing.children[0]
    payloads = [b"%d" % number for number in range(first, last + 1)]
    batch = encode_batch(payloads, range(first, last + 1), {})
    if child.core.add_batch(batch, len(payloads), first, last, None):
        child.notice.give()


async def open_with(brokered: Brokered, epoch: int, **options: Any) -> PartitionedProducer:
    return await brokered.client()._open_publishing(
        ProducerOptions(TOPIC, producer_name="w", **options), first_epoch=epoch
    )


class Here:
    """The part of ``Background`` that a publisher needs when it runs in the loop itself."""

    def lock(self) -> Any:
        return threading.Lock()

    def add_user(self, _user: object) -> None:
        pass


def publisher_on(publishing: PartitionedProducer) -> BatchPublisher:
    here: Any = Here()
    return BatchPublisher(publishing, here)


def add(publisher: BatchPublisher, number: int, payload: bytes = b"x") -> None:
    publisher.add(encode_batch([payload], range(number, number + 1), {}), 1, number, number)


def test_the_newest_holder_of_a_name_ends_the_older_ones_and_knows_what_they_left() -> None:
    async def scenario(brokered: Brokered) -> None:
        old = await open_with(brokered, 1_000)
        assert old.children[0].deduplication
        send(old, 0, 9)
        await old.flush()
        new = await open_with(brokered, 2_000)
        assert new.last_sequence_id == 9
        await brokered.until(lambda: old.is_closed)
        with pytest.raises(ProducerFenced, match="a newer producer 'w'"):
            await old.flush()
        with pytest.raises(ProducerFenced, match="a newer producer 'w'"):
            await open_with(brokered, 1_500)
        # What it repeats is dropped, later batches are stored.
        send(new, 0, 9)
        send(new, 10, 19)
        await new.flush()
        # The owner closes the topic: the publisher opens again with its next epoch.
        await brokered.administer("PUT", "persistent/public/default/t/unload")
        send(new, 20, 29)
        await new.flush()
        reader = await brokered.client().create_reader(TOPIC, MessageId.earliest)
        assert [(await reader.read_next()).data() for _ in range(30)] == [
            b"%d" % number for number in range(30)
        ]
        assert not await reader.has_message_available()

    play_with_brokers(scenario, broker_deduplication_enabled=True)


def test_what_expires_in_a_batch_of_its_own_reaches_no_consumer_after_that() -> None:
    async def scenario(brokered: Brokered) -> None:
        client, clock = brokered.client(), brokered.world.clock
        consumer = await client.subscribe(TOPIC, "s")
        publisher = publisher_on(await open_with(brokered, 1_000))
        filling = Filling()
        for number in range(6):
            until_ms = broker_ms(brokered.cluster, "broker0") + (5_000 if number == 2 else 500_000)
            expires = Extras(properties={EXPIRES_PROPERTY: str(until_ms)})
            row = expires if number in (2, 3) else None
            if (made := filling.add(b"%d" % number, row, number)) is not None:
                publisher.add(*made)
        last = filling.take()
        assert last is not None
        await clock.sleep(10.0)
        publisher.add(*last)
        late = await client.subscribe(TOPIC, "late", initial_position=InitialPosition.Earliest)
        found = [(await late.receive()).data() for _ in range(5)]
        assert found == [b"0", b"1", b"3", b"4", b"5"]
        # This one had it in its queue before.
        assert (await consumer.receive()).data() == b"0"

    play_with_brokers(scenario)


def test_nothing_is_stored_behind_a_batch_that_is_too_great_for_the_broker() -> None:
    """A program that repeats the work would skip everything below the last number in the log."""

    async def scenario(brokered: Brokered) -> None:
        publishing = await open_with(brokered, 1_000)
        publisher = publisher_on(publishing)
        (child,) = publishing.children
        # The loop runs later, as when the program has a thread of its own.
        late: Any = SimpleNamespace(give=lambda: asyncio.get_running_loop().call_soon(child.look))
        child.notice = late
        add(publisher, 0)
        with pytest.raises(MessageTooBig):
            add(publisher, 1, b"x" * (child.core.max_message_bytes + 1))
            add(publisher, 2)
        with pytest.raises(MessageTooBig):
            add(publisher, 2)
        await publishing.flush()
        assert (await open_with(brokered, 2_000)).last_sequence_id == 0

    play_with_brokers(scenario, broker_deduplication_enabled=True)


def test_what_is_added_at_the_moment_of_a_time_out_fails_too() -> None:
    async def scenario(brokered: Brokered) -> None:
        publishing = await open_with(brokered, 1_000, send_timeout_millis=1_000)
        publisher = publisher_on(publishing)
        (child,) = publishing.children
        fail = child._fail

        def beside(entries: Sequence[PendingEntry], error: PulsarishError) -> None:
            child._fail = fail  # type: ignore[method-assign]
            add(publisher, 1)  # as the program's thread may, before it learns of the failure
            fail(entries, error)

        child._fail = beside  # type: ignore[method-assign]
        for name in brokered.cluster.brokers:
            brokered.node(name).crash()
        add(publisher, 0)
        await brokered.until(lambda: child._fail == fail)
        assert not child.core.has_entries
        with pytest.raises(Timeout):
            add(publisher, 2)

    play_with_brokers(scenario, broker_deduplication_enabled=True)


def test_nothing_is_stored_behind_a_batch_that_is_too_great_for_the_topic() -> None:
    async def scenario(brokered: Brokered) -> None:
        _ = await brokered.client().create_producer(TOPIC)
        await brokered.administer("POST", "persistent/public/default/t/maxMessageSize", 1_000)
        await brokered.until(lambda: brokered.topic(TOPIC).topic_limits.message_bytes_max == 1_000)
        publishing = await open_with(brokered, 1_000)
        publisher = publisher_on(publishing)
        add(publisher, 0)
        with pytest.raises(MessageTooBig):
            add(publisher, 1, b"x" * 20_000)
            add(publisher, 2)
        await publishing.flush()
        assert (await open_with(brokered, 2_000)).last_sequence_id == 0

    play_with_brokers(scenario, broker_deduplication_enabled=True)
