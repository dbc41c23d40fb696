"""Which bookies are near, by the domains that are set."""

import pytest

from pulsarish.ledger.local_reads import LocalReads
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.placement import Candidate

PLACES = {
    "here": Candidate("here", "h1", "r1", zone="z1", region="e"),
    "rack": Candidate("rack", "h2", "r1", zone="z1", region="e"),
    "zone": Candidate("zone", "h3", "r2", zone="z1", region="e"),
    "region": Candidate("region", "h4", "r3", zone="z2", region="e"),
    "far": Candidate("far", "h5", "r4", zone="z3", region="w"),
    "unnamed": Candidate("unnamed", "h6"),
}


@pytest.mark.parametrize(
    ("options", "distances"),
    [
        (
            {"local_host": "h1", "local_rack": "r1", "local_zone": "z1", "local_region": "e"},
            (0, 1, 2, 3, 4, 4),
        ),
        ({"local_zone": "z1", "local_region": "e"}, (0, 0, 0, 1, 2, 2)),
        ({"local_rack": "r1"}, (0, 0, 1, 1, 1, 1)),
    ],
)
def test_the_narrowest_shared_domain_is_the_distance(
    options: dict[str, str], distances: tuple[int, ...]
) -> None:
    local = LocalReads(
        LedgerOptions(**options),  # type: ignore[arg-type]
        lambda members: [PLACES[member] for member in members],
    )
    assert local.is_used
    assert tuple(local.distance(member) for member in PLACES) == distances
    for member in PLACES:
        local.served(member)
    assert (local.local_count, local.remote_count) == (
        distances.count(0),
        len(PLACES) - distances.count(0),
    )


def test_without_options_distances_are_not_used() -> None:
    assert not LocalReads(LedgerOptions(), lambda _members: []).is_used
