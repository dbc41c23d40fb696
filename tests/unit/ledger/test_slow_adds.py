"""Which bookies count as slow with adds, and since when."""

import pytest

from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.slow_adds import AddTimes, SlowAdd, SlowAdds
from pulsarish.model.errors import ConfigError

OPTIONS = LedgerOptions(slow_adds_ratio=5, slow_adds_min_ms=200, slow_adds_period_ms=2_000)
QUICK = {"a": 0.01, "b": 0.02, "c": 0.03}


def answered(seconds: dict[str, float]) -> dict[str, AddTimes]:
    return {member: AddTimes(took, 0.0) for member, took in seconds.items()}


def test_a_bookie_that_is_far_slower_for_the_whole_period_is_found_once() -> None:
    slow = SlowAdds(OPTIONS)
    times = QUICK | {"d": 0.3}
    assert [slow.look(answered(times), now) for now in (0.0, 0.5, 1.0, 1.5)] == [[]] * 4
    assert slow.look(answered(times), 2.0) == [SlowAdd("d", 0.3, 0.02)]
    assert slow.look(answered(times), 2.5) == []


@pytest.mark.parametrize(
    "times",
    [
        QUICK | {"d": 0.19},  # not slow at all
        {"a": 0.1, "b": 0.11, "c": 0.2, "d": 0.4},  # all are about as slow
        {"a": 0.01, "d": 3.0},  # of two either may be the odd one
        {"a": 0.01, "b": 3.0, "c": 3.0, "d": 3.0},  # most are slow, so it is not the bookie
    ],
)
def test_what_is_not_far_from_the_others_is_not_found(times: dict[str, float]) -> None:
    slow = SlowAdds(OPTIONS)
    assert not any(
        "d" in [each.member for each in slow.look(answered(times), 0.5 * k)] for k in range(20)
    )


def test_one_quick_look_begins_the_period_again_and_none_does_not() -> None:
    slow = SlowAdds(OPTIONS)
    times = QUICK | {"d": 0.3}
    assert slow.look(answered(times), 0.0) == []
    assert slow.look(answered(QUICK), 1.0) == []  # it had no adds
    assert slow.look(answered(QUICK | {"d": 0.05}), 1.5) == []
    assert slow.look(answered(times), 2.0) == []
    assert slow.look(answered(times), 3.5) == []
    assert slow.look(answered(times), 4.0) != []
    # After a long time without adds nothing is known of the time between.
    assert slow.look(answered(times), 5.0) == []
    assert slow.look(answered(times), 9.0) == []
    # Nor after this process stood still.
    slow.forget_all()
    assert slow.look(answered(times), 11.0) == []


def test_an_add_without_an_answer_may_prove_that_a_bookie_is_slow_but_not_that_it_is_quick() -> (
    None
):
    slow, others = SlowAdds(OPTIONS), answered(QUICK)
    for now in (0.0, 0.5, 1.0, 1.5):
        late = now in (0.0, 1.0)
        assert slow.look(others | {"d": AddTimes(None, 0.4 if late else 0.1)}, now) == []
    assert slow.look(others | {"d": AddTimes(None, 0.4)}, 2.0) == [SlowAdd("d", 0.4, 0.02)]


def test_a_ratio_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"slow_adds_ratio = 0.5 .* set 1 or more, or 0"):
        LedgerOptions(slow_adds_ratio=0.5).validate()
    assert not SlowAdds(LedgerOptions(slow_adds_ratio=0)).is_used
