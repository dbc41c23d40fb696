"""Everything in one process: one tree of metadata, a bookie and a broker, each node with a metadata
session of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.main import open_bookie_options
from pulsarish.broker.broker import Broker
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.main import authenticator_of, open_broker_options
from pulsarish.local_cluster.security_files import SecurityFiles
from pulsarish.metadata import paths
from pulsarish.metadata.connect import parse_metadata_url
from pulsarish.metadata.daemon.config import MetadataConfig
from pulsarish.metadata.daemon.daemon import MetadataDaemon
from pulsarish.metadata.damage import what_may_be_lost
from pulsarish.metadata.local import open_local
from pulsarish.metadata.process import open_store
from pulsarish.metadata.records import RestoredTree
from pulsarish.metadata.tree.local import LocalTree
from pulsarish.model.errors import ConfigError
from pulsarish.runtime.cluster_members import member_credentials
from pulsarish.runtime.config import load
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.loop import NodeProcess
from pulsarish.runtime.network.addresses import plain_address
from pulsarish.runtime.network.open_ports import warn_of_open_ports
from pulsarish.runtime.seams import MetadataStore
from pulsarish.runtime.world import Production, production
from pulsarish.wire.json_record import decode_record

__all__ = ["Standalone", "StandaloneConfigs", "standalone_configs", "start_standalone"]

_log = get_logger("standalone.security")

_PORTS: Final = {
    "listen_address": "127.0.0.1:6660",
    "http_address": "127.0.0.1:8080",
    "pulsar_address": "127.0.0.1:6650",
}
"""The well-known ports, which speak TLS in a locked server, by the options of those without."""
_SERVED_AT: Final = "zk://127.0.0.1:2181"
"""Where commands reach the tree of a standalone server that is told to serve it there."""


@dataclass(frozen=True, slots=True)
class StandaloneConfigs:
    """``metadata``: how the tree is served to other processes, too; ``None``: it is not.

    ``security``: the keys and certificates of a locked server; ``None``: it serves every program.
    """

    metadata_url: str
    bookie: BookieConfig
    broker: BrokerConfig
    metadata: MetadataConfig | None = None
    security: SecurityFiles | None = None


def standalone_configs(
    directory: str,
    *,
    in_memory: bool,
    environ: Mapping[str, str],
    broker_overrides: Sequence[str],
    bookie_overrides: Sequence[str],
    metadata_address: str | None = None,
    secure: bool = False,
) -> StandaloneConfigs:
    """One copy of everything under ``directory``; the environment, then the overrides, go over
    that.

    Args:
        metadata_address: host:port on which the metadata are served as the metadata daemon does,
            for jobs; they are kept in files then.
        secure: as ``cluster up --secure``: TLS on every port, tokens, grants. Files are in
            ``directory/security``, which the start makes.

    Raises ``ConfigError``, also for another place of the metadata: its tree is this process's own,
    and for a directory of ``secure`` without it.
    """
    files = SecurityFiles(Path(directory) / "security")
    if not secure and files.home.exists():
        raise ConfigError(
            f"{directory} was started with --secure before, and without it every program that "
            f"reaches its ports could use it: add --secure, or move {files.home} away to open it"
        )
    security = files if secure else None
    kept_in = f"{directory}/metadata"
    url = "memory:" if in_memory and metadata_address is None else f"embedded:{kept_in}"
    of_bookie = {
        "bookie_id": "standalone",
        "data_directory": f"{directory}/bookie",
        "metadata_url": url,
        "http_address": "",
    }
    one_copy = {
        f"managed_ledger.{name}": 1 for name in ("ensemble_size", "write_quorum", "ack_quorum")
    }
    of_broker = {
        "broker_id": "standalone",
        "cluster_name": "standalone",
        "metadata_url": url,
        **one_copy,
    }
    if security is not None:
        of_broker |= {f"{name}_tls": address for name, address in _PORTS.items()}
        broker_overrides = [*security.broker_settings(Path(directory)), *broker_overrides]
        bookie_overrides = [*security.bookie_settings(), *bookie_overrides]
    bookie = load(
        BookieConfig,
        defaults=of_bookie,
        environ=environ,
        prefix="PULSARISH_BOOKIE__",
        overrides=bookie_overrides,
        flag="--bookie-set",
        listing="pulsarish bookie --print-config",
    )
    broker = load(
        BrokerConfig,
        defaults=of_broker,
        environ=environ,
        prefix="PULSARISH_BROKER__",
        overrides=broker_overrides,
        flag="--broker-set",
        listing="pulsarish broker --print-config",
    )
    for node, config in (("bookie", bookie), ("broker", broker)):
        if config.metadata_url != url:
            raise ConfigError(
                f"metadata_url = {config.metadata_url!r} is set for the {node}, but standalone "
                f"keeps its metadata in {url}"
            )
    if broker.cluster_key_file != bookie.cluster_key_file:
        raise ConfigError(
            f"cluster_key_file is {broker.cluster_key_file!r} for the broker and "
            f"{bookie.cluster_key_file!r} for the bookie of the same process: give both one file"
        )
    if security is not None:
        _check_locked(broker)
        if metadata_address is not None:
            raise ConfigError(
                f"--metadata-address {metadata_address} serves the metadata without a login, which "
                "--secure excludes: leave one of them out"
            )
    served = None
    if metadata_address is not None:
        served = MetadataConfig(
            listen_address=metadata_address, http_address="", data_directory=kept_in
        )
    return StandaloneConfigs(url, bookie, broker, served, security)


def _check_locked(broker: BrokerConfig) -> None:
    """Raise ``ConfigError`` for options that open what ``--secure`` locks."""
    for name in _PORTS:
        if address := getattr(broker, name):
            raise ConfigError(
                f"{name} = {address!r} is a port without TLS, which --secure excludes: set "
                f"{name}_tls instead"
            )
    for plan in broker.listener_plans():
        for address in (
            plan.bind_address,
            plan.bind_http_address,
            plan.bind_pulsar_address,
            plan.bind_framed_address,
        ):
            if address:
                raise ConfigError(
                    f"bind_addresses: {address} of listener {plan.name!r} is a port without TLS, "
                    "which --secure excludes: use pulsarish+ssl, https, pulsar+ssl or framed+ssl"
                )
    # It needs authentication, which the configuration has checked.
    if not broker.authorization_enabled:
        raise ConfigError(
            "authorization_enabled = false contradicts --secure: leave one of them out"
        )


class _Tree(Protocol):
    """The metadata of the process: each node has a session of its own."""

    async def new_store(self) -> MetadataStore: ...

    async def close(self) -> None: ...


class _ServedTree:
    """Behind ZooKeeper's protocol, for the nodes of this process as for others."""

    @classmethod
    async def open(
        cls,
        configs: StandaloneConfigs,
        config: MetadataConfig,
        parts: Production,
        process: NodeProcess,
    ) -> _ServedTree:
        # Whose sessions a crash left behind is known to be dead: the nodes need not wait until they
        # expire.
        await (await _open_tree(configs, parts)).close()
        parts.files.release()
        daemon = MetadataDaemon(
            config,
            clock=parts.clock,
            rng=parts.random,
            tasks=parts.tasks,
            files=parts.files,
            connections=parts.connections,
            open_index=parts.open_index,
        )
        listener = await daemon.start()
        return cls(daemon, f"zk://{listener.address}", parts, process)

    def __init__(
        self, daemon: MetadataDaemon, url: str, parts: Production, process: NodeProcess
    ) -> None:
        self.url = url
        self._daemon = daemon
        self._parts = parts
        self._process = process

    async def new_store(self) -> MetadataStore:
        return await open_store(self.url, self._parts, self._process.outside)

    async def close(self) -> None:
        await self._daemon.stop()


async def _open_tree(configs: StandaloneConfigs, parts: Production) -> LocalTree:
    return await open_local(
        parse_metadata_url(configs.metadata_url).directory,
        clock=parts.clock,
        tasks=parts.tasks,
        rng=parts.random,
        files=parts.files,
        open_index=parts.open_index,
    )


class Standalone:
    """A server that serves. ``urls``: its addresses for clients, by scheme."""

    def __init__(
        self,
        tree: _Tree,
        bookie: Bookie,
        broker: Broker,
        sessions: Sequence[MetadataStore],
        parts: Production,
        mark: RestoredTree | None,
        security: SecurityFiles | None,
    ) -> None:
        self.urls = _urls(broker)
        self.ready_line = "standalone ready " + " ".join(
            f"{scheme}://{address}" for scheme, address in self.urls.items()
        )
        if isinstance(tree, _ServedTree):
            self.ready_line += f" {tree.url}"
        if security is not None:
            self.ready_line += (
                f"\nas its administrator: export PULSARISH_PROFILES_FILE={security.profiles}"
            )
        if bookie.read_only_reason:
            self.ready_line += f"\nwarning: no message can be stored: {bookie.read_only_reason}"
        if mark is not None:
            url = (
                tree.url
                if isinstance(tree, _ServedTree)
                else f"{_SERVED_AT} (with --metadata-address {_SERVED_AT.removeprefix('zk://')})"
            )
            self.ready_line += f"\nwarning: {what_may_be_lost(mark, url)}"
        self._tree = tree
        self._bookie = bookie
        self._broker = broker
        self._sessions = sessions
        self._parts = parts

    async def stop(self) -> None:
        await self._broker.stop()
        await self._bookie.stop()
        for session in self._sessions:
            await session.close()
        await self._tree.close()
        await self._parts.close()


def _urls(broker: Broker) -> dict[str, str]:
    """Return the addresses for clients, by scheme."""
    at = next(iter(broker.listeners.values()))
    found = (
        ("pulsarish", at.address),
        ("http", at.http_address),
        ("pulsar", at.pulsar_address),
        ("pulsarish+ssl", plain_address(at.address_tls)),
        ("https", at.http_address_tls),
        ("pulsar+ssl", at.pulsar_address_tls),
    )
    return {scheme: address for scheme, address in found if address}


async def start_standalone(configs: StandaloneConfigs, process: NodeProcess) -> Standalone:
    """Start all of it; returns when the broker can serve. Raises what the nodes' starts raise."""
    if configs.security is not None:
        configs.security.make()
    warn_of_open_ports(
        _log,
        [
            *(f"broker {option}" for option in open_broker_options(configs.broker)),
            *(f"bookie {option}" for option in open_bookie_options(configs.bookie)),
        ],
        "use --secure",
    )
    key_file = configs.broker.cluster_key_file
    # The bookie's connections to others are the broker's, too: one process has one network.
    parts = production(
        outside=process.outside,
        credentials=member_credentials(key_file, "broker"),
        tls=configs.broker.client_tls(),
    )
    tree: _Tree
    if configs.metadata is not None:
        tree = await _ServedTree.open(configs, configs.metadata, parts, process)
    else:
        tree = await _open_tree(configs, parts)
    sessions = [await tree.new_store(), await tree.new_store()]
    bookie = Bookie(parts.world(sessions[0]), configs.bookie)
    care = process.care
    broker = Broker(
        parts.world(sessions[1]),
        configs.broker,
        lag_seconds=lambda: care.lag_seconds,
        take_lag_max=care.take_lag_max,
        lags=care.lags,
        authenticator=authenticator_of(configs.broker, parts),
    )
    try:
        await bookie.start()
        await broker.start()
        if configs.security is not None:
            urls = _urls(broker)
            configs.security.put_profile(
                f"pulsarish+ssl://{urls['pulsarish+ssl']}",
                f"https://{urls['https']}" if "https" in urls else "",
            )
        (node,) = await sessions[1].get_many([paths.RESTORED])
        mark = None if node is None else decode_record(node.data, RestoredTree, paths.RESTORED)
    except BaseException:
        # Listeners must not outlive the loop: gRPC would complain of each at the end of the
        # process.
        await parts.connections.close()
        raise
    return Standalone(tree, bookie, broker, sessions, parts, mark, configs.security)
