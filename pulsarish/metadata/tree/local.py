"""The metadata tree in the node's own process: ``memory:`` and ``embedded:DIR``.

One ``LocalTree`` may serve several nodes of a process (standalone): each has a ``LocalStore`` with
a session of its own. A session here never expires, because its holder lives and dies with the tree.
Sessions that a crash left behind are closed when the tree is opened.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from pulsarish.metadata.tree.engine import Engine, Job
from pulsarish.metadata.tree.nodes import Committed, Event, EventKind, Refused
from pulsarish.metadata.tree.translate import answers, check_ops, refusal_error, tree_ops, versioned
from pulsarish.metadata.tree.tree import Tree
from pulsarish.metadata.tree.watches import Watch, WatchTable
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.seams import (
    Clock,
    Conflict,
    ConflictReason,
    KeyValueIndex,
    Op,
    SessionLost,
    SessionState,
    Tasks,
    Versioned,
)

__all__ = ["LocalStore", "LocalTree"]

_NO_EXPIRY_MS: Final = 2**31 - 1
_PASSWORD: Final = bytes(16)

_T = TypeVar("_T")


class LocalTree:
    """One tree and the stores over it. Make it with ``open``."""

    def __init__(
        self,
        tree: Tree,
        index: KeyValueIndex | None,
        clock: Clock,
        tasks: Tasks,
        rng: random.Random,
    ) -> None:
        self.clock = clock
        self.zxid = 0
        """The last durable transaction of the tree; 0 before the first answer."""
        self.engine = Engine(tree, index, clock, tasks, self._event, self._delivered)
        self._index = index
        self._random = rng
        self._stores: dict[int, LocalStore] = {}

    @classmethod
    async def open(
        cls, index: KeyValueIndex | None, tree: Tree, clock: Clock, tasks: Tasks, rng: random.Random
    ) -> LocalTree:
        """Open a tree that is kept in ``index``, or in memory only (None)."""
        local = cls(tree, index, clock, tasks, rng)
        # The holders of these sessions died with the process that had the tree open.
        await asyncio.gather(*[local.end_session(session_id) for session_id in list(tree.sessions)])
        return local

    async def new_store(self, *, closes_tree: bool = False) -> LocalStore:
        """Return a store with a new session.

        ``closes_tree``: it is the only store, and its ``close`` closes the tree, too.
        """
        session_id = self._random.getrandbits(63) | 1
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        store = LocalStore(self, session_id, closes_tree=closes_tree)
        self._stores[session_id] = store
        self.engine.submit(_OpenSession(session_id, done))
        await done
        return store

    async def end_session(self, session_id: int) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.engine.submit(_CloseSession(session_id, done))
        await done
        self._stores.pop(session_id, None)

    async def close(self) -> None:
        """Finish all jobs, then close the index. Close the stores before."""
        await self.engine.stop()
        if self._index is not None:
            await self._index.close()

    def _event(self, event: Event) -> None:
        store = self._stores.get(event.session_id)
        if store is not None:
            store.fire(event)

    def _delivered(self) -> None:
        self.zxid = self.engine.tree.zxid


class LocalStore:
    """A ``MetadataStore`` over a ``LocalTree``."""

    def __init__(self, local: LocalTree, session_id: int, *, closes_tree: bool) -> None:
        self.session_id = session_id
        self.state = SessionState.CONNECTED
        self._local = local
        self._closes_tree = closes_tree
        self._listeners: list[Callable[[SessionState], None]] = []
        self._data_watches = WatchTable()
        self._child_watches = WatchTable()

    @property
    def zxid(self) -> int:
        return self._local.zxid

    @property
    def answered_at(self) -> float:
        return self._local.clock.monotonic()

    def listen(self, changed: Callable[[SessionState], None]) -> None:
        self._listeners.append(changed)

    async def get_many(
        self, paths: Sequence[str], *, watch: Watch | None = None
    ) -> list[Versioned | None]:
        future: asyncio.Future[list[Versioned | None]] = asyncio.get_running_loop().create_future()
        self._submit(_Get(self, paths, watch, future))
        return await future

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        future: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._submit(_Children(self, path, watch, future))
        return await future

    async def commit(self, ops: Sequence[Op]) -> list[str | int]:
        check_ops(ops)
        future: asyncio.Future[list[str | int]] = asyncio.get_running_loop().create_future()
        self._submit(_Commit(self, ops, self._local.clock.wall_ms(), future))
        return await future

    async def sync(self, path: str) -> None:
        """Wait for a turn in the queue.

        There is one tree, and reads queue behind the commits before them.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._submit(_Sync(future))
        await future

    async def close(self) -> None:
        if self.state is SessionState.LOST:
            return
        self.state = SessionState.LOST
        await self._local.end_session(self.session_id)
        if self._closes_tree:
            await self._local.close()
        self._data_watches.fire_all()
        self._child_watches.fire_all()
        for changed in self._listeners:
            changed(self.state)

    def _submit(self, job: Job) -> None:
        if self.state is SessionState.LOST:
            raise SessionLost("the store is closed")
        self._local.engine.submit(job)

    def register(self, path: str, watch: Watch, *, children: bool) -> None:
        """Register a watch when the read that set it is answered, so that an event of an earlier
        commit does not fire it.
        """
        (self._child_watches if children else self._data_watches).add(path, watch)

    def fire(self, event: Event) -> None:
        if event.kind is not EventKind.CHILD:
            self._data_watches.fire(event.path)
        if event.kind in (EventKind.CHILD, EventKind.DELETED):
            self._child_watches.fire(event.path)


def _answer(future: asyncio.Future[_T], value: _T) -> None:
    if not future.done():  # the caller may have been cancelled
        future.set_result(value)


class _LocalJob:
    size_bytes = 0  # batches are limited against peers, and this is the process itself
    _future: asyncio.Future[Any]

    @property
    def scope(self) -> Scope:
        return Scope(ScopeKind.TASK, type(self).__name__, self._failed)

    def _failed(self, error: BaseException) -> None:
        if not self._future.done():
            self._future.set_exception(error)


class _OpenSession(_LocalJob):
    def __init__(self, session_id: int, future: asyncio.Future[None]) -> None:
        self._session_id = session_id
        self._future = future

    def run(self, tree: Tree) -> Committed | None:
        return tree.open_session(self._session_id, _PASSWORD, _NO_EXPIRY_MS, 0)

    def deliver(self) -> None:
        _answer(self._future, None)


class _CloseSession(_LocalJob):
    def __init__(self, session_id: int, future: asyncio.Future[None]) -> None:
        self._session_id = session_id
        self._future = future

    def run(self, tree: Tree) -> Committed | None:
        return tree.close_session(self._session_id)

    def deliver(self) -> None:
        _answer(self._future, None)


class _Get(_LocalJob):
    def __init__(
        self,
        store: LocalStore,
        paths: Sequence[str],
        watch: Watch | None,
        future: asyncio.Future[list[Versioned | None]],
    ) -> None:
        self._store = store
        self._paths = paths
        self._watch = watch
        self._future = future
        self._found: list[Versioned | None] = []

    def run(self, tree: Tree) -> Committed | None:
        for path in self._paths:
            node = tree.get(path)
            self._found.append(None if node is None else versioned(node))
            if self._watch is not None:
                tree.watch_data(self._store.session_id, path)
        return None

    def deliver(self) -> None:
        if self._watch is not None:
            for path in self._paths:
                self._store.register(path, self._watch, children=False)
        _answer(self._future, self._found)


class _Children(_LocalJob):
    def __init__(
        self, store: LocalStore, path: str, watch: Watch | None, future: asyncio.Future[list[str]]
    ) -> None:
        self._store = store
        self._path = path
        self._watch = watch
        self._future = future
        self._found: list[str] | None = None

    def run(self, tree: Tree) -> Committed | None:
        self._found = tree.children(self._path)
        if self._watch is not None and self._found is not None:
            tree.watch_children(self._store.session_id, self._path)
        return None

    def deliver(self) -> None:
        if self._found is None:
            if not self._future.done():
                self._future.set_exception(Conflict(0, ConflictReason.NO_NODE, self._path))
            return
        if self._watch is not None:
            self._store.register(self._path, self._watch, children=True)
        _answer(self._future, self._found)


class _Sync(_LocalJob):
    """A job that changes nothing.

    Decided commits may not be durable yet; when this job is delivered, they are.
    """

    def __init__(self, future: asyncio.Future[None]) -> None:
        self._future = future

    def run(self, tree: Tree) -> Committed | None:
        return None

    def deliver(self) -> None:
        _answer(self._future, None)


class _Commit(_LocalJob):
    def __init__(
        self,
        store: LocalStore,
        ops: Sequence[Op],
        wall_ms: int,
        future: asyncio.Future[list[str | int]],
    ) -> None:
        self._session_id = store.session_id
        self._ops = ops
        self._wall_ms = wall_ms
        self._future = future
        self._outcome: Committed | Refused | None = None

    def run(self, tree: Tree) -> Committed | None:
        self._outcome = tree.commit(self._session_id, tree_ops(self._ops), self._wall_ms)
        return self._outcome if isinstance(self._outcome, Committed) else None

    def deliver(self) -> None:
        if self._future.done():
            return
        if isinstance(self._outcome, Committed):
            self._future.set_result(answers(self._ops, self._outcome))
        elif self._outcome is not None:
            self._future.set_exception(refusal_error(self._ops, self._outcome))
