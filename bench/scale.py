"""What a cluster with very many topics costs: ``python bench/scale.py [grow] [load]``.

* ``grow``: 32 callers create topics over HTTP, spread over 1,000 namespaces, up to each number of
  ``--topics``. At each: the rate, lookups, listing, a change of a policy, the start of a broker,
  memory, nodes and watches, and what each process uses while nothing happens.
* ``load``: a client holds a producer on each of ``--loaded`` topics, all of one broker. That
  broker is killed with SIGKILL; how long until the first and the last producer has a message
  stored by the other broker, and what a loaded topic takes in a broker's memory.

``--metadata zookeeper`` takes the real ZooKeeper, ``embedded`` the daemon of this project.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import pulsarish.asyncio
from bench.measure import cpu_by_role, cpu_seconds, percentile, pids_of, rss_bytes, running_cluster
from bench.topics import ask_many
from pulsarish.admin import Admin
from pulsarish.local_cluster.processes import Cluster

NAMESPACES = 1000
CALLERS = 32
LOOKUPS = 2000
LOOKUP_CALLERS = 4
LISTS = 20
CHANGES = 5
STARTS = 3
IDLE_SECONDS = 20.0
SETTLE_SECONDS = 10.0
OPEN_AT_ONCE = 64
FAILOVER_SECONDS_MAX = 300.0


def _namespace(number: int) -> str:
    return f"public/n{number % NAMESPACES:04}"


def _ask(cluster: Cluster, requests: list[tuple[str, str]], callers: int) -> list[float]:
    netloc = urllib.parse.urlparse(cluster.service_urls()["http"].split(",")[0]).netloc
    return asyncio.run(ask_many(netloc, requests, callers))


def _gauge(cluster: Cluster, name: str) -> float:
    """The value of a metric of the metadata daemon; NaN of the real ZooKeeper, which is not a
    node of the cluster.
    """
    node = next((each for each in cluster.nodes() if each.role == "metadata"), None)
    if node is None:
        return float("nan")
    url = f"http://127.0.0.1:{node.ports['http']}/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    return float("nan")


def _memory(cluster: Cluster) -> dict[str, float]:
    """Megabytes of the processes of each role."""
    found: dict[str, float] = {}
    for node in cluster.nodes():
        if (pid := cluster.pid(node.name)) is not None:
            found[node.role] = found.get(node.role, 0.0) + rss_bytes(pid) / 1e6
    return found


def _start_seconds(cluster: Cluster, topic: str) -> float:
    """How long a broker that is killed and started takes until it answers a lookup."""
    cluster.kill("broker-1")
    began = time.perf_counter()
    cluster.start(cluster.node("broker-1"))
    cluster.wait_ready([cluster.node("broker-1")])
    _ask(cluster, [("GET", f"/lookup/v2/topic/{topic}")], 1)
    return time.perf_counter() - began


def _table(values: dict[str, float], digits: int) -> str:
    return ", ".join(f"{role} {value:.{digits}f}" for role, value in values.items())


def _milliseconds(took: list[float], percent: float) -> float:
    return percentile(took, percent) * 1000


def _change_policies(cluster: Cluster, ttl: int) -> list[float]:
    admin = Admin(cluster.service_urls()["http"])
    took = []
    for number in range(CHANGES):
        began = time.perf_counter()
        admin.namespaces.set_policy(_namespace(number * 7), "ttl", ttl)
        took.append(time.perf_counter() - began)
    return took


def _idle_percent(cluster: Cluster) -> dict[str, float]:
    """CPU of each role while nothing happens, in percent of a core."""
    time.sleep(SETTLE_SECONDS)
    before = cpu_by_role(cluster)
    time.sleep(IDLE_SECONDS)
    return {
        role: (used - before[role]) / IDLE_SECONDS * 100
        for role, used in cpu_by_role(cluster).items()
    }


def grow(numbers: list[int], metadata: str) -> None:
    with running_cluster(bookies=1, metadata=metadata) as cluster:
        began = time.perf_counter()
        _ask(
            cluster,
            [("PUT", f"/admin/v2/namespaces/{_namespace(each)}") for each in range(NAMESPACES)],
            CALLERS,
        )
        rate = NAMESPACES / (time.perf_counter() - began)
        empty, nodes = _memory(cluster), _gauge(cluster, "zk_znode_count")
        print(f"{NAMESPACES} namespaces: {rate:,.0f}/s, MB: {_table(empty, 0)}", flush=True)
        done, rng = 0, random.Random(1)
        for count in numbers:
            topics = [f"persistent/{_namespace(each)}/t{each}" for each in range(count)]
            began = time.perf_counter()
            took = _ask(cluster, [("PUT", f"/admin/v2/{each}") for each in topics[done:]], CALLERS)
            rate = (count - done) / (time.perf_counter() - began)
            done, full = count, _memory(cluster)
            lookups = _ask(
                cluster,
                [("GET", f"/lookup/v2/topic/{rng.choice(topics)}") for _ in range(LOOKUPS)],
                LOOKUP_CALLERS,
            )
            lists = _ask(
                cluster,
                [
                    ("GET", f"/admin/v2/persistent/{_namespace(each * 37)}?limit=1000")
                    for each in range(LISTS)
                ],
                1,
            )
            policies = _change_policies(cluster, 3600 + count)
            starts = [_start_seconds(cluster, rng.choice(topics)) for _ in range(STARTS)]
            idle = _idle_percent(cluster)
            per_topic = {role: (full[role] - empty[role]) * 1000 / count for role in full}
            print(
                f"{count} topics: {rate:,.0f}/s created (p99 {_milliseconds(took, 99):.0f} ms), "
                f"lookup p50 {_milliseconds(lookups, 50):.2f} p99 "
                f"{_milliseconds(lookups, 99):.2f} ms, list of a namespace "
                f"{_milliseconds(lists, 50):.1f} ms, policy change "
                f"{_milliseconds(policies, 50):.1f} ms, broker start "
                f"{percentile(starts, 50):.2f} s; KB a topic: {_table(per_topic, 2)}; nodes a "
                f"topic {(_gauge(cluster, 'zk_znode_count') - nodes) / count:.2f}, watches "
                f"{_gauge(cluster, 'zk_watch_count'):.0f}; idle % of a core: {_table(idle, 2)}",
                flush=True,
            )


async def hold_producers(url: str, count: int) -> None:
    """Open a producer on each topic and send one message with each; then, when told, send again
    until each has a message stored, and print the seconds of the first and of the last.
    """
    client = pulsarish.asyncio.Client(url)
    numbers = iter(range(count))
    producers = []

    async def opens() -> None:
        for number in numbers:
            producer = await client.create_producer(f"persistent://public/default/held-{number}")
            await producer.send(b"x" * 100)
            producers.append(producer)

    began = time.perf_counter()
    await asyncio.gather(*(opens() for _ in range(OPEN_AT_ONCE)))
    print(f"{count / (time.perf_counter() - began):.1f}", flush=True)
    line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    killed_at = float(line)
    stored: list[float] = []

    async def sends(producer: pulsarish.asyncio.Producer) -> None:
        while True:
            try:
                await producer.send(b"y" * 100)
            except pulsarish.PulsarishError:
                await asyncio.sleep(0.2)
            else:
                stored.append(time.time() - killed_at)
                return

    async with asyncio.timeout(FAILOVER_SECONDS_MAX):
        await asyncio.gather(*(sends(producer) for producer in producers))
    print(f"{min(stored):.2f} {percentile(stored, 50):.2f} {max(stored):.2f}", flush=True)
    _ = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    os._exit(0)  # closing each producer is not measured


def load(count: int, metadata: str) -> None:
    with running_cluster(
        bookies=3, brokers=2, metadata=metadata, broker=["load_balancer_enabled=false"]
    ) as cluster:
        # All bundles at broker-2: the other one is stopped while they are acquired.
        cluster.kill("broker-1")
        pid = cluster.pid("broker-2")
        assert pid is not None
        empty = rss_bytes(pid)
        command = [sys.executable, "-m", "bench.scale", "--hold"]
        client = subprocess.Popen(
            [*command, cluster.service_urls()["pulsarish"], str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdin is not None
        assert client.stdout is not None
        try:
            opened = float(client.stdout.readline())
            memory = (rss_bytes(pid) - empty) / count / 1000
            cluster.start(cluster.node("broker-1"))
            cluster.wait_ready([cluster.node("broker-1")])
            time.sleep(SETTLE_SECONDS)
            assert cluster.pid("broker-2") in pids_of(cluster)
            used = cpu_by_role(cluster) | {"client": cpu_seconds([client.pid])}
            used["broker"] -= cpu_seconds([pid])
            os.kill(pid, signal.SIGKILL)
            client.stdin.write(f"{time.time()}\n")
            client.stdin.flush()
            first, middle, last = map(float, client.stdout.readline().split())
            after = cpu_by_role(cluster) | {"client": cpu_seconds([client.pid])}
        finally:
            client.kill()
            client.wait()
        print(
            f"{count} loaded topics: opened {opened:,.0f}/s, {memory:.1f} KB of broker memory "
            f"each; their broker killed: first back after {first:.2f} s, half {middle:.2f} s, "
            f"all {last:.2f} s   (wanted: 10 KB, 1 s, 30 s); CPU ms a topic: "
            f"{_table({role: (after[role] - used[role]) / count * 1e3 for role in after}, 2)}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", choices=["grow", "load", []], help="both without")
    parser.add_argument("--topics", nargs="+", type=int, default=[10_000, 50_000, 100_000])
    parser.add_argument("--loaded", type=int, default=20_000)
    parser.add_argument("--metadata", choices=["embedded", "zookeeper"], default="embedded")
    parser.add_argument("--hold", nargs=2, metavar=("URL", "COUNT"), help="be the client of load")
    arguments = parser.parse_args()
    if arguments.hold:
        url, count = arguments.hold
        asyncio.run(hold_producers(url, int(count)))
        return
    if "grow" in arguments.cases or not arguments.cases:
        grow(arguments.topics, arguments.metadata)
    if "load" in arguments.cases or not arguments.cases:
        load(arguments.loaded, arguments.metadata)


if __name__ == "__main__":
    main()
