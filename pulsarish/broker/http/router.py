"""Find the route of a path: a tree of segments, fixed words before names in braces.

The cost does not depend on the number of routes.
"""

from __future__ import annotations

from collections.abc import Sequence

from pulsarish.broker.http.route import Route

__all__ = ["RouteTable"]


class _Node:
    __slots__ = ("any", "fixed", "methods")

    def __init__(self) -> None:
        self.fixed: dict[str, _Node] = {}
        self.any: _Node | None = None
        self.methods: dict[str, tuple[Route, list[str]]] = {}


class RouteTable:
    """The routes of the HTTP port. Two routes of the same shape and method are a defect."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for part in route.pattern.strip("/").split("/"):
                if part.startswith("{"):
                    node.any = node.any or _Node()
                    node = node.any
                else:
                    node = node.fixed.setdefault(part, _Node())
            assert route.method not in node.methods, f"{route.name} is there twice"
            node.methods[route.method] = (route, route.path_names)

    def find(
        self, method: str, segments: Sequence[str]
    ) -> tuple[Route, dict[str, str]] | tuple[list[str], None] | None:
        """Find the route of a path.

        Returns:
            The route and the values of its names in braces; the methods that the path has instead;
            or ``None`` for an unknown path.
        """
        allowed: set[str] = set()
        values = tuple[str, ...]()
        found = _find(self._root, method, segments, 0, values, allowed)
        if found is not None:
            return found
        return (sorted(allowed), None) if allowed else None


def _find(
    node: _Node,
    method: str,
    segments: Sequence[str],
    index: int,
    values: tuple[str, ...],
    allowed: set[str],
) -> tuple[Route, dict[str, str]] | None:
    if index == len(segments):
        here = node.methods.get(method)
        if here is not None:
            return here[0], dict(zip(here[1], values, strict=True))
        allowed.update(node.methods)
        return None
    segment = segments[index]
    fixed = node.fixed.get(segment)
    if fixed is not None:
        found = _find(fixed, method, segments, index + 1, values, allowed)
        if found is not None:
            return found
    if node.any is not None and segment:
        return _find(node.any, method, segments, index + 1, (*values, segment), allowed)
    return None
