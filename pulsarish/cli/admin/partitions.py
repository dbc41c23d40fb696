"""``pulsarish topics partitions``: how many a topic has, and more of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar, Final

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import AdminGroup, admin_option, finish, topic_argument
from pulsarish.cli.output import output_option, print_record, say
from pulsarish.cli.progress import Progress
from pulsarish.model.errors import InvalidArgument, PulsarishError
from pulsarish.model.topic_name import TopicName

__all__ = ["create_with_partitions", "delete_topic", "gone_partitions", "partitions"]

_STEP: Final = 500
"""Partitions that one request makes: a broker takes at most 30 s for one request."""
_LIST_SECONDS: Final = 5.0


class _Partitions(AdminGroup):
    words: ClassVar[Mapping[str, str]] = {
        "delete": "pulsarish topics delete TOPIC",
        "update": "pulsarish topics partitions grow TOPIC 8",
    }


@click.group(cls=_Partitions)
def partitions() -> None:
    """Partitions of a topic.

    \b
    Example:
      pulsarish topics partitions grow orders 8
    """


@partitions.command()
@topic_argument
@admin_option
@output_option
def get(topic: str, admin: Admin, output: str) -> None:
    """Show the number of a topic's partitions; 0: the topic is not partitioned.

    \b
    Example:
      pulsarish topics partitions get orders -o json
    """
    print_record({"topic": topic, "partitions": admin.topics.partitions(topic)}, output)


@partitions.command()
@topic_argument
@click.argument("count", type=click.IntRange(1, 10000))
@admin_option
def grow(topic: str, count: int, admin: Admin) -> None:
    """Grow a partitioned topic to COUNT partitions. After an interruption run the command again.

    \b
    Example:
      pulsarish topics partitions grow orders 8
    """
    before = admin.topics.partitions(topic)
    if count == before:
        raise InvalidArgument(f"{topic} has {before} partitions already")
    _grow(admin, topic, before, count)
    say(f"{topic} has {count} partitions, {count - before} more than before")


@partitions.command()
@topic_argument
@admin_option
def create(topic: str, admin: Admin) -> None:
    """Create missing partitions, after the creation or the growth of a topic was interrupted.

    \b
    Example:
      pulsarish topics partitions create orders
    """
    finish(f"creating partitions of {topic}", lambda: admin.topics.create_missed_partitions(topic))
    say(f"{topic} has all its partitions")


def create_with_partitions(
    admin: Admin, topic: str, count: int, properties: Mapping[str, str]
) -> None:
    """Make a partitioned topic, in steps when it has very many partitions."""
    first = min(count, _STEP)
    admin.topics.create(topic, partitions=first, properties=properties)
    if count > first:
        _grow(admin, topic, first, count)


def _grow(admin: Admin, topic: str, before: int, count: int) -> None:
    with Progress(f"creating partitions of {topic}", total=count) as progress:
        for goal in [*range(before + _STEP, count, _STEP), count]:
            admin.topics.update_partitions(topic, goal)
            progress.done(goal)


def delete_topic(admin: Admin, topic: str, *, force: bool) -> None:
    """Delete a topic; with very many partitions, show how many are deleted."""
    count = admin.topics.partitions(topic)
    measure = gone_partitions(admin, TopicName.parse(topic), count) if count > _STEP else None
    work = partial(admin.topics.delete, topic, force=force)
    finish(f"deleting {topic}", work, total=count if measure else None, measure=measure)


def gone_partitions(admin: Admin, name: TopicName, count: int) -> Callable[[], int]:
    """Return a function that counts the deleted partitions of a topic, as far as they can be
    found.
    """
    prefix = f"{name.full}-partition-"
    patient = admin.with_timeout(_LIST_SECONDS)
    seen = 0

    def gone() -> int:
        nonlocal seen
        try:
            names = patient.topics.list(name.namespace_name, after=prefix, limit=count)
        except PulsarishError:
            return seen  # the request itself reports what is wrong
        seen = max(seen, count - sum(each.startswith(prefix) for each in names))
        return seen

    return gone
