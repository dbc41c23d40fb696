"""The position of a reader, kept by the client: the newest message of a key of another topic.

The key names the reader and the topic that it reads, and the value is a serialized ``MessageId``.
So one topic, compacted, holds the positions of any number of readers.

The producer of a position has a name of its own. A broker connects one producer of a name, so
readers of one name exclude each other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.model.errors import InvalidArgument, ProducerFenced

__all__ = ["ReaderCheckpoint", "checkpoint_key", "position_in"]


class _Producer(Protocol):
    async def send(self, content: bytes, *, partition_key: str) -> MessageId: ...

    async def close(self) -> None: ...


class ReaderCheckpoint:
    """Call ``open`` first, and ``check`` whenever the producer is open again after a loss."""

    def __init__(self, key: str, read: Callable[[], Awaitable[MessageId | None]]) -> None:
        """``read`` returns the position that is stored under this key."""
        self._key = key
        self._read = read
        self._producer: _Producer
        self._is_open = False
        self._returned = False
        self._sent: list[MessageId] = []
        """Positions that were sent after the stored one; each may be stored."""
        self.position: MessageId | None = None
        """The last message that the reader is done with; ``None``: none was stored."""

    async def open(self, producer: _Producer) -> None:
        """Store positions with this producer, and read the one that is stored now.

        Raises the errors of ``read``.
        """
        self._producer = producer
        while not self._is_open:
            self._returned = False
            self.position = await self._read()
            # While it was closed, another reader may have stored one.
            self._is_open = not self._returned

    async def check(self) -> None:
        """Raise ``ProducerFenced`` when another reader of this name has stored a position while the
        producer was closed: an older one must not follow.

        Also raises the errors of ``read``.
        """
        if not self._is_open:
            self._returned = True
            return
        found = await self._read()
        if found is not None and found not in (self.position, *self._sent):
            raise ProducerFenced(
                f"another reader has stored a position of {self._key!r} meanwhile, and this one "
                "stores none any more: close it, and open a new one"
            )

    async def store(self, message_id: MessageId) -> None:
        """Store a position durably.

        Raises ``ProducerFenced`` as ``check``, and the errors of ``AsyncProducer.send``.
        """
        self._sent.append(message_id)
        await self._producer.send(message_id.serialize(), partition_key=self._key)
        del self._sent[: self._sent.index(message_id) + 1]
        self.position = message_id

    async def close(self) -> None:
        await self._producer.close()


def checkpoint_key(options: ConsumerOptions[Any]) -> str:
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
