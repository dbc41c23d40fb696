"""``pulsarish isolation-policies`` and ``pulsarish failure-domains``."""

from __future__ import annotations

from typing import Final

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import (
    AdminGroup,
    admin_option,
    confirm,
    print_names,
    yes_option,
)
from pulsarish.cli.output import output_option, print_record, print_table, say

__all__ = ["failure_domains", "isolation_policies"]

_LISTS: Final = ("namespaces", "primary", "secondary")


def _cluster(admin: Admin) -> str:
    (cluster,) = admin.clusters.list()
    return cluster


@click.group(cls=AdminGroup)
def isolation_policies() -> None:
    """Isolation policies: namespaces that only some brokers serve.

    \b
    Examples:
      pulsarish isolation-policies set payments --namespaces 'payments/.*' --primary 'broker-[12]'
      pulsarish isolation-policies brokers
    """


@isolation_policies.command("list")
@admin_option
@output_option
def list_policies(admin: Admin, output: str) -> None:
    """List the isolation policies.

    \b
    Example:
      pulsarish isolation-policies list
    """
    rows = [
        {"policy": name, **{key: found[key] for key in _LISTS}}
        for name, found in sorted(admin.isolation_policies.list(_cluster(admin)).items())
    ]
    print_table(rows, ["policy", *_LISTS], output)


@isolation_policies.command("get")
@click.argument("policy")
@admin_option
@output_option
def get_policy(policy: str, admin: Admin, output: str) -> None:
    """Show an isolation policy.

    \b
    Example:
      pulsarish isolation-policies get payments
    """
    print_record(admin.isolation_policies.get(_cluster(admin), policy), output)


@isolation_policies.command("set")
@click.argument("policy")
@click.option(
    "--namespaces",
    multiple=True,
    required=True,
    metavar="REGEX",
    help="Namespaces, as tenant/namespace; repeatable.",
)
@click.option(
    "--primary",
    multiple=True,
    required=True,
    metavar="REGEX",
    help="Ids or addresses of the brokers that serve them; repeatable.",
)
@click.option(
    "--secondary",
    multiple=True,
    metavar="REGEX",
    help="Brokers that serve them, too, while too few primary ones are available; repeatable.",
)
@click.option(
    "--min-limit",
    type=click.IntRange(0, 1_000),
    default=1,
    show_default=True,
    help="How many available primary brokers are enough.",
)
@click.option(
    "--usage-threshold",
    type=click.IntRange(0, 100),
    default=100,
    show_default=True,
    metavar="PERCENT",
    help="A primary broker that uses this much of one core does not count as available.",
)
@admin_option
def set_policy(
    policy: str,
    namespaces: tuple[str, ...],
    primary: tuple[str, ...],
    secondary: tuple[str, ...],
    min_limit: int,
    usage_threshold: int,
    admin: Admin,
) -> None:
    """Create or replace an isolation policy. Its primary brokers serve no other namespaces, unless
    there is no other broker.

    Each REGEX must match the whole name. Bundles on a wrong broker move within a minute.

    \b
    Example:
      pulsarish isolation-policies set payments --namespaces 'payments/.*' --primary 'broker-[12]'
    """
    admin.isolation_policies.set(
        _cluster(admin),
        policy,
        namespaces,
        primary,
        secondary=secondary,
        min_limit=min_limit,
        usage_threshold=usage_threshold,
    )
    say(f"isolation policy {policy} set")


@isolation_policies.command("delete")
@click.argument("policy")
@yes_option
@admin_option
def delete_policy(policy: str, yes: bool, admin: Admin) -> None:
    """Delete an isolation policy. Any broker may serve its namespaces then.

    \b
    Example:
      pulsarish isolation-policies delete payments
    """
    confirm(f"Let any broker serve the namespaces of isolation policy {policy}?", yes=yes)
    admin.isolation_policies.delete(_cluster(admin), policy)
    say(f"isolation policy {policy} deleted")


@isolation_policies.command()
@admin_option
@output_option
def brokers(admin: Admin, output: str) -> None:
    """List the brokers that are primary or secondary for an isolation policy.

    \b
    Example:
      pulsarish isolation-policies brokers
    """
    rows = admin.isolation_policies.brokers(_cluster(admin))
    print_table(rows, ["brokerName", "policyName", "primary", "namespaceRegex"], output)


@isolation_policies.command()
@click.argument("broker")
@admin_option
@output_option
def broker(broker: str, admin: Admin, output: str) -> None:
    """Show the isolation policy of a broker. BROKER is its id, as in: pulsarish brokers list.

    \b
    Example:
      pulsarish isolation-policies broker broker-1
    """
    print_record(admin.isolation_policies.broker(_cluster(admin), broker), output)


@click.group(cls=AdminGroup)
def failure_domains() -> None:
    """Failure domains: brokers that fail together, such as those of one rack. The bundles of an
    anti-affinity group are spread over them.

    \b
    Examples:
      pulsarish failure-domains set rack-1 broker-1 broker-2
      pulsarish failure-domains list
    """


@failure_domains.command("list")
@admin_option
@output_option
def list_domains(admin: Admin, output: str) -> None:
    """List the failure domains.

    \b
    Example:
      pulsarish failure-domains list
    """
    rows = [
        {"domain": name, "brokers": found["brokers"]}
        for name, found in sorted(admin.failure_domains.list(_cluster(admin)).items())
    ]
    print_table(rows, ["domain", "brokers"], output)


@failure_domains.command("get")
@click.argument("domain")
@admin_option
@output_option
def get_domain(domain: str, admin: Admin, output: str) -> None:
    """List the brokers of a failure domain.

    \b
    Example:
      pulsarish failure-domains get rack-1
    """
    print_names(admin.failure_domains.get(_cluster(admin), domain), "broker", output)


@failure_domains.command("set")
@click.argument("domain")
@click.argument("brokers", nargs=-1, required=True)
@admin_option
def set_domain(domain: str, brokers: tuple[str, ...], admin: Admin) -> None:
    """Create or replace a failure domain. BROKERS are ids or addresses (host:port).

    \b
    Example:
      pulsarish failure-domains set rack-1 broker-1 broker-2
    """
    admin.failure_domains.set(_cluster(admin), domain, brokers)
    say(f"failure domain {domain} set")


@failure_domains.command("delete")
@click.argument("domain")
@admin_option
def delete_domain(domain: str, admin: Admin) -> None:
    """Delete a failure domain. Each of its brokers then counts as a domain of its own.

    \b
    Example:
      pulsarish failure-domains delete rack-1
    """
    admin.failure_domains.delete(_cluster(admin), domain)
    say(f"failure domain {domain} deleted")
