"""Appends to a topic's log.

They go to the current ledger; a full, aged or broken ledger is replaced underneath them.

A replacement always has the same four steps: create the next ledger, end the current one (close it,
or recover it when its writer has stopped), store the new list in metadata by compare-and-set, send
the entries that wait. A step that fails for now is tried again. A refused compare-and-set or a
fenced ledger ends this owner for good (rules 4 and 14).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from typing import Final, Protocol, TypeVar

import msgspec

from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.reader import LedgerReader
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.managed_ledger.chain_core import ChainCore, Confirmed, Phase, RollLimits
from pulsarish.managed_ledger.log_condition import LogCondition, Trouble
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.managed_ledger.owned_topic_record import OwnedTopicRecord
from pulsarish.managed_ledger.tail_cache import TailCache
from pulsarish.managed_ledger.topic_ledgers import (
    WriterEvents,
    chain_closed,
    create_ledger,
    discard_ledger,
)
from pulsarish.metadata.records import TopicRecord
from pulsarish.model.errors import (
    LedgerFenced,
    PulsarishError,
    TopicFenced,
    TopicTerminated,
)
from pulsarish.runtime.backoff import Backoff
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Conflict, World

__all__ = ["Appender", "LogListener"]

_log = get_logger("managed_ledger")

T = TypeVar("T")

_READ_BACK_BYTES: Final = 1 << 20
"""The size of one read of the entries of a recovered ledger."""


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


class _Goal(IntEnum):
    """What to do with the current ledger. A greater goal overrides a smaller one."""

    NONE = 0
    REPLACE = 1
    SEAL = 2
    CLOSE = 3


class _GoalChanged(Exception):
    """Stop the present work: there is a greater goal now, the appender has stopped, or the work
    must start again.
    """


class Appender:
    """Carries out the decisions of ``ChainCore``, for one topic on one broker."""

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
        self._topic = topic
        self._ledgers = ledgers
        self._clock = world.clock
        self._random = world.random
        self._tasks = world.tasks
        self._options = options
        self._listener = listener
        self._cache = cache
        self._rolled = rolled
        self._on_stopped = stopped
        self._writer: LedgerWriter | None = None
        self._events: WriterEvents | None = None
        self._reader: LedgerReader | None = None
        self._limits = self._draw_limits()
        self._working = False
        self._goal = _Goal.NONE
        self._blocked_since = 0.0  # when appends began to wait for a ledger
        # why appends are refused until there is a ledger
        self._outage: PulsarishError | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._step = ""
        self._blocked_since_ms = 0
        self._trouble: Trouble | None = None

    def _draw_limits(self) -> RollLimits:
        # Jitter, so that ledgers made together (after a broker's death) are not replaced together.
        options = self._options
        stretch = 1 + self._random.random() * options.rollover_jitter
        return RollLimits(
            options.max_entries_per_ledger,
            options.max_size_per_ledger_mb << 20,
            options.min_ledger_rollover_time_minutes * 60.0,
            options.max_ledger_rollover_time_minutes * 60.0 * stretch,
        )

    def use_options(self, options: ManagedLedgerOptions) -> None:
        """Apply options.

        Quorums hold from the next ledger on. The limits of the current ledger stay; all else
        changes at once.
        """
        self._options = options

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
        core, writer = self.core, self._writer
        waits = core.phase in (Phase.DRAINING, Phase.REPLACING)
        return LogCondition(
            core.phase,
            self._step,
            self._blocked_since_ms if waits else 0,
            self._trouble,
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

    # -- appends

    def append(self, payload: bytes, context: object) -> None:
        """Queue one entry.

        Raises ``TopicTerminated``, ``TopicFenced``, or the retryable reason why there is no ledger
        now.
        """
        core = self.core
        if core.phase is not Phase.WRITING:
            self._check_open()
        if core.accept(payload, context):
            self._push(payload)

    def _check_open(self) -> None:
        if self.core.phase is Phase.SEALED or self._goal is _Goal.SEAL:
            raise TopicTerminated(f"topic {self._topic.name} was terminated")
        if self.core.phase is Phase.STOPPED or self._goal is _Goal.CLOSE:
            raise self.error or TopicFenced(
                f"topic {self._topic.name} is being closed on this broker"
            )
        if self._outage is not None:
            raise self._outage

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
        except Exception as defect:  # noqa: BLE001  # whatever it is: the topic must not stay half alive
            self._tasks.contain(
                f"ledger of {self._topic.name}",
                defect,
                Scope(ScopeKind.TOPIC, self._topic.name.full, self._failed),
            )

    def _failed(self, error: BaseException) -> None:
        self.fence(TopicFenced(f"topic {self._topic.name} failed on this broker: {error!r}"))

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
            self._check_open()
            await self._next_event()

    async def settle(self) -> None:
        """Wait until everything that was appended is confirmed or has failed."""
        while self.core.pending and not self._stopped:
            await self._next_event()

    # -- the writer's events

    def on_confirmed(self, last_entry: int) -> None:
        confirmed = self.core.confirm(last_entry)
        if confirmed is not None:
            self._deliver(confirmed)
            if self.core.roll_due(self._clock.monotonic(), self._limits):
                self._start(_Goal.REPLACE)

    def _deliver(self, confirmed: Confirmed) -> None:
        self._cache.insert(confirmed.ledger_id, confirmed.first_entry, confirmed.payloads)
        self._listener.appended(confirmed.ledger_id, confirmed.first_entry, confirmed.contexts)
        self._wake()

    def on_writer_stopped(self, error: PulsarishError) -> None:
        if self._events is not None:
            self._events.owner = None
        if self.core.phase not in (Phase.WRITING, Phase.DRAINING):
            return
        if isinstance(error, LedgerFenced):
            self.fence(TopicFenced(f"topic {self._topic.name} is served elsewhere: {error}"))
            return
        _log.warning(
            "the current ledger's writer stopped",
            topic=self._topic.name,
            ledger=self.core.chain.links[-1].ledger_id,
            error=error,
        )
        self._block()
        self.core.writer_stopped()
        self._wake()
        self._start(_Goal.REPLACE)

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
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _next_event(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    # -- replacing and ending the current ledger

    def _start(self, goal: _Goal) -> None:
        """Work towards a goal in the background, one piece of work at a time."""
        if self.core.phase is Phase.STOPPED:
            return
        self._goal = max(self._goal, goal)
        if goal is not _Goal.REPLACE and self.core.phase is Phase.WRITING:
            self._block()
            self.core.drain()
        self._wake()
        if not self._working:
            self._working = True
            _ = self._tasks.spawn(self._work(), name=f"ledger of {self._topic.name}")

    async def _reach(self, goal: _Goal) -> None:
        self._start(goal)
        while self._working:
            await self._next_event()

    async def roll(self) -> None:
        """Replace the current ledger now, unless it is empty. Raises as ``append`` does."""
        self._check_open()
        if self.core.phase is Phase.WRITING and self.core.next_entry == 0:
            return
        await self._reach(_Goal.REPLACE)
        self._check_open()

    def roll_if_due(self) -> None:
        """Replace the ledger if its age requires it, also when no producer writes."""
        if self.core.roll_due(self._clock.monotonic(), self._limits):
            self._start(_Goal.REPLACE)

    async def seal(self) -> None:
        """Terminate the log: no append is accepted again.

        Raises ``TopicFenced`` when another owner came first.
        """
        if self.core.phase is not Phase.SEALED:
            await self._reach(_Goal.SEAL)
        if self.core.phase is not Phase.SEALED:
            raise self.error or TopicFenced(
                f"topic {self._topic.name} is not served by this broker"
            )

    async def close(self) -> None:
        """Close the current ledger, so that the next owner has nothing to recover.

        What cannot be done now is left to its recovery.
        """
        await self._reach(_Goal.CLOSE)

    async def _work(self) -> None:
        try:
            while self._goal is not _Goal.NONE and not self._stopped:
                goal = self._goal
                try:
                    await self._pursue(goal)
                except _GoalChanged:
                    continue
                if self._goal is goal:
                    self._goal = _Goal.REPLACE if self.core.phase is Phase.REPLACING else _Goal.NONE
        except PulsarishError as error:
            self.fence(error)
        except Exception as error:
            # A defect: the topic must not stay half alive. The owner of the task reports the error
            # itself.
            self._failed(error)
            raise
        finally:
            self._working = False
            self._step, self._trouble = "", None
            self._wake()

    async def _pursue(self, goal: _Goal) -> None:
        match goal:
            case _Goal.REPLACE:
                await self._replace()
            case _Goal.SEAL:
                await self._seal()
            case _Goal.CLOSE:
                await self._close()
            case _Goal.NONE:
                pass

    async def _replace(self) -> None:
        if self.core.phase is Phase.SEALED:
            return
        self._step = "making the next ledger"
        writer, events = await self._persistently(_Goal.REPLACE, self._next_ledger)
        try:
            await self._end_current(_Goal.REPLACE)
            await self._persistently(_Goal.REPLACE, lambda: self._swing(writer))
        except Conflict:
            # Ending the current ledger may take hours. The next one is in no list meanwhile, so it
            # was removed as an orphan, or will be.
            _log.warning(
                "the next ledger was changed by another process, making another",
                topic=self._topic.name,
                ledger=writer.ledger_id,
            )
            await discard_ledger(self._ledgers, self._topic, writer)
            raise _GoalChanged from None
        except Exception:
            await discard_ledger(self._ledgers, self._topic, writer)
            raise
        if self._stopped:
            writer.abandon()
            return
        self.use(writer, events)
        self._limits = self._draw_limits()
        self._outage = None
        before = self.core.chain.links[-2] if len(self.core.chain) > 1 else None
        closed = (
            {}
            if before is None
            else {"closed_ledger": before.ledger_id, "last_entry": before.entries - 1}
        )
        _log.info(
            "a new ledger took over", topic=self._topic.name, ledger=writer.ledger_id, **closed
        )
        for payload in self.core.unpushed():
            if not self._push(payload):
                break
        self._rolled()

    async def _next_ledger(self) -> tuple[LedgerWriter, WriterEvents]:
        return await create_ledger(
            self._ledgers, self._topic.name, self._options, above=self._topic.record.highest_ledger
        )

    async def _swing(self, writer: LedgerWriter) -> None:
        ledger_id = writer.ledger_id
        self._step = f"entering ledger {ledger_id} into the topic's record"
        closed_ms = max(1, self._clock.wall_ms())

        def apply() -> None:
            if not self._stopped:
                self.core.swing(ledger_id, closed_ms, self._clock.monotonic())

        def decide(record: TopicRecord) -> TopicRecord:
            return chain_closed(record, self.core.chain, closed_ms, ledger_id)

        await self._topic.change(decide, apply, with_ops=writer.unchanged())

    async def _seal(self) -> None:
        await self._end_current(_Goal.SEAL)
        closed_ms = max(1, self._clock.wall_ms())

        def decide(record: TopicRecord) -> TopicRecord:
            return msgspec.structs.replace(
                chain_closed(record, self.core.chain, closed_ms, None), terminated=True
            )

        def apply() -> None:
            if not self._stopped:
                self._fail_waiting(TopicTerminated(f"topic {self._topic.name} was terminated"))
                self.core.seal(closed_ms)

        await self._persistently(_Goal.SEAL, lambda: self._topic.change(decide, apply))

    async def _close(self) -> None:
        """Try each step once. The next owner's recovery does what this one leaves."""
        error = TopicFenced(f"topic {self._topic.name} was closed on this broker")
        if self.core.phase is not Phase.SEALED:
            await self._end_current(_Goal.CLOSE)
            closed_ms = max(1, self._clock.wall_ms())
            await self._topic.change(
                lambda record: chain_closed(record, self.core.chain, closed_ms, None)
            )
        self.error = error
        self._fail_waiting(error)
        self.core.stop()

    def _fail_waiting(self, error: PulsarishError) -> None:
        contexts = self.core.fail_unpushed()
        if contexts:
            self._listener.append_failed(contexts, error)

    async def _end_current(self, goal: _Goal) -> None:
        """Work until the current ledger is closed for good and its entries are confirmed."""
        self._step = f"closing ledger {self.core.chain.links[-1].ledger_id}"
        # also when the goal changed while a new ledger was just taking over
        if self.core.phase is Phase.WRITING:
            self._block()
            self.core.drain()
        while self.core.phase is Phase.DRAINING and not self.core.drained:
            await self._next_event()
            self._check_goal(goal)
        if (
            self.core.phase is Phase.DRAINING
            and not await self._close_writer()
            and self.core.phase is Phase.DRAINING
        ):
            self.core.writer_stopped()
        self._check_goal(goal)
        if self.core.phase is Phase.REPLACING:
            self._step = f"recovering ledger {self.core.chain.links[-1].ledger_id}"
            await self._persistently(goal, self._recover)

    async def _close_writer(self) -> bool:
        """Close the writer. ``False`` when that failed, and the ledger must be recovered."""
        assert self._writer is not None
        if self._events is not None:
            self._events.owner = None
        try:
            closed = await self._writer.close()
        except LedgerFenced as error:
            raise TopicFenced(f"topic {self._topic.name} is served elsewhere: {error}") from error
        except PulsarishError as error:
            _log.warning(
                "the current ledger could not be closed in order",
                topic=self._topic.name,
                error=error,
            )
            return False
        if not self._stopped:
            self.core.recovered(closed.last_entry, ())
        return True

    async def _recover(self) -> None:
        """Close our own ledger by recovery.

        Only its result says which of the pending entries are in the log (Pulsar's #7490).

        The entries are read back, because the ledger may hold entries of another peer under their
        ids.
        """
        reader = await self._ledgers.open(self.core.chain.links[-1].ledger_id)
        last_entry = reader.last_add_confirmed
        payloads = await self._read_back(reader, last_entry)
        if self._stopped:
            return
        self._reader = reader  # the stopped writer does not know what recovery confirms
        confirmed, foreign_count = self.core.recovered(last_entry, payloads)
        if foreign_count:
            _log.error(
                "a ledger has entries that this broker did not write; messages are stored again "
                "in the next one",
                topic=self._topic.name,
                ledger=reader.ledger_id,
                entries=foreign_count,
            )
        if confirmed is not None:
            self._deliver(confirmed)

    async def _read_back(self, reader: LedgerReader, last_entry: int) -> list[bytes | memoryview]:
        """Return the payloads of the current ledger from its first unconfirmed entry on."""
        first_entry = self.core.chain.links[-1].entries
        payloads: list[bytes | memoryview] = []
        while first_entry + len(payloads) <= last_entry and not self._stopped:
            found = await reader.read(
                first_entry + len(payloads), last_entry, max_bytes=_READ_BACK_BYTES
            )
            payloads += [entry.payload for entry in found]
        return payloads

    @property
    def _stopped(self) -> bool:
        return self.core.phase is Phase.STOPPED

    def _check_goal(self, goal: _Goal) -> None:
        if self._stopped or self._goal is not goal:
            raise _GoalChanged

    def _block(self) -> None:
        self._blocked_since = self._clock.monotonic()
        self._blocked_since_ms = self._clock.wall_ms()

    async def _persistently(self, goal: _Goal, step: Callable[[], Awaitable[T]]) -> T:
        """Try until it works.

        Once that takes longer than the limit, waiting appends are refused with the reason (rule
        20).

        A closing topic tries once.
        """
        backoff = Backoff(
            self._options.retry_wait_ms / 1000, self._options.retry_wait_max_ms / 1000
        )
        while True:
            self._check_goal(goal)
            try:
                done = await step()
                self._trouble = None
                return done
            except PulsarishError as error:
                if isinstance(error, TopicFenced) or not error.retryable or goal is _Goal.CLOSE:
                    raise
                reason = error
            wait_seconds = backoff.next_seconds()
            self._note_outage(reason, wait_seconds)
            await self._clock.sleep(wait_seconds)

    def _note_outage(self, error: PulsarishError, wait_seconds: float) -> None:
        now_ms = self._clock.wall_ms()
        trouble = self._trouble
        self._trouble = Trouble(
            error,
            trouble.since_ms if trouble else now_ms,
            trouble.attempts + 1 if trouble else 1,
            retry_at_ms=now_ms + round(wait_seconds * 1000),
        )
        if trouble is None or str(trouble.error) != str(error):
            # Once for each reason. Statistics and ``topics explain`` show it, with the number of
            # attempts, for as long as it lasts.
            _log.warning("no new ledger yet", topic=self._topic.name, step=self._step, error=error)
        if self.core.phase not in (Phase.DRAINING, Phase.REPLACING):
            return
        if (self._clock.monotonic() - self._blocked_since) * 1000 < self._options.append_hold_ms:
            return
        self._outage = error
        if self.core.pushed == 0:
            self._fail_waiting(error)
        self._wake()
