"""A simulated day of the balancer's core: brokers, bundles and their changing load, no processes.

Every bundle's load has a size of its own (a few are large), an hour of the day at which it is
highest, and noise. Some brokers are restarted; their bundles go to the others meanwhile, as by
lookups. Printed: moves, how far the most loaded broker is above the average, the time of a
decision, and how many bundles came back within an hour to a broker that they had left.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from dataclasses import dataclass, field

from pulsarish.broker.ownership.balance import Balance, BalanceLimits, BrokerLoad, BundleLoad
from pulsarish.broker.ownership.bundles import Bundle

__all__ = ["Day", "DayResult"]

_DAY_SECONDS = 86_400.0
_BACK_SECONDS = 3_600.0


@dataclass
class DayResult:
    """What a simulated day came to."""

    moves: int = 0
    moves_by_hour: list[int] = field(default_factory=lambda: [0] * 24)
    returned: int = 0
    """Bundles that came back within an hour to a broker that they had left."""
    worst: float = 0.0
    """The greatest load of a broker as a multiple of the average, after the first half hour and
    not within ten minutes of a restart."""
    mean_worst: float = 0.0
    decision_ms: list[float] = field(default_factory=list)
    note_ms: list[float] = field(default_factory=list)
    share_seconds: list[float] = field(default_factory=list)
    """Seconds from the return of a restarted broker until it had 0.8 of the average load."""


class Day:
    """Runs a day.

    Args:
        step_seconds: time between rounds.
        restarts: brokers restarted during the day.
    """

    def __init__(
        self, brokers: int, bundles: int, step_seconds: float, restarts: int, seed: int = 0
    ) -> None:
        self.result = DayResult()
        self._rng = rng = random.Random(seed)
        self._step = step_seconds
        self._bundles = [
            Bundle("t", f"n{index // 64}", "").part(index % 64 << 26, (index % 64 + 1) << 26)
            for index in range(bundles)
        ]
        # An average broker has work for 0.4 cores in its busiest hours.
        sizes = [rng.lognormvariate(0.0, 1.5) for _ in self._bundles]
        scale = 0.4 * brokers / sum(sizes)
        self._sizes = [min(size * scale, 0.05) for size in sizes]
        self._topics = [rng.choice((1, 1, 2, 5, 10, 30)) for _ in self._bundles]
        base = rng.random()
        self._phases = [
            (base + rng.gauss(0.0, 0.1)) if rng.random() < 0.8 else rng.random()
            for _ in self._bundles
        ]
        self._names = [f"broker-{index}" for index in range(brokers)]
        self._owned: dict[str, dict[int, None]] = {name: {} for name in self._names}
        self._index = {bundle: index for index, bundle in enumerate(self._bundles)}
        for index in range(bundles):
            self._owned[rng.choice(self._names)][index] = None
        self._restarts = sorted(rng.uniform(0.1, 0.9) * _DAY_SECONDS for _ in range(restarts))
        self._left: dict[tuple[Bundle, str], float] = {}

    def _load(self, index: int, day: float) -> BundleLoad:
        wave = 0.55 + 0.45 * math.cos(2 * math.pi * (day - self._phases[index]))
        rate = self._sizes[index] * wave * self._rng.uniform(0.7, 1.3) * 50_000
        return BundleLoad(self._topics[index], 2 * self._topics[index], rate, rate * 1000 / 10)

    def run(self) -> DayResult:
        result, rng = self.result, self._rng
        balance = Balance(BalanceLimits())
        now, away, calm_from, returned_at = 0.0, "", 1_800.0, -1.0
        sums, rounds = 0.0, 0
        name_of = dict.fromkeys(self._names, 0)
        while now < _DAY_SECONDS:
            if away and returned_at <= now and away not in name_of:
                name_of[away] = 0
                calm_from = now + 600
            if self._restarts and now >= self._restarts[0]:
                del self._restarts[0]
                away, returned_at = rng.choice(self._names), now + 30.0
                del name_of[away]
                for index in self._owned[away]:
                    self._owned[rng.choice(list(name_of))][index] = None
                self._owned[away] = {}
                calm_from = now + 700
            balance.set_members(list(name_of), now)
            loads = {}
            for name in name_of:
                bundles = {
                    self._bundles[index]: self._load(index, now / _DAY_SECONDS)
                    for index in self._owned[name]
                }
                cpu = 0.05 + sum(each.work for each in bundles.values())
                loads[name] = BrokerLoad(name, cpu, True, bundles)
            began = time.process_time()
            for load in loads.values():
                balance.note(load, now)
            noted = time.process_time()
            moves = balance.decide(now)
            result.decision_ms.append((time.process_time() - noted) * 1000)
            result.note_ms.append((noted - began) * 1000 / len(loads))
            for move in moves:
                index = self._index[move.bundle]
                del self._owned[move.source][index]
                self._owned[move.destination][index] = None
                back = self._left.get((move.bundle, move.destination), -math.inf)
                result.returned += now - back < _BACK_SECONDS
                self._left[move.bundle, move.source] = now
                balance.moved(move, now, done=True)
            result.moves += len(moves)
            result.moves_by_hour[int(now // 3_600)] += len(moves)
            found = balance.loads(now)
            enough = 0.8 * sum(found.values()) / len(found)
            if away in name_of and now >= returned_at and found[away] >= enough:
                result.share_seconds.append(now - returned_at)
                away = ""
            if now >= calm_from and not away:
                ratio = max(found.values()) / (sum(found.values()) / len(found))
                result.worst = max(result.worst, ratio)
                sums, rounds = sums + ratio, rounds + 1
            now += 10.0 if away else self._step
        balance.check()
        result.mean_worst = sums / max(rounds, 1)
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--bundles", type=int, default=65_000)
    parser.add_argument("--step", type=float, default=60.0, help="seconds between rounds")
    parser.add_argument("--restarts", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    day = Day(asked.brokers, asked.bundles, asked.step, asked.restarts, asked.seed)
    began = time.process_time()
    result = day.run()
    decisions = sorted(result.decision_ms)
    print(f"moves {result.moves}, by hour {result.moves_by_hour}")
    print(f"came back within an hour: {result.returned}")
    print(f"most loaded over average: mean {result.mean_worst:.3f}, worst {result.worst:.3f}")
    print(
        f"CPU ms of a decision: median {decisions[len(decisions) // 2]:.2f}, "
        f"worst {decisions[-1]:.1f}; a report: {sum(result.note_ms) / len(result.note_ms):.2f} ms"
    )
    print(f"0.8 of the average again after: {result.share_seconds} s")
    print(f"took {time.process_time() - began:.0f} s of CPU time")


if __name__ == "__main__":
    main()
