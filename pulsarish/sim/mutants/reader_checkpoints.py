"""Mutants of the positions that readers keep in a topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.reader_checkpoint import ReaderCheckpoint, checkpoint_key, position_in
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.options import ProducerOptions
from pulsarish.sim.workloads.reader_checkpoints import (
    run_late_reader_checkpoints,
    run_reader_checkpoints,
)
from pulsarish.sim.workloads.safeguard import Mutant, Patch, replacing

__all__ = ["READER_CHECKPOINT_MUTANTS"]


def _not_waited_for(_was: object) -> object:
    async def store(checkpoint: Any, message_id: MessageId) -> None:
        _ = checkpoint._producer.send_soon(message_id.serialize(), partition_key=checkpoint._key)
        checkpoint.position = message_id

    return store


def _whole_entry(was: Any) -> object:
    async def store(checkpoint: ReaderCheckpoint, message_id: MessageId) -> None:
        await was(checkpoint, MessageId(-1, message_id.ledger_id(), message_id.entry_id()))

    return store


def _nowhere(_was: object) -> object:
    def continue_after(_options: ConsumerOptions[Any], _message_id: MessageId) -> None:
        return

    return continue_after


def _with_the_message(_was: object) -> object:
    def continue_after(options: ConsumerOptions[Any], message_id: MessageId) -> None:
        options.start = message_id

    return continue_after


def _newest_of_all(_was: object) -> object:
    async def stored_position(client: AsyncClient, topic: str, key: str) -> MessageId | None:
        newest = b""
        reader = await client.create_reader(topic, MessageId.earliest)
        while await reader.has_message_available():
            newest = (await reader.read_next()).data()
        await reader.close()
        return position_in(newest, key, topic)

    return stored_position


def _position_first(_was: object) -> object:
    async def open_checkpoint(
        client: AsyncClient, options: ConsumerOptions[Any]
    ) -> ReaderCheckpoint:
        topic, key = options.checkpoint_topic, checkpoint_key(options)
        checkpoint = ReaderCheckpoint(key, lambda: client._stored_position(topic, key))
        checkpoint.position = await checkpoint._read()
        checkpoint._is_open = True
        chosen = ProducerOptions(topic, f"checkpoint of {key}")
        publishing = await client._open_publishing(chosen, on_return=checkpoint.check)
        await checkpoint.open(client._make_producer(publishing))
        return checkpoint

    return open_checkpoint


def _unchecked(_was: object) -> object:
    async def check(_checkpoint: ReaderCheckpoint) -> None:
        return

    return check


def _mutant(
    name: str,
    removes: str,
    patch: Patch,
    *,
    check: Callable[[int], None] = run_reader_checkpoints,
    first: int = 0,
) -> Mutant:
    return Mutant(name, removes, (), patch, check, 10, first)


READER_CHECKPOINT_MUTANTS: Final = (
    _mutant(
        "checkpoint_not_waited_for",
        "a checkpoint returns when the position is stored",
        replacing(ReaderCheckpoint, "store", _not_waited_for),
        first=1,
    ),
    _mutant(
        "checkpoint_of_a_whole_entry",
        "a position lies within a batch",
        replacing(ReaderCheckpoint, "store", _whole_entry),
    ),
    _mutant(
        "checkpoint_not_continued_after",
        "a reader starts after its position, wherever it was to start",
        replacing(ConsumerOptions, "continue_after", _nowhere),
    ),
    _mutant(
        "checkpoint_read_again",
        "a reader starts after the message of its position, also when it was to start with one",
        replacing(ConsumerOptions, "continue_after", _with_the_message),
    ),
    _mutant(
        "checkpoint_of_another_reader",
        "a reader takes the newest position of its own name and topic",
        replacing(AsyncClient, "_stored_position", _newest_of_all),
    ),
    _mutant(
        "checkpoint_not_compared_on_return",
        "a reader that was away stores no position after one of another reader of its name",
        replacing(ReaderCheckpoint, "check", _unchecked),
        check=run_late_reader_checkpoints,
        first=4,
    ),
    _mutant(
        "checkpoint_read_before_it_is_owned",
        "a reader asks for its position when no other reader of its name can store one any more",
        replacing(AsyncClient, "_open_checkpoint", _position_first),
        check=run_late_reader_checkpoints,
        first=1,
    ),
)
