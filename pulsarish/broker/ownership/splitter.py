"""Splits bundles with much load. Each broker looks at its own, which it measures anyway."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.ownership.balance import BundleLoad
from pulsarish.broker.ownership.bundles import Bundle, boundaries_of
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.ownership.splits import SplitLimits, Splits
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

__all__ = ["Splitter"]

_log = get_logger("broker.splitter")

ReadLoads = Callable[[], Awaitable[Mapping[Bundle, BundleLoad]]]
SplitBundle = Callable[[Bundle], Awaitable[object]]


def _limits_of(config: BrokerConfig) -> SplitLimits:
    return SplitLimits(
        topics=config.load_balancer_namespace_bundle_max_topics,
        sessions=config.load_balancer_namespace_bundle_max_sessions,
        message_rate=config.load_balancer_namespace_bundle_max_msg_rate,
        byte_rate=config.load_balancer_namespace_bundle_max_bandwidth_mbytes * 1e6,
        bundles_max=config.load_balancer_namespace_maximum_bundles,
    )


class Splitter:
    """Splits this broker's bundles that are above a limit for a few rounds.

    Args:
        read_loads: returns the loads of the bundles that this broker owns.
        split: splits one of them in two; raises ``PulsarishError``.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        ownership: Ownership,
        namespaces: Namespaces,
        read_loads: ReadLoads,
        split: SplitBundle,
    ) -> None:
        self.splits_count = 0
        """Bundles split since the start."""
        self._world = world
        self._config = config
        self._ownership = ownership
        self._namespaces = namespaces
        self._read_loads = read_loads
        self._split = split
        self._splits = Splits(_limits_of(config))
        self._stopped = False

    def start(self) -> None:
        if self._config.load_balancer_auto_bundle_split_enabled:
            _ = run_in_background(self._world.tasks, self._world.clock, "splitter", self._run)

    def stop(self) -> None:
        self._stopped = True

    async def _run(self) -> None:
        while not self._stopped:
            await self._world.clock.sleep(self._config.load_balancer_interval_seconds)
            if self._ownership.serving and not self._ownership.draining:
                await self.round()

    async def round(self) -> None:
        """Measure, and split what is due."""
        try:
            loads = await self._read_loads()
        except PulsarishError as error:
            _log.debug("the load of the bundles is not known", reason=error)
            return
        counts: dict[tuple[str, str], int] = {}
        for bundle in loads:
            space = bundle.namespace_name
            known = self._namespaces.known(*space)
            if known is not None and space not in counts:
                counts[space] = len(boundaries_of(known)) - 1
        # A namespace that is not cached has no open topics here.
        due = self._splits.due(
            {each: load for each, load in loads.items() if each.namespace_name in counts},
            counts,
        )
        for bundle, reason in due.items():
            if self._stopped:
                return
            _log.info("bundle is split", bundle=bundle, reason=reason)
            try:
                await self._split(bundle)
                self.splits_count += 1
            except PulsarishError as error:
                _log.warning("bundle not split", bundle=bundle, reason=error)
