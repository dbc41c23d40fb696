"""``pulsarish brokers``."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import AdminGroup, admin_option, print_names
from pulsarish.cli.output import output_option, print_record, print_table, say
from pulsarish.cli.progress import Progress
from pulsarish.model.errors import ConnectError, NotFound, ServiceNotReady, Timeout

__all__ = ["brokers"]

_LOOK_SECONDS: Final = 0.5
_LOAD: Final = {
    "bundles": "numBundles",
    "topics": "numTopics",
    "producers": "numProducers",
    "consumers": "numConsumers",
    "msg_rate_in": "msgRateIn",
    "msg_rate_out": "msgRateOut",
    "bytes_in": "msgThroughputIn",
    "bytes_out": "msgThroughputOut",
    "cpu_percent": "",
    "memory_mb": "",
}
"""Columns, each with its name in a load report; of the process those that have none."""


@click.group(cls=AdminGroup)
def brokers() -> None:
    """Brokers, which serve topics and store nothing.

    \b
    Example:
      pulsarish brokers list
    """


@brokers.command("list")
@admin_option
@output_option
def list_brokers(admin: Admin, output: str) -> None:
    """List the brokers that are alive.

    \b
    Example:
      pulsarish brokers list
    """
    print_table(admin.brokers.list(), ["broker_id", "address", "http_address", "host"], output)


@brokers.command()
@admin_option
@output_option
def leader(admin: Admin, output: str) -> None:
    """Show the leader broker, which removes the remains of deleted topics.

    \b
    Example:
      pulsarish brokers leader
    """
    print_record(admin.brokers.leader(), output)


@brokers.command()
@admin_option
@output_option
def health(admin: Admin, output: str) -> None:
    """Check whether the broker at --admin-url can serve, and print its warnings. If it cannot
    serve, print why and exit with status 1.

    \b
    Example:
      pulsarish brokers health --admin-url http://127.0.0.1:8080
    """
    found = admin.brokers
    print_record(
        {"health": found.health(), "version": found.version(), "warnings": found.warnings()}, output
    )


@brokers.command()
@click.argument("broker")
@admin_option
@output_option
def bundles(broker: str, admin: Admin, output: str) -> None:
    """List the bundles that a broker serves. BROKER is its id, as in: pulsarish brokers list.

    \b
    Example:
      pulsarish brokers bundles broker-1
    """
    (cluster,) = admin.clusters.list()
    print_names(sorted(admin.brokers.owned_namespaces(cluster, broker)), "bundle", output)


@brokers.command()
@click.argument("broker", default="")
@click.option("--all", "shows_all", is_flag=True, help="All brokers, one a line, and their sum.")
@admin_option
@output_option
def stats(broker: str, shows_all: bool, admin: Admin, output: str) -> None:
    """Show the load of a broker: bundles, topics, producers, consumers, rates per second, CPU time
    and memory; with -o json each bundle, too.

    BROKER is its id, as in: pulsarish brokers list. Without it, the broker that answers at
    --admin-url. --all shows the brokers that answer, and names the others.

    \b
    Examples:
      pulsarish brokers stats -o json
      pulsarish brokers stats broker-2
      pulsarish brokers stats --all
    """
    if shows_all:
        if broker:
            raise click.UsageError(f"--all is of all brokers: leave {broker!r} out")
        _print_loads(admin, output)
        return
    report = admin.brokers.load_report(broker)
    if output != "json":
        del report["bundleStats"]
    print_record(report, output)


def _print_loads(admin: Admin, output: str) -> None:
    """Print the load of all brokers, and their sum. End with status 1 when one did not answer."""
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    for each in admin.brokers.list():
        broker = each["broker_id"]
        try:
            rows.append(_load_row(broker, admin))
        except (NotFound, ServiceNotReady, ConnectError, Timeout) as error:
            failed.append(f"error: no load of broker {broker}: {error}")
    total = {name: round(sum(row[name] for row in rows), 3) for name in _LOAD}
    print_table([*rows, {"broker_id": "(all)", **total}], ["broker_id", *_LOAD], output)
    for line in failed:
        say(line)
    if failed:
        raise SystemExit(1)


def _load_row(broker: str, admin: Admin) -> dict[str, Any]:
    report = admin.brokers.load_report(broker)
    counts = {name: report[key] for name, key in _LOAD.items() if key in report}
    cpu, memory = round(report["processCpu"] * 100, 1), report["memory"]["usage"]
    return {"broker_id": broker, **counts, "cpu_percent": cpu, "memory_mb": memory}


@brokers.command()
@click.argument("broker")
@click.option(
    "--wait-seconds",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    help="How long to wait until the broker has no bundle; 0: do not wait.",
)
@click.option(
    "--to",
    metavar="BROKER",
    default="",
    help="The broker that gets all of them. Without it each goes to the broker with the fewest "
    "that may have it.",
)
@admin_option
@output_option
def drain(broker: str, wait_seconds: float, to: str, admin: Admin, output: str) -> None:
    """Move all bundles of a broker to other brokers, and give it none until: pulsarish brokers
    undrain, or until its process ends.

    BROKER is its id, as in: pulsarish brokers list. Clients of its topics reconnect by themselves.

    \b
    Examples:
      pulsarish brokers drain broker-2
      pulsarish brokers drain broker-2 --to broker-3
      pulsarish brokers drain broker-2 --wait-seconds 0     # do not wait
    """
    state = admin.brokers.drain(broker, destination=to)
    deadline = time.monotonic() + wait_seconds
    with Progress(f"moving the bundles of {broker}"):
        while state["draining"] and state["bundlesLeft"] and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            state = admin.brokers.drain_state(broker)
    print_record(state, output)
    if not state["draining"]:
        say(f"the drain of {broker} was ended meanwhile")
        raise SystemExit(1)
    if wait_seconds and state["bundlesLeft"]:
        say(
            f"{broker} still has {state['bundlesLeft']} bundles after {wait_seconds:g} s; it goes "
            "on. Run the command again to wait longer"
        )
        raise SystemExit(1)


@brokers.command()
@click.argument("broker")
@admin_option
@output_option
def undrain(broker: str, admin: Admin, output: str) -> None:
    """End the drain of a broker. It takes bundles again; those that moved come back only by the
    balancer or by hand.

    \b
    Example:
      pulsarish brokers undrain broker-2
    """
    print_record(admin.brokers.undrain(broker), output)


@brokers.command()
@click.option("--name", metavar="TEXT", help="Only options whose names contain this text.")
@admin_option
@output_option
def config(name: str | None, admin: Admin, output: str) -> None:
    """Show the options in force at the broker at --admin-url.

    \b
    Example:
      pulsarish brokers config --name quorum
    """
    found = {
        option: value
        for option, value in admin.brokers.configuration().items()
        if name is None or name in option
    }
    if name is not None and not found:
        say(f"no option's name contains {name!r}")
    print_record(found, output)


@brokers.command("list-dynamic-config")
@admin_option
@output_option
def list_dynamic_config(admin: Admin, output: str) -> None:
    """List the options that can change while brokers run.

    \b
    Example:
      pulsarish brokers list-dynamic-config
    """
    print_names(admin.brokers.dynamic_option_names(), "option", output)


@brokers.command("get-all-dynamic-config")
@admin_option
@output_option
def get_all_dynamic_config(admin: Admin, output: str) -> None:
    """Show the options that were set while brokers ran.

    \b
    Example:
      pulsarish brokers get-all-dynamic-config
    """
    found = admin.brokers.dynamic_options()
    print_record(found, output)
    if not found:
        say("no option was set while brokers ran")


@brokers.command(
    "update-dynamic-config",
    context_settings={"ignore_unknown_options": True},  # a value may be -1
)
@click.argument("name")
@click.argument("value")
@admin_option
def update_dynamic_config(name: str, value: str, admin: Admin) -> None:
    """Set an option of all brokers while they run.

    It is in force at once, and also at brokers that start later, whatever their files say, until:
    pulsarish brokers delete-dynamic-config. NAME is one of: pulsarish brokers list-dynamic-config.

    \b
    Example:
      pulsarish brokers update-dynamic-config max_publish_rate_per_topic_in_messages 5000
    """
    admin.brokers.set_dynamic_option(name, value)
    say(f"option {name} is {value} at all brokers")


@brokers.command("delete-dynamic-config")
@click.argument("name")
@admin_option
def delete_dynamic_config(name: str, admin: Admin) -> None:
    """Remove an option that was set while brokers ran. Each broker uses again what it was started
    with.

    \b
    Example:
      pulsarish brokers delete-dynamic-config max_publish_rate_per_topic_in_messages
    """
    admin.brokers.delete_dynamic_option(name)
    say(f"option {name} is what each broker was started with")
