"""The commands around pipelines that start no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from pulsarish.cli.main import pulsarish

EXAMPLES = Path(__file__).parents[3] / "examples/pipelines"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_shipped_pipelines_are_in_order(file: Path) -> None:
    done = CliRunner().invoke(pulsarish, ["pipeline", "check", str(file)])
    assert done.exit_code == 0, done.stderr
    assert f"pipeline {file.stem} is valid" in done.stdout
    assert not done.stderr, "a warning"


def test_mistakes_go_to_stderr_a_line_each_and_end_with_status_1(tmp_path: Path) -> None:
    file = tmp_path / "it.yaml"
    file.write_text(
        "name: it\nsources:\n  a: {type: csv, path: x, haeder: true}\nsinks:\n  b: {type: "
        "console, input: a, rows: none}\n"
    )
    keys = "path, streaming, fields, files_per_batch, options, header, null"
    for command in ("check", "run"):
        done = CliRunner().invoke(pulsarish, ["pipeline", command, str(file)])
        assert done.exit_code == 1
        assert done.stdout == ""
        assert done.stderr.splitlines() == [
            f"{file}:3: sources.a: there is no key 'haeder'; keys are {keys}. Did you mean header?",
            (
                f'{file}:5: sinks.b.rows: here stands "none"; it must be a whole number from 1 to '
                "10,000"
            ),
            f"error: 2 mistakes in {file}",
        ]


def test_what_nothing_reads_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "it.yaml"
    file.write_text(
        "name: it\nsources:\n  a: {type: csv, path: x}\n  c: {type: csv, path: x}\nsinks:\n  b: "
        "{type: console, input: a}\n"
    )
    done = CliRunner().invoke(pulsarish, ["pipeline", "check", str(file)])
    assert (done.exit_code, done.stderr) == (
        0,
        f"{file}:4: sources.c: nothing reads it (a warning)\n",
    )


def test_parameters_must_be_declared_and_look_like_some() -> None:
    file = str(EXAMPLES / "replay.yaml")
    assert (
        CliRunner().invoke(pulsarish, ["pipeline", "check", file, "--set", "month=2"]).exit_code
        == 0
    )
    done = CliRunner().invoke(pulsarish, ["pipeline", "check", file, "--set", "mnth=2"])
    assert done.exit_code == 1
    assert "Did you mean month?" in done.stderr
    assert (
        CliRunner().invoke(pulsarish, ["pipeline", "check", file, "--set", "month"]).exit_code == 2
    )
    assert (
        CliRunner()
        .invoke(pulsarish, ["pipeline", "run", file, "--explain", "--sample", "3"])
        .exit_code
        == 2
    )


def test_the_keys_are_printed() -> None:
    done = CliRunner().invoke(pulsarish, ["pipeline", "keys"])
    assert done.exit_code == 0
    assert "`type: watermark`" in done.stdout
