"""Small limits for a simulated cluster, so that a light load reaches them: windows of a few
entries, queues of kilobytes.

Some are below what the configuration of a real node allows. A draw leaves each limit as it is in
some seeds, because a small limit hides the next one: a writer whose window is 4 entries never fills
the queue of a bookie.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

__all__ = ["USUAL", "Limits", "draw_limits", "with_orphans_deleted", "with_small_buckets"]

_SMALL_CHANCE: Final = 0.4

_KIB: Final = 1 << 10

# The values that a seed may draw, by option. An option is drawn by its name and place in the table,
# so add a new one at the end.
_LEDGER: Final[Mapping[str, Sequence[int]]] = {
    "window_entries": (1, 4, 8),
    "window_bytes": (_KIB, 4 * _KIB),
    "bookie_queue_bytes": (8 * _KIB, 16 * _KIB),
    "overlap_bytes": (0, _KIB),
    "unanswered_messages_max": (1, 2),
    "recovery_read_entries": (1, 3),
    "recovery_read_bytes": (_KIB, 2 * _KIB),
    "read_request_bytes": (_KIB, 4 * _KIB),
}
_LOG: Final[Mapping[str, Sequence[int]]] = {
    "pending_entries_max": (1, 4, 8),
    "pending_bytes_max": (2 * _KIB, 8 * _KIB),
}
_BROKER: Final[Mapping[str, Sequence[int]]] = {
    "max_publish_bytes_per_connection": (_KIB, 4 * _KIB),
    "max_message_publish_buffer_size_bytes": (2 * _KIB, 8 * _KIB),
    "max_delivery_bytes_per_connection": (_KIB, 4 * _KIB),
    "managed_ledger_cache_size_bytes": (_KIB, 2 * _KIB),
    "managed_ledger_read_cache_size_bytes": (2 * _KIB, 8 * _KIB),
    "max_concurrent_topic_load_requests": (2, 4),
    "admin_metadata_operations_max": (1, 2),
    "admin_fan_out_max": (1, 2),
    "dispatcher_max_read_size_bytes": (1, _KIB),
}
_BOOKIE: Final[Mapping[str, Sequence[int]]] = {
    "journal_queue_size_bytes": (_KIB, 4 * _KIB),
    "connection_size_bytes": (_KIB, 4 * _KIB),
    "journal_group_size_bytes": (_KIB, 4 * _KIB),
    "write_cache_size_bytes": (2 * _KIB, 8 * _KIB),
    "read_answer_size_bytes": (_KIB, 4 * _KIB),
    "control_answer_size_bytes": (_KIB, 4 * _KIB),
    "open_ledgers_max": (1, 3),
    "open_entry_logs_max": (1, 1),
}
_BUCKETS: Final[Mapping[str, Sequence[int]]] = {
    "delayed_delivery_min_index_count_per_bucket": (1, 2, 5),
    "delayed_delivery_max_num_buckets": (1, 2, 4),
    "delayed_delivery_max_indexes_per_bucket_snapshot_segment": (1, 2, 10),
    # what is due within ten ticks goes into no bucket
    "delayed_delivery_tick_time_millis": (1, 100, 1_000),
}

_EAGER: Final = {
    "orphan_check_interval_seconds": 1.0,
    "orphan_min_age_seconds": 0.2,
    "orphan_grace_seconds": 0.5,
    "orphan_deletion_enabled": True,
}

_BURSTS: Final = (12, 24, 48)
_SIZES: Final = ((0, 0, 30, 700), (30, 700, 1_500), (700, 1_500))


@dataclass(frozen=True, slots=True)
class Limits:
    """Options of nodes that replace the usual ones, and the load that reaches them."""

    ledger: Mapping[str, Any] = field(default_factory=dict)
    log: Mapping[str, Any] = field(default_factory=dict)
    broker: Mapping[str, Any] = field(default_factory=dict)
    bookie: Mapping[str, Any] = field(default_factory=dict)
    burst: int = 0
    """Publishers send up to this many messages at once; 0: the usual number."""
    sizes: Sequence[int] = ()
    """The sizes that publishers draw from for a message; empty: the usual ones."""


USUAL: Final = Limits()


def draw_limits(rng: random.Random) -> Limits:
    """Draw some small limits, and publishers that send in bursts."""
    ledger, log, broker, bookie = (
        _drawn(rng, table) for table in (_LEDGER, _LOG, _BROKER, _BOOKIE)
    )
    if "bookie_queue_bytes" in ledger:
        # Four messages of the greatest size: with less, a bookie counts as failed because of a
        # single message.
        broker["max_message_size_bytes"] = ledger["bookie_queue_bytes"] // 4
    return Limits(ledger, log, broker, bookie, rng.choice(_BURSTS), rng.choice(_SIZES))


def with_small_buckets(limits: Limits, rng: random.Random) -> Limits:
    """Return the limits with buckets of a few delayed messages."""
    drawn = {name: rng.choice(values) for name, values in _BUCKETS.items()}
    return replace(limits, broker={**limits.broker, **drawn})


def _drawn(rng: random.Random, table: Mapping[str, Sequence[int]]) -> dict[str, int]:
    drawn = {}
    for name, values in table.items():
        small, value = rng.random() < _SMALL_CHANCE, rng.choice(values)
        if small:
            drawn[name] = value
    return drawn


def with_orphans_deleted(limits: Limits) -> Limits:
    """Return the limits with a leader that deletes what nothing refers to after a moment."""
    return replace(limits, broker={**limits.broker, **_EAGER})
