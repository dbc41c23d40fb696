"""A topic whose messages have keys, compacted and read compacted during faults.

What must hold at any time: a reader that reads from the beginning to the end gets, of each key, the
last message that was known to be stored when the reading began, or a later one (``lost-key``),
unless the key may have been removed since. Messages come in the order of the log (``reorder``) and
as they were sent (``phantom``). After a last compaction at the end: of each key at most its last
message (``not-compacted``), the same in every reading (``disagreement``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.enums import InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import MessageTooBig, ProducerQueueIsFull, PulsarishError
from pulsarish.runtime.seams import HttpResponse, StreamBroken, World
from pulsarish.sim.cluster.operator import TOPICS, administer
from pulsarish.sim.cluster.oracle import Place
from pulsarish.sim.cluster.stage import LAST_SECONDS, Stage, place_of

__all__ = ["ANCHOR", "Compacting"]

ANCHOR: Final = "latest-anchor"
"""Acknowledges nothing, so that everything is kept, in some of the seeds."""
_NAME: Final = "latest"
_TOPIC: Final = f"persistent://public/default/{_NAME}"
_KEYS: Final = 8
_REMOVES: Final = 0.1
_PAUSE_SECONDS: Final = 0.15
_COMPACTION_PAUSE_SECONDS: Final = 1.0
_LAST_MESSAGES: Final = 12

Report = Callable[[str, str, str], None]


@dataclass(slots=True)
class _Sent:
    """A message that was sent. ``value``: empty for one that removes its key."""

    key: str
    value: str
    place: Place | None = None
    failed: bool = False


@dataclass(slots=True)
class Compacting:
    """``rng`` decides what its programs do. ``stage`` gives its counts, its trace and its end."""

    stage: Stage
    rng: random.Random
    brokers: list[str]
    report: Report
    anchored: bool
    sent: dict[str, _Sent] = field(default_factory=dict)
    """Messages by value. Removals are in ``removals``."""
    removals: list[_Sent] = field(default_factory=list)
    _number: int = 0
    _session: int = 0

    # -- before the faults

    async def subscribe_first(self, world: World) -> None:
        """Publish a first message of each key and compact once.

        From now on the anchor keeps a message, or it is kept until it is compacted.
        """
        async with self.stage.connected(world, LAST_SECONDS) as client:
            anchor = await client.subscribe(
                _TOPIC, ANCHOR, initial_position=InitialPosition.Earliest
            )
            producer = await client.create_producer(_TOPIC)
            for key in range(_KEYS):
                await producer.send(b"first", partition_key=f"k{key}")
            await self._compact_once(world)
            if not self.anchored:
                await anchor.unsubscribe()

    # -- during faults

    async def publish(self, world: World) -> None:
        rng = self.rng
        self._session += 1
        options: dict[str, Any] = {
            "batching_enabled": rng.random() < 0.5,
            "max_pending_messages": 30,
            "send_timeout_millis": 3_000,
        }
        async with self.stage.connected(world) as client:
            producer = await client.create_producer(_TOPIC, **options)
            ends = world.clock.monotonic() + rng.uniform(1.0, 8.0)
            while (
                not self.stage.over
                and world.clock.monotonic() < ends
                and not producer._publishing.is_closed
            ):
                for _ in range(rng.randrange(1, 6)):
                    self._send(producer)
                await world.clock.sleep(_PAUSE_SECONDS * 2 * rng.random())

    def _send(self, producer: Any) -> asyncio.Future[MessageId] | None:
        key = f"k{self.rng.randrange(_KEYS)}"
        self._number += 1
        sent = _Sent(
            key, "" if self.rng.random() < _REMOVES else f"c-{self._session}.{self._number}"
        )
        if sent.value:
            self.sent[sent.value] = sent
        else:
            self.removals.append(sent)
        try:
            future: asyncio.Future[MessageId] = producer.send_soon(
                sent.value.encode(), partition_key=key
            )
        except PulsarishError as error:
            self._answered(sent, error, None)
            return None
        future.add_done_callback(lambda done: self._answered(sent, done.exception(), done))
        return future

    def _answered(
        self, sent: _Sent, error: BaseException | None, done: asyncio.Future[MessageId] | None
    ) -> None:
        if error is None:
            assert done is not None
            sent.place = place_of(done.result())
            self.stage.trace(f"stored {sent.value or 'the removal'} of {sent.key} at {sent.place}")
        else:
            sent.failed = isinstance(error, MessageTooBig | ProducerQueueIsFull)

    async def compact(self, world: World) -> None:
        """Run one session of an operator who has the topic compacted now and then."""
        while not self.stage.over:
            try:
                await self._ask(world, "PUT")
            except (StreamBroken, TimeoutError) as error:
                self.stage.trace(f"asking for a compaction has no outcome: {error!r}")
            await world.clock.sleep(self.rng.expovariate(1 / _COMPACTION_PAUSE_SECONDS))

    async def read(self, world: World) -> None:
        """Run one session of a reader, which reads the whole topic again and again."""
        ends = world.clock.monotonic() + self.rng.uniform(1.0, 6.0)
        async with self.stage.connected(world) as client:
            while not self.stage.over and world.clock.monotonic() < ends:
                await self._read_all(client, "a compacted reader")
                await world.clock.sleep(self.rng.uniform(0.1, 1.0))

    async def _read_all(self, client: AsyncClient, who: str) -> dict[str, list[Place]]:
        """Read the whole topic.

        Return the places of each key's messages. What was known before the reading must be among
        them.
        """
        wanted = self._known()
        found: dict[str, list[Place]] = {}
        for topic in await client.get_topic_partitions(_TOPIC):
            queue = self.rng.choice((1, 10, 100))
            reader = await client.create_reader(
                topic, MessageId.earliest, receiver_queue_size=queue, is_read_compacted=True
            )
            last: Place | None = None
            while await reader.has_message_available():
                message = await reader.read_next()
                place = self._came(message, who)
                if last is not None and place <= last:
                    self.report(
                        "reorder", f"{who} got {place} after {last}", message.data().decode()
                    )
                last = place
                found.setdefault(message.partition_key(), []).append(place)
            await reader.close()
        self.stage.counts.compacted_reads += 1
        for key, sent in wanted.items():
            assert sent.place is not None
            places = found.get(key)
            if (places is None or places[-1] < sent.place) and not self._may_be_removed(
                key, sent.place
            ):
                came = f"{places[-1]} is the last that came" if places else "nothing of it came"
                self.report(
                    "lost-key",
                    f"{who} lacks {sent.value} of {key} at {sent.place}: {came}",
                    sent.value,
                )
        return found

    def _came(self, message: Message, who: str) -> Place:
        place, key, value = (
            place_of(message.message_id()),
            message.partition_key(),
            message.data().decode(),
        )
        assert place is not None
        self.stage.counts.compacted += 1
        sent = self.sent.get(value)
        if value not in ("", "first") and (sent is None or sent.key != key or sent.failed):
            self.report(
                "phantom",
                f"{who} got {value} of {key} at {place}, which no producer sent so",
                value,
            )
        return place

    def _known(self) -> dict[str, _Sent]:
        """Return the last message with a receipt of each key, unless that message removes the
        key.
        """
        known: dict[str, _Sent] = {}
        for sent in (*self.sent.values(), *self.removals):
            before = known.get(sent.key)
            if sent.place is not None and (
                before is None or before.place is None or sent.place > before.place
            ):
                known[sent.key] = sent
        return {key: sent for key, sent in known.items() if sent.value}

    def _may_be_removed(self, key: str, after: Place) -> bool:
        return any(
            sent.key == key and not sent.failed and (sent.place is None or sent.place > after)
            for sent in self.removals
        )

    # -- when everything has healed

    async def conclude(self, world: World) -> None:
        """Check that the topic has the last message of each key and nothing else.

        Raises ``TimeoutError`` when a compaction is never done.
        """
        async with self.stage.connected(world, LAST_SECONDS) as client:
            producer = await client.create_producer(
                _TOPIC, send_timeout_millis=int(LAST_SECONDS * 1000)
            )
            for _ in range(_LAST_MESSAGES):
                future = self._send(producer)
                if future is not None:
                    await future
            await self._compact_once(world)
            readings = [
                await self._read_all(client, f"compacted reading {number}") for number in range(2)
            ]
        if readings[0] != readings[1]:
            self.report(
                "disagreement",
                f"two compacted readings differ: {readings[0]} and {readings[1]}",
                "",
            )
        for key, places in readings[0].items():
            if len(places) > 1:
                self.report(
                    "not-compacted",
                    f"{key} has {len(places)} messages after a compaction: "
                    f"{', '.join(map(str, places))}",
                    "",
                )

    async def _compact_once(self, world: World) -> None:
        async with world.clock.timeout(LAST_SECONDS):
            while True:
                try:
                    if (await self._ask(world, "PUT")).status < 300 and await self._succeeds(world):
                        self.stage.counts.compactions += 1
                        return
                except StreamBroken as error:
                    self.stage.trace(f"a compaction has no outcome: {error}")
                await world.clock.sleep(0.5)

    async def _succeeds(self, world: World) -> bool:
        while True:
            response = await self._ask(world, "GET")
            status = (
                msgspec.json.decode(response.body)["status"] if response.status < 300 else "ERROR"
            )
            if status != "RUNNING":
                return bool(status == "SUCCESS")
            await world.clock.sleep(0.2)

    async def _ask(self, world: World, method: str) -> HttpResponse:
        target = f"{TOPICS}/{_NAME}/compaction"
        return await administer(self.stage, world, self.rng.choice(self.brokers), method, target)
