"""``pulsarish subscriptions redrive``: move dead letters back."""

from __future__ import annotations

from typing import Any, Final

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import (
    AdminCommand,
    admin_option,
    property_option,
    subscription_argument,
    topic_argument,
)
from pulsarish.cli.connections import connection_arguments, url_option
from pulsarish.cli.output import counted, print_line, say
from pulsarish.model.errors import SubscriptionNotFound, TopicNotFound
from pulsarish.model.topic_name import TopicName

__all__ = ["redrive"]

_PAGE: Final = 100


@click.command(cls=AdminCommand)
@topic_argument
@subscription_argument
@click.option(
    "--to",
    "target",
    type=click.Choice(["retry", "topic"]),
    default="retry",
    show_default=True,
    help="The subscription's retry letter topic, or the topic, where every subscription gets them.",
)
@click.option("-n", "--count", type=click.IntRange(1), help="Move at most this number of messages.")
@property_option("Only messages with this property; repeatable.")
@click.option("--dead-letter-topic", metavar="TOPIC", help="Default: TOPIC-SUBSCRIPTION-DLQ.")
@click.option("--retry-letter-topic", metavar="TOPIC", help="Default: TOPIC-SUBSCRIPTION-RETRY.")
@click.option(
    "--dead-letter-subscription",
    metavar="NAME",
    help="Which subscription of the dead letter topic to take from; default: its only one.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be moved, and move nothing.")
@admin_option
@url_option
def redrive(
    topic: str,
    subscription: str,
    target: str,
    count: int | None,
    properties: dict[str, str],
    dead_letter_topic: str | None,
    retry_letter_topic: str | None,
    dead_letter_subscription: str | None,
    dry_run: bool,
    admin: Admin,
    url: str,
) -> None:
    """Move the messages of a subscription's dead letter topic back, to be consumed again. Prints
    the id, key and properties of each.

    Copies are stored before messages are acknowledged: a redrive that was interrupted may have
    moved some twice, and the next one goes on. Their reconsumptions count from 0, and REDRIVE_TIMES
    counts the redrives. Letters that arrive meanwhile stay.

    \b
    Examples:
      pulsarish subscriptions redrive orders billing --dry-run
      pulsarish subscriptions redrive orders billing -n 10 --property error=timeout
      pulsarish subscriptions redrive orders billing --to topic
    """
    # Imported here: other commands of the group need neither, and both load slowly.
    import asyncio

    from pulsarish.client.messages.letters import letter_topic_name

    name = TopicName.parse(topic)
    dead = dead_letter_topic or letter_topic_name(name, subscription, "DLQ")
    source = _source(admin, dead, dead_letter_subscription)
    retry = retry_letter_topic or letter_topic_name(name, subscription, "RETRY")
    to = name.full if target == "topic" else retry
    _check_target(admin, to, subscription, topic, for_all=target == "topic")
    total = asyncio.run(
        _redrive(
            url,
            (source, to),
            {"for_all": target == "topic", "properties": properties},
            dead,
            {"count": count, "size": _PAGE, "dry_run": dry_run},
        )
    )
    verb = "would be moved" if dry_run else "moved"
    say(f"{counted(total, 'message', 'messages')} {verb} from {dead} to {to}")


def _source(admin: Admin, dead: str, chosen: str | None) -> str:
    """Return the subscription of the dead letter topic to take from."""
    try:
        names = admin.subscriptions.list(dead)
    except TopicNotFound:
        raise TopicNotFound(
            f"there is no dead letter topic {dead}: no message was moved there, or its consumers "
            "name another one, which --dead-letter-topic takes"
        ) from None
    if chosen is not None:
        if chosen not in names:
            raise SubscriptionNotFound(
                f"{dead} has no subscription {chosen!r}; it has: {', '.join(names) or 'none'}"
            )
        return chosen
    if not names:
        raise SubscriptionNotFound(
            f"{dead} has no subscription to take from: create one, which also keeps later letters: "
            f"pulsarish subscriptions create {dead} redrive --from earliest"
        )
    if len(names) > 1:
        raise click.UsageError(
            f"{dead} has several subscriptions: give one of {', '.join(names)} as "
            "--dead-letter-subscription"
        )
    return names[0]


def _check_target(
    admin: Admin, target: str, subscription: str, topic: str, *, for_all: bool
) -> None:
    """Refuse a target where the subscription would not get the messages."""
    try:
        names = admin.subscriptions.list(target)
    except TopicNotFound:
        names = []
    if subscription not in names:
        hint = (
            ""
            if for_all
            else (
                "; its consumers have none without retry_enabled. --to topic gives the messages to "
                f"every subscription of {topic}"
            )
        )
        raise SubscriptionNotFound(f"{target} has no subscription {subscription!r}{hint}")


async def _redrive(
    url: str, ends: tuple[str, str], chosen: dict[str, Any], dead: str, limits: dict[str, Any]
) -> int:
    import pulsarish.asyncio
    from pulsarish.client.api.redrive import Redrive

    total = 0
    async with pulsarish.asyncio.Client(url, **connection_arguments(url)) as client:
        async for page in Redrive(client, *ends, **chosen).pages(dead, **limits):
            for message in page:
                where = message.message_id()
                words = [
                    f"{where.ledger_id()}:{where.entry_id()}",
                    f"key={message.partition_key() or '-'}",
                    *(f"{name}={value}" for name, value in message.properties().items()),
                ]
                print_line("  ".join(words))
            total += len(page)
    return total
