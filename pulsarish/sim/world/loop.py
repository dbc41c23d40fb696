"""The event loop of the simulator: virtual time, and an order of callbacks that only the seed
decides.

One seed gives one order of steps, in any process and at any time. A dead or paused node does not
run: just before the loop runs a callback, it checks the context variable ``current_process`` of the
callback. Everything that would let the real world in (threads, sockets, signals, executors) is
refused.

The loop uses CPython's private loop interface (``_run_once``, ``_stopping``, ``Handle`` fields), so
simulations run on version 3.11.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import random
import threading
import warnings
from asyncio import Handle, TimerHandle
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextvars import ContextVar
from types import CoroutineType
from typing import Any, NoReturn, Protocol, TypeVarTuple

__all__ = ["Deadlock", "Owner", "SimHandle", "SimLoop", "SimTask", "TimeLimit", "current_process"]

# A run of a seed takes some hundred thousand steps. A run that takes this many is in an endless
# loop.
STEPS_MAX = 30_000_000

# Work takes time: a ready callback runs this much later than the one before it. So a busy loop
# meets its own timeouts instead of hanging the run forever.
STEP_SECONDS = 1e-6


Ts = TypeVarTuple("Ts")


class Owner(Protocol):
    """What the loop must know of the process that a callback belongs to."""

    alive: bool
    paused: bool
    aside: list[SimHandle]


current_process: ContextVar[Owner | None] = ContextVar("current_process", default=None)


class Deadlock(Exception):
    """Nothing is ready and no timer is set, but the scenario has not ended."""


class TimeLimit(Exception):
    """The scenario has not ended within its virtual time."""


class SimHandle(Handle):
    """A ready callback, and the base of a timer: asyncio's own without the parts of its debug mode.

    Runs consist mostly of these.
    """

    __slots__ = ()
    _context: contextvars.Context
    _callback: Any
    _args: Any

    def __init__(
        self,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: SimLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None


class _Timer(SimHandle, TimerHandle):
    """A timer. A cancelled one leaves the heap at its time."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: SimLoop,
        context: contextvars.Context | None,
    ) -> None:
        SimHandle.__init__(self, callback, args, loop, context)
        self._when = when
        self._scheduled = False


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address, because the standard library
    iterates sets of tasks.
    """

    number: int
    owner: Owner | None
    born: float  # in virtual seconds
    reported = False  # another task awaits this task

    def __hash__(self) -> int:
        return self.number

    def place(self) -> str:
        """Return where the task waits: its coroutines from the outermost to the innermost that is
        visible.
        """
        names: list[str] = []
        waits_for: object = self.get_coro()
        while isinstance(waits_for, CoroutineType) and waits_for.cr_frame is not None:
            names.append(f"{waits_for.cr_code.co_qualname}:{waits_for.cr_frame.f_lineno}")
            waits_for = waits_for.cr_await
        return " > ".join(names) or "?"


def _close(work: Coroutine[Any, Any, Any]) -> None:
    """Close a coroutine. One that awaits in a "finally" block takes a close for each await."""
    while True:
        # A "finally" block of a dead node that calls a seam, which refuses, proves nothing.
        with contextlib.suppress(Exception, asyncio.CancelledError):
            work.close()
            return


def _refuse(what: str) -> Any:
    def refused(self: SimLoop, *args: object, **kwargs: object) -> NoReturn:
        raise RuntimeError(f"{what} lets the real world into a simulation")

    return refused


class SimLoop(asyncio.BaseEventLoop):
    """The event loop with virtual time.

    ``failures`` collects what callbacks and tasks raised and no caller caught.
    """

    def __init__(self, order: random.Random) -> None:
        super().__init__()
        self._stopping: bool
        self.set_debug(False)
        self.steps = 0
        self.time_limit = float("inf")
        self.failures: list[tuple[str, BaseException | None]] = []
        self._draw = order.random
        self._now = 0.0
        self._queue: list[SimHandle] = []
        self._timers: list[tuple[float, int, _Timer]] = []
        self._timer_count = 0
        self._tasks: list[SimTask] = []
        self._task_count = 0
        self._prune_at = 1024
        # dropped callbacks: freeing them would run "finally" blocks, which a crash does not run
        self._graveyard: list[SimHandle] = []
        self._ending = False

    # -- time and scheduling

    def time(self) -> float:
        return self._now

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> Handle:
        handle = SimHandle(callback, args, self, context)
        self._queue.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, timer))
        return timer

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> Handle:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("a thread lets the real world into a simulation")
        return self.call_soon(callback, *args, context=context)

    def _run_once(self) -> None:
        """Run rounds until the loop is stopped.

        Each round runs all callbacks that are ready then, in an order drawn from the seed.
        """
        while not self._stopping:
            queue = self._ready_now()
            self._queue = []
            if len(queue) > 1:
                draw = self._draw
                for last in range(len(queue) - 1, 0, -1):
                    other = int(draw() * (last + 1))
                    queue[last], queue[other] = queue[other], queue[last]
            for handle in queue:
                if handle._cancelled:
                    continue
                context = handle._context
                owner = context.get(current_process)
                if owner is not None:
                    if not owner.alive:
                        self._graveyard.append(handle)
                        continue
                    if owner.paused:
                        owner.aside.append(handle)
                        continue
                self.steps += 1
                try:
                    context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001
                    # Whatever it is, it is gathered as a failure.
                    self.call_exception_handler(
                        {"message": f"exception in {handle!r}", "exception": error}
                    )

    def _ready_now(self) -> list[SimHandle]:
        """Return the callbacks of the next round, in the order in which they became ready.

        If none is ready, advance the time to the next timer.
        """
        timers, queue = self._timers, self._queue
        if not queue:
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers:
                raise Deadlock(self.describe_waiting())
            self._now = max(self._now, timers[0][0])
        now = self._now = self._now + STEP_SECONDS
        if now > self.time_limit:
            raise TimeLimit(
                f"not done after {self.time_limit:g} virtual seconds\n{self.describe_waiting()}"
            )
        if self.steps > STEPS_MAX:
            raise TimeLimit(
                f"not done after {self.steps} steps, at {now:g} virtual "
                f"seconds\n{self.describe_waiting()}"
            )
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)[2]
            if not timer._cancelled:
                queue.append(timer)
        return queue

    def put_back(self, handles: list[SimHandle]) -> None:
        """Run the callbacks that were kept while their process was paused."""
        self._queue.extend(handles)

    def take_up(self, owner: Owner, since: float) -> None:
        """Continue a process whose clock stood still from ``since`` on.

        Its timers keep the time that they had left.
        """
        seconds = self._now - since
        late = [timer for timer in owner.aside if isinstance(timer, _Timer) and timer._when > since]
        self.put_back(
            [
                handle
                for handle in owner.aside
                if not (isinstance(handle, _Timer) and handle._when > since)
            ]
        )
        mine = [
            timer for _, _, timer in self._timers if timer._context.get(current_process) is owner
        ]
        self._timers = [
            entry for entry in self._timers if entry[2]._context.get(current_process) is not owner
        ]
        heapq.heapify(self._timers)
        for timer in (*late, *mine):
            timer._when += seconds
            self._timer_count += 1
            heapq.heappush(self._timers, (timer._when, self._timer_count, timer))

    # -- tasks

    def create_task(
        self, coro: Any, *, name: object = None, context: contextvars.Context | None = None
    ) -> SimTask:
        self._task_count += 1
        # The number must exist before the constructor registers the task in a set of the standard
        # library.
        task = SimTask.__new__(SimTask)
        task.number = self._task_count
        task.born = self._now
        task.owner = current_process.get() if context is None else context.get(current_process)
        task.__init__(coro, loop=self, name=str(name or f"task-{task.number}"), context=context)  # type: ignore[misc]
        self._tasks.append(task)
        if len(self._tasks) >= self._prune_at:
            self._prune()
        return task

    def _prune(self) -> None:
        """Forget finished tasks.

        The others stay alive here: a coroutine that is freed runs its ``finally`` blocks.
        """
        self._tasks = [task for task in self._tasks if not task.done() or task._log_traceback]
        self._prune_at = 2 * len(self._tasks) + 1024

    def gather_failures(self) -> None:
        """Collect failures at the end of a run, while processes still live: tasks that died with an
        exception that no caller caught.
        """
        for task in self._tasks:
            alive = task.owner is None or task.owner.alive
            if task.done() and alive and task._log_traceback and not task.reported:
                self.failures.append(
                    (f"{task.owner or 'scenario'}: task {task.get_name()} died", task.exception())
                )

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._ending:
            return
        owner = current_process.get()
        if owner is None or owner.alive:
            self.failures.append(
                (f"{owner or 'scenario'}: {context.get('message', '?')}", context.get("exception"))
            )

    def waiting(self) -> Iterator[SimTask]:
        """Return the tasks that are not done, without those of dead processes."""
        return (
            task
            for task in self._tasks
            if not task.done() and (task.owner is None or task.owner.alive)
        )

    def describe_waiting(self) -> str:
        """Return which tasks of live processes wait, and where, for the report of a deadlock."""
        lines = [
            f"  {task.owner or 'scenario'}: {task.get_name()} waits in {task.place()}"
            for task in self.waiting()
        ]
        return "\n".join(lines[:60]) or "  no task waits"

    def end(self) -> None:
        """Close the remaining tasks in creation order while the loop is open.

        All processes must be dead.
        """
        self._ending = True
        with warnings.catch_warnings():
            # A crash may stop a task after it made a generator's aclose() and before it awaited it.
            # Python 3.13 warns of that.
            warnings.filterwarnings(
                "ignore", message="coroutine method 'aclose'", category=RuntimeWarning
            )
            # What a "finally" block spawns belongs to this loop, not to one of an earlier test.
            asyncio.events._set_running_loop(self)
            try:
                self._drop_everything()
            finally:
                asyncio.events._set_running_loop(None)
        self.close()

    def _drop_everything(self) -> None:
        while self._tasks:
            left, self._tasks = self._tasks, []
            for task in left:
                if task.done():
                    task._log_traceback = False
                    continue
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                work: Coroutine[Any, Any, Any] = task.get_coro()  # type: ignore[assignment]
                _close(work)
        self._queue.clear()
        self._timers.clear()
        self._graveyard.clear()

    run_in_executor = _refuse("an executor")
    getaddrinfo = _refuse("name resolution")
    getnameinfo = _refuse("name resolution")
    create_connection = _refuse("a socket")
    create_server = _refuse("a socket")
    create_datagram_endpoint = _refuse("a socket")
    connect_accepted_socket = _refuse("a socket")
    sock_connect = _refuse("a socket")
    sock_recv = _refuse("a socket")
    sock_sendall = _refuse("a socket")
    add_reader = _refuse("a file descriptor")
    add_writer = _refuse("a file descriptor")
    subprocess_exec = _refuse("a subprocess")
    subprocess_shell = _refuse("a subprocess")
    add_signal_handler = _refuse("a signal")
