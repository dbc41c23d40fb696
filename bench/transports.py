"""The ways from a client to the bookies beside each other, in turn on one machine:

    python -m bench.transports [--rounds 5] [--row NAME]... [--side NAME]...
                               [--against CHECKOUT]

Each side is a process of its own with a cluster of three bookies and one broker: ``grpc`` or
``framed``. ``-uncached`` after it: bookies take entries out of the page cache. ``-locked`` at the
end: TLS on every hop, tokens, authorization and the audit trail. ``--against`` adds, as the first
side, an older checkout with a ``.venv`` of its own, as it is by default. All run at the same time,
and only one is used at a time.

Prints for each row the medians of the sides, and the median ratios of the rounds to the first side:
rate or p50, p99, and CPU in microseconds a message of bookies, broker, client and all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pulsarish
from bench.client import drain, end_to_end, fill, one_at_a_time, publish
from bench.measure import cpu_by_role, running_cluster
from pulsarish.local_cluster.locked import profiles_of
from pulsarish.local_cluster.security_files import ADMINISTRATOR
from pulsarish.runtime.profiles import Profiles

SIDES = tuple(
    transport + cache + lock
    for transport in ("grpc", "framed")
    for cache in ("", "-uncached")
    for lock in ("", "-locked")
)
Run = Callable[[pulsarish.Client, str], dict[str, Any]]


def _drain_unbatched(client: pulsarish.Client, topic: str) -> dict[str, Any]:
    count = 20_000
    client.subscribe(topic, "s", initial_position=pulsarish.InitialPosition.Earliest).close()
    fill(client, topic, size=1_000, count=count, batching=False)
    consumer = client.subscribe(topic, "s", receiver_queue_size=5_000)
    started = time.perf_counter()
    for _ in range(count):
        consumer.acknowledge(consumer.receive(timeout_millis=30_000))
    rate = count / (time.perf_counter() - started)
    consumer.close()
    return {"rate": rate}


ROWS: dict[str, tuple[int, Run]] = {
    "one at a time 1 KB": (1_500, lambda c, t: one_at_a_time(c, t, size=1_000, count=1_500)),
    "1 KB unbatched": (
        40_000,
        lambda c, t: publish(c, t, size=1_000, count=20_000, batching=False, window=2_000),
    ),
    "1 KB batched": (
        120_000,
        lambda c, t: publish(c, t, size=1_000, count=100_000, batching=True, window=20_000),
    ),
    "100 B batched": (
        320_000,
        lambda c, t: publish(c, t, size=100, count=300_000, batching=True, window=40_000),
    ),
    "100 KB": (
        2_000,
        lambda c, t: publish(c, t, size=100_000, count=1_000, batching=False, window=200),
    ),
    "drain batched": (
        200_000,
        lambda c, t: drain(c, t, size=1_000, count=100_000, batch=False, acknowledge=True),
    ),
    "drain unbatched": (40_000, _drain_unbatched),
    "end to end at 1,000/s": (
        4_000,
        lambda c, t: end_to_end(c, t, rate=1_000, seconds=4, size=1_000),
    ),
}
"""By name: messages that are sent, for the CPU of each, and the work."""


@contextmanager
def _side(name: str) -> Iterator[Callable[[str, int], dict[str, float]]]:
    """The function that measures a row on a cluster of one side."""
    broker_settings, bookie_settings, options = [], [], {}
    if name in SIDES:
        transport = name.partition("-")[0]
        broker_settings = [f"ledger.transport={transport}"]
        options = {"transport": transport}
    if "-uncached" in name:
        bookie_settings = ["entry_log_remove_from_page_cache=true"]
    locked = name.endswith("-locked")
    with running_cluster(broker=broker_settings, bookie=bookie_settings, locked=locked) as cluster:
        url = cluster.service_urls()["pulsarish"]
        if locked:
            profile = Profiles.read(profiles_of(cluster)).get(ADMINISTRATOR)
            options |= profile.arguments(url)

        def measure(row: str, number: int) -> dict[str, float]:
            count, run = ROWS[row]
            before, own = cpu_by_role(cluster), time.process_time()
            with pulsarish.Client(url, **options) as client:
                found = run(client, f"persistent://public/default/{row.replace(' ', '-')}-{number}")
            own = time.process_time() - own
            after = cpu_by_role(cluster)
            cpu = {
                "bookies": (after["bookie"] - before["bookie"]) / count * 1e6,
                "broker": (after["broker"] - before["broker"]) / count * 1e6,
                "client": own / count * 1e6,
            }
            return {
                "value": found["p50_ms"] if "p50_ms" in found else found["rate"],
                "p99": found.get("p99_ms", 0.0),
                **cpu,
                "all": sum(cpu.values()),
            }

        yield measure


def _serve(name: str) -> None:
    """Measure the rows that standard input asks for."""
    with _side(name) as measure:
        print("ready", flush=True)
        for line in sys.stdin:
            print(json.dumps(measure(*json.loads(line))), flush=True)


@contextmanager
def _worker(name: str, checkout: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that serves one side with the program of ``checkout``."""
    python = sys.executable if name in SIDES else str(checkout / ".venv/bin/python")
    with subprocess.Popen(
        [python, __file__, "--serve", name],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", f"{name} did not start"
        try:
            yield process
        finally:
            process.stdin.close()


def _ask(process: subprocess.Popen[str], row: str, number: int) -> dict[str, float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([row, number]) + "\n")
    process.stdin.flush()
    found: dict[str, float] = json.loads(process.stdout.readline())
    return found


def _cell(rounds: list[dict[str, dict[str, float]]], key: str) -> str:
    first, *others = rounds[0]
    text = f"{statistics.median(each[first][key] for each in rounds):,.4g}"
    if not any(each[first][key] for each in rounds):
        return ""
    for name in others:
        median = statistics.median(each[name][key] for each in rounds)
        ratio = statistics.median(each[name][key] / each[first][key] for each in rounds)
        text += f" / {median:,.4g} x{ratio:.2f}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--row", action="append", choices=list(ROWS))
    parser.add_argument("--side", action="append", choices=SIDES)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        _serve(arguments.serve)
        return
    here = Path(__file__).resolve().parent.parent
    checkouts = {"before": arguments.against.resolve()} if arguments.against else {}
    checkouts |= dict.fromkeys(arguments.side or ("grpc", "framed"), here)
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(_worker(name, checkout))
            for name, checkout in checkouts.items()
        }
        print(" / ".join(workers))
        print(
            "| work | rate or p50 ms | p99 ms | CPU: bookies | broker | client | all |", flush=True
        )
        for row in arguments.row or ROWS:
            rounds = [
                {name: _ask(worker, row, number) for name, worker in workers.items()}
                for number in range(arguments.rounds)
            ]
            keys = ("value", "p99", "bookies", "broker", "client", "all")
            print(f"| {row} | " + " | ".join(_cell(rounds, key) for key in keys) + " |", flush=True)


if __name__ == "__main__":
    main()
