"""Carries out the decisions of a ``WriterCore``: sends entries to the members, handles their
answers, changes the ensemble.

The writer and recovery both use it. The writer stores each change by compare-and-set, and its adds
are plain. Recovery keeps changes local until the ledger is closed, and its adds are marked as
recovery's. The replicator knows bookies and entries. Its owner decides what a confirmed entry
means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from pulsarish.ledger.add_stream import AddChunk, AddStream, encode_chunk
from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.placement import Candidate
from pulsarish.ledger.writer_core import Change, WriterCore
from pulsarish.model.errors import (
    EntryUnknown,
    LedgerFenced,
    MetadataUnavailable,
    NotEnoughBookies,
    NotEnoughDomains,
    PulsarishError,
    ServiceNotReady,
    error_from_code,
)
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Buffer, World

__all__ = ["Owner", "Replicator"]

_log = get_logger("ledger")


class Owner(Protocol):
    """The calls of a replicator to its owner."""

    async def store_change(self, change: Change) -> LedgerMetadata:
        """Store a change, and publish the members with missing copies, before anything else
        happens.

        Returns the metadata that hold now. Raises the error that ends the writing.
        """
        ...

    def publish_missing(self, members: Sequence[str]) -> None:
        """Record members with missing copies when the ensemble is not changed."""

    def confirmed(self, count: int, size_bytes: int) -> None:
        """Note that ``count`` more entries are confirmed, whose records have ``size_bytes``
        bytes.
        """

    def progressed(self) -> None:
        """Handle an answer, a failure or the end of a change, which may have confirmed entries or
        made room.
        """

    def ended(self, error: PulsarishError) -> None:
        """Handle the end: nothing more will be confirmed. Called once."""


class Replicator:
    """The entries of one ledger on their way to its members."""

    __slots__ = (
        "_change_over",
        "_ledger_id",
        "_options",
        "_owner",
        "_parts",
        "_pool",
        "_recovery",
        "_released",
        "_sizes",
        "_streams",
        "_world",
        "core",
        "crowded",
        "stopped_by",
    )

    def __init__(
        self,
        world: World,
        options: LedgerOptions,
        pool: BookiePool,
        core: WriterCore,
        owner: Owner,
        *,
        recovery: bool,
    ) -> None:
        self.core = core
        self.stopped_by: PulsarishError | None = None
        self.crowded = False
        self._ledger_id = core.metadata.ledger_id
        self._world = world
        self._options = options
        self._pool = pool
        self._owner = owner
        self._recovery = recovery
        self._streams: dict[str, AddStream] = {}
        self._released = False
        self._change_over: asyncio.Future[None] | None = None
        # The window's records for a member that must get them again: two pieces each (head and
        # payload) and one size each.
        self._parts: list[Buffer] = []
        self._sizes: list[int] = []
        self._attach()

    # -- calls of the owner

    def push(self, parts: list[Buffer], sizes: list[int]) -> None:
        """Send the next entries: two parts (head, payload) and one size for each record, in
        order.
        """
        core = self.core
        first = core.push(len(sizes))
        self._parts += parts
        self._sizes += sizes
        metadata = core.metadata
        target = self._options.message_bytes_target
        start = 0
        while start < len(sizes):
            end, size_bytes = start + 1, sizes[start]
            while end < len(sizes) and size_bytes + sizes[end] <= target:
                size_bytes += sizes[end]
                end += 1
            if metadata.write_quorum == metadata.ensemble_size:
                chunk = encode_chunk(self._ledger_id, parts[2 * start : 2 * end], sizes[start:end])
                for index in range(metadata.ensemble_size):
                    self._send(index, chunk)
            else:
                for index in range(metadata.ensemble_size):
                    self._send_some(
                        index,
                        first,
                        parts,
                        sizes,
                        [k for k in range(start, end) if core.holds(index, first + k)],
                    )
            start = end
        self._settle()
        self.look_for_crowd()

    def look_for_crowd(self) -> None:
        """Check whether fewer than Qa members take entries as fast as they come.

        Then the caller that appends must wait.
        """
        free = sum(
            not stream.crowded for index, stream in self._each_stream() if self.core.takes(index)
        )
        self.crowded = free < self.core.metadata.ack_quorum

    async def unchanging(self) -> None:
        """Wait until no ensemble change is being stored.

        Raises the error that stopped the writing.
        """
        while self.core.changing and self.stopped_by is None:
            self._change_over = asyncio.get_running_loop().create_future()
            await self._change_over
        if self.stopped_by is not None:
            raise self.stopped_by

    def mend(self) -> None:
        """Fill places that were left out, if a member is available now.

        Called every ``check_interval_ms``.
        """
        core = self.core
        if (
            self.stopped_by is not None
            or self._released
            or core.changing
            or not core.missing
            or core.failed
        ):
            return
        for index in core.missing:
            member = core.members[index]
            if self._pool.usable(member) and self._takes_adds(member):
                _log.info("bookie is back in its ledger", ledger=self._ledger_id, bookie=member)
                core.rejoin(index)
                self._resend(index)
                self._settle()
                return
        if self._may_change and any(
            self._replacement(index, core.members) is not None for index in core.missing
        ):
            self._start_change()

    def stop(self, error: PulsarishError) -> None:
        """End the writing. Entries that are not confirmed have an unknown outcome."""
        if self.stopped_by is None:
            self.stopped_by = error
            self._detach()
            self._owner.ended(error)

    def release(self) -> None:
        """Keep only waiting for the copies beyond Qa.

        All entries are confirmed, and no more will come.
        """
        assert not self.core.changing
        self._released = True
        self._detach_settled()

    def abandon(self, error: PulsarishError) -> None:
        """Stop at once, without a call to the owner.

        A change that is still being stored has no effect any more.
        """
        if self.stopped_by is None:
            self.stopped_by = error
            self._detach()

    # -- events of the add streams

    def add_answered(self, member: str, first: int, last: int, code: int) -> None:
        if code == 0:
            self.core.acked(member, first, last)
            return
        error = error_from_code(
            code, f"bookie {member} refused entries {first} to {last} of ledger {self._ledger_id}"
        )
        if isinstance(error, LedgerFenced) and not self._released:
            # Rule 4: one such answer ends this writer for good.
            self.found_fenced(member)
        else:
            # "Unknown" is about what the bookie may have lost of this ledger, not about its health.
            self._member_lost(
                member,
                f"{type(error).__name__}: {error}",
                is_ill=not isinstance(error, EntryUnknown),
            )

    def found_fenced(self, member: str) -> None:
        """Stop, because a bookie answered that the ledger is fenced."""
        if not self._released:
            self.stop(
                LedgerFenced(
                    f"ledger {self._ledger_id} is fenced, says bookie {member}: another client "
                    "recovers it"
                )
            )

    def answers_done(self) -> None:
        if self._released:
            self._detach_settled()
        else:
            self._after_event()

    def member_failed(self, member: str, reason: str) -> None:
        index = self.core.place_of(member)
        if index is not None and self.core.outstanding(index):
            self._member_lost(member, reason)
        # A ledger that loses nothing at this bookie may have waited for room in its queue, too.
        if not self._released:
            self._after_event()

    # -- helpers

    def _each_stream(self) -> list[tuple[int, AddStream]]:
        return [(index, self._streams[member]) for index, member in enumerate(self.core.members)]

    def _attach(self) -> None:
        """Register with the streams of exactly the members that metadata holds now."""
        members = self.core.members
        for member in [member for member in self._streams if member not in members]:
            self._streams.pop(member).detach(self._ledger_id)
        for member in members:
            if member not in self._streams:
                stream = self._streams[member] = self._pool.adder(member, recovery=self._recovery)
                stream.attach(self._ledger_id, self)

    def _detach(self) -> None:
        for stream in self._streams.values():
            stream.detach(self._ledger_id)
        self._parts.clear()
        self._sizes.clear()

    def _detach_settled(self) -> None:
        for index, stream in self._each_stream():
            if index in self.core.missing or not self.core.outstanding(index):
                stream.detach(self._ledger_id)

    def _member_lost(self, member: str, reason: str, *, is_ill: bool = True) -> None:
        if self._released:
            self._streams[member].detach(self._ledger_id)
            self._owner.publish_missing((member,))
            return
        if self.stopped_by is None and self.core.fail(member):
            owner, entry = self.core.metadata.purpose.owner, self.core.confirmed + 1
            _log.warning(
                "bookie failed for a ledger",
                ledger=self._ledger_id,
                entry=entry,
                owner=owner,
                bookie=member,
                reason=reason,
            )
            if is_ill:
                self._pool.bookies.quarantine(member)
            self._streams[member].drop(self._ledger_id)

    def _send(self, index: int, chunk: AddChunk) -> None:
        if not self.core.takes(index):
            return
        member = self.core.members[index]
        refused = self._streams[member].push(chunk)
        if refused is not None:
            self._member_lost(member, refused)

    def _send_some(
        self, index: int, first: int, parts: list[Buffer], sizes: list[int], wanted: list[int]
    ) -> None:
        """Send a member of a striped ledger those entries that it holds."""
        if wanted:
            pieces = [piece for k in wanted for piece in parts[2 * k : 2 * k + 2]]
            self._send(index, encode_chunk(self._ledger_id, pieces, [sizes[k] for k in wanted]))

    def _resend(self, index: int) -> None:
        """Send a place's (new) member every entry of the window that it misses, in messages of the
        usual size.
        """
        core = self.core
        base = core.confirmed + 1
        wanted: list[int] = []
        size_bytes = 0
        for k in range(core.window_count):
            if not core.lacks(index, base + k):
                continue
            if wanted and size_bytes + self._sizes[k] > self._options.message_bytes_target:
                self._send_some(index, base, self._parts, self._sizes, wanted)
                wanted, size_bytes = [], 0
            wanted.append(k)
            size_bytes += self._sizes[k]
        self._send_some(index, base, self._parts, self._sizes, wanted)

    def _after_event(self) -> None:
        """Settle the state, and tell the owner about every confirmation and all room that this has
        made.
        """
        self._settle()
        if self.crowded:
            self.look_for_crowd()
        self._owner.progressed()

    def _settle(self) -> None:
        """After any event: start a change if one is needed, then confirm the entries that can be
        confirmed.
        """
        if self.stopped_by is not None:
            return
        if self.core.failed:
            self._start_change()
        count = self.core.confirm()
        if count:
            size_bytes = sum(self._sizes[:count])
            del self._parts[: 2 * count], self._sizes[:count]
            self._owner.confirmed(count, size_bytes)

    def _usable(self, index: int, members: Sequence[str]) -> list[Candidate]:
        """Return the bookies that may take a place, taken ones too."""
        bookies = self._pool.bookies
        # A bookie at the address of another member is that member's machine without its data. It
        # may take only that member's place. With two places, one machine's answers would count
        # twice, and its loss could take a whole write quorum.
        others = {
            bookies.book.get(member) for place, member in enumerate(members) if place != index
        }
        return [
            candidate
            for candidate in bookies.candidates()
            if self._pool.usable(candidate.member)
            and bookies.book.get(candidate.member) not in others
            and self._takes_adds(candidate.member)
        ]

    def _takes_adds(self, member: str) -> bool:
        """Return whether a bookie is in no doubt about the ledger.

        It would answer a writer that the ledger is fenced. What recovery writes it takes.
        """
        return self._recovery or not self._pool.bookies.may_lack(member, self._ledger_id)

    def _replacement(self, index: int, members: Sequence[str]) -> str | None:
        chosen = self._pool.placement.replacement(
            self._usable(index, members),
            self._pool.bookies.describe(members),
            index,
            self.core.metadata.write_quorum,
            groups=self.core.metadata.bookie_groups,
        )
        return None if chosen is None else chosen.member

    @property
    def _may_change(self) -> bool:
        """Whether a change could be stored now. Entries would wait for it (rule 2)."""
        return self._recovery or not self._pool.bookies.is_metadata_away

    def _start_change(self) -> None:
        """Start one change for all failures known now (rule 3).

        While the metadata service is away, failed members are left out if possible, and replaced
        when it is back.
        """
        core = self.core
        members = list(core.members)
        replacements: dict[int, str] = {}
        may_change = self._may_change or not core.viable_without(tuple(core.failed))
        for index in sorted((*core.failed, *core.missing)):
            chosen = self._replacement(index, members) if may_change else None
            if chosen is not None:
                replacements[index] = members[index] = chosen
        gone = tuple(index for index in core.failed if index not in replacements)
        if not core.viable_without(gone):
            self.stop(self._not_enough(gone))
            return
        change = core.begin_change(replacements)
        if not replacements:
            # No other bookie is available: continue with the members that are left, and publish the
            # shortage at once.
            core.change_stored(core.metadata)
            self._owner.publish_missing(change.missing_members)
            return
        scope = Scope(ScopeKind.LEDGER, str(self._ledger_id), self.fail)
        _ = self._world.tasks.spawn(
            self._change(change), name=f"ensemble-change-{self._ledger_id}", scope=scope
        )

    def _not_enough(self, gone: tuple[int, ...]) -> NotEnoughBookies:
        members = self.core.members
        down = sorted({members[index] for index in (*gone, *self.core.missing)})
        refused = ""
        if gone:
            refused = self._pool.placement.why_not(
                self._usable(gone[0], members),
                self._pool.bookies.describe(members),
                gone[0],
                self.core.metadata.write_quorum,
                groups=self.core.metadata.bookie_groups,
            )
        kind = NotEnoughDomains if refused else NotEnoughBookies
        return kind(
            f"ledger {self._ledger_id} needs {self.core.metadata.ack_quorum} bookies (ack_quorum) "
            f"in every write quorum; {len(members) - len(down)} of its {len(members)} are there, "
            f"down: {', '.join(down)}, and "
            f"{refused or 'no other bookie can replace them'}"
        )

    def fail(self, error: BaseException) -> None:
        """End the writing, because something of this ledger failed in an unforeseen way."""
        self.stop(
            ServiceNotReady(
                f"writing ledger {self._ledger_id} failed: {type(error).__name__}: {error}"
            )
        )
        if self._change_over is not None and not self._change_over.done():
            self._change_over.set_result(None)

    async def _change(self, change: Change) -> None:
        try:
            stored = await self._owner.store_change(change)
        except MetadataUnavailable as error:
            self.stop(
                MetadataUnavailable(
                    f"ledger {self._ledger_id} lost bookies, and others could not be stored in "
                    f"their place: {error}"
                )
            )
        except PulsarishError as error:
            self.stop(error)
        else:
            if self.stopped_by is None:
                replaced = self.core.change_stored(stored)
                segment = stored.last_segment
                _log.info(
                    "ensemble changed",
                    ledger=self._ledger_id,
                    first_entry=segment.first_entry,
                    members=segment.members,
                )
                self._attach()
                for index in replaced:
                    self._resend(index)
                self._after_event()
        if self._change_over is not None and not self._change_over.done():
            self._change_over.set_result(None)
