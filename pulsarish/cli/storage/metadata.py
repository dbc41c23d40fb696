"""``pulsarish storage save-records`` and ``pulsarish storage rebuild-metadata``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import click

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.inspection.copies import read_copies
from pulsarish.cli.bookie_access import BookieFiles, bookie_options
from pulsarish.cli.metadata.trees import (
    URL_HELP,
    TreeProgress,
    ids_of_registered,
    records_of,
    tree_at,
)
from pulsarish.cli.metadata_access import access_options
from pulsarish.cli.output import output_option, print_json, print_record, say
from pulsarish.cli.secret_files import write_file
from pulsarish.cli.server_options import load_config
from pulsarish.cli.storage.access import inspecting
from pulsarish.metadata.backup.ledger_copies import BookieCopies, decode_copies, encode_copies
from pulsarish.metadata.backup.rebuild import Rebuild, RebuildReport
from pulsarish.metadata.backup.restore import LEDGER_ID_GAP
from pulsarish.metadata.id_counter import ID_GAP_MAX
from pulsarish.model.errors import AlreadyExists, InvalidArgument, NotFound
from pulsarish.model.units import human_bytes

__all__ = ["rebuild_metadata", "save_records"]

_SHOWN_MAX: Final = 20


def _read_directories(place: Path) -> BookieCopies:
    if not place.exists():
        raise NotFound(f"there is no file or directory {place}")
    if place.is_dir():
        config = BookieConfig(bookie_id="", data_directory=str(place))
    else:
        config = load_config(BookieConfig, "bookie", str(place), (), show=False)

    async def work() -> BookieCopies:
        async with AsyncExitStack() as opened:
            return await read_copies(
                [
                    (volume, await opened.enter_async_context(inspecting(volume)))
                    for volume in config.volumes()
                ]
            )

    return asyncio.run(work())


def _read(place: Path) -> BookieCopies:
    """Read what a bookie knows, from its directories or a file of ``save-records``."""
    if place.is_dir() or place.suffix == ".toml":
        copies = _read_directories(place)
    else:
        if not place.exists():
            raise NotFound(f"there is no file or directory {place}")
        copies = decode_copies(place.read_bytes(), str(place))
    if copies.missing:
        say(f"warning: an index of {copies.cookie.bookie_id} is not complete: {copies.missing}")
    return copies


@click.command("save-records")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--bookie",
    "place",
    required=True,
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="A bookie's configuration (.toml), or its data_directory. The bookie may run.",
)
def save_records(file: Path, place: Path) -> None:
    """Write what a bookie knows of the metadata to a file, for `storage rebuild-metadata` on
    another machine.

    That is its cookie, and its copies of the records of its ledgers. No message is in the file.

    \b
    Example:
      pulsarish storage save-records bookie-1.records --bookie bookie-1.toml
    """
    if file.exists():
        raise AlreadyExists(f"{file} exists already: use a new name")
    copies = _read_directories(place)
    write_file(str(file), encode_copies(copies))
    say(
        f"{len(copies.records)} records of {copies.cookie.bookie_id} in {file} "
        f"({human_bytes(file.stat().st_size)})"
    )


@click.command("rebuild-metadata", epilog=URL_HELP)
@click.argument("url")
@click.option(
    "--bookie",
    "places",
    required=True,
    multiple=True,
    metavar="PATH",
    type=click.Path(path_type=Path),
    help=(
        "A bookie's configuration (.toml), its data_directory, or a file of `storage "
        "save-records` (repeatable). The bookie may run."
    ),
)
@click.option(
    "--without",
    multiple=True,
    metavar="INSTANCE",
    help="The instance id of a bookie whose disks are lost (repeatable).",
)
@click.option(
    "--include-deleted",
    is_flag=True,
    help="Make ledgers, too, that a bookie remembers as deleted.",
)
@click.option(
    "--extend-topics",
    is_flag=True,
    help="Add ledgers to topics that are there and end before them, as after an old backup.",
)
@click.option(
    "--ledger-id-gap",
    type=click.IntRange(0, ID_GAP_MAX // 2),
    default=LEDGER_ID_GAP,
    show_default=True,
    help="Ledger ids to leave out above all known ones.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be made, and change nothing.")
@output_option
@bookie_options
@access_options
def rebuild_metadata(
    url: str,
    places: Sequence[Path],
    without: Sequence[str],
    include_deleted: bool,
    extend_topics: bool,
    ledger_id_gap: int,
    dry_run: bool,
    output: str,
    bookies: BookieFiles,
) -> None:
    """Make the lost metadata at URL again, as far as bookies know them. Stop all brokers first.

    If there is a backup, restore it instead, or before: only nodes that are absent are made. Give
    all bookies of the cluster. Bookies delete nothing until `pulsarish metadata confirm`. After an
    interruption run the command again.

    \b
    Examples:
      pulsarish storage rebuild-metadata zk://zk1:2181/pulsarish --bookie b1.toml --dry-run
      pulsarish storage rebuild-metadata zk://zk1:2181/pulsarish --bookie b1.toml --bookie b2.copy
    """
    unknown = [each for each in without if "~" not in each]
    if unknown:
        raise InvalidArgument(
            f"--without {unknown[0]}: give the instance id, such as bookie-1~0a1b2c3d"
        )
    progress = TreeProgress()
    copies = [_read(place) for place in places]

    async def work() -> RebuildReport:
        async with tree_at(url, bookies=bookies, must_exist=False) as world:
            records = records_of(world)
            held = await ids_of_registered(world, records)
            task = Rebuild(
                records,
                world.clock,
                copies,
                without=without,
                ids_held=held,
                ledger_id_gap=ledger_id_gap,
                include_deleted=include_deleted,
                extend_topics=extend_topics,
                progress=progress,
            )
            return await (task.plan() if dry_run else task.run())

    try:
        report = asyncio.run(work())
    finally:
        progress.end()
    if output == "json":
        print_json(_row(report, dry_run=dry_run))
        return
    _print(report, dry_run=dry_run)
    if not dry_run:
        _say_next(url)


def _row(report: RebuildReport, *, dry_run: bool) -> dict[str, object]:
    known = report.known
    return {
        "dry_run": dry_run,
        "nodes": report.made,
        "ledgers": report.ledgers,
        "topics": report.topics,
        "subscriptions": [
            {"topic": topic, "subscription": name} for topic, name in report.subscriptions
        ],
        "next_ledger_id": report.next_ledger_id,
        "unattached": [
            {"ledger": ledger, "purpose": what} for ledger, what in report.unattached.items()
        ],
        "extended": [
            {"topic": topic, "ledgers": ledgers} for topic, ledgers in report.extended.items()
        ],
        "outside": [{"ledger": ledger, "topic": what} for ledger, what in report.outside.items()],
        "held_back": [
            {"ledger": ledger, "topic": what} for ledger, what in report.held_back.items()
        ],
        "unrecorded": [
            {"ledger": ledger, "bookies": by} for ledger, by in known.unrecorded.items()
        ],
        "conflicts": [{"ledger": ledger, "bookies": by} for ledger, by in known.conflicts.items()],
        "unreadable": [{"ledger": ledger, "why": why} for ledger, why in known.unreadable.items()],
        "deleted": known.deleted,
        "absent_bookies": report.absent_bookies,
    }


def _print(report: RebuildReport, *, dry_run: bool) -> None:
    row = _row(report, dry_run=dry_run)
    counts = {
        name: len(value) if isinstance(value, list) else value
        for name, value in row.items()
        if name != "dry_run"
    }
    print_record(counts, "table")
    known = report.known
    _say_ledgers("left out, because records of one version differ", list(known.conflicts))
    _say_ledgers("with a copy that cannot be read", list(known.unreadable))
    _say_ledgers("held by bookies, and no bookie knows whose they are", list(known.unrecorded))
    _say_ledgers(
        "left out, because a bookie remembers them as deleted (--include-deleted)", known.deleted
    )
    _say_ledgers(
        "left out, because their topic is there and does not name them (--extend-topics)",
        list(report.outside),
    )
    _say_ledgers(
        "left out, because the policies of their partitioned topic would have them trimmed (start "
        "the brokers, set its retention to -1 and its inactiveTopicPolicies to keep it, stop them, "
        "and give this command again)",
        list(report.held_back),
    )
    _say_ledgers("that no topic or subscription refers to", list(report.unattached))
    say(
        "not known, and to be made again: policies (the namespaces made here, and the topics made "
        "in other namespaces, keep all messages and are not deleted until retention and "
        "inactiveTopicPolicies are set), roles and permissions, "
        "schemas, properties, schedules, compacted views, and all subscriptions but those counted "
        "above"
    )


def _say_ledgers(what: str, ledgers: Sequence[int]) -> None:
    if ledgers:
        more = f" and {len(ledgers) - _SHOWN_MAX} more" if len(ledgers) > _SHOWN_MAX else ""
        say(f"ledgers {what}: {', '.join(map(str, ledgers[:_SHOWN_MAX]))}{more}")


def _say_next(url: str) -> None:
    say("Bookies delete nothing yet. Next, with all bookies and brokers up:")
    say("  pulsarish subscriptions create TOPIC NAME --from earliest   before its consumers come")
    say(f"  pulsarish metadata audit {url}      list ledgers that this tree does not name")
    say(f"  pulsarish metadata confirm {url}    let bookies delete again")
