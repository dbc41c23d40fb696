"""Mutants of the safeguards against disks that lose synced data.

Whole-cluster seeds must notice.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from pulsarish.bookie import replay, store
from pulsarish.runtime.rocks import index_evidence
from pulsarish.sim.mutants.cluster import SMALL, judge
from pulsarish.sim.workloads.cluster import run_seed
from pulsarish.sim.workloads.safeguard import Mutant, all_replaced, replacing
from pulsarish.sim.world.disk_faults import OLDER_SECONDS
from pulsarish.sim.world.faults import Fault

__all__ = ["DISK_MUTANTS"]

_BROKERS: Final = ("broker0", "broker1")


def _denied(
    seed: int,
    kind: str,
    amounts: Sequence[float],
    *,
    silence: tuple[float, float],
    lag: float = 0.0,
) -> list[Fault]:
    """Return faults after which one bookie has lost the last entries of a silent writer.

    Another bookie forgets them and starts again, while all brokers die. The third bookie has them
    and does not answer. The fault begins ``lag * (0.4 + amount)`` seconds before its effect.
    """
    rng = random.Random(f"{seed}:{kind}")
    faults: list[Fault] = []
    damaged = 0.5
    for amount in amounts:
        began = damaged + rng.uniform(0.1, 0.4)
        silent = began + rng.uniform(0.3, 0.5)
        damaged = silent + rng.uniform(*silence)
        faults += [
            Fault(began, "cut", broker, "bookie1", damaged - began, 0.0) for broker in _BROKERS
        ]
        faults += [
            Fault(silent, "cut", app, broker, damaged - silent, 0.0)
            for app in ("app0", "app1")
            for broker in _BROKERS
        ]
        # An operator acts long after the recovery.
        before = lag * (0.4 + amount)
        faults.append(Fault(damaged - before, kind, "bookie0", "bookie0", 2.5, amount))
        faults.append(Fault(damaged, "pause", "bookie2", "bookie2", 2.0, 0.0))
        faults += [Fault(damaged, "crash", broker, broker, 0.3, 0.0) for broker in _BROKERS]
        damaged += 2.5
    return sorted(faults, key=lambda fault: fault.at_seconds)


def _check_rotten(seed: int) -> None:
    # The log loses its end. After the first time an operator rebuilds the index. The silence is
    # longer than the time between two checkpoints, so neither the last entries nor the LAC are in
    # the journal any more.
    judge(
        run_seed(
            seed,
            faults=_denied(seed, "rot_index", (0.45, 0.55), silence=(2.6, 3.4)),
            settings=SMALL,
            extras=(),
        )
    )


def _nothing_missing(_was: object) -> object:
    def missing_from(_counter: object, _trail: Sequence[object], _synced: object) -> str:
        return ""

    return missing_from


def _any_index(_was: object) -> object:
    def check_index_reaches(_index: object, _mark: object, _config: object) -> None:
        return

    return check_index_reaches


def _check_older_disk(seed: int) -> None:
    # After the first time an operator gives up what is missing.
    # The silence is longer than the metadata wait for the position of the journal.
    judge(
        run_seed(
            seed,
            faults=_denied(seed, "older_disk", (0.45, 0.8), silence=(1.2, 1.6), lag=OLDER_SECONDS),
            settings=SMALL,
            extras=(),
        )
    )


def _any_journal(_was: object) -> object:
    def check_reaches(_directory: str, _end: int, _durable_below: int) -> None:
        return

    return check_reaches


DISK_MUTANTS: Final = (
    Mutant(
        "rotten_index_believed",
        "a bookie does not start on an index that lacks what was synced: it would deny entries "
        "and fences that it had",
        (8,),
        all_replaced(
            replacing(index_evidence, "missing_from", _nothing_missing),
            replacing(store, "_check_index_reaches", _any_index),
        ),
        _check_rotten,
        10,
    ),
    Mutant(
        "older_disk_believed",
        "a bookie does not start on a disk that lacks what it had told the metadata to be "
        "durable: it would deny entries and fences",
        (7,),
        all_replaced(
            replacing(replay, "check_reaches", _any_journal),
            replacing(store, "check_reaches", _any_journal),
        ),
        _check_older_disk,
        10,
    ),
)
