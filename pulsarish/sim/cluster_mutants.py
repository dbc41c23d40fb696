"""Mutants of the upper layers, noticed by whole-cluster seeds: acknowledgements, deduplication, trimming, the client's resending."""

from __future__ import annotations

from typing import Any, Final

from pulsarish.broker.ack_receipts import AckReceipts
from pulsarish.broker.commands import Outcome
from pulsarish.broker.dedup import Deduplication
from pulsarish.client.sending import Outgoing
from pulsarish.sim.mutants import Mutant, Patch, replacing
from pulsarish.sim.workload import run_seed

__all__ = ["CLUSTER_MUTANTS"]


def _receipt_before_durable(_was: object) -> object:
    async def flush(receipts: AckReceipts) -> None:
        while receipts._waiting:
            answered, receipts._waiting = receipts._waiting, []
            for consumer, request_id in answered:
                consumer.outlet.put(Outcome(request_id, None))
        receipts._flushing = False

    return flush


def _deduplication_forgets(_was: object) -> object:
    def observe(_marks: Deduplication, _name: str, _mark: int, _now_ms: int) -> None:
        return

    return observe


def _resends_the_newest_first(was: Any) -> object:
    def disconnected(outgoing: Any) -> None:
        outgoing._sent.reverse()
        was(outgoing)

    return disconnected


def _check(seed: int) -> None:
    anomalies = run_seed(seed).anomalies
    assert not anomalies, "; ".join(map(str, anomalies))


def _mutant(name: str, removes: str, rules: tuple[int, ...], patch: Patch, seeds: int = 15) -> Mutant:
    return Mutant(name, removes, rules, patch, _check, seeds)


CLUSTER_MUTANTS: Final = (
    _mutant(
        "receipt_before_durable",
        "an acknowledgement with a receipt is answered once it is durable",
        (16,),
        replacing(AckReceipts, "_flush", _receipt_before_durable),
    ),
    _mutant(
        "deduplication_forgets",
        "the marks of deduplication are rebuilt from snapshot and log before the first accept",
        (15,),
        replacing(Deduplication, "observe", _deduplication_forgets),
    ),
    _mutant(
        "resends_the_newest_first",
        "a client sends again what has no receipt in its order",
        (),
        replacing(Outgoing, "disconnected", _resends_the_newest_first),
    ),
)
