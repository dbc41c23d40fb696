"""Apache Pulsar's Python client and ours run the same programs with the same outcomes, but for the
rows of ``DIFFERENCES``, which have both.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

import pulsarish
from pulsarish.admin.client import Admin
from tests.clients.differential.differences import DIFFERENCES, table
from tests.clients.differential.harness import NoOutcome, Program, programs_of, run_all
from tests.clients.differential.outcomes import differing

THEMES: Final = (
    "producers",
    "messages",
    "consumers",
    "acknowledging",
    "dead_letters",
    "readers",
    "seeking",
    "message_ids",
    "batching",
    "topics",
    "receiving",
    "table_views",
    "schemas",
    "closing",
    "wrong_arguments",
)
KNOWN: Final = {place: pair for row in DIFFERENCES for place, pair in row.outcomes.items()}
"""Where an outcome of ours is not that of Apache Pulsar's package, and both values there."""
DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "clients.md"
READY: Final = re.compile(r"standalone ready (pulsarish://\S+) (http://\S+) (pulsar://\S+)")


@dataclass(frozen=True)
class Urls:
    ours: str
    admin: str
    theirs: str


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Urls]:
    """A cluster in one process: hundreds of programs are to be quick."""
    pytest.importorskip(
        "pulsar", reason="left out: Apache Pulsar's Python client (pulsar-client) is not installed"
    )
    addresses = [
        (f"--{role}-set", f"{name}=127.0.0.1:0")
        for role, names in (
            ("broker", ("listen_address", "http_address", "pulsar_address")),
            ("bookie", ("listen_address",)),
        )
        for name in names
    ]
    command = [sys.executable, "-m", "pulsarish", "standalone", "--in-memory"]
    directory = tmp_path_factory.mktemp("differential")
    with (
        (directory / "log").open("w") as log,
        subprocess.Popen(
            [*command, *(word for pair in addresses for word in pair)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=directory,
        ) as server,
    ):
        try:
            assert server.stdout is not None
            ready = READY.search(server.stdout.readline())
            assert ready is not None, (directory / "log").read_text()
            yield Urls(*ready.groups())
        finally:
            server.terminate()


def programs(theme: str) -> list[Program]:
    return programs_of(import_module(f"tests.clients.differential.{theme}"))


def shown(outcome: Any) -> str:
    return json.dumps(outcome, ensure_ascii=False)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("theme", THEMES)
def test_programs_have_one_outcome_on_both(theme: str, urls: Urls) -> None:
    packages = {import_module("pulsar"): urls.theirs, pulsarish: urls.ours}
    wrong = []
    for key, (there, here) in run_all(programs(theme), packages, Admin(urls.admin)).items():
        broken = [each.reason for each in (there, here) if isinstance(each, NoOutcome)]
        if broken:
            wrong.append(f"{key}: no outcome: {broken}")
            continue
        found = differing(there, here, key)
        known = {place: each for place, each in KNOWN.items() if place.partition("/")[0] == key}
        wrong += [
            f"{place}\n  found: {shown(found.get(place))}\n  known: {shown(known.get(place))}"
            for place in {**known, **found}
            if found.get(place) != known.get(place)
        ]
    assert not wrong, "\n".join(wrong)


def test_every_row_names_programs_that_exist() -> None:
    programs_known = {program.key for theme in THEMES for program in programs(theme)}
    named = {place.partition("/")[0] for place in KNOWN}
    assert len(KNOWN) == sum(len(row.outcomes) for row in DIFFERENCES)
    assert named <= programs_known, named - programs_known


def test_the_document_has_the_table() -> None:
    assert table() in DOCUMENT.read_text()
