"""``pulsarish storage add-volume``."""

from __future__ import annotations

import time
from typing import Final

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import AdminCommand, admin_option
from pulsarish.cli.output import output_option, print_json, say
from pulsarish.cli.progress import Progress

__all__ = ["add_volume"]

_LOOK_SECONDS: Final = 0.5


@click.command("add-volume", cls=AdminCommand)
@click.argument("bookie")
@click.option(
    "--journal-directory", metavar="DIR", required=True, help="For the journal of the volume."
)
@click.option(
    "--ledger-directory", metavar="DIR", required=True, help="For its entry logs; it names it."
)
@click.option("--index-directory", metavar="DIR", required=True, help="For its index.")
@admin_option
@output_option
def add_volume(
    bookie: str,
    journal_directory: str,
    ledger_directory: str,
    index_directory: str,
    admin: Admin,
    output: str,
) -> None:
    """Have a bookie that runs take one more volume.

    BOOKIE is the bookie's id, and the directories are on its machine: empty ones, or ones that it
    can make. It gives new ledgers to the volume at once. Add the directories to the lists of its
    configuration before its next start; a start without them uses the volume, too, and says so.
    A bookie with the options of one volume has to be started with lists first.

    \b
    Example:
      pulsarish storage add-volume bookie-2 --journal-directory /d3/journal --ledger-directory /d3/ledgers --index-directory /d3/index
    """  # noqa: E501  # an example is one line
    state = admin.bookies.add_volume(
        bookie,
        journal_directory=journal_directory,
        ledger_directory=ledger_directory,
        index_directory=index_directory,
    )
    with Progress("adding the volume"):
        while state["adding"]:
            time.sleep(_LOOK_SECONDS)
            state = admin.bookies.volume_addition(state["instanceId"], state["directory"])
    if output == "json":
        print_json(state)
    elif state["added"]:
        say(
            f"volume {state['directory']} of bookie {state['bookieId']} is added: add its "
            "directories to the lists of the configuration before its next start"
        )
    else:
        why = state["refusal"] or "the bookie restarted meanwhile: give the command again"
        say(f"volume {state['directory']} of bookie {state['bookieId']} is not added: {why}")
    if not state["added"]:
        raise SystemExit(1)
