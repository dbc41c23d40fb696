"""Mutants of backlog quotas that evict: what is acknowledged for subscriptions."""

from __future__ import annotations

import random
from typing import Any, Final

from pulsarish.broker.topics import policy_enforcement
from pulsarish.broker.topics.policy_enforcement import check_quota
from pulsarish.managed_ledger.chain import Chain
from pulsarish.metadata.records import TopicLedger
from pulsarish.model.policies import BacklogQuota
from pulsarish.model.position import Position
from pulsarish.sim.workloads.safeguard import Mutant, replacing
from pulsarish.sim.world.world import Simulation

__all__ = ["QUOTA_MUTANTS"]

_ROUNDS: Final = 20
_ENTRY_BYTES: Final = 100


class _Subscription:
    """A subscription and its cursor."""

    durable = True
    closed = None

    def __init__(self, name: str, mark_delete: Position) -> None:
        self.name = name
        self.cursor = self
        self.mark_delete = mark_delete

    async def skip_through(self, last: Position) -> None:
        self.mark_delete = max(self.mark_delete, last)


class _Topic:
    """What the enforcement of quotas uses of a topic. All entries have one size."""

    name = "evicted"
    quota_error = None

    def __init__(self, rng: random.Random, limit_bytes: int) -> None:
        self._chain = Chain(
            TopicLedger(3 * number, entries, entries * _ENTRY_BYTES, closed_ms=1)
            for number in range(rng.randint(1, 6))
            for entries in (rng.randint(1, 40),)
        )
        self._limit_bytes = limit_bytes
        self.topic_limits = self.policies = self.log = self
        self.bytes_above = self._chain.bytes_above
        self.last_before_bytes = self._chain.last_before_bytes
        self.entries = self._chain.ordinal(self._chain.last_position())
        self.subscriptions = {
            name: _Subscription(name, self._after(rng.randint(0, self.entries)))
            for name in ("a", "b", "c")
        }

    def quotas(self) -> dict[str, BacklogQuota]:
        size = BacklogQuota("consumer_backlog_eviction", limit_size_bytes=self._limit_bytes)
        return {"destination_storage": size, "message_age": BacklogQuota("producer_exception")}

    def backlogs(self) -> dict[str, int]:
        """Return how many bytes each subscription still has to consume."""
        return {name: self.bytes_above(each.mark_delete) for name, each in self.subs()}

    def subs(self) -> list[tuple[str, _Subscription]]:
        return list(self.subscriptions.items())

    def _after(self, entries: int) -> Position:
        """Return the mark-delete position of one that has acknowledged the first entries."""
        return self._chain.position_at(entries - 1) if entries else Position(-1, -1)


def _check_evicted(seed: int) -> None:
    """Enforce a quota on random backlogs. What is above it comes down to nine tenths, no further,
    and nothing else is acknowledged.
    """
    rng = random.Random(f"{seed}:evicted")

    async def scenario() -> None:
        for _ in range(_ROUNDS):
            limit_bytes = rng.randint(1, 100) * _ENTRY_BYTES
            topic: Any = _Topic(rng, limit_bytes)
            before = topic.backlogs()
            await check_quota(topic, 0)
            kept_bytes = limit_bytes * 9 // 10
            is_above = max(before.values()) > limit_bytes
            for name, left in topic.backlogs().items():
                what = f"of a backlog of {before[name]} bytes {left} are left, limit {limit_bytes}"
                if not is_above or before[name] <= kept_bytes:
                    assert left == before[name], what
                else:
                    assert kept_bytes - _ENTRY_BYTES < left <= kept_bytes, what

    Simulation(seed).run(scenario, 10.0)


QUOTA_MUTANTS: Final = (
    Mutant(
        "whole_backlog_evicted",
        "a quota that evicts acknowledges the oldest messages, down to nine tenths of its limit",
        (),
        replacing(policy_enforcement, "_EVICTED_TO", lambda _was: 0.0),
        _check_evicted,
        seeds=2,
    ),
    Mutant(
        "evicted_at_every_look",
        "a backlog is evicted to well below the limit, so that the next message evicts none",
        (),
        replacing(policy_enforcement, "_EVICTED_TO", lambda _was: 1.0),
        _check_evicted,
        seeds=2,
    ),
)
