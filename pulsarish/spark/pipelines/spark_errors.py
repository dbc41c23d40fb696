"""Errors of Spark in a sentence, without plans and stacks of two languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pulsarish.spark.pipelines.declaration import Part
from pulsarish.spark.pipelines.nodes import InvalidPipeline
from pulsarish.spark.pipelines.parts import Pipeline
from pulsarish.spark.pipelines.steps import SqlStep

__all__ = ["blamed", "sentence"]

_LINES_MAX: Final = 6
_BEHIND_WORDS: Final = ("JVM stacktrace", "=== Streaming Query", "== SQL", "'", "+-", "\tat ")
# The last line of a traceback: our own errors have the field's names, others follow Python's
# convention.
_PYTHON: Final = re.compile(r"(?:pulsarish\.[\w.]+|(?!org\.|java\.|scala\.|py4j\.|pyspark\.)[A-Za-z_][\w.]*(?:Error|Exception)): .+")
_CAUSE: Final = re.compile(r"Caused by: [\w.$]+: (.+)")


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


def sentence(error: Exception) -> str:
    """Return the innermost Python error, or the innermost cause in the JVM, or Spark's own text."""
    lines = str(error).splitlines()
    for line in reversed(lines):
        if _PYTHON.fullmatch(line.strip()):
            return line.strip()
    causes = [found[1] for line in lines if (found := _CAUSE.match(line.strip()))]
    if causes:
        return causes[-1]
    words: list[str] = []
    for line in lines:
        if line.startswith(_BEHIND_WORDS) or len(words) == _LINES_MAX:
            break
        if line.strip():
            words.append(line.strip())
    return " ".join(words).removesuffix(";") or type(error).__name__
