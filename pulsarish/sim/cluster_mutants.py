"""Mutants of the upper layers, noticed by whole-cluster seeds: acknowledgements, deduplication, trimming, the client's resending."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from pulsarish.broker.ack_receipts import AckReceipts
from pulsarish.broker.commands import Outcome
from pulsarish.broker.dedup import Deduplication
from pulsarish.client.sending import Outgoing
from pulsarish.managed_ledger import managed_ledger
from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.options import Retention
from pulsarish.model.position import LATEST, Position
from pulsarish.sim.mutants import MUTANTS, Mutant, replaced
from pulsarish.sim.workload import run_seed

__all__ = ["CLUSTER_MUTANTS"]

CLUSTER_MUTANTS: Final = (
    "receipt_before_durable",
    "deduplication_forgets",
    "trim_without_cursors",
    "resends_the_newest_first",
)


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


def _trim_without_cursors(was: Any) -> object:
    def trimmable(chain: Chain, _safe_mark: Position, retention: Retention, now_ms: int) -> int:
        count: int = was(chain, LATEST, retention, now_ms)
        return count

    return trimmable


def _resends_the_newest_first(was: Any) -> object:
    def disconnected(outgoing: Any) -> None:
        outgoing._sent.reverse()
        was(outgoing)

    return disconnected


def _check(seed: int) -> None:
    anomalies = run_seed(seed).anomalies
    assert not anomalies, "; ".join(map(str, anomalies))


def _register(name: str, removes: str, patch: Callable[[], AbstractContextManager[None]]) -> None:
    MUTANTS[name] = Mutant(name, removes, patch, _check)


_register(
    "receipt_before_durable",
    "an acknowledgement with a receipt is answered once it is durable (rule 16)",
    lambda: replaced(AckReceipts, "_flush", _receipt_before_durable),
)
_register(
    "deduplication_forgets",
    "the marks of deduplication are rebuilt from snapshot and log before the first accept (rule 15)",
    lambda: replaced(Deduplication, "observe", _deduplication_forgets),
)
_register(
    "trim_without_cursors",
    "trimming stays below every cursor's durable mark (rule 17)",
    lambda: replaced(managed_ledger, "trimmable", _trim_without_cursors),
)
_register(
    "resends_the_newest_first",
    "a client sends again what has no receipt in its order",
    lambda: replaced(Outgoing, "disconnected", _resends_the_newest_first),
)
