"""Where a read begins and ends in each topic, from the user's options."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from pulsarish.spark.options import ReadOptions
from pulsarish.spark.positions import EARLIEST, LATEST, Place
from pulsarish.spark.reading.log import ClusterView, TopicLog

__all__ = ["ending_place", "starting_place", "starts_by", "warn_of"]


def starts_by(options: ReadOptions) -> str:
    """Return the option that decides where reading begins."""
    return (
        "option 'startingTime'"
        if options.starting_time_ms is not None
        else "option 'startingOffsets'"
    )


def starting_place(view: ClusterView, options: ReadOptions, log: TopicLog, default: str) -> Place:
    """Return the position after which reading begins."""
    if options.starting_time_ms is not None:
        return _before_time(view, log, options.starting_time_ms)
    edge = options.starting.of(log.topic, default) if options.starting is not None else default
    if isinstance(edge, Place):
        return edge.before
    return log.last if edge == LATEST else log.before_first


def ending_place(view: ClusterView, options: ReadOptions, log: TopicLog) -> Place:
    """Return the last position to read."""
    if options.ending_time_ms is not None:
        return _before_time(view, log, options.ending_time_ms)
    edge = options.ending.of(log.topic, LATEST) if options.ending is not None else LATEST
    if isinstance(edge, Place):
        return edge
    return log.before_first if edge == EARLIEST else log.last


def _before_time(view: ClusterView, log: TopicLog, time_ms: int) -> Place:
    """Return the last position before the first message published at that time or later."""
    found = view.first_published(log.topic, time_ms)
    return log.last if found is None else min(found.before, log.last, key=lambda place: place.key)


def warn_of(lost: Sequence[str]) -> None:
    """Warn about lost entries that do not end the query."""
    for text in lost:
        warnings.warn(
            f"{text}; option 'failOnDataLoss' is 'false', so what is there is read", stacklevel=2
        )
