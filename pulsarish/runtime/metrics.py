"""Metrics that cost an integer addition where they happen. They become text only at a scrape.

Counters are plain integers of the code that counts, read at the scrape. Names are those that
Pulsar's and BookKeeper's dashboards use. The text format is Prometheus's. It is written here in a
dozen lines: importing a library for it would cost every process memory and start-up time.

A scrape of many series is made in slices: a source is a generator that pauses, and the loop does
its work between slices. A scrape that starts while another one runs gets that one's text: many
concurrent scrapes cost as much as one.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pulsarish.runtime.log import lines_by_level
from pulsarish.runtime.usage import resident_bytes

__all__ = [
    "LAG_BUCKETS_SECONDS",
    "LATENCY_BUCKETS_SECONDS",
    "TEXT_TYPE",
    "Family",
    "Histogram",
    "Metrics",
    "Operation",
    "Page",
]

TEXT_TYPE: Final = "text/plain; version=0.0.4"
"""The media type of a scrape."""

LATENCY_BUCKETS_SECONDS: Final = (
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    3.0,
    10.0,
)
"""The upper bounds used for latencies, from half a millisecond to ten seconds."""
LAG_BUCKETS_SECONDS: Final = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 10.0)
"""The upper bounds used for the lag of an event loop."""

_JOIN_LINES_MAX: Final = 5_000  # joined and encoded between two pauses

_AT_ONCE: Final[Iterator[None]] = iter(())

Kind = Literal["counter", "gauge", "histogram"]


class Histogram:
    """Counts observations by upper bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_BUCKETS_SECONDS) -> None:
        assert list(bounds) == sorted(bounds), "bounds grow"
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Count ``value``, ``count`` times: a whole batch shares one observation."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count


class Operation:
    """How long an operation took, with separate histograms for success and failure, as in
    BookKeeper.
    """

    __slots__ = ("failed", "succeeded")

    def __init__(self) -> None:
        self.succeeded = Histogram()
        self.failed = Histogram()


@dataclass(frozen=True, slots=True)
class Family:
    """Name, type and meaning of a metric.

    ``labels``: those besides the labels that every series of the process carries.
    """

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()


class Page:
    """The series of one scrape, by the name of their family."""

    def __init__(self, common: Mapping[str, str], names: Sequence[str]) -> None:
        self.lines: dict[str, list[str]] = {name: [] for name in names}
        self._common = common

    def labels(self, labels: Mapping[str, str]) -> str:
        """Return the labels of a series in text form.

        Make it once and use it for all series of one object.
        """
        return _braces({**self._common, **labels})

    def put(self, name: str, labels: str, value: float) -> None:
        """Add one series of a counter or gauge. ``labels``: a result of ``labels``."""
        self.lines[name].append(f"{name}{labels} {_number(value)}")

    def put_histogram(self, name: str, labels: Mapping[str, str], histogram: Histogram) -> None:
        lines = self.lines[name]
        seen_count = 0
        for bound, count in zip(
            (*map(_number, histogram.bounds), "+Inf"), histogram.counts, strict=True
        ):
            seen_count += count
            lines.append(f"{name}_bucket{self.labels({**labels, 'le': bound})} {seen_count}")
        braces = self.labels(labels)
        lines.append(f"{name}_sum{braces} {_number(histogram.total)}")
        lines.append(f"{name}_count{braces} {seen_count}")

    def text(self, families: Iterable[Family]) -> str:
        """Return the series of these families, all at once: for pages of few series."""
        text: list[str] = []
        for family in families:
            text += (_header(family), *(f"{line}\n" for line in self.lines[family.name]))
        return "".join(text)


Source = Callable[[Page], Iterator[None]]
"""Puts series on the page. At each ``yield`` the loop may do other work."""


class Metrics:
    """A process's registry. Each name is registered once; ``scrape`` writes all of them.

    Args:
        labels: put on every series, such as ``cluster``.
        lag_seconds: reads the event loop's lag.
        lags: all lags that were measured.
    """

    def __init__(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        lag_seconds: Callable[[], float] | None = None,
        lags: Histogram | None = None,
    ) -> None:
        self.families: dict[str, Family] = {}
        """Everything that is exported, by name."""
        self._common = dict(labels or {})
        self._sources: list[Source] = []
        self._under_way: asyncio.Future[bytes] | None = None
        self._process(lag_seconds, lags)

    def read(
        self, name: str, kind: Literal["counter", "gauge"], meaning: str, value: Callable[[], float]
    ) -> None:
        """Register a counter or gauge whose value is computed at the scrape."""

        def collect(page: Page) -> Iterator[None]:
            page.put(name, page.labels({}), value())
            return _AT_ONCE

        self.source([Family(name, kind, meaning)], collect)

    def read_each(
        self,
        name: str,
        kind: Literal["counter", "gauge"],
        meaning: str,
        label: str,
        values: Callable[[], Mapping[str, float]],
    ) -> None:
        """Register a counter or gauge with one label, whose few values are known beforehand."""

        def collect(page: Page) -> Iterator[None]:
            for key, value in values().items():
                page.put(name, page.labels({label: key}), value)
            return _AT_ONCE

        self.source([Family(name, kind, meaning, (label,))], collect)

    def histogram(self, name: str, meaning: str, histogram: Histogram) -> None:
        """Register a histogram that the measuring code keeps."""

        def collect(page: Page) -> Iterator[None]:
            page.put_histogram(name, {}, histogram)
            return _AT_ONCE

        self.source([Family(name, "histogram", meaning)], collect)

    def operation(self, name: str, meaning: str, operation: Operation) -> None:
        """Register a histogram for each outcome, under the label ``success``."""

        def collect(page: Page) -> Iterator[None]:
            page.put_histogram(name, {"success": "true"}, operation.succeeded)
            page.put_histogram(name, {"success": "false"}, operation.failed)
            return _AT_ONCE

        self.source([Family(name, "histogram", meaning, ("success",))], collect)

    def source(self, families: Sequence[Family], collect: Source) -> None:
        """Register metrics that are computed together."""
        for family in families:
            assert family.name not in self.families, f"the metric {family.name} is registered twice"
            self.families[family.name] = family
        self._sources.append(collect)

    async def scrape(self) -> bytes:
        """Return all series in Prometheus's text format (version 0.0.4)."""
        if self._under_way is not None:
            return await asyncio.shield(self._under_way)
        self._under_way = asyncio.get_running_loop().create_future()
        try:
            text = await self._write(self._sources, sorted(self.families))
        except BaseException as error:
            self._under_way.set_exception(error)
            self._under_way.exception()  # taken here: no other scrape may follow
            raise
        else:
            self._under_way.set_result(text)
            return text
        finally:
            self._under_way = None

    async def scrape_of(self, source: Source, names: Sequence[str]) -> bytes:
        """Return the series of one source, which puts series of these registered families only."""
        return await self._write([source], names)

    async def _write(self, sources: Sequence[Source], names: Sequence[str]) -> bytes:
        page = Page(self._common, names)
        for source in sources:
            for _ in source(page):
                await asyncio.sleep(0)
        text: list[bytes] = []
        for name, lines in page.lines.items():
            text.append(_header(self.families[name]).encode())
            for first in range(0, len(lines), _JOIN_LINES_MAX):
                text.append(("\n".join(lines[first : first + _JOIN_LINES_MAX]) + "\n").encode())
                if first:
                    await asyncio.sleep(0)
        return b"".join(text)

    def _process(self, lag_seconds: Callable[[], float] | None, lags: Histogram | None) -> None:
        started = time.time()
        self.read(
            "process_start_time_seconds",
            "gauge",
            "Start of the process since the epoch.",
            lambda: started,
        )
        self.read(
            "process_cpu_seconds_total", "counter", "User and system CPU time.", time.process_time
        )
        self.read("process_resident_memory_bytes", "gauge", "Resident memory.", resident_bytes)
        self.read(
            "process_open_fds",
            "gauge",
            "Open file descriptors.",
            lambda: len(os.listdir("/proc/self/fd")),
        )
        self.read(
            "process_max_fds",
            "gauge",
            "Limit of open file descriptors.",
            lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )
        self.read_each(
            "python_gc_collections_total",
            "counter",
            "Runs of the collector of cycles, by generation.",
            "generation",
            _collections,
        )
        self.read_each(
            "pulsarish_log_lines_total",
            "counter",
            "Events logged, those held back as repetitions included.",
            "level",
            lines_by_level,
        )
        if lag_seconds is not None:
            self.read(
                "pulsarish_loop_lag_seconds",
                "gauge",
                "How late the event loop was at its last measurement.",
                lag_seconds,
            )
        if lags is not None:
            self.histogram(
                "pulsarish_loop_lags_seconds",
                "How late the event loop was, measured five times a second, or once while it is "
                "idle.",
                lags,
            )


def _collections() -> Mapping[str, float]:
    return {
        str(generation): stats["collections"] for generation, stats in enumerate(gc.get_stats())
    }


def _header(family: Family) -> str:
    name = family.name
    return f"# HELP {name} {_escaped(family.meaning)}\n# TYPE {name} {family.kind}\n"


def _braces(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return (
        "{"
        + ",".join(f'{key}="{_escaped(value, quoted=True)}"' for key, value in labels.items())
        + "}"
    )


def _escaped(text: str, *, quoted: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
