"""``pulsarish tenants``."""

from __future__ import annotations

from functools import partial

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import (
    AdminGroup,
    admin_option,
    confirm,
    finish,
    page_options,
    print_names,
    tenant_argument,
    warn_if_unchecked,
    yes_option,
)
from pulsarish.cli.output import output_option, print_record, say

__all__ = ["tenants"]


@click.group(cls=AdminGroup)
def tenants() -> None:
    """Tenants, the first part of a topic's name.

    \b
    Example:
      pulsarish tenants create acme
    """


@tenants.command("list")
@page_options
@admin_option
@output_option
def list_tenants(after: str, limit: int | None, admin: Admin, output: str) -> None:
    """List tenants.

    \b
    Example:
      pulsarish tenants list
    """
    print_names(admin.tenants.list(after=after, limit=limit), "tenant", output)


@tenants.command()
@tenant_argument
@admin_option
@output_option
def get(tenant: str, admin: Admin, output: str) -> None:
    """Show a tenant: its admin roles, and the clusters where its namespaces may be.

    \b
    Example:
      pulsarish tenants get public
    """
    print_record(admin.tenants.get(tenant), output)


@tenants.command()
@click.argument("tenant")
@click.option(
    "--admin-role",
    "roles",
    multiple=True,
    metavar="ROLE",
    help="A role that administers it; repeatable.",
)
@click.option(
    "--allowed-cluster",
    "clusters",
    multiple=True,
    metavar="CLUSTER",
    help="A cluster where its namespaces may live; repeatable.",
)
@admin_option
def create(tenant: str, roles: tuple[str, ...], clusters: tuple[str, ...], admin: Admin) -> None:
    """Create a tenant.

    \b
    Examples:
      pulsarish tenants create acme
      pulsarish tenants create acme --admin-role alice --admin-role bob
    """
    admin.tenants.create(tenant, admin_roles=roles, allowed_clusters=clusters)
    if roles:
        warn_if_unchecked(admin)
    say(f"tenant {tenant} created")


@tenants.command()
@tenant_argument
@click.option(
    "--admin-role",
    "roles",
    multiple=True,
    metavar="ROLE",
    help="A role that administers it from now on; repeatable.",
)
@click.option(
    "--allowed-cluster",
    "clusters",
    multiple=True,
    metavar="CLUSTER",
    help="A cluster where its namespaces may live; repeatable.",
)
@admin_option
def update(tenant: str, roles: tuple[str, ...], clusters: tuple[str, ...], admin: Admin) -> None:
    """Change a tenant. Settings that are not given stay as they are.

    \b
    Example:
      pulsarish tenants update acme --admin-role carol
    """
    if not roles and not clusters:
        raise click.UsageError("give a change: --admin-role ROLE or --allowed-cluster CLUSTER")
    found = admin.tenants.get(tenant)
    admin.tenants.update(
        tenant,
        admin_roles=roles or found["adminRoles"],
        allowed_clusters=clusters or found["allowedClusters"],
    )
    if roles:
        warn_if_unchecked(admin)
    say(f"tenant {tenant} updated")


@tenants.command()
@tenant_argument
@click.option("--force", is_flag=True, help="Delete its namespaces and their topics, too.")
@yes_option
@admin_option
def delete(tenant: str, force: bool, yes: bool, admin: Admin) -> None:
    """Delete a tenant.

    \b
    Example:
      pulsarish tenants delete acme --force
    """
    if force:
        namespaces = admin.namespaces.list(tenant)
        confirm(
            f"Delete tenant {tenant} with {len(namespaces)} namespaces and all their topics and "
            "messages?",
            yes=yes,
        )
        for namespace in namespaces:
            finish(f"deleting {namespace}", partial(admin.namespaces.delete, namespace, force=True))
    admin.tenants.delete(tenant)
    say(f"tenant {tenant} deleted")
