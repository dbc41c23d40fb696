"""Mutants of what keeps the producers of one name apart."""

from __future__ import annotations

from typing import Final

from pulsarish.broker.clients.commands import OpenProducer
from pulsarish.broker.clients.producer import Producer
from pulsarish.broker.publishing import producers
from pulsarish.broker.publishing.dedup import Deduplication
from pulsarish.sim.workloads.namesakes import run_namesakes
from pulsarish.sim.workloads.safeguard import Mutant, Patch, replacing

__all__ = ["NAMESAKE_MUTANTS"]


def _by_its_epoch(_was: object) -> object:
    def is_successor(command: OpenProducer, _outlet: object, older: Producer) -> bool:
        return command.epoch > older.epoch

    return is_successor


def _unnoticed(_was: object) -> object:
    def was_another(_marks: Deduplication, _name: str, _instance: int | None) -> bool:
        return False

    return was_another


def _mutant(name: str, removes: str, patch: Patch, first: int) -> Mutant:
    return Mutant(name, removes, (15,), patch, run_namesakes, 40, first)


NAMESAKE_MUTANTS: Final = (
    _mutant(
        "stranger_replaces",
        "a producer that reconnects replaces no other client's producer of its name",
        replacing(producers, "_is_successor", _by_its_epoch),
        1,
    ),
    _mutant(
        "namesake_not_noticed",
        "a producer that comes back does not send again what another one's sequence ids hide",
        replacing(Deduplication, "was_another", _unnoticed),
        5,
    ),
)
