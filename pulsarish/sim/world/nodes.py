"""Nodes: machines that run one process at a time, and what a crash, a pause and a restart do to
them.

A ``Node`` is the machine: its name, clock and disk last. A ``Process`` is one life of the program
on it. The context variable ``current_process`` says to which process code belongs. When the process
dies, its callbacks never run again. So none of its ``except`` and ``finally`` blocks runs, exactly
as after ``kill -9``. ``world.py`` builds the seams of a process.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from pulsarish.runtime.containment import Critical, Scope, ScopeKind
from pulsarish.runtime.seams import World
from pulsarish.sim.world.disk import CAPACITY_BYTES, injected_fault
from pulsarish.sim.world.loop import SimHandle, SimLoop, SimTask, current_process

if TYPE_CHECKING:
    from pulsarish.sim.world.disk import SimDisk

__all__ = ["Main", "Node", "NodeDied", "Process", "SimClock", "SimTasks"]

# 2026-01-01T00:00:00Z: an ordinary date, so that stamps look like stamps.
EPOCH_MS = 1_767_225_600_000

# Tasks that a bookie cannot run without: the bookie ends when a disk fault hits one of these.
DISK_TASKS = ("journal", "journal-prepare", "checkpoint", "garbage")

Main = Callable[[World], Coroutine[Any, Any, Any]]
T = TypeVar("T")


class NodeDied(Exception):
    """The node died while the scenario waited for code in it, or a dead process called a seam."""


class Process:
    """One life of the program on a node."""

    def __init__(self, node: Node, incarnation: int) -> None:
        self.node = node
        self.incarnation = incarnation
        self.alive = True
        self.paused = False
        self.aside: list[SimHandle] = []
        self.at_death: list[Callable[[], None]] = []
        # set with its world, when the first session with the metadata store is open
        self.ready: Callable[[], Awaitable[None]]
        self.context = contextvars.Context()
        self.context.run(current_process.set, self)

    def __str__(self) -> str:
        return f"{self.node.name}#{self.incarnation}"

    def check(self) -> None:
        """Raise ``NodeDied`` for a dead process.

        Every seam calls this first, so not even a late ``finally`` block changes anything.
        """
        if not self.alive:
            raise NodeDied(f"{self} is dead")


class SimClock:
    """A node's clock.

    ``rate`` is its speed against true time, ``wall_offset_ms`` the error of its calendar.
    """

    def __init__(self, loop: SimLoop, random_stream: random.Random) -> None:
        self._loop = loop
        self._rate = 1 + random_stream.uniform(-200e-6, 200e-6)
        # What the clock showed at some true time. From there it runs at its rate.
        self._shown = random_stream.uniform(0, 1000)
        self._shown_at = loop.time()
        self._stopped_at: float | None = None
        self.wall_offset_ms = random_stream.randrange(-500, 500)

    def stop(self) -> None:
        """Stand still, like the monotonic clock of a suspended machine."""
        if self._stopped_at is None:
            self._stopped_at = self._loop.time()

    def go_on(self) -> float | None:
        """Run again from where it stood.

        Return since when it stood still. The calendar has continued.
        """
        since = self._stopped_at
        if since is not None:
            self._shown, self._shown_at = self.monotonic(), self._loop.time()
            self._stopped_at = None
            self.wall_offset_ms += int((self._loop.time() - since) * 1000)
        return since

    def _time(self) -> float:
        return self._loop.time() if self._stopped_at is None else self._stopped_at

    @property
    def rate(self) -> float:
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._shown, self._shown_at = self.monotonic(), self._time()
        self._rate = rate

    def monotonic(self) -> float:
        return self._shown + (self._time() - self._shown_at) * self._rate

    def wall_ms(self) -> int:
        return EPOCH_MS + self.wall_offset_ms + int(self.monotonic() * 1000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._rate)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(None if seconds is None else seconds / self._rate)


class SimTasks:
    """Spawns tasks in a process.

    A critical task that dies ends the process and, unless it was expected, fails the seed.
    """

    def __init__(self, process: Process, loop: SimLoop) -> None:
        self._process = process
        self._loop = loop
        self.contained_failures = dict.fromkeys(ScopeKind, 0)

    def spawn(
        self,
        work: Coroutine[object, object, None],
        *,
        name: str,
        critical: Critical | None = None,
        scope: Scope | None = None,
    ) -> SimTask:
        if not self._process.alive:
            work.close()
        self._process.check()
        # A copy, so that a change of a task's context stays in this task.
        task = self._loop.create_task(work, name=name, context=self._process.context.copy())
        task.reported = True
        task.add_done_callback(
            lambda done: self._done(done, critical, scope), context=self._process.context
        )
        return task

    def _done(
        self, task: asyncio.Task[Any], critical: Critical | None, scope: Scope | None
    ) -> None:
        node = self._process.node
        if task.cancelled() or (error := task.exception()) is None:
            return
        if critical is not None:
            node.ended_by(self._process, task.get_name(), error)
            return
        self.contain(task.get_name(), error, scope or Scope(ScopeKind.TASK, task.get_name()))

    def contain(self, task: str, error: BaseException, scope: Scope) -> None:
        self.contained_failures[scope.kind] += 1
        # Contained or not, the program raised an unexpected error.
        self._process.node.report(f"task {task} of {scope.kind.value} {scope.name} failed", error)
        scope.end(error)


class Node:
    """A machine. ``sim.node(name)`` makes one; ``start`` boots the program on it."""

    def __init__(
        self,
        name: str,
        loop: SimLoop,
        disk: SimDisk,
        clock: SimClock,
        build_world: Callable[[Node, Process], World],
        trace: Callable[[str], None],
    ) -> None:
        self.name = name
        self.disk = disk
        self.clock = clock
        self.incarnation = 0
        self.process: Process | None = None
        self.world: World | None = None
        self.expected_errors: tuple[type[BaseException], ...] = ()
        self.start_errors: tuple[type[BaseException], ...] = ()
        """Errors that may end the program before it is ready."""
        self.disk_tasks: tuple[str, ...] = DISK_TASKS
        """Names of tasks that may end the program when a fault was injected into the disk."""
        self.full_disk_ends = False
        """Whether the disk fills so suddenly that the program cannot stop in time.

        Otherwise the program must stop in time.
        """
        self.restart_after_seconds: float | None = None
        self.ends: list[BaseException] = []  # why the program ended itself, in every life
        self._loop = loop
        self._build_world = build_world
        self._trace = trace
        self._main: Main | None = None
        self._main_name = f"{name}-main"

    def __str__(self) -> str:
        return self.name

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def paused(self) -> bool:
        return self.process is not None and self.process.paused

    @property
    def session_id(self) -> int:
        """Return the id of the session that its process has with the metadata service, 0 when there
        is none.
        """
        return self.world.metadata.session_id if self.world is not None else 0

    def start(self, main: Main | None = None) -> World:
        """Boot the machine.

        ``main(world)`` runs in the node as its critical task, and again at every restart.

        Without ``main`` only a world is made.
        """
        assert not self.alive, f"{self.name} is up already"
        self._main = main or self._main
        self.incarnation += 1
        self.process = Process(self, self.incarnation)
        self._trace(f"start {self.process}")
        self.world = self._build_world(self, self.process)
        if self._main is not None:
            _ = self.world.tasks.spawn(
                self._boot(self._main, self.process, self.world),
                name=self._main_name,
                critical=Critical.MAIN,
            )
        return self.world

    async def _boot(self, main: Main, process: Process, world: World) -> None:
        # The program gets a connected metadata store, as in production.
        await process.ready()
        await main(world)

    def restart(self) -> World:
        """Crash the node if it is up.

        Then boot the same ``main`` in a new process on the same disk.
        """
        self.crash()
        return self.start()

    def revive(self) -> None:
        """Boot the same ``main`` again unless the node is up."""
        if not self.alive:
            self.start()

    def crash(self) -> None:
        """Switch the power off.

        The process ends between two steps, and the disk keeps any torn subset of the unsynced data.
        """
        process = self.process
        if process is None or not process.alive:
            return
        self._trace(f"crash {process}")
        process.alive = False
        _ = self.clock.go_on()
        self.disk.crash()
        for gone in process.at_death:
            gone()
        process.at_death.clear()

    def pause(self) -> None:
        """Stop the process like SIGSTOP: it does not run, peers get nothing from it, messages for
        it wait.
        """
        if self.process is not None and self.process.alive and not self.process.paused:
            self._trace(f"pause {self.process}")
            self.process.paused = True

    def suspend(self) -> None:
        """Put the machine to sleep: like ``pause``, and its clock stands still."""
        if self.alive and not self.paused:
            self.pause()
            self.clock.stop()

    def resume(self) -> None:
        """Continue the process like SIGCONT, or wake the machine."""
        process = self.process
        if process is None or not process.alive or not process.paused:
            return
        self._trace(f"resume {process}")
        process.paused = False
        since = self.clock.go_on()
        if since is None:
            self._loop.put_back(process.aside)
        else:
            self._loop.take_up(process, since)
        process.aside = []

    def expect(self, *errors: type[BaseException]) -> None:
        """Let any task of the program raise these errors without failing the seed, from now on.

        For tests of one thing. A cluster excuses the end of a program by the name of the task, with
        ``start_errors`` and ``disk_tasks``.
        """
        self.expected_errors += errors

    def expect_at_start(self, *errors: type[BaseException]) -> None:
        """Let the program end with these errors before it is ready without failing the seed, from
        now on.
        """
        self.start_errors += errors

    def _may_end(self, name: str, error: BaseException) -> bool:
        fault = injected_fault(error)
        injected = fault is not None and (fault.errno != errno.ENOSPC or self.full_disk_ends)
        if name == self._main_name:
            # A program may check the free space and refuse to start.
            full = (
                isinstance(error, OSError)
                and error.errno == errno.ENOSPC
                and self.disk.capacity_bytes < CAPACITY_BYTES
            )
            return injected or full or isinstance(error, self.start_errors)
        return injected and name in self.disk_tasks

    def report(self, what: str, error: BaseException) -> None:
        """Record an error that no caller caught. It fails the seed unless it was expected."""
        if not isinstance(error, self.expected_errors):
            self._loop.failures.append((f"{self.process}: {what}", error))

    async def run(self, work: Callable[[World], Coroutine[Any, Any, T]]) -> T:
        """Run ``work(world)`` inside the node and wait for it from the scenario.

        Raises ``NodeDied`` when the node dies first.
        """
        process, world = self.process, self.world
        if process is None or world is None or not process.alive:
            raise NodeDied(f"{self.name} is down")
        answer: asyncio.Future[T] = self._loop.create_future()

        def died() -> None:
            if not answer.done():
                answer.set_exception(NodeDied(f"{process} died"))

        def ended(task: asyncio.Task[Any]) -> None:
            if answer.done():
                return
            if task.cancelled():
                answer.cancel()
                return
            error = task.exception()
            if error is None:
                answer.set_result(task.result())
            else:
                answer.set_exception(error)

        process.at_death.append(died)
        task = self._loop.create_task(
            work(world), name=f"{self.name}-run", context=process.context.copy()
        )
        task.reported = True
        task.add_done_callback(ended, context=process.context)
        try:
            return await answer
        finally:
            if died in process.at_death:
                process.at_death.remove(died)

    def ended_by(self, process: Process, task: str, error: BaseException) -> None:
        """End the process because one of its critical tasks has failed. Called in the node."""
        self._trace(f"end {process} {task}: {error!r}")
        self.ends.append(error)
        if not self._may_end(task, error):
            self.report(f"critical task {task} died", error)
        self.crash()
        if self.restart_after_seconds is not None:
            # A timer of no process: the supervisor of the machine, not of the program.
            self._loop.call_later(
                self.restart_after_seconds, self.revive, context=contextvars.Context()
            )
