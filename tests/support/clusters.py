"""A cluster of real processes for a whole module of tests: on loopback, on free ports, gone at the
end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pulsarish.local_cluster.locked import lock_cluster
from pulsarish.local_cluster.plan import NodePlan, plan_cluster
from pulsarish.local_cluster.processes import Cluster

__all__ = ["running_cluster"]


@contextmanager
def running_cluster(
    directory: Path,
    *,
    bookies: int,
    brokers: int,
    locked: bool = False,
    balanced: bool = True,
    prepare: Callable[[list[NodePlan]], None] = lambda plan: None,
) -> Iterator[Cluster]:
    """Run a cluster until the end of the block.

    Args:
        balanced: whether topics may move while all brokers run. Streams that move end, and clients
            log warnings.
        prepare: may add settings to the plan, which win over those before them.
    """
    cluster = Cluster(directory)
    plan = plan_cluster(bookies=bookies, brokers=brokers, metadata="embedded", base_port=0)
    if locked:
        lock_cluster(cluster, plan)
    for node in plan:
        if node.role == "broker" and not balanced:
            node.settings.append("load_balancer_enabled=false")
    prepare(plan)
    cluster.create(plan)
    try:
        cluster.up()
        yield cluster
    finally:
        for node in cluster.nodes():
            if cluster.pid(node.name) is not None:
                cluster.kill(node.name)
