"""``pulsarish zookeeper``: the real Apache ZooKeeper, from the jars that PySpark installs with pip;
it needs only a Java 17 runtime.

This module finds the parts and writes the configuration and the command. The process that becomes
ZooKeeper runs them.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from pulsarish.model.errors import ConfigError
from pulsarish.runtime.extras import install_command
from pulsarish.runtime.files import make_directory

__all__ = [
    "ZooKeeperServerConfig",
    "configuration_path",
    "ensemble_settings",
    "find_jars",
    "find_java",
    "write_configuration",
    "zookeeper_command",
]

# The jars that the server loads besides its own; PySpark's other jars belong to Spark.
_PREFIXES: Final = (
    "zookeeper-",
    "zookeeper-jute-",
    "slf4j-api-",
    "log4j-api-",
    "log4j-core-",
    "log4j-slf4j2-impl-",
    "netty-",
    "metrics-core-",
    "snappy-java-",
    "commons-io-",
    "audience-annotations-",
    "jackson-",
)


_ALL: Final = "0.0.0.0"  # noqa: S104 - the servers of an ensemble are on several machines
_PORTS: Final = ("2181", "2888", "3888")
"""Of clients, of the followers of a leader, and of elections."""


class ZooKeeperServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of ``pulsarish zookeeper``."""

    listen_address: Annotated[
        str, Meta(description="host:port for clients; ZooKeeper itself cannot pick a free port")
    ] = "127.0.0.1:2181"
    data_directory: Annotated[
        str, Meta(min_length=1, description="where ZooKeeper keeps its log and snapshots")
    ] = "data/zookeeper"
    tick_ms: Annotated[int, Meta(ge=50, description="ZooKeeper's tickTime")] = 1_000
    session_timeout_min_ms: Annotated[
        int, Meta(ge=100, description="the shortest session timeout a client gets")
    ] = 1_000
    session_timeout_max_ms: Annotated[
        int, Meta(ge=1_000, description="the longest session timeout a client gets")
    ] = 60_000
    servers: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "all servers of an ensemble, host:quorum_port:election_port, in the same "
                "order on each; empty: a single server"
            )
        ),
    ] = ()
    server_id: Annotated[
        int,
        Meta(
            ge=0,
            le=255,
            description=(
                "the number of this server in servers, from 1 (ZooKeeper's myid); 0 for a "
                "single server"
            ),
        ),
    ] = 0
    init_limit: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "ticks in which a server of an ensemble must join its leader (ZooKeeper's "
                "initLimit)"
            ),
        ),
    ] = 10
    sync_limit: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "ticks in which a server and its leader must exchange messages (ZooKeeper's "
                "syncLimit)"
            ),
        ),
    ] = 5
    configuration_lines: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "further lines for ZooKeeper's own configuration, each name=value, as those for "
                "its TLS; they go over the others"
            )
        ),
    ] = ()
    heap_bytes: Annotated[int, Meta(ge=32 << 20, description="the largest Java heap")] = 256 << 20
    java: Annotated[
        str, Meta(description="the Java 17 program: a path, or a name looked up in PATH")
    ] = "java"


class _Server(NamedTuple):
    """A server of an ensemble, as ``--ensemble`` names it."""

    host: str
    client_port: str
    quorum_port: str
    election_port: str


def ensemble_settings(
    entries: Sequence[str], server_id: int, own_host: str
) -> tuple[list[str], str]:
    """Return the options of one server of an ensemble, each key=value, and the ``metadata_url`` of
    the whole.

    A server whose host is not loopback takes connections at all addresses of its machine: the name
    that others reach it by may mean loopback there.

    Args:
        entries: all servers in the same order on each, as host or
            host:client_port:quorum_port:election_port.
        server_id: the number of this server among them, from 1; 0: the one whose host is this one.
        own_host: the name of this machine.

    Raises ``ConfigError``.
    """
    servers = [_parse_server(entry.strip()) for entry in entries]
    if not server_id:
        server_id = _own_number(servers, own_host)
    if not 1 <= server_id <= len(servers):
        raise ConfigError(
            f"--server-id is {server_id}; with {len(servers)} servers it is 1 to {len(servers)}"
        )
    mine = servers[server_id - 1]
    is_local = mine.host == "localhost" or mine.host.startswith("127.")
    named = ",".join(f"{each.host}:{each.quorum_port}:{each.election_port}" for each in servers)
    settings = [
        f"servers={named}",
        f"server_id={server_id}",
        f"listen_address={mine.host if is_local else _ALL}:{mine.client_port}",
    ]
    url = ",".join(f"{each.host}:{each.client_port}" for each in servers)
    return settings, f"zk://{url}/pulsarish"


def _parse_server(entry: str) -> _Server:
    """Raises ``ConfigError``."""
    host, *ports = entry.split(":")
    if not host or (ports and len(ports) != len(_PORTS)):
        raise ConfigError(
            f"--ensemble has {entry!r}, which is neither a host nor "
            "host:client_port:quorum_port:election_port"
        )
    return _Server(host, *(ports or _PORTS))


def _own_number(servers: Sequence[_Server], own_host: str) -> int:
    """Return which of the servers is on this machine. Raises ``ConfigError``."""
    short = own_host.partition(".")[0]
    found = [n for n, server in enumerate(servers, 1) if server.host == own_host] or [
        n for n, server in enumerate(servers, 1) if server.host.partition(".")[0] == short
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            f"--ensemble names this machine, {own_host}, {len(found)} times: say which of these "
            f"servers this one is with --server-id {', '.join(map(str, found))}"
        )
    raise ConfigError(
        f"--ensemble does not name this machine, which is {own_host}: say which of the "
        f"{len(servers)} servers runs here with --server-id"
    )


def find_java(name: str = "java") -> str:
    """Return the path of the Java program. Raises ``ConfigError`` that says what to install."""
    found = shutil.which(name)
    if found is None:
        raise ConfigError(
            f"there is no program {name!r}: ZooKeeper needs a Java 17 runtime (on Debian: apt "
            "install openjdk-17-jre-headless)"
        )
    return found


def find_jars() -> list[str]:
    """Return the jars of ZooKeeper's server, from the installed PySpark.

    Raises ``ConfigError`` that says what to install.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "ZooKeeper's jars come with PySpark, which is not installed here: "
            f"{install_command('spark')}"
        )
    directory = Path(spec.origin).parent / "jars"
    jars = sorted(str(path) for path in directory.glob("*.jar") if path.name.startswith(_PREFIXES))
    for needed in ("zookeeper-3", "zookeeper-jute-3", "slf4j-api-"):
        if not any(Path(jar).name.startswith(needed) for jar in jars):
            raise ConfigError(
                f"the installed PySpark has no {needed}*.jar in {directory}; PySpark 4.0 or later "
                "has it"
            )
    return jars


def configuration_path(config: ZooKeeperServerConfig) -> Path:
    """Return where ZooKeeper's own configuration file belongs."""
    return Path(config.data_directory) / "zoo.cfg"


def write_configuration(config: ZooKeeperServerConfig) -> Path:
    """Write ZooKeeper's own configuration file into the data directory, and return its path."""
    host, _, port = config.listen_address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"listen_address {config.listen_address!r} is not host:port with a port of 1 to 65535"
        )
    ensemble = _ensemble(config)
    directory = Path(config.data_directory)
    make_directory(str(directory))
    lines = {
        "tickTime": config.tick_ms,
        "dataDir": directory.absolute(),
        "clientPort": port,
        "clientPortAddress": host,
        "maxClientCnxns": 0,
        "minSessionTimeout": config.session_timeout_min_ms,
        "maxSessionTimeout": config.session_timeout_max_ms,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "ruok,srvr,mntr,envi",
        "forceSync": "yes",
        "autopurge.purgeInterval": 1,
        **ensemble,
        **_further_lines(config),
    }
    path = configuration_path(config)
    if ensemble:
        (directory / "myid").write_text(f"{config.server_id}\n")
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return path


def _further_lines(config: ZooKeeperServerConfig) -> dict[str, object]:
    """Return what the operator adds. Raises ``ConfigError``."""
    found: dict[str, object] = {}
    for line in config.configuration_lines:
        name, equals, value = line.partition("=")
        if not name.strip() or not equals or "\n" in line:
            raise ConfigError(f"configuration_lines has {line!r}, which is not name=value")
        found[name.strip()] = value.strip()
    return found


def _ensemble(config: ZooKeeperServerConfig) -> dict[str, object]:
    """Return the lines about the ensemble, none for a single server. Raises ``ConfigError``."""
    if not config.servers:
        if config.server_id:
            raise ConfigError(
                f"server_id is {config.server_id} and servers is empty: name all servers of the "
                "ensemble, or leave it at 0"
            )
        return {}
    if len(config.servers) < 3:
        raise ConfigError(
            f"servers names {len(config.servers)}, but an ensemble of fewer than three stops when "
            "it loses one server; name three or five, or none for a single server"
        )
    if not 1 <= config.server_id <= len(config.servers):
        raise ConfigError(
            f"server_id is {config.server_id}; with {len(config.servers)} servers it is 1 to "
            f"{len(config.servers)}"
        )
    for server in config.servers:
        host, *ports = server.rsplit(":", 2)
        if (
            not host
            or len(ports) != 2
            or not all(port.isdigit() and 0 < int(port) < 65536 for port in ports)
        ):
            raise ConfigError(
                f"servers has {server!r}, which is not host:quorum_port:election_port with ports "
                "of 1 to 65535"
            )
    named = {
        f"server.{number}": f"{server}:participant"
        for number, server in enumerate(config.servers, 1)
    }
    # Or the other servers could not reach this one where its own name means loopback.
    on_all = config.listen_address.startswith(f"{_ALL}:")
    return {
        "initLimit": config.init_limit,
        "syncLimit": config.sync_limit,
        **({"quorumListenOnAllIPs": "true"} if on_all else {}),
        **named,
    }


def zookeeper_command(config: ZooKeeperServerConfig, configuration: Path) -> list[str]:
    """Return the command line of the server. Raises ``ConfigError`` when a part is missing."""
    return [
        find_java(config.java),
        f"-Xmx{config.heap_bytes >> 20}m",
        "-XX:+UseSerialGC",
        "-Dzookeeper.preAllocSize=4096",
        "-Dorg.apache.logging.log4j.level=WARN",
        "-cp",
        ":".join(find_jars()),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(configuration),
    ]
