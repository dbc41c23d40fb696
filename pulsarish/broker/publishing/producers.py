"""The producers connected to a topic: how they connect, wait for access, replace their older
connection, and leave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pulsarish.broker.clients.access_modes import Access, Admission, Turn
from pulsarish.broker.clients.commands import AccessMode, OpenProducer
from pulsarish.broker.clients.consumer import Outlet
from pulsarish.broker.clients.producer import Flights, Producer
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.topic_limits import TopicLimits
from pulsarish.broker.publishing.dedup import Deduplication
from pulsarish.model.errors import ProducerBusy, ProducerFenced, PulsarishError, ServiceNotReady
from pulsarish.model.topic_name import TopicName, check_name
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

__all__ = ["PublishedTopic", "Queued", "TopicProducers"]

_log = get_logger("broker.producing")

Queued = Callable[[Turn, str], None]
"""Called with the turn and the name of a producer that has to wait for exclusive access.

The turn can be ended.
"""


def _is_successor(command: OpenProducer, outlet: Outlet, older: Producer) -> bool:
    """Return whether an opening is a later one of the producer that has its name, or says that it
    takes over.

    What else has the name waits until that one has left.
    """
    if command.epoch <= older.epoch:
        return False
    if older.outlet is outlet and older.producer_id == command.producer_id:
        return True
    is_same = command.instance is not None and command.instance == older.instance
    return is_same or command.takes_over


class PublishedTopic(Protocol):
    """What ``TopicProducers`` needs of its topic."""

    @property
    def name(self) -> TopicName: ...

    @property
    def dedup_marks(self) -> Deduplication | None: ...

    @property
    def producer_epoch(self) -> int: ...

    async def set_producer_epoch(self, epoch: int) -> None: ...

    def check_publishable(self) -> None:
        """Raise the error that prevents publishing, if there is one."""
        ...

    async def note_used(self) -> None:
        """Record that the topic is in use. Raises why nothing can be published."""
        ...


class TopicProducers:
    """The producers connected to one topic."""

    __slots__ = ("_config", "_topic", "_topic_limits", "_world", "access", "by_name", "flights")

    def __init__(
        self, topic: PublishedTopic, world: World, config: BrokerConfig, topic_limits: TopicLimits
    ) -> None:
        self.by_name: dict[str, Producer] = {}
        self.flights = Flights(topic.name.full, world.clock, config.producer_open_wait_seconds)
        self.access = Access(topic.name.full)
        self._topic = topic
        self._world = world
        self._config = config
        self._topic_limits = topic_limits

    async def open(
        self, command: OpenProducer, outlet: Outlet, address: str, queued: Queued
    ) -> Producer:
        """Connect a producer, after waiting for its turn if it has to.

        Raises ``ProducerBusy`` (another producer of the name is connected, or an exclusive one, or
        the limit is reached), ``ProducerFenced``, ``TopicTerminated``, ``NotAllowedError`` when
        messages must be encrypted, ``ServiceNotReady`` when earlier entries of the name have no
        outcome in time, the error of an exceeded backlog quota, or why the topic is closed.
        """
        self._topic.check_publishable()
        self._topic_limits.check_encryption(encrypts=command.encrypts or command.is_of_broker)
        name = check_name(
            "producer",
            command.name
            or f"{self._config.cluster_name}-{self._world.random.getrandbits(64):016x}",
        )
        older = self.by_name.get(name)
        # In another access mode it is a new producer: a shared one that returned as an exclusive
        # one would not be alone.
        wants_shared = command.access_mode is AccessMode.SHARED
        comes_back = (
            older is not None
            and _is_successor(command, outlet, older)
            and older.exclusive is not wants_shared
        )
        # A fencing producer may have the name of one that is still connected, for example after its
        # program was restarted.
        fences_its_name = (
            command.access_mode is AccessMode.EXCLUSIVE_WITH_FENCING and not comes_back
        )
        counts_older = older is not None and fences_its_name
        others_count = len(self.by_name) - (older is not None and not counts_older)
        other = next(
            (each for each in self.by_name.values() if each is not older or counts_older), None
        )
        admission = self.access.judge(
            command, other, others_count, self._topic.producer_epoch, comes_back=comes_back
        )
        if admission is Admission.IN_TURN:
            self._topic_limits.check_producer(len(self.by_name) + self.access.waiting_count)
            turn = self.access.enqueue(name)
            queued(turn, name)
            try:
                await turn.come()
                self._topic.check_publishable()
                self.access.check_epoch(command, self._topic.producer_epoch)
                return await self._connect(command, name, outlet, address)
            finally:
                self.access.leave(turn)
                self._next_turn()
        if admission is Admission.AFTER_CLOSING_ALL:
            fenced = ProducerFenced(
                f"producer {name!r} has fenced all others of topic {self._topic.name}"
            )
            self.access.end(fenced)
            for each in [
                each for each in self.by_name.values() if each is not older or fences_its_name
            ]:
                each.close(fenced)
                self.remove(each)
        return await self._connect(command, name, outlet, address)

    async def _connect(
        self, command: OpenProducer, name: str, outlet: Outlet, address: str
    ) -> Producer:
        older = self.by_name.get(name)
        if older is not None:
            if (
                older.outlet is outlet
                and older.producer_id == command.producer_id
                and older.epoch == command.epoch
            ):
                return older
            if not _is_successor(command, outlet, older):
                older.outlet.doubt()
                raise ProducerBusy(
                    f"producer {name!r} is already connected to {self._topic.name}; producer "
                    "names must be unique on a topic"
                )
            if older.outlet is not outlet or older.producer_id != command.producer_id:
                older.close(
                    ProducerBusy(f"a newer connection of producer {name!r} has replaced this one")
                )
            self._remove(older)
        else:
            self._topic_limits.check_producer(len(self.by_name))
        marks = self._topic.dedup_marks
        if (
            marks is not None
            and command.was_open
            and not command.takes_over
            and marks.was_another(name, command.instance)
        ):
            # What it sends again would be taken for what the other one sent.
            raise ProducerFenced(
                f"another producer {name!r} was connected to {self._topic.name} meanwhile, and "
                "with deduplication a sequence id counts once: close this one, and make a new one"
            )
        flight = self.flights.of(name)
        now_ms = self._world.clock.wall_ms()
        producer = Producer(
            command.producer_id,
            name,
            command.epoch,
            command.access_mode,
            outlet,
            flight,
            command.properties,
            address,
            now_ms,
            instance=command.instance,
            is_of_broker=command.is_of_broker,
        )
        producer.came.started = self._world.clock.monotonic()
        # Add it before the wait, so that a third producer with this name is checked against it.
        self.by_name[name] = producer
        if marks is not None:
            marks.connect(name, producer.connected_ms, producer.instance)
        try:
            await self.flights.landed(flight)
            await self._topic.note_used()
            if producer.exclusive:
                await self._raise_epoch(producer, command)
        except PulsarishError:
            self.remove(producer)
            raise
        if producer.closed:
            # It was closed while it waited: by a newer connection of its name, by a fencing
            # producer, by the backlog quota, or because deduplication was switched on.
            raise producer.ended or ServiceNotReady(
                f"producer {name!r} of {self._topic.name} was closed while it was being opened"
            )
        return producer

    async def _raise_epoch(self, producer: Producer, command: OpenProducer) -> None:
        topic = self._topic
        producer.topic_epoch = self.access.next_epoch(command, topic.producer_epoch)
        await topic.set_producer_epoch(producer.topic_epoch)
        _log.info(
            "exclusive producer",
            topic=self._topic.name,
            producer=producer.name,
            epoch=producer.topic_epoch,
        )

    def remove(self, producer: Producer) -> None:
        """Remove a producer that its client closed or lost.

        Its entries in flight still get an outcome, but no receipt is sent.
        """
        self._remove(producer)
        self._next_turn()

    def _remove(self, producer: Producer) -> None:
        producer.closed = True
        if self.by_name.get(producer.name) is producer:
            del self.by_name[producer.name]
            if (marks := self._topic.dedup_marks) is not None:
                marks.disconnect(producer.name, self._world.clock.wall_ms())
            self.flights.forget(producer, connected=False)

    def _next_turn(self) -> None:
        if not self.by_name:
            self.access.next_turn()

    def close_all(self, error: PulsarishError, *, waiting: bool) -> None:
        """Close all producers with ``error``; with ``waiting`` also those that wait for exclusive
        access.
        """
        if waiting:
            self.access.end(error)
        for producer in list(self.by_name.values()):
            producer.close(error)
            self.remove(producer)

    def check(self) -> None:
        for name, producer in self.by_name.items():
            assert producer.name == name
            producer.check()
        exclusive = [
            producer
            for producer in self.by_name.values()
            if producer.access_mode is not AccessMode.SHARED
        ]
        assert not exclusive or len(self.by_name) == 1, "an exclusive producer is not alone"
