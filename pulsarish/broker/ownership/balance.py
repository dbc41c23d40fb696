"""Which bundles move to which brokers, so that all carry about the same: the core, without I/O or
a clock.

The load of a broker is the work of its bundles, in shares of one core, plus a fixed amount that
is divided by the number of bundles and topics. While there is little traffic, that amount decides,
so bundles and topics are spread evenly. With traffic, the work decides. There are no two modes, so
none can take back what the other did.

What keeps it calm:

* Brokers that are within ``start`` of the average are left alone. Once they are not, bundles move
  until all are within the smaller ``stop``.
* A move must lower the greater one of the two loads by at least half of what moves.
* A bundle that moved, or whose move failed, rests, at most until another broker comes: that one
  gets its share of all bundles.
* Nothing moves for a while after a broker came or went, so a rolling restart is not followed by
  moves that the next restart undoes.
* A bundle's work is smoothed. After a change of owner it counts at least as much as before, until
  the meters of the new owner have something to say.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from pulsarish.broker.ownership.bundles import Bundle

__all__ = ["Balance", "BalanceLimits", "BrokerLoad", "BundleLoad", "Move"]

# Shares of one core. The measured CPU time of a broker corrects them upwards.
_MESSAGE_WORK: Final = 1e-5  # one message a second, in or out
_BYTE_WORK: Final = 5e-9
_SESSION_WORK: Final = 1e-5  # an open producer or consumer
_SPREAD: Final = 0.1  # what the bundles and topics of an average broker count for together
_IDLE_CPU: Final = 0.1  # what a broker uses without clients, at most
_CORRECTION_MAX: Final = 4.0
_CORRECTED_WORK_MIN: Final = 0.05  # with less work the CPU time has other causes
_SMOOTHING_SECONDS: Final = 60.0
_SETTLE_SECONDS: Final = 60.0  # until meters are right again after a change of owner


class BalanceLimits(msgspec.Struct, frozen=True):
    """Limits for moves.

    Args:
        start: distance from the average load at which moves begin, as a share of the average.
        rest_seconds: how long a bundle stays where it was moved to, unless a broker comes.
        wait_seconds: how long nothing moves after a broker came or went.
        moves_max: moves of one round.
        moves_of_broker_max: moves away from one broker in one round.
        age_max_seconds: figures that are older do not count; their broker is left alone.
    """

    start: float = 0.2
    rest_seconds: float = 300.0
    wait_seconds: float = 20.0
    moves_max: int = 200
    moves_of_broker_max: int = 50
    age_max_seconds: float = 30.0

    @property
    def stop(self) -> float:
        """Distance from the average at which moves end."""
        return self.start / 2


class BundleLoad(msgspec.Struct, frozen=True):
    """Load of a bundle. ``sessions`` are producers and consumers; rates are in plus out, per
    second.
    """

    topics: int = 0
    sessions: int = 0
    message_rate: float = 0.0
    byte_rate: float = 0.0

    @property
    def work(self) -> float:
        """The estimated share of one core."""
        return (
            self.message_rate * _MESSAGE_WORK
            + self.byte_rate * _BYTE_WORK
            + self.sessions * _SESSION_WORK
        )


class BrokerLoad(msgspec.Struct, frozen=True):
    """Load of a broker instance.

    ``cpu`` is the CPU time of its process as a share of one core. ``takes`` is false while it
    drains or stops.
    """

    broker: str
    cpu: float
    takes: bool
    bundles: Mapping[Bundle, BundleLoad]


class Move(msgspec.Struct, frozen=True):
    """A bundle that should move from the broker instance ``source`` to ``destination``."""

    bundle: Bundle
    source: str
    destination: str


class _Bundle(msgspec.Struct):
    owner: str
    work: float
    topics: int
    settled_at: float = -math.inf
    rests_until: float = -math.inf

    @property
    def units(self) -> int:
        return 1 + self.topics


class _Broker(msgspec.Struct):
    bundles: dict[Bundle, _Bundle]
    takes: bool = True
    work: float = 0.0
    units: int = 0
    correction: float = 1.0
    changed_at: float = -math.inf
    noted_at: float = -math.inf


class _Side(msgspec.Struct):
    """A broker during one decision. ``sorted`` has its bundles that may move, by weight."""

    name: str
    broker: _Broker
    load: float
    moves: int = 0
    sorted: list[tuple[float, Bundle]] | None = None


class Balance:
    """Decides moves from the loads that brokers report. Times are monotonic seconds of the
    caller.
    """

    def __init__(self, limits: BalanceLimits) -> None:
        self._limits = limits
        self._brokers: dict[str, _Broker] = {}
        self._bundles: dict[Bundle, _Bundle] = {}
        self._members: frozenset[str] = frozenset()
        self._waits_until = -math.inf
        self._unfinished = False

    def limit(self, limits: BalanceLimits) -> None:
        """Use other limits from now on."""
        self._limits = limits

    # -- what is known

    def set_members(self, instances: Collection[str], now: float) -> None:
        """Note which broker instances are registered now."""
        members = frozenset(instances)
        if members == self._members:
            return
        if members - self._members:
            for known in self._bundles.values():
                known.rests_until = -math.inf
        self._members = members
        self._waits_until = now + self._limits.wait_seconds
        for name in [name for name in self._brokers if name not in members]:
            del self._brokers[name]
        # Bundles that were deleted, or that no broker has taken since.
        self._bundles = {
            bundle: known
            for bundle, known in self._bundles.items()
            if known.owner in members or known.settled_at > now
        }

    def note(self, load: BrokerLoad, now: float) -> None:
        """Note the load that a registered broker reports."""
        if load.broker not in self._members:
            return
        broker = self._brokers.setdefault(load.broker, _Broker({}))
        share = (
            1.0
            if broker.noted_at == -math.inf
            else 1.0 - math.exp((broker.noted_at - now) / _SMOOTHING_SECONDS)
        )
        found: dict[Bundle, _Bundle] = {}
        work, units = 0.0, 0
        for bundle, seen in load.bundles.items():
            known = self._bundles.get(bundle)
            if known is None:
                known = self._bundles[bundle] = _Bundle(load.broker, seen.work, seen.topics)
                self._inherit(bundle, known, broker.bundles.keys() - load.bundles.keys(), now)
            elif known.owner != load.broker:
                self._left(bundle, known)
                self._owner_changed(known, load.broker, now)
            if now < known.settled_at:
                known.work = max(known.work, seen.work)
                known.topics = max(known.topics, seen.topics)
            else:
                known.work += (seen.work - known.work) * share
                known.topics = seen.topics
            found[bundle] = known
            work += known.work
            units += known.units
        if found.keys() != broker.bundles.keys():
            broker.changed_at = now
        broker.bundles, broker.work, broker.units = found, work, units
        broker.takes, broker.noted_at = load.takes, now
        if now - broker.changed_at >= _SETTLE_SECONDS:
            # Otherwise the CPU time is still that of other bundles.
            wanted = 1.0
            if work >= _CORRECTED_WORK_MIN:
                wanted = min(max((load.cpu - _IDLE_CPU) / work, 1.0), _CORRECTION_MAX)
            broker.correction += (wanted - broker.correction) * share

    def _inherit(self, bundle: Bundle, part: _Bundle, gone: Collection[Bundle], now: float) -> None:
        """Let a bundle that is a part of one that is ``gone`` count for its share of that one,
        until it was measured.
        """
        low, high = bundle.edges if gone else (0, 0)
        for split in gone:
            first, last = split.edges
            if split.namespace_name == bundle.namespace_name and first <= low and high <= last:
                share, whole = (high - low) / (last - first), self._bundles[split]
                part.work = max(part.work, whole.work * share)
                part.topics = max(part.topics, round(whole.topics * share))
                part.settled_at = now + _SETTLE_SECONDS
                return

    def _left(self, bundle: Bundle, known: _Bundle) -> None:
        """Take a bundle from its former owner, whose last report still had it."""
        former = self._brokers.get(known.owner)
        if former is not None and former.bundles.pop(bundle, None) is not None:
            former.work -= known.work
            former.units -= known.units

    def _owner_changed(self, bundle: _Bundle, owner: str, now: float) -> None:
        bundle.owner, bundle.settled_at = owner, now + _SETTLE_SECONDS

    def moved(self, move: Move, now: float, *, done: bool) -> None:
        """Note how a move ended."""
        bundle = self._bundles.get(move.bundle)
        if bundle is None:
            return
        bundle.rests_until = now + self._limits.rest_seconds
        if not done:
            return
        self._owner_changed(bundle, move.destination, now)
        for name, sign in ((move.source, -1), (move.destination, 1)):
            broker = self._brokers.get(name)
            if broker is None or (move.bundle in broker.bundles) == (sign > 0):
                continue
            if sign > 0:
                broker.bundles[move.bundle] = bundle
            else:
                del broker.bundles[move.bundle]
            broker.work += sign * bundle.work
            broker.units += sign * bundle.units
            broker.changed_at = now

    def loads(self, now: float) -> dict[str, float]:
        """Return the load of each broker with fresh figures that takes bundles."""
        return {side.name: side.load for side in self._sides(now)}

    def _sides(self, now: float) -> list[_Side]:
        fresh = {
            name: broker
            for name, broker in self._brokers.items()
            if broker.takes and now - broker.noted_at <= self._limits.age_max_seconds
        }
        unit = self._unit(fresh)
        return [
            _Side(name, broker, broker.work * broker.correction + broker.units * unit)
            for name, broker in fresh.items()
        ]

    def _unit(self, brokers: Mapping[str, _Broker]) -> float:
        units = sum(broker.units for broker in brokers.values())
        return _SPREAD * len(brokers) / units if units else 0.0

    # -- decisions

    def waits(self, now: float) -> bool:
        """Return whether nothing moves, because a broker came or went."""
        return now < self._waits_until

    def decide(
        self, now: float, pool_of: Callable[[Bundle], frozenset[str]] | None = None
    ) -> list[Move]:
        """Return the moves of this round, at most one for each bundle.

        ``pool_of``: the instances among which a bundle may move; all without it.
        """
        if self.waits(now):
            return []
        sides = self._sides(now)
        unit = self._unit({side.name: side.broker for side in sides})
        moves: list[Move] = []
        was_unfinished, self._unfinished = self._unfinished, False
        if pool_of is None:
            self._balance(sides, unit, now, moves, is_needed=was_unfinished)
            return moves
        pools = {pool_of(bundle) for side in sides for bundle in side.broker.bundles}
        for pool in sorted(pools, key=sorted):
            members = [side for side in sides if side.name in pool]
            for side in members:
                side.sorted = [
                    each for each in self._weights(side, unit, now) if pool_of(each[1]) == pool
                ]
            self._balance(members, unit, now, moves, is_needed=was_unfinished)
        return moves

    def _balance(
        self, sides: list[_Side], unit: float, now: float, moves: list[Move], *, is_needed: bool
    ) -> None:
        """Add moves between some brokers until their loads are about the same."""
        first = len(moves)
        while len(sides) > 1:
            mean = sum(side.load for side in sides) / len(sides)
            high = max(sides, key=lambda side: side.load)
            low = min(sides, key=lambda side: side.load)
            allowed = self._limits.stop if is_needed else self._limits.start
            if high.load <= mean * (1 + allowed) and low.load >= mean * (1 - allowed):
                break
            is_needed = True
            if len(moves) >= self._limits.moves_max:
                self._unfinished = True
                break
            if high.moves >= self._limits.moves_of_broker_max:
                self._unfinished = True
                sides.remove(high)
                continue
            if not self._move(high, low, mean, unit, now, moves):
                # It has only bundles that rest or are too large. Judge the others without it.
                sides.remove(high)
                is_needed = len(moves) > first

    @staticmethod
    def _weights(side: _Side, unit: float, now: float) -> list[tuple[float, Bundle]]:
        """Return the bundles of a broker that do not rest, by weight."""
        return sorted(
            (known.work * side.broker.correction + known.units * unit, bundle)
            for bundle, known in side.broker.bundles.items()
            if known.rests_until <= now
        )

    def _move(
        self, high: _Side, low: _Side, mean: float, unit: float, now: float, moves: list[Move]
    ) -> bool:
        """Add a move from ``high`` to ``low``. Return whether there is one that helps."""
        if high.sorted is None:
            high.sorted = self._weights(high, unit, now)
        gap, stop = high.load - low.load, self._limits.stop
        room = min(high.load - mean * (1 - stop), mean * (1 + stop) - low.load)
        index = bisect_right(high.sorted, room, key=lambda each: each[0]) - 1
        if index < 0:
            index = self._closest(high.sorted, gap / 2)
            if index < 0 or high.sorted[index][0] > gap * 2 / 3:
                return False
        weight, bundle = high.sorted.pop(index)
        known = high.broker.bundles[bundle]
        high.load -= weight
        high.moves += 1
        low.load += known.work * low.broker.correction + known.units * unit
        moves.append(Move(bundle, high.name, low.name))
        return True

    @staticmethod
    def _closest(weights: list[tuple[float, Bundle]], wanted: float) -> int:
        """Return the index of the weight closest to ``wanted``; -1 without weights."""
        above = bisect_right(weights, wanted, key=lambda each: each[0])
        found = [index for index in (above - 1, above) if 0 <= index < len(weights)]
        return min(found, key=lambda index: abs(weights[index][0] - wanted), default=-1)

    def check(self) -> None:
        """Assert that the sums of the brokers are those of their bundles."""
        for broker in self._brokers.values():
            assert broker.units == sum(known.units for known in broker.bundles.values())
            assert math.isclose(
                broker.work, sum(known.work for known in broker.bundles.values()), abs_tol=1e-6
            )
