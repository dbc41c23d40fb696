"""``pulsarish storage drain``."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.autorecovery import say_if_off
from pulsarish.cli.admin.common import AdminCommand, admin_option, until_followed
from pulsarish.cli.output import counted, output_option, print_json, say
from pulsarish.cli.progress import Progress

__all__ = ["drain"]

_LOOK_SECONDS: Final = 2.0


@click.command(cls=AdminCommand)
@click.argument("bookie")
@click.argument("directory", metavar="DIR")
@click.option("--wait", is_flag=True, help="Wait until no ledger that lives needs the volume.")
@click.option("--reason", default="", help="Why; it is shown with the bookie.")
@click.option(
    "--force", is_flag=True, help="Also if no volume is left, and too few bookies are writable."
)
@admin_option
@output_option
def drain(
    bookie: str,
    directory: str,
    wait: bool,
    reason: str,
    force: bool,
    admin: Admin,
    output: str,
) -> None:
    """Have the ledgers of one of several volumes leave the bookie, until `storage uncordon`.

    The volume is cordoned, and auto-recovery makes the copies that lie there on other bookies. That
    takes another bookie for each ledger. A ledger that is still open leaves once its writer has
    closed it; the command names some, with the topic to unload. The request is stored, so the
    command may be interrupted, and given again to look or to wait. BOOKIE is the bookie's id, and
    DIR the ledger directory of the volume.

    \b
    Example:
      pulsarish storage drain bookie-2 /d1/ledgers --wait
    """
    state = admin.bookies.drain_volume(bookie, directory, reason=reason, force=force)
    say_if_off(admin)

    def look(instance_id: str) -> dict[str, Any]:
        return admin.bookies.volume_drain(instance_id, directory)

    state = until_followed(state, lambda now: bool(now["draining"] or now["failure"]), look)
    if wait:
        state = _wait(state, look)
    if output == "json":
        print_json(state)
    else:
        _show(state)
    if wait and not state["drained"]:
        raise SystemExit(1)


def _wait(state: dict[str, Any], look: Any) -> dict[str, Any]:
    """Look until the volume is drained, or the request has been withdrawn."""
    total = _left(state)
    with Progress("draining", total=total or None, in_logs=True) as progress:
        while not state["drained"] and state["asked"]:
            time.sleep(_LOOK_SECONDS)
            state = look(state["instanceId"])
            total = max(total, _left(state))
            progress.done(total - _left(state))
    return state


def _left(state: dict[str, Any]) -> int:
    return int(state["closedLedgers"]) + int(state["openLedgers"])


def _show(state: dict[str, Any]) -> None:
    what = f"volume {state['directory']} of bookie {state['bookieId']}"
    if not state["asked"]:
        say(f"{what} is not drained any more: the request was withdrawn")
    elif not state["alive"]:
        say(f"the bookie does not run; {what} will be drained when it does")
    elif state["drained"]:
        say(f"{what} is drained: no ledger that lives needs it")
    else:
        if state["failure"]:
            say(f"nothing newer is known: {state['failure']}")
        closed = counted(state["closedLedgers"], "closed ledger", "closed ledgers")
        opened = counted(state["openLedgers"], "open one", "open ones")
        say(f"{what} is being drained; {closed} and {opened} are left")
        for each in state["waiting"]:
            say(f"  ledger {each['ledgerId']}: {each['reason']}")
        say("give the command again to look, or with --wait; pulsarish storage uncordon ends it")
