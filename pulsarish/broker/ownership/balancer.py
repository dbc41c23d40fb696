"""The balancer of the leader broker: asks all brokers for their load, and has owners hand bundles
over.

``balance`` decides. The leader only asks: an owner that does not own the bundle any more, or a
destination that takes none, refuses. So two leaders at a time do no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.ownership.balance import Balance, BalanceLimits, BrokerLoad, Move
from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.ownership.placement import Candidate
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

__all__ = ["Balancer", "limits_of"]

_log = get_logger("broker.balancer")

_ASKED_AT_ONCE: Final = 16
_MOVED_AT_ONCE: Final = 4
"""Bundles that one broker hands over at a time."""
_ROUNDS_FRESH: Final = 3
"""Figures older than this many rounds do not count."""

ReadLoad = Callable[[BrokerRegistration], Awaitable[BrokerLoad]]
MoveBundle = Callable[[Bundle, BrokerRegistration, BrokerRegistration], Awaitable[None]]


def limits_of(config: BrokerConfig) -> BalanceLimits:
    """Return the limits that the options set."""
    interval = config.load_balancer_interval_seconds
    return BalanceLimits(
        start=config.load_balancer_imbalance_percent / 100,
        rest_seconds=config.load_balancer_bundle_rest_seconds,
        wait_seconds=config.load_balancer_wait_seconds,
        moves_max=config.load_balancer_moves_max,
        moves_of_broker_max=max(1, config.load_balancer_moves_max // 4),
        age_max_seconds=_ROUNDS_FRESH * interval,
    )


class Balancer:
    """Balances while this broker is the leader. Runs on every broker.

    Args:
        read_load: asks a broker for its load; raises ``PulsarishError``.
        move: has a broker hand a bundle over to another one; raises ``PulsarishError``.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        ownership: Ownership,
        read_load: ReadLoad,
        move: MoveBundle,
    ) -> None:
        self.moves_count = 0
        """Bundles moved since the start."""
        self.failures_count = 0
        """Moves that were refused or not answered."""
        self.misplaced_count = 0
        """Bundles that the last round found on a wrong broker by the rules of placement."""
        self._world = world
        self._config = config
        self._ownership = ownership
        self._read_load = read_load
        self._move = move
        self._balance: Balance | None = None
        self._stopped = False

    def start(self) -> None:
        _ = run_in_background(self._world.tasks, self._world.clock, "balancer", self._run)

    def stop(self) -> None:
        self._stopped = True

    @property
    def _leading(self) -> bool:
        return (
            self._config.load_balancer_enabled
            and not self._stopped
            and self._ownership.serving
            and self._ownership.leader.is_leader
        )

    async def _run(self) -> None:
        while not self._stopped:
            await self._world.clock.sleep(self._config.load_balancer_interval_seconds)
            if self._leading:
                await self.round()
            else:
                self._balance, self.misplaced_count = None, 0  # what is known grows old

    async def round(self) -> None:
        """Ask for loads, decide, and have bundles moved. Returns when all moves have ended."""
        if self._balance is None:
            self._balance = Balance(limits_of(self._config))
        balance, clock = self._balance, self._world.clock
        balance.limit(limits_of(self._config))
        alive = dict(sorted(self._ownership.registry.alive.items()))
        balance.set_members(alive, clock.monotonic())
        if len(alive) < 2:
            return
        loads = await self._loads(list(alive.values()))
        for load in loads:
            balance.note(load, clock.monotonic())
        moves = self._decide(balance, loads, alive)
        if not moves:
            return
        _log.info("bundles are moved", moves=len(moves))
        by_source: dict[str, list[Move]] = {}
        for move in moves:
            by_source.setdefault(move.source, []).append(move)
        _ = await asyncio.gather(
            *(
                self._move_some(balance, some[first::_MOVED_AT_ONCE], alive)
                for some in by_source.values()
                for first in range(min(_MOVED_AT_ONCE, len(some)))
            )
        )

    def _decide(
        self, balance: Balance, loads: list[BrokerLoad], alive: Mapping[str, BrokerRegistration]
    ) -> list[Move]:
        """Return the moves of this round. Those that rules of placement ask for go first."""
        now, rules = self._world.clock.monotonic(), self._ownership.placement.current
        if not rules:
            self.misplaced_count = 0
            return balance.decide(now)
        reported = {load.broker: load for load in loads if load.broker in alive}
        candidates = [
            Candidate(alive[name], len(load.bundles), round(load.cpu * 100))
            for name, load in reported.items()
            if load.takes
        ] + [
            Candidate(broker, answers=False)
            for name, broker in alive.items()
            if name not in reported
        ]
        limits = limits_of(self._config)
        owned = {name: load.bundles for name, load in reported.items()}
        moves = rules.moves(
            owned,
            candidates,
            moves_max=limits.moves_max,
            moves_of_broker_max=limits.moves_of_broker_max,
        )
        self.misplaced_count = len(moves)
        if not moves:
            return balance.decide(now, lambda bundle: rules.pool(bundle, candidates))
        return [] if balance.waits(now) else moves

    async def _loads(self, brokers: list[BrokerRegistration]) -> list[BrokerLoad]:
        found: list[BrokerLoad] = []
        for start in range(0, len(brokers), _ASKED_AT_ONCE):
            some = await asyncio.gather(
                *(self._load(broker) for broker in brokers[start : start + _ASKED_AT_ONCE])
            )
            found += [load for load in some if load is not None]
        return found

    async def _load(self, broker: BrokerRegistration) -> BrokerLoad | None:
        try:
            return await self._read_load(broker)
        except PulsarishError as error:
            _log.debug("the load of a broker is not known", broker=broker.broker_id, reason=error)
            return None

    async def _move_some(
        self, balance: Balance, moves: list[Move], alive: dict[str, BrokerRegistration]
    ) -> None:
        for move in moves:
            if not self._leading:
                return
            source, destination = alive[move.source], alive[move.destination]
            done = False
            try:
                await self._move(move.bundle, source, destination)
                done = True
                self.moves_count += 1
            except PulsarishError as error:
                self.failures_count += 1
                _log.warning(
                    "bundle not moved",
                    bundle=move.bundle,
                    source=source.broker_id,
                    destination=destination.broker_id,
                    reason=error,
                )
            balance.moved(move, self._world.clock.monotonic(), done=done)
