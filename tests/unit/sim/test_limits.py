"""Small limits of a simulated cluster are drawn by the seed, fit together, and belong to the seeds that know them."""

from __future__ import annotations

import random

from pulsarish.sim.cluster import draw_cluster
from pulsarish.sim.limits import _BOOKIE, _BROKER, _LEDGER, _LOG, USUAL, draw_limits


def test_a_seed_draws_the_same_limits_again() -> None:
    assert draw_limits(random.Random("7")) == draw_limits(random.Random("7"))


def test_every_limit_is_small_in_some_seeds_and_usual_in_others() -> None:
    drawn = [draw_limits(random.Random(seed)) for seed in range(40)]
    for part, table in (("ledger", _LEDGER), ("log", _LOG), ("broker", _BROKER), ("bookie", _BOOKIE)):
        for option in table:
            shares = [option in getattr(limits, part) for limits in drawn]
            assert any(shares), option
            assert not all(shares), option


def test_a_small_queue_of_a_bookie_holds_four_of_the_greatest_messages() -> None:
    for seed in range(40):
        limits = draw_limits(random.Random(seed))
        if "bookie_queue_bytes" in limits.ledger:
            assert limits.ledger["bookie_queue_bytes"] >= 4 * limits.broker["max_message_size_bytes"]


def test_the_draw_of_a_cluster_leaves_the_limits_alone() -> None:
    assert all(draw_cluster(random.Random(seed)).limits is USUAL for seed in range(10))
