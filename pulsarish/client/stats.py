"""What a client counts, as plain values and as Prometheus's text.

Everything is counted once for an entry, which may be a batch, not for each message.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from pulsarish.runtime.metrics import Family, Histogram, Page

__all__ = [
    "ClientStats",
    "ConsumerStats",
    "LatencyStats",
    "ProducerStats",
    "SendCounts",
    "SentEntry",
    "Series",
    "latency_of",
    "sent_seconds",
    "series_of",
]

_Each = TypeVar("_Each", bound="ProducerStats | ConsumerStats")


class SentEntry(Protocol):
    """What is counted of an entry."""

    callbacks: Sequence[Any]
    deadline: float


class SendCounts:
    """The counts of one topic's producer."""

    __slots__ = ("failed", "latency", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.failed = 0
        self.latency = Histogram()

    def add(self, entries: Sequence[SentEntry | None], messages: int, deadline: float) -> None:
        """Count the latencies of entries that were stored, in their order; ``None`` for one that
        counts no more.

        Args:
            messages: of all entries.
            deadline: of an entry that is made now.
        """
        self.sent += messages
        latency, first, last = self.latency, entries[0], entries[-1]
        if first is not None and last is not None:
            longest, shortest = deadline - first.deadline, deadline - last.deadline
            bounds = latency.bounds
            bucket = bisect_left(bounds, longest)
            if not bucket or shortest > bounds[bucket - 1]:
                # Made one after the other: all are in one bucket, as most that are stored together.
                latency.counts[bucket] += messages
                latency.total += (longest + shortest) / 2 * messages
                return
        for entry in entries:
            if entry is not None:
                latency.observe(deadline - entry.deadline, len(entry.callbacks))


@dataclass(frozen=True)
class LatencyStats:
    """A histogram in seconds.

    Args:
        bounds: upper bounds; there is one count more, of what lies above the last.
        total: the sum of all.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """0.0 while nothing is counted."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Return the upper bound under which this share lies, such as 0.99; infinity above the
        last bound, 0.0 while nothing is counted.
        """
        left = share * self.count
        if not left:
            return 0.0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            left -= count
            if left <= 0:
                return bound
        return float("inf")


def latency_of(histograms: Sequence[Histogram]) -> LatencyStats:
    """Return the sum of histograms with the same bounds."""
    counts = zip(*(each.counts for each in histograms), strict=True)
    return LatencyStats(
        histograms[0].bounds,
        tuple(sum(each) for each in counts),
        sum(each.total for each in histograms),
    )


@dataclass(frozen=True)
class ProducerStats:
    """Since a producer was made.

    Args:
        messages_sent: stored, by their receipts.
        bytes_sent: of the entries that hold them, as they were sent: compressed and encrypted.
        messages_failed: accepted and then failed.
        messages_pending: accepted and neither stored nor failed.
        send_latency: from when a message's entry was made, which is when its batch is closed, to
            its receipt.
    """

    topic: str
    producer_name: str
    messages_sent: int
    bytes_sent: int
    messages_failed: int
    messages_pending: int
    send_latency: LatencyStats


@dataclass(frozen=True)
class ConsumerStats:
    """Since a consumer or reader was made. A reader has no subscription and acknowledges nothing.

    Args:
        messages_received: given to the program.
        bytes_received: of the entries that hold them, as they came.
        messages_redelivered: of those that were made ready for the program, the ones that were
            delivered before.
        messages_acknowledged: acknowledged; a cumulative acknowledgement counts once.
        messages_refused: negatively acknowledged.
        messages_queued: received from brokers, and not yet given to the program.
    """

    topic: str
    subscription_name: str
    consumer_name: str
    messages_received: int
    bytes_received: int
    messages_redelivered: int
    messages_acknowledged: int
    messages_refused: int
    messages_queued: int


@dataclass(frozen=True)
class ClientStats:
    """Of the producers, consumers and readers of a client that are open."""

    producers: tuple[ProducerStats, ...]
    consumers: tuple[ConsumerStats, ...]

    def to_prometheus(self) -> str:
        """Return all in Prometheus's text format (version 0.0.4)."""
        series = list(series_of())
        families = [*(family for family, _ in series), _LATENCY]
        page = Page({}, [family.name for family in families])
        for family, read in series:
            for labels, value in read(self):
                page.put(family.name, page.labels(dict(labels)), value)
        for labels, members in _grouped(self.producers, _producer_labels):
            latency = Histogram(members[0].send_latency.bounds)
            for each in members:
                latency.total += each.send_latency.total
                for index, count in enumerate(each.send_latency.counts):
                    latency.counts[index] += count
            page.put_histogram(_LATENCY.name, dict(labels), latency)
        return page.text(families)


_Labels = tuple[tuple[str, str], ...]
_OF_PRODUCER: Final = ("topic", "producer_name")
_OF_CONSUMER: Final = ("topic", "subscription", "consumer_name")


def _producer_labels(stats: ProducerStats) -> _Labels:
    return tuple(zip(_OF_PRODUCER, (stats.topic, stats.producer_name), strict=True))


def _consumer_labels(stats: ConsumerStats) -> _Labels:
    values = (stats.topic, stats.subscription_name, stats.consumer_name)
    return tuple(zip(_OF_CONSUMER, values, strict=True))


def _counter(name: str, meaning: str, labels: tuple[str, ...]) -> Family:
    return Family(f"pulsarish_client_{name}_total", "counter", meaning, labels)


def _gauge(name: str, meaning: str, labels: tuple[str, ...]) -> Family:
    return Family(f"pulsarish_client_{name}", "gauge", meaning, labels)


_LATENCY: Final = Family(
    "pulsarish_client_send_latency_seconds",
    "histogram",
    "Time from when the entry of a message was made to its receipt.",
    _OF_PRODUCER,
)
_PRODUCER: Final[tuple[tuple[Family, Callable[[ProducerStats], int]], ...]] = (
    (_counter("messages_sent", "Messages stored.", _OF_PRODUCER), lambda s: s.messages_sent),
    (_counter("bytes_sent", "Bytes of stored entries.", _OF_PRODUCER), lambda s: s.bytes_sent),
    (
        _counter("messages_failed", "Messages that were not stored.", _OF_PRODUCER),
        lambda s: s.messages_failed,
    ),
    (
        _gauge("messages_pending", "Messages without a receipt.", _OF_PRODUCER),
        lambda s: s.messages_pending,
    ),
)
_CONSUMER: Final[tuple[tuple[Family, Callable[[ConsumerStats], int]], ...]] = (
    (
        _counter("messages_received", "Messages given to the program.", _OF_CONSUMER),
        lambda s: s.messages_received,
    ),
    (
        _counter("bytes_received", "Bytes of received entries.", _OF_CONSUMER),
        lambda s: s.bytes_received,
    ),
    (
        _counter("messages_redelivered", "Messages delivered again.", _OF_CONSUMER),
        lambda s: s.messages_redelivered,
    ),
    (
        _counter("messages_acknowledged", "Messages acknowledged.", _OF_CONSUMER),
        lambda s: s.messages_acknowledged,
    ),
    (
        _counter("messages_refused", "Messages negatively acknowledged.", _OF_CONSUMER),
        lambda s: s.messages_refused,
    ),
    (
        _gauge("messages_queued", "Messages that wait for the program.", _OF_CONSUMER),
        lambda s: s.messages_queued,
    ),
)


Series = tuple[_Labels, float]
"""Labels and a value."""


def series_of() -> Iterator[tuple[Family, Callable[[ClientStats], Iterable[Series]]]]:
    """Yield each counter and gauge, and what reads its series."""
    for family, value in _PRODUCER:
        yield family, partial(_producer_series, value)
    for family, of_consumer in _CONSUMER:
        yield family, partial(_consumer_series, of_consumer)


def sent_seconds(stats: ClientStats) -> Iterable[Series]:
    """Return the sum of the send latencies of each producer."""
    return _producer_series(lambda each: each.send_latency.total, stats)


def _producer_series(
    value: Callable[[ProducerStats], float], stats: ClientStats
) -> Iterable[Series]:
    return [
        (labels, sum(map(value, members)))
        for labels, members in _grouped(stats.producers, _producer_labels)
    ]


def _consumer_series(
    value: Callable[[ConsumerStats], float], stats: ClientStats
) -> Iterable[Series]:
    return [
        (labels, sum(map(value, members)))
        for labels, members in _grouped(stats.consumers, _consumer_labels)
    ]


def _grouped(
    stats: Iterable[_Each], labels_of: Callable[[_Each], _Labels]
) -> Iterable[tuple[_Labels, list[_Each]]]:
    """Yield the stats with the same labels, which are one series."""
    groups: dict[_Labels, list[_Each]] = {}
    for each in stats:
        groups.setdefault(labels_of(each), []).append(each)
    return groups.items()
