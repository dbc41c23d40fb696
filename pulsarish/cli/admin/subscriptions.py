"""``pulsarish subscriptions``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import click

from pulsarish.admin import Admin
from pulsarish.admin.transport import Answer
from pulsarish.cli import values
from pulsarish.cli.admin import complete
from pulsarish.cli.admin.common import (
    AdminGroup,
    admin_option,
    confirm,
    page_options,
    precise_option,
    print_names,
    property_option,
    subscription_argument,
    topic_argument,
    yes_option,
)
from pulsarish.cli.admin.explain_view import print_explanation
from pulsarish.cli.admin.holes_view import print_holes
from pulsarish.cli.admin.messages import form_option, print_messages
from pulsarish.cli.admin.redrive import redrive
from pulsarish.cli.output import output_option, print_record, say
from pulsarish.model.errors import NotFound, SubscriptionNotFound, TopicNotFound
from pulsarish.model.units import parse_duration

__all__ = ["subscriptions"]


class _Subscriptions(AdminGroup):
    words: ClassVar[Mapping[str, str]] = {
        "clear-backlog": "pulsarish subscriptions skip-all TOPIC SUBSCRIPTION",
        "expire-messages": "pulsarish subscriptions expire TOPIC SUBSCRIPTION --older-than 1h",
        "peek-messages": "pulsarish subscriptions peek TOPIC SUBSCRIPTION",
        "reset": "pulsarish subscriptions seek TOPIC SUBSCRIPTION --to earliest",
        "reset-cursor": "pulsarish subscriptions seek TOPIC SUBSCRIPTION --to earliest",
        "stats": "pulsarish subscriptions get TOPIC SUBSCRIPTION",
        "unsubscribe": "pulsarish subscriptions delete TOPIC SUBSCRIPTION",
    }


@click.group(cls=_Subscriptions)
def subscriptions() -> None:
    """Subscriptions of a topic.

    \b
    Example:
      pulsarish subscriptions create orders billing --from earliest
    """


subscriptions.add_command(redrive)


@subscriptions.command("list")
@topic_argument
@page_options
@admin_option
@output_option
def list_subscriptions(
    topic: str, after: str, limit: int | None, admin: Admin, output: str
) -> None:
    """List a topic's subscriptions.

    \b
    Example:
      pulsarish subscriptions list greetings
    """
    print_names(admin.subscriptions.list(topic, after=after, limit=limit), "subscription", output)


@subscriptions.command()
@topic_argument
@subscription_argument
@precise_option
@admin_option
@output_option
def get(topic: str, subscription: str, precise: bool, admin: Admin, output: str) -> None:
    """Show a subscription: its type, backlog, consumers, and what blocks it.

    \b
    Example:
      pulsarish subscriptions get greetings me
    """
    stats = (
        admin.topics.partitioned_stats(topic, precise_backlog=precise)
        if admin.topics.partitions(topic)
        else admin.topics.stats(topic, precise_backlog=precise)
    )
    found: dict[str, Any] = stats.get("subscriptions", {})
    if subscription not in found:
        raise SubscriptionNotFound(
            f"{topic} has no subscription {subscription!r}; it has: {', '.join(found) or 'none'}"
        )
    print_record(found[subscription], output)


@subscriptions.command()
@topic_argument
@subscription_argument
@admin_option
@output_option
def explain(topic: str, subscription: str, admin: Admin, output: str) -> None:
    """Explain why a subscription does not progress, and which command helps; for each partition of
    a partitioned topic.

    \b
    Example:
      pulsarish subscriptions explain greetings me
    """
    print_explanation(admin.subscriptions.explain(topic, subscription), output)


@subscriptions.command()
@topic_argument
@subscription_argument
@click.option(
    "--from", "start", default="", metavar="LEDGER:ENTRY", help="List holes from this position on."
)
@click.option(
    "-n",
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(1, 1_000),
    help="Number of holes to list.",
)
@admin_option
@output_option
def holes(topic: str, subscription: str, start: str, limit: int, admin: Admin, output: str) -> None:
    """List the holes of a subscription: what is not acknowledged below the highest acknowledged
    entry, and which consumer has it.

    \b
    Example:
      pulsarish subscriptions holes greetings me --limit 5
    """
    print_holes(admin.subscriptions.holes(topic, subscription, start=start, limit=limit), output)


@subscriptions.command()
@topic_argument
@click.argument("subscription")
@click.option(
    "--from",
    "position",
    default="latest",
    show_default=True,
    help="earliest, latest or LEDGER:ENTRY.",
)
@admin_option
def create(topic: str, subscription: str, position: str, admin: Admin) -> None:
    """Create a durable subscription.

    \b
    Example:
      pulsarish subscriptions create orders billing --from earliest
    """
    admin.subscriptions.create(topic, subscription, position=position)
    say(f"subscription {subscription} of {topic} created")


@subscriptions.command()
@topic_argument
@subscription_argument
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
    topic: str,
    subscription: str,
    properties: dict[str, str],
    removed: tuple[str, ...],
    admin: Admin,
) -> None:
    """Set or remove properties of a subscription, for people and scripts.

    \b
    Examples:
      pulsarish subscriptions update greetings me --property owner=billing
      pulsarish subscriptions update greetings me --remove-property owner
    """
    if not properties and not removed:
        raise click.UsageError("give --property NAME=VALUE or --remove-property NAME")
    noted = {
        name: value
        for name, value in admin.subscriptions.properties(topic, subscription).items()
        if name not in removed
    }
    admin.subscriptions.set_properties(topic, subscription, noted | properties)
    say(f"subscription {subscription} of {topic} updated")


@subscriptions.command()
@topic_argument
@subscription_argument
@click.argument("condition")
@admin_option
def set_filter(topic: str, subscription: str, condition: str, admin: Admin) -> None:
    """Deliver only messages that fulfil a condition; the others count as acknowledged.

    Its consumers subscribe again. What it acknowledged under another filter stays acknowledged.

    \b
    Example:
      pulsarish subscriptions set-filter greetings me "region = 'eu' AND amount > 100"
    """
    admin.subscriptions.set_filter(topic, subscription, condition)
    say(f"subscription {subscription} of {topic} delivers messages where {condition}")


@subscriptions.command()
@topic_argument
@subscription_argument
@admin_option
def get_filter(topic: str, subscription: str, admin: Admin) -> None:
    """Show which messages a subscription delivers.

    \b
    Example:
      pulsarish subscriptions get-filter greetings me
    """
    condition = admin.subscriptions.filter(topic, subscription)
    if condition is None:
        say(f"subscription {subscription} of {topic} has no filter")
    else:
        click.echo(condition)


@subscriptions.command()
@topic_argument
@subscription_argument
@admin_option
def remove_filter(topic: str, subscription: str, admin: Admin) -> None:
    """Deliver all messages again, from the oldest that is not acknowledged. Its consumers subscribe
    again.

    \b
    Example:
      pulsarish subscriptions remove-filter greetings me
    """
    admin.subscriptions.remove_filter(topic, subscription)
    say(f"subscription {subscription} of {topic} delivers all messages")


@subscriptions.command()
@topic_argument
@subscription_argument
@click.option("--force", is_flag=True, help="Disconnect its consumers.")
@yes_option
@admin_option
def delete(topic: str, subscription: str, force: bool, yes: bool, admin: Admin) -> None:
    """Delete a subscription. The messages in its backlog are no longer kept for it.

    \b
    Example:
      pulsarish subscriptions delete orders billing
    """
    confirm(f"Delete subscription {subscription} of {topic} with its backlog?", yes=yes)
    admin.subscriptions.delete(topic, subscription, force=force)
    say(f"subscription {subscription} of {topic} deleted")


@subscriptions.command()
@topic_argument
@subscription_argument
@click.option("-n", "--count", required=True, type=click.IntRange(1), help="Number of messages.")
@admin_option
def skip(topic: str, subscription: str, count: int, admin: Admin) -> None:
    """Acknowledge the next messages of the backlog without consuming them.

    \b
    Example:
      pulsarish subscriptions skip greetings me -n 10
    """
    admin.subscriptions.skip_messages(topic, subscription, count)
    which = "message" if count == 1 else f"{count} messages, or all if there are fewer"
    say(f"subscription {subscription} of {topic} skipped its next {which}")


@subscriptions.command()
@topic_argument
@subscription_argument
@yes_option
@admin_option
def skip_all(topic: str, subscription: str, yes: bool, admin: Admin) -> None:
    """Acknowledge the whole backlog. The next delivered message is one that is published later.

    \b
    Example:
      pulsarish subscriptions skip-all greetings me
    """
    confirm(f"Skip the whole backlog of subscription {subscription} of {topic}?", yes=yes)
    admin.subscriptions.skip_all_messages(topic, subscription)
    say(f"backlog of subscription {subscription} of {topic} skipped")


def _age(context: click.Context, parameter: click.Parameter, text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@subscriptions.command()
@topic_argument
@click.argument("subscription", required=False, shell_complete=complete.subscriptions)
@click.option(
    "--all", "every", is_flag=True, help="Expire messages of every subscription of the topic."
)
@click.option(
    "--older-than",
    "age_seconds",
    required=True,
    callback=_age,
    metavar="TIME",
    help="Age limit, like 90s, 10m, 12h or 7d.",
)
@admin_option
def expire(
    topic: str, subscription: str | None, every: bool, age_seconds: int, admin: Admin
) -> None:
    """Acknowledge the messages of a backlog that are older than a limit.

    \b
    Examples:
      pulsarish subscriptions expire greetings me --older-than 2d
      pulsarish subscriptions expire greetings --all --older-than 2d
    """
    if (subscription is None) != every:
        raise click.UsageError("give a SUBSCRIPTION, or --all")
    if subscription is None:
        admin.subscriptions.expire_all_messages(topic, age_seconds)
    else:
        admin.subscriptions.expire_messages(topic, subscription, age_seconds)
    say(
        "old messages of "
        f"{'all subscriptions' if subscription is None else f'subscription {subscription}'} of "
        f"{topic} expired"
    )


@subscriptions.command()
@topic_argument
@subscription_argument
@click.option("--to", "position", help="earliest, latest or LEDGER:ENTRY.")
@click.option(
    "--time",
    "time_text",
    metavar="TIME",
    help="Move to the first message published at or after this time, or 2h ago.",
)
@click.option(
    "--time-ms", type=click.IntRange(0), help="As --time, in milliseconds since the epoch."
)
@admin_option
def seek(
    topic: str,
    subscription: str,
    position: str | None,
    time_text: str | None,
    time_ms: int | None,
    admin: Admin,
) -> None:
    """Move a subscription to a position or a publish time.

    \b
    Examples:
      pulsarish subscriptions seek greetings me --to earliest
      pulsarish subscriptions seek greetings me --time 2026-11-21T08:00
      pulsarish subscriptions seek greetings me --time 2h
    """
    if sum(each is not None for each in (position, time_text, time_ms)) != 1:
        raise click.UsageError("give one of --to POSITION, --time TIME and --time-ms MILLISECONDS")
    if time_text is not None:
        time_ms = values.time_ms(time_text)
    admin.subscriptions.reset_cursor(topic, subscription, timestamp_ms=time_ms, position=position)
    say(f"subscription {subscription} of {topic} moved")


@subscriptions.command()
@topic_argument
@subscription_argument
@click.option(
    "--force",
    "given_up",
    multiple=True,
    metavar="BOOKIE",
    help="Instance id of a bookie that does not answer and is given up forever; repeatable.",
)
@yes_option
@admin_option
@output_option
def recover(
    topic: str, subscription: str, given_up: tuple[str, ...], yes: bool, admin: Admin, output: str
) -> None:
    """Let a subscription continue whose ledger of acknowledgements is lost forever.

    It returns to its position in the metadata: it redelivers messages and skips none. Refused while
    the ledger is readable, or while a bookie that may have it does not answer: start that bookie
    again, or give it up by name.

    \b
    Example:
      pulsarish subscriptions recover greetings me --force bookie-2~0aa4c3f9
    """
    confirm(
        f"Let {subscription} of {topic} redeliver the messages whose acknowledgements are lost?",
        yes=yes,
    )
    found = admin.subscriptions.recover(topic, subscription, given_up)
    print_record(found, output)
    say(
        f"subscription {subscription} of {topic} redelivers all messages after "
        f"{found['ledgerId']}:{found['entryId']}"
    )


@subscriptions.command()
@topic_argument
@subscription_argument
@click.option(
    "-n",
    "--count",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Number of messages.",
)
@form_option
@admin_option
@output_option
def peek(topic: str, subscription: str, count: int, form: str, admin: Admin, output: str) -> None:
    """Show the next messages of the backlog without acknowledging them.

    \b
    Example:
      pulsarish subscriptions peek greetings me -n 3
    """
    print_messages(_peeked(admin, topic, subscription, count), output, form)


def _peeked(admin: Admin, topic: str, subscription: str, count: int) -> Iterator[Answer]:
    for number in range(1, count + 1):
        try:
            yield admin.subscriptions.peek_message(topic, subscription, number)
        except (SubscriptionNotFound, TopicNotFound):
            raise
        except NotFound:
            if number == 1:
                raise
            return  # the backlog has fewer than were requested


@subscriptions.command()
@topic_argument
@subscription_argument
@admin_option
@output_option
def analyze_backlog(topic: str, subscription: str, admin: Admin, output: str) -> None:
    """Count the entries and messages of a backlog by reading all of it. For the numbers alone use
    get --get-precise-backlog, which reads less.

    \b
    Example:
      pulsarish subscriptions analyze-backlog greetings me
    """
    print_record(admin.subscriptions.analyze_backlog(topic, subscription), output)
