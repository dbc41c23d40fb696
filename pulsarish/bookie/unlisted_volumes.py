"""Volumes that were added while the bookie ran, and that the lists of its options do not name yet.

A start with the shorter lists finds them in the metadata, and in the cookies of its other volumes,
as the metadata may have come back older. It uses them like those in the lists: without them it
would have lost fences and entries. Once the lists name one, they decide, as for every other volume.
"""

from __future__ import annotations

import msgspec

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.cookies import COOKIE_NAME
from pulsarish.bookie.journal.mark import read_file
from pulsarish.metadata.records import Cookie, VolumeRecord
from pulsarish.model.errors import CorruptData
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Files
from pulsarish.wire.json_record import decode_record, encode_record

__all__ = ["how_to_give_lists", "note_volumes", "options_of", "with_unlisted"]

_log = get_logger("bookie.volumes")


async def with_unlisted(
    files: Files, config: BookieConfig, stored: Cookie | None
) -> tuple[BookieConfig, list[str]]:
    """Return the configuration with the volumes that its lists do not name, and the ledger
    directories of these.

    A volume without a cookie in any of its directories is left out: whether the start goes on
    without it is decided when all volumes are compared with the metadata.

    Args:
        stored: the bookie's cookie in the metadata.
    """
    wanted: dict[str, VolumeRecord] = {}
    listed: set[str] = set()
    for volume in config.volumes():
        cookie = await _cookie_in(files, volume.ledger_path, config.bookie_id)
        if cookie is not None:
            listed.add(cookie.volume)
            wanted.update((name, each) for name, each in cookie.volumes.items() if each.is_unlisted)
    if stored is not None:
        wanted.update((name, each) for name, each in stored.volumes.items() if each.is_unlisted)
        for name in [name for name in wanted if name in stored.volumes]:
            if stored.volumes[name].is_lost:
                del wanted[name]
    found = config
    for name, record in wanted.items():
        directories = record.directories
        if name in listed or not set(directories).isdisjoint(found.all_paths):
            continue
        if await _is_there(files, name, record, config.bookie_id):
            found = found.with_volume(directories)
    return found, list(found.ledger_directories[len(config.volumes()) :])


async def _is_there(files: Files, name: str, record: VolumeRecord, bookie_id: str) -> bool:
    """Return whether a cookie of the volume is in one of its directories, or one cannot be read."""
    for directory in record.directories:
        try:
            data = await read_file(files, f"{directory}/{COOKIE_NAME}")
            cookie = None if data is None else decode_record(data, Cookie, directory)
        except (OSError, CorruptData):
            return True  # the start says what is wrong with it
        if cookie is not None and (cookie.bookie_id, cookie.volume) == (bookie_id, name):
            return True
    return False


async def _cookie_in(files: Files, directory: str, bookie_id: str) -> Cookie | None:
    """Return the bookie's cookie in a directory; ``None`` without one that can be read."""
    path = f"{directory}/{COOKIE_NAME}"
    try:
        data = await read_file(files, path)
        cookie = None if data is None else decode_record(data, Cookie, path)
    except (OSError, CorruptData):
        return None
    return cookie if cookie is not None and cookie.bookie_id == bookie_id else None


async def note_volumes(files: Files, ledger_directory: str, cookie: Cookie) -> None:
    """Note in a volume which volumes there are, durably: a start with metadata that came back older
    must not leave one out.

    Args:
        ledger_directory: the volume's.
        cookie: as the metadata have it.

    Raises ``OSError``, and ``CorruptData`` for a cookie that cannot be read.
    """
    noted = {
        name: VolumeRecord(each.directories, is_opened=True, is_unlisted=each.is_unlisted)
        for name, each in cookie.volumes.items()
        if not each.is_lost
    }
    path = f"{ledger_directory}/{COOKIE_NAME}"
    data = await read_file(files, path)
    if data is None:
        raise CorruptData(f"{path} is missing")
    own = decode_record(data, Cookie, path)
    if own.volumes != noted:
        await files.replace(path, encode_record(msgspec.structs.replace(own, volumes=noted)))


def how_to_give_lists(config: BookieConfig) -> str:
    """Return why a bookie with the options of one volume gets no other one, and what helps."""
    return (
        f"bookie {config.bookie_id} runs with the options of one volume: start it once with its "
        f"directories as lists, {options_of(config)}; after that volumes can be added while it runs"
    )


def options_of(config: BookieConfig) -> str:
    """Return the options that name all volumes, as they are given to the bookie."""
    lists = {
        "journal_directories": config.journal_directories or (config.journal_path,),
        "ledger_directories": config.ledger_directories or (config.ledger_path,),
        "index_directories": config.index_directories or (config.index_path,),
    }
    return " ".join(f"--set {name}={','.join(found)}" for name, found in lists.items())
