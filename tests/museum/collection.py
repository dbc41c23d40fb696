"""All exhibits, and the commits at which they were last seen to die."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.museum import (
    bookie_storage,
    compaction,
    cursors,
    dispatch,
    key_shared,
    ledgers,
    publishing,
    recovery,
)
from tests.museum.exhibit import Exhibit

__all__ = ["AREAS", "DEATHS", "EXHIBITS", "read_deaths", "write_deaths"]

AREAS: Final[dict[str, tuple[Exhibit, ...]]] = {
    "Publishing": publishing.EXHIBITS,
    "Cursors": cursors.EXHIBITS,
    "Dispatch": dispatch.EXHIBITS,
    "Key-shared subscriptions": key_shared.EXHIBITS,
    "Compaction and trimming": compaction.EXHIBITS,
    "Ledgers": ledgers.EXHIBITS,
    "Fencing and recovery": recovery.EXHIBITS,
    "Bookie storage": bookie_storage.EXHIBITS,
}

EXHIBITS: Final[dict[str, Exhibit]] = {
    exhibit.name: exhibit for area in AREAS.values() for exhibit in area
}

DEATHS: Final = Path(__file__).with_name("deaths.json")
"""Exhibit to commit. Written by ``make museum MUSEUM=--record`` and by nobody else."""

assert len(EXHIBITS) == sum(map(len, AREAS.values())), "two exhibits have one name"


def read_deaths() -> dict[str, str]:
    found: dict[str, str] = json.loads(DEATHS.read_text()) if DEATHS.exists() else {}
    return found


def write_deaths(deaths: Mapping[str, str]) -> None:
    """Replace the file. Exhibits that are not in the collection any more are dropped."""
    kept = {name: commit for name, commit in sorted(deaths.items()) if name in EXHIBITS}
    DEATHS.write_text(json.dumps(kept, indent=2) + "\n")
