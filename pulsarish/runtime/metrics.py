"""Metrics that cost an integer addition where they happen and are put into words only when somebody scrapes.

Counters are plain integers of whoever counts, read at the scrape (``Metrics.read``). Names are the ones that Pulsar's and BookKeeper's
dashboards already use; the text format is Prometheus's, written here: it is a dozen lines, and importing a library for it would cost every
process memory and start-up time.
"""

from __future__ import annotations

import os
import resource
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

__all__ = ["LATENCY_BUCKETS_SECONDS", "Family", "Gauge", "Histogram", "Metrics"]

LATENCY_BUCKETS_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 3.0, 10.0)
"""The upper bounds used for latencies, from half a millisecond to ten seconds."""

_OVERFLOW = "overflow"


class Gauge:
    """Goes up and down: set ``gauge.value``."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Histogram:
    """Counts observations by upper bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_BUCKETS_SECONDS) -> None:
        assert list(bounds) == sorted(bounds), "bounds grow"
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Count ``value`` (``count`` times: a whole batch shares one observation)."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count


Metric = Gauge | Histogram


class Family:
    """One gauge for each combination of label values, at most ``series_max`` of them; what comes later shares one named ``overflow``."""

    __slots__ = ("_labels", "_series", "_series_max")

    def __init__(self, labels: Sequence[str], series_max: int) -> None:
        self._labels = tuple(labels)
        self._series: dict[tuple[str, ...], Gauge] = {}
        self._series_max = series_max

    def at(self, *values: str) -> Gauge:
        """The gauge for these label values; keep it, the look-up is not free."""
        assert len(values) == len(self._labels), f"labels are {self._labels}"
        gauge = self._series.get(values)
        if gauge is None:
            if len(self._series) >= self._series_max:
                values = (_OVERFLOW,) * len(self._labels)
            gauge = self._series.setdefault(values, Gauge())
        return gauge

    def remove(self, *values: str) -> None:
        """Forget a series, when what it describes is gone."""
        self._series.pop(values, None)

    def series(self) -> list[tuple[Mapping[str, str], Gauge]]:
        return [(dict(zip(self._labels, values, strict=True)), gauge) for values, gauge in sorted(self._series.items())]


class Metrics:
    """A process's registry. Names are registered once; ``render`` writes them all.

    Args:
        labels: put on every series, such as ``cluster``.
        lag_seconds: reads the event loop's lag.
    """

    def __init__(self, *, labels: Mapping[str, str] | None = None, lag_seconds: Callable[[], float] | None = None) -> None:
        self._labels = dict(labels or {})
        self._named: dict[str, tuple[str, str, Callable[[], list[tuple[Mapping[str, str], Metric]]]]] = {}
        self._process(lag_seconds)

    def read(self, name: str, kind: str, meaning: str, value: Callable[[], float]) -> None:
        """A counter or gauge whose value is computed at the scrape."""
        assert kind in ("counter", "gauge")

        def series() -> list[tuple[Mapping[str, str], Metric]]:
            gauge = Gauge()
            gauge.value = value()
            return [({}, gauge)]

        self._register(name, kind, meaning, series)

    def gauges(self, name: str, meaning: str, labels: Sequence[str], *, series_max: int) -> Family:
        family = Family(labels, series_max)
        self._register(name, "gauge", meaning, lambda: [(labels, gauge) for labels, gauge in family.series()])
        return family

    def histogram(self, name: str, meaning: str, histogram: Histogram) -> None:
        """A histogram that whoever measures keeps."""
        self._register(name, "histogram", meaning, lambda: [({}, histogram)])

    def render(self) -> bytes:
        """Everything in Prometheus's text format (version 0.0.4)."""
        lines: list[str] = []
        for name, (kind, meaning, series) in sorted(self._named.items()):
            lines.append(f"# HELP {name} {_escaped(meaning)}")
            lines.append(f"# TYPE {name} {kind}")
            for labels, metric in series():
                lines.extend(_lines(name, {**self._labels, **labels}, metric))
        return ("\n".join(lines) + "\n").encode()

    def _register(self, name: str, kind: str, meaning: str, series: Callable[[], list[tuple[Mapping[str, str], Metric]]]) -> None:
        assert name not in self._named, f"the metric {name} is registered twice"
        self._named[name] = (kind, meaning, series)

    def _process(self, lag_seconds: Callable[[], float] | None) -> None:
        started = time.time()
        self.read("process_start_time_seconds", "gauge", "Start of the process since the epoch.", lambda: started)
        self.read("process_cpu_seconds_total", "counter", "User and system CPU time.", time.process_time)
        self.read("process_resident_memory_bytes", "gauge", "Resident memory.", _resident_bytes)
        self.read("process_open_fds", "gauge", "Open file descriptors.", lambda: len(os.listdir("/proc/self/fd")))
        self.read("process_max_fds", "gauge", "Limit of open file descriptors.", lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        if lag_seconds is not None:
            self.read("pulsarish_loop_lag_seconds", "gauge", "How late the event loop was at its last measurement.", lag_seconds)


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def _lines(name: str, labels: Mapping[str, str], metric: Metric) -> list[str]:
    if not isinstance(metric, Histogram):
        return [f"{name}{_braces(labels)} {_number(metric.value)}"]
    lines = []
    seen_count = 0
    for bound, count in zip((*map(_number, metric.bounds), "+Inf"), metric.counts, strict=True):
        seen_count += count
        lines.append(f"{name}_bucket{_braces({**labels, 'le': bound})} {seen_count}")
    lines.append(f"{name}_sum{_braces(labels)} {_number(metric.total)}")
    lines.append(f"{name}_count{_braces(labels)} {seen_count}")
    return lines


def _braces(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(value, quoted=True)}"' for key, value in labels.items()) + "}"


def _escaped(text: str, *, quoted: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
