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


def test_a_bookie_in_limbo_is_looked_for_at_once() -> None:
    plan = core()
    walk = plan.due([], {"a": 1}, 5.0)
    assert walk is not None
    assert (walk.lost, walk.limbo, walk.spares_open) == ((), {"a": 1}, False)
    plan.walked(walk, 5.0)
    assert plan.due([], {"a": 1}, 6.0) is None
    assert plan.due([], {"a": 2}, 6.0) is not None


def test_ledgers_in_limbo_are_looked_for_again_and_again() -> None:
    """A bookie may not have answered, and a ledger may have been made by a client that did not
    know of the limbo yet.
    """
    plan = AuditorCore(
        delay_seconds=10, bookie_check_seconds=86_400, entry_check_seconds=604_800, now=0.0
    )
    walks = []
    for now in range(1, 7_200):
        walk = plan.due([], {"a": 1}, float(now))
        if walk is not None:
            plan.walked(walk, float(now))
            walks.append(now)
            assert walk.spares_open is (len(walks) > 1), "open ledgers keep their writers"
    assert walks == [1, 61, 181, 421, 901, 1_861, 3_781]
    assert plan.due([], {}, 7_621.0) is None, "its process is away: nothing can be asked"
    walk = plan.due([], {"a": 1}, 7_622.0)
    assert walk is not None
    plan.walked(walk, 7_622.0)
    walk = plan.due([], {"a": 2}, 7_623.0)
    assert walk is not None
    assert not walk.spares_open
    plan.walked(walk, 7_623.0)
    assert plan.due([], {"a": 2}, 7_682.0) is None
    assert plan.due([], {"a": 2}, 7_683.0) is not None


def test_a_look_at_everything_counts_as_one_for_ledgers_in_limbo() -> None:
    plan = AuditorCore(
        delay_seconds=10, bookie_check_seconds=100, entry_check_seconds=1_000, now=0.0
    )
    walks = []
    for now in range(1, 1_200):
        walk = plan.due([], {"a": 1}, float(now))
        if walk is not None:
            plan.walked(walk, float(now))
            walks.append(now)
    assert walks == [1, 61, *range(161, 1_000, 100), 1_000, 1_100]


def test_an_operator_may_ask_for_a_look_at_any_time() -> None:
    plan = core()
    assert plan.due([], {}, 1.0) is None
    walk = plan.due(["a"], {}, 1.0, is_asked=True)
    assert walk is not None
    assert (walk.lost, walk.asks_bookies) == (("a",), False)
    walk = plan.due([], {}, 1.0, is_asked=True, asks_bookies=True)
    assert walk is not None
    assert walk.asks_bookies
