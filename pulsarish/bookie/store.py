"""The whole storage of a bookie: what the gRPC and HTTP interfaces call, and the start after a
crash.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from pulsarish.bookie.adds import Head, admit, check_records, refused
from pulsarish.bookie.checkpoint import Checkpointer
from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.entry_logs.entry_log import READ_LANE, RECOVERY_LANE, EntryLogs
from pulsarish.bookie.journal.journal import Journal
from pulsarish.bookie.journal.journal_format import (
    EXPLICIT_LAC_PAYLOAD,
    FENCE_PAYLOAD,
    RecordType,
    file_name,
)
from pulsarish.bookie.journal.mark import MARK_NAME, Mark, read_mark
from pulsarish.bookie.ledger_index import ROWS_MAX, LedgerIndex
from pulsarish.bookie.ledger_state import LocalLedgerState, LocalLedgerStates
from pulsarish.bookie.limbo import Limbo
from pulsarish.bookie.read_ahead import ReadAhead, ReadAheadLimits
from pulsarish.bookie.read_cache import ReadCache
from pulsarish.bookie.reads import Admit, Reader
from pulsarish.bookie.replay import check_reaches, journal_file_ids, oldest_mark, replay
from pulsarish.bookie.space import SpaceMode
from pulsarish.bookie.write_cache import WriteCache
from pulsarish.metadata.id_counter import next_id_above
from pulsarish.model.errors import (
    BookieIOError,
    ChecksumError,
    CorruptData,
    EntryUnknown,
    LedgerFenced,
    NoSuchLedger,
    WrongBookie,
)
from pulsarish.model.position import NO_ENTRY
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.metrics import Operation
from pulsarish.runtime.seams import Clock, Files, KeyValueIndex, Tasks
from pulsarish.wire.bookie import AddBatch, AddResult, ReadAnswer, ReadItem, encode_add

__all__ = [
    "EntryStore",
    "StoreCounters",
    "check_whole",
    "has_data",
    "how_to_rebuild",
    "index_rows_path",
    "open_store",
]

_log = get_logger("bookie.store")

FIRST_SEQUENCE: Final = 0
_INDEX_ROWS: Final = "rows"
_HOW_TO_GIVE_UP: Final = (
    "Put the file back as it was last, or start once with journal_corruption = "
    '"limbo": this bookie then replays what the journal has, answers "unknown" for every ledger '
    "that existed, and readers go to the other copies until auto-recovery has made it whole"
)


@dataclass(slots=True)
class StoreCounters:
    """Counts that are exported when metrics are scraped."""

    added_entries: int = 0
    added_bytes: int = 0
    refused_entries: int = 0
    fences: int = 0
    probes: int = 0


def check_whole(bad: Sequence[int], count: int) -> None:
    """Raise ``ChecksumError`` for a batch of ``count`` entries of which some are bad."""
    if bad:
        raise ChecksumError(
            f"{len(bad)} of {count} entries do not match their checksums: nothing of "
            "the batch is taken"
        )


async def has_data(files: Files, config: BookieConfig) -> bool:
    """Return whether a journal, an entry log or a mark exists."""
    if await journal_file_ids(files, config.journal_path):
        return True
    names = await files.list(config.ledger_path)
    return any(name != "cookie" for name in names)


@dataclass(slots=True)
class _Adding:
    """A batch that is being added."""

    message: bytes
    batch: AddBatch
    answer: Callable[[list[AddResult]], None]
    records: Sequence[memoryview]
    """Those that are not decided yet, and their heads."""
    heads: Sequence[Head]
    results: list[AddResult] = field(default_factory=list)
    stored: dict[tuple[int, int], bytes | memoryview | None] = field(default_factory=dict)
    """Entries that were looked up."""
    is_journalled: bool = False
    """Whether the journal answers the batch."""

    def refuse(self, code: int) -> None:
        """Refuse what is left."""
        self.results += refused(self.heads, range(len(self.heads)), code)
        self.records, self.heads = [], []


class EntryStore:
    """Entries, fences and LACs of ledgers, durable before they are answered.

    ``open_store`` makes it.
    """

    def __init__(
        self,
        *,
        instance_id: str,
        clock: Clock,
        cache: WriteCache,
        read_cache: ReadCache,
        ahead: ReadAhead,
        states: LocalLedgerStates,
        index: LedgerIndex,
        logs: EntryLogs,
        checkpointer: Checkpointer,
        journal: Journal,
        limbo: Limbo,
    ) -> None:
        self.instance_id = instance_id
        self.cache = cache
        self.read_cache = read_cache
        self.ahead = ahead
        self.states = states
        self.index = index
        self.logs = logs
        self.checkpointer = checkpointer
        self.journal = journal
        self.limbo = limbo
        self.reader = Reader(
            cache=cache, read_cache=read_cache, states=states, index=index, logs=logs, ahead=ahead
        )
        self.counters = StoreCounters()
        self.add_seconds = Operation()
        """The time from an add's arrival to its answer; an entry counts once."""
        self.read_seconds = Operation()
        """The time from a read's arrival to its answer; a requested entry counts once."""
        self.space = SpaceMode.WRITABLE
        self.is_set_read_only = False
        """Whether an operator has set the bookie read-only."""
        self.takes_no_copies = False
        """Whether it refuses also what recovery and repair write, because it is to be removed."""
        self.wants_checkpoint = asyncio.Event()
        self.broken: Exception | None = None
        """Why a write of the index failed.

        The index may have lost earlier writes with it, so the next checkpoint raises this and ends
        the process.
        """
        self.add_synced_seconds = clock.monotonic()
        """When an add was last synced, by the clock's ``monotonic``."""
        self._probes = 0  # since the mark
        self._clock = clock

    @property
    def is_writable(self) -> bool:
        """Whether the bookie takes what writers add."""
        return (
            self.space is SpaceMode.WRITABLE
            and not self.is_set_read_only
            and not self.takes_no_copies
        )

    @property
    def ledgers_count(self) -> int:
        """Ledgers with anything stored here."""
        return self.states.count

    @property
    def journal_queue_bytes(self) -> int:
        """Bytes that wait for the journal."""
        return self.journal.queue.waiting_bytes

    @property
    def write_cache_bytes(self) -> int:
        """Bytes in the write cache."""
        return self.cache.size_bytes

    @property
    def limbo_below(self) -> int:
        """No ledger from this id on is in limbo."""
        return self.limbo.below

    @property
    def limbo_times(self) -> int:
        """How often the bookie has entered limbo."""
        return self.limbo.times

    async def knows(self, ledger_ids: Sequence[int]) -> list[bool]:
        """Return for each of these ledgers whether it is here, in the trash, or remembered as
        deleted.
        """
        trashed = await self.index.trashed_rows(ledger_ids)
        await self.states.load(ledger_ids)
        states = [self.states.loaded[ledger_id] for ledger_id in ledger_ids]
        return [
            state.exists or state.fenced or row is not None
            for state, row in zip(states, trashed, strict=True)
        ]

    def fail(self, error: Exception) -> None:
        """Take nothing any more, and let everybody who waits for the disk get an error."""
        self.broken = error
        self.journal.fail(error)
        self.checkpointer.fail(error)

    def add(
        self, message: bytes, batch: AddBatch, answer: Callable[[list[AddResult]], None]
    ) -> Awaitable[None] | None:
        """Store the entries of a batch that may be stored.

        ``answer`` is called once, when all of it is durable or refused. Return what the caller has
        to wait for before the next batch; ``None``, as mostly, when the batch is in the journal.

        Answers come in the order of the calls. ``message`` is the batch as it came over the wire;
        it goes into the journal unchanged.

        Raises ``ChecksumError`` when an entry does not match its checksum, and stores nothing of
        the batch. The ids of such an entry cannot be trusted, so no answer could name it, and its
        writer would wait for that answer forever.
        """
        records = batch.records
        heads, bad = check_records(records)
        check_whole(bad, len(records))
        adding = _Adding(message, batch, self._timed(answer), records, heads)
        if batch.instance_id != self.instance_id:
            adding.refuse(WrongBookie.code)
        waiting = self._add(adding)
        return None if waiting is None else self._add_later(adding, waiting)

    async def _add_later(self, adding: _Adding, first: Awaitable[None]) -> None:
        waiting: Awaitable[None] | None = first
        while waiting is not None:
            try:
                await waiting
            except Exception as error:  # noqa: BLE001
                self._refuse(adding, error)
            waiting = self._add(adding)

    def _add(self, adding: _Adding) -> Awaitable[None] | None:
        """Add what can be added now. Return what to wait for; ``None`` at the end."""
        try:
            while adding.records:
                waiting = self._add_once(adding)
                if waiting is not None:
                    return waiting
        except Exception as error:  # noqa: BLE001
            self._refuse(adding, error)
        if not adding.is_journalled:
            self.journal.append_barrier(lambda: adding.answer(adding.results))
        return None

    def _add_once(self, adding: _Adding) -> Awaitable[None] | None:
        batch, records, heads = adding.batch, adding.records, adding.heads
        loaded = self.states.loaded
        for head in heads:
            if head[1] not in loaded:
                return self.states.load([head[1] for head in heads])
        if self.cache.is_full:
            return self.checkpointer.wait_for_room()
        admission = admit(
            records,
            heads,
            recovery=batch.recovery,
            read_only=not self.is_writable
            and (not batch.recovery or self.space is SpaceMode.RESERVED or self.takes_no_copies),
            states=self.states,
            cache=self.cache,
            stored=adding.stored,
        )
        wanted = admission.unresolved
        if admission.taken_count:
            whole = admission.taken is None and len(records) == len(batch.records)
            self._journal(
                adding.message,
                batch,
                records,
                admission.taken,
                whole,
                None if wanted else (adding.answer, adding.results),
            )
            adding.is_journalled = not wanted
        adding.results += admission.results
        self.counters.refused_entries += len(records) - admission.taken_count - len(wanted)
        adding.records = [records[place] for place in wanted]
        adding.heads = [heads[place] for place in wanted]
        return self._look_up(adding) if wanted else None

    async def _look_up(self, adding: _Adding) -> None:
        adding.stored.update(await self.reader.stored([head[1:3] for head in adding.heads]))

    def _refuse(self, adding: _Adding, error: Exception) -> None:
        """Refuse what is left of a batch, whatever the error is: a batch without an answer would
        keep its bytes of the budget forever.
        """
        _log.error(
            "entries refused, because what is stored of them cannot be read",
            exception=error,
            entries=len(adding.records),
        )
        self.counters.refused_entries += len(adding.records)
        adding.refuse(BookieIOError.code)

    async def probe(self) -> None:
        """Add a batch without entries, like any other add. Return once it is synced."""
        while self.cache.is_full:
            await self.checkpointer.wait_for_room()
        parts = encode_add(self.instance_id, recovery=False, sizes=[], parts=[])
        self._probes += 1
        self.counters.probes += 1
        await self.journal.wait_synced(
            self.journal.append(RecordType.ADD, parts, sum(len(part) for part in parts))
        )
        self.add_synced_seconds = self._clock.monotonic()

    def _timed(
        self, answer: Callable[[list[AddResult]], None]
    ) -> Callable[[list[AddResult]], None]:
        began = self._clock.monotonic()

        def timed(results: list[AddResult]) -> None:
            now = self._clock.monotonic()
            took = now - began
            for result in results:
                if not result.code:
                    self.add_synced_seconds = now
                operation = self.add_seconds.failed if result.code else self.add_seconds.succeeded
                operation.observe(took, result.last - result.first + 1)
            answer(results)

        return timed

    def _journal(
        self,
        message: bytes,
        batch: AddBatch,
        records: Sequence[memoryview],
        taken: list[int] | None,
        whole: bool,
        last: tuple[Callable[[list[AddResult]], None], list[AddResult]] | None,
    ) -> None:
        if whole:
            count = len(records)
            parts: list[bytes | bytearray | memoryview] = [message]
            size_bytes = len(message)
        else:
            # Only accepted entries may come back in a replay.
            kept = list(records) if taken is None else [records[place] for place in taken]
            count = len(kept)
            parts = encode_add(
                batch.instance_id,
                recovery=batch.recovery,
                sizes=[len(record) for record in kept],
                parts=kept,
            )
            size_bytes = sum(len(part) for part in parts)
        self.cache.added(len(message) if whole else size_bytes, count)
        self.counters.added_entries += count
        self.counters.added_bytes += size_bytes
        durable: Callable[[], None] | None = None
        if last is not None:
            answer, results = last

            def durable() -> None:
                answer(results)

        self.journal.append(RecordType.ADD, parts, size_bytes, durable)
        if self.cache.wants_flush:
            self.wants_checkpoint.set()

    async def fence(self, ledger_id: int) -> tuple[int, int]:
        """Fence one ledger, as ``fence_all``."""
        return (await self.fence_all([ledger_id]))[0]

    async def fence_all(self, ledger_ids: Sequence[int]) -> list[tuple[int, int]]:
        """Fence ledgers, also unknown ones.

        Return ``(code, LAC)`` of each once all fences are durable, on every path (rule 5).
        """
        await self.states.load(ledger_ids)
        sequence = -1
        found: list[tuple[int, int]] = []
        for ledger_id in ledger_ids:
            state = self.states.loaded[ledger_id]
            # a deleted ledger is fenced only as long as the bookie remembers it
            if not state.fenced or not state.exists:
                state.fenced = True
                self.states.changed(state)
                state.fence_sequence = self.journal.append(
                    RecordType.FENCE, [FENCE_PAYLOAD.pack(ledger_id)], FENCE_PAYLOAD.size
                )
                self.counters.fences += 1
                _log.info("ledger fenced", ledger=ledger_id, lac=state.known_lac)
            sequence = max(sequence, state.fence_sequence)
            found.append((EntryUnknown.code, NO_ENTRY) if state.limbo else (0, state.known_lac))
        await self.journal.wait_synced(sequence)
        return found

    async def clear_limbo(self, ledger_id: int, times: int) -> int:
        """End a closed ledger's limbo, so that the bookie answers "not there" for it again.

        Return a code once that is durable.

        Auto-recovery has verified or written every entry that should be here. The fence may be
        among what was lost, so it is set first. The call is refused when ``times`` is not the
        present limbo: entries that were verified in an earlier limbo may be lost since.
        """
        if times != self.limbo.times:
            return EntryUnknown.code
        await self.fence(ledger_id)
        with self.index_write():
            await self.index.clear_limbo(ledger_id, self.limbo.times)
        state = await self.states.get(ledger_id)
        state.limbo = False
        self.states.changed(state)
        return 0

    async def write_lacs(self, lacs: Sequence[tuple[int, int]]) -> list[int]:
        """Store explicit LACs, given as ``(ledger, LAC)``. Return their codes once all are durable.

        The code for a fenced ledger makes its writer stop.
        """
        await self.states.load([ledger_id for ledger_id, _ in lacs])
        codes: list[int] = []
        for ledger_id, lac in lacs:
            state = self.states.loaded[ledger_id]
            if state.fenced or state.limbo:
                codes.append(LedgerFenced.code if state.fenced else EntryUnknown.code)
                continue
            codes.append(0)
            if lac > state.explicit_lac:
                state.explicit_lac = lac
                self.states.changed(state)
                self.journal.append(
                    RecordType.EXPLICIT_LAC,
                    [EXPLICIT_LAC_PAYLOAD.pack(ledger_id, lac)],
                    EXPLICIT_LAC_PAYLOAD.size,
                )
                state.wake()
        # Wait for everything queued so far: these, those of other calls that they repeat, and the
        # fences that refused them.
        await self.journal.wait_synced(self.journal.queue.next_sequence - 1)
        return codes

    async def read_lac(
        self, ledger_id: int, after_lac: int, wait_seconds: float
    ) -> tuple[int, int]:
        """Return ``(code, LAC)``: the greatest LAC, from entries or written explicitly.

        Wait until it is above ``after_lac``.
        """
        state = await self.states.get(ledger_id)
        if wait_seconds > 0 and state.known_lac <= after_lac:
            await self._wait_for_lac(state, after_lac, wait_seconds)
        if state.limbo:
            return EntryUnknown.code, NO_ENTRY
        return (0, state.known_lac) if state.exists else (NoSuchLedger.code, NO_ENTRY)

    async def _wait_for_lac(
        self, state: LocalLedgerState, after_lac: int, wait_seconds: float
    ) -> None:
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (after_lac, moved)
        state.waiters.append(waiter)
        try:
            async with self._clock.timeout(wait_seconds):
                await moved
        except TimeoutError:
            return  # the answer is the LAC as it is
        finally:
            state.waiters.remove(waiter)

    async def recovery_read(
        self, ledger_id: int, first: int, last: int, max_bytes: int
    ) -> ReadAnswer:
        """Fence, then read: the former writer can never add what is missing now (rule 6)."""
        await self.fence(ledger_id)
        item = ReadItem(0, ledger_id, [(first, last)], max_bytes)
        return (await self.read([item], lane=RECOVERY_LANE))[0]

    async def read_fenced(self, items: Sequence[ReadItem], limit_bytes: int) -> list[ReadAnswer]:
        """Read ledgers that are fenced, durably, before this is called: then what is missing now
        stays missing, as with ``recovery_read``.

        Return as many answers as ``limit_bytes`` takes.
        """
        return await self.read(items, limit_bytes, lane=RECOVERY_LANE)

    async def read(
        self,
        items: Sequence[ReadItem],
        limit_bytes: int = 0,
        admit: Admit | None = None,
        *,
        lane: str = READ_LANE,
    ) -> list[ReadAnswer]:
        """Read entries, as ``Reader.read``."""
        began = self._clock.monotonic()
        answers = await self.reader.read(items, limit_bytes, admit, lane=lane)
        took = self._clock.monotonic() - began
        for answer in answers:
            if answer.records:
                self.read_seconds.succeeded.observe(took, len(answer.records))
            if answer.code:
                self.read_seconds.failed.observe(took)
        return answers

    async def list_entries(self, ledger_id: int, first: int, last: int) -> tuple[int, list[int]]:
        """List entries, as ``Reader.list_entries``."""
        return await self.reader.list_entries(ledger_id, first, last)

    async def list_ledgers(self, after: int, limit: int) -> tuple[list[int], bool]:
        """Return ledgers above ``after`` in order, and whether there are more."""
        rows = [ledger_id for ledger_id, _ in await self.index.ledgers(after, limit + 1)]
        found = sorted(dict.fromkeys([*rows, *self.states.unwritten(after)]))
        return found[:limit], len(found) > limit

    async def next_free_ledger(self, next_id: int) -> int:
        """Return the first id from ``next_id`` on that is above those of all ledgers known here,
        deleted ones included.
        """
        while await self.highest_ledger() >= next_id:
            used = [
                *await self.index.known_ids(next_id, ROWS_MAX),
                *self.states.unwritten(next_id - 1),
            ]
            above = next_id_above(next_id, sorted(used))
            if above == next_id:
                _log.warning(
                    "ignores ledgers with ids that no metadata gave out",
                    highest=await self.highest_ledger(),
                )
                break
            next_id = above
        return next_id

    async def highest_ledger(self) -> int:
        """Return the greatest id of a ledger that this bookie knows, a deleted one included; -1 for
        none.
        """
        return max([await self.index.highest_ledger(), *self.states.unwritten(-1)[-1:]])

    @contextmanager
    def index_write(self) -> Iterator[None]:
        """Enclose a write of the index whose caller handles its failure: the next checkpoint ends
        the process with it.
        """
        try:
            yield
        except Exception as error:
            self.broken = error
            self.wants_checkpoint.set()
            raise

    async def checkpoint(self) -> None:
        self.wants_checkpoint.clear()
        if self.broken is not None:
            raise self.broken
        mark, probes = self.checkpointer.mark, self._probes
        await self.checkpointer.checkpoint(self.journal, probes=probes)
        if self.checkpointer.mark is not mark:
            self._probes -= probes

    async def close(self) -> None:
        """Write everything out and close. Nothing may be added after this."""
        await self.journal.stop()
        await self.checkpointer.checkpoint(self.journal)
        await self.ahead.stop()
        await self.logs.close()
        await self.index.rows.close()


async def open_store(
    *,
    files: Files,
    tasks: Tasks,
    clock: Clock,
    rng: random.Random,
    open_index: Callable[[str], Awaitable[KeyValueIndex]],
    config: BookieConfig,
    instance_id: str,
    ledgers_given_out: Callable[[], Awaitable[int]],
    durable_below: int = 0,
    limbo_times: int = 0,
) -> EntryStore:
    """Open the directories of a bookie whose cookies agree, and replay its journal.

    Args:
        rng: draws the key of the journal's records.
        ledgers_given_out: returns an id above those of all ledgers; called only when damage to the
            journal is given up.
        durable_below: all records of the journal below this one were durable, as the metadata know.
        limbo_times: how often the bookie was in limbo, as the metadata know.

    Raises ``CorruptData``, and what ``ledgers_given_out`` raises.
    """
    limbo = Limbo(files, config.ledger_path)
    await limbo.load()
    index = await _open_index(open_index, config)
    cache = WriteCache(config.write_cache_size_bytes)
    states = LocalLedgerStates(index, cache, limbo, config.open_ledgers_max)
    logs = EntryLogs(
        files,
        index,
        config.ledger_path,
        size_bytes=config.entry_log_size_bytes,
        open_max=config.open_entry_logs_max,
        remove_from_page_cache=config.entry_log_remove_from_page_cache,
    )
    try:
        await states.count_rows()
        await logs.open()
        _ = await index.highest_ledger()  # the registration asks for it, and would retry forever
    except (OSError, BookieIOError) as error:
        raise BookieIOError(f"{error}. {how_to_rebuild(config)}") from error.__cause__ or error
    lost_mark: CorruptData | None = None
    try:
        mark = await _first_mark(files, config, await logs.ids())
    except CorruptData as damage:
        if config.journal_corruption != "limbo":
            raise CorruptData(f"{damage}. {_HOW_TO_GIVE_UP}") from damage
        _log.error("the mark is lost: all that the journal has is replayed", damage=damage)
        mark, lost_mark = await oldest_mark(files, config.journal_path), damage
    _check_index_reaches(index, mark, config)
    checkpointer = Checkpointer(
        files=files,
        clock=clock,
        config=config,
        cache=cache,
        states=states,
        logs=logs,
        index=index,
        mark=mark or Mark(1, FIRST_SEQUENCE),
    )
    next_file_id, next_sequence, old_files = 1, FIRST_SEQUENCE, []
    if mark is not None:
        began = clock.monotonic()
        replayed = await replay(
            files,
            config.journal_path,
            mark,
            instance_id=instance_id,
            cache=cache,
            states=states,
            checkpointer=checkpointer,
            durable_below=durable_below,
            give_up_damage=config.journal_corruption == "limbo",
        )
        if (lost := replayed.lost or lost_mark) is not None:
            await limbo.enter(await ledgers_given_out(), str(lost), times_before=limbo_times)
            states.enter_limbo()
        # Replayed entries may have been in the page cache only: sync them here, before anything is
        # served.
        await checkpointer.flush()
        next_file_id, next_sequence, old_files = (
            replayed.next_file_id,
            replayed.next_sequence,
            replayed.file_ids,
        )
        took_ms = round((clock.monotonic() - began) * 1000)
        _log.info(
            "journal replayed",
            files=len(old_files),
            records=next_sequence - mark.sequence,
            took_ms=took_ms,
        )
    else:
        check_reaches(config.journal_path, FIRST_SEQUENCE, durable_below)
    journal = Journal(
        files,
        tasks,
        clock,
        directory=config.journal_path,
        instance_id=instance_id,
        record_key=rng.getrandbits(64),
        first_file_id=next_file_id,
        next_sequence=next_sequence,
        file_size_bytes=config.journal_file_size_bytes,
        group_size_bytes=config.journal_group_size_bytes,
        prepare_slice_bytes=config.journal_prepare_slice_bytes,
        slow_sync_ms=config.journal_slow_sync_ms,
    )
    await journal.open()
    await checkpointer.move_mark(Mark(next_file_id, next_sequence))
    if old_files:
        await files.remove([f"{config.journal_path}/{file_name(file_id)}" for file_id in old_files])
    read_cache = ReadCache(config.read_cache_size_bytes)
    limits = ReadAheadLimits(
        config.read_ahead_batch_entries,
        config.read_ahead_batch_size_bytes,
        config.read_ahead_cache_size_bytes,
    )
    return EntryStore(
        instance_id=instance_id,
        clock=clock,
        cache=cache,
        read_cache=read_cache,
        ahead=ReadAhead(tasks, clock, index, logs, limits, read_cache.has),
        states=states,
        index=index,
        logs=logs,
        checkpointer=checkpointer,
        journal=journal,
        limbo=limbo,
    )


def index_rows_path(config: BookieConfig) -> str:
    """Return the directory of the index itself."""
    return f"{config.index_path}/{_INDEX_ROWS}"


async def _open_index(
    open_index: Callable[[str], Awaitable[KeyValueIndex]], config: BookieConfig
) -> LedgerIndex:
    try:
        return LedgerIndex(await open_index(index_rows_path(config)))
    except CorruptData as error:
        raise CorruptData(f"{error}. {how_to_rebuild(config)}") from error


def _check_index_reaches(index: LedgerIndex, mark: Mark | None, config: BookieConfig) -> None:
    """Raise ``CorruptData`` for an index older than the mark: entries below the mark are nowhere
    else.
    """
    if mark is not None and index.rows.synced < mark.index_write:
        raise CorruptData(
            f"the index in {index_rows_path(config)} is older than the mark "
            f"{config.ledger_path}/{MARK_NAME}: it ends at write {index.rows.synced}, and it was "
            f"synced up to write {mark.index_write} when the mark was written. "
            f"{how_to_rebuild(config)}"
        )


def how_to_rebuild(config: BookieConfig) -> str:
    """Return what an operator does about a damaged index."""
    return (
        f"Entries and fences may be missing in it: put back the index of {config.bookie_id} as "
        "it was last, or rebuild it from the entry "
        "logs, with the options of this bookie (if it has several volumes, also with --volume "
        f"{config.ledger_path}): pulsarish storage rebuild-index. It then "
        'answers "unknown" for every ledger that existed, '
        "until auto-recovery has made it whole, and readers go to the other copies"
    )


async def _first_mark(files: Files, config: BookieConfig, log_ids: Sequence[int]) -> Mark | None:
    """Return where replay begins; ``None`` for a bookie that has never served.

    Raises ``CorruptData`` when the mark was lost.
    """
    mark = await read_mark(files, config.ledger_path)
    if mark is not None:
        return mark
    file_ids = await journal_file_ids(files, config.journal_path)
    if 1 in file_ids:
        # The first start ended before it wrote the mark, so the journal has everything.
        return Mark(1, FIRST_SEQUENCE)
    if file_ids or log_ids:
        raise CorruptData(
            f"the mark {config.ledger_path}/{MARK_NAME} is missing, and {config.journal_path} "
            "does not reach back to the start"
        )
    return None
