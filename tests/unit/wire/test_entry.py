"""Entries that are one plain message are known by their encoded metadata."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import (
    EXPIRES_PROPERTY,
    PRIORITY_DEFAULT,
    PRIORITY_PROPERTY,
    decode_metadata,
    encode_entry,
    encoded_metadata,
    expiry_time,
    is_plain,
    message_times,
    priority_of,
    stored_expiry_time,
    stored_priority,
)

PLAIN = {"producer_name", "sequence_id", "publish_time"}
NUMBER = st.integers(0, 2**63 - 1)
BESIDE: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "partition_key": st.text(max_size=5),
        "compression": st.integers(0, 4),
        "uncompressed_size": st.integers(0, 2**31),
        "num_messages_in_batch": st.integers(0, 1_000),
        "event_time": NUMBER,
        "schema_version": st.binary(max_size=8),
        "ordering_key": st.binary(max_size=5),
        "deliver_at_time": NUMBER,
        "uuid": st.text(max_size=5),
        "chunk_id": st.integers(0, 9),
        "num_chunks_from_msg": st.integers(0, 9),
        "null_value": st.booleans(),
    },
)


def fields_of(metadata: MessageMetadata) -> set[str]:
    return {field.name for field, _ in metadata.ListFields()}


@given(st.text(max_size=130), NUMBER, NUMBER, BESIDE)
def test_it_is_plain_when_it_has_no_other_field(
    name: str, sequence_id: int, publish_time: int, beside: dict[str, Any]
) -> None:
    metadata = MessageMetadata(
        producer_name=name, sequence_id=sequence_id, publish_time=publish_time, **beside
    )
    encoded = metadata.SerializeToString()
    assert encoded_metadata(memoryview(encode_entry(metadata, b"content"))) == encoded
    assert is_plain(encoded) == (fields_of(metadata) == PLAIN and len(name.encode()) < 128)


@given(
    st.binary(max_size=40)
    | st.lists(st.sampled_from(b"\x0a\x00\x01\x10\x18\x80\x7f"), max_size=30).map(bytes)
)
@example(b"\x0a\x00\x10\x01\x18" + b"\xff" * 9 + b"\x01")
@example(b"\x0a\x01\x10\x10\x01\x18\x01")
def test_what_is_plain_can_be_decoded(encoded: bytes) -> None:
    if is_plain(encoded):
        assert fields_of(decode_metadata(encoded)) == PLAIN


@pytest.mark.parametrize(
    ("value", "time_ms"),
    [
        ("1767225600000", 1_767_225_600_000),
        ("007", 7),
        ("9" * 18, 10**18 - 1),
        ("0", -1),
        ("", -1),
        ("-5", -1),
        ("1.5", -1),
        (" 5", -1),
        ("\u0665", -1),  # a digit, but not of ASCII
        ("9" * 19, -1),
        ("tomorrow", -1),
    ],
)
def test_a_property_says_when_an_entry_expires(value: str, time_ms: int) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=3, deliver_at_time=9)
    metadata.properties.add(key="other", value="8")
    assert expiry_time(metadata) == 0
    metadata.properties.add(key=EXPIRES_PROPERTY, value=value)
    assert expiry_time(metadata) == time_ms
    entry = memoryview(encode_entry(metadata, b"content"))
    assert stored_expiry_time(entry) == max(0, time_ms)
    assert message_times(entry) == (3, 9, max(0, time_ms))
    metadata.num_messages_in_batch = 2
    assert expiry_time(metadata) == 0, "of a batch, each message has properties of its own"


@pytest.mark.parametrize(
    ("value", "priority"),
    [
        ("0", 0),
        ("9", 9),
        ("", -1),
        ("10", -1),
        ("-1", -1),
        ("07", -1),
        (" 5", -1),
        ("\u0665", -1),  # a digit, but not of ASCII
        ("high", -1),
    ],
)
def test_a_property_says_which_priority_an_entry_has(value: str, priority: int) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=3)
    metadata.properties.add(key="other", value="8")
    assert priority_of(metadata) == stored_priority(encode_entry(metadata, b"")) == PRIORITY_DEFAULT
    metadata.properties.add(key=PRIORITY_PROPERTY, value=value)
    assert priority_of(metadata) == priority
    stored = stored_priority(memoryview(encode_entry(metadata, b"content")))
    assert stored == (PRIORITY_DEFAULT if priority < 0 else priority)
    metadata.num_messages_in_batch = 2
    assert priority_of(metadata) == PRIORITY_DEFAULT, "a batch has none"


def test_content_that_looks_like_the_property_is_none() -> None:
    metadata = MessageMetadata(producer_name=EXPIRES_PROPERTY, sequence_id=1, publish_time=3)
    assert stored_expiry_time(encode_entry(metadata, EXPIRES_PROPERTY.encode())) == 0
