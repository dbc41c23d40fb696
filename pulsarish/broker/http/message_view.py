"""Decode messages of an entry for an operator: the only place of the broker that reads payloads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from pulsarish.model.errors import NotFound
from pulsarish.model.printable import printable
from pulsarish.wire._pb import message_pb2 as pb
from pulsarish.wire.entry import as_text, split_entry
from pulsarish.wire.payload import decompress, split_batch

__all__ = ["MessageView", "message_in", "whole_entry"]

# A payload that claims to be larger is not unpacked: data of a client must not fill the broker's
# memory.
_UNPACKED_BYTES_MAX: Final = 64 << 20
_TIME_MS_MAX: Final = 253_402_300_799_000  # the end of the year 9999


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message with its metadata as headers."""

    payload: bytes
    batch_index: int  # -1: the entry is not a batch
    headers: dict[str, str] = field(default_factory=dict)


def whole_entry(entry: bytes | memoryview) -> MessageView:
    """Return everything in an entry: the messages of a batch with their lengths, as in the log but
    not compressed.

    Raises the errors of ``message_in``.
    """
    metadata, body = split_entry(entry)
    headers = _headers(metadata.partition_key, metadata.publish_time, metadata.properties)
    if metadata.HasField("num_messages_in_batch"):
        headers["X-Pulsar-num-batch-message"] = str(metadata.num_messages_in_batch)
    if metadata.encryption_keys:
        return MessageView(bytes(body), -1, {**headers, "X-Pulsar-Is-Encrypted": "true"})
    return MessageView(_unpacked(metadata, bytes(body)), -1, headers)


def message_in(entry: bytes | memoryview, index: int) -> MessageView | int:
    """Return the message with this index, or the number of messages when the entry has fewer.

    Raises ``ChecksumError`` for bytes that are not messages, ``UnsupportedFeature`` for a
    compression unknown here.
    """
    metadata, body = split_entry(entry)
    batch = metadata.HasField("num_messages_in_batch")
    if index >= metadata.num_messages_in_batch:
        return metadata.num_messages_in_batch
    if metadata.encryption_keys:
        return MessageView(bytes(body), index if batch else -1, {"X-Pulsar-Is-Encrypted": "true"})
    payload = _unpacked(metadata, bytes(body))
    if not batch:
        return MessageView(
            payload,
            -1,
            _headers(metadata.partition_key, metadata.publish_time, metadata.properties),
        )
    for number, head, start, end in split_batch(
        payload, metadata.num_messages_in_batch, lambda *span: span
    ):
        if number == index:
            single = pb.SingleMessageMetadata.FromString(payload[head:start])
            return MessageView(
                payload[start:end],
                index,
                _headers(single.partition_key, metadata.publish_time, single.properties),
            )
    raise NotFound(f"message {index} of a batch was taken out of it by compaction")


def _headers(key: str, publish_time: int, properties: Iterable[pb.KeyValue]) -> dict[str, str]:
    headers = {"X-Pulsar-publish-time": _instant(publish_time)}
    if key:
        headers["X-Pulsar-partition-key"] = _header(key)
    if public := {as_text(each.key): as_text(each.value) for each in properties}:
        headers["X-Pulsar-PROPERTY"] = json.dumps(public)
    return headers


def _instant(milliseconds: int) -> str:
    """Return a time in the form that Apache Pulsar's admin client parses.

    A client may have written any number.
    """
    return datetime.fromtimestamp(min(milliseconds, _TIME_MS_MAX) / 1000, UTC).isoformat(
        timespec="milliseconds"
    )


def _header(text: str | bytes) -> str:
    """Return text as a header may carry it: ASCII without control characters, which would begin
    another header or be refused.
    """
    shown = printable(as_text(text)).encode("ascii", "backslashreplace").decode()
    return shown if shown == shown.strip() else shown.replace(" ", "\\x20")


def _unpacked(metadata: pb.MessageMetadata, body: bytes) -> bytes:
    return decompress(
        metadata.compression, body, metadata.uncompressed_size, bytes_max=_UNPACKED_BYTES_MAX
    )
