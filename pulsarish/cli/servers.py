"""The commands that run a server: each loads its configuration and runs one node until it is
stopped.
"""

from __future__ import annotations

import errno
import importlib
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, NoReturn, Protocol

import click

from pulsarish.cli.output import fail, say
from pulsarish.cli.server_options import config_options, group_options, load_config
from pulsarish.model.errors import PulsarishError
from pulsarish.model.quorums import weak_quorum
from pulsarish.runtime.disk_errors import disk_remedy
from pulsarish.runtime.log import LogForm, configure_logs
from pulsarish.runtime.loop import NodeProcess, RunningNode, run_node
from pulsarish.runtime.seams import Locked

if TYPE_CHECKING:
    from pulsarish.local_cluster.member_options import Member

__all__ = [
    "autorecovery",
    "bookie",
    "broker",
    "metadata",
    "proxy",
    "standalone",
    "zookeeper",
]


class _Logs(Protocol):
    """The options that every server has."""

    @property
    def log_level(self) -> str: ...

    @property
    def log_form(self) -> LogForm: ...

    @property
    def log_repeats_max(self) -> int: ...


def _serve(
    start: Callable[[NodeProcess], Awaitable[RunningNode]],
    config: _Logs,
    *,
    in_group: bool = False,
    **identity: str,
) -> None:
    configure_logs(
        level=config.log_level,
        form=config.log_form,
        identity=identity,
        is_one_of_several=in_group,
        repeats_max=config.log_repeats_max,
    )
    with _start_errors():
        raise SystemExit(run_node(start))


@contextmanager
def _start_errors() -> Iterator[None]:
    """End the program with a sentence when a server cannot start."""
    try:
        yield
    except Locked as error:
        fail(str(error))
    except OSError as error:
        hint = disk_remedy(error)
        if error.errno == errno.EADDRINUSE:
            hint = (
                "stop that process, or listen on another address (listen_address, http_address; "
                "port 0 is any free port)"
            )
        where = f": {error.filename}" if error.filename else ""
        fail(f"{error.strerror or error}{where}{'; ' if hint else ''}{hint}")
    except PulsarishError as error:
        fail(f"{type(error).__name__}: {error}")


def _serve_group(
    role: str,
    members: Sequence[Member],
    ready_line: str,
    config: _Logs,
    toml_path: str | None,
    overrides: tuple[str, ...],
) -> NoReturn:
    """Run the processes of a group, and end this one with their status."""
    from pulsarish.local_cluster.process_group import ProcessGroup

    configure_logs(
        level=config.log_level,
        form=config.log_form,
        identity={role: members[0].name.rpartition("-")[0]},
        is_one_of_several=True,
        repeats_max=config.log_repeats_max,
    )
    given = [sys.executable, "-m", "pulsarish", role, "--in-group"]
    given += ["--config", toml_path] if toml_path else []
    commands: dict[str, Sequence[str]] = {}
    for member in members:
        settings = [*overrides, *(f"{key}={value}" for key, value in member.settings.items())]
        commands[member.name] = [*given, *(word for each in settings for word in ("--set", each))]
    raise SystemExit(ProcessGroup(commands, ready_line).run())


class _ServerGroup(click.Group):
    """A server that has commands, which are imported only when one is called.

    ``commands``: their names and their help; ``module``: where they are.
    """

    module: ClassVar[str]
    commands_help: ClassVar[Mapping[str, str]]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands_help)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands_help:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(self.module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.commands_help.items()))


class _MetadataGroup(_ServerGroup):
    module = "pulsarish.cli.metadata"
    commands_help: ClassVar = {
        "backup": "write the whole tree to a file, once or on a schedule",
        "rehearse": "restore a backup into a scratch tree, and compare it with bookies",
        "restore": "make a tree equal to a backup",
        "diff": "print the differences of two trees",
        "audit": "compare the ledgers on bookies with those in the metadata",
        "accept": "continue with a tree that came back older",
        "confirm": "let bookies delete again after a restore",
        "cut": "continue with the rest of a damaged tree",
        "protect": "give the nodes of a tree to the members' login alone",
    }


class _AutoRecoveryGroup(_ServerGroup):
    module = "pulsarish.cli.admin.autorecovery"
    commands_help: ClassVar = {
        "status": "show whether it is on, who looks for lost copies, and what is missing",
        "enable": "switch it on, on all nodes",
        "disable": "switch it off, on all nodes, for maintenance",
        "trigger": "have the auditor look through all ledgers now",
        "who-is-auditor": "print which process looks for lost copies",
        "set-lost-bookie-delay": "set how long a bookie may be away before it is lost",
    }


def _check_alone(context: click.Context, *, is_given: bool, server: str) -> None:
    """Raise ``click.UsageError`` where options of the server stand before one of its commands."""
    if is_given:
        raise click.UsageError(
            f"--config, --set and --print-config are options of the {server}; "
            f"{context.invoked_subcommand} has none of them"
        )


@click.group(cls=_MetadataGroup, invoke_without_command=True)
@config_options
@click.pass_context
def metadata(
    context: click.Context, toml_path: str | None, overrides: tuple[str, ...], print_config: bool
) -> None:
    """Run the metadata daemon: ZooKeeper's wire protocol over an embedded, synced store. One node;
    production needs an ensemble.

    With a command, back up, restore, compare or repair a tree of metadata instead.

    \b
    Examples:
      pulsarish metadata --set data_directory=/var/lib/pulsarish/metadata
      pulsarish metadata backup zk://127.0.0.1:2181/pulsarish metadata-backup.jsonl.gz
    """
    if context.invoked_subcommand is not None:
        given = bool(toml_path or overrides or print_config)
        _check_alone(context, is_given=given, server="daemon")
        return
    from pulsarish.metadata.daemon.config import MetadataConfig
    from pulsarish.metadata.daemon.main import start_metadata

    config = load_config(MetadataConfig, "metadata", toml_path, overrides, show=print_config)
    _serve(lambda process: start_metadata(config, process), config, metadata=config.listen_address)


@click.command()
@click.option(
    "--ensemble",
    metavar="HOST[:CLIENT:QUORUM:ELECTION],...",
    help="Be one server of this ensemble, named in the same order on each; the ports are 2181, "
    "2888 and 3888 unless they are given.",
)
@click.option(
    "--server-id",
    type=click.IntRange(1, 255),
    help="Which server of --ensemble this one is, from 1; without it, the one with the name of "
    "this machine.",
)
@config_options
def zookeeper(
    ensemble: str | None,
    server_id: int | None,
    toml_path: str | None,
    overrides: tuple[str, ...],
    print_config: bool,
) -> None:
    """Run the real ZooKeeper 3.9 from the jars of PySpark; needs Java 17 and PySpark (`make setup`
    installs it).

    Options that are given with --set go over those of --ensemble.

    \b
    Examples:
      pulsarish zookeeper --set data_directory=/var/lib/zookeeper
      pulsarish zookeeper --ensemble zk1,zk2,zk3 --set data_directory=/var/lib/zookeeper
    """
    from pulsarish.metadata.daemon.zookeeper_server import (
        ZooKeeperServerConfig,
        configuration_path,
        ensemble_settings,
        write_configuration,
        zookeeper_command,
    )

    if ensemble is not None:
        settings, url = ensemble_settings(ensemble.split(","), server_id or 0, socket.gethostname())
        overrides = (*settings, *overrides)
        say(f"metadata_url of this ensemble: {url}")
    elif server_id is not None:
        raise click.UsageError("--server-id is of --ensemble: name the servers with that")
    config = load_config(
        ZooKeeperServerConfig, "zookeeper", toml_path, overrides, show=print_config
    )
    # Before anything is written: it raises when Java or the jars are missing.
    command = zookeeper_command(config, configuration_path(config))
    write_configuration(config)
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606 - this process becomes the server


@click.command()
@config_options
@group_options
def bookie(
    toml_path: str | None,
    overrides: tuple[str, ...],
    print_config: bool,
    processes: int,
    port_step: int,
    in_group: bool,
) -> None:
    """Run a bookie, which stores entries; with --processes several, in directories below the one
    given.

    \b
    Examples:
      pulsarish bookie --set bookie_id=b1 --set data_directory=/var/lib/b1 --set metadata_url=zk://zk1:2181/pulsarish
      pulsarish bookie --processes auto --config bookie.toml
    """
    from pulsarish.bookie.config import BookieConfig
    from pulsarish.bookie.main import check_directories, start_bookie

    config = load_config(BookieConfig, "bookie", toml_path, overrides, show=print_config)
    if not in_group:
        check_directories(config, processes)
        if processes > 1:
            from pulsarish.local_cluster.member_options import bookie_members

            members = bookie_members(config, processes, port_step)
            names = " ".join(member.name for member in members)
            ready = f"{processes} bookies ready {names}"
            _serve_group("bookie", members, ready, config, toml_path, overrides)
    _serve(
        lambda process: start_bookie(config, process),
        config,
        in_group=in_group,
        bookie=config.bookie_id,
    )


@click.group(cls=_AutoRecoveryGroup, invoke_without_command=True)
@config_options
@click.pass_context
def autorecovery(
    context: click.Context, toml_path: str | None, overrides: tuple[str, ...], print_config: bool
) -> None:
    """Find under-replicated ledgers and repair them. Any number may run; bookies can host it:
    auto_recovery_daemon_enabled.

    With a command, ask something of the auto-recovery of a whole cluster instead.

    \b
    Examples:
      pulsarish autorecovery --set metadata_url=zk://zk1:2181/pulsarish
      pulsarish autorecovery status
    """
    if context.invoked_subcommand is not None:
        given = bool(toml_path or overrides or print_config)
        _check_alone(context, is_given=given, server="process")
        return
    from pulsarish.autorecovery.config import AutoRecoveryConfig
    from pulsarish.autorecovery.main import start_autorecovery

    config = load_config(
        AutoRecoveryConfig, "autorecovery", toml_path, overrides, show=print_config
    )
    _serve(
        lambda process: start_autorecovery(config, process),
        config,
        autorecovery=config.autorecovery_id or config.http_address,
    )


@click.command()
@config_options
@group_options
def broker(
    toml_path: str | None,
    overrides: tuple[str, ...],
    print_config: bool,
    processes: int,
    port_step: int,
    in_group: bool,
) -> None:
    """Run a broker, which serves topics; with --processes several behind one address.

    \b
    Examples:
      pulsarish broker --set listen_address=0.0.0.0:6660 --set advertised_address=host1 --set metadata_url=zk://zk1:2181/pulsarish
      pulsarish broker --processes auto --config broker.toml
    """
    from pulsarish.broker.config import BrokerConfig
    from pulsarish.broker.main import start_broker

    config = load_config(BrokerConfig, "broker", toml_path, overrides, show=print_config)
    log = config.managed_ledger
    if not in_group and (risk := weak_quorum(log.write_quorum, log.ack_quorum)):
        say(f"warning: {risk}")
    if processes > 1:
        from pulsarish.local_cluster.member_options import broker_members, shared_by_brokers
        from pulsarish.local_cluster.process_group import reserved_ports

        wanted = [entry.rpartition("://") for entry in shared_by_brokers(config)]
        with (
            _start_errors(),
            reserved_ports([address for _, _, address in wanted]) as addresses,
        ):
            shared = [
                f"{kind}://{address}"
                for (kind, _, _), address in zip(wanted, addresses, strict=True)
            ]
            members = broker_members(config, processes, port_step, shared)
            ready = f"{processes} brokers ready {' '.join(shared)}"
            _serve_group("broker", members, ready, config, toml_path, overrides)
    _serve(
        lambda process: start_broker(config, process),
        config,
        in_group=in_group,
        broker=config.broker_id or config.listen_address,
    )


@click.command()
@config_options
def proxy(toml_path: str | None, overrides: tuple[str, ...], print_config: bool) -> None:
    """Relay clients of the binary protocol that can reach only this address to the brokers that
    serve their topics.

    \b
    Example:
      pulsarish proxy --set pulsar_address=0.0.0.0:6650 --set metadata_url=zk://zk1:2181/pulsarish
    """
    from pulsarish.proxy.config import ProxyConfig
    from pulsarish.proxy.main import start_proxy

    config = load_config(ProxyConfig, "proxy", toml_path, overrides, show=print_config)
    _serve(
        lambda process: start_proxy(config, process),
        config,
        proxy=config.pulsar_address or config.pulsar_address_tls,
    )


@click.command()
@click.option(
    "--data",
    "data_directory",
    default="pulsarish-data",
    show_default=True,
    type=click.Path(file_okay=False),
    help="Directory of the data.",
)
@click.option(
    "--in-memory",
    is_flag=True,
    help="Keep metadata in memory and entries in a temporary directory; deleted at the end.",
)
@click.option(
    "--metadata-address",
    metavar="HOST:PORT",
    help=(
        "Also serve the metadata at this address, as `pulsarish metadata` does; `pulsarish "
        "job` needs it."
    ),
)
@click.option(
    "--secure",
    is_flag=True,
    help=(
        "Speak TLS on every port, ask clients for tokens and permit what is granted only; keys, "
        "certificates and the administrator's profile are made in DATA/security."
    ),
)
@click.option(
    "--broker-set",
    "broker_overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the broker.",
)
@click.option(
    "--bookie-set",
    "bookie_overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the bookie.",
)
def standalone(
    data_directory: str,
    in_memory: bool,
    metadata_address: str | None,
    secure: bool,
    broker_overrides: tuple[str, ...],
    bookie_overrides: tuple[str, ...],
) -> None:
    """Run metadata, a bookie and a broker in one process: E = Qw = Qa = 1, everything synced, on
    the well-known ports.

    \b
    Examples:
      pulsarish standalone --data ./data
      pulsarish standalone --data ./locked --secure
      pulsarish standalone --metadata-address 127.0.0.1:2181
    """
    import tempfile

    from pulsarish.local_cluster.standalone import (
        StandaloneConfigs,
        standalone_configs,
        start_standalone,
    )

    def serve(directory: str) -> None:
        configs: StandaloneConfigs = standalone_configs(
            directory,
            in_memory=in_memory,
            environ=os.environ,
            broker_overrides=broker_overrides,
            bookie_overrides=bookie_overrides,
            metadata_address=metadata_address,
            secure=secure,
        )
        _serve(lambda process: start_standalone(configs, process), configs.broker)

    if in_memory:
        with tempfile.TemporaryDirectory(prefix="pulsarish-standalone-") as directory:
            serve(directory)
    else:
        serve(data_directory)
