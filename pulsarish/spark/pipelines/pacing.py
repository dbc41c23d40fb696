"""Rows at a limited rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

__all__ = ["paced"]

_SLICES_A_SECOND: Final = 10


def paced(
    batches: Iterable[Any],
    rows_per_second: int,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Iterator[Any]:
    """Yield the rows of Arrow batches in slices, each after the time that the earlier ones may
    take.
    """
    slice_rows = max(1, rows_per_second // _SLICES_A_SECOND)
    begun, passed = clock(), 0
    for batch in batches:
        for offset in range(0, batch.num_rows, slice_rows):
            piece = batch.slice(offset, slice_rows)
            wait = passed / rows_per_second - (clock() - begun)
            if wait > 0:
                sleep(wait)
            passed += piece.num_rows
            yield piece
