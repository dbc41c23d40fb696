"""The messages of a batch that a program has as bytes."""

from __future__ import annotations

import pytest

import pulsarish
from pulsarish.wire._pb.message_pb2 import KeyValue, SingleMessageMetadata


def _batch(*contents: bytes) -> bytes:
    parts = []
    for content in contents:
        metadata = SingleMessageMetadata(
            payload_size=len(content),
            partition_key="k",
            properties=[KeyValue(key="length", value=str(len(content)))],
        ).SerializeToString()
        parts += [len(metadata).to_bytes(4, "big"), metadata, content]
    return b"".join(parts)


def test_a_batch_is_taken_apart() -> None:
    batch = pulsarish.MessageBatch().with_message_id(pulsarish.MessageId(2, 5, 7, -1))
    found = batch.parse_from(_batch(b"one", b"", b"three"), 3)
    assert [message.data() for message in found] == [b"one", b"", b"three"]
    assert [message.value() for message in found] == [b"one", b"", b"three"]
    assert [message.properties()["length"] for message in found] == ["3", "0", "5"]
    ids = [str(message.message_id()) for message in found]
    assert ids == ["(5,7,2,0)", "(5,7,2,1)", "(5,7,2,2)"]
    assert (found[0].partition_key(), found[0].has_null_value()) == ("k", False)
    assert pulsarish.MessageId.wrap(found[0].message_id()) == found[0].message_id()


@pytest.mark.parametrize(("data", "size"), [(b"", 1), (b"abcdefgh", 1), (_batch(b"one"), 2)])
def test_what_is_no_batch(data: bytes, size: int) -> None:
    with pytest.raises(pulsarish.InvalidArgument, match=f"is no batch of {size} messages"):
        pulsarish.MessageBatch().parse_from(data, size)


def test_other_types() -> None:
    with pytest.raises(TypeError, match="msg_id is 5"):
        pulsarish.MessageBatch().with_message_id(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="data is 'x'"):
        pulsarish.MessageBatch().parse_from("x", 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="msg_id is 5"):
        pulsarish.MessageId.wrap(5)  # type: ignore[arg-type]
