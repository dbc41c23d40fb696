"""Entries become rows: every way in which a message can lie in an entry, against the client's own
reading of it.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.client.messages.entry_encoder import (
    Extras,
    encode_batch,
    encode_head,
    producer_prefix,
)
from pulsarish.client.messages.message import Entry, open_entry
from pulsarish.model.errors import ChecksumError
from pulsarish.spark.reading.arrow import binary_array
from pulsarish.spark.reading.unpack import Rows, Unpacker
from pulsarish.wire._pb.message_pb2 import MessageMetadata, SingleMessageMetadata
from pulsarish.wire.entry import encode_entry
from pulsarish.wire.payload import compress

TOPIC = "persistent://public/default/t"


def unpacker() -> Unpacker:
    return Unpacker(with_values=True, with_numbers=True, beginning=lambda _entry, _metadata: [])


def batch(
    payloads: list[bytes],
    sequence_ids: list[int] | range,
    extras: dict[int, Extras] | None = None,
    *,
    compression: int = 0,
) -> Entry:
    payload = encode_batch(payloads, sequence_ids, extras or {})
    packed = compress(compression, payload)
    head = encode_head(
        producer_prefix("p"),
        sequence_id=sequence_ids[0],
        publish_time_ms=1_700_000_000_000,
        payload=packed,
        compression=compression,
        uncompressed_size=len(payload),
        messages_count=len(payloads),
        highest_sequence_id=sequence_ids[-1],
    )
    return Entry(5, 7, 0, head + packed)


def values(rows: Rows) -> list[bytes]:
    from pulsarish.spark.reading.arrow import _joined

    return [
        bytes(each) for each in binary_array(_joined(rows.lengths), rows.values, []).to_pylist()
    ]


def seen(rows: Rows) -> list[tuple[bytes, int, int, str]]:
    """Value, batch index, sequence id and key of each row."""
    from pulsarish.spark.reading.arrow import _joined

    keys = [rows.own.keys.get(row, "") for row in range(rows.count)]
    return list(
        zip(
            values(rows),
            _joined(rows.indexes).tolist(),
            _joined(rows.numbers).tolist(),
            keys,
            strict=True,
        )
    )


def told_by_client(entry: Entry) -> list[tuple[bytes, int, int, str]]:
    _, messages = open_entry(entry, TOPIC, -1, lambda _metadata: lambda data: data)
    return [
        (each.data(), each.message_id().batch_index(), each.sequence_id(), each.partition_key())
        for each in messages
    ]


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.one_of(
        st.lists(st.integers(0, 300), min_size=1, max_size=80),
        st.tuples(st.integers(0, 300), st.integers(1, 300)).map(lambda pair: [pair[0]] * pair[1]),
    ),
    first=st.integers(0, 2**40),
    keyed=st.sets(st.integers(0, 80), max_size=5),
    compression=st.integers(0, 4),
)
def test_rows_are_what_the_client_reads(
    sizes: list[int], first: int, keyed: set[int], compression: int
) -> None:
    payloads = [bytes([size & 0xFF]) * size for size in sizes]
    kinds = (
        lambda index: Extras(partition_key=f"k{index}"),
        lambda index: Extras(
            partition_key="grün" * 40, event_timestamp_ms=1_700_000_000_000 + index
        ),
        lambda index: Extras(event_timestamp_ms=index + 1),
        lambda index: Extras(properties={"n": str(index), "m": "é"}, ordering_key="o"),
    )
    extras = {index: kinds[index % 4](index) for index in keyed if index < len(sizes)}
    entry = batch(payloads, range(first, first + len(sizes)), extras, compression=compression)
    taking = unpacker()

    taking.add(entry)

    assert seen(taking.rows) == told_by_client(entry)
    own = taking.rows.own
    assert own.events == {
        index: extra.event_timestamp_ms
        for index, extra in extras.items()
        if extra.event_timestamp_ms
    }
    assert own.properties == {
        index: extra.properties for index, extra in extras.items() if extra.properties
    }


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_damaged_batch_is_an_error_and_nothing_else(data: st.DataObject) -> None:
    payload = bytearray(encode_batch([b"x" * 20] * 40, range(100, 140), {}))
    place = data.draw(st.integers(0, len(payload) - 1))
    payload[place] = data.draw(st.integers(0, 255))
    payload = payload[: data.draw(st.integers(1, len(payload)))]
    metadata = MessageMetadata(
        producer_name="p", sequence_id=100, publish_time=1, num_messages_in_batch=40
    )
    taking = unpacker()

    try:
        taking.add(Entry(1, 1, 0, encode_entry(metadata, bytes(payload))))
    except ChecksumError:
        return
    assert taking.rows.count <= 40
    assert len(values(taking.rows)) == taking.rows.count


def test_what_compaction_took_out_of_a_batch_is_left_out() -> None:
    parts: list[bytes] = []
    for index in range(5):
        content = b"" if index % 2 else b"v%d" % index
        head = SingleMessageMetadata(
            payload_size=len(content), compacted_out=bool(index % 2)
        ).SerializeToString()
        parts += [len(head).to_bytes(4), head, content]
    metadata = MessageMetadata(
        producer_name="p", sequence_id=10, publish_time=1, num_messages_in_batch=5
    )
    taking = unpacker()

    taking.add(Entry(1, 1, 0, encode_entry(metadata, b"".join(parts))))

    assert seen(taking.rows) == [(b"v0", 0, 10, ""), (b"v2", 2, 12, ""), (b"v4", 4, 14, "")]


@pytest.mark.parametrize(
    ("after", "upto", "wanted"),
    [(-1, 3, [0, 1, 2, 3]), (6, -1, [7, 8, 9]), (2, 4, [3, 4]), (9, -1, [])],
)
def test_a_part_of_a_batch(after: int, upto: int, wanted: list[int]) -> None:
    taking = unpacker()

    taking.add(
        batch(
            [b"%d" % index for index in range(10)], range(50, 60), {7: Extras(partition_key="k")}
        ),
        after=after,
        upto=upto,
    )

    assert seen(taking.rows) == [
        (b"%d" % index, index, 50 + index, "k" if index == 7 else "") for index in wanted
    ]


def test_values_of_batches_and_single_messages_stand_in_order_in_one_column() -> None:
    equal, mixed = [b"a" * 30] * 50, [b"", b"bb", b"c" * 9]
    taking = unpacker()

    taking.add(batch(equal, range(50)))
    taking.add(
        Entry(
            5,
            8,
            0,
            encode_entry(
                MessageMetadata(producer_name="p", sequence_id=50, publish_time=1), b"single"
            ),
        )
    )
    taking.add(batch(mixed, range(51, 54)))
    taking.add(
        Entry(
            5,
            10,
            0,
            encode_entry(MessageMetadata(producer_name="p", sequence_id=54, publish_time=1), b""),
        )
    )

    assert values(taking.rows) == [*equal, b"single", *mixed, b""]


def test_an_encrypted_batch_is_one_row_as_it_was_shipped() -> None:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=10, publish_time=1, num_messages_in_batch=3, compression=1
    )
    metadata.encryption_keys.add(key="k", value=b"secret")
    taking = unpacker()

    taking.add(Entry(1, 1, 0, encode_entry(metadata, b"\x00\x01cipher")))

    assert seen(taking.rows) == [(b"\x00\x01cipher", -1, 10, "")]


def chunk(number: int, count: int, part: bytes, total: int, entry_id: int) -> Entry:
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=1,
        uuid="p-1",
        num_chunks_from_msg=count,
        chunk_id=number,
        total_chunk_msg_size=total,
        uncompressed_size=total,
    )
    return Entry(1, entry_id, 0, encode_entry(metadata, part))


def test_a_message_in_chunks_is_one_row_at_its_last_chunk_and_its_beginning_is_asked_for() -> None:
    first, second, third = (
        chunk(number, 3, bytes([65 + number]) * 4, 12, 10 + number) for number in range(3)
    )
    whole, cut = (
        unpacker(),
        Unpacker(
            with_values=True, with_numbers=True, beginning=lambda _entry, _metadata: [first, second]
        ),
    )
    for entry in (first, second, third):
        whole.add(entry)
    cut.add(third)

    assert values(whole.rows) == values(cut.rows) == [b"AAAABBBBCCCC"]
    assert whole.rows.entries == cut.rows.entries == [12]


def test_a_message_whose_beginning_is_gone_is_no_row() -> None:
    taking = unpacker()
    taking.add(chunk(1, 2, b"end", 6, 3))
    assert taking.rows.count == 0


def test_a_chunk_that_was_sent_twice_is_one_row() -> None:
    first, second, third, again = (
        chunk(number, 3, b"part", 12, 10 + place) for place, number in enumerate((0, 1, 2, 2))
    )
    asked: list[int] = []

    def beginning(entry: Entry, _metadata: MessageMetadata) -> list[Entry]:
        asked.append(entry.entry_id)
        return [first, second]

    whole = Unpacker(with_values=True, with_numbers=True, beginning=beginning)
    for entry in (first, second, third, again):
        whole.add(entry)
    assert (whole.rows.entries, asked) == ([12], [])

    cut = Unpacker(with_values=True, with_numbers=True, beginning=beginning)
    for entry in (third, again):
        cut.add(entry)
    assert (cut.rows.entries, asked) == ([12], [12])


def test_single_messages_keep_their_own_fields_by_row() -> None:
    taking = unpacker()
    for number in range(3):
        metadata = MessageMetadata(
            producer_name="p",
            sequence_id=number,
            publish_time=1,
            partition_key=f"k{number}",
            null_value=number == 1,
        )
        taking.add(Entry(1, number, 0, encode_entry(metadata, b"" if number == 1 else b"v")))

    assert taking.rows.own.nulls == [1]
    assert taking.rows.own.keys == {0: "k0", 1: "k1", 2: "k2"}
    array = binary_array(np.array([1, 0, 1]), taking.rows.values, [1])
    assert array.to_pylist() == [b"v", None, b"v"]
