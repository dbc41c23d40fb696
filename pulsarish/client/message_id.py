"""``MessageId``: where a message lies, with the names of Apache Pulsar's Python client and the
bytes of its ``MessageIdData``.
"""

from __future__ import annotations

from typing import ClassVar, Final

from pulsarish.client.checks import INT64_MAX, check_number, check_text, check_type, shown
from pulsarish.model.errors import InvalidArgument
from pulsarish.wire.varint import encode_varint

__all__ = ["MessageId", "known_id"]

# MessageIdData of Apache Pulsar's public protocol: ledgerId 1, entryId 2 (u64), partition 3,
# batch_index 4 (i32, default -1), batch_size 6, first_chunk_message_id 7 (a MessageIdData).
_new: Final = object.__new__
_FIELDS: Final = {1: "ledger", 2: "entry", 3: "partition", 4: "batch_index", 6: "batch_size"}


class MessageId:
    """A ledger, an entry in it, an index in that entry's batch (-1: no batch), and the partition of
    the topic (-1: not partitioned).

    A message that came in chunks has the place of its last chunk, and its id knows that of the
    first. Ids of one topic compare in the order of its log. ``earliest`` and ``latest`` stand for
    the two ends of any topic.
    """

    __slots__ = (
        "_batch_index",
        "_batch_size",
        "_chunks",
        "_entry",
        "_ledger",
        "_partition",
        "_topic",
    )

    earliest: ClassVar[MessageId]
    latest: ClassVar[MessageId]

    def __init__(
        self,
        partition: int = -1,
        ledger_id: int = -1,
        entry_id: int = -1,
        batch_index: int = -1,
        batch_size: int = 0,
        topic: str = "",
    ) -> None:
        """Raises ``InvalidArgument`` that names the argument."""
        self._partition = check_number("partition", partition, -1)
        self._ledger = check_number("ledger_id", ledger_id, -1)
        self._entry = check_number("entry_id", entry_id, -1)
        self._batch_index = check_number("batch_index", batch_index, -1)
        self._batch_size = check_number("batch_size", batch_size, 0)
        self._topic = check_text("topic", topic)
        self._chunks: tuple[tuple[int, int], ...] = ()

    def ledger_id(self) -> int:
        return self._ledger

    def entry_id(self) -> int:
        return self._entry

    def batch_index(self) -> int:
        return self._batch_index

    def batch_size(self) -> int:
        """Messages in the batch; 0 when it is none or not known."""
        return self._batch_size

    def partition(self) -> int:
        return self._partition

    def topic_name(self) -> str:
        """The topic, of the id of a received message; otherwise empty.

        It is neither compared nor serialized.
        """
        return self._topic

    def chunks(self) -> tuple[tuple[int, int], ...]:
        """Ledger and entry of the chunks of a message, the first one's first; all of them when it
        was received, none when it is whole.
        """
        return self._chunks

    def serialize(self) -> bytes:
        """Bytes that ``deserialize`` reads back, the same that Apache Pulsar's clients write."""
        out = bytearray()
        for field, value, absent in (
            (1, self._ledger, None),
            (2, self._entry, None),
            (3, self._partition, -1),
            (4, self._batch_index, -1),
            (6, self._batch_size, 0),
        ):
            if value != absent:
                out.append(field << 3)
                out += encode_varint(value & 0xFFFF_FFFF_FFFF_FFFF)
        if self._chunks:
            first = MessageId(self._partition, *self._chunks[0]).serialize()
            out.append(7 << 3 | 2)
            out += encode_varint(len(first)) + first
        return bytes(out)

    @staticmethod
    def deserialize(message_id_bytes: bytes, topic: str | None = None) -> MessageId:
        """Read what ``serialize`` wrote. ``topic``: needed to acknowledge it on a consumer of
        several topics. Raises ``InvalidArgument`` for other bytes."""
        check_type(
            "message_id_bytes", message_id_bytes, bytes, "what MessageId.serialize() returned"
        )
        if topic is not None:
            check_text("topic", topic)
        values = {"ledger": -1, "entry": -1, "partition": -1, "batch_index": -1, "batch_size": 0}
        data = message_id_bytes
        at, seen, first = 0, set(), None
        try:
            while at < len(data):
                tag = data[at]
                at += 1
                if tag == 7 << 3 | 2 and data[at] < 0x80 and at + data[at] < len(data):
                    first = MessageId.deserialize(data[at + 1 : at + 1 + data[at]])
                    at += 1 + data[at]
                    continue
                value = shift = 0
                while True:
                    byte = data[at]
                    at += 1
                    value |= (byte & 0x7F) << shift
                    shift += 7
                    if byte < 0x80:
                        break
                if tag & 7 or shift > 70:
                    raise ValueError
                if (name := _FIELDS.get(tag >> 3)) is not None:
                    values[name] = value - (1 << 64) if value >= 1 << 63 else value
                    seen.add(name)
            if not {"ledger", "entry"} <= seen:
                raise ValueError
            made = MessageId(
                values["partition"],
                values["ledger"],
                values["entry"],
                values["batch_index"],
                values["batch_size"],
                topic or "",
            )
            if first is not None:
                made._chunks = ((first._ledger, first._entry), (made._ledger, made._entry))
            return made
        except (IndexError, ValueError, InvalidArgument):
            raise InvalidArgument(
                f"message_id_bytes {shown(data)} are no serialized MessageId: pass what "
                "MessageId.serialize() returned"
            ) from None

    @classmethod
    def wrap(cls, msg_id: MessageId) -> MessageId:
        """Return the id. Apache Pulsar's client has two classes of ids, and here is one."""
        check_type("msg_id", msg_id, MessageId, "a MessageId")
        return msg_id

    def _key(self) -> tuple[int, int, int, int]:
        return self._ledger, self._entry, self._batch_index, self._partition

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, MessageId) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __lt__(self, other: object) -> bool:
        return self._key() < other._key() if isinstance(other, MessageId) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self._key() <= other._key() if isinstance(other, MessageId) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return self._key() > other._key() if isinstance(other, MessageId) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return self._key() >= other._key() if isinstance(other, MessageId) else NotImplemented

    def __str__(self) -> str:
        return f"({self._ledger},{self._entry},{self._partition},{self._batch_index})"

    def __repr__(self) -> str:
        return f"MessageId({self._partition}, {self._ledger}, {self._entry}, {self._batch_index})"


MessageId.earliest = MessageId()
MessageId.latest = MessageId(-1, INT64_MAX, INT64_MAX)


def known_id(
    partition: int,
    ledger_id: int,
    entry_id: int,
    batch_index: int,
    batch_size: int,
    topic: str,
    chunks: tuple[tuple[int, int], ...] = (),
) -> MessageId:
    """A ``MessageId`` of what the client knows itself: made for each message, so nothing is
    checked.
    """
    made = _new(MessageId)
    made._partition = partition
    made._ledger = ledger_id
    made._entry = entry_id
    made._batch_index = batch_index
    made._batch_size = batch_size
    made._topic = topic
    made._chunks = chunks
    return made
