"""The words that ``docs/STYLE.md`` replaces: they may only become fewer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PLAIN: Final = {
    "nobody": "the actor: no client, no owner",
    "whoever": "the actor: the caller, the next owner",
    "somebody": "the actor: another process, a client",
    "anew": "again",
    "wished": "wanted or planned",
    "lacking": "missing or under-replicated",
    "so many": "the number's name",
    "so much": "the number's name",
    "for ever": "forever",
    "mended": "repaired",
    "unsays": "withdraws",
    "likewise": "too",
    "taken back": "withdrawn",
}
_WORDS: Final = re.compile(rf"\b({'|'.join(PLAIN)})\b", re.IGNORECASE)
LEFT: Final = {
    "pulsarish/__init__.py": 0,
    "pulsarish/__main__.py": 0,
    "pulsarish/admin": 0,
    "pulsarish/asyncio.py": 0,
    "pulsarish/autorecovery": 0,
    "pulsarish/bookie": 0,
    "pulsarish/broker": 0,
    "pulsarish/chaos": 0,
    "pulsarish/cli": 0,
    "pulsarish/client": 0,
    "pulsarish/exceptions.py": 0,
    "pulsarish/functions": 0,
    "pulsarish/integrations": 0,
    "pulsarish/ledger": 0,
    "pulsarish/local_cluster": 0,
    "pulsarish/managed_ledger": 0,
    "pulsarish/metadata": 0,
    "pulsarish/model": 0,
    "pulsarish/proxy": 0,
    "pulsarish/runtime": 0,
    "pulsarish/schema.py": 0,
    "pulsarish/security": 0,
    "pulsarish/sim": 12,
    "pulsarish/spark": 0,
    "pulsarish/tableview.py": 0,
    "pulsarish/testing": 0,
    "pulsarish/wire": 0,
    "docs": 5,
    "README.md": 0,
    "CHANGELOG.md": 0,
}
"""How many are left in each place. Lower a number when you have replaced some; none may grow."""


def found_in(place: str) -> list[str]:
    """The words in the files of a place, each with its file and line."""
    path = ROOT / place
    files = (
        [path]
        if path.is_file()
        else sorted(
            each
            for each in path.rglob("*")
            if each.suffix in (".py", ".md") and each.parent.name != "_pb"
        )
    )
    return [
        f"{file.relative_to(ROOT)}:{number}: {word} (write {PLAIN[word.lower()]})"
        for file in files
        if file.name != "STYLE.md"
        for number, line in enumerate(file.read_text().splitlines(), 1)
        for word in _WORDS.findall(line)
    ]


@pytest.mark.parametrize("place", LEFT)
def test_words_of_the_old_dialect_become_fewer(place: str) -> None:
    found = found_in(place)
    assert len(found) <= LEFT[place], (
        f"{len(found)} of {LEFT[place]}; say it as docs/STYLE.md does:\n" + "\n".join(found)
    )


def test_every_place_is_looked_at() -> None:
    places = {
        f"pulsarish/{each.name}"
        for each in (ROOT / "pulsarish").iterdir()
        if each.name != "__pycache__"
    }
    assert places | {"docs", "README.md", "CHANGELOG.md"} == {*LEFT, "pulsarish/py.typed"}
