"""Planning of a stream's batches, by a view of topics that stands still or moves as a test says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import types

from pulsarish.model.errors import AlreadyExists, NotFound
from pulsarish.spark.options import read_options
from pulsarish.spark.reading import stream
from pulsarish.spark.reading.log import Ledger, TopicLog
from pulsarish.spark.reading.stream import StreamReader

TOPIC = "persistent://public/default/t"
SCHEMA = types.StructType([types.StructField("value", types.BinaryType())])


class View:
    """What the planner knows; ``logs_of`` is what a test changes."""

    def __init__(self, *logs: TopicLog) -> None:
        self.there = {log.topic: log for log in logs}

    def topics(self, _options: object) -> list[str]:
        return sorted(self.there)

    def logs(self, topics: Sequence[str]) -> dict[str, TopicLog | None]:
        return {topic: self.there.get(topic) for topic in topics}

    def bookies(self, _options: object) -> dict[str, str]:
        return {}


def log(entries: int, *, topic: str = TOPIC, created_ms: int = 99) -> TopicLog:
    return TopicLog(topic, created_ms, (Ledger(7, entries, entries * 100, 5, 0, ""),), ())


def reader(view: View, monkeypatch: pytest.MonkeyPatch, **options: str) -> StreamReader:
    monkeypatch.setattr(stream, "ClusterView", lambda _url: view)
    return StreamReader(
        read_options({"topic": TOPIC, **options}, streaming=True), SCHEMA, parallelism=2
    )


def entries_of(
    reading: StreamReader, start: dict[str, object], end: dict[str, object]
) -> list[tuple[int, int]]:
    splits = [partition.value[0] for partition in reading.partitions(start, end)]
    return [
        (piece.ledger_id, entry)
        for split in splits
        for piece in split.pieces
        for entry in range(piece.first, piece.last + 1)
    ]


def test_a_first_batch_run_again_begins_where_it_began_though_spark_asks_anew_where_that_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = View(log(10))
    first = reader(view, monkeypatch)
    start = first.initialOffset()
    view.there[TOPIC] = log(14)
    end = first.latestOffset(start, first.getDefaultReadLimit())
    assert entries_of(first, start, end) == [(7, entry) for entry in range(10, 14)]

    view.there[TOPIC] = log(30)
    # the driver was restarted; a first batch has no offset before it in the checkpoint
    again = reader(view, monkeypatch)
    assert entries_of(again, again.initialOffset(), end) == [(7, entry) for entry in range(10, 14)]


def test_a_batch_of_a_topic_that_was_deleted_is_passed_over_only_where_loss_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = View(log(10))
    reading = reader(view, monkeypatch, startingOffsets="earliest")
    start = reading.initialOffset()
    end = reading.latestOffset(start, reading.getDefaultReadLimit())
    view.there.clear()
    with pytest.raises(
        NotFound,
        match=f"topic {TOPIC}, which the query's checkpoint has at 7:9, does not exist any more",
    ):
        reading.partitions(start, end)
    lenient = reader(view, monkeypatch, startingOffsets="earliest", failOnDataLoss="false")
    with pytest.warns(UserWarning, match="does not exist any more"):
        assert entries_of(lenient, start, end) == []


class Subscriptions:
    """Of topics, by name: before which position they stand."""

    def __init__(self) -> None:
        self.there: dict[str, str] = {}

    def create(self, _topic: str, name: str, *, position: str) -> None:
        if name in self.there:
            raise AlreadyExists(name)
        self.there[name] = position

    def reset_cursor(self, _topic: str, name: str, *, position: str) -> None:
        self.there[name] = position


class Kept(View):
    """With subscriptions, as ``admin.subscriptions``."""

    def __init__(self, *logs: TopicLog) -> None:
        super().__init__(*logs)
        self.subscriptions = Subscriptions()

    @property
    def admin(self) -> Kept:
        return self


def test_a_subscription_that_is_there_is_not_moved_over_a_first_batch_that_is_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = Kept(log(10))
    _ = reader(view, monkeypatch, subscription="s").initialOffset()
    assert view.subscriptions.there == {"s": "7:10"}
    view.there[TOPIC] = log(30)
    again = reader(view, monkeypatch, subscription="s")
    end = again.initialOffset()
    assert view.subscriptions.there == {"s": "7:10"}
    again.commit(end)
    assert view.subscriptions.there == {"s": "7:30"}
    _ = reader(view, monkeypatch, subscription="s", startingOffsets="7:4").initialOffset()
    assert view.subscriptions.there == {"s": "7:4"}
