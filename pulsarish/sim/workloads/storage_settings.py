"""What a run of ``workloads/storage.py`` does to its bookie, and how small the bookie's files
are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from pulsarish.bookie.config import BookieConfig

__all__ = ["StorageSettings", "bookie_config"]

_CONFIG: Final = BookieConfig(
    bookie_id="bookie",
    listen_address="bookie:3181",
    http_address="",
    host="bookie",
    data_directory="/data",
    journal_file_size_bytes=1 << 13,
    journal_group_size_bytes=1 << 12,
    journal_prepare_slice_bytes=1 << 12,
    write_cache_size_bytes=1 << 14,
    entry_log_size_bytes=1 << 13,
    checkpoint_slice_entries=8,
    checkpoint_interval_seconds=0.4,
    gc_interval_seconds=3_600.0,
    gc_second_look_seconds=0.0,
    trash_grace_seconds=0.0,
    compaction_threshold=0.9,
    open_ledgers_max=6,
    read_only_free_bytes=1 << 17,
    reserved_bytes=1 << 16,
    disk_check_interval_seconds=0.05,
    local_scrub_interval_seconds=0.0,
)


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Amounts of load and faults. ``seconds`` is how long both last."""

    seconds: float = 5.0
    crash_seconds: float = 0.5
    """Mean pause between power cuts; 0: none."""
    early_crash_chance: float = 0.5
    """The chance that the next power cut comes while the bookie starts."""
    bad_sync_seconds: float = 0.0
    """Mean pause between failing syncs; 0: none.

    The process ends itself, and then the power is cut.
    """
    forged: bool = False
    """Some messages contain what looks like records of the journal files to come."""
    rot: bool = False
    """Bits flip in the journal, in records that other records prove to have been synced."""
    journal_corruption: str = "refuse"
    """The bookie's option for such damage."""
    index_damage: Literal["", "log", "older"] = ""
    """At power cuts a record of the index's log is damaged, or the index is replaced by a copy from
    an earlier power cut.
    """
    bad_sector_seconds: float = 0.0
    """Mean pause between bad sectors in entry logs; 0: none."""
    wiped: bool = False
    """At the end the disk is emptied, and the bookie is started on what is left."""
    wiped_keeps: str = ""
    """The name of the files that are left then."""
    full: bool = False
    """The disk fills up, and gets larger when the load is over."""
    full_after_bytes: int = 40_000
    """Bytes written before the bookie is read-only then."""
    deleted_share: float = 0.0
    """The share of ledgers that are deleted when writing to them ends.

    Their space is collected and compacted all the time.
    """
    slow_metadata: bool = False
    """Metadata answer late, and with data that may be old for the bookie."""
    forgets: bool = False
    """The metadata service sometimes shows no record of existing ledgers, for less time than the
    second look or the trash lasts.
    """
    second_look_seconds: float = 0.0
    """``gc_second_look_seconds`` of the bookie."""
    trash_seconds: float = 0.0
    """``trash_grace_seconds`` of the bookie."""
    squeeze_seconds: float = 0.0
    """Mean pause between moments in which another program fills the disk; 0: none."""
    volumes: int = 1
    """The volumes of the bookie."""
    dies: bool = False
    """Disks of some volumes, never of all, die during the load, and may come back as they were."""
    log_size_bytes: int = 1 << 13
    """Size of an entry log."""


def bookie_config(settings: StorageSettings) -> BookieConfig:
    """Return the bookie's configuration for a run."""
    config = msgspec.structs.replace(
        _CONFIG,
        journal_corruption=settings.journal_corruption,
        gc_second_look_seconds=settings.second_look_seconds,
        trash_grace_seconds=settings.trash_seconds,
        entry_log_size_bytes=settings.log_size_bytes,
    )
    if settings.deleted_share or settings.forgets:
        config = msgspec.structs.replace(config, gc_interval_seconds=0.2)
    if settings.volumes > 1:
        places = [f"/data/{number}" for number in range(settings.volumes)]
        config = msgspec.structs.replace(
            config,
            journal_directories=tuple(f"{place}/journal" for place in places),
            ledger_directories=tuple(f"{place}/ledgers" for place in places),
            index_directories=tuple(f"{place}/index" for place in places),
            volume_loss="limbo" if settings.dies else "refuse",
            write_cache_size_bytes=settings.volumes * config.write_cache_size_bytes,
        )
    if settings.rot:
        # Damaged data must still be needed at the next start.
        config = msgspec.structs.replace(
            config,
            write_cache_size_bytes=1 << 16,
            checkpoint_interval_seconds=2.0,
            reserved_bytes=1 << 17,
        )
    return config
