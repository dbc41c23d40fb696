"""The embedded store across the end of its process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pulsarish.metadata.connect import connect
from pulsarish.runtime.seams import Locked, MetadataStore, Op
from pulsarish.runtime.world import Production
from tests.support.metadata_stores import production
from tests.support.worlds import run_in_production_loop


async def opened(node: Production, directory: str) -> MetadataStore:
    parts: dict[str, Any] = {
        "clock": node.clock,
        "tasks": node.tasks,
        "rng": node.random,
        "files": node.files,
        "open_index": node.open_index,
    }
    return await connect(f"embedded:{directory}/m", **parts)


FIRST_LIFE = [
    Op("create", "/kept", b"1"),
    Op("create_ephemeral", "/kept/mine"),
    Op("create_sequential", "/kept/n-"),
]


async def first_life(directory: str) -> tuple[Production, MetadataStore]:
    node = production()
    store = await opened(node, directory)
    await store.commit(FIRST_LIFE)
    return node, store


async def die_in_the_middle(directory: str) -> None:
    """Run in a process of its own."""
    await first_life(directory)
    os._exit(9)


@pytest.mark.parametrize("clean", [True, False])
def test_nodes_stay_and_sessions_end(clean: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="pulsarish-") as directory:

        async def run() -> None:
            if clean:
                node, store = await first_life(directory)
                other = production()
                with pytest.raises(Locked):
                    await opened(other, directory)
                await other.close()
                await store.close()
                await node.close()

            node = production()
            again = await opened(node, directory)
            kept, mine = await again.get_many(["/kept", "/kept/mine"])
            assert kept is not None
            assert (kept.data, mine) == (b"1", None)
            assert await again.commit([Op("create_sequential", "/kept/n-")]) == [
                "/kept/n-0000000002"
            ]
            await again.close()
            await node.close()

        if not clean:
            code = (
                f"import asyncio; from {__name__} import die_in_the_middle; "
                f"asyncio.run(die_in_the_middle({directory!r}))"
            )
            assert (
                subprocess.run(
                    [sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[2]
                ).returncode
                == 9
            )
        run_in_production_loop(run)
