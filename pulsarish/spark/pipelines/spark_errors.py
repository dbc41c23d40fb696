"""Errors of Spark that name the part of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pulsarish.spark.error_text import sentence
from pulsarish.spark.pipelines.declaration import Part
from pulsarish.spark.pipelines.nodes import InvalidPipeline
from pulsarish.spark.pipelines.parts import Pipeline
from pulsarish.spark.pipelines.steps import SqlStep

__all__ = ["blamed"]


@contextmanager
def blamed(pipeline: Pipeline, part: Part) -> Iterator[None]:
    """Turn an error of Spark inside the block into an ``InvalidPipeline`` that names the part and
    its line.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        line = part.line("sql") if isinstance(part, SqlStep) else part.at
        raise InvalidPipeline(f"{pipeline.file}:{line}: {part.place}: {sentence(error)}") from error
