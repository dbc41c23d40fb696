"""``pulsarish metadata backup|restore|diff|audit|accept|confirm|cut|protect``: back up, restore,
compare, repair and protect a whole tree.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from pulsarish.cli.bookie_access import NO_BOOKIE_FILES, BookieFiles, bookie_options
from pulsarish.cli.metadata_access import access_options, chosen_access
from pulsarish.cli.output import output_option, print_json, print_line, print_table, say
from pulsarish.ledger.bookie_control import BookieControl, NoAnswer
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.repair.inventory import Inventory, ids_held, take_inventory
from pulsarish.metadata import paths
from pulsarish.metadata.acceptance import accept_older_tree
from pulsarish.metadata.backup.backup import TreeReader, back_up
from pulsarish.metadata.backup.file_format import Backup, BackupFooter, read_backup
from pulsarish.metadata.backup.restore import LEDGER_ID_GAP, Difference, Restore, compare, read_tree
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
from pulsarish.metadata.records import BookieRegistration, Cookie, RestoredTree
from pulsarish.metadata.tree.local import LocalTree
from pulsarish.metadata.tree_age import confirm_tree, why_older
from pulsarish.model.errors import (
    AlreadyExists,
    CorruptData,
    InvalidArgument,
    NotAllowed,
    NotFound,
    ServiceNotReady,
)
from pulsarish.model.units import human_bytes
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.modes import FILE_MODE
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.rocks.index import accept_index_loss, look_at_index
from pulsarish.runtime.seams import World
from pulsarish.runtime.tasks import Supervisor
from pulsarish.runtime.world import production

__all__ = ["accept", "audit", "backup", "confirm", "cut", "diff", "protect", "restore"]

T = TypeVar("T")

_URL_SCHEMES: Final = ("zk://", "zk+ssl://", "embedded:", "memory:")
_PROGRESS_EVERY: Final = 1_000
_DIFFERENCES_SHOWN: Final = 200
_CONNECT_SECONDS: Final = 10.0

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


@click.command(epilog=_URL_HELP)
@click.argument("url")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@output_option
@access_options
def backup(url: str, file: Path, output: str) -> None:
    """Write the whole metadata tree to a file, while the cluster runs.

    Ephemeral nodes are left out. The file is written under another name and renamed once it is
    complete and synced.

    \b
    Example:
      pulsarish metadata backup zk://127.0.0.1:2181/pulsarish metadata-backup.jsonl.gz
    """
    if file.exists():
        raise AlreadyExists(
            f"{file} exists already; a backup never replaces another: use a new name"
        )
    progress = _Progress()
    part = file.with_name(file.name + ".part")

    async def work(write: Callable[[bytes], None]) -> BackupFooter:
        async with _tree(url) as world:
            reading = partial(progress, "reading", of=0)
            return await back_up(_records(world), world.clock, write, source=url, progress=reading)

    try:
        with open(part, "wb", opener=_open_private) as raw:
            with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed:
                footer = _run(work(lambda data: _write(packed, data)))
            raw.flush()
            os.fsync(raw.fileno())
        if not footer.lines:
            raise NotFound(f"there is nothing at {url}: is the chroot right?")
        count = len(_read_file(part).nodes)
        part.rename(file)
    finally:
        part.unlink(missing_ok=True)
        progress.end()
    size_bytes, left_out = file.stat().st_size, footer.ephemeral_left_out
    if output == "json":
        made = {
            "file": str(file),
            "nodes": count,
            "ephemeral_left_out": left_out,
            "size_bytes": size_bytes,
            "sha256": footer.sha256,
        }
        print_json(made)
    else:
        say(
            f"{count} nodes in {file} ({human_bytes(size_bytes)}), {left_out} ephemeral ones left "
            "out"
        )


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
        names = [f"{paths.COOKIES}/{name}" for name in await records.children(paths.COOKIES)]
        cookies = await records.get_many(names, Cookie) if names else []
        return await take_inventory(
            records, control, [row[0].instance_id for row in cookies if row is not None]
        )


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
