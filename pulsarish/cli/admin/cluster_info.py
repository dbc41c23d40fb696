"""``pulsarish cluster-info``."""

from __future__ import annotations

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import AdminCommand, admin_option
from pulsarish.cli.output import output_option, print_record
from pulsarish.model.errors import NotFound

__all__ = ["cluster_info"]


@click.command(cls=AdminCommand)
@admin_option
@output_option
def cluster_info(admin: Admin, output: str) -> None:
    """Show the brokers of a cluster and their leader, its bookies, its tenants, and the addresses
    for clients.

    \b
    Example:
      pulsarish cluster-info -o json
    """
    brokers, bookies = admin.brokers.list(), admin.bookies.list()
    try:
        leader = admin.brokers.leader()["brokerId"]
    except NotFound:
        leader = None  # a leader is being elected
    found = {
        "cluster": admin.clusters.list()[0],
        "version": admin.brokers.version(),
        "brokers": [each["broker_id"] for each in brokers],
        "leader": leader,
        "bookies": [each["bookie_id"] for each in bookies],
        "read_only_bookies": [each["bookie_id"] for each in bookies if each["read_only"]],
        "tenants": admin.tenants.list(),
        "service_urls": {
            "pulsarish": "pulsarish://" + ",".join(each["address"] for each in brokers),
            "http": "http://" + ",".join(each["http_address"] for each in brokers),
        },
    }
    print_record(found, output)
