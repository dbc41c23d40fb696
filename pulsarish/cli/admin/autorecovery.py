"""The commands of ``pulsarish autorecovery``."""

from __future__ import annotations

import time
from typing import Any

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import AdminCommand, admin_option
from pulsarish.cli.output import fail, output_option, print_json, print_line, print_record, say
from pulsarish.model.errors import NotFound
from pulsarish.model.units import format_millis, parse_duration

__all__ = [
    "disable",
    "enable",
    "say_if_off",
    "set_lost_bookie_delay",
    "status",
    "trigger",
    "who_is_auditor",
]


def say_if_off(admin: Admin, *, is_needed: bool = True) -> None:
    """Say on stderr that no node makes lost copies again, if that is so.

    ``is_needed``: the caller waits for copies, so that it matters, too, if no process runs that
    would make them.
    """
    try:
        state = admin.autorecovery.status()
    except NotFound:
        return  # the broker is of a version that cannot switch it off
    if not state["enabled"]:
        why = f" ({state['reason']})" if state["reason"] else ""
        off = format_millis(max(0, int(time.time() * 1000) - int(state["offSinceMs"])))
        say(
            f"warning: auto-recovery has been off for {off}{why}: lost copies are not made again; "
            "to switch it on: pulsarish autorecovery enable"
        )
    elif is_needed and not state["auditor"]:
        say(
            "warning: no process with auto-recovery runs: set auto_recovery_daemon_enabled on "
            "bookies, or start pulsarish autorecovery"
        )


def _show(state: dict[str, Any], said: str, output: str) -> None:
    if output == "json":
        print_json(state)
    else:
        say(said)


@click.command(cls=AdminCommand)
@admin_option
@output_option
def status(admin: Admin, output: str) -> None:
    """Show whether auto-recovery is on, which process is the auditor, how many ledgers are
    under-replicated, and which bookies are given up.

    \b
    Example:
      pulsarish autorecovery status
    """
    state = admin.autorecovery.status()
    if output == "json":
        print_json(state)
        return
    delay = state["lostBookieRecoveryDelaySeconds"]
    shown: dict[str, Any] = {
        "enabled": state["enabled"],
        "auditor": state["auditor"] or "none: no process with auto-recovery runs",
        "under_replicated_ledgers": state["underReplicatedLedgers"],
        "given_up_bookies": state["givenUpBookies"],
        "lost_bookie_delay": f"{delay} s" if delay else "as each node's option says",
        "looks_waiting": state["looksAsked"] - state["looksDone"],
    }
    if not state["enabled"]:
        shown["off_since_ms"] = state["offSinceMs"]
        shown["reason"] = state["reason"]
    print_record(shown, output)
    say_if_off(admin)


@click.command(cls=AdminCommand)
@admin_option
@output_option
def enable(admin: Admin, output: str) -> None:
    """Switch auto-recovery on, on all nodes. What was lost meanwhile is copied again.

    \b
    Example:
      pulsarish autorecovery enable
    """
    _show(admin.autorecovery.enable(), "auto-recovery is on", output)


@click.command(cls=AdminCommand)
@click.option("--reason", default="", help="Why; it is shown as long as it is off.")
@admin_option
@output_option
def disable(reason: str, admin: Admin, output: str) -> None:
    """Switch auto-recovery off, on all nodes, also those that start later: for maintenance in which
    bookies are away for long and come back.

    Copies under way stop. What is missing is recorded as before, and copied after `autorecovery
    enable`. Meanwhile a second bookie that fails can cost availability.

    \b
    Example:
      pulsarish autorecovery disable --reason "new disks in rack 2"
    """
    _show(
        admin.autorecovery.disable(reason=reason),
        "auto-recovery is off: lost copies are not made again before `autorecovery enable`",
        output,
    )


@click.command(cls=AdminCommand)
@click.option(
    "--ask-bookies",
    is_flag=True,
    help="Ask the bookies of all closed ledgers for their entries, too.",
)
@admin_option
@output_option
def trigger(ask_bookies: bool, admin: Admin, output: str) -> None:
    """Have the auditor look through all ledgers now, and publish what is missing.

    \b
    Examples:
      pulsarish autorecovery trigger
      pulsarish autorecovery trigger --ask-bookies
    """
    state = admin.autorecovery.trigger(ask_bookies=ask_bookies)
    _show(state, "the auditor begins a look through all ledgers", output)
    say_if_off(admin)


@click.command("set-lost-bookie-delay", cls=AdminCommand)
@click.argument("delay", metavar="DELAY|default")
@admin_option
@output_option
def set_lost_bookie_delay(delay: str, admin: Admin, output: str) -> None:
    """Set how long a bookie may be away before its copies are made again, on all nodes.

    DELAY is a duration of whole seconds, such as 30m. `default` is what each node's option
    lost_bookie_recovery_delay_seconds says.

    \b
    Examples:
      pulsarish autorecovery set-lost-bookie-delay 30m
      pulsarish autorecovery set-lost-bookie-delay default
    """
    if delay == "default":
        state = admin.autorecovery.reset_lost_bookie_delay()
        _show(state, "each node's lost_bookie_recovery_delay_seconds is in force", output)
        return
    try:
        seconds = parse_duration(delay)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    state = admin.autorecovery.set_lost_bookie_delay(seconds)
    _show(state, f"a bookie is lost once it has been away for {seconds} s", output)


@click.command("who-is-auditor", cls=AdminCommand)
@admin_option
@output_option
def who_is_auditor(admin: Admin, output: str) -> None:
    """Print which process is the auditor. Exit status 1 when none is.

    The bookie or the process of auto-recovery that the name is of looks for lost copies, for the
    whole cluster.

    \b
    Example:
      pulsarish autorecovery who-is-auditor
    """
    auditor = admin.autorecovery.status()["auditor"]
    if output == "json":
        print_json({"auditor": auditor or None})
    elif auditor:
        print_line(auditor)
    if not auditor:
        fail("no process with auto-recovery runs")
