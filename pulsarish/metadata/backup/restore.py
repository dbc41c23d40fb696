"""Make a tree equal to a backup, and find where two trees differ.

A restored tree may be older than what bookies hold. So the first write, before anything is replaced
or deleted, is the node ``/restored``. While it exists, bookies delete nothing (rule 12). Ledgers
that were open in the backup are not closed before the last entry that bookies outside their
recorded ensemble hold. Until the restore has finished no broker or bookie starts. Ledger ids that
may be in use are not given out again: the counter continues above everything that the backup, the
old tree and the registered bookies know, plus a gap. Bookies that register later raise the counter
themselves.

To finish an interrupted restore, run it again with the same file: nodes that are right already are
not written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from pulsarish.metadata import paths
from pulsarish.metadata.backup.backup import TreeReader
from pulsarish.metadata.backup.file_format import Backup
from pulsarish.metadata.id_counter import next_id_above
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import AgeRecord, LedgerIds, RestoredTree
from pulsarish.model.errors import CorruptData, MetadataUnavailable, NotAllowedError, NotEmpty
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.runtime.seams import Clock, Conflict, Op
from pulsarish.wire.json_record import decode_record, encode_record

__all__ = ["LEDGER_ID_GAP", "Change", "Difference", "Restore", "compare", "read_tree"]

LEDGER_ID_GAP: Final = 1_000_000
"""Ids left out after a restore, for ledgers that were made after the backup on bookies that could
not be asked.
"""

_OPS_MAX: Final = 200
_OPS_BYTES_MAX: Final = 256 << 10  # ZooKeeper refuses requests of more than 1 MB.
_ATTEMPTS_MAX: Final = 10
_WAIT_SECONDS: Final = 0.5
# Not compared: one is about the restore itself, the others only grow.
_NOT_COMPARED: Final = (paths.RESTORED, paths.LEDGER_IDS, paths.AGE)
_ONLY_GROW: Final = (paths.LEDGER_IDS, paths.AGE)


class Change(Enum):
    ONLY_LEFT = "only left"
    ONLY_RIGHT = "only right"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Difference:
    path: str
    change: Change
    left: bytes | None
    right: bytes | None


def compare(left: Mapping[str, bytes], right: Mapping[str, bytes]) -> Iterator[Difference]:
    """Yield what differs between two trees, by path; ``/restored``, ``/ledger-ids`` and ``/age``
    are not compared.
    """
    for path in sorted(left.keys() | right.keys()):
        if path in _NOT_COMPARED:
            continue
        ours, theirs = left.get(path), right.get(path)
        if ours is None or theirs is None:
            yield Difference(
                path, Change.ONLY_RIGHT if ours is None else Change.ONLY_LEFT, ours, theirs
            )
        elif ours != theirs and not (
            paths.ledger_id_of(path) is not None and _same_ledger(path, ours, theirs)
        ):
            yield Difference(path, Change.DIFFERENT, ours, theirs)


def _same_ledger(path: str, left: bytes, right: bytes) -> bool:
    """Return whether only the mark that a restore sets differs."""
    ours, theirs = (
        msgspec.structs.replace(decode_record(data, LedgerMetadata, path), restored=False)
        for data in (left, right)
    )
    return ours == theirs


async def read_tree(
    reader: TreeReader, progress: Callable[[int], None] = lambda _count: None
) -> dict[str, bytes]:
    """Return the persistent nodes of a tree, parents before children.

    Raises ``MetadataUnavailable``.
    """
    found: dict[str, bytes] = {}
    async for path, node in reader.branch(*await reader.tops()):
        if not node.session_id:
            found[path] = node.data
            progress(len(found))
    return found


def _wanted_tree(backup: Backup) -> dict[str, bytes]:
    """Return the tree that a restore makes: the backup, with a mark on ledgers that were open.

    Such a ledger may have got more entries since, on other bookies.
    """
    wanted: dict[str, bytes] = {}
    for path, data in backup.nodes.items():
        wanted[path] = data
        if paths.ledger_id_of(path) is not None:
            metadata = decode_record(data, LedgerMetadata, path)
            if metadata.state is not LedgerState.CLOSED:
                wanted[path] = encode_record(msgspec.structs.replace(metadata, restored=True))
    return wanted


class Restore:
    """One restore.

    Args:
        records: of the target tree.
        ids_held: the ids of the ledgers that the registered bookies hold, ascending.
        progress: called with the step, how much of it is done, and of how much.
    """

    def __init__(
        self,
        records: Records,
        clock: Clock,
        backup: Backup,
        *,
        ids_held: Sequence[int] = (),
        ledger_id_gap: int = LEDGER_ID_GAP,
        progress: Callable[[str, int, int], None] = lambda _what, _done, _all: None,
    ) -> None:
        self._records = records
        self._clock = clock
        self._backup = backup
        self._ids_held = ids_held
        self._gap = ledger_id_gap
        self._progress = progress
        self._reader = TreeReader(records, clock)

    async def run(self, *, force: bool) -> int:
        """Make the tree equal to the backup. Return how many nodes it has.

        Raises ``NotAllowedError`` while brokers are registered, ``NotEmpty`` for a target with
        other data unless ``force``, ``CorruptData`` when the tree is not right afterwards,
        ``MetadataUnavailable``.
        """
        wanted = _wanted_tree(self._backup)
        await self._refuse_brokers()
        there = await read_tree(
            self._reader, lambda count: self._progress("reading the target", count, 0)
        )
        marker = there.pop(paths.RESTORED, None)
        begun = marker is not None and self._is_mine(
            decode_record(marker, RestoredTree, paths.RESTORED)
        )
        with_data = [path for path, data in there.items() if data]
        if with_data and not begun and not force:
            raise NotEmpty(
                f"the target has {len(with_data)} nodes with data already ({with_data[0]}, ...): "
                "nothing was changed. Use an empty chroot, or --force to replace everything "
                "there with the backup"
            )
        await self._mark(restored_ms=0)
        await self._refuse_brokers()  # a broker may have come before it could see the mark
        await self._raise_ledger_ids(wanted, there)
        await self._raise_age(wanted)
        await self._write(
            {
                path: data
                for path, data in wanted.items()
                if path not in _ONLY_GROW and there.get(path) != data
            }
        )
        await self._delete(
            [path for path in reversed(there) if path not in wanted and path not in _ONLY_GROW]
        )
        after = await read_tree(
            self._reader, lambda count: self._progress("verifying", count, len(wanted))
        )
        wrong = next(compare(wanted, after), None)
        if wrong is not None:
            raise CorruptData(
                f"the restored tree differs from the backup at {wrong.path} "
                f"({wrong.change.value}): another program changed it. Stop that program, and run "
                "the same command again"
            )
        await self._mark(restored_ms=self._clock.wall_ms())
        return len(wanted)

    def _is_mine(self, found: RestoredTree) -> bool:
        return not found.restored_ms and found.backup_sha256 == self._backup.footer.sha256

    async def _refuse_brokers(self) -> None:
        brokers = await self._reader.children(paths.BROKERS)
        if brokers:
            names = ", ".join(path.rpartition("/")[2] for path in brokers)
            raise NotAllowedError(
                f"brokers are registered in the target ({names}): they remember versions of "
                "nodes, which a restore changes. Stop all brokers, then restore"
            )

    async def _mark(self, *, restored_ms: int) -> None:
        mark = RestoredTree(self._backup.footer.sha256, self._backup.header.started_ms, restored_ms)

        def marked(found: RestoredTree | None) -> RestoredTree:
            # What nodes have seen of the replaced tree still counts: the epoch must go beyond it.
            return mark if found is None else msgspec.structs.replace(mark, seen=found.seen)

        _ = await self._records.update(paths.RESTORED, RestoredTree, marked)

    async def _raise_ledger_ids(
        self, wanted: Mapping[str, bytes], there: Mapping[str, bytes]
    ) -> None:
        """Raise the counter above every id that may ever have been given out.

        Never lower it: an id that is used twice mixes two ledgers' entries.
        """
        given_out = [
            number + 1
            for tree in (wanted, there)
            for path in tree
            if (number := paths.ledger_id_of(path)) is not None
        ]
        if (saved := wanted.get(paths.LEDGER_IDS)) is not None:
            given_out.append(decode_record(saved, LedgerIds, paths.LEDGER_IDS).next_id)
        floor = max(given_out, default=0)

        def above(found: LedgerIds | None) -> LedgerIds:
            return LedgerIds(
                next_id_above(max(floor, found.next_id if found is not None else 0), self._ids_held)
                + self._gap
            )

        _ = await self._records.update(paths.LEDGER_IDS, LedgerIds, above)

    async def _raise_age(self, wanted: Mapping[str, bytes]) -> None:
        """Raise the age to at least that of the backup, so that the confirmation goes beyond it."""
        if (saved := wanted.get(paths.AGE)) is None:
            return
        saved_age = decode_record(saved, AgeRecord, paths.AGE)
        _ = await self._records.update(
            paths.AGE,
            AgeRecord,
            lambda found: saved_age if found is None or found.epoch < saved_age.epoch else found,
        )

    async def _write(self, wanted: Mapping[str, bytes]) -> None:
        done = 0
        for batch in _batches(wanted):
            await self._commit(
                batch, lambda path, exists: Op("put" if exists else "create", path, wanted[path])
            )
            done += len(batch)
            self._progress("writing", done, len(wanted))

    async def _delete(self, extra: Sequence[str]) -> None:
        """Delete what the backup does not have; ``extra`` names children before their parents."""
        for first in range(0, len(extra), _OPS_MAX):
            batch = extra[first : first + _OPS_MAX]
            await self._commit(batch, lambda path, exists: Op("delete", path) if exists else None)
            self._progress("deleting what the backup does not have", first + len(batch), len(extra))

    async def _commit(self, batch: Sequence[str], op_of: Callable[[str, bool], Op | None]) -> None:
        """Commit a batch.

        Decide it again from the tree until the commit is known to have happened.
        """
        reason: Exception | None = None
        for _ in range(_ATTEMPTS_MAX):
            nodes = await self._reader.nodes(batch)
            ops = [
                op
                for path, node in zip(batch, nodes, strict=True)
                if (op := op_of(path, node is not None)) is not None
            ]
            try:
                if ops:
                    await self._records.commit(ops)
            except (Conflict, MetadataUnavailable) as error:
                reason = error
                await self._clock.sleep(_WAIT_SECONDS)
            else:
                return
        raise MetadataUnavailable(f"the nodes from {batch[0]} on could not be written: {reason}")


def _batches(wanted: Mapping[str, bytes]) -> Iterator[list[str]]:
    batch: list[str] = []
    size_bytes = 0
    for path, data in wanted.items():
        if batch and (len(batch) == _OPS_MAX or size_bytes + len(data) > _OPS_BYTES_MAX):
            yield batch
            batch, size_bytes = [], 0
        batch.append(path)
        size_bytes += len(data)
    if batch:
        yield batch
