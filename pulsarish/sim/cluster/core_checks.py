"""Calls ``check()`` of every object of a node that has this method.

A walk follows attributes and containers from a root object through everything that the program
itself has made. It changes nothing, so a run with walks is the same run as one without. A new core
is found and checked without being named here.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

__all__ = ["check_cores"]

_OURS: Final = "pulsarish."
# The world belongs to the simulator, and other nodes hold objects of it.
_NOT_OURS: Final = ("pulsarish.sim.", "pulsarish.runtime.", "pulsarish.wire._pb.")
_CONTAINERS: Final = (dict, list, tuple, set, frozenset, deque)


def check_cores(roots: Iterable[object]) -> int:
    """Return how many objects were checked.

    Raises the error of the first unsound one, with a note that names it.
    """
    asked = 0
    waiting: list[Any] = list(roots)
    # only for membership tests; every object that is visited lives on through the walk
    seen: set[int] = set()
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, _CONTAINERS):
            if isinstance(found, dict):
                waiting += found.keys()
            waiting += found.values() if isinstance(found, dict) else found
            continue
        kind: Any = type(found)
        if not _is_ours(kind):
            continue
        if _has_check(kind):
            asked += 1
            try:
                found.check()
            except Exception as error:
                error.add_note(f"of a {kind.__qualname__}")
                raise
        waiting += _attributes(found)
    return asked


@cache
def _is_ours(kind: type) -> bool:
    module = kind.__module__
    return module.startswith(_OURS) and not module.startswith(_NOT_OURS)


@cache
def _has_check(kind: type) -> bool:
    check = inspect.getattr_static(kind, "check", None)
    return (
        inspect.isfunction(check)
        and not inspect.iscoroutinefunction(check)
        and len(inspect.signature(check).parameters) == 1
    )


@cache
def _slots(kind: type) -> tuple[str, ...]:
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    return tuple(names)


def _attributes(found: object) -> Iterator[object]:
    yield from getattr(found, "__dict__", {}).values()
    kind: Any = type(found)
    for name in _slots(kind):
        value = getattr(found, name, None)
        if value is not None:
            yield value
