"""The ways from a client to the bookies beside each other, in turn on one machine:

    python -m bench.transports [--rounds 5] [--row NAME]... [--side NAME]...
                               [--against CHECKOUT]

Each side is a process of its own with a cluster of three bookies and one broker: ``grpc``,
``framed``, ``tls``, which is frames over TLS on every hop, or ``uncached``, which is frames and
bookies that take entries out of the page cache. ``--against`` adds, as the first side, an older
checkout with a ``.venv`` of its own, as it is by default. All run at the same time, and
only one is used at a time.

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
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pulsarish
from bench.client import drain, end_to_end, fill, one_at_a_time, publish
from bench.measure import cpu_by_role, running_cluster
from pulsarish.local_cluster.ports import free_ports

SIDES = ("grpc", "framed", "tls", "uncached")
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


def _tls_settings(directory: Path, ports: list[int]) -> tuple[list[str], list[str], dict[str, str]]:
    """What a broker, a bookie and a client are given, so that every hop is over TLS."""
    from pulsarish.security.authority import Authority

    now_ms = time.time_ns() // 1_000_000
    authority = Authority.create("bench", now_ms=now_ms, days=1)
    issued = authority.issue("bench", now_ms=now_ms, days=1, hosts=("127.0.0.1",))
    trust, certificate, key = (directory / name for name in ("ca.pem", "bench.pem", "bench.key"))
    trust.write_bytes(authority.certificate)
    certificate.write_bytes(issued.certificate)
    key.write_bytes(issued.key.reveal())
    server = [
        f"tls_certificate_file_path={certificate}",
        f"tls_key_file_path={key}",
        f"tls_trust_certs_file_path={trust}",
    ]
    broker = [
        *server,
        f"listen_address_tls=127.0.0.1:{ports[0]}",
        f"framed_port_tls={ports[1]}",
    ]
    return broker, server, {"tls_trust_certs_file_path": str(trust)}


@contextmanager
def _side(name: str) -> Iterator[Callable[[str, int], dict[str, float]]]:
    """The function that measures a row on a cluster of one side."""
    broker_settings, bookie_settings, options, port = [], [], {}, 0
    with tempfile.TemporaryDirectory(prefix="pulsarish-bench-") as directory, ExitStack() as stack:
        if name in SIDES:
            transport = "grpc" if name == "grpc" else "framed"
            broker_settings = [f"ledger.transport={transport}"]
            options = {"transport": transport}
        if name == "uncached":
            bookie_settings = ["entry_log_remove_from_page_cache=true"]
        if name == "tls":
            free = free_ports("127.0.0.1")
            ports = [next(free), next(free)]
            free.close()
            port = ports[0]
            of_broker, bookie_settings, of_client = _tls_settings(Path(directory), ports)
            broker_settings += of_broker
            options |= of_client
        cluster = stack.enter_context(
            running_cluster(broker=broker_settings, bookie=bookie_settings)
        )
        node = next(node for node in cluster.nodes() if node.role == "broker")
        scheme = "pulsarish+ssl" if port else "pulsarish"
        url = f"{scheme}://127.0.0.1:{port or node.ports['grpc']}"

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
