"""The picture of a soak: acknowledgements a second with each fault, and the memory of each process,
over the same time (SVG).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from typing import Any, Final

from pulsarish.chaos.process_memory import ProcessMemory

__all__ = ["draw_soak"]

_WIDTH: Final = 1_000
_LEFT, _RIGHT = 70, 830
_RATES: Final = (30, 210)  # top and bottom on the page
_MEMORY: Final = (270, 470)
_HEIGHT: Final = 510
_ROW: Final = 14
_POINTS: Final = 400
"""The most samples that are drawn of a line."""
_COLOURS: Final = {
    "kill": "#c0392b",
    "pause": "#d68910",
    "cut": "#7d3c98",
    "rot": "#196f3d",
    "add": "#5dade2",
    "remove": "#34495e",
    "drain": "#909497",
}
_LINES: Final = (
    *("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b"),
    *("#e377c2", "#7f7f7f", "#bcbd22", "#17becf", "#000000"),
    *("#aec7e8", "#98df8a", "#ff9896", "#c5b0d5"),
)

Scale = Callable[[float], float]


def draw_soak(memory: ProcessMemory, faults: Sequence[dict[str, Any]]) -> str:
    """Return the picture. ``faults``: rows with ``at_seconds``, ``kind``, ``node``."""
    total = max([*memory.seconds, 1.0])
    step = len(memory.seconds) // _POINTS + 1
    seconds = memory.seconds[::step]
    points = list(zip(seconds, memory.acked[::step], strict=True))
    rates = [
        ((begin + end) / 2, (after - before) / (end - begin))
        for (begin, before), (end, after) in pairwise(points)
        if end > begin
    ]
    most_rate = max([rate for _, rate in rates], default=1.0) or 1.0
    most_mib = max(
        (each for samples in memory.mib.values() for each in samples if not math.isnan(each)),
        default=1.0,
    )

    def x(seconds: float) -> float:
        return round(_LEFT + seconds / total * (_RIGHT - _LEFT), 1)

    rate_y, mib_y = _scale(_RATES, most_rate), _scale(_MEMORY, most_mib)
    line = " ".join(f"{x(at)},{rate_y(rate)}" for at, rate in rates)
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
            'font-family="sans-serif" font-size="11">'
        ),
        '<rect width="100%" height="100%" fill="white"/>',
        *_frame(_RATES, x, total, most_rate, "acknowledged messages a second, and faults"),
        *_faults(faults, x),
        f'<polyline points="{line}" fill="none" stroke="#21618c" stroke-width="1.2"/>',
        *_frame(_MEMORY, x, total, most_mib, "MiB of memory of each process"),
    ]
    for number, (name, samples) in enumerate(sorted(memory.mib.items())):
        colour = _LINES[number % len(_LINES)]
        for run in _runs(list(zip(seconds, samples[::step], strict=True))):
            path = " ".join(f"{x(at)},{mib_y(mib)}" for at, mib in run)
            lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
        lines.append(_legend(_MEMORY, number, colour, name))
    for number, (kind, colour) in enumerate(_COLOURS.items()):
        count = sum(_family(row) == kind for row in faults)
        lines.append(_legend(_RATES, number, colour, f"{kind} ({count})"))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _family(row: dict[str, Any]) -> str:
    return str(row["kind"]).partition("-")[0]


def _scale(place: tuple[int, int], most: float) -> Scale:
    top, bottom = place
    return lambda value: round(bottom - value / most * (bottom - top), 1)


def _runs(samples: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Return the parts of a line between the times at which the process did not run."""
    found: list[list[tuple[float, float]]] = [[]]
    for at, value in samples:
        if not math.isnan(value):
            found[-1].append((at, value))
        elif found[-1]:
            found.append([])
    return [each for each in found if each]


def _faults(faults: Sequence[dict[str, Any]], x: Scale) -> list[str]:
    top, bottom = _RATES
    return [
        f'<path d="M{x(row["at_seconds"])} {top} V{bottom}" stroke="{_COLOURS[_family(row)]}">'
        f"<title>{row['at_seconds']} s: {row['kind']} of {escape(row['node'])}</title></path>"
        for row in faults
    ]


def _frame(place: tuple[int, int], x: Scale, total: float, most: float, title: str) -> list[str]:
    top, bottom = place
    lines = [
        f'<text x="{_LEFT}" y="{top - 10}" font-size="13">{escape(title)}</text>',
        f'<path d="M{_LEFT} {top} V{bottom} H{_RIGHT}" fill="none" stroke="black"/>',
    ]
    lines += [
        f'<text x="{x(total * part / 5)}" y="{bottom + 15}" text-anchor="middle">'
        f"{total * part / 5 / 60:.1f} min</text>"
        for part in range(6)
    ]
    y = _scale(place, most)
    lines += [
        f'<text x="{_LEFT - 5}" y="{y(most * part / 2) + 4}" text-anchor="end">'
        f"{most * part / 2:,.0f}</text>"
        for part in range(3)
    ]
    return lines


def _legend(place: tuple[int, int], number: int, colour: str, text: str) -> str:
    y = place[0] + 4 + number * _ROW
    return (
        f'<path d="M{_RIGHT + 15} {y - 4} h16" stroke="{colour}" stroke-width="3"/>'
        f'<text x="{_RIGHT + 37}" y="{y}">{escape(text)}</text>'
    )
