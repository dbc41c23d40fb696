"""Which ids in use raise the counter of ledger ids, and which ones a peer made up."""

from __future__ import annotations

import pytest

from pulsarish.metadata.id_counter import ID_GAP_MAX, next_id_above
from pulsarish.model.position import ID_MAX


@pytest.mark.parametrize(
    ("next_id", "used", "wanted"),
    [
        (0, [], 0),
        (100, [3, 99], 100),
        (100, [3, 100, 250], 251),
        (100, [ID_MAX], 100),
        (100, [100 + ID_GAP_MAX - 1], 100 + ID_GAP_MAX),
        (100, [100 + ID_GAP_MAX], 100),
        (100, [250, 250 + ID_GAP_MAX, ID_MAX], 251 + ID_GAP_MAX),
    ],
)
def test_the_counter_follows_ids_in_use_and_stops_at_a_gap(
    next_id: int, used: list[int], wanted: int
) -> None:
    assert next_id_above(next_id, used) == wanted
