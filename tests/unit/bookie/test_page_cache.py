"""Entry logs that are taken out of the page cache once they are durable."""

from __future__ import annotations

from typing import Any

import pytest

from pulsarish.sim.workloads.safeguard import replaced
from pulsarish.sim.world.files import SimFile
from tests.support.bookies import BookieBench
from tests.unit.bookie.test_housekeeping import fill, make_ledgers, present


@pytest.mark.parametrize("removes", [False, True])
def test_only_entry_logs_are_removed_and_only_when_asked(removes: bool) -> None:
    bench = BookieBench(3, entry_log_remove_from_page_cache=removes)
    dropped: list[str] = []

    def noting(was: Any) -> Any:
        async def drop_cached(file: SimFile) -> None:
            dropped.append(file.path)
            await was(file)

        return drop_cached

    async def scenario() -> None:
        await bench.client()
        await make_ledgers(bench, 1)
        await fill(bench, 1)
        await bench.in_bookie(lambda bookie: bookie.store.checkpoint())
        assert await present(bench, 1)

    with replaced(SimFile, "drop_cached", noting):
        bench.sim.run(scenario)
    assert bool(dropped) == removes
    assert all(path.endswith(".log") for path in dropped), dropped
