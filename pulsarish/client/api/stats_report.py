"""The counts of a client's producers and consumers, at once and regularly in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from pulsarish.client.connection.timers import Timers
from pulsarish.client.consumer.multi_consumer import MultiConsumer
from pulsarish.client.producer.partitioned_producer import PartitionedProducer
from pulsarish.client.stats import ClientStats, ConsumerStats, ProducerStats
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock

__all__ = ["StatsReport", "stats_of"]

_log = get_logger("client.stats")

_NOW = frozenset({"messages_pending", "messages_queued"})
"""Counts of the present, not of an interval."""


def stats_of(opened: Iterable[PartitionedProducer | MultiConsumer]) -> ClientStats:
    """Return the counts of those that are open; may be called from any thread."""
    made = [each.stats() for each in list(opened) if not each.is_closed]
    return ClientStats(
        tuple(each for each in made if isinstance(each, ProducerStats)),
        tuple(each for each in made if isinstance(each, ConsumerStats)),
    )


class StatsReport:
    """Writes what was counted in each interval to the log.

    Args:
        opened: the producers and consumers of the client, by number.
    """

    def __init__(
        self,
        alarms: Timers,
        clock: Clock,
        opened: Mapping[int, PartitionedProducer | MultiConsumer],
    ) -> None:
        self._clock = clock
        self._interval_seconds = 0
        self._opened = opened
        self._before: dict[int, dict[str, int]] = {}
        self._alarm = alarms.alarm(self._write)

    def use_interval(self, seconds: int) -> None:
        """Write that often, from the first producer or consumer on; 0: never."""
        self._interval_seconds = seconds

    def start(self) -> None:
        """Begin the first interval, if none runs."""
        if self._interval_seconds and self._alarm.due is None:
            self._alarm.set(self._clock.monotonic() + self._interval_seconds)

    def stop(self) -> None:
        self._alarm.cancel()

    def _write(self) -> None:
        before, self._before = self._before, {}
        for number, each in self._opened.items():
            if each.is_closed:
                continue
            stats = each.stats()
            fields = asdict(stats)
            counts = {name: value for name, value in fields.items() if isinstance(value, int)}
            self._before[number] = counts
            since = before.get(number, {})
            shown = {
                name: value if name in _NOW else value - since.get(name, 0)
                for name, value in counts.items()
            }
            if isinstance(stats, ProducerStats):
                _log.info(
                    "producer statistics",
                    topic=stats.topic,
                    producer=stats.producer_name,
                    **shown,
                    send_latency_mean_ms=round(stats.send_latency.mean * 1_000, 3),
                )
            else:
                _log.info(
                    "consumer statistics",
                    topic=stats.topic,
                    subscription=stats.subscription_name,
                    consumer=stats.consumer_name,
                    **shown,
                )
        if self._before:
            self.start()
