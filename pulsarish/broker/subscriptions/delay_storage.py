"""Keeps the delayed entries of a subscription in ledgers: writes buckets, loads their segments,
merges small ones, and deletes those that are used up.

Everything here runs beside delivery. A bucket that cannot be written stays in memory. A bucket that
cannot be read is given up, and its entries are read from the log again: consumers subscribe again
then, as after a change of the owner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.dispatchers.delay_bucket import Bucket, EntryBits
from pulsarish.broker.dispatchers.delayed import DelayedEntries
from pulsarish.model.errors import PulsarishError, ServiceNotReady
from pulsarish.runtime.backoff import Backoff
from pulsarish.runtime.containment import Scope
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

if TYPE_CHECKING:
    from pulsarish.broker.dispatchers.reads import Reads
    from pulsarish.ledger.reader import LedgerReader
    from pulsarish.ledger.writer import LedgerWriter
    from pulsarish.managed_ledger.cursors.delay_ledgers import DelayLedgers
    from pulsarish.model.position import Position

__all__ = ["DelayStorage"]

_log = get_logger("broker.subscription")
T = TypeVar("T")

_AHEAD_MS: Final = 30_000  # a segment is loaded this long before it is due
_RETRY_SECONDS: Final = 0.1  # first wait before a failed step is tried again
_RETRY_MAX_SECONDS: Final = 5.0
_GIVE_UP_SECONDS: Final = 30.0  # a bucket that cannot be read for this long is given up
_PREPARE_SECONDS: Final = 60.0  # and after this long all that an owner could not read yet


class DelayOwner(Protocol):
    """The subscription, as storage needs it."""

    name: str
    topic: str

    def wake(self) -> None: ...

    def close_consumers(self, error: PulsarishError) -> None: ...


class DelayStorage:
    """The stored delayed entries of one subscription type of a subscription."""

    def __init__(
        self,
        owner: DelayOwner,
        reads: Reads,
        mark_delete: Callable[[], Position],
        ledgers: DelayLedgers | None,
        world: World,
        config: BrokerConfig,
        scope: Scope,
    ) -> None:
        """``ledgers`` ``None``: everything stays in memory."""
        self._owner = owner
        self._reads = reads
        self._delayed: DelayedEntries = reads.delayed
        self._mark_delete = mark_delete
        self._ledgers = ledgers
        self._clock = world.clock
        self._tasks = world.tasks
        self._scope = scope
        # The limit of entries in memory may be lower.
        self._entries_min = min(
            config.delayed_delivery_min_index_count_per_bucket,
            max(1, config.delayed_delivery_max_entries_per_subscription // 2),
        )
        self._buckets_max = config.delayed_delivery_max_num_buckets
        self._segment_entries = config.delayed_delivery_max_indexes_per_bucket_snapshot_segment
        self.is_active = ledgers is not None
        """Whether there is anything to ``look`` at."""
        self.is_ready = self._ledgers is None or not self._ledgers.named
        """Whether the stored buckets were taken. Nothing may be read before."""
        self._prepare_until: float | None = None
        self._opened: dict[int, Bucket | None] = {}  # ``None``: given up
        self._readers: dict[int, LedgerReader] = {}
        self.now_ms = 0
        """The time of the last ``look``."""
        self._is_working = False
        self._is_closed = False
        self._written: tuple[Bucket, LedgerWriter] | None = None  # not known to be named

    def close(self) -> None:
        """Stop: the subscription is closed, or has another type now."""
        self._is_closed = True

    async def prepare(self) -> None:
        """Take the stored buckets, before anything is read."""
        assert self._ledgers is not None
        reads = self._reads
        for ledger_id in self._ledgers.named:
            if ledger_id not in self._opened:
                if self._prepare_until is None:
                    self._prepare_until = self._clock.monotonic() + _PREPARE_SECONDS
                bucket = await self._patiently(ledger_id, partial(self._open, ledger_id))
                if self._is_closed:
                    return
                self._opened[ledger_id] = bucket
        reads.failure, reads.failed_since_ms = "", 0
        mark = self._mark_delete()
        found = [each for each in self._opened.values() if each is not None and each.last > mark]
        for bucket in found:
            bucket.drop_through(mark)
        self._opened.clear()
        self._delayed.adopt(found)
        self.is_ready = True

    async def _open(self, ledger_id: int) -> Bucket:
        reader = await self._reader(ledger_id)
        assert self._ledgers is not None
        index = await self._ledgers.read(reader, reader.last_add_confirmed)
        return Bucket.decode(ledger_id, index)

    async def _reader(self, ledger_id: int) -> LedgerReader:
        assert self._ledgers is not None
        reader = self._readers.get(ledger_id)
        if reader is None:
            reader = self._readers[ledger_id] = await self._ledgers.open(ledger_id)
        return reader

    async def _patiently(self, ledger_id: int, read: Callable[[], Awaitable[T]]) -> T | None:
        """Return what is read from a bucket's ledger; ``None`` when the bucket is given up."""
        backoff = Backoff(_RETRY_SECONDS, _RETRY_MAX_SECONDS)
        give_up_at = self._clock.monotonic() + _GIVE_UP_SECONDS
        if not self.is_ready and self._prepare_until is not None:
            give_up_at = min(give_up_at, self._prepare_until)
        while not self._is_closed:
            try:
                return await read()
            except PulsarishError as error:
                self._readers.pop(ledger_id, None)
                if not error.retryable or self._clock.monotonic() >= give_up_at:
                    _log.warning(
                        "a bucket of delayed messages is unreadable; they are read again from "
                        "the log",
                        topic=self._owner.topic,
                        subscription=self._owner.name,
                        ledger=ledger_id,
                        reason=error,
                    )
                    return None
                if not self.is_ready:
                    reads = self._reads
                    reads.failure = f"{type(error).__name__}: {error}"
                    reads.failed_since_ms = reads.failed_since_ms or self._clock.wall_ms()
            await self._clock.sleep(backoff.next_seconds())
        return None

    # -- beside delivery

    def look(self, now_ms: int) -> None:
        """Start what is to be done now: loading of segments, writing of buckets."""
        if self._ledgers is None or not self.is_ready or self._is_closed:
            return
        self.now_ms = now_ms
        for bucket in self._delayed.buckets:
            number = None if bucket.is_loading else bucket.segment_due(now_ms + _AHEAD_MS)
            if number is not None:
                bucket.is_loading = True
                self._spawn("load", self._load(bucket, number))
        if not self._is_working and self._has_work():
            self._is_working = True
            self._spawn("store", self._work())

    def _spawn(self, what: str, work: Coroutine[object, object, None]) -> None:
        name = f"{what} delayed {self._owner.topic} {self._owner.name}"
        _ = self._tasks.spawn(work, name=name, scope=self._scope)

    async def _load(self, bucket: Bucket, number: int) -> None:
        entries = await self._patiently(bucket.ledger_id, partial(self._segment, bucket, number))
        bucket.is_loading = False
        if self._is_closed or bucket not in self._delayed.buckets:
            return
        if entries is None:
            self._give_up(bucket)
        else:
            bucket.loaded(number, entries)
        self._owner.wake()

    async def _segment(self, bucket: Bucket, number: int) -> list[int]:
        assert self._ledgers is not None
        reader = await self._reader(bucket.ledger_id)
        return bucket.decode_segment(number, await self._ledgers.read(reader, number))

    def _give_up(self, bucket: Bucket) -> None:
        self._delayed.remove(bucket)
        # What consumers hold is known only by position, and which of the bucket's entries these
        # are is not known: everything starts again.
        self._owner.close_consumers(
            ServiceNotReady(
                f"a bucket of delayed messages of subscription {self._owner.name!r} was "
                "lost, and they are read again; subscribe again"
            )
        )

    def _has_work(self) -> bool:
        delayed, ledgers = self._delayed, self._ledgers
        assert ledgers is not None
        if not delayed.buckets and not ledgers.named:
            return delayed.may_seal(self.now_ms, self._entries_min)
        return (
            any(bucket.ledger_id < 0 for bucket in delayed.buckets)
            or bool(self._used())
            or self._is_misnamed
            or len(delayed.buckets) > self._buckets_max
            or delayed.may_seal(self.now_ms, self._entries_min)
        )

    def _used(self) -> list[Bucket]:
        """Return the buckets of which nothing is left."""
        return [each for each in self._delayed.passed(self._reads.position) if not each.left]

    @property
    def _is_misnamed(self) -> bool:
        assert self._ledgers is not None
        return set(self._names()) != set(self._ledgers.named)

    async def _work(self) -> None:
        backoff = Backoff(_RETRY_SECONDS, _RETRY_MAX_SECONDS)
        while not self._is_closed:
            try:
                if not await self._step():
                    break
                backoff.reset()
            except PulsarishError as error:
                _log.warning(
                    "delayed messages are not stored yet, and stay in memory",
                    topic=self._owner.topic,
                    subscription=self._owner.name,
                    reason=error,
                )
                await self._clock.sleep(backoff.next_seconds())
        self._is_working = False
        if self._written is not None and self._ledgers is not None and self._is_closed:
            await self._ledgers.discard(self._written[1].ledger_id)

    async def _step(self) -> bool:
        """Do one thing that is to be done; ``False``: there was none."""
        delayed = self._delayed
        assert self._ledgers is not None
        if used := self._used():
            delayed.remove(*used)
        for ledger_id in self._readers.keys() - {each.ledger_id for each in delayed.buckets}:
            del self._readers[ledger_id]
        unsaved = next((bucket for bucket in delayed.buckets if bucket.ledger_id < 0), None)
        if unsaved is not None:
            await self._store(unsaved)
            return True
        if self._is_misnamed:
            await self._ledgers.name(self._names())
            return True
        if len(delayed.buckets) > self._buckets_max and await self._merge():
            return True
        return (
            delayed.may_seal(self.now_ms, self._entries_min)
            and delayed.seal(self.now_ms, self._entries_min, self._segment_entries) is not None
        )

    def _names(self, stored: Bucket | None = None) -> list[int]:
        """Return the ledgers to be named. ``stored``: what this bucket replaces is not needed."""
        names: dict[int, None] = {}
        for bucket in self._delayed.buckets:
            if bucket.ledger_id >= 0:
                names[bucket.ledger_id] = None
            elif bucket is not stored:
                names.update(dict.fromkeys(bucket.replaces))
        return list(names)

    async def _store(self, bucket: Bucket) -> None:
        assert self._ledgers is not None
        if self._written is None:
            payloads: list[bytes] = []
            for number in range(bucket.segments):
                payloads.append(bucket.encode_segment(number))
                await self._clock.sleep(0)  # others run between
            payloads.append(bucket.encode_index())
            self._written = bucket, await self._ledgers.write(payloads)
        written, writer = self._written
        if self._is_closed or written is not bucket or bucket not in self._delayed.buckets:
            # Nothing of it is needed any more, or reading has begun again elsewhere.
            self._written = None
            await self._ledgers.discard(writer.ledger_id)
            return
        try:
            await self._ledgers.name([*self._names(bucket), writer.ledger_id], writer)
        except ServiceNotReady:
            self._written = None
            await self._ledgers.discard(writer.ledger_id)
            raise
        self._written = None
        bucket.stored(writer.ledger_id)
        self._owner.wake()  # there may be room in memory again

    async def _merge(self) -> bool:
        """Make one bucket in memory of the two with the fewest entries left, if it fits there."""
        delayed = self._delayed
        passed = delayed.passed(self._reads.position)
        parts = sorted(passed, key=lambda bucket: bucket.left)[:2]
        entries_max = delayed.entries_max - delayed.in_memory
        if len(parts) < 2 or sum(bucket.left for bucket in parts) > entries_max:
            return False
        found: list[tuple[Bucket, int, list[int]]] = []
        bits = EntryBits()
        for bucket in parts:
            segment = bucket.taken // bucket.segment_entries
            entries: list[int] = []
            for number in range(segment, bucket.segments):
                loaded = await self._patiently(
                    bucket.ledger_id, partial(self._segment, bucket, number)
                )
                if self._is_closed or bucket not in delayed.buckets:
                    return True
                if loaded is None:
                    self._give_up(bucket)
                    return True
                entries += loaded
                bits.add(loaded)
            found.append((bucket, segment * bucket.segment_entries, entries))
        passed = delayed.passed(self._reads.position)
        if any(bucket.taken < first or bucket not in passed for bucket, first, _ in found):
            return True  # reading has begun again in the meantime
        delayed.merge(found, bits, self._segment_entries)
        return True
