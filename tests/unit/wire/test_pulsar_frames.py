"""The binary protocol's frames: cut from pieces of any size, refused when they are none, and
encoded as protobuf would.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.broker.binary.codec import ack_words, message_id
from pulsarish.model.errors import ChecksumError, Malformed
from pulsarish.model.position import Position
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import encode_entry, parse_metadata, verify_entry
from pulsarish.wire.pulsar_frames import (
    FrameReader,
    carried_entry,
    command_frame,
    delivery_frame_head,
    delivery_place,
    parse_command,
    receipt_frames,
)

ENTRY = encode_entry(MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"payload")
IDS = st.integers(0, 2**63 - 1)


def send_frame(entry: bytes) -> bytes:
    command = pb.Command(type=6, send=pb.Send(producer_id=1, sequence_id=7)).SerializeToString()
    return struct.pack(">II", 4 + len(command) + len(entry), len(command)) + command + entry


@given(
    st.lists(st.binary(max_size=300), max_size=8),
    st.lists(st.integers(1, 50), min_size=1, max_size=20),
)
def test_frames_come_out_whole_however_their_bytes_come_in(
    payloads: list[bytes], pieces: list[int]
) -> None:
    data = b"".join(send_frame(payload) for payload in payloads)
    reader = FrameReader(10_000)
    found: list[bytes] = []
    at = 0
    turn = 0
    while at < len(data):
        size = pieces[turn % len(pieces)]
        turn += 1
        found.extend(bytes(frame.payload) for frame in reader.feed(data[at : at + size]))
        at += size
    assert found == payloads
    assert reader.broken is None


@pytest.mark.parametrize(
    "head",
    [(3, 0), (2**32 - 1, 10), (10_001, 10), (20, 17), (0, 0)],
    ids=["too short", "longest", "too long", "command beyond the frame", "nothing"],
)
def test_what_is_no_frame_ends_the_reading_after_the_good_ones(head: tuple[int, int]) -> None:
    reader = FrameReader(10_000)
    frames = reader.feed(send_frame(ENTRY) + struct.pack(">II", *head) + b"x" * 30)
    assert [bytes(frame.payload) for frame in frames] == [ENTRY]
    assert isinstance(reader.broken, Malformed)
    assert reader.feed(send_frame(ENTRY)) == []


@given(st.binary(max_size=200))
def test_random_bytes_are_frames_or_malformed_and_never_anything_else(data: bytes) -> None:
    reader = FrameReader(1_000)
    for frame in reader.feed(data):
        try:
            entry = carried_entry(frame.payload)
        except Malformed:
            continue
        try:
            verify_entry(entry)
            parse_metadata(entry)
        except ChecksumError:
            continue


@pytest.mark.parametrize(
    ("ack", "error"),
    [
        (b"\x08\x01\x10\x00\x1a\x04\x08\x05\x10\x07", None),
        (b"\x08\x01\x10\x00\x1a\x02\x08\x05", "lacks a field"),
        (b"\x08\x01\x10\x00\x2a\x05\x0a\x01a\x10\x07", None),
        (b"\x08\x01\x10\x00\x2a\x05\x0a\x01\xff\x10\x07", "no UTF-8"),
    ],
    ids=["position", "no entry id", "property", "property that is no text"],
)
def test_an_acknowledgement_is_complete_and_its_texts_are_texts(
    ack: bytes, error: str | None
) -> None:
    encoded = b"\x08\x0a\x52" + bytes([len(ack)]) + ack
    if error is None:
        assert parse_command(encoded).ack.consumer_id == 1
    else:
        with pytest.raises(Malformed, match=error):
            parse_command(encoded)


def test_an_entry_is_carried_from_its_magic_on_and_gets_a_checksum_if_it_has_none() -> None:
    assert bytes(carried_entry(memoryview(ENTRY))) == ENTRY
    assert bytes(carried_entry(memoryview(struct.pack(">HI", 0x0E02, 3) + b"abc" + ENTRY))) == ENTRY
    assert bytes(carried_entry(memoryview(ENTRY[6:]))) == ENTRY
    for wrong in (b"", b"\x0e", struct.pack(">HI", 0x0E02, 2**31) + ENTRY):
        with pytest.raises(Malformed):
            carried_entry(memoryview(wrong))


@given(IDS, st.lists(st.tuples(IDS, IDS), min_size=1, max_size=5), IDS, st.integers(0, 2**62))
def test_receipts_are_encoded_as_protobuf_would(
    producer_id: int, sends: list[tuple[int, int]], ledger_id: int, first: int
) -> None:
    frames = receipt_frames(producer_id, sends, ledger_id, first)
    for index, (sequence_id, highest) in enumerate(sends):
        receipt = pb.SendReceipt(
            producer_id=producer_id,
            sequence_id=sequence_id,
            message_id=pb.MessageIdData(ledger_id=ledger_id, entry_id=first + index),
        )
        if highest:
            receipt.highest_sequence_id = highest
        assert frames[index] == command_frame(pb.Command(type=7, send_receipt=receipt))


def test_a_receipt_of_a_duplicate_names_no_place() -> None:
    (frame,) = receipt_frames(1, [(5, 0)], -1, -1)
    receipt = pb.Command.FromString(frame[8:]).send_receipt
    assert (receipt.sequence_id, receipt.message_id.ledger_id, receipt.message_id.entry_id) == (
        5,
        2**64 - 1,
        2**64 - 1,
    )


@given(
    IDS,
    IDS,
    IDS,
    st.integers(-1, 1000),
    st.integers(0, 2**31),
    st.lists(st.integers(0, 2**64 - 1), max_size=4),
    st.integers(-1, 2**40),
)
def test_deliveries_are_encoded_as_protobuf_would(
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    partition: int,
    count: int,
    words: list[int],
    epoch: int,
) -> None:
    head = delivery_frame_head(
        consumer_id,
        delivery_place(Position(ledger_id, entry_id), partition),
        len(ENTRY),
        redelivery_count=count,
        ack_set=words,
        epoch=epoch,
    )
    place = pb.MessageIdData(ledger_id=ledger_id, entry_id=entry_id)
    if partition >= 0:
        place.partition = partition
    delivery = pb.MessageDelivery(consumer_id=consumer_id, message_id=place)
    if count:
        delivery.redelivery_count = count
    delivery.ack_set.extend([word - 2**64 if word >= 2**63 else word for word in words])
    if epoch >= 0:
        delivery.consumer_epoch = epoch
    (frame,) = FrameReader(10_000).feed(head + ENTRY)
    assert frame.command == pb.Command(type=9, message=delivery).SerializeToString()
    assert bytes(frame.payload) == ENTRY


def test_minus_one_travels_as_the_greatest_number_and_sets_as_words() -> None:
    assert message_id(Position(-1, -1)).ledger_id == 2**64 - 1
    assert list(ack_words(None)) == []
    assert list(ack_words((1 << 70 | 5).to_bytes(9, "little"))) == [5, 1 << 6]
