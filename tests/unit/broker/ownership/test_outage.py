"""Core of an outage of the metadata: when a broker without a session continues."""

from __future__ import annotations

from pulsarish.broker.ownership.outage import Outage

LIMIT = 9.0


def _outage(**answers: bool) -> Outage:
    """An outage in which these brokers were asked at time 10."""
    outage = Outage(LIMIT)
    for name, is_away in answers.items():
        outage.answered(name, 10.0, is_away=is_away)
    return outage


def test_a_broker_that_is_alone_continues() -> None:
    assert Outage(LIMIT).why_end((), 1e9, begins=True) == ""
    assert Outage(LIMIT).why_end((), 1e9, begins=False) == ""


def test_all_others_must_say_so_and_what_they_said_holds_for_a_while() -> None:
    outage = _outage(b=True, c=True)
    assert outage.why_end(("b", "c"), 10.5, begins=True) == ""
    assert outage.why_end(("b", "c"), 18.9, begins=False) == ""
    assert outage.why_end(("b", "c"), 19.0, begins=False) == (
        "b does not say whether it reaches the metadata service"
    )
    assert outage.why_end(("b", "c", "d"), 10.5, begins=True).startswith("d does not say")


def test_one_that_still_reaches_it_ends_this_broker_whatever_most_say() -> None:
    outage = _outage(b=True, c=True, d=True, e=False)
    assert outage.why_end(("b", "c", "d", "e"), 10.5, begins=True) == (
        "e reaches the metadata service"
    )
    assert outage.why_end(("b", "c", "d", "e"), 10.5, begins=False) != ""


def test_one_that_reaches_it_again_leaves_the_rest_of_the_time() -> None:
    outage = _outage(b=True)
    outage.answered("b", 12.0, is_away=False)
    assert outage.why_end(("b",), 18.9, begins=False) == ""
    assert outage.why_end(("b",), 19.0, begins=False) == "b reaches the metadata service"
    assert outage.why_end(("b",), 12.0, begins=True) == "b reaches the metadata service"
    outage.answered("b", 13.0, is_away=True)
    assert outage.why_end(("b",), 21.9, begins=True) == ""


def test_processes_that_are_not_there_say_nothing_but_most_must_be_there() -> None:
    outage = _outage(b=True)
    outage.refused("c")
    assert outage.why_end(("b", "c"), 10.5, begins=True) == ""
    outage.refused("d")
    assert outage.why_end(("b", "c", "d"), 10.5, begins=True) == (
        "2 of 4 brokers are there: that is not most of them"
    )
    outage.keep({"b", "c"})
    assert outage.why_end(("b", "c", "d"), 10.5, begins=True).startswith("d does not say")
    outage.answered("c", 11.0, is_away=False)
    assert outage.why_end(("b", "c"), 11.5, begins=True) == "c reaches the metadata service"


def test_one_that_reached_it_before_its_process_ended_is_not_forgotten() -> None:
    outage = _outage(b=True, c=False)
    outage.refused("c")
    assert outage.why_end(("b", "c"), 10.5, begins=True) == "c reaches the metadata service"
