"""Reach a tree of metadata, and its bookies, from a command."""

from __future__ import annotations

import asyncio
import gzip
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from pulsarish.cli.bookie_access import NO_BOOKIE_FILES, BookieFiles
from pulsarish.cli.metadata_access import chosen_access
from pulsarish.ledger.bookie_control import BookieControl, NoAnswer
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.repair.inventory import ids_held
from pulsarish.metadata import paths
from pulsarish.metadata.backup.file_format import Backup, read_backup
from pulsarish.metadata.connect import parse_metadata_url
from pulsarish.metadata.process import open_store
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookieRegistration
from pulsarish.model.errors import (
    CorruptData,
    InvalidArgument,
    NotFound,
    ServiceNotReady,
)
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.seams import World
from pulsarish.runtime.tasks import Supervisor
from pulsarish.runtime.world import production

__all__ = [
    "URL_HELP",
    "TreeProgress",
    "check_directory",
    "ids_of_registered",
    "read_file",
    "records_of",
    "registered_bookies",
    "run",
    "tree_at",
]

T = TypeVar("T")

_PROGRESS_EVERY: Final = 1_000
_CONNECT_SECONDS: Final = 10.0

URL_HELP: Final = (
    "URL is the servers' metadata URL: zk://HOST:PORT/CHROOT (a daemon or ZooKeeper), or "
    "embedded:DIR when no process uses it."
)


def check_directory(directory: str) -> None:
    """Raise ``NotFound`` where there is no such directory."""
    if not Path(directory).is_dir():
        raise NotFound(f"there is no directory {directory}")


@asynccontextmanager
async def tree_at(
    url: str, *, bookies: BookieFiles = NO_BOOKIE_FILES, must_exist: bool = True
) -> AsyncIterator[World]:
    """Yield a world whose metadata store is the tree at ``url``, and which may call its bookies."""
    parsed = parse_metadata_url(url)
    if parsed.kind == "memory":
        raise InvalidArgument(
            "memory: is a tree inside another process; give zk://HOST:PORT/CHROOT or embedded:DIR"
        )
    if parsed.kind == "embedded" and must_exist:
        check_directory(parsed.directory)
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


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work to its end, and return what it returns."""
    return asyncio.run(work)


def records_of(world: World) -> Records:
    """Return the records of a world's tree."""
    return Records(world.metadata, world.clock, world.random)


class TreeProgress:
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


def read_file(file: Path) -> Backup:
    """Read a backup, checked. Raises ``CorruptData``, ``OSError``."""
    try:
        with gzip.open(file) as lines:
            return read_backup(lines, str(file))
    except (gzip.BadGzipFile, EOFError) as error:
        raise CorruptData(f"{file} is not a complete backup: {error}") from None


async def registered_bookies(world: World, records: Records) -> tuple[BookieControl, list[str]]:
    """Return the control of the bookies, and the instance ids of those that are registered now."""
    book = AddressBook()
    bookies: list[str] = []
    names = [f"{paths.BOOKIES}/{name}" for name in await records.children(paths.BOOKIES)]
    for row in await records.get_many(names, BookieRegistration) if names else []:
        if row is not None:
            book.put(row[0].instance_id, row[0].address)
            bookies.append(row[0].instance_id)
    return BookieControl(world, LedgerOptions(), book), bookies


async def ids_of_registered(world: World, records: Records) -> list[int]:
    """Return the ids of the ledgers that the registered bookies hold.

    Raises ``ServiceNotReady``: one of them did not list its ledgers.
    """
    control, bookies = await registered_bookies(world, records)
    try:
        return await ids_held(control, bookies)
    except NoAnswer as error:
        raise ServiceNotReady(
            f"a registered bookie did not list its ledgers: {error}; nothing was changed"
        ) from None
