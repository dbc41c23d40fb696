"""The filter of a subscription: which of the messages that were read are delivered.

What does not match is acknowledged at once: an entry by its position, a message of a batch by its
index. Nothing else is acknowledged here, so nothing that matches is ever skipped: after a crash,
a seek or a change of the filter, what is not acknowledged is read and judged again.

A message is judged by its own properties, key and times. What cannot be judged is delivered: a
batch that is encrypted, damaged, or larger than ``_UNPACKED_BYTES_MAX`` when unpacked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from google.protobuf.message import DecodeError

from pulsarish.model.errors import ChecksumError, OperationNotSupported
from pulsarish.model.filter_terms import FilteredMessage
from pulsarish.wire._pb.message_pb2 import MessageMetadata, SingleMessageMetadata
from pulsarish.wire.entry import as_text, split_entry
from pulsarish.wire.payload import decompress

if TYPE_CHECKING:
    from pulsarish.broker.dispatchers.dispatcher import Dispatcher
    from pulsarish.broker.dispatchers.reads import Read, Ready
    from pulsarish.broker.subscriptions.subscription import Subscription
    from pulsarish.model.message_filter import MessageFilter
    from pulsarish.model.position import Position
    from pulsarish.runtime.seams import Clock

__all__ = ["FilterCounts", "SubscriptionFilter", "batch_metadata", "unpacked_batch"]

_UNPACKED_BYTES_MAX: Final = 16 << 20
_PARTS_MAX: Final = 10_000
"""A batch of more messages is delivered whole if one of them matches."""
_TURN_COST: Final = 2_000
"""Costs of judging after which the event loop gets its turn: a few milliseconds."""
_SIZE: Final = struct.Struct(">I")


class FilterCounts:
    """Messages that a subscription's filter has judged since its topic was loaded."""

    __slots__ = ("accepted", "rejected")

    def __init__(self) -> None:
        self.accepted = 0
        self.rejected = 0

    @property
    def processed(self) -> int:
        return self.accepted + self.rejected


class _Verdict(NamedTuple):
    """``rejected``: the indexes of the ``judged`` messages of an entry that do not match."""

    judged: int
    rejected: Sequence[int] = ()

    @property
    def is_rejected(self) -> bool:
        return 0 < self.judged == len(self.rejected)


class SubscriptionFilter:
    """A filter in use. It is replaced as a whole when it changes."""

    def __init__(
        self, subscription: Subscription, message_filter: MessageFilter, clock: Clock
    ) -> None:
        self._subscription = subscription
        self._filter = message_filter
        self._clock = clock
        self._turn_left = _TURN_COST

    @property
    def text(self) -> str:
        return self._filter.text

    async def sort_out(
        self, dispatcher: Dispatcher, read: Read, entries: Sequence[Ready]
    ) -> tuple[list[Ready], int, int]:
        """Judge the entries of a read, and acknowledge what does not match.

        Returns the entries, with what is left of their batches, and how many messages and bytes of
        them are to be delivered.
        """
        subscription, wanted = self._subscription, frozenset(read.again)
        acknowledged = subscription.source.is_acknowledged
        # A read brings more than what is to be delivered: between entries that are redelivered,
        # and what was acknowledged before its consumer came back.
        verdicts = [
            None
            if acknowledged(each.position) or (wanted and each.position not in wanted)
            else await self._judge(each, dispatcher.redelivery_count(each.position) + 1)
            for each in entries
        ]
        if subscription.filter is not self or not dispatcher.reads.is_current(read):
            # By another filter, or after a seek with other counts, they may match. They are read
            # again.
            return list(entries), 0, 0
        counts = subscription.filter_counts
        gone: list[Position] = []
        left: list[Ready] = []
        messages = size_bytes = 0
        for entry, verdict in zip(entries, verdicts, strict=True):
            if verdict is None:
                left.append(entry)
                continue
            remaining, rejected = entry, len(verdict.rejected)
            if verdict.is_rejected:
                gone.append(entry.position)
            else:
                remaining = self._without(entry, verdict.rejected)
                if remaining is entry:
                    rejected = 0  # it is delivered whole
                messages += entry.messages
                size_bytes += len(entry.payload)
            left.append(remaining)
            counts.accepted += verdict.judged - rejected
            counts.rejected += rejected
        if gone:
            subscription.acknowledge_undelivered(gone)
        return left, messages, size_bytes

    async def rejects(self, entry: Ready, delivery_count: int, index: int | None) -> bool:
        """Return whether the filter does not match a message; without an index: no message of the
        entry.
        """
        verdict = await self._judge(entry, delivery_count)
        return verdict.is_rejected if index is None else index in verdict.rejected

    def _without(self, entry: Ready, rejected: Sequence[int]) -> Ready:
        """Acknowledge messages of a batch, and return what is left of it."""
        source = self._subscription.source
        if (
            not rejected
            or entry.messages > _PARTS_MAX
            or source.is_compacted
            or not source.contains(entry.position)
        ):
            return entry
        source.acknowledge_part(entry.position, entry.messages, rejected)
        left = self._subscription.cursor.ack_set(entry.position)
        return entry._replace(
            ack_set=None if left is None else left.to_bytes((entry.messages + 7) // 8, "little")
        )

    async def _judge(self, entry: Ready, delivery_count: int) -> _Verdict:
        metadata, payload = split_entry(entry.payload)
        if metadata.HasField("marker_type"):
            return _Verdict(0)
        if not metadata.HasField("num_messages_in_batch"):
            if entry.chunk is not None:
                # The chunks of a message must not part, whatever becomes of one of them.
                delivery_count = 1
            if self._is_turn_over():
                await self._clock.sleep(0)
            matches = self._filter.matches(
                _message(metadata, metadata.publish_time, delivery_count)
            )
            return _Verdict(1, () if matches else (0,))
        content = unpacked_batch(metadata, payload)
        if content is None:
            return _Verdict(entry.messages)
        judged = 0
        rejected: list[int] = []
        try:
            for index, single in enumerate(batch_metadata(content, entry.messages)):
                if single.compacted_out or not _is_left(entry.ack_set, index):
                    continue
                judged += 1
                if self._is_turn_over():
                    await self._clock.sleep(0)
                if not self._filter.matches(
                    _message(single, metadata.publish_time, delivery_count)
                ):
                    rejected.append(index)
        except ChecksumError:
            return _Verdict(entry.messages)
        return _Verdict(judged, rejected)

    def _is_turn_over(self) -> bool:
        """Count a message to be judged. Return whether the event loop has to go on before."""
        self._turn_left -= self._filter.cost
        if self._turn_left >= 0:
            return False
        self._turn_left = _TURN_COST
        return True


def _message(
    metadata: MessageMetadata | SingleMessageMetadata, publish_ms: int, delivery_count: int
) -> FilteredMessage:
    return FilteredMessage(
        {as_text(each.key): as_text(each.value) for each in metadata.properties},
        as_text(metadata.partition_key) if metadata.HasField("partition_key") else None,
        publish_ms,
        metadata.event_time or None,
        delivery_count,
    )


def unpacked_batch(metadata: MessageMetadata, payload: memoryview) -> bytes | None:
    """Return the messages of a batch; ``None``: they cannot be read here."""
    if metadata.encryption_keys or len(payload) > _UNPACKED_BYTES_MAX:
        return None
    try:
        return decompress(
            metadata.compression,
            bytes(payload),
            metadata.uncompressed_size,
            bytes_max=_UNPACKED_BYTES_MAX,
        )
    except (ChecksumError, OperationNotSupported):
        return None


def batch_metadata(content: bytes, count: int) -> Iterator[SingleMessageMetadata]:
    """Yield the metadata of each message of a batch, one after the other: a batch may have very
    many. Raises ``ChecksumError``.
    """
    at = 0
    try:
        for _ in range(count):
            start = at + 4 + _SIZE.unpack_from(content, at)[0]
            single = SingleMessageMetadata.FromString(content[at + 4 : start])
            at = start + single.payload_size
            yield single
    except (struct.error, DecodeError) as error:
        raise ChecksumError(f"a batch is cut or damaged: {error}") from None
    if at != len(content):
        raise ChecksumError("a batch is cut or damaged")


def _is_left(ack_set: bytes | None, index: int) -> bool:
    return ack_set is None or (
        index >> 3 < len(ack_set) and ack_set[index >> 3] >> (index & 7) & 1 == 1
    )
