"""RocksDB behind with its flushes: writes are refused, tried again, and none is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pulsarish.runtime.lanes import Lanes, OutsideWork
from pulsarish.runtime.rocks.index import open_rocks_index


def test_a_stalled_write_is_tried_again_and_nothing_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        lanes = Lanes(OutsideWork())
        # Two buffers of 64 KB against writes of 200 KB: RocksDB cannot but refuse.
        index = await open_rocks_index(
            str(tmp_path / "index"),
            lane=lanes.get("x"),
            write_buffer_bytes=64 << 10,
            write_buffers_max=2,
        )
        keys = [number.to_bytes(8, "big") for number in range(60_000)]
        for first in range(0, len(keys), 1_000):
            await index.write(
                [(key, key * 25) for key in keys[first : first + 1_000]], [keys[first]], sync=False
            )
        assert index.stalls_count > 0, "the test did not provoke what it is about"
        assert await index.get_many(keys) == [
            None if number % 1_000 == 0 else key * 25 for number, key in enumerate(keys)
        ]
        await index.close()
        await lanes.close()

    asyncio.run(main())
