"""``pulsarish cluster-info``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import AdminCommand, admin_option
from pulsarish.cli.output import TLS, output_option, print_record
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
        "service_urls": _service_urls(brokers),
    }
    print_record(found, output)


def _service_urls(brokers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the URLs of all brokers for each protocol; with TLS where a broker has that."""
    grpc = [each["address"] for each in brokers]
    has_tls = any(address.startswith(TLS) for address in grpc)
    plain = [each["http_address"] for each in brokers if each["http_address"]]
    with_tls = [
        listener["http_address_tls"]
        for each in brokers
        for listener in each["listeners"].values()
        # The internal listener is the one whose address the broker shows as its own.
        if listener["http_address_tls"] and each["address"] in listener.values()
    ]
    return {
        "pulsarish": ("pulsarish+ssl://" if has_tls else "pulsarish://")
        + ",".join(address.removeprefix(TLS) for address in grpc),
        "http": f"https://{','.join(with_tls)}" if with_tls else f"http://{','.join(plain)}",
    }
