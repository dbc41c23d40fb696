"""The balancer's core: who gets what, and what stays where it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping

from bench.balance import Day
from pulsarish.broker.ownership.balance import (
    Balance,
    BalanceLimits,
    BrokerLoad,
    BundleLoad,
    Move,
)
from pulsarish.broker.ownership.bundles import Bundle

IDLE = BundleLoad(topics=1)
CALM = 20.0  # when the first round may move something
ROUND = 10.0


def bundles(count: int) -> list[Bundle]:
    return [Bundle("t", "n", f"{number:04d}") for number in range(count)]


class Cluster:
    """Brokers with bundles, as owners carry out what the core decides."""

    def __init__(
        self, owned: Mapping[str, Iterable[Bundle]], limits: BalanceLimits | None = None
    ) -> None:
        self.balance = Balance(limits or BalanceLimits())
        self.owned = {name: list(some) for name, some in owned.items()}
        self.loads: dict[Bundle, BundleLoad] = {}
        self.cpu = dict.fromkeys(self.owned, 0.0)
        self.draining: set[str] = set()
        self.now = 0.0
        self.moves: list[Move] = []
        self.seen_within = 0.0
        self.pool_of: Callable[[Bundle], frozenset[str]] | None = None

    def load(self, bundle: Bundle) -> BundleLoad:
        return self.loads.get(bundle, IDLE)

    def round(self, *, succeeds: bool = True) -> list[Move]:
        """Run one round, and have its moves carried out."""
        self.balance.set_members(list(self.owned), self.now)
        for name, some in self.owned.items():
            found = {bundle: self.load(bundle) for bundle in some}
            report = BrokerLoad(name, self.cpu[name], name not in self.draining, found)
            self.balance.note(report, self.now)
        moves = self.balance.decide(self.now, self.pool_of)
        for move in moves:
            if succeeds:
                self.owned[move.source].remove(move.bundle)
                self.owned[move.destination].append(move.bundle)
            self.balance.moved(move, self.now, done=succeeds)
        self.balance.check()
        self.moves += moves
        self.now += ROUND
        return moves

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            _ = self.round()

    def counts(self) -> list[int]:
        return sorted(len(some) for some in self.owned.values())

    def work(self, name: str) -> float:
        return sum(self.load(bundle).work for bundle in self.owned[name])


def test_a_broker_that_comes_back_gets_half_of_idle_bundles_within_a_minute() -> None:
    cluster = Cluster({"a": bundles(40), "b": []})
    cluster.run(60.0)
    assert cluster.counts()[0] >= 18
    assert len(cluster.moves) == len({move.bundle for move in cluster.moves}) <= 20


def test_four_bundles_with_unequal_topics_are_divided_as_well_as_they_can_be() -> None:
    cluster = Cluster({"a": bundles(4), "b": []})
    for bundle, topics in zip(bundles(4), (12, 9, 10, 9), strict=True):
        cluster.loads[bundle] = BundleLoad(topics=topics)
    cluster.run(60.0)
    topics_of = [
        sum(cluster.load(bundle).topics for bundle in some) for some in cluster.owned.values()
    ]
    assert max(topics_of) <= 22


def test_a_single_bundle_stays() -> None:
    cluster = Cluster({"a": bundles(1), "b": []})
    cluster.run(120.0)
    assert cluster.moves == []


def test_a_cluster_that_is_nearly_even_is_left_alone() -> None:
    some = bundles(43)
    cluster = Cluster({"a": some[:23], "b": some[23:]})
    cluster.run(120.0)
    assert cluster.moves == []


def test_nothing_moves_right_after_a_broker_came() -> None:
    cluster = Cluster({"a": bundles(40), "b": []})
    cluster.run(CALM)
    assert cluster.moves == []
    cluster.owned["c"] = []
    cluster.cpu["c"] = 0.0
    cluster.run(CALM)
    assert cluster.moves == []
    assert cluster.round()


def test_measured_work_counts_more_than_numbers_of_bundles() -> None:
    some = bundles(40)
    cluster = Cluster({"a": some[:20], "b": some[20:]})
    for bundle in some[:20]:
        cluster.loads[bundle] = BundleLoad(topics=1, message_rate=3_000)
    cluster.run(120.0)
    heavy, light = sorted((cluster.work(name) for name in cluster.owned), reverse=True)
    assert heavy <= light * 1.6
    assert len(cluster.moves) <= 12


def test_one_large_bundle_is_not_thrown_about_and_its_neighbours_leave() -> None:
    some = bundles(20)
    cluster = Cluster({"a": some[:10], "b": some[10:15], "c": some[15:]})
    cluster.loads[some[0]] = BundleLoad(topics=1, message_rate=80_000)
    cluster.run(1_200.0)
    assert some[0] in cluster.owned["a"]
    assert len(cluster.owned["a"]) < 5
    assert len(cluster.moves) == len({move.bundle for move in cluster.moves})


def test_cpu_time_corrects_an_estimate_that_is_too_low() -> None:
    some = bundles(20)
    cluster = Cluster({"a": some[:10], "b": some[10:]})
    for bundle in some:
        cluster.loads[bundle] = BundleLoad(topics=1, message_rate=1_000)
    cluster.cpu.update(a=0.5, b=0.15)
    cluster.run(300.0)
    assert len(cluster.owned["a"]) < len(cluster.owned["b"])


def test_a_bundle_that_moved_rests() -> None:
    cluster = Cluster({"a": bundles(40), "b": []}, BalanceLimits(rest_seconds=300.0))
    cluster.run(60.0)
    moved = {move.bundle: None for move in cluster.moves}
    # Now everything is on the side to which these had moved.
    for bundle in moved:
        cluster.loads[bundle] = BundleLoad(topics=1, message_rate=5_000)
    cluster.moves.clear()
    cluster.run(200.0)
    assert not moved.keys() & {move.bundle for move in cluster.moves}
    cluster.run(200.0)
    assert moved.keys() & {move.bundle for move in cluster.moves}


def test_a_broker_that_comes_gets_its_share_though_bundles_have_just_moved() -> None:
    cluster = Cluster({"a": bundles(4), "b": []}, BalanceLimits(rest_seconds=300.0))
    cluster.run(60.0)
    del cluster.owned["a"], cluster.cpu["a"]
    cluster.owned["b"] = bundles(4)
    cluster.owned["a2"], cluster.cpu["a2"] = [], 0.0
    cluster.run(60.0)
    assert cluster.counts() == [2, 2]
    cluster.owned["c"], cluster.cpu["c"] = [], 0.0
    cluster.run(60.0)
    assert cluster.counts() == [1, 1, 2]


def test_a_bundle_rests_when_a_broker_goes() -> None:
    cluster = Cluster({"a": bundles(4), "b": [], "c": []}, BalanceLimits(rest_seconds=300.0))
    cluster.run(60.0)
    moved = {move.bundle for move in cluster.moves}
    cluster.owned["b"] += cluster.owned.pop("c")
    del cluster.cpu["c"]
    cluster.moves.clear()
    cluster.run(60.0)
    assert moved.isdisjoint(move.bundle for move in cluster.moves)


def test_a_failed_move_is_not_tried_again_at_once() -> None:
    cluster = Cluster({"a": bundles(2), "b": []})
    cluster.run(CALM)
    tried = cluster.round(succeeds=False)
    assert len(tried) == 1
    again = cluster.round(succeeds=False)
    assert {move.bundle for move in again}.isdisjoint(move.bundle for move in tried)
    assert cluster.round() == []


def test_a_moved_bundle_counts_before_its_new_owner_has_measured_it() -> None:
    some = bundles(12)
    cluster = Cluster({"a": some, "b": []})
    for bundle in some:
        cluster.loads[bundle] = BundleLoad(topics=1, message_rate=5_000)
    cluster.run(CALM)
    moved = [move.bundle for move in cluster.round()]
    assert 5 <= len(moved) <= 6
    for bundle in moved:
        cluster.loads[bundle] = BundleLoad()  # what its meters say at first
    cluster.run(40.0)
    assert len(cluster.moves) == len(moved)


def test_a_bundle_counts_for_the_broker_that_reported_it_last() -> None:
    """A report may be older than the bundle's last change of hands."""
    first, second = bundles(2)
    cluster = Cluster({"a": [first, second], "b": []})
    cluster.round()
    cluster.owned["b"] = [first]  # and "a" still says that it has it
    for rate in (5_000, 100, 9_000):
        cluster.loads[first] = BundleLoad(topics=1, message_rate=rate)
        cluster.balance.set_members(["a", "b"], cluster.now)
        for name in ("b", "a", "b"):
            found = {bundle: cluster.load(bundle) for bundle in cluster.owned[name]}
            cluster.balance.note(BrokerLoad(name, 0.0, True, found), cluster.now)
            cluster.balance.check()
        cluster.now += ROUND


def test_rounds_are_limited_and_the_next_one_goes_on() -> None:
    limits = BalanceLimits(moves_max=6, moves_of_broker_max=6)
    cluster = Cluster({"a": bundles(40), "b": []}, limits)
    cluster.run(CALM)
    rounds = [len(cluster.round()) for _ in range(6)]
    assert rounds == [6, 6, 6, 0, 0, 0]


def test_a_draining_broker_neither_gets_nor_gives() -> None:
    cluster = Cluster({"a": bundles(40), "b": [], "c": []})
    cluster.draining.add("b")
    cluster.run(120.0)
    assert cluster.owned["b"] == []
    assert len(cluster.owned["c"]) >= 18


def test_a_broker_without_fresh_figures_is_left_alone() -> None:
    balance = Balance(BalanceLimits())
    balance.set_members(["a", "b"], 0.0)
    balance.note(BrokerLoad("a", 0.0, True, dict.fromkeys(bundles(40), IDLE)), 0.0)
    balance.note(BrokerLoad("b", 0.0, True, {}), 0.0)
    balance.note(BrokerLoad("a", 0.0, True, dict.fromkeys(bundles(40), IDLE)), 60.0)
    assert balance.decide(60.0) == []
    balance.note(BrokerLoad("b", 0.0, True, {}), 60.0)
    assert balance.decide(60.0)


def test_figures_of_a_broker_that_is_gone_are_not_kept() -> None:
    balance = Balance(BalanceLimits())
    balance.set_members(["a", "b"], 0.0)
    balance.note(BrokerLoad("b", 0.0, True, dict.fromkeys(bundles(4), IDLE)), 0.0)
    balance.set_members(["a"], 100.0)
    balance.note(BrokerLoad("b", 0.0, True, dict.fromkeys(bundles(4), IDLE)), 100.0)
    assert list(balance.loads(100.0)) == []
    assert balance._bundles == {}


def test_noise_moves_nothing() -> None:
    rng = random.Random(1)
    some = bundles(80)
    cluster = Cluster({f"b{index}": some[index * 20 : index * 20 + 20] for index in range(4)})
    for _ in range(200):
        for bundle in some:
            cluster.loads[bundle] = BundleLoad(1, 2, rng.uniform(0.0, 1_000.0), 0.0)
        _ = cluster.round()
    assert cluster.moves == []


def test_a_day_with_changing_load_moves_little_and_nothing_back_and_forth() -> None:
    result = Day(brokers=8, bundles=160, step_seconds=120.0, restarts=3, seed=4).run()
    assert result.returned == 0
    assert result.moves <= 400
    assert result.mean_worst <= 1.2
    assert len(result.share_seconds) == 3
    assert max(result.share_seconds) <= 60.0


def test_bundles_move_within_their_pool_only() -> None:
    some, others = bundles(40), [Bundle("t", "other", f"{number:04d}") for number in range(12)]
    cluster = Cluster({"a": some, "b": [], "c": others, "d": []})
    pools = {"n": frozenset("ab"), "other": frozenset("cd")}
    stays = {some[0], others[0]}
    cluster.pool_of = lambda bundle: frozenset() if bundle in stays else pools[bundle.namespace]
    cluster.run(120.0)
    assert stays.isdisjoint(move.bundle for move in cluster.moves)
    assert all(
        {move.source, move.destination} == pools[move.bundle.namespace] for move in cluster.moves
    )
    assert abs(len(cluster.owned["a"]) - len(cluster.owned["b"])) <= 6
    assert abs(len(cluster.owned["c"]) - len(cluster.owned["d"])) <= 3
    assert len(cluster.moves) == len({move.bundle for move in cluster.moves})


def test_the_parts_of_a_split_bundle_count_for_it_until_they_are_measured() -> None:
    """Their topics were closed, so the meters of their owner begin at nothing."""
    whole = Bundle("t", "n", "0x00000000_0x80000000")
    other = Bundle("t", "n", "0x80000000_0xffffffff")
    parts = [whole.part(0, 0x20000000), whole.part(0x20000000, 0x80000000)]
    cluster = Cluster({"a": [whole, other], "b": []}, BalanceLimits(wait_seconds=1e6))
    cluster.loads[whole] = BundleLoad(topics=8, message_rate=80_000.0)
    cluster.loads[other] = BundleLoad(topics=2, message_rate=10_000.0)
    for _ in range(30):
        cluster.round()
    before = cluster.balance.loads(cluster.now - ROUND)["a"]
    cluster.owned["a"] = [*parts, other]
    for part in parts:
        cluster.loads[part] = BundleLoad()
    cluster.round()
    after = cluster.balance.loads(cluster.now - ROUND)["a"]
    assert abs(after - before) < 0.05 * before
    cluster.loads |= {part: BundleLoad(topics=4, message_rate=40_000.0) for part in parts}
    for _ in range(60):
        cluster.round()
    assert abs(cluster.balance.loads(cluster.now - ROUND)["a"] - before) < 0.05 * before
