"""What the oracle calls a reorder: one producer's messages out of order, and only one producer's."""

from __future__ import annotations

from pulsarish.sim.oracle import Oracle, Place, Promises


def _log_with_a_late_entry(first_name: str, second_name: str) -> Oracle:
    """Two sessions of one program; the last message of the first session lies behind the first message of the second."""
    oracle = Oracle(Promises(deduplication=False, trimmed=False))
    sends = [
        oracle.attempt(first_name, 1, 0, "a.0"),
        oracle.attempt(second_name, 2, 2, "b.2"),
        oracle.attempt(first_name, 1, 1, "a.1"),
    ]
    places = [Place(-1, 0, entry, 0) for entry in range(len(sends))]
    for attempt, place in zip(sends, places, strict=True):
        oracle.saw(place, attempt.value, "a reader")
    oracle.finals.append(places)
    return oracle


def test_sessions_under_one_name_are_one_producer_whose_order_is_kept() -> None:
    assert [anomaly.name for anomaly in _log_with_a_late_entry("p", "p").judge()] == ["reorder"]


def test_sessions_under_two_names_may_interleave() -> None:
    assert _log_with_a_late_entry("chosen-1", "chosen-2").judge() == []


def test_a_session_under_its_own_name_is_still_held_to_its_order() -> None:
    oracle = Oracle(Promises(deduplication=False, trimmed=False))
    places = [Place(-1, 0, entry, 0) for entry in range(2)]
    for number, place in zip((1, 0), places, strict=True):
        oracle.saw(place, oracle.attempt("chosen-1", 1, number, f"a.{number}").value, "a reader")
    oracle.finals.append(places)
    assert [anomaly.value for anomaly in oracle.judge()] == ["a.0"]
