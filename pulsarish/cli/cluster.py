"""``pulsarish cluster``: real processes on this machine, to use and to break."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from pulsarish.cli.output import human_bytes, output_option, print_json, print_table, say
from pulsarish.cli.processes import Cluster, NodeState, plan_cluster
from pulsarish.model.errors import AlreadyExists

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
        help="Where the cluster's plan, data and logs are.",
    )(command)


@click.group()
def cluster() -> None:
    """Start, look at, break and stop a cluster of processes on this machine.

    \b
    Example:
      pulsarish cluster up --bookies 3 --brokers 2
      pulsarish cluster kill broker-1      # kill -9: clients go on with broker-2
      pulsarish cluster start broker-1
      pulsarish cluster down
    """


@cluster.command()
@_directory_option
@click.option("--bookies", default=3, show_default=True, type=click.IntRange(1, 50))
@click.option("--brokers", default=2, show_default=True, type=click.IntRange(1, 50))
@click.option(
    "--metadata",
    type=click.Choice(["embedded", "zookeeper"]),
    default="embedded",
    show_default=True,
    help="embedded: the daemon that speaks ZooKeeper's protocol; zookeeper: the real one, which needs Java 17.",
)
@click.option("--base-port", type=click.IntRange(0, 60000), help="First of a row of ports; 0: free ones; absent: the well-known.")
@click.option("--supervise", is_flag=True, help="Stay in the foreground and start again what ends; Ctrl-C stops the cluster.")
@output_option
def up(directory: Path, bookies: int, brokers: int, metadata: str, base_port: int | None, supervise: bool, output: str) -> None:
    """Start a cluster, or the nodes of one that are down; returns when all are ready."""
    target = Cluster(directory)
    started = time.monotonic()
    if not target.exists():
        target.create(plan_cluster(bookies=bookies, brokers=brokers, metadata=metadata, base_port=base_port))
    target.up()
    say(f"the cluster under {target.directory} is up ({time.monotonic() - started:.1f} s)")
    _print_status(target, output)
    if supervise:
        _supervise(target)


@cluster.command()
@_directory_option
@output_option
def status(directory: Path, output: str) -> None:
    """Each node with its process, ports, health and memory, and the addresses that clients use."""
    _print_status(Cluster(directory), output)


@cluster.command()
@_directory_option
def down(directory: Path) -> None:
    """Stop every node gracefully; data stays, `cluster up` goes on with it."""
    Cluster(directory).down(say)


@cluster.command()
@click.argument("node")
@_directory_option
def kill(node: str, directory: Path) -> None:
    """SIGKILL a node, such as broker-1 or bookie-2."""
    Cluster(directory).kill(node)


@cluster.command()
@click.argument("node")
@_directory_option
def stop(node: str, directory: Path) -> None:
    """Stop a node gracefully."""
    Cluster(directory).stop(node)


@cluster.command()
@click.argument("node")
@_directory_option
def start(node: str, directory: Path) -> None:
    """Start a node that is down; returns when it is ready."""
    target = Cluster(directory)
    plan = target.node(node)
    if target.pid(node) is not None:
        raise AlreadyExists(f"{node} runs already")
    target.start(plan)
    target.wait_ready([plan])


@cluster.command()
@click.argument("node")
@_directory_option
@click.option("-n", "--lines", default=40, show_default=True, type=click.IntRange(1), help="How many lines from the end.")
@click.option("-f", "--follow", is_flag=True, help="Go on printing what comes.")
def logs(node: str, directory: Path, lines: int, follow: bool) -> None:
    """The end of a node's log."""
    target = Cluster(directory)
    path = target.log_path(target.node(node).name)
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
        {**_row(state), "ports": " ".join(f"{kind}:{port}" for kind, port in state.ports.items()), "memory": human_bytes(state.rss_bytes)}
        for state in states
    ]
    print_table(rows, ["name", "role", "pid", "ports", "health", "memory"], "table")
    for kind, url in urls.items():
        say(f"{kind:>10}: {url}")


def _row(state: NodeState) -> dict[str, object]:
    return {
        "name": state.name,
        "role": state.role,
        "pid": state.pid,
        "ports": state.ports,
        "health": state.health,
        "rss_bytes": state.rss_bytes,
    }


def _supervise(target: Cluster) -> None:
    try:
        while True:
            for node in target.nodes():
                if target.pid(node.name) is None:
                    say(f"{node.name} has ended and is started again")
                    target.start(node)
            time.sleep(_SUPERVISE_SECONDS)
    except KeyboardInterrupt:
        say("stopping the cluster")
        target.down(say)
