"""Records of the metadata tree."""

from __future__ import annotations

import pytest

from pulsarish.metadata import paths
from pulsarish.metadata.records import Cookie
from pulsarish.model.errors import CorruptData
from pulsarish.wire.json_record import decode_record


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"bookie_id": 7}',
        b'{"bookie_id": "b\xe5", "cluster_id": "c", "instance_id": "i"}',
        pytest.param(b'{"unknown":' + 100_000 * b"[", id="nested deeply"),
    ],
)
def test_damage_of_every_kind_is_corrupt_data_that_names_the_place(data: bytes) -> None:
    with pytest.raises(CorruptData, match="/cookies/b1 is no valid Cookie"):
        decode_record(data, Cookie, "/cookies/b1")


def test_nodes_that_are_not_ledgers_are_left_out() -> None:
    assert paths.ledger_id_of(paths.ledger(12_345_678_901)) == 12_345_678_901
    for path in (
        "/ledgers/00/0000/x",
        "/ledgers/00/x/L0001",
        "/ledgers/x/0000/L0001",
        "/ledgers/99999999999/9999/L9999",
        "/ledgers/00",
    ):
        assert paths.ledger_id_of(path) is None
    names = [
        paths.underreplicated(7).rpartition("/")[2],
        "x",
        "L",
        "L-000000001",
        "L" + 19 * "9",
        "L" + 5_000 * "9",
    ]
    assert paths.underreplicated_ids(names) == [7]
