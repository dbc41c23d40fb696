"""The table of the museum, and ``--record``."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.museum.collection import DEATHS, EXHIBITS, read_deaths, write_deaths
from tests.museum.page import PAGE, page

ROOT: Final = Path(__file__).resolve().parents[2]
_WIDTHS: Final = (38, 22, 66, 66)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("museum")
    group.addoption(
        "--exhibits",
        action="store_true",
        help="print a table of the exhibits: what each is, what killed it, how long it took",
    )
    group.addoption(
        "--record", action="store_true", help="the same, and record the commit at which they died"
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--record", default=False):
        return
    written = {str(path.relative_to(ROOT)) for path in (DEATHS, PAGE)}
    changed = [
        line for line in _git("status", "--porcelain").splitlines() if line[3:] not in written
    ]
    if changed:
        raise pytest.UsageError(
            f"--record names a commit, and the tree differs from it in {len(changed)} files: "
            "commit them first"
        )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    record = config.getoption("--record", default=False)
    if not (record or config.getoption("--exhibits", default=False)):
        return
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
    ]
    found = {
        properties["exhibit"]: (report, properties)
        for report in reports
        if "exhibit" in (properties := dict(report.user_properties))
    }
    terminalreporter.section("museum")
    terminalreporter.line(
        _line("exhibit", "upstream", "what went wrong there", "killed by") + "seconds"
    )
    for name, exhibit in EXHIBITS.items():
        if name in found:
            report, properties = found[name]
            died_of = (
                properties.get("killed_by", "")
                if report.passed
                else "ALIVE, or its check fails without a defect"
            )
            terminalreporter.line(
                _line(name, exhibit.upstream[0], exhibit.wrong, died_of) + f"{report.duration:7.2f}"
            )
    dead = [name for name, (report, _) in found.items() if report.passed]
    terminalreporter.line(f"{len(dead)} of {len(EXHIBITS)} exhibits are dead")
    if record:
        commit = _git("rev-parse", "HEAD").strip()
        write_deaths({**read_deaths(), **dict.fromkeys(dead, commit)})
        PAGE.write_text(page())
        terminalreporter.line(
            f"recorded for commit {commit[:12]}: {DEATHS.relative_to(ROOT)}, "
            f"{PAGE.relative_to(ROOT)}"
        )


def _line(*cells: str) -> str:
    return (
        "  ".join(
            _clipped(cell, width).ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)
        )
        + "  "
    )


def _clipped(text: str, width: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 3] + "..."


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
