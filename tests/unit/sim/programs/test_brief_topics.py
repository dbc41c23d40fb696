"""Topics that are sealed: what their program learned is held against what is left of them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pulsarish.model.topic_name import TopicName
from pulsarish.sim.cluster.cluster import SimCluster, draw_cluster
from pulsarish.sim.cluster.invariants import Invariants
from pulsarish.sim.cluster.oracle import Oracle, Outcome, Place, Promises
from pulsarish.sim.cluster.stage import Counts, Stage
from pulsarish.sim.programs.brief_topics import BriefTopic, Founder
from pulsarish.sim.programs.publishers import Publisher
from pulsarish.sim.world.world import Simulation

LOG = [Place(-1, 4, entry, 0) for entry in range(3)]


def sealed(change: Callable[[BriefTopic], object]) -> list[str]:
    """What is said of a topic with three messages that was terminated behind them, after a
    ``change``.
    """
    sim, told = Simulation(1), list[str]()
    cluster = SimCluster(sim, draw_cluster(random.Random(1)))
    oracle = Oracle(Promises(deduplication=False, trimmed=False))
    for number, place in enumerate(LOG):
        oracle.stored(oracle.attempt("b0", 1, number, f"b0.{number}"), place)
    oracle.finals = [LOG, LOG]
    topic = BriefTopic(
        TopicName.parse("persistent://public/default/brief0"),
        [],
        oracle,
        Publisher("b0", False, {}, 0.0, 0),
    )
    topic.created = topic.terminated = True
    topic.last, topic.sent_before_end = LOG[-1], len(LOG)
    change(topic)
    stage = Stage(random.Random(1), "", "", oracle, Counts(), sim.trace)
    founder = Founder(stage, cluster, random.Random(1), lambda place, who: None, [topic])

    async def judge() -> None:
        founder.judge(
            Invariants(cluster, lambda name, what: None),
            lambda name, what, value: told.append(name),
        )

    sim.run(judge)
    return told


def _taken_later(topic: BriefTopic) -> None:
    topic.oracle.attempt("b0", 1, 9, "b0.1").outcome = Outcome.OK


CASES: dict[str, tuple[Callable[[BriefTopic], object], list[str]]] = {
    "as it was": (lambda topic: None, []),
    "it took another one": (_taken_later, ["terminated"]),
    "it ends later": (lambda topic: setattr(topic, "last", LOG[1]), ["terminated"]),
    "it ends in another ledger": (
        lambda topic: setattr(topic, "last", Place(-1, 5, 2, 0)),
        ["terminated"],
    ),
    "the answer never came": (lambda topic: setattr(topic, "last", None), []),
    "one is lost": (
        lambda topic: setattr(topic.oracle, "finals", [[LOG[0], LOG[2]]]),
        ["lost-write"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_where_a_sealed_topic_ends_is_judged(case: str) -> None:
    change, said = CASES[case]
    assert sealed(change) == said
