"""What ``tracing_endpoint`` costs a broker: ``python -m bench.tracing``.

Two clusters with one broker and one bookie each run side by side; the broker of one sends spans to
a collector in this process. In each of ``--rounds`` rounds ``--messages`` messages of 1 KB are
published in batches to a new topic of either one, first without trace contexts and then with one
in each message, of which ``--share`` are sampled, and consumed and acknowledged after that. Printed
are the medians, with the least and greatest, of the CPU time of the broker for each message, and
the median of the ratios within a round.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pulsarish
from bench.measure import running_cluster
from pulsarish.local_cluster.processes import Cluster

SIZE_BYTES = 1_024
SETTLE_SECONDS = 0.5
CASES = ("no context", "sampled")


@contextmanager
def collector() -> Iterator[str]:
    """The URL of a collector that takes what comes."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/traces"
        server.shutdown()


def process_seconds(pid: int) -> float:
    """CPU time of a process so far: finer than the ticks of /proc/PID/stat."""
    return time.clock_gettime(~pid << 3 | 2)


class Bench:
    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._random = random.Random(1)
        self._content = self._random.randbytes(SIZE_BYTES)
        self._topics = 0

    def measure(self, cluster: Cluster, case: str) -> tuple[float, float]:
        """CPU microseconds of the broker for each message: published, and consumed."""
        given, pid = self._given, cluster.pid("broker-1")
        assert pid is not None
        self._topics += 1
        topic = f"persistent://public/default/t{self._topics}"
        with pulsarish.Client(cluster.service_urls()["pulsarish"]) as client:
            # The subscription keeps the messages until they are consumed.
            client.subscribe(topic, "s", pulsarish.ConsumerType.Shared).close()
            producer = client.create_producer(
                topic,
                batching_enabled=True,
                block_if_queue_full=True,
                compression_type=pulsarish.CompressionType[given.compression],
            )
            before = process_seconds(pid)
            for _ in range(given.messages):
                producer.send_async(self._content, None, properties=self._properties(case))
            producer.flush()
            time.sleep(SETTLE_SECONDS)
            published = process_seconds(pid) - before
            before = process_seconds(pid)
            consumer = client.subscribe(topic, "s", pulsarish.ConsumerType.Shared)
            for _ in range(given.messages):
                consumer.acknowledge(consumer.receive(timeout_millis=60_000))
            time.sleep(SETTLE_SECONDS)
            consumed = process_seconds(pid) - before
        return published / given.messages * 1e6, consumed / given.messages * 1e6

    def _properties(self, case: str) -> dict[str, str] | None:
        if case == "no context":
            return None
        trace, span = self._random.getrandbits(127) + 1, self._random.getrandbits(63) + 1
        is_sampled = self._random.random() < self._given.share
        return {"traceparent": f"00-{trace:032x}-{span:016x}-0{int(is_sampled)}"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.tracing")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--share", type=float, default=0.01, help="of the messages")
    parser.add_argument("--case", choices=CASES, action="append", help="only this one; repeatable")
    parser.add_argument("--compression", default="NONE", help="NONE, LZ4, ZLib, ZSTD or SNAPPY")
    given = parser.parse_args()
    bench = Bench(given)
    found: dict[tuple[str, str, str], list[float]] = {}
    with (
        collector() as url,
        running_cluster(bookies=1) as plain,
        running_cluster(bookies=1, broker=[f"tracing_endpoint={url}"]) as traced,
    ):
        clusters = {"unset": plain, "set": traced}
        for round_number in range(-1, given.rounds):  # the first one warms up
            for case in given.case or CASES:
                for name, cluster in list(clusters.items())[:: 1 if round_number % 2 else -1]:
                    published, consumed = bench.measure(cluster, case)
                    if round_number >= 0:
                        found.setdefault((case, "published", name), []).append(published)
                        found.setdefault((case, "consumed", name), []).append(consumed)
                    print(
                        f"{case}, {name}: {published:.2f} {consumed:.2f}",
                        file=sys.stderr,
                        flush=True,
                    )
    for case in given.case or CASES:
        for what in ("published", "consumed"):
            unset, traced_us = (found[case, what, name] for name in ("unset", "set"))
            ratio = statistics.median(b / a for a, b in zip(unset, traced_us, strict=True))
            print(
                f"{case}, {what}: unset {_spread(unset)}, set {_spread(traced_us)} us a message, "
                f"x{ratio:.2f}"
            )


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
