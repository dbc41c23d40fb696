"""A placement policy: the first copy of each ledger lies in the broker's own rack.

Run brokers, and whatever runs auto-recovery, with the directory of this file on PYTHONPATH:

    PYTHONPATH=examples pulsarish broker --set ledger.local_rack=r1 \
      --set ledger.placement_policy=placement_home_rack:HomeRack
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.placement import Candidate, choose_replacement
from pulsarish.model.errors import ConfigError


class HomeRack:
    """Takes one bookie of the rack ``ledger.local_rack``, where there is one, and spreads the
    others as the built-in policy does.
    """

    def __init__(self, options: LedgerOptions, rng: random.Random) -> None:
        if not options.local_rack:
            raise ConfigError("ledger.local_rack is empty: set the rack of this broker")
        self._rack = options.local_rack
        self._rng = rng

    def choose_members(
        self,
        candidates: Sequence[Candidate],
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
    ) -> Sequence[str]:
        homes = [each for each in candidates if each.rack == self._rack and each.healthy]
        members = [self._rng.choice(homes or list(candidates))]
        while len(members) < ensemble_size:
            # The next place is empty. What takes it shares as little as possible with the rest.
            places = [*members, Candidate("", "")]
            chosen = choose_replacement(candidates, places, len(members), len(places), self._rng)
            if chosen is None:  # only unhealthy ones are left
                taken = {each.member for each in members}
                chosen = next(each for each in candidates if each.member not in taken)
            members.append(chosen)
        return [each.member for each in members]

    def choose_replacement(
        self,
        candidates: Sequence[Candidate],
        members: Sequence[Candidate],
        index: int,
        write_quorum: int,
    ) -> str | None:
        stays_home = any(
            each.rack == self._rack for place, each in enumerate(members) if place != index
        )
        homes = [each for each in candidates if each.rack == self._rack]
        pool = candidates if stays_home or not homes else homes
        chosen = choose_replacement(pool, members, index, write_quorum, self._rng)
        return None if chosen is None else chosen.member
