"""The choice of the bookies that hold a ledger.

Two replicas of an entry share a host only when there is no other host; the same holds for racks,
which come second. Bookies that failed lately are chosen last. Among equal bookies the caller's
random stream decides. Rule 3 says what happens with fewer bookies than wanted. These are plain
functions of what is known now.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pulsarish.model.errors import NotEnoughBookies
from pulsarish.model.ledger_metadata import check_quorums

__all__ = ["Candidate", "Ensemble", "choose_ensemble", "choose_replacement", "why_too_few"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A bookie that is registered as writable. ``healthy`` is false while it is in quarantine."""

    member: str
    host: str
    rack: str = ""
    healthy: bool = True


@dataclass(frozen=True, slots=True)
class Ensemble:
    members: tuple[str, ...]
    write_quorum: int
    below_policy: bool


def _clashes(places: Sequence[Candidate], write_quorum: int) -> tuple[int, int]:
    """Count the pairs of replicas of one entry that share a host, and those that share a rack, over
    all write quorums.
    """
    size = len(places)
    hosts = racks = 0
    for start in range(size):
        for step in range(1, write_quorum):
            first, second = places[start], places[(start + step) % size]
            hosts += first.host == second.host
            racks += first.rack == second.rack
    return hosts, racks


def _improve(places: list[Candidate], spare: list[Candidate], write_quorum: int) -> None:
    """Swap places, or a place for a spare, while that removes a clash.

    Ensembles are small, so all pairs are tried.
    """
    best = _clashes(places, write_quorum)
    improved = True
    while improved and best != (0, 0):
        improved = False
        for index in range(len(places)):
            for other in range(index + 1, len(places)):
                places[index], places[other] = places[other], places[index]
                if (now := _clashes(places, write_quorum)) < best:
                    best, improved = now, True
                else:
                    places[index], places[other] = places[other], places[index]
            for number, candidate in enumerate(spare):
                if candidate.healthy < places[index].healthy:
                    continue
                old, places[index] = places[index], candidate
                if (now := _clashes(places, write_quorum)) < best:
                    spare[number] = old
                    best, improved = now, True
                else:
                    places[index] = old


def why_too_few(
    writable_count: int, ack_quorum: int, down_count: int, read_only_reasons: Sequence[str]
) -> str:
    """Say that there are too few bookies for a ledger, and what helps."""
    text = (
        f"a ledger needs {ack_quorum} writable bookies (ack_quorum); {writable_count} are there,"
        f" {down_count} more are known and down or read-only"
    )
    return "; ".join([text, *read_only_reasons])


def choose_ensemble(
    candidates: Sequence[Candidate],
    ensemble_size: int,
    write_quorum: int,
    ack_quorum: int,
    rng: random.Random,
    *,
    down_count: int = 0,
    read_only_reasons: Sequence[str] = (),
) -> Ensemble:
    """Choose the members of a new ledger: E bookies, or all when there are fewer, but never fewer
    than Qa (rule 3).

    The result says when there were too few.

    Args:
        down_count: known bookies that are not writable now, for the error text.
        read_only_reasons: the reasons that read-only bookies give, for the error text.

    Raises ``NotEnoughBookies``, ``InvalidArgument``.
    """
    check_quorums(ensemble_size, write_quorum, ack_quorum)
    if len(candidates) < ack_quorum:
        raise NotEnoughBookies(
            why_too_few(len(candidates), ack_quorum, down_count, read_only_reasons)
        )
    size = min(ensemble_size, len(candidates))
    quorum = min(write_quorum, size)
    pool = sorted(candidates, key=lambda candidate: candidate.member)
    rng.shuffle(pool)
    pool.sort(key=lambda candidate: not candidate.healthy)
    if quorum == size == len(pool):
        # Every member holds every entry, so the order does not matter.
        return Ensemble(
            tuple(place.member for place in pool),
            quorum,
            size < ensemble_size or quorum < write_quorum,
        )
    places: list[Candidate] = []
    while len(places) < size:
        window = places[-(quorum - 1) :] if quorum > 1 else []
        near = [place.host for place in window], [place.rack for place in window]
        everywhere = [place.host for place in places]
        chosen = min(
            pool,
            key=lambda c: (
                not c.healthy,
                near[0].count(c.host),
                near[1].count(c.rack),
                everywhere.count(c.host),
            ),
        )
        pool.remove(chosen)
        places.append(chosen)
    _improve(places, pool, quorum)
    below = size < ensemble_size or quorum < write_quorum
    return Ensemble(tuple(place.member for place in places), quorum, below)


def choose_replacement(
    candidates: Sequence[Candidate],
    members: Sequence[Candidate],
    index: int,
    write_quorum: int,
    rng: random.Random,
) -> Candidate | None:
    """Return the bookie that takes place ``index`` of an ensemble, or ``None`` when no healthy one
    is left.

    ``members`` describes the whole ensemble. A member that is not registered any more counts as
    alone on its host.
    """
    taken = {place.member for place in members}
    pool = sorted(
        (c for c in candidates if c.healthy and c.member not in taken), key=lambda c: c.member
    )
    if not pool:
        return None
    rng.shuffle(pool)

    def clashes(candidate: Candidate) -> tuple[int, int]:
        return _clashes([*members[:index], candidate, *members[index + 1 :]], write_quorum)

    return min(pool, key=clashes)
