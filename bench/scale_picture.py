"""Draw the figures of ``docs/scale.md``: ``python -m bench.scale_picture``.

The tables of that page are the only place that has the figures. Writes ``docs/images/scale.png``
and ``docs/images/growth.png``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PAGE, IMAGES = Path("docs/scale.md"), Path("docs/images")
WANTED = 600_000
PHASE, BOOKIE_COLUMNS, BROKER_COLUMNS = 1, range(2, 7), range(7, 10)
COLORS = {"own daemon": "#3b7dd8", "ZooKeeper": "#c0392b"}
_NUMBER = re.compile(r"\d[\d,]*\.?\d*")


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the table whose first column has this heading."""
    _, _, rest = page.partition(f"\n| {heading} |")
    found = []
    for line in rest.splitlines()[2:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def numbers(cell: str) -> list[float]:
    return [float(each.replace(",", "")) for each in _NUMBER.findall(cell)]


def draw(
    axes: Any, title: str, table: Sequence[Sequence[str]], column: int, labels: Sequence[str]
) -> None:
    """Draw the numbers of a column, a line for each metadata service and each number of a cell."""
    for service, color in COLORS.items():
        mine = [row for row in table if ("ZooKeeper" in row[0]) == (service == "ZooKeeper")]
        topics = [numbers(row[0])[0] for row in mine]
        for index, label in enumerate(labels):
            values = [numbers(row[column])[index] for row in mine]
            name = f"{service}, {label}" if label else service
            axes.plot(topics, values, "o--" if index else "o-", color=color, label=name)
    axes.axvline(WANTED, color="#888888", linewidth=1, linestyle=":")
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("topics")
    axes.set_xscale("log")
    axes.set_ylim(0, axes.get_ylim()[1] * 1.1)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def main() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    page = PAGE.read_text("utf-8")
    draw_topics(plt, page)
    draw_growth(plt, page)


def draw_growth(plt: Any, page: str) -> None:
    """Draw what each bookie was given and each broker serves while a cluster grows."""
    table = rows(page, "seconds")
    seconds = [numbers(row[0])[0] for row in table]
    begins = [
        seconds[at] for at in range(1, len(table)) if table[at][PHASE] != table[at - 1][PHASE]
    ]
    figure, places = plt.subplots(1, 2, figsize=(11, 3.6))
    for axes, title, what, columns in (
        (places[0], "MB written to each bookie", "bookie", BOOKIE_COLUMNS),
        (places[1], "bundles of each broker", "broker", BROKER_COLUMNS),
    ):
        for number, column in enumerate(columns, 1):
            values = [numbers(row[column])[0] for row in table]
            axes.plot(seconds, values, "o-", markersize=3, label=f"{what}-{number}")
        for begin in begins:
            axes.axvline(begin, color="#888888", linewidth=1, linestyle=":")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("seconds; dotted: two bookies serve, two brokers serve")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(IMAGES / "growth.png", dpi=100)


def draw_topics(plt: Any, page: str) -> None:
    """Draw what very many topics cost."""
    idle, opened = rows(page, "topics"), rows(page, "open topics")
    figure, places = plt.subplots(2, 2, figsize=(11, 7))
    draw(places[0][0], "created per second", idle, 1, ("",))
    draw(places[0][1], "lookup, ms", idle, 2, ("p50", "p99"))
    draw(places[1][0], "start of a broker, seconds", idle, 5, ("",))
    axes = places[1][1]
    current = [row for row in opened if len(numbers(row[0])) == 1 and "before" not in row[0]]
    for column, label in ((3, "first topic"), (4, "half of them"), (5, "all")):
        axes.plot(
            [numbers(row[0])[0] for row in current],
            [numbers(row[column])[0] for row in current],
            "o-",
            label=label,
        )
    axes.set_title("back after SIGKILL of the owner of all open topics, seconds", fontsize=10)
    axes.set_xlabel("open topics")
    axes.set_ylim(0, axes.get_ylim()[1] * 1.1)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(IMAGES / "scale.png", dpi=100)


if __name__ == "__main__":
    main()
