"""What the jobs refuse before Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from pulsarish.cli.job import _retention, _verified, job
from pulsarish.managed_ledger.options import Retention
from pulsarish.model.errors import AlreadyExists, InvalidArgument, NotFound
from pulsarish.spark.jobs.verify import Report, VerifiedRow


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["leaks", "--remove", "plan.json"], "--remove PLAN and --backup FOLDER go together"),
        (["leaks", "--backup", "new"], "--remove PLAN and --backup FOLDER go together"),
        (
            ["leaks", "--plan", "new.json", "--restore", "."],
            "give one of --plan, --remove and --restore",
        ),
        (["leaks", "--min-age", "5"], "has no unit"),
        (["leaks", "--default-retention", "1x"], "is no duration"),
        (["usage", "--default-retention-size", "much"], "is no size"),
        (["verify", "--acked", "nothing.jsonl"], "does not exist"),
        (["verify", "--bookie-token-life", "8d"], "a token for reading lasts from 1m to 7d"),
        (["verify", "--bookie-key-file", "k"], "--bookie-key-file go together"),
        (["export", "--to", "new"], "Missing argument"),
    ],
)
def test_bad_usage(
    arguments: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").touch()
    result = CliRunner().invoke(job, arguments)
    assert result.exit_code == 2
    assert text in result.output


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["verify", "--save", "there.parquet"], AlreadyExists),
        (["leaks", "--save", "there.parquet"], AlreadyExists),
        (["leaks", "--plan", "there.parquet"], AlreadyExists),
        (["verify", "--save", "new"], InvalidArgument),
        (["leaks", "--default-retention", "3h", "--default-retention-size", "0"], InvalidArgument),
        (["import", "nowhere"], NotFound),
    ],
)
def test_what_would_end_badly(
    arguments: list[str], error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.parquet").touch()
    result = CliRunner().invoke(job, arguments)
    assert isinstance(result.exception, error)


@pytest.mark.parametrize(
    ("minutes", "size", "retention"),
    [
        (None, None, Retention(0, 0)),
        ("0", None, Retention(0, 0)),
        ("3h", None, Retention(180, -1)),
        (None, "500MB", Retention(-1, 500)),
        ("3h", "500MB", Retention(180, 500)),
        ("forever", None, Retention(-1, -1)),
        (None, "0", Retention(0, 0)),
    ],
)
def test_of_two_limits_one_may_be_given(
    minutes: str | None, size: str | None, retention: Retention
) -> None:
    assert _retention(minutes, size) == retention


def test_what_was_verified_is_said_in_the_right_number() -> None:
    def found(entries: int) -> VerifiedRow:
        return VerifiedRow("missing", 1, 0, entries - 1, entries, "bookie-1", "", "", "", "")

    assert (
        _verified(Report(1, entries=1, copies=1))
        == "1 ledger, 1 entry, 1 copy, 0 B read: nothing wrong"
    )
    assert _verified(Report(2, entries=1_000, copies=3_000, findings=[found(1)])).startswith(
        "2 ledgers, 1,000 entries, 3,000 copies, "
    )
    assert _verified(Report(1, findings=[found(1)])).endswith(": 1 is wrong")
    assert _verified(Report(1, findings=[found(1), found(1_000)])).endswith(": 1,001 are wrong")
