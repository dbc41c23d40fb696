"""Acknowledgements: batches, groups, cumulative positions, and what survives a broken
connection.
"""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from pulsarish.client.connection.ack_tracker import AckBatch, AckTracker
from pulsarish.client.message_id import MessageId


def message(entry: int, index: int = -1, size: int = 0) -> MessageId:
    return MessageId(-1, 1, entry, index, size)


def test_batch_is_acknowledged_when_all_of_it_is() -> None:
    acks = AckTracker(group_max=100, batch_index=False)
    acks.opened(1, 7, 3)
    assert not acks.acknowledge(message(7, 2, 3))
    assert not acks.acknowledge(message(7, 2, 3)), "twice the same changes nothing"
    assert not acks.acknowledge(message(7, 0, 3))
    assert not acks.is_waiting
    assert acks.acknowledge(message(7, 1, 3))
    assert acks.take() == AckBatch([(1, 7, -1)])
    acks.check()


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=12), max_size=12), st.booleans())
def test_several_indexes_at_once_count_like_one_by_one(
    runs: list[list[int]], batch_index: bool
) -> None:
    """Also those that repeat, and those beyond the batch of 8."""
    together = AckTracker(group_max=100, batch_index=batch_index)
    singly = AckTracker(group_max=100, batch_index=batch_index)
    for acks in (together, singly):
        acks.opened(1, 7, 8)
    for run in (*runs, [0, 1, 2, 3, 4, 5, 6, 7]):
        complete = together.acknowledge_indexes((1, 7), run, 8)
        # ``any`` stops at the index that completes the batch.
        assert complete == any(singly.acknowledge(message(7, index, 8)) for index in run)
        together.check()
        assert together.take() == singly.take()
        if complete:
            return


def test_indexes_go_out_when_their_batch_is_not_finished_by_then() -> None:
    acks = AckTracker(group_max=100, batch_index=True)
    acks.opened(1, 7, 3)
    assert not acks.acknowledge(message(7, 1, 3))
    assert acks.is_waiting
    assert acks.take() == AckBatch([(1, 7, 1)])
    assert not acks.is_waiting
    assert not acks.acknowledge(message(7, 2, 3))
    assert acks.acknowledge(message(7, 0, 3))
    assert acks.take() == AckBatch([(1, 7, -1)]), "the whole entry stands for its last indexes"
    assert acks.take() is None


def test_a_batch_acknowledged_message_by_message_is_one_id() -> None:
    acks = AckTracker(group_max=100, batch_index=True)
    for entry in range(5):
        acks.opened(1, entry, 1_000)
        for index in range(1_000):
            acks.acknowledge(message(entry, index, 1_000))
    assert not acks.is_full
    assert acks.take() == AckBatch([(1, entry, -1) for entry in range(5)])


def test_what_was_not_handed_out_counts_as_acknowledged() -> None:
    acks = AckTracker(group_max=100, batch_index=False)
    acks.opened(1, 7, 4, [1, 3])
    assert not acks.acknowledge(message(7, 3, 4))
    assert acks.acknowledge(message(7, 1, 4))


def test_new_delivery_begins_anew() -> None:
    acks = AckTracker(group_max=100, batch_index=False)
    acks.opened(1, 7, 2)
    acks.acknowledge(message(7, 0, 2))
    acks.opened(1, 7, 2)
    assert not acks.acknowledge(message(7, 1, 2))
    assert acks.acknowledge(message(7, 0, 2))


def test_cumulative_in_the_middle_of_a_batch() -> None:
    acks = AckTracker(group_max=100, batch_index=False)
    acks.opened(1, 7, 3)
    assert acks.acknowledge_cumulative(message(7, 1, 3)) == (1, 6)
    assert acks.take() == AckBatch(cumulative=(1, 6, -1))
    assert acks.acknowledge_cumulative(message(7, 2, 3)) == (1, 7)
    assert acks.take() == AckBatch(cumulative=(1, 7, -1))
    by_index = AckTracker(group_max=100, batch_index=True)
    by_index.opened(1, 7, 3)
    assert by_index.acknowledge_cumulative(message(7, 1, 3)) == (1, 6)
    assert by_index.take() == AckBatch(cumulative=(1, 7, 1))


def test_greatest_cumulative_position_wins() -> None:
    acks = AckTracker(group_max=100, batch_index=True)
    for entry in (3, 9, 5):
        acks.acknowledge_cumulative(message(entry))
    assert acks.take() == AckBatch(cumulative=(1, 9, -1))
    assert acks.take() is None


def test_group_is_full_at_its_number_or_when_somebody_waits() -> None:
    acks = AckTracker(group_max=3, batch_index=False)
    for entry in range(2):
        acks.acknowledge(message(entry))
    assert not acks.is_full
    acks.acknowledge(message(2))
    assert acks.is_full
    acks.take()
    assert not acks.wait(lambda _error: None), "there is nothing to wait for"
    acks.acknowledge(message(3))
    assert acks.wait(lambda _error: None)
    assert acks.is_full


def test_unanswered_receipts_are_told_again_and_first() -> None:
    acks = AckTracker(group_max=100, batch_index=False)
    heard: list[object] = []
    acks.acknowledge(message(1))
    acks.wait(heard.append)
    first = acks.take()
    acks.acknowledge(message(2))
    acks.acknowledge_cumulative(message(9))
    acks.disconnected()
    again = acks.take()
    assert first is not None
    assert again is not None
    assert (again.ids, again.cumulative) == ([(1, 1, -1), (1, 2, -1)], (1, 9, -1))
    assert acks.answered(first) == [], "a late answer to what was told again speaks for nobody"
    for done in acks.answered(again):
        done(None)
    assert heard == [None]
    acks.disconnected()
    assert not acks.is_waiting


def test_end_names_everybody_who_waits() -> None:
    acks = AckTracker(group_max=100, batch_index=False)
    heard: list[object] = []
    for entry in (1, 2):
        acks.acknowledge(message(entry))
        acks.wait(heard.append)
        if entry == 1:
            acks.take()
    assert len(acks.end()) == 2
    assert not acks.is_waiting


@given(st.integers(0, 2**32))
def test_batches_against_a_plain_set(seed: int) -> None:
    chance = random.Random(seed)
    acks = AckTracker(group_max=10, batch_index=False)
    left = {entry: set(range(chance.randrange(2, 6))) for entry in range(6)}
    sizes = {entry: len(indexes) for entry, indexes in left.items()}
    for entry, size in sizes.items():
        acks.opened(1, entry, size)
    whole: list[int] = []
    for _ in range(60):
        entry = chance.randrange(6)
        index = chance.randrange(sizes[entry])
        was_whole = not left[entry]
        left[entry].discard(index)
        answered = acks.acknowledge(message(entry, index, sizes[entry]))
        if not was_whole:
            assert answered == (not left[entry])
            if answered:
                whole.append(entry)
        acks.check()
    told = [batch_id[1] for batch in iter(acks.take, None) for batch_id in batch.ids]
    assert [entry for index, entry in enumerate(told) if entry not in told[:index]] == whole
