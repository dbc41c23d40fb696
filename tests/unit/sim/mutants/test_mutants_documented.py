"""docs/mutants.md says which mutants try which rule, and no more than there are."""

from __future__ import annotations

import re
from pathlib import Path

from pulsarish.sim.mutants.catalogue import MUTANTS

DOCS = Path(__file__).resolve().parents[4] / "docs"
ROWS = re.findall(
    r"^\| (\d+ [^|]+|the promise) \| ([^|]+) \| ([^|]+) \|$",
    (DOCS / "mutants.md").read_text(),
    re.MULTILINE,
)


def _rule(row: tuple[str, str, str]) -> int | None:
    number = row[0].partition(" ")[0]
    return int(number) if number.isdigit() else None


def test_the_rules_are_those_of_the_guarantees() -> None:
    rules = re.findall(
        r"^(\d+)\. \*\*([^*]+?)\.?\*\*", (DOCS / "guarantees.md").read_text(), re.MULTILINE
    )
    assert [row[0] for row in ROWS] == [
        *(f"{number} {name}" for number, name in rules),
        "the promise",
    ]


def test_each_rule_names_the_mutants_that_break_it_or_says_why_there_is_none() -> None:
    for row in ROWS:
        number = _rule(row)
        wanted = sorted(
            mutant.name
            for mutant in MUTANTS.values()
            if (number in mutant.rules if number else not mutant.rules)
        )
        if wanted:
            assert row[2].split(", ") == [f"`{name}`" for name in wanted], row[0]
        else:
            assert re.match(r"none.*: \w+", row[2]), row[0]


def test_every_mutant_is_in_the_table() -> None:
    named = {name for row in ROWS for name in re.findall(r"`(\w+)`", row[2])}
    assert named >= set(MUTANTS)


def test_no_mutant_may_survive_more_seeds_than_are_promised() -> None:
    (promised,) = re.findall(
        r"number of seeds that the mutant states, at most (\d+);", (DOCS / "mutants.md").read_text()
    )
    assert max(mutant.seeds for mutant in MUTANTS.values()) == int(promised)
