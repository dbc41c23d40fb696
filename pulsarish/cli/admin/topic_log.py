"""Commands of ``pulsarish topics`` for a topic's log: its ledgers, its messages, its end, and how
to empty it.
"""

from __future__ import annotations

from typing import Final

import click

from pulsarish.admin import Admin
from pulsarish.cli import values
from pulsarish.cli.admin.common import (
    AdminCommand,
    admin_option,
    confirm,
    finish,
    topic_argument,
    yes_option,
)
from pulsarish.cli.admin.messages import (
    form_option,
    parse_message_id,
    parse_position,
    print_messages,
)
from pulsarish.cli.admin.trace_view import print_trace
from pulsarish.cli.output import output_option, print_record, say

__all__ = ["LOG_COMMANDS"]


@click.command(cls=AdminCommand)
@topic_argument
@admin_option
@output_option
def internal_stats(topic: str, admin: Admin, output: str) -> None:
    """Show a topic's log: its ledgers and cursors.

    \b
    Example:
      pulsarish topics internal-stats greetings -o json
    """
    if admin.topics.partitions(topic):
        print_record(admin.topics.partitioned_internal_stats(topic), output)
    else:
        print_record(admin.topics.internal_stats(topic), output)


@click.command(cls=AdminCommand)
@topic_argument
@admin_option
@output_option
def internal_info(topic: str, admin: Admin, output: str) -> None:
    """Show a topic's ledgers and cursors from the metadata, whether or not a broker has loaded the
    topic.

    \b
    Example:
      pulsarish topics internal-info greetings
    """
    print_record(admin.topics.internal_info(topic), output)


@click.command(cls=AdminCommand)
@topic_argument
@click.option(
    "--ledger",
    "ledger_id",
    type=click.IntRange(0),
    required=True,
    help="A closed ledger of the topic; see internal-stats.",
)
@click.option(
    "--from-entry",
    "first_entry",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="The first entry to skip.",
)
@click.option(
    "--to-entry",
    "last_entry",
    type=click.IntRange(0),
    help="The last entry to skip; default: the ledger's last.",
)
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
def skip_lost(
    topic: str,
    ledger_id: int,
    first_entry: int,
    last_entry: int | None,
    given_up: tuple[str, ...],
    yes: bool,
    admin: Admin,
    output: str,
) -> None:
    """Skip entries of a topic that are lost forever, and record them as lost.

    Refused while a bookie has one of them, or may have one and does not answer: start that bookie
    again, or give it up by name.

    \b
    Example:
      pulsarish topics skip-lost greetings --ledger 105 --from-entry 20 --to-entry 31
    """
    what = (
        f"entries {first_entry} to {'the end' if last_entry is None else last_entry} of "
        f"ledger {ledger_id}"
    )
    confirm(f"Let {topic} continue without {what}, forever?", yes=yes)
    found = admin.topics.skip_lost(
        topic, ledger_id, first_entry=first_entry, last_entry=last_entry, given_up_bookies=given_up
    )
    print_record(found, output)
    say(f"topic {topic} continues after {what}")


@click.command(cls=AdminCommand)
@topic_argument
@yes_option
@admin_option
@output_option
def terminate(topic: str, yes: bool, admin: Admin, output: str) -> None:
    """Terminate a topic: reject further messages forever; stored messages stay readable. Prints the
    last message's id.

    \b
    Example:
      pulsarish topics terminate greetings
    """
    confirm(f"Terminate {topic} forever? No message can be published to it again.", yes=yes)
    if admin.topics.partitions(topic):
        print_record(admin.topics.terminate_partitions(topic), output)
    else:
        print_record(admin.topics.terminate(topic), output)
    say(f"topic {topic} terminated")


@click.command(cls=AdminCommand)
@topic_argument
@yes_option
@admin_option
def truncate(topic: str, yes: bool, admin: Admin) -> None:
    """Delete all messages of a topic, and skip all backlogs.

    \b
    Example:
      pulsarish topics truncate greetings
    """
    confirm(f"Delete all messages of {topic}?", yes=yes)
    finish(f"truncating {topic}", lambda: admin.topics.truncate(topic))
    say(f"topic {topic} truncated")


@click.command(cls=AdminCommand)
@topic_argument
@admin_option
def trim(topic: str, admin: Admin) -> None:
    """Delete messages now that no subscription needs and no retention keeps, instead of at the next
    check.

    \b
    Example:
      pulsarish topics trim greetings
    """
    finish(f"trimming {topic}", lambda: admin.topics.trim(topic))
    say(f"topic {topic} trimmed")


@click.command(cls=AdminCommand)
@topic_argument
@admin_option
@output_option
def last_message_id(topic: str, admin: Admin, output: str) -> None:
    """Show the id of the last message.

    \b
    Example:
      pulsarish topics last-message-id greetings
    """
    print_record(admin.topics.last_message_id(topic), output)


@click.command(cls=AdminCommand)
@topic_argument
@click.option(
    "--time",
    "time_text",
    required=True,
    metavar="TIME",
    help="A date and time, milliseconds, or an age like 2h.",
)
@admin_option
@output_option
def message_id(topic: str, time_text: str, admin: Admin, output: str) -> None:
    """Show the id of the first message published at a time or later.

    \b
    Examples:
      pulsarish topics message-id greetings --time 2026-11-21T08:00
      pulsarish topics message-id greetings --time 2h
    """
    print_record(admin.topics.message_id_by_timestamp(topic, values.time_ms(time_text)), output)


@click.command(cls=AdminCommand)
@topic_argument
@click.argument("position", metavar="LEDGER:ENTRY", callback=parse_position)
@form_option
@admin_option
@output_option
def message(topic: str, position: tuple[int, int], form: str, admin: Admin, output: str) -> None:
    """Show an entry of a topic by its id: a message, or all messages of a batch.

    \b
    Examples:
      pulsarish topics message greetings 3:7
      pulsarish topics message greetings 3:7 --format hex
    """
    print_messages([admin.topics.get_message(topic, *position)], output, form)


@click.command(cls=AdminCommand)
@topic_argument
@click.option(
    "--from",
    "end",
    type=click.Choice(["latest", "earliest"]),
    default="latest",
    show_default=True,
    help="The end to count from.",
)
@click.option(
    "-n",
    "--number",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="Position of the entry from that end, from 1.",
)
@form_option
@admin_option
@output_option
def examine(topic: str, end: str, number: int, form: str, admin: Admin, output: str) -> None:
    """Show an entry of a topic by its position from one end, acknowledged or not: a message, or all
    messages of a batch.

    \b
    Example:
      pulsarish topics examine greetings --from earliest -n 2
    """
    print_messages(
        [admin.topics.examine_message(topic, initial_position=end, number=number)], output, form
    )


@click.command(cls=AdminCommand)
@topic_argument
@click.argument("message_id", metavar="LEDGER:ENTRY[:INDEX]", callback=parse_message_id)
@click.option(
    "--copies", is_flag=True, help="Read the entry from each of its bookies, and check its digest."
)
@click.option("--subscription", default="", metavar="NAME", help="Only this subscription.")
@admin_option
@output_option
def trace(
    topic: str,
    message_id: tuple[int, int, int | None],
    copies: bool,
    subscription: str,
    admin: Admin,
    output: str,
) -> None:
    """Show where a message is now: in the log or not, on which bookies, and for each subscription
    whether it is acknowledged, which consumer has it and since when, or what it waits for.

    \b
    Examples:
      pulsarish topics trace greetings 3:7
      pulsarish topics trace greetings 3:7:2 --copies --subscription me
    """
    ledger_id, entry_id, index = message_id
    report = admin.topics.trace_message(
        topic, ledger_id, entry_id, batch_index=index, copies=copies, subscription=subscription
    )
    print_trace(report, output)


LOG_COMMANDS: Final = (
    internal_stats,
    internal_info,
    skip_lost,
    terminate,
    truncate,
    trim,
    last_message_id,
    message_id,
    message,
    examine,
    trace,
)
