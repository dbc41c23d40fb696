"""``pulsarish topics``, without the commands of single policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import click

from pulsarish.admin import Admin
from pulsarish.admin.policies import TOPIC
from pulsarish.cli.admin.common import (
    admin_option,
    confirm,
    finish,
    namespace_default,
    page_options,
    precise_option,
    print_names,
    property_option,
    topic_argument,
    yes_option,
)
from pulsarish.cli.admin.compaction import COMPACTION_COMMANDS
from pulsarish.cli.admin.explain_view import print_explanation
from pulsarish.cli.admin.grants import TOPIC_GRANT_COMMANDS
from pulsarish.cli.admin.partitions import create_with_partitions, delete_topic, partitions
from pulsarish.cli.admin.policies import PolicyGroup
from pulsarish.cli.admin.schedules import schedules
from pulsarish.cli.admin.stats_view import print_stats
from pulsarish.cli.admin.topic_log import LOG_COMMANDS
from pulsarish.cli.output import output_option, print_json, print_record, say
from pulsarish.model.topic_name import TopicName
from pulsarish.model.topic_pattern import compile_pattern, wildcard_pattern

__all__ = ["topics"]


class _Topics(PolicyGroup):
    level = TOPIC
    words: ClassVar[Mapping[str, str]] = {
        "clear-backlog": "pulsarish subscriptions skip-all TOPIC SUBSCRIPTION",
        "create-partitioned-topic": "pulsarish topics create TOPIC --partitions 8",
        "create-subscription": "pulsarish subscriptions create TOPIC SUBSCRIPTION",
        "delete-partitioned-topic": "pulsarish topics delete TOPIC",
        "expire-messages": "pulsarish subscriptions expire TOPIC SUBSCRIPTION --older-than 1h",
        "get-partitioned-topic-metadata": "pulsarish topics partitions get TOPIC",
        "create-missed-partitions": "pulsarish topics partitions create TOPIC",
        "examine-messages": "pulsarish topics examine TOPIC",
        "get-message-by-id": "pulsarish topics message TOPIC 3:7",
        "get-message-id": "pulsarish topics message-id TOPIC --time 2h",
        "get-properties": "pulsarish topics get TOPIC",
        "info-internal": "pulsarish topics internal-info TOPIC",
        "partitioned-terminate": "pulsarish topics terminate TOPIC",
        "remove-properties": "pulsarish topics update TOPIC --remove-property NAME",
        "trim-topic": "pulsarish topics trim TOPIC",
        "update-properties": "pulsarish topics update TOPIC --property owner=me",
        "list-partitioned-topics": "pulsarish topics list NAMESPACE --partitioned",
        "partitioned-stats": "pulsarish topics stats TOPIC",
        "peek": "pulsarish subscriptions peek TOPIC SUBSCRIPTION",
        "peek-messages": "pulsarish subscriptions peek TOPIC SUBSCRIPTION",
        "reset-cursor": "pulsarish subscriptions seek TOPIC SUBSCRIPTION --to earliest",
        "set-message-ttl": "pulsarish topics set-ttl TOPIC 3d",
        "skip": "pulsarish subscriptions skip TOPIC SUBSCRIPTION -n 1",
        "stats-internal": "pulsarish topics internal-stats TOPIC",
        "subscriptions": "pulsarish subscriptions list TOPIC",
        "unsubscribe": "pulsarish subscriptions delete TOPIC SUBSCRIPTION",
        "update-partitioned-topic": "pulsarish topics partitions grow TOPIC 8",
    }


@click.group(cls=_Topics)
def topics() -> None:
    """Topics: persistent://tenant/namespace/topic, tenant/namespace/topic, or a bare name in
    public/default.

    \b
    Examples:
      pulsarish topics create orders --partitions 4
      pulsarish topics set-retention orders --time 7d --size 10GB
    """


for _command in (partitions, schedules, *LOG_COMMANDS, *COMPACTION_COMMANDS, *TOPIC_GRANT_COMMANDS):
    topics.add_command(_command)


@topics.command("list")
@namespace_default
@click.option("--partitioned", is_flag=True, help="List partitioned topics, not their partitions.")
@click.option(
    "--bundle",
    default="",
    metavar="RANGE",
    help="Only topics of this bundle; see: pulsarish namespaces bundles.",
)
@click.option(
    "--non-persistent", is_flag=True, help="List the non-persistent topics that are in use now."
)
@click.option(
    "--pattern",
    default="",
    metavar="REGEX",
    help="Only topics whose name, without the namespace, matches this expression of RE2 as a "
    "whole.",
)
@click.option(
    "--wildcard",
    default="",
    metavar="WILDCARD",
    help="Only topics whose name, without the namespace, matches this: * is one token between "
    "dots, > the rest.",
)
@page_options
@admin_option
@output_option
def list_topics(
    namespace: str,
    partitioned: bool,
    bundle: str,
    non_persistent: bool,
    pattern: str,
    wildcard: str,
    after: str,
    limit: int | None,
    admin: Admin,
    output: str,
) -> None:
    """List the topics of a namespace.

    \b
    Examples:
      pulsarish topics list
      pulsarish topics list acme/orders --partitioned -o json
      pulsarish topics list acme/orders --pattern 'eu-.*'
      pulsarish topics list acme/orders --wildcard 'eu.*.created'
    """
    if partitioned and bundle:
        raise click.UsageError(
            "the partitions of a partitioned topic are in several bundles; give either "
            "--partitioned or --bundle"
        )
    if pattern and wildcard:
        raise click.UsageError("give either --pattern or --wildcard")
    if (pattern or wildcard) and limit is not None:
        raise click.UsageError(
            f"--{'pattern' if pattern else 'wildcard'} is for all topics: leave --limit out"
        )
    matches = compile_pattern(wildcard_pattern(wildcard) if wildcard else pattern)
    if partitioned:
        names = admin.topics.list_partitioned(
            namespace, after=after, limit=limit, persistent=not non_persistent
        )
    else:
        names = admin.topics.list(
            namespace, bundle=bundle, after=after, limit=limit, persistent=not non_persistent
        )
    if pattern or wildcard:
        names = [name for name in names if matches(TopicName.parse(name).partitioned.local)]
    print_names(names, "topic", output)


@topics.command()
@click.argument("topic")
@click.option(
    "--partitions",
    "count",
    type=click.IntRange(0, 10000),
    default=0,
    help="Create a partitioned topic with this number of partitions.",
)
@property_option("Set this property; repeatable.")
@admin_option
def create(topic: str, count: int, properties: dict[str, str], admin: Admin) -> None:
    """Create a topic.

    \b
    Examples:
      pulsarish topics create orders
      pulsarish topics create acme/orders/new --partitions 4
    """
    if count:
        create_with_partitions(admin, topic, count, properties)
    else:
        admin.topics.create(topic, properties=properties)
    say(f"topic {topic} created" + (f" with {count} partitions" if count else ""))


@topics.command()
@topic_argument
@admin_option
@output_option
def get(topic: str, admin: Admin, output: str) -> None:
    """Show the number of a topic's partitions (0: not partitioned) and its properties.

    \b
    Example:
      pulsarish topics get orders -o json
    """
    partitions, properties = admin.topics.partitions(topic), admin.topics.properties(topic)
    print_record(
        {"topic": TopicName.parse(topic).full, "partitions": partitions, "properties": properties},
        output,
    )


@topics.command()
@topic_argument
@property_option("Set this property; repeatable.")
@click.option(
    "--remove-property",
    "removed",
    multiple=True,
    metavar="NAME",
    help="Remove this property; repeatable.",
)
@admin_option
def update(topic: str, properties: dict[str, str], removed: tuple[str, ...], admin: Admin) -> None:
    """Set or remove properties of a topic, for people and scripts.

    \b
    Examples:
      pulsarish topics update orders --property owner=billing
      pulsarish topics update orders --remove-property owner
    """
    if not properties and not removed:
        raise click.UsageError("give --property NAME=VALUE or --remove-property NAME")
    for name in removed:
        admin.topics.remove_property(topic, name)
    if properties:
        admin.topics.update_properties(topic, properties)
    say(f"topic {topic} updated")


@topics.command()
@topic_argument
@click.option("--force", is_flag=True, help="Disconnect its producers and consumers.")
@yes_option
@admin_option
def delete(topic: str, force: bool, yes: bool, admin: Admin) -> None:
    """Delete a topic and its messages, a partitioned one with all its partitions.

    \b
    Examples:
      pulsarish topics delete orders
      pulsarish topics delete orders --force --yes
    """
    confirm(f"Delete {topic} and all its messages?", yes=yes)
    delete_topic(admin, topic, force=force)
    say(f"topic {topic} deleted")


@topics.command()
@topic_argument
@click.option(
    "--per-partition", is_flag=True, help="Show each partition of a partitioned topic, too."
)
@precise_option
@admin_option
@output_option
def stats(topic: str, per_partition: bool, precise: bool, admin: Admin, output: str) -> None:
    """Show rates, producers, subscriptions, backlogs, and what is blocked since when. JSON has more
    fields than the table.

    A backlog has entries (a batch is one), messages, bytes above the mark-delete position, and
    unacked: messages that were delivered and not acknowledged. About (~) means an estimate.

    \b
    Examples:
      pulsarish topics stats greetings -o json
      pulsarish topics stats greetings --get-precise-backlog
    """
    if admin.topics.partitions(topic):
        found = admin.topics.partitioned_stats(
            topic, per_partition=per_partition, precise_backlog=precise
        )
    else:
        found = admin.topics.stats(topic, precise_backlog=precise)
    if output == "json":
        print_json(found)
    else:
        print_stats(TopicName.parse(topic).full, found)


@topics.command()
@topic_argument
@admin_option
@output_option
def explain(topic: str, admin: Admin, output: str) -> None:
    """Explain why publishing to a topic is blocked, also for each producer and subscription, and
    which command helps.

    \b
    Example:
      pulsarish topics explain greetings
    """
    print_explanation(admin.topics.explain(topic), output)


@topics.command()
@topic_argument
@admin_option
@output_option
def lookup(topic: str, admin: Admin, output: str) -> None:
    """Show which broker serves a topic.

    \b
    Example:
      pulsarish topics lookup greetings -o json
    """
    answer = admin.topics.lookup(topic)
    urls = {
        "pulsarish": answer.get("nativeUrl"),
        "pulsar": answer.get("brokerUrl"),
        "http": answer.get("httpUrl"),
    }
    found = {
        "topic": topic,
        "bundle": answer.get("bundle"),
        "node": answer.get("brokerId"),
        "service_urls": {kind: url for kind, url in urls.items() if url},
    }
    print_record(found, output)


@topics.command("remove-policies")
@topic_argument
@yes_option
@admin_option
def remove_policies(topic: str, admin: Admin, *, yes: bool) -> None:
    """Remove all policies of a topic: the policies of its namespace apply again.

    \b
    Example:
      pulsarish topics remove-policies orders
    """
    confirm(f"Remove all policies of topic {topic}?", yes=yes)
    admin.topics.remove_policies(topic)
    say(f"policies of topic {topic} removed")


@topics.command()
@topic_argument
@admin_option
def unload(topic: str, admin: Admin) -> None:
    """Unload a topic from its broker. Its clients reconnect.

    \b
    Example:
      pulsarish topics unload greetings
    """
    finish(f"unloading {topic}", lambda: admin.topics.unload(topic))
    say(f"topic {topic} unloaded")
