"""The position of a reader, kept by the client: the newest message of a key of another topic.

The key names the reader and the topic that it reads, and the value is a serialized ``MessageId``.
So one topic, compacted, holds the positions of any number of readers.

The producer of a position has a name of its own. A broker connects one producer of a name, so
readers of one name exclude each other.
"""

from __future__ import annotations

from typing import Protocol

from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.model.errors import InvalidArgument

__all__ = ["ReaderCheckpoint", "checkpoint_key", "position_in"]


class _Producer(Protocol):
    async def send(self, content: bytes, *, partition_key: str) -> MessageId: ...

    async def close(self) -> None: ...


class ReaderCheckpoint:
    """``position``: the last message that the reader is done with; ``None``: none was stored."""

    def __init__(self, producer: _Producer, key: str, position: MessageId | None) -> None:
        self._producer = producer
        self._key = key
        self.position = position

    async def store(self, message_id: MessageId) -> None:
        """Store a position durably. Raises the errors of ``AsyncProducer.send``."""
        await self._producer.send(message_id.serialize(), partition_key=self._key)
        self.position = message_id

    async def close(self) -> None:
        await self._producer.close()


def checkpoint_key(options: ConsumerOptions) -> str:
    """Return the key under which a reader with these options stores its position."""
    return f"{options.consumer_name} on {options.topics[0].full}"


def position_in(value: bytes, key: str, topic: str) -> MessageId | None:
    """Return the position that the newest message of a key holds; ``None`` for an empty one.

    Raises ``InvalidArgument`` for what is no position.
    """
    if not value:
        return None
    try:
        return MessageId.deserialize(value)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"the message of key {key!r} in checkpoint_topic {topic} holds no position: {error}"
        ) from None
