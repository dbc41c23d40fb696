"""How brokers share the limits of a resource group: the rule of the leader."""

from __future__ import annotations

import random

import pytest

from pulsarish.broker.ownership.group_division import (
    ASK_SECONDS,
    SHARE_SECONDS,
    GroupDivision,
    equal_share,
    least_share,
)
from pulsarish.broker.policies.group_rates import KINDS, Wish

BROKERS = ("a", "b", "c", "d")
LATER = 100.0


class Cluster:
    """Brokers that use one group. Each has a demand, and uses what its share allows of it."""

    def __init__(self, **demands: float) -> None:
        self.demands = demands
        self.division = GroupDivision(0.0)
        self.shares: dict[str, float] = {}
        self.now = LATER

    def ask(self, broker: str) -> None:
        demand, share = self.demands[broker], self.shares.get(broker, least_share(len(BROKERS)))
        wish = Wish(min(demand, share), demand >= share * 0.9, share)
        answered = self.division.ask(broker, {"g": [wish] * 4}, BROKERS, self.now)["g"]
        assert len(set(answered)) == 1
        self.shares[broker] = answered[0]
        self.division.check(len(BROKERS), self.now)

    def rounds(self, count: int) -> None:
        for _ in range(count):
            for broker in self.demands:
                self.ask(broker)
            self.now += ASK_SECONDS


def test_a_group_of_one_broker_has_the_whole_limit_at_once() -> None:
    cluster = Cluster(a=0.1)
    cluster.rounds(1)
    assert cluster.shares == {"a": 1.0}


def test_shares_follow_demands_and_leave_nothing_unused() -> None:
    cluster = Cluster(a=0.6, b=0.2)
    cluster.rounds(20)
    assert cluster.shares["a"] == pytest.approx(0.05 + 0.9 * 0.75, abs=0.02)
    assert sum(cluster.shares.values()) == pytest.approx(1.0)
    idle = Cluster(a=0.0, b=0.0)
    idle.rounds(5)
    assert idle.shares == {"a": pytest.approx(0.5), "b": pytest.approx(0.5)}


def test_brokers_that_all_want_more_come_to_equal_shares() -> None:
    cluster = Cluster(a=9.0)
    cluster.rounds(3)
    cluster.demands = {"a": 9.0, "b": 9.0, "c": 9.0}
    cluster.rounds(15)
    assert all(share == pytest.approx(1 / 3, abs=0.02) for share in cluster.shares.values())


def test_a_busy_broker_gets_what_those_with_little_to_do_leave() -> None:
    cluster = Cluster(a=9.0, b=0.1)
    cluster.rounds(15)
    assert cluster.shares["a"] > 0.8
    assert cluster.shares["b"] > 0.1, "it has no reason to wait"


def test_a_broker_that_comes_gets_the_least_share_until_the_others_have_got_less() -> None:
    cluster = Cluster(a=9.0)
    cluster.rounds(3)
    cluster.demands["b"] = 9.0
    cluster.ask("b")
    assert cluster.shares == {"a": 1.0, "b": least_share(4)}
    cluster.ask("a")
    cluster.ask("b")
    assert cluster.shares["b"] == least_share(4), "the answer to the other one may be lost"
    cluster.ask("a")
    cluster.ask("b")
    assert sum(cluster.shares.values()) <= 1.0 + 1e-9
    assert cluster.shares["b"] > 0.2


def test_a_broker_that_is_silent_keeps_an_equal_part_while_it_is_registered() -> None:
    cluster = Cluster(a=9.0, b=9.0)
    cluster.rounds(10)
    del cluster.demands["b"]
    cluster.now += SHARE_SECONDS
    cluster.rounds(5)
    assert cluster.shares["a"] == pytest.approx(1.0 - equal_share(4))
    answered = cluster.division.ask("a", {"g": [Wish(1.0, True, 0.5)] * 4}, ["a"], cluster.now)
    assert answered == {"g": (1.0,) * len(KINDS)}, "b is gone"


def test_a_broker_that_has_left_the_group_leaves_its_share() -> None:
    cluster = Cluster(a=9.0, b=9.0)
    cluster.rounds(10)
    assert cluster.division.ask("b", {}, BROKERS, cluster.now) == {}
    cluster.ask("a")
    assert cluster.shares["a"] == 1.0


def test_a_new_leader_raises_no_share_until_those_of_the_former_one_are_over() -> None:
    cluster = Cluster(a=9.0, b=0.0)
    cluster.rounds(20)
    before = dict(cluster.shares)
    cluster.division = GroupDivision(cluster.now)
    cluster.now += SHARE_SECONDS - 0.01
    cluster.ask("b")
    assert cluster.shares["b"] <= before["b"]
    cluster.now += 0.01
    cluster.ask("b")
    assert cluster.shares["b"] > before["b"]


@pytest.mark.parametrize("seed", range(100))
def test_the_shares_in_force_stay_within_the_bound(seed: int) -> None:
    """Brokers come, go, fall silent and ask in any order, and answers are lost. A share in force is
    what a broker was given, or an equal part once its time is over.
    """
    rng = random.Random(seed)
    division, now = GroupDivision(0.0), LATER
    given: dict[str, tuple[float, float]] = {}
    above = 0.0
    for _ in range(300):
        now += rng.choice((0.0, 0.1, 1.0, 3.0))
        broker = rng.choice(BROKERS)
        if rng.random() < 0.1:
            _ = division.ask(broker, {}, BROKERS, now)
            given.pop(broker, None)
        else:
            share, until = given.get(broker, (least_share(4), 0.0))
            if now >= until:
                share = min(share, equal_share(4))
            wish = Wish(rng.choice((0.0, share, share / 2)), rng.random() < 0.5, share)
            answer = division.ask(broker, {"g": [wish] * 4}, BROKERS, now)["g"][0]
            assert answer >= least_share(4)
            if rng.random() < 0.8:
                given[broker] = answer, now + SHARE_SECONDS
        division.check(len(BROKERS), now)
        total = sum(
            each if now < until else min(each, equal_share(4)) for each, until in given.values()
        )
        assert total <= 1.1 + 1e-9
        above = max(above, total)
    assert above > 0.9
