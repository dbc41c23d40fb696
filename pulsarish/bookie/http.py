"""The HTTP interface of a bookie: ``/health``, and ``/metrics`` under BookKeeper's usual names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pulsarish.bookie.space import SpaceMode
from pulsarish.metadata.session_watch import SessionWatch
from pulsarish.runtime.metrics import Histogram, Metrics
from pulsarish.runtime.network.certificate_metrics import export_certificates
from pulsarish.runtime.seams import HttpRequest, HttpResponse
from pulsarish.runtime.watch_face import answer_watcher

if TYPE_CHECKING:
    from pulsarish.bookie.bookie import Bookie

__all__ = ["BookieHttp"]


class BookieHttp:
    """Answer GET requests about one bookie."""

    def __init__(self, bookie: Bookie, session: SessionWatch, lags: Histogram | None) -> None:
        self._bookie = bookie
        self.metrics = Metrics(labels={"bookie": bookie.config.bookie_id}, lags=lags)
        self._register(session)

    async def handle(self, request: HttpRequest) -> HttpResponse:
        return await answer_watcher(request, self._health, self.metrics)

    def _health(self) -> HttpResponse:
        """Return 200 while adds and reads are served.

        A bookie without metadata still serves (rule 19), and the answer says so.
        """
        bookie = self._bookie
        ready, recovery = bookie.is_ready, bookie.auto_recovery
        off_reason = "" if recovery is None else recovery.switch.off_reason
        body = {
            "status": "ok" if ready else "unhealthy",
            "instance_id": bookie.instance_id,
            "address": bookie.address,
            "registered": bookie.registered,
            "space": bookie.space.value,
            "add_synced_seconds_ago": round(bookie.add_age_seconds, 1),
            "warnings": [
                reason
                for reason in (bookie.read_only_reason, off_reason, *bookie.volume_reasons)
                if reason
            ],
            "lost_directories": bookie.lost_directories,
            "cordoned_directories": bookie.cordoned_directories,
            "limbo_below_ledger": bookie.entries.limbo_below,
            "auto_recovery": "not hosted here"
            if recovery is None
            else recovery.unwell_reason() or off_reason or "ok",
        }
        return HttpResponse(200 if ready else 503, msgspec.json.encode(body))

    def _register(self, session: SessionWatch) -> None:
        bookie, metrics = self._bookie, self.metrics
        service, read = bookie.service, metrics.read
        store = _summed([volume.store for volume in bookie.volumes])
        counters, journal, queue = store.counters, store.journal, store.journal.queue
        read(
            "bookie_SERVER_STATUS",
            "gauge",
            "1 writable, 0 read-only.",
            lambda: int(bookie.entries.is_writable),
        )
        read(
            "bookie_ledger_writable_dirs",
            "gauge",
            "Ledger directories that accept entries.",
            lambda: sum(each.store.space is SpaceMode.WRITABLE for each in bookie.live),
        )
        metrics.read_each(
            "pulsarish_bookie_volume_state",
            "gauge",
            "1 for a volume that takes new ledgers, 0 for one that does not, -1 for one that has "
            "failed; by its ledger directory.",
            "directory",
            lambda: {
                each.config.ledger_path: each.state
                for each in bookie.volumes
                if not each.is_removed
            },
        )
        read(
            "pulsarish_bookie_lost_directories",
            "gauge",
            "Configured directories of volumes that have failed or were given up.",
            lambda: len(bookie.lost_directories),
        )
        metrics.read_each(
            "pulsarish_bookie_volume_free_bytes",
            "gauge",
            "The least free space of a volume's directories; by its ledger directory.",
            "directory",
            lambda: {
                each.config.ledger_path: each.free_bytes
                for each in bookie.volumes
                if not each.is_removed
            },
        )
        read(
            "bookie_ledgers_count",
            "gauge",
            "Ledgers with anything stored here.",
            lambda: bookie.entries.ledgers_count,
        )
        metrics.operation(
            "bookkeeper_server_ADD_ENTRY_REQUEST",
            "Seconds from an add's arrival to its answer.",
            store.add_seconds,
        )
        metrics.operation(
            "bookkeeper_server_READ_ENTRY_REQUEST",
            "Seconds from a read's arrival to its answer.",
            store.read_seconds,
        )
        read(
            "bookie_WRITE_BYTES", "counter", "Bytes of entries added.", lambda: counters.added_bytes
        )
        read(
            "bookie_READ_BYTES",
            "counter",
            "Bytes of entries read.",
            lambda: store.reader.bytes_read,
        )
        read("pulsarish_bookie_fences_total", "counter", "Ledgers fenced.", lambda: counters.fences)
        read(
            "pulsarish_bookie_read_failures_total",
            "counter",
            "Reads of entries that are indexed but unreadable.",
            lambda: store.reader.failures,
        )
        read(
            "pulsarish_bookie_streams",
            "gauge",
            "Streams of ledger clients.",
            lambda: service.open_streams_count,
        )
        read(
            "pulsarish_bookie_ready",
            "gauge",
            "1 while /health answers 200.",
            lambda: int(bookie.is_ready),
        )
        read(
            "pulsarish_bookie_unanswered_bytes",
            "gauge",
            "Bytes of adds received and not answered.",
            lambda: service.unanswered_bytes,
        )

        metrics.histogram(
            "bookie_journal_JOURNAL_SYNC",
            "Seconds to write and sync a group of records.",
            journal.sync_seconds,
        )
        read(
            "bookie_journal_JOURNAL_WRITE_BYTES",
            "counter",
            "Bytes synced to the journal.",
            lambda: journal.synced_bytes,
        )
        read(
            "bookie_journal_JOURNAL_QUEUE_SIZE",
            "gauge",
            "Records that wait for the journal.",
            lambda: queue.waiting_count,
        )
        read(
            "pulsarish_bookie_journal_queue_bytes",
            "gauge",
            "Bytes that wait for the journal.",
            lambda: bookie.entries.journal_queue_bytes,
        )

        flushes = store.checkpointer
        read(
            "bookie_write_cache_size",
            "gauge",
            "Bytes in the write cache.",
            lambda: bookie.entries.write_cache_bytes,
        )
        read(
            "bookie_write_cache_count",
            "gauge",
            "Entries in the write cache.",
            lambda: store.cache.entries_count,
        )
        kept = store.read_cache
        read(
            "bookie_read_cache_size",
            "gauge",
            "Bytes in the read cache.",
            lambda: kept.size_bytes,
        )
        read(
            "bookie_read_cache_count",
            "gauge",
            "Entries in the read cache.",
            lambda: kept.entries_count,
        )
        read(
            "bookie_read_cache_hits",
            "counter",
            "Entries that readers got from the read cache.",
            lambda: kept.hits,
        )
        read(
            "bookie_read_cache_misses",
            "counter",
            "Entries that readers did not find in the read cache.",
            lambda: kept.misses,
        )
        ahead = store.ahead
        read(
            "pulsarish_bookie_read_ahead_size_bytes",
            "gauge",
            "Bytes that are being read ahead of readers, or wait for them.",
            lambda: ahead.held_bytes,
        )
        read(
            "pulsarish_bookie_read_ahead_entries_total",
            "counter",
            "Entries that were read ahead of readers.",
            lambda: ahead.read_entries,
        )
        read(
            "pulsarish_bookie_read_ahead_hits_total",
            "counter",
            "Entries that readers got from what was read ahead.",
            lambda: ahead.hits,
        )
        read(
            "pulsarish_bookie_entry_log_reads_total",
            "counter",
            "Reads of entry logs; one for entries that lie together.",
            lambda: store.logs.reads_count,
        )
        metrics.histogram(
            "bookie_flush",
            "Seconds to move the write cache to the entry logs.",
            flushes.flush_seconds,
        )
        read(
            "bookie_flush_size",
            "counter",
            "Bytes of the write cache moved to the entry logs.",
            lambda: flushes.flushed_bytes,
        )
        read(
            "pulsarish_bookie_free_bytes",
            "gauge",
            "The least free space of a volume's directories, of the volume that has the most.",
            lambda: bookie.free_bytes,
        )

        garbage = _summed([each.garbage for each in bookie.upkeep])
        read(
            "bookie_DELETED_LEDGER_COUNT",
            "counter",
            "Ledgers deleted.",
            lambda: garbage.ledgers_deleted,
        )
        read(
            "bookie_MAJOR_COMPACTION_COUNT",
            "counter",
            "Entry logs rewritten.",
            lambda: garbage.compactions,
        )
        read(
            "pulsarish_bookie_compacted_bytes_total",
            "counter",
            "Bytes of entry logs read to rewrite them.",
            lambda: garbage.compacted_bytes,
        )
        read(
            "pulsarish_bookie_gc_rounds_total",
            "counter",
            "Rounds of garbage collection that ended well.",
            lambda: garbage.rounds,
        )
        read(
            "pulsarish_bookie_gc_last_round_seconds",
            "gauge",
            "When the last round ended well; 0: none did.",
            lambda: (
                min(
                    each.garbage.ended_ms
                    for volume, each in zip(bookie.volumes, bookie.upkeep, strict=True)
                    if volume.failure is None
                )
                / 1000
            ),
        )
        read(
            "pulsarish_bookie_deleted_entry_logs_total",
            "counter",
            "Entry logs deleted.",
            lambda: garbage.logs_deleted,
        )
        read(
            "pulsarish_bookie_postponed_compactions",
            "gauge",
            "Entry logs that the last round of garbage collection did not rewrite because space "
            "was too low.",
            lambda: garbage.logs_postponed,
        )
        read(
            "pulsarish_bookie_unreadable_logs",
            "gauge",
            "Entry logs that cannot be read or checked.",
            lambda: len(garbage.unreadable_logs),
        )
        read(
            "pulsarish_bookie_limbo_below_ledger",
            "gauge",
            "Ledgers below this may have lost entries.",
            lambda: bookie.entries.limbo_below,
        )
        read(
            "pulsarish_bookie_registered",
            "gauge",
            "1 while registered in the metadata.",
            lambda: int(bookie.registered),
        )
        held = (
            "Ledgers that the metadata do not name and that are kept because the metadata are "
            "marked as restored or older."
        )
        read("pulsarish_bookie_ledgers_held_back", "gauge", held, lambda: garbage.ledgers_held_back)
        read(
            "pulsarish_bookie_trash_ledgers",
            "gauge",
            "Deleted ledgers whose space is not freed yet.",
            lambda: garbage.trash.count,
        )
        restored = "Ledgers restored from the trash."
        read(
            "pulsarish_bookie_trash_restored_total",
            "counter",
            restored,
            lambda: garbage.trash.restored,
        )
        read(
            "pulsarish_bookie_stray_ledgers",
            "gauge",
            "Ledgers with copies here for which the metadata name other bookies.",
            lambda: garbage.stray_ledgers_count,
        )
        read(
            "pulsarish_bookie_stray_bytes_deleted_total",
            "counter",
            "Bytes of copies deleted because the metadata name other bookies for them.",
            lambda: garbage.strays.bytes_deleted,
        )
        bookie.age.export(metrics)
        scrub = _summed([each.scrubber for each in bookie.upkeep])
        read(
            "pulsarish_bookie_scrub_rounds_total",
            "counter",
            "Finished rounds over all entries on disk.",
            lambda: scrub.rounds,
        )
        read(
            "pulsarish_bookie_scrub_bytes_total",
            "counter",
            "Bytes of entries on disk that were read.",
            lambda: scrub.bytes,
        )
        read(
            "pulsarish_bookie_scrub_damaged_total",
            "counter",
            "Entries on disk found damaged, or missing in the index.",
            lambda: scrub.damaged,
        )
        if bookie.auto_recovery is not None:
            bookie.auto_recovery.export(metrics)
        session.export(metrics)
        export_certificates(
            metrics,
            {"tls_certificate_file_path": bookie.config.tls_certificate_file_path},
            bookie.wall_ms,
        )


def _summed(parts: Sequence[object]) -> Any:
    """Return what is read as one object: the only part, or the sums over the parts of several
    volumes.
    """
    return parts[0] if len(parts) == 1 else _Sums(parts)


class _Sums:
    """Reads an attribute of all parts: the sum of numbers, all items of dictionaries, and the same
    of objects. Histograms are shared by the volumes.
    """

    def __init__(self, parts: Sequence[object]) -> None:
        self._parts = parts

    def __getattr__(self, name: str) -> Any:
        values = [getattr(part, name) for part in self._parts]
        first = values[0]
        if isinstance(first, int | float):
            return sum(values)
        if isinstance(first, dict):
            return {
                (place, key): value
                for place, each in enumerate(values)
                for key, value in each.items()
            }
        return first if all(each is first for each in values) else _Sums(values)
