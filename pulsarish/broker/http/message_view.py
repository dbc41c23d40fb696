"""Decode messages of an entry for an operator: the only place of the broker that reads payloads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from pulsarish.broker.http.json_bodies import TracedMessageBody
from pulsarish.model.errors import ChecksumError, NotFound, OperationNotSupported
from pulsarish.model.printable import printable
from pulsarish.wire._pb import message_pb2 as pb
from pulsarish.wire.entry import as_text, split_entry
from pulsarish.wire.payload import decompress, split_batch

__all__ = ["MessageView", "described", "message_in", "whole_entry"]

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

    Raises ``ChecksumError`` for bytes that are not messages, ``OperationNotSupported`` for a
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


def described(entry: bytes | memoryview, index: int | None) -> TracedMessageBody:
    """Return what the producer wrote of an entry, or of the message with this index, but not its
    payload.

    Raises ``NotFound`` when the entry has fewer messages, ``ChecksumError`` for bytes that are not
    an entry.
    """
    metadata, body = split_entry(entry)
    count = metadata.num_messages_in_batch
    own: pb.MessageMetadata | pb.SingleMessageMetadata = metadata
    if index is not None and index >= count:
        held = "1 message" if count == 1 else f"{count} messages"
        raise NotFound(f"there is no message {index} in the entry, which has {held}, from 0")
    payload_bytes, unreadable = -1, ""
    if metadata.encryption_keys:
        unreadable = "it is encrypted"
    elif not metadata.HasField("num_messages_in_batch"):
        is_packed = metadata.compression != pb.NONE
        payload_bytes = metadata.uncompressed_size if is_packed else len(body)
    elif index is not None:
        try:
            payload = _unpacked(metadata, bytes(body))
            spans = split_batch(payload, count, lambda *span: span)
        except (ChecksumError, OperationNotSupported) as error:
            unreadable = str(error)
        else:
            found = [span for span in spans if span[0] == index]
            if not found:
                raise NotFound(f"message {index} of a batch was taken out of it by compaction")
            _, head, start, end = found[0]
            own, payload_bytes = (
                pb.SingleMessageMetadata.FromString(payload[head:start]),
                end - start,
            )
    is_chunk = metadata.num_chunks_from_msg > 1
    return TracedMessageBody(
        publish_timestamp=metadata.publish_time,
        event_timestamp=own.event_time,
        deliver_timestamp=metadata.deliver_at_time,
        producer_name=as_text(metadata.producer_name),
        sequence_id=own.sequence_id if own.HasField("sequence_id") else metadata.sequence_id,
        key=as_text(own.partition_key) if own.HasField("partition_key") else None,
        ordering_key=own.ordering_key.decode(errors="replace")
        if own.HasField("ordering_key")
        else None,
        properties={as_text(each.key): as_text(each.value) for each in own.properties},
        size_bytes=len(entry),
        payload_bytes=payload_bytes,
        compression=pb.CompressionType.Name(metadata.compression),
        messages_in_batch=count,
        schema_version=metadata.schema_version.hex(),
        is_encrypted=bool(metadata.encryption_keys),
        chunk=f"{metadata.chunk_id + 1} of {metadata.num_chunks_from_msg}, {as_text(metadata.uuid)}"
        if is_chunk
        else "",
        unreadable=unreadable,
    )


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
