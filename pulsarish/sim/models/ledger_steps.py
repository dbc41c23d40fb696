"""Every state of ``models/ledger.py`` that a few bookies, entries and recoverers can reach: first
state, steps and invariants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from pulsarish.sim.models import ledger as model
from pulsarish.sim.models.ledger import (
    CHANGING,
    CLOSED,
    DONE,
    FENCING,
    IDLE,
    NOWHERE,
    READING,
    STOPPED,
    Bookie,
    Ledger,
    Quorums,
    Recoverer,
    Rules,
    may_close,
    may_store,
    segment_of,
)

__all__ = ["Bounds", "Explored", "broken", "new_ledger", "steps"]


class Bounds(NamedTuple):
    """Limits of the steps."""

    entries: int
    changes: int = 0
    """Ensemble changes of the writer."""
    losses: int = 0
    """Bookies that return with nothing of what they had."""
    lacs: bool = False
    """Whether bookies are sent the last confirmed entry without an entry that brings it."""
    ahead: bool = False
    """Whether a recoverer continues to read while what it found is written back."""
    shown: bool = False
    """Whether a bookie's answer to a fence may show what it has."""


class Explored(NamedTuple):
    """A ledger, and what is left of the bounds."""

    ledger: Ledger
    changes: int
    losses: int


def new_ledger(*, bookies: int, recoverers: int, bounds: Bounds, quorums: Quorums) -> Explored:
    """Return an open ledger on the first bookies."""
    columns = []
    for index in range(bookies):
        place = index if index < quorums.ensemble else NOWHERE
        column = Bookie(
            (place,),
            place,
            heard=(False,) * recoverers,
            negative=(0,) * recoverers,
            wrote=(0,) * recoverers,
            local=((),) * recoverers,
        )
        columns.append(column)
    ledger = Ledger(
        quorums, tuple(columns), (Recoverer(),) * recoverers, stamps=(-1,) * bounds.entries
    )
    return _normal(Explored(ledger, bounds.changes, bounds.losses))


def broken(explored: Explored) -> str:
    """Return the name of an invariant that does not hold, or ""."""
    ledger = explored.ledger
    if list(ledger.firsts) != sorted(set(ledger.firsts)):
        return "SegmentsInOrder"
    for recoverer in ledger.recoverers:
        if (
            recoverer.phase == READING
            and recoverer.firsts
            and recoverer.firsts[0] < ledger.firsts[-1]
        ):
            return "SegmentsInOrder"
    for entry in range(ledger.confirmed + 1):
        if not copies(ledger, entry, lost=False):
            return "AllAckedEntriesAreReadable"
    if ledger.state == CLOSED:
        if ledger.confirmed > ledger.last:
            return "NoDivergence"
        if any(copies(ledger, entry) < ledger.quorums.ack for entry in range(ledger.last + 1)):
            return "AllCommittedEntriesReachAckQuorum"
    return ""


def copies(ledger: Ledger, entry: int, *, lost: bool = True) -> int:
    """Return how many members of the stored write set have an entry.

    With ``lost``, also count those that had it.
    """
    segment = segment_of(ledger, entry)
    holders = [
        bookie for bookie in ledger.bookies if ledger.quorums.holds(bookie.places[segment], entry)
    ]
    return sum((bookie.entries | (bookie.lost if lost else 0)) >> entry & 1 for bookie in holders)


def steps(explored: Explored, rules: Rules, bounds: Bounds) -> Iterator[tuple[str, Explored]]:
    """Yield every next state with the name of its step."""
    ledger = explored.ledger
    for name, after in (
        *_writer_steps(ledger, rules, bounds, explored.changes),
        *_recovery_steps(ledger, rules, bounds),
    ):
        if after is not None:
            changed = after.writer_version > ledger.writer_version
            yield name, _normal(explored._replace(ledger=after, changes=explored.changes - changed))
    if explored.losses:
        for index, bookie in enumerate(ledger.bookies):
            if bookie.entries or bookie.fenced:
                less = model.lose(ledger, rules, index)
                yield (
                    "a bookie returns with nothing",
                    _normal(explored._replace(ledger=less, losses=explored.losses - 1)),
                )


Step = tuple[str, Ledger | None]


def _writer_steps(ledger: Ledger, rules: Rules, bounds: Bounds, changes: int) -> Iterator[Step]:
    for index, bookie in enumerate(ledger.bookies):
        for entry in range(bounds.entries):
            if bookie.sent >> entry & 1:
                yield f"a bookie stores {entry}", model.deliver(ledger, index, entry)
                yield f"a bookie refuses {entry}", model.refuse(ledger, index, entry)
        if bounds.lacs and bookie.place >= 0:
            yield (
                f"a bookie gets the LAC {ledger.confirmed}",
                model.tell_lac(ledger, index, ledger.confirmed),
            )
    if ledger.writer == STOPPED:
        return
    yield f"writer confirms {ledger.confirmed + 1}", model.confirm(ledger, rules)
    if ledger.writer == CHANGING:
        yield from _change(ledger)
        return
    if ledger.pushed + 1 < bounds.entries:
        yield f"writer pushes {ledger.pushed + 1}", model.push(ledger)
    for index, bookie in enumerate(ledger.bookies):
        if bookie.place >= 0 and changes > 0:
            yield "writer gives a member up", model.begin_change(ledger, [index])
    yield f"writer closes at {ledger.confirmed}", model.close_by_writer(ledger)


def _change(ledger: Ledger) -> Iterator[Step]:
    if not may_store(ledger):
        yield "writer's change is refused", model.stop(ledger)
        return
    members = _members(ledger.quorums, [bookie.place for bookie in ledger.bookies])
    (place,) = (
        members.index(index) for index, bookie in enumerate(ledger.bookies) if bookie.failed
    )
    for spare, bookie in enumerate(ledger.bookies):
        if bookie.place < 0:
            wanted = [*members[:place], spare, *members[place + 1 :]]
            yield (
                f"writer's change at {ledger.change_at} is stored",
                model.store_change(ledger, wanted),
            )


def _recovery_steps(ledger: Ledger, rules: Rules, bounds: Bounds) -> Iterator[Step]:
    for number, recoverer in enumerate(ledger.recoverers):
        who = f"recoverer {number}"
        if recoverer.phase == IDLE:
            yield f"{who} enters", model.enter(ledger, number)
        elif recoverer.phase == FENCING:
            for index, bookie in enumerate(ledger.bookies):
                if not bookie.heard[number]:
                    yield from _fence(ledger, rules, bounds, number, index)
        elif recoverer.phase == READING:
            yield from _read_and_write(ledger, rules, bounds, number)


def _fence(ledger: Ledger, rules: Rules, bounds: Bounds, number: int, index: int) -> Iterator[Step]:
    who = f"recoverer {number}"
    if bounds.shown and not rules.show_after_fence:
        yield f"{who} is shown too early", model.show(ledger, number, index)
    after = model.fence(ledger, number, index)
    if after is None:
        return
    yield f"{who} fences", model.begin_reading(after, rules, number) or after
    if bounds.shown and rules.show_after_fence:
        shown = model.show(after, number, index)
        assert shown is not None
        yield f"{who} fences, and is shown", model.begin_reading(shown, rules, number) or shown


def _read_and_write(ledger: Ledger, rules: Rules, bounds: Bounds, number: int) -> Iterator[Step]:
    recoverer = ledger.recoverers[number]
    who = f"recoverer {number}"
    last = recoverer.entry - 1
    if may_close(ledger, rules, number, last):
        yield f"{who} closes at {last}", model.close(ledger, number, last)
    written = recoverer.written + 1 == recoverer.entry
    if written or bounds.ahead:
        for index, bookie in enumerate(ledger.bookies):
            if not bookie.negative[number] >> recoverer.entry & 1:
                yield (
                    f"{who} reads {recoverer.entry}",
                    model.read(ledger, rules, number, index, recoverer.entry),
                )
    if written:
        return
    entry = recoverer.written + 1
    for index, bookie in enumerate(ledger.bookies):
        if not bookie.wrote[number] >> entry & 1:
            yield f"{who} writes {entry} back", model.write_back(ledger, number, index, entry)
    if not recoverer.changes:
        yield from _local_changes(ledger, rules, number)


def _local_changes(ledger: Ledger, rules: Rules, number: int) -> Iterator[Step]:
    """Yield a change for each member that has not answered, and each spare."""
    members = _members(ledger.quorums, [bookie.local[number][-1] for bookie in ledger.bookies])
    entry = ledger.recoverers[number].written + 1
    for place, member in enumerate(members):
        if ledger.bookies[member].wrote[number] >> entry & 1:
            continue
        for spare, other in enumerate(ledger.bookies):
            if other.local[number][-1] < 0:
                wanted = [*members[:place], spare, *members[place + 1 :]]
                after = model.change_locally(ledger, number, entry, wanted)
                assert after is not None
                if not rules.keep_changes_local:
                    after = model.publish(after, number)
                yield f"recoverer {number} changes the ensemble at {entry}", after


def _members(quorums: Quorums, places: Sequence[int]) -> list[int]:
    """Return the bookies by place, in any order where all places are alike."""
    members = [index for index, place in enumerate(places) if place >= 0]
    return (
        members
        if quorums.write == quorums.ensemble
        else sorted(members, key=lambda index: places[index])
    )


# -- equal situations


def _alike(places: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(0 if place >= 0 else NOWHERE for place in places)


@lru_cache(maxsize=1 << 16)
def _column(
    bookie: Bookie,
    confirmed: int,
    frontiers: tuple[tuple[int, int], ...],
    *,
    alike: bool,
    stopped: bool,
    closed: bool,
    fencing_over: bool,
) -> Bookie:
    """Return what still matters of a bookie.

    Args:
        frontiers: the entry that each recoverer reads next, and the one that it writes back next.
        alike: each member holds every entry, so its place does not matter.
    """
    (places, place, failed, sent, acked, entries, lost, limbo, fenced, lac) = bookie[:10]
    heard, negative, wrote, local = bookie[10:]
    if alike:
        places, place = _alike(places), min(place, 0)
        local = tuple(_alike(each) for each in local)
    if stopped:
        place, failed, acked = NOWHERE, False, 0
        if fenced or limbo:
            sent = 0
    else:
        acked &= ~((1 << (confirmed + 1)) - 1)
    if closed:
        number = len(frontiers)
        heard, negative, wrote, local = (
            (False,) * number,
            (0,) * number,
            (0,) * number,
            ((),) * number,
        )
    else:
        negative = tuple(
            bits >> entry << entry for bits, (entry, _) in zip(negative, frontiers, strict=True)
        )
        wrote = tuple(
            bits >> entry << entry for bits, (_, entry) in zip(wrote, frontiers, strict=True)
        )
    return Bookie(
        places,
        place,
        failed,
        sent,
        acked,
        entries,
        lost,
        limbo,
        fenced,
        -1 if fencing_over else lac,
        heard,
        negative,
        wrote,
        local,
    )


def _normal(explored: Explored) -> Explored:
    """Return one state for all states that differ only in what has no effect any more, or in the
    names of bookies and recoverers.
    """
    ledger = explored.ledger
    stopped, closed = ledger.writer == STOPPED, ledger.state == CLOSED
    fencing_over = closed or all(recoverer.phase >= READING for recoverer in ledger.recoverers)
    alike = ledger.quorums.write == ledger.quorums.ensemble
    frontiers = tuple((each.entry, each.written + 1) for each in ledger.recoverers)
    columns = [
        _column(
            bookie,
            ledger.confirmed,
            frontiers,
            alike=alike,
            stopped=stopped,
            closed=closed,
            fencing_over=fencing_over,
        )
        for bookie in ledger.bookies
    ]
    # a recoverer that still runs can store nothing more, and its fences and copies break nothing
    if closed:
        ledger = ledger._replace(recoverers=(Recoverer(DONE),) * len(ledger.recoverers))
    if stopped:
        ledger = ledger._replace(change_at=-1, writer_version=0, pushed=-1)
        explored = explored._replace(changes=0)
    in_flight = 0
    for bookie in columns:
        in_flight |= bookie.sent
    stamps = tuple(
        stamp if in_flight >> entry & 1 and not fencing_over else -1
        for entry, stamp in enumerate(ledger.stamps)
    )
    ledger = ledger._replace(bookies=tuple(sorted(columns)), stamps=stamps)
    if len(ledger.recoverers) == 2 and ledger.recoverers[0] >= ledger.recoverers[1]:
        swapped = tuple(
            bookie._replace(
                heard=bookie.heard[::-1],
                negative=bookie.negative[::-1],
                wrote=bookie.wrote[::-1],
                local=bookie.local[::-1],
            )
            for bookie in ledger.bookies
        )
        ledger = min(
            ledger,
            ledger._replace(bookies=tuple(sorted(swapped)), recoverers=ledger.recoverers[::-1]),
        )
    return explored._replace(ledger=ledger)
