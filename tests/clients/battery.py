"""The commands of Apache Pulsar's pulsar-admin with what they are answered, there and here:
``admin_battery.txt``.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["BATTERY", "Row", "battery"]

BATTERY: Final = Path(__file__).with_name("admin_battery.txt")
_OUTCOMES: Final = {"ok": True, "refused": False}


@dataclass(frozen=True)
class Row:
    there: bool
    here: bool
    command: str
    reason: str
    """Words of the refusal here."""

    def words(self, *, schema: Path, broker: str) -> list[str]:
        known = {"SCHEMA": str(schema), "BROKER": broker}
        return [known.get(word, word) for word in shlex.split(self.command)]


def battery() -> list[Row]:
    """Return the rows in the order in which they are to be run."""
    found = []
    for line in BATTERY.read_text().splitlines():
        if line and not line.startswith("#"):
            outcomes, command, *reason = line.split(" | ")
            there, here = outcomes.split()
            found.append(
                Row(_OUTCOMES[there], _OUTCOMES[here], command.strip(), " | ".join(reason).strip())
            )
    return found
