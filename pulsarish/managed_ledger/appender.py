"""Appends to a topic's log.

They go to the current ledger. ``LedgerChanges`` replaces a full, aged or broken ledger underneath
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.reader import LedgerReader
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.managed_ledger.chain_core import ChainCore, Confirmed, Phase
from pulsarish.managed_ledger.ledger_changes import Goal, LedgerChanges
from pulsarish.managed_ledger.log_condition import LogCondition
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.managed_ledger.owned_topic_record import OwnedTopicRecord
from pulsarish.managed_ledger.tail_cache import TailCache
from pulsarish.managed_ledger.topic_ledgers import (
    WriterEvents,
)
from pulsarish.model.errors import (
    LedgerFenced,
    PulsarishError,
    TopicFenced,
    TopicTerminated,
)
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

__all__ = ["Appender", "LogListener"]

_log = get_logger("managed_ledger")


class LogListener(Protocol):
    """The owner of the appends. Called in the loop, never from inside ``append``."""

    def appended(self, ledger_id: int, first_entry: int, contexts: Sequence[object]) -> None:
        """Note that consecutive entries are confirmed, in the order of their appends."""
        ...

    def append_failed(self, contexts: Sequence[object], error: PulsarishError) -> None:
        """Note that these appends were not confirmed here and will not be sent again.

        After ``fenced`` they may still be in the log.
        """
        ...

    def fenced(self, error: PulsarishError) -> None:
        """Note that this owner has ended for good."""
        ...


class Appender:
    """Carries out the decisions of ``ChainCore``, for one topic on one broker."""

    __slots__ = (
        "_cache",
        "_events",
        "_ledgers",
        "_listener",
        "_on_stopped",
        "_options",
        "_reader",
        "_tasks",
        "_topic",
        "_waiters",
        "_writer",
        "changes",
        "core",
        "error",
    )

    def __init__(
        self,
        core: ChainCore,
        topic: OwnedTopicRecord,
        ledgers: LedgerClient,
        world: World,
        options: ManagedLedgerOptions,
        listener: LogListener,
        cache: TailCache,
        *,
        rolled: Callable[[], None],
        stopped: Callable[[PulsarishError], None],
    ) -> None:
        self.core = core
        self.error: PulsarishError | None = None  # why this owner has ended
        self._topic = topic.name
        self._ledgers = ledgers
        self._tasks = world.tasks
        self._options = options
        self._listener = listener
        self._cache = cache
        self._on_stopped = stopped
        self._writer: LedgerWriter | None = None
        self._events: WriterEvents | None = None
        self._reader: LedgerReader | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self.changes = LedgerChanges(self, topic, ledgers, world, options, rolled)
        """Replacing, sealing and closing the current ledger."""

    def use_options(self, options: ManagedLedgerOptions) -> None:
        """Apply options.

        Quorums hold from the next ledger on. The limits of the current ledger stay; all else
        changes at once.
        """
        self._options = options
        self.changes.use_options(options)

    def use(self, writer: LedgerWriter, events: WriterEvents) -> None:
        """Append to this ledger from now on. It is the chain's current one."""
        assert self.core.chain.links[-1].ledger_id == writer.ledger_id
        self._writer = writer
        self._events = events
        self._reader = None
        events.owner = self

    @property
    def write_quorum(self) -> int:
        return self._options.write_quorum

    def condition(self) -> LogCondition:
        """The condition of the appender."""
        core, writer, changes = self.core, self._writer, self.changes
        waits = core.phase in (Phase.DRAINING, Phase.REPLACING)
        return LogCondition(
            core.phase,
            changes.step,
            changes.blocked_since_ms if waits else 0,
            changes.trouble,
            writer.condition()
            if writer is not None and core.phase in (Phase.WRITING, Phase.DRAINING)
            else None,
            core.pending,
            core.pending_bytes,
            core.oldest_context(),
        )

    def current_reader(self) -> LedgerReader:
        """Return the reader of the chain's open ledger, up to what is confirmed."""
        if self._reader is None:
            assert self._writer is not None
            self._reader = self._ledgers.reader_of(self._writer)
        return self._reader

    def read_from(self, reader: LedgerReader) -> None:
        """Read the open ledger with this reader: its writer has stopped, and does not know what
        recovery confirms.
        """
        self._reader = reader

    # -- appends

    def append(self, payload: bytes, context: object) -> None:
        """Queue one entry.

        Raises ``TopicTerminated``, ``TopicFenced``, or the retryable reason why there is no ledger
        now.
        """
        core = self.core
        if core.phase is not Phase.WRITING:
            self.check_open()
        if core.accept(payload, context):
            self._push(payload)

    def check_open(self) -> None:
        """Raise the error that an append would raise now, if there is one."""
        goal = self.changes.goal
        if self.core.phase is Phase.SEALED or goal is Goal.SEAL:
            raise TopicTerminated(f"topic {self._topic} was terminated")
        if self.core.phase is Phase.STOPPED or goal is Goal.CLOSE:
            raise self.error or TopicFenced(f"topic {self._topic} is being closed on this broker")
        if self.changes.outage is not None:
            raise self.changes.outage

    def send_waiting(self) -> None:
        """Send the entries that wait to the current ledger."""
        for payload in self.core.unpushed():
            if not self._push(payload):
                break

    def _push(self, payload: bytes) -> bool:
        assert self._writer is not None
        try:
            entry_id = self._writer.append(payload)
        except PulsarishError as error:
            # The writer has stopped. That is handled from the loop, never from inside an append.
            asyncio.get_running_loop().call_soon(self._writer_refused, self._writer, error)
            return False
        self.core.note_pushed(entry_id, len(payload))
        return True

    def _writer_refused(self, writer: LedgerWriter, error: PulsarishError) -> None:
        try:
            if writer is self._writer:
                self.on_writer_stopped(error)
        except Exception as defect:  # noqa: BLE001
            # Whatever it is: the topic must not stay half alive.
            self._tasks.contain(
                f"ledger of {self._topic}",
                defect,
                Scope(ScopeKind.TOPIC, self._topic.full, self.failed),
            )

    def failed(self, error: BaseException) -> None:
        self.fence(TopicFenced(f"topic {self._topic} failed on this broker: {error!r}"))

    @property
    def has_room(self) -> bool:
        core, options = self.core, self._options
        return (
            core.pending < options.pending_entries_max
            and core.pending_bytes < options.pending_bytes_max
        )

    async def wait_for_room(self) -> None:
        """Wait until an append is within the limits. Raises as ``append`` does."""
        while not self.has_room:
            self.check_open()
            await self.next_event()

    async def settle(self) -> None:
        """Wait until everything that was appended is confirmed or has failed."""
        while self.core.pending and self.core.phase is not Phase.STOPPED:
            await self.next_event()

    # -- the writer's events

    def on_confirmed(self, last_entry: int) -> None:
        confirmed = self.core.confirm(last_entry)
        if confirmed is not None:
            self.deliver(confirmed)
            self.changes.roll_if_due()

    def deliver(self, confirmed: Confirmed) -> None:
        self._cache.insert(confirmed.ledger_id, confirmed.first_entry, confirmed.payloads)
        self._listener.appended(confirmed.ledger_id, confirmed.first_entry, confirmed.contexts)
        self.wake()

    def on_writer_stopped(self, error: PulsarishError) -> None:
        if self._events is not None:
            self._events.owner = None
        if self.core.phase not in (Phase.WRITING, Phase.DRAINING):
            return
        if isinstance(error, LedgerFenced):
            self.fence(TopicFenced(f"topic {self._topic} is served elsewhere: {error}"))
            return
        _log.warning(
            "the current ledger's writer stopped",
            topic=self._topic,
            ledger=self.core.chain.links[-1].ledger_id,
            error=error,
        )
        self.changes.block()
        self.core.writer_stopped()
        self.wake()
        self.changes.start(Goal.REPLACE)

    def fence(self, error: PulsarishError) -> None:
        """Stop for good, because storage or metadata shows another owner, or this broker must give
        up the topic.
        """
        if self.core.phase is Phase.STOPPED:
            return
        self.error = error
        sealed = self.core.phase is Phase.SEALED
        contexts = self.core.stop()
        if self._events is not None:
            self._events.owner = None
        if self._writer is not None and not sealed:
            self._writer.abandon()
        if contexts:
            self._listener.append_failed(contexts, error)
        self._listener.fenced(error)
        self._on_stopped(error)
        self.wake()

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def next_event(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def fail_waiting(self, error: PulsarishError) -> None:
        """Fail the appends that were not sent to a ledger yet."""
        contexts = self.core.fail_unpushed()
        if contexts:
            self._listener.append_failed(contexts, error)

    async def close_writer(self) -> bool:
        """Close the writer. ``False`` when that failed, and the ledger must be recovered."""
        assert self._writer is not None
        if self._events is not None:
            self._events.owner = None
        try:
            closed = await self._writer.close()
        except LedgerFenced as error:
            raise TopicFenced(f"topic {self._topic} is served elsewhere: {error}") from error
        except PulsarishError as error:
            _log.warning(
                "the current ledger could not be closed in order",
                topic=self._topic,
                error=error,
            )
            return False
        if self.core.phase is not Phase.STOPPED:
            self.core.recovered(closed.last_entry, ())
        return True
