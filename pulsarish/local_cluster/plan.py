"""The plan of a cluster on this machine: its nodes, their options, and their ports."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsarish.local_cluster.ports import PORT_STEP, free_ports, take_consecutive
from pulsarish.model.errors import InvalidArgument, NotAllowedError

__all__ = [
    "HOST",
    "METADATA_ROLES",
    "NodePlan",
    "check_removal",
    "metadata_url",
    "own_settings",
    "plan_cluster",
    "plan_more",
    "service_urls",
]

HOST: Final = "127.0.0.1"
METADATA_ROLES: Final = ("metadata", "zookeeper")
_NUMBERED: Final = re.compile(r"[a-z]+-([1-9][0-9]*)")
_WRITE_QUORUM: Final = "managed_ledger.write_quorum="


@dataclass(slots=True)
class NodePlan:
    name: str
    role: str  # metadata, zookeeper, bookie, broker
    ports: dict[str, int]
    settings: list[str] = field(default_factory=list)  # key=value, as for --set
    # a module for python -m, and what it takes before the command
    program: list[str] = field(default_factory=lambda: ["pulsarish"])
    # the authority of its ports with TLS; empty: clients and commands reach it without
    trust_file: str = ""
    processes: int = 1
    port_step: int = PORT_STEP
    # its removal has begun and no other node needs it: it is not started again
    is_leaving: bool = False

    @property
    def http_port(self) -> int | None:
        return self.ports.get("http")

    @property
    def process_ports(self) -> dict[str, dict[str, int]]:
        """The ports of each process by its id, as ``member_options`` gives them. Brokers share the
        node's own ports besides.
        """
        if self.processes == 1:
            return {self.name: self.ports}
        first = 1 if self.role == "broker" else 0
        return {
            f"{self.name}-{index}": {
                kind: port + (first + index) * self.port_step for kind, port in self.ports.items()
            }
            for index in range(self.processes)
        }

    @property
    def all_ports(self) -> dict[str, int]:
        """Every port that the node listens on, by what a message calls it."""
        shared = {self.name: self.ports} if self.role == "broker" else {}
        return {
            f"{kind} of {name}": port
            for name, ports in {**shared, **self.process_ports}.items()
            for kind, port in ports.items()
        }


def plan_cluster(
    *,
    bookies: int,
    brokers: int,
    metadata: str,
    base_port: int | None,
    metadata_servers: int = 1,
    bookie_processes: int = 1,
    broker_processes: int = 1,
    host: str = HOST,
) -> list[NodePlan]:
    """The nodes and their ports.

    ``base_port`` None: the well-known ports, later nodes count up; 0: free ones; N: N and on.

    ``metadata_servers``: how many servers the ensemble of the real ZooKeeper has.

    ``bookie_processes``, ``broker_processes``: how many processes each bookie and broker has.
    """
    if bookies < 1 or brokers < 1:
        raise InvalidArgument(
            f"a cluster needs at least one bookie and one broker, not {bookies} and {brokers}"
        )
    if metadata_servers != 1 and (metadata != "zookeeper" or metadata_servers < 3):
        raise InvalidArgument(
            f"{metadata_servers} metadata servers of the kind {metadata}: zookeeper has one or at "
            "least three of them, embedded has one"
        )
    ports = _ports(base_port)
    nodes = _plan_metadata(metadata, metadata_servers, None if base_port is None else ports, host)
    url = metadata_url(nodes, host)
    for role, count, processes in (
        ("bookie", bookies, bookie_processes),
        ("broker", brokers, broker_processes),
    ):
        for number in range(1, count + 1):
            ports_of = _known_ports(role, number)
            nodes.append(NodePlan(f"{role}-{number}", role, ports_of, processes=processes))
    if base_port is not None:
        for node in nodes:
            if node.role not in METADATA_ROLES:
                _take_ports(node, ports)
    quorum = min(3, bookies)
    for node in nodes:
        if node.role in METADATA_ROLES:
            continue
        node.settings = [*own_settings(node, host), f"metadata_url={url}"]
        if node.role == "bookie":
            # Whatever bookies are left make lost copies again, without a process more.
            node.settings.append("auto_recovery_daemon_enabled=true")
        if node.role == "broker":
            node.settings += [
                f"managed_ledger.ensemble_size={quorum}",
                f"{_WRITE_QUORUM}{quorum}",
                f"managed_ledger.ack_quorum={min(2, quorum)}",
            ]
    _check_distinct(nodes)
    return nodes


def plan_more(
    nodes: Sequence[NodePlan],
    role: str,
    count: int,
    *,
    taken: Collection[str],
    ports: Iterable[int],
) -> list[NodePlan]:
    """Return ``count`` further nodes of a plan, with the next names and ports.

    They have the options that all nodes of their role have in common. They have the well-known
    ports where all of these have, and otherwise the next of ``ports``.

    Args:
        role: bookie or broker.
        taken: names that no node may get, besides those of the plan.
        ports: the free ones, in the order in which they are to be used.

    Raises ``InvalidArgument`` when two ports would clash, or there are no more.
    """
    peers = [node for node in nodes if node.role == role]
    numbers = [_number(name) for name in [*(node.name for node in peers), *taken]]
    first = max(numbers, default=0) + 1
    is_known = all(node.ports == _known_ports(role, _number(node.name)) for node in peers)
    own = {setting for node in peers for setting in own_settings(node)}
    shared = [
        setting
        for setting in peers[0].settings
        if setting not in own and all(setting in peer.settings for peer in peers)
    ]
    found, left = [], iter(ports)
    for number in range(first, first + count):
        node = NodePlan(
            f"{role}-{number}",
            role,
            _known_ports(role, number),
            processes=peers[0].processes,
            port_step=peers[0].port_step,
        )
        if not is_known:
            try:
                _take_ports(node, left)
            except StopIteration:
                raise InvalidArgument(f"{node.name}: no port is left for it") from None
        node.settings = [*own_settings(node), *shared]
        found.append(node)
    _check_distinct([*nodes, *found])
    return found


def check_removal(nodes: Iterable[NodePlan], names: Collection[str]) -> None:
    """Raise ``NotAllowedError`` when the cluster could not serve without these nodes, and without
    those whose removal has begun.
    """
    nodes = list(nodes)
    left = [node for node in nodes if node.name not in names and not node.is_leaving]
    for node in nodes:
        if node.name in names and node.role in METADATA_ROLES:
            raise NotAllowedError(
                f"{node.name} keeps the cluster's metadata: only bookies and brokers can be removed"
            )
    if not any(node.role == "broker" for node in left):
        raise NotAllowedError(
            "no broker would be left: add another one first, with: pulsarish cluster add broker"
        )
    if all(node.role != "bookie" for node in nodes if node.name in names):
        return
    bookies = sum(node.processes for node in left if node.role == "bookie")
    needed = max(
        (
            int(setting.removeprefix(_WRITE_QUORUM))
            for node in nodes
            for setting in node.settings
            if setting.startswith(_WRITE_QUORUM)
        ),
        default=1,
    )
    if bookies < needed:
        raise NotAllowedError(
            f"{bookies} bookies would be left, and {needed} hold each entry "
            f"({_WRITE_QUORUM}{needed}): add others first, with: pulsarish cluster add bookie"
        )


def own_settings(node: NodePlan, host: str = HOST) -> list[str]:
    """Return the options of a bookie or broker that no other node has: its id and addresses."""
    listen = {kind: f"{host}:{port}" for kind, port in node.ports.items()}
    found = [
        f"listen_address={listen['grpc']}",
        f"http_address={listen['http']}",
        f"{node.role}_id={node.name}",
        f"framed_port={node.ports['framed']}",
    ]
    if node.role == "bookie":
        # Every bookie of a laptop's cluster stands for a host of its own, or no two copies could
        # lie on it.
        found.append(f"host={node.name}")
    else:
        found.append(f"pulsar_address={listen['pulsar']}")
    return found


def _known_ports(role: str, number: int) -> dict[str, int]:
    """Return the well-known ports of a bookie or broker, counted from 1."""
    index = number - 1
    if role == "bookie":
        return {"grpc": 3181 + index, "http": 8000 + index, "framed": 3281 + index}
    return {
        "grpc": 6660 + index,
        "http": 8080 + index,
        "pulsar": 6650 + index if index < 10 else 16650 + index,
        "framed": 6760 + index,
    }


def _number(name: str) -> int:
    """Return the number at the end of a node's name; 0: there is none."""
    match = _NUMBERED.fullmatch(name)
    return int(match[1]) if match else 0


def _take_ports(node: NodePlan, ports: Iterator[int]) -> None:
    """Give a node the next ports, with those of its processes right behind."""
    kinds = list(node.ports)
    if node.processes == 1:
        node.ports = {kind: next(ports) for kind in kinds}
        return
    node.port_step = len(kinds)
    shared = 1 if node.role == "broker" else 0
    first = take_consecutive(ports, len(kinds) * (node.processes + shared))
    node.ports = {kind: first + place for place, kind in enumerate(kinds)}


def _check_distinct(nodes: Iterable[NodePlan]) -> None:
    taken: dict[int, str] = {}
    for node in nodes:
        for what, port in node.all_ports.items():
            if port in taken:
                raise InvalidArgument(
                    f"{what} and {taken[port]} would both have port {port}: choose other ports "
                    "with --base-port, or fewer nodes or processes"
                )
            taken[port] = what


def _plan_metadata(
    metadata: str, servers: int, ports: Iterator[int] | None, host: str
) -> list[NodePlan]:
    """The nodes of the metadata service, at well-known ports unless others are given."""

    def port(known: int) -> int:
        return known if ports is None else next(ports)

    if metadata == "embedded":
        node = NodePlan("metadata", "metadata", {"client": port(2181), "http": port(8100)})
        node.settings = [
            f"listen_address={host}:{node.ports['client']}",
            f"http_address={host}:{node.ports['http']}",
        ]
        return [node]
    if servers == 1:
        node = NodePlan("metadata", "zookeeper", {"client": port(2181)})
        node.settings = [f"listen_address={host}:{node.ports['client']}"]
        return [node]
    nodes = []
    for index in range(servers):
        found = {
            "client": port(2181 + index),
            "quorum": port(2888 + index),
            "election": port(3888 + index),
        }
        nodes.append(NodePlan(f"metadata-{index + 1}", "zookeeper", found))
    ensemble = ",".join(f"{host}:{node.ports['quorum']}:{node.ports['election']}" for node in nodes)
    for number, node in enumerate(nodes, 1):
        node.settings = [
            f"listen_address={host}:{node.ports['client']}",
            f"servers={ensemble}",
            f"server_id={number}",
        ]
    return nodes


def metadata_url(nodes: Iterable[NodePlan], host: str = HOST) -> str:
    """The URL of the metadata service for the other nodes, with all of its servers."""
    servers = ",".join(
        f"{host}:{node.ports['client']}" for node in nodes if node.role in METADATA_ROLES
    )
    return f"zk://{servers}/pulsarish"


def service_urls(nodes: Iterable[NodePlan]) -> dict[str, str]:
    """Return the URLs of the brokers for each protocol, and that of the metadata service.

    A URL names all brokers, separated by commas.
    """
    nodes = list(nodes)
    brokers = [node for node in nodes if node.role == "broker"]
    is_tls = any(node.trust_file for node in brokers)

    def url(kind: str, plain: str, tls: str) -> str:
        addresses = ",".join(f"{HOST}:{node.ports[kind]}" for node in brokers)
        return f"{tls if is_tls else plain}://{addresses}"

    return {
        "pulsarish": url("grpc", "pulsarish", "pulsarish+ssl"),
        "pulsar": url("pulsar", "pulsar", "pulsar+ssl"),
        "http": url("http", "http", "https"),
        "metadata": metadata_url(nodes),
    }


def _ports(base_port: int | None) -> Iterator[int]:
    """An endless iterator of ports."""

    def counted(start: int) -> Iterator[int]:
        while True:
            yield start
            start += 1

    return counted(base_port) if base_port else free_ports(HOST)
