"""Which copies of closed ledgers move: from fuller bookies to emptier ones, or so that replicas
share fewer domains. No I/O, no clock, no randomness.

What a bookie holds is computed from the metadata of closed ledgers: the bytes of the ledger, by the
share of its entries that the bookie should hold. So it is known without asking bookies, also of
those that are away, and garbage does not count. Of a ledger that is not closed the metadata have no
length: it counts nothing, and moves once it is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pulsarish.ledger.placement import Candidate, PlacementRules, better_member
from pulsarish.ledger.repair.repair_core import Part, held_in_segment
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState

__all__ = ["Balance", "Move", "add_held_bytes", "better_placed", "part_to_move"]


@dataclass(frozen=True, slots=True)
class Move:
    """The copies that ``member`` holds of the segment of a closed ledger that begins at
    ``first_entry``, and the bookie that takes them and the member's place.
    """

    ledger_id: int
    first_entry: int
    member: str
    target: str
    size_bytes: int = 0


def _part_bytes(metadata: LedgerMetadata, index: int, place: int) -> int:
    count = metadata.last_entry + 1
    return metadata.length_bytes * held_in_segment(metadata, index, place) // count if count else 0


def add_held_bytes(held: dict[str, int], metadata: LedgerMetadata) -> None:
    """Add what each member holds of a ledger to ``held``, bytes by bookie.

    Only bookies that are keys there are counted.
    """
    if metadata.state is not LedgerState.CLOSED:
        return
    for index, segment in enumerate(metadata.segments):
        for place, member in enumerate(segment.members):
            if member in held:
                held[member] += _part_bytes(metadata, index, place)


def part_to_move(metadata: LedgerMetadata, move: Move) -> Part | None:
    """Return what a move takes from its member; ``None`` when it is not possible any more."""
    if metadata.state is not LedgerState.CLOSED:
        return None
    for index, segment in enumerate(metadata.segments):
        if segment.first_entry == move.first_entry:
            if move.member not in segment.members or move.target in segment.members:
                return None
            place = segment.members.index(move.member)
            return Part(segment.first_entry, metadata.last_entry_of(index), place, move.member)
    return None


def better_placed(
    metadata: LedgerMetadata,
    describe: Callable[[Sequence[str]], Sequence[Candidate]],
    candidates: Sequence[Candidate],
    rules: PlacementRules,
) -> Move | None:
    """Return a move after which write quorums of a closed ledger keep rules better, or share fewer
    domains; ``None``: there is none.

    Args:
        describe: returns where members are.
        candidates: the bookies that may take copies, in the order in which equal ones are taken.
    """
    if metadata.state is not LedgerState.CLOSED or metadata.last_entry < 0:
        return None
    for index, segment in enumerate(metadata.segments):
        members = describe(segment.members)
        found = better_member(candidates, members, metadata.write_quorum, rules)
        if found is not None:
            place, candidate = found
            return Move(
                metadata.ledger_id,
                segment.first_entry,
                segment.members[place],
                candidate.member,
                _part_bytes(metadata, index, place),
            )
    return None


class Balance:
    """The bytes that each bookie holds, and the choice of the next move.

    Bookies above the average give, and those below it take, until the fullest and the emptiest
    differ by at most ``tolerance`` of the average. Each move makes the bookies more even, so there
    is an end. A bookie that is not writable only gives, and does not count while it holds no more
    than the average.

    Args:
        held: by bookie, those that are registered.
        writable: those of them that may take copies.
        tolerance: a share of the average.
    """

    def __init__(
        self, held: Mapping[str, int], writable: Collection[str], tolerance: float
    ) -> None:
        self.held = dict(held)
        self._writable = [member for member in held if member in writable]
        self._tolerance = tolerance
        counted = [held[member] for member in self._writable]
        average = sum(counted) / len(counted) if counted else 0.0
        counted += [
            size for member, size in held.items() if member not in writable and size > average
        ]
        self.average = sum(counted) / len(counted) if counted else 0.0

    def is_even(self) -> bool:
        """Whether no bookie is to give: all are within the tolerance."""
        return not any(self._gives(member) for member in self.held)

    def _gives(self, member: str) -> bool:
        size = self.held.get(member, 0)
        return size > self.average and any(
            self._takes(target) and size - self.held[target] > self._tolerance * self.average
            for target in self._writable
        )

    def _takes(self, member: str) -> bool:
        return self.held[member] < self.average

    def choose(
        self,
        metadata: LedgerMetadata,
        may_take: Callable[[LedgerMetadata, int, int, str], bool],
    ) -> Move | None:
        """Return a move of the copies of one segment that makes bookies more even; ``None``: there
        is none.

        Args:
            may_take: whether a bookie that is no member may have a place: called with the ledger,
                the index of the segment, the place and the bookie.
        """
        if metadata.state is not LedgerState.CLOSED:
            return None
        for index, segment in enumerate(metadata.segments):
            givers = sorted(
                (member for member in segment.members if self._gives(member)),
                key=lambda member: (-self.held[member], member),
            )
            if not givers:
                continue
            takers = sorted(
                (
                    member
                    for member in self._writable
                    if self._takes(member) and member not in segment.members
                ),
                key=lambda member: (self.held[member], member),
            )
            for member in givers:
                place = segment.members.index(member)
                size = _part_bytes(metadata, index, place)
                for target in takers:
                    between = self.held[member] - self.held[target]
                    if (
                        0 < size < between
                        and between > self._tolerance * self.average
                        and may_take(metadata, index, place, target)
                    ):
                        return Move(metadata.ledger_id, segment.first_entry, member, target, size)
        return None

    def moved(self, move: Move) -> None:
        """Count a move as done."""
        self.held[move.member] -= move.size_bytes
        self.held[move.target] += move.size_bytes
