"""Group commit over one tree: everything that waits when the store is free is decided at once and made durable by one synced write.

Jobs run in the order they were submitted. Neither an answer nor a watch event leaves before the batch that caused it, or that a read
has seen, is durable: what a client has seen must not be gone after a crash.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from pulsarish.metadata.tree.nodes import Committed, Event
from pulsarish.metadata.tree.rows import Batch
from pulsarish.metadata.tree.tree import Tree
from pulsarish.runtime.containment import Critical
from pulsarish.runtime.seams import KeyValueIndex, Tasks

__all__ = ["BATCH_MAX_JOBS", "Engine", "Job"]

# Bounds how long the loop is held and how large one synced write becomes; the rest goes into the next batch.
BATCH_MAX_JOBS: Final = 2000


class Job(Protocol):
    """One request. ``run`` decides it on the tree; ``deliver`` answers it, once what it did and saw is durable."""

    def run(self, tree: Tree) -> Committed | None: ...

    def deliver(self) -> None: ...


class Engine:
    """Owns the tree and the only writer of its rows. The queue is bounded by its feeders: they stop reading their sockets."""

    def __init__(
        self,
        tree: Tree,
        index: KeyValueIndex | None,
        tasks: Tasks,
        on_event: Callable[[Event], None],
        on_delivered: Callable[[], None] | None = None,
    ) -> None:
        """``index`` None keeps everything in memory. ``on_event`` gets each watch event, before the answer of the commit that caused it;
        ``on_delivered`` is called after each batch, so that answers of one connection can leave together.
        """
        self.tree = tree
        self.batches = 0
        self._index = index
        self._on_event = on_event
        self._on_delivered = on_delivered
        self._jobs: deque[Job] = deque()
        self._wake = asyncio.Event()
        self._stopping = False
        self._task = tasks.spawn(self._run(), name="metadata-commit", critical=Critical.METADATA_COMMIT)

    @property
    def waiting(self) -> int:
        """Jobs that no batch has taken yet."""
        return len(self._jobs)

    def submit(self, job: Job) -> None:
        assert not self._stopping, "a job after stop"
        self._jobs.append(job)
        self._wake.set()

    async def stop(self) -> None:
        """Finish all jobs that wait, then end."""
        self._stopping = True
        self._wake.set()
        await self._task

    async def _run(self) -> None:
        while self._jobs or not self._stopping:
            if not self._jobs:
                self._wake.clear()
                await self._wake.wait()
                continue
            await self._one_batch([self._jobs.popleft() for _ in range(min(len(self._jobs), BATCH_MAX_JOBS))])

    async def _one_batch(self, jobs: Sequence[Job]) -> None:
        batch = Batch()
        events: list[Sequence[Event]] = []
        for job in jobs:
            committed = job.run(self.tree)
            if committed is None:
                events.append(())
            else:
                batch.add(committed)
                events.append(committed.events)
        if batch and self._index is not None:
            puts, deletes = batch.rows(self.tree)
            # A failed write ends the process: the error leaves this critical task. What was decided is in memory but answered to nobody.
            await self._index.write(puts, deletes, sync=True)
        self.batches += 1
        for job, caused in zip(jobs, events, strict=True):
            for event in caused:
                self._on_event(event)
            job.deliver()
        if self._on_delivered is not None:
            self._on_delivered()
