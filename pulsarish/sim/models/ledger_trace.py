"""Compares real runs of the ledger protocol, step by step, with the actions of
``models/ledger.py``.

``ledger_hooks.tracing`` watches the program at its seams: what metadata commit, what bookies
answer, and what writers and recoverers receive, send and count. ``LedgerView`` keeps a model of
each ledger: the state that follows from what was seen. Each step must be an action that the model
allows in that state, and the program must then know what the model knows. Otherwise the code and
the model disagree. The first such step of each ledger is kept in ``problems``. A mutant of the
program patches it first and is traced in the same way.

An add or a fence counts at the moment at which it is answered as durable, which is the order of the
journal. What a bookie was sent and has not answered may be there or not, whatever a crash did to
it. Nothing is claimed of ledgers that are deleted, that were restored from a backup, or whose
bookies an operator gives up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.sim.models import ledger as model
from pulsarish.sim.models.ledger import NOWHERE, Bookie, Ledger, Quorums, Recoverer, Rules
from pulsarish.sim.models.ledger_steps import Explored, broken

__all__ = ["LedgerTrace", "LedgerView", "NotAllowedError"]

ALL_RULES: Final = Rules()
_STATES: Final = {
    LedgerState.OPEN: model.OPEN,
    LedgerState.IN_RECOVERY: model.IN_RECOVERY,
    LedgerState.CLOSED: model.CLOSED,
}


class NotAllowedError(Exception):
    """A step that the model does not allow."""


class LedgerView:
    """The model's state of one ledger, as it follows from what was seen of it."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        self.record = metadata
        self.steps = 0
        self.denied: dict[int, int] = {}  # by bookie: entries that it has ever denied to have
        self.offered: dict[int, int] = {}  # by bookie: entries that it was ever sent
        self.admitted: dict[int, int] = {}  # by bookie: entries that it took before it was fenced
        self.sent_lacs: dict[int, int] = {}  # by bookie: the greatest LAC that it was ever sent
        self.closings: dict[int, int] = {}  # by recoverer: the end at which it tries to close
        # recoverers by the record that they started from
        self.attempts: dict[int, tuple[int, LedgerMetadata]] = {}
        self._names: dict[str, int] = {}
        self.state = Ledger(
            Quorums(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum), (), ()
        )
        members = [self.bookie(member) for member in metadata.last_segment.members]
        self.state = self.state._replace(
            bookies=tuple(
                bookie._replace(places=(place,), place=place)
                for bookie, place in zip(
                    self.state.bookies, _places(len(self.state.bookies), members), strict=True
                )
            )
        )

    def bookie(self, member: str) -> int:
        """Return a bookie's number. A bookie that was not seen before has nothing."""
        if member not in self._names:
            self._names[member] = len(self._names)
            recoverers = len(self.state.recoverers)
            places = (NOWHERE,) * len(self.state.firsts)
            locals_ = tuple(
                (NOWHERE,) * (1 + len(recoverer.firsts)) if recoverer.phase == model.READING else ()
                for recoverer in self.state.recoverers
            )
            new = Bookie(
                places,
                heard=(False,) * recoverers,
                negative=(0,) * recoverers,
                wrote=(0,) * recoverers,
                local=locals_,
            )
            self.state = self.state._replace(bookies=(*self.state.bookies, new))
        return self._names[member]

    def step(self, what: str, after: Ledger | None) -> None:
        """Note a step of the program.

        ``after``: the state after it; None: the model does not allow it.
        """
        if after is None:
            raise NotAllowedError(what)
        self.steps += 1
        self.state = after

    def segments(self) -> list[tuple[int, tuple[str, ...]]]:
        """Return the segments that the model has in the metadata."""
        names = list(self._names)
        found = []
        for at, first in enumerate(self.state.firsts):
            members = {
                bookie.places[at]: names[index]
                for index, bookie in enumerate(self.state.bookies)
                if bookie.places[at] >= 0
            }
            found.append((first, tuple(members[place] for place in sorted(members))))
        return found

    # -- metadata

    def stored(self, record: LedgerMetadata) -> None:
        """Note a commit that has changed the ledger's record."""
        before, self.record = self.record, record
        states = before.state, record.state
        members = [self.bookie(member) for member in record.last_segment.members]
        if states == (LedgerState.OPEN, LedgerState.IN_RECOVERY):
            self.step(
                "recovery begins",
                self.state._replace(state=model.IN_RECOVERY, version=self.state.version + 1),
            )
        elif states == (LedgerState.OPEN, LedgerState.CLOSED):
            self.step("the writer closes", model.close_by_writer(self.state))
        elif states == (LedgerState.IN_RECOVERY, LedgerState.CLOSED):
            self._closed_by_recovery(record)
        elif before.state is record.state and before.last_segment == record.last_segment:
            self._mended(before, record)
        elif states == (LedgerState.OPEN, LedgerState.OPEN):
            self.step(
                f"the writer's change to {record.last_segment} is stored",
                model.store_change(self.state, members),
            )
        else:
            self._mended(before, record)
        wanted = [(segment.first_entry, segment.members) for segment in record.segments]
        if self.segments() != wanted:
            raise NotAllowedError(
                f"the segments in metadata are {wanted}, those of the model {self.segments()}"
            )
        if self.state.state != _STATES[record.state] or (
            record.state is LedgerState.CLOSED and self.state.last != record.last_entry
        ):
            raise NotAllowedError(
                f"the record says {record.state.value} at {record.last_entry}, the model "
                f"{self.state.state} at {self.state.last}"
            )
        invariant = broken(Explored(self.state, 0, 0)) if record.state is LedgerState.CLOSED else ""
        if invariant:
            raise NotAllowedError(
                f"{invariant} is broken when the ledger is closed at {record.last_entry}"
            )

    def _closed_by_recovery(self, record: LedgerMetadata) -> None:
        wanted = [(segment.first_entry, segment.members) for segment in record.segments]
        before = self.state
        came: list[str] = []
        for number, last in self.closings.items():
            recoverer = before.recoverers[number]._replace(version=before.version)
            recoverers = (*before.recoverers[:number], recoverer, *before.recoverers[number + 1 :])
            self.state = model.close(before._replace(recoverers=recoverers), number, last)
            if last == record.last_entry and self.segments() == wanted:
                self.steps += 1
                return
            came.append(f"{number} to {last} with {self.segments()}")
        self.state = before
        raise NotAllowedError(
            f"it is closed at {record.last_entry} with {wanted}; recoverers came "
            f"{'; '.join(came) or 'to nothing'}"
        )

    def _mended(self, before: LedgerMetadata, record: LedgerMetadata) -> None:
        """Note that members of segments that no writer writes to were replaced: their successors
        must have everything.
        """
        if before.state is not record.state or [s.first_entry for s in before.segments] != [
            s.first_entry for s in record.segments
        ]:
            raise NotAllowedError(
                f"the record went from {before.state.value} to {record.state.value} with "
                f"{record.segments}"
            )
        for at, (old, new) in enumerate(zip(before.segments, record.segments, strict=True)):
            last = (
                self.state.last
                if at == len(record.segments) - 1
                else record.segments[at + 1].first_entry - 1
            )
            for place, member in enumerate(new.members):
                if member == old.members[place]:
                    continue
                index = self.bookie(member)
                for entry in range(new.first_entry, last + 1):
                    if (
                        self.state.quorums.holds(place, entry)
                        and not self.state.bookies[index].entries >> entry & 1
                    ):
                        raise NotAllowedError(
                            f"{member} was put in the place of {old.members[place]} and has no "
                            f"entry {entry}"
                        )
            members = [self.bookie(member) for member in new.members]
            places = _places(len(self.state.bookies), members)
            bookies = tuple(
                bookie._replace(places=(*bookie.places[:at], place, *bookie.places[at + 1 :]))
                for bookie, place in zip(self.state.bookies, places, strict=True)
            )
            version = self.state.version + 1
            self.step(
                "an earlier segment is repaired",
                self.state._replace(bookies=bookies, version=version, writer_version=version),
            )

    # -- bookies

    def offers(self, member: str, entry: int, lac: int) -> None:
        """Note that a bookie is sent an entry."""
        index = self.bookie(member)
        self.offered[index] = self.offered.get(index, 0) | 1 << entry
        self.sent_lacs[index] = max(self.sent_lacs.get(index, -1), lac)

    def stores(self, member: str, entry: int, lac: int, *, recovery: bool) -> None:
        """Note that a bookie has answered an add as durable."""
        index = self.bookie(member)
        what = f"{member} stores entry {entry} with the LAC {lac}"
        if recovery:
            stamps = [
                recoverer.lac
                for recoverer in self.state.recoverers
                if recoverer.phase >= model.READING
            ]
            if self.state.state != model.CLOSED and lac not in stamps and lac != self._stamp(entry):
                raise NotAllowedError(
                    f"{what} from a recoverer, and those that there are found {stamps}"
                )
            self.step(what, model.rewrite(self.state, index, entry, lac))
            return
        if lac != self._stamp(entry):
            raise NotAllowedError(
                f"{what}, and {self._stamp(entry)} was the last confirmed entry when that was sent"
            )
        bookie = self.state.bookies[index]
        if (bookie.acked & bookie.entries) >> entry & 1:
            return  # it was sent again, because the answer was lost
        early = bookie.fenced and self.admitted.get(index, 0) >> entry & 1
        # An add that the bookie took before the fence, and answers after it with the rest of its
        # message, is before it in the journal.
        after = model.deliver(
            model.bar(self.state, index, fenced=False) if early else self.state, index, entry
        )
        self.step(what, model.bar(after, index) if early and after is not None else after)

    def admits(self, member: str, entry: int) -> None:
        """Note that a bookie takes an entry into its journal."""
        index = self.bookie(member)
        if not self.state.bookies[index].fenced:
            self.admitted[index] = self.admitted.get(index, 0) | 1 << entry

    def fenced(self, member: str) -> None:
        """Note that a bookie has fenced the ledger, durably."""
        self.step(f"{member} fences", model.bar(self.state, self.bookie(member)))

    def denies(self, member: str, entry: int, stored: int) -> None:
        """Note the answer that an entry is not there.

        ``stored``: what the bookie had answered as stored when it was asked.
        """
        if stored >> entry & 1:
            raise NotAllowedError(f"{member} denies entry {entry}, which it has answered as stored")
        index = self.bookie(member)
        self.denied[index] = self.denied.get(index, 0) | 1 << entry

    def entries(self, member: str) -> int:
        """Return what a bookie has answered as stored."""
        return self.state.bookies[self.bookie(member)].entries

    def lac(self, member: str) -> int:
        """Return the least LAC that a bookie knows."""
        return self.state.bookies[self.bookie(member)].lac

    def hears_lac(self, member: str, lac: int) -> None:
        """Note that a bookie is sent a LAC without an entry."""
        if lac > self.state.confirmed:
            raise NotAllowedError(
                f"{member} is sent the LAC {lac}, confirmed is {self.state.confirmed}"
            )
        index = self.bookie(member)
        self.sent_lacs[index] = max(self.sent_lacs.get(index, -1), lac)

    def _stamp(self, entry: int) -> int | None:
        return self.state.stamps[entry] if entry < len(self.state.stamps) else None

    def has(self, member: str, entry: int) -> bool:
        return bool(self.state.bookies[self.bookie(member)].entries >> entry & 1)

    def lac_answered(self, member: str, least: int, lac: int) -> None:
        """Note that a bookie, which knew at least the LAC ``least`` when it was asked, has answered
        ``lac``.
        """
        most = max(self.sent_lacs.get(self.bookie(member), -1), least)
        if not least <= lac <= most:
            raise NotAllowedError(
                f"{member} answers the LAC {lac}; it has been sent {least} to {most}"
            )
        if lac > self.state.confirmed:
            raise NotAllowedError(
                f"{member} answers the LAC {lac}, confirmed is {self.state.confirmed}"
            )

    def reads_up_to(self, lac: int) -> None:
        """Note that a reader, which does not recover, takes entries up to ``lac`` for confirmed."""
        if lac > self.state.confirmed:
            raise NotAllowedError(f"a reader goes up to {lac}, confirmed is {self.state.confirmed}")

    # -- recovery

    def attempt(self, metadata: LedgerMetadata) -> None:
        """Note that a recovery begins, for the first time or again."""
        number = len(self.state.recoverers)
        self.attempts[id(metadata)] = number, metadata
        bookies = tuple(
            bookie._replace(
                heard=(*bookie.heard, False),
                negative=(*bookie.negative, 0),
                wrote=(*bookie.wrote, 0),
                local=(*bookie.local, ()),
            )
            for bookie in self.state.bookies
        )
        added = self.state._replace(
            bookies=bookies, recoverers=(*self.state.recoverers, Recoverer())
        )
        self.step("a recoverer enters", model.enter(added, number))

    def number(self, metadata: LedgerMetadata) -> int | None:
        """Return the recoverer that started from this record.

        ``None`` once the ledger is closed: then it can do nothing more.
        """
        known = self.attempts.get(id(metadata))
        return None if known is None or self.state.state == model.CLOSED else known[0]

    def heard_fence(self, number: int, member: str, lac: int) -> None:
        """Note that a recoverer gets the answer that a bookie has fenced the ledger.

        After enough answers, more of them change nothing.
        """
        if self.state.recoverers[number].phase != model.FENCING:
            return
        index = self.bookie(member)
        if not self.state.bookies[index].fenced:
            raise NotAllowedError(
                f"recoverer {number} takes it that {member} has fenced the ledger, which it has not"
            )
        self.step(
            f"recoverer {number} gets the fence of {member}",
            model.fence(self.state, number, index, lac),
        )

    def reads_from(self, number: int, lac: int) -> None:
        """Note that a recoverer has enough answers to its fences, and begins to read after this
        LAC.
        """
        self.step(
            f"recoverer {number} begins to read", model.begin_reading(self.state, ALL_RULES, number)
        )
        if self.state.recoverers[number].lac != lac:
            raise NotAllowedError(
                f"recoverer {number} begins after {lac}; the answers say "
                f"{self.state.recoverers[number].lac}"
            )

    def closes(self, number: int, last: int) -> None:
        """Note that a recoverer is about to close the ledger at this entry."""
        recoverer = self.state.recoverers[number]
        if not model.may_close(self.state, ALL_RULES, number, last):
            known = (
                f"it found entries before {recoverer.entry}, of which those up to "
                f"{recoverer.written} have their copies"
            )
            raise NotAllowedError(f"recoverer {number} may not close at {last}: {known}")
        self.closings[number] = last

    def heard_read(self, number: int, member: str, first: int, count: int, denies: bool) -> None:
        """Note that a recoverer gets consecutive entries, and perhaps the answer that the entry
        after them is not there.
        """
        index = self.bookie(member)
        for entry in range(first, first + count):
            if entry < self.state.recoverers[number].entry:
                continue
            if not (self.state.bookies[index].entries | self.offered.get(index, 0)) >> entry & 1:
                raise NotAllowedError(f"{member} gives entry {entry}, which it was never sent")
            self.step(
                f"recoverer {number} finds {entry}",
                model.find(model.bar(self.state, index), number, entry),
            )
        entry = first + count
        if denies and entry >= self.state.recoverers[number].entry:
            if not self.denied.get(index, 0) >> entry & 1:
                raise NotAllowedError(
                    f"recoverer {number} takes it that {member} has no entry {entry}, which that "
                    "has never said"
                )
            self.step(
                f"{member} denies {entry}",
                model.deny(model.bar(self.state, index), number, index, entry),
            )

    def wrote(self, number: int, member: str, first: int, last: int) -> None:
        """Note that a recoverer counts copies that a bookie has stored."""
        index = self.bookie(member)
        for entry in range(first, last + 1):
            if not self.state.quorums.holds(self.state.bookies[index].local[number][-1], entry):
                continue
            if not self.has(member, entry):
                raise NotAllowedError(
                    f"recoverer {number} counts entry {entry} of {member}, which has not stored it"
                )
            self.step(
                f"recoverer {number} counts {entry} of {member}",
                model.write_back(self.state, number, index, entry),
            )


class LedgerTrace:
    """All ledgers of a run."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.views: dict[int, LedgerView] = {}
        self.steps = 0
        self.ledgers = 0

    def check(self) -> None:
        """Raise ``AssertionError`` for the first step that the model does not allow."""
        assert not self.problems, self.problems[0]

    def committed(self, ledger_id: int, record: LedgerMetadata | None) -> None:
        view = self.views.get(ledger_id)
        if record is None or record.restored:
            self.drop(ledger_id)
        elif view is not None:
            self.see(ledger_id, lambda seen: seen.stored(record))
        elif record.state is LedgerState.OPEN and len(record.segments) == 1:
            self.views[ledger_id] = LedgerView(record)
            self.ledgers += 1

    def see(self, ledger_id: int, what: Callable[[LedgerView], None]) -> None:
        """Note an event of a ledger."""
        view = self.views.get(ledger_id)
        if view is None:
            return
        try:
            what(view)
        except NotAllowedError as error:
            self.problems.append(
                f"ledger {ledger_id} {tuple(view.state.quorums)}, after {view.steps} steps that "
                f"the model allows: {error}"
            )
            self.drop(ledger_id)

    def drop(self, ledger_id: int) -> None:
        """Stop watching a ledger."""
        view = self.views.pop(ledger_id, None)
        self.steps += view.steps if view is not None else 0

    def total_steps(self) -> int:
        return self.steps + sum(view.steps for view in self.views.values())


def _places(count: int, members: Sequence[int]) -> list[int]:
    return [members.index(index) if index in members else NOWHERE for index in range(count)]
