"""One event loop in a thread of its own, for all blocking faces of a process.

gRPC works in one event loop a process only, so there is one such thread, made at the first use and ended quietly at the process's end.
After a fork the thread and gRPC's state are gone in the child: whoever registered is told there, and refuses.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import uvloop

from pulsarish.model.errors import AlreadyClosed, ForkedProcess, NotAllowed
from pulsarish.runtime.clock import SystemClock
from pulsarish.runtime.connections import GrpcConnections
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.tasks import Supervisor

__all__ = ["Background", "ClientWorld", "Latch", "background", "claim_loop", "monotonic", "start_thread"]

T = TypeVar("T")

_log = get_logger("background")

_SLEEP_SECONDS_MAX = 0.5
STOP_SECONDS = 3.0
"""How long the process's end waits for connections to be closed."""


class Latch:
    """Waited for once by one thread, released by any."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def release(self) -> None:
        """Once only."""
        self._lock.release()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Whether it was released in time. Signals interrupt the wait.

        It is made of short ones: a signal that comes in the instant before a thread falls asleep does not wake it, and is dealt with only
        when it wakes.
        """
        deadline = None if timeout_seconds is None else monotonic() + timeout_seconds
        while True:
            left = _SLEEP_SECONDS_MAX if deadline is None else min(_SLEEP_SECONDS_MAX, deadline - monotonic())
            if self._lock.acquire(timeout=max(0.0, left)):
                return True
            if deadline is not None and monotonic() >= deadline:
                return False


class Forkable(Protocol):
    """Is told in the child that the process was forked."""

    def forked(self, error: ForkedProcess) -> None: ...


def start_thread(name: str, work: Callable[[], None]) -> None:
    """Run ``work`` in a thread that does not keep the process alive."""
    threading.Thread(target=work, name=name, daemon=True).start()


def monotonic() -> float:
    return time.perf_counter()


class ClientWorld:
    """The production seams that a client needs. Made in the loop that uses them."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.random = random.Random(int.from_bytes(os.urandom(16)))  # ids and schedules, never secrets
        # A client's task that dies must not end the program that uses it; the supervisor has logged it.
        self.tasks = Supervisor(died=lambda _name, _error: None)
        self.connections = GrpcConnections(tasks=self.tasks)

    async def close(self) -> None:
        """End what is left: tasks, then connections."""
        await self.tasks.stop()
        await self.connections.close()


class Background:
    """The loop, its thread, and the production seams that live in it."""

    world: ClientWorld

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._users: weakref.WeakSet[Forkable] = weakref.WeakSet()
        self._loop = uvloop.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulsarish", daemon=True)
        self._thread.start()
        self._ready.wait()
        atexit.register(self._stop)
        os.register_at_fork(after_in_child=self._forked)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(_log_loop_exception)
        self._loop.call_soon(self._build)
        self._loop.run_forever()
        self._loop.close()

    def _build(self) -> None:
        self.world = ClientWorld()
        self._ready.set()

    def is_here(self) -> bool:
        """Whether this is the process in which it was made."""
        return self._pid == os.getpid()

    def add_user(self, user: Forkable) -> None:
        self._users.add(user)

    # From other threads.

    def lock(self) -> threading.Lock:
        return threading.Lock()

    def post(self, work: Callable[[], None]) -> None:
        """Run ``work`` in the loop soon. Does nothing once the process is ending."""
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def is_own_thread(self) -> bool:
        """Whether this is the loop's own thread, in which nothing may wait."""
        return threading.get_ident() == self._thread.ident

    def check_may_wait(self) -> None:
        """Raises ``NotAllowed`` in the loop's own thread, where waiting would wait for ever."""
        if self.is_own_thread():
            raise NotAllowed("a callback may not wait for the client: use send_async without block_if_queue_full, or another thread")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for it. A ``KeyboardInterrupt`` cancels it."""
        future = self.begin(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop while this thread does something else; who asks for its result waits for it."""
        try:
            self.check_may_wait()
        except NotAllowed:
            work.close()
            raise
        if self._loop.is_closed():
            work.close()
            raise AlreadyClosed("the process is ending: its clients are closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    # The end.

    def _forked(self) -> None:
        if not self.is_here():
            # Another thread may have held it at the moment of the fork.
            _process.lock = threading.Lock()
            error = ForkedProcess("this client was made before the process was forked: make clients in processes that are started by exec")
            for user in list(self._users):
                user.forked(error)

    def _stop(self) -> None:
        if not self.is_here() or self._loop.is_closed():
            return

        ending = asyncio.run_coroutine_threadsafe(self.world.close(), self._loop)
        try:
            ending.result(STOP_SECONDS)
        except Exception as error:  # noqa: BLE001 - the process ends anyway; what it could not close, the system closes
            _log.debug("not closed in time", reason=error)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_SECONDS)


def _log_loop_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    _log.error("event loop", exception=context.get("exception"), message=context.get("message"))


class _Process:
    """Which event loop of this process uses gRPC."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.background: Background | None = None
        self.other: weakref.ref[asyncio.AbstractEventLoop] | None = None

    def other_loop(self) -> asyncio.AbstractEventLoop | None:
        """A loop of the program's own that uses gRPC, while it is open."""
        loop = self.other() if self.other is not None else None
        return loop if loop is not None and not loop.is_closed() else None


_process = _Process()


def background() -> Background:
    """The process's one. Raises ``ForkedProcess`` in the child of a fork, ``NotAllowed`` beside an asyncio client."""
    with _process.lock:
        if _process.background is None:
            if _process.other_loop() is not None:
                raise NotAllowed("pulsarish.asyncio is in use, and gRPC works in one event loop a process: use one of the two")
            _process.background = Background()
        elif not _process.background.is_here():
            raise ForkedProcess("clients were used before this process was forked: make clients in processes that are started by exec")
        return _process.background


def claim_loop() -> ClientWorld:
    """Seams in the running loop, which becomes the one of this process that uses gRPC. Raises ``NotAllowed`` when another one does."""
    loop = asyncio.get_running_loop()
    with _process.lock:
        if _process.background is not None or _process.other_loop() not in (None, loop):
            raise NotAllowed("gRPC works in one event loop a process, and another one uses it: use pulsarish.Client or one loop")
        _process.other = weakref.ref(loop)
    return ClientWorld()
