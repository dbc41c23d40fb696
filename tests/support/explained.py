"""A cluster of real processes that is asked on the command line why something does not move."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsarish
from pulsarish import ConsumerType, InitialPosition
from pulsarish.admin import Admin
from pulsarish.local_cluster.plan import plan_cluster
from pulsarish.local_cluster.processes import Cluster
from tests.support.commands import run_command
from tests.support.until import until

__all__ = ["Asked", "Report", "running"]

# Small limits bring about in a moment what takes many messages by default.
_BROKER = [
    "managed_ledger_cache_size_bytes=0",
    "managed_ledger.max_unacked_ranges_to_persist=3",
    "managed_ledger.append_hold_ms=3000",
    "active_consumer_failover_delay_time_millis=5000",
    "delayed_delivery_max_entries_per_subscription=5",
    "key_shared_look_ahead_msg_in_replay_threshold_per_consumer=4",
    "max_delivery_bytes_per_connection=1048576",
    "metadata_session_timeout_ms=40000",
    "managed_ledger_maintenance_interval_seconds=1",
]

Report = dict[str, Any]


@contextmanager
def running(
    directory: Path, *, bookies: int = 3, settings: Sequence[str] = ()
) -> Iterator[Cluster]:
    cluster = Cluster(directory)
    nodes = plan_cluster(bookies=bookies, brokers=1, metadata="embedded", base_port=0)
    for node in nodes:
        if node.role == "broker":
            node.settings.extend([*_BROKER, *settings])
    cluster.create(nodes)
    try:
        cluster.up()
        yield cluster
    finally:
        for node in cluster.nodes():
            if cluster.pid(node.name) is not None:
                cluster.send_signal(node.name, signal.SIGCONT)
                cluster.kill(node.name)


class Asked:
    """Asks a cluster on the command line."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.environment = {"PULSARISH_ADMIN_URL": cluster.admin_url()}
        self.admin = Admin(cluster.admin_url())
        self.client = pulsarish.Client(
            cluster.service_urls()["pulsarish"], operation_timeout_seconds=30
        )

    def run(self, *arguments: str) -> str:
        done = run_command(self.environment, *arguments)
        assert done.exit_code == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    def until(self, read: Callable[[], Report], *reasons: str, parts: Sequence[str] = ()) -> Report:
        """Return what is explained once it has one of these reasons, and its sentence these
        parts.
        """
        seen: dict[str, None] = {}
        found: Report = {}

        def has_reason() -> bool:
            found.clear()
            found.update(read())
            seen[f"{found['state']} {found['reason']}: {found['explanation']}"] = None
            return found["reason"] in reasons and all(
                part in found["explanation"] for part in parts
            )

        until(lambda: f"{reasons} with {parts}, but {list(seen)}", has_reason)
        return found

    def until_subscribed(self, topic: str, name: str = "s") -> None:
        """A consumer of this subscription is connected and takes what comes."""
        self.until(
            lambda: self.admin.topics.explain(topic)["subscriptions"].get(
                name, {"state": "", "explanation": "", "reason": None}
            ),
            "",
        )

    def subscription(self, topic: str, reason: str, *parts: str, name: str = "s") -> Report:
        """``parts`` stand in the sentence, which people are shown with its command."""
        found = self.until(
            lambda: json.loads(self.run("subscriptions", "explain", topic, name, "-o", "json")),
            reason,
            parts=parts,
        )
        shown = self.run("subscriptions", "explain", topic, name)
        assert "waiting" in shown.splitlines()[0], shown
        assert f"  see: {found['help']}" in shown
        done = run_command(self.environment, *found["help"].split()[1:])
        assert done.exit_code == 0, f"{found['help']}: {done.stderr}"
        return found

    def publishing(self, topic: str, *reasons: str) -> Report:
        found = self.until(
            lambda: json.loads(self.run("topics", "explain", topic, "-o", "json")), *reasons
        )
        assert found["explanation"].endswith(".")
        return found

    def publish(self, topic: str, count: int, size: int = 10, **options: Any) -> None:
        producer = self.client.create_producer(topic, batching_enabled=False)
        for number in range(count):
            producer.send(b"%0*d" % (size, number), **options)
        producer.close()

    def subscribe(
        self,
        topic: str,
        *,
        name: str = "s",
        queue: int = 1000,
        kind: Any = ConsumerType.Exclusive,
        **options: Any,
    ) -> Any:
        return self.client.subscribe(
            topic,
            name,
            consumer_type=kind,
            receiver_queue_size=queue,
            initial_position=InitialPosition.Earliest,
            **options,
        )
