"""Cores of ownership: judging records, bundles, suspicion."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pulsarish.broker.ownership.bundles import Bundle, bundle_of, bundles_of
from pulsarish.broker.ownership.core import Mine, Owned, Theirs, Unknown, Unowned, judge
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.ownership.registry import BrokerRegistry
from pulsarish.broker.ownership.suspicion import Judge, Peers, SuspicionLimits
from pulsarish.metadata.records import BrokerRegistration, BundleOwner, NamespacePolicies
from pulsarish.model.topic_name import TopicName

B = BrokerRegistration("b", "b~2", "b:1")


@pytest.mark.parametrize(
    ("record", "gone", "expected"),
    [
        (None, (), Unowned(None)),
        ((BundleOwner("", ""), 4), (), Unowned(4)),
        ((BundleOwner("me", "me~1"), 7), (), Mine(7)),
        # an earlier instance of this broker is another owner
        ((BundleOwner("me", "me~0"), 7), (), Unknown("me~0", 7)),
        ((BundleOwner("me", "me~0"), 7), ("me~0",), Unowned(7, "me~0")),
        ((BundleOwner("b", "b~2"), 3), (), Theirs(B)),
        # the same broker, but another instance
        ((BundleOwner("b", "b~1"), 3), (), Unknown("b~1", 3)),
        ((BundleOwner("b", "b~1"), 3), ("b~1",), Unowned(3, "b~1")),
    ],
)
def test_judging_a_record(
    record: tuple[BundleOwner, int] | None, gone: tuple[str, ...], expected: object
) -> None:
    assert judge(record, "me~1", {"b~2": B}, gone) == expected


def test_owned_bundles_know_their_epochs() -> None:
    owned = Owned()
    one = Bundle("t", "n", "0x0_0x1")
    owned.acquired(one, 3)
    owned.acquired(one, 4)
    assert (owned.epoch(one), len(owned), one in owned) == (4, 1, True)
    with pytest.raises(AssertionError):
        owned.acquired(one, 3)
    owned.clear()
    assert owned.epoch(one) is None


def test_a_broker_without_registration_has_no_lease() -> None:
    ownership = Ownership.__new__(Ownership)
    ownership.owned, ownership._leases = Owned(), {}
    one = Bundle("t", "n", "0x0_0x1")
    ownership.owned.acquired(one, 3)
    registered = BrokerRegistry.__new__(BrokerRegistry)
    registered.me = B
    ownership.registry = registered
    lease = ownership.lease(one)
    assert lease is not None
    assert [each.path for each in lease] == [one.path, "/brokers/b~2"]
    registered.me = None
    assert ownership.lease(one) is None


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 64, 1024])
def test_bundles_cover_all_hashes_without_overlap(count: int) -> None:
    ranges = [
        tuple(int(edge, 16) for edge in bundle.range.split("_"))
        for bundle in bundles_of("t", "n", NamespacePolicies(count))
    ]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 0xFFFFFFFF
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    names = dict.fromkeys(
        bundle_of(TopicName("t", "n", f"topic-{number}"), NamespacePolicies(count))
        for number in range(300)
    )
    assert all(bundle in bundles_of("t", "n", NamespacePolicies(count)) for bundle in names)
    assert len(names) >= min(count, 100) * 0.9


LIMITS = SuspicionLimits(
    silence_seconds=3.0, eviction_interval_seconds=10.0, loop_lag_max_seconds=0.2
)
WELL = Judge(loop_lag_seconds=0.01, session_connected=True)


def peers(*names: str) -> Peers:
    made = Peers(LIMITS)
    for name in names:
        made.appeared(name, 0.0)
    return made


def test_a_refusal_evicts_at_once_and_silence_after_three_seconds() -> None:
    group = peers("x", "y")
    assert not group.may_evict("x", 0.1, WELL)
    group.refused("x", 0.1)
    assert group.may_evict("x", 0.1, WELL)
    group.answered("x", 0.2, 0)
    assert not group.may_evict("x", 0.2, WELL), "it answered again"
    group.answered("y", 3.0, 0)
    assert not group.may_evict("x", 3.1, WELL)
    assert group.may_evict("x", 3.3, WELL)


def test_a_broker_that_registers_again_behind_a_refusing_address_is_not_evicted_each_time() -> None:
    group = peers("w~1", "x~1")
    evictions = []
    for second in range(40):
        now = float(second)
        group.answered("w~1", now, 0)
        name = f"x~{len(evictions) + 1}"
        group.appeared(name, now)
        group.refused(name, now)
        if group.may_evict(name, now, WELL):
            group.evicted(name, now)
            group.disappeared(name)
            evictions.append(second)
    assert evictions[0] == 0
    assert len(evictions) <= 8, "once an interval for the refusal, and once for its silence"


def test_one_that_was_replaced_at_its_address_goes_at_once_each_time() -> None:
    group = peers("x~1", "x~2")
    for name in ("x~1", "x~2"):
        group.replaced(name, 1.0)
        assert not group.fresh(name, 1.0, 5.0)
        assert group.may_evict(name, 1.0, WELL)
        group.evicted(name, 1.0)


@pytest.mark.parametrize(
    "judge_state",
    [
        Judge(loop_lag_seconds=0.2, session_connected=True),
        Judge(loop_lag_seconds=0.0, session_connected=False),
    ],
)
def test_a_judge_that_is_not_well_suspects_nobody(judge_state: Judge) -> None:
    group = peers("x")
    assert not group.may_evict("x", 60.0, judge_state)
    assert group.may_evict("x", 60.0, WELL)


def test_a_judge_that_reaches_few_others_looks_to_itself() -> None:
    group = peers("x", "y", "z")
    assert not group.may_evict("x", 5.0, WELL), "all are silent: it is this broker that is cut off"
    group.answered("y", 5.0, 0)
    assert not group.may_evict("x", 5.0, WELL), "half is not most"
    group.answered("z", 5.0, 0)
    assert group.may_evict("x", 5.0, WELL)


def test_whoever_is_cut_off_suspects_nobody_although_its_answers_ended_one_after_another() -> None:
    group = peers("x", "y")
    for number in range(10):
        group.answered("x", number, bundles=0)
        group.answered("y", number + 0.002, bundles=0)
    # No broker answers any more. At some moment only the first of them has been silent for long
    # enough.
    for ms in range(9_000, 60_000):
        assert not any(group.may_evict(name, ms / 1000, WELL) for name in ("x", "y")), (
            f"after {ms} ms"
        )


def test_who_has_just_registered_and_was_not_heard_yet_is_no_witness() -> None:
    group = peers("x", "y")
    group.answered("x", 1.0, bundles=0)
    group.answered("y", 1.0, bundles=0)
    for name in ("u", "v", "w"):
        group.appeared(name, 5.0)
    assert not group.may_evict("x", 5.0, WELL)
    for name in ("u", "v", "w"):
        group.answered(name, 5.1, bundles=0)
    assert group.may_evict("x", 5.1, WELL)


def test_one_that_is_silent_is_found_while_the_others_answer_each_second() -> None:
    group = peers("x", "y")
    evicted_at = []
    for second in range(1, 10):
        group.answered("y", second + 0.002, bundles=0)
        if group.may_evict("x", second + 0.9, WELL):
            evicted_at.append(second)
    assert evicted_at[0] == 3


def test_silent_ones_go_one_at_a_time() -> None:
    group = peers("w", "x", "y", "z")
    for name in ("w", "z"):
        group.answered(name, 10.0, 0)
    assert group.may_evict("x", 10.0, WELL)
    group.evicted("x", 10.0)
    for now, may in ((10.1, False), (19.9, False), (20.0, True)):
        group.answered("w", now, 0)
        group.answered("z", now, 0)
        assert group.may_evict("y", now, WELL) is may
    group.refused("w", 20.0)
    group.evicted("w", 20.0)
    group.answered("z", 20.1, 0)
    assert group.may_evict("y", 20.1, WELL), (
        "the eviction of one that is surely gone does not count"
    )
