"""The lower bounds of dependencies allow no version with a known hole that a peer could use."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
FIXED = {
    # name: (the first version without the hole, the advisory)
    "grpcio": ("1.65.4", "CVE-2024-7246: a client poisons HPACK tables behind a proxy"),
    "h11": ("0.16.0", "CVE-2025-43859: chunk line endings, request smuggling"),
    "h2": ("4.3.0", "CVE-2025-57804: header injection, request smuggling"),
    "protobuf": ("6.33.5", "CVE-2025-4565 and CVE-2026-0994: unbounded recursion"),
    "pyarrow": ("14.0.1", "CVE-2023-47248: code execution by an IPC file"),
    "pyjwt": ("2.12.0", "CVE-2026-32597: extensions that a token requires (crit) are ignored"),
    "pyspark": ("4.0.1", "CVE-2025-54920: code execution by an event log"),
    "pyyaml": ("5.4", "CVE-2020-14343: code execution by full_load"),
    "setuptools": ("78.1.1", "CVE-2025-47273: path traversal"),
}


def declared() -> dict[str, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    texts = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    for name, extra in project["project"]["optional-dependencies"].items():
        texts += extra if name != "dev" else ()
    found = [Requirement(text) for text in texts]
    return {each.name.lower(): each for each in found}


@pytest.mark.parametrize("name", sorted(FIXED))
def test_versions_with_known_holes_are_excluded(name: str) -> None:
    fixed, advisory = FIXED[name]
    bounds = [
        Version(each.version)
        for each in declared()[name].specifier
        if each.operator in (">=", "~=", "==")
    ]
    assert bounds, f"{name} has no lower bound"
    assert max(bounds) >= Version(fixed), advisory


def test_every_dependency_has_a_lower_bound() -> None:
    without = [
        name
        for name, each in declared().items()
        if not any(spec.operator in (">=", "~=", "==") for spec in each.specifier)
    ]
    assert without == []
