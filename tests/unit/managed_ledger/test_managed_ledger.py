"""A topic's log from outside: appending, reading, replacing ledgers, taking over."""

from __future__ import annotations

import pytest

from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.model.errors import NoSuchLedger, NotEnoughBookies, TopicFenced, TopicTerminated
from pulsarish.model.position import EARLIEST, LATEST, Position
from pulsarish.runtime.seams import World
from tests.support.logs import Heard, Shelf, simulate


def names(first: int, last: int) -> list[bytes]:
    return [f"m{number}".encode() for number in range(first, last)]


async def append(shelf: Shelf, log: ManagedLedger, payloads: list[bytes], node: str = "b1") -> None:
    """Append and wait until nothing is pending."""

    async def work(world: World) -> None:
        for payload in payloads:
            log.append(payload, payload)
        while log.pending_entries:
            await world.clock.sleep(0.001)

    await shelf.on(node, work)


def test_entries_are_confirmed_in_order_and_read_back() -> None:
    async def scenario(shelf: Shelf) -> None:
        log, heard = await shelf.open()
        await append(shelf, log, names(0, 20))
        assert heard.confirmed == names(0, 20)
        assert await shelf.read_all(log) == names(0, 20)
        assert log.entries == 20
        assert log.last_confirmed == heard.appended_at[-1][0]

    simulate(scenario)


def test_reopening_after_close_keeps_all_and_recovers_nothing() -> None:
    async def scenario(shelf: Shelf) -> None:
        log, _ = await shelf.open()
        await append(shelf, log, names(0, 3))
        await shelf.on("b1", lambda world: log.close())
        shelf.ledgers.recovered.clear()
        with pytest.raises(TopicFenced):
            log.append(b"late", None)
        again, _ = await shelf.open("b2")
        assert shelf.ledgers.recovered == []
        assert await shelf.read_all(again, "b2") == names(0, 3)

    simulate(scenario)
