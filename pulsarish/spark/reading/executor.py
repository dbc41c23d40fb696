"""What an executor's Python worker keeps between tasks: its streams to bookies, and its clients of
brokers.

Spark reuses workers, so a worker makes its connections once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.ledger.direct_reads import DirectReads
from pulsarish.ledger.options import LedgerOptions
from pulsarish.runtime.background import Background, background, monotonic
from pulsarish.runtime.seams import ClientConnections, Clock, Tasks
from pulsarish.spark.access import BookieAccess, BrokerAccess

__all__ = ["avoid_bookies", "bookies_avoided", "broker_client", "direct_reads", "loop"]

_AVOIDED_SECONDS: Final = 60.0
"""This worker does not retry bookies that could not be read for this long."""
_avoided_until: list[float] = []
_BOOKIE_READS_MAX: Final = 4
"""Each token has its own connections.

A task reads a ledger and, for messages in chunks, its split's ledger and two before it.
"""


def avoid_bookies() -> None:
    """Stop reading from bookies for a while.

    They seem to be unreachable from here, and each task would wait for them again.
    """
    _avoided_until[:] = [monotonic() + _AVOIDED_SECONDS]


def bookies_avoided() -> bool:
    return bool(_avoided_until) and monotonic() < _avoided_until[0]


def loop() -> Background:
    """Return this process's event loop for blocking work."""
    return background()


@dataclass(frozen=True, slots=True)
class _BookieWorld:
    """A ``StreamWorld`` whose connections show what bookies ask for."""

    clock: Clock
    tasks: Tasks
    connections: ClientConnections


@dataclass(frozen=True, slots=True)
class _BookieReads:
    """Reads from bookies with one token, or none, and their connections."""

    reads: DirectReads
    connections: ClientConnections


_bookie_reads: Final[OrderedDict[BookieAccess, _BookieReads]] = OrderedDict()
"""The last used at the end."""


def direct_reads(addresses: Mapping[str, str], access: BookieAccess) -> DirectReads:
    """Return reads from bookies at these addresses (by instance id).

    Those that were not used lately are closed: each plan brings new tokens. Raises ``ConfigError``
    for certificates that cannot be used.
    """
    there = background()

    async def use() -> DirectReads:
        world = there.world
        found = _bookie_reads.pop(access, None)
        if found is None:
            connections = world.connections_of(access.security())
            found = _BookieReads(
                DirectReads(_BookieWorld(world.clock, world.tasks, connections), LedgerOptions()),
                connections,
            )
            found.reads.start()
        _bookie_reads[access] = found
        if len(_bookie_reads) > _BOOKIE_READS_MAX:
            _, oldest = _bookie_reads.popitem(last=False)
            oldest.reads.close()
            await world.release(oldest.connections)
        found.reads.learn(addresses)
        return found.reads

    return there.run(use())


@cache
def broker_client(brokers: BrokerAccess) -> AsyncClient:
    """Return the client of a cluster and role; it works in ``loop`` only.

    Raises the errors of ``Profile.arguments`` and of ``AsyncClient``.
    """
    there = background()

    async def make() -> AsyncClient:
        world = there.world
        return AsyncClient(
            brokers.service_url,
            clock=world.clock,
            random=world.random,
            tasks=world.tasks,
            connect=world.connections_of,
            handoff=there,
            **brokers.client_arguments(),
        )

    return there.run(make())
