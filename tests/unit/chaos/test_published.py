"""What the published scenarios say of the cluster that they have broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsarish.chaos.scenarios import SCENARIOS
from pulsarish.chaos.stage import Options, Quorums, Stage

OPTIONS = Options(
    quorums=Quorums(3, 3, 2),
    brokers=2,
    bookies=3,
    metadata="embedded",
    dedup=False,
    messages=10,
    fault_at=1,
    window=10,
    rate=None,
    partitions=0,
    send_timeout_ms=0,
)


def test_a_killed_bookie_is_not_said_to_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    # none can take its place
    monkeypatch.setattr(Stage, "members", lambda _stage: ("bookie-1", "bookie-2", "bookie-3"))
    monkeypatch.setattr(Stage, "kill", lambda *_: None)
    monkeypatch.setattr(Stage, "wait", lambda *_: None)
    monkeypatch.setattr(Stage, "mark", lambda _stage, what, text: said.append(f"{what}: {text}"))
    SCENARIOS["kill-bookie"].fault(Stage(OPTIONS, tmp_path))
    assert said == [
        "fault: bookie-1 of the ensemble is killed",
        "bite: the ledger goes on with bookie-2, bookie-3",
    ]
