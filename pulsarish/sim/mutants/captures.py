"""Mutants of the capture of non-persistent topics."""

from __future__ import annotations

from typing import Any, Final

from pulsarish.broker.nonpersistent.captures import CaptureQueue
from pulsarish.broker.topics.capture_store import CaptureTurns
from pulsarish.sim.workloads.captured import run_captured
from pulsarish.sim.workloads.safeguard import Mutant, replacing
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["CAPTURE_MUTANTS"]


def _at_once(was: Any) -> object:
    def put(queue: CaptureQueue, source: Any, entry: bytes, receipt: Any = None) -> None:
        was(queue, source, entry)
        if receipt is not None:
            receipt.settle()

    return put


def _all_of_it(was: Any) -> object:
    def note_outcomes(queue: CaptureQueue, answer: pb.CaptureResponse) -> None:
        answer.done = len(queue._batch())
        was(queue, answer)

    return note_outcomes


def _never_late(_was: object) -> object:
    def is_newest(_turns: CaptureTurns, *_args: object) -> bool:
        return True

    return is_newest


CAPTURE_MUTANTS: Final = (
    Mutant(
        "acknowledged_before_it_is_captured",
        "with acknowledged=stored a publisher gets its receipt once the copy is stored",
        (),
        replacing(CaptureQueue, "put", _at_once),
        run_captured,
        seeds=10,
    ),
    Mutant(
        "captured_and_forgotten",
        "a captured message is sent again until it has its outcome",
        (),
        replacing(CaptureQueue, "_note_outcomes", _all_of_it),
        run_captured,
        seeds=10,
    ),
    Mutant(
        "late_capture_stored",
        "what a former owner of a topic captured is not stored after what its next owner captured",
        (),
        replacing(CaptureTurns, "is_newest", _never_late),
        run_captured,
        seeds=40,
    ),
)
