"""Core of a consumer of a pattern: which topics it should have, which it has, and what to do next.

It compares the latest list with what is open. So it does not matter how many changes were between
two lists.

Pure: no clock, no I/O. Times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

__all__ = ["PatternTopics", "Plan"]

_AGAIN_SECONDS_MIN: Final = 0.5
_AGAIN_SECONDS_MAX: Final = 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, both sorted: topics to open, and topics to close."""

    opens: list[str] = field(default_factory=list)
    closes: list[str] = field(default_factory=list)


class PatternTopics:
    """Topics by their full names. There is a list for each kind: persistent and non-persistent."""

    def __init__(self) -> None:
        self.wanted: frozenset[str] = frozenset()
        """All topics of the latest lists."""
        self._listed: dict[bool, frozenset[str]] = {}
        self._first: set[str] = set()
        self._begun: set[str] = set()
        # when a topic that ended may be opened again, and the wait before that
        self._again: dict[str, tuple[float, float]] = {}
        self._refused: set[str] = set()

    def listed(self, names: Collection[str], *, persistent: bool) -> None:
        """Note the list of one kind."""
        if persistent not in self._listed:
            self._first.update(names)
        self._listed[persistent] = frozenset(names)
        self.wanted = wanted = frozenset().union(*self._listed.values())
        self._first &= wanted
        self._refused &= wanted
        self._again = {name: each for name, each in self._again.items() if name in wanted}

    def is_new(self, name: str) -> bool:
        """Whether a topic came after the first list, or was open before.

        Nothing of it may be skipped, so a new subscription starts at its first message.
        """
        return name not in self._first

    def plan(self, now: float) -> Plan:
        """Return what to open and to close; what is opened counts as begun."""
        wanted = self.wanted
        closes = sorted(self._begun - wanted)
        opens = sorted(
            name for name in wanted - self._begun if self._again.get(name, (now, 0.0))[0] <= now
        )
        self._begun.update(opens)
        return Plan(opens, closes)

    def opened(self, name: str) -> None:
        """Note that a topic is open."""
        self._first.discard(name)
        self._refused.discard(name)
        self._again.pop(name, None)

    def is_begun(self, name: str) -> bool:
        """Whether a topic is open, or is being opened."""
        return name in self._begun

    def is_refused(self, name: str) -> bool:
        """Whether a listed topic has ended, and is there: what was received of it comes again."""
        return name in self._refused

    def ended(self, name: str, now: float, *, is_deleted: bool = False) -> bool:
        """Note that a topic is no longer open, or was not opened.

        While it is listed it is opened again, after a wait that grows until it is open. Return
        whether this is its first end since it was open.
        """
        self._begun.discard(name)
        if name not in self.wanted:
            return False
        if is_deleted:
            self._first.discard(name)  # what is there next by this name is a new one
        else:
            self._refused.add(name)
        _, wait = self._again.get(name, (now, 0.0))
        next_wait = min(max(2 * wait, _AGAIN_SECONDS_MIN), _AGAIN_SECONDS_MAX)
        self._again[name] = (now + next_wait, next_wait)
        return wait == 0.0

    def next_due(self) -> float | None:
        """Return when ``plan`` opens a topic again; ``None``: not before a list changes."""
        return min(
            (due for name, (due, _) in self._again.items() if name not in self._begun),
            default=None,
        )

    def check(self) -> None:
        assert self._first <= self.wanted
        assert self._again.keys() <= self.wanted
        assert self._refused <= self._again.keys()
