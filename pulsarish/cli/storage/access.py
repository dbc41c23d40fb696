"""What the commands that read a bookie's disks share."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.inspection.directories import Damage, Inspected, directories_of
from pulsarish.bookie.unlisted_volumes import with_unlisted
from pulsarish.cli.output import print_line, say
from pulsarish.cli.server_options import config_options, load_config
from pulsarish.model.errors import InvalidArgument, NotAllowedError, NotFound
from pulsarish.model.printable import printable_json
from pulsarish.runtime.files import ReadOnlyFiles
from pulsarish.runtime.lanes import Lanes, OutsideWork
from pulsarish.runtime.rocks.index import open_rocks_snapshot
from pulsarish.runtime.seams import KeyValueIndex, Locked

__all__ = [
    "Rows",
    "bookie_config",
    "bookie_volumes",
    "check_directories",
    "has_several_volumes",
    "inspect",
    "inspecting",
    "run_locked",
]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_VOLUMES: Final = "pulsarish.volumes"


def bookie_config(command: F) -> F:
    """Add the options of a bookie, and the choice of one of its volumes.

    The command gets them as ``config``, with one volume.
    """
    words = "Of a bookie with several volumes: the ledger directory of the one to use."
    return _with_volume(
        command, words, lambda config, volume: {"config": _one_volume(config, volume)}
    )


def bookie_volumes(command: F) -> F:
    """Add the options of a bookie, and the choice of one of its volumes.

    The command gets the configuration of each volume as ``volumes``, and as ``wanted`` those of
    them that were chosen: all, unless one was named.
    """

    def pick(config: BookieConfig, volume: str | None) -> dict[str, Any]:
        volumes = config.volumes()
        wanted = volumes if volume is None else [_one_volume(config, volume)]
        return {"volumes": volumes, "wanted": wanted}

    words = "Of a bookie with several volumes: the ledger directory of one; default: all."
    return _with_volume(command, words, pick)


def _with_volume(
    command: F, words: str, pick: Callable[[BookieConfig, str | None], dict[str, Any]]
) -> F:
    @config_options
    @click.option("--volume", metavar="DIR", help=words)
    @functools.wraps(command)
    def run(
        *,
        toml_path: str | None,
        overrides: tuple[str, ...],
        print_config: bool,
        volume: str | None,
        **given: Any,
    ) -> Any:
        config = load_config(BookieConfig, "bookie", toml_path, overrides, show=print_config)
        config = asyncio.run(_with_added_volumes(config))
        click.get_current_context().meta[_VOLUMES] = len(config.volumes())
        return command(**pick(config, volume), **given)

    return cast(F, run)


async def _with_added_volumes(config: BookieConfig) -> BookieConfig:
    """Return the configuration with the volumes that were added while the bookie ran, as its
    directories know them.
    """
    lanes = Lanes(OutsideWork())
    try:
        found, unlisted = await with_unlisted(ReadOnlyFiles(lanes), config, None)
    finally:
        await lanes.close()
    for directory in unlisted:
        say(
            f"the bookie also has the volume {directory}, which was added while it ran: name it in "
            "the lists of its options"
        )
    return found


def has_several_volumes() -> bool:
    """Return whether the bookie of the running command has several volumes."""
    return bool(click.get_current_context().meta[_VOLUMES] > 1)


def _one_volume(config: BookieConfig, wanted: str | None) -> BookieConfig:
    """Return the configuration of a volume. Raises ``InvalidArgument``."""
    volumes = {each.ledger_path: each for each in config.volumes()}
    if wanted is None and len(volumes) == 1:
        return next(iter(volumes.values()))
    if wanted not in volumes:
        raise InvalidArgument(
            f"--volume {'is needed' if wanted is None else f'names no volume: {wanted}'}; "
            f"the ledger directories are {', '.join(volumes)}"
        )
    return volumes[wanted]


def check_directories(config: BookieConfig) -> None:
    """Raise ``NotFound`` where a directory of the bookie is not there."""
    for directory in config.paths:
        if not Path(directory).is_dir():
            raise NotFound(f"there is no directory {directory}: use the options of the bookie")


@asynccontextmanager
async def inspecting(config: BookieConfig) -> AsyncIterator[Inspected]:
    """Yield the directories of a bookie, to be read only."""
    check_directories(config)
    lanes = Lanes(OutsideWork())

    async def open_index(directory: str) -> tuple[KeyValueIndex, str]:
        rows = await open_rocks_snapshot(directory, lane=lanes.get(f"index:{directory}"))
        return rows, rows.missing

    try:
        yield directories_of(config, ReadOnlyFiles(lanes), open_index)
    finally:
        await lanes.close()


def inspect(config: BookieConfig, work: Callable[[Inspected], Awaitable[T]]) -> T:
    """Run a command's work on the directories of a bookie, and return what it returns."""

    async def main() -> T:
        async with inspecting(config) as inspected:
            return await work(inspected)

    return asyncio.run(main())


def run_locked(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work that locks the directories of a bookie, and return what it returns.

    Raises ``NotAllowedError`` while the bookie runs.
    """
    try:
        return asyncio.run(work)
    except Locked as error:
        raise NotAllowedError(str(error)) from None


class Rows:
    """Print rows as they are found: lines for people, or one JSON object a line.

    Args:
        output: ``table`` or ``json``.
    """

    def __init__(self, output: str) -> None:
        self._is_json = output == "json"
        self._damages = 0

    def put(self, row: Mapping[str, object], text: str) -> None:
        """Print a row. ``text``: the same for people."""
        if self._is_json:
            click.echo(printable_json(json.dumps(row, ensure_ascii=False)))
        else:
            print_line(text)

    def put_damage(self, damage: Damage) -> None:
        """Print a place that cannot be read, or one that is not in use."""
        word = "DAMAGED" if damage.is_damage else "end"
        self._damages += damage.is_damage
        self.put(
            {
                "file": damage.path,
                "offset": damage.offset,
                "damaged": damage.is_damage,
                "reason": damage.reason,
            },
            f"{word} {damage.path} at offset {damage.offset}: {damage.reason}",
        )

    def end(self) -> None:
        """Say how much is damaged, if anything is."""
        if self._damages:
            say(f"damaged places: {self._damages}; pulsarish storage verify says what decides")
