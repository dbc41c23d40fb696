"""Mutants of copies: what is consumed again later, buried, or moved back; and of delays."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from pulsarish.broker.dispatchers.delay_bucket import pack
from pulsarish.broker.dispatchers.delayed import DelayedEntries
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.api.redrive import Redrive
from pulsarish.client.consumer.acknowledger import Acknowledger
from pulsarish.client.consumer.letter_topic import LetterTopic
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.model.position import Position
from pulsarish.sim.workloads.letters import run_letters
from pulsarish.sim.workloads.safeguard import Mutant, Patch, replacing

__all__ = ["LETTER_MUTANTS"]


def _reconsumed_first(was: Any) -> object:
    async def reconsume_later(
        consumer: AsyncConsumer,
        message: Message,
        delay: timedelta,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        await consumer.acknowledge(message)
        await was(consumer, message, delay, properties)

    return reconsume_later


def _buried_first(was: Any) -> object:
    def copy_dead_letter(acks: Acknowledger, key: Any, messages: list[Message]) -> None:
        acks.acknowledge(
            [MessageId(acks._partition, *key)], lambda _error: was(acks, key, messages)
        )

    return copy_dead_letter


def _moved_first(was: Any) -> object:
    async def move(
        redrive: Redrive, letters: LetterTopic, consumer: AsyncConsumer, page: list[Message]
    ) -> None:
        await consumer.acknowledge(page)
        await was(redrive, letters, consumer, page)

    return move


def _rounded_down(_was: object) -> object:
    def add(delayed: DelayedEntries, position: Position, due_ms: int) -> None:
        tick = delayed.tick_ms
        heapq.heappush(delayed._heap, pack(due_ms // tick * tick, position))

    return add


def _mutant(name: str, removes: str, patch: Patch, *, seeds: int = 3, first: int = 0) -> Mutant:
    return Mutant(name, removes, (), patch, run_letters, seeds, first)


LETTER_MUTANTS: Final = (
    _mutant(
        "reconsumed_before_it_is_stored",
        "a message that is consumed again later is acknowledged once its copy is stored",
        replacing(AsyncConsumer, "reconsume_later", _reconsumed_first),
    ),
    _mutant(
        "buried_before_it_is_stored",
        "a dead letter is acknowledged once its copy is stored",
        replacing(Acknowledger, "_copy_dead_letter", _buried_first),
        seeds=20,
        first=9,
    ),
    _mutant(
        "moved_back_before_it_is_stored",
        "a redrive acknowledges a dead letter once its copy is stored",
        replacing(Redrive, "_move", _moved_first),
        first=2,
    ),
    _mutant(
        "delay_rounded_down",
        "a delay is rounded up to the policy's tick, so that no message is early",
        replacing(DelayedEntries, "add", _rounded_down),
    ),
)
