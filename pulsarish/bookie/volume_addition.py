"""Add a volume to a bookie that runs: first the checks, which change nothing, then the steps.

1. The cookies go into the three directories. The volume is not known yet: a crash leaves empty
   directories with cookies, which the next attempt takes.
2. The metadata get to know the volume. From here on every start uses it, also when its lists do not
   name it, or refuses (``unlisted_volumes``).
3. The other volumes note it, too, as metadata that are restored may be older.
4. Its store is opened.
5. The metadata note that it has data: a start refuses it without them.
6. It takes new ledgers.

Nothing was promised before the last step, so a volume whose disk fails before is marked as removed.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.cookies import COOKIE_NAME
from pulsarish.bookie.journal.mark import read_file
from pulsarish.bookie.unlisted_volumes import note_volumes, options_of
from pulsarish.bookie.volume import Volume
from pulsarish.bookie.volume_cookies import write_cookies
from pulsarish.bookie.volume_start import open_volume
from pulsarish.bookie.volumes import Volumes
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie, VolumeRecord
from pulsarish.model.errors import (
    BookieIOError,
    ConfigError,
    CorruptData,
    MetadataUnavailable,
    NotAllowedError,
)
from pulsarish.model.units import human_bytes
from pulsarish.runtime.containment import Critical
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Locked, World
from pulsarish.wire.json_record import decode_record

__all__ = ["AdditionState", "VolumeAdditions", "check_new_directories"]

_log = get_logger("bookie.volume_addition")
_RETRY_SECONDS: Final = 1.0
_STATES_MAX: Final = 20
"""Attempts that are remembered, for those who asked for them and look how far they are."""
_NAMES: Final = ("journal_directory", "ledger_directory", "index_directory")


@dataclass(slots=True)
class AdditionState:
    """How far the addition of a volume is."""

    directories: tuple[str, ...] = ()
    """Of the attempt: journal, ledger and index directory."""
    is_running: bool = False
    is_added: bool = False
    refusal: str = ""
    """Why the last attempt did not add it."""


class VolumeAdditions:
    """The additions of volumes to a bookie, one at a time.

    Args:
        guarded: does not write to metadata that came back older.
        cookie: as the metadata had it when the bookie started.
        config: of all volumes.
        ledgers_given_out: returns an id above those of all ledgers.
        take_in: has an open volume take ledgers, as ``VolumeHomes.join`` does.
    """

    def __init__(
        self,
        volumes: Volumes,
        world: World,
        guarded: Records,
        cookie: Cookie,
        config: BookieConfig,
        *,
        ledgers_given_out: Callable[[], Awaitable[int]],
        take_in: Callable[[Volume, Cookie], Awaitable[None]],
    ) -> None:
        self._volumes = volumes
        self._world = world
        self._guarded = guarded
        self._cookie = cookie
        self._config = config
        self._ledgers_given_out = ledgers_given_out
        self._take_in = take_in
        # the last attempts, by ledger directory, the newest at the end
        self._states: dict[str, AdditionState] = {}
        self._running: asyncio.Task[None] | None = None

    def state(self, ledger_directory: str) -> AdditionState:
        """Return how far the addition of the volume with this ledger directory is."""
        ledger_directory = posixpath.normpath(ledger_directory)
        for volume in self._volumes.live:
            if os.path.abspath(volume.config.ledger_path) == ledger_directory:
                return AdditionState(is_added=True)
        return self._states.get(ledger_directory, AdditionState())

    def begin(self, directories: Sequence[str]) -> AdditionState:
        """Begin to add a volume, unless that is under way or done. Return as ``state``.

        ``directories``: its journal, ledger and index directory.
        """
        directories = [posixpath.normpath(each) if each else each for each in directories]
        state = self.state(directories[1])
        if state.is_running and state.directories == tuple(directories):
            return state
        if state.is_added and self._is_volume(directories):
            return state
        try:
            if any(each.is_running for each in self._states.values()):
                raise NotAllowedError("another volume is being added: try again")
            check_new_directories(self._config, directories)
            config = self._config.with_volume(directories)
            config.validate()
            if self._volumes.is_closing:
                raise NotAllowedError("the bookie stops: try again once it has started")
        except (ConfigError, NotAllowedError) as error:
            return AdditionState(refusal=str(error))
        state = AdditionState(tuple(directories), is_running=True)
        self._states.pop(directories[1], None)
        self._states[directories[1]] = state
        if len(self._states) > _STATES_MAX:
            del self._states[next(iter(self._states))]
        # Critical: it must not end between two steps.
        self._running = self._world.tasks.spawn(
            self._add(config, state), name="volume addition", critical=Critical.CHECKPOINT
        )
        return state

    async def stop(self) -> None:
        """Wait until nothing is under way. The volumes are closing, so nothing begins."""
        if self._running is not None:
            await self._running

    def _is_volume(self, directories: Sequence[str]) -> bool:
        return any(
            [os.path.abspath(path) for path in volume.config.paths] == list(directories)
            for volume in self._volumes.live
        )

    async def _add(self, config: BookieConfig, state: AdditionState) -> None:
        new = config.volumes()[-1]
        name = f"{self._world.random.getrandbits(32):08x}"
        volume = Volume(name, new)
        try:
            state.refusal = await self._prepare(volume)
            if not state.refusal:
                # It counts as one from here on, whatever comes of it.
                self._config = config
                state.refusal = await self._complete(volume)
            state.is_added = not state.refusal
        finally:
            state.is_running = False
        if state.refusal:
            _log.warning("a volume is not added", directories=volume.where, reason=state.refusal)
        else:
            _log.warning(
                "a volume was added: name its directories in the lists before the next start",
                volume=name,
                directories=volume.where,
                options=options_of(config),
            )

    # -- before the metadata know it

    async def _prepare(self, volume: Volume) -> str:
        """Check the directories and write the cookies. Return why not; empty: that is done."""
        files, directories = self._world.files, volume.config.paths
        locked: list[str] = []
        try:
            cookie = await self._stored_cookie()
            # Before the locks: nothing is written to directories of others.
            await self._check_contents(cookie, directories)
            for directory in directories:
                await files.lock(directory)
                locked.append(directory)
            await self._check_contents(cookie, directories)
            for directory in directories:
                self._check_space(directory, await files.free_bytes(directory))
            try:
                await write_cookies(files, cookie, volume.name, volume.config)
            except OSError:
                await self._delete_cookies(directories)
                raise
        except Locked as error:
            refusal = f"{error}"
        except OSError as error:
            refusal = f"{error}: give directories of a disk that works, which the bookie may write"
        except (ConfigError, CorruptData, MetadataUnavailable, NotAllowedError) as error:
            refusal = str(error)
        else:
            return ""
        for directory in reversed(locked):
            await files.unlock(directory)
        return refusal

    async def _delete_cookies(self, directories: Sequence[str]) -> None:
        try:
            await self._world.files.remove([f"{each}/{COOKIE_NAME}" for each in directories])
        except OSError as error:
            # The next attempt takes what is left.
            _log.warning("cookies of a volume that is not added are left", reason=error)

    async def _stored_cookie(self) -> Cookie:
        """Return the cookie in the metadata.

        Raises ``MetadataUnavailable``, ``CorruptData``, ``NotAllowedError``.
        """
        path = paths.cookie(self._cookie.bookie_id)
        await self._guarded.sync(path)
        found = await self._guarded.get(path, Cookie)
        return self._own(None if found is None else found[0])

    def _own(self, cookie: Cookie | None) -> Cookie:
        if cookie is None or cookie.instance_id != self._cookie.instance_id:
            raise NotAllowedError(
                f"the metadata have no cookie of {self._cookie.instance_id}: it was decommissioned"
            )
        return cookie

    async def _check_contents(self, cookie: Cookie, directories: Sequence[str]) -> None:
        """Raise an error unless nothing is in the directories, or what an earlier attempt left."""
        for directory in directories:
            try:
                names = await self._world.files.list(directory)
            except NotADirectoryError:
                raise NotAllowedError(
                    f"{directory} is not a directory: name another one, or remove the file"
                ) from None
            if not names:
                continue
            path = f"{directory}/{COOKIE_NAME}"
            data = await read_file(self._world.files, path)
            if data is not None:
                try:
                    found = decode_record(data, Cookie, path)
                except CorruptData as error:
                    raise NotAllowedError(f"{error}: {_EMPTY}") from None
                if found.instance_id != cookie.instance_id:
                    raise NotAllowedError(
                        f"{directory} belongs to bookie {found.instance_id}: give directories of "
                        "this bookie alone"
                    )
                if list(names) == [COOKIE_NAME] and found.volume not in (*cookie.volumes, ""):
                    continue  # an attempt that ended before the metadata knew it
            shown = ", ".join(names[:3])
            raise NotAllowedError(f"{directory} is not empty, it has {shown}: {_EMPTY}")

    def _check_space(self, directory: str, free_bytes: int) -> None:
        least = self._config.read_only_free_bytes
        if free_bytes < least:
            raise NotAllowedError(
                f"the disk of {directory} has {human_bytes(free_bytes)} free, and a volume takes "
                f"entries from {human_bytes(least)} on (read_only_free_bytes): free space on it, "
                "or name a directory on another disk"
            )

    # -- once the metadata may know it

    async def _complete(self, volume: Volume) -> str:
        """Have the metadata and the other volumes know a volume, and have it take ledgers. Return
        why not; empty: it does.

        Raises the error of a disk that must end the process.
        """
        record = VolumeRecord(tuple(volume.config.paths), is_unlisted=True)
        try:
            await self._note_in_others(await self._note(volume.name, record))
        except (BookieIOError, CorruptData, NotAllowedError) as error:
            return await self._give_up(volume, record, error)
        try:
            await open_volume(
                self._world, self._volumes, volume, ledgers_given_out=self._ledgers_given_out
            )
            record = msgspec.structs.replace(record, is_opened=True)
            await self._take_in(volume, await self._note(volume.name, record))
        except (OSError, BookieIOError, CorruptData, NotAllowedError) as error:
            return await self._give_up(volume, record, error)
        return ""

    async def _give_up(self, volume: Volume, record: VolumeRecord, error: Exception) -> str:
        """Have the metadata know that a volume is not used. Return why it is not."""
        volume.failure = volume.failure or error
        if self._volumes.is_closing:
            # The next start goes on with it.
            try:
                if volume.is_open:
                    await volume.store.close()
            except (OSError, BookieIOError) as reason:
                # Nothing was promised of it.
                _log.warning("a volume that is not added yet is not closed", reason=reason)
            return str(error)
        if volume.is_open:
            volume.store.fail(error)
        gone = msgspec.structs.replace(record, is_lost=True, is_removed=True)
        try:
            await self._note(volume.name, gone)
        except (BookieIOError, CorruptData, NotAllowedError) as reason:
            _log.warning("a volume that is not added is not noted as removed", reason=error)
            return str(reason)
        return (
            f"{error}. Name other directories; {volume.where} can be given once they are empty and "
            "the bookie was restarted"
        )

    async def _note(self, name: str, record: VolumeRecord) -> Cookie:
        """Note in the metadata what a volume is. Return the cookie there.

        Waits for metadata that cannot be reached: they may have taken it. Raises ``CorruptData``,
        and ``NotAllowedError`` for a bookie that was decommissioned.
        """

        def changed(cookie: Cookie | None) -> Cookie | None:
            cookie = self._own(cookie)
            if cookie.volumes.get(name) == record:
                return None
            return msgspec.structs.replace(cookie, volumes={**cookie.volumes, name: record})

        path = paths.cookie(self._cookie.bookie_id)
        while True:
            try:
                found = await self._guarded.update(path, Cookie, changed)
            except MetadataUnavailable as error:
                if self._volumes.is_closing:
                    raise BookieIOError("the bookie stops") from error
                _log.warning("the addition of a volume waits for the metadata", reason=error)
                await self._world.clock.sleep(_RETRY_SECONDS)
            else:
                assert found is not None, "a cookie is never deleted by this"
                return found[0]

    async def _note_in_others(self, cookie: Cookie) -> None:
        """Note the volume in the others.

        Raises ``CorruptData`` for a cookie of theirs, and the error of a disk that must end the
        process.
        """
        for other in self._volumes.live:
            try:
                await note_volumes(self._world.files, other.config.ledger_path, cookie)
            except OSError as error:
                if not self._volumes.fail(other, error):
                    raise


_EMPTY: Final = "empty it, or name another directory"


def check_new_directories(config: BookieConfig, directories: Sequence[str]) -> None:
    """Raise ``NotAllowedError`` for directories that cannot be those of one more volume, by their
    names.

    Args:
        config: of the bookie's volumes.
        directories: journal, ledger and index directory.
    """
    taken = {os.path.abspath(path): "the bookie uses" for path in config.all_paths}
    for name, directory in zip(_NAMES, directories, strict=True):
        if not posixpath.isabs(directory):
            raise NotAllowedError(
                f"the {name} {directory!r} is not an absolute path: begin it with a slash"
            )
        if not directory.isprintable():
            raise NotAllowedError(
                f"the {name} {directory!r} has characters that cannot be printed: give another name"
            )
        if "," in directory:
            raise NotAllowedError(
                f"the {name} {directory!r} has a comma, which separates directories in the lists: "
                "give another name"
            )
        for path, words in taken.items():
            if path == directory:
                raise NotAllowedError(
                    f"the {name} {directory} is one that {words} already: {_OTHER}"
                )
            if posixpath.commonpath([path, directory]) in (path, directory):
                raise NotAllowedError(
                    f"the {name} {directory} and {path}, which {words}, lie in each other: {_OTHER}"
                )
        taken[directory] = "is to be added"


_OTHER: Final = "name another directory"
