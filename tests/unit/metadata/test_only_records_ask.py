"""Outside of ``metadata/`` nobody calls the metadata store: ``Records`` does, and raises one error
for what has no answer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[3] / "pulsarish"
_THE_STORE_ITSELF = ("metadata", "runtime", "sim")
"""Packages that make a store, or whose subject it is."""

_ERRORS = {"OutcomeUnknown", "SessionLost"}


def _is_store(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(
            value=ast.Name(id="world") | ast.Attribute(attr="_world" | "world"), attr="metadata"
        ):
            return True
        case _:
            return False


def _misuses(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) if name in _ERRORS:
                yield f"line {node.lineno}: {name}, which Records turns into MetadataUnavailable"
            case ast.Attribute(value=part, attr=called) if _is_store(part):
                yield f"line {node.lineno}: metadata.{called}"
            case ast.Assign(value=part) if _is_store(part):
                yield f"line {node.lineno}: a name for the store"
            case ast.Attribute(
                value=ast.Name(id="records") | ast.Attribute(attr="records" | "_records"),
                attr="store" | "_store",
            ):
                yield f"line {node.lineno}: the store behind Records"


def _files() -> list[str]:
    names = [str(path.relative_to(PACKAGE)) for path in sorted(PACKAGE.rglob("*.py"))]
    return [name for name in names if not name.startswith(_THE_STORE_ITSELF)]


def test_nobody_outside_of_the_metadata_package_calls_the_store() -> None:
    found = [
        f"{name}, {misuse}"
        for name in _files()
        for misuse in _misuses((PACKAGE / name).read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "await self._records._store.sync(path)",
        "await self._topic.records.store.sync(path)",
        "await world.metadata.commit([op])",
        "store = self._world.metadata",
        "try:\n    pass\nexcept (OutcomeUnknown, ValueError):\n    pass",
    ],
)
def test_the_search_finds_what_it_is_for(line: str) -> None:
    assert list(_misuses(line))


def test_the_store_may_be_handed_to_records() -> None:
    assert not list(_misuses("records = Records(world.metadata, world.clock, world.random)"))
