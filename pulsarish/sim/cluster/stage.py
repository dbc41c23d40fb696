"""What the programs that use the simulated cluster share: counts, sessions on nodes, and a client
for each session.

Each program runs on a node of its own in sessions. In a session it makes a client, works for a
while and leaves: it closes the client, drops it without closing, or its node crashes. Then the next
session begins. The oracle gets every result at once, so a crash loses none.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.connection.broker_stream import StreamLimits
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import (
    AuthenticationError,
    ConsumerBusy,
    ProducerBusy,
    PulsarishError,
    UnknownError,
)
from pulsarish.runtime.seams import World
from pulsarish.security.credentials import CredentialsSource
from pulsarish.sim.cluster.cluster_lock import authentication_of
from pulsarish.sim.cluster.oracle import Oracle, Place
from pulsarish.sim.world.connections import client_connections
from pulsarish.sim.world.nodes import Node, NodeDied

__all__ = ["LAST_SECONDS", "Counts", "Stage", "place_of", "text_of"]

_LIMITS: Final = StreamLimits(
    heartbeat_seconds=2.0,
    silence_seconds=6.0,
    unanswered_seconds=1.0,
    ping_timeout_seconds=1.0,
    message_bytes=1_024,
)
_OPERATION_SECONDS: Final = 5.0
LAST_SECONDS: Final = 60.0
"""Time for any request of a client after everything has healed."""


@dataclass(slots=True)
class Counts:
    """Counts of what a run reached: a branch that no seed reaches is not tested."""

    ok: int = 0
    known_duplicates: int = 0
    unknown: int = 0
    failed: int = 0
    delivered: int = 0
    redelivered: int = 0
    receipts: int = 0
    read: int = 0
    sessions: int = 0
    refused: int = 0
    acquired: int = 0
    ledgers: int = 0
    trimmed: int = 0
    node_ends: int = 0
    copies_checked: int = 0
    cores_checked: int = 0
    orphans: int = 0
    orphans_deleted: int = 0
    missing_copies: int = 0
    seeks: int = 0
    policies: int = 0
    rules: int = 0
    """Rules of placement that were set."""
    rival_recoveries: int = 0
    topics_deleted: int = 0
    topics_renewed: int = 0
    resets: int = 0
    keyed: int = 0
    foreign: int = 0
    parcels: int = 0
    sifted: int = 0
    compacted: int = 0
    compacted_reads: int = 0
    compactions: int = 0
    fleeting: int = 0
    fleeting_sent: int = 0
    windows_full: int = 0
    streams_crowded: int = 0
    topics_full: int = 0
    brokers_full: int = 0
    bookies_full: int = 0
    caches_full: int = 0
    duels: int = 0
    indexes_rebuilt: int = 0
    journals_given_up: int = 0
    attacks: int = 0
    rights_ended: int = 0
    guests_refused: int = 0

    def add(self, other: Counts) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Stage:
    """What the programs of one run share. ``over`` is set when the load ends."""

    rng: random.Random
    url: str
    topic: str
    oracle: Oracle
    counts: Counts
    trace: Callable[[str], None]
    over: bool = False
    tokens_may_be_late: bool = False
    """Whether tokens of programs may expire before they are heard, during faults."""
    owner_may_be_stale: Callable[[], bool] = lambda: False
    """Return whether a broker may serve without knowing that it was evicted: its machine slept, and
    its clock stood still.
    """

    def excuses(self, error: PulsarishError) -> bool:
        """Return whether a token may have expired on its way: it lives for seconds here, as long
        as a connection may take to be heard.
        """
        is_late = isinstance(error, AuthenticationError) and "expired" in str(error)
        return is_late and self.tokens_may_be_late

    def refused(self, who: str, error: PulsarishError) -> None:
        """Note a refusal of the cluster.

        It is allowed during faults, if a program can act on the error.
        """
        self.counts.refused += 1
        self.trace(f"{who} refused: {type(error).__name__}: {error}")
        if self.excuses(error):
            return
        if isinstance(error, UnknownError) or not (
            error.retryable or isinstance(error, ProducerBusy | ConsumerBusy)
        ):
            self.oracle.report("defect", f"{who} was refused with {type(error).__name__}: {error}")

    @asynccontextmanager
    async def connected(
        self,
        world: World,
        seconds: float = _OPERATION_SECONDS,
        shown: CredentialsSource | None = None,
    ) -> AsyncGenerator[AsyncClient]:
        """Give a client for a session. At the end it is closed, or only shut down.

        ``shown``: its credentials, if they are not those of its process.
        """
        client = AsyncClient(
            self.url,
            clock=world.clock,
            random=world.random,
            tasks=world.tasks,
            connect=partial(client_connections, world.connections),
            stream_limits=_LIMITS,
            operation_timeout_seconds=seconds,
            connection_timeout_ms=2_000,
            authentication=authentication_of(world, shown),
        )
        try:
            yield client
            if self.rng.random() < 0.5:
                await client.close()
        finally:
            client.shutdown()

    async def keep_running(
        self, node: Node, who: str, session: Callable[[World], Awaitable[Any]]
    ) -> None:
        """Run session after session on a node until the load ends."""

        async def inside(world: World) -> None:
            await session(world)

        while not self.over:
            self.counts.sessions += 1
            try:
                await node.run(inside)
            except NodeDied:
                await asyncio.sleep(0.3)
            except PulsarishError as error:
                self.refused(who, error)
                await asyncio.sleep(self.rng.uniform(0.05, 0.5))


def place_of(message_id: MessageId) -> Place | None:
    """Return the place of a message id, or ``None`` for the id of a message that was stored
    before.
    """
    if message_id.ledger_id() < 0:
        return None
    return Place(
        message_id.partition(),
        message_id.ledger_id(),
        message_id.entry_id(),
        max(0, message_id.batch_index()),
    )


def text_of(message: Message) -> str:
    return message.data().decode().partition(" ")[0]
