"""``pulsarish bookies``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.autorecovery import say_if_off
from pulsarish.cli.admin.common import (
    AdminGroup,
    admin_option,
    confirm,
    hinting_when_unavailable,
    until_followed,
    yes_option,
)
from pulsarish.cli.admin.rebalance import placement_audit, rebalance
from pulsarish.cli.bookie_trial import simple_test
from pulsarish.cli.output import output_option, print_json, print_table, say
from pulsarish.cli.progress import Progress
from pulsarish.cli.values import FiniteRange
from pulsarish.model.errors import NotFound, ServiceNotReady
from pulsarish.model.units import human_bytes

__all__ = ["bookies"]

_LEDGERS = click.argument("ledgers", nargs=-1, type=click.IntRange(0), metavar="[LEDGER]...")

_LOOK_SECONDS: Final = 0.5
_PAUSE_FACTOR: Final = 10
_ASKED_MAX: Final = 200
"""Ledgers that one request asks to recover."""
_RECOVER_COLUMNS: Final = ["ledgerId", "state", "entries", "isLeaving", "reason"]


@click.group(cls=AdminGroup)
def bookies() -> None:
    """Bookies, which store the entries of ledgers.

    \b
    Example:
      pulsarish bookies list
      pulsarish bookies under-replicated
      pulsarish bookies set-read-only bookie-2
      pulsarish bookies recover bookie-2 --dry-run
      pulsarish bookies decommission bookie-2
      pulsarish bookies rebalance --dry-run
      pulsarish bookies placement-audit
      pulsarish bookies trash list
      pulsarish bookies simple-test zk://127.0.0.1:2181/pulsarish
      pulsarish bookies collect-garbage bookie-2 --wait
    """


bookies.add_command(rebalance)
bookies.add_command(simple_test)
bookies.add_command(placement_audit)


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
    sometimes = ["read_only_reason", "lost_directories", "cordoned_directories"]
    print_table(
        found,
        columns + [each for each in sometimes if any(row.get(each) for row in found)],
        output,
    )
    say_if_off(admin, is_needed=False)


@bookies.command("under-replicated")
@click.option(
    "--after",
    default=-1,
    show_default=True,
    type=click.IntRange(-1),
    help="Only ledgers above this one.",
)
@click.option(
    "-n",
    "--limit",
    default=1000,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Greatest number of items.",
)
@admin_option
@output_option
def under_replicated(admin: Admin, after: int, limit: int, output: str) -> None:
    """List under-replicated ledgers, the bookies that miss copies, and why these are not repaired
    yet.

    \b
    Example:
      pulsarish bookies under-replicated
    """
    found = admin.bookies.under_replicated(after=after, limit=limit)
    rows = (
        found
        if output == "json"
        else [
            {
                **row,
                "missing_members": " ".join(row["missing_members"]),
                "leaving_members": " ".join(row.get("leaving_members", ())),
            }
            for row in found
        ]
    )
    columns = ["ledger_id", "missing_members", "below_policy", "reason"]
    if any(row.get("leaving_members") for row in found):
        columns.insert(2, "leaving_members")
    print_table(rows, columns, output)
    say_if_off(admin)


@bookies.command()
@click.argument("bookie")
@click.option(
    "--wait-seconds",
    default=3_600.0,
    show_default=True,
    type=FiniteRange(0),
    help="How long to wait until it is done; exit status 1 if it is not. 0: do not wait.",
)
@yes_option
@admin_option
@output_option
def decommission(admin: Admin, bookie: str, wait_seconds: float, yes: bool, output: str) -> None:
    """Give up a stopped bookie forever: auto-recovery creates all its copies again on other
    bookies, and then forgets it.

    BOOKIE is the bookie's id. Stop the bookie first. It must not be started again with its old
    directories.

    \b
    Examples:
      pulsarish bookies decommission bookie-2
      pulsarish bookies decommission bookie-2 --wait-seconds 0     # do not wait
    """
    confirm(f"Give up bookie {bookie} and all entries that only this bookie has?", yes=yes)
    with hinting_when_unavailable(
        "run the command again: it goes on where it was, and auto-recovery continues meanwhile"
    ):
        _decommission(admin, bookie, wait_seconds, output)


def _decommission(admin: Admin, bookie: str, wait_seconds: float, output: str) -> None:
    asked = admin.bookies.decommission(bookie)
    instance = str(asked["instanceId"])
    say_if_off(admin)
    left: list[dict[str, Any]] = []

    def look() -> int:
        """Return how many ledgers still name it, at least one while it is not forgotten."""
        nonlocal asked, left
        asked = admin.bookies.decommission_progress(instance)
        try:
            left = admin.bookies.all_ledgers(instance) if asked["givenUp"] else []
        except NotFound:
            left = []  # the broker is of a version that does not list them
        return max(len(left), 1) if asked["givenUp"] else 0

    is_over = _wait_until_left(f"making the copies of {bookie} again", look, wait_seconds)
    if output == "json":
        print_json({**asked, "ledgersLeft": len(left), "done": is_over})
    elif is_over:
        say(f"bookie {bookie} is decommissioned: no ledger names {instance} any more")
    else:
        say(
            f"bookie {bookie} is given up; {len(left)} ledgers still name it, and "
            f"{asked['underReplicatedLedgers']} miss copies for any reason: pulsarish bookies "
            "under-replicated"
        )
    if wait_seconds and not is_over:
        say(
            f"{bookie} is not replaced after {wait_seconds:g} s; auto-recovery continues. Run the "
            "command again to wait longer"
        )
        raise SystemExit(1)


def _wait_until_left(label: str, look: Callable[[], int], wait_seconds: float) -> bool:
    """Look again and again until nothing is left, or the time is over; whether nothing is.

    A look at very many ledgers takes long, so the pause grows with it.
    """
    began = time.monotonic()
    deadline = began + wait_seconds
    left = total = look()
    with Progress(label, total=total, in_logs=True) as progress:
        while left and (now := time.monotonic()) < deadline:
            pause = max(_LOOK_SECONDS, _PAUSE_FACTOR * (now - began))
            time.sleep(min(pause, deadline - now))
            began = time.monotonic()
            left = look()
            progress.done(max(0, total - left))
    return not left


@bookies.command()
@click.argument("bookie")
@click.option(
    "--ledger",
    "ledgers",
    multiple=True,
    type=click.IntRange(0),
    help="Only this ledger; repeatable.",
)
@click.option("--dry-run", is_flag=True, help="List what would be copied, and change nothing.")
@click.option(
    "--wait-seconds",
    default=3_600.0,
    show_default=True,
    type=FiniteRange(0),
    help="How long to wait until it is done; exit status 1 if it is not. 0: do not wait.",
)
@admin_option
@output_option
def recover(
    bookie: str,
    ledgers: tuple[int, ...],
    dry_run: bool,
    wait_seconds: float,
    admin: Admin,
    output: str,
) -> None:
    """Have auto-recovery make the copies that a bookie holds on other bookies.

    BOOKIE is the bookie's id, or the id of one of its instances. It may be dead or alive. A ledger
    names the bookie until its copies are made. One that is still open is left when its writer
    closes it; for a bookie that is away it is recovered, which ends its writer. Set a bookie that
    is alive read-only first, or new ledgers use it.

    \b
    Examples:
      pulsarish bookies recover bookie-2 --dry-run
      pulsarish bookies recover bookie-2
      pulsarish bookies recover bookie-2 --ledger 4711
    """

    rows = admin.bookies.all_ledgers(bookie, ledgers)
    strange = sorted({*ledgers} - {row["ledgerId"] for row in rows})
    if strange:
        raise NotFound(f"no ledger of bookie {bookie}: {', '.join(map(str, strange))}")
    if dry_run:
        print_table(rows, _RECOVER_COLUMNS, output)
        return
    say_if_off(admin)
    for start in range(0, len(rows), _ASKED_MAX):
        page = [row["ledgerId"] for row in rows[start : start + _ASKED_MAX]]
        admin.bookies.recover(bookie, page)

    def look() -> int:
        nonlocal rows
        rows = admin.bookies.all_ledgers(bookie, ledgers)
        return len(rows)

    is_over = _wait_until_left(f"copying what {bookie} holds", look, wait_seconds)
    if output == "json":
        print_json({"ledgersLeft": len(rows), "ledgers": rows, "done": is_over})
    elif is_over:
        say(f"no ledger{' of these' if ledgers else ''} names bookie {bookie} any more")
    else:
        print_table(rows, _RECOVER_COLUMNS, output)
        say(
            f"{len(rows)} ledgers still name bookie {bookie}; auto-recovery continues. Run the "
            "command again to wait longer"
        )
    if wait_seconds and not is_over:
        raise SystemExit(1)


@bookies.command("racks-placement")
@admin_option
@output_option
def racks_placement(admin: Admin, output: str) -> None:
    """Show the group, rack and host of all bookies.

    \b
    Example:
      pulsarish bookies racks-placement
    """
    rows = [
        {"bookie": bookie, "group": group, **place}
        for group, places in sorted(admin.bookies.racks().items())
        for bookie, place in sorted(places.items())
    ]
    print_table(rows, ["bookie", "group", "rack", "hostname"], output)


@bookies.command("set-bookie-rack")
@click.argument("bookie")
@click.option("--rack", default="", help="Its rack; without it the one that the bookie says.")
@click.option("--group", default="default", show_default=True, help="Its group.")
@admin_option
def set_bookie_rack(bookie: str, rack: str, group: str, admin: Admin) -> None:
    """Set the rack and the group of a bookie. Brokers follow at once, with their next ledgers.

    BOOKIE is the bookie's id. It need not run. A namespace is bound to groups by `namespaces
    set-bookie-affinity-group`.

    \b
    Example:
      pulsarish bookies set-bookie-rack bookie-1 --rack r1 --group payments
    """
    admin.bookies.set_rack(bookie, rack=rack, group=group)
    say(f"bookie {bookie} is in group {group}" + (f", rack {rack}" if rack else ""))
    if not any(bookie in (each["bookie_id"], each["address"]) for each in admin.bookies.list()):
        say(f"no bookie {bookie} is registered now: this holds for a bookie with this id")


@bookies.command("delete-bookie-rack")
@click.argument("bookie")
@admin_option
def delete_bookie_rack(bookie: str, admin: Admin) -> None:
    """Take `bookies set-bookie-rack` back: the bookie is in the group default then.

    \b
    Example:
      pulsarish bookies delete-bookie-rack bookie-1
    """
    admin.bookies.delete_rack(bookie)
    say(f"bookie {bookie} is in group default")


@bookies.command("set-read-only")
@click.argument("bookie")
@click.option("--reason", default="", help="Why; it is shown with the bookie.")
@click.option("--force", is_flag=True, help="Also if too few writable bookies are left.")
@admin_option
@output_option
def set_read_only(bookie: str, reason: str, force: bool, admin: Admin, output: str) -> None:
    """Have a bookie take nothing more from writers, until `bookies set-writable`: they go on with
    other bookies. It serves reads, and takes what recovery and repair write.

    BOOKIE is the bookie's id. It need not run; it remembers. Refused when fewer writable bookies
    are left than hold each entry, without --force.

    \b
    Example:
      pulsarish bookies set-read-only bookie-2 --reason "disk is failing"
    """
    state = admin.bookies.set_read_only(bookie, reason=reason, force=force)
    _show_mode(admin, state, output, read_only=True)


@bookies.command("set-writable")
@click.argument("bookie")
@admin_option
@output_option
def set_writable(bookie: str, admin: Admin, output: str) -> None:
    """Take `bookies set-read-only` back.

    \b
    Example:
      pulsarish bookies set-writable bookie-2
    """
    _show_mode(admin, admin.bookies.set_writable(bookie), output, read_only=False)


def _show_mode(admin: Admin, state: dict[str, Any], output: str, *, read_only: bool) -> None:
    """Wait until the bookie has followed, and say so, or why it has not."""
    state = until_followed(
        state, lambda now: now["readOnly"] is read_only, admin.bookies.read_only_state
    )
    bookie, mode = state["bookieId"], "read-only" if read_only else "writable"
    if output == "json":
        print_json(state)
    elif not state["alive"]:
        say(f"bookie {bookie} does not run; it will be {mode} when it does")
    elif state["readOnly"] is read_only:
        say(f"bookie {bookie} is {mode}")
    else:
        say(f"bookie {bookie} is not {mode} yet: {state['reason'] or 'it has not followed'}")
    if state["alive"] and state["readOnly"] is not read_only:
        raise SystemExit(1)


@bookies.command("collect-garbage")
@click.argument("bookie")
@click.option("--wait", is_flag=True, help="Wait until the round is over, and show what it did.")
@admin_option
@output_option
def collect_garbage(admin: Admin, bookie: str, wait: bool, output: str) -> None:
    """Have a bookie collect garbage now, with major compaction (major_compaction_threshold).

    Deleted ledgers wait as long as otherwise (gc_second_look_seconds, trash_grace_seconds): free
    the space of those in the trash with "bookies trash empty" first.

    \b
    Example:
      pulsarish bookies collect-garbage bookie-2 --wait
    """
    state = admin.bookies.collect_garbage(bookie)
    wanted = state["wanted"]
    if wait:
        with Progress("collecting garbage"):
            while state["ended"] < wanted:
                time.sleep(_LOOK_SECONDS)
                state = admin.bookies.garbage_state(bookie)
                if state["wanted"] < wanted:
                    raise ServiceNotReady(f"bookie {bookie} has started again: ask it once more")
    if output == "json":
        print_json(state)
    else:
        say(_garbage_words(state) if wait else f"{state['bookie']}: a round begins")
    if wait and state["failure"]:
        raise SystemExit(1)


def _garbage_words(state: dict[str, Any]) -> str:
    sizes = {
        name: human_bytes(max(0, size))
        for name, size in (
            ("freed", state["freedBytes"] - state["copiedBytes"]),
            ("copied", state["copiedBytes"]),
            ("stray", state["strayBytes"]),
        )
    }
    words = (
        "{bookie}: {freed} freed: {logsDeleted} entry logs deleted, with {copied} copied to others"
        "\n{ledgersDeleted} ledgers deleted, and {stray} of copies that are no longer named"
        "\n{missingLedgers} ledgers wait for the second look, {trashLedgers} in the trash, "
        "{strayLedgers} with copies that are no longer named"
    )
    if state["postponedLogs"]:
        words += "\n{postponedLogs} entry logs are not rewritten, because space is too low"
    if state["failure"]:
        words += "\nthe round did not do all: {failure}"
    return words.format(**state, **sizes)


@bookies.group(cls=AdminGroup)
def trash() -> None:
    """Deleted ledgers that bookies keep for a while (trash_grace_seconds) before they free their
    space.

    \b
    Example:
      pulsarish bookies trash list
      pulsarish bookies trash restore 4711
    """


@trash.command("list")
@click.option(
    "--after",
    default=-1,
    show_default=True,
    type=click.IntRange(-1),
    help="Only ledgers above this one.",
)
@click.option(
    "-n",
    "--limit",
    default=1000,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Maximum number of ledgers.",
)
@admin_option
@output_option
def list_trash(after: int, limit: int, admin: Admin, output: str) -> None:
    """List the ledgers in the trash of the bookies that are alive, and since when they are there.

    \b
    Example:
      pulsarish bookies trash list
    """
    found = admin.bookies.trash(after=after, limit=limit)
    rows = found if output == "json" else [_trash_row(row) for row in found]
    print_table(rows, ["ledger", "bookie", "since", "size", "error"], output)


def _trash_row(row: dict[str, Any]) -> dict[str, Any]:
    if "error" in row:
        return {
            "ledger": "",
            "bookie": row["bookie"],
            "since": "",
            "size": "",
            "error": row["error"],
        }
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["sinceMs"] / 1000))
    return {
        "ledger": row["ledgerId"],
        "bookie": row["bookie"],
        "since": since,
        "size": human_bytes(row.get("sizeBytes", 0)),
        "error": "",
    }


@trash.command("restore")
@_LEDGERS
@admin_option
@output_option
def restore_trash(admin: Admin, ledgers: tuple[int, ...], output: str) -> None:
    """Restore ledgers from the trash of all bookies, unchanged.

    Restore the metadata record of a ledger first: without it the bookies put the ledger into the
    trash again (gc_second_look_seconds).

    \b
    Example:
      pulsarish bookies trash restore 4711 4712
    """
    if not ledgers:
        raise click.UsageError(
            "name the ledgers to restore from the trash: pulsarish bookies trash list"
        )
    _say_changed(admin.bookies.restore_trash(ledgers), "restored from the trash", output)


@trash.command("empty")
@_LEDGERS
@yes_option
@admin_option
@output_option
def empty_trash(admin: Admin, ledgers: tuple[int, ...], yes: bool, output: str) -> None:
    """Delete ledgers in the trash now and forever; all of them when none is named. The next garbage
    collection frees their space.

    \b
    Examples:
      pulsarish bookies trash empty --yes
      pulsarish bookies trash empty 4711 --yes
    """
    what = f"ledgers {', '.join(map(str, ledgers))}" if ledgers else "everything in the trash"
    confirm(f"Delete {what} on all bookies forever?", yes=yes)
    _say_changed(admin.bookies.empty_trash(ledgers), "deleted forever", output)


def _say_changed(result: dict[str, Any], done: str, output: str) -> None:
    if output == "json":
        print_json(result)
    else:
        for bookie, changed in sorted(result["ledgers"].items()):
            say(
                f"{bookie}: {len(changed)} ledgers "
                f"{done}{': ' if changed else ''}{' '.join(map(str, changed))}"
            )
        for bookie, error in sorted(result["errors"].items()):
            say(f"{bookie}: {error}")
    if result["errors"]:
        raise SystemExit(1)
