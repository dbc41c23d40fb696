"""Optional programs (extras): which exist in addition to the common ones, which of them a seed
draws, and the nodes that they run on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from pulsarish.sim.programs.ended_rights import GUESTS, IMPOSTOR
from pulsarish.sim.programs.foreign_ids import SUBSCRIPTION as STRANGER
from pulsarish.sim.programs.resetters import SUBSCRIPTION as MOVER

__all__ = [
    "APPLICATIONS",
    "COMPACTERS",
    "DUELISTS",
    "EXTRAS",
    "HOSTILE",
    "PACKERS",
    "RENEWER",
    "REPLICA_READERS",
    "SHARERS",
    "SHOUTERS",
    "SIFTERS",
    "TURNER",
    "extra_nodes",
    "extra_stream",
    "extras_of",
]

SHARERS: Final = ("keyer", "keyed0", "keyed1")
PACKERS: Final = ("packer", "parcels0", "parcels1")
COMPACTERS: Final = ("latest", "compactor", "compacted")
SHOUTERS: Final = ("shouter", "listener0", "listener1")
SIFTERS: Final = ("sifter", "sifted0", "sifted1")
TURNER: Final = "turner"
RENEWER: Final = "renewer"
HOSTILE: Final = "hostile"
DUELISTS: Final = ("duelist0", "duelist1")
REPLICA_READERS: Final = ("follower0", "follower1")
_NODES: Final[dict[str, tuple[str, ...]]] = {
    "seeks": ("seeker", "wanderer"),
    "policies": ("manager",),
    "moves": ("shifter",),
    "rivals": ("rival",),
    "topics": ("founder",),
    "resets": (MOVER,),
    "brief": (),
    "keys": SHARERS,
    "strangers": (STRANGER,),
    "toggles": ("toggler",),
    "turns": (TURNER,),
    "resumes": (),
    "parcels": PACKERS,
    "filters": SIFTERS,
    "compacting": COMPACTERS,
    "fleeting": SHOUTERS,
    "anew": (RENEWER,),
    "tight": (),
    "harsh": (),
    "duel": DUELISTS,
    "wide": (),
    "long": (),
    "hostile": (HOSTILE,),
    "locked": ("herald", "granter", IMPOSTOR, *GUESTS),
    "replicas": REPLICA_READERS,
    "orphans": (),
    "placement": ("placer",),
}
APPLICATIONS: Final = frozenset(
    (
        "app0",
        "app1",
        "consumer0",
        "consumer1",
        "reader",
        "seeker",
        "wanderer",
        TURNER,
        STRANGER,
        *SHARERS,
        *PACKERS,
        *SHOUTERS[1:],
        *SIFTERS[1:],
        *REPLICA_READERS,
        "herald",
    )
)
"""Nodes whose programs only publish and consume. Those of the others administer, too."""
EXTRAS: Final = tuple(_NODES)
_CHANCE: Final = 0.5
_CHANCES: Final = {
    "brief": 0.9,
    "strangers": 0.25,
    "toggles": 0.25,
    "turns": 0.25,
    "parcels": 0.25,
    "filters": 0.25,
    "compacting": 0.25,
    "fleeting": 0.2,
    "anew": 0.25,
    "tight": 0.35,
    "harsh": 0.4,
    "duel": 0.25,
    "moves": 0.3,
    "wide": 0.2,
    "long": 0.03,
    "hostile": 0.2,
    # without those that are hostile: one seed in four
    "locked": 0.31,
    "replicas": 0.25,
    "orphans": 0.25,
    "placement": 0.25,
}


def extra_stream(seed: int, name: str) -> random.Random:
    """Return the random stream that an extra of this name draws from in a seed."""
    return random.Random(f"{seed}:extra:{name}")


def extras_of(seed: int, extras: Sequence[str] = EXTRAS) -> list[str]:
    """Return those of ``extras`` that take part in a seed.

    Each is drawn by its name alone, so a new one does not change the others.
    """
    return [
        name
        for name in extras
        if extra_stream(seed, f"{name} on").random() < _CHANCES.get(name, _CHANCE)
    ]


def extra_nodes(extras: Sequence[str]) -> list[str]:
    """Return the names of the nodes on which these run."""
    return [node for name in extras for node in _NODES[name]]
