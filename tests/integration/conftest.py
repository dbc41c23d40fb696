"""Clusters of real processes for the tests: on loopback, on free ports, under a temporary
directory, stopped at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pulsarish.local_cluster.plan import plan_cluster
from pulsarish.local_cluster.processes import Cluster, reap_children

StartCluster = Callable[..., Cluster]


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[StartCluster]:
    """``start_cluster(bookies=3, brokers=2, settings={"broker": [...]})``, and what else
    ``plan_cluster`` takes; every process of it is gone when the test ends.
    """
    started: list[Cluster] = []

    def start(
        *,
        bookies: int = 3,
        brokers: int = 2,
        settings: dict[str, list[str]] | None = None,
        **plan: Any,
    ) -> Cluster:
        cluster = Cluster(tmp_path / f"cluster-{len(started)}")
        started.append(cluster)
        nodes = plan_cluster(
            bookies=bookies, brokers=brokers, metadata="embedded", base_port=0, **plan
        )
        for node in nodes:
            node.settings += (settings or {}).get(node.role, [])
        cluster.create(nodes)
        cluster.up()
        return cluster

    yield start
    for cluster in started:
        for node in cluster.nodes():
            if cluster.pid(node.name) is not None:
                cluster.kill(node.name)
    reap_children()
