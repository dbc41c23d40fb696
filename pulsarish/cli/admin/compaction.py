"""Commands of ``pulsarish topics`` for compaction, which keeps the newest message of each key in a
separate ledger.
"""

from __future__ import annotations

from typing import Final

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import (
    AdminCommand,
    admin_option,
    confirm,
    topic_argument,
    yes_option,
)
from pulsarish.cli.output import output_option, print_record, say

__all__ = ["COMPACTION_COMMANDS"]


@click.command(cls=AdminCommand)
@topic_argument
@admin_option
def compact(topic: str, admin: Admin) -> None:
    """Start to compact a topic: the newest message of each key is kept in addition to the log, for
    readers of the compacted view.

    \b
    Example:
      pulsarish topics compact prices
    """
    admin.topics.compact(topic)
    say(f"compaction of {topic} started; see: pulsarish topics compaction-status {topic}")


@click.command(cls=AdminCommand)
@topic_argument
@admin_option
@output_option
def compaction_status(topic: str, admin: Admin, output: str) -> None:
    """Show the result of a topic's last compaction since its broker loaded it.

    \b
    Example:
      pulsarish topics compaction-status prices
    """
    print_record(admin.topics.compaction_status(topic), output)


@click.command(cls=AdminCommand)
@topic_argument
@yes_option
@admin_option
def drop_compacted(topic: str, yes: bool, admin: Admin) -> None:
    """Delete a topic's compacted view. Messages that only the view has are lost, and the view no
    longer delays trimming.

    \b
    Example:
      pulsarish topics drop-compacted prices --yes
    """
    confirm(
        f"Delete the compacted view of {topic}, with all messages that the log no longer has?",
        yes=yes,
    )
    admin.topics.drop_compacted(topic)
    say(f"compacted view of {topic} deleted")


COMPACTION_COMMANDS: Final = (compact, compaction_status, drop_compacted)
