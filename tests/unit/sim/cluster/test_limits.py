"""Small limits and wide shapes of a simulated cluster are drawn by the seed, fit together, and
belong to the seeds that know them.
"""

from __future__ import annotations

import random

from pulsarish.sim.cluster.cluster import draw_cluster, widen
from pulsarish.sim.cluster.limits import _BOOKIE, _BROKER, _LEDGER, _LOG, USUAL, draw_limits
from pulsarish.sim.world.faults import ALL_KINDS, DESTRUCTIVE, HARSH_KINDS, bearable


def test_a_seed_draws_the_same_limits_again() -> None:
    assert draw_limits(random.Random("7")) == draw_limits(random.Random("7"))


def test_every_limit_is_small_in_some_seeds_and_usual_in_others() -> None:
    drawn = [draw_limits(random.Random(seed)) for seed in range(40)]
    for part, table in (
        ("ledger", _LEDGER),
        ("log", _LOG),
        ("broker", _BROKER),
        ("bookie", _BOOKIE),
    ):
        for option in table:
            shares = [option in getattr(limits, part) for limits in drawn]
            assert any(shares), option
            assert not all(shares), option


def test_a_small_queue_of_a_bookie_holds_four_of_the_greatest_messages() -> None:
    for seed in range(40):
        limits = draw_limits(random.Random(seed))
        if "bookie_queue_bytes" in limits.ledger:
            assert (
                limits.ledger["bookie_queue_bytes"] >= 4 * limits.broker["max_message_size_bytes"]
            )


def test_the_draw_of_a_cluster_leaves_the_limits_alone() -> None:
    assert all(draw_cluster(random.Random(seed)).limits is USUAL for seed in range(10))


def test_a_wide_cluster_has_room_for_its_ensembles_and_takes_every_shape() -> None:
    shapes = [widen(draw_cluster(random.Random(seed)), random.Random(seed)) for seed in range(100)]
    for shape in shapes:
        ensemble, write, ack = shape.quorums
        assert 1 <= ack <= write <= ensemble <= shape.bookies
    assert max(shape.quorums[0] for shape in shapes) == 7
    assert any(shape.quorums[1] == shape.quorums[2] > 1 for shape in shapes)
    assert any(shape.quorums[2] == 1 for shape in shapes)
    assert {shape.racks for shape in shapes} == {1, 2, 3}


def test_nothing_is_destroyed_where_one_copy_is_enough() -> None:
    assert bearable(ALL_KINDS, 2) == list(ALL_KINDS)
    kinds = (*ALL_KINDS, *HARSH_KINDS)
    assert set(kinds) - set(bearable(kinds, 1)) == set(DESTRUCTIVE)
