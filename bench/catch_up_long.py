"""One long catch-up over time: ``python -m bench.catch_up_long``; ``--draw`` makes its picture.

A process reads a cold backlog straight from one bookie, while another one adds 1,000 entries a
second, and a third reader comes back to the same 8 MB every two seconds. Printed, as a table for
``docs/performance.md``, for each few seconds: MB/s, the share of the entries that had been read
ahead, the share of what the third reader got from the read cache, and the p99 of publishing. Needs
root, to drop the page cache. ``--draw`` draws the table of that page into
``docs/images/catch_up.png``.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import time
from pathlib import Path
from threading import Event as ThreadEvent
from threading import Thread
from typing import cast

import uvloop

from bench.bookie import read, status_of
from bench.catch_up import (
    BACKLOG_LEDGER,
    SPAWN,
    Helper,
    Took,
    counter,
    drop_page_cache,
    fill,
    own_world,
    publish_to_bookie,
    read_bookie,
    running_bookie,
)
from bench.measure import percentile
from bench.scale_picture import numbers, rows

PAGE, IMAGE = Path("docs/performance.md"), Path("docs/images/catch_up.png")
HOT_LEDGER, HOT_BYTES, HOT_SIZE = 4, 8_000_000, 4_000
HOT_SECONDS = 2.0
BEFORE_SECONDS = 20.0
AHEAD = "pulsarish_bookie_read_ahead_hits_total"
HITS, MISSES = "bookie_read_cache_hits", "bookie_read_cache_misses"
HEADING = "second"


async def come_back(address: str, instance_id: str, stop: ThreadEvent) -> None:
    """Read the same entries again and again."""
    world = own_world()
    while not stop.is_set():
        await read(world, address, instance_id, HOT_LEDGER, HOT_BYTES // HOT_SIZE)
        await asyncio.sleep(HOT_SECONDS)


def measure(settings: argparse.Namespace) -> None:
    size = settings.size
    count = int(settings.gigabytes * 1e9) // size
    with running_bookie(settings.bookie) as (address, http, _):

        async def prepare() -> str:
            world = own_world()
            instance_id = (await status_of(world, address)).instance_id
            await fill(address, instance_id, [HOT_LEDGER], HOT_SIZE, HOT_BYTES // HOT_SIZE)
            await fill(address, instance_id, [BACKLOG_LEDGER], size, count)
            for _ in range(200):
                if not (await status_of(world, address)).write_cache_bytes:
                    break
                await asyncio.sleep(0.5)
            return instance_id

        instance_id = uvloop.run(prepare())
        stop, stop_hot = SPAWN.Event(), ThreadEvent()
        publisher = Helper(publish_to_bookie, address, instance_id, stop)
        hot = Thread(target=lambda: uvloop.run(come_back(address, instance_id, stop_hot)))
        hot.start()
        # Until what comes back has its place in the cache.
        time.sleep(BEFORE_SECONDS)
        drop_page_cache()
        reader = Helper(read_bookie, address, instance_id, size, count)
        samples: list[tuple[float, float, float, float]] = []
        while True:
            found = [counter(http, name) for name in (AHEAD, HITS, MISSES)]
            samples.append((time.monotonic(), found[0], found[1], found[2]))
            if reader.is_done(settings.step):
                break
        (began, ended), _used = cast("tuple[tuple[float, float], float]", reader.result())
        stop_hot.set()
        stop.set()
        hot.join()
        live = cast("Took", publisher.result()[0])
    before = percentile([took for due, took in live if due < began][2_000:], 99) * 1000
    print(
        f"{count * size / 1e9:.1f} GB in {ended - began:.0f} s, "
        f"{count * size / 1e6 / (ended - began):.0f} MB/s; p99 of publishing before {before:.1f} "
        f"ms; load {os.getloadavg()[0]:.1f}\n"
    )
    print(f"| {HEADING} | MB/s | read ahead, % | come back, % | p99 of publishing, ms |")
    print("| --- | --- | --- | --- | --- |")
    for (start, *first), (end, *last) in itertools.pairwise(samples):
        if end > ended:
            break
        ahead, hits, misses = (after - now for now, after in zip(first, last, strict=True))
        # All that was neither read ahead nor cached counts against the one that comes back.
        logs = max(0.0, misses - ahead)
        p99 = percentile([took for due, took in live if start <= due < end], 99) * 1000
        print(
            f"| {end - began:.0f} | {misses * size / 1e6 / (end - start):.0f} | "
            f"{min(100.0, 100 * ahead / max(1, misses)):.1f} | "
            f"{100 * hits / max(1, hits + logs):.1f} | {p99:.1f} |"
        )


def draw() -> None:
    """Draw the table of the page."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    table = [[numbers(cell)[0] for cell in row] for row in rows(PAGE.read_text("utf-8"), HEADING)]
    seconds = [row[0] for row in table]
    figure, places = plt.subplots(1, 2, figsize=(11, 3.6))
    for axes, title, columns in (
        (places[0], "found in memory, %", {2: "read ahead, of the catch-up", 3: "read cache"}),
        (places[1], "p99 of publishing, ms; MB/s of the catch-up", {4: "p99", 1: "MB/s"}),
    ):
        for column, label in columns.items():
            axes.plot(seconds, [row[column] for row in table], "o-", markersize=3, label=label)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("seconds of the catch-up")
        axes.set_ylim(0, max(105.0, axes.get_ylim()[1] * 1.1))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(IMAGE, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--size", type=int, default=128 << 10)
    parser.add_argument("--step", type=float, default=4.0, help="seconds of a row")
    parser.add_argument("--bookie", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--draw", action="store_true")
    settings = parser.parse_args()
    if settings.draw:
        draw()
    else:
        measure(settings)


if __name__ == "__main__":
    main()
