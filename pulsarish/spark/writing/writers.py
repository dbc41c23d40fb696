"""The writers that Spark calls: on the driver to plan and end a write; in executors to write a
task's rows.

The driver checks everything that can be checked before the first row, so that a mistake writes
nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from pulsarish.admin import Admin
from pulsarish.model.errors import IncompatibleSchema, InvalidArgument, NotFound
from pulsarish.model.schema import Schema, SchemaType
from pulsarish.runtime.clock import SystemClock
from pulsarish.spark.options import OptionError
from pulsarish.spark.retry import retry_while_retryable
from pulsarish.spark.writing.job import Job, Written
from pulsarish.spark.writing.options import (
    Deduplication,
    RowOrder,
    ValueFormat,
    WriteOptions,
    write_options,
)
from pulsarish.spark.writing.plan import Plan, plan_columns
from pulsarish.spark.writing.targets import Target, find_target, follow_growth

__all__ = ["BatchWriter", "StreamWriter", "make_job"]

_NAME_BYTES = 8


def make_job(given: Mapping[str, str], schema: Any, *, streaming: bool, overwrite: bool) -> Job:
    """Check everything and return the job for the tasks.

    Raises ``InvalidArgument`` and the errors of the admin API.
    """
    if overwrite:
        raise InvalidArgument(
            (
                "outputMode 'complete' would replace what is in the topic, which is a log: use "
                "'append' or 'update'"
            )
            if streaming
            else (
                "mode 'overwrite' would replace what is in the topic, which is a log: use "
                "mode 'append'"
            )
        )
    options = write_options(given, streaming=streaming)
    plan = plan_columns(schema)
    if options.topic is None and plan.topic < 0:
        raise OptionError(
            "topic", None, "there is no such option and no column 'topic'; give one of the two"
        )
    admin = options.brokers.admin()
    needs_deduplication = options.deduplication in (Deduplication.REQUIRE, Deduplication.ENABLE)
    seconds = options.send_timeout_ms / 1_000
    target = retry_while_retryable(
        lambda: _target(admin, options, needs_deduplication=needs_deduplication), seconds
    )
    is_named = streaming or options.exactly_once_name is not None
    return Job(
        brokers=options.brokers,
        plan=plan,
        schema=retry_while_retryable(lambda: _schema(admin, options, plan), seconds),
        target=target,
        # A batch without a name gets its own, so that retried tasks do not write twice.
        name=options.exactly_once_name
        or ("spark" if streaming else f"spark-{os.urandom(_NAME_BYTES).hex()}"),
        version=options.exactly_once_version if is_named else 0,
        planned_ms=SystemClock().wall_ms(),
        needs_deduplication=needs_deduplication,
        enables_deduplication=options.deduplication is Deduplication.ENABLE,
        is_repeatable=is_named and needs_deduplication,
        is_sorted=options.row_order is RowOrder.CONTENT,
        compression=options.compression,
        send_timeout_ms=options.send_timeout_ms,
    )


def _target(admin: Admin, options: WriteOptions, *, needs_deduplication: bool) -> Target | None:
    if options.topic is None:
        if options.create_topic is not None:
            raise OptionError(
                "createTopic",
                options.create_topic,
                "it needs option 'topic': topics of a column must be there",
            )
        return None
    return find_target(
        admin,
        options.topic,
        create=options.create_topic,
        needs_deduplication=needs_deduplication,
        enables_deduplication=options.deduplication is Deduplication.ENABLE,
    )


def _schema(admin: Admin, options: WriteOptions, plan: Plan) -> Schema | None:
    """Return the schema that encodes records. Raises ``OptionError``, ``IncompatibleSchema``."""
    wanted = options.value_schema
    if plan.record is None:
        if wanted not in (None, ValueFormat.RAW):
            raise OptionError(
                "valueSchema",
                wanted.value,
                "column 'value' is bytes or text and goes as it is; leave the option out",
            )
        return None
    if wanted is ValueFormat.RAW:
        raise OptionError(
            "valueSchema",
            "raw",
            "the columns are a record: allowed are json, avro and topic, or give a column 'value'",
        )
    # Imported here, since a write of bytes does not need it.
    from pulsarish.spark.writing.records import check_fields, schema_of

    if wanted is ValueFormat.TOPIC:
        found = _of_topic(admin, options)
        check_fields(plan.record, found, str(options.topic))
        return found
    schema = schema_of(
        plan.record, SchemaType.AVRO if wanted is ValueFormat.AVRO else SchemaType.JSON
    )
    if options.topic is not None:
        answer = admin.schemas.compatibility(options.topic, schema.type.name, schema.data.decode())
        if not answer.is_compatible:
            raise IncompatibleSchema(
                f"topic {options.topic} does not take the columns' schema by its strategy "
                f"{answer.strategy}: {answer.reason};"
                " 'valueSchema' = 'topic' writes by the one that it has"
            )
    return schema


def _of_topic(admin: Admin, options: WriteOptions) -> Schema:
    if options.topic is None:
        raise OptionError(
            "valueSchema",
            "topic",
            "it needs option 'topic': with a column 'topic' give json or avro",
        )
    try:
        found = admin.schemas.get(options.topic)
    except NotFound:
        raise OptionError(
            "valueSchema", "topic", f"topic {options.topic} has no schema; give json or avro"
        ) from None
    if found["type"] not in (SchemaType.JSON.name, SchemaType.AVRO.name):
        raise OptionError(
            "valueSchema",
            "topic",
            f"topic {options.topic} has a schema of type {found['type']}: make 'value' binary or "
            "string",
        )
    definition = found["data"] if isinstance(found["data"], str) else json.dumps(found["data"])
    return Schema(SchemaType[found["type"]], definition.encode(), found["type"])


def _written(messages: Sequence[Any]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]


class BatchWriter(DataSourceArrowWriter):
    """``df.write.format("pulsarish")``."""

    def __init__(self, options: Mapping[str, str], schema: Any, *, overwrite: bool) -> None:
        self._job = make_job(options, schema, streaming=False, overwrite=overwrite)

    def write(self, iterator: Iterator[Any]) -> Written:
        from pulsarish.spark.writing.task import publish_rows

        return publish_rows(self._job, iterator)

    def commit(self, messages: list[Any]) -> None:
        _follow(self._job, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream.format("pulsarish")``."""

    def __init__(self, options: Mapping[str, str], schema: Any, *, overwrite: bool) -> None:
        self._job = make_job(options, schema, streaming=True, overwrite=overwrite)

    def write(self, iterator: Iterator[Any]) -> Written:
        from pulsarish.spark.writing.task import publish_rows

        return publish_rows(self._job, iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        _follow(self._job, messages)


def _follow(job: Job, messages: Sequence[Any]) -> None:
    """From the next version on, write to all partitions of topics that have grown."""
    grown: dict[str, tuple[Target, Written]] = {}
    for written in _written(messages):
        for topic, target in written.targets.items():
            grown[topic] = (target, written)
    admin = job.brokers.admin()
    for target, written in grown.values():
        retry_while_retryable(
            partial(follow_growth, admin, target, written.name, written.version),
            job.send_timeout_ms / 1_000,
        )
