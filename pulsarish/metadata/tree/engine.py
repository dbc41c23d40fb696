"""Group commit over one tree: all waiting jobs are decided at once and made durable by one synced
write.

An answer or a watch event leaves only after the batch that caused it, or that a read has seen, is
durable: what a client has seen must not be gone after a crash.

Each peer has a queue. The jobs of a queue run in the order in which they were submitted. Queues
take turns, so that a peer with many or slow jobs does not keep the others waiting. A queue that is
paused has no turn, because its peer does not receive its answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from pulsarish.metadata.tree.nodes import Committed, Event
from pulsarish.metadata.tree.rows import Batch
from pulsarish.metadata.tree.tree import Tree
from pulsarish.runtime.containment import Critical, Scope
from pulsarish.runtime.seams import Clock, KeyValueIndex, Tasks

__all__ = ["BATCH_MAX_BYTES", "BATCH_MAX_JOBS", "BATCH_SECONDS", "Engine", "Job", "JobQueue"]

BATCH_MAX_JOBS: Final = 2000
BATCH_MAX_BYTES: Final = 8 << 20
BATCH_SECONDS: Final = 0.03
"""These bound how long a batch holds the loop and how large one synced write becomes; the rest goes
into the next batch.
"""

_TURN_JOBS: Final = 100


class Job(Protocol):
    """One request.

    ``run`` decides it on the tree; ``deliver`` answers it, once what it did and saw is durable.
    """

    @property
    def size_bytes(self) -> int:
        """The bytes that it may add to a synced write."""
        ...

    def run(self, tree: Tree) -> Committed | None: ...

    def deliver(self) -> None: ...

    @property
    def scope(self) -> Scope:
        """The scope that ends when ``run`` or ``deliver`` fails."""
        ...


class JobQueue:
    """The jobs of one peer, in order."""

    __slots__ = ("in_turn", "jobs", "paused")

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.paused = False
        """Set while no job may run; cleared by ``Engine.resume``."""
        self.in_turn = False


_Decided = list[tuple[Job, Sequence[Event]]]


class Engine:
    """The owner of the tree and the only writer of its rows.

    The queues stay bounded because their feeders stop reading sockets.
    """

    def __init__(
        self,
        tree: Tree,
        index: KeyValueIndex | None,
        clock: Clock,
        tasks: Tasks,
        on_event: Callable[[Event], None],
        on_delivered: Callable[[], None] | None = None,
    ) -> None:
        """Make an engine. ``index`` None keeps everything in memory.

        ``on_event`` gets each watch event, before the answer of the commit that caused it.
        ``on_delivered`` is called after each batch, so that answers of one connection can leave
        together.
        """
        self.tree = tree
        self.batches = 0
        self.waiting = 0
        """Jobs that no batch has taken yet."""
        self._index = index
        self._clock = clock
        self._tasks = tasks
        self._on_event = on_event
        self._on_delivered = on_delivered
        self._own = JobQueue()
        self._turns: deque[JobQueue] = deque()
        self._wake = asyncio.Event()
        self._stopping = False
        self._task = tasks.spawn(
            self._run(), name="metadata-commit", critical=Critical.METADATA_COMMIT
        )

    def submit(self, job: Job, queue: JobQueue | None = None) -> None:
        """Add a job to its peer's queue; without one, to the queue of the process's own jobs."""
        assert not self._stopping, "a job after stop"
        queue = queue or self._own
        queue.jobs.append(job)
        self.waiting += 1
        if not queue.in_turn and not queue.paused:
            self._give_turn(queue)

    def resume(self, queue: JobQueue) -> None:
        """Let the jobs of a paused queue run."""
        queue.paused = False
        if queue.jobs and not queue.in_turn:
            self._give_turn(queue)

    def drop(self, queue: JobQueue) -> None:
        """Forget the jobs of a queue: no client waits for their answers."""
        self.waiting -= len(queue.jobs)
        queue.jobs.clear()

    async def stop(self) -> None:
        """Finish all jobs that wait in queues that are not paused, then end."""
        self._stopping = True
        self._wake.set()
        await self._task

    def _give_turn(self, queue: JobQueue) -> None:
        queue.in_turn = True
        self._turns.append(queue)
        self._wake.set()

    async def _run(self) -> None:
        while self._turns or not self._stopping:
            if not self._turns:
                self._wake.clear()
                await self._wake.wait()
                continue
            wrote = await self._one_batch()
            if self._turns and not wrote:
                # A batch of reads waits for no sync: this gives the sockets and timers of the
                # process their turn.
                await self._clock.sleep(0)

    async def _one_batch(self) -> bool:
        """Decide a batch, make it durable and answer it.

        Return whether there was anything to write.
        """
        batch = Batch()
        decided = self._decide(batch)
        if batch and self._index is not None:
            puts, deletes = batch.rows(self.tree)
            # A failed write ends the process: the error leaves this critical task. The changes are
            # in memory, but no answer left.
            await self._index.write(puts, deletes, sync=True)
        self.batches += 1
        for job, caused in decided:
            for event in caused:
                self._on_event(event)
            try:
                job.deliver()
            except Exception as error:  # noqa: BLE001
                # A failure for one peer: the others must get their answers.
                self._contain(job, error)
        if self._on_delivered is not None:
            self._on_delivered()
        return bool(batch)

    def _contain(self, job: Job, error: Exception) -> None:
        self._tasks.contain(type(job).__name__, error, job.scope)

    def _decide(self, batch: Batch) -> _Decided:
        """Run jobs until none waits or the batch is full."""
        decided: _Decided = []
        size_bytes = 0
        until = self._clock.monotonic() + BATCH_SECONDS
        while (
            self._turns
            and len(decided) < BATCH_MAX_JOBS
            and size_bytes < BATCH_MAX_BYTES
            and self._clock.monotonic() < until
        ):
            queue = self._turns.popleft()
            if queue.paused:
                queue.in_turn = False
                continue
            size_bytes += self._take_turn(
                queue, batch, decided, BATCH_MAX_BYTES - size_bytes, until
            )
            if queue.jobs and not queue.paused:
                self._turns.append(queue)
            else:
                queue.in_turn = False
        return decided

    def _take_turn(
        self, queue: JobQueue, batch: Batch, decided: _Decided, room_bytes: int, until: float
    ) -> int:
        """Run some jobs of one queue. Return their size."""
        size_bytes = 0
        jobs, tree, monotonic = queue.jobs, self.tree, self._clock.monotonic
        for _ in range(min(len(jobs), _TURN_JOBS)):
            job = jobs.popleft()
            self.waiting -= 1
            size_bytes += job.size_bytes
            zxid = tree.zxid
            try:
                committed = job.run(tree)
            except Exception as error:
                if tree.changing or tree.zxid != zxid:
                    # the tree has a change that no row will ever hold: this process must not answer
                    # from it
                    raise
                self._contain(job, error)
                continue
            if committed is None:
                decided.append((job, ()))
            else:
                batch.add(committed)
                decided.append((job, committed.events))
            if queue.paused or size_bytes >= room_bytes or monotonic() >= until:
                break
        return size_bytes
