"""``pulsarish topics schedules``: messages that repeat by a cron expression."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import ClassVar

import click

from pulsarish.admin import Admin
from pulsarish.admin.transport import Record
from pulsarish.cli.admin.common import (
    AdminGroup,
    admin_option,
    confirm,
    property_option,
    topic_argument,
    yes_option,
)
from pulsarish.cli.output import output_option, print_json, print_record, print_table, say

__all__ = ["schedules"]


class _Schedules(AdminGroup):
    words: ClassVar[Mapping[str, str]] = {
        "create": "pulsarish topics schedules set TOPIC NAME --cron '0 8 * * *'",
        "delete": "pulsarish topics schedules remove TOPIC NAME",
    }


_NAME = click.argument("name")


@click.group(cls=_Schedules)
def schedules() -> None:
    """Schedules of a topic: its owner publishes a message whenever a cron expression says so.

    \b
    Example:
      pulsarish topics schedules set reports daily --cron '0 8 * * *' --payload go
    """


@schedules.command("set")
@topic_argument
@_NAME
@click.option(
    "--cron",
    required=True,
    help="Five fields of cron (minute hour day-of-month month day-of-week), or six with the "
    "second first.",
)
@click.option(
    "--timezone",
    default="UTC",
    show_default=True,
    help="Time zone of the expression, from the IANA database.",
)
@click.option("--payload", default="", help="Payload of the message, as text.")
@click.option("--key", default="", help="Key of the message.")
@property_option("Set this property of the message; repeatable.")
@click.option(
    "--missed",
    type=click.Choice(["last", "skip", "all"]),
    default="last",
    show_default=True,
    help="What to publish of instants that are more than a minute late: the last one, none, or "
    "the last 100.",
)
@admin_option
def set_schedule(
    topic: str,
    name: str,
    cron: str,
    timezone: str,
    payload: str,
    key: str,
    properties: dict[str, str],
    missed: str,
    admin: Admin,
) -> None:
    """Create or replace schedule NAME of a topic.

    \b
    Examples:
      pulsarish topics schedules set reports daily --cron '0 8 * * *' --timezone Europe/Berlin
      pulsarish topics schedules set work tick --cron '*/5 * * * *' --missed skip
    """
    admin.topics.set_schedule(
        topic,
        name,
        cron,
        timezone=timezone,
        payload=payload.encode(),
        key=key,
        properties=properties,
        missed=missed,
    )
    following = admin.topics.schedule(topic, name, count=1)["next"]
    say(f"schedule {name} of topic {topic} set; next: {following[0]}")


@schedules.command("list")
@topic_argument
@admin_option
@output_option
def list_schedules(topic: str, admin: Admin, output: str) -> None:
    """List the schedules of a topic, each with its next instant.

    \b
    Example:
      pulsarish topics schedules list reports
    """
    found = admin.topics.schedules(topic)
    if output == "json":
        print_json(found)
        return
    rows = [
        {**each, "name": name, "next": each["next"][0] if each["next"] else "paused"}
        for name, each in sorted(found.items())
    ]
    print_table(rows, ("name", "cron", "timezone", "missed", "next"), output)


@schedules.command()
@topic_argument
@_NAME
@click.option(
    "-n",
    "--count",
    default=5,
    show_default=True,
    type=click.IntRange(0, 100),
    help="Number of next instants to show.",
)
@admin_option
@output_option
def get(topic: str, name: str, count: int, admin: Admin, output: str) -> None:
    """Show schedule NAME of a topic, with its next instants.

    \b
    Example:
      pulsarish topics schedules get reports daily -n 3
    """
    found: Record = admin.topics.schedule(topic, name, count=count)
    if output != "json":
        found["payload"] = b64decode(found["payload"]).decode(errors="replace")
    print_record(found, output)


@schedules.command()
@topic_argument
@_NAME
@yes_option
@admin_option
def remove(topic: str, name: str, yes: bool, admin: Admin) -> None:
    """Remove schedule NAME of a topic. Messages that it published stay.

    \b
    Example:
      pulsarish topics schedules remove reports daily
    """
    confirm(f"Remove schedule {name} of topic {topic}?", yes=yes)
    admin.topics.remove_schedule(topic, name)
    say(f"schedule {name} of topic {topic} removed")


@schedules.command()
@topic_argument
@_NAME
@admin_option
def pause(topic: str, name: str, admin: Admin) -> None:
    """Pause schedule NAME of a topic.

    \b
    Example:
      pulsarish topics schedules pause reports daily
    """
    admin.topics.pause_schedule(topic, name)
    say(f"schedule {name} of topic {topic} paused")


@schedules.command()
@topic_argument
@_NAME
@admin_option
def resume(topic: str, name: str, admin: Admin) -> None:
    """Resume schedule NAME of a topic. What was due in the pause is left out.

    \b
    Example:
      pulsarish topics schedules resume reports daily
    """
    admin.topics.resume_schedule(topic, name)
    say(f"schedule {name} of topic {topic} resumed")
