"""One run of a scenario, and its verdict."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pulsarish.chaos.history import Anomaly, Counters
from pulsarish.chaos.scenario import Scenario, read_to_the_end
from pulsarish.chaos.stage import Mark, Measured, Options, Stage, VoidRun
from pulsarish.model.errors import PulsarishError

__all__ = ["Outcome", "judge", "run_scenario"]

_FAULT_JOIN_SECONDS: Final = 30.0
_STALL_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``verdict``: ok, failed (with what broke), or void (with why it proved nothing)."""

    scenario: str
    run: int
    verdict: str
    reasons: tuple[str, ...]
    options: Options
    counters: Counters
    owner_changed: bool
    failures: dict[str, int]
    pause_seconds: float
    pause_at_seconds: float
    publish_seconds: float
    seconds: float
    marks: tuple[Mark, ...]
    notes: tuple[str, ...]
    anomalies: tuple[Anomaly, ...]
    missing: tuple[int, ...]
    ack_seconds: array[float]
    measured: Measured | None = None

    def row(self) -> dict[str, Any]:
        """For JSON; anomalies and times of acknowledgements go to files of their own."""
        options = self.options
        return {
            "scenario": self.scenario,
            "run": self.run,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            **self.counters.row(),
            "failures": self.failures,
            "owner_changed": self.owner_changed,
            "longest_pause_seconds": round(self.pause_seconds, 3),
            "longest_pause_at_seconds": round(self.pause_at_seconds, 3),
            "publish_seconds": round(self.publish_seconds, 1),
            "seconds": round(self.seconds, 1),
            "marks": [mark.row() for mark in self.marks],
            "notes": list(self.notes),
            **(self.measured.values if self.measured is not None else {}),
            "options": options.row(),
        }


def judge(scenario: Scenario, counters: Counters, *, dedup: bool, owner_changed: bool) -> list[str]:
    """What the counters say against the promise; empty when they say nothing against it."""
    wrong = []
    if counters.acked_missing and not scenario.must_lose:
        wrong.append(f"{counters.acked_missing} acknowledged messages are missing")
    if counters.out_of_order:
        wrong.append(f"{counters.out_of_order} messages are out of order or were never sent")
    may_duplicate = scenario.must_duplicate or (
        not dedup and (scenario.moves_owner or owner_changed)
    )
    if counters.duplicates and not may_duplicate:
        wrong.append(
            f"{counters.duplicates} duplicates, with deduplication "
            f"{'on' if dedup else 'off and the owner unchanged'}"
        )
    if scenario.no_negative and counters.acked_negative:
        wrong.append(f"{counters.acked_negative} sends failed")
    return wrong


def run_scenario(
    scenario: Scenario,
    options: Options,
    run: int,
    directory: Path,
    logs: Path | None,
    say: Callable[[str], None] = lambda _text: None,
) -> Outcome:
    """A fresh cluster under ``directory``, publishing with the fault, reading, and the cluster's
    end.

    ``logs``: where the nodes' logs are kept when the run is not ok. ``say``: gets lines while a
    long scenario runs.
    """
    stage = Stage(options, directory, scenario.relayed, say=say)
    began = time.perf_counter()
    problems: list[Exception] = []
    was_opened = was_read = owner_changed = False
    publish_seconds = 0.0
    try:
        try:
            if scenario.prepare is not None:
                scenario.prepare(stage)
            stage.open()
            was_opened = True
            _publish(scenario, stage, problems)
            publish_seconds = stage.load.elapsed()
            owner_changed = stage.wait_for_owner() != stage.first_owner
            was_read = True  # from here on what is not found is missing
            (scenario.reading or read_to_the_end)(stage)
        except (VoidRun, PulsarishError) as problem:
            # Of a cluster that nothing was published to nothing is known.
            problems.append(
                problem if was_opened or isinstance(problem, VoidRun) else VoidRun(_named(problem))
            )
        counters = stage.history.counters()
        void = [str(problem) for problem in problems if isinstance(problem, VoidRun)]
        wrong = [
            *stage.wrong,
            *(_named(problem) for problem in problems if not isinstance(problem, VoidRun)),
        ]
        if was_opened:
            wrong += stage.stalls()
        if was_read:
            wrong += judge(scenario, counters, dedup=options.dedup, owner_changed=owner_changed)
            if scenario.must_duplicate and not counters.duplicates:
                void.append("the control shows no duplicate")
            if scenario.must_lose and not counters.acked_missing:
                void.append("the control loses nothing")
        pause, pause_at = stage.longest_pause()
        outcome = Outcome(
            scenario=scenario.name,
            run=run,
            verdict="failed" if wrong else "void" if void else "ok",
            reasons=(*wrong, *void),
            options=options,
            counters=counters,
            owner_changed=owner_changed,
            failures=dict(stage.history.failures),
            pause_seconds=pause,
            pause_at_seconds=pause_at,
            publish_seconds=publish_seconds,
            seconds=time.perf_counter() - began,
            marks=tuple(stage.marks),
            notes=tuple(stage.notes),
            anomalies=tuple(stage.history.anomalies),
            missing=tuple(stage.history.missing()) if was_read else (),
            ack_seconds=stage.ack_seconds,
            measured=None if stage.measured is None else stage.measured(),
        )
        if logs is not None and outcome.verdict != "ok":
            stage.copy_logs(logs)
        return outcome
    finally:
        stage.close()


def _named(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"


def _publish(scenario: Scenario, stage: Stage, problems: list[Exception]) -> None:
    options = stage.options

    def break_it() -> None:
        try:
            _wait_for_fault(stage)
            scenario.fault(stage)
        except (VoidRun, PulsarishError, OSError) as problem:
            problems.append(problem)
        except Exception as mistake:
            problems.append(VoidRun(f"the fault ended by a mistake of its own: {mistake!r}"))
            raise

    thread = threading.Thread(target=break_it, name=f"fault {scenario.name}")
    thread.start()
    try:
        stage.load.publish(
            messages=options.messages,
            fault_at=options.fault_at,
            rate=options.rate,
            at_full_speed=scenario.at_full_speed,
            fault_is_over=lambda: not thread.is_alive(),
        )
    except PulsarishError as problem:
        problems.append(problem)
    finally:
        stage.ended.set()
        stage.load.reached.set()
        thread.join(_FAULT_JOIN_SECONDS)
        if thread.is_alive():
            problems.append(
                VoidRun(
                    f"the fault did not come to its end within {_FAULT_JOIN_SECONDS:g} s after "
                    "the run's"
                )
            )
        stage.ended.clear()


def _wait_for_fault(stage: Stage) -> None:
    """Raises ``VoidRun`` when acknowledgements stop before the fault is due."""
    acked = -1
    while not stage.load.reached.wait(_STALL_SECONDS):
        if len(stage.ack_seconds) == acked:
            raise VoidRun(f"before the fault nothing was acknowledged for {_STALL_SECONDS:g} s")
        acked = len(stage.ack_seconds)
    stage.sleep(0)
