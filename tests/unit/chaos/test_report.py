"""What a chaos run leaves behind: a record by which it can be repeated, a plot that can be read,
and no verdict on what was not seen.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pulsarish.chaos.history import Counters
from pulsarish.chaos.report import last_run, plot
from pulsarish.chaos.run import Outcome, run_scenario
from pulsarish.chaos.scenarios import SCENARIOS
from pulsarish.chaos.stage import Mark, Options, Quorums, Stage
from pulsarish.model.errors import ServiceNotReady

OPTIONS = Options(
    quorums=Quorums(3, 3, 2),
    brokers=2,
    bookies=4,
    metadata="embedded",
    dedup=False,
    messages=1_000,
    fault_at=250,
    window=100,
    rate=None,
    partitions=0,
    send_timeout_ms=30_000,
    isolate=(("broker-1", "zk"), ("bookie-2",)),
    cuts=20,
    seed=7,
    settings=(("bookie", "journal_file_size_bytes=4194304"),),
)


def outcome(*marks: Mark, options: Options = OPTIONS) -> Outcome:
    """Of a run of 100 s with an acknowledgement a second."""
    return Outcome(
        scenario="power-cut",
        run=1,
        verdict="ok",
        reasons=(),
        options=options,
        counters=Counters(100, 100, 0, 100, 0, 0, 0, 0, 0),
        owner_changed=False,
        failures={},
        pause_seconds=1.0,
        pause_at_seconds=0.0,
        publish_seconds=100.0,
        seconds=110.0,
        marks=marks,
        notes=(),
        anomalies=(),
        missing=(),
        ack_seconds=array("d", range(100)),
    )


def test_the_record_says_how_to_repeat_the_run() -> None:
    record = outcome().row()["options"]
    assert (record["seed"], record["cuts"], record["send_timeout_ms"]) == (7, 20, 30_000)
    assert (record["isolate"], record["settings"]) == (
        "broker-1,zk|bookie-2",
        ["bookie.journal_file_size_bytes=4194304"],
    )
    assert (record["quorums"], record["brokers"], record["bookies"], record["metadata"]) == (
        "3-3-2",
        2,
        4,
        "embedded",
    )


def test_the_record_claims_nothing_of_a_cluster_of_the_users() -> None:
    record = outcome(options=replace(OPTIONS, url="pulsarish://a:1", admin_url="http://a:2")).row()[
        "options"
    ]
    assert (record["url"], record["admin_url"]) == ("pulsarish://a:1", "http://a:2")
    assert not {"quorums", "brokers", "bookies", "metadata", "settings", "seed"} & set(record)


def labels(marks: list[Mark]) -> list[tuple[float, float, float]]:
    """Of each moment in the plot: where its label begins and ends, and its height on the page; in
    pixels, a character being 7 wide.
    """
    found: list[tuple[float, float, float]] = []
    for x, y, anchor, text in re.findall(
        r'<text x="([\d.]+)" y="(\d+)" text-anchor="(start|end)" fill[^>]*>([^<]+)<title>',
        plot(outcome(*marks)),
    ):
        width = 7.0 * len(text)
        begin = float(x) - (width if anchor == "end" else 0.0)
        found.append((begin, begin + width, float(y)))
    return found


@pytest.mark.parametrize("seconds", [0.0, 49.0, 51.0, 100.0])
def test_a_label_is_within_the_picture(seconds: float) -> None:
    [(begin, end, height)] = labels([Mark("bite", "20 cuts", seconds, 1_000_000, 1_000_000)])
    assert 0 <= begin < end <= 900
    assert 0 <= height <= 250


def test_labels_of_many_moments_do_not_cover_each_other() -> None:
    marks = [
        Mark("fault" if number % 2 else "heal", "cut", number * 2.5, 1_000_000, 1_000_000)
        for number in range(41)
    ]
    found = labels(marks)
    assert len(found) == len(marks)
    for half in (found[:20], found[21:]):
        for index, (begin, end, height) in enumerate(half):
            assert not [
                other
                for other in half[index + 1 :]
                if other[2] == height and other[0] < end and begin < other[1]
            ]


def test_what_a_moment_was_is_told_with_it() -> None:
    assert "<title>broker-1, the owner, is killed &amp; gone</title>" in plot(
        outcome(Mark("fault", "broker-1, the owner, is killed & gone", 1.0, 1, 1))
    )


def test_a_cluster_that_was_not_reached_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_stage: Any) -> None:
        raise ServiceNotReady("nobody is there")

    monkeypatch.setattr(Stage, "open", refuse)
    done = run_scenario(SCENARIOS["no-fault"], OPTIONS, 1, tmp_path, None)
    assert (done.verdict, done.reasons) == ("void", ("ServiceNotReady: nobody is there",))


def test_rates_of_a_short_run_are_those_of_a_tenth_of_a_second() -> None:
    short = replace(outcome(), publish_seconds=0.5, ack_seconds=array("d", [0.2] * 1_000))
    top = re.search(r'text-anchor="end">([\d,]+)</text>\n<text[^>]*>acks/s', plot(short))
    assert top is not None
    assert top[1] == "10,000", "1,000 acknowledgements in a tenth of a second"


def test_a_second_call_numbers_its_runs_after_the_first(tmp_path: Path) -> None:
    assert last_run(tmp_path, "kill-broker") == 0
    for name in (
        "kill-broker-1.json",
        "kill-broker-12.json",
        "kill-broker-dedup-40.json",
        "kill-broker-1-logs",
    ):
        (tmp_path / name).touch()
    assert last_run(tmp_path, "kill-broker") == 12
