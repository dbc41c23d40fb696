"""What a run of ``storage_workload`` does to its bookie, and how small the bookie's files are."""

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
    """How much of what. ``seconds`` is how long load and faults last."""

    seconds: float = 5.0
    crash_seconds: float = 0.5
    """Mean pause between power cuts; 0: none."""
    early_crash_chance: float = 0.5
    """That the next power cut comes while the bookie starts."""
    bad_sync_seconds: float = 0.0
    """Mean pause between syncs that fail; 0: none. The process ends itself, and the power goes with it."""
    rot: bool = False
    """Bits flip in the journal, in records that others prove to have been synced."""
    journal_corruption: str = "refuse"
    """What the operator wants to be done about that."""
    index_damage: Literal["", "log", "older"] = ""
    """At power cuts a record of the index's log rots, or a copy of the index from an earlier power cut takes its place."""
    bad_sector_seconds: float = 0.0
    """Mean pause between sectors of entry logs that go bad; 0: none."""
    wiped: bool = False
    """In the end the disk is emptied, and the bookie is started on what is left."""
    wiped_keeps: str = ""
    """The name of the files that are left then."""
    full: bool = False
    """The disk fills up, and is made greater when the load is over."""
    full_after_bytes: int = 40_000
    """Bytes written before the bookie is read-only then."""
    deleted_share: float = 0.0
    """Of the ledgers, which are deleted when they are left; what is dead is collected and compacted all the time."""
    slow_metadata: bool = False
    """Metadata answer late, and what they answer the bookie may be old."""
    forgets: bool = False
    """Now and then the metadata service shows no record of ledgers that have one, for less time than the second look or the trash lasts."""
    second_look_seconds: float = 0.0
    """``gc_second_look_seconds`` of the bookie."""
    trash_seconds: float = 0.0
    """``trash_grace_seconds`` of the bookie."""
    squeeze_seconds: float = 0.0
    """Mean pause between moments in which another program fills the disk; 0: none."""
    log_size_bytes: int = 1 << 13
    """Of an entry log."""


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
    if settings.rot:
        # What rots must still be needed at the next start.
        config = msgspec.structs.replace(config, write_cache_size_bytes=1 << 16, checkpoint_interval_seconds=2.0, reserved_bytes=1 << 17)
    return config
