"""Producers of one name: which opening is a later one of the producer that is connected, and what
another client is told.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pulsarish.broker.binary.codec import session_command
from pulsarish.broker.clients.commands import NO_INSTANCE, AccessMode, OpenProducer
from pulsarish.broker.clients.meters import Meter
from pulsarish.broker.clients.outbox import Outbox
from pulsarish.broker.clients.producer import Producer
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.store import Effective, broker_defaults
from pulsarish.broker.policies.topic_limits import TopicLimits
from pulsarish.broker.publishing.dedup import Deduplication
from pulsarish.broker.publishing.producers import TopicProducers
from pulsarish.broker.sessions.grpc_codec import publish_commands
from pulsarish.model.errors import ProducerBusy, ProducerFenced
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.clock import SystemClock
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire._pb import pulsar_pb2

NAME = TopicName.parse("persistent://public/default/t")
MINE, ANOTHER = 11, 22


class Line:
    """A connection of a client."""

    def __init__(self) -> None:
        self.doubts = 0
        self.outbox = Outbox(delivery_bytes_max=1, changed=lambda: None, doubt=self._doubt)

    def _doubt(self) -> None:
        self.doubts += 1


class Topic:
    """Where producers connect; with deduplication."""

    name = NAME
    producer_epoch = -1

    def __init__(self) -> None:
        config, clock = BrokerConfig(), SystemClock()
        self.dedup_marks = Deduplication(producers_max=10, inactivity_ms=1_000)
        world: Any = SimpleNamespace(clock=clock, random=random.Random(1))
        limits = TopicLimits(NAME, config, clock, Effective(broker_defaults(config)), Meter(0.0))
        self.producers = TopicProducers(self, world, config, limits)

    async def set_producer_epoch(self, epoch: int) -> None:
        self.producer_epoch = epoch

    def check_publishable(self) -> None:
        pass

    async def note_used(self) -> None:
        pass

    async def open(self, line: Line, epoch: int, producer_id: int = 1, **more: Any) -> Producer:
        command = OpenProducer(1, producer_id, NAME.full, "same", epoch, **more)
        return await self.producers.open(command, line.outbox, "", lambda _turn, _name: None)


def play(scenario: Callable[[Topic, Line, Line], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario(Topic(), Line(), Line())

    asyncio.run(run())


@pytest.mark.parametrize(
    ("there", "comes", "is_replaced"),
    [
        ({"instance": MINE}, {"instance": MINE}, True),
        ({"instance": MINE}, {"instance": ANOTHER}, False),
        ({"instance": MINE}, {}, False),
        ({}, {"instance": MINE}, False),
        ({}, {}, True),
        ({"instance": None}, {"instance": None}, False),
        ({"instance": None}, {}, False),
        ({"instance": MINE}, {"instance": ANOTHER, "takes_over": True}, True),
        ({"instance": None}, {"instance": ANOTHER, "takes_over": True}, True),
    ],
)
def test_an_opening_with_a_higher_epoch_replaces_its_own_instance(
    there: dict[str, Any], comes: dict[str, Any], is_replaced: bool
) -> None:
    async def scenario(topic: Topic, first: Line, second: Line) -> None:
        older = await topic.open(first, 3, **there)
        for epoch in (0, 3):
            with pytest.raises(ProducerBusy, match="'same' is already connected"):
                await topic.open(second, epoch, **comes)
        assert first.doubts == 2, "a client that may be dead is looked at"
        if is_replaced:
            newer = await topic.open(second, 4, **comes)
            assert topic.producers.by_name == {"same": newer}
            assert isinstance(older.ended, ProducerBusy)
        else:
            with pytest.raises(ProducerBusy):
                await topic.open(second, 1_000, **comes)
            assert topic.producers.by_name == {"same": older}
            assert not older.closed

    play(scenario)


def test_one_connection_replaces_its_own_producer_by_its_id() -> None:
    async def scenario(topic: Topic, line: Line, _other: Line) -> None:
        older = await topic.open(line, 0, instance=None)
        assert await topic.open(line, 0, instance=None) is older
        with pytest.raises(ProducerBusy):
            await topic.open(line, 1, producer_id=2, instance=None)
        newer = await topic.open(line, 1, instance=None)
        assert newer is not older
        assert line.outbox.answers == type(line.outbox.answers)(), "its client asked for it"

    play(scenario)


@pytest.mark.parametrize("mode", [AccessMode.EXCLUSIVE, AccessMode.WAIT_FOR_EXCLUSIVE])
def test_an_exclusive_producer_of_another_client_does_not_come_back_as_this_one(
    mode: AccessMode,
) -> None:
    async def scenario(topic: Topic, first: Line, second: Line) -> None:
        older = await topic.open(first, 0, instance=MINE, access_mode=mode)
        with pytest.raises(ProducerBusy):
            await topic.open(second, 5, instance=ANOTHER, access_mode=mode)
        assert not older.closed
        fencing = AccessMode.EXCLUSIVE_WITH_FENCING
        newer = await topic.open(second, 0, instance=ANOTHER, access_mode=fencing)
        assert topic.producers.by_name == {"same": newer}
        assert isinstance(older.ended, ProducerFenced)

    play(scenario)


@pytest.mark.parametrize("another", [ANOTHER, None, NO_INSTANCE])
def test_who_comes_back_after_another_had_its_name_is_fenced_with_deduplication(
    another: int | None,
) -> None:
    """The other one used the sequence ids of what was not acknowledged."""

    async def scenario(topic: Topic, first: Line, second: Line) -> None:
        mine = await topic.open(first, 0, instance=MINE)
        topic.producers.remove(mine)
        mine = await topic.open(first, 1, instance=MINE, was_open=True)
        topic.producers.remove(mine)
        topic.producers.remove(await topic.open(second, 0, instance=another))
        with pytest.raises(ProducerFenced, match="another producer 'same' was connected"):
            await topic.open(first, 2, instance=MINE, was_open=True)
        assert not topic.producers.by_name
        # One that was never open has sent nothing, and one that takes over knows what it does.
        topic.producers.remove(await topic.open(first, 3, instance=MINE))
        topic.producers.remove(await topic.open(second, 0, instance=another))
        await topic.open(first, 4, instance=MINE, was_open=True, takes_over=True)
        topic.dedup_marks.check()

    play(scenario)


def test_a_new_owner_knows_of_no_other_instance() -> None:
    async def scenario(topic: Topic, first: Line, _second: Line) -> None:
        topic.dedup_marks.restore({"same": 7}, 0)
        await topic.open(first, 4, instance=MINE, was_open=True)

    play(scenario)


def test_what_the_protocols_say_of_an_instance() -> None:
    sent = pb.OpenProducer(instance=2**64 - 1, takes_over=True, was_open=True)
    (command,) = publish_commands(pb.PublishRequest(open=[sent]))
    assert isinstance(command, OpenProducer)
    assert (command.instance, command.takes_over, command.was_open) == (2**64 - 1, True, True)
    (command,) = publish_commands(pb.PublishRequest(open=[pb.OpenProducer()]))
    assert isinstance(command, OpenProducer)
    assert (command.instance, command.takes_over, command.was_open) == (NO_INSTANCE, False, False)
    for by_user, instance in ((None, None), (True, None), (False, NO_INSTANCE)):
        producer = pulsar_pb2.Producer(topic="t", producer_id=1, request_id=1)
        if by_user is not None:
            producer.user_provided_producer_name = by_user
        frame = pulsar_pb2.Command(type=5, producer=producer)
        opening = session_command(frame)
        assert isinstance(opening, OpenProducer)
        assert opening.instance is instance
        assert not opening.takes_over
