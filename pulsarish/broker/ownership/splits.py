"""Where a bundle is split, and which bundles are due: no I/O and no clock."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pulsarish.broker.ownership.balance import BundleLoad
from pulsarish.broker.ownership.bundles import Bundle, boundaries_of
from pulsarish.metadata.records import NamespacePolicies
from pulsarish.model.errors import InvalidArgument, LimitReached, NotFound

__all__ = [
    "ALGORITHMS",
    "BY_HAND",
    "BY_RANGE",
    "BY_TOPICS",
    "SplitLimits",
    "Splits",
    "divided",
    "inner_edges",
]

BY_RANGE: Final = "range_equally_divide"
BY_TOPICS: Final = "topic_count_equally_divide"
BY_HAND: Final = "specified_positions_divide"
ALGORITHMS: Final = (BY_RANGE, BY_TOPICS, BY_HAND)

_BUNDLES_MAX: Final = 1_024
_HITS: Final = 3
"""Rounds in a row in which a bundle is above a limit before it is split."""


def inner_edges(
    bundle: Bundle, algorithm: str, hashes: Collection[int], boundaries: Sequence[int]
) -> list[int]:
    """Return the hashes at which the second and later parts of a bundle begin, ascending.

    Args:
        hashes: those of the bundle's topics, for ``BY_TOPICS``.
        boundaries: what is returned for ``BY_HAND``, in any order.

    Raises ``InvalidArgument`` if the bundle cannot be split so.
    """
    low, high = bundle.edges
    if algorithm == BY_HAND:
        found = sorted(set(boundaries))
        wrong = [edge for edge in found if not low < edge < high]
        if wrong or not found:
            shown = ", ".join(f"0x{edge:08x}" for edge in wrong) or "none"
            raise InvalidArgument(
                f"splitBoundaries: {shown}; {BY_HAND} needs one or more hashes inside bundle "
                f"{bundle.range}, above 0x{low:08x} and below 0x{high:08x}"
            )
        return found
    if boundaries:
        raise InvalidArgument(
            f"splitBoundaries go with splitAlgorithmName={BY_HAND}, not with {algorithm}"
        )
    if algorithm == BY_RANGE:
        edge = (low + high) // 2
    elif algorithm == BY_TOPICS:
        different = sorted(set(hashes))
        if len(different) < 2:
            raise InvalidArgument(
                f"open topics of bundle {bundle.range}: {len(different)}; {BY_TOPICS} needs two; "
                f"use {BY_RANGE}"
            )
        middle = len(different) // 2
        edge = (different[middle - 1] + different[middle] + 1) // 2
    else:
        raise InvalidArgument(
            f"splitAlgorithmName of {algorithm!r} is not one of {', '.join(ALGORITHMS)}"
        )
    if not low < edge < high:
        raise InvalidArgument(f"bundle {bundle.range} is too small to be split")
    return [edge]


def divided(space: NamespacePolicies, bundle: Bundle, edges: Sequence[int]) -> tuple[int, ...]:
    """Return the edges of the namespace's bundles after ``bundle`` was split at ``edges``.

    Raises ``NotFound`` if the namespace has no such bundle, and ``LimitReached``.
    """
    known = boundaries_of(space)
    if bundle.edges not in pairwise(known):
        raise NotFound(f"namespace {bundle.tenant}/{bundle.namespace} has no bundle {bundle.range}")
    after = tuple(sorted({*known, *edges}))
    if len(after) - 1 > _BUNDLES_MAX:
        raise LimitReached(
            f"namespace {bundle.tenant}/{bundle.namespace} would have {len(after) - 1} bundles; "
            f"{_BUNDLES_MAX} are the most"
        )
    return after


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """What a bundle may have before it is split. Rates are in plus out, per second.

    ``bundles_max``: bundles of a namespace above which none is split.
    """

    topics: int = 1_000
    sessions: int = 1_000
    message_rate: float = 30_000.0
    byte_rate: float = 100e6
    bundles_max: int = 128

    def reason(self, load: BundleLoad) -> str:
        """Return which limit a bundle is above; empty: it is above none."""
        for name, value, most in (
            ("topics", load.topics, self.topics),
            ("sessions", load.sessions, self.sessions),
            ("messages a second", load.message_rate, self.message_rate),
            ("bytes a second", load.byte_rate, self.byte_rate),
        ):
            if value > most:
                return f"{value:.0f} {name}, more than {most:.0f}"
        return ""


class Splits:
    """Decides which bundles of a broker are split, from their loads in each round."""

    def __init__(self, limits: SplitLimits) -> None:
        self._limits = limits
        self._hits: dict[Bundle, int] = {}

    def due(
        self, loads: Mapping[Bundle, BundleLoad], bundles: Mapping[tuple[str, str], int]
    ) -> dict[Bundle, str]:
        """Return the bundles to split now, each with the reason.

        A bundle with one topic is not split: that would not help.

        Args:
            bundles: number of bundles by tenant and namespace.
        """
        hits: dict[Bundle, int] = {}
        counts = dict(bundles)
        found: dict[Bundle, str] = {}
        for bundle, load in sorted(loads.items()):
            reason = self._limits.reason(load) if load.topics > 1 else ""
            if not reason:
                continue
            hits[bundle] = self._hits.get(bundle, 0) + 1
            space = bundle.namespace_name
            if hits[bundle] >= _HITS and counts.get(space, 0) < self._limits.bundles_max:
                counts[space] = counts.get(space, 0) + 1
                found[bundle] = reason
                del hits[bundle]
        self._hits = hits
        return found
