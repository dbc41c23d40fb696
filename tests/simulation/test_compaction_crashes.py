"""The owner of a topic dies between any two steps of a compaction, or deletes other ledgers
meanwhile: no key is lost, none has an older value than before, what the record says is readable,
and after the next owner has tidied up no ledger is left that nothing refers to.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from pulsarish.broker.compaction.compaction import CompactionGate, CompactionState, TopicCompaction
from pulsarish.broker.compaction.keys import Audience
from pulsarish.broker.config import BrokerConfig
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.managed_ledger.options import Retention
from pulsarish.managed_ledger.topics_store import delete_topic
from pulsarish.managed_ledger.views import Views
from pulsarish.model.errors import MetadataUnavailable, TopicFenced
from pulsarish.model.ledger_metadata import PurposeKind
from pulsarish.model.position import EARLIEST
from pulsarish.runtime.seams import World
from pulsarish.sim.world.nodes import NodeDied
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import encode_entry, split_entry
from tests.support.logs import NAME, Shelf, simulate
from tests.support.memory_ledgers import MemoryLedgerClient

ROUNDS_MAX = 2_000
ROUND_SECONDS = 0.00001
CONFIG = BrokerConfig(
    broker_id="b", metadata_url="memory:", topic_compaction_read_rate_bytes=1 << 40
)


def message(key: str, value: bytes) -> bytes:
    return encode_entry(
        MessageMetadata(producer_name="p", sequence_id=1, publish_time=10**15, partition_key=key),
        value,
    )


FIRST = [message(f"k{number % 4}", b"first %d" % number) for number in range(10)]
SECOND = [
    message("k1", b""),
    message("k2", b"second"),
    message("new", b"second"),
    message("k0", b"second"),
]
EXPECTED = {"k0": b"second", "k2": b"second", "k3": b"first 7", "new": b"second"}


async def compacted(world: World, log: ManagedLedger) -> TopicCompaction:
    compaction = TopicCompaction(
        NAME.full, log, lambda: log._appender._options, world, CONFIG, CompactionGate(world, CONFIG)
    )
    compaction.start()
    await compaction.settled()
    return compaction


async def table(log: ManagedLedger) -> dict[str, bytes]:
    """What a compacted read from the beginning ends with."""
    found: dict[str, bytes] = {}
    reader = await log.views.reader()
    entries: list[bytes | memoryview] = []
    if reader is not None:
        entries += [
            each.payload
            for each in await reader.read(
                EARLIEST, Audience.FRESH, max_entries=100, max_bytes=1 << 20
            )
        ]
    start = EARLIEST if log.views.horizon is None else log.next_position(log.views.horizon)
    while more := await log.read(start, max_entries=100, max_bytes=1 << 20):
        entries += [each.payload for each in more]
        start = log.next_position(more[-1].position)
    for entry in entries:
        metadata, payload = split_entry(entry)
        found[metadata.partition_key] = bytes(payload)
    return {key: value for key, value in found.items() if value}


def orphans(shelf: Shelf, named: set[int]) -> list[tuple[int, PurposeKind]]:
    return [
        (ledger_id, ledger.purpose.kind)
        for ledger_id, ledger in shelf.ledgers.ledgers.items()
        if ledger_id not in named
    ]


async def verify(shelf: Shelf) -> None:
    """What the next owner finds, and that it can go on from there."""
    try:
        log, _ = await shelf.open("b2")
    except TopicFenced:  # the last commit of the dead arrived meanwhile
        log, _ = await shelf.open("b2")
    await shelf.sleep(2, "b2")
    for again in (False, True):
        if again:
            compaction = await shelf.on("b2", lambda world: compacted(world, log))
            assert compaction.state is CompactionState.SUCCESS, compaction.last_error
        # No cursor needs anything: only what is not compacted is kept.
        await shelf.on("b2", lambda world: log.trimmer.trim(Retention()))
        assert await shelf.on("b2", lambda world: table(log)) == EXPECTED
        record = await shelf.record("b2")
        assert record.deleting == ()
        named = {ledger.ledger_id for ledger in record.ledgers}
        if record.compacted is not None:
            named.add(record.compacted.ledger_id)
        left = [kind for _, kind in orphans(shelf, named)]
        assert PurposeKind.COMPACTED not in left
        assert len(left) <= 1, "a topic's ledger may have been made and not named yet"

    async def delete(world: World) -> None:
        log.abandon(TopicFenced("deleted"))
        await delete_topic(shelf.records(world), MemoryLedgerClient(shelf.ledgers), NAME)  # type: ignore[arg-type]

    await shelf.on("b2", delete)
    assert PurposeKind.COMPACTED not in [kind for _, kind in orphans(shelf, set())]


async def scenario(shelf: Shelf, rounds: int) -> bool:
    """A second compaction, whose node dies after so many rounds of the loop; whether it had ended
    before.
    """
    log, _ = await shelf.open("b1")
    await shelf.append(log, FIRST)
    assert (
        await shelf.on("b1", lambda world: compacted(world, log))
    ).state is CompactionState.SUCCESS
    await shelf.append(log, SECOND[:2])
    await shelf.on("b1", lambda world: log.roll())
    await shelf.append(log, SECOND[2:])
    log.trimmer.retention = Retention()
    done: list[TopicCompaction] = []

    async def work(world: World) -> None:
        done.append(await compacted(world, log))
        await log.trimmer.trim()

    async def main() -> None:
        with contextlib.suppress(NodeDied):
            await shelf.on("b1", work)

    task = asyncio.get_running_loop().create_task(main())
    for _ in range(rounds):
        await asyncio.sleep(ROUND_SECONDS)
    ended = task.done()
    shelf.sim.nodes["b1"].crash()
    await task
    assert all(each.state is CompactionState.SUCCESS for each in done)
    await verify(shelf)
    return ended


@pytest.mark.parametrize("seed", [1, 2])
def test_a_crash_between_any_two_steps_of_a_compaction(seed: int) -> None:
    for rounds in range(0, ROUNDS_MAX, 8):
        if simulate(lambda shelf, rounds=rounds: scenario(shelf, rounds + 3 * seed), seed):  # type: ignore[misc]
            return
    raise AssertionError("the compaction never ended: its last steps were not tried")


def test_ledgers_are_deleted_while_a_view_comes_into_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletions begin while the view's ledger is one of those on their way out, as any in the
    making is, and end when it is in use.
    """
    delete, use = MemoryLedgerClient.delete, Views.use

    async def unavailable(_ledgers: MemoryLedgerClient, _ledger_id: int) -> None:
        raise MetadataUnavailable("not now")

    async def scenario(shelf: Shelf) -> None:
        log, _ = await shelf.open("b1")
        await shelf.append(log, FIRST)
        await shelf.on("b1", lambda world: log.roll())
        await shelf.append(log, SECOND)
        assert (
            await shelf.on("b1", lambda world: compacted(world, log))
        ).state is CompactionState.SUCCESS
        monkeypatch.setattr(MemoryLedgerClient, "delete", unavailable)
        assert await shelf.on("b1", lambda world: log.trimmer.trim(Retention())) == 1
        may_go_on = asyncio.Event()

        async def slow(ledgers: MemoryLedgerClient, ledger_id: int) -> None:
            await may_go_on.wait()
            await delete(ledgers, ledger_id)

        async def use_meanwhile(views: Views, *details: Any) -> None:
            monkeypatch.setattr(MemoryLedgerClient, "delete", slow)
            deleting = asyncio.get_running_loop().create_task(log._deletion.delete_listed())
            await asyncio.sleep(0.1)
            await use(views, *details)
            may_go_on.set()
            await deleting

        monkeypatch.setattr(Views, "use", use_meanwhile)
        await shelf.append(log, [message("k0", b"third")])
        assert (
            await shelf.on("b1", lambda world: compacted(world, log))
        ).state is CompactionState.SUCCESS
        assert await shelf.on("b1", lambda world: table(log)) == {**EXPECTED, "k0": b"third"}
        assert (await shelf.record("b1")).deleting == ()

    simulate(scenario)
