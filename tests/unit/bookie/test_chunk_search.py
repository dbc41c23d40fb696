"""The search for the next chunk of an entry log behind damage."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any, cast

import pytest

from pulsarish.bookie.entry_logs.chunk_search import next_chunk
from pulsarish.bookie.entry_logs.entry_log_format import (
    CHUNK_HEAD_SIZE,
    chunk_beginning,
    encode_chunk_head,
)

LOG = 7
SPAN_BYTES = 1 << 20


class _File:
    def __init__(self, data: bytes) -> None:
        self.asked: list[int] = []
        self._data = data

    async def size_bytes(self) -> int:
        return len(self._data)

    async def read(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        self.asked += [size for _, size in spans]
        return [self._data[offset : offset + size] for offset, size in spans]


def search(file: _File, start: int = 0) -> int | None:
    return asyncio.run(next_chunk(cast("Any", file), LOG, start))


def chunk(count: int = 3, size_bytes: int = 10) -> bytes:
    return encode_chunk_head(LOG, 1, [size_bytes] * count) + bytes(count * size_bytes)


@pytest.mark.parametrize("before", [0, 5, SPAN_BYTES - 4, SPAN_BYTES - 30, 3 * SPAN_BYTES + 1])
@pytest.mark.parametrize("count", [0, 3, 400_000])
def test_a_whole_chunk_is_found_wherever_it_lies(before: int, count: int) -> None:
    data = b"x" * before + chunk(count, 1)
    assert search(_File(data)) == before
    assert search(_File(data), before) == before
    assert search(_File(data), before + 1) is None


def test_a_torn_head_and_sizes_of_which_a_bit_is_wrong_are_none() -> None:
    whole = chunk()
    assert search(_File(whole[: CHUNK_HEAD_SIZE - 1])) is None
    assert search(_File(whole[: CHUNK_HEAD_SIZE + 8])) is None
    wrong = bytearray(whole)
    wrong[CHUNK_HEAD_SIZE + 3] ^= 1
    assert search(_File(bytes(wrong) + whole)) == len(whole)


def test_a_log_full_of_beginnings_is_read_about_once_in_spans() -> None:
    """Each of them names so many records that their sizes would be most of the log."""
    size_bytes = 4 * SPAN_BYTES
    fake = chunk_beginning(LOG) + struct.pack(">qII", 1, size_bytes // 8, 0)
    file = _File(fake * (size_bytes // len(fake)) + chunk())
    assert search(file) == size_bytes // len(fake) * len(fake)
    assert max(file.asked) <= SPAN_BYTES
    assert len(file.asked) <= 20
