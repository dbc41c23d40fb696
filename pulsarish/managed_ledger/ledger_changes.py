"""Change a topic's current ledger: replace it, seal the log, or close it.

A replacement always has the same four steps: create the next ledger, end the current one (close it,
or recover it when its writer has stopped), store the new list in metadata by compare-and-set, send
the entries that wait. A step that fails for now is tried again. A refused compare-and-set or a
fenced ledger ends this owner for good (rules 4 and 14).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Final, Protocol, TypeVar

import msgspec

from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.reader import LedgerReader
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.managed_ledger.chain_core import ChainCore, Confirmed, Phase, RollLimits
from pulsarish.managed_ledger.log_condition import Trouble
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.managed_ledger.owned_topic_record import OwnedTopicRecord
from pulsarish.managed_ledger.topic_ledgers import (
    WriterEvents,
    chain_closed,
    create_ledger,
    discard_ledger,
)
from pulsarish.metadata.records import TopicRecord
from pulsarish.model.errors import PulsarishError, TopicFenced, TopicTerminated
from pulsarish.runtime.backoff import Backoff
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Conflict, World

__all__ = ["Goal", "LedgerChanges"]

_log = get_logger("managed_ledger")

T = TypeVar("T")

_READ_BACK_BYTES: Final = 1 << 20
"""The size of one read of the entries of a recovered ledger."""


class Goal(IntEnum):
    """What to do with the current ledger. A greater goal overrides a smaller one."""

    NONE = 0
    REPLACE = 1
    SEAL = 2
    CLOSE = 3


class _GoalChanged(Exception):
    """Stop the present work: there is a greater goal now, this owner has ended, or the work
    must start again.
    """


class Appends(Protocol):
    """The appends that wait for, or go to, the current ledger."""

    core: ChainCore
    error: PulsarishError | None
    """Why this owner has ended."""

    def check_open(self) -> None:
        """Raise the error that an append would raise now, if there is one."""

    def use(self, writer: LedgerWriter, events: WriterEvents) -> None:
        """Append to this ledger from now on."""

    def send_waiting(self) -> None:
        """Send the entries that wait to the current ledger."""

    async def close_writer(self) -> bool:
        """Close the writer. ``False`` when that failed, and the ledger must be recovered."""
        ...

    def read_from(self, reader: LedgerReader) -> None:
        """Read the open ledger with this reader."""

    def deliver(self, confirmed: Confirmed) -> None:
        """Report confirmed entries."""

    def fail_waiting(self, error: PulsarishError) -> None:
        """Fail the appends that were not sent to a ledger yet."""

    def fence(self, error: PulsarishError) -> None:
        """Stop for good."""

    def failed(self, error: BaseException) -> None:
        """Stop for good, because of a defect."""

    def wake(self) -> None:
        """Wake all that wait in ``next_event``."""

    async def next_event(self) -> None:
        """Wait until something has changed."""


class LedgerChanges:
    """Works on the current ledger of one topic, towards one goal at a time.

    Args:
        rolled: called when another ledger has taken over.
    """

    __slots__ = (
        "_appender",
        "_blocked_since",
        "_clock",
        "_core",
        "_ledgers",
        "_limits",
        "_options",
        "_random",
        "_rolled",
        "_tasks",
        "_topic",
        "_working",
        "blocked_since_ms",
        "goal",
        "outage",
        "step",
        "trouble",
    )

    def __init__(
        self,
        appender: Appends,
        topic: OwnedTopicRecord,
        ledgers: LedgerClient,
        world: World,
        options: ManagedLedgerOptions,
        rolled: Callable[[], None],
    ) -> None:
        self.goal = Goal.NONE
        self.outage: PulsarishError | None = None
        """Why appends are refused until there is a ledger."""
        self.step = ""
        self.blocked_since_ms = 0
        """When appends began to wait for a ledger, by the wall clock."""
        self.trouble: Trouble | None = None
        self._appender = appender
        self._core = appender.core
        self._topic = topic
        self._ledgers = ledgers
        self._clock = world.clock
        self._random = world.random
        self._tasks = world.tasks
        self._options = options
        self._rolled = rolled
        self._limits = self._draw_limits()
        self._working = False
        self._blocked_since = 0.0

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
        """Apply options. The limits of the current ledger stay."""
        self._options = options

    @property
    def _stopped(self) -> bool:
        return self._core.phase is Phase.STOPPED

    def block(self) -> None:
        """Note that appends wait for a ledger from now on."""
        self._blocked_since = self._clock.monotonic()
        self.blocked_since_ms = self._clock.wall_ms()

    def start(self, goal: Goal) -> None:
        """Work towards a goal in the background, one piece of work at a time."""
        if self._core.phase is Phase.STOPPED:
            return
        self.goal = max(self.goal, goal)
        if goal is not Goal.REPLACE and self._core.phase is Phase.WRITING:
            self.block()
            self._core.drain()
        self._appender.wake()
        if not self._working:
            self._working = True
            _ = self._tasks.spawn(self._work(), name=f"ledger of {self._topic.name}")

    async def _reach(self, goal: Goal) -> None:
        self.start(goal)
        while self._working:
            await self._appender.next_event()

    async def roll(self) -> None:
        """Replace the current ledger now, unless it is empty. Raises as ``append`` does."""
        self._appender.check_open()
        if self._core.phase is Phase.WRITING and self._core.next_entry == 0:
            return
        await self._reach(Goal.REPLACE)
        self._appender.check_open()

    def roll_if_due(self) -> None:
        """Replace the ledger if its age requires it, also when no producer writes."""
        if self._core.roll_due(self._clock.monotonic(), self._limits):
            self.start(Goal.REPLACE)

    async def seal(self) -> None:
        """Terminate the log: no append is accepted again.

        Raises ``TopicFenced`` when another owner came first.
        """
        if self._core.phase is not Phase.SEALED:
            await self._reach(Goal.SEAL)
        if self._core.phase is not Phase.SEALED:
            raise self._appender.error or TopicFenced(
                f"topic {self._topic.name} is not served by this broker"
            )

    async def close(self) -> None:
        """Close the current ledger, so that the next owner has nothing to recover.

        What cannot be done now is left to its recovery.
        """
        await self._reach(Goal.CLOSE)

    async def _work(self) -> None:
        try:
            while self.goal is not Goal.NONE and not self._stopped:
                goal = self.goal
                try:
                    await self._pursue(goal)
                except _GoalChanged:
                    continue
                if self.goal is goal:
                    self.goal = Goal.REPLACE if self._core.phase is Phase.REPLACING else Goal.NONE
        except PulsarishError as error:
            self._appender.fence(error)
        except Exception as error:
            # A defect: the topic must not stay half alive. The owner of the task reports the error
            # itself.
            self._appender.failed(error)
            raise
        finally:
            self._working = False
            self.step, self.trouble = "", None
            self._appender.wake()

    async def _pursue(self, goal: Goal) -> None:
        match goal:
            case Goal.REPLACE:
                await self._replace()
            case Goal.SEAL:
                await self._seal()
            case Goal.CLOSE:
                await self._close()
            case Goal.NONE:
                pass

    async def _replace(self) -> None:
        if self._core.phase is Phase.SEALED:
            return
        self.step = "making the next ledger"
        writer, events = await self._persistently(Goal.REPLACE, self._next_ledger)
        try:
            await self._end_current(Goal.REPLACE)
            await self._persistently(Goal.REPLACE, lambda: self._swing(writer))
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
        self._appender.use(writer, events)
        self._limits = self._draw_limits()
        self.outage = None
        before = self._core.chain.links[-2] if len(self._core.chain) > 1 else None
        closed = (
            {}
            if before is None
            else {"closed_ledger": before.ledger_id, "last_entry": before.entries - 1}
        )
        _log.info(
            "a new ledger took over", topic=self._topic.name, ledger=writer.ledger_id, **closed
        )
        self._appender.send_waiting()
        self._rolled()

    async def _next_ledger(self) -> tuple[LedgerWriter, WriterEvents]:
        return await create_ledger(
            self._ledgers, self._topic.name, self._options, above=self._topic.record.highest_ledger
        )

    async def _swing(self, writer: LedgerWriter) -> None:
        ledger_id = writer.ledger_id
        self.step = f"entering ledger {ledger_id} into the topic's record"
        closed_ms = max(1, self._clock.wall_ms())

        def apply() -> None:
            if not self._stopped:
                self._core.swing(ledger_id, closed_ms, self._clock.monotonic())

        def decide(record: TopicRecord) -> TopicRecord:
            return chain_closed(record, self._core.chain, closed_ms, ledger_id)

        await self._topic.change(decide, apply, with_ops=writer.unchanged())

    async def _seal(self) -> None:
        await self._end_current(Goal.SEAL)
        closed_ms = max(1, self._clock.wall_ms())

        def decide(record: TopicRecord) -> TopicRecord:
            return msgspec.structs.replace(
                chain_closed(record, self._core.chain, closed_ms, None), terminated=True
            )

        def apply() -> None:
            if not self._stopped:
                self._appender.fail_waiting(
                    TopicTerminated(f"topic {self._topic.name} was terminated")
                )
                self._core.seal(closed_ms)

        await self._persistently(Goal.SEAL, lambda: self._topic.change(decide, apply))

    async def _close(self) -> None:
        """Try each step once. The next owner's recovery does what this one leaves."""
        error = TopicFenced(f"topic {self._topic.name} was closed on this broker")
        if self._core.phase is not Phase.SEALED:
            await self._end_current(Goal.CLOSE)
            closed_ms = max(1, self._clock.wall_ms())
            await self._topic.change(
                lambda record: chain_closed(record, self._core.chain, closed_ms, None)
            )
        self._appender.error = error
        self._appender.fail_waiting(error)
        self._core.stop()

    async def _end_current(self, goal: Goal) -> None:
        """Work until the current ledger is closed for good and its entries are confirmed."""
        self.step = f"closing ledger {self._core.chain.links[-1].ledger_id}"
        # also when the goal changed while a new ledger was just taking over
        if self._core.phase is Phase.WRITING:
            self.block()
            self._core.drain()
        while self._core.phase is Phase.DRAINING and not self._core.drained:
            await self._appender.next_event()
            self._check_goal(goal)
        if (
            self._core.phase is Phase.DRAINING
            and not await self._appender.close_writer()
            and self._core.phase is Phase.DRAINING
        ):
            self._core.writer_stopped()
        self._check_goal(goal)
        if self._core.phase is Phase.REPLACING:
            self.step = f"recovering ledger {self._core.chain.links[-1].ledger_id}"
            await self._persistently(goal, self._recover)

    async def _recover(self) -> None:
        """Close our own ledger by recovery.

        Only its result says which of the pending entries are in the log (Pulsar's #7490).

        The entries are read back, because the ledger may hold entries of another peer under their
        ids.
        """
        reader = await self._ledgers.open(self._core.chain.links[-1].ledger_id)
        last_entry = reader.last_add_confirmed
        payloads = await self._read_back(reader, last_entry)
        if self._stopped:
            return
        self._appender.read_from(reader)
        confirmed, foreign_count = self._core.recovered(last_entry, payloads)
        if foreign_count:
            _log.error(
                "a ledger has entries that this broker did not write; messages are stored again "
                "in the next one",
                topic=self._topic.name,
                ledger=reader.ledger_id,
                entries=foreign_count,
            )
        if confirmed is not None:
            self._appender.deliver(confirmed)

    async def _read_back(self, reader: LedgerReader, last_entry: int) -> list[bytes | memoryview]:
        """Return the payloads of the current ledger from its first unconfirmed entry on."""
        first_entry = self._core.chain.links[-1].entries
        payloads: list[bytes | memoryview] = []
        while first_entry + len(payloads) <= last_entry and not self._stopped:
            found = await reader.read(
                first_entry + len(payloads), last_entry, max_bytes=_READ_BACK_BYTES
            )
            payloads += [entry.payload for entry in found]
        return payloads

    def _check_goal(self, goal: Goal) -> None:
        if self._stopped or self.goal is not goal:
            raise _GoalChanged

    async def _persistently(self, goal: Goal, step: Callable[[], Awaitable[T]]) -> T:
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
                self.trouble = None
                return done
            except PulsarishError as error:
                if isinstance(error, TopicFenced) or not error.retryable or goal is Goal.CLOSE:
                    raise
                reason = error
            wait_seconds = backoff.next_seconds()
            self._note_outage(reason, wait_seconds)
            await self._clock.sleep(wait_seconds)

    def _note_outage(self, error: PulsarishError, wait_seconds: float) -> None:
        now_ms = self._clock.wall_ms()
        trouble = self.trouble
        self.trouble = Trouble(
            error,
            trouble.since_ms if trouble else now_ms,
            trouble.attempts + 1 if trouble else 1,
            retry_at_ms=now_ms + round(wait_seconds * 1000),
        )
        if trouble is None or str(trouble.error) != str(error):
            # Once for each reason. Statistics and ``topics explain`` show it, with the number of
            # attempts, for as long as it lasts.
            _log.warning("no new ledger yet", topic=self._topic.name, step=self.step, error=error)
        if self._core.phase not in (Phase.DRAINING, Phase.REPLACING):
            return
        if (self._clock.monotonic() - self._blocked_since) * 1000 < self._options.append_hold_ms:
            return
        self.outage = error
        if self._core.pushed == 0:
            self._appender.fail_waiting(error)
        self._appender.wake()
