"""The daemon and the real ZooKeeper answer the same scripts of requests, sessions and watches in
the same way.

By hand, many more: ``PULSARISH_DIFFERENTIAL_SEEDS=500 pytest
tests/conformance/test_metadata_differential.py``.
"""

from __future__ import annotations

import os
import random
import tempfile

import pytest

from pulsarish.metadata.daemon.config import MetadataConfig
from pulsarish.metadata.daemon.daemon import MetadataDaemon
from pulsarish.runtime.world import Production
from tests.support.metadata_scripts import run_script
from tests.support.metadata_stores import production, real_zookeeper
from tests.support.worlds import run_in_production_loop

SEEDS = int(os.environ.get("PULSARISH_DIFFERENTIAL_SEEDS", "25"))


def _daemon(node: Production, directory: str) -> MetadataDaemon:
    return MetadataDaemon(
        MetadataConfig(listen_address="127.0.0.1:0", http_address="", data_directory=directory),
        clock=node.clock,
        rng=random.Random(1),
        tasks=node.tasks,
        files=node.files,
        connections=node.connections,
        open_index=node.open_index,
    )


@pytest.mark.timeout(60 + SEEDS * 5)
def test_the_daemon_answers_as_zookeeper_does() -> None:
    zookeeper = real_zookeeper()

    with tempfile.TemporaryDirectory(prefix="pulsarish-") as directory:

        async def run(seed: int) -> None:
            # A daemon of its own for each script, so that a failed seed replays alone.
            node = production()
            daemon = _daemon(node, f"{directory}/{seed}")
            address = (await daemon.start()).address
            try:
                ours = await run_script(seed, address)
                theirs = await run_script(seed, zookeeper)
            finally:
                await daemon.stop()
                await node.close()
            for step, (mine, real) in enumerate(zip(ours, theirs, strict=True)):
                assert mine == real, (
                    f"seed {seed}, line {step}: the daemon {mine}, ZooKeeper {real}; before: "
                    f"{ours[max(0, step - 6) : step]}"
                )

        for seed in range(SEEDS):
            run_in_production_loop(lambda seed=seed: run(seed))
