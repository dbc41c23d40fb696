"""Records of the metadata tree."""

from __future__ import annotations

import pytest

from pulsarish.metadata.records import Cookie
from pulsarish.model.errors import CorruptData
from pulsarish.wire.json_record import decode_record


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"bookie_id": 7}', b'{"bookie_id": "b\xe5", "cluster_id": "c", "instance_id": "i"}'])
def test_damage_of_every_kind_is_corrupt_data_that_names_the_place(data: bytes) -> None:
    with pytest.raises(CorruptData, match="/cookies/b1 is no valid Cookie"):
        decode_record(data, Cookie, "/cookies/b1")
