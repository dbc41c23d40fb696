"""Entries encoded by hand are byte for byte what the generated classes write, and are read back
whole.
"""

from __future__ import annotations

import pytest
from google_crc32c import extend
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.client.enums import CompressionType, KeyForm
from pulsarish.client.messages.entry_encoder import (
    NO_EXTRAS,
    Extras,
    encode_batch,
    encode_head,
    encode_plain_head,
    encode_varint,
    producer_prefix,
    publish_time_field,
    schema_version_field,
)
from pulsarish.client.messages.message import Entry, Message, batch_places, open_entry
from pulsarish.client.schemas.schema import BytesSchema
from pulsarish.model.errors import ChecksumError, OperationNotSupported
from pulsarish.model.schema import version_bytes
from pulsarish.wire._pb.message_pb2 import MessageMetadata, SingleMessageMetadata
from pulsarish.wire.entry import encode_entry, parse_metadata, verify_entry
from pulsarish.wire.payload import compress, decompress

text = st.text(max_size=20).filter(lambda value: value.isprintable())
extras = st.builds(
    Extras,
    properties=st.none() | st.dictionaries(text, text, max_size=3),
    partition_key=st.none() | text,
    ordering_key=st.none() | text,
    event_timestamp_ms=st.just(0) | st.integers(0, 2**63 - 1),
    deliver_at_ms=st.just(0) | st.integers(0, 2**63 - 1),
    is_null=st.booleans(),
    key_form=st.sampled_from(KeyForm),
)
sequence_id = st.integers(0, 300) | st.integers(0, 2**62)


def say_key_form(metadata: MessageMetadata | SingleMessageMetadata, beside: Extras) -> None:
    if beside.key_form is KeyForm.BASE64:
        metadata.partition_key_b64_encoded = True
    elif beside.key_form is KeyForm.NULL:
        metadata.null_partition_key = True


def single(payload: bytes, number: int, beside: Extras) -> bytes:
    metadata = SingleMessageMetadata(payload_size=len(payload), sequence_id=number)
    for key, value in (beside.properties or {}).items():
        metadata.properties.add(key=key, value=value)
    if beside.partition_key is not None:
        metadata.partition_key = beside.partition_key
    if beside.ordering_key is not None:
        metadata.ordering_key = beside.ordering_key.encode()
    if beside.event_timestamp_ms:
        metadata.event_time = beside.event_timestamp_ms
    if beside.is_null:
        metadata.null_value = True
    say_key_form(metadata, beside)
    encoded = metadata.SerializeToString()
    return len(encoded).to_bytes(4) + encoded + payload


versions = st.sampled_from([b"", version_bytes(0), version_bytes(300)])


@given(st.integers(0, 2**64 - 1))
def test_varint(value: int) -> None:
    encoded = encode_varint(value)
    assert sum((byte & 0x7F) << 7 * index for index, byte in enumerate(encoded)) == value
    assert all(byte & 0x80 for byte in encoded[:-1])
    assert not encoded[-1] & 0x80


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20), sequence_id)
def test_plain_batch_equals_protobuf(payloads: list[bytes], first: int) -> None:
    ids = range(first, first + len(payloads))
    assert encode_batch(payloads, ids, {}) == b"".join(
        single(payload, number, NO_EXTRAS) for payload, number in zip(payloads, ids, strict=True)
    )


@given(st.lists(st.tuples(st.binary(max_size=50), sequence_id, extras), min_size=1, max_size=10))
def test_batch_with_extras_equals_protobuf(rows: list[tuple[bytes, int, Extras]]) -> None:
    payloads, ids, beside = zip(*rows, strict=True)
    expected = b"".join(single(*row) for row in rows)
    assert encode_batch(payloads, list(ids), dict(enumerate(beside))) == expected


@given(
    st.binary(max_size=300),
    sequence_id,
    st.integers(0, 2**63 - 1),
    st.integers(0, 4),
    st.integers(0, 1_000),
    extras,
    text,
    versions,
)
def test_entry_equals_protobuf(
    payload: bytes,
    number: int,
    time_ms: int,
    kind: int,
    count: int,
    beside: Extras,
    name: str,
    version: bytes,
) -> None:
    metadata = MessageMetadata(producer_name=name, sequence_id=number, publish_time=time_ms)
    if version:
        metadata.schema_version = version
    if kind:
        metadata.compression = kind
        metadata.uncompressed_size = len(payload)
    if count:
        metadata.num_messages_in_batch = count
        metadata.highest_sequence_id = number + count
    for key, value in (beside.properties or {}).items():
        metadata.properties.add(key=key, value=value)
    if beside.partition_key is not None:
        metadata.partition_key = beside.partition_key
    if beside.ordering_key is not None:
        metadata.ordering_key = beside.ordering_key.encode()
    if beside.event_timestamp_ms:
        metadata.event_time = beside.event_timestamp_ms
    if beside.deliver_at_ms:
        metadata.deliver_at_time = beside.deliver_at_ms
    if beside.is_null:
        metadata.null_value = True
    say_key_form(metadata, beside)
    head = encode_head(
        producer_prefix(name),
        sequence_id=number,
        publish_time_ms=time_ms,
        payload=payload,
        compression=kind,
        uncompressed_size=len(payload),
        messages_count=count,
        highest_sequence_id=number + count,
        extras=beside,
        schema_field=schema_version_field(version),
    )
    assert head + payload == encode_entry(metadata, payload)
    verify_entry(head + payload)


@given(st.binary(max_size=300), sequence_id, st.integers(0, 2**63 - 1))
def test_plain_entry_equals_protobuf(payload: bytes, number: int, time_ms: int) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=time_ms)
    head = encode_plain_head(producer_prefix("p"), number, publish_time_field(time_ms), payload)
    assert head + payload == encode_entry(metadata, payload)
    metadata.schema_version = version_bytes(number)
    head = encode_plain_head(
        producer_prefix("p"),
        number,
        publish_time_field(time_ms) + schema_version_field(version_bytes(number)),
        payload,
    )
    assert head + payload == encode_entry(metadata, payload)


def batch_entry(
    rows: list[tuple[bytes, int, Extras]], kind: CompressionType = CompressionType.NONE
) -> bytes:
    payloads = [row[0] for row in rows]
    raw = encode_batch(
        payloads, [row[1] for row in rows], {index: row[2] for index, row in enumerate(rows)}
    )
    packed = compress(kind, raw) if kind else raw
    return (
        encode_head(
            producer_prefix("p"),
            sequence_id=rows[0][1],
            publish_time_ms=77,
            payload=packed,
            compression=kind,
            uncompressed_size=len(raw),
            messages_count=len(rows),
            highest_sequence_id=rows[-1][1],
        )
        + packed
    )


def opened(data: bytes, ack_set: bytes | None = None) -> list[Message]:
    return open_entry(
        Entry(3, 4, 1, memoryview(data), ack_set), "topic", 2, lambda _: BytesSchema().decode
    )[1]


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.binary(max_size=300) | st.just(b"x" * 20_000), sequence_id, extras),
        min_size=1,
        max_size=10,
    ),
    st.sampled_from(
        [CompressionType.NONE, CompressionType.LZ4, CompressionType.ZLib, CompressionType.ZSTD]
    ),
)
def test_batch_is_read_back(rows: list[tuple[bytes, int, Extras]], kind: CompressionType) -> None:
    messages = opened(batch_entry(rows, kind))
    assert [message.data() for message in messages] == [row[0] for row in rows]
    for index, (message, (payload, number, beside)) in enumerate(zip(messages, rows, strict=True)):
        assert message.size() == len(payload)
        assert message.sequence_id() == number
        assert message.properties() == dict(beside.properties or {})
        assert message.partition_key() == (beside.partition_key or "")
        assert message.has_partition_key() == (beside.partition_key is not None)
        assert message.ordering_key() == (beside.ordering_key or "")
        assert message.event_timestamp() == beside.event_timestamp_ms
        message_id = message.message_id()
        place = (
            message_id.ledger_id(),
            message_id.entry_id(),
            message_id.partition(),
            message_id.batch_index(),
            message_id.batch_size(),
        )
        assert place == (3, 4, 2, index, len(rows))
        assert message.redelivery_count() == 1
        assert message.publish_timestamp() == 77


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 5, 130, 20_000]), st.integers(1, 6), st.booleans()),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 300),
)
def test_runs_of_messages_of_one_size_are_read_back(
    runs: list[tuple[int, int, bool]], first_sequence_id: int
) -> None:
    """With keys between them, and with sequence ids that grow by a byte."""
    rows: list[tuple[bytes, int, Extras]] = []
    for size, count, has_key in runs:
        for _ in range(count):
            number = first_sequence_id + len(rows)
            payload = (b"%d" % number).ljust(size, b"@")[:size]
            rows.append((payload, number, Extras(partition_key="k" if has_key else None)))
    messages = opened(batch_entry(rows, CompressionType.NONE))
    assert [message.data() for message in messages] == [row[0] for row in rows]
    assert [message.sequence_id() for message in messages] == [row[1] for row in rows]
    assert [message.has_partition_key() for message in messages] == [
        row[2].partition_key is not None for row in rows
    ]


def test_compacted_messages_and_those_acknowledged_are_left_out() -> None:
    def compacted(payload: bytes) -> bytes:
        metadata = SingleMessageMetadata(
            payload_size=len(payload), compacted_out=True
        ).SerializeToString()
        return len(metadata).to_bytes(4) + metadata + payload

    raw = (
        encode_batch([b"a", b"b"], range(2), {})
        + compacted(b"gone")
        + encode_batch([b"d"], range(3, 4), {})
    )
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=1,
        num_messages_in_batch=4,
        uncompressed_size=len(raw),
    )
    data = encode_entry(metadata, raw)
    assert [(message.data(), message.message_id().batch_index()) for message in opened(data)] == [
        (b"a", 0),
        (b"b", 1),
        (b"d", 3),
    ]
    some = opened(data, ack_set=bytes((0b1010,)))
    assert [message.data() for message in some] == [b"b", b"d"]
    assert batch_places(some) == (4, [1, 3])


@pytest.mark.parametrize("cut", [1, 3, 5, 20])
def test_damaged_batch_is_an_error(cut: int) -> None:
    raw = encode_batch([b"hello", b"world"], range(2), {})[:-cut]
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=1,
        num_messages_in_batch=2,
        uncompressed_size=len(raw),
    )
    with pytest.raises(ChecksumError):
        opened(encode_entry(metadata, raw))


@pytest.mark.parametrize("kind", [kind for kind in CompressionType if kind])
def test_what_does_not_decompress_is_an_error(kind: CompressionType) -> None:
    packed = compress(kind, b"hello" * 100)
    assert decompress(kind, packed, 500, bytes_max=500) == b"hello" * 100
    with pytest.raises(
        OperationNotSupported, match="announces 500 bytes when unpacked; at most 499"
    ):
        decompress(kind, packed, 500, bytes_max=499)
    for data, size in (
        (packed, 499),
        (packed, 501),
        (b"\x00garbage\xff" * 3, 500),
        (packed[: len(packed) // 2], 500),
        (b"", 500),
    ):
        with pytest.raises(ChecksumError):
            decompress(kind, data, size, bytes_max=1_000)


def test_unknown_compression() -> None:
    with pytest.raises(OperationNotSupported, match="kind 5"):
        decompress(5, b"", 0, bytes_max=0)
    with pytest.raises(OperationNotSupported, match="LZ4"):
        compress(5, b"")


def test_snappy_is_the_raw_block_format() -> None:
    """Bytes by the format's description: the size as a varint, a literal of three bytes, a copy of
    nine from three back.
    """
    block = bytes((12, 0x08)) + b"abc" + bytes((0x15, 3))
    assert decompress(CompressionType.SNAPPY, block, 12, bytes_max=12) == b"abc" * 4
    assert compress(CompressionType.SNAPPY, b"abc") == bytes((3, 0x08)) + b"abc"
    # A block that says 4 GB of itself costs nothing.
    with pytest.raises(ChecksumError, match="holds 4294967295"):
        decompress(CompressionType.SNAPPY, b"\xff\xff\xff\xff\x0f\x08abc", 12, bytes_max=12)


def test_crc_covers_all_after_it() -> None:
    head = encode_head(producer_prefix("p"), sequence_id=1, publish_time_ms=1, payload=b"abc")
    assert int.from_bytes(head[2:6]) == extend(0, head[6:] + b"abc")
    assert parse_metadata(head + b"abc").producer_name == "p"
