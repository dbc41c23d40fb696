"""A whole simulation: nodes, their network, disks and metadata. One seed decides the run.

    sim = Simulation(seed)
    bookie = sim.node("bookie1", main=lambda world: Bookie(world, config).run())
    sim.run(scenario, max_virtual_seconds=60)        # scenario() is a coroutine function of no node

The same seed gives the same run: compare ``trace_hash()``.
"""

from __future__ import annotations

import contextvars
import gc
import hashlib
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pulsarish.runtime.seams import KeyValueIndex, World
from pulsarish.security.credentials import CredentialsSource
from pulsarish.sim.world.connections import SimConnections
from pulsarish.sim.world.disk import SimDisk
from pulsarish.sim.world.files import SimFiles
from pulsarish.sim.world.index import SimIndex
from pulsarish.sim.world.lanes import Lane
from pulsarish.sim.world.loop import SimLoop
from pulsarish.sim.world.metadata_service import MetadataService
from pulsarish.sim.world.metadata_store import SimMetadata
from pulsarish.sim.world.network import Network
from pulsarish.sim.world.nodes import Main, Node, Process, SimClock, SimTasks

__all__ = ["Simulation", "SimulationFailed"]

T = TypeVar("T")

# The story keeps the end of the trace. The hash covers all of it.
STORY_LINES = 200_000


class SimulationFailed(AssertionError):
    """The scenario ended well, but something in a node raised an error that no caller caught."""


class Simulation:
    """One seeded run. Make nodes, then call ``run`` once."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loop = SimLoop(self._stream("schedule"))
        self.faults = self._stream("faults")
        self.workload = self._stream("workload")
        self.network = Network(self.loop, self._stream("network"), self.trace)
        self.metadata = MetadataService(self.network, self._stream("metadata"))
        self.nodes: dict[str, Node] = {}
        self._clocks = self._stream("clocks")
        self._digest = hashlib.blake2b(digest_size=16)
        self._story: deque[str] = deque(maxlen=STORY_LINES)
        self._ran = False
        self.credentials_of: Callable[[World, str], CredentialsSource] | None = None
        """Returns what a process of a node shows to others, when it starts; ``None``: nothing."""

    def _stream(self, what: str) -> random.Random:
        # One stream for each, so a new draw in one does not move the others. A text as seed has the
        # same hash in every process.
        return random.Random(f"{self.seed}:{what}")

    # -- nodes

    def node(self, name: str, main: Main | None = None) -> Node:
        """Make a node and boot it.

        ``main(world)`` runs in it as a critical task, now and after every restart. Without ``main``
        the node only has a world, for ``node.run``.
        """
        assert name not in self.nodes, name
        disk = SimDisk(name, self._stream(f"disk:{name}"), self.trace)
        node = Node(
            name, self.loop, disk, SimClock(self.loop, self._clocks), self._build_world, self.trace
        )
        self.nodes[name] = node
        node.start(main)
        return node

    def _build_world(self, node: Node, process: Process) -> World:
        clock, disk = node.clock, node.disk
        process.at_death.append(lambda: self.network.process_died(process))

        async def open_index(directory: str) -> KeyValueIndex:
            lane = Lane(self.loop, process)
            return SimIndex(disk, directory, process, lane)

        metadata = SimMetadata(self.metadata, process, clock)
        process.ready = metadata.opened
        connections = SimConnections(self.network, process, clock)
        world = World(
            clock=clock,
            random=self._stream(f"node:{process}"),
            tasks=SimTasks(process, self.loop),
            files=SimFiles(self.loop, disk, process),
            connections=connections,
            metadata=metadata,
            open_index=open_index,
        )
        if self.credentials_of is not None:
            connections.credentials = self.credentials_of(world, node.name)
        return world

    # -- the run

    def run(
        self, scenario: Callable[[], Coroutine[Any, Any, T]], max_virtual_seconds: float = 600.0
    ) -> T:
        """Run the scenario to its end and return its result.

        Raises what the scenario raises, ``Deadlock``, ``TimeLimit``, or ``SimulationFailed`` when a
        task or callback of a node raised an error that no caller caught. Each carries the seed and
        the end of the story as a note.
        """
        assert not self._ran, "a simulation runs once"
        self._ran = True
        loop = self.loop
        loop.time_limit = loop.time() + max_virtual_seconds
        collecting = gc.isenabled()
        gc.disable()
        try:
            result: T = loop.run_until_complete(
                loop.create_task(
                    self._main(scenario), name="scenario", context=contextvars.Context()
                )
            )
            loop.gather_failures()
            if loop.failures:
                what, error = loop.failures[0]
                more = f" (and {len(loop.failures) - 1} more)" if len(loop.failures) > 1 else ""
                raise SimulationFailed(f"{what}: {error!r}{more}") from error
            return result
        except BaseException as error:
            for what, failure in loop.failures[:10]:
                error.add_note(f"failure: {what}: {failure!r}")
            error.add_note(
                f"seed {self.seed}, at {loop.time():.6f} virtual seconds; the end of the "
                f"story:\n{self.story(40)}"
            )
            raise
        finally:
            self._end()
            if collecting:
                gc.enable()

    async def _main(self, scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await scenario()

    def _end(self) -> None:
        for node in self.nodes.values():
            if node.process is not None:
                node.process.alive = False
        self.loop.end()

    def at(self, seconds: float, action: Callable[[], object]) -> None:
        """Call ``action`` this many virtual seconds from now, in no node: for faults that do not
        wait for the scenario.
        """
        self.loop.call_later(seconds, action, context=contextvars.Context())

    # -- the trace

    def trace(self, event: str) -> None:
        """Add a short line.

        It contains the number of steps, so any other schedule gives another trace.
        """
        line = f"{self.loop.time():.6f} {self.loop.steps} {event}"
        self._digest.update(line.encode())
        self._story.append(line)

    def trace_hash(self) -> str:
        return self._digest.hexdigest()

    def story(self, lines: int = STORY_LINES) -> str:
        """Return the last lines of the trace: time, number of steps, event."""
        return "\n".join(list(self._story)[-lines:])
