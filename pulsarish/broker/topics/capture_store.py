"""Captured messages at the owner of the persistent topic: publish them, in the order of their
source.

The owner of the source sends the entries of a bundle one request after the other. A request that
comes late, after one of a later owner or a later one of the same owner, is refused: its entries
would come after newer ones.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from pulsarish.broker.clients.authorization import BROKER_ITSELF, Gate
from pulsarish.broker.clients.commands import (
    AccessMode,
    Answer,
    OpenProducer,
    ProducerClosed,
    Receipts,
    SendFailed,
)
from pulsarish.broker.clients.producer import Producer, PublishRequest
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.ownership.core import Theirs
from pulsarish.broker.ownership.lookup import Lookup
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.publishing.dedup_log import BatchPartlyStored
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.broker.topics.topic import Topic
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import (
    InvalidArgument,
    NotAllowedError,
    NotOwner,
    PulsarishError,
    ServiceNotReady,
)
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import CallFailed, StreamBroken, World
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["CaptureStore", "CaptureTurns"]

_TURN_SECONDS: Final = 60.0
"""How long the turn of a sender is remembered. No request is under way for so long."""


class CaptureTurns:
    """Which request is the newest of each bundle, by rule and persistent topic."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], dict[Bundle, tuple[tuple[int, int], float]]] = {}

    def take(self, into: str, rule: str, bundle: Bundle, turn: tuple[int, int], now: float) -> bool:
        """Return whether no newer request is known, and note this one.

        Args:
            turn: the epoch of the sender's ownership, and the number of its attempt.
            now: monotonic seconds.
        """
        self._forget(now)
        if not self.is_newest(into, rule, bundle, turn):
            return False
        self._newest.setdefault((into, rule), {})[bundle] = turn, now
        return True

    def is_newest(self, into: str, rule: str, bundle: Bundle, turn: tuple[int, int]) -> bool:
        """Return whether no newer request is known.

        Bundles are split and never merged. So a request for a part is newer than all for the whole.
        """
        low, high = bundle.edges
        for other, (newest, _) in self._newest.get((into, rule), {}).items():
            if other == bundle:
                if turn < newest:
                    return False
            else:
                first, last = other.edges
                if low <= first and last <= high:
                    return False
        return True

    def _forget(self, now: float) -> None:
        for key, found in list(self._newest.items()):
            for bundle in [each for each, (_, at) in found.items() if now - at > _TURN_SECONDS]:
                del found[bundle]
            if not found:
                del self._newest[key]


class _Outcomes:
    """The outcomes of the entries of one request, by their place in it."""

    def __init__(self, count: int) -> None:
        self.refused: dict[int, PulsarishError] = {}
        self.error: PulsarishError | None = None
        """Why the entries without an outcome have none."""
        self.done = asyncio.Event()
        self._landed = [False] * count
        self._left_count = count

    def landed(self, index: int, error: PulsarishError | None = None) -> None:
        """Note the outcome of an entry.

        An error that does not come from the entry itself is one of the whole request.
        """
        if error is not None and not isinstance(error, (InvalidArgument, NotAllowedError)):
            self.failed(error)
            return
        if error is not None:
            self.refused[index] = error
        self._landed[index] = True
        self._left_count -= 1
        if not self._left_count:
            self.done.set()

    def refused_for_good(self, index: int, error: PulsarishError) -> None:
        self.landed(index, NotAllowedError(str(error)))

    def failed(self, error: PulsarishError) -> None:
        self.error = self.error or error
        self.done.set()

    @property
    def first_open(self) -> int:
        """How many entries from the first one on have an outcome."""
        return self._landed.index(False) if self._left_count else len(self._landed)


@dataclass(slots=True)
class _Outlet:
    """Where the outcomes of one producer go, in the order of its entries."""

    outcomes: _Outcomes
    places: deque[int] = field(default_factory=deque)
    producer: Producer | None = None
    has_room: bool = True

    def put(self, answer: Answer) -> None:
        match answer:
            case Receipts():
                for _ in range(answer.count):
                    self.outcomes.landed(self.places.popleft())
            case SendFailed():
                self.outcomes.landed(self.places.popleft(), answer.error)
            case ProducerClosed():
                producer, error = self.producer, answer.error
                if (
                    isinstance(error, BatchPartlyStored)
                    and producer is not None
                    and producer.pushed == producer.landed
                ):
                    # Sending this one again cannot help, and those after it can be sent again.
                    self.outcomes.refused_for_good(self.places.popleft(), error)
                self.outcomes.failed(error)
            case _:
                pass

    def deliver(self, consumer_id: int, deliveries: object) -> None:
        raise AssertionError("a producer gets no messages")

    def withdraw(self, consumer_id: int) -> int:
        return 0

    def doubt(self) -> None:
        """Do nothing: it is in this process."""


class CaptureStore:
    """Has captured entries published by the owner of the persistent topic: this broker, or another
    one that is asked.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        topics: LoadedTopics,
        gate: Gate,
        lookup: Lookup,
        ownership: Ownership,
    ) -> None:
        self._world = world
        self._topics = topics
        self._gate = gate
        self._lookup = lookup
        self._ownership = ownership
        # What was found out about bundles of other brokers, until it proves wrong.
        self._owners: dict[Bundle, BrokerRegistration] = {}
        self._suspects: set[Bundle] = set()
        self._timeout_seconds = config.http_request_timeout_seconds
        self._turns = CaptureTurns()

    async def send(self, request: pb.CaptureRequest) -> pb.CaptureResponse:
        """Have the owner publish entries, whichever broker it is.

        Raises the errors of a lookup, and ``ServiceNotReady`` when the owner does not answer.
        """
        name = TopicName.parse(request.into)
        bundle = await self._topics.bundle(name)
        if self._topics.is_open(name) or self._topics.bundles.serves(bundle):
            return await self.store(request)
        owner = self._owners.get(bundle)
        if owner is None:
            owner = self._owners[bundle] = await self._owner(name, bundle)
        if owner.instance_id == self._ownership.registry.instance_id:
            del self._owners[bundle]
            return await self.store(request)
        request.admin_key = owner.admin_key
        try:
            data = await self._world.connections.call(
                owner.address,
                "broker.capture",
                request.SerializeToString(),
                timeout_seconds=self._timeout_seconds,
            )
        except (StreamBroken, TimeoutError, CallFailed) as error:
            self._forget(bundle)
            self._suspects.add(bundle)
            raise ServiceNotReady(
                f"broker {owner.broker_id} did not answer for {request.into}: {error}"
            ) from None
        answer = pb.CaptureResponse.FromString(data)
        if answer.code:
            self._forget(bundle)
        return answer

    def _forget(self, bundle: Bundle) -> None:
        _ = self._owners.pop(bundle, None)

    async def _owner(self, name: TopicName, bundle: Bundle) -> BrokerRegistration:
        """Return the owner of a persistent topic, also while this broker stops.

        A lookup evicts an owner that is gone, and has a bundle without an owner taken. Raises its
        errors.
        """
        await self._topics.bundles.left(bundle)
        if bundle not in self._suspects:
            found = await self._ownership.owner(bundle)
            if isinstance(found, Theirs):
                return found.registration
        self._suspects.discard(bundle)
        return (await self._lookup.find(name, authoritative=True)).broker

    async def store(self, request: pb.CaptureRequest) -> pb.CaptureResponse:
        """Publish entries. The answer says which of them have an outcome."""
        outcomes = _Outcomes(sum(len(run.entries) for run in request.runs))
        next_sequence_id = 0
        try:
            async with self._world.clock.timeout(self._timeout_seconds):
                topic = await self._topic(request)
                if not request.ask:
                    await self._store(request, topic, outcomes)
                elif (marks := topic.publishing.dedup_marks) is not None:
                    next_sequence_id = marks.last_sequence_id(request.ask) + 1
        except TimeoutError:
            outcomes.failed(
                ServiceNotReady(
                    f"{request.into} has not stored captured messages within "
                    f"{self._timeout_seconds:g} s"
                )
            )
        except PulsarishError as error:
            outcomes.failed(error)
        answer = pb.CaptureResponse(
            done=outcomes.first_open,
            next_sequence_id=next_sequence_id,
            refused=[
                pb.CaptureRefusal(index=index, code=error.code, message=str(error))
                for index, error in sorted(outcomes.refused.items())
                if index < outcomes.first_open
            ],
        )
        if outcomes.error is not None:
            answer.code, answer.message = outcomes.error.code, str(outcomes.error)
        return answer

    async def _topic(self, request: pb.CaptureRequest) -> Topic:
        """Return the persistent topic, loaded, and create it if it may be.

        While its bundle leaves, it stays open until what is captured in the bundle is stored.

        Raises ``NotOwner``, and the errors of a lookup and of a load.
        """
        name = TopicName.parse(request.into)
        if not self._topics.is_open(name) and not self._topics.bundles.serves(
            await self._topics.bundle(name)
        ):
            found = await self._lookup.find(name, authoritative=True)
            if found.broker.instance_id != self._ownership.registry.instance_id:
                raise NotOwner(f"broker {found.broker.broker_id} serves {name}, and not this one")
        on_created = self._gate.on_created("CreateTopic", BROKER_ITSELF, name)
        topic = await self._topics.topic(name.full, on_created=on_created)
        assert isinstance(topic, Topic)
        return topic

    async def _store(self, request: pb.CaptureRequest, topic: Topic, outcomes: _Outcomes) -> None:
        name = topic.name
        tenant, namespace, _ = request.rule.split("/", 2)
        bundle = Bundle(tenant, namespace, request.range)
        turn = request.epoch, request.attempt
        if not self._turns.take(
            name.full, request.rule, bundle, turn, self._world.clock.monotonic()
        ):
            raise _late(request)
        # Its rights and limits are those of any producer: exclusive ones, quotas, their number.
        # Where messages must be encrypted, each of those that were captured is looked at.
        opening = OpenProducer(
            0, 0, name.full, f"{request.sender} {bundle}", request.attempt, encrypts=True
        )
        connected, _ = await topic.open_producer(
            opening, _Outlet(outcomes), f"rule {request.rule}", lambda _turn, _name: None
        )
        try:
            await topic.wait_for_room()
            producers = self._producers(request, topic, outcomes)
            flights, marks = topic.publishing.flights, None
            try:
                # What an earlier request sent is stored or has failed before it is sent again.
                for producer in producers.values():
                    await flights.landed(producer.flight)
                # Nothing is awaited from here on: no later request can come between.
                if not self._turns.is_newest(name.full, request.rule, bundle, turn):
                    raise _late(request)
                if connected.closed:
                    raise connected.ended or _late(request)
                if (marks := topic.publishing.dedup_marks) is not None:
                    for producer in producers.values():
                        _ = marks.connect(producer.name, self._world.clock.wall_ms())
                self._publish(request, topic, producers)
                await outcomes.done.wait()
            finally:
                for producer in producers.values():
                    producer.closed = True
                    if marks is not None:
                        marks.disconnect(producer.name, self._world.clock.wall_ms())
                    flights.forget(producer, connected=producer.name in topic.producers)
        finally:
            topic.remove_producer(connected)

    def _producers(
        self, request: pb.CaptureRequest, topic: Topic, outcomes: _Outcomes
    ) -> dict[str, Producer]:
        """Return a producer for each name that signs entries, by name."""
        found: dict[str, Producer] = {}
        index = 0
        for run in request.runs:
            producer = found.get(run.producer)
            if producer is None:
                mine = _Outlet(outcomes)
                flight = topic.publishing.flights.of(run.producer)
                producer = found[run.producer] = mine.producer = Producer(
                    0, run.producer, 0, AccessMode.SHARED, mine, flight
                )
            outlet = producer.outlet
            assert isinstance(outlet, _Outlet)
            outlet.places.extend(range(index, index + len(run.entries)))
            index += len(run.entries)
        return found

    def _publish(
        self, request: pb.CaptureRequest, topic: Topic, producers: dict[str, Producer]
    ) -> None:
        now = self._world.clock.monotonic()
        for run in request.runs:
            entries = [memoryview(entry) for entry in run.entries]
            publishing = PublishRequest(
                len(entries), sum(map(len, entries)), lambda _request, _bytes: None, now
            )
            topic.publish(producers[run.producer], entries, publishing)


def _late(request: pb.CaptureRequest) -> PulsarishError:
    return ServiceNotReady(
        f"captured messages of {request.rule} came late: a newer request has come for "
        f"{request.into}"
    )
