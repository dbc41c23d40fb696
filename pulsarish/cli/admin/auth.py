"""``pulsarish auth``: what authorization decides."""

from __future__ import annotations

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import AdminGroup, admin_option
from pulsarish.cli.output import output_option, print_record

__all__ = ["auth"]


@click.group(cls=AdminGroup)
def auth() -> None:
    """Authorization: which role may do what, and why.

    \b
    Example:
      pulsarish auth explain shop produce acme/orders/new
    """


@auth.command()
@click.argument("role")
@click.argument("action")
@click.argument("resource")
@click.option("-s", "--subscription", default="", metavar="NAME", help="Of the topic.")
@click.option(
    "--proxy-role", default="", metavar="ROLE", help="The role of the proxy that speaks for it."
)
@admin_option
@output_option
def explain(
    role: str,
    action: str,
    resource: str,
    subscription: str,
    proxy_role: str,
    admin: Admin,
    output: str,
) -> None:
    """Explain whether a role may do something, which rule decides, and what to change.

    ACTION is a permission: produce, consume, lookup, purge, admin-topic and others; an unknown one
    is answered with the list. RESOURCE is a topic (tenant/namespace/topic), a namespace
    (tenant/namespace), a tenant, or cluster.

    \b
    Examples:
      pulsarish auth explain shop produce acme/orders/new
      pulsarish auth explain accounting consume acme/orders/new -s billing
      pulsarish auth explain alice admin-namespace acme/orders
    """
    found = admin.authorization.explain(
        role, action, resource, subscription=subscription, proxy_role=proxy_role
    )
    print_record({name: value for name, value in found.items() if value != ""}, output)
