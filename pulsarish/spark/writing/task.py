"""A task in an executor's Python worker: number the rows in their order, batch them by topic and
partition, and publish them.

It succeeds only when every row is stored. It skips rows that an earlier attempt has stored. No wait
is longer than ``sendTimeoutMs`` and the client's operation timeout.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from pyspark import TaskContext

from pulsarish.client.api.batch_publisher import BatchPublisher
from pulsarish.client.api.blocking_client import Client
from pulsarish.client.enums import CompressionType
from pulsarish.client.schemas.schema import BytesSchema
from pulsarish.model.errors import InvalidArgument, PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.spark.access import BrokerAccess
from pulsarish.spark.retry import retry_while_retryable
from pulsarish.spark.writing.batches import Filling
from pulsarish.spark.writing.job import Job, Written
from pulsarish.spark.writing.numbering import Attempt, attempt_epoch, check_mark, sequence_id
from pulsarish.spark.writing.records import RecordSchema, encoder
from pulsarish.spark.writing.routing import Routing
from pulsarish.spark.writing.rows import Row, in_content_order, rows_of
from pulsarish.spark.writing.targets import Target, find_target, pinned

__all__ = ["Task", "publish_rows"]

_COMPRESSIONS: Final = {kind.name.lower(): kind for kind in CompressionType}
_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"

_clients: dict[BrokerAccess, Client] = {}
"""Clients of clusters and roles; kept from task to task, as Spark keeps the worker."""


def publish_rows(job: Job, batches: Iterator[Any]) -> Written:
    """Write a task's rows. Raises the brokers' errors, with the Spark partition added."""
    context = TaskContext.get()
    attempt = _attempt(job, context)
    task = Task(job, attempt)
    try:
        task.take(batches)
        return task.finish()
    except PulsarishError as error:
        error.add_note(
            f"in Spark partition {attempt.spark_partition} (attempt {context.attemptNumber()}) "
            f"of write {attempt.name!r}, version"
            f" {attempt.version}"
        )
        raise
    finally:
        task.leave()


def _attempt(job: Job, context: Any) -> Attempt:
    name, version = job.name, job.version
    if version is None:
        batch, query = context.getLocalProperty(_BATCH_ID), context.getLocalProperty(_QUERY_ID)
        if batch is None or not query:
            raise InvalidArgument(
                "which run of the write this is, is not known: set option 'exactlyOnceVersion', a "
                "number that grows from run to run"
            )
        # Each checkpoint counts from 0: without its id, deduplication would take a new one's rows
        # for the old one's.
        name, version = f"{name}-{query}", int(batch)
    return Attempt(
        name, version, context.partitionId(), attempt_epoch(job.planned_ms, context.taskAttemptId())
    )


def _client(brokers: BrokerAccess) -> Client:
    client = _clients.get(brokers)
    if client is None:
        client = _clients[brokers] = Client(brokers.service_url, **brokers.client_arguments())
    return client


class _Log:
    """The rows for one topic without partitions, or for one partition."""

    __slots__ = ("filling", "mark", "publisher")

    def __init__(self, publisher: BatchPublisher) -> None:
        self.publisher = publisher
        self.mark = publisher.last_sequence_id
        self.filling = Filling()

    def send(self) -> None:
        if (made := self.filling.take()) is not None:
            self.publisher.add(*made)


class _Sink:
    """A topic: its routing, and its open logs by partition."""

    __slots__ = ("logs", "routing", "target")

    def __init__(self, target: Target, routing: Routing) -> None:
        self.target = target
        self.routing = routing
        self.logs: dict[int, _Log] = {}


class Task:
    """One attempt: call ``take`` with rows, ``finish`` once, and ``leave`` in any case."""

    def __init__(self, job: Job, attempt: Attempt) -> None:
        self._job = job
        self._attempt = attempt
        self._encode = encoder(job.plan.record, job.schema) if job.schema is not None else None
        self._sinks: dict[str, _Sink] = {}
        self._only = self._sink(job.target.topic, job.target) if job.target is not None else None
        self._written = Written(name=attempt.name, version=attempt.version)
        self._row = 0

    def take(self, batches: Iterator[Any]) -> None:
        if self._job.is_sorted:
            rows: list[Row] = []
            for batch in batches:
                rows += rows_of(batch, self._job.plan, self._encode)
            self._add(iter(in_content_order(rows)))
            return
        for batch in batches:
            self._add(rows_of(batch, self._job.plan, self._encode))

    def _add(self, rows: Iterator[Row]) -> None:
        only, first_number = self._only, sequence_id(self._attempt.version, 0)
        row, repeated, size_bytes = self._row, 0, 0
        for payload, extras, key, topic, wanted in rows:
            sink = only or self._sinks.get(topic or "") or self._named_sink(topic, row)
            partition = sink.routing.choose(key, row, wanted)
            log = sink.logs.get(partition)
            if log is None:
                log = sink.logs[partition] = self._open(sink, partition)
            number = first_number + row
            row += 1
            if number <= log.mark:
                repeated += 1
                continue
            size_bytes += len(payload)
            if (made := log.filling.add(payload, extras, number)) is not None:
                log.publisher.add(*made)
        self._written.messages += row - self._row - repeated
        self._written.repeated += repeated
        self._written.size_bytes += size_bytes
        self._row = row
        sequence_id(self._attempt.version, row)

    def _named_sink(self, topic: str | None, row: int) -> _Sink:
        if not topic:
            raise InvalidArgument(
                f"column 'topic' is null or empty in row {row}, and there is no option 'topic'"
            )
        name = TopicName.parse(topic).full
        sink = self._sinks.get(name)
        if sink is None:
            # Without requiring deduplication: its logs report whether they drop duplicates when
            # they open.
            enables = self._job.enables_deduplication
            admin = self._job.brokers.admin()
            find = partial(
                find_target, admin, name, needs_deduplication=False, enables_deduplication=enables
            )
            target = retry_while_retryable(find, self._job.send_timeout_ms / 1_000)
            sink = self._sink(name, target)
        self._sinks[topic] = sink
        return sink

    def _sink(self, topic: str, target: Target) -> _Sink:
        if self._job.is_repeatable and target.partitions:
            target = retry_while_retryable(
                partial(pinned, self._job.brokers.admin(), target, self._attempt.name),
                self._job.send_timeout_ms / 1_000,
            )
        routing = Routing(
            topic, target.routed(self._attempt.version), self._attempt.spark_partition
        )
        sink = self._sinks[topic] = _Sink(target, routing)
        return sink

    def _open(self, sink: _Sink, partition: int) -> _Log:
        job, attempt = self._job, self._attempt
        name = TopicName.parse(sink.target.topic)
        topic = name.full if partition < 0 else name.with_partition(partition).full
        try:
            publisher = BatchPublisher.open(
                _client(job.brokers),
                topic,
                attempt.producer_name,
                epoch=attempt.epoch,
                schema=RecordSchema(job.schema) if job.schema is not None else BytesSchema(),
                compression_type=_COMPRESSIONS[job.compression],
                send_timeout_millis=job.send_timeout_ms,
                # The bytes that wait are limited by BatchPublisher, which counts them.
                max_pending_messages=1 << 30,
            )
        except PulsarishError as error:
            error.add_note(f"while {topic} was opened at {job.brokers.service_url}")
            raise
        log = _Log(publisher)
        if job.needs_deduplication and not publisher.deduplication:
            publisher.abandon()
            raise InvalidArgument(
                f"topic {topic} does not drop duplicates: switch it on (option 'deduplication' "
                "= 'enable'), or accept that a repeated task"
                " writes twice ('deduplication' = 'none')"
            )
        try:
            check_mark(log.mark, attempt, topic)
        except InvalidArgument:
            publisher.abandon()
            raise
        return log

    def finish(self) -> Written:
        """Wait until everything is stored."""
        logs = self._logs()
        for log in logs:
            log.send()
        for log in logs:
            log.publisher.finish()
        self._written.targets = {sink.target.topic: sink.target for sink in self._sinks.values()}
        return self._written

    def leave(self) -> None:
        for log in self._logs():
            log.publisher.abandon()

    def _logs(self) -> list[_Log]:
        return [
            log
            for sink in {id(sink): sink for sink in self._sinks.values()}.values()
            for log in sink.logs.values()
        ]
