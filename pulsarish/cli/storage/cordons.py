"""``pulsarish storage cordon`` and ``uncordon``."""

from __future__ import annotations

import posixpath
from typing import Any

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import AdminCommand, admin_option, until_followed
from pulsarish.cli.output import output_option, print_json, say

__all__ = ["cordon", "uncordon"]


@click.command(cls=AdminCommand)
@click.argument("bookie")
@click.argument("directory", metavar="DIR")
@click.option("--reason", default="", help="Why; it is shown with the bookie.")
@click.option(
    "--force", is_flag=True, help="Also if no volume is left, and too few bookies are writable."
)
@admin_option
@output_option
def cordon(
    bookie: str, directory: str, reason: str, force: bool, admin: Admin, output: str
) -> None:
    """Have one of several volumes of a bookie take no new ledgers, until `storage uncordon`.
    Ledgers that lie there go on.

    A broker is asked, so this needs no options of the bookie. BOOKIE is the bookie's id, and DIR
    the ledger directory of the volume. The bookie need not run; it remembers. When all its volumes
    are cordoned it is read-only, which is refused when fewer writable bookies are left than hold
    each entry, without --force.

    \b
    Example:
      pulsarish storage cordon bookie-2 /d1/ledgers --reason "disk is failing"
    """
    state = admin.bookies.cordon(bookie, directory, reason=reason, force=force)
    _show(admin, state, directory, output, is_cordoned=True)


@click.command(cls=AdminCommand)
@click.argument("bookie")
@click.argument("directory", metavar="DIR")
@admin_option
@output_option
def uncordon(bookie: str, directory: str, admin: Admin, output: str) -> None:
    """Take `storage cordon` back.

    \b
    Example:
      pulsarish storage uncordon bookie-2 /d1/ledgers
    """
    state = admin.bookies.uncordon(bookie, directory)
    _show(admin, state, directory, output, is_cordoned=False)


def _show(
    admin: Admin, state: dict[str, Any], directory: str, output: str, *, is_cordoned: bool
) -> None:
    """Wait until the bookie has followed, and say so, or that it has not."""
    directory = posixpath.normpath(directory)

    def is_done(now: dict[str, Any]) -> bool:
        return (directory in map(posixpath.normpath, now["cordoned"])) is is_cordoned

    state = until_followed(state, is_done, admin.bookies.cordoned)
    what = f"volume {directory} of bookie {state['bookieId']}"
    mode = "cordoned" if is_cordoned else "not cordoned"
    if output == "json":
        print_json(state)
    elif not state["alive"]:
        say(f"the bookie does not run; {what} will be {mode} when it does")
    elif not is_done(state):
        say(f"the bookie has not followed yet: {what} is still {'not ' * is_cordoned}cordoned")
    else:
        say(f"{what} is {mode}")
        if state["readOnly"]:
            say("the bookie is read-only: pulsarish bookies list says why")
    if state["alive"] and not is_done(state):
        raise SystemExit(1)
