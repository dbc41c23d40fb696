"""Guests of a locked cluster: programs whose rights end during the run, and one that never had any.

One loses its role (``revoked``), one its grant (``ungranted``), one gets no new token when the last
one expires (``outdated``). All publish and consume on a topic to which a ``herald`` publishes, too.
An ``impostor`` shows forged tokens to brokers, and those of a client to bookies.

Within the bounds of ``docs/security.md``, counted from when no broker is asleep, what is published
later does not come to a guest without rights (``delivered-without-rights``), and what it publishes
is neither taken nor delivered (``taken-without-rights``). A guest with rights is not refused
(``refused-with-rights``), and an impostor never gets in (``impostor``).

When everything has healed each of the three ends once more. Half a second is added to each bound
for what is under way, and what comes later is judged. Of a grant that ends during faults only what
comes after healing is judged: a broker that does not hear the metadata cannot know of its end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.api.asyncio_producer import AsyncProducer
from pulsarish.client.enums import ConsumerType
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import (
    AuthenticationError,
    AuthorizationError,
    PulsarishError,
    ServiceNotReady,
    Timeout,
)
from pulsarish.runtime.seams import StreamBroken, World
from pulsarish.sim.cluster.cluster import SimCluster
from pulsarish.sim.cluster.cluster_lock import APPLICATION, FORGERIES, ClusterLock
from pulsarish.sim.cluster.operator import NAMESPACE, TOPICS, administer
from pulsarish.sim.cluster.stage import LAST_SECONDS, Stage, text_of
from pulsarish.sim.world.connections import SimConnections
from pulsarish.wire._pb.bookie_pb2 import RecoveryReadRequest, RecoveryReadResponse

__all__ = ["GUESTS", "IMPOSTOR", "SUBSCRIPTIONS", "EndedRights"]

_NAME: Final = "guests"
_TOPIC: Final = f"persistent://public/default/{_NAME}"
REVOKED: Final = "revoked"
UNGRANTED: Final = "ungranted"
OUTDATED: Final = "outdated"
IMPOSTOR: Final = "impostor"
GUESTS: Final = (REVOKED, UNGRANTED, OUTDATED)
_LAST: Final = tuple(f"last-{name}" for name in GUESTS)
"""The roles of those that end once all is well."""
SUBSCRIPTIONS: Final = (*GUESTS, *_LAST)
_BOUND_SECONDS: Final = {REVOKED: 2.0, UNGRANTED: 1.0, OUTDATED: 0.5}
_ON_THE_WAY_SECONDS: Final = 0.5
"""Added to each bound: what was sent before may still be under way."""
_LOOK_SECONDS: Final = 0.1
_PAUSE_SECONDS: Final = 0.1
_RECEIVE_MS: Final = 100
_SESSION_SECONDS: Final = 20.0
_LIFE_SECONDS: Final = 5.0
"""Life of the tokens that one day are not made again."""
_REFUSED: Final = (AuthenticationError, AuthorizationError)

Report = Callable[[str, str, str], None]


@dataclass(slots=True)
class _Rights:
    """When the rights of a role end, in seconds of the simulation; ``None``: not yet."""

    may_be_refused: bool = False
    ended_at: float | None = None
    settled_at: float | None = None
    """From here on a broker that serves the role breaks a promise."""


@dataclass(slots=True)
class EndedRights:
    """``rng`` decides what its programs do. ``stage`` gives its counts, its trace and its end."""

    stage: Stage
    rng: random.Random
    cluster: SimCluster
    lock: ClusterLock
    load_seconds: float
    report: Report
    _rights: dict[str, _Rights] = field(default_factory=dict)
    _sent: dict[str, float] = field(default_factory=dict)
    """When each message was sent."""
    _interrupted_at: float = 0.0
    _count: int = 0

    def __post_init__(self) -> None:
        self._rights = {role: _Rights() for role in SUBSCRIPTIONS}
        for role in (*GUESTS[:2], *_LAST[:2]):
            self.lock.show(role, self.lock.tokens_of(role))
        for role in (OUTDATED, _LAST[2]):
            self.lock.show(
                role,
                self.lock.tokens_of(
                    role,
                    life_seconds=_LIFE_SECONDS,
                    is_made_again=partial(self._has_rights, role),
                ),
            )
        self.lock.show(IMPOSTOR, self.lock.tokens_of(APPLICATION))

    def _has_rights(self, role: str) -> bool:
        return not self._rights[role].may_be_refused

    def programs(self) -> dict[str, Callable[[World], Awaitable[None]]]:
        """Return what runs during the load, by the names of the nodes."""
        return {
            "herald": self._herald,
            "granter": self._take_grant_away,
            IMPOSTOR: self._intrude,
            **{role: partial(self._visit, who=role) for role in GUESTS},
        }

    def _now(self) -> float:
        return self.cluster.sim.loop.time()

    # -- rights

    async def grant(self, world: World) -> None:
        """Grant what programs need, before any of them begins."""
        for role in (APPLICATION, REVOKED, OUTDATED, _LAST[0], _LAST[2]):
            await self._change(world, "POST", f"{NAMESPACE}/permissions/{role}")
        for role in (UNGRANTED, _LAST[1]):
            await self._change(world, "POST", f"{TOPICS}/{_NAME}/permissions/{role}")

    async def _change(self, world: World, method: str, target: str) -> None:
        """Change a grant, until a broker has answered that it is done."""
        body = ["produce", "consume"] if method == "POST" else None
        while True:
            broker = self.rng.choice(self.cluster.brokers)
            try:
                response = await administer(self.stage, world, broker, method, target, body)
            except (StreamBroken, TimeoutError) as error:
                self.stage.trace(f"{method} {target} has no outcome: {error!r}")
            else:
                # A second try finds that the first one took the grant away.
                if response.status < 300 or (method == "DELETE" and response.status == 412):
                    return
            await world.clock.sleep(0.2)

    def start(self) -> None:
        """Plan the ends of the load, and look every 0.1 s whether a bound has passed."""
        sim = self.cluster.sim
        for role in (REVOKED, OUTDATED):
            at = self.load_seconds * self.rng.uniform(0.2, 0.7)
            sim.at(at, partial(self._end, role))
        self._look()

    def _end(self, role: str) -> None:
        """Take the role, or its next token, away."""
        self.lock.source_of_role(role)()
        self.stage.trace(f"the rights of {role} end")
        self.stage.counts.rights_ended += 1
        self._rights[role].may_be_refused = True
        if role.endswith(REVOKED):
            self.lock.revoke(role)
            self._rights[role].ended_at = self._now()

    def _look(self) -> None:
        now, nodes = self._now(), self.cluster.sim.nodes
        if any(nodes[name].paused for name in self.cluster.brokers):
            self._interrupted_at = now
        for role in (OUTDATED, _LAST[2]):
            rights = self._rights[role]
            if rights.may_be_refused and rights.ended_at is None:
                ends_at = self.lock.last_end_seconds(role)
                if ends_at <= now:
                    rights.ended_at = now
        for role, rights in self._rights.items():
            if rights.ended_at is None or rights.settled_at is not None:
                continue
            bound = _BOUND_SECONDS[role.removeprefix("last-")] + _ON_THE_WAY_SECONDS
            if now - max(rights.ended_at, self._interrupted_at) > bound:
                rights.settled_at = now
                self.stage.trace(f"the rights of {role} have ended")
        self.cluster.sim.at(_LOOK_SECONDS, self._look)

    async def _take_grant_away(self, world: World) -> None:
        """Take the grant of ``ungranted`` away, once, in the midst of the load."""
        if not self._rights[UNGRANTED].may_be_refused:
            await world.clock.sleep(self.load_seconds * self.rng.uniform(0.2, 0.7))
            self._end(UNGRANTED)
        await self._change(world, "DELETE", f"{TOPICS}/{_NAME}/permissions/{UNGRANTED}")
        while not self.stage.over:
            await world.clock.sleep(_LOOK_SECONDS)

    # -- during faults

    async def _herald(self, world: World) -> None:
        """Publish what guests may get."""
        async with self.stage.connected(world) as client:
            producer = await client.create_producer(
                _TOPIC, batching_enabled=False, send_timeout_millis=3_000
            )
            ends = world.clock.monotonic() + self.rng.uniform(2.0, 8.0)
            while not self.stage.over and world.clock.monotonic() < ends:
                self._send(producer, "herald")
                await world.clock.sleep(_PAUSE_SECONDS)

    async def _visit(self, world: World, who: str) -> None:
        """Run one session of a guest, which publishes and consumes as long as it may."""
        try:
            async with self.stage.connected(world) as client:
                consumer = await client.subscribe(_TOPIC, who, consumer_type=ConsumerType.Shared)
                producer = await client.create_producer(
                    _TOPIC, batching_enabled=False, send_timeout_millis=3_000
                )
                ends = world.clock.monotonic() + _SESSION_SECONDS
                while not self.stage.over and world.clock.monotonic() < ends:
                    self._send(producer, who)
                    await self._receive(consumer, who)
                    await world.clock.sleep(_PAUSE_SECONDS)
        except _REFUSED as error:
            self._refused(who, error)
            await world.clock.sleep(0.3)

    async def _intrude(self, world: World) -> None:
        """Try to get in with forged tokens, and at a bookie with those of a client."""
        kind = self.rng.choice(FORGERIES)
        try:
            async with self.stage.connected(
                world, shown=self.lock.forged(APPLICATION, kind)
            ) as client:
                if self.rng.random() < 0.5:
                    await client.create_producer(_TOPIC)
                else:
                    await client.subscribe(_TOPIC, IMPOSTOR)
        except AuthenticationError:
            self.stage.counts.guests_refused += 1
        else:
            self.report("impostor", f"a client with a forged token was served: {kind}", "")
        await self._ask_bookie(world)
        await world.clock.sleep(0.5)

    async def _ask_bookie(self, world: World) -> None:
        """Ask a bookie for entries, with the token of an application, or as a job that may read
        another ledger.
        """
        bookie = self.rng.choice(self.cluster.bookies)
        request = RecoveryReadRequest(ledger=1)
        refusals, connections = [AuthenticationError.code], world.connections
        if self.rng.random() < 0.5:
            assert isinstance(connections, SimConnections)
            connections = connections.showing(self.lock.reader(2))
            # By the role; first by its token's end, where the clock of the bookie is ahead.
            refusals.append(AuthorizationError.code)
        try:
            answer = await connections.call(
                f"{bookie}:3181",
                "bookie.recovery_read",
                request.SerializeToString(),
                timeout_seconds=1.0,
            )
        except (StreamBroken, TimeoutError) as error:
            self.stage.trace(f"{bookie} does not answer an impostor: {error!r}")
            return
        code = RecoveryReadResponse.FromString(answer).code
        if code not in refusals:
            self.report("impostor", f"{bookie} answered a client with code {code}", "")

    def _refused(self, who: str, error: PulsarishError) -> None:
        self.stage.counts.guests_refused += 1
        self.stage.trace(f"{who} refused: {type(error).__name__}: {error}")
        if not self._rights[who].may_be_refused and not self.stage.excuses(error):
            self.report("refused-with-rights", f"{who} was refused with {error}", "")

    def _send(self, producer: AsyncProducer, who: str) -> None:
        self._count += 1
        value, at = f"{who}.{self._count}", self._now()
        self._sent[value] = at

        def answered(done: asyncio.Future[MessageId]) -> None:
            if done.exception() is None and self._is_late(who, at):
                self.report(
                    "taken-without-rights", f"{value}, sent at {at:.2f}, has a receipt", value
                )

        try:
            producer.send_soon(value.encode()).add_done_callback(answered)
        except PulsarishError as error:
            self.stage.trace(f"not sent {value}: {error}")

    async def _receive(self, consumer: AsyncConsumer, who: str) -> None:
        try:
            message = await consumer.receive(timeout_millis=_RECEIVE_MS)
        except Timeout:
            return
        self._came(text_of(message), who)
        await consumer.acknowledge(message)

    def _came(self, value: str, who: str) -> None:
        sent_at = self._sent[value]
        self.stage.trace(f"delivered {value} to {who}")
        if self._is_late(who, sent_at):
            what = f"{value}, sent at {sent_at:.2f}, came to {who}"
            self.report("delivered-without-rights", what, value)
        sender = value.partition(".")[0]
        if self._is_late(sender, sent_at):
            what = f"{value}, sent at {sent_at:.2f}, was stored"
            self.report("taken-without-rights", what, value)

    def _is_late(self, who: str, sent_at: float) -> bool:
        rights = self._rights.get(who)
        return rights is not None and rights.settled_at is not None and sent_at > rights.settled_at

    # -- when everything has healed

    async def conclude(self, world: World) -> None:
        """Let rights end while all is well, and check that guests without rights stay out."""
        await self._change(world, "DELETE", f"{TOPICS}/{_NAME}/permissions/{UNGRANTED}")
        self._rights[UNGRANTED].ended_at = self._now()
        await asyncio.gather(*(self._ends_once_more(world, role) for role in _LAST))
        while any(self._rights[role].settled_at is None for role in GUESTS):
            await world.clock.sleep(_LOOK_SECONDS)
        for role in GUESTS:
            await self._stays_out(world, role)

    async def _ends_once_more(self, world: World, role: str) -> None:
        async with (
            self.stage.connected(world, LAST_SECONDS, self.lock.source_of_role(role)) as guest,
            self.stage.connected(world, LAST_SECONDS) as client,
        ):
            consumer = await guest.subscribe(_TOPIC, role, consumer_type=ConsumerType.Shared)
            producer = await guest.create_producer(
                _TOPIC, batching_enabled=False, send_timeout_millis=3_000
            )
            herald = await client.create_producer(
                _TOPIC, batching_enabled=False, send_timeout_millis=3_000
            )

            async def both(seconds: float, until: Callable[[], bool]) -> None:
                ends = world.clock.monotonic() + seconds
                while world.clock.monotonic() < ends and not until():
                    self._send(herald, "herald")
                    self._send(producer, role)
                    try:
                        await self._receive(consumer, role)
                    except _REFUSED as error:
                        self._refused(role, error)
                    except PulsarishError as error:
                        self.stage.trace(f"{role} got nothing: {error}")
                    await world.clock.sleep(_PAUSE_SECONDS)

            await both(1.0, lambda: False)
            if role.endswith(UNGRANTED):
                self._rights[role].may_be_refused = True
                await self._change(world, "DELETE", f"{TOPICS}/{_NAME}/permissions/{role}")
                self._rights[role].ended_at = self._now()
            else:
                self._end(role)
            await both(LAST_SECONDS, lambda: self._rights[role].settled_at is not None)
            await both(2.0, lambda: False)
        await self._stays_out(world, role)

    async def _stays_out(self, world: World, role: str) -> None:
        """Check that a role without rights gets neither a producer nor a consumer."""
        source = self.lock.source_of_role(role)
        opens: tuple[Callable[[], Awaitable[object]], ...]
        async with self.stage.connected(world, LAST_SECONDS, source) as guest:
            opens = (
                lambda: guest.create_producer(_TOPIC),
                lambda: guest.subscribe(_TOPIC, role, consumer_type=ConsumerType.Shared),
            )
            for each in opens:
                try:
                    await each()
                except _REFUSED:
                    self.stage.counts.guests_refused += 1
                except ServiceNotReady as error:
                    self.stage.trace(f"{role} was not answered: {error}")
                else:
                    self.report("taken-without-rights", f"{role} was let in again", "")
