"""``pulsarish bookies rebalance`` and ``pulsarish bookies placement-audit``."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.autorecovery import say_if_off
from pulsarish.cli.admin.common import (
    AdminCommand,
    AdminGroup,
    admin_option,
    hinting_when_unavailable,
)
from pulsarish.cli.output import counted, output_option, print_json, print_table, say
from pulsarish.cli.progress import Progress
from pulsarish.cli.values import FiniteRange
from pulsarish.model.units import human_bytes, parse_size

__all__ = ["placement_audit", "rebalance"]

_LOOK_SECONDS: Final = 1.0
_HINT: Final = (
    "what was asked for goes on by itself where it was: pulsarish bookies rebalance status. If "
    "none runs, run the command again: copies that have moved stay where they are"
)


def _rate(_context: click.Context, _parameter: click.Parameter, text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_rate_option: Final = click.option(
    "--rate",
    "rate_bytes",
    default="16MB",
    show_default=True,
    callback=_rate,
    metavar="BYTES",
    help="Bytes that are copied in a second.",
)
_max_option: Final = click.option(
    "--max-ledgers",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="End once copies of this many ledgers have moved; 0: no limit.",
)
_wait_option: Final = click.option(
    "--wait-seconds",
    default=86_400.0,
    show_default=True,
    type=FiniteRange(0),
    help="How long to wait until it is done; exit status 1 if it is not. 0: do not wait.",
)


@click.group(cls=AdminGroup, invoke_without_command=True)
@click.option("--dry-run", is_flag=True, help="Show what would move, and move nothing.")
@_rate_option
@_max_option
@click.option(
    "--tolerance",
    "tolerance_percent",
    default=10,
    show_default=True,
    type=click.IntRange(1, 100),
    help="End once bookies differ by at most this, in percent of their average.",
)
@_wait_option
@admin_option
@output_option
@click.pass_context
def rebalance(
    context: click.Context,
    admin: Admin,
    dry_run: bool,
    rate_bytes: int,
    max_ledgers: int,
    tolerance_percent: int,
    wait_seconds: float,
    output: str,
) -> None:
    """Move copies of closed ledgers from fuller bookies to emptier ones, such as new ones.

    The process of the auditor does it; it goes on when this command ends. A ledger never has fewer
    copies: another bookie has them first, and replicas share no more domains than before.
    What is moved frees its space with the garbage collection of the bookie that had it.

    \b
    Examples:
      pulsarish bookies rebalance --dry-run
      pulsarish bookies rebalance --rate 32MB
      pulsarish bookies rebalance status
      pulsarish bookies rebalance stop
    """
    if context.invoked_subcommand is not None:
        return
    with hinting_when_unavailable(_HINT):
        state = admin.bookies.rebalance(
            dry_run=dry_run,
            rate_bytes=rate_bytes,
            max_ledgers=max_ledgers,
            tolerance_percent=tolerance_percent,
        )
        _wait(admin, state, wait_seconds, output)


@click.command("placement-audit", cls=AdminCommand)
@click.option("--repair", is_flag=True, help="Move the copies that it finds, one at a time.")
@_rate_option
@_max_option
@_wait_option
@admin_option
@output_option
def placement_audit(
    admin: Admin,
    repair: bool,
    rate_bytes: int,
    max_ledgers: int,
    wait_seconds: float,
    output: str,
) -> None:
    """Look for closed ledgers whose copies share a domain although a better choice of living
    bookies is there. Without --repair they are only counted.

    The process of the auditor does it; it goes on when this command ends. `bookies rebalance
    status` and `stop` are for it, too.

    \b
    Examples:
      pulsarish bookies placement-audit
      pulsarish bookies placement-audit --repair --rate 32MB
    """
    with hinting_when_unavailable(_HINT):
        state = admin.bookies.audit_placement(
            repair=repair, rate_bytes=rate_bytes, max_ledgers=max_ledgers
        )
        _wait(admin, state, wait_seconds, output)


def _wait(admin: Admin, state: dict[str, Any], wait_seconds: float, output: str) -> None:
    """Wait until it has ended, and show how far it is. Exit with status 1 if it has not ended."""
    say_if_off(admin)
    deadline = time.monotonic() + wait_seconds
    label = "planning which copies move" if state["dryRun"] else "moving copies of ledgers"
    with Progress(label, total=0, in_logs=True) as progress:
        while state["running"] and (now := time.monotonic()) < deadline:
            time.sleep(min(_LOOK_SECONDS, deadline - now))
            state = admin.bookies.rebalance_state()
            progress.done(state["ledgersMoved"], total=state["ledgersPlanned"])
    _show(state, output)
    if wait_seconds and state["running"]:
        raise SystemExit(1)


@rebalance.command()
@admin_option
@output_option
def status(admin: Admin, output: str) -> None:
    """Show how far the last `bookies rebalance` or `placement-audit` is, and what each bookie holds
    of closed ledgers.

    \b
    Example:
      pulsarish bookies rebalance status
    """
    state = admin.bookies.rebalance_state()
    _show(state, output)
    if state["running"]:
        say_if_off(admin)


@rebalance.command()
@admin_option
@output_option
def stop(admin: Admin, output: str) -> None:
    """Stop `bookies rebalance` or `placement-audit`. Copies that have moved stay where they are.

    \b
    Example:
      pulsarish bookies rebalance stop
    """
    _show(admin.bookies.stop_rebalance(), output)


def _show(state: dict[str, Any], output: str) -> None:
    if output == "json":
        print_json(state)
        return
    rows = [
        {
            "bookie": row["bookieId"],
            "holds": human_bytes(row["bytes"]),
            "then": human_bytes(row["bytesThen"]),
        }
        for row in state["bookies"]
    ]
    if rows:
        print_table(rows, ["bookie", "holds", "then"], output)
    if not state["askedMs"]:
        say("no rebalance was asked for")
        return
    planned = counted(state["ledgersPlanned"], "ledger", "ledgers")
    why = f": {state['reason']}" if state["reason"] else ""
    if state["dryRun"] and state["running"]:
        say("planning which copies move")
        return
    if state["dryRun"]:
        size = human_bytes(state["bytesPlanned"])
        seconds = state["bytesPlanned"] // max(1, state["rateBytes"])
        first = ", ".join(map(str, state["firstLedgers"]))
        say(
            f"copies of {planned} would move, {size}: {seconds} s at this rate"
            + (f"; the first are of ledgers {first}" if first else "")
        )
        say(f"ended{why}")  # it may have been stopped before all was planned
        return
    moved = f"{state['ledgersMoved']:,} of {planned}, {human_bytes(state['bytesMoved'])}"
    say(f"{'moving' if state['running'] else 'ended'}; copies of {moved} have moved{why}")
