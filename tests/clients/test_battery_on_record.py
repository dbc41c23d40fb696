"""What docs/compatibility.md says of pulsar-admin is what the battery has on record."""

from __future__ import annotations

import re
from pathlib import Path

from tests.clients.battery import Row, battery

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "compatibility.md"


def section(title: str) -> str:
    found = re.search(
        rf"^### {title}\n(.*?)(?=^##)", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return found[1]


def name(row: Row) -> str:
    return " ".join(row.command.split()[:2])


def test_every_difference_is_in_the_tables_and_nothing_else() -> None:
    rows = battery()
    refused = {name(row) for row in rows if row.there and not row.here}
    carried_out = {name(row) for row in rows if row.here and not row.there}
    for title, expected in (
        ("Refused here", refused),
        ("Carried out here, refused there", carried_out),
    ):
        assert (
            set(re.findall(r"`([a-zA-Z-]+ [a-z-]+)[^`]*`", section(title)))
            - {"pulsarish standalone"}
            == expected
        )


def test_the_numbers_are_those_of_the_battery() -> None:
    rows = battery()
    there, here = sum(row.there for row in rows), sum(row.here for row in rows)
    text = " ".join(DOCUMENT.read_text().split())
    assert f"run with the {len(rows)} commands" in text
    assert f"carries out {there} and refuses {len(rows) - there}" in text
    assert f"here {here} are carried out" in text
