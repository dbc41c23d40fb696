"""``pulsarish brokers``."""

from __future__ import annotations

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import AdminGroup, admin_option, print_names
from pulsarish.cli.output import output_option, print_record, print_table, say

__all__ = ["brokers"]


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
    """Check whether the broker at --admin-url can serve. If it cannot, print why and exit with
    status 1.

    \b
    Example:
      pulsarish brokers health --admin-url http://127.0.0.1:8080
    """
    print_record({"health": admin.brokers.health(), "version": admin.brokers.version()}, output)


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
@admin_option
@output_option
def stats(admin: Admin, output: str) -> None:
    """Show the load of the broker at --admin-url: bundles, topics, producers, consumers, rates per
    second.

    \b
    Example:
      pulsarish brokers stats -o json
    """
    print_record(admin.brokers.load_report(), output)


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
