"""Delete ledgers that the metadata no longer have, and entry logs in which little or nothing is
live (rule 12).

A client deletes a ledger by deleting its metadata, and bookies find out here. The local ledgers are
listed before the metadata are asked, so that a ledger made in between is never taken for a deleted
one. A listing proves nothing. A ledger must be missing in two listings that are
``gc_second_look_seconds`` apart, and is read by its own path, after a sync, before it is deleted;
ledgers that are deleted one after the other share a sync. Any error ends the round, and nothing
more is deleted. The ledger goes into the trash first, and its space is freed
``trash_grace_seconds`` later. The cluster's own record must exist and must name this cluster: an
empty or foreign metadata store never means "everything was deleted". Copies of a ledger that lives
are collected in the same rounds (``StrayCopies``). Metadata that were restored from a backup, or
that came back older than this bookie has seen them, may be older than the ledgers here. Until an
operator has confirmed them nothing is deleted because of them.

Compaction copies what is live in a log, syncs, moves the index, syncs, and only then deletes the
log. It does so only if it found all bytes that the index counts for that log's live ledgers and met
no damage, or if the index has nothing more there. A log that cannot be read is kept and reported,
and the other logs are still collected. Dead logs go first, because compaction needs space. It
leaves the reserve alone, and a log for which there is too little space is tried again in the next
round. Only a failed read of the log itself is damage of that log. A failed write or sync of the
copies ends the process, as in a checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from pulsarish.bookie.checkpoint import Run
from pulsarish.bookie.compaction_times import CompactionTimes
from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.entry_logs.entry_log import COMPACTION_LANE, Chunk
from pulsarish.bookie.ledger_index import ROWS_MAX, Location, entry_key
from pulsarish.bookie.ledger_records import LedgerRecords
from pulsarish.bookie.space import SpaceMode
from pulsarish.bookie.store import EntryStore
from pulsarish.bookie.stray_copies import StrayCopies
from pulsarish.bookie.trash import Trash
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import ClusterRecord
from pulsarish.metadata.tree_age import TreeAge
from pulsarish.model.errors import (
    BookieIOError,
    ChecksumError,
    CorruptData,
    MetadataUnavailable,
    NotAllowedError,
)
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.rate_limiter import RateLimiter
from pulsarish.runtime.seams import Clock, SessionState, Versioned
from pulsarish.wire.record import peek_ids, verify_record

__all__ = ["Collected", "GarbageCollector"]

_log = get_logger("bookie.garbage")
_ASK_PAGE: Final = 500
_EVIDENCE_SECONDS: Final = 1.0
"""How long an answer of the metadata, that ledgers are missing, is acted on."""
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


class _NoRoom(Exception):
    """The copies of a chunk do not fit on the disk."""


class _TreeRestored(Exception):
    """The tree is marked as restored or older: nothing may be deleted on its word."""


class Collected(NamedTuple):
    """What rounds of garbage collection did, in all or one of them."""

    ledgers_deleted: int = 0
    stray_bytes: int = 0
    """Of copies for which the metadata name other bookies."""
    logs_deleted: int = 0
    freed_bytes: int = 0
    """Of the entries in the logs that were deleted."""
    copied_bytes: int = 0
    """Of those of them that were copied to other logs first."""


class GarbageCollector:
    """Collect garbage in rounds. ``collect`` is one round; two never run at a time."""

    def __init__(
        self,
        store: EntryStore,
        trash: Trash,
        records: Records,
        ledgers: LedgerStore,
        age: TreeAge,
        clock: Clock,
        config: BookieConfig,
        *,
        cluster_id: str,
    ) -> None:
        self.trash = trash
        self.strays = StrayCopies(store, ledgers, clock)
        self.copies = LedgerRecords(store, records, age, clock)
        """Of the records of ledgers."""
        self.rounds = 0
        self.ledgers_deleted = 0
        self.logs_deleted = 0
        self.freed_bytes = 0
        self.copied_bytes = 0
        self.begun = 0
        self.ended = 0
        """Rounds that ended, well or not."""
        self.wanted = 0
        """The last round that an operator asked for."""
        self.last = Collected()
        """What the last round that ended did."""
        self.failure = ""
        """Why the last round that ended did not do all; empty: it did."""
        self.compactions = 0
        self.compacted_bytes = 0
        self.ended_ms = 0
        """When the last round ended well, by the wall clock; 0: none did."""
        self.unreadable_logs: dict[int, str] = {}
        self.logs_postponed = 0
        """Entry logs that the last round did not rewrite, because their copies would have used
        space of the reserve.
        """
        self.ledgers_held_back = 0
        """Ledgers that the metadata do not name and that are kept, because the metadata are marked
        as restored or older.
        """
        self._store = store
        self._records = records
        self._age = age
        # ledgers that were missing from the metadata at the last listing
        self._missing_since: dict[int, float] = {}
        self._clock = clock
        self._times = CompactionTimes(clock, config)
        self._asked = asyncio.Event()
        self._rate = RateLimiter(clock, config.compaction_rate_bytes)
        self._config = config
        self._cluster_id = cluster_id
        self._busy = asyncio.Lock()
        self._stopping = False

    async def stop(self) -> None:
        """Begin nothing more, and return when what runs has ended."""
        self._stopping = True
        await self.copies.stop()
        async with self._busy:
            pass

    @property
    def missing_count(self) -> int:
        """Ledgers that were missing from the metadata once and wait for the second look."""
        return len(self._missing_since)

    @property
    def stray_ledgers_count(self) -> int:
        """Ledgers with copies for which the metadata name other bookies."""
        return self.strays.ledgers_count

    def ask(self) -> None:
        """Have a round begin at once, or after the one that runs. It is the round ``wanted``."""
        self.wanted = self.begun + 1
        self._asked.set()

    async def wait(self, seconds: float) -> None:
        """Wait until a round is asked for, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(seconds):
                await self._asked.wait()

    async def collect(self) -> None:
        """Run one round. Without metadata nothing is deleted (rule 19)."""
        async with self._busy:
            is_forced = self._asked.is_set()
            self._asked.clear()
            self.begun += 1
            before, failure = self._collected(), ""
            try:
                failure = await self._collect(is_forced=is_forced)
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
                raise
            finally:
                now = self._collected()
                self.last = Collected(*(a - b for a, b in zip(now, before, strict=True)))
                self.failure = failure
                self.ended = self.begun

    async def _collect(self, *, is_forced: bool) -> str:
        """Run one round. Return why it did not do all, if so."""
        try:
            if reason := await self._delete_ledgers_if_known():
                return reason
            await self._clean_logs(is_forced=is_forced)
        except BookieIOError as error:
            _log.error("the round ends here, because the index could not be read", reason=error)
            return str(error)
        self.rounds += 1
        self.ended_ms = self._clock.wall_ms()
        if self.ledgers_held_back:
            return (
                f"{self.ledgers_held_back} ledgers that the metadata do not name are kept, because "
                "the metadata are restored or older ones: pulsarish metadata confirm"
            )
        return ""

    def _collected(self) -> Collected:
        return Collected(
            self.ledgers_deleted,
            self.strays.bytes_deleted,
            self.logs_deleted,
            self.freed_bytes,
            self.copied_bytes,
        )

    async def empty_trash(self, ledger_ids: Sequence[int]) -> list[int]:
        """Delete ledgers of the trash forever, before their grace period is over.

        Return those that were deleted.

        A ledger that the metadata name again is kept. Raises ``NotAllowedError`` while the metadata
        are marked as restored or older, ``MetadataUnavailable``, ``CorruptData``.
        """
        await self._check_cluster()
        done: list[int] = []

        async def empty(ledger_id: int) -> None:
            if await self.trash.empty(ledger_id):
                self.ledgers_deleted += 1
                done.append(ledger_id)

        try:
            await self._for_each_gone(ledger_ids, empty)
        except _TreeRestored:
            raise NotAllowedError(
                "the metadata are restored or older ones that are not confirmed, so nothing is "
                "deleted: pulsarish metadata confirm"
            ) from None
        return done

    async def _delete_ledgers_if_known(self) -> str:
        """Return why the metadata could not be asked; empty: they could."""
        try:
            await self._delete_ledgers()
        except (MetadataUnavailable, CorruptData) as error:
            _log.warning(
                "the round ends here, because the metadata could not be asked", reason=error
            )
            return str(error)
        return ""

    async def _delete_ledgers(self) -> None:
        local = await self._local_ledgers()
        trashed = [each.ledger_id for each in await self.trash.ledgers()]
        await self._check_cluster()
        mark = await self._age.known_mark()  # ``_nodes_now`` reads it again
        missing = dict.fromkeys(await self._missing_of(trashed))
        for ledger_id in trashed:
            if ledger_id not in missing:
                _log.warning(
                    "the metadata have a ledger again that is in the trash", ledger=ledger_id
                )
                _ = await self.trash.restore(ledger_id)
        await self.strays.begin()

        epoch = self._age.seen.epoch

        async def look(found: Sequence[tuple[int, Versioned]], is_restored: bool) -> None:
            for ledger_id, node in found:
                await self.strays.look(ledger_id, node)
            await self.copies.keep(found, epoch, is_marked=mark is not None or is_restored)

        candidates = await self._missing_of(local, look)
        if mark is not None:
            self._hold_back(candidates)
            return
        now = self._clock.monotonic()
        self._missing_since = {
            ledger_id: self._missing_since.get(ledger_id, now) for ledger_id in candidates
        }
        due = [
            each
            for each in candidates
            if now - self._missing_since[each] >= self._config.gc_second_look_seconds
        ]
        if any(self._store.cache.holds(ledger_id) for ledger_id in due):
            await self._store.checkpoint()

        async def put(ledger_id: int) -> None:
            if await self.trash.put(ledger_id):
                _ = self._missing_since.pop(ledger_id)
                missing[ledger_id] = None

        async def empty(ledger_id: int) -> None:
            if await self.trash.empty(ledger_id):
                self.ledgers_deleted += 1

        try:
            await self._for_each_gone(due, put)
            grace_seconds = self._grace_seconds()
            await self._for_each_gone(
                [each for each in missing if self.trash.is_due(each, grace_seconds)], empty
            )
            await self._delete_strays()
        except _TreeRestored:
            self._hold_back(candidates)
            return
        self.ledgers_held_back = 0
        remembered_ms = int(self._config.deleted_ledger_fence_seconds * 1000)
        await self._store.index.forget_deleted(self._clock.wall_ms() - remembered_ms)

    async def _delete_strays(self) -> None:
        """Delete copies that have been stray for as long as a deleted ledger waits.

        Raises ``_TreeRestored``, ``MetadataUnavailable``.
        """
        wait_seconds = self._config.gc_second_look_seconds + self._grace_seconds()
        for ledger_id in self.strays.due(wait_seconds):
            node, published = await self._nodes_now(
                paths.ledger(ledger_id), paths.underreplicated(ledger_id)
            )
            await self.strays.delete(ledger_id, node, is_published=published is not None)

    async def _missing_of(
        self,
        ledgers: Sequence[int],
        look: Callable[[Sequence[tuple[int, Versioned]], bool], Awaitable[None]] | None = None,
    ) -> list[int]:
        """Return those of these ledgers that the metadata do not seem to have.

        ``look`` is awaited with the others, a page at a time, and with whether the tree was marked
        as restored then.
        """
        missing: list[int] = []
        for first in range(0, len(ledgers), _ASK_PAGE):
            page = ledgers[first : first + _ASK_PAGE]
            # Keep this order: a restore marks the tree before it changes anything.
            *nodes, restored = await self._records.nodes(
                [*(paths.ledger(ledger_id) for ledger_id in page), paths.RESTORED]
            )
            found: list[tuple[int, Versioned]] = []
            for ledger_id, node in zip(page, nodes, strict=True):
                if node is None:
                    missing.append(ledger_id)
                else:
                    found.append((ledger_id, node))
            if look is not None:
                await look(found, restored is not None)
        return missing

    def _grace_seconds(self) -> float:
        """Return how long a ledger stays in the trash.

        On a nearly full disk that is over at once (rule 13), not on a bookie that an operator has
        set read-only.
        """
        space = self._store.space
        return self._config.trash_grace_seconds if space is SpaceMode.WRITABLE else 0.0

    async def _for_each_gone(
        self, ledgers: Sequence[int], act: Callable[[int], Awaitable[None]]
    ) -> None:
        """Await ``act`` for those of these ledgers that are missing from the metadata now, in a
        tree that can be trusted.

        One sync and one read answer for many ledgers, and for no longer than
        ``_EVIDENCE_SECONDS``. An id is not given out twice, so only a tree that is restored, or
        that came back older, could name a ledger again meanwhile: both are looked for before each.

        Raises ``_TreeRestored``, or ``MetadataUnavailable`` when that cannot be known.
        """
        left = list(ledgers)
        while left:
            page = left[:_ASK_PAGE]
            nodes = await self._nodes_now(*map(paths.ledger, page))
            asked = self._clock.monotonic()
            done = 0
            for ledger_id, node in zip(page, nodes, strict=True):
                if done and self._clock.monotonic() - asked > _EVIDENCE_SECONDS:
                    break
                if node is None:
                    if await self._age.known_mark() is not None:
                        raise _TreeRestored
                    await self._check_trusted()
                    await act(ledger_id)
                done += 1
            del left[:done]

    async def _nodes_now(self, *wanted: str) -> list[Versioned | None]:
        """Return nodes as they are now, in a tree that can be trusted.

        Raises ``_TreeRestored``, ``MetadataUnavailable``.
        """
        metadata = self._records
        await metadata.sync(wanted[0])
        # Keep this order: a restore marks the tree before it deletes anything, so a read that
        # misses a ledger because of it sees the mark.
        *nodes, restored = await metadata.nodes([*wanted, paths.RESTORED])
        if restored is not None:
            raise _TreeRestored
        await self._check_trusted()
        return nodes

    async def _check_trusted(self) -> None:
        """Raise ``MetadataUnavailable`` unless what the metadata answered holds."""
        await self._age.check()  # the connection may have changed since the round began
        if self._stopping or self._records.state is not SessionState.CONNECTED:
            raise MetadataUnavailable("the bookie stops, or its metadata session is not connected")

    def _hold_back(self, candidates: Sequence[int]) -> None:
        self.ledgers_held_back = len(candidates)
        self._missing_since.clear()
        self.strays.forget()
        if candidates:
            _log.warning(
                "the metadata may be older than the ledgers here and are not confirmed: ledgers "
                "that they do not name are kept",
                ledgers=len(candidates),
                first=candidates[0],
            )

    async def _local_ledgers(self) -> list[int]:
        found: list[int] = []
        while page := await self._store.index.ledgers(found[-1] if found else -1, ROWS_MAX):
            found += [ledger_id for ledger_id, _ in page]
        return found

    async def _check_cluster(self) -> None:
        await self._records.sync(paths.CLUSTER)
        found = await self._records.get(paths.CLUSTER, ClusterRecord)
        if found is None or found[0].cluster_id != self._cluster_id:
            raise MetadataUnavailable(
                f"the metadata is not that of cluster {self._cluster_id}: nothing is deleted on "
                "its word"
            )

    async def _clean_logs(self, *, is_forced: bool) -> None:
        store = self._store
        threshold = self._times.threshold(is_forced=is_forced)
        if is_forced:
            await self._finish_sparse_log(threshold)
        begun = await store.index.logs_begun()
        known = dict.fromkeys(begun)
        for log_id in await store.logs.ids():
            if (
                log_id not in known
                and log_id != store.logs.current_id
                and log_id not in self.unreadable_logs
            ):
                # Its entries may not have been indexed by this index, so their absence there proves
                # nothing.
                self._keep(
                    log_id,
                    "the index was made without it; it counts once the index is made again from "
                    "all logs: pulsarish storage rebuild-index",
                )
        self.logs_postponed = 0
        sparse: list[tuple[int, int]] = []
        for log_id in begun:
            if self._stopping:
                return
            if log_id in self.unreadable_logs:
                continue
            live_bytes, all_bytes, _ = await self._weigh(log_id)
            if all_bytes < 0:
                continue
            if not live_bytes:
                await self._remove_log(log_id)
            elif live_bytes < all_bytes * threshold:
                sparse.append((live_bytes, log_id))
        # The fewer bytes are live in a log, the less space its copies need before the log itself is
        # deleted.
        for _, log_id in sorted(sparse):
            if self._stopping:
                return
            # Its last ledger may have been deleted while other logs were rewritten.
            live_bytes, _, ledgers = await self._weigh(log_id)
            if live_bytes:
                await self._compact(log_id, live_bytes, ledgers)
            else:
                await self._remove_log(log_id)

    async def _finish_sparse_log(self, threshold: float) -> None:
        """Have another log begin if the one that is written would be rewritten."""
        async with self._store.checkpointer.lock:
            log_id = self._store.logs.current_id
            if log_id is not None:
                live_bytes, all_bytes, _ = await self._weights(log_id)
                if live_bytes < all_bytes * threshold:
                    await self._store.logs.finish()

    async def _weigh(self, log_id: int) -> tuple[int, int, dict[int, int]]:
        """Return what ``_weights`` returns; -1 when the log is being written."""
        async with self._store.checkpointer.lock:
            if log_id == self._store.logs.current_id:
                return -1, -1, {}
            return await self._weights(log_id)

    async def _weights(self, log_id: int) -> tuple[int, int, dict[int, int]]:
        """Return the live bytes and all bytes of a log, and the bytes that were put there of each
        ledger with live ones.

        The caller holds the lock: no flush runs, so the log has all its rows.
        """
        index = self._store.index
        counts = await index.log_ledgers(log_id)
        dropped = await index.log_dropped(log_id)
        ids = [each for each, size in counts.items() if dropped.get(each, 0) < size]
        live: dict[int, int] = {}
        for first in range(0, len(ids), ROWS_MAX):
            page = ids[first : first + ROWS_MAX]
            rows = await index.ledger_rows(page)
            trashed = await index.trashed_rows(page)
            live.update(
                (ledger_id, counts[ledger_id])
                for ledger_id, row, kept in zip(page, rows, trashed, strict=True)
                if row is not None or kept is not None
            )
        live_bytes = sum(size - dropped.get(each, 0) for each, size in live.items())
        return live_bytes, sum(counts.values()), live

    async def _remove_log(self, log_id: int) -> None:
        """Delete a log that has nothing live: first the file, then the rows that record it."""
        store = self._store
        async with store.checkpointer.lock:
            size_bytes = sum((await store.index.log_ledgers(log_id)).values())
            await store.logs.remove(log_id)
            await store.index.forget_log(log_id)
        self.logs_deleted += 1
        self.freed_bytes += size_bytes
        _log.info("deleted an entry log", log=log_id)

    async def _compact(self, log_id: int, live_bytes: int, live: dict[int, int]) -> None:
        store = self._store
        try:
            await self._check_room(live_bytes)
        except _NoRoom as error:
            self._postpone(log_id, error)
            return
        self.compactions += 1
        _log.info(
            "an entry log is rewritten",
            log=log_id,
            live_bytes=live_bytes,
            ledgers=len(live),
        )
        found = dict.fromkeys(live, 0)
        damage = ""
        async with contextlib.aclosing(store.logs.scan(log_id, COMPACTION_LANE)) as chunks:
            while True:
                try:
                    chunk = await anext(chunks, None)
                    whole, records, broken = (
                        await self._records_of(chunk)
                        if chunk is not None and chunk.ledger_id in found
                        else ([], [], "")
                    )
                except (CorruptData, OSError) as error:
                    # A torn end that a crash left is not a loss: the bytes found decide below.
                    damage = str(error)
                    break
                if chunk is None:
                    break
                damage = damage or broken
                if records:
                    size_bytes = sum(size for _, _, size in whole)
                    try:
                        await self._check_room(size_bytes)
                        await self._move(Chunk(chunk.ledger_id, whole), records)
                    except _NoRoom as error:
                        self._postpone(log_id, error)
                        return
                    found[chunk.ledger_id] += size_bytes
                    self.compacted_bytes += size_bytes
                await self._rate.take(sum(size for _, _, size in chunk.locations))
                if self._stopping:
                    return
        # Damage makes all of them suspect: a log may hold more of a ledger than the index counts,
        # as a crash leaves records that it does not have, and those would make up for a loss.
        suspects = [
            ledger_id
            for ledger_id, size_bytes in live.items()
            if damage or found[ledger_id] < size_bytes
        ]
        # A crash between the deletion of a log and of its rows leaves its counts. So does an entry
        # that was written elsewhere since.
        left = await self._first_pointed_to(log_id, suspects)
        if left is not None:
            self._keep(log_id, f"not all entries of ledger {left} were found in it; {damage}")
        else:
            await self._remove_log(log_id)

    async def _first_pointed_to(self, log_id: int, ledgers: Sequence[int]) -> int | None:
        """Return the first of these ledgers of which the index has an entry in a log."""
        for ledger_id in ledgers:
            first = 0
            while page := await self._store.index.entry_locations(ledger_id, first, ROWS_MAX):
                if any(location[0] == log_id for _, location in page):
                    return ledger_id
                first = page[-1][0] + 1
        return None

    async def _check_room(self, more_bytes: int) -> None:
        free_bytes = await self._store.logs.free_bytes()
        if free_bytes - more_bytes < self._config.reserved_bytes:
            raise _NoRoom(
                f"{more_bytes} bytes do not fit: {free_bytes} are free, of which "
                f"{self._config.reserved_bytes} are the reserve"
            )

    async def _records_of(self, chunk: Chunk) -> tuple[list[Location], list[memoryview], str]:
        """Return a chunk's whole records with their places, and why others are not whole.

        Those are no loss by themselves: a crash tears records that the index does not have. Raises
        ``OSError``.
        """
        whole: list[Location] = []
        records: list[memoryview] = []
        broken = ""
        found = await self._store.logs.read(chunk.locations, COMPACTION_LANE)
        for location, data in zip(chunk.locations, found, strict=True):
            if isinstance(data, OSError):
                raise data
            try:
                verify_record(data)
            except ChecksumError as error:
                broken = broken or str(error)
                continue
            whole.append(location)
            records.append(memoryview(data))
        return whole, records, broken

    async def _move(self, chunk: Chunk, records: list[memoryview]) -> None:
        """Copy those records of a chunk to which the index still points.

        The caller holds the lock, so no other task moves or deletes entries in the meantime.
        """
        store = self._store
        entry_ids = [peek_ids(record)[2] for record in records]
        async with store.checkpointer.lock:
            places = await store.index.locations(
                [entry_key(chunk.ledger_id, entry_id) for entry_id in entry_ids]
            )
            kept = [
                number for number, place in enumerate(places) if place == chunk.locations[number]
            ]
            if not kept:
                return
            run = Run(
                chunk.ledger_id,
                [entry_ids[number] for number in kept],
                [records[number] for number in kept],
            )
            try:
                await store.checkpointer.placement.put([run])
            except OSError as error:
                # By its number alone: a sync that failed for want of space has another one.
                if error.errno not in _NO_SPACE:
                    raise
                raise _NoRoom(str(error)) from None
            await store.checkpointer.placement.commit(sync=True)
            self.copied_bytes += sum(len(record) for record in run.records)
            store.read_cache.drop(chunk.locations[number] for number in kept)

    def _postpone(self, log_id: int, why: _NoRoom) -> None:
        self.logs_postponed += 1
        _log.warning(
            "an entry log is not rewritten before the next round, because the disk is full",
            log=log_id,
            reason=str(why),
        )

    def _keep(self, log_id: int, why: str) -> None:
        self.unreadable_logs[log_id] = why
        _log.error(
            "an entry log is kept and not looked at again before the next start",
            log=self._store.logs.path(log_id),
            reason=why,
        )
