"""The upkeep's expiry of messages: acknowledge, for each subscription, what is older than the TTL
or has an expiry time that is over.

The TTL of a delayed message counts from when it is due. So in a ledger with delayed or expiring
entries each entry has its own end, and the upkeep reads the ledger to find it. All other ledgers
take a binary search by publish time and one cumulative acknowledgement. The chain knows which
ledgers these are (``TopicLedger.own_times_ms``). Where it does not, because the owner died, the
upkeep reads the ledger once and notes what it found.

What a round reads and acknowledges one by one is bounded. The next round continues.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Final

from pulsarish.broker.clients.entry_checks import publish_time
from pulsarish.metadata.records import TopicLedger
from pulsarish.model.errors import PulsarishError
from pulsarish.model.policies import DELAYED_DELIVERY, MESSAGE_TTL
from pulsarish.model.position import Position
from pulsarish.runtime.log import get_logger
from pulsarish.wire.entry import message_times

if TYPE_CHECKING:
    from pulsarish.broker.policies.store import Effective
    from pulsarish.broker.subscriptions.subscription import Subscription
    from pulsarish.managed_ledger.log_reader import LogEntry
    from pulsarish.managed_ledger.managed_ledger import ManagedLedger

__all__ = ["MessageExpiry", "ttl_starts_ms"]

_log = get_logger("broker.upkeep")

_ENTRIES_MAX: Final = 20_000  # of one subscription
_UNHURRIED_MAX: Final = 1_000  # read to find out what a ledger names, while there is no TTL
_BYTES_MAX: Final = 32 << 20
_READ_ENTRIES: Final = 500
_READ_BYTES: Final = 1 << 20
_NEVER: Final = 1 << 62


def ttl_starts_ms(publish_ms: int, deliver_at_ms: int, *, delays: bool) -> int:
    """Return when the TTL of a message begins to count (wall clock).

    Args:
        delays: whether delivery times are obeyed.
    """
    return max(publish_ms, deliver_at_ms) if delays else publish_ms


class _Scan:
    """How far a ledger was scanned for one subscription, and what is to come in it.

    ``by_run``: its entries need not be read.
    """

    __slots__ = ("by_run", "first_expiry_ms", "first_start_ms", "is_done", "next_entry")

    def __init__(self, *, by_run: bool = False) -> None:
        self.by_run = by_run
        self.next_entry = 0
        self.is_done = False
        self.first_expiry_ms = _NEVER
        self.first_start_ms = _NEVER
        """When the TTL of an entry began to count, the first one."""


class _Backlog:
    """What is known of the backlog of one subscription, since its last seek."""

    def __init__(self, seek_count: int) -> None:
        self.seek_count = seek_count
        self.scans: dict[int, _Scan] = {}  # by ledger
        self.resume_at = 0
        """The ledger in which the last round ended."""


class _Round:
    """One round: what is over now, and how many more entries may be looked at."""

    def __init__(self, now_ms: int, ttl_ms: int, *, delays: bool) -> None:
        self.now_ms = now_ms
        self.ttl_ms = ttl_ms
        self.delays = delays
        self.entries_left = self.bytes_left = 0

    def allow(self, entries_max: int) -> None:
        """Allow to look at this many entries, and at ``_BYTES_MAX``."""
        self.entries_left, self.bytes_left = entries_max, _BYTES_MAX

    @property
    def goes_on(self) -> bool:
        return self.entries_left > 0 and self.bytes_left > 0

    @property
    def before_ms(self) -> int:
        """What was published before this time is older than the TTL, unless it was delayed."""
        return self.now_ms - self.ttl_ms if self.ttl_ms else -1

    def is_ordinary(self, ledger: TopicLedger) -> bool:
        """Whether publish times alone decide about the entries of a ledger."""
        return ledger.own_times_ms == 0 or 0 < ledger.own_times_ms < self.before_ms

    def is_due(self, scan: _Scan) -> bool:
        return scan.first_expiry_ms <= self.now_ms or scan.first_start_ms < self.before_ms

    def is_over(self, entry: LogEntry, scan: _Scan) -> bool:
        """Return whether an entry's time is over. Note when it will be, if it is not."""
        publish_ms, deliver_at_ms, expires_ms = message_times(entry.payload)
        starts_ms = ttl_starts_ms(publish_ms, deliver_at_ms, delays=self.delays)
        if starts_ms < self.before_ms or 0 < expires_ms <= self.now_ms:
            return True
        scan.first_start_ms = min(scan.first_start_ms, starts_ms)
        scan.first_expiry_ms = min(scan.first_expiry_ms, expires_ms or _NEVER)
        return False


class MessageExpiry:
    """Expires the messages of one topic, on its owner."""

    __slots__ = ("_backlogs", "_learned", "_log")

    def __init__(self, log: ManagedLedger) -> None:
        self._log = log
        self._backlogs: dict[str, _Backlog] = {}  # by subscription
        # by ledger: the next entry to read, and the latest time so far
        self._learned: dict[int, tuple[int, int]] = {}

    async def expire(
        self, subscriptions: Mapping[str, Subscription], policies: Effective, now_ms: int
    ) -> None:
        """Acknowledge what is over, as far as one round goes.

        An error of the log is logged and leaves the rest to the next round: the other work of the
        upkeep must not wait for a ledger that cannot be read.
        """
        now = _Round(now_ms, policies[MESSAGE_TTL] * 1000, delays=policies[DELAYED_DELIVERY].active)
        subscriptions = dict(subscriptions)
        if self._log.names_no_times:
            self._backlogs.clear()
            self._learned.clear()
        else:
            self._backlogs = {
                name: each for name, each in self._backlogs.items() if name in subscriptions
            }
            now.allow(_ENTRIES_MAX if now.ttl_ms else _UNHURRIED_MAX)
            await self._try(self._learn(list(subscriptions.values()), now))
        for subscription in subscriptions.values():
            if subscription.closed is None:
                now.allow(_ENTRIES_MAX)
                await self._try(self._expire(subscription, now))

    async def _try(self, work: Awaitable[None]) -> None:
        try:
            await work
        except PulsarishError as error:
            _log.warning("messages expire later", topic=self._log.name, reason=error)

    async def _learn(self, subscriptions: list[Subscription], now: _Round) -> None:
        """Read closed ledgers with a backlog of which it is not known which times they name."""
        unknown = [each for each in self._log.ledgers if each.own_times_ms < 0]
        self._learned = {
            each.ledger_id: self._learned.get(each.ledger_id, (0, 0)) for each in unknown
        }
        if not unknown or not subscriptions:
            return
        slowest = min(each.cursor.mark_delete for each in subscriptions)
        for ledger in unknown:
            if Position(ledger.ledger_id, ledger.entries - 1) <= slowest:
                continue
            entry, latest_ms = self._learned[ledger.ledger_id]
            while entry < ledger.entries and now.goes_on:
                found = await _read(self._log, ledger.ledger_id, entry, now)
                if not found:
                    entry = ledger.entries  # the rest was trimmed, or is lost
                    break
                for each in found:
                    _, deliver_at_ms, expires_ms = message_times(each.payload)
                    latest_ms = max(latest_ms, deliver_at_ms, expires_ms)
                entry = found[-1].position.entry_id + 1
                self._learned[ledger.ledger_id] = entry, latest_ms
            if entry >= ledger.entries:
                self._log.learned_own_times(ledger.ledger_id, latest_ms)

    async def _expire(self, subscription: Subscription, now: _Round) -> None:
        """Expire messages of one subscription."""
        log = self._log
        through = await self._published_before(subscription, now)
        mark = subscription.cursor.mark_delete
        ledgers = [
            each
            for each in (() if log.names_no_times else log.ledgers)
            if each.entries and Position(each.ledger_id, each.entries - 1) > mark
        ]
        special = next((each for each in ledgers if not now.is_ordinary(each)), None)
        before = through
        if special is not None:
            last = log.position_before(Position(special.ledger_id, 0))
            before = min(last, through) if last is not None and through is not None else None
        if before is not None:
            await subscription.expire_through(before)
        if special is not None:
            behind = ledgers[ledgers.index(special) :]
            await self._expire_behind(subscription, behind, through, now)

    async def _published_before(self, subscription: Subscription, now: _Round) -> Position | None:
        """Return the last entry that was published longer ago than the TTL; ``None``: the
        subscription needs no such entry.
        """
        oldest_ms = await subscription.oldest_publish_ms() if now.ttl_ms else None
        if oldest_ms is None or oldest_ms >= now.before_ms:
            return None
        first = await self._log.find_by_time(now.before_ms, publish_time)
        return self._log.last_confirmed if first is None else self._log.position_before(first)

    async def _expire_behind(
        self,
        subscription: Subscription,
        ledgers: list[TopicLedger],
        through: Position | None,
        now: _Round,
    ) -> None:
        """Expire messages of these ledgers, one by one.

        Args:
            ledgers: those of the backlog from the first one on that is not ordinary.
            through: the last entry that was published longer ago than the TTL.
        """
        backlog = self._backlogs.get(subscription.name)
        if backlog is None or backlog.seek_count != subscription.seek_count:
            backlog = self._backlogs[subscription.name] = _Backlog(subscription.seek_count)
        ids = [each.ledger_id for each in ledgers]
        backlog.scans = {each: backlog.scans.get(each) or _Scan() for each in ids}
        at = bisect_left(ids, backlog.resume_at) % len(ids)
        backlog.resume_at = 0
        any_over = False
        for ledger in (*ledgers[at:], *ledgers[:at]):
            scan = backlog.scans[ledger.ledger_id]
            by_run = now.is_ordinary(ledger)
            if scan.by_run != by_run or (scan.is_done and now.is_due(scan)):
                scan = backlog.scans[ledger.ledger_id] = _Scan(by_run=by_run)
            if by_run:
                any_over |= self._expire_run(subscription, ledger, scan, through, now)
            elif ledger.own_times_ms > 0:
                any_over |= await self._expire_each(subscription, ledger, scan, now)
            if not now.goes_on or subscription.has_many_holes or subscription.closed is not None:
                backlog.resume_at = ledger.ledger_id
                break
        if any_over and subscription.closed is None:
            await subscription.cursor.flush()

    def _expire_run(
        self,
        subscription: Subscription,
        ledger: TopicLedger,
        scan: _Scan,
        through: Position | None,
        now: _Round,
    ) -> bool:
        """Acknowledge entries of an ordinary ledger behind one that is not. Return whether there
        were any.
        """
        if through is None or through.ledger_id < ledger.ledger_id:
            return False
        end = ledger.entries
        if through.ledger_id == ledger.ledger_id:
            end = min(end, through.entry_id + 1)
        end = min(end, scan.next_entry + now.entries_left)
        run = [Position(ledger.ledger_id, entry) for entry in range(scan.next_entry, end)]
        now.entries_left -= len(run)
        scan.next_entry = max(scan.next_entry, end)
        subscription.acknowledge_expired(run)
        return bool(run)

    async def _expire_each(
        self,
        subscription: Subscription,
        ledger: TopicLedger,
        scan: _Scan,
        now: _Round,
    ) -> bool:
        """Acknowledge the entries of a ledger whose own time is over. Return whether there were
        any.
        """
        cursor, seeks, any_over = subscription.cursor, subscription.seek_count, False
        entry, start = scan.next_entry, cursor.read_from
        if start.ledger_id == ledger.ledger_id:
            entry = max(entry, start.entry_id)
        while entry < ledger.entries and now.goes_on and not subscription.has_many_holes:
            found = await _read(self._log, ledger.ledger_id, entry, now)
            if seeks != subscription.seek_count:
                return any_over
            over = [
                each.position
                for each in found
                if not cursor.is_acknowledged(each.position) and now.is_over(each, scan)
            ]
            if over:
                subscription.acknowledge_expired(over)
                any_over = True
            entry = found[-1].position.entry_id + 1 if found else ledger.entries
        scan.next_entry = entry
        scan.is_done = entry >= ledger.entries
        return any_over


async def _read(log: ManagedLedger, ledger_id: int, entry_id: int, now: _Round) -> list[LogEntry]:
    """Return the next entries of a ledger; [] when none of it is left."""
    found = await log.read(
        Position(ledger_id, entry_id),
        max_entries=min(_READ_ENTRIES, now.entries_left),
        max_bytes=_READ_BYTES,
    )
    found = [each for each in found if each.position.ledger_id == ledger_id]
    now.entries_left -= len(found)
    now.bytes_left -= sum(len(each.payload) for each in found)
    return found
