"""Topics' logs in a simulation, on ledgers in memory: nodes, metadata and time are the
simulator's.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from pulsarish.managed_ledger.cursors.cursor import Cursor
from pulsarish.managed_ledger.entry_caches import EntryCaches
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.managed_ledger.options import ManagedLedgerOptions, Retention
from pulsarish.managed_ledger.topics_store import create_topic
from pulsarish.metadata.paths import ROOTS, cursor, topic
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import CursorRecord, TopicRecord
from pulsarish.model.errors import PulsarishError
from pulsarish.model.position import Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation
from tests.support.memory_ledgers import MemoryLedgerClient, MemoryLedgers

__all__ = ["NAME", "Heard", "Shelf", "names", "seek", "simulate"]

T = TypeVar("T")

NAME = TopicName.parse("persistent://public/default/t")
QUICK = {
    "append_hold_ms": 200,
    "retry_wait_ms": 5,
    "retry_wait_max_ms": 50,
    "min_ledger_rollover_time_minutes": 0,
}


def names(first: int, last: int) -> list[bytes]:
    return [f"m{number}".encode() for number in range(first, last)]


async def seek(cursor: Cursor, position: Position) -> None:
    """As a subscription does; durable when it returns."""
    cursor.move(position)
    await cursor.flush()


class Heard:
    """A listener that writes down what it hears. Contexts are what was appended."""

    def __init__(self) -> None:
        self.appended_at: list[tuple[Position, object]] = []
        self.failed: list[tuple[object, PulsarishError]] = []
        self.fences: list[PulsarishError] = []

    def appended(self, ledger_id: int, first_entry: int, contexts: Sequence[object]) -> None:
        assert not self.fences, "confirmed after the fence"
        for offset, context in enumerate(contexts):
            self.appended_at.append((Position(ledger_id, first_entry + offset), context))

    def append_failed(self, contexts: Sequence[object], error: PulsarishError) -> None:
        self.failed += [(context, error) for context in contexts]

    def fenced(self, error: PulsarishError) -> None:
        self.fences.append(error)

    @property
    def confirmed(self) -> list[object]:
        return [context for _, context in self.appended_at]


class Shelf:
    """One simulated cluster: ledgers in memory, metadata of the simulator, brokers as nodes."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.ledgers = MemoryLedgers()
        self.options = ManagedLedgerOptions(**QUICK)
        self.cache_bytes = 1 << 20
        self.retention = Retention(-1, -1)

    def set(self, **options: Any) -> None:
        self.options = ManagedLedgerOptions(**{**QUICK, **options})

    def records(self, world: World) -> Records:
        return Records(world.metadata, world.clock, world.random)

    async def on(self, node: str, work: Callable[[World], Coroutine[Any, Any, T]]) -> T:
        """Run in a broker's node, which is started when it is not up."""
        found = self.sim.nodes.get(node) or self.sim.node(node)
        if not found.alive:
            found.start()
        return await found.run(work)

    async def prepare(self) -> None:
        async def work(world: World) -> None:
            records = self.records(world)
            for path in ROOTS:
                await records.ensure(path)
            await create_topic(records, NAME, created_ms=1)

        await self.on("b1", work)

    async def open(
        self,
        node: str = "b1",
        heard: Heard | None = None,
        found: tuple[TopicRecord, int] | None = None,
    ) -> tuple[ManagedLedger, Heard]:
        """Open the topic on a node, which may have its record already."""
        listener = heard or Heard()

        async def work(world: World) -> ManagedLedger:
            client = MemoryLedgerClient(self.ledgers)
            return await ManagedLedger.open(
                NAME,
                client,  # type: ignore[arg-type]
                self.records(world),
                world,
                self.options,
                listener,
                caches=EntryCaches(self.cache_bytes, self.cache_bytes),
                retention=self.retention,
                found=found,
            )

        return await self.on(node, work), listener

    async def append(self, log: ManagedLedger, payloads: Sequence[bytes], node: str = "b1") -> None:
        """Append and wait until nothing is pending."""

        async def work(world: World) -> None:
            for payload in payloads:
                log.append(payload, payload)
            while log.pending_entries:
                await world.clock.sleep(0.001)

        await self.on(node, work)

    async def cursor(self, node: str = "b1", name: str = "s") -> CursorRecord | None:
        async def work(world: World) -> CursorRecord | None:
            found = await self.records(world).get(cursor(NAME, name), CursorRecord)
            return None if found is None else found[0]

        return await self.on(node, work)

    async def sleep(self, seconds: float, node: str = "b1") -> None:
        await self.on(node, lambda world: world.clock.sleep(seconds))

    async def record(self, node: str = "b1") -> TopicRecord:
        async def work(world: World) -> TopicRecord:
            found = await self.records(world).get(topic(NAME), TopicRecord)
            assert found is not None
            return found[0]

        return await self.on(node, work)

    async def read_all(self, log: ManagedLedger, node: str = "b1") -> list[bytes]:
        async def work(world: World) -> list[bytes]:
            found: list[bytes] = []
            position = Position(-1, -1)
            while entries := await log.read(position, max_entries=7, max_bytes=1 << 20):
                found += [bytes(entry.payload) for entry in entries]
                position = log.next_position(entries[-1].position)
            return found

        return await self.on(node, work)


def simulate(
    scenario: Callable[[Shelf], Coroutine[Any, Any, T]],
    seed: int = 1,
    max_virtual_seconds: float = 3_600.0,
) -> T:
    """Run ``scenario(shelf)`` with an empty topic ``NAME`` there."""
    sim = Simulation(seed)
    shelf = Shelf(sim)

    async def main() -> T:
        await shelf.prepare()
        return await scenario(shelf)

    return sim.run(main, max_virtual_seconds)
