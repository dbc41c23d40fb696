"""Mutants of drains to a named broker, and of topics that are closed for a move."""

from __future__ import annotations

import math
from typing import Any, Final

from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.topics import drain
from pulsarish.sim.workloads.drains import check_drained, check_silent_service
from pulsarish.sim.workloads.safeguard import Mutant, replaced, replacing

__all__ = ["DRAIN_MUTANTS"]


def _checks_what_is_known(_was: object) -> object:
    async def confirm_changes(ownership: Ownership) -> None:
        ownership.check_changes()

    return confirm_changes


def _takes_all(was: Any) -> object:
    def check_takes(ownership: Ownership, bundle: Bundle) -> None:
        with replaced(Ownership, "_refusal", lambda _: lambda *_: ""):
            was(ownership, bundle)

    return check_takes


def _any_destination(_was: object) -> object:
    def check_destination(_ownership: Ownership, *_: object) -> None:
        return

    return check_destination


DRAIN_MUTANTS: Final = (
    Mutant(
        "closed_before_the_service_answers",
        "no topic is closed for a move before the metadata service has answered",
        (19,),
        replacing(Ownership, "confirm_changes", _checks_what_is_known),
        check_silent_service,
        seeds=3,
    ),
    Mutant(
        "drained_bundle_left_behind",
        "a drain tries again what did not move",
        (),
        replacing(drain, "_PAUSE_SECONDS", lambda _was: math.inf),
        check_drained,
        seeds=3,
    ),
    Mutant(
        "drain_destination_not_checked",
        "a drain to a broker that may not have one of the bundles is refused",
        (),
        replacing(Ownership, "check_destination", _any_destination),
        check_drained,
        seeds=3,
    ),
    Mutant(
        "drained_to_a_forbidden_broker",
        "a broker takes no bundle that a rule of placement forbids it",
        (),
        replacing(Ownership, "check_takes", _takes_all),
        check_drained,
        seeds=3,
    ),
)
