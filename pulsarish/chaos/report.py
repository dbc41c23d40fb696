"""What a run leaves behind: a line of the table, JSON, the misplaced messages one by one, and a
plot of acknowledgements over time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from pulsarish.chaos.run import Outcome

__all__ = ["COLUMNS", "last_run", "plot", "table_row", "write_files"]

COLUMNS: Final = (
    "scenario",
    "run",
    "verdict",
    "sent",
    "acked",
    "negative",
    "received",
    "missing",
    "non_acked",
    "disordered",
    "duplicates",
    "pause_s",
    "fault",
    "bite",
    "heal",
)

_WIDTH, _HEIGHT, _MARGIN = 900, 300, 60
_BUCKETS_MAX: Final = 300
_BUCKET_SECONDS_MIN: Final = 0.1
"""A rate over less time says more of the timing of single answers than of the cluster."""
_LABEL_HEIGHT: Final = 13
_LABEL_ROWS: Final = (_HEIGHT - 2 * _MARGIN) // _LABEL_HEIGHT
"""Labels of moments close to each other stand below each other."""
_HALO: Final = 'stroke="white" stroke-width="3" paint-order="stroke"'
"""Keeps a label readable where it crosses the curve or a line."""
_COLOURS: Final = {"fault": "#c0392b", "bite": "#d68910", "heal": "#1e8449"}


def table_row(outcome: Outcome) -> dict[str, Any]:
    """Marks are shown as the number of messages sent by then."""
    counters = outcome.counters
    marks = {mark.what: mark.sent for mark in reversed(outcome.marks)}
    return {
        "scenario": outcome.scenario,
        "run": outcome.run,
        "verdict": outcome.verdict,
        "sent": counters.sent,
        "acked": counters.acked_positive,
        "negative": counters.acked_negative,
        "received": counters.received,
        "missing": counters.acked_missing,
        "non_acked": counters.non_acked_received,
        "disordered": counters.out_of_order,
        "duplicates": counters.duplicates,
        "pause_s": round(outcome.pause_seconds, 2),
        **{what: marks.get(what) for what in _COLOURS},
    }


def last_run(directory: Path, scenario: str) -> int:
    """Return the greatest number of a run of this scenario that has files in the directory; 0 for
    none.
    """
    numbers = [
        path.stem.removeprefix(f"{scenario}-") for path in directory.glob(f"{scenario}-*.json")
    ]
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def write_files(outcome: Outcome, directory: Path) -> None:
    """``SCENARIO-RUN.json``, ``.svg``, and ``.anomalies.jsonl`` where there are any."""
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"{outcome.scenario}-{outcome.run}"
    (directory / f"{stem}.json").write_text(json.dumps(outcome.row(), indent=2) + "\n")
    measured = outcome.measured
    (directory / f"{stem}.svg").write_text(plot(outcome) if measured is None else measured.picture)
    rows = [anomaly.row() for anomaly in outcome.anomalies]
    rows += [{"kind": "missing", "value": number} for number in outcome.missing]
    path = directory / f"{stem}.anomalies.jsonl"
    if rows:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.unlink(missing_ok=True)  # of an earlier run under the same name


def plot(outcome: Outcome) -> str:
    """Acknowledgements a second over time, with the moments of the fault, as SVG."""
    total = max(outcome.publish_seconds, 0.001)
    buckets = max(1, min(_BUCKETS_MAX, int(total / _BUCKET_SECONDS_MIN)))
    width = total / buckets
    counts = [0] * buckets
    for at in outcome.ack_seconds:
        counts[min(int(at / width), buckets - 1)] += 1
    rates = [count / width for count in counts]
    top = max(*rates, 1.0)

    def x(seconds: float) -> float:
        return round(_MARGIN + seconds / total * (_WIDTH - 2 * _MARGIN), 1)

    def y(rate: float) -> float:
        return round(_HEIGHT - _MARGIN - rate / top * (_HEIGHT - 2 * _MARGIN), 1)

    points = " ".join(f"{x((index + 0.5) * width)},{y(rate)}" for index, rate in enumerate(rates))
    title = (
        f"{outcome.scenario}, run {outcome.run}: {outcome.verdict}, longest pause "
        f"{outcome.pause_seconds:.2f} s"
    )
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
            'font-family="sans-serif" font-size="11">'
        ),
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_MARGIN}" y="18" font-size="13">{escape(title)}</text>',
        *_axis(x, y, total, top),
        f'<polyline points="{points}" fill="none" stroke="#21618c" stroke-width="1.5"/>',
        *_marks(outcome, x),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _axis(x: Any, y: Any, total: float, top: float) -> Sequence[str]:
    bottom = y(0)
    lines = [f'<path d="M{x(0)} {y(top)} V{bottom} H{x(total)}" fill="none" stroke="black"/>']
    digits = 2 if total < 5 else 1
    for part in range(6):
        seconds = total * part / 5
        lines.append(
            f'<text x="{x(seconds)}" y="{bottom + 15}" text-anchor="middle">{seconds:.{digits}f} '
            "s</text>"
        )
    lines += [
        (
            f'<text x="{x(0) - 5}" y="{y(top * part / 2) + 4}" '
            f'text-anchor="end">{top * part / 2:,.0f}</text>'
        )
        for part in range(3)
    ]
    lines.append(f'<text x="{x(0)}" y="{y(top) - 8}" text-anchor="middle">acks/s</text>')
    return lines


def _marks(outcome: Outcome, x: Any) -> Sequence[str]:
    lines = []
    for index, mark in enumerate(outcome.marks):
        at, colour = x(mark.seconds), _COLOURS.get(mark.what, "gray")
        text = f"{mark.what} at message {mark.sent}"
        lines.append(
            f'<path d="M{at} {_MARGIN} V{_HEIGHT - _MARGIN}" stroke="{colour}" '
            'stroke-dasharray="4 3"/>'
        )
        # Within the picture: on the side of the line that has room.
        place, anchor = (at + 3, "start") if at < _WIDTH / 2 else (at - 3, "end")
        below = _MARGIN + 10 + _LABEL_HEIGHT * (index % _LABEL_ROWS)
        label = f"{escape(text)}<title>{escape(mark.text)}</title>"
        lines.append(
            f'<text x="{place:.1f}" y="{below}" text-anchor="{anchor}" fill="{colour}" '
            f"{_HALO}>{label}</text>"
        )
    return lines
