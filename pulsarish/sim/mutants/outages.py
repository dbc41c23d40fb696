"""Mutants of outages: of the metadata service, and of the network between brokers."""

from __future__ import annotations

import math
from typing import Any, Final

from pulsarish.broker.ownership.outage import Outage
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.ownership.suspicion import Peers
from pulsarish.sim.workloads.outage import check_cut_off, check_minority, check_outages
from pulsarish.sim.workloads.safeguard import Mutant, replacing

__all__ = ["OUTAGE_MUTANTS"]


def _few_are_enough(was: Any) -> object:
    def why_end(outage: Outage, others: Any, now: float, *, begins: bool) -> str:
        why: str = was(outage, others, now, begins=begins)
        return "" if "not most of them" in why else why

    return why_end


def _holds_for_good(was: Any) -> object:
    def init(outage: Outage, _limit_seconds: float) -> None:
        was(outage, math.inf)

    return init


def _any_instance(_was: object) -> object:
    def is_away_for(ownership: Ownership, _instance_id: str) -> bool:
        answered_at = ownership._records.answered_at
        silent_seconds = ownership._world.clock.monotonic() - answered_at
        return silent_seconds * 2000 > ownership._config.metadata_session_timeout_ms

    return is_away_for


def _silence_is_enough(_was: object) -> object:
    def is_reached(_peers: Peers, *_: object) -> bool:
        return True

    return is_reached


OUTAGE_MUTANTS: Final = (
    Mutant(
        "cut_off_broker_evicts",
        "a broker evicts a silent one only if most of the others have answered meanwhile",
        (),
        replacing(Peers, "_is_reached", _silence_is_enough),
        check_cut_off,
        seeds=3,
    ),
    Mutant(
        "few_brokers_go_on",
        "a broker without metadata goes on only while most brokers are there and say that they "
        "are without them, too",
        (19,),
        replacing(Outage, "why_end", _few_are_enough),
        check_minority,
        seeds=3,
    ),
    Mutant(
        "metadata_away_for_good",
        "that a broker is without metadata holds no longer than a session from when it was asked",
        (19,),
        replacing(Outage, "__init__", _holds_for_good),
        check_outages,
        seeds=3,
    ),
    Mutant(
        "metadata_away_for_any_instance",
        "a broker says that the metadata are away only to one that was registered when it last "
        "reached them",
        (19,),
        replacing(Ownership, "is_away_for", _any_instance),
        check_outages,
        seeds=3,
    ),
)
