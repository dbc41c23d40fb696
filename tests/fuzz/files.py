"""Damage to the files of a node that is down: it starts and serves what it has, or refuses and says
why; what was acknowledged stays.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pulsarish
from pulsarish.local_cluster.plan import plan_cluster
from pulsarish.local_cluster.processes import Cluster
from pulsarish.model.errors import PulsarishError
from tests.fuzz.canary import Defect

__all__ = ["fuzz_files"]

_TOPIC: Final = "persistent://public/default/canary"
_MESSAGES: Final = 300
_START_SECONDS: Final = 30.0
_LOCK_NAMES: Final = ("LOCK", "lock")


def fuzz_files(directory: Path, seed: int, seconds: float) -> str:
    """Damage a file of a bookie or of the metadata and start the node; if it refuses, put the file
    back. Raises ``Defect``.

    Returns:
        What was tried, and how often a node started or refused.
    """
    rng = random.Random(f"files:{seed}")
    ends = time.monotonic() + seconds
    outcomes = {"started": 0, "refused": 0}
    clusters = 0
    while time.monotonic() < ends:
        clusters += 1
        _fuzz_cluster(directory / f"cluster-{clusters}", rng, ends, outcomes)
    return (
        f"{sum(outcomes.values())} damaged files in {clusters} clusters: {outcomes['started']} "
        f"times the node started, {outcomes['refused']} times it refused and said why"
    )


def _fuzz_cluster(
    directory: Path, rng: random.Random, ends: float, outcomes: dict[str, int]
) -> None:
    """Damage files of one cluster until the end, or until a node no longer starts because of
    damage that it served with before.
    """
    cluster = Cluster(directory, ready_seconds=180.0)
    cluster.create(plan_cluster(bookies=3, brokers=1, metadata="embedded", base_port=0))
    served_damaged: set[str] = set()
    try:
        cluster.up()
        sent = _publish(cluster)
        while time.monotonic() < ends:
            name = rng.choice(("bookie-1", "metadata"))
            cluster.kill(name)
            kept, data = directory / "kept", directory / name / "data"
            shutil.copytree(data, kept)
            what = _damage(rng, data)
            if _starts(cluster, name, what):
                outcomes["started"] += 1
                served_damaged.add(name)
                _check_readable(cluster, sent, what)
                # the node has written since: its older files are not its own any more
                shutil.rmtree(kept)
                continue
            outcomes["refused"] += 1
            cluster.kill(name)
            shutil.rmtree(data)
            kept.rename(data)
            if not _starts(cluster, name, f"{what}, and put back"):
                if name in served_damaged:
                    return  # a table that was read only now, perhaps
                raise Defect(f"{what}, and put back: {name} does not start with its own files")
            _check_readable(cluster, sent, f"{what}, and put back")
    finally:
        for node in cluster.nodes():
            if cluster.pid(node.name) is not None:
                cluster.kill(node.name)


def _publish(cluster: Cluster) -> list[bytes]:
    client = _client(cluster)
    client.subscribe(_TOPIC, "keeps", initial_position=pulsarish.InitialPosition.Earliest).close()
    producer = client.create_producer(_TOPIC, batching_enabled=False)
    sent = [f"message {number}".encode() * (number % 50 + 1) for number in range(_MESSAGES)]
    for content in sent:
        producer.send_async(content, None)
    producer.flush()
    client.close()
    return sent


def _client(cluster: Cluster) -> pulsarish.Client:
    return pulsarish.Client(f"pulsarish://127.0.0.1:{cluster.node('broker-1').ports['grpc']}")


def _check_readable(cluster: Cluster, sent: list[bytes], what: str) -> None:
    client = _client(cluster)
    try:
        reader = client.create_reader(_TOPIC, pulsarish.MessageId.earliest)
        found = [reader.read_next(timeout_millis=60_000).data() for _ in sent]
    except PulsarishError as error:
        raise Defect(f"{what}: what was acknowledged cannot be read: {error}") from None
    finally:
        client.close()
    if found != sent:
        raise Defect(f"{what}: other messages are read than were acknowledged")


def _damage(rng: random.Random, data: Path) -> str:
    """Change one file that has something in it; returns what was done."""
    files = sorted(
        path
        for path in data.rglob("*")
        if path.is_file() and path.stat().st_size and path.name not in _LOCK_NAMES
    )
    path = rng.choice(files)
    content = bytearray(path.read_bytes())
    name, change = rng.choice(_CHANGES)
    change(rng, content)
    path.write_bytes(content)
    return f"{name} of {path.relative_to(data.parent)}"


def _flip(rng: random.Random, content: bytearray) -> None:
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _cut(rng: random.Random, content: bytearray) -> None:
    del content[rng.randrange(len(content)) :]


def _zero(rng: random.Random, content: bytearray) -> None:
    start = rng.randrange(len(content)) // 512 * 512
    end = min(start + 512, len(content))
    content[start:end] = bytes(end - start)


def _lengthen(rng: random.Random, content: bytearray) -> None:
    content += rng.randbytes(rng.choice((1, 512, 5_000)))


_CHANGES: Final[list[tuple[str, Callable[[random.Random, bytearray], None]]]] = [
    ("a flipped bit", _flip),
    ("a lost end", _cut),
    ("a sector of zeros", _zero),
    ("bytes behind the end", _lengthen),
]


def _starts(cluster: Cluster, name: str, what: str) -> bool:
    """Whether the node serves; False when it ended and said why.

    Raises ``Defect`` when it does neither in time, or with a traceback.
    """
    before = cluster.log_path(name).stat().st_size
    cluster.start(cluster.node(name))
    ends = time.monotonic() + _START_SECONDS
    while cluster.pid(name) is not None and cluster.state(cluster.node(name)).health != "ok":
        if time.monotonic() > ends:
            state = cluster.state(cluster.node(name))
            if state.health == "unhealthy":
                return False  # it runs and says why it does not serve
            raise Defect(f"{what}: {name} neither serves nor ends: {_since(cluster, name, before)}")
        time.sleep(0.05)
    said = _since(cluster, name, before)
    if "Traceback" in said:
        raise Defect(f"{what}: {name} met an error that it does not foresee: {said}")
    return cluster.pid(name) is not None


def _since(cluster: Cluster, name: str, before: int) -> str:
    with cluster.log_path(name).open("rb") as log:
        log.seek(before)
        return log.read().decode(errors="replace")[-4_000:]
