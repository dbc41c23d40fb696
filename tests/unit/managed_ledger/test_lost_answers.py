"""A write was made, its answer was lost, and somebody else came before it was asked for again:
nothing that is named by then is deleted, nothing is named that was deleted by then, and what is
answered as durable is found by the next owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import msgspec
import pytest

from pulsarish.managed_ledger.cursors.cursor import Cursor
from pulsarish.managed_ledger.entry_caches import EntryCaches
from pulsarish.managed_ledger.lost_entries import record_lost
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.managed_ledger.topics_store import create_topic, delete_topic
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import LostRange, TopicRecord
from pulsarish.model.errors import MetadataUnavailable, NotOwner, ServiceNotReady, TopicFenced
from pulsarish.model.position import EARLIEST, Position
from pulsarish.runtime.seams import MetadataStore, Op, OutcomeUnknown, World
from tests.support.logs import NAME, Heard, Shelf, names, simulate
from tests.support.memory_ledgers import MemoryLedgerClient, MemoryLedgers


class Forgetful:
    """A store that loses the answer to the next change of one node: after ``meanwhile``, when that
    is given; then it answers nothing while ``away``.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.forgets = ""  # the path
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self.stays_away = False
        self.away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def sync(self, path: str) -> None:
        if self.away:
            raise OutcomeUnknown("away")
        await self._store.sync(path)

    async def commit(self, ops: Sequence[Op]) -> list[str | int]:
        if self.away:
            raise OutcomeUnknown("away")
        answer = await self._store.commit(ops)
        if ops[0].path == self.forgets:
            self.forgets = ""
            self.away = self.stays_away
            if self.meanwhile is not None:
                await self.meanwhile()
            raise OutcomeUnknown("lost")
        return answer


async def open_with(
    shelf: Shelf,
    node: str,
    heard: Heard,
    prepare: Callable[[Any], None],
    client: MemoryLedgerClient | None = None,
    store_of: Callable[[MetadataStore], object] = Forgetful,
) -> ManagedLedger:
    async def work(world: World) -> ManagedLedger:
        store = store_of(world.metadata)
        prepare(store)
        records = Records(cast("MetadataStore", store), world.clock, world.random)
        ledgers = client or MemoryLedgerClient(shelf.ledgers)
        return await ManagedLedger.open(
            NAME,
            ledgers,  # type: ignore[arg-type]
            records,
            world,
            shelf.options,
            heard,
            caches=EntryCaches(1 << 20, 1 << 20),
            retention=shelf.retention,
        )

    return await shelf.on(node, work)


def test_a_ledger_that_the_next_owner_has_deleted_is_not_named_again() -> None:
    async def scenario(shelf: Shelf) -> None:
        first, _ = await shelf.open("b1")
        await shelf.append(first, names(0, 3))
        await shelf.on("b1", lambda world: first.close())

        async def another_comes_and_goes() -> None:
            log, _ = await shelf.open("b3")
            await shelf.on("b3", lambda world: log.close())

        def prepare(store: Forgetful) -> None:
            store.forgets = paths.topic(NAME)
            store.meanwhile = another_comes_and_goes

        with pytest.raises(TopicFenced):
            await open_with(shelf, "b2", Heard(), prepare)
        log, heard = await shelf.open("b4")
        assert {link.ledger_id for link in log.ledgers} <= set(shelf.ledgers.ledgers)
        await shelf.append(log, names(3, 5), "b4")
        assert heard.confirmed == names(3, 5)

    simulate(scenario)


def test_a_cursor_ledger_that_the_next_owner_goes_on_naming_is_not_deleted() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(max_unacked_ranges_to_persist_in_metadata_store=0)
        stores: list[Forgetful] = []
        heard = Heard()
        log = await open_with(shelf, "b1", heard, stores.append)
        cursor = await shelf.on("b1", lambda world: log.open_cursor("s", initial=EARLIEST))
        await shelf.append(log, names(0, 4))
        positions = [position for position, _ in heard.appended_at]

        async def another_comes() -> None:
            taken, _ = await shelf.open("b2")
            await note(shelf, "b2", await shelf.on("b2", lambda world: taken.open_cursor("s")))

        stores[0].forgets = paths.cursor(NAME, "s")
        stores[0].meanwhile = another_comes
        cursor.acknowledge([positions[1], positions[3]])
        with pytest.raises(TopicFenced):
            await shelf.on("b1", lambda world: cursor.flush())
        assert await acknowledged(shelf, "b3", positions) == [False, True, False, True]

    simulate(scenario)


async def note(shelf: Shelf, node: str, cursor: Cursor) -> None:
    await shelf.on(node, lambda world: cursor.set_subscription_properties({"a": "b"}))


async def acknowledged(shelf: Shelf, node: str, positions: Sequence[Position]) -> list[bool]:
    log, _ = await shelf.open(node)
    cursor = await shelf.on(node, lambda world: log.open_cursor("s"))
    return [cursor.is_acknowledged(position) for position in positions]


def test_a_cursor_that_may_have_left_its_ledger_does_not_go_on_writing_there() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.set(cursor_node_writes_max=0, cursor_idle_seconds=1)
        stores: list[Forgetful] = []
        heard = Heard()
        log = await open_with(shelf, "b1", heard, stores.append)
        cursor = await shelf.on("b1", lambda world: log.open_cursor("s", initial=EARLIEST))
        await shelf.append(log, names(0, 4))
        positions = [position for position, _ in heard.appended_at]
        cursor.acknowledge([positions[1]])
        await shelf.on("b1", lambda world: cursor.flush())
        # Idle, it gives its ledger up for the node, and whether it has done so is not answered.
        stores[0].forgets = paths.cursor(NAME, "s")
        stores[0].stays_away = True
        await shelf.sleep(60)
        assert stores[0].away
        stores[0].away = False
        cursor.acknowledge([positions[3]])
        await shelf.on("b1", lambda world: cursor.flush())
        shelf.sim.nodes["b1"].crash()
        assert await acknowledged(shelf, "b2", positions) == [False, True, False, True]

    simulate(scenario)


class Undeletable(MemoryLedgerClient):
    async def delete(self, ledger_id: int) -> None:
        raise ServiceNotReady("no bookie answers")


def test_a_write_of_the_next_owner_that_says_the_same_is_not_taken_for_ones_own() -> None:
    async def scenario(shelf: Shelf) -> None:
        stores: list[Forgetful] = []
        log = await open_with(shelf, "b1", Heard(), stores.append)
        await shelf.append(log, names(0, 3))
        await shelf.on("b1", lambda world: log.roll())
        await shelf.on("b1", lambda world: log.terminate())
        stores[0].away = True
        with pytest.raises(MetadataUnavailable):
            await shelf.on("b1", lambda world: log.attributes.set_properties({"a": "b"}))
        with pytest.raises(MetadataUnavailable):
            # to delete the empty ledger it says again what it had said before
            await shelf.on("b1", lambda world: log.maintain())
        taken = await open_with(
            shelf, "b2", Heard(), lambda _store: None, Undeletable(shelf.ledgers)
        )
        stores[0].away = False
        with pytest.raises(TopicFenced):
            await shelf.on("b1", lambda world: log.attributes.set_properties({"c": "d"}))
        await shelf.on("b2", lambda world: taken.attributes.set_properties({"e": "f"}))

    simulate(scenario)


class Slow:
    """A store whose next commit that changes the record of the topic waits for ``go_on``."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.slow = False
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, ops: Sequence[Op]) -> list[str | int]:
        if self.slow and ops[0].path == self.path:
            self.slow = False
            self.reached.set()
            await self.go_on.wait()
        return await self._store.commit(ops)

    path = paths.topic(NAME)


async def renew(world: World) -> None:
    client = MemoryLedgerClient(MemoryLedgers())
    records = Records(world.metadata, world.clock, world.random)
    await delete_topic(records, client, NAME)  # type: ignore[arg-type]
    await create_topic(records, NAME, created_ms=2)


def test_a_late_change_of_a_deleted_topic_spares_the_next_topic_at_the_same_version() -> None:
    async def scenario(shelf: Shelf) -> None:
        stores: list[Slow] = []
        former = await open_with(shelf, "b1", Heard(), stores.append, store_of=Slow)
        await shelf.append(former, names(0, 3))
        stores[0].slow = True
        rolling = asyncio.create_task(shelf.on("b1", lambda world: former.roll()))
        await stores[0].reached.wait()
        await shelf.on("b1", renew)
        log, _ = await shelf.open("b1")
        assert log.version == former.version
        await shelf.append(log, names(3, 6))
        stores[0].go_on.set()
        with pytest.raises(TopicFenced):
            await rolling
        again, _ = await shelf.open("b2")
        assert await shelf.read_all(again, "b2") == names(3, 6)

    simulate(scenario)


def test_a_late_cursor_of_a_deleted_topic_is_not_made_in_the_next_one() -> None:
    async def scenario(shelf: Shelf) -> None:
        stores: list[Slow] = []
        former = await open_with(shelf, "b1", Heard(), stores.append, store_of=Slow)
        stores[0].path = paths.cursor(NAME, "s")
        stores[0].slow = True
        opening = asyncio.create_task(shelf.on("b1", lambda world: former.open_cursor("s")))
        await stores[0].reached.wait()
        await shelf.on("b1", renew)
        log, _ = await shelf.open("b1")
        assert log.version == former.version
        stores[0].go_on.set()
        with pytest.raises(TopicFenced):
            await opening
        again, _ = await shelf.open("b2")
        assert again.cursor_names() == []

    simulate(scenario)


def test_the_next_owner_gives_an_incarnation_to_a_topic_of_an_earlier_release() -> None:
    async def scenario(shelf: Shelf) -> None:
        async def as_before(world: World) -> None:
            records = Records(world.metadata, world.clock, world.random)
            made = await records.get(paths.topic(NAME), TopicRecord)
            assert made is not None
            await records.delete(paths.topic_incarnation(NAME, made[0].incarnation))
            old = msgspec.structs.replace(made[0], incarnation="")
            await records.compare_and_set(paths.topic(NAME), old, made[1])

        await shelf.on("b1", as_before)
        former, _ = await shelf.open("b1")
        assert (await shelf.record()).incarnation
        await shelf.append(former, names(0, 3))
        await shelf.on("b1", lambda world: former.roll())
        await shelf.on("b1", renew)
        log, _ = await shelf.open("b1")
        await shelf.append(log, names(3, 6))
        while log.version < former.version:
            await shelf.on("b1", lambda world: log.attributes.set_producer_epoch(log.version))
        with pytest.raises(TopicFenced):
            await shelf.on("b1", lambda world: former.attributes.set_properties({"a": "c"}))
        again, _ = await shelf.open("b2")
        assert again.attributes.properties == {}
        assert await shelf.read_all(again, "b2") == names(3, 6)

    simulate(scenario)


@pytest.mark.parametrize("what", ["deletion", "skipping"])
def test_a_late_commit_decided_on_a_deleted_topic_spares_the_next_one(what: str) -> None:
    async def scenario(shelf: Shelf) -> None:
        stores: list[Slow] = []
        begun = asyncio.Event()

        async def commit_late(world: World) -> None:
            store = Slow(world.metadata)
            stores.append(store)
            begun.set()
            store.slow = True
            records = Records(cast("MetadataStore", store), world.clock, world.random)
            if what == "deletion":
                client = MemoryLedgerClient(MemoryLedgers())
                await delete_topic(records, client, NAME)  # type: ignore[arg-type]
            else:
                ledger_id = former.ledgers[0].ledger_id
                await record_lost(NAME, records, LostRange(ledger_id, 0, 1, (), 1))

        former, _ = await shelf.open("b1")
        await shelf.append(former, names(0, 3))
        late = asyncio.create_task(shelf.on("b1", commit_late))
        await begun.wait()
        await stores[0].reached.wait()
        await shelf.on("b1", renew)
        log, _ = await shelf.open("b1")
        await shelf.append(log, names(3, 6))
        assert log.version == former.version
        stores[0].go_on.set()
        with pytest.raises(NotOwner):
            await late
        again, _ = await shelf.open("b2")
        assert await shelf.read_all(again, "b2") == names(3, 6)

    simulate(scenario)


@pytest.mark.parametrize("what", ["the record", "a cursor"])
def test_a_change_that_a_former_lease_refused_is_made_under_the_new_one(what: str) -> None:
    async def scenario(shelf: Shelf) -> None:
        log, _ = await shelf.open("b1")

        async def lose_and_renew(world: World) -> None:
            records = Records(world.metadata, world.clock, world.random)
            before, after = "/lease-before", "/lease-after"
            await records.ensure(before)
            await records.ensure(after)
            log.renew_lease([Op("check", before, version=0)])
            topic = log._topic

            async def commit(ops: Sequence[Op]) -> list[str | int]:
                topic.records._store = world.metadata
                await world.metadata.commit([Op("put", before, b"split", 0)])
                log.renew_lease([Op("check", after, version=0)])
                return await world.metadata.commit(ops)

            store = Forgetful(world.metadata)
            store.commit = commit  # type: ignore[method-assign]
            topic.records._store = cast(MetadataStore, store)
            if what == "the record":
                await log.attributes.set_properties({"a": "b"})
            else:
                _ = await log.open_cursor("s", initial=EARLIEST)
            assert topic.records._store is world.metadata, "the change was refused once"

        await shelf.on("b1", lose_and_renew)
        assert not log.fenced
        again, _ = await shelf.open("b2")
        assert again.attributes.properties == ({"a": "b"} if what == "the record" else {})

    simulate(scenario)
