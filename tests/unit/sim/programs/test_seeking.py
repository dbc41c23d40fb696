"""Where a seek leads, judged from outside: each case is a log, a seek and what came after it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from pulsarish.client.enums import ConsumerType
from pulsarish.sim.cluster.oracle import Oracle, Outcome, Place, Promises
from pulsarish.sim.programs.seekers import Seek, Seeker, judge_seeks

LOG = [
    Place(-1, 1, 0, 0),
    *(Place(-1, 1, 1, index) for index in range(3)),
    *(Place(-1, 2, entry, 0) for entry in range(3)),
]
"""A batch of three between single messages, in two ledgers; published at 0, 10, 10, 10, 20, 30, 40
ms.
"""
STAMPS = (0, 10, 10, 10, 20, 30, 40)

FIRST, NEXT, WITHIN, LAST = (
    Seek("earliest"),
    Seek("place", place=LOG[0]),
    Seek("place", True, LOG[2], 3),
    Seek("place", place=LOG[6]),
)
RIGHT: dict[str, tuple[Sequence[Seek], Sequence[int], bool]] = {
    "from the first": ((FIRST,), (0, 1, 2, 3, 4), True),
    "behind a message": ((NEXT,), (1, 2, 3), True),
    "a reader within a batch": ((WITHIN,), (2, 3, 4), False),
    "a subscription begins again with the whole batch": ((WITHIN,), (2, 3, 4, 1, 2), True),
    "again after a lost connection": ((NEXT,), (1, 2, 1, 2, 3), True),
    "the one or the other": ((FIRST, Seek("place", True, LOG[4])), (4, 5), True),
    "by time": ((Seek("time", time_ms=11, last_known=LOG[6]),), (4, 5), True),
    "by the time of a batch": ((Seek("time", time_ms=10, last_known=LOG[6]),), (1, 2), True),
    "the end, and what came since": ((Seek("latest", last_known=LOG[4]),), (5, 6), True),
    "nothing came": ((LAST,), (), True),
}
WRONG: dict[str, tuple[Sequence[Seek], Sequence[int], bool, str]] = {
    "not the first": ((FIRST,), (1, 2), True, "seek-missed"),
    "the message itself": ((NEXT,), (0, 1), True, "seek-missed"),
    "a gap": ((FIRST,), (0, 1, 3), True, "poll-skip"),
    "a reader gets the whole batch": ((WITHIN,), (1, 2), False, "seek-missed"),
    "before the time": (
        (Seek("time", time_ms=20, last_known=LOG[6]),),
        (3, 4),
        True,
        "seek-missed",
    ),
    "later than the time": (
        (Seek("time", time_ms=20, last_known=LOG[6]),),
        (5, 6),
        True,
        "seek-missed",
    ),
    "before the end": ((Seek("latest", last_known=LOG[4]),), (4, 5), True, "seek-missed"),
    "behind what came after the end": (
        (Seek("latest", last_known=LOG[4], attempts_before_end=0),),
        (6,),
        True,
        "seek-missed",
    ),
}


def verdicts(
    starts: Sequence[Seek],
    came: Sequence[int],
    durable: bool,
    log: Sequence[Place] = LOG,
    stamps: Sequence[int] = STAMPS,
    kind: ConsumerType = ConsumerType.Exclusive,
) -> list[str]:
    oracle = Oracle(Promises(deduplication=False, trimmed=False))
    for number, place in enumerate(LOG):
        oracle.values[place] = f"a.{number}"
    sent = oracle.attempt("a", 1, 5, "a.5")
    sent.outcome, sent.place = Outcome.OK, LOG[5]
    seeker = Seeker(
        random.Random(1), durable=durable, inclusive=True, kind=kind, possible=list(starts)
    )
    seeker.stamps = dict(zip(LOG, stamps, strict=True))
    seeker.begin(session=True)
    seeker.stretches[-1].places += [LOG[index] for index in came]
    judge_seeks(oracle, seeker, log)
    return [anomaly.name for anomaly in oracle.anomalies]


@pytest.mark.parametrize("case", RIGHT)
def test_what_a_seek_explains_is_not_reported(case: str) -> None:
    assert verdicts(*RIGHT[case]) == []


@pytest.mark.parametrize("case", WRONG)
def test_what_no_seek_explains_is_reported(case: str) -> None:
    starts, came, durable, name = WRONG[case]
    assert verdicts(starts, came, durable) == [name]


def test_what_was_trimmed_since_is_not_held_against_the_log() -> None:
    left = LOG[4:]
    assert verdicts((NEXT,), (1, 2, 3, 4, 5), durable=True, log=left) == []
    assert verdicts((NEXT,), (1, 2, 5), durable=True, log=left) == ["poll-skip"]


def test_what_came_to_somebody_else_of_a_shared_subscription_may_be_trimmed_since() -> None:
    latest = Seek("latest", last_known=LOG[4], attempts_before_end=0)
    assert verdicts((latest,), (5, 6), True, LOG[6:]) == []
    assert verdicts((latest,), (5, 6), True, LOG[6:], kind=ConsumerType.Shared) == []
    assert verdicts((latest,), (6,), True, LOG[6:], kind=ConsumerType.Shared) == []
    assert verdicts((latest,), (6,), True, LOG[6:]) == ["seek-missed"]
    assert verdicts((latest,), (4,), True, kind=ConsumerType.Shared) == ["seek-missed"]


def test_what_a_seek_by_time_found_may_be_trimmed_since() -> None:
    # the producer of the first that is left has a clock that is slow
    left, stamps = LOG[4:], (0, 10, 10, 10, 5, 30, 40)
    found, older = (
        Seek("time", time_ms=10, last_known=LOG[6]),
        Seek("time", time_ms=11, last_known=LOG[6]),
    )
    assert verdicts((found,), (4, 5), durable=True, log=left, stamps=stamps) == []
    assert verdicts((found,), (4, 5), durable=True, stamps=stamps) == ["seek-missed"]
    assert verdicts((older,), (4, 5), durable=True, log=left, stamps=stamps) == ["seek-missed"]
