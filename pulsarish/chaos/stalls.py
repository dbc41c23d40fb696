"""Whether a broker found a subscription that did not move although nothing held it up (rule 21):
asked at the end of each run.

A broker that was killed has lost its counter: what it found stands in its log. Of a cluster of the
user's there are only counters.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from pulsarish.broker.progress.watchdog import STALLED

__all__ = ["counted", "found_in_logs", "grown"]

_COUNTER: Final = re.compile(r"^pulsarish_dispatch_stalls_total(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
_ANSWER_SECONDS: Final = 5.0


def found_in_logs(logs: Iterable[tuple[str, Path]]) -> list[str]:
    """What the brokers have written of stalls, by name and log."""
    found = []
    for name, path in logs:
        if path.exists():
            with path.open(errors="replace") as lines:
                found += [f"{name}: {line.strip()}" for line in lines if STALLED in line]
    return found


def counted(addresses: Sequence[str]) -> dict[str, float]:
    """The counters of the brokers at these HTTP addresses; one that does not answer is left out."""
    found = {}
    for address in addresses:
        try:
            with urllib.request.urlopen(
                f"http://{address}/metrics", timeout=_ANSWER_SECONDS
            ) as answer:
                text = answer.read().decode()
        except OSError:
            continue
        if (match := _COUNTER.search(text)) is not None:
            found[address] = float(match[1])
    return found


def grown(before: dict[str, float], now: dict[str, float]) -> list[str]:
    """The brokers whose counters are higher than they were; a process that was started since began
    at 0.
    """
    return [
        f"broker {address} has restarted {count:g} dispatchers that did not move"
        for address, count in now.items()
        if count > before.get(address, 0) or (count and count < before.get(address, 0))
    ]
