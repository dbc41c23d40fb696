"""``pulsarish ledgers``."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import AdminGroup, admin_option, confirm, print_names, yes_option
from pulsarish.cli.output import output_option, print_record, print_table, say
from pulsarish.cli.progress import Progress
from pulsarish.cli.values import FiniteRange
from pulsarish.model.units import format_millis, human_bytes

__all__ = ["ledgers"]

_LOOK_SECONDS: Final = 0.5
_WAIT_SECONDS: Final = 600.0


@click.group(cls=AdminGroup)
def ledgers() -> None:
    """Ledgers, the segments of topics' logs.

    \b
    Example:
      pulsarish ledgers list
    """


@ledgers.command("list")
@click.option("--after", default=-1, show_default=True, help="Only ids above this.")
@click.option(
    "-n",
    "--limit",
    default=1000,
    show_default=True,
    type=click.IntRange(1, 10000),
    help="Maximum number of ledgers.",
)
@admin_option
@output_option
def list_ledgers(after: int, limit: int, admin: Admin, output: str) -> None:
    """List ledger ids, ascending.

    \b
    Example:
      pulsarish ledgers list -n 20
    """
    print_names(admin.ledgers.list(after=after, limit=limit), "ledger", output)


@ledgers.command()
@click.argument("ledger_id", type=int)
@admin_option
@output_option
def get(ledger_id: int, admin: Admin, output: str) -> None:
    """Show a ledger's metadata: quorums, members, state, purpose.

    \b
    Example:
      pulsarish ledgers get 0 -o json
    """
    found = admin.ledgers.get(ledger_id)
    if output == "table":
        found = {**found, "length": human_bytes(found.get("length_bytes", 0))}
    print_record(found, output)


@ledgers.command()
@click.option("--after", default="", help="Only orphans whose path comes after this one.")
@click.option(
    "-n",
    "--limit",
    default=1000,
    show_default=True,
    type=click.IntRange(1, 10000),
    help="Maximum number of orphans.",
)
@click.option("--search", is_flag=True, help="Have the leader broker search now, and wait for it.")
@click.option(
    "--wait-seconds",
    type=FiniteRange(0),
    help="How long --search waits until the search ends, 600 without it; exit status 1 if it does "
    "not end, or fails. 0: do not wait.",
)
@admin_option
@output_option
def orphans(
    after: str, limit: int, search: bool, wait_seconds: float | None, admin: Admin, output: str
) -> None:
    """List ledgers and other nodes of the metadata that nothing refers to.

    The leader broker searches for them every orphan_check_interval_seconds, and with --search at
    once. It deletes them only where orphan_deletion_enabled is set, after orphan_grace_seconds.

    \b
    Examples:
      pulsarish ledgers orphans
      pulsarish ledgers orphans --search
    """
    if wait_seconds is None:
        wait_seconds = _WAIT_SECONDS
    elif not search:
        raise click.UsageError("--wait-seconds is for --search: add it")
    if search:
        admin.ledgers.search_orphans()
    found = admin.ledgers.orphans(after=after, limit=limit)
    if search:
        deadline = time.monotonic() + wait_seconds
        with Progress("searching for orphans"):
            while found["searching"] and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
                found = admin.ledgers.orphans(after=after, limit=limit)
    _print_orphans(found, output)
    if search and wait_seconds:
        if found["searching"]:
            say(
                f"the search has not ended after {wait_seconds:g} s; it goes on. Ask for what it "
                "finds later: pulsarish ledgers orphans"
            )
        if found["searching"] or found["failure"] or not found["searchedMs"]:
            raise SystemExit(1)


def _print_orphans(found: dict[str, Any], output: str) -> None:
    if output == "json":
        print_record(found, output)
        return
    rows = [_orphan_row(row, found["searchedMs"]) for row in found["orphans"]]
    print_table(rows, ["kind", "what", "size", "age", "known for", "why"], output)
    if found["failure"]:
        say(f"the last search did not come to its end: {found['failure']}")
    if not found["searchedMs"]:
        say(
            "the leader broker has not searched yet; it searches every "
            "orphan_check_interval_seconds"
        )


def _orphan_row(row: dict[str, Any], searched_ms: int) -> dict[str, Any]:
    def before(when_ms: int) -> str:
        return format_millis(max(0, searched_ms - when_ms)) if when_ms else "not known"

    return {
        "kind": row["kind"],
        "what": row["path"] if row["ledgerId"] < 0 else row["ledgerId"],
        "size": human_bytes(row["sizeBytes"]) if row["sizeBytes"] >= 0 else "not known",
        "age": before(row["createdMs"]),
        "known for": before(row["firstFoundMs"]),
        "why": row["why"],
    }


@ledgers.command()
@click.argument("ledger_id", type=int)
@click.option(
    "--force",
    "given_up",
    multiple=True,
    required=True,
    metavar="BOOKIE",
    help="Instance id of a bookie whose disks are lost forever; repeatable.",
)
@yes_option
@admin_option
@output_option
def recover(
    ledger_id: int, given_up: tuple[str, ...], yes: bool, admin: Admin, output: str
) -> None:
    """Close an open ledger whose bookies are lost forever, so that its topic can continue.

    The other bookies decide where the ledger ends. Later entries that only the given-up bookies had
    are lost. Refused for a live bookie.

    \b
    Example:
      pulsarish ledgers recover 105 --force bookie-2~0aa4c3f9 --force bookie-3~77b01d2e
    """
    confirm(
        f"Close ledger {ledger_id} without the entries that only {', '.join(given_up)} may have?",
        yes=yes,
    )
    found = admin.ledgers.recover(ledger_id, given_up)
    print_record(found, output)
    say(f"ledger {ledger_id} is closed with {found['last_entry'] + 1} entries")
