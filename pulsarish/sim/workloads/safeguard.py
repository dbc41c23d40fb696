"""Mutants: the proof that the simulator finds mistakes.

Each removes one safeguard, and a seed must notice.

A mutant that survives its seeds means that the safeguard is not tested. Then it may get lost one
day without notice.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Mutant", "Patch", "Verdict", "all_replaced", "replaced", "replacing", "run_mutant"]

Patch = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A safeguard that can be removed.

    ``patch()`` is a context in which the safeguard is gone. ``check(seed)`` runs the scenario that
    must notice, and raises when it does. ``removes`` names the safeguard. ``rules`` has the numbers
    of the rules that it keeps. ``seeds`` is how many seeds it may survive. ``first`` is the one of
    them that is tried first, because its run is short and has noticed.
    """

    name: str
    removes: str
    rules: tuple[int, ...]
    patch: Patch
    check: Callable[[int], None]
    seeds: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """``killed_at`` is the seed that noticed and ``error`` its error.

    Both are None when the mutant survived.
    """

    mutant: Mutant
    killed_at: int | None
    error: Exception | None


@contextmanager
def replaced(owner: object, name: str, make: Callable[[Any], object]) -> Generator[None]:
    """Replace ``owner.name`` by ``make(old value)`` inside the block.

    The attribute must be the owner's own, so it can be restored.
    """
    was = vars(owner)[name]
    setattr(owner, name, make(was))
    try:
        yield
    finally:
        setattr(owner, name, was)


def replacing(owner: object, name: str, make: Callable[[Any], object]) -> Patch:
    """Return the patch that makes one ``replaced``."""
    return lambda: replaced(owner, name, make)


def all_replaced(*patches: Patch) -> Patch:
    """Return the patch that makes all of these at once."""

    @contextmanager
    def patch() -> Generator[None]:
        with ExitStack() as stack:
            for each in patches:
                stack.enter_context(each())
            yield

    return patch


def run_mutant(mutant: Mutant, seeds: Iterable[int] | None = None) -> Verdict:
    """Run the mutant's scenario seed by seed until one notices.

    Without ``seeds``: the seeds that it may survive, ``first`` before the others.

    Raises ``AssertionError`` when that seed also fails without the mutation, or when it noticed a
    mistake in the patch itself.
    """
    if seeds is None:
        seeds = sorted(range(mutant.seeds), key=lambda seed: seed != mutant.first)
    for seed in seeds:
        error = _noticed(mutant, seed)
        if error is None:
            continue
        parts = list(_parts(error))
        for what in (*parts, *(each.__cause__ for each in parts)):
            # A patch that does not fit the code any more raises errors, which proves nothing.
            assert not isinstance(what, TypeError | NameError | AttributeError), (
                f"the patch of {mutant.name} is broken: {what!r}"
            )
        mutant.check(seed)
        return Verdict(mutant, seed, parts[0])
    return Verdict(mutant, None, None)


def _parts(error: Exception) -> Iterator[Exception]:
    """Yield the errors of a group, or the error itself."""
    if not isinstance(error, ExceptionGroup):
        yield error
        return
    for each in error.exceptions:
        yield from _parts(each)


def _noticed(mutant: Mutant, seed: int) -> Exception | None:
    with mutant.patch():
        try:
            mutant.check(seed)
        except Exception as error:  # noqa: BLE001 - whatever was noticed kills the mutant
            return error
    return None
