"""``pulsarish storage remove-volume``."""

from __future__ import annotations

import time
from typing import Final

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import AdminCommand, admin_option
from pulsarish.cli.output import output_option, print_json, say
from pulsarish.cli.progress import Progress

__all__ = ["remove_volume"]

_LOOK_SECONDS: Final = 0.5


@click.command("remove-volume", cls=AdminCommand)
@click.argument("bookie")
@click.argument("directory", metavar="DIR")
@admin_option
@output_option
def remove_volume(bookie: str, directory: str, admin: Admin, output: str) -> None:
    """Have a bookie that runs go on without a drained volume.

    The bookie proves first that nothing needs the volume, and refuses otherwise: a ledger that
    names it, an open one, one in the trash, or anything that cannot be read. Take the three
    directories out of the lists of its configuration before its next start; the start is accepted
    with and without them. BOOKIE is the bookie's id, and DIR the ledger directory of the volume.

    \b
    Example:
      pulsarish storage remove-volume bookie-2 /d1/ledgers
    """
    state = admin.bookies.remove_volume(bookie, directory)
    with Progress("proving that nothing needs it"):
        while state["removing"]:
            time.sleep(_LOOK_SECONDS)
            state = admin.bookies.volume_removal(state["instanceId"], directory)
    if output == "json":
        print_json(state)
    elif state["removed"]:
        say(
            f"volume {state['directory']} of bookie {state['bookieId']} is removed: take its "
            "directories out of the lists of the configuration, and restart the bookie before the "
            "disk goes"
        )
    else:
        why = state["refusal"] or "the bookie restarted meanwhile: give the command again"
        say(f"volume {state['directory']} of bookie {state['bookieId']} is not removed: {why}")
    if not state["removed"]:
        raise SystemExit(1)
