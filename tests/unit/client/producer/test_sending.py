"""The producer's core: limits of batches, sequence ids, order of resending, time-outs, and one
completion for every message.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.client.enums import CompressionType
from pulsarish.client.messages.entry_encoder import Extras, encode_batch
from pulsarish.client.messages.pending_entries import PendingEntry
from pulsarish.client.producer.send_limits import SendLimits
from pulsarish.client.producer.send_queue import SendQueue
from pulsarish.model.errors import MessageTooBig
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import parse_metadata, verify_entry


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def stamp(self) -> tuple[float, int]:
        return self.now, int(self.now * 1_000)


def make(time: Time | None = None, **changes: Any) -> SendQueue:
    limits: dict[str, Any] = {
        "max_pending_messages": 1_000,
        "batching": True,
        "batch_messages_max": 5,
        "batch_bytes_max": 1_000,
        "compression": CompressionType.NONE,
        "timeout_seconds": 30.0,
        **changes,
    }
    core = SendQueue(SendLimits(**limits), stamp=(time or Time()).stamp)
    core.named("p", last_sequence_id=-1, initial_sequence_id=None)
    return core


def metadata(entry: PendingEntry) -> MessageMetadata:
    data = b"".join(entry.parts)
    verify_entry(data)
    return parse_metadata(data)


def shape(core: SendQueue) -> list[tuple[int, int, int]]:
    """First and last sequence id and number of messages of every entry that can be taken."""
    return [
        (entry.sequence_id, entry.highest_sequence_id, len(entry.callbacks))
        for entry in core.take(1 << 40)
    ]


def test_batch_ends_at_its_number_of_messages() -> None:
    core = make()
    news = [core.add(b"x", None) for _ in range(11)]
    # A batch to be timed, the first entry to send, and again only batches to be timed: further
    # entries go with the first.
    assert news == [True, False, False, False, True, True, False, False, False, False, True]
    core.seal()
    assert shape(core) == [(0, 4, 5), (5, 9, 5), (10, 10, 1)]
    core.check()


def test_batch_ends_before_its_size_is_passed() -> None:
    core = make()
    for size in (400, 500, 200, 1_000, 1, 3_000, 1):
        core.add(b"x" * size, None)
    core.seal()
    assert shape(core) == [(0, 1, 2), (2, 2, 1), (3, 3, 1), (4, 4, 1), (5, 5, 1), (6, 6, 1)]


def test_batch_ends_when_the_queue_is_full() -> None:
    core = make(max_pending_messages=3)
    assert [core.add(b"x", None) for _ in range(3)] == [True, False, True]
    assert not core.has_room
    assert shape(core) == [(0, 2, 3)]


def test_unbatched_is_an_entry_a_message() -> None:
    core = make(batching=False, batch_messages_max=1)
    assert [core.add(b"x", None) for _ in range(3)] == [True, False, False]
    entries = core.take(1 << 40)
    assert core.add(b"x", None), "nothing waits on the way to the wire any more"
    assert [metadata(entry).HasField("num_messages_in_batch") for entry in entries] == [False] * 3
    assert [metadata(entry).sequence_id for entry in entries] == [0, 1, 2]


def test_metadata_of_a_batch_and_of_a_batch_of_one() -> None:
    core = make()
    core.add(b"x", None)
    core.add(b"y", None)
    core.seal()
    core.add(b"z", None, Extras(partition_key="k", event_timestamp_ms=5))
    core.seal()
    batch, alone = (metadata(entry) for entry in core.take(1 << 40))
    assert (batch.sequence_id, batch.highest_sequence_id, batch.num_messages_in_batch) == (0, 1, 2)
    assert (alone.sequence_id, alone.partition_key, alone.event_time) == (2, "k", 5)
    assert not alone.HasField("num_messages_in_batch")


def test_sequence_ids_start_where_the_broker_or_the_program_says() -> None:
    for last, initial, first in ((-1, None, 0), (41, None, 42), (41, 99, 100), (-1, -1, 0)):
        core = make()
        core.named("p", last_sequence_id=last, initial_sequence_id=initial)
        core.add(b"x", None)
        core.seal()
        assert shape(core) == [(first, first, 1)]


def test_given_sequence_ids_may_leave_gaps_and_never_mix_with_possible_duplicates() -> None:
    core = make()
    core.named("p", last_sequence_id=20, initial_sequence_id=None)
    for number in (18, 20, 25, 30, None, 35, 31, 40):
        core.add(b"x", None, None, number)
    core.seal()
    # 18, 20 and 31 may be in the log already: alone, or the broker would drop new messages with
    # them (rule 15).
    assert shape(core) == [(18, 18, 1), (20, 20, 1), (25, 35, 4), (31, 31, 1), (40, 40, 1)]


def test_delayed_messages_are_not_batched_and_keep_their_place() -> None:
    core = make()
    for extras in (None, None, Extras(deliver_at_ms=9), None):
        core.add(b"x", None, extras)
    core.seal()
    assert shape(core) == [(0, 1, 2), (2, 2, 1), (3, 3, 1)]


@given(
    st.integers(200, 3_000),
    st.lists(
        st.tuples(st.integers(0, 200), st.sampled_from(["", "key", "a longer key \u00e9"])),
        min_size=1,
        max_size=200,
    ),
)
def test_messages_that_fit_one_by_one_fit_together(
    limit: int, messages: list[tuple[int, str]]
) -> None:
    """A broker with a small limit refuses no batch: with deduplication the gap that it leaves would
    be taken for stored.
    """
    core = make(batch_bytes_max=128 * 1024, batch_messages_max=1_000, max_pending_messages=1_000)
    core.limit_messages(limit)
    for size, key in messages:
        extras = (
            Extras(
                properties={key: key}, partition_key=key, ordering_key=key, event_timestamp_ms=2**62
            )
            if key
            else None
        )
        core.add(b"x" * size, None, extras)
    core.seal()
    assert core.take_oversized() == []
    assert sum(len(entry.callbacks) for entry in core.take(1 << 30)) == len(messages)


def test_too_big_is_refused_at_once_or_once_it_is_framed() -> None:
    core = make(batch_bytes_max=10_000)
    done: list[str] = []
    core.add(b"x" * 10, None)
    core.seal()
    core.add(b"x" * 80, "a")
    core.add(b"x" * 80, "b")
    core.seal()
    core.limit_messages(100)  # known only now
    with pytest.raises(MessageTooBig, match="101"):
        core.add(b"x" * 101, None)
    assert core.pending_count == 3
    core.flush(lambda: done.append("flushed"))
    ((entry, error),) = core.take_oversized()
    assert (list(entry.callbacks), type(error)) == (["a", "b"], MessageTooBig)
    assert not entry.flushes, "who flushed still waits for the first message"
    core.check()
    core.take(1 << 20)
    (first,) = core.answered(1)
    assert first is not None
    first.flushes[0]()
    assert done == ["flushed"]


def test_compressed_content_may_be_greater_than_the_limit() -> None:
    core = make(compression=CompressionType.ZSTD, batch_bytes_max=10_000)
    core.limit_messages(100)
    core.add(b"x" * 5_000, None)
    core.seal()
    assert core.take_oversized() == []
    core.limit_messages(10)
    core.check()
    ((_, error),) = core.take_oversized()
    assert "10 bytes" in str(error)
    assert core.pending_count == 0


def test_take_keeps_to_the_size_but_gives_at_least_one() -> None:
    core = make(batching=False, batch_messages_max=1)
    for size in (500, 500, 5_000, 10):
        core.add(b"x" * size, None)
    assert [len(core.take(1_200)) for _ in range(4)] == [2, 1, 1, 0]


def test_when_the_oldest_times_out_all_behind_it_fail_and_late_answers_are_swallowed() -> None:
    time = Time()
    core = make(time, batch_messages_max=2, timeout_seconds=10.0)
    for number in range(4):
        core.add(b"x", number)
        time.now += 1
    core.take(1 << 20)
    for number in range(4, 7):
        core.add(b"x", number)
    assert core.next_deadline() == 11
    assert core.expired(10.9) == []
    late = core.expired(11.0)
    # On the wire, waiting for it, and the one of an open batch: what is sent next must not come
    # before any of them.
    assert [callback for entry in late for callback in entry.callbacks] == [0, 1, 2, 3, 4, 5, 6]
    assert core.pending_count == 0
    assert core.next_deadline() is None
    core.check()
    core.add(b"x", 7)
    core.seal()
    assert shape(core) == [(7, 7, 1)]
    assert core.next_deadline() == 14
    # The two that were on the wire are answered first; one was refused.
    assert (before := core.sent_before(2)) is not None
    assert before.highest_sequence_id == 3
    assert core.answered(1) == [None]
    assert core.refused() is None
    assert core.last_sequence_id == 1
    assert [entry and entry.callbacks[0] for entry in core.answered(1)] == [7]
    core.check()


def test_what_timed_out_is_not_sent_again_on_the_next_connection() -> None:
    time = Time()
    core = make(time, batching=False, batch_messages_max=1, timeout_seconds=10.0)
    core.add(b"x", 0)
    core.take(1 << 20)
    time.now = 10.0
    assert len(core.expired(time.now)) == 1
    core.add(b"x", 1)
    core.take(1 << 20)
    core.disconnected()
    assert [entry.callbacks[0] for entry in core.take(1 << 20)] == [1]
    assert [entry and entry.callbacks[0] for entry in core.answered(1)] == [1]


def test_too_big_stays_too_big_when_the_time_is_up() -> None:
    """ "Timeout" would make the program try again what can never be sent."""
    time = Time()
    core = make(
        time,
        batching=False,
        batch_messages_max=1,
        timeout_seconds=10.0,
        compression=CompressionType.LZ4,
    )
    core.max_message_bytes = 100
    core.add(b"x", 0)
    core.add(random.Random(1).randbytes(200), 1)
    assert [entry.callbacks[0] for entry in core.expired(10.0)] == [0]
    assert [entry.callbacks[0] for entry, _ in core.take_oversized()] == [1]
    core.check()


def test_retry_in_order_under_the_same_sequence_ids_leaves_no_duplicate_and_loses_nothing() -> None:
    """What a program does with deduplication when sends time out, against a broker of two lines;
    the outcome was unknown.
    """
    for stored_count in range(4):
        time = Time()
        core = make(time, batching=False, batch_messages_max=1, timeout_seconds=10.0)
        for number in range(3):
            core.add(b"%d" % number, number, sequence_id=number)
        log = [entry.sequence_id for entry in core.take(1 << 20)[:stored_count]]
        failed = [entry.callbacks[0] for entry in core.expired(10.0)]
        assert failed == [0, 1, 2], "in order, so that the program can send them again in order"
        core.disconnected()
        for number in [*failed, 3]:
            core.add(b"%d" % number, number, sequence_id=number)
        for entry in core.take(1 << 20):
            if entry.sequence_id > max(log, default=-1):
                log.append(entry.sequence_id)
        assert log == [0, 1, 2, 3]


def test_flush_with_nothing_pending_is_done() -> None:
    core = make()
    done: list[int] = []
    core.flush(lambda: done.append(1))
    assert done == [1]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_every_message_is_completed_once_and_in_order(seed: int, batching: bool) -> None:  # noqa: C901 - one step of a script each
    """Random sends, losses, answers, refusals and time, against a plain list of what is still
    owed.
    """
    chance = random.Random(seed)
    time = Time()
    core = make(
        time,
        batching=batching,
        batch_messages_max=chance.randrange(1, 6),
        max_pending_messages=40,
        timeout_seconds=20.0,
    )
    log: list[int] = []  # what a broker with deduplication holds
    wire: list[PendingEntry] = []
    completed: list[int] = []
    stored: set[int] = set()
    number = 0

    def complete(entry: PendingEntry | None) -> None:
        if entry is not None:
            completed.extend(entry.callbacks)

    for _ in range(200):
        match chance.randrange(8):
            case 0 | 1 | 2:
                if core.has_room:
                    core.add(b"x" * chance.randrange(300), number)
                    number += 1
            case 3:
                core.seal()
            case 4:
                wire += core.take(chance.randrange(1, 2_000))
            case 5 if wire:
                count = chance.randrange(1, len(wire) + 1)
                for entry in wire[:count]:
                    if not stored.intersection(entry.callbacks):
                        stored.update(entry.callbacks)
                        log.extend(entry.callbacks)
                del wire[:count]
                for entry in core.answered(count):
                    complete(entry)
            case 6 if chance.random() < 0.3:
                # Some of what was on the wire had arrived before it broke.
                for entry in wire[: chance.randrange(len(wire) + 1)]:
                    if not stored.intersection(entry.callbacks):
                        stored.update(entry.callbacks)
                        log.extend(entry.callbacks)
                wire.clear()
                core.disconnected()
            case 7:
                time.now += chance.choice((0.1, 0.1, 8.0))
                for entry in core.expired(time.now):
                    complete(entry)
                    assert core.pending_count == 0, (
                        "nothing that was sent behind it is left to pass it"
                    )
        core.check()
    for entry in core.end():
        complete(entry)
    assert completed == list(range(number)), (
        "each exactly once, in the order of sending, whether stored or failed"
    )
    assert log == sorted(log), "the log is in the order of sending"
    assert core.pending_count == 0


def test_batches_by_key_hold_one_key_each_and_sequence_ids_grow_from_entry_to_entry() -> None:
    core = make(by_key=True, batch_messages_max=7)
    a, b, ordered = (
        Extras(partition_key="a"),
        Extras(partition_key="b"),
        Extras(partition_key="a", ordering_key="o"),
    )
    for number, extras in enumerate([a, b, None, a, ordered, a, None]):
        core.add(b"%d" % number, None, extras)
    entries = core.take(1 << 40)
    found = []
    for entry in entries:
        head = metadata(entry)
        keys = (head.partition_key, bytes(head.ordering_key))
        count = head.num_messages_in_batch if head.HasField("num_messages_in_batch") else 0
        found.append((*keys, head.sequence_id, entry.highest_sequence_id, count))
    assert found == [
        ("a", b"", 0, 2, 3),
        ("b", b"", 3, 3, 0),
        ("", b"", 4, 5, 2),
        ("a", b"o", 6, 6, 0),
    ]
    core.check()


def test_a_batch_by_key_without_keys_is_one_batch_and_own_sequence_ids_stand_alone() -> None:
    core = make(by_key=True)
    for sequence_id in (None, None, 7, None, None):
        core.add(b"x", None, None, sequence_id)
    core.seal()
    assert shape(core) == [(0, 1, 2), (7, 7, 1), (8, 9, 2)]


def test_a_batch_that_the_program_made_is_one_entry_and_one_receipt() -> None:
    core = make()
    core.add(b"before", None)
    told: list[Any] = []
    batch = encode_batch([b"x", b"y"], [7, 9], {})
    assert core.add_batch(batch, 2, 7, 9, told.append)
    core.add(b"after", None)
    core.seal()
    entries = core.take(1 << 20)
    assert [(entry.sequence_id, entry.highest_sequence_id) for entry in entries] == [
        (0, 0),
        (7, 9),
        (10, 10),
    ]
    head = metadata(entries[1])
    assert (head.num_messages_in_batch, head.sequence_id, head.highest_sequence_id) == (2, 7, 9)
    assert entries[1].parts[1] == batch
    assert core.pending_count == 3
    core.check()
    assert core.answered(3) == entries
    assert core.last_sequence_id == 10
