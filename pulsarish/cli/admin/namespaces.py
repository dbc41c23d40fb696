"""``pulsarish namespaces``, without the commands of single policies."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import ClassVar, Final

import click

from pulsarish.admin import Admin
from pulsarish.admin.policies import NAMESPACE
from pulsarish.cli.admin.captures import NAMESPACE_CAPTURE_COMMANDS
from pulsarish.cli.admin.common import (
    admin_option,
    confirm,
    finish,
    namespace_argument,
    page_options,
    print_names,
    property_option,
    tenant_argument,
    yes_option,
)
from pulsarish.cli.admin.grants import NAMESPACE_GRANT_COMMANDS
from pulsarish.cli.admin.policies import PolicyGroup
from pulsarish.cli.output import output_option, print_record, print_table, say

__all__ = ["namespaces"]

_bundle_option: Final = click.option(
    "--bundle",
    default="",
    metavar="RANGE",
    help="Only this bundle; see: pulsarish namespaces bundles.",
)


class _Namespaces(PolicyGroup):
    level = NAMESPACE
    words: ClassVar[Mapping[str, str]] = {
        "get": "pulsarish namespaces get-policies NAMESPACE",
        "subscription-permission": "pulsarish namespaces subscription-permissions NAMESPACE",
        "policies": "pulsarish namespaces get-policies NAMESPACE",
        "get-properties": "pulsarish namespaces get-policies NAMESPACE",
        "set-properties": "pulsarish namespaces update NAMESPACE --property owner=me",
        "delete-anti-affinity-group": "pulsarish namespaces remove-anti-affinity-group NAMESPACE",
        "get-anti-affinity-namespaces": "pulsarish namespaces anti-affinity-namespaces GROUP",
        "set-message-ttl": "pulsarish namespaces set-ttl NAMESPACE 3d",
    }


@click.group(cls=_Namespaces)
def namespaces() -> None:
    """Namespaces: tenant/namespace, the unit of policies and ownership.

    \b
    Examples:
      pulsarish namespaces create acme/orders
      pulsarish namespaces set-retention acme/orders --time 7d --size 10GB
    """


for _command in (*NAMESPACE_GRANT_COMMANDS, *NAMESPACE_CAPTURE_COMMANDS):
    namespaces.add_command(_command)


@namespaces.command("list")
@tenant_argument
@page_options
@admin_option
@output_option
def list_namespaces(tenant: str, after: str, limit: int | None, admin: Admin, output: str) -> None:
    """List a tenant's namespaces.

    \b
    Example:
      pulsarish namespaces list public
    """
    print_names(admin.namespaces.list(tenant, after=after, limit=limit), "namespace", output)


@namespaces.command("get-policies")
@namespace_argument
@admin_option
@output_option
def get_policies(namespace: str, admin: Admin, output: str) -> None:
    """Show a namespace: its bundles and all its settings.

    \b
    Example:
      pulsarish namespaces get-policies public/default -o json
    """
    print_record(admin.namespaces.get_policies(namespace), output)


@namespaces.command()
@click.argument("namespace")
@click.option(
    "--bundles", type=click.IntRange(1, 1024), help="Number of bundles, the units that brokers own."
)
@admin_option
def create(namespace: str, bundles: int | None, admin: Admin) -> None:
    """Create a namespace.

    \b
    Example:
      pulsarish namespaces create acme/orders --bundles 8
    """
    admin.namespaces.create(namespace, bundles=bundles)
    say(f"namespace {namespace} created")


@namespaces.command()
@namespace_argument
@click.option("--force", is_flag=True, help="Delete its topics, too, and disconnect their clients.")
@yes_option
@admin_option
def delete(namespace: str, force: bool, yes: bool, admin: Admin) -> None:
    """Delete a namespace.

    \b
    Example:
      pulsarish namespaces delete acme/orders --force
    """
    if force:
        confirm(f"Delete namespace {namespace} with all its topics and messages?", yes=yes)
    finish(f"deleting {namespace}", lambda: admin.namespaces.delete(namespace, force=force))
    say(f"namespace {namespace} deleted")


@namespaces.command()
@namespace_argument
@admin_option
@output_option
def bundles(namespace: str, admin: Admin, output: str) -> None:
    """List the bundles of a namespace, the parts that brokers own.

    \b
    Example:
      pulsarish namespaces bundles public/default
    """
    found = admin.namespaces.bundles(namespace)["boundaries"]
    print_names([f"{first}_{last}" for first, last in itertools.pairwise(found)], "bundle", output)


@namespaces.command()
@namespace_argument
@_bundle_option
@click.option(
    "--destination",
    default="",
    metavar="BROKER",
    help="Id of the broker that serves the topics next (default: any).",
)
@admin_option
def unload(namespace: str, bundle: str, destination: str, admin: Admin) -> None:
    """Unload the topics of a namespace. Their clients reconnect, and other brokers may serve the
    topics.

    \b
    Examples:
      pulsarish namespaces unload acme/orders
      pulsarish namespaces unload acme/orders --bundle 0x00000000_0x40000000
      pulsarish namespaces unload acme/orders --bundle 0x00000000_0x40000000 --destination broker-2
    """
    finish(
        f"unloading {namespace}",
        lambda: admin.namespaces.unload(namespace, bundle=bundle, destination=destination),
    )
    what = f"bundle {bundle} of {namespace}" if bundle else f"namespace {namespace}"
    say(f"{what} is at {destination}" if destination else f"{what} unloaded")


@namespaces.command("set-anti-affinity-group")
@namespace_argument
@click.argument("group")
@admin_option
def set_anti_affinity_group(namespace: str, group: str, admin: Admin) -> None:
    """Put a namespace into a group whose bundles are spread over failure domains and brokers.

    \b
    Example:
      pulsarish namespaces set-anti-affinity-group payments/eu payments
    """
    admin.namespaces.set_anti_affinity_group(namespace, group)
    say(f"namespace {namespace} is in anti-affinity group {group}")


@namespaces.command("get-anti-affinity-group")
@namespace_argument
@admin_option
@output_option
def get_anti_affinity_group(namespace: str, admin: Admin, output: str) -> None:
    """Show the anti-affinity group of a namespace.

    \b
    Example:
      pulsarish namespaces get-anti-affinity-group payments/eu
    """
    group = admin.namespaces.anti_affinity_group(namespace)
    print_names([group] if group else [], "group", output)


@namespaces.command("remove-anti-affinity-group")
@namespace_argument
@admin_option
def remove_anti_affinity_group(namespace: str, admin: Admin) -> None:
    """Take a namespace out of its anti-affinity group.

    \b
    Example:
      pulsarish namespaces remove-anti-affinity-group payments/eu
    """
    admin.namespaces.remove_anti_affinity_group(namespace)
    say(f"namespace {namespace} is in no anti-affinity group")


@namespaces.command()
@click.argument("group")
@click.option("--tenant", default="", metavar="TENANT", help="Only namespaces of this tenant.")
@admin_option
@output_option
def anti_affinity_namespaces(group: str, tenant: str, admin: Admin, output: str) -> None:
    """List the namespaces of an anti-affinity group.

    \b
    Example:
      pulsarish namespaces anti-affinity-namespaces payments
    """
    (cluster,) = admin.clusters.list()
    found = admin.namespaces.anti_affinity_namespaces(cluster, group, tenant=tenant)
    print_names(found, "namespace", output)


@namespaces.command()
@namespace_argument
@click.option(
    "--bundle",
    required=True,
    metavar="RANGE",
    help="The bundle; see: pulsarish namespaces bundles.",
)
@click.option(
    "--algorithm",
    type=click.Choice(
        ["range_equally_divide", "topic_count_equally_divide", "specified_positions_divide"]
    ),
    help="How it is split (default: default_namespace_bundle_split_algorithm of the broker).",
)
@click.option(
    "--boundaries",
    default="",
    metavar="HASHES",
    help="Hashes at which the second and later parts begin, such as 0x10000000,0x20000000.",
)
@click.option(
    "--unload", is_flag=True, help="Unload the parts then, so that other brokers take them."
)
@admin_option
def split_bundle(
    namespace: str,
    bundle: str,
    algorithm: str | None,
    boundaries: str,
    unload: bool,
    admin: Admin,
) -> None:
    """Split a bundle of a namespace into parts, which different brokers can serve.

    \b
    Examples:
      pulsarish namespaces split-bundle acme/orders --bundle 0x00000000_0x40000000
      pulsarish namespaces split-bundle acme/orders --bundle 0x00000000_0x40000000 --unload
    """
    try:
        edges = [int(each, 0) for each in boundaries.split(",") if each]
    except ValueError:
        raise click.BadParameter(
            f"{boundaries!r} is not a list of hashes such as 0x10000000,0x20000000",
            param_hint="--boundaries",
        ) from None
    chosen = algorithm or ("specified_positions_divide" if edges else "")
    finish(
        f"splitting {bundle} of {namespace}",
        lambda: admin.namespaces.split_bundle(
            namespace, bundle, algorithm=chosen, boundaries=edges, unload=unload
        ),
    )
    say(f"bundle {bundle} of {namespace} split")


@namespaces.command("get-topic-positions")
@namespace_argument
@click.option(
    "--bundle",
    required=True,
    metavar="RANGE",
    help="The bundle; see: pulsarish namespaces bundles.",
)
@click.option("--topics", default="", metavar="TOPICS", help="Only these topics, with commas.")
@admin_option
@output_option
def get_topic_positions(
    namespace: str, bundle: str, topics: str, admin: Admin, output: str
) -> None:
    """Show the hashes of the open topics of a bundle: where to split it.

    \b
    Example:
      pulsarish namespaces get-topic-positions acme/orders --bundle 0x00000000_0x40000000
    """
    found = admin.namespaces.topic_positions(
        namespace, bundle, [each for each in topics.split(",") if each]
    )
    rows = [
        {"topic": name, "hash": f"0x{value:08x}"}
        for name, value in sorted(found["topicHashPositions"].items(), key=lambda each: each[1])
    ]
    print_table(rows, ["topic", "hash"], output)


@namespaces.command()
@namespace_argument
@click.option(
    "-s", "--subscription", default="", metavar="NAME", help="Only the subscriptions of this name."
)
@_bundle_option
@yes_option
@admin_option
def clear_backlog(namespace: str, subscription: str, bundle: str, yes: bool, admin: Admin) -> None:
    """Skip the whole backlog of every subscription of all topics of a namespace.

    \b
    Example:
      pulsarish namespaces clear-backlog acme/orders -s billing
    """
    whose = f"subscription {subscription}" if subscription else "every subscription"
    confirm(f"Skip the whole backlog of {whose} of all topics of {namespace}?", yes=yes)
    finish(
        f"skipping backlogs of {namespace}",
        lambda: admin.namespaces.clear_backlog(namespace, subscription=subscription, bundle=bundle),
    )
    say(f"backlogs of {whose} of {namespace} skipped")


@namespaces.command()
@namespace_argument
@click.argument("subscription")
@_bundle_option
@yes_option
@admin_option
def unsubscribe(namespace: str, subscription: str, bundle: str, yes: bool, admin: Admin) -> None:
    """Delete a subscription from all topics of a namespace.

    \b
    Example:
      pulsarish namespaces unsubscribe acme/orders billing
    """
    confirm(
        f"Delete subscription {subscription} of all topics of {namespace} with its backlogs?",
        yes=yes,
    )
    finish(
        f"deleting {subscription}",
        lambda: admin.namespaces.unsubscribe(namespace, subscription, bundle=bundle),
    )
    say(f"subscription {subscription} deleted from the topics of {namespace}")


@namespaces.command()
@namespace_argument
@property_option("Set this property; repeatable.")
@click.option(
    "--remove-property",
    "removed",
    multiple=True,
    metavar="NAME",
    help="Remove this property; repeatable.",
)
@admin_option
def update(
    namespace: str, properties: dict[str, str], removed: tuple[str, ...], admin: Admin
) -> None:
    """Set or remove properties of a namespace, for people and scripts. get-policies shows them.

    \b
    Examples:
      pulsarish namespaces update acme/orders --property owner=billing
      pulsarish namespaces update acme/orders --remove-property owner
    """
    if not properties and not removed:
        raise click.UsageError("give --property NAME=VALUE or --remove-property NAME")
    for name in removed:
        admin.namespaces.remove_property(namespace, name)
    if properties:
        admin.namespaces.update_properties(namespace, properties)
    say(f"namespace {namespace} updated")
