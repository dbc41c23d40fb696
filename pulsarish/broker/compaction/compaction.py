"""The compaction of one loaded topic: when it runs, its results, and how its view is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from pulsarish.broker.compaction.keys import Audience, KeyLimits, KeySurvey
from pulsarish.broker.config import BrokerConfig
from pulsarish.managed_ledger.log_reader import LogEntry
from pulsarish.managed_ledger.view_log import ViewEntry
from pulsarish.model.errors import AlreadyExists, PulsarishError, ServiceNotReady
from pulsarish.model.position import EARLIEST, Position
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

if TYPE_CHECKING:
    from pulsarish.managed_ledger.managed_ledger import ManagedLedger
    from pulsarish.managed_ledger.options import ManagedLedgerOptions
    from pulsarish.managed_ledger.view_log import ViewReader, ViewWriter
    from pulsarish.metadata.records import CompactedView

__all__ = [
    "VIEW_SUBSCRIPTION",
    "CompactionGate",
    "CompactionState",
    "TopicCompaction",
    "compaction_stats",
]

_log = get_logger("broker.compaction")

VIEW_SUBSCRIPTION: Final = "__compaction"
"""Apache Pulsar's name for the subscription that keeps what is not compacted.

Deleting it drops the view too.
"""

# an entry counts at least this much against the rate: small entries cost time, too
_ENTRY_COST_BYTES: Final = 1_024
_READ_BYTES: Final = 1 << 20
_SLICE_SECONDS: Final = 0.003  # of work before other tasks of the broker may run


class CompactionState(StrEnum):
    """The state of a topic's compaction, with Apache Pulsar's names."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


class CompactionGate:
    """Limits that all compactions of a broker share: how many run at once, and how many bytes per
    second they read together.
    """

    def __init__(self, world: World, config: BrokerConfig) -> None:
        self.slots = asyncio.Semaphore(config.topic_compactions_max)
        self._clock = world.clock
        self._rate_bytes = config.topic_compaction_read_rate_bytes
        self._due = 0.0

    async def pace(self, size_bytes: int) -> None:
        """Wait as long as reading ``size_bytes`` takes at the rate."""
        now = self._clock.monotonic()
        self._due = max(self._due, now) + size_bytes / self._rate_bytes
        await self._clock.sleep(self._due - now)


class TopicCompaction:
    """The compaction of a topic's log, at its owner.

    Its counters start when the topic is loaded.
    """

    __slots__ = (
        "_config",
        "_gate",
        "_idle",
        "_log",
        "_options",
        "_stopped",
        "_topic",
        "_world",
        "duration_ms",
        "failed_count",
        "failed_ms",
        "last_error",
        "removed_count",
        "removed_total",
        "state",
        "succeeded_count",
        "succeeded_ms",
    )

    def __init__(
        self,
        topic: str,
        log: ManagedLedger,
        options: Callable[[], ManagedLedgerOptions],
        world: World,
        config: BrokerConfig,
        gate: CompactionGate,
    ) -> None:
        self.state = CompactionState.NOT_RUN
        self.last_error = ""
        self.removed_count = 0
        """Messages that the last run removed."""
        self.removed_total = 0
        self.succeeded_ms = 0
        self.succeeded_count = 0
        self.failed_ms = 0
        self.failed_count = 0
        self.duration_ms = 0
        self._topic = topic
        self._log = log
        self._options = options
        self._world = world
        self._config = config
        self._gate = gate
        self._stopped = False
        self._idle: asyncio.Event | None = None  # set while a run is in progress

    @property
    def running(self) -> bool:
        return self.state is CompactionState.RUNNING

    @property
    def was_used(self) -> bool:
        """Whether a run was started since the topic was loaded."""
        return self.state is not CompactionState.NOT_RUN

    def backlog_bytes(self) -> int:
        """Return about how many bytes were published since the horizon."""
        return self._log.bytes_above(self._log.views.horizon or EARLIEST)

    def start_if_due(self, threshold_bytes: int) -> None:
        """Start a run when more than ``threshold_bytes`` are not compacted yet; 0: only on
        demand.
        """
        if threshold_bytes and not self.running and self.backlog_bytes() > threshold_bytes:
            self.start()

    def start(self) -> None:
        """Start a run. Raises ``AlreadyExists`` when one is in progress."""
        if self.running:
            raise AlreadyExists(f"compaction of {self._topic} is in progress already")
        self.state = CompactionState.RUNNING
        self._idle = asyncio.Event()
        _ = self._world.tasks.spawn(self._run(), name=f"compact {self._topic}")

    async def settled(self) -> None:
        """Wait until no run is in progress."""
        if self._idle is not None:
            await self._idle.wait()

    def stop(self) -> None:
        """Stop, because the topic is closed on this broker. A run ends at its next check."""
        self._stopped = True

    async def forget(self) -> None:
        """Drop the compacted view: see ``Views.drop``."""
        await self._log.views.drop()
        self.state, self.last_error = CompactionState.NOT_RUN, ""

    async def _run(self) -> None:
        clock = self._world.clock
        async with self._gate.slots:
            began = clock.monotonic()
            try:
                removed = await self._compact()
            except PulsarishError as error:
                self.state, self.last_error, self.failed_ms = (
                    CompactionState.ERROR,
                    f"{type(error).__name__}: {error}",
                    clock.wall_ms(),
                )
                self.failed_count += 1
                _log.warning("topic not compacted", topic=self._topic, reason=self.last_error)
            else:
                self.state, self.last_error, self.succeeded_ms = (
                    CompactionState.SUCCESS,
                    "",
                    clock.wall_ms(),
                )
                self.succeeded_count += 1
                self.removed_count = removed
                self.removed_total += removed
            finally:
                self.duration_ms = round((clock.monotonic() - began) * 1000)
                assert self._idle is not None
                self._idle.set()
                self._idle = None

    async def _compact(self) -> int:
        """Compact the topic. Return how many messages were removed; 0 when nothing was new."""
        log, views = self._log, self._log.views
        horizon = log.last_confirmed
        self._check()
        if horizon.entry_id < 0 or (views.horizon is not None and horizon <= views.horizon):
            return 0
        config = self._config
        retention_ms = config.topic_compaction_tombstone_retention_seconds * 1000
        limits = KeyLimits(
            config.topic_compaction_keys_max,
            config.topic_compaction_retain_null_key,
            self._world.clock.wall_ms() - retention_ms,
        )
        survey = KeySurvey(self._topic, limits)
        writer: ViewWriter | None = None
        views.begin()
        try:
            before = await views.reader()

            async def observe(entry: LogEntry) -> None:
                survey.observe(*entry)

            async def select(entry: LogEntry) -> None:
                nonlocal writer
                for kept in survey.select(*entry):
                    if writer is None:
                        writer = await views.make(self._options())
                    await writer.add(
                        ViewEntry(entry.position, kept.audience, kept.payload, kept.left)
                    )

            await self._each(before, horizon, observe)
            survey.close()
            await self._each(before, horizon, select)
            self._check()
            await views.use(writer, horizon, self._world.clock.wall_ms())
        finally:
            await views.end(writer)
        removed = survey.observed_count - survey.kept_count
        view = views.current
        assert view is not None
        _log.info(
            "topic compacted",
            topic=self._topic,
            horizon=horizon,
            ledger=view.ledger_id,
            entries=view.entries,
            size_bytes=view.size_bytes,
            keys=survey.keys_count,
            removed=removed,
        )
        return removed

    def _check(self) -> None:
        if self._stopped:
            raise ServiceNotReady(
                f"topic {self._topic} was closed on this broker while it was compacted"
            )

    async def _each(
        self,
        before: ViewReader | None,
        horizon: Position,
        work: Callable[[LogEntry], Awaitable[None]],
    ) -> None:
        """Call ``work`` with every entry up to ``horizon``, in order and at the rate: first the
        existing view, then the log behind it.
        """
        start = EARLIEST
        while before is not None:
            found = await before.read(
                start,
                Audience.RETURNING,
                max_entries=self._config.dispatcher_max_read_batch_size,
                max_bytes=_READ_BYTES,
            )
            if not found:
                break
            start = await self._work_off(
                [LogEntry(each.position, each.payload) for each in found], work
            )
        log = self._log
        start = EARLIEST if log.views.horizon is None else log.next_position(log.views.horizon)
        while start <= horizon:
            entries = await log.read(
                start,
                max_entries=self._config.dispatcher_max_read_batch_size,
                max_bytes=_READ_BYTES,
            )
            wanted = [entry for entry in entries if entry.position <= horizon]
            if not wanted:
                break
            start = await self._work_off(wanted, work)

    async def _work_off(
        self, entries: list[LogEntry], work: Callable[[LogEntry], Awaitable[None]]
    ) -> Position:
        """Call ``work`` with entries. Return the position after the last one."""
        clock = self._world.clock
        self._check()
        began = clock.monotonic()
        for entry in entries:
            await work(entry)
            if clock.monotonic() - began >= _SLICE_SECONDS:
                await clock.sleep(0)
                began = clock.monotonic()
        await self._gate.pace(sum(max(len(entry.payload), _ENTRY_COST_BYTES) for entry in entries))
        last = entries[-1].position
        return Position(last.ledger_id, last.entry_id + 1)


def compaction_stats(
    view: CompactedView | None, compaction: TopicCompaction | None
) -> dict[str, Any]:
    """Return compaction statistics with Apache Pulsar's names.

    ``compaction``: of a loaded topic, else ``None``.
    """
    return {
        "lastCompactionRemovedEventCount": 0 if compaction is None else compaction.removed_count,
        "lastCompactionSucceedTimestamp": (0 if compaction is None else compaction.succeeded_ms)
        or (0 if view is None else view.made_ms),
        "lastCompactionFailedTimestamp": 0 if compaction is None else compaction.failed_ms,
        "lastCompactionDurationTimeInMills": 0 if compaction is None else compaction.duration_ms,
    }
