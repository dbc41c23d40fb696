"""A node's one ephemeral registration, kept over sessions: made, watched, and made again in each new session.

The registration of another session is never deleted, however stale it looks: it is waited for. A process that was restarted quickly finds
that of its own past, which ends with the old session's time-out; one that finds a living twin must not serve.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pulsarish.model.errors import AlreadyExists
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock, Conflict, ConflictReason, MetadataStore, Op, OutcomeUnknown, SessionLost, SessionState, Tasks

__all__ = ["Registration", "register"]

_RETRY_SECONDS: Final = 0.05
_log = get_logger("metadata.registration")


def _nothing() -> None:
    pass


class Registration:
    """Made by ``register``."""

    def __init__(
        self,
        store: MetadataStore,
        path: str,
        data: bytes,
        clock: Clock,
        wait_seconds: float,
        on_registered: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        self.registered = False
        self.path = path
        self._store = store
        self._data = data
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._on_registered = on_registered
        self._on_lost = on_lost
        self._poked = asyncio.Event()
        self._closed = False
        self._own_sessions: set[int] = set()
        self.keeper: asyncio.Task[None] | None = None
        store.listen(self._session_changed)

    async def close(self) -> None:
        """Withdraw. When the store does not answer, the node ends with the session."""
        self._closed = True
        self._poked.set()
        self.registered = False
        try:
            (node,) = await self._store.get_many([self.path])
            if node is not None and node.session_id == self._store.session_id:
                await self._store.commit([Op("delete", self.path, version=node.version)])
        except (Conflict, OutcomeUnknown, SessionLost) as error:
            _log.warning("registration left to its session", path=self.path, reason=str(error))

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST and self.registered:
            self.registered = False
            _log.warning("registration lost with its session", path=self.path)
            self._on_lost()
        self._poked.set()

    def _poke(self, path: str) -> None:
        self._poked.set()

    async def keep(self) -> None:
        """Look again whenever the node or the session changed. Raises ``AlreadyExists`` when another process has taken the place."""
        while not self._closed:
            await self._poked.wait()
            await self.acquire()

    async def acquire(self) -> None:
        """Return once the node is there and this session's, and a watch is on it. Raises ``AlreadyExists``."""
        deadline: float | None = None
        while not self._closed:
            self._poked.clear()
            if self._store.state is not SessionState.CONNECTED:
                await self._poked.wait()
                continue
            session_id = self._store.session_id
            try:
                (node,) = await self._store.get_many([self.path], watch=self._poke)
                if node is None:
                    self._own_sessions.add(session_id)
                    await self._store.commit([Op("create_ephemeral", self.path, self._data)])
                    continue
                if node.session_id == session_id and node.data != self._data:
                    await self._store.commit([Op("put", self.path, self._data, node.version)])
                    continue
            except (OutcomeUnknown, SessionLost):
                await self._clock.sleep(_RETRY_SECONDS)
                continue
            except Conflict as conflict:
                if conflict.reason is ConflictReason.NO_NODE and conflict.path == self.path and await self._parent_is_missing():
                    raise
                continue  # somebody was faster, in either direction: look again
            if node.session_id == session_id:
                self._has_registered()
                return
            deadline = await self._wait_for_the_other(node.session_id, deadline)

    async def _parent_is_missing(self) -> bool:
        try:
            (parent,) = await self._store.get_many([self.path[: self.path.rfind("/")] or "/"])
        except (OutcomeUnknown, SessionLost):
            return False
        return parent is None

    def _has_registered(self) -> None:
        if not self.registered:
            self.registered = True
            _log.info("registered", path=self.path, session=f"{self._store.session_id:#x}")
            self._on_registered()

    async def _wait_for_the_other(self, session_id: int, deadline: float | None) -> float | None:
        """Until something changes, or the time is over; the deadline, which begins with the first strange session that is seen."""
        if session_id in self._own_sessions:
            await self._poked.wait()  # this process's own past: nobody else is there, however long it takes to end
            return deadline
        now = self._clock.monotonic()
        if deadline is None:
            _log.info("waiting for the registration of another session to end", path=self.path, session=f"{session_id:#x}")
            deadline = now + self._wait_seconds
        taken = session_id == 0 or now >= deadline
        if not taken:
            try:
                async with self._clock.timeout(deadline - now):
                    await self._poked.wait()
            except TimeoutError:
                taken = True
        if taken:
            raise AlreadyExists(
                f"{self.path} is registered by another process (session {session_id:#x}) and stayed so for {self._wait_seconds:g} s; "
                "two processes must not run with the same identity"
            )
        return deadline


async def register(
    store: MetadataStore,
    path: str,
    data: bytes,
    *,
    clock: Clock,
    tasks: Tasks,
    wait_seconds: float,
    on_registered: Callable[[], None] = _nothing,
    on_lost: Callable[[], None] = _nothing,
) -> Registration:
    """Make the ephemeral node ``path`` (its parent must exist) and keep it, in every later session too, until ``Registration.close``.

    Args:
        wait_seconds: how long to wait for the node of another session to end; a little more than the session time-out.
        on_registered: called each time the node has been made and seen.
        on_lost: called when the session is lost; the holder stops what it did in the node's name.

    Raises ``AlreadyExists`` when another process keeps the node. Later the same error ends the task that keeps it, which is critical.
    """
    registration = Registration(store, path, data, clock, wait_seconds, on_registered, on_lost)
    await registration.acquire()
    registration.keeper = tasks.spawn(registration.keep(), name=f"registration {path}")
    return registration
