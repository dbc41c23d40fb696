"""The ledger protocol as a model: write, ensemble change, fence, recover, close, with any ensemble,
write and acknowledgement quorum.

It is the protocol of rules 1 to 7 and nothing else: one writer, any number of recoverers, bookies
that answer late or never (a lost message is one that is never delivered), and bookies that return
with less than they had. Each action is a function that returns the next state, or ``None`` where
the protocol does not allow the action. ``ledger_steps.steps`` tries all of them, to visit every
state that can be reached. ``ledger_trace`` tries those that a simulated cluster has taken.

``Rules`` names the safeguards. Without its safeguard, a defect comes back that model checking once
found in Apache BookKeeper (BookKeeper issues 2614 and 2615, and the mistakes that its specification
records). The invariants (``ledger_steps.broken``) have the names of that specification.

Sets of entries are integers with a bit for each entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

__all__ = ["Bookie", "Ledger", "Quorums", "Recoverer", "Rules"]

OPEN, IN_RECOVERY, CLOSED = range(3)
RUNNING, CHANGING, STOPPED = range(3)
IDLE, FENCING, READING, DONE = range(4)
NOWHERE: Final = -1


class Rules(NamedTuple):
    """The safeguards. One that is ``False`` is removed."""

    fence_recovery_reads: bool = True  # rule 6; without it BookKeeper issue 2614
    start_in_last_segment: bool = True  # rule 6; without it BookKeeper issue 2615
    keep_changes_local: bool = True  # rule 6
    count_only_members: bool = True  # rule 2
    wait_for_change: bool = True  # rule 2
    enough_negatives: bool = True  # rule 6
    limbo: bool = True  # rule 7
    show_after_fence: bool = True  # rule 6


class Quorums(NamedTuple):
    ensemble: int
    write: int
    ack: int

    @property
    def negatives(self) -> int:
        """Number of answers that fence a write quorum, and of negatives that prove an absence."""
        return self.write - self.ack + 1

    def holds(self, place: int, entry: int) -> bool:
        """Return whether the member at this place is in the entry's write set (rule 1)."""
        return place >= 0 and (place - entry) % self.ensemble < self.write


class Bookie(NamedTuple):
    """All that the state has to do with one bookie, so that sorting the bookies makes equal
    situations equal.

    The tuples at the end have an item for each recoverer.
    """

    places: tuple[int, ...]  # in each segment of the stored metadata
    place: int = NOWHERE  # as the writer knows it
    failed: bool = False  # as the writer knows it
    sent: int = 0  # adds on their way
    acked: int = 0  # adds stored since it has its place
    entries: int = 0
    lost: int = 0  # entries that it had before a loss
    limbo: bool = False
    fenced: bool = False
    lac: int = -1
    heard: tuple[bool, ...] = ()
    negative: tuple[int, ...] = ()
    wrote: tuple[int, ...] = ()
    # the places in the last segment and in those that the recoverer has added to it
    local: tuple[tuple[int, ...], ...] = ()


class Recoverer(NamedTuple):
    phase: int = IDLE
    version: int = 0
    lac: int = -1
    entry: int = 0  # all entries before it were found
    found: int = 0  # found entries from there on
    written: int = -1  # the last entry of those that have Qa copies in a row
    firsts: tuple[int, ...] = ()  # of the segments that it has added
    changes: int = 0


class Ledger(NamedTuple):
    quorums: Quorums
    bookies: tuple[Bookie, ...]
    recoverers: tuple[Recoverer, ...]
    stamps: tuple[int, ...] = ()  # the LAC that each pushed entry carries
    state: int = OPEN
    version: int = 0
    firsts: tuple[int, ...] = (0,)
    last: int = -1
    writer: int = RUNNING
    writer_version: int = 0
    pushed: int = -1
    confirmed: int = -1
    change_at: int = -1  # where the segment starts that the writer is about to store


# -- the writer


def push(ledger: Ledger) -> Ledger | None:
    """Let the writer send the next entry to its write set."""
    if ledger.writer == STOPPED:
        return None
    entry = ledger.pushed + 1
    bookies = tuple(_sent(ledger, bookie, 1 << entry) for bookie in ledger.bookies)
    stamps = (*ledger.stamps[:entry], ledger.confirmed, *ledger.stamps[entry + 1 :])
    return ledger._replace(pushed=entry, stamps=stamps, bookies=bookies)


def deliver(ledger: Ledger, index: int, entry: int) -> Ledger | None:
    """Let a bookie store an add of the writer that is on its way."""
    bookie = ledger.bookies[index]
    if not bookie.sent >> entry & 1 or bookie.fenced or bookie.limbo:
        return None
    bit = 1 << entry
    stored = bookie._replace(
        sent=bookie.sent & ~bit,
        acked=bookie.acked | bit,
        entries=bookie.entries | bit,
        lac=max(bookie.lac, ledger.stamps[entry]),
    )
    return _bookie(ledger, index, stored)


def refuse(ledger: Ledger, index: int, entry: int) -> Ledger | None:
    """Let a bookie refuse an add, because the ledger is fenced there, or may be.

    That stops the writer (rule 4).
    """
    bookie = ledger.bookies[index]
    refused = bookie.sent >> entry & 1 and (bookie.fenced or bookie.limbo)
    return ledger._replace(writer=STOPPED) if refused else None


def confirm(ledger: Ledger, rules: Rules) -> Ledger | None:
    """Confirm an entry when Qa answers have come.

    A late or lost answer means that the confirmation is late or never comes.
    """
    entry = ledger.confirmed + 1
    if (
        ledger.writer == STOPPED
        or entry > ledger.pushed
        or (ledger.writer == CHANGING and rules.wait_for_change)
    ):
        return None
    holders = (
        bookie
        for bookie in ledger.bookies
        if not rules.count_only_members or ledger.quorums.holds(bookie.place, entry)
    )
    if sum(bookie.acked >> entry & 1 for bookie in holders) < ledger.quorums.ack:
        return None
    return ledger._replace(confirmed=entry)


def tell_lac(ledger: Ledger, index: int, lac: int) -> Ledger | None:
    """Let a bookie get the last confirmed entry of an idle ledger."""
    bookie = ledger.bookies[index]
    if lac > ledger.confirmed or bookie.fenced or bookie.limbo:
        return None
    return _bookie(ledger, index, bookie._replace(lac=max(bookie.lac, lac)))


def begin_change(ledger: Ledger, failed: Sequence[int]) -> Ledger | None:
    """Let the writer give members up. It stores nothing else before their replacements."""
    if ledger.writer != RUNNING:
        return None
    for index in failed:
        ledger = _bookie(ledger, index, ledger.bookies[index]._replace(failed=True))
    return ledger._replace(writer=CHANGING, change_at=ledger.confirmed + 1)


def store_change(ledger: Ledger, members: Sequence[int]) -> Ledger | None:
    """Store the writer's change in the metadata.

    ``members`` are bookies by place. New ones get the whole window, and count from zero.
    """
    if ledger.writer != CHANGING or not may_store(ledger):
        return None
    first = ledger.change_at
    appended = first > ledger.firsts[-1]
    firsts = (*ledger.firsts, first) if appended else ledger.firsts
    window = (1 << (ledger.pushed + 1)) - (1 << first)
    after = ledger._replace(
        firsts=firsts,
        version=ledger.version + 1,
        writer_version=ledger.version + 1,
        writer=RUNNING,
        change_at=-1,
    )
    bookies = []
    for index, bookie in enumerate(ledger.bookies):
        place = members.index(index) if index in members else NOWHERE
        places = (*(bookie.places if appended else bookie.places[:-1]), place)
        changed = bookie._replace(place=place, places=places, failed=False)
        if bookie.place < 0 <= place:
            changed = _sent(after, changed._replace(acked=0), window)
        bookies.append(changed)
    return after._replace(bookies=tuple(bookies))


def stop(ledger: Ledger) -> Ledger:
    """Stop the writer: it goes away, or its compare-and-set is refused."""
    return ledger._replace(writer=STOPPED)


def close_by_writer(ledger: Ledger) -> Ledger | None:
    if ledger.writer != RUNNING or ledger.confirmed != ledger.pushed or not may_store(ledger):
        return None
    return _closed(ledger, ledger.confirmed)._replace(writer=STOPPED)


def may_store(ledger: Ledger) -> bool:
    """Return whether a compare-and-set of the writer succeeds."""
    return ledger.state == OPEN and ledger.version == ledger.writer_version


# -- bookies


def lose(ledger: Ledger, rules: Rules, index: int, kept: int = 0) -> Ledger:
    """Let a bookie return with less than it had: with these entries only, without its fence and
    without its LAC.
    """
    bookie = ledger.bookies[index]
    gone = bookie.entries & ~kept
    less = bookie._replace(
        entries=bookie.entries & kept,
        lost=bookie.lost | gone,
        fenced=False,
        lac=-1,
        limbo=rules.limbo,
    )
    return _bookie(ledger, index, less)


# -- recovery


def enter(ledger: Ledger, number: int) -> Ledger:
    if ledger.state == CLOSED:
        return _recoverer(ledger, number, Recoverer(DONE))
    if ledger.state == OPEN:
        ledger = ledger._replace(state=IN_RECOVERY, version=ledger.version + 1)
    bookies = tuple(
        bookie._replace(
            heard=_put(bookie.heard, number, value=False),
            negative=_put(bookie.negative, number, 0),
            wrote=_put(bookie.wrote, number, 0),
            local=_put(bookie.local, number, ()),
        )
        for bookie in ledger.bookies
    )
    return _recoverer(ledger._replace(bookies=bookies), number, Recoverer(FENCING, ledger.version))


def bar(ledger: Ledger, index: int, *, fenced: bool = True) -> Ledger:
    """Let a bookie fence the ledger. Its answer may be lost."""
    return _bookie(ledger, index, ledger.bookies[index]._replace(fenced=fenced))


def fence(ledger: Ledger, number: int, index: int, lac: int | None = None) -> Ledger | None:
    """Let a recoverer get a bookie's answer to its fence. A bookie in limbo does not count.

    ``lac`` is the LAC that the bookie knew when it answered. ``None``: the LAC that it knows now.
    """
    bookie, recoverer = ledger.bookies[index], ledger.recoverers[number]
    if recoverer.phase != FENCING or bookie.places[-1] < 0 or bookie.limbo:
        return None
    ledger = _bookie(
        ledger, index, bookie._replace(fenced=True, heard=_put(bookie.heard, number, value=True))
    )
    return _recoverer(
        ledger,
        number,
        recoverer._replace(lac=max(recoverer.lac, bookie.lac if lac is None else lac)),
    )


def show(ledger: Ledger, number: int, index: int) -> Ledger | None:
    """Let a recoverer get what a bookie has from its LAC on, before enough bookies are fenced.

    It comes with the answer to a fence, and was read when that was durable.
    """
    bookie = ledger.bookies[index]
    if ledger.recoverers[number].phase != FENCING or bookie.places[-1] < 0:
        return None
    entry = max(bookie.lac, 0)
    while bookie.entries >> entry & 1:
        ledger = find(ledger, number, entry)
        entry += 1
    return deny(ledger, number, index, entry)


def begin_reading(ledger: Ledger, rules: Rules, number: int) -> Ledger | None:
    """Let a recoverer read, when every write quorum of the last segment has answered the fence
    often enough (rule 5).
    """
    recoverer, quorums = ledger.recoverers[number], ledger.quorums
    if recoverer.phase != FENCING:
        return None
    heard = [bookie.places[-1] for bookie in ledger.bookies if bookie.heard[number]]
    starts = range(quorums.ensemble if quorums.write < quorums.ensemble else 1)
    if any(
        sum(quorums.holds(place, start) for place in heard) < quorums.negatives for start in starts
    ):
        return None
    lac = (
        max(recoverer.lac, ledger.firsts[-1] - 1) if rules.start_in_last_segment else recoverer.lac
    )
    bookies = tuple(
        bookie._replace(
            local=_put(bookie.local, number, (bookie.places[-1],)),
            heard=_put(bookie.heard, number, value=False),
        )
        for bookie in ledger.bookies
    )
    reading = recoverer._replace(phase=READING, lac=lac, entry=lac + 1, written=lac)
    return _recoverer(ledger._replace(bookies=bookies), number, _advanced(reading))


def read(ledger: Ledger, rules: Rules, number: int, index: int, entry: int) -> Ledger | None:
    """Let a recoverer get a bookie's answer about an entry: found, or "no such entry".

    A bookie in limbo never gives the second (rule 7).
    """
    recoverer = ledger.recoverers[number]
    bookie = ledger.bookies[index]
    if recoverer.phase != READING or not ledger.quorums.holds(
        bookie.places[segment_of(ledger, entry)], entry
    ):
        return None
    if rules.fence_recovery_reads:
        bookie = bookie._replace(fenced=True)
    ledger = _bookie(ledger, index, bookie)
    return (
        find(ledger, number, entry)
        if bookie.entries >> entry & 1
        else deny(ledger, number, index, entry)
    )


def deny(ledger: Ledger, number: int, index: int, entry: int) -> Ledger | None:
    """Let a recoverer get the answer that a bookie had no such entry when it was asked."""
    bookie = ledger.bookies[index]
    if bookie.limbo:
        return None
    return _bookie(
        ledger,
        index,
        bookie._replace(
            negative=_put(bookie.negative, number, bookie.negative[number] | 1 << entry)
        ),
    )


def find(ledger: Ledger, number: int, entry: int) -> Ledger:
    """Let a recoverer find a copy of an entry: one is enough."""
    recoverer = ledger.recoverers[number]
    recoverer = recoverer._replace(found=recoverer.found | 1 << entry)
    if recoverer.phase == READING:
        recoverer = _advanced(recoverer)
    return _recoverer(ledger, number, recoverer)


def _advanced(recoverer: Recoverer) -> Recoverer:
    """Return a recoverer behind the entries that it has found in a row."""
    at = recoverer.entry
    while recoverer.found >> at & 1:
        at += 1
    return recoverer._replace(found=recoverer.found & ~((1 << at) - 1), entry=at)


def rewrite(ledger: Ledger, index: int, entry: int, lac: int) -> Ledger:
    """Let a bookie store what a recoverer or a repair has sent. Its answer may be lost."""
    bookie = ledger.bookies[index]
    return _bookie(
        ledger,
        index,
        bookie._replace(entries=bookie.entries | 1 << entry, lac=max(bookie.lac, lac)),
    )


def write_back(ledger: Ledger, number: int, index: int, entry: int) -> Ledger | None:
    """Let a recoverer get the answer that a bookie has stored a write-back.

    Fenced ledgers accept that, and so do bookies in limbo.
    """
    recoverer = ledger.recoverers[number]
    bookie = ledger.bookies[index]
    if recoverer.phase != READING or not recoverer.lac < entry < recoverer.entry:
        return None
    if not ledger.quorums.holds(bookie.local[number][-1], entry):
        return None
    bit = 1 << entry
    bookie = bookie._replace(
        entries=bookie.entries | bit,
        lac=max(bookie.lac, recoverer.lac),
        wrote=_put(bookie.wrote, number, bookie.wrote[number] | bit),
    )
    return _counted(_bookie(ledger, index, bookie), number)


def _counted(ledger: Ledger, number: int) -> Ledger:
    """Confirm what a recoverer wrote back like a writer's entries: at Qa answers, in order."""
    recoverer = ledger.recoverers[number]
    written = recoverer.written
    while written + 1 < recoverer.entry:
        wrote = sum(
            bookie.wrote[number] >> (written + 1) & 1
            for bookie in ledger.bookies
            if ledger.quorums.holds(bookie.local[number][-1], written + 1)
        )
        if wrote < ledger.quorums.ack:
            break
        written += 1
    return _recoverer(ledger, number, recoverer._replace(written=written))


def change_locally(
    ledger: Ledger, number: int, first: int, members: Sequence[int]
) -> Ledger | None:
    """Let a recoverer replace members from the first entry on that misses copies, as far as it knew
    when it began.

    Other processes do not see that before the recoverer closes the ledger.
    """
    recoverer = ledger.recoverers[number]
    if recoverer.phase != READING or not recoverer.lac < first <= recoverer.written + 1:
        return None
    last = recoverer.firsts[-1] if recoverer.firsts else ledger.firsts[-1]
    appended = first != last
    bookies = []
    for index, bookie in enumerate(ledger.bookies):
        place = members.index(index) if index in members else NOWHERE
        local = bookie.local[number]
        changed = bookie._replace(
            local=_put(bookie.local, number, (*(local if appended else local[:-1]), place))
        )
        if local[-1] < 0 <= place:
            changed = changed._replace(wrote=_put(changed.wrote, number, 0))
        bookies.append(changed)
    firsts = (*recoverer.firsts, first) if appended else recoverer.firsts
    after = recoverer._replace(firsts=firsts, changes=recoverer.changes + 1, written=first - 1)
    return _counted(_recoverer(ledger._replace(bookies=tuple(bookies)), number, after), number)


def may_close(ledger: Ledger, rules: Rules, number: int, last: int) -> bool:
    """Return whether a recoverer may close the ledger at this entry.

    All entries up to this one must have their copies, and enough bookies must have denied the next
    one. A recoverer that has both a copy of the next entry and enough denials may trust either.
    """
    recoverer, quorums = ledger.recoverers[number], ledger.quorums
    if recoverer.phase != READING or not recoverer.lac <= last <= recoverer.written:
        return False
    segment = segment_of(ledger, last + 1)
    denied = sum(
        bookie.negative[number] >> (last + 1) & 1
        for bookie in ledger.bookies
        if quorums.holds(bookie.places[segment], last + 1)
    )
    return denied >= (quorums.negatives if rules.enough_negatives else 1)


def close(ledger: Ledger, number: int, last: int) -> Ledger:
    """Let a recoverer that may close do so, with its local changes in the same commit, unless
    another commit came first.
    """
    recoverer = ledger.recoverers[number]
    if ledger.state == CLOSED:
        return _recoverer(ledger, number, Recoverer(DONE))
    if ledger.version != recoverer.version:
        return _recoverer(ledger, number, Recoverer())
    ledger = stored_changes(ledger, number)
    return _recoverer(_closed(ledger, last), number, Recoverer(DONE))


def _closed(ledger: Ledger, last: int) -> Ledger:
    """Return the ledger with its end.

    Segments that start after the end hold nothing and are dropped, but the first stays.
    """
    count = sum(first <= max(last, 0) for first in ledger.firsts)
    bookies = tuple(bookie._replace(places=bookie.places[:count]) for bookie in ledger.bookies)
    return ledger._replace(
        state=CLOSED,
        version=ledger.version + 1,
        last=last,
        firsts=ledger.firsts[:count],
        bookies=bookies,
    )


def publish(ledger: Ledger, number: int) -> Ledger:
    """Let a recoverer store its change before it is done. This is what a recoverer must not do."""
    recoverer = ledger.recoverers[number]
    if ledger.state == CLOSED or ledger.version != recoverer.version:
        return _recoverer(ledger, number, Recoverer())
    ledger = stored_changes(ledger, number)
    return _recoverer(
        ledger._replace(version=ledger.version + 1),
        number,
        recoverer._replace(version=ledger.version + 1, firsts=()),
    )


def stored_changes(ledger: Ledger, number: int) -> Ledger:
    """Return the ledger with a recoverer's added segments in the metadata.

    The recoverer keeps its last ensemble.
    """
    recoverer = ledger.recoverers[number]
    bookies = tuple(
        bookie._replace(
            places=(*bookie.places[:-1], *bookie.local[number]),
            local=_put(bookie.local, number, bookie.local[number][-1:]),
        )
        for bookie in ledger.bookies
    )
    return ledger._replace(bookies=bookies, firsts=(*ledger.firsts, *recoverer.firsts))


# -- helpers


def segment_of(ledger: Ledger, entry: int) -> int:
    return max(at for at, first in enumerate(ledger.firsts) if first <= entry)


def _sent(ledger: Ledger, bookie: Bookie, entries: int) -> Bookie:
    held = 0
    while entries:
        bit = entries & -entries
        if ledger.quorums.holds(bookie.place, bit.bit_length() - 1):
            held |= bit
        entries ^= bit
    return bookie._replace(sent=bookie.sent | held)


def _bookie(ledger: Ledger, index: int, bookie: Bookie) -> Ledger:
    return ledger._replace(bookies=_put(ledger.bookies, index, bookie))


def _recoverer(ledger: Ledger, number: int, recoverer: Recoverer) -> Ledger:
    return ledger._replace(recoverers=_put(ledger.recoverers, number, recoverer))


def _put(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*values[:index], value, *values[index + 1 :])
