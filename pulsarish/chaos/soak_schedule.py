"""Which faults a soak makes, in which order, and how many copies may be damaged at a time.

The list depends on the seed and the first nodes only, so that a run can be repeated. It knows which
nodes it has added and removed, and so which ones there are at each fault.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

__all__ = ["DAMAGES", "NEEDS_WHOLE", "CopyGuard", "Fault", "FaultKind", "Limits", "draw_faults"]


class FaultKind(StrEnum):
    KILL = "kill"
    PAUSE = "pause"
    CUT = "cut"
    ROT_ENTRY_LOG = "rot-entry-log"
    ROT_INDEX = "rot-index"
    ROT_JOURNAL = "rot-journal"
    ADD_BOOKIE = "add-bookie"
    REMOVE_BOOKIE = "remove-bookie"
    ADD_BROKER = "add-broker"
    REMOVE_BROKER = "remove-broker"
    DRAIN = "drain"


DAMAGES: Final = frozenset({FaultKind.ROT_ENTRY_LOG, FaultKind.ROT_INDEX, FaultKind.ROT_JOURNAL})
NEEDS_WHOLE: Final = DAMAGES | {FaultKind.REMOVE_BOOKIE}
"""Faults that wait until every copy that was damaged is repaired."""
_BAG: Final = (
    *(FaultKind.KILL,) * 5,
    *(FaultKind.PAUSE,) * 4,
    *(FaultKind.CUT,) * 4,
    *(FaultKind.ROT_ENTRY_LOG,) * 4,
    *(FaultKind.ROT_INDEX,) * 1,
    *(FaultKind.ROT_JOURNAL,) * 2,
    *(FaultKind.ADD_BOOKIE, FaultKind.REMOVE_BOOKIE),
    *(FaultKind.ADD_BROKER, FaultKind.REMOVE_BROKER),
    *(FaultKind.DRAIN,) * 2,
)
"""Drawn from until it is empty, then again: in each ``len(_BAG)`` faults each kind comes."""
_OPPOSITE: Final = {
    FaultKind.ADD_BOOKIE: FaultKind.REMOVE_BOOKIE,
    FaultKind.REMOVE_BOOKIE: FaultKind.ADD_BOOKIE,
    FaultKind.ADD_BROKER: FaultKind.REMOVE_BROKER,
    FaultKind.REMOVE_BROKER: FaultKind.ADD_BROKER,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """``node``: where it comes; of an addition the name that the new node gets. ``seconds``: how
    long it lasts, where that is a choice. ``seed``: for what is chosen on the spot.
    """

    kind: FaultKind
    node: str
    seconds: float
    seed: int

    def row(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Between which numbers of nodes the cluster stays, and how long a fault lasts at most.

    ``ack_quorum``: below 2 no copy is damaged.
    """

    bookies_min: int
    bookies_max: int
    brokers_min: int
    brokers_max: int
    ack_quorum: int
    seconds_max: float


def draw_faults(
    seed: int,
    count: int,
    *,
    metadata: Sequence[str],
    bookies: Sequence[str],
    brokers: Sequence[str],
    limits: Limits,
) -> list[Fault]:
    """Return ``count`` faults for a cluster that begins with these nodes.

    The first broker is never removed: it is the address that clients of the run keep.
    """
    chance = random.Random(f"soak:{seed}")
    have = {"bookie": list(bookies), "broker": list(brokers)}
    last = {role: len(names) for role, names in have.items()}
    bag: list[FaultKind] = []
    found: list[Fault] = []
    while len(found) < count:
        if not bag:
            bag = [each for each in _BAG if limits.ack_quorum >= 2 or each not in DAMAGES]
            chance.shuffle(bag)
        kind = bag.pop()
        if not _is_possible(kind, have, limits):
            kind = _OPPOSITE[kind]
            if not _is_possible(kind, have, limits):
                continue  # the numbers of nodes are fixed
        if kind in (FaultKind.ADD_BOOKIE, FaultKind.ADD_BROKER):
            role = kind.rpartition("-")[2]
            last[role] += 1
            node = f"{role}-{last[role]}"
            have[role].append(node)
        else:
            node = chance.choice(_candidates(kind, metadata, have))
            if kind in (FaultKind.REMOVE_BOOKIE, FaultKind.REMOVE_BROKER):
                have[kind.rpartition("-")[2]].remove(node)
        seconds = round(chance.uniform(min(1.0, limits.seconds_max), limits.seconds_max), 1)
        found.append(Fault(kind, node, seconds, chance.getrandbits(32)))
    return found


def _is_possible(kind: FaultKind, have: dict[str, list[str]], limits: Limits) -> bool:
    match kind:
        case FaultKind.ADD_BOOKIE:
            return len(have["bookie"]) < limits.bookies_max
        case FaultKind.REMOVE_BOOKIE:
            return len(have["bookie"]) > limits.bookies_min
        case FaultKind.ADD_BROKER:
            return len(have["broker"]) < limits.brokers_max
        case FaultKind.REMOVE_BROKER:
            return len(have["broker"]) > limits.brokers_min
        case _:
            return True


def _candidates(
    kind: FaultKind, metadata: Sequence[str], have: dict[str, list[str]]
) -> Sequence[str]:
    if kind in (FaultKind.KILL, FaultKind.PAUSE, FaultKind.CUT):
        return [*metadata, *have["bookie"], *have["broker"]]
    if kind is FaultKind.DRAIN:
        return have["broker"]
    if kind is FaultKind.REMOVE_BROKER:
        return have["broker"][1:]
    return have["bookie"]


class CopyGuard:
    """Allows damage in one copy at a time, and none where that could be the last good one.

    An acknowledged entry is on ``ack_quorum`` bookies, so ``ack_quorum - 1`` good copies remain.
    """

    def __init__(self, ack_quorum: int) -> None:
        self._ack_quorum = ack_quorum
        self.damaged = ""
        """The bookie that has damaged copies; empty: all that were damaged are repaired."""

    def may_damage(self) -> bool:
        return self._ack_quorum >= 2 and not self.damaged

    def damage(self, bookie: str) -> None:
        """Note that copies of a bookie are damaged from now on."""
        assert self.may_damage(), f"{bookie} next to {self.damaged or 'the only copy'}"
        self.damaged = bookie

    def repaired(self) -> None:
        self.damaged = ""
