"""Take a drained volume out of a bookie that runs: first the proof that nothing needs it, then the
change.

Nothing is proved by what is not found. Of each ledger in the volume the metadata must say, in a
tree that can be trusted and after a sync, that it is closed, that it names other bookies for all
its entries, and that it is not published as under-replicated. Of each closed ledger for which the
metadata name this bookie, another volume must say that it has it. Anything that cannot be read or
does not say so refuses the removal: an open ledger, a deleted one that is not collected yet, and
the trash.

A first look disturbs no writer: it ends most attempts that are too early. Then all is proved while
the volume takes no copies, not even from repair. A repair that made copies there before could still
name the bookie: the record of each ledger with entries there is stored once more, at the version
that was read, as before stray copies are deleted (``StrayCopies``). A change of the volume's
journal since the ledgers were listed makes the proof begin again, and so does another volume that
has failed: it may have been the one that has a ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from pulsarish.bookie.volume import Volume
from pulsarish.bookie.volume_drains import VolumeDrains, how_to_close, local_ledgers
from pulsarish.bookie.volumes import Volumes
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.ledger.repair.repair_core import held_count
from pulsarish.metadata import paths
from pulsarish.metadata.ledger_walk import ledger_ids
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import ClusterRecord, Cookie
from pulsarish.metadata.tree_age import TreeAge
from pulsarish.model.errors import CorruptData, MetadataUnavailable, NotAllowedError
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.runtime.containment import Critical
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.rate_limiter import RateLimiter
from pulsarish.runtime.seams import Clock, Conflict, SessionState, Tasks, Versioned
from pulsarish.wire.json_record import decode_record

__all__ = ["RemovalState", "VolumeRemovals"]

_log = get_logger("bookie.volume_removal")
_PAGE: Final = 500
_LEDGERS_PER_SECOND: Final = 50
"""Each takes a write of metadata."""
_PROOFS_MAX: Final = 5
_RETRY_SECONDS: Final = 1.0


@dataclass(slots=True)
class RemovalState:
    """How far the removal of a volume is."""

    is_running: bool = False
    is_removed: bool = False
    refusal: str = ""
    """Why the last attempt did not remove it."""


class VolumeRemovals:
    """The removals of volumes of a bookie, one at a time.

    Args:
        records: read without a guard; the age of the tree is asked for.
        guarded: does not write to metadata that came back older.
    """

    def __init__(
        self,
        volumes: Volumes,
        drains: VolumeDrains,
        records: Records,
        guarded: Records,
        age: TreeAge,
        clock: Clock,
        tasks: Tasks,
        cookie: Cookie,
    ) -> None:
        self._volumes = volumes
        self._all = volumes.volumes
        self.drains = drains
        self._records = records
        self._guarded = guarded
        self._ledgers = LedgerStore(guarded, clock)
        self._age = age
        self._clock = clock
        self._tasks = tasks
        self._cookie = cookie
        self._rate = RateLimiter(clock, _LEDGERS_PER_SECOND)
        self._states: dict[str, RemovalState] = {}

    def state(self, directory: str) -> RemovalState | None:
        """Return how far the removal of the volume with this ledger directory is.

        ``None``: there is no such volume.
        """
        volume = self._volume(directory)
        return None if volume is None else self._states.get(volume.name, RemovalState())

    def begin(self, directory: str) -> RemovalState | None:
        """Begin to remove a volume, unless that is under way or done. Return as ``state``."""
        volume = self._volume(directory)
        if volume is None:
            return None
        state = self._states.setdefault(volume.name, RemovalState())
        if state.is_running or state.is_removed:
            return state
        state.refusal = self._refusal(volume)
        if not state.refusal:
            state.is_running = True
            # Critical: it must not end between the change and its record on the disks.
            _ = self._tasks.spawn(
                self._remove(volume, state), name="volume removal", critical=Critical.CHECKPOINT
            )
        return state

    def _volume(self, directory: str) -> Volume | None:
        for volume in self._all:
            if volume.config.ledger_path == directory:
                return volume
        return None

    def _refusal(self, volume: Volume) -> str:
        """Return why not even a proof is tried; empty: it is."""
        if volume.failure is not None:
            return "it has failed, and the bookie goes on without it"
        if any(state.is_running for state in self._states.values()):
            return "another volume is being removed"
        if len(self._volumes.live) == 1:
            return "it is the last volume"
        drain = self.drains.state(volume.config.ledger_path)
        if drain is None or not drain.is_draining:
            return "it is not drained: pulsarish storage drain"
        return ""

    async def _remove(self, volume: Volume, state: RemovalState) -> None:
        store = volume.store
        state.refusal = await self._why_needed(volume)
        # Writers of open ledgers would be refused.
        store.takes_no_copies = not state.refusal
        try:
            for _ in range(_PROOFS_MAX if store.takes_no_copies else 0):
                if self._volumes.live == [volume]:
                    state.refusal = "it is the last volume"
                    break
                before = self._volumes.live, store.journal.queue.next_sequence
                state.refusal = await self._why_needed(volume)
                if state.refusal or volume.failure is not None:
                    break
                if (self._volumes.live, store.journal.queue.next_sequence) == before:
                    # Nothing is awaited since the comparison: what was proved is so.
                    self._volumes.take_out(volume)
                    break
            else:
                state.refusal = state.refusal or "it is being written: try again"
        finally:
            store.takes_no_copies = False
            state.is_running = volume.is_removed
        if state.refusal or not volume.is_removed:
            state.refusal = state.refusal or str(volume.failure)
            _log.warning("a volume is not removed", volume=volume.where, reason=state.refusal)
            return
        await self._volumes.settle_removed(volume)
        await self._note(volume)
        state.is_running, state.is_removed = False, True
        _log.warning(
            "a volume was removed: take its directories out of the lists before the next start",
            volume=volume.name,
            directories=volume.where,
        )

    async def _note(self, volume: Volume) -> None:
        """Note in the metadata that the volume is not used again."""

        def changed(cookie: Cookie | None) -> Cookie | None:
            if cookie is None or cookie.instance_id != self._cookie.instance_id:
                return None  # the bookie was decommissioned
            if volume.name not in cookie.volumes:
                return None  # an older cookie was put back; the next start looks at all volumes
            records = dict(cookie.volumes)
            records[volume.name] = msgspec.structs.replace(
                records[volume.name], is_lost=True, is_removed=True
            )
            return msgspec.structs.replace(cookie, volumes=records)

        while True:
            try:
                await self._guarded.update(paths.cookie(self._cookie.bookie_id), Cookie, changed)
            except MetadataUnavailable as error:
                _log.debug("the removal of a volume is noted later", reason=error)
                await self._clock.sleep(_RETRY_SECONDS)
            except CorruptData as error:
                _log.error("the removal of a volume is noted in the others only", exception=error)
                return
            else:
                return

    # -- the proof

    async def _why_needed(self, volume: Volume) -> str:
        """Return why the volume cannot be removed; empty: it was proved that nothing needs it."""
        try:
            await self._prove(volume)
        except OSError as error:
            # What the disk has now is not known, as after any write that fails.
            if not self._volumes.fail(volume, error):
                raise
            return f"its disk has failed: {error}"
        except Exception as error:  # noqa: BLE001  # whatever it is, nothing was proved
            return str(error) or type(error).__name__
        return ""

    async def _prove(self, volume: Volume) -> None:
        """Raise an error unless nothing needs the volume."""
        store = volume.store
        await store.checkpoint()
        await self._check_tree()
        trashed = await store.index.trashed(-1, 1)
        if trashed:
            raise NotAllowedError(
                f"ledger {trashed[0].ledger_id} is in its trash, from where it can be restored: "
                "wait until trash_grace_seconds are over, or empty it: pulsarish bookies trash "
                f"empty {trashed[0].ledger_id}"
            )
        local = await local_ledgers(store)
        for first in range(0, len(local), _PAGE):
            page = local[first : first + _PAGE]
            found = await self._nodes(page)
            for ledger_id, (node, published) in zip(page, found, strict=True):
                await self._check_local(volume, ledger_id, node, published)
        async for branch in ledger_ids(self._records):
            for first in range(0, len(branch), _PAGE):
                await self._check_elsewhere(volume, branch[first : first + _PAGE])
        # The trust in the tree must have held all the time.
        await self._check_tree()

    async def _check_local(
        self, volume: Volume, ledger_id: int, node: Versioned | None, published: Versioned | None
    ) -> None:
        """Raise ``NotAllowedError`` unless a ledger in the volume is closed and names other
        bookies.
        """
        store = volume.store
        if node is None:
            raise NotAllowedError(
                f"ledger {ledger_id} is deleted and still there: pulsarish bookies "
                f"collect-garbage {self._cookie.bookie_id}"
            )
        metadata = decode_record(node.data, LedgerMetadata, paths.ledger(ledger_id))
        if metadata.state is not LedgerState.CLOSED:
            raise NotAllowedError(f"ledger {ledger_id}: {how_to_close(metadata)}")
        if any(store.instance_id in segment.members for segment in metadata.segments):
            raise NotAllowedError(
                f"ledger {ledger_id} has copies there that count: the drain goes on"
            )
        if published is not None:
            raise NotAllowedError(f"copies of ledger {ledger_id} are being made: try again")
        if store.cache.holds(ledger_id):
            raise NotAllowedError(f"entries of ledger {ledger_id} are being written: try again")
        if store.takes_no_copies and await store.index.entry_locations(ledger_id, 0, 1):
            await self._rate.take(1)
            try:
                _ = await self._ledgers.store(metadata, node.version)
            except Conflict:
                raise NotAllowedError(
                    f"the record of ledger {ledger_id} changed at this moment: try again"
                ) from None

    async def _check_elsewhere(self, volume: Volume, page: Sequence[int]) -> None:
        """Raise ``NotAllowedError`` unless another volume has each of these ledgers of which this
        bookie should have entries.
        """
        member = volume.store.instance_id
        rows = await self._records.get_many(list(map(paths.ledger, page)), LedgerMetadata)
        wanted = [
            row[0].ledger_id
            for row in rows
            if row is not None and row[0].state is LedgerState.CLOSED and held_count(row[0], member)
        ]
        for other in self._volumes.live:
            if wanted and other is not volume:
                known = await other.store.knows(wanted)
                wanted = [each for each, here in zip(wanted, known, strict=True) if not here]
        if wanted:
            raise NotAllowedError(
                f"ledger {wanted[0]} should have copies on this bookie, and no other volume has "
                f"it: pulsarish bookies recover {self._cookie.bookie_id} --ledger {wanted[0]}"
            )

    async def _nodes(
        self, ledgers: Sequence[int]
    ) -> list[tuple[Versioned | None, Versioned | None]]:
        """Return the records of ledgers and of their missing copies, as they are now."""
        await self._records.sync(paths.ledger(ledgers[0]))
        # Keep this order: a repair names the bookie before it deletes the record of what it made.
        published = await self._records.nodes([paths.underreplicated(each) for each in ledgers])
        nodes = await self._records.nodes([paths.ledger(each) for each in ledgers])
        return list(zip(nodes, published, strict=True))

    async def _check_tree(self) -> None:
        """Raise an error unless the metadata are this cluster's, and can be trusted."""
        records = self._records
        await records.sync(paths.CLUSTER)
        found = await records.get(paths.CLUSTER, ClusterRecord)
        if found is None or found[0].cluster_id != self._cookie.cluster_id:
            raise MetadataUnavailable(
                f"the metadata is not that of cluster {self._cookie.cluster_id}"
            )
        (restored,) = await records.nodes([paths.RESTORED])
        if restored is not None:
            raise NotAllowedError(
                "the metadata are restored or older ones that are not confirmed: pulsarish "
                "metadata confirm"
            )
        await self._age.check()
        if records.state is not SessionState.CONNECTED:
            raise MetadataUnavailable("the metadata session is not connected")
