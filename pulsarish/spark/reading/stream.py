"""Read a stream.

On the driver one reader lives as long as the query and plans each of its batches; executors read
the splits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pulsarish.model.errors import PulsarishError
from pulsarish.spark.options import OptionError, ReadOptions
from pulsarish.spark.positions import LATEST, Place
from pulsarish.spark.reading.checkpoint_subscription import CheckpointSubscription
from pulsarish.spark.reading.log import ClusterView, TopicLog
from pulsarish.spark.reading.offsets import (
    Offset,
    TopicOffset,
    begin_of,
    capped,
    divided,
    end_of,
    splits_between,
    without_cuts,
)
from pulsarish.spark.reading.planning import (
    DataLoss,
    Piece,
    Split,
    nth_entry,
    pieces_of,
    split_bytes_for,
    total_bytes,
)
from pulsarish.spark.reading.read_bounds import starting_place, starts_by, warn_of
from pulsarish.spark.reading.sampling import Sample, looks_at_one, sample
from pulsarish.spark.reading.schemas import check_columns, value_schema
from pulsarish.spark.reading.task_inputs import options_of_tasks, task_inputs

__all__ = ["StreamReader"]

_CHECKPOINT: Final = "the query's checkpoint"
_TOPICS_SECONDS: Final = 5.0
"""Interval of the search for new topics and partitions."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``parallelism``: how many tasks the session runs at a time.

    It decides how a batch is divided when it is first planned.
    """

    def __init__(self, options: ReadOptions, schema: Any, *, parallelism: int) -> None:
        self._options = options
        self._schema = schema
        self._parallelism = parallelism
        self._view = ClusterView(options.brokers)
        self._follower = CheckpointSubscription(self._view, options.subscription)
        self._topics: list[str] = []
        self._topics_at = -_TOPICS_SECONDS
        self._logs: dict[str, TopicLog] = {}  # at the last refresh
        self._planned: Offset | None = None
        self._target: dict[str, Place] | None = None  # of Trigger.AvailableNow
        self._per_entry: dict[str, float] = {}  # messages, at the last sample
        self._owed: dict[str, float] = {}  # see ``capped``

    # -- offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint begins."""
        options = self._options
        topics: dict[str, TopicOffset] = {}
        for topic, log in self._look(fresh=True).items():
            place = starting_place(self._view, options, log, LATEST)
            _, lost = pieces_of(
                log, place, None, fail_on_loss=options.fail_on_data_loss, option=starts_by(options)
            )
            warn_of(lost)
            topics[topic] = TopicOffset(place, place, log.created_ms)
        self._follower.begin({topic: each.place for topic, each in topics.items()}, self._logs)
        return Offset(topics).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return that there is a limit.

        Spark can carry only one limit, so ``latestOffset`` reads all of them from the options.
        """
        options = self._options
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.max_messages_per_trigger is not None:
            return ReadMaxRows(options.max_messages_per_trigger)
        if options.max_ledgers_per_trigger is not None:
            return ReadMaxFiles(options.max_ledgers_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = {topic: log.last for topic, log in self._look(fresh=True).items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next batch; ``start`` itself when there is nothing to read."""
        begin = Offset.of_json(start)
        logs = self._look()
        self._check(begin, logs)
        topics = {topic: each for topic, each in begin.topics.items() if topic in logs}
        for topic, log in logs.items():
            if topic not in topics and (self._target is None or topic in self._target):
                # New since the last batch: all of it.
                topics[topic] = TopicOffset(log.before_first, log.before_first, log.created_ms)
                self._follower.begin({topic: log.before_first}, logs)
        available = {
            topic: pieces
            for topic, each in topics.items()
            if (pieces := self._available(logs[topic], each.place))
        }
        if available and not isinstance(limit, ReadAllAvailable):
            available = self._limited(available)
        split_bytes = split_bytes_for(
            sum(map(total_bytes, available.values())), self._options.split_bytes, self._parallelism
        )
        ends: dict[str, TopicOffset] = {}
        for topic, each in topics.items():
            pieces = available.get(topic, [])
            if not pieces:
                ends[topic] = without_cuts(each, end_of(logs[topic], each.place))
                continue
            cuts = divided(logs[topic], pieces, split_bytes)
            ends[topic] = TopicOffset(
                Place(pieces[-1].ledger_id, pieces[-1].last), each.begun, each.created_ms, cuts
            )
        end = Offset(ends)
        self._planned = end
        places = {topic: each.place for topic, each in begin.topics.items()}
        return (
            start
            if {topic: each.place for topic, each in ends.items()} == places
            else end.to_json()
        )

    def _available(self, log: TopicLog, place: Place) -> list[Piece]:
        end = self._target.get(log.topic) if self._target is not None else None
        if end is not None and end.key <= place.key:
            return []
        try:
            pieces, lost = pieces_of(
                log, place, end, fail_on_loss=self._options.fail_on_data_loss, option=_CHECKPOINT
            )
        except DataLoss as error:
            raise DataLoss(f"{error}; {self._follower.advice()}") from None
        warn_of(lost)
        return pieces

    def _limited(self, available: Mapping[str, list[Piece]]) -> dict[str, list[Piece]]:
        options = self._options
        entries_max: dict[str, float] = {}
        if options.max_messages_per_trigger is not None:
            most = options.max_messages_per_trigger
            samples = {
                topic: self._sampled(topic, pieces, most / len(available), len(available))
                for topic, pieces in available.items()
            }
            messages = {
                topic: samples[topic].per_entry * _entries(pieces)
                for topic, pieces in available.items()
            }
            share = min(1.0, most / sum(messages.values()))
            entries_max = {
                topic: each.entries_with(share * messages[topic]) for topic, each in samples.items()
            }
        return capped(
            available,
            bytes_max=options.max_bytes_per_trigger or float("inf"),
            entries_max=entries_max,
            ledgers_max=options.max_ledgers_per_trigger or float("inf"),
            owed=self._owed,
        )

    def _sampled(self, topic: str, pieces: list[Piece], messages_max: float, topics: int) -> Sample:
        """Sample the first entries of ``pieces`` of one of ``topics`` topics, as far as
        ``messages_max`` may reach.
        """
        found = sample(
            _entries(pieces),
            messages_max,
            looks_at_one(topics),
            self._per_entry.get(topic, 0.0),
            lambda number: self._view.messages_in(topic, *nth_entry(pieces, number)),
        )
        self._per_entry[topic] = found.per_entry
        return found

    def _messages_each(self, topic: str, pieces: list[Piece]) -> float:
        """Return the approximate messages in an entry, for a report, which waits for no broker."""
        known = self._per_entry.get(topic)
        if known is not None:
            return known
        try:
            return self._view.messages_in(topic, *nth_entry(pieces, 0), seconds=0.0)
        except PulsarishError:
            return 1.0

    # -- refresh

    def _look(self, *, fresh: bool = False) -> dict[str, TopicLog]:
        """Return the logs of all topics that exist."""
        now = time.monotonic()  # noqa: TID251 - the driver of a query is no node: it has no world
        if fresh or now - self._topics_at >= _TOPICS_SECONDS:
            self._topics, self._topics_at = self._view.topics(self._options), now
        self._logs = {
            topic: log for topic, log in self._view.logs(self._topics).items() if log is not None
        }
        return self._logs

    def _check(self, begin: Offset, logs: Mapping[str, TopicLog]) -> None:
        """Check that the checkpoint is of these topics, and that they were not created again
        since.
        """
        fails = self._options.fail_on_data_loss
        for topic, each in begin.topics.items():
            log = logs.get(topic)
            if log is not None and log.created_ms == each.created_ms:
                continue
            if log is None:
                self._check_selected(topic)
                text = (
                    f"topic {topic}, which {_CHECKPOINT} has at {each.place}, does not exist "
                    "any more"
                )
            else:
                text = (
                    f"topic {topic} was deleted and made again since {_CHECKPOINT} was written "
                    f"at {each.place}: its ledgers are others now,"
                    f" {', '.join(str(ledger.ledger_id) for ledger in log.ledgers)}"
                )
            if fails or log is not None:
                raise DataLoss(
                    f"{text}; begin with a new "
                    f"checkpoint{'' if log else ', or set option failOnDataLoss to false'}"
                )
            warn_of([text])

    def _check_selected(self, topic: str) -> None:
        options = self._options
        selected = {
            name.rpartition("-partition-")[0] or name for name in (*self._topics, *options.topics)
        } | {
            *self._topics,
            *options.topics,
        }
        base = topic.rpartition("-partition-")[0] or topic
        if options.pattern is None and base not in selected and topic not in selected:
            name = "topic" if len(options.topics) == 1 else "topics"
            raise OptionError(
                name,
                ", ".join(options.topics),
                f"{_CHECKPOINT} is of topic {topic}; use a checkpoint of its own for each query",
            )

    # -- batches

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the splits of one batch, from its offsets only."""
        begin, finish = Offset.of_json(start), Offset.of_json(end)
        moved = {
            topic: each
            for topic, each in finish.topics.items()
            if each.place != begin_of(begin, topic, each)
        }
        if not moved:
            return []
        values = value_schema(self._view, self._options, sorted(moved))
        check_columns(self._schema.fieldNames(), values)
        logs = self._view.logs(sorted(moved))
        splits: list[Split] = []
        for topic, each in sorted(moved.items()):
            log = logs[topic]
            if log is None or log.created_ms != each.created_ms:
                self._check(Offset({topic: each}), {} if log is None else {topic: log})
            if log is None:
                continue  # its rows are lost, which was reported
            from_place = begin_of(begin, topic, each)
            pieces, lost = pieces_of(
                log,
                from_place,
                each.place,
                fail_on_loss=self._options.fail_on_data_loss,
                option=_CHECKPOINT,
            )
            warn_of(lost)
            splits += splits_between(log, pieces, from_place, each)
        return task_inputs(self._options, splits, self._view.bookies(self._options), values)

    def __getstate__(self) -> dict[str, Any]:
        """Return what executors get of this object."""
        return self.__dict__ | {"_options": options_of_tasks(self._options)}

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Called in an executor for each split."""
        from pulsarish.spark.reading.task import ReadSpec, read_split

        split, addresses, tokens, values = partition.value
        options = self._options
        spec = ReadSpec(
            options.brokers,
            options.bookies,
            options.direct_reads,
            addresses,
            options.fail_on_data_loss,
            values=values,
            tokens=tokens,
            subscription_role_prefix=options.subscription_role_prefix,
        )
        return read_split(spec, split, self._schema)

    # -- Spark's notifications and queries

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has finished everything up to here: the subscription may release it."""
        self._follower.follow(
            {topic: each.place for topic, each in Offset.of_json(end).topics.items()}, self._logs
        )

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return what the topics held when the last batch was planned, and how much of it was left
        for later.

        Messages are an estimate.
        """
        if self._planned is None:
            return None
        topics: dict[str, Any] = {}
        for topic, each in self._planned.topics.items():
            log = self._logs.get(topic)
            if log is None:
                continue
            pieces, _ = pieces_of(log, each.place, None, fail_on_loss=False, option=_CHECKPOINT)
            entries = _entries(pieces)
            topics[topic] = {
                "place": list(log.last),
                "lag_bytes": total_bytes(pieces),
                "lag_entries": entries,
                "lag_messages": round(entries * self._messages_each(topic, pieces))
                if entries
                else 0,
            }
        lag = {
            name: sum(each[name] for each in topics.values())
            for name in ("lag_bytes", "lag_entries", "lag_messages")
        }
        return {**lag, "topics": topics}


def _entries(pieces: list[Piece]) -> int:
    return sum(piece.entries for piece in pieces)
