"""Mutants of the progress of subscriptions, noticed by whole-cluster seeds: what should start a
read and does not.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Final

from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.dispatchers.reads import Reads
from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.sim.workloads.cluster import run_seed
from pulsarish.sim.workloads.safeguard import Mutant, replacing

__all__ = ["PROGRESS_MUTANTS"]


def _permits_wake_nobody(_was: object) -> object:
    def flow(subscription: Subscription, consumer: Consumer, permits: int) -> None:
        consumer.permits += permits

    return flow


def _planned_and_forgotten(was: Any) -> object:
    """Plan a read now and then, and do not carry it out."""
    calls = count(1)

    def plan(reads: Reads, *args: Any, **kwargs: Any) -> object:
        found = was(reads, *args, **kwargs)
        return None if found is not None and not next(calls) % 20 else found

    return plan


def _check(seed: int) -> None:
    anomalies = run_seed(seed, extras=()).anomalies
    assert not anomalies, "; ".join(map(str, anomalies))


PROGRESS_MUTANTS: Final = (
    Mutant(
        "permits_wake_nobody",
        "permits of a consumer arm the read of its subscription",
        (21,),
        replacing(Subscription, "flow", _permits_wake_nobody),
        _check,
        10,
    ),
    Mutant(
        "read_planned_and_forgotten",
        "a read that was planned is carried out, whatever becomes of it",
        (21,),
        replacing(Reads, "plan", _planned_and_forgotten),
        _check,
        10,
    ),
)
