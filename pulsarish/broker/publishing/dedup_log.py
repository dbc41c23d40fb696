"""Deduplication over the log of a topic: snapshots of the marks in the cursor ``pulsar.dedup``, and
their rebuild by replay (rule 15).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.publishing.dedup import Deduplication, Verdict, sequence_mark
from pulsarish.model.errors import DeduplicationUncertain, InvalidArgument, PulsarishError
from pulsarish.model.position import EARLIEST, Position
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import parse_metadata

if TYPE_CHECKING:
    from pulsarish.managed_ledger.cursors.cursor import Cursor
    from pulsarish.managed_ledger.managed_ledger import ManagedLedger

__all__ = ["DEDUP_CURSOR", "BatchPartlyStored", "DedupLog", "entry_marks", "is_new"]

_log = get_logger("broker.dedup")

DEDUP_CURSOR: Final = "pulsar.dedup"


class BatchPartlyStored(InvalidArgument):
    """The first messages of a batch are in the log already, the last ones are not.

    This closes the producer.

    If later entries were stored before the batch is sent again, deduplication would drop the rest
    of the batch as duplicates.
    """


def entry_marks(metadata: MessageMetadata) -> tuple[int, int]:
    """Return the marks of an entry's first and last message."""
    sequence_id = metadata.sequence_id
    if metadata.num_chunks_from_msg > 1:
        mark = sequence_mark(sequence_id, metadata.chunk_id, metadata.num_chunks_from_msg)
        return mark, mark
    first = sequence_mark(sequence_id)
    highest = metadata.highest_sequence_id
    return first, sequence_mark(highest) if highest > sequence_id else first


def is_new(verdict: Verdict, metadata: MessageMetadata) -> bool:
    """Return whether to append an entry; ``False`` for a duplicate.

    Raises ``DeduplicationUncertain``, ``BatchPartlyStored``.
    """
    match verdict:
        case Verdict.NEW:
            return True
        case Verdict.DUPLICATE:
            return False
        case Verdict.UNCERTAIN:
            raise DeduplicationUncertain(
                f"sequence id {metadata.sequence_id} of {metadata.producer_name!r} is on its "
                "way to the log and not there yet;"
                " send it again"
            )
        case Verdict.PARTLY:
            raise BatchPartlyStored(
                f"a batch of {metadata.producer_name!r} begins with sequence id "
                f"{metadata.sequence_id}, which is in the log already, and"
                f" ends with {metadata.highest_sequence_id}, which is not: make a new producer "
                "and send again what was not acknowledged"
            )


class DedupLog:
    """The marks of one loaded topic and where they were last stored.

    Create it with ``begin`` and use it after ``catch_up``.
    """

    def __init__(
        self, topic: str, log: ManagedLedger, cursor: Cursor, world: World, config: BrokerConfig
    ) -> None:
        self.marks = Deduplication(
            producers_max=config.broker_deduplication_max_number_of_producers,
            inactivity_ms=config.broker_deduplication_producer_inactivity_timeout_minutes * 60_000,
        )
        self.snapshot_interval_seconds = config.broker_deduplication_snapshot_interval_seconds
        """Seconds between snapshots; 0: only the number of entries triggers snapshots."""
        self._topic = topic
        self._log = log
        self._cursor = cursor
        self._world = world
        self._config = config
        self._covered: Position | None = None  # the last entry that the marks include
        self._entries_since = 0
        self._storing = False
        self._waiting_for_time = False
        self._closed = False

    @classmethod
    async def begin(
        cls, topic: str, log: ManagedLedger, world: World, config: BrokerConfig
    ) -> DedupLog:
        """Load the last snapshot.

        Without one, all entries still in the log count, so the cursor starts at the log's start.
        """
        cursor = await log.open_cursor(DEDUP_CURSOR, initial=EARLIEST, durable=True, properties={})
        self = cls(topic, log, cursor, world, config)
        self.marks.restore(cursor.properties, world.clock.wall_ms())
        return self

    async def catch_up(self) -> None:
        """Replay the entries after the snapshot, or after the last call.

        Raises the errors of the log.

        Entries may be appended at the same time. A last call while no append is in flight makes the
        marks complete (rule 15).
        """
        log, config, now_ms = self._log, self._config, self._world.clock.wall_ms()
        start = (
            self._cursor.read_from if self._covered is None else log.next_position(self._covered)
        )
        while start <= log.last_confirmed:
            entries = await log.read(
                start,
                max_entries=config.dispatcher_max_read_batch_size,
                max_bytes=config.dispatcher_max_read_size_bytes,
            )
            if not entries:
                break
            for position, payload in entries:
                metadata = parse_metadata(payload)
                self.marks.observe(metadata.producer_name, entry_marks(metadata)[1], now_ms)
                self._covered = position
            self._entries_since += len(entries)
            assert self._covered is not None
            start = Position(self._covered.ledger_id, self._covered.entry_id + 1)
        if self._entries_since >= config.broker_deduplication_entries_interval:
            await self.store()

    def confirmed(self, last: Position, count: int) -> None:
        """Record that ``count`` more entries, up to ``last``, are in the log and included in the
        marks.
        """
        self._covered = last
        self._entries_since += count
        if self._storing or self._closed:
            return
        if self._entries_since >= self._config.broker_deduplication_entries_interval:
            self._storing = True
            _ = self._world.tasks.spawn(self._store_now(), name=f"dedup snapshot {self._topic}")
        elif not self._waiting_for_time and self.snapshot_interval_seconds:
            # Start the timer only while something is not saved: an idle topic has no timer.
            self._waiting_for_time = True
            _ = self._world.tasks.spawn(
                self._store_in_time(), name=f"dedup snapshot timer {self._topic}"
            )

    async def _store_now(self) -> None:
        try:
            await self.store()
        except PulsarishError as error:
            # The log keeps the entries that the old snapshot does not include. The next snapshot is
            # due after the usual number of entries.
            _log.warning("dedup snapshot failed", topic=self._topic, reason=error)
            self._entries_since = 0
        finally:
            self._storing = False

    async def _store_in_time(self) -> None:
        await self._world.clock.sleep(self.snapshot_interval_seconds)
        self._waiting_for_time = False
        if self._entries_since and not self._storing and not self._closed:
            self._storing = True
            await self._store_now()

    async def store(self) -> None:
        """Make the marks durable.

        Raises the errors of the cursor; the older snapshot stays valid then.
        """
        if self._covered is None:
            return
        self.marks.purge(self._world.clock.wall_ms())
        self._entries_since = 0
        await self._cursor.set_properties(self.marks.snapshot(), self._covered)

    def stop(self) -> None:
        """Store nothing any more: another broker owns the log."""
        self._closed = True

    async def close(self) -> None:
        """Store a last snapshot, so that the next owner has nothing to replay."""
        if self._closed:
            return
        self._closed = True
        if self._entries_since:
            try:
                await self.store()
            except PulsarishError as error:
                _log.warning("dedup snapshot failed at close", topic=self._topic, reason=error)
