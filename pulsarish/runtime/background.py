"""The event loop of all blocking clients of a process, in its own thread, and the seams of asyncio
clients in the program's loops.

The thread starts at the first use and ends quietly with the process. gRPC serves several event
loops of a process, but each of its events wakes all of them. Loops that find no event log an
exception; these log lines are dropped here.

After a fork the child has neither the thread nor a working gRPC core. The core cannot be started
again (tried with its fork support and both pollers). So clients made before the fork raise errors
in the child. New ones work: they have a loop and a thread of the child, and use gRPC through
``grpclib_connections.py``, which does not touch the core. The child never frees inherited gRPC
objects, because freeing waits for threads that only the parent has: the child's garbage collector
ignores everything that existed before the fork.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import uvloop

from pulsarish.model.errors import AlreadyClosed, ForkedProcess, NotAllowedError
from pulsarish.runtime.clock import SystemClock
from pulsarish.runtime.connections import RoutedConnections
from pulsarish.runtime.fresh_credentials import FreshConnections, FreshCredentials
from pulsarish.runtime.grpc.connections import GrpcConnections, start_core
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.network.dialing import Dialer
from pulsarish.runtime.network.endpoints import ConnectionLimits
from pulsarish.runtime.seams import ClientConnections, Tasks
from pulsarish.runtime.tasks import Supervisor
from pulsarish.security.client_security import PLAIN, ClientSecurity
from pulsarish.security.credentials import CredentialsSource, no_credentials

if TYPE_CHECKING:
    from pulsarish.runtime.grpc.grpclib_connections import GrpclibConnections

__all__ = [
    "Background",
    "ClientWorld",
    "Latch",
    "background",
    "client_world",
    "monotonic",
    "start_thread",
]

T = TypeVar("T")

_log = get_logger("background")

_SLEEP_SECONDS_MAX = 0.5
STOP_SECONDS = 3.0
"""How long the process waits at its end for connections to close."""


class Latch:
    """One thread waits for it, once; any thread releases it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def release(self) -> None:
        """Release the latch. Call it only once."""
        self._lock.release()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait. Return whether the latch was released in time. Signals interrupt the wait.

        It consists of short waits. A signal that arrives just before a thread falls asleep does not
        wake it, and is handled only when the thread wakes.
        """
        deadline = None if timeout_seconds is None else monotonic() + timeout_seconds
        while True:
            left = (
                _SLEEP_SECONDS_MAX
                if deadline is None
                else min(_SLEEP_SECONDS_MAX, deadline - monotonic())
            )
            if self._lock.acquire(timeout=max(0.0, left)):
                return True
            if deadline is not None and monotonic() >= deadline:
                return False


class Forkable(Protocol):
    """Is notified in the child that the process was forked."""

    def _on_fork(self, error: ForkedProcess) -> None: ...


def start_thread(name: str, work: Callable[[], None]) -> None:
    """Run ``work`` in a thread that does not keep the process alive."""
    threading.Thread(target=work, name=name, daemon=True).start()


def monotonic() -> float:
    return time.perf_counter()


class ClientWorld:
    """The production seams that a client needs. Made in the loop that uses them."""

    def __init__(self) -> None:
        # added once, however often the program asks
        logging.getLogger("asyncio").addFilter(_drop_idle_wakeups)
        self.clock = SystemClock()
        self.random = random.SystemRandom()  # as in ``production``
        # A failed task of a client must not end the program that uses it; the supervisor has logged
        # it.
        self.tasks = Supervisor(died=lambda _name, _error: None)
        self.connections = self._connections(PLAIN, no_credentials)
        self._own: dict[ClientConnections, RoutedConnections] = {}
        """Of clients that have a security of their own. No others may use them."""
        _process.worlds.add(self)

    def connections_of(self, security: ClientSecurity) -> ClientConnections:
        """Return connections for a client: those that clients without a security of their own
        share, or some of its own, which it gives back with ``release``.

        Raises ``ConfigError`` for certificate files that cannot be used.
        """
        if security == PLAIN:
            return self.connections
        credentials = FreshCredentials(security.provider)
        routed = self._connections(security, credentials.latest)
        own = FreshConnections(routed, credentials)
        self._own[own] = routed
        return own

    def _connections(
        self, security: ClientSecurity, credentials: CredentialsSource
    ) -> RoutedConnections:
        dialer = Dialer(security.tls, ConnectionLimits(), tunnel=security.tunnel)
        return RoutedConnections(
            _process.make_connections(self.tasks, dialer, credentials),
            tasks=self.tasks,
            credentials=credentials,
            dialer=dialer,
        )

    async def release(self, connections: ClientConnections) -> None:
        """Close the connections of a client, unless others share them."""
        own = self._own.pop(connections, None)
        if own is not None:
            await own.close()

    async def close(self) -> None:
        """End what is left: tasks, then connections."""
        await self.tasks.stop()
        for connections in list(self._own):
            await self.release(connections)
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
        """Whether this is the loop's own thread, in which no call may wait."""
        return threading.get_ident() == self._thread.ident

    def check_may_wait(self) -> None:
        """Raise ``NotAllowedError`` in the loop's own thread, where a wait would never end."""
        if self.is_own_thread():
            raise NotAllowedError(
                "a callback may not wait for the client: use send_async without "
                "block_if_queue_full, or another thread"
            )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for it. A ``KeyboardInterrupt`` cancels it."""
        future = self.begin(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the loop while this thread does something else.

        The caller waits for its result.
        """
        try:
            self.check_may_wait()
        except NotAllowedError:
            work.close()
            raise
        if self._loop.is_closed():
            work.close()
            raise AlreadyClosed("the process is ending: its clients are closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    # The end.

    def _forked(self) -> None:
        if not self.is_here():
            error = ForkedProcess(
                "this client was made before the process was forked: make a new client in the child"
            )
            for user in list(self._users):
                user._on_fork(error)

    def _stop(self) -> None:
        if not self.is_here() or self._loop.is_closed():
            return

        ending = asyncio.run_coroutine_threadsafe(self.world.close(), self._loop)
        try:
            ending.result(STOP_SECONDS)
        except Exception as error:  # noqa: BLE001
            # The process ends anyway; what it could not close, the system closes.
            _log.debug("not closed in time", reason=error)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_SECONDS)


def _is_idle_wakeup(exception: object, message: str) -> bool:
    """Whether gRPC woke a loop for an event that another loop has handled already, or that belongs
    to a closed loop.

    Nothing is lost: gRPC writes one byte for each event, so events that stay in its queue wake a
    loop again.
    """
    if "PollerCompletionQueue" not in message:
        return False
    return isinstance(exception, BlockingIOError) or (
        isinstance(exception, RuntimeError) and "loop is closed" in str(exception)
    )


def _drop_idle_wakeups(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not _is_idle_wakeup(record.exc_info[1], record.getMessage())


def _log_loop_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not _is_idle_wakeup(context.get("exception"), str(context.get("message"))):
        _log.error("event loop", exception=context.get("exception"), message=context.get("message"))


class _Process:
    """The clients' state in this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.background: Background | None = None
        self.worlds: weakref.WeakSet[ClientWorld] = weakref.WeakSet()
        self.inherited: list[object] = []
        """Objects of processes before a fork.

        Kept here, so that they are not freed when the program drops its last reference to a client.
        """
        self._uses_core = False
        """gRPC's C core was started, in this process or in one that it was forked from."""
        self._has_core = True
        """The core works here, or can be started."""

    def make_connections(
        self, tasks: Tasks, dialer: Dialer, credentials: CredentialsSource
    ) -> GrpcConnections | GrpclibConnections:
        """Return connections on gRPC's C core.

        Without it in the child of a process that used it, and for a client that does not check its
        servers in full, which the core always does.
        """
        if self._has_core and dialer.tls_config.is_strict:
            if not self._uses_core:
                self._uses_core = True
                start_core()
            return GrpcConnections(tasks=tasks, dialer=dialer, credentials=credentials)
        # Only these pay for the import.
        from pulsarish.runtime.grpc.grpclib_connections import GrpclibConnections

        return GrpclibConnections(tasks=tasks, dialer=dialer, credentials=credentials)

    def forked(self) -> None:
        self.lock = threading.Lock()  # another thread may have held it at the moment of the fork
        if not self._uses_core:
            return
        # Freeing an object of gRPC or of an event loop can crash here, or act on the parent's epoll
        # descriptor, which both processes share.
        gc.freeze()
        self.inherited += (self.background, *self.worlds)
        self.background = None
        self.worlds = weakref.WeakSet()
        self._has_core = False


_process = _Process()
os.register_at_fork(after_in_child=_process.forked)


def background() -> Background:
    """Return the process's loop for blocking clients."""
    with _process.lock:
        if _process.background is None:
            _process.background = Background()
        return _process.background


def client_world() -> ClientWorld:
    """Return the seams for the running loop."""
    with _process.lock:
        return ClientWorld()
