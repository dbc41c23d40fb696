"""The trace of one message: what its topic's owner knows of it now.

Everything comes from what exists already: the log, the ledger's record, the cursors and the
dispatchers. Nothing is noted while messages are published or delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pulsarish.broker.clients.wait_reasons import counted, duration
from pulsarish.broker.dispatchers.reads import Ready
from pulsarish.broker.http.hole_report import holders
from pulsarish.broker.http.json_bodies import (
    CopyBody,
    TraceBody,
    TracedLedgerBody,
    TracedSubscriptionBody,
)
from pulsarish.broker.http.message_view import described
from pulsarish.broker.subscriptions.message_expiry import ttl_starts_ms
from pulsarish.model.errors import NoSuchEntry, PulsarishError
from pulsarish.model.policies import DELAYED_DELIVERY, MESSAGE_TTL
from pulsarish.model.position import Position
from pulsarish.wire.entry import message_times, parse_metadata

if TYPE_CHECKING:
    from pulsarish.broker.subscriptions.subscription import Subscription
    from pulsarish.broker.topics.topic import Topic
    from pulsarish.ledger.client import LedgerClient
    from pulsarish.managed_ledger.log_reader import LogEntry
    from pulsarish.model.ledger_metadata import LedgerMetadata
    from pulsarish.runtime.seams import Clock

__all__ = ["MessageTrace"]

_SUBSCRIPTIONS_PER_TURN: Final = 50
"""Subscriptions that are looked at before the event loop gets its turn."""


class MessageTrace:
    """Makes the trace of one message.

    Args:
        index: of the message in its batch; ``None``: the whole entry.
        wait_seconds: how long to wait for the entry to be read.
    """

    def __init__(
        self,
        topic: Topic,
        ledgers: LedgerClient,
        clock: Clock,
        position: Position,
        index: int | None,
        *,
        wait_seconds: float,
    ) -> None:
        self._topic = topic
        self._ledgers = ledgers
        self._clock = clock
        self._position = position
        self._index = index
        self._wait_seconds = wait_seconds

    async def report(self, *, copies: bool, subscription: str = "") -> TraceBody:
        """Return the trace.

        Args:
            copies: read the entry from each of its bookies.
            subscription: only this one; empty: all of them.

        Raises ``InvalidPosition`` for a ledger of another topic (rule 18), ``NotFound`` for an
        index that the entry does not have, ``SubscriptionNotFound``.
        """
        topic, position = self._topic, self._position
        wanted = (
            {subscription: topic.subscription(subscription)}
            if subscription
            else dict(topic.subscriptions)
        )
        shown = str(position) if self._index is None else f"{position}:{self._index}"
        found = TraceBody(topic.name.full, shown, "stored", "")
        found.state, found.explanation = await self._standing()
        if found.state not in ("stored", "lost"):
            return found
        await self._describe_ledger(found, copies=copies)
        if found.state == "lost":
            return found
        entry = await self._read(found)
        if entry is not None:
            self._describe_message(found, entry)
        for number, (name, each) in enumerate(wanted.items(), 1):
            if not number % _SUBSCRIPTIONS_PER_TURN:
                await self._clock.sleep(0)
            found.subscriptions[name] = await self._for_subscription(each, entry)
        found.explanation = self._explanation(found)
        return found

    # -- the log

    async def _standing(self) -> tuple[str, str]:
        """Return where the position lies in the log, as a word and a sentence."""
        log, position = self._topic.log, self._position
        lost = log.lost_at(position)
        if lost is not None:
            return "lost", (
                f"Lost: entries {lost.first_entry} to {lost.last_entry} of ledger "
                f"{lost.ledger_id} could not be read any more, and an operator had the topic skip "
                "them (pulsarish topics skip-lost)."
            )
        if log.contains(position):
            return "stored", ""
        _ = await log.landing(position)  # refuses a ledger of another topic
        if position > log.last_confirmed:
            return "unwritten", f"Not in the log: the last confirmed entry is {log.last_confirmed}."
        for ledger in log.ledgers:
            if ledger.ledger_id == position.ledger_id:
                return "absent", (
                    f"There is no such entry: ledger {ledger.ledger_id} ended with "
                    f"{counted(ledger.entries, 'entry', 'entries')}, from 0."
                )
        return "trimmed", (
            f"Not in the log any more, which begins at {log.first_position}: all subscriptions had "
            "acknowledged the ledger and no retention kept it, or it never existed. Bookies keep "
            "deleted ledgers for a while: pulsarish bookies trash list."
        )

    async def _read(self, found: TraceBody) -> LogEntry | None:
        try:
            async with self._clock.timeout(self._wait_seconds):
                entries = await self._topic.log.read(self._position, max_entries=1, max_bytes=1)
        except (PulsarishError, TimeoutError) as error:
            found.read_error = str(error) or "the bookies did not answer in time"
            return None
        if entries and entries[0].position == self._position:
            return entries[0]
        raise NoSuchEntry(f"entry {self._position} was trimmed meanwhile; ask again")

    def _describe_message(self, found: TraceBody, entry: LogEntry) -> None:
        found.message = described(entry.payload, self._index)
        publish_ms, deliver_at_ms, own_ms = message_times(entry.payload)
        policies = self._topic.topic_limits.policies
        starts_ms = ttl_starts_ms(
            publish_ms, deliver_at_ms, delays=policies[DELAYED_DELIVERY].active
        )
        ttl_seconds = policies[MESSAGE_TTL]
        ends = [starts_ms + ttl_seconds * 1000] if ttl_seconds else []
        found.expire_timestamp = min([*ends, *([own_ms] if own_ms else [])], default=0)
        found.is_expired = 0 < found.expire_timestamp <= self._clock.wall_ms()

    # -- the bookies

    async def _describe_ledger(self, found: TraceBody, *, copies: bool) -> None:
        ledger_id, entry_id = self._position
        try:
            metadata = await self._ledgers.metadata(ledger_id)
        except PulsarishError as error:
            found.ledger_error = str(error)
            return
        if metadata is None:
            found.ledger_error = f"ledger {ledger_id} has no record in the metadata"
            return
        closed_ms = [
            each.closed_ms for each in self._topic.log.ledgers if each.ledger_id == ledger_id
        ]
        found.ledger = TracedLedgerBody(
            ledger_id,
            metadata.state.value,
            closed_ms[0] if closed_ms else 0,
            metadata.ensemble_size,
            metadata.write_quorum,
            metadata.ack_quorum,
            metadata.segments[metadata.segment_index(entry_id)].first_entry,
            await self._copies(metadata) if copies else self._write_set(metadata),
        )

    def _write_set(self, metadata: LedgerMetadata) -> list[CopyBody]:
        bookies = self._ledgers.bookies
        return [
            CopyBody(bookies.name_of(member), member, bookies.registered(member))
            for member in metadata.write_set(self._position.entry_id)
        ]

    async def _copies(self, metadata: LedgerMetadata) -> list[CopyBody]:
        bodies = self._write_set(metadata)
        found = await self._ledgers.entry_copies(metadata, self._position.entry_id)
        for body, copy in zip(bodies, found, strict=True):
            body.state, body.reason = copy.state, copy.reason
            body.checksum = "" if copy.checksum is None else f"{copy.checksum:08x}"
        return bodies

    # -- the subscriptions

    async def _for_subscription(
        self, subscription: Subscription, entry: LogEntry | None
    ) -> TracedSubscriptionBody:
        position, cursor = self._position, subscription.cursor
        dispatcher = subscription.dispatcher
        body = TracedSubscriptionBody(
            subscription.type.name.lower(),
            "acknowledged",
            redelivery_count=dispatcher.redelivery_count(position),
        )
        left = cursor.ack_set(position)
        is_acknowledged = subscription.source.is_acknowledged(position)
        if left is not None and self._index is not None:
            is_acknowledged = is_acknowledged or not left >> self._index & 1
        if not is_acknowledged:
            [holder] = holders(dispatcher.places([position]), self._clock)
            body.state, body.consumer_name = holder.state, holder.consumer_name
            body.since_ms, body.due_ms = holder.since_ms, holder.due_ms
            body.is_hole = position < cursor.highest_acknowledged
            body.remaining_messages = None if left is None else left.bit_count()
        if subscription.filter is not None and entry is not None:
            count = int(parse_metadata(entry.payload).num_messages_in_batch)
            ready = Ready(position, entry.payload, count, None)
            body.matches_filter = not await subscription.filter.rejects(
                ready, body.redelivery_count + 1, self._index
            )
        return body

    # -- the sentence

    def _explanation(self, found: TraceBody) -> str:
        parts = ["Stored"]
        if found.ledger is not None:
            names = ", ".join(each.bookie for each in found.ledger.copies)
            parts.append(f" on {names}")
        if found.message is not None:
            age_ms = max(0, self._clock.wall_ms() - found.message.publish_timestamp)
            parts.append(
                f", published {duration(age_ms)} ago by producer {found.message.producer_name}"
            )
        parts.append("." + self._judged_copies(found))
        if found.read_error:
            parts.append(f" It cannot be read now: {found.read_error}.")
        if found.is_expired:
            parts.append(" Its time is over: subscriptions that have not delivered it skip it.")
        states = [each.state for each in found.subscriptions.values()]
        done = states.count("acknowledged")
        if states:
            parts.append(
                f" {done} of {counted(len(states), 'subscription has', 'subscriptions have')} "
                "acknowledged it."
            )
        return "".join(parts)

    @staticmethod
    def _judged_copies(found: TraceBody) -> str:
        if found.ledger is None or not found.ledger.copies[0].state:
            return ""
        copies = found.ledger.copies
        held = [each for each in copies if each.state == "held"]
        text = f" {len(held)} of {counted(len(copies), 'copy is', 'copies are')} there and good."
        silent = [each for each in copies if each.state == "silent"]
        if silent:
            text += (
                f" {counted(len(silent), 'bookie does', 'bookies do')} not say whether the entry "
                "is there."
            )
        if len({each.checksum for each in held}) > 1:
            text += " The copies differ, which is a defect: report it."
        return text
