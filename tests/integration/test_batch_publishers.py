"""Batches that the program makes, under a name that the newest of several holders has: over whole brokers and bookies in virtual time."""

from __future__ import annotations

import pytest

from pulsarish.client.encoding import encode_batch
from pulsarish.client.message_id import MessageId
from pulsarish.client.options import ProducerOptions
from pulsarish.client.publishing import Publishing
from pulsarish.model.errors import ProducerFenced
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/t"


def send(publishing: Publishing, first: int, last: int) -> None:
    child = publishing.children[0]
    payloads = [b"%d" % number for number in range(first, last + 1)]
    batch = encode_batch(payloads, range(first, last + 1), {})
    if child.core.add_batch(batch, len(payloads), first, last, None):
        child.notice.give()


async def open_with(brokered: Brokered, epoch: int) -> Publishing:
    return await brokered.client().open_publishing(ProducerOptions(TOPIC, producer_name="w"), first_epoch=epoch)


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
        # What it repeats is dropped, what goes on is stored.
        send(new, 0, 9)
        send(new, 10, 19)
        await new.flush()
        # The owner closes the topic: it opens again with its next epoch.
        await brokered.administer("PUT", "persistent/public/default/t/unload")
        send(new, 20, 29)
        await new.flush()
        reader = await brokered.client().create_reader(TOPIC, MessageId.earliest)
        assert [(await reader.read_next()).data() for _ in range(30)] == [b"%d" % number for number in range(30)]
        assert not await reader.has_message_available()

    play_with_brokers(scenario, broker_deduplication_enabled=True)
