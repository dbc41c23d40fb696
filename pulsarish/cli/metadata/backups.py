"""Commands that write a tree to a file, bring it back, and compare trees."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from pulsarish.cli.bookie_access import BookieFiles, bookie_options
from pulsarish.cli.metadata.trees import (
    URL_HELP,
    TreeProgress,
    ids_of_registered,
    read_file,
    records_of,
    registered_bookies,
    run,
    tree_at,
)
from pulsarish.cli.metadata_access import access_options
from pulsarish.cli.output import (
    output_option,
    print_json,
    print_line,
    print_record,
    say,
)
from pulsarish.cli.values import duration
from pulsarish.ledger.repair.rehearsal import Rehearsal, rehearse_stock
from pulsarish.metadata import paths
from pulsarish.metadata.backup.backup import TreeReader, back_up, check_not_being_restored
from pulsarish.metadata.backup.file_format import Backup, BackupFooter
from pulsarish.metadata.backup.restore import LEDGER_ID_GAP, Difference, Restore, compare, read_tree
from pulsarish.metadata.backup.rotation import (
    SavedBackup,
    rotate,
    saved_backups,
    seconds_until_due,
)
from pulsarish.metadata.id_counter import ID_GAP_MAX
from pulsarish.metadata.records import RestoredTree
from pulsarish.model.errors import (
    AlreadyExists,
    NotAllowedError,
    NotFound,
    PulsarishError,
)
from pulsarish.model.units import format_millis, human_bytes
from pulsarish.runtime.modes import DIRECTORY_MODE, FILE_MODE

__all__ = ["backup", "diff", "rehearse", "restore"]

_URL_SCHEMES: Final = ("zk://", "zk+ssl://", "embedded:", "memory:")
_DIFFERENCES_SHOWN: Final = 200
_KEEP: Final = 48
_RETRY_SECONDS: Final = 60


class _Made(NamedTuple):
    """A backup that was written, whole and checked."""

    footer: BackupFooter
    nodes: int
    doubt: str
    """Why the tree may be worth less than an older backup; empty: it is not."""


def _write_backup(url: str, part: Path, *, is_scheduled: bool = False) -> _Made:
    """Write a backup to a new file, read it again, and sync it."""
    progress = TreeProgress()

    async def work(write: Callable[[bytes], None]) -> tuple[BackupFooter, str]:
        async with tree_at(url) as world:
            records = records_of(world)
            if is_scheduled:
                await check_not_being_restored(records)
            reading = partial(progress, "reading", of=0)
            footer = await back_up(records, world.clock, write, source=url, progress=reading)
            restored = await records.get(paths.RESTORED, RestoredTree)
            doubt = "" if restored is None else "the tree is restored or older, and not confirmed"
            return footer, doubt

    try:
        with open(part, "wb", opener=_open_private) as raw:
            with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed:
                footer, doubt = run(work(lambda data: _write(packed, data)))
            raw.flush()
            os.fsync(raw.fileno())
        if not footer.lines:
            raise NotFound(f"there is nothing at {url}: is the chroot right?")
        return _Made(footer, len(read_file(part).nodes), doubt)
    finally:
        progress.end()


def _give_name(part: Path, file: Path) -> None:
    part.rename(file)
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@click.command(epilog=URL_HELP)
@click.argument("url")
@click.argument("file", metavar="FILE|DIRECTORY", type=click.Path(path_type=Path))
@click.option(
    "--every",
    callback=duration,
    metavar="DURATION",
    help="Go on making backups, into the directory, such as every 1h.",
)
@click.option(
    "--keep",
    type=click.IntRange(1),
    help=f"How many backups of the schedule stay.  [default: {_KEEP}]",
)
@output_option
@access_options
def backup(url: str, file: Path, every: timedelta | None, keep: int | None, output: str) -> None:
    """Write the whole metadata tree to a file, while the cluster runs.

    Ephemeral nodes are left out. The file is written under another name and renamed once it is
    complete, read again and synced.

    With --every the command runs until it is stopped; let a supervisor start it again. It names the
    files by time and number of nodes, and deletes the oldest of them beyond --keep. The last one
    that has more than twice as many nodes as all newer ones stays, and all stay while the tree is
    restored and not confirmed. A backup that fails is said on stderr and tried again.

    \b
    Examples:
      pulsarish metadata backup zk://127.0.0.1:2181/pulsarish metadata-backup.jsonl.gz
      pulsarish metadata backup zk://127.0.0.1:2181/pulsarish /var/backups --every 1h --keep 48
    """
    if every is None:
        if keep is not None:
            raise click.UsageError("--keep is of a schedule: give --every, too")
        _back_up_once(url, file, output)
        return
    seconds = int(every.total_seconds())
    if seconds < 1:
        raise click.BadParameter("--every is a duration of at least 1s")
    if file.exists() and not file.is_dir():
        raise click.BadParameter(f"{file} is a file; a schedule writes into a directory")
    file.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    with _only_one(file):
        for part in file.glob("metadata-*.part"):
            part.unlink()  # of a process that was killed
        while True:
            saved = saved_backups(each.name for each in file.iterdir())
            time.sleep(seconds_until_due(saved, seconds, time.time()))
            try:
                _back_up_scheduled(url, file, keep or _KEEP, output)
            except (PulsarishError, OSError) as error:
                wait = min(seconds, _RETRY_SECONDS)
                say(f"no backup was made, and none is deleted; again in {wait} s: {error}")
                time.sleep(wait)


def _back_up_once(url: str, file: Path, output: str) -> None:
    if file.exists():
        raise AlreadyExists(
            f"{file} exists already; a backup never replaces another: use a new name, or --every "
            "for a directory"
        )
    part = file.with_name(file.name + ".part")
    try:
        made = _write_backup(url, part)
        _give_name(part, file)
    finally:
        part.unlink(missing_ok=True)
    _say_made(made, file, output)


def _say_made(made: _Made, file: Path, output: str, **more: object) -> None:
    size_bytes, left_out = file.stat().st_size, made.footer.ephemeral_left_out
    if output == "json":
        row = {
            "file": str(file),
            "nodes": made.nodes,
            "ephemeral_left_out": left_out,
            "size_bytes": size_bytes,
            "sha256": made.footer.sha256,
            **more,
        }
        print_json(row)
    else:
        say(
            f"{made.nodes} nodes in {file} ({human_bytes(size_bytes)}), {left_out} ephemeral ones "
            "left out"
        )


def _back_up_scheduled(url: str, directory: Path, keep: int, output: str) -> None:
    """Make the next backup of a schedule, then delete those that are one too many."""
    now = int(time.time())
    part = directory / f"metadata-{now}.part"
    try:
        made = _write_backup(url, part, is_scheduled=True)
        saved = SavedBackup(now, made.nodes)
        file = directory / saved.name
        if file.exists():
            raise AlreadyExists(f"{file} exists already")
        _give_name(part, file)
    finally:
        part.unlink(missing_ok=True)
    there = saved_backups(each.name for each in directory.iterdir())
    rotation = rotate(there, saved, keep, doubt=made.doubt)
    for each in rotation.deleted:
        (directory / each.name).unlink()
    deleted = [each.name for each in rotation.deleted]
    _say_made(made, file, output, deleted=deleted, kept_because=rotation.kept_because)
    if rotation.kept_because:
        say(f"warning: an older backup stays: {rotation.kept_because}")


@contextmanager
def _only_one(directory: Path) -> Iterator[None]:
    """Hold the lock of a schedule's directory. Raises ``NotAllowedError`` when another process has
    it.
    """
    with open(directory / ".lock", "wb", opener=_open_private) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise NotAllowedError(
                f"another process makes backups into {directory} already"
            ) from None
        yield


@click.command(epilog=URL_HELP)
@click.argument("saved", metavar="FILE|DIRECTORY", type=click.Path(path_type=Path))
@click.argument("url")
@click.option(
    "--scratch",
    metavar="URL",
    help="An empty tree to restore into, which stays; default: one in a temporary directory.",
)
@output_option
@bookie_options
@access_options
def rehearse(saved: Path, url: str, scratch: str | None, output: str, bookies: BookieFiles) -> None:
    """Restore a backup into a scratch tree, and compare it with what the bookies of the cluster at
    URL hold. Changes nothing in the cluster. Exit status 1 when the backup is damaged, a bookie
    does not answer, or ledgers are lost.

    Of a directory of `metadata backup --every` the newest backup is taken. "newer" ledgers were
    made since the backup: their messages would be unknown after a restore of it. "deleted" ones
    were deleted since.

    \b
    Examples:
      pulsarish metadata rehearse metadata-backup.jsonl.gz zk://127.0.0.1:2181/pulsarish
      pulsarish metadata rehearse /var/backups zk://127.0.0.1:2181/pulsarish -o json
    """
    file = saved
    if not saved.exists():
        raise NotFound(f"there is no file or directory {saved}")
    if saved.is_dir():
        there = saved_backups(each.name for each in saved.iterdir())
        if not there:
            raise NotFound(f"there is no backup of a schedule in {saved}")
        file = saved / there[-1].name
    read = read_file(file)
    with tempfile.TemporaryDirectory(prefix="pulsarish-rehearsal-") as directory:
        found, seconds = run(_rehearse(read, url, scratch or f"embedded:{directory}", bookies))
    age_ms = max(0, int(time.time() * 1000) - read.footer.finished_ms)
    row: dict[str, Any] = {
        "file": str(file),
        "age_seconds": age_ms // 1000,
        "nodes": len(read.nodes),
        "restored_in_seconds": round(seconds, 3),
        "ledgers": found.ledgers,
        "newer": found.newer,
        "deleted": found.deleted,
        "elsewhere": [{"ledger": ledger, "bookies": by} for ledger, by in found.elsewhere.items()],
        "gone_bookies": found.gone_bookies,
        "lost": found.lost,
        "silent": found.silent,
        "is_well": found.is_well,
    }
    if output == "json":
        print_json(row)
    else:
        say(
            f"{row['nodes']} nodes of {file}, made {format_millis(age_ms)} ago, restored and "
            f"verified in {seconds:.1f} s"
        )
        counts = ("ledgers", "newer", "deleted", "elsewhere", "gone_bookies", "lost", "silent")
        shown = {name: row[name] if name == "ledgers" else len(row[name]) for name in counts}
        print_record(shown, output)
        for bookie, why in found.silent.items():
            say(f"bookie {bookie} does not answer: {why}")
        if found.lost:
            say(f"no bookie holds ledgers {', '.join(map(str, found.lost[:20]))}")
    if not found.is_well:
        raise SystemExit(1)


async def _rehearse(
    saved: Backup, url: str, scratch: str, bookies: BookieFiles
) -> tuple[Rehearsal, float]:
    """Return what was found, and the seconds that the restore took."""
    progress = TreeProgress()
    try:
        async with (
            tree_at(url, bookies=bookies) as live,
            tree_at(scratch, must_exist=False) as world,
        ):
            began = world.clock.monotonic()
            records = records_of(world)
            _ = await Restore(records, world.clock, saved, progress=progress).run(force=False)
            seconds = world.clock.monotonic() - began
            control, _ = await registered_bookies(live, records_of(live))
            return await rehearse_stock(records, records_of(live), control), seconds
    finally:
        progress.end()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _write(packed: gzip.GzipFile, data: bytes) -> None:
    _ = packed.write(data)


@click.command(epilog=URL_HELP)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("url")
@click.option(
    "--force",
    is_flag=True,
    help="Replace an existing tree: nodes that the backup does not have are deleted.",
)
@click.option(
    "--ledger-id-gap",
    type=click.IntRange(0, ID_GAP_MAX // 2),
    default=LEDGER_ID_GAP,
    show_default=True,
    help="Ledger ids to leave out above all known ones, for ledgers made after the backup.",
)
@bookie_options
@access_options
def restore(file: Path, url: str, force: bool, ledger_id_gap: int, bookies: BookieFiles) -> None:
    """Make the tree at URL equal to a backup. Stop all brokers first.

    Refused when the target has other data, unless --force. After an interruption run it again with
    the same file. At the end it compares the tree with the file. Bookies delete nothing until
    `pulsarish metadata confirm`.

    \b
    Example:
      pulsarish metadata restore metadata-backup.jsonl.gz zk://127.0.0.1:2181/pulsarish
    """
    saved = read_file(file)
    progress = TreeProgress()

    async def work() -> int:
        async with tree_at(url, bookies=bookies, must_exist=False) as world:
            records = records_of(world)
            held = await ids_of_registered(world, records)
            task = Restore(
                records,
                world.clock,
                saved,
                ids_held=held,
                ledger_id_gap=ledger_id_gap,
                progress=progress,
            )
            return await task.run(force=force)

    try:
        count = run(work())
    finally:
        progress.end()
    say(
        f"{count} nodes restored and verified. Bookies delete nothing yet; next, with all bookies "
        "up:"
    )
    say(
        f"  pulsarish metadata audit {url}      list ledgers that bookies hold and this tree does "
        "not name"
    )
    say(f"  pulsarish metadata confirm {url}    let bookies delete again")


@click.command(
    epilog="LEFT and RIGHT are files or metadata URLs. Ephemeral nodes are not compared."
)
@click.argument("left")
@click.argument("right")
@output_option
@access_options
def diff(left: str, right: str, output: str) -> None:
    """Print the differences of two trees, each a backup or a URL. Exit status 1 when there are any.

    \b
    Example:
      pulsarish metadata diff metadata-backup.jsonl.gz zk://127.0.0.1:2181/pulsarish
    """
    differences = list(compare(_load(left), _load(right)))
    if output == "json":
        print_json([_difference_row(each) for each in differences])
    else:
        for each in differences[:_DIFFERENCES_SHOWN]:
            print_line(f"{each.change.value.ljust(10)}  {each.path}")
            for line in _changed_fields(each):
                print_line(f"{'':12}{line}")
        if len(differences) > _DIFFERENCES_SHOWN:
            say(f"and {len(differences) - _DIFFERENCES_SHOWN} more; -o json prints all")
        say(f"{len(differences)} nodes differ" if differences else "the trees are equal")
    if differences:
        raise SystemExit(1)


def _load(place: str) -> dict[str, bytes]:
    if not place.startswith(_URL_SCHEMES):
        if not Path(place).is_file():
            raise NotFound(
                f"{place} is neither a file nor a metadata URL ({', '.join(_URL_SCHEMES)})"
            )
        return read_file(Path(place)).nodes

    async def read() -> dict[str, bytes]:
        async with tree_at(place) as world:
            return await read_tree(TreeReader(records_of(world), world.clock))

    return run(read())


def _difference_row(each: Difference) -> dict[str, object]:
    return {
        "path": each.path,
        "change": each.change.value,
        "left": _shown(each.left),
        "right": _shown(each.right),
    }


def _shown(data: bytes | None) -> object:
    """Return a record as JSON, anything else as text."""
    if not data:
        return None if data is None else ""
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="backslashreplace")


def _changed_fields(each: Difference) -> list[str]:
    left, right = _shown(each.left), _shown(each.right)
    if not isinstance(left, dict) or not isinstance(right, dict):
        return []
    names = [
        name for name in {**left, **right} if name != "token" and left.get(name) != right.get(name)
    ]
    return [
        f"{name}: {json.dumps(left.get(name))} -> {json.dumps(right.get(name))}" for name in names
    ]
