"""Back up the whole tree while the cluster runs, and find what is still being restored.

A backup promises three things. Each node is as it was committed at some moment between the backup's
begin and end. Ephemeral nodes are left out. Every ledger that a topic or a cursor of the backup
names is in the backup, too, unless the tree itself has no such ledger. Topics are read before
ledgers, and the counter of ledger ids last. So only a deletion in between can leave a name without
its ledger, and such topics are read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from pulsarish.metadata import paths
from pulsarish.metadata.backup.file_format import BackupFooter, BackupWriter
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import CursorRecord, RestoredTree, TopicRecord
from pulsarish.model.errors import MetadataUnavailable, ServiceNotReady
from pulsarish.runtime.seams import Clock, Conflict, Versioned
from pulsarish.wire.json_record import decode_record

__all__ = ["TreeReader", "back_up", "check_not_being_restored", "ledgers_named"]

_PAGE: Final = 200  # nodes requested at a time
_ATTEMPTS_MAX: Final = 10
_WAIT_SECONDS: Final = 0.5
_SETTLE_ROUNDS_MAX: Final = 10
_ROOT: Final = "/"
_NOT_OURS: Final = "/zookeeper"  # ZooKeeper's own, when the root has no chroot


def ledgers_named(path: str, data: bytes) -> tuple[int, ...]:
    """Return the ledgers that this node's record names: a topic's chain, or a cursor's ledgers.

    Raises ``CorruptData``.
    """
    if not path.startswith(paths.TOPICS + "/"):
        return ()
    match path.count("/"):
        case 4:
            return tuple(link.ledger_id for link in decode_record(data, TopicRecord, path).ledgers)
        case 6 if path.split("/")[5] == "cursors":
            return decode_record(data, CursorRecord, path).ledgers_in_use
        case _:
            return ()


async def check_not_being_restored(records: Records) -> None:
    """Raise ``ServiceNotReady`` while a restore of this tree is not finished, because records are
    missing or old.
    """
    found = await records.get(paths.RESTORED, RestoredTree)
    if found is not None and not found[0].restored_ms:
        raise ServiceNotReady(
            "a restore of the metadata has begun and is not finished; to finish it, run it again "
            "with the same file: pulsarish metadata restore FILE URL; or, where the metadata are "
            "rebuilt, pulsarish storage rebuild-metadata URL"
        )


class TreeReader:
    """Read whole branches, and repeat when an answer is lost.

    All methods raise ``MetadataUnavailable`` when that does not help.
    """

    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def nodes(self, wanted: Sequence[str]) -> list[Versioned | None]:
        for _ in range(_ATTEMPTS_MAX):
            try:
                return await self._records.nodes(wanted)
            except MetadataUnavailable:
                await self._clock.sleep(_WAIT_SECONDS)
        raise MetadataUnavailable(f"the metadata store does not answer a read of {wanted[0]}")

    async def children(self, path: str) -> list[str]:
        """Return the full paths of the children; none when there is no such node."""
        for _ in range(_ATTEMPTS_MAX):
            try:
                names = await self._records.watch_children(path)
            except Conflict:
                return []
            except MetadataUnavailable:
                await self._clock.sleep(_WAIT_SECONDS)
            else:
                return [f"{'' if path == _ROOT else path}/{name}" for name in names]
        raise MetadataUnavailable(f"the metadata store does not answer a listing of {path}")

    async def branch(self, *tops: str) -> AsyncIterator[tuple[str, Versioned]]:
        """Yield the existing nodes at and below these paths, parents before their children."""
        waiting = list(reversed(tops))
        while waiting:
            page = [waiting.pop() for _ in range(min(_PAGE, len(waiting)))]
            nodes = await self.nodes(page)
            there = [
                (path, node) for path, node in zip(page, nodes, strict=True) if node is not None
            ]
            below = await asyncio.gather(
                *(self.children(path) for path, node in there if not node.session_id)
            )
            for found in there:
                yield found
            for names in reversed(below):
                waiting.extend(reversed(names))

    async def tops(self) -> list[str]:
        """Return the nodes directly below the root, in the order in which a backup reads them."""
        late = {paths.LEDGERS: 1, paths.LEDGER_IDS: 2}
        return sorted(
            (path for path in await self.children(_ROOT) if path != _NOT_OURS),
            key=lambda path: (late.get(path, 0), path),
        )


class _Backup:
    """One backup in progress."""

    def __init__(
        self, reader: TreeReader, writer: BackupWriter, progress: Callable[[int], None]
    ) -> None:
        self.ephemeral = 0
        self._reader = reader
        self._writer = writer
        self._progress = progress
        self._written: dict[str, bool] = {}  # path: whether its last line says that the node exists
        self._named_by: dict[int, list[str]] = {}

    async def run(self) -> None:
        for top in await self._reader.tops():
            if top != paths.RESTORED:
                async for path, node in self._reader.branch(top):
                    self._take(path, node)
        await self._settle()

    def _take(self, path: str, node: Versioned) -> None:
        if node.session_id:
            self.ephemeral += 1
            return
        for ledger_id in ledgers_named(path, node.data):
            self._named_by.setdefault(ledger_id, []).append(path)
        self._writer.node(path, node.data)
        self._written[path] = True
        self._progress(self._writer.lines)

    async def _settle(self) -> None:
        """Read topics and cursors again that name ledgers which were deleted before they were
        read.
        """
        for _ in range(_SETTLE_ROUNDS_MAX):
            unsettled = {
                path: None
                for ledger_id, by in self._named_by.items()
                if not self._has_ledger(ledger_id)
                for path in by
            }
            if not unsettled:
                return
            self._named_by = {}
            for path, node in zip(
                unsettled, await self._reader.nodes(list(unsettled)), strict=True
            ):
                if node is None:
                    for gone in [
                        each
                        for each in self._written
                        if each == path or each.startswith(path + "/")
                    ]:
                        self._writer.gone(gone)
                        del self._written[gone]
                    continue
                self._take(path, node)
                # What it names now may have been made after the ledgers were read.
                for ledger_id in ledgers_named(path, node.data):
                    if not self._has_ledger(ledger_id):
                        await self._take_ledger(ledger_id)
        # Still unsettled: the topic names a ledger that does not exist. The backup repeats what the
        # tree says.

    def _has_ledger(self, ledger_id: int) -> bool:
        return paths.ledger(ledger_id) in self._written

    async def _take_ledger(self, ledger_id: int) -> None:
        path = paths.ledger(ledger_id)
        missing = [each for each in (*paths.parents(path), path) if each not in self._written]
        for each, node in zip(missing, await self._reader.nodes(missing), strict=True):
            if node is not None:
                self._take(each, node)


async def back_up(
    records: Records,
    clock: Clock,
    write: Callable[[bytes], None],
    *,
    source: str,
    progress: Callable[[int], None] = lambda _count: None,
) -> BackupFooter:
    """Write a backup of everything below the store's root.

    Args:
        write: receives the file's bytes, in order.
        source: where the tree is, for people.
        progress: called with the number of nodes written.

    Raises ``MetadataUnavailable``, ``CorruptData`` for a topic's record that cannot be read.
    """
    reader = TreeReader(records, clock)
    writer = BackupWriter(write, source=source, started_ms=clock.wall_ms())
    work = _Backup(reader, writer, progress)
    await work.run()
    if (ids := (await reader.nodes([paths.LEDGER_IDS]))[0]) is not None:
        # Read the counter once more, after the ledgers that settling may have added.
        writer.node(paths.LEDGER_IDS, ids.data)
    return writer.finish(ephemeral_left_out=work.ephemeral, finished_ms=clock.wall_ms())
