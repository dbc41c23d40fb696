"""Many delayed entries on one subscription: memory and rates of the core.

    python -m bench.delayed [--entries 5000000] [--heap]

``--heap``: all in memory, as before there were buckets. Segments are kept in this process's memory
as the bookies would keep them, and are not counted. Prints entries per second of CPU time, and the
growth of the process's resident memory without what the segments take.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from pathlib import Path

from pulsarish.broker.dispatchers.delay_bucket import Bucket, EntryBits
from pulsarish.broker.dispatchers.delayed import DELAYS_OVER, DelayedEntries
from pulsarish.model.position import Position

MIN, MAX_BUCKETS, SEGMENT = 50_000, 50, 5_000
PER_LEDGER = 50_000
DAY_MS = 24 * 3_600_000


class Stage:
    """The delayed entries, and the ledgers of their buckets."""

    def __init__(self) -> None:
        self.delayed = DelayedEntries(1 << 62)
        self.delayed.tick_ms = 1_000
        self.ledgers: dict[int, list[bytes]] = {}
        self.written = 0
        self.longest = 0.0  # time that others wait for one step

    def look(self) -> None:
        delayed = self.delayed
        if delayed.may_seal(0, MIN):
            began = time.process_time()
            _ = delayed.seal(0, MIN, SEGMENT)
            self.longest = max(self.longest, time.process_time() - began)
            self.store()
        if len(delayed.buckets) > MAX_BUCKETS:
            self.merge()
            self.store()

    def store(self) -> None:
        for bucket in self.delayed.buckets:
            if bucket.ledger_id < 0:
                payloads = [bucket.encode_segment(number) for number in range(bucket.segments)]
                payloads.append(bucket.encode_index())
                for replaced in bucket.replaces:
                    del self.ledgers[replaced]
                self.written += 1
                self.ledgers[self.written] = payloads
                bucket.stored(self.written)

    def merge(self) -> None:
        parts = sorted(self.delayed.buckets, key=lambda bucket: bucket.left)[:2]
        bits = EntryBits()
        found = [(part, 0, self._all(part)) for part in parts]
        for _, _, entries in found:
            bits.add(entries)
        began = time.process_time()
        self.delayed.merge(found, bits, SEGMENT)
        self.longest = max(self.longest, time.process_time() - began)

    def _all(self, bucket: Bucket) -> list[int]:
        stored = self.ledgers[bucket.ledger_id]
        return [
            entry
            for number in range(bucket.segments)
            for entry in bucket.decode_segment(number, stored[number])
        ]

    def load(self) -> None:
        for bucket in self.delayed.buckets:
            while (number := bucket.segment_due(DELAYS_OVER)) is not None:
                stored = self.ledgers[bucket.ledger_id][number]
                bucket.loaded(number, bucket.decode_segment(number, stored))

    @property
    def stored_bytes(self) -> int:
        return sum(len(each) for stored in self.ledgers.values() for each in stored)


def resident_mib() -> float:
    """The process's resident memory now."""
    _ = gc.collect()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * 4_096 / (1 << 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    _ = parser.add_argument("--entries", type=int, default=5_000_000)
    _ = parser.add_argument("--heap", action="store_true", help="all in memory")
    options = parser.parse_args()
    count: int = options.entries
    rng, stage = random.Random(1), Stage()
    empty, greatest = resident_mib(), 0.0
    began = time.process_time()
    for entry in range(count):
        ledger_id, entry_id = divmod(entry, PER_LEDGER)
        stage.delayed.add(Position(100 + ledger_id, entry_id), DAY_MS + rng.randrange(7 * DAY_MS))
        if not options.heap and entry % 1_000 == 999:
            stage.look()
        if entry % (count // 20) == 0:
            stored_mib = stage.stored_bytes / (1 << 20)
            greatest = max(greatest, resident_mib() - empty - stored_mib)
    seconds = time.process_time() - began
    stored_mib = stage.stored_bytes / (1 << 20)
    print(f"added      {count / seconds:12,.0f} entries/s, {len(stage.delayed.buckets)} buckets")
    print(f"memory     {max(greatest, resident_mib() - empty - stored_mib):12,.0f} MiB at most")
    print(f"ledgers    {stored_mib:12,.0f} MiB, {stage.written} written")
    print(f"longest    {stage.longest * 1000:12,.0f} ms of one step")
    began, taken = time.process_time(), 0
    while stage.delayed:
        stage.load()
        taken += len(stage.delayed.take_due(DELAYS_OVER, 1_000))
    assert taken == count
    print(f"taken      {count / (time.process_time() - began):12,.0f} entries/s")


if __name__ == "__main__":
    main()
