"""``pulsarish bookies``."""

from __future__ import annotations

import time
from typing import Final

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import AdminGroup, admin_option, confirm, yes_option
from pulsarish.cli.output import output_option, print_json, print_table, say
from pulsarish.cli.progress import Progress
from pulsarish.cli.values import FiniteRange

__all__ = ["bookies"]

_LOOK_SECONDS: Final = 0.5


@click.group(cls=AdminGroup)
def bookies() -> None:
    """Bookies: they store the entries of ledgers.

    \b
    Example:
      pulsarish bookies list
      pulsarish bookies under-replicated
      pulsarish bookies decommission bookie-2
    """


@bookies.command("list")
@admin_option
@output_option
def list_bookies(admin: Admin, output: str) -> None:
    """List the bookies that are alive.

    \b
    Example:
      pulsarish bookies list
    """
    found = admin.bookies.list()
    columns = ["bookie_id", "instance_id", "address", "host", "read_only"]
    print_table(found, [*columns, "read_only_reason"] if any(row.get("read_only_reason") for row in found) else columns, output)


@bookies.command("under-replicated")
@click.option("--after", default=-1, show_default=True, type=click.IntRange(-1), help="Only ledgers above this one.")
@click.option("-n", "--limit", default=1000, show_default=True, type=click.IntRange(1, 1000), help="At most so many.")
@admin_option
@output_option
def under_replicated(admin: Admin, after: int, limit: int, output: str) -> None:
    """Ledgers that lack copies, the bookies that lack them, and why that could not be mended so far.

    \b
    Example:
      pulsarish bookies under-replicated
    """
    found = admin.bookies.under_replicated(after=after, limit=limit)
    rows = found if output == "json" else [{**row, "missing_members": " ".join(row["missing_members"])} for row in found]
    print_table(rows, ["ledger_id", "missing_members", "below_policy", "reason"], output)


@bookies.command()
@click.argument("bookie")
@click.option(
    "--wait-seconds",
    default=3_600.0,
    show_default=True,
    type=FiniteRange(0),
    help="How long to wait for the end; exit status 1 without it. 0: not at all.",
)
@yes_option
@admin_option
@output_option
def decommission(admin: Admin, bookie: str, wait_seconds: float, yes: bool, output: str) -> None:
    """Give up a bookie that is stopped, for good: all its copies are made anew on other bookies, and then it is forgotten.

    Auto-recovery does the work. BOOKIE is the bookie's id. Stop it first; it must not be started again with its old directories.

    \b
    Examples:
      pulsarish bookies decommission bookie-2
      pulsarish bookies decommission bookie-2 --wait-seconds 0     # only ask for it
    """
    confirm(f"Give up bookie {bookie} and whatever only it has?", yes=yes)
    asked = admin.bookies.decommission(bookie)
    instance = str(asked["instanceId"])
    deadline = time.monotonic() + wait_seconds
    is_over = False
    with Progress(f"making the copies of {bookie} anew"):
        while not is_over and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            asked = admin.bookies.decommission_progress(instance)
            is_over = not asked["givenUp"]
    if output == "json":
        print_json({**asked, "done": is_over})
    elif is_over:
        say(f"bookie {bookie} is decommissioned: no ledger names {instance} any more")
    else:
        say(f"bookie {bookie} is given up; {asked['underReplicatedLedgers']} ledgers lack copies: pulsarish bookies under-replicated")
    if wait_seconds and not is_over:
        say(f"that has no end after {wait_seconds:g} s; auto-recovery goes on with it, and this command, given again, waits again")
        raise SystemExit(1)
