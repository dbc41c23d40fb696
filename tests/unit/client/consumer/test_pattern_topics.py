"""The core of a consumer of a pattern."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pulsarish.client.consumer.pattern_topics import PatternTopics, Plan

NAMES = "abcd"


def test_topics_of_the_first_list_are_old_and_all_others_are_new() -> None:
    topics = PatternTopics()
    topics.listed({"a", "b"}, persistent=True)
    assert topics.plan(0.0).opens == ["a", "b"]
    topics.listed({"x"}, persistent=False)
    topics.listed({"a", "c"}, persistent=True)
    assert [topics.is_new(name) for name in "abcx"] == [False, True, True, False]
    topics.opened("a")
    assert topics.is_new("a"), "what is made again by the name of an open topic is new"


def test_a_topic_that_left_and_came_back_is_new() -> None:
    topics = PatternTopics()
    topics.listed({"a"}, persistent=True)
    topics.listed(set(), persistent=True)
    topics.listed({"a"}, persistent=True)
    assert topics.is_new("a")


def test_a_topic_of_the_first_list_that_is_gone_when_it_is_opened_comes_back_as_a_new_one() -> None:
    topics = PatternTopics()
    topics.listed({"a", "b"}, persistent=True)
    topics.plan(0.0)
    topics.ended("a", 0.0, is_deleted=True)
    topics.ended("b", 0.0)
    assert [topics.is_new(name) for name in "ab"] == [True, False]


def test_what_was_received_of_a_deleted_topic_does_not_come_again() -> None:
    topics = PatternTopics()
    topics.listed({"a"}, persistent=True)
    topics.plan(0.0)
    topics.ended("a", 1.0, is_deleted=True)
    assert not topics.is_refused("a")
    topics.plan(60.0)
    topics.ended("a", 60.0)
    assert topics.is_refused("a")
    topics.opened("a")
    assert not topics.is_refused("a")


def test_a_topic_that_ends_is_opened_again_while_it_is_listed() -> None:
    topics = PatternTopics()
    topics.listed({"a"}, persistent=True)
    assert topics.plan(0.0) == Plan(["a"], [])
    assert topics.ended("a", 10.0)
    assert topics.plan(10.0) == Plan()
    due = topics.next_due()
    assert due is not None
    assert due > 10.0
    assert topics.plan(due) == Plan(["a"], [])
    assert not topics.ended("a", 20.0), "it is reported once"
    later = topics.next_due()
    assert later is not None
    assert later - 20.0 > due - 10.0
    assert topics.is_refused("a")
    topics.listed(set(), persistent=True)
    assert topics.next_due() is None
    assert not topics.is_refused("a")
    topics.listed({"a"}, persistent=True)
    assert topics.plan(20.0) == Plan(["a"], []), "a topic that comes is opened at once"


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("list"), st.sets(st.sampled_from(NAMES)), st.booleans()),
            st.tuples(st.just("end"), st.sampled_from(NAMES)),
            st.tuples(st.just("open"), st.sampled_from(NAMES)),
        ),
        max_size=30,
    )
)
def test_in_the_end_the_topics_of_the_latest_lists_are_open(
    steps: list[tuple[object, ...]],
) -> None:
    topics = PatternTopics()
    lists: dict[object, set[str]] = {}
    there: set[str] = set()
    now = 0.0

    def carry_out() -> None:
        plan = topics.plan(now)
        assert there.isdisjoint(plan.opens)
        assert there.issuperset(plan.closes)
        there.update(plan.opens)
        for name in plan.closes:
            there.discard(name)
            topics.ended(name, now)

    for step in steps:
        match step:
            case ("list", set() as names, bool() as persistent):
                lists[persistent] = names
                topics.listed(names, persistent=persistent)
            case ("end", str() as name) if name in there:
                there.discard(name)
                topics.ended(name, now)
            case ("open", str() as name) if name in there:
                topics.opened(name)
            case _:
                pass
        topics.check()
        carry_out()
        now += 0.1
    for _ in range(10):
        now = max(now, topics.next_due() or now)
        carry_out()
    assert there == set().union(*lists.values())
