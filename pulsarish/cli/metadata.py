"""The commands of ``pulsarish metadata``: back up, rehearse, restore, compare, repair and protect a
whole tree.
"""

from __future__ import annotations

import asyncio
import fcntl
import gzip
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from pulsarish.cli.bookie_access import NO_BOOKIE_FILES, BookieFiles, bookie_options
from pulsarish.cli.metadata_access import access_options, chosen_access
from pulsarish.cli.output import (
    output_option,
    print_json,
    print_line,
    print_record,
    print_table,
    say,
)
from pulsarish.cli.values import duration
from pulsarish.ledger.bookie_control import BookieControl, NoAnswer
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.repair.inventory import Inventory, ids_held, take_inventory
from pulsarish.ledger.repair.rehearsal import Rehearsal, instances, rehearse_stock
from pulsarish.metadata import paths
from pulsarish.metadata.acceptance import accept_older_tree
from pulsarish.metadata.backup.backup import TreeReader, back_up, check_not_being_restored
from pulsarish.metadata.backup.file_format import Backup, BackupFooter, read_backup
from pulsarish.metadata.backup.restore import LEDGER_ID_GAP, Difference, Restore, compare, read_tree
from pulsarish.metadata.backup.rotation import (
    SavedBackup,
    rotate,
    saved_backups,
    seconds_until_due,
)
from pulsarish.metadata.connect import parse_metadata_url
from pulsarish.metadata.damage import (
    CutNotFinished,
    check_cut_is_finished,
    cut_path,
    index_directory,
    mark_incomplete,
    open_tree,
)
from pulsarish.metadata.id_counter import ID_GAP_MAX
from pulsarish.metadata.process import open_store
from pulsarish.metadata.protection import set_access_below
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookieRegistration, RestoredTree
from pulsarish.metadata.tree.local import LocalTree
from pulsarish.metadata.tree_age import confirm_tree, why_older
from pulsarish.model.errors import (
    AlreadyExists,
    CorruptData,
    InvalidArgument,
    NotAllowed,
    NotFound,
    PulsarishError,
    ServiceNotReady,
)
from pulsarish.model.units import format_millis, human_bytes
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.modes import DIRECTORY_MODE, FILE_MODE
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.rocks.index import accept_index_loss, look_at_index
from pulsarish.runtime.seams import World
from pulsarish.runtime.tasks import Supervisor
from pulsarish.runtime.world import production

__all__ = ["accept", "audit", "backup", "confirm", "cut", "diff", "protect", "rehearse", "restore"]

T = TypeVar("T")

_URL_SCHEMES: Final = ("zk://", "zk+ssl://", "embedded:", "memory:")
_PROGRESS_EVERY: Final = 1_000
_DIFFERENCES_SHOWN: Final = 200
_CONNECT_SECONDS: Final = 10.0
_KEEP: Final = 48
_RETRY_SECONDS: Final = 60

_URL_HELP: Final = (
    "URL is the servers' metadata URL: zk://HOST:PORT/CHROOT (a daemon or ZooKeeper), or "
    "embedded:DIR when no process uses it."
)


def _check_directory(directory: str) -> None:
    if not Path(directory).is_dir():
        raise NotFound(f"there is no directory {directory}")


@asynccontextmanager
async def _tree(
    url: str, *, bookies: BookieFiles = NO_BOOKIE_FILES, must_exist: bool = True
) -> AsyncIterator[World]:
    """Yield a world whose metadata store is the tree at ``url``, and which may call its bookies."""
    parsed = parse_metadata_url(url)
    if parsed.kind == "memory":
        raise InvalidArgument(
            "memory: is a tree inside another process; give zk://HOST:PORT/CHROOT or embedded:DIR"
        )
    if parsed.kind == "embedded" and must_exist:
        _check_directory(parsed.directory)
    outside = OutsideWork()
    # A task that fails is this command's failure, not the end of a server.
    parts = production(
        outside=outside,
        supervisor=Supervisor(died=lambda _name, _error: None),
        credentials=bookies.credentials,
        tls=bookies.tls(),
    )
    try:
        store = await open_store(
            url,
            parts,
            outside,
            connect_timeout_seconds=_CONNECT_SECONDS,
            access=chosen_access(),
        )
        try:
            yield parts.world(store)
        finally:
            await store.close()
    finally:
        await parts.close()


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def _records(world: World) -> Records:
    return Records(world.metadata, world.clock, world.random)


class _Progress:
    """One line on the terminal that is redrawn from time to time; nothing elsewhere."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._last = ("", -_PROGRESS_EVERY)

    def __call__(self, what: str, done: int, of: int) -> None:
        if self._shown and (
            what != self._last[0] or done >= self._last[1] + _PROGRESS_EVERY or done == of
        ):
            self._last = (what, done)
            click.echo(
                f"\r\x1b[K{what}: {done}{f' of {of}' if of else ''} nodes", nl=False, err=True
            )

    def end(self) -> None:
        if self._shown and self._last[0]:
            click.echo("\r\x1b[K", nl=False, err=True)


class _Made(NamedTuple):
    """A backup that was written, whole and checked."""

    footer: BackupFooter
    nodes: int
    doubt: str
    """Why the tree may be worth less than an older backup; empty: it is not."""


def _write_backup(url: str, part: Path, *, is_scheduled: bool = False) -> _Made:
    """Write a backup to a new file, read it again, and sync it."""
    progress = _Progress()

    async def work(write: Callable[[bytes], None]) -> tuple[BackupFooter, str]:
        async with _tree(url) as world:
            records = _records(world)
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
                footer, doubt = _run(work(lambda data: _write(packed, data)))
            raw.flush()
            os.fsync(raw.fileno())
        if not footer.lines:
            raise NotFound(f"there is nothing at {url}: is the chroot right?")
        return _Made(footer, len(_read_file(part).nodes), doubt)
    finally:
        progress.end()


def _give_name(part: Path, file: Path) -> None:
    part.rename(file)
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@click.command(epilog=_URL_HELP)
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
    """Hold the lock of a schedule's directory. Raises ``NotAllowed`` when another process has
    it.
    """
    with open(directory / ".lock", "wb", opener=_open_private) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise NotAllowed(f"another process makes backups into {directory} already") from None
        yield


@click.command(epilog=_URL_HELP)
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
    read = _read_file(file)
    with tempfile.TemporaryDirectory(prefix="pulsarish-rehearsal-") as directory:
        found, seconds = _run(_rehearse(read, url, scratch or f"embedded:{directory}", bookies))
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
    progress = _Progress()
    try:
        async with (
            _tree(url, bookies=bookies) as live,
            _tree(scratch, must_exist=False) as world,
        ):
            began = world.clock.monotonic()
            records = _records(world)
            _ = await Restore(records, world.clock, saved, progress=progress).run(force=False)
            seconds = world.clock.monotonic() - began
            control, _ = await _registered_bookies(live, _records(live))
            return await rehearse_stock(records, _records(live), control), seconds
    finally:
        progress.end()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _write(packed: gzip.GzipFile, data: bytes) -> None:
    _ = packed.write(data)


def _read_file(file: Path) -> Backup:
    try:
        with gzip.open(file) as lines:
            return read_backup(lines, str(file))
    except (gzip.BadGzipFile, EOFError) as error:
        raise CorruptData(f"{file} is not a complete backup: {error}") from None


@click.command(epilog=_URL_HELP)
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
    saved = _read_file(file)
    progress = _Progress()

    async def work() -> int:
        async with _tree(url, bookies=bookies, must_exist=False) as world:
            records = _records(world)
            control, members = await _registered_bookies(world, records)
            try:
                held = await ids_held(control, members)
            except NoAnswer as error:
                raise ServiceNotReady(
                    f"a registered bookie did not list its ledgers: {error}; nothing was changed"
                ) from None
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
        count = _run(work())
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


async def _registered_bookies(world: World, records: Records) -> tuple[BookieControl, list[str]]:
    """Return the control of the bookies, and the instance ids of those that are registered now."""
    book = AddressBook()
    bookies: list[str] = []
    names = [f"{paths.BOOKIES}/{name}" for name in await records.children(paths.BOOKIES)]
    for row in await records.get_many(names, BookieRegistration) if names else []:
        if row is not None:
            book.put(row[0].instance_id, row[0].address)
            bookies.append(row[0].instance_id)
    return BookieControl(world, LedgerOptions(), book), bookies


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
        return _read_file(Path(place)).nodes

    async def read() -> dict[str, bytes]:
        async with _tree(place) as world:
            return await read_tree(TreeReader(_records(world), world.clock))

    return _run(read())


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


@click.command(epilog=_URL_HELP)
@click.argument("url")
@output_option
@bookie_options
@access_options
def audit(url: str, output: str, bookies: BookieFiles) -> None:
    """Compare the ledgers on the bookies with those in the metadata. Exit status 1 when they
    differ. Changes nothing.

    After a restore it lists what to repair. "unknown" ledgers were made after the backup, "unheld"
    ones were deleted after it. Those "elsewhere" were open in the backup, and bookies that their
    record does not name hold them, too.

    \b
    Example:
      pulsarish metadata audit zk://127.0.0.1:2181/pulsarish -o json
    """
    stock = _run(_stock(url, bookies))
    if output == "json":
        print_json(
            {
                "silent": stock.silent,
                "unknown": [
                    {"ledger": ledger, "bookies": by} for ledger, by in stock.unknown.items()
                ],
                "unheld": stock.unheld,
                "elsewhere": [
                    {"ledger": ledger, "bookies": by} for ledger, by in stock.elsewhere.items()
                ],
            }
        )
    else:
        _print_stock(stock)
    if not stock.is_clean:
        raise SystemExit(1)


def _print_stock(stock: Inventory) -> None:
    if stock.is_clean:
        say("bookies and metadata have the same ledgers")
        return
    rows: list[dict[str, object]] = [
        {"finding": "silent", "bookies": name, "why": why} for name, why in stock.silent.items()
    ]
    rows += [
        {"finding": "unknown", "ledger": ledger, "bookies": by}
        for ledger, by in stock.unknown.items()
    ]
    rows += [{"finding": "unheld", "ledger": ledger} for ledger in stock.unheld]
    rows += [
        {"finding": "elsewhere", "ledger": ledger, "bookies": by}
        for ledger, by in stock.elsewhere.items()
    ]
    print_table(rows, ["finding", "ledger", "bookies", "why"], "table")


async def _stock(url: str, bookies: BookieFiles) -> Inventory:
    """Return the ledgers of all bookies that the cluster ever had. A bookie that is not registered
    counts as silent.
    """
    async with _tree(url, bookies=bookies) as world:
        records = _records(world)
        control, _ = await _registered_bookies(world, records)
        return await take_inventory(records, control, await instances(records))


@click.command(epilog=_URL_HELP)
@click.argument("url")
@click.option(
    "--ledger-id-gap",
    default=LEDGER_ID_GAP,
    show_default=True,
    type=click.IntRange(0, ID_GAP_MAX // 2),
    metavar="N",
    help="Ledger ids to leave out above all known ones, for ledgers that this tree has lost.",
)
@bookie_options
@access_options
def accept(url: str, ledger_id_gap: int, bookies: BookieFiles) -> None:
    """Continue with a tree that came back older than nodes had seen it. If possible, put the newer
    tree back instead.

    From then on the tree counts as restored from a backup: topics are served again, and bookies
    delete nothing until "pulsarish metadata confirm". Messages in ledgers that this tree does not
    name cannot be read.

    \b
    Example:
      pulsarish metadata accept zk://127.0.0.1:2181/pulsarish
    """

    async def work() -> int:
        async with _tree(url, bookies=bookies) as world:
            records = _records(world)
            control, members = await _registered_bookies(world, records)
            try:
                held = await ids_held(control, members)
            except NoAnswer as error:
                raise ServiceNotReady(
                    f"a registered bookie did not list its ledgers: {error}; nothing was changed"
                ) from None
            return await accept_older_tree(records, ids_held=held, ledger_id_gap=ledger_id_gap)

    count = _run(work())
    say(
        f"accepted, with {count} ledgers that may continue on other bookies. Bookies delete "
        "nothing yet; next, with all bookies up:"
    )
    say(
        f"  pulsarish metadata audit {url}      list ledgers that bookies hold and this tree does "
        "not name"
    )
    say(f"  pulsarish metadata confirm {url}    let bookies delete again")


@click.command(epilog=_URL_HELP)
@click.argument("url")
@click.option(
    "--delete-unknown",
    is_flag=True,
    help="Confirm although this tree does not name all ledgers: bookies will delete the others.",
)
@bookie_options
@access_options
def confirm(url: str, delete_unknown: bool, bookies: BookieFiles) -> None:
    """Confirm a restored tree: bookies delete ledgers again that it does not name.

    Refused while the audit finds ledgers that would be lost, or bookies that do not answer, unless
    --delete-unknown.

    \b
    Example:
      pulsarish metadata confirm zk://127.0.0.1:2181/pulsarish
    """

    async def restored() -> RestoredTree | None:
        async with _tree(url) as world:
            found = await _records(world).get(paths.RESTORED, RestoredTree)
            return None if found is None else found[0]

    async def forget() -> None:
        async with _tree(url) as world:
            await confirm_tree(_records(world))

    found = _run(restored())
    if found is None:
        say("this tree was not restored, or is confirmed already: nothing to do")
        return
    if found.older:
        raise NotAllowed(
            f"{why_older(found)} {url}, then run pulsarish metadata audit {url}, then run this "
            "command again: it gives up ledgers that the tree does not name"
        )
    if not found.restored_ms:
        raise NotAllowed(
            "the restore has not finished: run it again with the same file before confirming it"
        )
    stock = _run(_stock(url, bookies))
    if (stock.silent or stock.unknown or stock.elsewhere) and not delete_unknown:
        _print_stock(stock)
        raise NotAllowed(
            f"{len(stock.unknown)} ledgers are not named by this tree, {len(stock.elsewhere)} may "
            f"continue on other bookies, {len(stock.silent)} bookies did not answer: "
            "--delete-unknown gives all of that up forever"
        )
    _run(forget())
    say(
        "confirmed: from the next garbage collection on, bookies delete ledgers that this tree "
        "does not name"
    )


@click.command()
@click.argument("directory")
@click.option(
    "--last-write",
    type=int,
    help="The last write to keep, as printed without this option; later writes are given up.",
)
def cut(directory: str, last_write: int | None) -> None:
    """Continue with the rest of a damaged tree in DIRECTORY. If a newer backup exists, restore it
    instead.

    DIRECTORY is the data directory of a stopped metadata daemon, or that of embedded:DIRECTORY. Its
    sessions end. Afterwards the tree counts as restored from a backup: bookies delete nothing until
    `pulsarish metadata confirm`.

    \b
    Example:
      pulsarish metadata cut data/metadata
      pulsarish metadata cut data/metadata --last-write 1041
    """

    _check_directory(index_directory(directory))

    async def work() -> list[str]:
        outside = OutsideWork()
        parts = production(outside=outside, supervisor=Supervisor(died=lambda _name, _error: None))
        try:
            await parts.files.lock(directory)
            look = look_at_index(index_directory(directory))
            try:
                await check_cut_is_finished(parts.files, directory)
                if not look.missing:
                    raise NotAllowed(f"the tree in {directory} is complete: nothing was changed")
            except CutNotFinished:
                say(f"finished an earlier, interrupted cut of {directory}")
            if look.missing and last_write is None:
                raise NotAllowed(
                    f"in the tree in {directory} {look.missing}. Nothing was changed; to give up "
                    f"what is missing: pulsarish metadata cut {directory} --last-write "
                    f"{look.last_write}"
                )
            if look.missing and last_write != look.last_write:
                raise InvalidArgument(
                    f"--last-write {last_write}: the tree in {directory} ends at write "
                    f"{look.last_write}; nothing was changed"
                )
            # While this file exists no process serves the tree, which looks complete before it is
            # marked.
            await parts.files.replace(cut_path(directory), b"")
            if look.missing:
                accept_index_loss(index_directory(directory))
            index, tree = await open_tree(parts.open_index, directory)
            local = await LocalTree.open(index, tree, parts.clock, parts.tasks, parts.random)
            store = await local.new_store(closes_tree=True)
            try:
                roots = await mark_incomplete(local, store, parts.clock)
            finally:
                await store.close()
            await parts.files.remove([cut_path(directory)])
            return roots
        finally:
            await parts.close()

    roots = _run(work())
    say(
        f"what was missing is given up; the tree in {directory} can be served again. Next, with "
        "it and all bookies up:"
    )
    for root in roots:
        say(
            f"  pulsarish metadata audit zk://HOST:PORT{root}      list ledgers that bookies hold "
            "and this tree does not name"
        )
        say(f"  pulsarish metadata confirm zk://HOST:PORT{root}    let bookies delete again")
    if "" in roots:
        say("for a standalone server, start it with --metadata-address HOST:PORT")


@click.command(epilog=_URL_HELP)
@click.argument("url")
@click.option("--open", "everyone", is_flag=True, help="Give the nodes to everyone again.")
@access_options
def protect(url: str, everyone: bool) -> None:
    """Give every node of the tree at URL to the logins of --metadata-auth-file, and to no other.

    For a tree that was made without a login, and after a change of the passwords; the cluster may
    run. All members must log in already: docs/security.md has the steps.

    \b
    Example:
      pulsarish metadata protect zk://zk1:2181/pulsarish --metadata-auth-file metadata.auth
    """
    if not chosen_access().auth_file:
        raise InvalidArgument(
            "--metadata-auth-file is missing: it has the logins that the nodes belong to"
        )

    async def work() -> int:
        async with _tree(url) as world:
            return await set_access_below(world.metadata, everyone=everyone)

    count = _run(work())
    owner = "everyone" if everyone else "the logins of --metadata-auth-file"
    say(f"{count} nodes belong to {owner} now")
