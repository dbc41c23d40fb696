"""Mutants of asyncio programs that cancel what they await."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from pulsarish.client.api.asyncio_producer import AsyncProducer
from pulsarish.client.connection.reconnect import Reconnector
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.consumer.multi_consumer import MultiConsumer
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import PulsarishError
from pulsarish.sim.workloads.cancellations import run_cancellations
from pulsarish.sim.workloads.safeguard import Mutant, Patch, replacing

__all__ = ["CANCELLATION_MUTANTS"]


def _dropped(_was: object) -> object:
    def put_back(_queue: MessageQueue, _messages: Sequence[Message]) -> None:
        return

    return put_back


def _overtaking(_was: object) -> object:
    return AsyncProducer._add_now


def _left_open(_was: object) -> object:
    def shutdown(_consumer: MultiConsumer, _error: PulsarishError) -> None:
        return

    return shutdown


def _going_on(_was: object) -> object:
    async def open_(reconnector: Reconnector, address: str = "") -> None:
        _ = reconnector.start(address)
        await asyncio.shield(reconnector._opened)

    return open_


def _check(seed: int) -> None:
    run_cancellations(seed)


def _mutant(name: str, removes: str, patch: Patch, seeds: int = 10, first: int = 0) -> Mutant:
    return Mutant(name, removes, (), patch, _check, seeds, first)


CANCELLATION_MUTANTS: Final = (
    _mutant(
        "cancelled_batch_dropped",
        "what a cancelled batch_receive has taken comes with the next call",
        replacing(MessageQueue, "put_back", _dropped),
    ),
    _mutant(
        "send_overtakes_who_waits",
        "sends that wait for room are queued in the order of their calls",
        replacing(AsyncProducer, "_add", _overtaking),
    ),
    _mutant(
        "cancelled_consumer_left_open",
        "a consumer whose opening is cancelled is closed",
        replacing(MultiConsumer, "shutdown", _left_open),
    ),
    _mutant(
        "cancelled_opening_goes_on",
        "an opening that is cancelled on its way is closed at the broker before the next one",
        replacing(Reconnector, "open", _going_on),
        seeds=40,
        first=22,
    ),
)
