"""How copies lie on bookies, and what a sample of entries tells."""

from __future__ import annotations

import pytest

from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, PurposeKind, Segment
from pulsarish.spark.jobs.usage_core import Sample, places, shares, skew
from pulsarish.wire._pb import message_pb2 as pb
from pulsarish.wire.entry import encode_entry
from pulsarish.wire.payload import compress

PURPOSE = LedgerPurpose(PurposeKind.TOPIC, "persistent://public/default/t")


def test_copies_are_shared_out_by_segment() -> None:
    metadata = LedgerMetadata(
        7, 2, 2, 2, PURPOSE, (Segment(0, ("a", "b")), Segment(25, ("a", "c")))
    )
    assert dict(shares(metadata, 100, 1_000)) == {"a": 1_000, "b": 250, "c": 750}
    striped = LedgerMetadata(7, 4, 2, 2, PURPOSE, (Segment(0, ("a", "b", "c", "d")),))
    assert dict(shares(striped, 100, 1_000)) == dict.fromkeys("abcd", 500)
    assert dict(shares(metadata, 10, 1_000)) == {"a": 1_000, "b": 1_000, "c": 0}, (
        "the second segment has nothing yet"
    )
    assert dict(shares(metadata, 0, 0)) == {"a": 0, "b": 0, "c": 0}


def test_skew() -> None:
    assert skew([5, 5, 5]) == 1
    assert skew([9, 3, 0]) == 2.25
    assert skew([]) == skew([0, 0]) == 0


@pytest.mark.parametrize("count", [1, 3, 20, 1_000])
def test_places_are_spread_evenly_and_exist(count: int) -> None:
    sizes = [5, 0, 300, 1, 40]
    found = places(sizes, count)
    assert len(found) == len(set(found)) == min(count, sum(sizes))
    assert all(0 <= entry < sizes[index] for index, entry in found)
    assert places([0, 0], count) == places([], count) == []


def batch(keys: list[str], text: bytes, kind: int = pb.NONE) -> bytes:
    parts = []
    for key in keys:
        single = pb.SingleMessageMetadata(
            payload_size=len(text), partition_key=key
        ).SerializeToString()
        parts += [len(single).to_bytes(4), single, text]
    plain = b"".join(parts)
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=1,
        num_messages_in_batch=len(keys),
        compression=kind,
    )
    if kind != pb.NONE:
        metadata.uncompressed_size = len(plain)
    return encode_entry(metadata, compress(kind, plain))


@pytest.mark.parametrize("kind", [pb.NONE, pb.ZLIB, pb.LZ4])
def test_a_sample_counts_keys_and_bytes(kind: int) -> None:
    sample = Sample()
    sample.take(batch(["x"] * 30 + ["y"] * 10, b"again and again " * 20, kind))
    single = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, partition_key="y")
    sample.take(encode_entry(single, b"one"))
    sample.take(
        encode_entry(pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"none")
    )
    assert (sample.entries, sample.messages, sample.unread) == (3, 42, 0)
    assert sample.top_keys(1) == [("x", 30 / 42)]
    assert dict(sample.keys) == {"x": 30, "y": 11}
    assert sample.compressibility is not None
    assert sample.compressibility < 0.1
    assert (sample.packed_bytes < sample.plain_bytes) == (kind != pb.NONE)


def test_what_cannot_be_looked_into_is_counted() -> None:
    sample = Sample()
    secret = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    secret.encryption_keys.add(key="k", value=b"v")
    sample.take(encode_entry(secret, b"???"))
    wrong = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, compression=pb.ZLIB, uncompressed_size=10
    )
    sample.take(encode_entry(wrong, b"no zlib"))
    sample.take(
        encode_entry(
            pb.MessageMetadata(
                producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=3
            ),
            b"cut",
        )
    )
    assert (sample.entries, sample.unread) == (3, 3)
    assert sample.compressibility is None
    assert sample.top_keys(3) == []
