"""The faults of a soak: the same for a seed, each on a node that is there, and never damage in more
copies than an acknowledged entry can lose.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.chaos.soak_schedule import (
    DAMAGES,
    NEEDS_WHOLE,
    CopyGuard,
    Fault,
    FaultKind,
    Limits,
    draw_faults,
)

BOOKIES = [f"bookie-{number}" for number in range(1, 6)]
BROKERS = [f"broker-{number}" for number in range(1, 4)]


def drawn(seed: int, count: int = 200, *, ack_quorum: int = 2, more: int = 2) -> list[Fault]:
    return draw_faults(
        seed,
        count,
        metadata=["metadata"],
        bookies=BOOKIES,
        brokers=BROKERS,
        limits=Limits(
            bookies_min=max(4, 5 - more),
            bookies_max=5 + more,
            brokers_min=max(2, 3 - more),
            brokers_max=3 + more,
            ack_quorum=ack_quorum,
            seconds_max=40.0,
        ),
    )


def test_a_seed_decides_the_list_and_a_longer_run_only_goes_on() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7, 40) == drawn(7)[:40]
    assert drawn(7) != drawn(8)


@given(seed=st.integers(0, 10_000))
def test_each_fault_comes_to_a_node_that_is_there(seed: int) -> None:
    there = {"metadata", *BOOKIES, *BROKERS}
    for fault in drawn(seed):
        if fault.kind in (FaultKind.ADD_BOOKIE, FaultKind.ADD_BROKER):
            assert fault.node not in there
            there.add(fault.node)
        else:
            assert fault.node in there
        if fault.kind in DAMAGES | {FaultKind.REMOVE_BOOKIE}:
            assert fault.node.startswith("bookie-")
        if fault.kind in (FaultKind.REMOVE_BOOKIE, FaultKind.REMOVE_BROKER):
            there.remove(fault.node)
        assert 4 <= sum(name.startswith("bookie-") for name in there) <= 7
        assert 2 <= sum(name.startswith("broker-") for name in there) <= 5
        assert "broker-1" in there, "the clients of the run have its address"
        assert 0 < fault.seconds <= 40


def test_each_kind_comes_on_nodes_of_each_role() -> None:
    # Of several seeds: a single one may leave a role out.
    faults = [fault for seed in range(5) for fault in drawn(seed)]
    assert {fault.kind for fault in faults} == set(FaultKind)
    anywhere = (FaultKind.KILL, FaultKind.PAUSE, FaultKind.CUT)
    roles = {fault.node.partition("-")[0] for fault in faults if fault.kind in anywhere}
    assert roles == {"metadata", "bookie", "broker"}


def test_a_cluster_that_may_not_grow_stays_as_it_is() -> None:
    kinds = {fault.kind for fault in drawn(1, more=0)}
    assert not kinds & {
        FaultKind.ADD_BOOKIE,
        FaultKind.ADD_BROKER,
        FaultKind.REMOVE_BROKER,
    }


def test_the_only_copy_is_never_damaged() -> None:
    assert not {fault.kind for fault in drawn(1, ack_quorum=1)} & DAMAGES
    assert not CopyGuard(1).may_damage()


@given(seed=st.integers(0, 10_000), repairs=st.lists(st.integers(0, 9), min_size=200, max_size=200))
def test_no_second_copy_is_damaged_before_the_repair_of_the_first(
    seed: int, repairs: list[int]
) -> None:
    """``repairs``: after how many more faults damage is repaired, unless it is waited for."""
    guard = CopyGuard(2)
    damaged: set[str] = set()
    due = 0
    for number, (fault, takes) in enumerate(zip(drawn(seed), repairs, strict=True)):
        if guard.damaged and (number >= due or fault.kind in NEEDS_WHOLE):
            damaged.clear()
            guard.repaired()
        if fault.kind in DAMAGES:
            assert guard.may_damage()
            guard.damage(fault.node)
            damaged.add(fault.node)
            due = number + takes
        if fault.kind is FaultKind.REMOVE_BOOKIE:
            assert not damaged, "a bookie leaves while another one has copies to repair"
        assert len(damaged) <= 1
        assert bool(damaged) is bool(guard.damaged)


def test_damage_next_to_damage_is_a_mistake_of_the_harness() -> None:
    guard = CopyGuard(2)
    guard.damage("bookie-1")
    with pytest.raises(AssertionError, match="bookie-2 next to bookie-1"):
        guard.damage("bookie-2")
