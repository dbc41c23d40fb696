"""Mutants of the removal of volumes. ``workloads/volume_removals.py`` must notice."""

from __future__ import annotations

from typing import Any, Final

from pulsarish.bookie.volume import Volume
from pulsarish.bookie.volume_homes import VolumeHomes
from pulsarish.bookie.volume_removal import VolumeRemovals
from pulsarish.metadata import paths
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.runtime.seams import Versioned
from pulsarish.sim.workloads.safeguard import Mutant, Patch, replacing
from pulsarish.sim.workloads.volume_removals import run_volume_removals
from pulsarish.wire.json_record import decode_record

__all__ = ["VOLUME_MUTANTS"]


def _nothing_proved(_was: Any) -> object:
    async def prove(_removals: VolumeRemovals, _volume: Volume) -> None:
        pass

    return prove


def _open_ones_left_out(was: Any) -> object:
    async def check(
        removals: VolumeRemovals,
        volume: Volume,
        ledger_id: int,
        node: Versioned | None,
        published: Versioned | None,
    ) -> None:
        if node is not None:
            record = decode_record(node.data, LedgerMetadata, paths.ledger(ledger_id))
            if record.state is not LedgerState.CLOSED:
                return
        await was(removals, volume, ledger_id, node, published)

    return check


def _not_fenced_elsewhere(_was: Any) -> object:
    async def fence(_volumes: VolumeHomes, _volume: Volume) -> bool:
        return True

    return fence


def _mutant(name: str, removes: str, rules: tuple[int, ...], patch: Patch) -> Mutant:
    def check(seed: int) -> None:
        run_volume_removals(seed)

    return Mutant(name, removes, rules, patch, check, 20)


VOLUME_MUTANTS: Final = (
    _mutant(
        "volume_removed_without_proof",
        "a volume is removed once it was proved that no copies in it count",
        (7, 12),
        replacing(VolumeRemovals, "_prove", _nothing_proved),
    ),
    _mutant(
        "open_ledger_removed_with_its_volume",
        "an open ledger holds the removal of its volume up",
        (7, 12),
        replacing(VolumeRemovals, "_check_local", _open_ones_left_out),
    ),
    _mutant(
        "removed_volume_takes_its_fences",
        "what a removed volume knew is fenced in another one",
        (5, 7),
        replacing(VolumeHomes, "_fence_elsewhere", _not_fenced_elsewhere),
    ),
)
