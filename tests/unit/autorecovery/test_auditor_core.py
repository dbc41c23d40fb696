"""When all ledgers are looked through."""

from __future__ import annotations

from pulsarish.autorecovery.auditor_core import AuditorCore


def core() -> AuditorCore:
    return AuditorCore(
        delay_seconds=10, bookie_check_seconds=100, entry_check_seconds=1_000, now=0.0
    )


def test_first_after_the_grace_time_then_for_each_new_loss_and_now_and_then() -> None:
    plan = core()
    assert plan.due([], {}, 9.9) is None
    walk = plan.due([], {}, 10.0)
    assert walk is not None
    plan.walked(walk, 12.0)
    assert plan.due([], {}, 50.0) is None
    walk = plan.due(["a"], {}, 50.0)
    assert walk is not None
    assert (walk.lost, walk.asks_bookies) == (("a",), False)
    plan.walked(walk, 51.0)
    assert plan.due(["a"], {}, 150.9) is None
    assert plan.due(["a"], {}, 151.0) is not None
    assert plan.due(["a", "b"], {}, 60.0) is not None


def test_one_that_came_back_and_went_again_is_looked_for_anew() -> None:
    plan = core()
    walk = plan.due(["a"], {}, 20.0)
    assert walk is not None
    plan.walked(walk, 20.0)
    back = plan.due(["b"], {}, 30.0)
    assert back is not None
    plan.walked(back, 30.0)
    assert plan.due(["a"], {}, 40.0) is not None


def test_a_walk_that_was_cut_short_is_due_still() -> None:
    plan = core()
    assert plan.due(["a"], {}, 20.0) == plan.due(["a"], {}, 21.0)


def test_bookies_are_asked_at_long_intervals() -> None:
    plan = core()
    walk = plan.due([], {}, 1_000.0)
    assert walk is not None
    assert walk.asks_bookies
    plan.walked(walk, 1_000.0)
    again = plan.due([], {}, 1_100.0)
    assert again is not None
    assert not again.asks_bookies


def test_a_bookie_in_limbo_is_looked_for_once() -> None:
    plan = core()
    walk = plan.due([], {"a": 1}, 5.0)
    assert walk is not None
    assert (walk.lost, walk.limbo) == ((), {"a": 1})
    plan.walked(walk, 5.0)
    assert plan.due([], {"a": 1}, 6.0) is None
    assert plan.due([], {"a": 2}, 6.0) is not None


def test_an_operator_may_ask_for_a_look_at_any_time() -> None:
    plan = core()
    assert plan.due([], {}, 1.0) is None
    walk = plan.due(["a"], {}, 1.0, is_asked=True)
    assert walk is not None
    assert (walk.lost, walk.asks_bookies) == (("a",), False)
    walk = plan.due([], {}, 1.0, is_asked=True, asks_bookies=True)
    assert walk is not None
    assert walk.asks_bookies
