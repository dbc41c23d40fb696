"""The form in which a captured entry is stored."""

from __future__ import annotations

import struct

import pytest

from pulsarish.broker.nonpersistent.captured_entry import (
    CAPTURED_FROM,
    captured_entry,
    captured_producer,
)
from pulsarish.model.topic_name import TopicName
from pulsarish.wire._pb import message_pb2 as pb
from pulsarish.wire.entry import encode_entry, split_entry, verify_entry
from pulsarish.wire.payload import compress, decompress, split_batch

BYTES_MAX = 100_000
SOURCE = TopicName.parse("non-persistent://acme/live/a")


def metadata(**fields: object) -> pb.MessageMetadata:
    return pb.MessageMetadata(producer_name="p", sequence_id=7, publish_time=5, **fields)  # type: ignore[arg-type]


def batch(count: int) -> bytes:
    parts = b""
    for number in range(count):
        content = b"m%d" % number
        single = pb.SingleMessageMetadata(
            payload_size=len(content), partition_key=f"k{number}", event_time=number
        )
        encoded = single.SerializeToString()
        parts += struct.pack(">I", len(encoded)) + encoded + content
    return parts


def captured(entry: bytes) -> tuple[pb.MessageMetadata, bytes]:
    producer, stored = captured_entry(entry, SOURCE, batch_bytes_max=BYTES_MAX)
    verify_entry(stored)
    found, payload = split_entry(stored)
    assert producer == found.producer_name == captured_producer(SOURCE, "p")
    assert "non-persistent://acme/live/a" in producer
    return found, bytes(payload)


def test_a_message_keeps_all_but_its_schema() -> None:
    before = metadata(
        partition_key="k", event_time=9, deliver_at_time=11, schema_version=b"12345678"
    )
    before.properties.add(key="x", value="y")
    after, payload = captured(encode_entry(before, b"content"))
    assert payload == b"content"
    assert [(each.key, each.value) for each in after.properties] == [
        ("x", "y"),
        (CAPTURED_FROM, SOURCE.full),
    ]
    before.ClearField("schema_version")
    before.producer_name = after.producer_name
    del after.properties[1]
    assert after == before


def test_a_message_that_was_captured_before_names_its_last_topic() -> None:
    before = metadata()
    before.properties.add(key=CAPTURED_FROM, value="non-persistent://acme/live/first")
    after, _ = captured(encode_entry(before, b""))
    assert [each.value for each in after.properties] == [SOURCE.full]


@pytest.mark.parametrize("kind", [pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY])
def test_each_message_of_a_batch_names_its_topic(kind: pb.CompressionType) -> None:
    plain = batch(3)
    before = metadata(num_messages_in_batch=3, compression=kind, uncompressed_size=len(plain))
    after, payload = captured(encode_entry(before, compress(kind, plain)))
    unpacked = decompress(kind, payload, after.uncompressed_size, bytes_max=1 << 20)
    for number, (single, content) in enumerate(
        split_batch(
            unpacked,
            3,
            lambda _, head, start, end: (
                pb.SingleMessageMetadata.FromString(unpacked[head:start]),
                unpacked[start:end],
            ),
        )
    ):
        assert content == b"m%d" % number
        assert (single.partition_key, single.event_time) == (f"k{number}", number)
        assert [(each.key, each.value) for each in single.properties] == [
            (CAPTURED_FROM, SOURCE.full)
        ]


@pytest.mark.parametrize(
    ("fields", "payload"),
    [
        ({"encryption_keys": [pb.EncryptionKeys(key="k", value=b"v")]}, batch(2)),
        ({}, batch(2)[:-1]),
        ({}, batch(1) + bytes([0, 0, 0, 3, 0xFF, 0xFF, 0xFF])),
        ({"compression": pb.ZLIB, "uncompressed_size": 5}, b"no zlib"),
    ],
    ids=["encrypted", "cut", "damaged", "not compressed"],
)
def test_a_batch_that_cannot_be_read_stays_as_it_is(
    fields: dict[str, object], payload: bytes
) -> None:
    before = metadata(num_messages_in_batch=2, **fields)
    after, stored = captured(encode_entry(before, payload))
    assert stored == payload
    assert after.num_messages_in_batch == 2


def test_an_entry_is_stored_without_what_its_producer_left_out() -> None:
    """The topic has taken it, so that its rule must be able to send it."""
    before = pb.MessageMetadata(producer_name="p")
    before.properties.add(key="x")
    after, _ = captured(encode_entry(before, b"content"))
    assert not after.HasField("publish_time")
    assert [each.key for each in after.properties] == ["x", CAPTURED_FROM]


def test_a_batch_is_stored_without_what_its_producer_left_out() -> None:
    single = pb.SingleMessageMetadata(payload_size=1)
    single.properties.add(key="x")
    encoded = single.SerializePartialToString()
    parts = struct.pack(">I", len(encoded)) + encoded + b"m"
    _, payload = captured(encode_entry(metadata(num_messages_in_batch=1), parts))
    (size,) = struct.unpack_from(">I", payload)
    found = pb.SingleMessageMetadata.FromString(payload[4 : 4 + size])
    assert [each.key for each in found.properties] == ["x", CAPTURED_FROM]


@pytest.mark.parametrize(
    ("messages", "kind"),
    [(2_000, pb.NONE), (10_000, pb.ZLIB)],
    ids=["above the size that is stored", "so many that the broker would do nothing else"],
)
def test_a_batch_that_would_be_too_large_stays_as_it_is(messages: int, kind: int) -> None:
    encoded = pb.SingleMessageMetadata(payload_size=0).SerializeToString()
    plain = (struct.pack(">I", len(encoded)) + encoded) * messages
    packed = compress(kind, plain)
    before = metadata(
        num_messages_in_batch=messages, compression=kind, uncompressed_size=len(plain)
    )
    after, payload = captured(encode_entry(before, packed))
    assert payload == packed
    assert after.num_messages_in_batch == messages
