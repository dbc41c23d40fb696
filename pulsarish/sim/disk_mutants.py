"""Safeguards against disks that lose what they had synced, taken away in turn; whole-cluster seeds must notice."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from pulsarish.bookie import store
from pulsarish.runtime import index_evidence
from pulsarish.sim.cluster_mutants import SMALL, judge
from pulsarish.sim.faults import Fault
from pulsarish.sim.mutants import Mutant, all_replaced, replacing
from pulsarish.sim.workload import run_seed

__all__ = ["DISK_MUTANTS"]

_BROKERS: Final = ("broker0", "broker1")


def _denied(seed: int, kind: str, amounts: Sequence[float]) -> list[Fault]:
    """The last entries of a silent writer are missing at one bookie; another forgets them and starts again, while all brokers die and the
    third bookie, which has them, says nothing."""
    rng = random.Random(f"{seed}:{kind}")
    faults: list[Fault] = []
    damaged = 0.5
    for amount in amounts:
        began = damaged + rng.uniform(0.1, 0.4)
        silent = began + rng.uniform(0.3, 0.5)
        # Longer than two checkpoints are apart: of what is forgotten neither the entries nor the LAC are in the journal any more.
        damaged = silent + rng.uniform(2.6, 3.4)
        faults += [Fault(began, "cut", broker, "bookie1", damaged - began, 0.0) for broker in _BROKERS]
        faults += [Fault(silent, "cut", app, broker, damaged - silent, 0.0) for app in ("app0", "app1") for broker in _BROKERS]
        # An operator acts when recovery has long been over.
        faults.append(Fault(damaged, kind, "bookie0", "bookie0", 2.5, amount))
        faults.append(Fault(damaged, "pause", "bookie2", "bookie2", 2.0, 0.0))
        faults += [Fault(damaged, "crash", broker, broker, 0.3, 0.0) for broker in _BROKERS]
        damaged += 2.5
    return sorted(faults, key=lambda fault: fault.at_seconds)


def _check_rotten(seed: int) -> None:
    # The log loses its end. An operator rebuilds the index after the first time.
    judge(run_seed(seed, faults=_denied(seed, "rot_index", (0.45, 0.55)), settings=SMALL, extras=()))


def _nothing_missing(_was: object) -> object:
    def missing_from(_counter: object, _trail: Sequence[object], _synced: object) -> str:
        return ""

    return missing_from


def _any_index(_was: object) -> object:
    def check_index_reaches(_index: object, _mark: object, _config: object) -> None:
        return

    return check_index_reaches


DISK_MUTANTS: Final = (
    Mutant(
        "rotten_index_believed",
        "a bookie does not start on an index that lacks what was synced: it would deny entries and fences that it had",
        (8,),
        all_replaced(replacing(index_evidence, "missing_from", _nothing_missing), replacing(store, "_check_index_reaches", _any_index)),
        _check_rotten,
        10,
    ),
)
