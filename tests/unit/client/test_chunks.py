"""Messages in chunks: putting them together, whatever comes between, is missing or comes twice; and
sending them.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.client.consumer.chunk_assembler import SHARED_REDELIVERIES, ChunkAssembler
from pulsarish.client.enums import CompressionType
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Entry
from pulsarish.client.producer.send_limits import SendLimits
from pulsarish.client.producer.send_queue import SendQueue
from pulsarish.model.errors import ChecksumError, OperationNotSupported
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import encode_entry, parse_metadata, split_entry, verify_entry
from pulsarish.wire.payload import decompress


def chunk(
    at: int,
    uuid: str,
    number: int,
    count: int,
    *,
    total: int | None = None,
    publish_time: int = 0,
    redelivered: int = 0,
) -> Entry:
    """A chunk of a message of which each chunk is "uuid.number;"."""
    payload = f"{uuid}.{number};".encode()
    metadata = MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=publish_time, uuid=uuid, chunk_id=number
    )
    metadata.num_chunks_from_msg = count
    metadata.total_chunk_msg_size = count * len(payload) if total is None else total
    return Entry(1, at, redelivered, encode_entry(metadata, payload))


class Table:
    def __init__(
        self,
        pending_max: int = 10,
        *,
        acknowledge_oldest: bool = False,
        expire_seconds: float = 60.0,
        shared: bool = False,
    ) -> None:
        self.now = 0.0
        self.core = ChunkAssembler(
            pending_max=pending_max,
            expire_seconds=expire_seconds,
            acknowledge_oldest=acknowledge_oldest,
            stamp=lambda: (self.now, int(self.now * 1_000)),
            shared=shared,
        )

    def add(self, entry: Entry) -> tuple[str, int, list[int]] | None:
        """The content, the place and all places of the message that is whole now."""
        whole = self.core.add(entry, parse_metadata(entry.data))
        self.core.check()
        if whole is None:
            return None
        return (
            bytes(split_entry(whole.data)[1]).decode(),
            whole.entry_id,
            [at for _, at in whole.chunks],
        )

    def lost(self) -> tuple[list[int], list[int]]:
        lost = self.core.take_lost()
        return [at for _, at in lost.done], [at for _, at in lost.again]


@pytest.mark.parametrize(
    ("script", "whole"),
    [
        ("a0 a1 a2", ["a@2:0,1,2"]),
        ("a0 b0 a1 b1 b2 a2", ["b@4:1,3,4", "a@5:0,2,5"]),
        ("a0 a2", []),
        ("a1 a2", []),
        # A missing chunk ends the message; its next beginning counts.
        ("a0 a2 a0 a1 a2", ["a@4:2,3,4"]),
        # Its producer sent chunks again, from the first or from a later one: all are acknowledged
        # with the message.
        ("a0 a1 a1 a2", ["a@3:0,1,2,3"]),
        ("a0 a1 a0 a1 a2", ["a@4:2,0,1,3,4"]),
        ("a0 a1 a2 a2", ["a@2:0,1,2"]),
    ],
)
def test_script(script: str, whole: list[str]) -> None:
    table = Table()
    found = []
    for at, (uuid, number) in enumerate(script.split()):
        made = table.add(chunk(at, uuid, int(number), 3))
        if made is not None:
            content, place, places = made
            assert content == f"{uuid}.0;{uuid}.1;{uuid}.2;"
            found.append(f"{uuid}@{place}:{','.join(map(str, places))}")
    assert found == whole


def test_a_chunk_that_is_delivered_again_counts_once() -> None:
    table = Table()
    assert table.add(chunk(0, "a", 0, 3, redelivered=1)) is None
    assert table.add(chunk(0, "a", 0, 3)) is None
    assert table.add(chunk(1, "a", 1, 3)) is None
    assert table.add(chunk(0, "a", 0, 3)) is None
    assert table.add(chunk(2, "a", 2, 3)) == ("a.0;a.1;a.2;", 2, [0, 1, 2])


@pytest.mark.parametrize("acknowledge_oldest", [False, True])
def test_the_oldest_gives_way(acknowledge_oldest: bool) -> None:
    table = Table(2, acknowledge_oldest=acknowledge_oldest)
    for at, (uuid, number) in enumerate((("a", 0), ("b", 0), ("a", 1), ("c", 0))):
        assert table.add(chunk(at, uuid, number, 3)) is None
    assert table.lost() == (([0, 2], []) if acknowledge_oldest else ([], [0, 2]))
    assert table.lost() == ([], [])
    assert table.add(chunk(4, "b", 1, 3)) is None
    assert table.add(chunk(5, "b", 2, 3)) == ("b.0;b.1;b.2;", 5, [1, 4, 5])


def test_what_waits_too_long_is_given_up() -> None:
    table = Table()
    table.add(chunk(0, "a", 0, 3))
    table.now = 30.0
    table.add(chunk(1, "b", 0, 3))
    assert table.core.next_due() == 60.0
    table.core.expire(59.9)
    assert table.lost() == ([], [])
    table.core.expire(60.0)
    assert table.lost() == ([0], [])
    assert table.core.next_due() == 90.0
    table.core.excuse(80.0)
    assert table.core.next_due() == 140.0
    assert Table(expire_seconds=0.0).core.next_due() is None


def test_an_orphan_is_asked_for_again_while_it_is_young() -> None:
    table = Table()
    table.now = 100.0
    table.add(chunk(0, "a", 1, 3, publish_time=39_000))
    table.add(chunk(1, "b", 1, 3, publish_time=41_000))
    assert table.lost() == ([0], [1])


def test_where_another_consumer_may_have_the_rest_nothing_is_given_up_soon() -> None:
    table = Table(shared=True)
    table.now = 100.0
    table.add(chunk(0, "a", 0, 3))
    table.add(chunk(2, "a", 2, 3))
    assert table.lost() == ([], [2])
    table.add(chunk(1, "a", 1, 3, redelivered=1))
    assert table.add(chunk(2, "a", 2, 3, redelivered=1)) == ("a.0;a.1;a.2;", 2, [0, 1, 2])
    table.add(chunk(3, "b", 1, 3, redelivered=SHARED_REDELIVERIES))
    table.add(chunk(4, "c", 0, 3, redelivered=SHARED_REDELIVERIES - 1))
    table.core.expire(200.0)
    assert table.lost() == ([3], [4])


@pytest.mark.parametrize(
    ("entry", "error", "says"),
    [
        (chunk(0, "a", 3, 3), ChecksumError, "number 3 of 3"),
        (chunk(0, "a", 0, 3, total=2), ChecksumError, "number 0 of 3"),
        (chunk(0, "a", 0, 3, total=2**31 - 1), OperationNotSupported, "announces 2147483647 bytes"),
        (chunk(0, "a", 0, 1, total=9), ChecksumError, "hold 4 bytes and announce 9"),
    ],
)
def test_chunks_that_cannot_be(entry: Entry, error: type[Exception], says: str) -> None:
    table = Table()
    with pytest.raises(error, match=says):
        table.add(entry)
    table.core.check()


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.integers(0, 30)), max_size=60
    ),
    st.integers(0, 3),
    st.data(),
)
def test_any_order(
    arrivals: list[tuple[str, int, int]], pending_max: int, data: st.DataObject
) -> None:
    """Beside it a dumb oracle: all places of each message since its last beginning, kept in one
    list; a message has 3 chunks.
    """
    table = Table(pending_max)
    open_: list[tuple[str, list[int], set[int]]] = []  # uuid, numbers in order, places
    script = arrivals
    if data.draw(st.booleans()):
        # Mostly right: the chunks of each message in order, mixed, with a few lost or doubled.
        rows = [(uuid, number) for uuid in "abcd" for number in range(3)]
        order = data.draw(st.permutations([row[0] for row in rows]))
        counts = dict.fromkeys("abcd", 0)
        script = []
        for at, uuid in enumerate(order):
            for _ in range(data.draw(st.sampled_from([1, 1, 1, 1, 0, 2]))):
                script.append((uuid, counts[uuid], at))
            counts[uuid] += 1
    accounted: set[int] = set()
    for place, (uuid, number, _) in enumerate(script):
        if number > 2:
            continue
        made = table.add(chunk(place, uuid, number, 3))
        mine = next((row for row in open_ if row[0] == uuid), None)
        wanted = None
        if number == 0:
            if mine is not None:
                open_.remove(mine)
            elif pending_max and len(open_) == pending_max:
                open_.pop(0)
            open_.append((uuid, [0], {place} | (mine[2] if mine is not None else set())))
        elif mine is None or number > len(mine[1]):
            open_ = [row for row in open_ if row[0] != uuid]
        else:
            mine[2].add(place)
            if number == len(mine[1]):
                mine[1].append(number)
            if len(mine[1]) == 3:
                open_.remove(mine)
                wanted = (f"{uuid}.0;{uuid}.1;{uuid}.2;", place, sorted(mine[2]))
        assert (made and (made[0], made[1], sorted(made[2]))) == wanted
        done, again = table.lost()
        for at in (*done, *again, *(made[2] if made is not None else ())):
            assert at not in accounted, "an entry is disposed of once"
            accounted.add(at)
    waiting = set().union(*(row[2] for row in open_)) if open_ else set()
    assert accounted | waiting == {place for place, row in enumerate(script) if row[1] < 3}
    assert not accounted & waiting


def producer(
    max_message_bytes: int = 300, kind: CompressionType = CompressionType.NONE
) -> SendQueue:
    limits = SendLimits(100, False, 1, 1 << 20, kind, 30.0, chunking=True)
    core = SendQueue(limits, stamp=lambda: (0.0, 1_700_000_000_000))
    core.named("p", last_sequence_id=-1, initial_sequence_id=None)
    core.limit_messages(max_message_bytes)
    return core


@given(st.integers(0, 5_000), st.integers(200, 600), st.sampled_from(list(CompressionType)))
def test_what_is_cut_up_is_put_together(
    size: int, max_message_bytes: int, kind: CompressionType
) -> None:
    content = bytes(index * index % 251 for index in range(size))
    core = producer(max_message_bytes, kind)
    core.add(content, "told")
    core.add(b"next", "too")
    core.check()
    entries = core.take(1 << 30)
    assert [entry.callbacks for entry in entries if entry.callbacks] == [("told",), ("too",)]
    assert entries[-2].callbacks, "the last chunk tells"
    table = Table()
    for at, pending in enumerate(entries[:-1]):
        data = b"".join(pending.parts)
        verify_entry(data)
        metadata = parse_metadata(data)
        assert (metadata.sequence_id, metadata.chunk_id) == (0, at)
        if len(entries) > 2:
            assert len(data) <= max_message_bytes
            whole = table.core.add(Entry(1, at, 0, data), metadata)
            assert (whole is not None) == (at == len(entries) - 2)
            if whole is not None:
                packed = bytes(split_entry(whole.data)[1])
                assert (
                    decompress(kind, packed, metadata.uncompressed_size, bytes_max=size) == content
                )
    assert parse_metadata(b"".join(entries[-1].parts)).sequence_id == 1
    core.answered(len(entries) - 2)
    assert core.last_sequence_id == -1, "it is not stored before its last chunk is"
    core.answered(1)
    assert core.last_sequence_id == 0
    core.check()


@pytest.mark.parametrize("on_the_wire", [1, 2, 10])
def test_a_refused_chunk_fails_its_message_alone(on_the_wire: int) -> None:
    core = producer()
    core.add(b"x" * 700, "great")
    core.add(b"y", "small")
    first = core.take(1)
    sent = [*first, *(core.take(1)[0] for _ in range(min(on_the_wire, 4) - 1) if core.has_entries)]
    failed = core.refused()
    assert failed is not None
    assert failed.callbacks == ("great",)
    core.check()
    told = [entry.callbacks for entry in core.answered(len(sent) - 1) if entry is not None]
    told += [entry.callbacks for entry in core.take(1 << 30)]
    assert [callbacks for callbacks in told if callbacks] == [("small",)]


def test_a_second_refused_chunk_fails_nothing_more() -> None:
    core = producer()
    core.add(b"x" * 700, "great")
    core.add(b"y", "small")
    sent = [core.take(1)[0], core.take(1)[0]]
    assert all(entry.chunked is not None and not entry.callbacks for entry in sent)
    refused = [core.refused(), core.refused()]
    assert [entry.callbacks for entry in refused if entry is not None] == [("great",), ()]
    core.check()
    assert core.pending_count == 1
    assert [entry.callbacks for entry in core.take(1 << 30)] == [("small",)]


def test_an_id_says_where_the_first_chunk_lies() -> None:
    core = producer()
    core.add(b"x" * 700, None)
    entries = core.take(1 << 30)
    chunked = entries[-1].chunked
    assert chunked is not None
    assert [chunked.stored(7, 10 + at) for at in range(len(entries))][-1] == tuple(
        (7, 10 + at) for at in range(len(entries))
    )
    # ledger 7, entry 12, then field 7 with ledger 7, entry 10.
    kept = MessageId.deserialize(bytes([0x08, 7, 0x10, 12, 0x3A, 4, 0x08, 7, 0x10, 10]))
    assert (kept.entry_id(), kept.chunks()) == (12, ((7, 10), (7, 12)))
    assert MessageId.deserialize(kept.serialize()).chunks() == kept.chunks()
    assert kept == MessageId(-1, 7, 12)
