"""``pulsarish cluster``: real processes on this machine, to use and to break."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from pulsarish.cli.connections import SERVICE_URL
from pulsarish.cli.groups import Group
from pulsarish.cli.output import output_option, print_json, print_table, say
from pulsarish.cli.server_options import processes_option
from pulsarish.cli.values import FiniteRange
from pulsarish.local_cluster.growth import add_nodes, remove_nodes
from pulsarish.local_cluster.locked import is_locked, lock_cluster, profiles_of
from pulsarish.local_cluster.plan import METADATA_ROLES, plan_cluster
from pulsarish.local_cluster.processes import Cluster, NodeState
from pulsarish.local_cluster.restarts import (
    WAIT_SECONDS,
    nodes_to_restart,
    restart_together,
    rolling_restart,
)
from pulsarish.model.errors import InvalidArgument, NotFound, ServiceNotReady
from pulsarish.model.units import human_bytes

__all__ = ["cluster"]

F = TypeVar("F", bound=Callable[..., Any])

_SUPERVISE_SECONDS: Final = 0.5


def _directory_option(command: F) -> F:
    return click.option(
        "--dir",
        "directory",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="PULSARISH_CLUSTER_DIR",
        default=Path("pulsarish-cluster"),
        show_default=True,
        help="Directory of the cluster's plan, data and logs.",
    )(command)


@click.group(cls=Group)
def cluster() -> None:
    """Start, show, break and stop a cluster of processes on this machine.

    \b
    Example:
      pulsarish cluster up --bookies 3 --brokers 2
      pulsarish cluster kill broker-1      # kill -9: clients continue with broker-2
      pulsarish cluster start broker-1
      pulsarish cluster down
    """


@cluster.command()
@_directory_option
@click.option("--bookies", default=3, show_default=True, type=click.IntRange(1, 50))
@click.option("--brokers", default=2, show_default=True, type=click.IntRange(1, 50))
@processes_option("--bookie-processes", "Processes of each bookie")
@processes_option("--broker-processes", "Processes of each broker, behind its address")
@click.option(
    "--metadata",
    type=click.Choice(["embedded", "zookeeper"]),
    default="embedded",
    show_default=True,
    help=(
        "embedded: the daemon that speaks ZooKeeper's protocol; zookeeper: the real "
        "ZooKeeper, which needs Java 17."
    ),
)
@click.option(
    "--ensemble",
    "metadata_servers",
    default=1,
    show_default=True,
    metavar="N",
    type=click.IntRange(1, 7),
    help="Servers of the real ZooKeeper: one, or an ensemble of at least three.",
)
@click.option(
    "--base-port",
    type=click.IntRange(0, 60000),
    help="First of consecutive ports; 0: free ports; default: the well-known ports. Give one below "
    "those that the system gives to connections (/proc/sys/net/ipv4/ip_local_port_range).",
)
@click.option(
    "--secure",
    is_flag=True,
    help=(
        "Speak TLS, ask clients for tokens, permit what is granted only, and have bookies serve "
        "members only; keys, certificates and the administrator's profile are made in DIR/security."
    ),
)
@click.option(
    "--supervise",
    is_flag=True,
    help="Stay in the foreground and restart nodes that end; Ctrl-C stops the cluster.",
)
@output_option
def up(
    directory: Path,
    bookies: int,
    brokers: int,
    bookie_processes: int,
    broker_processes: int,
    metadata: str,
    metadata_servers: int,
    base_port: int | None,
    secure: bool,
    supervise: bool,
    output: str,
) -> None:
    """Start a cluster, or the stopped nodes of one, and wait until all are ready.

    \b
    Examples:
      pulsarish cluster up
      pulsarish cluster up --dir /tmp/other --bookies 5 --base-port 0
      pulsarish cluster up --dir /tmp/cores --brokers 1 --broker-processes auto --base-port 0
      pulsarish cluster up --dir /tmp/locked --secure --base-port 0
      pulsarish cluster up --dir /tmp/zk3 --metadata zookeeper --ensemble 3 --base-port 0
    """
    target = Cluster(directory)
    started = time.monotonic()
    is_new = not target.exists()
    if is_new:
        plan = plan_cluster(
            bookies=bookies,
            brokers=brokers,
            bookie_processes=bookie_processes,
            broker_processes=broker_processes,
            metadata=metadata,
            metadata_servers=metadata_servers,
            base_port=base_port,
        )
        target.check_ports(plan)
        if secure:
            lock_cluster(target, plan)
        target.create(plan)
    else:
        wanted = {
            "bookies": bookies,
            "brokers": brokers,
            "bookie_processes": bookie_processes,
            "broker_processes": broker_processes,
            "metadata": metadata,
            "metadata_servers": metadata_servers,
            "secure": secure,
        }
        _check_plan(target, {**wanted, "base_port": base_port})
    try:
        target.up()
        say(f"the cluster under {target.directory} is up ({time.monotonic() - started:.1f} s)")
        _print_status(target, output)
        if supervise:
            _supervise(target)
    except KeyboardInterrupt:
        if not supervise:
            say(
                "interrupted; started nodes keep running; stop them with: "
                f"{_command(target, 'down')}"
            )
            raise
        say("stopping the cluster")
        _without_interruption()
        target.down(say)
    except ServiceNotReady:
        say(f"not all nodes could be started; stop the others with: {_command(target, 'down')}")
        raise


def _check_plan(target: Cluster, wanted: dict[str, Any]) -> None:
    """Refuse options that contradict the plan of an existing cluster: they would be ignored."""
    nodes = target.nodes()
    planned = {
        "bookies": sum(node.role == "bookie" for node in nodes),
        "brokers": sum(node.role == "broker" for node in nodes),
        **{f"{node.role}_processes": node.processes for node in nodes},
        "metadata": "zookeeper" if nodes[0].role == "zookeeper" else "embedded",
        "metadata_servers": sum(node.role in METADATA_ROLES for node in nodes),
        "base_port": nodes[0].ports["client"],
        "secure": is_locked(nodes),
    }
    context = click.get_current_context()
    for name, value in wanted.items():
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and value != planned[name] and value != 0:
            raise InvalidArgument(
                f"the cluster under {target.directory} was made with {name.replace('_', ' ')} "
                f"{planned[name]}, not {value}: leave the option out, or give another --dir; "
                "bookies and brokers come and go with pulsarish cluster add and remove"
            )


def _command(target: Cluster, name: str) -> str:
    return f"pulsarish cluster {name} --dir {target.directory}"


def _without_interruption() -> None:
    """Ignore Ctrl-C and SIGTERM from now on: the cluster is being stopped, and no node may be left
    behind.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@cluster.command()
@click.argument("role", type=click.Choice(["bookie", "broker"]))
@click.option(
    "-n",
    "--count",
    default=1,
    show_default=True,
    type=click.IntRange(1, 50),
    help="How many.",
)
@_directory_option
@output_option
def add(role: str, count: int, directory: Path, output: str) -> None:
    """Add bookies or brokers to a cluster, start them, and wait until they serve.

    They have the next names and ports, and the options of the others. New ledgers use a new bookie
    at once; a new broker gets its share of the bundles within a minute.

    \b
    Examples:
      pulsarish cluster add bookie -n 2
      pulsarish cluster add broker
    """
    target = Cluster(directory)
    added = add_nodes(target, role, count)
    if output == "json":
        print_json([_row(target.state(node)) for node in added])
    else:
        say(f"{', '.join(node.name for node in added)}: ready")


@cluster.command()
@click.argument("nodes", nargs=-1, required=True)
@_directory_option
@click.option(
    "--force",
    is_flag=True,
    help="Stop them at once, without moving bundles or making copies elsewhere first. The data of "
    "a bookie are deleted all the same.",
)
@click.option(
    "--wait-seconds",
    default=3_600.0,
    show_default=True,
    type=FiniteRange(0),
    help="How long each node may take; exit status 1 if it is not removed by then.",
)
def remove(nodes: tuple[str, ...], directory: Path, force: bool, wait_seconds: float) -> None:
    """Remove bookies or brokers from a cluster for good.

    A broker hands its bundles over to others and stops. A bookie is set read-only, what it holds
    is copied to others, and topics that have an open ledger on it are unloaded; then it stops, is
    decommissioned, and its data are deleted. Refused when fewer bookies than the write quorum, or
    no broker, would be left. A removal that was interrupted is finished by the same command.

    With --force the copies of a bookie are made from those that others have, once it counts as
    lost (auto_recovery.lost_bookie_recovery_delay_seconds). What no other bookie has is lost: give
    one bookie at a time.

    \b
    Examples:
      pulsarish cluster remove bookie-4 bookie-5
      pulsarish cluster remove broker-3
    """
    remove_nodes(Cluster(directory), nodes, force=force, wait_seconds=wait_seconds, say=say)


@cluster.command()
@_directory_option
@output_option
def status(directory: Path, output: str) -> None:
    """Show each node with its process, ports, health and memory, and the addresses for clients.

    \b
    Example:
      pulsarish cluster status -o json
    """
    _print_status(Cluster(directory), output)


@cluster.command()
@_directory_option
def down(directory: Path) -> None:
    """Stop every node gracefully. The data stays, and `cluster up` continues with it.

    \b
    Example:
      pulsarish cluster down
    """
    target = Cluster(directory)
    target.nodes()
    _without_interruption()
    target.down(say)
    say(f"the cluster is down; its data stays under {target.directory}")


@cluster.command()
@click.argument("node")
@_directory_option
def kill(node: str, directory: Path) -> None:
    """Kill a node with SIGKILL, like a crash.

    \b
    Example:
      pulsarish cluster kill bookie-2
    """
    say(f"{node} is killed" if Cluster(directory).kill(node) else f"{node} was not running")


@cluster.command()
@click.argument("node")
@_directory_option
def stop(node: str, directory: Path) -> None:
    """Stop a node gracefully.

    \b
    Example:
      pulsarish cluster stop broker-1
    """
    say(f"{node} is stopped" if Cluster(directory).stop(node) else f"{node} was not running")


@cluster.command()
@click.argument("node")
@_directory_option
def start(node: str, directory: Path) -> None:
    """Start a stopped node, and wait until it is ready.

    \b
    Example:
      pulsarish cluster start bookie-2
    """
    target = Cluster(directory)
    plan = target.node(node)
    target.check_ports([plan])
    target.start(plan)
    target.wait_ready([plan])
    say(f"{node} is ready")


@cluster.command()
@click.argument("nodes", nargs=-1)
@_directory_option
@click.option(
    "--rolling",
    is_flag=True,
    help="One after another, each only when the others serve and no ledger is under-replicated.",
)
@click.option(
    "--wait-seconds",
    default=WAIT_SECONDS,
    show_default=True,
    type=FiniteRange(1),
    help=(
        "With --rolling: how long to wait for a complete cluster before the next node; after "
        "that no further node is stopped."
    ),
)
@output_option
def restart(
    nodes: tuple[str, ...], directory: Path, rolling: bool, wait_seconds: float, output: str
) -> None:
    """Stop nodes gracefully and start them again: the named ones, or all bookies and then all
    brokers.

    With --rolling, two brokers and more bookies than ack_quorum, clients see pauses but no
    failures.

    \b
    Examples:
      pulsarish cluster restart --rolling
      pulsarish cluster restart bookie-2
    """
    target = Cluster(directory)
    wanted = nodes_to_restart(target, nodes)
    done = (
        rolling_restart(target, wanted, wait_seconds, say)
        if rolling
        else restart_together(target, wanted, say)
    )
    if output == "json":
        print_json(done)


@cluster.command()
@click.argument("node")
@_directory_option
@click.option(
    "-n",
    "--lines",
    default=40,
    show_default=True,
    type=click.IntRange(1),
    help="Number of lines from the end.",
)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines.")
def logs(node: str, directory: Path, lines: int, follow: bool) -> None:
    """Print the end of a node's log.

    \b
    Example:
      pulsarish cluster logs broker-1 -n 100 --follow
    """
    target = Cluster(directory)
    path = target.log_path(target.node(node).name)
    if not path.exists():
        raise NotFound(
            f"{node} has not been started yet, so it has no log; start it with: "
            f"{_command(target, f'start {node}')}"
        )
    with path.open(errors="replace") as log:
        for line in log.readlines()[-lines:]:
            click.echo(line, nl=False)
        while follow:
            line = log.readline()
            if line:
                click.echo(line, nl=False)
            else:
                time.sleep(0.2)


def _print_status(target: Cluster, output: str) -> None:
    states = [target.state(node) for node in target.nodes()]
    urls = target.service_urls()
    if output == "json":
        print_json({"nodes": [_row(state) for state in states], "service_urls": urls})
        return
    rows = [
        {
            **_row(state),
            "ports": " ".join(f"{kind}:{port}" for kind, port in state.ports.items()),
            "memory": human_bytes(state.rss_bytes),
        }
        for state in states
    ]
    columns = ["name", "role", "pid", "ports", "health", "memory"]
    if any(state.processes > 1 for state in states):
        columns.insert(3, "processes")
    if any(state.reason for state in states):
        columns.append("reason")
    print_table(rows, columns, "table")
    for kind, url in {**urls, "http": target.admin_url()}.items():
        say(f"{kind:>10}: {url}")
    if profiles_of(target).exists():
        say(f"as its administrator: export PULSARISH_PROFILES_FILE={profiles_of(target)}")
    elif urls["pulsarish"] != SERVICE_URL:
        # The commands' default is one broker on the well-known port. The other brokers must be
        # known when that one is killed.
        say(
            f"to use the other commands: export PULSARISH_URL={urls['pulsarish']} "
            f"PULSARISH_ADMIN_URL={target.admin_url()}"
        )


def _row(state: NodeState) -> dict[str, object]:
    return {
        "name": state.name,
        "role": state.role,
        "pid": state.pid,
        "processes": state.processes,
        "ports": state.ports,
        "health": state.health,
        "reason": state.reason,
        "rss_bytes": state.rss_bytes,
    }


def _supervise(target: Cluster) -> None:
    """Restart nodes that end, until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    while True:
        for node in target.staying():
            if target.pid(node.name) is None:
                say(f"{node.name} has ended; starting it again")
                target.start(node)
        time.sleep(_SUPERVISE_SECONDS)
