"""The ledger protocol as a small model: write, ensemble change, fence, recover, close, with Qw = E = 3 and Qa = 2.

It is the protocol of rules 1 to 6 and nothing else: one writer, any number of recoverers, bookies that answer late or never (a message
that is lost is one that is never delivered). ``Rules`` names the safeguards; the defects that model checking once found in Apache
BookKeeper come back when theirs is removed (BookKeeper issues 2614 and 2615, and the slips that its specification records).
The invariants carry the names of that specification.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

__all__ = ["Ledger", "Rules", "broken", "new_ledger", "steps"]

WRITE_QUORUM: Final = 3
ACK_QUORUM: Final = 2
FENCED_BY: Final = WRITE_QUORUM - ACK_QUORUM + 1  # answers that fence a write quorum, and negatives that prove an absence

OPEN, IN_RECOVERY, CLOSED = range(3)
RUNNING, CHANGING, STOPPED = range(3)
UNSENT, IN_FLIGHT, STORED = range(3)
IDLE, FENCING, READING, WRITING, CLOSING, DONE = range(6)


class Rules(NamedTuple):
    """The safeguards; one that is ``False`` is removed."""

    fence_recovery_reads: bool = True  # rule 6; without it BookKeeper issue 2614
    start_in_last_segment: bool = True  # rule 6; without it BookKeeper issue 2615
    keep_changes_local: bool = True  # rule 6
    count_only_members: bool = True  # rule 2
    wait_for_change: bool = True  # rule 2
    enough_negatives: bool = True  # rule 6


class Bookie(NamedTuple):
    """All that the state has to do with one bookie, so that sorting the bookies makes equal situations equal. Tuples have a place for
    each entry or each recoverer; ``segments`` is a bit set over the segments of the stored metadata."""

    adds: tuple[int, ...]
    segments: int
    heard: tuple[bool, ...]
    negative: tuple[bool, ...]
    wrote: tuple[bool, ...]
    local: tuple[bool, ...]  # a member in the eyes of this recoverer
    member: bool = False  # in the eyes of the writer
    failed: bool = False
    fenced: bool = False
    entries: int = 0
    lac: int = -1


class Recoverer(NamedTuple):
    phase: int = IDLE
    version: int = 0
    lac: int = -1
    entry: int = 0
    changed_at: int = -1  # where its one ensemble change starts


class Ledger(NamedTuple):
    bookies: tuple[Bookie, ...]
    stamps: tuple[int, ...]  # the LAC that each pushed entry carries
    recoverers: tuple[Recoverer, ...]
    state: int = OPEN
    version: int = 0
    firsts: tuple[int, ...] = (0,)
    last: int = -1
    writer: int = RUNNING
    writer_version: int = 0
    pushed: int = -1
    confirmed: int = -1
    change_at: int = -1  # where the segment starts that the writer is about to store
    changes_left: int = 1


def new_ledger(*, bookies: int, entries: int, recoverers: int, changes: int) -> Ledger:
    """An open ledger on the first three bookies whose writer pushes ``entries`` and changes its ensemble up to ``changes`` times."""
    nobody = (False,) * recoverers
    columns = [
        Bookie((UNSENT,) * entries, int(index < WRITE_QUORUM), nobody, nobody, nobody, nobody, member=index < WRITE_QUORUM)
        for index in range(bookies)
    ]
    return _normal(Ledger(tuple(columns), (-1,) * entries, (Recoverer(),) * recoverers, changes_left=changes))


def broken(ledger: Ledger) -> str:
    """The name of an invariant that does not hold, or ""."""
    if list(ledger.firsts) != sorted(set(ledger.firsts)):
        return "SegmentsInOrder"
    if any(recoverer.phase == WRITING and 0 <= recoverer.changed_at < ledger.firsts[-1] for recoverer in ledger.recoverers):
        return "SegmentsInOrder"
    for entry in range(ledger.confirmed + 1):
        if not _copies(ledger, entry):
            return "AllAckedEntriesAreReadable"
    if ledger.state == CLOSED:
        if ledger.confirmed > ledger.last:
            return "NoDivergence"
        if any(_copies(ledger, entry) < ACK_QUORUM for entry in range(ledger.last + 1)):
            return "AllCommittedEntriesReachAckQuorum"
    return ""


def steps(ledger: Ledger, rules: Rules) -> Iterator[tuple[str, Ledger]]:
    """Everything that can happen next."""
    for name, after in (*_writer_steps(ledger, rules), *_recovery_steps(ledger, rules)):
        yield name, _normal(after)


# -- the writer


def _writer_steps(ledger: Ledger, rules: Rules) -> Iterator[tuple[str, Ledger]]:
    for index in range(len(ledger.bookies)):
        yield from _deliveries(ledger, index)
    if ledger.writer == STOPPED:
        return
    yield from _confirm(ledger, rules)
    if ledger.writer == CHANGING:
        yield from _change(ledger)
        return
    if ledger.pushed + 1 < len(ledger.stamps):
        entry = ledger.pushed + 1
        sent = tuple(_sent(bookie, entry) if bookie.member else bookie for bookie in ledger.bookies)
        stamps = _put(ledger.stamps, entry, ledger.confirmed)
        yield f"writer pushes {entry}", ledger._replace(pushed=entry, stamps=stamps, bookies=sent)
    for index, bookie in enumerate(ledger.bookies):
        if bookie.member and ledger.changes_left > 0:
            begun = _with(ledger, index, failed=True)._replace(writer=CHANGING, change_at=ledger.confirmed + 1)
            yield "writer gives a member up", begun
    if ledger.confirmed == ledger.pushed and _may_store(ledger):
        closed = ledger._replace(state=CLOSED, version=ledger.version + 1, last=ledger.confirmed, writer=STOPPED)
        yield f"writer closes at {ledger.confirmed}", closed


def _deliveries(ledger: Ledger, index: int) -> Iterator[tuple[str, Ledger]]:
    bookie = ledger.bookies[index]
    for entry, add in enumerate(bookie.adds):
        if add == IN_FLIGHT and bookie.fenced:
            yield f"a bookie refuses {entry}", ledger._replace(writer=STOPPED)
        elif add == IN_FLIGHT:
            stored = _with(
                ledger,
                index,
                adds=_put(bookie.adds, entry, STORED),
                entries=bookie.entries | 1 << entry,
                lac=max(bookie.lac, ledger.stamps[entry]),
            )
            yield f"a bookie stores {entry}", stored


def _confirm(ledger: Ledger, rules: Rules) -> Iterator[tuple[str, Ledger]]:
    """When Qa answers have come. An answer that is late or lost is a confirmation that is late or never comes."""
    entry = ledger.confirmed + 1
    if entry > ledger.pushed or (ledger.writer == CHANGING and rules.wait_for_change):
        return
    counted = [bookie for bookie in ledger.bookies if bookie.member or not rules.count_only_members]
    if sum(bookie.adds[entry] == STORED for bookie in counted) >= ACK_QUORUM:
        yield f"writer confirms {entry}", ledger._replace(confirmed=entry)


def _change(ledger: Ledger) -> Iterator[tuple[str, Ledger]]:
    if not _may_store(ledger):
        yield "writer's change is refused", ledger._replace(writer=STOPPED)
        return
    first = ledger.change_at
    appended = first > ledger.firsts[-1]
    firsts = (*ledger.firsts, first) if appended else ledger.firsts
    bit = 1 << (len(firsts) - 1)
    for chosen, spare in enumerate(ledger.bookies):
        if spare.member:
            continue
        columns = []
        for index, bookie in enumerate(ledger.bookies):
            member = index == chosen or (bookie.member and not bookie.failed)
            segments = bookie.segments | bit if member else bookie.segments & ~bit
            changed = bookie._replace(member=member, failed=False, segments=segments)
            if index == chosen:
                for entry in range(first, ledger.pushed + 1):
                    changed = _sent(changed, entry)
            columns.append(changed)
        after = ledger._replace(
            bookies=tuple(columns),
            firsts=firsts,
            version=ledger.version + 1,
            writer_version=ledger.version + 1,
            writer=RUNNING,
            change_at=-1,
            changes_left=ledger.changes_left - 1,
        )
        yield f"writer's change at {first} is stored", after


def _may_store(ledger: Ledger) -> bool:
    return ledger.state == OPEN and ledger.version == ledger.writer_version


# -- recovery


def _recovery_steps(ledger: Ledger, rules: Rules) -> Iterator[tuple[str, Ledger]]:
    for number, recoverer in enumerate(ledger.recoverers):
        who = f"recoverer {number}"
        match recoverer.phase:
            case phase if phase == IDLE:
                yield f"{who} enters", _enter(ledger, number)
            case phase if phase == FENCING:
                for index, bookie in enumerate(ledger.bookies):
                    if _in_segment(ledger, bookie, len(ledger.firsts) - 1) and not bookie.heard[number]:
                        yield f"{who} fences", _fence(ledger, rules, number, index)
            case phase if phase == READING:
                segment = max(at for at, first in enumerate(ledger.firsts) if first <= recoverer.entry)
                for index, bookie in enumerate(ledger.bookies):
                    if _in_segment(ledger, bookie, segment) and not bookie.negative[number]:
                        yield f"{who} reads {recoverer.entry}", _read(ledger, rules, number, index)
            case phase if phase == WRITING:
                yield from _write_steps(ledger, rules, number)
            case phase if phase == CLOSING:
                yield f"{who} closes at {recoverer.entry - 1}", _close(ledger, number)


def _enter(ledger: Ledger, number: int) -> Ledger:
    if ledger.state == CLOSED:
        return _recoverer(ledger, number, Recoverer(DONE))
    if ledger.state == OPEN:
        ledger = ledger._replace(state=IN_RECOVERY, version=ledger.version + 1)
    ledger = _forget(ledger, number, heard=True)
    return _recoverer(ledger, number, Recoverer(FENCING, ledger.version))


def _fence(ledger: Ledger, rules: Rules, number: int, index: int) -> Ledger:
    bookie = ledger.bookies[index]
    recoverer = ledger.recoverers[number]
    recoverer = recoverer._replace(lac=max(recoverer.lac, bookie.lac))
    ledger = _with(ledger, index, fenced=True, heard=_put(bookie.heard, number, True))
    if sum(bookie.heard[number] for bookie in ledger.bookies) >= FENCED_BY:
        lac = max(recoverer.lac, ledger.firsts[-1] - 1) if rules.start_in_last_segment else recoverer.lac
        recoverer = recoverer._replace(phase=READING, lac=lac, entry=lac + 1)
        last = len(ledger.firsts) - 1
        members = tuple(
            bookie._replace(local=_put(bookie.local, number, _in_segment(ledger, bookie, last)), heard=_put(bookie.heard, number, False))
            for bookie in ledger.bookies
        )
        ledger = ledger._replace(bookies=members)
    return _recoverer(ledger, number, recoverer)


def _read(ledger: Ledger, rules: Rules, number: int, index: int) -> Ledger:
    recoverer = ledger.recoverers[number]
    bookie = ledger.bookies[index]
    if rules.fence_recovery_reads:
        bookie = bookie._replace(fenced=True)
    if bookie.entries >> recoverer.entry & 1:
        ledger = ledger._replace(bookies=_put(ledger.bookies, index, bookie))
        return _recoverer(_forget(ledger, number), number, recoverer._replace(phase=WRITING))
    bookie = bookie._replace(negative=_put(bookie.negative, number, True))
    ledger = ledger._replace(bookies=_put(ledger.bookies, index, bookie))
    if sum(bookie.negative[number] for bookie in ledger.bookies) >= (FENCED_BY if rules.enough_negatives else 1):
        return _recoverer(_forget(ledger, number), number, recoverer._replace(phase=CLOSING))
    return ledger


def _write_steps(ledger: Ledger, rules: Rules, number: int) -> Iterator[tuple[str, Ledger]]:
    recoverer = ledger.recoverers[number]
    who, entry = f"recoverer {number}", recoverer.entry
    for index, bookie in enumerate(ledger.bookies):
        if not bookie.local[number] or bookie.wrote[number]:
            continue
        written = _with(
            ledger,
            index,
            entries=bookie.entries | 1 << entry,
            lac=max(bookie.lac, recoverer.lac),
            wrote=_put(bookie.wrote, number, True),
        )
        if sum(bookie.wrote[number] for bookie in written.bookies) >= ACK_QUORUM:
            written = _recoverer(_forget(written, number), number, recoverer._replace(phase=READING, entry=entry + 1))
        yield f"{who} writes {entry} back", written
        if recoverer.changed_at < 0:
            for spare, other in enumerate(ledger.bookies):
                if not other.local[number]:
                    swapped = _with(ledger, index, local=_put(bookie.local, number, False))
                    swapped = _with(swapped, spare, local=_put(other.local, number, True))
                    changed = _recoverer(swapped, number, recoverer._replace(changed_at=entry))
                    if not rules.keep_changes_local:
                        changed = _publish(changed, number)
                    yield f"{who} changes the ensemble at {entry}", changed


def _close(ledger: Ledger, number: int) -> Ledger:
    recoverer = ledger.recoverers[number]
    if ledger.state == CLOSED:
        return _recoverer(ledger, number, Recoverer(DONE))
    if ledger.version != recoverer.version:
        return _recoverer(ledger, number, Recoverer())
    if recoverer.changed_at >= 0:
        ledger = _stored_change(ledger, number)
    ledger = ledger._replace(state=CLOSED, version=ledger.version + 1, last=recoverer.entry - 1)
    return _recoverer(ledger, number, Recoverer(DONE))


def _publish(ledger: Ledger, number: int) -> Ledger:
    """What a recoverer must not do: show its change before it is done."""
    recoverer = ledger.recoverers[number]
    if ledger.state == CLOSED or ledger.version != recoverer.version:
        return _recoverer(ledger, number, Recoverer())
    ledger = _stored_change(ledger, number)
    return _recoverer(ledger._replace(version=ledger.version + 1), number, recoverer._replace(version=ledger.version + 1))


def _stored_change(ledger: Ledger, number: int) -> Ledger:
    first = ledger.recoverers[number].changed_at
    firsts = ledger.firsts if first == ledger.firsts[-1] else (*ledger.firsts, first)
    bit = 1 << (len(firsts) - 1)
    columns = tuple(
        bookie._replace(segments=bookie.segments | bit if bookie.local[number] else bookie.segments & ~bit) for bookie in ledger.bookies
    )
    return ledger._replace(bookies=columns, firsts=firsts)


# -- helpers


def _copies(ledger: Ledger, entry: int) -> int:
    segment = max(at for at, first in enumerate(ledger.firsts) if first <= entry)
    return sum(_in_segment(ledger, bookie, segment) and bool(bookie.entries >> entry & 1) for bookie in ledger.bookies)


def _in_segment(ledger: Ledger, bookie: Bookie, segment: int) -> bool:
    return bool(bookie.segments >> segment & 1)


def _sent(bookie: Bookie, entry: int) -> Bookie:
    return bookie._replace(adds=_put(bookie.adds, entry, IN_FLIGHT)) if bookie.adds[entry] == UNSENT else bookie


def _with(ledger: Ledger, index: int, **changes: object) -> Ledger:
    return ledger._replace(bookies=_put(ledger.bookies, index, ledger.bookies[index]._replace(**changes)))  # type: ignore[arg-type]


def _recoverer(ledger: Ledger, number: int, recoverer: Recoverer) -> Ledger:
    return ledger._replace(recoverers=_put(ledger.recoverers, number, recoverer))


def _forget(ledger: Ledger, number: int, *, heard: bool = False) -> Ledger:
    """What a recoverer heard about an entry, and of the fencing too."""
    columns = []
    for bookie in ledger.bookies:
        cleared = bookie._replace(negative=_put(bookie.negative, number, False), wrote=_put(bookie.wrote, number, False))
        columns.append(cleared._replace(heard=_put(bookie.heard, number, False)) if heard else cleared)
    return ledger._replace(bookies=tuple(columns))


def _put(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _column(ledger: Ledger, bookie: Bookie, *, fencing_over: bool) -> Bookie:
    stopped = ledger.writer == STOPPED
    nobody = (False,) * len(ledger.recoverers)
    adds = tuple(
        UNSENT if (add == IN_FLIGHT and stopped and bookie.fenced) or (add == STORED and (stopped or entry <= ledger.confirmed)) else add
        for entry, add in enumerate(bookie.adds)
    )
    changes: dict[str, object] = {"adds": adds}
    if stopped:
        changes |= {"member": False, "failed": False}
    if fencing_over:
        changes |= {"lac": -1}
    if ledger.state == CLOSED:
        changes |= {"heard": nobody, "negative": nobody, "wrote": nobody, "local": nobody}
    return bookie._replace(**changes)  # type: ignore[arg-type]


def _normal(ledger: Ledger) -> Ledger:
    """One state for all that differ only in what can have no effect any more, or in the names of bookies and recoverers."""
    stopped, closed = ledger.writer == STOPPED, ledger.state == CLOSED
    fencing_over = closed or all(recoverer.phase >= READING for recoverer in ledger.recoverers)
    columns = [_column(ledger, bookie, fencing_over=fencing_over) for bookie in ledger.bookies]
    if closed:  # a recoverer that is still at it can store nothing more, and its fences and copies break nothing
        ledger = ledger._replace(recoverers=(Recoverer(DONE),) * len(ledger.recoverers))
    if stopped:
        ledger = ledger._replace(changes_left=0, change_at=-1, writer_version=0, pushed=-1)
    in_flight = [any(bookie.adds[entry] == IN_FLIGHT for bookie in columns) for entry in range(len(ledger.stamps))]
    stamps = tuple(stamp if sent and not fencing_over else -1 for stamp, sent in zip(ledger.stamps, in_flight, strict=True))
    ledger = ledger._replace(bookies=tuple(sorted(columns)), stamps=stamps)
    if len(ledger.recoverers) != 2 or ledger.recoverers[0] < ledger.recoverers[1]:
        return ledger
    swapped = tuple(
        bookie._replace(heard=bookie.heard[::-1], negative=bookie.negative[::-1], wrote=bookie.wrote[::-1], local=bookie.local[::-1])
        for bookie in ledger.bookies
    )
    return min(ledger, ledger._replace(bookies=tuple(sorted(swapped)), recoverers=ledger.recoverers[::-1]))
