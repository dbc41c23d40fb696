"""A fresh cluster for one run, and what a fault may do to it: kill, pause, start, cut links, and
wait until it is seen from outside.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from array import array
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import pulsarish
from pulsarish.admin import Admin
from pulsarish.chaos.history import History
from pulsarish.chaos.load import Load, Publisher
from pulsarish.chaos.observer import Observer, Owner
from pulsarish.chaos.relay import Relays
from pulsarish.chaos.stalls import counted, found_in_logs, grown
from pulsarish.local_cluster.locked import administrator, profiles_of
from pulsarish.local_cluster.plan import HOST, NodePlan, metadata_url, plan_cluster, service_urls
from pulsarish.local_cluster.processes import Cluster
from pulsarish.local_cluster.security_files import ADMINISTRATOR, SecurityFiles
from pulsarish.metadata.connect import parse_metadata_url
from pulsarish.model.errors import MetadataUnavailable, NotFound
from pulsarish.runtime.background import background
from pulsarish.runtime.modes import DIRECTORY_MODE
from pulsarish.runtime.profiles import Profiles

__all__ = ["CLIENT", "METADATA", "Mark", "Measured", "Options", "Quorums", "Stage", "VoidRun"]

T = TypeVar("T")

_TOPIC: Final = "persistent://public/default/chaos"
CLIENT: Final = "client"
METADATA: Final = "metadata"
_KEYS_PER_PARTITION: Final = 16
_RELAY_HOST: Final = "127.0.1.{}"
"""The address of loopback at which the relays of one server of an ensemble listen."""
_POLL_SECONDS: Final = 0.1
_BITE_SECONDS: Final = 90.0
# Shorter than by default, as runs are; longer than anything that a broker repeats by itself.
_PROGRESS_MS: Final = 12_000


class VoidRun(Exception):
    """The fault has not done, or cannot do, what the run was made for: neither passed nor
    failed.
    """


@dataclass(frozen=True, slots=True)
class Quorums:
    ensemble: int
    write: int
    ack: int

    @classmethod
    def parse(cls, text: str) -> Quorums:
        """``2-2-1``. Raises ``ValueError``."""
        ensemble, write, ack = (int(part) for part in text.split("-"))
        if not ensemble >= write >= ack >= 1:
            raise ValueError(text)
        return cls(ensemble, write, ack)

    def __str__(self) -> str:
        return f"{self.ensemble}-{self.write}-{self.ack}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a run is made. Times in seconds, rates a second."""

    quorums: Quorums
    brokers: int
    bookies: int
    metadata: str  # embedded, zookeeper
    dedup: bool
    messages: int
    fault_at: int
    window: int
    rate: float | None
    partitions: int
    send_timeout_ms: int
    url: str = ""
    """With ``admin_url``: a cluster of the user's, in which nothing can be killed, cut or looked
    into.
    """
    admin_url: str = ""
    isolate: tuple[tuple[str, ...], ...] = ()
    duration_seconds: float = 0.0
    cuts: int = 1
    seed: int = 0
    settings: tuple[tuple[str, str], ...] = ()  # role, key=value
    metadata_servers: int = 1
    topics: int = 1
    message_bytes: int = 0
    """Of each message of a soak; other scenarios publish numbers."""
    fault_every_seconds: float = 0.0
    secure: bool = False
    """The cluster asks for credentials and grants, and its bookies serve members only."""

    def row(self) -> dict[str, Any]:
        """For JSON: all that it takes to repeat the run.

        How a cluster of the user's is made is not known, and left out.
        """
        ours = {
            "quorums": str(self.quorums),
            "brokers": self.brokers,
            "bookies": self.bookies,
            "metadata": self.metadata,
            "metadata_servers": self.metadata_servers,
            "isolate": "|".join(",".join(group) for group in self.isolate) or None,
            "duration_seconds": self.duration_seconds,
            "cuts": self.cuts,
            "seed": self.seed,
            "topics": self.topics,
            "message_bytes": self.message_bytes,
            "fault_every_seconds": self.fault_every_seconds,
            "secure": self.secure,
            "settings": [f"{role}.{setting}" for role, setting in self.settings],
        }
        return {
            **({"url": self.url, "admin_url": self.admin_url} if self.url else ours),
            "dedup": self.dedup,
            "messages": self.messages,
            "fault_at": self.fault_at,
            "window": self.window,
            "rate": self.rate,
            "partitions": self.partitions,
            "send_timeout_ms": self.send_timeout_ms,
        }


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of a run: how many messages were sent and acknowledged by then."""

    what: str  # fault, bite, heal
    text: str
    seconds: float
    sent: int
    acked: int

    def row(self) -> dict[str, Any]:
        return asdict(self) | {"seconds": round(self.seconds, 3)}


@dataclass(frozen=True, slots=True)
class Measured:
    """What a scenario has measured besides: values for JSON, and a picture (SVG) to keep instead
    of the usual one.
    """

    values: dict[str, Any]
    picture: str


@dataclass(slots=True)
class Stage:
    """One run under a directory. ``close`` ends all its processes and mounts."""

    options: Options
    directory: Path
    relayed: frozenset[str] = frozenset()
    """Roles before which relays stand: metadata, broker, bookie."""
    topic_name: str = _TOPIC
    history: History = field(default_factory=History)
    ack_seconds: array[float] = field(default_factory=lambda: array("d"))
    marks: list[Mark] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What else the run has shown to be wrong, in words."""
    notes: list[str] = field(default_factory=list)
    first_owner: Owner | None = None
    victims: tuple[str, ...] = ()
    """What the fault has killed, for the reading to restore."""
    ended: threading.Event = field(default_factory=threading.Event)
    disks: dict[str, Callable[[str], str]] = field(default_factory=dict)
    """Of bookies whose disks take commands."""
    small_disks: list[str] = field(default_factory=list)
    """Nodes whose data lie on a disk that can be filled."""
    change_plan: Callable[[NodePlan], None] | None = None
    """Called with each node before the cluster is made."""
    make_load: Callable[[Stage], Publisher] | None = None
    """What publishes; without it the numbers go to one topic."""
    measured: Callable[[], Measured] | None = None
    """Called at the end of a run, however it ended."""
    say: Callable[[str], None] = lambda _text: None
    """Gets lines for people while the run lasts."""
    driver: object = None
    """What a scenario keeps from its preparation for its fault and its reading."""
    at_end: list[Callable[[], object]] = field(default_factory=list)
    """What is undone once no process runs any more, the last first."""
    _cluster: Cluster | None = None
    _relays: Relays | None = None
    _observer: Observer | None = None
    _client: pulsarish.Client | None = None
    _load: Publisher | None = None
    _stalls: dict[str, float] = field(default_factory=dict)

    # -- making and removing

    def open(self) -> None:
        """Start the cluster and make the topic.

        Raises ``ServiceNotReady``, ``Timeout``, ``ConfigError`` when that does not work.
        """
        options = self.options
        url = options.url or self._start_cluster()
        if options.url:
            self._make_topic()
        elif options.partitions:
            self.admin().topics.create(self.topic_name, partitions=options.partitions)
        self._client = pulsarish.Client(url, authentication=self._authentication())
        self._load = (self.make_load or _load_of_one_topic)(self)
        self.first_owner = self.wait_for_owner()
        self._stalls = counted(self._http_addresses())

    def _make_topic(self) -> None:
        """In a cluster of the user's: one of its own, deleted at the end."""
        topics = self.admin().topics
        self.topic_name = f"{_TOPIC}-{time.time_ns():x}"
        topics.create(self.topic_name, partitions=self.options.partitions)
        self.at_end.append(lambda: topics.delete(self.topic_name, force=True))
        topics.set_policy(self.topic_name, "deduplication", self.options.dedup)

    def _start_cluster(self) -> str:
        """Returns the service URL for the client: relays, where brokers have some."""
        options, quorums = self.options, self.options.quorums
        self._cluster = cluster = Cluster(self.directory)
        nodes = plan_cluster(
            bookies=options.bookies,
            brokers=options.brokers,
            metadata=options.metadata,
            metadata_servers=options.metadata_servers,
            base_port=0,
        )
        for node in nodes:
            if node.role == "broker":
                node.settings += [
                    f"managed_ledger.ensemble_size={quorums.ensemble}",
                    f"managed_ledger.write_quorum={quorums.write}",
                    f"managed_ledger.ack_quorum={quorums.ack}",
                    f"broker_deduplication_enabled={'true' if options.dedup else 'false'}",
                    f"dispatcher_progress_timeout_ms={_PROGRESS_MS}",
                ]
            node.settings += [setting for role, setting in options.settings if role == node.role]
            if self.change_plan is not None:
                self.change_plan(node)
        if options.secure:
            self._lock(nodes)
        ports = (
            self._put_relays(nodes)
            if self.relayed
            else [node.ports["grpc"] for node in nodes if node.role == "broker"]
        )
        cluster.create(nodes)
        cluster.up()
        tree = parse_metadata_url(metadata_url(nodes))
        self._observer = Observer(tree.hosts, tree.root)
        return "pulsarish://" + ",".join(f"127.0.0.1:{port}" for port in ports)

    def _lock(self, nodes: Sequence[NodePlan]) -> None:
        """Have all ask for credentials. Ports stay plain: the harness reads metrics there."""
        files = SecurityFiles(self.cluster.directory / "security")
        files.make()
        for node in nodes:
            if node.role in ("broker", "bookie"):
                node.settings += files.credential_settings(node.role)
        urls = service_urls(nodes)
        files.put_profile(urls["pulsarish"], urls["http"])

    def _authentication(self) -> pulsarish.Authentication | None:
        """Return what the client shows: in a locked cluster that it is the administrator."""
        if not self.options.secure:
            return None
        profile = Profiles.read(profiles_of(self.cluster)).get(ADMINISTRATOR)
        return pulsarish.AuthenticationToken(profile.auth_params.removeprefix("token:"))

    def _put_relays(self, nodes: Sequence[NodePlan]) -> list[int]:
        """Start relays before every node of the wanted roles; returns the ports that a client is to
        use.
        """
        self._relays = Relays(self._pids)
        servers = [node for node in nodes if node.role == "zookeeper" and "quorum" in node.ports]
        if servers and "metadata" in self.relayed:
            self._relay_ensemble(servers, [node for node in nodes if node not in servers])
        urls = []
        for node in nodes:
            if node in servers:
                continue
            known = self.put_relay(node)
            if node.name == METADATA:
                for other in nodes[1:]:
                    other.settings.append(f"metadata_url=zk://127.0.0.1:{known}/pulsarish")
            if node.role == "broker":
                urls.append(known)
        return urls

    def put_relay(self, node: NodePlan) -> int:
        """Start relays before a node that does not run yet, if its role has some. Returns the port
        at which others reach it.
        """
        port = next(iter(node.ports.values()))
        if ("metadata" if node.name == METADATA else node.role) not in self.relayed:
            return port
        known = self.act(self.relays.add(node.name, port))
        if node.name != METADATA:
            node.settings.append(f"advertised_address=127.0.0.1:{known}")
            if "framed" in node.ports:
                framed = self.act(self.relays.add(node.name, node.ports["framed"]))
                node.settings.append(f"framed_advertised_address=127.0.0.1:{framed}")
        return known

    def _relay_ensemble(self, servers: Sequence[NodePlan], others: Sequence[NodePlan]) -> None:
        """Start relays before the servers of an ensemble, for each other and for all nodes.

        A server tells the others at which address to call it back. So it is a name, which means the
        server itself in its own process, and in all others the relay, at the same ports.
        """
        hosts = {node.name: _RELAY_HOST.format(number) for number, node in enumerate(servers, 1)}
        names = ",".join(
            f"{node.name}:{node.ports['quorum']}:{node.ports['election']}" for node in servers
        )
        for node in servers:
            for port in node.ports.values():
                self.act(self.relays.add_at(hosts[node.name], node.name, port))
            home = self.directory / node.name
            home.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
            known = {**hosts, node.name: HOST, "localhost": HOST}
            (home / "hosts").write_text("".join(f"{ip} {name}\n" for name, ip in known.items()))
            java = home / "java"
            java.write_text(
                f'#!/bin/sh\nexec java "-Djdk.net.hosts.file={home.absolute()}/hosts" "$@"\n'
            )
            java.chmod(0o700)
            node.settings += [f"servers={names}", f"java={java.absolute()}"]
        url = ",".join(f"{hosts[node.name]}:{node.ports['client']}" for node in servers)
        for node in others:
            node.settings.append(f"metadata_url=zk://{url}/pulsarish")

    def _pids(self) -> dict[str, int]:
        found = {node.name: self.cluster.pid(node.name) for node in self.cluster.nodes()}
        return {
            CLIENT: os.getpid(),
            **{name: pid for name, pid in found.items() if pid is not None},
        }

    def close(self) -> None:
        if self._client is not None:
            self._client.shutdown()
        if self._observer is not None:
            self._observer.close()
        if self._cluster is not None and self._cluster.exists():
            for node in self._cluster.nodes():
                self._cluster.kill(node.name)
        if self._relays is not None:
            self.act(self._relays.stop())
        while self.at_end:
            self.at_end.pop()()

    def copy_logs(self, directory: Path) -> None:
        """Copy the logs of all nodes that were started, to find out why a run failed."""
        if self._cluster is None or not self._cluster.exists():
            return
        directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        for node in self._cluster.nodes():
            if (path := self._cluster.log_path(node.name)).exists():
                shutil.copy(path, directory / f"{node.name}.log")

    # -- parts

    @property
    def cluster(self) -> Cluster:
        assert self._cluster is not None
        return self._cluster

    @property
    def client(self) -> pulsarish.Client:
        assert self._client is not None
        return self._client

    @property
    def load(self) -> Publisher:
        assert self._load is not None
        return self._load

    @property
    def observer(self) -> Observer:
        assert self._observer is not None
        return self._observer

    @property
    def relays(self) -> Relays:
        assert self._relays is not None, "the scenario says which roles have relays"
        return self._relays

    def act(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the loop in which the relays live."""
        return background().run(work)

    def admin(self) -> Admin:
        if self.options.admin_url:
            return Admin(self.options.admin_url)
        return administrator(self.cluster)

    @property
    def topic(self) -> str:
        """The topic that is looked at: with partitions, the first of them."""
        return f"{self.topic_name}-partition-0" if self.options.partitions else self.topic_name

    # -- what a fault sees

    def owner(self) -> Owner:
        """Return the owner. Raises ``VoidRun`` when no broker owns the topic."""
        if self._observer is None:
            name = str(self.admin().topics.lookup(self.topic)["brokerId"])
            return Owner(name, name, 0)
        found = self._observer.owner(self.topic)
        if found is None:
            raise VoidRun(f"no broker owns {self.topic}")
        return found

    def wait_for_owner(self) -> Owner:
        if self._observer is not None:
            self.wait("the topic has an owner", lambda: self.observer.owner(self.topic) is not None)
        return self.owner()

    def members(self) -> tuple[str, ...]:
        """The bookies that the topic's newest ledger is written to."""
        return self.observer.ledgers(self.topic).members()

    def wait(
        self, what: str, condition: Callable[[], bool], timeout_seconds: float = _BITE_SECONDS
    ) -> None:
        """Until ``condition`` holds; while metadata is away it does not.

        Raises ``VoidRun`` saying that ``what`` did not happen.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                if condition():
                    return
            except (MetadataUnavailable, NotFound) as error:
                last = f" ({error})"
            else:
                last = ""
            if time.monotonic() > deadline:
                raise VoidRun(f"{what}: not within {timeout_seconds:g} s{last}")
            self.sleep(_POLL_SECONDS)

    def sleep(self, seconds: float) -> None:
        """Raises ``VoidRun`` when the run is ended meanwhile."""
        if self.ended.wait(seconds):
            raise VoidRun("the run was ended")

    def _http_addresses(self) -> list[str]:
        if self._cluster is not None:
            return [
                f"127.0.0.1:{node.ports['http']}"
                for node in self._cluster.nodes()
                if node.role == "broker"
            ]
        return [str(broker["http_address"]) for broker in self.admin().brokers.list()]

    def stalls(self) -> list[str]:
        """What brokers have said of subscriptions that did not move although nothing held them up,
        in this run.
        """
        nodes = (
            self._cluster.nodes() if self._cluster is not None and self._cluster.exists() else []
        )
        found = found_in_logs(
            (node.name, self.cluster.log_path(node.name)) for node in nodes if node.role == "broker"
        )
        return found or grown(self._stalls, counted(self._http_addresses()))

    def broker_addresses(self) -> list[str]:
        """As clients are told them."""
        return [str(broker["address"]) for broker in self.admin().brokers.list()]

    def longest_pause(self) -> tuple[float, float]:
        """The longest time between two acknowledgements, and when it began, in seconds."""
        times = self.ack_seconds
        return max(
            ((times[index] - times[index - 1], times[index - 1]) for index in range(1, len(times))),
            default=(0.0, 0.0),
        )

    def mark(self, what: str, text: str) -> None:
        self.marks.append(
            Mark(what, text, self.load.elapsed(), self.history.sent, len(self.ack_seconds))
        )

    # -- what a fault does

    def kill(self, *names: str) -> None:
        """All at once, then wait until each is gone."""
        for name in names:
            self.cluster.send_signal(name, signal.SIGKILL)
        for name in names:
            self.cluster.kill(name)

    def start(self, *names: str) -> None:
        plans = [self.cluster.node(name) for name in names]
        self.cluster.check_ports(plans)
        for plan in plans:
            self.cluster.start(plan)
        self.cluster.wait_ready(plans)

    def pause(self, name: str) -> None:
        self.cluster.send_signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self.cluster.send_signal(name, signal.SIGCONT)


def _load_of_one_topic(stage: Stage) -> Load:
    options = stage.options
    return Load(
        stage.client,
        stage.topic_name,
        stage.history,
        window=options.window,
        send_timeout_ms=options.send_timeout_ms,
        keys=options.partitions * _KEYS_PER_PARTITION,
        ack_seconds=stage.ack_seconds,
    )
