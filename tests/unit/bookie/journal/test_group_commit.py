"""Group commit: all that waits goes together, and nobody is answered before his sync (rule 9)."""

from __future__ import annotations

import pytest

from pulsarish.bookie.journal.group_commit import Group, GroupCommit
from pulsarish.bookie.journal.journal_format import RecordType, padded_size


def queue(size: int = 10_000) -> tuple[GroupCommit, list[str]]:
    return GroupCommit(5, size), []


def add(commit: GroupCommit, told: list[str], name: str, size: int = 10) -> int:
    return commit.append(RecordType.ADD, [bytes(size)], size, lambda: told.append(name))


def test_everything_that_waits_is_one_group_and_answers_come_in_order() -> None:
    commit, told = queue()
    assert [add(commit, told, name) for name in "abc"] == [5, 6, 7]
    group = commit.take()
    assert group.size_bytes == 3 * padded_size(10)
    assert group.next_sequence == 8
    assert not commit
    add(commit, told, "d")
    assert told == []
    commit.synced(group)
    assert commit.synced_sequence == 8
    assert told == []
    commit.answer(group)
    assert told == ["a", "b", "c"]
    assert commit.waiting_bytes == 10
    commit.check()


def test_a_group_is_closed_by_its_size_but_takes_one_record_however_large() -> None:
    commit, told = queue(100)
    add(commit, told, "large", 5000)
    add(commit, told, "small")
    first = commit.take()
    assert [pending.sequence for pending in first.records] == [5]
    commit.synced(first)
    assert [pending.sequence for pending in commit.take().records] == [6]


@pytest.mark.parametrize(("room", "taken"), [(3, 3), (2.5, 2), (2, 2), (0.5, 1)])
def test_a_group_never_goes_over_its_size(room: float, taken: int) -> None:
    commit, told = queue(int(room * padded_size(10)))
    for name in "abc":
        add(commit, told, name)
    assert len(commit.take().records) == taken


def test_a_barrier_waits_for_what_is_before_it_and_writes_nothing() -> None:
    commit, told = queue()
    add(commit, told, "record")
    commit.append_barrier(lambda: told.append("barrier"))
    group = commit.take()
    assert group.next_sequence == 6
    commit.synced(group)
    commit.answer(group)
    assert told == ["record", "barrier"]
    commit.append_barrier(lambda: told.append("alone"))
    group = commit.take()
    assert (group.size_bytes, group.next_sequence) == (0, 6)
    commit.synced(group)
    commit.answer(group)
    assert told[-1] == "alone"


def test_an_answer_before_the_sync_is_a_defect() -> None:
    commit, told = queue()
    add(commit, told, "a")
    group = commit.take()
    with pytest.raises(AssertionError, match="before it is durable"):
        commit.answer(group)
    assert told == []


def test_one_group_is_out_at_a_time() -> None:
    commit, told = queue()
    add(commit, told, "a")
    group = commit.take()
    add(commit, told, "b")
    with pytest.raises(AssertionError):
        commit.take()
    with pytest.raises(AssertionError):
        commit.synced(Group(group.records, group.size_bytes, group.next_sequence + 1))


def test_what_an_answer_appends_belongs_to_the_next_group() -> None:
    commit, told = queue()

    def again() -> None:
        add(commit, told, "later")

    commit.append(RecordType.FENCE, [b"x"], 1, again)
    group = commit.take()
    commit.synced(group)
    commit.answer(group)
    assert commit
    assert commit.take().records[0].sequence == 6
