"""The mark: up to which record the journal is in the store (rule 11).

It is one small file in the ledger directory, replaced whole.
"""

from __future__ import annotations

from typing import Final

import msgspec
from google_crc32c import extend

from pulsarish.model.errors import CorruptData
from pulsarish.runtime.seams import Files

__all__ = ["MARK_NAME", "Mark", "read_file", "read_mark", "write_mark"]

MARK_NAME: Final = "last-mark"
_LANE: Final = "files"


class Mark(msgspec.Struct, frozen=True):
    """The mark.

    Every record below ``sequence`` is in the store; replay begins with the file ``file_id``.
    """

    file_id: int
    sequence: int
    index_write: int = 0
    """The last index write that was synced then.

    An index that ends before it is not the index of this mark. 0: not known.
    """


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    file_id: int
    sequence: int
    index_write: int | msgspec.UnsetType = msgspec.UNSET  # marks of earlier versions do not have it
    crc32c: int | msgspec.UnsetType = msgspec.UNSET


def _crc(stored: _Stored) -> int:
    """Return the CRC of all other fields that are present."""
    crc: int = extend(0, msgspec.json.encode(msgspec.structs.replace(stored, crc32c=msgspec.UNSET)))
    return crc


async def read_file(files: Files, path: str) -> bytes | None:
    """Return the whole content of a small file; ``None`` when there is none."""
    try:
        file = await files.open(path, lane=_LANE)
    except FileNotFoundError:
        return None
    data: bytes = (await file.read([(0, await file.size_bytes())]))[0]
    await file.close()
    return data


async def read_mark(files: Files, directory: str) -> Mark | None:
    """Read the mark. Raises ``CorruptData`` when there is one that cannot be read."""
    data = await read_file(files, f"{directory}/{MARK_NAME}")
    if data is None:
        return None
    try:
        stored = msgspec.json.decode(data, type=_Stored)
    except msgspec.MsgspecError as error:
        raise CorruptData(
            f"the mark {directory}/{MARK_NAME} cannot be read at offset 0: {error}"
        ) from None
    if _crc(stored) != stored.crc32c:
        raise CorruptData(f"the mark {directory}/{MARK_NAME} does not match its CRC32C at offset 0")
    return Mark(
        stored.file_id,
        stored.sequence,
        0 if stored.index_write is msgspec.UNSET else stored.index_write,
    )


async def write_mark(files: Files, directory: str, mark: Mark) -> None:
    stored = _Stored(file_id=mark.file_id, sequence=mark.sequence, index_write=mark.index_write)
    stored = msgspec.structs.replace(stored, crc32c=_crc(stored))
    await files.replace(f"{directory}/{MARK_NAME}", msgspec.json.encode(stored) + b"\n")
