"""Frames against gRPC from client to bookies, in turn on one machine:

    python -m bench.transports [--rounds 5] [--row NAME]...

Two clusters of three bookies and one broker run at the same time, one for each transport, and only
one is used at a time. Prints for each row the medians and the median ratio of the rounds: rate or
p50, and CPU in microseconds a message of bookies, broker and this client. With ``--between
bookies`` the client uses gRPC in both.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import pulsarish
from bench.client import drain, end_to_end, fill, one_at_a_time, publish
from bench.measure import cpu_by_role, running_cluster
from pulsarish.local_cluster.processes import Cluster
from pulsarish.runtime.network.address_book import Transport

TRANSPORTS: tuple[Transport, ...] = ("grpc", "framed")
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


def _measure(cluster: Cluster, row: str, number: int, transport: Transport) -> dict[str, float]:
    count, run = ROWS[row]
    broker = next(node for node in cluster.nodes() if node.role == "broker")
    before, own = cpu_by_role(cluster), time.process_time()
    url = f"pulsarish://127.0.0.1:{broker.ports['grpc']}"
    with pulsarish.Client(url, transport=transport) as client:
        found = run(client, f"persistent://public/default/{row.replace(' ', '-')}-{number}")
    own = time.process_time() - own
    after = cpu_by_role(cluster)
    return {
        "value": found["p50_ms"] if "p50_ms" in found else found["rate"],
        "bookies": (after["bookie"] - before["bookie"]) / count * 1e6,
        "broker": (after["broker"] - before["broker"]) / count * 1e6,
        "client": own / count * 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--row", action="append", choices=list(ROWS))
    parser.add_argument("--between", choices=("all", "bookies"), default="all")
    arguments = parser.parse_args()
    with (
        running_cluster(broker=["ledger.transport=grpc"]) as grpc,
        running_cluster(broker=["ledger.transport=framed"]) as framed,
    ):
        clusters = dict(zip(TRANSPORTS, (grpc, framed), strict=True))
        of_client = {name: name if arguments.between == "all" else "grpc" for name in TRANSPORTS}
        for row in arguments.row or ROWS:
            rounds = [
                {
                    name: _measure(cluster, row, number, of_client[name])
                    for name, cluster in clusters.items()
                }
                for number in range(arguments.rounds)
            ]
            cells = []
            for key in ("value", "bookies", "broker", "client"):
                medians = [
                    statistics.median(each[name][key] for each in rounds) for name in TRANSPORTS
                ]
                ratio = statistics.median(
                    each["framed"][key] / each["grpc"][key] for each in rounds
                )
                cells.append(f"{medians[0]:,.4g} / {medians[1]:,.4g} x{ratio:.2f}")
            print(f"| {row} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
