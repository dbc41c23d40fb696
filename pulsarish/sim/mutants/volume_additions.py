"""Mutants of the addition of volumes. ``workloads/volume_additions.py`` must notice."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from pulsarish.bookie.volume_addition import VolumeAdditions
from pulsarish.metadata.records import Cookie, VolumeRecord
from pulsarish.sim.workloads.safeguard import Mutant, all_replaced, replacing
from pulsarish.sim.workloads.volume_additions import run_volume_additions

__all__ = ["VOLUME_ADDITION_MUTANTS"]


def _kept_in_memory(_was: Any) -> object:
    async def note(additions: VolumeAdditions, name: str, record: VolumeRecord) -> Cookie:
        cookie = additions._cookie  # as the start had it
        return msgspec.structs.replace(cookie, volumes={**cookie.volumes, name: record})

    return note


def _not_noted(_was: Any) -> object:
    async def note(_additions: VolumeAdditions, _cookie: Cookie) -> None:
        pass

    return note


def _check(seed: int) -> None:
    run_volume_additions(seed)


VOLUME_ADDITION_MUTANTS: Final = (
    Mutant(
        "added_volume_known_to_itself_alone",
        "the metadata and the other volumes know a volume before it takes ledgers",
        (7,),
        all_replaced(
            replacing(VolumeAdditions, "_note", _kept_in_memory),
            replacing(VolumeAdditions, "_note_in_others", _not_noted),
        ),
        _check,
        20,
    ),
)
