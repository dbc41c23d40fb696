"""One volume of a bookie that may have several: its store, and what waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence

from pulsarish.bookie.adds import read_heads, refused
from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.store import EntryStore
from pulsarish.model.errors import BookieIOError
from pulsarish.runtime.containment import Critical, Scope
from pulsarish.runtime.seams import File, Files, Tasks
from pulsarish.wire.bookie import AddResult

__all__ = ["Answer", "Volume", "VolumeAdd", "VolumeFiles", "VolumeTasks", "uncordoned"]

Answer = Callable[[list[AddResult]], None]
Guard = Callable[["Volume", Coroutine[object, object, None]], Coroutine[object, object, None]]
"""Runs a task of a volume, and raises its error only when that must end the process."""


class Volume:
    """One volume of a bookie. ``opened`` completes it."""

    def __init__(self, name: str, config: BookieConfig) -> None:
        self.name = name
        self.config = config
        self.free_bytes = 0
        """The least free space of its directories."""
        self.ledger_free_bytes = 0
        """The free space for entry logs."""
        self.space_reason = ""
        """Why it is read-only for lack of space, and what helps; empty: it is not."""
        self.cordon_reason = ""
        """Why it takes no new ledgers, and how to end that; empty: it is not cordoned."""
        self.failure: Exception | None = None
        self.is_settled = False
        """Whether all other volumes know durably that this one has failed or was removed."""
        self.is_removed = False
        """Whether an operator has removed it: ``failure`` says so, too."""
        self.highest = -1
        """No ledger above this one was ever in the volume."""
        self.adds: dict[int, VolumeAdd] = {}
        """The batches on their way, by number."""
        self._store: EntryStore | None = None

    async def opened(self, store: EntryStore) -> None:
        """Take the opened store. Raises ``BookieIOError``."""
        self.highest = await store.highest_ledger()
        self._store = store

    @property
    def is_open(self) -> bool:
        return self._store is not None

    @property
    def store(self) -> EntryStore:
        assert self._store is not None, "the volume is not open"
        return self._store

    @property
    def where(self) -> str:
        return ", ".join(self.config.paths)

    @property
    def takes_ledgers(self) -> bool:
        """Whether it takes new ledgers of writers."""
        return self.store.is_writable and not self.cordon_reason

    @property
    def state(self) -> int:
        """1: it takes new ledgers; 0: it does not; -1: it has failed."""
        return -1 if self.failure is not None else int(self.takes_ledgers)


class VolumeAdd:
    """A batch that a volume is adding. It is answered once: by the store, or when the volume
    fails.
    """

    __slots__ = ("_answer", "_number", "_records", "_volume")

    def __init__(
        self, volume: Volume, number: int, records: Sequence[memoryview], answer: Answer
    ) -> None:
        self._volume = volume
        self._number = number
        self._records = records
        self._answer = answer
        volume.adds[number] = self

    def answer(self, results: list[AddResult]) -> None:
        if self._volume.adds.pop(self._number, None) is not None:
            self._answer(results)

    def drop(self) -> None:
        """Answer nothing: the caller gets an exception."""
        self._volume.adds.pop(self._number, None)

    def fail(self) -> None:
        heads = read_heads(self._records)
        self.answer(refused(heads, range(len(heads)), BookieIOError.code))


class VolumeFiles:
    """The files of one of several volumes: its lanes are its own, so that no disk waits for
    another.
    """

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self._name = name

    async def open(
        self, path: str, *, lane: str, create: bool = False, reserve_bytes: int = 0
    ) -> File:
        return await self._files.open(
            path, lane=f"{lane} {self._name}", create=create, reserve_bytes=reserve_bytes
        )

    async def replace(self, path: str, content: bytes) -> None:
        await self._files.replace(path, content)

    async def rename(self, path: str, new_path: str) -> None:
        await self._files.rename(path, new_path)

    async def remove(self, paths: Sequence[str]) -> None:
        await self._files.remove(paths)

    async def list(self, directory: str) -> Sequence[str]:
        return await self._files.list(directory)

    async def free_bytes(self, directory: str) -> int:
        return await self._files.free_bytes(directory)

    async def lock(self, directory: str) -> None:
        await self._files.lock(directory)

    async def unlock(self, directory: str) -> None:
        await self._files.unlock(directory)


class VolumeTasks:
    """The tasks of one of several volumes: an error of its disk ends the volume, not the node."""

    def __init__(self, tasks: Tasks, guard: Guard, volume: Volume) -> None:
        self._tasks = tasks
        self._guard = guard
        self._volume = volume
        self.contained_failures = tasks.contained_failures

    def spawn(
        self,
        work: Coroutine[object, object, None],
        *,
        name: str,
        critical: Critical | None = None,
        scope: Scope | None = None,
    ) -> asyncio.Task[None]:
        name = f"{name} {self._volume.name}" if self._volume.name else name
        return self._tasks.spawn(
            self._guard(self._volume, work), name=name, critical=critical, scope=scope
        )

    def contain(self, task: str, error: BaseException, scope: Scope) -> None:
        self._tasks.contain(task, error, scope)


def uncordoned(volumes: Sequence[Volume]) -> Sequence[Volume]:
    """Return the volumes that are not cordoned, or all when all are."""
    return [volume for volume in volumes if not volume.cordon_reason] or volumes
