"""Deletions whose last commit is late, or whose answer is lost, while others finish them and make
again what was deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import CursorRecord
from pulsarish.model.errors import PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import MetadataStore, Op, OutcomeUnknown, World
from tests.support.brokered import Brokered, play_with_brokers

NAME = TopicName("public", "default", "t")


class Late:
    """A store of which the deletion of one node, or a listing below it, waits."""

    def __init__(self, store: MetadataStore, path: str, *, listing: bool = False) -> None:
        self._store = store
        self._path = path
        self._listing = listing
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def children(self, path: str, **options: Any) -> list[str]:
        if self._listing and path == self._path:
            self.reached.set()
            await self.go_on.wait()
        return await self._store.children(path, **options)

    async def commit(self, ops: Sequence[Op]) -> list[str | int]:
        if not self._listing and any(op.kind == "delete" and op.path == self._path for op in ops):
            self.reached.set()
            await self.go_on.wait()
        return await self._store.commit(ops)


def test_a_late_deletion_does_not_delete_what_was_made_anew() -> None:
    async def scenario(brokered: Brokered) -> None:
        serving: dict[str, LoadedTopics] = {
            node: broker._topics for node, broker in brokered.cluster.brokers.items()
        }
        former, owner = serving
        late = Late(serving[former]._records._store, paths.topic(NAME))
        over = await _begin_deletion(brokered, former, late)
        being_deleted = (await brokered.world.metadata.get_many([paths.topic(NAME)]))[0]
        assert being_deleted is not None
        marked = being_deleted.version
        await _take(brokered, former, owner)

        client = brokered.client()
        producer = await client.create_producer(NAME.full)
        sent = await producer.send(b"acknowledged")
        new = brokered.topic(NAME.full)
        while new.log.version < marked:
            await brokered.node(owner).run(
                lambda _world: new.log.attributes.set_properties({"a": "b"})
            )
        assert new.log.version == marked
        late.go_on.set()
        await over
        found = (await brokered.world.metadata.get_many([paths.topic(NAME)]))[0]
        assert found is not None, f"a topic that acknowledged {sent} was deleted"

    play_with_brokers(scenario, brokers=2)


def test_a_late_deletion_does_not_delete_the_acknowledgements_of_what_was_made_anew() -> None:
    async def scenario(brokered: Brokered) -> None:
        serving: dict[str, LoadedTopics] = {
            node: broker._topics for node, broker in brokered.cluster.brokers.items()
        }
        former, owner = serving
        late = Late(serving[former]._records._store, paths.cursors(NAME), listing=True)
        over = await _begin_deletion(brokered, former, late)
        await _take(brokered, former, owner)

        client = brokered.client()
        consumer = await client.subscribe(NAME.full, "s")
        producer = await client.create_producer(NAME.full)
        for number in range(3):
            _ = await producer.send(str(number).encode())
        for _number in range(3):
            await consumer.acknowledge(await consumer.receive())
        cursor = brokered.topic(NAME.full).log.open_cursors()[0]
        await brokered.until(lambda: cursor.backlog() == 0)
        await brokered.node(owner).run(lambda _world: cursor.flush())
        assert cursor.has_ledger
        late.go_on.set()
        await over
        records = Records(brokered.world.metadata, brokered.world.clock, brokered.world.random)
        found = await records.get(paths.cursor(NAME, "s"), CursorRecord)
        assert found is not None
        ledger = (await brokered.world.metadata.get_many([paths.ledger(found[0].cursor_ledger)]))[0]
        assert ledger is not None, "the ledger that a live cursor is kept in was deleted"

    play_with_brokers(
        scenario, brokers=2, managed_ledger=ManagedLedgerOptions(cursor_node_writes_max=0)
    )


async def _begin_deletion(brokered: Brokered, former: str, late: Late) -> asyncio.Future[None]:
    async def begin(world: World) -> asyncio.Future[None]:
        topics: LoadedTopics = brokered.cluster.brokers[former]._topics
        _ = await topics.bundles._ownership.acquire(await topics.bundle(NAME), None)
        _ = await topics.get(NAME, create=True)
        topics._records._store = late  # type: ignore[assignment]
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def delete() -> None:
            with suppress(PulsarishError):  # that it is known to be another's by now is as good
                await topics.delete(NAME, force=True)
            over.set_result(None)

        _ = world.tasks.spawn(delete(), name="late deletion")
        await late.reached.wait()
        return over

    return await brokered.node(former).run(begin)


async def _take(brokered: Brokered, former: str, owner: str) -> None:
    serving: dict[str, LoadedTopics] = {
        node: broker._topics for node, broker in brokered.cluster.brokers.items()
    }

    async def take(_world: World) -> None:
        topics = serving[owner]
        assert await topics.bundles._ownership.registry.evict(
            serving[former].bundles._ownership.registry.instance_id
        )
        _ = await topics.bundles._ownership.acquire(await topics.bundle(NAME), 0)

    await brokered.node(owner).run(take)
    await brokered.world.clock.sleep(1.0)
    assert serving[former].loaded == {}, "it has heard of its eviction"


class Forgetful:
    """A store that loses the answer to the next deletion of one node, after ``meanwhile``."""

    def __init__(
        self, store: MetadataStore, path: str, meanwhile: Callable[[], Awaitable[object]]
    ) -> None:
        self._store = store
        self._path = path
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, ops: Sequence[Op]) -> list[str | int]:
        answer = await self._store.commit(ops)
        if self._path and any(op.kind == "delete" and op.path == self._path for op in ops):
            self._path = ""
            await self._meanwhile()
            raise OutcomeUnknown("lost")
        return answer


def test_a_deletion_without_an_answer_spares_the_next_partitioned_topic() -> None:
    async def scenario(brokered: Brokered) -> None:
        first, other = (broker._topics._namespaces for broker in brokered.cluster.brokers.values())
        names = list(brokered.cluster.brokers)
        await brokered.node(names[0]).run(lambda _world: first.create_partitioned(NAME, 4))

        async def made_anew() -> None:
            await brokered.node(names[1]).run(lambda _world: other.create_partitioned(NAME, 4))

        first._records._store = Forgetful(
            first._records._store, paths.partitioned_topic(NAME), made_anew
        )  # type: ignore[assignment]
        await brokered.node(names[0]).run(lambda _world: first.delete_partitioned(NAME))
        found = (await brokered.world.metadata.get_many([paths.partitioned_topic(NAME)]))[0]
        assert found is not None, (
            "the creation of the partitioned topic was answered, and it is gone"
        )

    play_with_brokers(scenario, brokers=2)


def test_a_deletion_whose_answer_is_lost_does_not_delete_the_namespace_that_was_made_anew() -> None:
    async def scenario(brokered: Brokered) -> None:
        first, other = (broker._topics._namespaces for broker in brokered.cluster.brokers.values())
        names = list(brokered.cluster.brokers)
        await brokered.node(names[0]).run(
            lambda _world: first.create_namespace("public", "other", 1)
        )
        client = brokered.client()
        sent: list[object] = []

        async def made_anew() -> None:
            await brokered.node(names[1]).run(
                lambda _world: other.create_namespace("public", "other", 1)
            )
            producer = await client.create_producer("persistent://public/other/t")
            sent.append(await producer.send(b"acknowledged"))

        first._records._store = Forgetful(
            first._records._store, paths.namespace("public", "other"), made_anew
        )  # type: ignore[assignment]
        await brokered.node(names[0]).run(lambda _world: first.delete_namespace("public", "other"))
        assert sent
        found = (await brokered.world.metadata.get_many([paths.namespace("public", "other")]))[0]
        assert found is not None, "a namespace with an acknowledged message is gone"

    play_with_brokers(scenario, brokers=2)
