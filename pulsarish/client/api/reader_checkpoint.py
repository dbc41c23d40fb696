"""The position of a reader, kept by the client: the newest message of a key of another topic.

The key names the reader and the topic that it reads, and the value is a serialized ``MessageId``.
So one topic, compacted, holds the positions of any number of readers.

The producer of a position has a name of its own. A broker connects one producer of a name, so
readers of one name exclude each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.options import ConsumerOptions
from pulsarish.model.errors import InvalidArgument

if TYPE_CHECKING:
    from pulsarish.client.api.asyncio_client import AsyncClient, AsyncProducer

__all__ = ["ReaderCheckpoint"]


class ReaderCheckpoint:
    """``position``: the last message that the reader is done with; ``None``: none was stored."""

    def __init__(self, producer: AsyncProducer, key: str, position: MessageId | None) -> None:
        self._producer = producer
        self._key = key
        self.position = position

    @classmethod
    async def open(cls, client: AsyncClient, options: ConsumerOptions) -> ReaderCheckpoint:
        """Open the checkpoint of a reader with these options, and read what it has stored.

        Reads the whole topic of checkpoints, or its compacted view and the rest.

        Raises ``ProducerBusy`` while another reader of this name is open, ``InvalidArgument`` for
        a partitioned topic and for a value that is no ``MessageId``, or another refusal.
        """
        topic = options.checkpoint_topic
        if await client.get_topic_partitions(topic) != [topic]:
            raise InvalidArgument(
                f"checkpoint_topic {topic} has partitions: pass a topic without partitions"
            )
        key = f"{options.consumer_name} on {options.topics[0].full}"
        # The producer first: from then on no other reader of this name stores a position.
        producer = await client.create_producer(topic, producer_name=f"checkpoint of {key}")
        try:
            return cls(producer, key, await _stored(client, topic, key))
        except BaseException:
            await producer.close()
            raise

    async def store(self, message_id: MessageId) -> None:
        """Store a position durably. Raises the errors of ``AsyncProducer.send``."""
        await self._producer.send(message_id.serialize(), partition_key=self._key)
        self.position = message_id

    async def close(self) -> None:
        await self._producer.close()


async def _stored(client: AsyncClient, topic: str, key: str) -> MessageId | None:
    newest = b""
    reader = await client.create_reader(topic, MessageId.earliest, is_read_compacted=True)
    try:
        while await reader.has_message_available():
            message = await reader.read_next()
            if message.partition_key() == key:
                newest = message.data()
    finally:
        await reader.close()
    if not newest:
        return None
    try:
        return MessageId.deserialize(newest)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"the message of key {key!r} in checkpoint_topic {topic} holds no position: {error}"
        ) from None
