"""Exhibits about publishing: what a broker takes for a duplicate."""

from __future__ import annotations

import random
from typing import Any, Final

from pulsarish.broker.publishing.dedup import Deduplication, Verdict
from pulsarish.sim.workloads.safeguard import replacing
from tests.museum.exhibit import Defect, Exhibit, Kind

__all__ = ["EXHIBITS"]

NAME: Final = "producer"
MESSAGES: Final = 12


# -- apache/pulsar#5218


def _check_failed_writes(seed: int) -> None:
    """Writes fail at times, and the producer sends again what it has no receipt for: all of it must
    come into the log, once.
    """
    for number in range(20):
        draw = random.Random(f"{seed} {number}")
        marks = Deduplication(producers_max=10, inactivity_ms=1_000)
        marks.connect(NAME, 0)
        log: list[int] = []
        receipts: set[int] = set()
        for _ in range(200):
            _send_again(marks, draw, log, receipts)
            marks.check()
            if len(receipts) == MESSAGES:
                break
        assert log == list(range(MESSAGES)), f"of messages 0 to {MESSAGES - 1} the log has {log}"


def _send_again(
    marks: Deduplication, draw: random.Random, log: list[int], receipts: set[int]
) -> None:
    """What has no receipt is sent in order, twice; then the writes end, some with a failure."""
    pushed: list[int] = []
    for _ in range(2):
        for message in sorted(set(range(MESSAGES)) - receipts):
            match marks.push(NAME, message, message):
                case Verdict.NEW:
                    pushed.append(message)
                case Verdict.DUPLICATE:
                    receipts.add(message)
                case _:
                    break
    stored = pushed[: draw.randrange(len(pushed) + 1)]
    for message in stored:
        log.append(message)
        marks.persisted(NAME, message)
        if draw.random() < 0.5:
            receipts.add(message)
    if len(stored) < len(pushed):
        marks.failed(NAME, pushed[len(stored)])


def _pushed_is_a_duplicate(was: Any) -> object:
    def push(marks: Deduplication, name: str, first: int, last: int) -> Verdict:
        verdict: Verdict = was(marks, name, first, last)
        return Verdict.DUPLICATE if verdict is Verdict.UNCERTAIN else verdict

    return push


def _never_rewound(_was: Any) -> object:
    def failed(_marks: Deduplication, _name: str, _first: int) -> None:
        return

    return failed


EXHIBITS: Final = (
    Exhibit(
        name="failed_write_counts_as_stored",
        upstream=("apache/pulsar#5218", "apache/pulsar#5243"),
        wrong=(
            "Deduplication remembers a sequence id before it is stored: after a failed write "
            "the retry is dropped as a duplicate."
        ),
        here=(
            "Lets writes fail while everything without a receipt is sent again: each message "
            "must be in the log once, in order."
        ),
        kind=Kind.SCENARIO,
        check=_check_failed_writes,
        defects=(
            Defect(
                "pushed_is_a_duplicate",
                "what is on its way is no duplicate yet",
                replacing(Deduplication, "push", _pushed_is_a_duplicate),
            ),
            Defect(
                "never_rewound",
                "a failed write takes the mark back",
                replacing(Deduplication, "failed", _never_rewound),
            ),
        ),
    ),
)
