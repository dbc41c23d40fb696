"""The programs of docs/recipes.md run as they stand there, and print what stands below them."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulsarish.testing import LocalServer

TEXT = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
RECIPES = re.findall(
    r"^## (.+?)\n.*?```python\n(.*?)```\n\n```text\n(.*?)```", TEXT, re.DOTALL | re.MULTILINE
)


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


def test_there_are_twenty() -> None:
    titles = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    assert [title for title, _, _ in RECIPES] == titles
    assert len(titles) == TEXT.count("```python") == 20


@pytest.mark.parametrize(
    ("program", "printed"),
    [(program, printed) for _, program, printed in RECIPES],
    ids=[title.replace(" ", "-") for title, _, _ in RECIPES],
)
def test_it_prints_what_it_says(program: str, printed: str, server: LocalServer) -> None:
    program = program.replace("pulsarish://127.0.0.1:6660", server.service_url)
    program = program.replace("http://127.0.0.1:8080", server.admin_url)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(program, "docs/recipes.md", "exec"), {"__name__": "__main__"})
    assert out.getvalue() == printed
