"""The admin commands: thin words over :class:`pulsarish.admin.Admin`."""

from __future__ import annotations

from typing import Any

import click

from pulsarish.admin import Admin
from pulsarish.cli.output import admin_url_option, human_bytes, output_option, print_json, print_record, print_table, say
from pulsarish.model.errors import NotFound, SubscriptionNotFound

__all__ = ["bookies", "brokers", "ledgers", "namespaces", "subscriptions", "tenants", "topics"]


def _names(names: list[str], title: str, output: str) -> None:
    print_table([{title: name} for name in names], [title], output)


# -- tenants


@click.group()
def tenants() -> None:
    """Tenants: the first part of a topic's name.

    \b
    Example:
      pulsarish tenants create acme
    """


@tenants.command("list")
@admin_url_option
@output_option
def list_tenants(admin_url: str, output: str) -> None:
    """List tenants.

    \b
    Example:
      pulsarish tenants list
    """
    _names(Admin(admin_url).tenants(), "tenant", output)


@tenants.command("get")
@click.argument("tenant")
@admin_url_option
@output_option
def get_tenant(tenant: str, admin_url: str, output: str) -> None:
    """Show a tenant.

    \b
    Example:
      pulsarish tenants get public
    """
    print_record(Admin(admin_url).tenant(tenant), output)


@tenants.command("create")
@click.argument("tenant")
@admin_url_option
def create_tenant(tenant: str, admin_url: str) -> None:
    """Create a tenant.

    \b
    Example:
      pulsarish tenants create acme
    """
    Admin(admin_url).create_tenant(tenant)
    say(f"tenant {tenant} created")


@tenants.command("delete")
@click.argument("tenant")
@admin_url_option
def delete_tenant(tenant: str, admin_url: str) -> None:
    """Delete a tenant that has no namespaces.

    \b
    Example:
      pulsarish tenants delete acme
    """
    Admin(admin_url).delete_tenant(tenant)
    say(f"tenant {tenant} deleted")


# -- namespaces


@click.group()
def namespaces() -> None:
    """Namespaces: tenant/namespace, the unit of policies and ownership.

    \b
    Example:
      pulsarish namespaces create acme/orders
    """


@namespaces.command("list")
@click.argument("tenant")
@admin_url_option
@output_option
def list_namespaces(tenant: str, admin_url: str, output: str) -> None:
    """List a tenant's namespaces.

    \b
    Example:
      pulsarish namespaces list public
    """
    _names(Admin(admin_url).namespaces(tenant), "namespace", output)


@namespaces.command("get")
@click.argument("namespace")
@admin_url_option
@output_option
def get_namespace(namespace: str, admin_url: str, output: str) -> None:
    """Show a namespace and its policies.

    \b
    Example:
      pulsarish namespaces get public/default -o json
    """
    print_record(Admin(admin_url).namespace(namespace), output)


@namespaces.command("create")
@click.argument("namespace")
@click.option("--bundles", type=click.IntRange(1, 1024), help="How many bundles its topics hash to.")
@admin_url_option
def create_namespace(namespace: str, bundles: int | None, admin_url: str) -> None:
    """Create a namespace.

    \b
    Example:
      pulsarish namespaces create acme/orders --bundles 8
    """
    Admin(admin_url).create_namespace(namespace, bundles=bundles)
    say(f"namespace {namespace} created")


@namespaces.command("delete")
@click.argument("namespace")
@admin_url_option
def delete_namespace(namespace: str, admin_url: str) -> None:
    """Delete a namespace that has no topics.

    \b
    Example:
      pulsarish namespaces delete acme/orders
    """
    Admin(admin_url).delete_namespace(namespace)
    say(f"namespace {namespace} deleted")


# -- topics


@click.group()
def topics() -> None:
    """Topics: persistent://tenant/namespace/topic, or a bare name in public/default.

    \b
    Example:
      pulsarish topics create orders --partitions 4
    """


@topics.command("list")
@click.argument("namespace", default="public/default")
@click.option("--partitioned", is_flag=True, help="The partitioned topics, not their partitions.")
@admin_url_option
@output_option
def list_topics(namespace: str, partitioned: bool, admin_url: str, output: str) -> None:
    """List the topics of a namespace.

    \b
    Example:
      pulsarish topics list public/default -o json
    """
    admin = Admin(admin_url)
    _names(admin.partitioned_topics(namespace) if partitioned else admin.topics(namespace), "topic", output)


@topics.command("create")
@click.argument("topic")
@click.option("--partitions", type=click.IntRange(0, 10000), default=0, help="Make a partitioned topic.")
@admin_url_option
def create_topic(topic: str, partitions: int, admin_url: str) -> None:
    """Create a topic.

    \b
    Example:
      pulsarish topics create orders --partitions 4
    """
    Admin(admin_url).create_topic(topic, partitions=partitions)
    say(f"topic {topic} created" + (f" with {partitions} partitions" if partitions else ""))


@topics.command("delete")
@click.argument("topic")
@click.option("--force", is_flag=True, help="Disconnect its producers and consumers.")
@admin_url_option
def delete_topic(topic: str, force: bool, admin_url: str) -> None:
    """Delete a topic and its data.

    \b
    Example:
      pulsarish topics delete orders
    """
    Admin(admin_url).delete_topic(topic, force=force)
    say(f"topic {topic} deleted")


@topics.command("get")
@click.argument("topic")
@admin_url_option
@output_option
def get_topic(topic: str, admin_url: str, output: str) -> None:
    """Show a topic's log: its ledgers and cursors.

    \b
    Example:
      pulsarish topics get greetings -o json
    """
    print_record(Admin(admin_url).internal_stats(topic), output)


@topics.command("stats")
@click.argument("topic")
@admin_url_option
@output_option
def topic_stats(topic: str, admin_url: str, output: str) -> None:
    """Rates, producers, subscriptions, backlogs, and who waits for what since when.

    \b
    Example:
      pulsarish topics stats greetings -o json
    """
    print_record(Admin(admin_url).stats(topic), output)


@topics.command("lookup")
@click.argument("topic")
@admin_url_option
@output_option
def lookup_topic(topic: str, admin_url: str, output: str) -> None:
    """Which broker serves a topic.

    \b
    Example:
      pulsarish topics lookup greetings -o json
    """
    answer = Admin(admin_url).lookup(topic)
    found = {
        "topic": topic,
        "bundle": answer.get("bundle"),
        "node": answer.get("brokerId"),
        "service_urls": {"pulsarish": answer.get("nativeUrl"), "http": answer.get("httpUrl")},
    }
    print_record(found, output)


@topics.command("unload")
@click.argument("topic")
@admin_url_option
def unload_topic(topic: str, admin_url: str) -> None:
    """Close a topic on its broker; its users reconnect by themselves.

    \b
    Example:
      pulsarish topics unload greetings
    """
    Admin(admin_url).unload(topic)
    say(f"topic {topic} unloaded")


@topics.command("peek")
@click.argument("topic")
@click.option("-s", "--subscription", required=True)
@click.option("-n", "--count", default=1, show_default=True, type=click.IntRange(1, 1000))
@admin_url_option
@output_option
def peek_topic(topic: str, subscription: str, count: int, admin_url: str, output: str) -> None:
    """Show the next unacknowledged messages of a subscription without taking them.

    \b
    Example:
      pulsarish topics peek greetings -s me -n 3
    """
    admin = Admin(admin_url)
    rows: list[dict[str, object]] = []
    for number in range(1, count + 1):
        try:
            headers, payload = admin.peek(topic, subscription, number)
        except NotFound:
            if number == 1:
                raise
            break  # there are fewer than were asked for
        row = {"id": headers.get("x-pulsar-message-id"), "key": headers.get("x-pulsar-partition-key")}
        rows.append({**row, "value": payload.decode(errors="replace")})
        if output == "table":
            say(f"{row['id']}  key={row['key'] or '-'}")
            click.echo(rows[-1]["value"])
    if output == "json":
        print_json(rows)


# -- subscriptions


@click.group()
def subscriptions() -> None:
    """Subscriptions of a topic.

    \b
    Example:
      pulsarish subscriptions create orders billing --from earliest
    """


@subscriptions.command("list")
@click.argument("topic")
@admin_url_option
@output_option
def list_subscriptions(topic: str, admin_url: str, output: str) -> None:
    """List a topic's subscriptions.

    \b
    Example:
      pulsarish subscriptions list greetings
    """
    _names(Admin(admin_url).subscriptions(topic), "subscription", output)


@subscriptions.command("get")
@click.argument("topic")
@click.argument("subscription")
@admin_url_option
@output_option
def get_subscription(topic: str, subscription: str, admin_url: str, output: str) -> None:
    """Show a subscription: its type, backlog, consumers, and what blocks it.

    \b
    Example:
      pulsarish subscriptions get greetings me
    """
    found: dict[str, Any] = Admin(admin_url).stats(topic).get("subscriptions", {})
    if subscription not in found:
        raise SubscriptionNotFound(f"{topic} has no subscription {subscription!r}; it has: {', '.join(found) or 'none'}")
    print_record(found[subscription], output)


@subscriptions.command("create")
@click.argument("topic")
@click.argument("subscription")
@click.option("--from", "position", default="latest", show_default=True, help="earliest, latest or LEDGER:ENTRY.")
@admin_url_option
def create_subscription(topic: str, subscription: str, position: str, admin_url: str) -> None:
    """Create a durable subscription.

    \b
    Example:
      pulsarish subscriptions create orders billing --from earliest
    """
    Admin(admin_url).create_subscription(topic, subscription, position=position)
    say(f"subscription {subscription} of {topic} created")


@subscriptions.command("delete")
@click.argument("topic")
@click.argument("subscription")
@click.option("--force", is_flag=True, help="Disconnect its consumers.")
@admin_url_option
def delete_subscription(topic: str, subscription: str, force: bool, admin_url: str) -> None:
    """Delete a subscription; what it has not consumed is no longer kept for it.

    \b
    Example:
      pulsarish subscriptions delete orders billing
    """
    Admin(admin_url).delete_subscription(topic, subscription, force=force)
    say(f"subscription {subscription} of {topic} deleted")


@subscriptions.command("skip")
@click.argument("topic")
@click.argument("subscription")
@click.option("-n", "--count", type=click.IntRange(1), help="How many stored entries; a batch of messages is one entry. All without it.")
@admin_url_option
def skip(topic: str, subscription: str, count: int | None, admin_url: str) -> None:
    """Skip unacknowledged entries, batches as a whole.

    \b
    Example:
      pulsarish subscriptions skip greetings me -n 10
    """
    admin = Admin(admin_url)
    if count is None:
        admin.skip_all(topic, subscription)
    else:
        admin.skip(topic, subscription, count)
    say(f"subscription {subscription} of {topic} moved on")


@subscriptions.command("seek")
@click.argument("topic")
@click.argument("subscription")
@click.option("--to", "position", help="earliest, latest or LEDGER:ENTRY.")
@click.option(
    "--time-ms", type=click.IntRange(0), help="The first message published at or after this time, in milliseconds since the epoch."
)
@admin_url_option
def seek(topic: str, subscription: str, position: str | None, time_ms: int | None, admin_url: str) -> None:
    """Move a subscription to a position or a publish time.

    \b
    Example:
      pulsarish subscriptions seek greetings me --to earliest
    """
    if (position is None) == (time_ms is None):
        raise click.UsageError("give either --to POSITION or --time-ms TIME")
    Admin(admin_url).reset_cursor(topic, subscription, timestamp_ms=time_ms, position=position)
    say(f"subscription {subscription} of {topic} moved")


# -- the cluster


@click.group()
def brokers() -> None:
    """Brokers.

    \b
    Example:
      pulsarish brokers list
    """


@brokers.command("list")
@admin_url_option
@output_option
def list_brokers(admin_url: str, output: str) -> None:
    """List the brokers that are alive.

    \b
    Example:
      pulsarish brokers list
    """
    print_table(Admin(admin_url).brokers(), ["broker_id", "address", "http_address", "host"], output)


@brokers.command("leader")
@admin_url_option
@output_option
def leader(admin_url: str, output: str) -> None:
    """Show the leader broker, which balances load.

    \b
    Example:
      pulsarish brokers leader
    """
    print_record(Admin(admin_url).leader_broker(), output)


@click.group()
def bookies() -> None:
    """Bookies.

    \b
    Example:
      pulsarish bookies list
    """


@bookies.command("list")
@admin_url_option
@output_option
def list_bookies(admin_url: str, output: str) -> None:
    """List the bookies that are alive.

    \b
    Example:
      pulsarish bookies list
    """
    print_table(Admin(admin_url).bookies(), ["bookie_id", "instance_id", "address", "host", "read_only"], output)


@click.group()
def ledgers() -> None:
    """Ledgers: the segments of topics' logs.

    \b
    Example:
      pulsarish ledgers list
    """


@ledgers.command("list")
@click.option("--after", default=-1, show_default=True, help="Only ids above this.")
@click.option("-n", "--limit", default=1000, show_default=True, type=click.IntRange(1, 10000))
@admin_url_option
@output_option
def list_ledgers(after: int, limit: int, admin_url: str, output: str) -> None:
    """List ledger ids, ascending.

    \b
    Example:
      pulsarish ledgers list -n 20
    """
    print_table([{"ledger": ledger} for ledger in Admin(admin_url).ledgers(after=after, limit=limit)], ["ledger"], output)


@ledgers.command("get")
@click.argument("ledger_id", type=int)
@admin_url_option
@output_option
def get_ledger(ledger_id: int, admin_url: str, output: str) -> None:
    """Show a ledger's metadata: quorums, members, state, purpose.

    \b
    Example:
      pulsarish ledgers get 0 -o json
    """
    found = Admin(admin_url).ledger(ledger_id)
    if output == "table":
        found = {**found, "length": human_bytes(found.get("length_bytes", 0))}
    print_record(found, output)
