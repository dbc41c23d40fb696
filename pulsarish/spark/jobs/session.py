"""The Spark session of a job, and findings as Spark rows."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pulsarish.model.errors import InvalidArgument, NotFound, PulsarishError

__all__ = ["format_of", "save", "spark_session"]

_FORMATS: Final = {".parquet": "parquet", ".json": "json", ".csv": "csv"}


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME", "")
    if not (shutil.which("java") or (home and Path(home, "bin", "java").exists())):
        raise NotFound(
            "Spark needs Java 17 or newer, and there is none: install a Java runtime or set "
            "JAVA_HOME"
        )


@contextmanager
def spark_session(name: str, master: str, settings: Sequence[str] = ()) -> Iterator[Any]:
    """Provide a session that ends with the block.

    Args:
        settings: ``KEY=VALUE`` of Spark's configuration; they override those set here.

    Raises ``InvalidArgument`` for a setting of another form, ``NotFound`` without Java, and a
    failed task's error as ``PulsarishError``, shortened to a sentence.
    """
    _check_java()
    _ = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(f"pulsarish {name}")
    own = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    if master.startswith("local"):
        own |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # otherwise Spark warns about the one that it finds
        _ = os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for each in settings:
        key, separator, value = each.partition("=")
        if not separator or not key.startswith("spark."):
            raise InvalidArgument(f"--conf {each!r} must look like spark.executor.memory=4g")
        own[key] = value
    for key, value in own.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    except (PySparkException, Py4JError) as error:
        # Imported here, because a pipeline imports its session from this module.
        from pulsarish.spark.error_text import sentence

        raise PulsarishError(sentence(error)) from error
    finally:
        session.stop()


def save(spark: Any, rows: Sequence[tuple[Any, ...]], schema: str, path: str) -> None:
    """Write rows to ``path``, in the format of its ending. An existing folder is not replaced.

    Raises ``InvalidArgument`` for another ending.
    """
    spark.createDataFrame(list(rows), schema).coalesce(1).write.format(format_of(path)).save(path)


def format_of(path: str) -> str:
    """Return the format of a path.

    Raises ``InvalidArgument`` for an ending that names no format.
    """
    found = _FORMATS.get(Path(path).suffix)
    if found is None:
        raise InvalidArgument(
            f"{path!r}: the name of what is written ends with {', '.join(_FORMATS)}, which says "
            "its format"
        )
    return found
