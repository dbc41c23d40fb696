"""``MessageBatch``: the messages of a batch that a program has as bytes."""

from __future__ import annotations

from functools import partial
from typing import Final, Self

from pulsarish.client.checks import check_number, check_type, shown
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Entry, Message, OpenedEntry
from pulsarish.client.schemas.schema import BytesSchema
from pulsarish.model.errors import ChecksumError, InvalidArgument
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import MESSAGES_IN_BATCH_MAX
from pulsarish.wire.payload import split_batch

__all__ = ["MessageBatch"]

_DECODE: Final = BytesSchema().decode


class MessageBatch:
    """Takes the payload of a batch apart: not compressed and not encrypted, in the form of Apache
    Pulsar's protocol.
    """

    def __init__(self) -> None:
        self._id = MessageId()

    def with_message_id(self, msg_id: MessageId) -> Self:
        """Set the id of the entry that the batch was, and return the batch."""
        check_type("msg_id", msg_id, MessageId, "a MessageId")
        self._id = msg_id
        return self

    def parse_from(self, data: bytes, size: int) -> list[Message]:
        """Return the messages of a batch.

        Args:
            size: the number of messages in ``data``.

        Raises ``InvalidArgument`` when ``data`` is not exactly that many messages.
        """
        check_type("data", data, bytes, "the payload of a batch as bytes")
        check_number("size", size, 1, MESSAGES_IN_BATCH_MAX)
        entry = Entry(self._id.ledger_id(), self._id.entry_id(), 0, b"")
        opened = OpenedEntry(
            entry,
            MessageMetadata(),
            data,
            size,
            self._id.topic_name(),
            self._id.partition(),
            _DECODE,
        )
        try:
            return split_batch(data, size, partial(Message, opened))
        except ChecksumError as error:
            raise InvalidArgument(
                f"data {shown(data)} is no batch of {size} messages: {error}"
            ) from None
