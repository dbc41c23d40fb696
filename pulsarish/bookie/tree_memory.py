"""The newest metadata tree that this bookie has seen, in one small file of the ledger directory,
replaced whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from google_crc32c import extend

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.journal.mark import read_file
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.tree_age import TreeAge
from pulsarish.metadata.tree_state import NOTHING_SEEN, TreeState
from pulsarish.model.errors import CorruptData
from pulsarish.runtime.seams import Clock, Files

__all__ = ["MEMORY_NAME", "remembered_age"]

MEMORY_NAME: Final = "metadata-seen"


class _Stored(msgspec.Struct, frozen=True):
    seen: TreeState
    crc32c: int


def _crc(seen: TreeState) -> int:
    crc: int = extend(0, msgspec.json.encode(seen))
    return crc


async def remembered_age(
    records: Records,
    clock: Clock,
    files: Files,
    config: BookieConfig,
    usable: Callable[[], Sequence[str]] | None = None,
) -> TreeAge:
    """Return what this bookie knows of the metadata's age, from its earlier processes, too.

    ``usable``: returns the ledger directories of the volumes that can be written; default: all.

    Raises ``CorruptData`` for a file that cannot be read.
    """
    directories = [volume.ledger_path for volume in config.volumes()]
    seen = NOTHING_SEEN
    for directory in directories:
        try:
            seen = seen.merged(await _read(files, directory))
        except OSError:
            if len(directories) == 1:
                raise

    async def keep(newest: TreeState) -> None:
        for directory in usable() if usable is not None else directories:
            await _write(files, directory, newest)

    age = TreeAge(records, clock, seen=seen, keep=keep)
    age.holder = f"bookie {config.bookie_id}"
    return age


async def _read(files: Files, directory: str) -> TreeState:
    """Read the file; ``NOTHING_SEEN`` without one.

    Raises ``CorruptData`` for one that cannot be read.
    """
    path = f"{directory}/{MEMORY_NAME}"
    data = await read_file(files, path)
    if data is None:
        return NOTHING_SEEN
    try:
        stored = msgspec.json.decode(data, type=_Stored)
    except msgspec.MsgspecError as error:
        raise CorruptData(f"{path} cannot be read at offset 0: {error}; {_REMEDY}") from None
    if _crc(stored.seen) != stored.crc32c:
        raise CorruptData(f"{path} does not match its CRC32C at offset 0; {_REMEDY}")
    return stored.seen


_REMEDY: Final = (
    "it says how new the metadata were: delete it once you are sure that the metadata service "
    "has its newest data"
)


async def _write(files: Files, directory: str, seen: TreeState) -> None:
    """Write the file. Raises ``OSError``."""
    await files.replace(
        f"{directory}/{MEMORY_NAME}", msgspec.json.encode(_Stored(seen, _crc(seen))) + b"\n"
    )
