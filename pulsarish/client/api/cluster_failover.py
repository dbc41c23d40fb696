"""Going to another cluster while the primary one cannot be reached: the shell of
``client/connection/failover_core.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pulsarish.client.connection.failover_core import FailoverCore
from pulsarish.client.connection.service_finder import ServiceFinder
from pulsarish.client.connection.service_link import Connect, Release
from pulsarish.client.messages.options import ClientOptions
from pulsarish.client.service_info import AutoClusterFailover, ServiceInfo
from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import CallFailed, ClientConnections, Clock, StreamBroken, Tasks
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["ClusterFailover"]

_log = get_logger("client")

_PROBE_SECONDS_MIN: Final = 1.0
_PROBE_SECONDS_MAX: Final = 5.0


class ClusterFailover:
    """Checks clusters, and calls ``use`` with the one to go to.

    A cluster is reached when one of its hosts answers a broker's ping, or the question for the own
    protocol, with the credentials of the cluster.
    """

    def __init__(
        self,
        plan: AutoClusterFailover,
        options_of: Callable[[ServiceInfo], ClientOptions],
        use: Callable[[ServiceInfo], None],
        *,
        connect: Connect,
        release: Release,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._infos = [plan.primary, *plan.secondary]
        self._interval_seconds = plan.check_interval_ms / 1_000
        self._core = FailoverCore(
            len(self._infos),
            failures_max=plan.failover_threshold,
            successes_min=plan.switch_back_threshold,
        )
        self._options_of = options_of
        self._use = use
        self._connect = connect
        self._release = release
        self._clock = clock
        self._tasks = tasks
        self._stopped = asyncio.Event()
        self._connections: dict[int, ClientConnections] = {}

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> None:
        """Check until ``stop``."""
        try:
            while not await self._pause():
                await self._check()
        finally:
            for each in self._connections.values():
                await self._release(each)

    async def _pause(self) -> bool:
        """Wait until the next check. Return whether this was stopped."""
        try:
            async with self._clock.timeout(self._interval_seconds):
                await self._stopped.wait()
        except TimeoutError:
            return False
        return True

    async def _check(self) -> None:
        core = self._core
        reached = {each: await self._reaches(each) for each in core.to_check}
        for each in core.on_checked(
            is_reached=reached[core.current], is_primary_reached=reached[0]
        ):
            if self._stopped.is_set():
                return
            if reached.get(each) or await self._reaches(each):
                _log.warning(
                    "client goes to another cluster",
                    before=self._infos[core.current].service_url,
                    now=self._infos[each].service_url,
                )
                core.move(each)
                self._use(self._infos[each])
                return

    async def _reaches(self, cluster: int) -> bool:
        try:
            chosen = self._options_of(self._infos[cluster])
            if cluster not in self._connections:
                self._connections[cluster] = self._connect(chosen.security)
            connections = self._connections[cluster]
            seconds = min(max(self._interval_seconds, _PROBE_SECONDS_MIN), _PROBE_SECONDS_MAX)
            if not chosen.url.is_native:
                finder = ServiceFinder(
                    chosen.url,
                    connections,
                    self._clock,
                    self._tasks,
                    listener=chosen.listener_name,
                    timeout_seconds=seconds,
                )
                await finder.find()
                return True
            return await self._pings(chosen, connections, seconds)
        except PulsarishError as error:
            _log.debug("cluster not reached", url=self._infos[cluster].service_url, reason=error)
            return False

    async def _pings(
        self, chosen: ClientOptions, connections: ClientConnections, seconds: float
    ) -> bool:
        request = pb.PingRequest().SerializeToString()
        for address in chosen.url.addresses:
            try:
                await connections.call(address, "broker.ping", request, timeout_seconds=seconds)
            except (StreamBroken, TimeoutError, CallFailed) as error:
                _log.debug("host not reached", address=address, reason=error)
            else:
                return True
        return False
