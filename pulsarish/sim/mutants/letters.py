"""Mutants of messages that are consumed again later, and of delays."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from pulsarish.broker.dispatchers.delay_bucket import pack
from pulsarish.broker.dispatchers.delayed import DelayedEntries
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
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


def _rounded_down(_was: object) -> object:
    def add(delayed: DelayedEntries, position: Position, due_ms: int) -> None:
        tick = delayed.tick_ms
        heapq.heappush(delayed._heap, pack(due_ms // tick * tick, position))

    return add


def _mutant(name: str, removes: str, patch: Patch) -> Mutant:
    return Mutant(name, removes, (), patch, run_letters, 2)


LETTER_MUTANTS: Final = (
    _mutant(
        "reconsumed_before_it_is_stored",
        "a message that is consumed again later is acknowledged once its copy is stored",
        replacing(AsyncConsumer, "reconsume_later", _reconsumed_first),
    ),
    _mutant(
        "delay_rounded_down",
        "a delay is rounded up to the policy's tick, so that no message is early",
        replacing(DelayedEntries, "add", _rounded_down),
    ),
)
