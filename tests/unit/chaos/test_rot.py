"""Rot changes what it says, and nothing next to it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from pulsarish.chaos.rot import damage_index, damage_journal


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("content", [b"x" * 20_000, bytes(20_000), b"short"])
def test_rot_is_where_it_says(tmp_path: Path, seed: int, content: bytes) -> None:
    rows = tmp_path / "bookie-1" / "data" / "index" / "rows"
    rows.mkdir(parents=True)
    (rows / "000004.sst").write_bytes(content)
    (rows / "LOCK").write_bytes(content)
    rot = asyncio.run(damage_index(rows.parent.parent, random.Random(seed)))
    assert rot is not None
    assert rot.path == str(rows / "000004.sst")
    found = Path(rot.path).read_bytes()
    end = rot.offset + rot.size_bytes
    assert len(found) == len(content)
    assert (found[: rot.offset], found[end:]) == (content[: rot.offset], content[end:])
    assert found[rot.offset : end] != content[rot.offset : end]
    assert rot.size_bytes <= 4_096
    assert (rows / "LOCK").read_bytes() == content


def test_a_bookie_that_never_served_has_nothing_to_damage(tmp_path: Path) -> None:
    data = tmp_path / "bookie-1" / "data"
    for name in ("journal", "ledgers", "index/rows"):
        (data / name).mkdir(parents=True)
    assert asyncio.run(damage_index(data, random.Random(1))) is None
    assert asyncio.run(damage_journal(data, random.Random(1))) is None
