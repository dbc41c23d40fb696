"""A metadata daemon in the test's own loop."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

from pulsarish.metadata.daemon.config import MetadataConfig
from pulsarish.metadata.daemon.daemon import MetadataDaemon
from pulsarish.runtime.metrics import Metrics
from pulsarish.runtime.world import Production
from tests.support.metadata_stores import production
from tests.support.worlds import run_in_production_loop

__all__ = ["daemon_of", "with_daemon"]


def daemon_of(node: Production, directory: str, **options: Any) -> MetadataDaemon:
    settings = {
        "listen_address": "127.0.0.1:0",
        "http_address": "",
        "tick_ms": 20,
        "session_timeout_min_ms": 100,
        **options,
    }
    return MetadataDaemon(
        MetadataConfig(data_directory=directory, **settings),
        clock=node.clock,
        rng=node.random,
        tasks=node.tasks,
        files=node.files,
        connections=node.connections,
        open_index=node.open_index,
        metrics=Metrics(),
    )


def with_daemon(scenario: Callable[[MetadataDaemon, str], Awaitable[None]], **options: Any) -> None:
    """Run the scenario with a daemon and its address."""
    with tempfile.TemporaryDirectory(prefix="pulsarish-") as directory:

        async def run() -> None:
            node = production()
            daemon = daemon_of(node, directory, **options)
            try:
                await scenario(daemon, (await daemon.start()).address)
            finally:
                await daemon.stop()
                await node.close()

        run_in_production_loop(run)
