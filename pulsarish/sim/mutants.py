"""Mutants: the proof that the simulator finds mistakes. Each removes one safeguard; a seed must notice.

A mutant that survives its seeds means that the safeguard is not tested, so that it may vanish one day and nobody is told.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

__all__ = ["MUTANTS", "Mutant", "Verdict", "replaced", "run_mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """``patch()`` is a context in which the safeguard is gone; ``check(seed)`` runs the scenario that must notice and raises when it
    does. ``removes`` names the safeguard and its rule.
    """

    name: str
    removes: str
    patch: Callable[[], AbstractContextManager[None]]
    check: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """``killed_at`` is the seed that noticed and ``error`` what it said; both None when the mutant survived."""

    mutant: Mutant
    killed_at: int | None
    error: Exception | None


MUTANTS: dict[str, Mutant] = {}


@contextmanager
def replaced(owner: object, name: str, make: Callable[[object], object]) -> Generator[None]:
    """For a while ``owner.name`` is ``make(what it was)``. The attribute must be the owner's own, so that it can be put back."""
    was = vars(owner)[name]
    setattr(owner, name, make(was))
    try:
        yield
    finally:
        setattr(owner, name, was)


def run_mutant(mutant: Mutant, seeds: Iterable[int]) -> Verdict:
    """Run the mutant's scenario seed by seed until one notices.

    Raises ``AssertionError`` when that seed fails without the mutation, too, or when what it noticed is a mistake in the patch itself.
    """
    for seed in seeds:
        error = _noticed(mutant, seed)
        if error is None:
            continue
        for what in (error, error.__cause__):
            # A patch that does not fit the code any more makes noise, which proves nothing.
            assert not isinstance(what, TypeError | NameError | AttributeError), f"the patch of {mutant.name} is broken: {what!r}"
        mutant.check(seed)
        return Verdict(mutant, seed, error)
    return Verdict(mutant, None, None)


def _noticed(mutant: Mutant, seed: int) -> Exception | None:
    with mutant.patch():
        try:
            mutant.check(seed)
        except Exception as error:  # noqa: BLE001 - whatever was noticed kills the mutant
            return error
    return None
