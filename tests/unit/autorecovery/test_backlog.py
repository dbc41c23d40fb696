"""Which ledger is repaired next."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from pulsarish.autorecovery.backlog import Backlog


def backlog() -> Backlog:
    return Backlog(random.Random(1), 1.0, 8.0)


def test_waits_double_up_to_a_longest_and_never_end() -> None:
    work = backlog()
    work.published([7], 0.0)
    now, waits = 0.0, []
    for _ in range(6):
        assert work.take(now) == 7
        work.ended(7, now, done=False)
        due = work.next_due()
        assert due is not None
        waits.append(due - now)
        assert work.take(due - 0.01) is None
        now = due
    assert waits == [1, 2, 4, 8, 8, 8]
    work.check()


def test_one_is_taken_by_one_at_a_time_and_a_newer_record_at_once() -> None:
    work = backlog()
    work.published([7], 0.0)
    assert work.take(0.0) == 7
    work.published([7], 0.0)
    assert work.take(100.0) is None
    work.ended(7, 100.0, done=False, again=True)
    assert work.take(100.0) == 7


def test_what_is_published_no_more_is_forgotten_when_its_attempt_ends() -> None:
    work = backlog()
    work.published([7, 8], 0.0)
    assert work.take(0.0) in (7, 8)
    work.published([], 1.0)
    assert work.count == 1
    assert work.take(1.0) is None


def test_how_long_a_ledger_has_waited_counts_from_when_it_was_first_seen() -> None:
    work = backlog()
    work.published([7], 5.0)
    work.take(5.0)
    work.ended(7, 6.0, done=False)
    work.published([7], 7.0)
    assert work.waited(7, 20.0) == 15.0


def test_a_reason_is_news_once_and_again_after_another() -> None:
    work = backlog()
    work.published([7], 0.0)
    assert work.take(0.0) == 7
    assert [work.is_news(7, reason) for reason in ("open", "open", "no bookie", "open")] == [
        True,
        False,
        True,
        True,
    ]


def test_hurry_brings_everything_forward() -> None:
    work = backlog()
    work.published([7, 8], 0.0)
    for _ in range(2):
        ledger_id = work.take(0.0)
        assert ledger_id is not None
        work.ended(ledger_id, 0.0, done=False)
    assert work.take(0.5) is None
    work.hurry(0.5)
    assert sorted([work.take(0.5) or 0, work.take(0.5) or 0]) == [7, 8]


@given(
    st.lists(
        st.tuples(st.sampled_from(["publish", "take", "done", "fail", "hurry"]), st.integers(0, 5)),
        max_size=60,
    )
)
def test_nothing_published_is_ever_forgotten(script: list[tuple[str, int]]) -> None:
    work = backlog()
    listed: set[int] = set()
    running: list[int] = []
    now = 0.0
    for what, number in script:
        now += 0.5
        match what:
            case "publish":
                listed ^= {number}
                work.published(sorted(listed), now)
            case "take":
                if (taken := work.take(now)) is not None:
                    assert taken not in running
                    running.append(taken)
            case "done" | "fail" if running:
                ended = running.pop(0)
                if what == "done":
                    listed.discard(ended)
                work.ended(ended, now, done=what == "done")
            case _:
                work.hurry(now)
        work.check()
    for ledger_id in running:
        work.ended(ledger_id, now, done=False)
    work.published(sorted(listed), now)
    found = set()
    while (taken := work.take(now + 100)) is not None:
        found.add(taken)
    assert found == listed
