"""SeekTracker under way: what was dropped because of them is asked for again when the last of them
was refused, and not before.
"""

from __future__ import annotations

from pulsarish.client.consumer.seek_tracker import SeekTracker
from pulsarish.client.messages.message import Entry


def entries(*numbers: int) -> list[Entry]:
    return [Entry(1, number, 0, b"") for number in numbers]


def test_what_a_refused_seek_dropped_is_asked_for_again_once() -> None:
    seeks = SeekTracker()
    seeks.on_request()
    seeks.on_dropped(entries(1, 2))
    assert seeks.is_under_way
    assert seeks.on_answer(is_current=True, is_done=False) == [(1, 1), (1, 2)]
    assert not seeks.is_under_way
    seeks.on_request()
    assert seeks.on_answer(is_current=True, is_done=False) == []


def test_what_a_seek_dropped_that_was_done_is_not_wanted() -> None:
    seeks = SeekTracker()
    seeks.on_request()
    seeks.on_dropped(entries(1))
    assert seeks.on_answer(is_current=True, is_done=True) == []
    seeks.on_request()
    assert seeks.on_answer(is_current=True, is_done=False) == []


def test_of_several_the_last_answer_counts() -> None:
    seeks = SeekTracker()
    for number in (1, 2, 3):
        seeks.on_request()
        seeks.on_dropped(entries(number))
    assert seeks.on_answer(is_current=True, is_done=False) == []
    # Done: what came before this answer is from before that seek.
    assert seeks.on_answer(is_current=True, is_done=True) == []
    seeks.on_dropped(entries(4))
    assert seeks.on_answer(is_current=True, is_done=False) == [(1, 4)]


def test_answers_to_an_earlier_subscription_end_nothing_of_this_one() -> None:
    seeks = SeekTracker()
    seeks.on_request()
    seeks.on_dropped(entries(1))
    seeks.on_subscribed()
    assert not seeks.is_under_way
    seeks.on_request()
    seeks.on_dropped(entries(2))
    assert seeks.on_answer(is_current=False, is_done=False) == []
    assert seeks.is_under_way
    assert seeks.on_answer(is_current=True, is_done=False) == [(1, 2)]
