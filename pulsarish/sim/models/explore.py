"""Visits every state of a small model, breadth first: finds the shortest way to a broken invariant,
or proves that there is none.

A model is three functions over hashable states. States that differ only in meaningless names must
be given as one state (the model sorts its columns). Otherwise the same situation is visited once
for each of its names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

__all__ = ["STATES_MAX", "Exploration", "TooManyStates", "explore"]

S = TypeVar("S", bound=Hashable)

STATES_MAX: Final = 5_000_000


class TooManyStates(Exception):
    """The model is larger than planned. Nothing was proved."""


@dataclass(frozen=True, slots=True)
class Exploration(Generic[S]):
    """The result.

    ``broken`` names the invariant, ``way`` is the shortest sequence of steps to it. Both are empty
    when none is broken.
    """

    states: int
    ends: int  # states without a next state
    broken: str
    way: tuple[str, ...]


def explore(
    initial: S,
    steps: Callable[[S], Iterable[tuple[str, S]]],
    check: Callable[[S], str],
    *,
    states_max: int = STATES_MAX,
) -> Exploration[S]:
    """Visit all states that can be reached.

    ``steps`` gives each next state with the name of the step. ``check`` gives the name of the
    invariant that a state breaks, or "".

    Raises ``TooManyStates``.
    """
    came_from: dict[S, tuple[S, str] | None] = {initial: None}
    waiting = deque([initial])
    ends = 0
    while waiting:
        state = waiting.popleft()
        broken = check(state)
        if broken:
            return Exploration(len(came_from), ends, broken, _way(came_from, state))
        dead = True
        for name, after in steps(state):
            dead = False
            if after not in came_from:
                if len(came_from) >= states_max:
                    raise TooManyStates(f"more than {states_max} states")
                came_from[after] = (state, name)
                waiting.append(after)
        ends += dead
    return Exploration(len(came_from), ends, "", ())


def _way(came_from: dict[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    names: list[str] = []
    while (step := came_from[state]) is not None:
        state, name = step
        names.append(name)
    return tuple(reversed(names))
