"""Which consumer of a key-shared subscription has which key hashes: split by a ring, or declared by
the consumers.

A ring has a number of points for each consumer, at hashes of its name. A hash belongs to the next
point at or above it, and after the last point to the first. A new consumer takes a share from all
others, and nothing else moves. A consumer that returns under its name has the same points again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pulsarish.broker.clients.consumer import Consumer
from pulsarish.model.errors import ConsumerAssignError
from pulsarish.model.hashing import murmur3_32_hash
from pulsarish.wire.entry import KEY_HASHES

__all__ = ["HashRange", "HashRing", "StickyRanges", "check_ranges"]

HashRange = tuple[int, int]
"""First and last hash, both included."""
_LAST: Final = KEY_HASHES - 1


@dataclass(frozen=True, slots=True, order=True)
class _Member:
    """A consumer on the ring. ``number`` tells consumers of one name apart."""

    name: str
    number: int


class HashRing:
    """Split all hashes among the consumers, in about equal parts."""

    def __init__(self, points: int) -> None:
        """Create an empty ring. ``points``: number of points for each consumer."""
        self._points_count = points
        self._points: list[int] = []  # ascending, each once
        self._at: dict[int, list[_Member]] = {}  # the first member owns a point that several have
        self._consumers: dict[_Member, Consumer] = {}
        # owners of the points, and the first owner again for hashes above the last point
        self._owners: list[Consumer] = []

    def add(self, consumer: Consumer) -> None:
        number = 0
        while (member := _Member(consumer.name, number)) in self._consumers:
            number += 1
        self._consumers[member] = consumer
        for point in self._points_of(member):
            members = self._at.get(point)
            if members is None:
                self._at[point] = [member]
                insort(self._points, point)
            else:
                insort(members, member)
        self._name_owners()

    def remove(self, consumer: Consumer) -> None:
        member = next(member for member, one in self._consumers.items() if one is consumer)
        del self._consumers[member]
        for point in self._points_of(member):
            members = self._at[point]
            members.remove(member)
            if not members:
                del self._at[point]
                del self._points[bisect_left(self._points, point)]
        self._name_owners()

    def _name_owners(self) -> None:
        self._owners = [self._consumers[self._at[point][0]] for point in self._points]
        self._owners += self._owners[:1]

    def _points_of(self, member: _Member) -> set[int]:
        prefix = f"{member.name}/{member.number}/"
        return {
            murmur3_32_hash(f"{prefix}{index}".encode()) % KEY_HASHES
            for index in range(self._points_count)
        }

    def owner(self, key_hash: int) -> Consumer | None:
        """Return the consumer of a hash; ``None`` without consumers."""
        return self._owners[bisect_left(self._points, key_hash)] if self._owners else None

    def ranges(self, consumer: Consumer) -> list[HashRange]:
        """Return the ranges of the consumer, ascending; neighbours are joined."""
        found: list[HashRange] = []
        first = 0
        for point in [*self._points, _LAST] if self._points else []:
            if point >= first and self.owner(point) is consumer:
                if found and found[-1][1] == first - 1:
                    found[-1] = (found[-1][0], point)
                else:
                    found.append((first, point))
            first = point + 1
        return found


def check_ranges(ranges: Sequence[HashRange]) -> None:
    """Raise ``ConsumerAssignError`` unless there is at least one range, and the ranges are valid
    and do not overlap.
    """
    if not ranges:
        raise ConsumerAssignError(
            "a sticky key-shared consumer names no hash ranges: name at least one, of 0 to 65535"
        )
    for first, last in ranges:
        if not 0 <= first <= last <= _LAST:
            raise ConsumerAssignError(
                f"hash range [{first}, {last}]: both ends lie in 0 to {_LAST}, and the first is "
                "not above the last"
            )
    in_order = sorted(ranges)
    for before, after in pairwise(in_order):
        if after[0] <= before[1]:
            raise ConsumerAssignError(
                f"hash ranges {_shown(before)} and {_shown(after)} of one consumer overlap"
            )


class StickyRanges:
    """Give each consumer the hashes that it declared. Entries of other hashes are not delivered."""

    def __init__(self) -> None:
        self._taken: list[tuple[HashRange, Consumer]] = []  # ascending

    def add(self, consumer: Consumer) -> None:
        """Add the consumer's ranges.

        Raises ``ConsumerAssignError`` for invalid ranges, or ranges of another consumer.
        """
        check_ranges(consumer.hash_ranges)
        for mine in consumer.hash_ranges:
            for taken, other in self._taken:
                if mine[0] <= taken[1] and taken[0] <= mine[1]:
                    raise ConsumerAssignError(
                        f"hash range {_shown(mine)} overlaps {_shown(taken)} of the connected "
                        f"consumer {other.name!r}"
                    )
        self._taken.extend((mine, consumer) for mine in consumer.hash_ranges)
        self._taken.sort(key=lambda each: each[0])

    def remove(self, consumer: Consumer) -> None:
        self._taken = [(taken, other) for taken, other in self._taken if other is not consumer]

    def owner(self, key_hash: int) -> Consumer | None:
        """Return the consumer that declared a hash; ``None`` if no consumer did."""
        index = bisect_left(self._taken, key_hash, key=lambda each: each[0][1])
        if index == len(self._taken):
            return None
        (first, _), consumer = self._taken[index]
        return consumer if first <= key_hash else None

    def ranges(self, consumer: Consumer) -> list[HashRange]:
        return [taken for taken, other in self._taken if other is consumer]


def _shown(hashes: HashRange) -> str:
    return f"[{hashes[0]}, {hashes[1]}]"
