"""What the oracle calls a reorder, and how it tells what was trimmed under a final read from what
was lost.
"""

from __future__ import annotations

from pulsarish.sim.cluster.oracle import Oracle, Place, Promises, Subscription


def _log_with_a_late_entry(first_name: str, second_name: str) -> Oracle:
    """Two sessions of one program; the last message of the first session lies behind the first
    message of the second.
    """
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


def test_the_first_place_of_a_message_counts_when_it_is_trimmed_too() -> None:
    """Sent again after a lost answer, it lies behind its successor; its first place, ahead of it,
    was seen and then trimmed.
    """
    oracle = Oracle(Promises(deduplication=False, trimmed=True))
    first, second = (oracle.attempt("p", 1, number, f"a.{number}") for number in range(2))
    places = [Place(-1, ledger, 0, 0) for ledger in range(3)]
    oracle.saw(places[0], first.value, "work")
    oracle.saw(places[1], second.value, "a reader")
    oracle.saw(places[2], first.value, "a reader")
    oracle.finals.append(places[1:])
    assert oracle.judge() == []


def _log_trimmed_under_its_final_read(acknowledged: int) -> Oracle:
    """Entries 0 to 3; 0, 1 and 2 were trimmed when the first final read had come to 1, so that it
    goes on with 3.
    """
    oracle = Oracle(Promises(deduplication=False, trimmed=True))
    subscription = Subscription("work", in_order=True)
    oracle.subscriptions["work"] = subscription
    places = [Place(-1, entry, 0, 0) for entry in range(4)]
    for number, place in enumerate(places):
        oracle.stored(oracle.attempt("p", 1, number, f"a.{number}"), place)
    subscription.tried.update(places[:acknowledged])
    subscription.final = places[acknowledged:]
    subscription.delivered.update(places)
    subscription.sessions.append(places)
    oracle.tails.append(places)
    oracle.finals = [[places[0], places[1], places[3]], [places[3]]]
    oracle.first_left = {-1: places[3]}
    return oracle


def test_what_is_trimmed_while_a_final_read_runs_is_not_lost() -> None:
    assert _log_trimmed_under_its_final_read(acknowledged=3).judge() == []


def test_what_nobody_acknowledged_is_lost_though_a_final_read_ran_across_its_trimming() -> None:
    # Entry 2 never came in a final read, entry 1 in the first.
    assert {
        anomaly.value for anomaly in _log_trimmed_under_its_final_read(acknowledged=2).judge()
    } == {"a.2"}
    assert {
        anomaly.value for anomaly in _log_trimmed_under_its_final_read(acknowledged=1).judge()
    } == {"a.1", "a.2"}


def test_a_gap_behind_the_first_that_is_left_is_a_lost_write() -> None:
    oracle = _log_trimmed_under_its_final_read(acknowledged=3)
    oracle.first_left = {-1: Place(-1, 1, 0, 0)}
    assert ("lost-write", "a.2") in [(anomaly.name, anomaly.value) for anomaly in oracle.judge()]
