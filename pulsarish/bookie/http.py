"""The HTTP face of a bookie: ``/health``, truthful, and ``/metrics`` under BookKeeper's usual names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pulsarish.bookie.space import SpaceMode
from pulsarish.runtime.metrics import Metrics
from pulsarish.runtime.seams import HttpRequest, HttpResponse

if TYPE_CHECKING:
    from pulsarish.bookie.bookie import Bookie

__all__ = ["BookieHttp"]


class BookieHttp:
    """Answers GET requests about one bookie."""

    def __init__(self, bookie: Bookie) -> None:
        self._bookie = bookie
        self.metrics = Metrics(labels={"bookie": bookie.config.bookie_id})
        self._register()

    async def handle(self, request: HttpRequest) -> HttpResponse:
        if request.method != "GET":
            return HttpResponse(405, b'{"reason": "only GET is served here"}')
        match request.path.strip("/"):
            case "health":
                return self._health()
            case "metrics":
                return HttpResponse(200, self.metrics.render(), "text/plain; version=0.0.4")
            case _:
                return HttpResponse(404, b'{"reason": "there are /health and /metrics"}')

    def _health(self) -> HttpResponse:
        """200 while adds and reads are served. A bookie without metadata serves on (rule 19) and says so."""
        bookie = self._bookie
        ready = bookie.is_ready
        body = {
            "status": "ok" if ready else "unhealthy",
            "instance_id": bookie.instance_id,
            "address": bookie.address,
            "registered": bookie.registered,
            "space": bookie.store.space.value,
            "limbo_below_ledger": bookie.store.limbo.ledgers_below,
        }
        return HttpResponse(200 if ready else 503, msgspec.json.encode(body))

    def _register(self) -> None:
        store, read = self._bookie.store, self.metrics.read
        counters, journal = store.counters, store.journal
        read("bookie_SERVER_STATUS", "gauge", "1 writable, 0 read-only.", lambda: int(store.space is SpaceMode.WRITABLE))
        read("bookie_ledgers_count", "gauge", "Ledgers with anything stored here.", lambda: store.states.count)
        read("bookie_WRITE_BYTES", "counter", "Bytes of entries taken.", lambda: counters.added_bytes)
        read("bookie_write_entries", "counter", "Entries taken.", lambda: counters.added_entries)
        read("bookie_write_refused_entries", "counter", "Entries refused.", lambda: counters.refused_entries)
        read("bookie_fences", "counter", "Ledgers fenced.", lambda: counters.fences)
        read("bookie_READ_BYTES", "counter", "Bytes of entries read.", lambda: store.reader.bytes_read)
        read("bookie_read_entries", "counter", "Entries read.", lambda: store.reader.entries_read)
        read("bookie_read_failures", "counter", "Entries that the index has and the logs do not give.", lambda: store.reader.failures)
        read("bookie_write_cache_size", "gauge", "Bytes in the write cache.", lambda: store.cache.size_bytes)
        read("bookie_flush", "counter", "Checkpoints done.", lambda: store.checkpointer.count)
        self.metrics.histogram("bookie_journal_JOURNAL_SYNC", "Seconds that writing and syncing a group took.", journal.sync_seconds)
        read("bookie_journal_WRITE_BYTES", "counter", "Bytes synced to the journal.", lambda: journal.synced_bytes)
        read("bookie_journal_queue_bytes", "gauge", "Bytes that wait for the journal.", lambda: journal.queue.waiting_bytes)
        read("bookie_ledger_dir_free_bytes", "gauge", "The least free space of all directories.", lambda: self._bookie.free_bytes)
        garbage = self._bookie.garbage
        read("bookie_gc_rounds", "counter", "Rounds of garbage collection that ended.", lambda: garbage.rounds)
        read("bookie_DELETED_LEDGER_COUNT", "counter", "Ledgers deleted.", lambda: garbage.ledgers_deleted)
        read("bookie_gc_deleted_logs", "counter", "Entry logs deleted.", lambda: garbage.logs_deleted)
        read("bookie_gc_unreadable_logs", "gauge", "Entry logs kept because they cannot be judged.", lambda: len(garbage.unreadable_logs))
        read("bookie_registered", "gauge", "1 while registered in the metadata.", lambda: int(self._bookie.registered))
