"""Pings of the other brokers, and the eviction of those that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from google.protobuf.message import DecodeError

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.ownership.outage import Outage
from pulsarish.broker.ownership.registry import BrokerRegistry
from pulsarish.broker.ownership.suspicion import Judge, Peers, SuspicionLimits
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import MetadataUnavailable, ServiceNotReady
from pulsarish.runtime.containment import Critical
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import (
    CallFailed,
    SessionState,
    StreamBroken,
    Unreachable,
    World,
)
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["OwnerSilent", "PeerPings"]

_log = get_logger("broker.ownership")


class OwnerSilent(ServiceNotReady):
    """The owner does not answer and may not be evicted yet.

    In a moment it answers, or is evicted.
    """


class PeerPings:
    """Pings the other brokers, and evicts those that are gone.

    Args:
        outage: learns which brokers do not reach the metadata service.
        serving: returns whether this broker is registered and may serve what it owns.
        began: called when a round of pings begins.
        take_lag_max: returns the worst lag of its event loop in seconds since the last call.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        records: Records,
        registry: BrokerRegistry,
        outage: Outage,
        *,
        serving: Callable[[], bool],
        began: Callable[[], None],
        take_lag_max: Callable[[], float],
    ) -> None:
        self.peers = Peers(
            SuspicionLimits(
                config.broker_silence_before_eviction_ms / 1000,
                config.broker_eviction_interval_ms / 1000,
                config.eviction_loop_lag_max_ms / 1000,
            )
        )
        """What the other brokers answered."""
        self._world = world
        self._config = config
        self._records = records
        self._registry = registry
        self._outage = outage
        self._serving = serving
        self._began = began
        self._take_lag_max = take_lag_max
        self._lag_worst = self._lag_before = 0.0  # in this round of pings, and in the one before
        self._pinging: dict[str, asyncio.Future[bool]] = {}
        self._stopped = False

    def start(self) -> None:
        _ = self._world.tasks.spawn(
            self._ping_all(), name="broker pings", critical=Critical.OWNERSHIP
        )

    def stop(self) -> None:
        self._stopped = True

    async def reachable(self, other: BrokerRegistration) -> bool:
        """Return whether another owner answers.

        If it does not and the rules permit it, evict it and return ``False``.

        Raises ``OwnerSilent`` while it may not be evicted yet.
        """
        if self.peers.fresh(
            other.instance_id,
            self._world.clock.monotonic(),
            self._config.lookup_ping_max_age_ms / 1000,
        ):
            return True
        if await self._ping(other):
            return True
        if await self._evict_if_gone(other):
            return False
        silent = self.peers.silent_seconds(other.instance_id, self._world.clock.monotonic())
        raise OwnerSilent(
            f"the owner {other.broker_id} has not answered for {silent:.1f} s; try again"
        )

    async def _ping(self, other: BrokerRegistration) -> bool:
        """Return whether it answers.

        Concurrent callers share one ping, so that many lookups do not cause many pings.
        """
        ping = self._pinging.get(other.instance_id)
        if ping is None:
            ping = self._pinging[other.instance_id] = asyncio.get_running_loop().create_future()
            _ = self._world.tasks.spawn(
                self._ping_for_all(other, ping), name=f"ping {other.broker_id}"
            )
        return await asyncio.shield(ping)

    async def _ping_for_all(self, other: BrokerRegistration, ping: asyncio.Future[bool]) -> None:
        answered = False
        try:
            answered = await self._ping_once(other)
        finally:
            # Whatever it raises: lookups wait for it, and an answer that cannot be decoded is not
            # an answer.
            del self._pinging[other.instance_id]
            if not ping.done():
                ping.set_result(answered)

    async def _ping_once(self, other: BrokerRegistration) -> bool:
        request = pb.PingRequest(
            broker_id=other.broker_id,
            instance_id=other.instance_id,
            admin_key=other.admin_key,
            from_instance=self._registry.instance_id,
        ).SerializeToString()
        clock = self._world.clock
        asked_at = clock.monotonic()
        try:
            data = await self._world.connections.call(
                other.address,
                "broker.ping",
                request,
                timeout_seconds=self._config.broker_ping_timeout_ms / 1000,
            )
        except Unreachable:
            self.peers.refused(other.instance_id, clock.monotonic())
            self._outage.refused(other.instance_id)
            return False
        except (StreamBroken, TimeoutError, CallFailed) as error:
            _log.debug("ping failed", broker=other.broker_id, reason=error)
            return False
        try:
            answer = pb.PingResponse.FromString(data)
        except DecodeError as error:
            _log.warning(
                "the process at a broker's address is not a broker",
                broker=other.broker_id,
                address=other.address,
                reason=error,
            )
            return False
        self._outage.answered(other.instance_id, asked_at, is_away=answer.metadata_away)
        if answer.instance_id != other.instance_id:
            # Another instance has this address: the registered one is gone.
            self.peers.replaced(other.instance_id, clock.monotonic())
            return False
        self.peers.answered(
            other.instance_id,
            clock.monotonic(),
            answer.bundles,
            # One without metadata cannot acquire anything.
            takes=answer.serving and not answer.draining and not answer.metadata_away,
            usage_percent=answer.usage_percent,
            group_bundles=answer.group_bundles,
        )
        return True

    async def _evict_if_gone(self, other: BrokerRegistration) -> bool:
        now = self._world.clock.monotonic()
        self._lag_worst = max(self._lag_worst, self._take_lag_max())
        judge_state = Judge(
            max(self._lag_before, self._lag_worst),
            self._records.state is SessionState.CONNECTED and self._serving(),
        )
        if not self.peers.may_evict(other.instance_id, now, judge_state):
            return False
        silent_ms = round(self.peers.silent_seconds(other.instance_id, now) * 1000)
        self.peers.evicted(other.instance_id, now)
        if await self._registry.evict(other.instance_id):
            _log.warning(
                "broker evicted",
                broker=other.broker_id,
                instance=other.instance_id,
                silent_ms=silent_ms,
            )
        return True

    async def _ping_all(self) -> None:
        while not self._stopped:
            others = self._registry.others()
            now = self._world.clock.monotonic()
            for other in others:
                self.peers.appeared(other.instance_id, now)
            known = {other.instance_id for other in others}
            for instance_id in self.peers.names():
                if instance_id not in known:
                    self.peers.disappeared(instance_id)
            self._outage.keep(known)
            self._began()
            if not others:
                # Without another broker there is none to suspect, so nothing is timed.
                await self._registry.wait_for_change()
                continue
            self._lag_before, self._lag_worst = max(self._lag_worst, self._take_lag_max()), 0.0
            for other in others:
                _ = self._world.tasks.spawn(self._look_after(other), name=f"ping {other.broker_id}")
            await self._world.clock.sleep(self._config.broker_ping_interval_ms / 1000)

    async def _look_after(self, other: BrokerRegistration) -> None:
        if await self._ping(other):
            return
        try:
            await self._evict_if_gone(other)
        except MetadataUnavailable as error:
            _log.warning("could not evict", instance=other.instance_id, reason=error)
