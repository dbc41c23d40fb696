"""``MessageId``: where a message lies, with the names of Apache Pulsar's Python client and the bytes of its ``MessageIdData``."""

from __future__ import annotations

from typing import ClassVar, Final

from pulsarish.client.encoding import encode_varint
from pulsarish.model.errors import InvalidArgument

__all__ = ["MessageId"]

_LATEST: Final = 2**63 - 1
# MessageIdData of Apache Pulsar's public protocol: ledgerId 1, entryId 2 (u64), partition 3, batch_index 4 (i32, default -1), batch_size 6.
_FIELDS: Final = {1: "ledger", 2: "entry", 3: "partition", 4: "batch_index", 6: "batch_size"}


class MessageId:
    """A ledger, an entry in it, an index in that entry's batch (-1: no batch), and the partition of the topic (-1: not partitioned).

    Ids of one topic compare in the order of its log. ``earliest`` and ``latest`` stand for the two ends of any topic.
    """

    __slots__ = ("_batch_index", "_batch_size", "_entry", "_ledger", "_partition", "_topic")

    earliest: ClassVar[MessageId]
    latest: ClassVar[MessageId]

    def __init__(
        self, partition: int = -1, ledger_id: int = -1, entry_id: int = -1, batch_index: int = -1, batch_size: int = 0, topic: str = ""
    ) -> None:
        self._partition = partition
        self._ledger = ledger_id
        self._entry = entry_id
        self._batch_index = batch_index
        self._batch_size = batch_size
        self._topic = topic

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
        """The topic, of the id of a received message; otherwise empty. It is neither compared nor serialized."""
        return self._topic

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
        return bytes(out)

    @staticmethod
    def deserialize(message_id_bytes: bytes, topic: str | None = None) -> MessageId:
        """Read what ``serialize`` wrote. ``topic``: needed to acknowledge it on a consumer of
        several topics. Raises ``InvalidArgument`` for other bytes."""
        values = {"ledger": -1, "entry": -1, "partition": -1, "batch_index": -1, "batch_size": 0}
        data = bytes(message_id_bytes)
        at, seen = 0, set()
        try:
            while at < len(data):
                tag = data[at]
                at += 1
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
        except (IndexError, ValueError):
            raise InvalidArgument(
                f"message_id_bytes {data[:40]!r} are no serialized MessageId: pass what MessageId.serialize() returned"
            ) from None
        return MessageId(values["partition"], values["ledger"], values["entry"], values["batch_index"], values["batch_size"], topic or "")

    def _key(self) -> tuple[int, int, int, int]:
        return self._ledger, self._entry, self._batch_index, self._partition

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, MessageId) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __lt__(self, other: MessageId) -> bool:
        return self._key() < other._key()

    def __le__(self, other: MessageId) -> bool:
        return self._key() <= other._key()

    def __gt__(self, other: MessageId) -> bool:
        return self._key() > other._key()

    def __ge__(self, other: MessageId) -> bool:
        return self._key() >= other._key()

    def __str__(self) -> str:
        return f"({self._ledger},{self._entry},{self._partition},{self._batch_index})"

    def __repr__(self) -> str:
        return f"MessageId({self._partition}, {self._ledger}, {self._entry}, {self._batch_index})"


MessageId.earliest = MessageId()
MessageId.latest = MessageId(-1, _LATEST, _LATEST)
