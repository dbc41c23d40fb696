"""The choice of the bookies that hold a ledger.

Two replicas of an entry share a host only when there is no other host; then regions, zones and
racks count, the widest first. Bookies that failed lately are chosen last, and of equal ones those
that are slow. Otherwise the caller's random stream decides, by their free space where that is
switched on. ``PlacementRules`` may ask for more: a least number of distinct domains in each write
quorum, as a wish or enforced. Rule 3 says what happens with fewer bookies than wanted. These are
plain functions of what is known now.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from pulsarish.ledger.options import LedgerOptions
from pulsarish.model.errors import NotEnoughBookies, NotEnoughDomains
from pulsarish.model.ledger_metadata import check_quorums

__all__ = [
    "Candidate",
    "Ensemble",
    "PlacementRules",
    "Violation",
    "better_member",
    "check_enough",
    "choose_ensemble",
    "choose_replacement",
    "is_no_worse",
    "violations",
    "why_not_permitted",
    "why_too_few",
]

# The order in which shared domains count: the host first, then the widest.
_ORDER: Final = ("host", "region", "zone", "rack")
_WEIGHT_MAX: Final = 3
# Steps of the search for an ensemble that keeps enforced rules, after the quick choice found none.
_SEARCH_STEPS_MAX: Final = 20_000


class Candidate(msgspec.Struct, frozen=True):
    """A bookie that is registered as writable. ``healthy`` is false while it is in quarantine.

    Domains of one level are the same when their names are. An empty name is not known.
    """

    member: str
    host: str
    rack: str = ""
    healthy: bool = True
    zone: str = ""
    region: str = ""
    free_bytes: int = 0  # 0: not known
    is_slow: bool = False  # with adds
    group: str = "default"


class PlacementRules(msgspec.Struct, frozen=True):
    """How many distinct domains the members of each write quorum must lie in.

    A write quorum of fewer members needs only as many domains. ``enforced``: what breaks a rule is
    refused; otherwise it is taken where nothing better is there.

    ``weighted``: among equal bookies the chance of each grows with its free space.
    """

    min_distinct_hosts: int = 1
    min_distinct_racks: int = 1
    min_distinct_zones: int = 1
    min_distinct_regions: int = 1
    enforced: bool = False
    weighted: bool = False

    @classmethod
    def of(cls, options: LedgerOptions) -> PlacementRules:
        return cls(
            options.min_distinct_hosts,
            options.min_distinct_racks,
            options.min_distinct_zones,
            options.min_distinct_regions,
            options.min_distinct_enforced,
            options.disk_weight_based_placement_enabled,
        )

    def wanted(self, write_quorum: int) -> list[tuple[str, int]]:
        """Return the levels with a rule, the widest first, and the least number of domains."""
        levels = (
            ("region", self.min_distinct_regions),
            ("zone", self.min_distinct_zones),
            ("rack", self.min_distinct_racks),
            ("host", self.min_distinct_hosts),
        )
        return [(level, min(count, write_quorum)) for level, count in levels if count > 1]


_NO_RULES: Final = PlacementRules()


class Violation(msgspec.Struct, frozen=True):
    """A write quorum whose ``members`` lie in ``found`` domains of a level, and ``wanted`` are
    asked for.
    """

    level: str  # host, rack, zone or region
    members: tuple[str, ...]
    found: int
    wanted: int


class Ensemble(msgspec.Struct, frozen=True):
    members: tuple[str, ...]
    write_quorum: int
    below_policy: bool


def _named(places: Sequence[Candidate], level: str) -> list[str]:
    return sorted({getattr(place, level) for place in places} - {""})


def _count_domains(places: Sequence[Candidate], level: str) -> int:
    """Count the domains that are certainly distinct: an unnamed one may be any of the others."""
    return max(1, len(_named(places, level)))


def _write_sets(
    places: Sequence[Candidate], write_quorum: int, *, of: int | None = None
) -> Iterator[list[Candidate]]:
    """Yield the write quorums of an ensemble (rule 1); with ``of`` only those with that place."""
    size = len(places)
    if write_quorum >= size:
        yield list(places)
        return
    starts = range(size) if of is None else range(of - write_quorum + 1, of + 1)
    for start in starts:
        yield [places[(start + step) % size] for step in range(write_quorum)]


def violations(
    places: Sequence[Candidate],
    write_quorum: int,
    rules: PlacementRules,
    *,
    requested_write_quorum: int = 0,
) -> list[Violation]:
    """Return where an ensemble breaks rules, enforced or not, the widest level first.

    Args:
        places: the members in their order, as ``Bookies.describe`` returns them. One that is not
            known counts as alone in its domains.
        requested_write_quorum: what the policy asks for, where a ledger has fewer copies; 0: the
            same. A ledger with too few copies breaks the rules that these would have to keep.
    """
    return [
        Violation(level, tuple(place.member for place in places_of_set), found, wanted)
        for level, wanted in rules.wanted(max(write_quorum, requested_write_quorum))
        for places_of_set in _write_sets(places, write_quorum)
        if (found := _count_domains(places_of_set, level)) < wanted
    ]


def _shortage(
    places: Sequence[Candidate], write_quorum: int, wanted: Sequence[tuple[str, int]]
) -> int:
    """Count the domains that the write quorums have too few, over all levels."""
    if not wanted:
        return 0
    return sum(
        max(0, count - _count_domains(places_of_set, level))
        for places_of_set in _write_sets(places, write_quorum)
        for level, count in wanted
    )


def _levels(candidates: Sequence[Candidate]) -> list[str]:
    """Return the levels at which these bookies differ, in the order in which they count.

    At the others every choice clashes as much.
    """
    return [level for level in _ORDER if len({getattr(each, level) for each in candidates}) > 1]


def _clashes(
    places: Sequence[Candidate], write_quorum: int, levels: Sequence[str]
) -> tuple[int, ...]:
    """Count the pairs of replicas of one entry that share a domain, level by level, over all write
    quorums.
    """
    size = len(places)
    pairs = [
        (places[start], places[(start + step) % size])
        for start in range(size)
        for step in range(1, write_quorum)
    ]
    return tuple(
        sum(getattr(first, level) == getattr(second, level) for first, second in pairs)
        for level in levels
    )


class _Judge(msgspec.Struct, frozen=True):
    """Compares ensembles with the same quorums and rules: the lesser cost is the better one."""

    write_quorum: int
    wanted: Sequence[tuple[str, int]]
    enforced: bool
    levels: Sequence[str]

    def cost(self, places: Sequence[Candidate]) -> tuple[int, ...]:
        shortage = _shortage(places, self.write_quorum, self.wanted)
        return (
            shortage if self.enforced else 0,
            sum(not place.healthy for place in places),
            shortage,
            *_clashes(places, self.write_quorum, self.levels),
            sum(place.is_slow for place in places),
        )

    def improve(self, places: list[Candidate], spare: list[Candidate]) -> None:
        """Swap places, or a place for a spare, while that lowers the cost.

        Ensembles are small, so all pairs are tried.
        """
        best = self.cost(places)
        improved = True
        while improved and any(best):
            improved = False
            for index in range(len(places)):
                for other in range(index + 1, len(places)):
                    places[index], places[other] = places[other], places[index]
                    if (now := self.cost(places)) < best:
                        best, improved = now, True
                    else:
                        places[index], places[other] = places[other], places[index]
                for number, candidate in enumerate(spare):
                    old, places[index] = places[index], candidate
                    if (now := self.cost(places)) < best:
                        spare[number] = old
                        best, improved = now, True
                    else:
                        places[index] = old

    def search(self, pool: Sequence[Candidate], size: int) -> list[Candidate] | None:
        """Look for an ensemble without a shortage, in bounded time. Return ``None`` for none."""
        steps = 0

        def is_broken(places: Sequence[Candidate]) -> bool:
            return any(_count_domains(places, level) < count for level, count in self.wanted)

        def extend(places: list[Candidate]) -> list[Candidate] | None:
            nonlocal steps
            if len(places) == size:
                return None if _shortage(places, self.write_quorum, self.wanted) else places
            tried = set()
            for candidate in pool:
                domains = tuple(getattr(candidate, level) for level, _ in self.wanted)
                if domains in tried or candidate in places:
                    continue
                tried.add(domains)
                steps += 1
                if steps > _SEARCH_STEPS_MAX:
                    return None
                longer = [*places, candidate]
                if len(longer) >= self.write_quorum and is_broken(longer[-self.write_quorum :]):
                    continue
                if (found := extend(longer)) is not None:
                    return found
            return None

        return extend([])


def why_too_few(
    writable_count: int, ack_quorum: int, down_count: int, read_only_reasons: Sequence[str]
) -> str:
    """Say that there are too few bookies for a ledger, and what helps."""
    text = (
        f"a ledger needs {ack_quorum} writable bookies (ack_quorum); {writable_count} are there,"
        f" {down_count} more are known and down or read-only"
    )
    return "; ".join([text, *read_only_reasons])


def _refuse(
    candidates: Sequence[Candidate],
    places: Sequence[Candidate],
    write_quorum: int,
    wanted: Sequence[tuple[str, int]],
) -> NotEnoughDomains:
    """Say which rule no ensemble can keep."""
    for level, count in wanted:
        names = _named(candidates, level)
        if max(1, len(names)) < count:
            nameless = sum(not getattr(each, level) for each in candidates)
            unnamed = f", and {nameless} bookies name no {level}" if nameless else ""
            return NotEnoughDomains(
                f"the copies of each entry must lie in {count} distinct {level}s"
                f" (min_distinct_{level}s, enforced); the {len(candidates)} writable bookies are "
                f"in {len(names)}: {', '.join(names) or 'none'}{unnamed}"
            )
    level, count = next(
        each for each in wanted if _shortage(places, write_quorum, [each]) or each is wanted[-1]
    )
    names = _named(candidates, level)
    return NotEnoughDomains(
        f"the copies of each entry must lie in {count} distinct {level}s (min_distinct_{level}s, "
        f"enforced); the {len(candidates)} writable bookies are in {len(names)}: "
        f"{', '.join(names)}, but no ensemble of {len(places)} of them keeps this in every write "
        f"quorum of {write_quorum}: add bookies where there are few, or set a smaller "
        "ensemble size"
    )


def check_enough(
    candidates: Sequence[Candidate],
    ack_quorum: int,
    down_count: int,
    read_only_reasons: Sequence[str],
) -> None:
    """Raise ``NotEnoughBookies`` where there are fewer than Qa."""
    if len(candidates) < ack_quorum:
        raise NotEnoughBookies(
            why_too_few(len(candidates), ack_quorum, down_count, read_only_reasons)
        )


def choose_ensemble(
    candidates: Sequence[Candidate],
    ensemble_size: int,
    write_quorum: int,
    ack_quorum: int,
    rng: random.Random,
    *,
    rules: PlacementRules = _NO_RULES,
    down_count: int = 0,
    read_only_reasons: Sequence[str] = (),
) -> Ensemble:
    """Choose the members of a new ledger: E bookies, or all when there are fewer, but never fewer
    than Qa (rule 3).

    The result says when there were too few.

    Args:
        rules: the domains that the copies must, or should, lie in.
        down_count: known bookies that are not writable now, for the error text.
        read_only_reasons: the reasons that read-only bookies give, for the error text.

    Raises ``NotEnoughBookies``, ``NotEnoughDomains`` for enforced rules, ``InvalidArgument``.
    """
    check_quorums(ensemble_size, write_quorum, ack_quorum)
    check_enough(candidates, ack_quorum, down_count, read_only_reasons)
    size = min(ensemble_size, len(candidates))
    quorum = min(write_quorum, size)
    wanted = rules.wanted(write_quorum)
    pool = _drawn(candidates, rng, weighted=rules.weighted)
    pool.sort(key=lambda candidate: (not candidate.healthy, candidate.is_slow))
    if quorum == size == len(pool):
        # Every member holds every entry, so the order does not matter.
        places = pool
    else:
        levels = _levels(pool)
        places = _quick_choice(pool, size, quorum, levels)
        judge = _Judge(quorum, wanted, rules.enforced, levels)
        judge.improve(places, [each for each in pool if each not in places])
        if rules.enforced and _shortage(places, quorum, wanted):
            places = judge.search(pool, size) or places
    if rules.enforced and _shortage(places, quorum, wanted):
        raise _refuse(candidates, places, quorum, wanted)
    below = size < ensemble_size or quorum < write_quorum
    return Ensemble(tuple(place.member for place in places), quorum, below)


def _drawn(
    candidates: Sequence[Candidate], rng: random.Random, *, weighted: bool
) -> list[Candidate]:
    """Return the candidates in an order of chance.

    With ``weighted`` the chance to come next is in proportion to the free space, or to
    ``_WEIGHT_MAX`` times the median of all, if that is less. Unknown space counts as the median.
    """
    pool = sorted(candidates, key=lambda candidate: candidate.member)
    known = sorted(each.free_bytes for each in pool if each.free_bytes > 0)
    if not weighted or not known:
        rng.shuffle(pool)
        return pool
    median = known[len(known) // 2]
    turns = {
        each.member: rng.expovariate(min(each.free_bytes or median, _WEIGHT_MAX * median) / median)
        for each in pool
    }
    return sorted(pool, key=lambda candidate: turns[candidate.member])


def _quick_choice(
    pool: Sequence[Candidate], size: int, quorum: int, levels: Sequence[str]
) -> list[Candidate]:
    """Fill place after place with the bookie that shares the least with those before it."""
    left = list(pool)
    places: list[Candidate] = []
    while len(places) < size:
        window = places[-(quorum - 1) :] if quorum > 1 else []

        def order(candidate: Candidate, window: Sequence[Candidate] = window) -> tuple[int, ...]:
            return (
                not candidate.healthy,
                *(
                    sum(getattr(place, level) == getattr(candidate, level) for place in window)
                    for level in levels
                ),
                candidate.is_slow,
                sum(place.host == candidate.host for place in places),
            )

        chosen = min(left, key=order)
        left.remove(chosen)
        places.append(chosen)
    return places


def choose_replacement(
    candidates: Sequence[Candidate],
    members: Sequence[Candidate],
    index: int,
    write_quorum: int,
    rng: random.Random,
    *,
    rules: PlacementRules = _NO_RULES,
) -> Candidate | None:
    """Return the bookie that takes place ``index`` of an ensemble, or ``None`` when no healthy one
    is left that enforced rules permit.

    They permit one when each write quorum that it joins keeps them, or gets a domain more by it: so
    an ensemble that keeps them never breaks them, and one that breaks them gets better.

    ``members`` describes the whole ensemble. A member that is not registered any more counts as
    alone in its domains.
    """
    taken = {place.member for place in members}
    pool = [each for each in candidates if each.healthy and each.member not in taken]
    wanted = rules.wanted(write_quorum)
    if rules.enforced and wanted:
        pool = [each for each in pool if _is_permitted(each, members, index, write_quorum, wanted)]
    if not pool:
        return None
    levels = _levels([*pool, *members])

    def cost(candidate: Candidate) -> tuple[int, ...]:
        places = [*members[:index], candidate, *members[index + 1 :]]
        return (
            _shortage(places, write_quorum, wanted),
            *_clashes(places, write_quorum, levels),
            candidate.is_slow,
        )

    return min(_drawn(pool, rng, weighted=rules.weighted), key=cost)


def _is_permitted(
    candidate: Candidate,
    members: Sequence[Candidate],
    index: int,
    write_quorum: int,
    wanted: Sequence[tuple[str, int]],
) -> bool:
    places = [*members[:index], candidate, *members[index + 1 :]]
    for places_of_set in _write_sets(places, write_quorum, of=index):
        for level, count in wanted:
            names = [getattr(each, level) for each in places_of_set if each is not candidate]
            own = getattr(candidate, level)
            is_new = own != "" and own not in names
            if not is_new and _count_domains(places_of_set, level) < count:
                return False
    return True


def why_not_permitted(
    candidates: Sequence[Candidate],
    members: Sequence[Candidate],
    index: int,
    write_quorum: int,
    rules: PlacementRules,
) -> str:
    """Say which enforced rule keeps every free bookie from place ``index``; empty when none does.

    Arguments are those of ``choose_replacement``.
    """
    taken = {place.member for place in members}
    free = [each for each in candidates if each.healthy and each.member not in taken]
    wanted = rules.wanted(write_quorum)
    if not rules.enforced or any(
        _is_permitted(each, members, index, write_quorum, wanted) for each in free
    ):
        return ""
    for level, count in wanted:
        if not any(
            _is_permitted(each, members, index, write_quorum, [(level, count)]) for each in free
        ):
            there = min(
                _count_domains([each for each in places if each is not members[index]], level)
                for places in _write_sets(members, write_quorum, of=index)
            )
            names = ", ".join(_named(free, level)) or "none"
            return (
                f"the copies of each entry must lie in {count} distinct {level}s"
                f" (min_distinct_{level}s, enforced); the other members are in {there}, and the "
                f"{len(free)} free bookies only in: {names}"
            )
    return f"none of the {len(free)} free bookies keeps all enforced rules of placement"


def is_no_worse(
    members: Sequence[Candidate],
    index: int,
    candidate: Candidate,
    write_quorum: int,
    rules: PlacementRules = _NO_RULES,
) -> bool:
    """Return whether write quorums keep rules as well as now, and share no more domains of any
    level, once a bookie has place ``index`` of an ensemble.
    """
    after = _cost([*members[:index], candidate, *members[index + 1 :]], write_quorum, rules)
    return all(
        new <= old for new, old in zip(after, _cost(members, write_quorum, rules), strict=True)
    )


def better_member(
    candidates: Sequence[Candidate],
    members: Sequence[Candidate],
    write_quorum: int,
    rules: PlacementRules = _NO_RULES,
) -> tuple[int, Candidate] | None:
    """Return the place of an ensemble and the bookie for it with which write quorums keep rules
    best, and share the fewest domains; ``None``: no other bookie in one place makes it better.

    Of equal bookies the first of ``candidates`` is taken.
    """
    best = _cost(members, write_quorum, rules)
    if not any(best):
        return None
    taken = {place.member for place in members}
    hosts = {place.host for place in members}
    # Bookies on hosts that no member has differ by their wider domains only.
    kinds: dict[tuple[str, ...], Candidate] = {}
    for candidate in candidates:
        if candidate.healthy and candidate.member not in taken:
            host = candidate.host if candidate.host in hosts else ""
            _ = kinds.setdefault(
                (host, candidate.rack, candidate.zone, candidate.region), candidate
            )
    found: tuple[int, Candidate] | None = None
    for index in range(len(members)):
        for candidate in kinds.values():
            places = [*members[:index], candidate, *members[index + 1 :]]
            now = _cost(places, write_quorum, rules)
            if now < best:
                best, found = now, (index, candidate)
    return found


def _cost(places: Sequence[Candidate], write_quorum: int, rules: PlacementRules) -> tuple[int, ...]:
    """Count the domains that are too few by the rules, then the shared ones by level."""
    shortage = _shortage(places, write_quorum, rules.wanted(write_quorum))
    return shortage, *_clashes(places, write_quorum, _ORDER)
