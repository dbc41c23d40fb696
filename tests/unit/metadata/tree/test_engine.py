"""Group commit: nothing is answered or told before it, and what it has seen, is durable; one write
for all that waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from pulsarish.metadata.tree.engine import BATCH_MAX_BYTES, BATCH_SECONDS, Engine, JobQueue
from pulsarish.metadata.tree.nodes import Committed, Create, Event, Put
from pulsarish.metadata.tree.tree import Tree
from pulsarish.runtime.clock import SystemClock
from pulsarish.runtime.tasks import Supervisor
from tests.unit.metadata.tree.test_rows import DictIndex


class GatedIndex(DictIndex):
    """Each write waits to be let through."""

    def __init__(self) -> None:
        super().__init__()
        self.began: asyncio.Queue[int] = asyncio.Queue()  # rows of each write
        self.gate: asyncio.Queue[Exception | None] = asyncio.Queue()

    async def write(
        self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = (), *, sync: bool
    ) -> None:
        assert sync
        self.began.put_nowait(len(puts))
        error = await self.gate.get()
        if error is not None:
            raise error
        await super().write(puts, deletes, sync=sync)


class Commit:
    size_bytes = 0

    def __init__(self, log: list[str], name: str, *ops: Create | Put) -> None:
        self._log, self._name, self._ops = log, name, ops

    def run(self, tree: Tree) -> Committed | None:
        self._log.append(f"run {self._name}")
        outcome = tree.commit(1, self._ops, 0)
        return outcome if isinstance(outcome, Committed) else None

    def deliver(self) -> None:
        self._log.append(f"answer {self._name}")


class Read:
    size_bytes = 0

    def __init__(self, log: list[str], path: str, *, watch: bool = False) -> None:
        self._log, self._path, self._watch = log, path, watch
        self._version: int | None = None

    def run(self, tree: Tree) -> Committed | None:
        node = tree.get(self._path)
        self._version = None if node is None else node.version
        if self._watch:
            tree.watch_data(1, self._path)
        return None

    def deliver(self) -> None:
        self._log.append(f"read {self._path} at {self._version}")


def run(
    scenario: Callable[[Engine, GatedIndex, list[str]], Awaitable[None]],
) -> list[BaseException]:
    deaths: list[BaseException] = []

    async def main() -> None:
        tasks = Supervisor(died=lambda task, error: deaths.append(error))
        tree, index, log = Tree(), GatedIndex(), list[str]()
        tree.open_session(1, bytes(16), 1000, 0)

        def told(event: Event) -> None:
            log.append(f"tell {event.path}")

        await scenario(
            Engine(tree, index, SystemClock(), tasks, told, lambda: log.append("flush")), index, log
        )
        await tasks.stop()

    asyncio.run(main())
    return deaths


async def _idle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_answers_and_events_wait_for_the_write() -> None:
    async def scenario(engine: Engine, index: GatedIndex, log: list[str]) -> None:
        engine.submit(Read(log, "/a", watch=True))
        engine.submit(Commit(log, "1", Create("/a")))
        engine.submit(Read(log, "/a"))
        assert await index.began.get() == 3  # the header, the root, the node
        await _idle()
        assert log == ["run 1"]
        # What comes meanwhile waits for the next batch, which is one write however many there are.
        engine.submit(Commit(log, "2", Put("/a", b"x")))
        engine.submit(Commit(log, "3", Put("/a", b"y")))
        engine.submit(Read(log, "/a"))
        await _idle()
        assert log == ["run 1"]
        index.gate.put_nowait(None)
        assert await index.began.get() == 2
        assert log == [
            "run 1",
            "read /a at None",
            "tell /a",
            "answer 1",
            "read /a at 0",
            "flush",
            "run 2",
            "run 3",
        ]
        index.gate.put_nowait(None)
        await engine.stop()
        assert log[8:] == ["answer 2", "answer 3", "read /a at 2", "flush"]
        assert engine.batches == 2

    assert run(scenario) == []


def test_reads_alone_write_nothing() -> None:
    async def scenario(engine: Engine, index: GatedIndex, log: list[str]) -> None:
        engine.submit(Read(log, "/a"))
        await engine.stop()
        assert log == ["read /a at None", "flush"]
        assert index.began.empty()

    assert run(scenario) == []


def test_a_failed_write_is_answered_to_nobody_and_ends_the_node() -> None:
    async def scenario(engine: Engine, index: GatedIndex, log: list[str]) -> None:
        engine.submit(Commit(log, "1", Create("/a")))
        await index.began.get()
        index.gate.put_nowait(OSError("no space"))
        engine.submit(Read(log, "/a"))
        await _idle()
        assert log == ["run 1"]

    (death,) = run(scenario)
    with pytest.raises(OSError, match="no space"):
        raise death


class Counted:
    """A job of a peer that takes some time of the loop."""

    def __init__(
        self,
        log: list[str],
        name: str,
        clock: SteppedClock,
        *,
        seconds: float = 0.0,
        size_bytes: int = 0,
    ) -> None:
        self.size_bytes = size_bytes
        self._log, self._name, self._clock, self._seconds = log, name, clock, seconds

    def run(self, tree: Tree) -> Committed | None:
        self._clock.now += self._seconds
        self._log.append(self._name)
        return None

    def deliver(self) -> None:
        pass


class SteppedClock(SystemClock):
    """Moves when a job says so."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def run_queues(scenario: Callable[[Engine, SteppedClock, list[str]], Awaitable[None]]) -> None:
    async def main() -> None:
        tasks, clock, log = Supervisor(), SteppedClock(), list[str]()
        await scenario(
            Engine(Tree(), None, clock, tasks, lambda event: None, lambda: log.append("|")),
            clock,
            log,
        )
        await tasks.stop()

    asyncio.run(main())


def test_a_peer_with_slow_jobs_does_not_keep_the_others_waiting() -> None:
    async def scenario(engine: Engine, clock: SteppedClock, log: list[str]) -> None:
        slow, quick = JobQueue(), JobQueue()
        for _ in range(3):
            engine.submit(Counted(log, "slow", clock, seconds=BATCH_SECONDS), slow)
        for _ in range(2):
            engine.submit(Counted(log, "quick", clock), quick)
        await engine.stop()
        assert log == ["slow", "|", "quick", "quick", "slow", "|", "slow", "|"]

    run_queues(scenario)


def test_a_batch_has_an_end_in_bytes() -> None:
    async def scenario(engine: Engine, clock: SteppedClock, log: list[str]) -> None:
        for _ in range(3):
            engine.submit(Counted(log, "large", clock, size_bytes=BATCH_MAX_BYTES // 2), JobQueue())
        await engine.stop()
        assert log == ["large", "large", "|", "large", "|"]

    run_queues(scenario)


def test_a_held_queue_waits_and_keeps_its_order() -> None:
    async def scenario(engine: Engine, clock: SteppedClock, log: list[str]) -> None:
        held, dropped = JobQueue(), JobQueue()
        held.paused = dropped.paused = True
        engine.submit(Counted(log, "1", clock), held)
        engine.submit(Counted(log, "never", clock), dropped)
        engine.submit(Counted(log, "other", clock), JobQueue())
        await _idle()
        assert log == ["other", "|"]
        engine.submit(Counted(log, "2", clock), held)
        engine.resume(held)
        await _idle()
        assert log == ["other", "|", "1", "2", "|"]
        assert engine.waiting == 1
        engine.drop(dropped)
        engine.resume(dropped)
        await engine.stop()
        assert (engine.waiting, log) == (0, ["other", "|", "1", "2", "|"])

    run_queues(scenario)
