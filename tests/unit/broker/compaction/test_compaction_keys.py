"""Which messages a compacted view keeps, compared with a dictionary of last values."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from pulsarish.broker.compaction.keys import Audience, KeyLimits, KeySurvey, last_batch_index
from pulsarish.model.errors import NotAllowedError
from pulsarish.model.position import EARLIEST, Position
from pulsarish.wire._pb import message_pb2 as pb
from pulsarish.wire.entry import encode_entry, split_entry, verify_entry
from pulsarish.wire.payload import compress, decompress, split_batch

LIMITS = KeyLimits(keys_max=1_000, retain_null_key=False, tombstones_from_ms=0)
KINDS = (pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD)
Log = Sequence[tuple[Position, bytes]]
Value = tuple[str | None, bytes]


def single(
    key: str | None, value: bytes, *, kind: int = pb.NONE, time_ms: int = 1, **fields: object
) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=time_ms, **fields)  # type: ignore[arg-type]
    if key is not None:
        metadata.partition_key = key
    if kind != pb.NONE:
        metadata.compression, metadata.uncompressed_size = kind, len(value)  # type: ignore[assignment]
    return encode_entry(metadata, compress(kind, value))


def batch(
    messages: Sequence[Value], *, kind: int = pb.NONE, time_ms: int = 1, **fields: object
) -> bytes:
    parts = []
    for key, value in messages:
        head = pb.SingleMessageMetadata(payload_size=len(value))
        if key is not None:
            head.partition_key = key
        encoded = head.SerializeToString()
        parts += [len(encoded).to_bytes(4, "big"), encoded, value]
    raw = b"".join(parts)
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=time_ms,
        num_messages_in_batch=len(messages),
        uncompressed_size=len(raw),
        **fields,
    )  # type: ignore[arg-type]
    metadata.compression = kind  # type: ignore[assignment]
    return encode_entry(metadata, compress(kind, raw))


def messages_of(entry: bytes | memoryview) -> list[tuple[int, str | None, bytes]]:
    """Return index, key and value of each message that a consumer gets."""
    verify_entry(entry)
    metadata, payload = split_entry(entry)
    raw = decompress(
        metadata.compression, bytes(payload), metadata.uncompressed_size, bytes_max=1 << 20
    )
    if not metadata.HasField("num_messages_in_batch"):
        return [(-1, metadata.partition_key if metadata.HasField("partition_key") else None, raw)]

    def made(index: int, head: int, start: int, end: int) -> tuple[int, str | None, bytes]:
        one = pb.SingleMessageMetadata.FromString(raw[head:start])
        return index, one.partition_key if one.HasField("partition_key") else None, raw[start:end]

    return split_batch(raw, metadata.num_messages_in_batch, made)


@dataclass
class View:
    entries: list[tuple[Position, Audience, bytes, bytes]] = field(default_factory=list)
    survey: KeySurvey | None = None

    def seen_by(
        self, audience: Audience, start: Position = EARLIEST
    ) -> list[tuple[Position, bytes]]:
        return [
            (position, entry)
            for position, whose, entry, _ in self.entries
            if whose & audience and position >= start
        ]


def compacted(log: Log, limits: KeyLimits = LIMITS) -> View:
    survey = KeySurvey("t", limits)
    for position, entry in log:
        survey.observe(position, entry)
    survey.close()
    view = View(survey=survey)
    for position, entry in log:
        view.entries += [
            (position, kept.audience, bytes(kept.payload), kept.left)
            for kept in survey.select(position, entry)
        ]
    return view


def table(log: Log, before: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """Return the last value of each key: a simple oracle. An empty value removes the key."""
    found = dict(before or {})
    for _, entry in log:
        found.update({key: value for _, key, value in messages_of(entry) if key is not None})
    return {key: value for key, value in found.items() if value}


def log_of(*entries: bytes) -> list[tuple[Position, bytes]]:
    return [(Position(7, number), entry) for number, entry in enumerate(entries)]


def some_log(rng: random.Random, length: int, ledger: int = 7) -> list[tuple[Position, bytes]]:
    def message() -> Value:
        key = rng.choice([None, *(f"k{number}" for number in range(8)), "long " * 20])
        return key, b"" if rng.random() < 0.25 else b"v%d" % rng.getrandbits(30)

    entries = []
    for _ in range(length):
        kind = rng.choice(KINDS)
        if rng.random() < 0.5:
            entries.append(single(*message(), kind=kind))
        else:
            entries.append(batch([message() for _ in range(rng.randrange(1, 6))], kind=kind))
    return [(Position(ledger, number), entry) for number, entry in enumerate(entries)]


@pytest.mark.parametrize("seed", range(60))
def test_a_view_ends_with_what_the_log_ends_with(seed: int) -> None:
    """A reader from the beginning, and one that has read any part of the log, end with the same
    values, after one compaction or more.
    """
    rng = random.Random(seed)
    log = some_log(rng, rng.randrange(1, 40))
    first = compacted(log[: len(log) // 2])
    rest = log[len(log) // 2 :]
    for view in (compacted(log), compacted([*first.seen_by(Audience.RETURNING), *rest])):
        fresh = view.seen_by(Audience.FRESH)
        assert table(fresh) == table(log)
        keys = [key for _, entry in fresh for _, key, _ in messages_of(entry)]
        assert len(keys) == len(set(keys)), "one message for a key"
        assert all(value for _, entry in fresh for _, _, value in messages_of(entry)), (
            "no tombstone for whoever starts anew"
        )
        for cut in range(len(log) + 1):
            start = log[cut][0] if cut < len(log) else Position(8, 0)
            assert table(view.seen_by(Audience.RETURNING, start), table(log[:cut])) == table(log)


@pytest.mark.parametrize("seed", range(20))
def test_what_stays_has_its_place_and_its_bytes(seed: int) -> None:
    log = some_log(random.Random(seed), 30)
    there = {
        (position, index): (key, value)
        for position, entry in log
        for index, key, value in messages_of(entry)
    }
    places: list[Position] = []
    view = compacted(log, LIMITS._replace(tombstones_from_ms=2))
    for position, entry in view.seen_by(Audience.FRESH):
        places.append(position)
        metadata, original = split_entry(entry)[0], split_entry(dict(log)[position])[0]
        assert metadata.num_messages_in_batch == original.num_messages_in_batch, (
            "batch indexes are kept"
        )
        assert (metadata.compression, metadata.publish_time) == (
            original.compression,
            original.publish_time,
        )
        kept = messages_of(entry)
        left = {position: left for position, _, _, left in view.entries}[position]
        if left:
            assert [
                index for index in range(len(left) * 8) if left[index // 8] >> index % 8 & 1
            ] == [index for index, _, _ in kept]
        else:
            assert len(kept) == metadata.num_messages_in_batch
        for index, key, value in kept:
            assert there[position, index] == (key, value)
        assert last_batch_index(entry) == kept[-1][0]
    assert places == sorted(set(places))


def test_keyless_messages_go_unless_they_are_wanted() -> None:
    log = log_of(
        single(None, b"a"), batch([(None, b"b"), ("k", b"c"), (None, b"d")]), single("k", b"e")
    )
    assert [messages_of(entry) for _, entry in compacted(log).seen_by(Audience.FRESH)] == [
        [(-1, "k", b"e")]
    ]
    wanted = compacted(log, LIMITS._replace(retain_null_key=True))
    assert [messages_of(entry) for _, entry in wanted.seen_by(Audience.FRESH)] == [
        [(-1, None, b"a")],
        [(0, None, b"b"), (2, None, b"d")],
        [(-1, "k", b"e")],
    ]


def test_an_empty_key_is_a_key_and_a_null_value_is_a_tombstone() -> None:
    log = log_of(
        single("", b"a"),
        single("n", b"b"),
        single("n", b"ignored", null_value=True),
        single("", b"c"),
    )
    assert [messages_of(entry) for _, entry in compacted(log).seen_by(Audience.FRESH)] == [
        [(-1, "", b"c")]
    ]


def test_an_encrypted_message_without_content_is_a_tombstone() -> None:
    keys = [pb.EncryptionKeys(key="e", value=b"x")]
    log = log_of(
        single("empty", b"a"),
        single("null", b"b"),
        single("short", b"c"),
        single("empty", bytes(16), encryption_keys=keys),
        single("null", bytes(16), encryption_keys=keys, null_value=True),
        single("short", bytes(17), encryption_keys=keys),
    )
    assert [messages_of(entry) for _, entry in compacted(log).seen_by(Audience.FRESH)] == [
        [(-1, "short", bytes(17))]
    ]


def test_old_tombstones_are_forgotten() -> None:
    log = log_of(
        single("k", b"a", time_ms=10), single("k", b"", time_ms=20), single("j", b"", time_ms=50)
    )
    view = compacted(log, LIMITS._replace(tombstones_from_ms=30))
    assert [position.entry_id for position, _ in view.seen_by(Audience.RETURNING)] == [2]
    assert view.seen_by(Audience.FRESH) == []
    assert view.survey is not None
    assert view.survey.keys_count == 1


@pytest.mark.parametrize(
    "opaque",
    [
        batch([("k", b"old")], encryption_keys=[pb.EncryptionKeys(key="e", value=b"x")]),
        encode_entry(
            pb.MessageMetadata(
                producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=3
            ),
            b"damaged",
        ),
        encode_entry(
            pb.MessageMetadata(
                producer_name="p",
                sequence_id=1,
                publish_time=1,
                num_messages_in_batch=3,
                compression=pb.SNAPPY,
                uncompressed_size=9,
            ),
            b"packed",
        ),
    ],
    ids=["encrypted", "damaged", "damaged-snappy"],
)
def test_a_batch_that_cannot_be_read_stays_whole_and_is_not_revived(opaque: bytes) -> None:
    """It may contain what a later tombstone removes.

    So the tombstone stays a message, in the next view too.
    """
    log = log_of(single("k", b"first"), opaque, single("k", b""), single("j", b"x"))
    view = compacted(log)
    assert [position.entry_id for position, _ in view.seen_by(Audience.FRESH)] == [1, 2, 3]
    again = compacted(view.seen_by(Audience.RETURNING))
    assert again.seen_by(Audience.FRESH) == view.seen_by(Audience.FRESH)


def chunk(key: str, uuid: str, number: int, count: int, producer: str = "p") -> bytes:
    fields = {
        "uuid": uuid,
        "chunk_id": number,
        "num_chunks_from_msg": count,
        "total_chunk_msg_size": count,
    }
    metadata = pb.MessageMetadata(
        producer_name=producer, sequence_id=1, publish_time=1, partition_key=key, **fields
    )  # type: ignore[arg-type]
    return encode_entry(metadata, b"c")


def entries_of(view: View) -> list[int]:
    return [position.entry_id for position, _ in view.seen_by(Audience.FRESH)]


def test_chunks_of_the_newest_message_stay_together() -> None:
    log = log_of(
        chunk("k", "one", 0, 2),
        chunk("j", "other", 0, 2, producer="q"),
        chunk("k", "one", 1, 2),
        chunk("j", "other", 1, 2, producer="q"),
        chunk("k", "two", 0, 3),
        chunk("k", "two", 1, 3),
    )
    assert entries_of(compacted(log)) == [0, 1, 2, 3, 4, 5], (
        "the second message of the key has not ended yet"
    )
    first = compacted(log)
    rest = [(Position(7, 6), chunk("k", "two", 2, 3))]
    assert entries_of(compacted([*first.seen_by(Audience.RETURNING), *rest])) == [1, 3, 4, 5, 6]
    rest = [(Position(7, 6), chunk("k", "three", 0, 2)), (Position(7, 7), single("k", b""))]
    again = compacted([*first.seen_by(Audience.RETURNING), *rest])
    assert entries_of(again) == [1, 3, 6], "what a producer gave up goes"
    assert [
        key
        for _, entry in again.seen_by(Audience.RETURNING)
        if (key := split_entry(entry)[0].partition_key) == "k"
    ] == ["k", "k"]


def test_more_keys_than_the_limit_are_refused() -> None:
    log = log_of(*(single(f"k{number}", b"v") for number in range(4)))
    assert len(compacted(log, LIMITS._replace(keys_max=4)).entries) == 4
    with pytest.raises(
        NotAllowedError, match="more than 3 keys, the limit topic_compaction_keys_max"
    ):
        compacted(log, LIMITS._replace(keys_max=3))


def test_markers_of_the_broker_are_no_messages() -> None:
    assert compacted(log_of(single("k", b"v", marker_type=1))).entries == []
