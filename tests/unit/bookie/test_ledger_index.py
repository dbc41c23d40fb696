"""What a bookie's index cannot read is never taken for absent, and costs whoever asked and nobody
else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from pulsarish.bookie.ledger_index import LedgerIndex
from pulsarish.model.errors import BookieIOError
from pulsarish.runtime.seams import KeyValueIndex


class UnreadableRows:
    """An index of which nothing can be read."""

    async def get_many(self, _keys: object) -> list[bytes | None]:
        raise OSError("a block does not match its checksum")

    async def scan(
        self, _start: bytes, _end: bytes, *, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        raise OSError("a block does not match its checksum")


READS: list[Callable[[LedgerIndex], Awaitable[Any]]] = [
    lambda index: index.locations([b"E"]),
    lambda index: index.run_of_locations(1, 0, 10),
    lambda index: index.ledger_rows([1]),
    lambda index: index.ledgers(-1, 10),
    lambda index: index.highest_ledger(),
    lambda index: index.known_ids(0, 10),
    lambda index: index.trashed(-1, 10),
    lambda index: index.trashed_rows([1]),
    lambda index: index.were_deleted([1]),
    lambda index: index.kept_records([1]),
    lambda index: index.records_after(-1, 10),
    lambda index: index.deleted_after(-1, 10),
    lambda index: index.limbos_cleared([1]),
    lambda index: index.forget_deleted(0),
    lambda index: index.entry_keys(1, 10),
    lambda index: index.entry_locations(1, 0, 10),
    lambda index: index.logs_begun(),
    lambda index: index.log_ledgers(1),
]


@pytest.mark.parametrize("number", range(len(READS)))
def test_a_read_that_fails_says_so_in_the_same_way_whatever_is_read(number: int) -> None:
    async def work() -> None:
        with pytest.raises(BookieIOError):
            await READS[number](LedgerIndex(cast("KeyValueIndex", UnreadableRows())))

    asyncio.run(work())
