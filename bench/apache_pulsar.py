"""Apache Pulsar itself beside this system, in turn on one machine, with Apache Pulsar's official
Python client:

    mvn dependency:copy -Dartifact=org.apache.pulsar:pulsar-server-distribution:4.0.8:tar.gz:bin \
        -DoutputDirectory=DIR
    tar xzf DIR/pulsar-server-distribution-4.0.8-bin.tar.gz -C DIR
    python -m bench.apache_pulsar DIR/apache-pulsar-4.0.8 [--rounds 5] [--row NAME]...

Each has a metadata service, three bookies that sync their journals, and one broker; three copies
of each entry, of which two must be stored. Both run all the time, and only one is used at a time.
Prints for each row the medians and the median ratio of the rounds, and the CPU that the servers
used for a message. Needs Java 17 or later.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.measure import cpu_seconds, percentile, pids_of, running_cluster
from bench.official import drain, end_to_end, publish, single
from pulsarish.local_cluster.ports import free_ports

_HOST = "127.0.0.1"
_START_SECONDS = 120.0
_PORTS = 10
_MEMORY = "-Xms256m -Xmx768m -XX:MaxDirectMemorySize=768m"


@dataclass(frozen=True)
class Served:
    """A cluster: its address for the binary protocol, and the processes of its servers."""

    url: str
    pids: list[int]


@contextmanager
def running_pulsar(home: Path) -> Iterator[Served]:
    """Run a cluster of Apache Pulsar from its unpacked distribution; its data is removed at the
    end.
    """
    with closing(free_ports(_HOST)) as free:
        ports = iter([next(free) for _ in range(_PORTS)])
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="pulsar-bench-") as directory:
        base = Path(directory)

        def start(name: str, command: list[str], environment: Mapping[str, str], port: int) -> None:
            with (base / f"{name}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        [str(home / "bin" / "pulsar"), *command],
                        env={**os.environ, "PULSAR_MEM": _MEMORY, **environment},
                        cwd=base,
                        stdout=log,
                        stderr=log,
                    )
                )
            _wait_for(name, port, processes[-1], base / f"{name}.log")

        try:
            zookeeper, web, binary = next(ports), next(ports), next(ports)
            start(
                "zookeeper",
                ["zookeeper"],
                {
                    "PULSAR_ZK_CONF": _conf(
                        home / "conf/zookeeper.conf",
                        base / "zookeeper.conf",
                        {
                            "clientPort": zookeeper,
                            "dataDir": base / "zookeeper",
                            "admin.enableServer": "false",
                            "metricsProvider.httpPort": next(ports),
                        },
                    )
                },
                zookeeper,
            )
            store = f"zk:{_HOST}:{zookeeper}"
            made = subprocess.run(
                [
                    *(str(home / "bin" / "pulsar"), "initialize-cluster-metadata"),
                    *("--cluster", "bench", "--metadata-store", store),
                    *("--configuration-metadata-store", store),
                    *("--web-service-url", f"http://{_HOST}:{web}"),
                    *("--broker-service-url", f"pulsar://{_HOST}:{binary}"),
                ],
                env={**os.environ, "PULSAR_MEM": _MEMORY},
                cwd=base,
                capture_output=True,
                check=False,
            )
            if made.returncode:
                raise RuntimeError(made.stderr.decode(errors="replace")[-2_000:])
            for number in range(3):
                port = next(ports)
                conf = {
                    "bookiePort": port,
                    "advertisedAddress": _HOST,
                    "allowLoopback": "true",
                    "httpServerEnabled": "false",
                    "prometheusStatsHttpPort": next(ports),
                    "journalDirectories": base / f"journal{number}",
                    "ledgerDirectories": base / f"ledgers{number}",
                    "metadataServiceUri": f"zk://{_HOST}:{zookeeper}/ledgers",
                    "zkServers": f"{_HOST}:{zookeeper}",
                }
                path = _conf(home / "conf/bookkeeper.conf", base / f"bookie{number}.conf", conf)
                start(f"bookie{number}", ["bookie"], {"PULSAR_BOOKKEEPER_CONF": path}, port)
            conf = {
                "metadataStoreUrl": store,
                "configurationMetadataStoreUrl": store,
                "clusterName": "bench",
                "brokerServicePort": binary,
                "webServicePort": web,
                "advertisedAddress": _HOST,
                "managedLedgerDefaultEnsembleSize": 3,
                "managedLedgerDefaultWriteQuorum": 3,
                "managedLedgerDefaultAckQuorum": 2,
            }
            path = _conf(home / "conf/broker.conf", base / "broker.conf", conf)
            start("broker", ["broker"], {"PULSAR_BROKER_CONF": path}, binary)
            yield Served(f"pulsar://{_HOST}:{binary}", [process.pid for process in processes])
        finally:
            for process in processes:
                process.kill()
                process.wait()


def _conf(source: Path, target: Path, values: Mapping[str, object]) -> str:
    """Write a configuration with these values in place of those of ``source``."""
    kept = [
        line
        for line in source.read_text().splitlines()
        if line.partition("=")[0].strip() not in values
    ]
    target.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in values.items()), ""]))
    return str(target)


def _wait_for(name: str, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((_HOST, port), 1):
            return
        time.sleep(0.2)
    raise RuntimeError(f"{name} of Apache Pulsar does not listen: {log.read_text()[-2_000:]}")


def _median_and_p99(times: list[float]) -> dict[str, float]:
    return {"p50 ms": percentile(times, 50), "p99 ms": percentile(times, 99)}


def _drained(served: Served, topic: str, count: int) -> dict[str, float]:
    publish(served.url, topic, count - 2_000, batching=False)
    before = cpu_seconds(served.pids)
    rate = drain(served.url, topic, count)
    return {"rate": rate, "server us": (cpu_seconds(served.pids) - before) / count * 1e6}


def _counted(served: Served, count: int, work: Callable[[], dict[str, float]]) -> dict[str, float]:
    before = cpu_seconds(served.pids)
    found = work()
    return {**found, "server us": (cpu_seconds(served.pids) - before) / count * 1e6}


ROWS: dict[str, Callable[[Served, str], dict[str, float]]] = {
    "1 KB, one at a time": lambda served, topic: _counted(
        served, 2_000, lambda: _median_and_p99(single(served.url, topic, 2_000))
    ),
    "1 KB unbatched": lambda served, topic: _counted(
        served, 62_000, lambda: {"rate": publish(served.url, topic, 60_000, batching=False)}
    ),
    "1 KB batched": lambda served, topic: _counted(
        served, 152_000, lambda: {"rate": publish(served.url, topic, 150_000, batching=True)}
    ),
    "drain, each an entry": lambda served, topic: _drained(served, topic, 60_000),
    "end to end at 1,000/s": lambda served, topic: _counted(
        served, 6_000, lambda: _median_and_p99(end_to_end(served.url, topic, 6))
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("home", type=Path, help="the unpacked distribution of Apache Pulsar")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--row", action="append", choices=list(ROWS))
    arguments = parser.parse_args()
    with running_pulsar(arguments.home.resolve()) as pulsar, running_cluster() as cluster:
        ours = Served(cluster.service_urls()["pulsar"], pids_of(cluster))
        for name in ROWS:  # a JVM is slow until it is warm
            ROWS[name](pulsar, f"warm-{name.replace(' ', '-').replace('/', '-').replace(',', '')}")
        for name in arguments.row or ROWS:
            rounds = []
            for number in range(arguments.rounds):
                topic = f"row-{list(ROWS).index(name)}-{number}"
                rounds.append((ROWS[name](pulsar, topic), ROWS[name](ours, topic)))
            cells = []
            for key in rounds[0][0]:
                medians = [statistics.median(each[side][key] for each in rounds) for side in (0, 1)]
                ratio = statistics.median(each[1][key] / each[0][key] for each in rounds)
                cells.append(f"{key} {medians[0]:,.4g} / {medians[1]:,.4g} x{ratio:.2f}")
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
