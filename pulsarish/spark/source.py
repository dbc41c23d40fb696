"""The data source that Spark calls: its columns, its readers and its writers.

Spark makes one of these in a fresh Python process for each query, so this module imports nothing
before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Final

from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource

from pulsarish.spark import columns

__all__ = ["PulsarishDataSource", "variables_of_streams"]

_SET_BY_STREAMS: Final = (
    "SPARK_LOCAL_DIRS",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_PYTHON_RUNTIME",
)
"""Variables that each stream of Spark 4 sets for its Python workers."""


@contextmanager
def variables_of_streams(spark: Any) -> Iterator[None]:
    """Have what is registered in the block know the variables that streams set.

    Streams set them in the one map of the registered source, a ``HashMap`` without a lock. Two that
    started at the same time added them side by side, which spoiled the map's size, and from then on
    each task failed with ``OptionalDataException``. Now they only replace values.
    """
    environment: dict[str, str] = {}
    with suppress(PySparkException):  # a session of Spark Connect does not expose it
        environment = spark.sparkContext.environment
    added = [name for name in _SET_BY_STREAMS if name not in environment]
    environment.update(dict.fromkeys(added, ""))
    try:
        yield
    finally:
        for name in added:
            del environment[name]


class PulsarishDataSource(DataSource):
    """``format("pulsarish")``. ``parallelism``: how many tasks the session runs at a time."""

    parallelism: ClassVar[int] = 2

    @classmethod
    def of_session(cls, spark: Any) -> type[PulsarishDataSource]:
        """Return the class with the session's ``parallelism``: the process that plans a read cannot
        query it.
        """
        try:
            parallelism = int(spark.sparkContext.defaultParallelism)
        except PySparkException:
            return cls  # a session of Spark Connect does not expose it
        # A class without a module is sent to other processes by its content.
        return type(cls.__name__, (cls,), {"parallelism": parallelism})

    @classmethod
    def name(cls) -> str:
        return "pulsarish"

    def schema(self) -> Any:
        """Return the columns of a read without ``.schema(...)``."""
        if self.options.get("valueSchema", "raw").strip().lower() != "topic":
            return columns.ddl()
        from pulsarish.spark.options import read_options
        from pulsarish.spark.reading.log import ClusterView
        from pulsarish.spark.reading.schemas import schema_ddl, topic_schema

        options = read_options(self.options, streaming=None)
        view = ClusterView(options.brokers)
        return schema_ddl(topic_schema(view, options, view.topics(options)))

    def reader(self, schema: Any) -> Any:
        from pulsarish.spark.options import read_options
        from pulsarish.spark.reading.batch import BatchReader

        return BatchReader(
            read_options(self.options, streaming=False), schema, parallelism=self.parallelism
        )

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from pulsarish.spark.writing.writers import BatchWriter

        return BatchWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        from pulsarish.spark.writing.writers import StreamWriter

        return StreamWriter(self.options, schema, overwrite=overwrite)

    def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
        from pulsarish.spark.options import read_options
        from pulsarish.spark.reading.stream import StreamReader

        return StreamReader(
            read_options(self.options, streaming=True), schema, parallelism=self.parallelism
        )
