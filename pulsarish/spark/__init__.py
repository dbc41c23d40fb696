"""Topics in Apache Spark: a data source for batch and streaming, pipelines described in a file, and
jobs over ledgers.

    import pulsarish.spark

    pulsarish.spark.register(spark)
    spark.read.format("pulsarish").option("topic", "greetings").load().show()

Needs the extra ``pulsarish[spark]`` and Java 17. Only the commands that need this package import
it.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["FORMAT", "register"]

FORMAT: Final = "pulsarish"
"""The name of the data source in ``spark.read.format`` and its like."""


def register(spark: Any) -> None:
    """Register the format ``pulsarish`` with a session and configure the session for it.

    Spark pushes filters down to Python data sources only when the session enables it.
    """
    from pulsarish.spark.source import PulsarishDataSource, variables_of_streams

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    with variables_of_streams(spark):
        spark.dataSource.register(PulsarishDataSource.of_session(spark))
