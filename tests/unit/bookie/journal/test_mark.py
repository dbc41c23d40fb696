"""The file of the mark: what is written is read back, and marks of earlier versions stay
readable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from pulsarish.bookie.journal.mark import MARK_NAME, Mark, read_mark, write_mark
from pulsarish.model.errors import CorruptData
from pulsarish.runtime.files import LocalFiles
from pulsarish.runtime.lanes import Lanes, OutsideWork

T = TypeVar("T")

WITHOUT_INDEX_WRITE = b'{"file_id":3,"sequence":4711,"crc32c":638942841}\n'


def in_files(work: Callable[[LocalFiles], Awaitable[T]]) -> T:
    async def run() -> T:
        lanes = Lanes(OutsideWork())
        try:
            return await work(LocalFiles(lanes))
        finally:
            await lanes.close()

    return asyncio.run(run())


def read(directory: Path) -> Mark | None:
    return in_files(lambda files: read_mark(files, str(directory)))


def write(directory: Path, mark: Mark) -> None:
    in_files(lambda files: write_mark(files, str(directory), mark))


@pytest.mark.parametrize("mark", [Mark(1, 1), Mark(3, 4711), Mark(3, 4711, 1042)])
def test_a_mark_is_read_as_it_was_written(tmp_path: Path, mark: Mark) -> None:
    write(tmp_path, mark)
    assert read(tmp_path) == mark


def test_a_mark_without_the_write_of_the_index_is_one_of_an_earlier_version(tmp_path: Path) -> None:
    (tmp_path / MARK_NAME).write_bytes(WITHOUT_INDEX_WRITE)
    assert read(tmp_path) == Mark(3, 4711, 0)


def test_the_crc_covers_the_write_of_the_index(tmp_path: Path) -> None:
    write(tmp_path, Mark(3, 4711, 1042))
    path = tmp_path / MARK_NAME
    path.write_bytes(path.read_bytes().replace(b"1042", b"1041"))
    with pytest.raises(CorruptData):
        read(tmp_path)
