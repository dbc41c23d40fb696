"""Plots of a pipeline's results, as PNG, ready to be shown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

from pulsarish.model.errors import InvalidArgument
from pulsarish.spark.pipelines.parts import PictureSink

__all__ = ["draw"]

_DPI: Final = 120
_SERIES_MAX: Final = 20
_BARS_MAX: Final = 60
_CELL_LABELS_MAX: Final = 12 * 26
_COLOUR_QUANTILE: Final = 0.98
_LABELLED_SHARE: Final = 0.012
"""Share of the whole width; a narrower bar has no room for its number."""
_INK: Final = "#222222"
_FAINT: Final = "#767676"
_COLOURS: Final = (
    *(
        "#3366aa",
        "#dd7733",
        "#339966",
        "#bb4455",
        "#8866bb",
        "#997755",
        "#cc66aa",
        "#777777",
        "#aaaa33",
        "#33aabb",
    ),
    *(
        "#224477",
        "#995522",
        "#226644",
        "#882233",
        "#553388",
        "#665533",
        "#884477",
        "#444444",
        "#777722",
        "#227788",
    ),
)


def draw(sink: PictureSink, rows: Any) -> None:
    """Draw ``rows``, a pandas frame, to the sink's file.

    Raises ``InvalidArgument`` for rows that do not fit the plot.
    """
    if len(rows) > sink.rows_max:
        raise InvalidArgument(
            f"{sink.place}: there are more than rows_max ({sink.rows_max:,}) rows; aggregate "
            "them, or raise it"
        )
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(
        {
            "font.size": 10,
            "axes.edgecolor": "#bbbbbb",
            "axes.labelcolor": _INK,
            "text.color": _INK,
            "font.family": "DejaVu Sans",
        }
    ):
        figure = Figure(figsize=(sink.width, sink.height), dpi=_DPI, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=_FAINT, labelcolor=_INK)
        if len(rows):
            _CHARTS[sink.chart](sink, rows, axes)
        else:
            axes.text(
                0.5,
                0.5,
                "no rows",
                ha="center",
                va="center",
                transform=axes.transAxes,
                color=_FAINT,
                size=14,
            )
        title = f"{sink.title}\n" if sink.subtitle else sink.title
        axes.set_title(title, loc="left", size=13, weight="bold", pad=10)
        if sink.subtitle:
            axes.annotate(
                sink.subtitle,
                (0, 1),
                (0, 10),
                xycoords="axes fraction",
                textcoords="offset points",
                color=_FAINT,
                size=9.5,
            )
        Path(sink.path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(sink.path)


def _line(sink: PictureSink, rows: Any, axes: Any) -> None:
    rows = rows.sort_values(sink.x)
    for number, (name, part, y) in enumerate(_series(sink, rows)):
        mark = "o" if len(part) < 40 else ""
        axes.plot(
            part[sink.x],
            part[y].astype(float),
            label=name,
            color=_COLOURS[number],
            linewidth=1.6,
            marker=mark,
            markersize=3.5,
        )
    _finish(sink, rows, axes)


def _scatter(sink: PictureSink, rows: Any, axes: Any) -> None:
    for number, (name, part, y) in enumerate(_series(sink, rows)):
        axes.scatter(
            part[sink.x],
            part[y].astype(float),
            label=name,
            color=_COLOURS[number],
            s=14,
            alpha=0.6,
            linewidths=0,
        )
    _finish(sink, rows, axes)


def _bar(sink: PictureSink, rows: Any, axes: Any) -> None:
    """Draw upright bars, side by side for several columns or series.

    Numbers and times are sorted; words keep the order of the rows.
    """
    rows = rows if isinstance(rows[sink.x].iloc[0], str) else rows.sort_values(sink.x)
    places = {value: index for index, value in enumerate(dict.fromkeys(rows[sink.x]))}
    _refuse_many(sink, len(places), _BARS_MAX, "bars")
    series = _series(sink, rows)
    width = 0.8 / len(series)
    for number, (name, part, y) in enumerate(series):
        at = [places[value] - 0.4 + width * (number + 0.5) for value in part[sink.x]]
        axes.bar(at, part[y].astype(float), width=width * 0.95, label=name, color=_COLOURS[number])
    names = [_word(value) for value in places]
    slanted = sum(map(len, names)) > 9 * sink.width
    axes.set_xticks(
        range(len(names)), names, rotation=40 if slanted else 0, ha="right" if slanted else "center"
    )
    _finish(sink, rows, axes, dates=False)


def _ranking(sink: PictureSink, rows: Any, axes: Any) -> None:
    """Draw horizontal bars, the longest on top, each with its number."""
    y = sink.y[0]
    rows = rows.assign(**{y: rows[y].astype(float)}).sort_values(y)
    _refuse_many(sink, len(rows), _BARS_MAX, "bars")
    groups = list(dict.fromkeys(rows[sink.series])) if sink.series else []
    colours = (
        [_COLOURS[groups.index(value)] for value in rows[sink.series]]
        if sink.series
        else [_COLOURS[0]] * len(rows)
    )
    bars = axes.barh([_word(value) for value in rows[sink.x]], rows[y], color=colours)
    axes.bar_label(bars, [_number(value) for value in rows[y]], padding=4, color=_FAINT, size=9)
    axes.margins(x=0.08, y=0.01)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    if rows[y].min() < 0:
        axes.axvline(0, color="#bbbbbb", linewidth=0.8)
    axes.grid(axis="x", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(_label(sink.y_label, y))
    axes.set_ylabel(_label(sink.x_label, ""))
    if groups:
        from matplotlib.patches import Patch

        axes.legend(
            handles=[
                Patch(color=_COLOURS[index], label=_word(value))
                for index, value in enumerate(groups)
            ],
            frameon=False,
        )


def _heatmap(sink: PictureSink, rows: Any, axes: Any) -> None:
    """Draw ``series`` down, ``x`` along, ``value`` as colour.

    Cells have labels unless there are too many.
    """
    table = rows.pivot_table(index=sink.series, columns=sink.x, values=sink.value, aggfunc="mean")
    _refuse_many(sink, len(table), _BARS_MAX, "rows")
    values = table.to_numpy(dtype=float)
    given = rows[sink.value].astype(float)
    # A few outliers do not take the colours from all others; they get the colour of the end.
    low, high = float(given.min()), float(given.abs().quantile(_COLOUR_QUANTILE)) or 1.0
    scale: dict[str, Any] = (
        {"cmap": "RdBu_r", "vmin": -high, "vmax": high}
        if low < 0
        else {"cmap": "YlOrRd", "vmin": low, "vmax": high}
    )
    image = axes.imshow(values, aspect="auto", interpolation="nearest", **scale)
    axes.set_yticks(range(len(table)), [_word(value) for value in table.index])
    columns = [_word(value) for value in table.columns]
    every = -(-len(columns) // max(1, int(sink.width * 14 / max(map(len, columns)))))
    axes.set_xticks(range(0, len(columns), every), columns[::every])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    if values.size <= _CELL_LABELS_MAX:
        for row in range(values.shape[0]):
            for column in range(values.shape[1]):
                value = values[row, column]
                if value == value:
                    shade = image.norm(value)
                    dark = shade > 0.8 or (low < 0 and shade < 0.2)
                    axes.text(
                        column,
                        row,
                        str(round(value)),
                        ha="center",
                        va="center",
                        size=7.5,
                        color="white" if dark else _INK,
                    )
    bar = axes.figure.colorbar(
        image, ax=axes, shrink=0.8, pad=0.015, extend="max" if given.max() > high else "neither"
    )
    bar.set_label(_label(sink.value_label, sink.value))
    bar.outline.set_visible(False)
    axes.set_xlabel(_label(sink.x_label, sink.x))
    axes.set_ylabel(_label(sink.y_label, sink.series))


def _histogram(sink: PictureSink, rows: Any, axes: Any) -> None:
    groups = dict(list(rows.groupby(sink.series))) if sink.series else {"": rows}
    _refuse_many(sink, len(groups), _SERIES_MAX, "series")
    names = list(groups)
    axes.hist(
        [groups[name][sink.x].astype(float) for name in names],
        bins=40,
        stacked=True,
        color=_COLOURS[: len(names)],
        label=[_word(n) for n in names],
    )
    axes.set_ylabel(_label(sink.y_label, "rows"))
    axes.set_xlabel(_label(sink.x_label, sink.x))
    if sink.series:
        axes.legend(frameon=False)


def _spans(sink: PictureSink, rows: Any, axes: Any) -> None:
    """Draw a time line for each value of ``series``, with a bar from ``x`` to ``y[0]`` for each
    row; ``value`` is its label.
    """
    from matplotlib.dates import date2num

    names = list(dict.fromkeys(rows.sort_values(sink.series)[sink.series]))
    _refuse_many(sink, len(names), _BARS_MAX, "rows")
    narrow = _LABELLED_SHARE * float(date2num(rows[sink.y[0]].max()) - date2num(rows[sink.x].min()))
    for number, name in enumerate(names):
        part = rows[rows[sink.series] == name]
        starts = date2num(part[sink.x])
        lengths = date2num(part[sink.y[0]]) - starts
        bars = axes.barh(
            [number] * len(part),
            lengths,
            left=starts,
            height=0.62,
            color=_COLOURS[0],
            alpha=0.85,
            edgecolor="white",
        )
        if sink.value:
            words = [
                _number(value) if length > narrow else ""
                for value, length in zip(part[sink.value], lengths, strict=True)
            ]
            axes.bar_label(bars, words, label_type="center", color="white", size=8)
    axes.set_yticks(range(len(names)), [_word(name) for name in names])
    axes.invert_yaxis()
    axes.xaxis_date()
    axes.grid(axis="x", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    _dates(axes)
    axes.set_xlabel(_label(sink.x_label, sink.x))
    axes.set_ylabel(_label(sink.y_label, sink.series))


_CHARTS: Final[dict[str, Callable[[PictureSink, Any, Any], None]]] = {
    "line": _line,
    "scatter": _scatter,
    "bar": _bar,
    "ranking": _ranking,
    "heatmap": _heatmap,
    "histogram": _histogram,
    "spans": _spans,
}


def _series(sink: PictureSink, rows: Any) -> list[tuple[str, Any, str]]:
    """Return name, rows and column of each series with its own colour."""
    if not sink.series:
        return [(column.replace("_", " "), rows, column) for column in sink.y]
    names = list(dict.fromkeys(rows.sort_values(sink.series)[sink.series]))
    _refuse_many(sink, len(names), _SERIES_MAX, "series")
    return [(_word(name), rows[rows[sink.series] == name], sink.y[0]) for name in names]


def _refuse_many(sink: PictureSink, count: int, most: int, what: str) -> None:
    if count > most:
        raise InvalidArgument(
            f"{sink.place}: {count} {what} are more than a person can read ({most}); sort and "
            "limit the input"
        )


def _finish(sink: PictureSink, rows: Any, axes: Any, *, dates: bool = True) -> None:
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(_label(sink.x_label, sink.x))
    axes.set_ylabel(_label(sink.y_label, ", ".join(sink.y)))
    if dates and (
        str(rows[sink.x].dtype).startswith("datetime") or isinstance(rows[sink.x].iloc[0], date)
    ):
        _dates(axes)
    axes.yaxis.set_major_formatter(lambda value, _: _number(value))
    if sink.series or len(sink.y) > 1:
        axes.legend(
            frameon=False,
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
            title=sink.series.replace("_", " ") or None,
        )


def _dates(axes: Any) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.1f}"


def _label(given: str | None, otherwise: str) -> str:
    return otherwise.replace("_", " ") if given is None else given


def _word(value: Any) -> str:
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value)
