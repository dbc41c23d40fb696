"""The bookie process: ``python -m pulsarish.bookie.main [key=value]...`` runs one without the command line's comforts."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import cast

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.config import BookieConfig
from pulsarish.metadata.connect import connect
from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.config import load
from pulsarish.runtime.log import configure_logs
from pulsarish.runtime.loop import NodeProcess, RunningNode, run_node
from pulsarish.runtime.seams import Locked, MetadataStore
from pulsarish.runtime.world import Production, production_world

__all__ = ["ENVIRONMENT_PREFIX", "run", "start_bookie"]

ENVIRONMENT_PREFIX = "PULSARISH_BOOKIE__"


class _BookieNode:
    """A running bookie and the world that it was built from."""

    def __init__(self, bookie: Bookie, production: Production, metadata: MetadataStore) -> None:
        faces = f"grpc={bookie.address}" + (f" http={bookie.http_address}" if bookie.http_address else "")
        self.ready_line = f"bookie {bookie.instance_id} ready {faces}"
        self._bookie = bookie
        self._production = production
        self._metadata = metadata

    async def stop(self) -> None:
        await self._bookie.stop()
        await self._metadata.close()
        await self._production.close()


async def start_bookie(config: BookieConfig, process: NodeProcess) -> RunningNode:
    """Start a bookie in this process's event loop; returns when it serves. Raises what ``Bookie.start`` and ``connect`` raise."""
    # The metadata store is made from parts of the world that it then belongs to.
    production = production_world(metadata=cast("MetadataStore", None), outside=process.outside)
    world = production.world
    metadata = await connect(
        config.metadata_url,
        clock=world.clock,
        tasks=world.tasks,
        rng=world.random,
        files=world.files,
        open_index=world.open_index,
        outside=process.outside,
        session_timeout_ms=config.metadata_session_timeout_ms,
    )
    bookie = Bookie(dataclasses.replace(world, metadata=metadata), config)
    await bookie.start()
    return _BookieNode(bookie, production, metadata)


def run(config: BookieConfig) -> int:
    """Run a bookie until it is told to stop; the exit status. Raises what its start raises."""
    return run_node(lambda process: start_bookie(config, process))


def _main(arguments: list[str]) -> int:
    configure_logs()
    try:
        return run(load(BookieConfig, environ=os.environ, prefix=ENVIRONMENT_PREFIX, overrides=arguments))
    except (PulsarishError, Locked, OSError) as error:
        sys.stderr.write(f"the bookie does not start: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
