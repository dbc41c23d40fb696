"""The Spark session of a pipeline, and the options by which the connector finds the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from pulsarish.spark import register
from pulsarish.spark.jobs.session import spark_session
from pulsarish.spark.pipelines.parts import Pipeline

__all__ = ["cluster_options", "session_of"]


@contextmanager
def session_of(pipeline: Pipeline, master: str | None) -> Iterator[SparkSession]:
    """Provide a session as the file describes it, which ends with the block."""
    settings = [f"{name}={value}" for name, value in pipeline.spark.conf.items()]
    with spark_session(pipeline.name, master or pipeline.spark.master, settings) as spark:
        register(spark)
        yield spark


def cluster_options(pipeline: Pipeline, service_url: str, admin_url: str) -> dict[str, str]:
    """Return the connector's options.

    ``service_url`` and ``admin_url`` apply when the file names none.
    """
    return {
        "service.url": pipeline.cluster.service_url or service_url,
        "admin.url": pipeline.cluster.admin_url or admin_url,
    }
