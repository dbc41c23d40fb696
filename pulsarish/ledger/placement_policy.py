"""The policy that chooses members of ledgers: the built-in one, or a class of one's own by name."""

from __future__ import annotations

import importlib
import random
from collections.abc import Sequence
from typing import Any, Final, Protocol

from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.placement import (
    Candidate,
    Ensemble,
    PlacementRules,
    check_enough,
    choose_ensemble,
    choose_replacement,
    violations,
    why_not_permitted,
)
from pulsarish.model.errors import (
    ConfigError,
    NotEnoughBookies,
    PulsarishError,
    ServiceNotReady,
)
from pulsarish.model.ledger_metadata import BookieGroups, check_quorums
from pulsarish.runtime.log import get_logger

__all__ = ["Placement", "PlacementPolicy"]

_FIELD: Final = "placement_policy"
_METHODS: Final = ("choose_members", "choose_replacement")

_log = get_logger("placement")


class PlacementPolicy(Protocol):
    """Chooses the bookies of a ledger.

    A policy of one's own is a class with these methods, which ``placement_policy`` names as
    ``module:Class``. It is made once in each process, with the process's options and its source of
    chance::

        class Alphabetical:
            def __init__(self, options: LedgerOptions, rng: random.Random) -> None:
                pass

            def choose_members(self, candidates, ensemble_size, write_quorum, ack_quorum):
                return sorted(each.member for each in candidates)[:ensemble_size]

            def choose_replacement(self, candidates, members, index, write_quorum):
                taken = {each.member for each in members}
                free = sorted(each.member for each in candidates if each.member not in taken)
                return free[0] if free else None

    Raise ``ConfigError`` in the constructor for wrong options. The methods run in the event loop,
    so they must not block. They get what is known now and must not keep it.

    What they return is checked: distinct candidates, as many as are asked for, and nothing that
    enforced rules forbid. An error, or a choice that is not valid, is logged and counts as if there
    was no bookie: a new ledger is refused with a retryable error, and a ledger that lost a member
    goes on with the others while Qa can be met.
    """

    def choose_members(
        self,
        candidates: Sequence[Candidate],
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
    ) -> Sequence[str]:
        """Return the ``member`` of ``ensemble_size`` candidates, in the order of the ensemble.

        Args:
            candidates: the writable bookies, at least ``ensemble_size``.
            ensemble_size: at most what the topic's policy asks for; less with too few bookies.
            write_quorum: entry ``e`` lies on the members ``(e + i) mod ensemble_size`` with ``i``
                below this.
            ack_quorum: how many must have an entry before it counts.
        """
        ...

    def choose_replacement(
        self,
        candidates: Sequence[Candidate],
        members: Sequence[Candidate],
        index: int,
        write_quorum: int,
    ) -> str | None:
        """Return the ``member`` of the candidate that takes place ``index``; ``None`` for none.

        Args:
            candidates: the bookies that can be written to now. Those that are members already, and
                those that failed lately (``healthy`` is false), are refused.
            members: the whole ensemble, the one that is to be replaced included.
        """
        ...


class Placement:
    """Chooses by the options of a process. Raises ``ConfigError`` for a policy that cannot be made.

    Its errors name the option as ``placement_policy``.
    """

    def __init__(self, options: LedgerOptions, rng: random.Random) -> None:
        self._rules = PlacementRules.of(options)
        self._rng = rng
        self._name = options.placement_policy
        self._policy = _load(self._name, options, rng) if self._name else None

    def ensemble(
        self,
        candidates: Sequence[Candidate],
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        *,
        groups: BookieGroups | None = None,
        down_count: int = 0,
        read_only_reasons: Sequence[str] = (),
    ) -> Ensemble:
        """Choose the members of a new ledger, as ``choose_ensemble``.

        ``groups``: only their bookies are candidates; those of the secondary ones, too, where the
        primary ones have fewer than ``ensemble_size``.

        Raises its errors, and ``ServiceNotReady`` when the policy fails.
        """
        if groups is not None:
            everywhere, candidates = candidates, _of_groups(candidates, groups.primary)
            if len(candidates) < ensemble_size:
                candidates = _of_groups(everywhere, (*groups.primary, *groups.secondary))
            if len(candidates) < ack_quorum:
                raise _too_few_in(groups, len(candidates), len(everywhere), ack_quorum)
        if self._policy is None:
            return choose_ensemble(
                candidates,
                ensemble_size,
                write_quorum,
                ack_quorum,
                self._rng,
                rules=self._rules,
                down_count=down_count,
                read_only_reasons=read_only_reasons,
            )
        check_quorums(ensemble_size, write_quorum, ack_quorum)
        check_enough(candidates, ack_quorum, down_count, read_only_reasons)
        size = min(ensemble_size, len(candidates))
        quorum = min(write_quorum, size)
        try:
            chosen = tuple(self._policy.choose_members(candidates, size, quorum, ack_quorum))
            places = _places(candidates, chosen)
            if len(places) != size:
                raise ValueError(f"it chose {len(places)} members, not {size}")
            self._check_rules(places, quorum, write_quorum)
        except Exception as error:  # whatever the operator's own code raises
            raise self._failure(error) from error
        return Ensemble(chosen, quorum, size < ensemble_size or quorum < write_quorum)

    def replacement(
        self,
        candidates: Sequence[Candidate],
        members: Sequence[Candidate],
        index: int,
        write_quorum: int,
        *,
        groups: BookieGroups | None = None,
    ) -> Candidate | None:
        """Choose a bookie for a place, as ``choose_replacement``. A policy that fails chooses
        none.

        ``groups``: only of these, and of the secondary ones where the primary ones have none.
        """
        if groups is not None:
            for names in (groups.primary, groups.secondary):
                pool = _of_groups(candidates, names)
                chosen = self.replacement(pool, members, index, write_quorum)
                if chosen is not None:
                    return chosen
            return None
        if self._policy is None:
            return choose_replacement(
                candidates, members, index, write_quorum, self._rng, rules=self._rules
            )
        taken = {place.member for place in members}
        free = [each for each in candidates if each.healthy and each.member not in taken]
        if not free:
            return None
        try:
            member = self._policy.choose_replacement(free, members, index, write_quorum)
            if member is None:
                return None
            (chosen,) = _places(free, (member,))
            reason = why_not_permitted([chosen], members, index, write_quorum, self._rules)
            if reason:
                raise ValueError(f"it chose {member}: {reason}")
        except Exception as error:  # noqa: BLE001
            _ = self._failure(error)
            return None
        return chosen

    def why_not(
        self,
        candidates: Sequence[Candidate],
        members: Sequence[Candidate],
        index: int,
        write_quorum: int,
        *,
        groups: BookieGroups | None = None,
    ) -> str:
        """Say which enforced rule, or which groups, keep every free bookie from a place; empty when
        none does.
        """
        if groups is not None:
            names = (*groups.primary, *groups.secondary)
            taken = {place.member for place in members}
            candidates = _of_groups(candidates, names)
            if not any(each.healthy and each.member not in taken for each in candidates):
                return f"no free bookie is in the groups {', '.join(names)} of this ledger"
        return why_not_permitted(candidates, members, index, write_quorum, self._rules)

    def _check_rules(
        self, places: Sequence[Candidate], write_quorum: int, requested_write_quorum: int
    ) -> None:
        """Raise ``ValueError`` for an ensemble that breaks an enforced rule."""
        broken = violations(
            places, write_quorum, self._rules, requested_write_quorum=requested_write_quorum
        )
        if self._rules.enforced and broken:
            first = broken[0]
            raise ValueError(
                f"it chose {', '.join(first.members)} for the same entries, in {first.found} "
                f"distinct {first.level}s; min_distinct_{first.level}s asks for {first.wanted}"
            )

    def _failure(self, error: Exception) -> PulsarishError:
        _log.error("the placement policy failed", policy=self._name, exception=error)
        return ServiceNotReady(
            f"{_FIELD} = {self._name} failed, so no bookies were chosen: "
            f"{type(error).__name__}: {error}"
        )


def _of_groups(candidates: Sequence[Candidate], groups: Sequence[str]) -> list[Candidate]:
    return [each for each in candidates if each.group in groups]


def _too_few_in(
    groups: BookieGroups, count: int, everywhere_count: int, ack_quorum: int
) -> NotEnoughBookies:
    names = ", ".join((*groups.primary, *groups.secondary))
    return NotEnoughBookies(
        f"a ledger needs {ack_quorum} writable bookies (ack_quorum) of the groups {names}; {count} "
        f"are there, of {everywhere_count} in all: add bookies to these groups, or set others"
    )


def _places(candidates: Sequence[Candidate], members: Sequence[str]) -> list[Candidate]:
    """Return the candidates of these names.

    Raises ``ValueError`` for another name, or one twice.
    """
    by_name = {each.member: each for each in candidates}
    for member in members:
        if member not in by_name:
            raise ValueError(f"{member!r} is not one of the candidates that can be chosen")
    if len(set(members)) != len(members):
        raise ValueError(f"it chose a bookie twice: {', '.join(members)}")
    return [by_name[member] for member in members]


def _load(name: str, options: LedgerOptions, rng: random.Random) -> PlacementPolicy:
    module, _, attribute = name.partition(":")
    try:
        made: Any = getattr(importlib.import_module(module), attribute)(options, rng)
    except ConfigError:
        raise
    except Exception as error:  # whatever the operator's own code raises
        raise ConfigError(
            f"{_FIELD} = {name} cannot be made: {type(error).__name__}: {error}; it must be "
            "module:Class of a module on PYTHONPATH, made with (options, rng)"
        ) from error
    for method in _METHODS:
        if not callable(getattr(made, method, None)):
            raise ConfigError(
                f"{_FIELD} = {name} has no method {method}: see "
                "pulsarish.ledger.placement_policy:PlacementPolicy"
            )
    policy: PlacementPolicy = made
    return policy
