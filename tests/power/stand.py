"""A small cluster of real processes, bookies of which are killed or meet failing calls, and what
was acknowledged to its producers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pulsarish
from pulsarish.admin import Admin
from pulsarish.chaos.power_cuts import ForgetfulDisk
from pulsarish.chaos.stage import VoidRun
from pulsarish.local_cluster.plan import NodePlan, plan_cluster
from pulsarish.local_cluster.processes import Cluster, reap_children
from tests.power.hook import Hook, left_out
from tests.support.commands import run_command
from tests.support.until import until

__all__ = ["Stand", "standing"]

_BOOKIE: Final = (
    "journal_file_size_bytes=65536",
    "journal_prepare_slice_bytes=16384",
    "write_cache_size_bytes=65536",
    "entry_log_size_bytes=100000",
    "checkpoint_spread=0",
    "checkpoint_interval_seconds=3600",
    "read_cache_size_bytes=0",
    "gc_interval_seconds=3600",
    "gc_second_look_seconds=0",
    "trash_grace_seconds=0",
    "read_only_free_bytes=8388608",
    "reserved_bytes=4194304",
    "local_scrub_interval_seconds=0",
    "metadata_session_timeout_ms=30000",
    "auto_recovery.rw_rereplicate_backoff_ms=500",
)
_BROKER: Final = (
    "managed_ledger_cache_size_bytes=0",
    "managed_ledger_read_cache_size_bytes=0",
    "broker_deduplication_enabled=true",
    "metadata_session_timeout_ms=30000",
)
_PAYLOAD_BYTES: Final = 1_000


class Stand:
    """The cluster, and the messages of each topic that were acknowledged.

    ``directory`` is that of the cluster; each bookie has a hook.
    """

    def __init__(
        self, directory: Path, bookies: int, settings: dict[str, list[str]], *, forgetful: bool
    ) -> None:
        self.cluster = Cluster(directory, ready_seconds=90.0)
        plan = plan_cluster(bookies=bookies, brokers=1, metadata="embedded", base_port=0)
        for node in plan:
            node.settings += {"bookie": _BOOKIE, "broker": _BROKER}.get(node.role, ())
            node.settings += settings.get(node.role, [])
        self.cluster.create(plan)
        self.bookies = [node.name for node in plan if node.role == "bookie"]
        self.hooks = {
            name: Hook(directory / f"{name}.faults", self.home(name))
            for name in [*self.bookies, "metadata"]
        }
        self.disks: dict[str, ForgetfulDisk] = {}
        self._forgetful = forgetful
        self.acked: dict[str, list[int]] = {}
        self._client: pulsarish.Client | None = None

    def home(self, name: str) -> Path:
        return self.cluster.directory / name / "data"

    @property
    def admin(self) -> Admin:
        return Admin(self.cluster.admin_url())

    @property
    def client(self) -> pulsarish.Client:
        if self._client is None:
            self._client = pulsarish.Client(
                self.cluster.service_urls()["pulsarish"], operation_timeout_seconds=60
            )
        return self._client

    def up(self) -> None:
        if self._forgetful:
            for name in self.bookies:
                try:
                    self.disks[name] = ForgetfulDisk(self.home(name))
                except VoidRun as void:
                    left_out(str(void))
        for name in ("metadata", *self.bookies, "broker-1"):
            self.start(name, wait=name == "metadata")
        self.cluster.wait_ready(self.cluster.nodes())
        self.admin.namespaces.set_policy(
            "public/default", "retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        )

    def down(self) -> None:
        if self._client is not None:
            self._client.close()
        for node in self.cluster.nodes():
            if self.cluster.pid(node.name) is not None:
                self.cluster.kill(node.name)
        for disk in self.disks.values():
            disk.close()
        reap_children()

    # -- processes

    def start(self, name: str, *, wait: bool = True) -> None:
        """Start a node with its hook."""
        if name in self.hooks:
            with self.hooks[name].preloaded():
                self.cluster.start(self.cluster.node(name))
        else:
            self.cluster.start(self.cluster.node(name))
        if wait:
            self.cluster.wait_ready([self.cluster.node(name)])

    def start_with(self, name: str, setting: str) -> None:
        """Start a node once with one more option."""

        def change(nodes: list[NodePlan]) -> list[NodePlan]:
            for node in nodes:
                if node.name == name:
                    (node.settings.remove if setting in node.settings else node.settings.append)(
                        setting
                    )
            return nodes

        self.cluster.change(change)
        self.start(name)
        self.cluster.change(change)

    def tries_to_start(self, name: str) -> str | None:
        """Start a node; ``None`` when it serves, what it said when it refused."""
        before = self.cluster.log_path(name).stat().st_size
        self.start(name, wait=False)
        node = self.cluster.node(name)
        until(
            f"{name} serves or ends",
            lambda: self.cluster.pid(name) is None or self.cluster.state(node).health == "ok",
        )
        if self.cluster.pid(name) is not None:
            return None
        said = self.said(name, before)
        assert "Traceback" not in said, said
        return said

    def said(self, name: str, since: int = 0) -> str:
        with self.cluster.log_path(name).open("rb") as log:
            log.seek(since)
            return log.read().decode(errors="replace")

    def wait_dead(self, name: str) -> None:
        until(f"{name} has ended", lambda: self.cluster.pid(name) is None)

    def cut_power(self, name: str, seed: int) -> int:
        """Let the disk of a dead bookie forget what was not synced; how many bytes and names that
        may have been. A disk that does not forget has none.
        """
        if name not in self.disks:
            return 0
        _word, lost_bytes, lost_names = self.disks[name].ask(f"cut {seed}").split()
        return int(lost_bytes) + int(lost_names)

    def command(self, *words: str, hook: Hook | None = None) -> subprocess.CompletedProcess[str]:
        """Run ``pulsarish``; with a hook it may be killed."""
        command = [sys.executable, "-m", "pulsarish", *words]
        if hook is None:
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
        with hook.preloaded():
            return self.command(*words)

    def storage(
        self, name: str, *words: str, hook: Hook | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run ``pulsarish storage`` with the options of a bookie."""
        return self.command("storage", *words, *self._options(name), hook=hook)

    def _options(self, name: str) -> list[str]:
        settings = [*self.cluster.node(name).settings, f"data_directory={self.home(name)}"]
        return [word for setting in settings for word in ("--set", setting)]

    def broker_command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command that asks the broker."""
        return self.command(*words, "--admin-url", self.cluster.admin_url())

    def verify(self, name: str, *options: str) -> None:
        """Run ``storage verify``: nothing may be wrong on the disks of a bookie."""
        done = run_command({}, "storage", "verify", *options, *self._options(name))
        assert done.exit_code == 0, done.output

    def garbage(self, name: str) -> dict[str, Any]:
        """Return what ``garbage_state`` says; empty while the bookie does not answer."""
        try:
            return dict(self.admin.bookies.garbage_state(name))
        except pulsarish.PulsarException:
            return {}

    def wait_whole(self) -> None:
        """Return when no ledger lacks copies."""
        until("nothing lacks copies", lambda: self.admin.bookies.under_replicated() == [])

    # -- messages

    def publish(self, topic: str, count: int, *, flush: bool = True) -> pulsarish.Producer:
        """Send more numbered messages of one topic. With ``flush`` they are acknowledged when this
        returns, and the producer is closed.
        """
        acked = self.acked.setdefault(topic, [])
        first = max(acked, default=-1) + 1
        producer = self.client.create_producer(
            topic, producer_name="sender", batching_enabled=False, send_timeout_millis=90_000
        )

        def done(number: int, result: object) -> None:
            assert result == pulsarish.Result.Ok, result
            acked.append(number)

        for number in range(first, first + count):
            producer.send_async(
                payload(number), lambda result, _id, number=number: done(number, result)
            )
        if flush:
            self.finish(producer)
        return producer

    def finish(self, producer: pulsarish.Producer) -> None:
        producer.flush()
        producer.close()

    def close_ledgers(self, topic: str) -> None:
        """Have the broker close the topic, and so the ledger that it writes."""
        self.admin.topics.unload(topic)

    def read(self, topic: str) -> None:
        """Everything that was acknowledged is read, once each and in order."""
        reader = self.client.create_reader(topic, pulsarish.MessageId.earliest)
        found: list[int] = []
        while reader.has_message_available():
            data = reader.read_next(timeout_millis=60_000).data()
            number = int(data.split(b" ", 1)[0])
            assert data == payload(number)
            found.append(number)
        reader.close()
        wanted = self.acked[topic]
        assert found == sorted(wanted), (
            f"{topic}: missing {sorted(set(wanted) - set(found))[:10]}, "
            f"{len(found) - len(set(found))} twice, {len(found)} of {len(wanted)} read"
        )

    def drop(self, topic: str) -> None:
        self.admin.topics.delete(topic, force=True)
        del self.acked[topic]

    def record(self, *words: str) -> Any:
        """Return the JSON that a command of the broker prints."""
        done = self.broker_command(*words, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def payload(number: int) -> bytes:
    text = b"%d " % number
    return text + bytes((number + place) % 251 for place in range(_PAYLOAD_BYTES - len(text)))


@contextmanager
def standing(
    directory: Path,
    bookies: int,
    settings: dict[str, list[str]] | None = None,
    *,
    forgetful: bool = False,
) -> Iterator[Stand]:
    """Run a stand until the end of the block.

    Args:
        forgetful: whether the bookies lie on disks that can forget what was not synced.
    """
    stand = Stand(directory, bookies, settings or {}, forgetful=forgetful)
    try:
        stand.up()
        yield stand
    finally:
        stand.down()
