"""Recoveries that share crowded streams with others, and those whose bookies fail while they write back: each one ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from pulsarish.model.errors import PulsarishError
from pulsarish.sim.world import Simulation
from tests.simulation.test_ledger_scripts import Client, Cluster, play

ENTRY = b"." * 1_000
COUNT = 150
SMALL_QUEUES = {"bookie_queue_bytes": 12_000, "message_bytes_target": 1_200}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


async def left_ledger(client: Client) -> int:
    """A ledger whose entries all carry the LAC of its start, so that a recovery has to write all of them back."""
    writer, _ = await client.create()
    await client.append(writer, [ENTRY] * COUNT)
    assert writer.last_add_confirmed == COUNT - 1
    writer.abandon()
    return writer.ledger_id


def test_recoveries_that_share_small_queues_leave_each_other_room() -> None:
    """However much one recovery has found, it sends at once what leaves room for others: a bookie whose queue is full counts as failed."""

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        writer = await cluster.client("writer", window_entries=1_000)
        ledgers = [await left_ledger(writer) for _ in range(6)]
        client = await cluster.client(**SMALL_QUEUES)
        readers = await asyncio.gather(*(client.do(client.ledgers.open(ledger_id)) for ledger_id in ledgers))
        assert [reader.last_add_confirmed for reader in readers] == [COUNT - 1] * len(ledgers)

    play(scenario)


@pytest.mark.parametrize("fault", ["crash", "pause"])
@pytest.mark.parametrize("step", range(6))
def test_recoveries_end_when_bookies_fail_while_their_queues_are_full(fault: str, step: int) -> None:
    """One recovery waits for room that another one's entries take: it must notice when the queue is gone together with its bookie."""

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        writer = await cluster.client("writer", window_entries=1_000)
        ledgers = [await left_ledger(writer) for _ in range(3)]
        client = await cluster.client(**SMALL_QUEUES)
        loop = asyncio.get_running_loop()
        running = [loop.create_task(client.do(client.ledgers.open(ledger_id))) for ledger_id in ledgers]
        await asyncio.sleep(0.02 + step * 0.04)
        for bookie in cluster.bookies[:2]:
            getattr(bookie, fault)()
        _, pending = await asyncio.wait(running, timeout=30.0)
        assert not pending, "a recovery never ends"
        for task in running:
            assert task.exception() is None or isinstance(task.exception(), PulsarishError)
        for bookie in cluster.bookies[:2]:
            bookie.start() if fault == "crash" else bookie.resume()
        await asyncio.sleep(5.0)
        for ledger_id in ledgers:
            reader = await client.do(client.ledgers.open(ledger_id))
            assert reader.last_add_confirmed == COUNT - 1, "the same process can open it once the bookies are back"

    play(scenario)
