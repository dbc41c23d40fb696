"""A subscription that goes through a backlog in order does not wait for bookies again and again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

import pulsarish
from tests.support.brokered import Brokered, play_with_brokers

MESSAGES = 1_000
BOOKIES_ANSWER_AFTER_SECONDS = 0.002


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def reads_waited_for(read_ahead_bytes: int) -> int:
    """Return how many reads of a backlog, which comes whole and in order, waited for a bookie."""
    waited = 0

    async def scenario(brokered: Brokered) -> None:
        nonlocal waited
        client = brokered.client()
        producer = await client.create_producer("t", batching_enabled=False)
        for first in range(0, MESSAGES, 100):
            _ = await asyncio.gather(
                *(producer.send(b"%0100d" % number) for number in range(first, first + 100))
            )
        for name in brokered.cluster.bookies:
            brokered.sim.network.slow(name, BOOKIES_ANSWER_AFTER_SECONDS / 2)
        reader: Any = brokered.topic("t").log._reader
        read_ledger = reader._read_ledger

        async def counted(*arguments: Any) -> Any:
            nonlocal waited
            began = brokered.world.clock.monotonic()
            found = await read_ledger(*arguments)
            waited += brokered.world.clock.monotonic() > began
            return found

        reader._read_ledger = counted
        reading = await client.create_reader("t", pulsarish.MessageId.earliest)
        found = [await reading.read_next() for _ in range(MESSAGES)]
        assert sorted(int(message.data()) for message in found) == list(range(MESSAGES))
        entries = [message.message_id().entry_id() for message in found]
        assert entries == list(range(MESSAGES))

    play_with_brokers(
        scenario,
        seeds=1,
        managed_ledger_cache_size_bytes=0,
        managed_ledger_read_ahead_size_bytes=read_ahead_bytes,
    )
    return waited


def test_a_backlog_is_read_ahead_of_its_reader() -> None:
    without = reads_waited_for(0)
    assert without == MESSAGES / 100
    assert reads_waited_for(1 << 20) <= without * 2 / 3
