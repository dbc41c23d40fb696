"""Commands of ``pulsarish namespaces`` and ``pulsarish topics`` for the permissions of roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, get_args

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import (
    AdminCommand,
    admin_option,
    namespace_argument,
    topic_argument,
    warn_if_unchecked,
)
from pulsarish.cli.output import output_option, print_json, print_table, say
from pulsarish.model.policy_words import AuthAction

__all__ = ["NAMESPACE_GRANT_COMMANDS", "TOPIC_GRANT_COMMANDS"]

F = TypeVar("F", bound=Callable[..., Any])

_role_option: Final = click.option(
    "--role", required=True, metavar="ROLE", help="The role, as its credential names it."
)


def _actions_option(command: F) -> F:
    return click.option(
        "--action",
        "actions",
        type=click.Choice(get_args(AuthAction)),
        multiple=True,
        required=True,
        help="What the role may do; repeatable.",
    )(command)


def _print_actions(found: Mapping[str, Sequence[str]], output: str) -> None:
    if output == "json":
        print_json(found)
        return
    rows = [{"role": role, "actions": actions} for role, actions in sorted(found.items())]
    print_table(rows, ["role", "actions"], output)


@click.command(cls=AdminCommand)
@namespace_argument
@admin_option
@output_option
def permissions(namespace: str, admin: Admin, output: str) -> None:
    """Show which roles may do what in a namespace.

    \b
    Example:
      pulsarish namespaces permissions acme/orders
    """
    _print_actions(admin.namespaces.permissions(namespace), output)


@click.command(cls=AdminCommand)
@namespace_argument
@_role_option
@_actions_option
@admin_option
def grant_permission(namespace: str, role: str, actions: tuple[str, ...], admin: Admin) -> None:
    """Grant a role actions on all topics of a namespace. They replace those that it had there.

    \b
    Example:
      pulsarish namespaces grant-permission acme/orders --role shop --action produce
    """
    admin.namespaces.grant_permission(namespace, role, actions)
    warn_if_unchecked(admin)
    say(f"role {role} may {' and '.join(actions)} in namespace {namespace}")


@click.command(cls=AdminCommand)
@namespace_argument
@_role_option
@admin_option
def revoke_permission(namespace: str, role: str, admin: Admin) -> None:
    """Revoke what a role was granted on a namespace. Its open producers and consumers lose it, too.

    Grants on single topics stay.

    \b
    Example:
      pulsarish namespaces revoke-permission acme/orders --role shop
    """
    admin.namespaces.revoke_permission(namespace, role)
    warn_if_unchecked(admin)
    say(f"permission of role {role} on namespace {namespace} revoked")


@click.command(cls=AdminCommand)
@namespace_argument
@admin_option
@output_option
def subscription_permissions(namespace: str, admin: Admin, output: str) -> None:
    """Show the subscriptions of a namespace that only some roles may use.

    \b
    Example:
      pulsarish namespaces subscription-permissions acme/orders
    """
    found = admin.namespaces.subscription_permissions(namespace)
    if output == "json":
        print_json(found)
        return
    rows = [{"subscription": name, "roles": roles} for name, roles in sorted(found.items())]
    print_table(rows, ["subscription", "roles"], output)


@click.command(cls=AdminCommand)
@namespace_argument
@click.argument("subscription")
@click.option(
    "--role",
    "roles",
    multiple=True,
    required=True,
    metavar="ROLE",
    help="A role that may use it, next to those that already may; repeatable.",
)
@admin_option
def grant_subscription_permission(
    namespace: str, subscription: str, roles: tuple[str, ...], admin: Admin
) -> None:
    """Keep a subscription for some roles: other roles cannot use it. These need the action consume,
    too.

    \b
    Example:
      pulsarish namespaces grant-subscription-permission acme/orders billing --role accounting
    """
    admin.namespaces.grant_subscription_permission(namespace, subscription, roles)
    warn_if_unchecked(admin)
    say(f"subscription {subscription} of namespace {namespace} is for {', '.join(roles)}")


@click.command(cls=AdminCommand)
@namespace_argument
@click.argument("subscription")
@_role_option
@admin_option
def revoke_subscription_permission(
    namespace: str, subscription: str, role: str, admin: Admin
) -> None:
    """Remove a role from those that may use a subscription.

    Without roles, a subscription is for every role with the action consume.

    \b
    Example:
      pulsarish namespaces revoke-subscription-permission acme/orders billing --role accounting
    """
    admin.namespaces.revoke_subscription_permission(namespace, subscription, role)
    warn_if_unchecked(admin)
    say(f"role {role} removed from subscription {subscription} of namespace {namespace}")
    if subscription not in admin.namespaces.subscription_permissions(namespace):
        say(f"subscription {subscription} is now for every role that may consume")


@click.command("permissions", cls=AdminCommand)
@topic_argument
@admin_option
@output_option
def topic_permissions(topic: str, admin: Admin, output: str) -> None:
    """Show which roles may do what with a topic, by its own grants and those of its namespace.

    \b
    Example:
      pulsarish topics permissions acme/orders/new
    """
    _print_actions(admin.topics.permissions(topic), output)


@click.command("grant-permission", cls=AdminCommand)
@topic_argument
@_role_option
@_actions_option
@admin_option
def grant_topic_permission(topic: str, role: str, actions: tuple[str, ...], admin: Admin) -> None:
    """Grant a role actions on one topic and its partitions. They replace those that it had there.

    The topic does not need to exist.

    \b
    Example:
      pulsarish topics grant-permission acme/orders/new --role shop --action produce
    """
    admin.topics.grant_permission(topic, role, actions)
    warn_if_unchecked(admin)
    say(f"role {role} may {' and '.join(actions)} on topic {topic}")


@click.command("revoke-permission", cls=AdminCommand)
@topic_argument
@_role_option
@admin_option
def revoke_topic_permission(topic: str, role: str, admin: Admin) -> None:
    """Revoke what a role was granted on a topic itself. Grants on its namespace stay.

    \b
    Example:
      pulsarish topics revoke-permission acme/orders/new --role shop
    """
    admin.topics.revoke_permission(topic, role)
    warn_if_unchecked(admin)
    say(f"permission of role {role} on topic {topic} revoked")


NAMESPACE_GRANT_COMMANDS: Final = (
    permissions,
    grant_permission,
    revoke_permission,
    subscription_permissions,
    grant_subscription_permission,
    revoke_subscription_permission,
)
TOPIC_GRANT_COMMANDS: Final = (topic_permissions, grant_topic_permission, revoke_topic_permission)
