"""When a broker may declare another one gone: the core.

A refused or reset connection says that the process is not there. Another instance at its address
says that it was replaced. Both lead to eviction at once. But a load balancer or a packet filter in
front of a live broker refuses connections too, and that broker would register again and again. So a
broker is evicted for a refused connection once per eviction interval, and otherwise only for
silence.

Silence may be this broker's own fault. So it needs time and a healthy judge: the event loop is not
late, the session is connected, and most of the other brokers have answered in the meantime. It also
happens rarely. A broker that knows only one other broker cannot tell whose fault it is. A wrong
verdict costs a move of topics, never data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

__all__ = ["Judge", "Peers", "SuspicionLimits"]


class SuspicionLimits(msgspec.Struct, frozen=True):
    """Limits for evictions.

    ``silence_seconds``: at least three times the timeout of a ping, and as many times the interval
    of pings (the broker's configuration holds it).
    """

    silence_seconds: float
    eviction_interval_seconds: float
    loop_lag_max_seconds: float


class Judge(msgspec.Struct, frozen=True):
    """The state of the broker that suspects another one."""

    loop_lag_seconds: float
    session_connected: bool


def _broker_of(instance_id: str) -> str:
    """Return the name that a broker keeps from instance to instance."""
    return instance_id.rpartition("~")[0] or instance_id


class _Peer(msgspec.Struct):
    answered_at: float
    heard_at: float = -math.inf
    refused: bool = False
    replaced: bool = False
    bundles: int = 0
    takes: bool = True
    usage_percent: int = 0
    group_bundles: dict[str, int] = msgspec.field(default_factory=dict)


class Peers:
    """What this broker knows of the other brokers from pings.

    Times are seconds of its own clock.
    """

    def __init__(self, limits: SuspicionLimits) -> None:
        self._limits = limits
        self._peers: dict[str, _Peer] = {}
        self._evicted_at: float | None = None
        # by broker: when it was evicted for a refused connection
        self._refused_at: dict[str, float] = {}

    def appeared(self, instance_id: str, now: float) -> None:
        """Note a registration.

        The broker has as long to answer as if it had just answered, but does not count as heard.
        """
        self._peers.setdefault(instance_id, _Peer(now))

    def disappeared(self, instance_id: str) -> None:
        self._peers.pop(instance_id, None)

    def names(self) -> list[str]:
        return list(self._peers)

    def answered(
        self,
        instance_id: str,
        now: float,
        bundles: int,
        *,
        takes: bool = True,
        usage_percent: int = 0,
        group_bundles: Mapping[str, int] | None = None,
    ) -> None:
        """Note that a broker has answered a ping: how many bundles it owns, whether it takes more,
        its CPU time, and how many of its bundles each anti-affinity group has.
        """
        peer = self._peers.setdefault(instance_id, _Peer(now))
        peer.answered_at, peer.heard_at, peer.refused = now, now, False
        peer.bundles, peer.takes = bundles, takes
        peer.usage_percent, peer.group_bundles = usage_percent, dict(group_bundles or {})

    def refused(self, instance_id: str, now: float) -> None:
        """Note that a broker has refused a connection."""
        self._peers.setdefault(instance_id, _Peer(now)).refused = True

    def replaced(self, instance_id: str, now: float) -> None:
        """Note that another instance answers at its address."""
        self._peers.setdefault(instance_id, _Peer(now)).replaced = True

    def fresh(self, instance_id: str, now: float, seconds: float) -> bool:
        """Return whether it answered, or registered, within the last ``seconds`` and has not
        refused a connection since.
        """
        peer = self._peers.get(instance_id)
        return (
            peer is not None
            and not peer.refused
            and not peer.replaced
            and now - peer.answered_at <= seconds
        )

    def silent_seconds(self, instance_id: str, now: float) -> float:
        """Return the time since a broker's last answer; 0 for an unknown broker."""
        peer = self._peers.get(instance_id)
        return 0.0 if peer is None else now - peer.answered_at

    def bundles(self, instance_id: str) -> int:
        peer = self._peers.get(instance_id)
        return 0 if peer is None else peer.bundles

    def usage_percent(self, instance_id: str) -> int:
        peer = self._peers.get(instance_id)
        return 0 if peer is None else peer.usage_percent

    def group_bundles(self, instance_id: str, group: str) -> int:
        """Return how many bundles of an anti-affinity group a broker owns."""
        peer = self._peers.get(instance_id)
        return 0 if peer is None else peer.group_bundles.get(group, 0)

    def expects_group(self, instance_id: str, group: str) -> None:
        """Count a bundle of a group that a broker is about to take, until its next answer."""
        peer = self._peers.get(instance_id)
        if peer is not None:
            peer.group_bundles[group] = peer.group_bundles.get(group, 0) + 1

    def takes(self, instance_id: str) -> bool:
        """Return whether a broker takes bundles; one that has not answered yet does."""
        peer = self._peers.get(instance_id)
        return peer is None or peer.takes

    def may_evict(self, instance_id: str, now: float, judge: Judge) -> bool:
        """Return whether to evict this broker now."""
        peer = self._peers.get(instance_id)
        if peer is None or not judge.session_connected:
            return False
        if peer.replaced or (peer.refused and not self._was_refused_lately(instance_id, now)):
            return True
        if (
            now - peer.answered_at < self._limits.silence_seconds
            or judge.loop_lag_seconds >= self._limits.loop_lag_max_seconds
        ):
            return False
        if (
            self._evicted_at is not None
            and now - self._evicted_at < self._limits.eviction_interval_seconds
        ):
            return False
        others = [other for name, other in self._peers.items() if name != instance_id]
        return (
            sum(self._is_reached(other, peer, now) for other in others) * 2 > len(others)
            or not others
        )

    def _was_refused_lately(self, instance_id: str, now: float) -> bool:
        interval = self._limits.eviction_interval_seconds
        self._refused_at = {
            broker: at for broker, at in self._refused_at.items() if now - at < interval
        }
        return _broker_of(instance_id) in self._refused_at

    def _is_reached(self, other: _Peer, silent: _Peer, now: float) -> bool:
        """Return whether another broker answers while this one is silent.

        If both answered last at about the same time, this shows nothing: when this broker is cut
        off, all others become silent one after the other, within moments.
        """
        silence = self._limits.silence_seconds
        return (
            not other.refused
            and now - other.heard_at < silence
            and other.heard_at - silent.answered_at >= silence / 2
        )

    def evicted(self, instance_id: str, now: float) -> None:
        """Forget a broker that was evicted, and note when and why."""
        peer = self._peers.pop(instance_id, None)
        if peer is not None and peer.replaced:
            return
        if peer is not None and peer.refused and not self._was_refused_lately(instance_id, now):
            self._refused_at[_broker_of(instance_id)] = now
        else:
            self._evicted_at = now
