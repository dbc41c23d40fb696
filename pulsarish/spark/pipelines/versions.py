"""A table of the newest row of each key, kept as Parquet folders ``version=N``.

Each change writes the whole table to a new one.

A version counts once Spark has put ``_SUCCESS`` into it, so a reader sees a whole table or the
previous one. A batch that is merged again after a failure changes nothing: existing rows are not
newer than themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

__all__ = ["Versions"]

_KEPT: Final = 2
_PREFIX: Final = "version="


@dataclass(frozen=True)
class Versions:
    """``newest_by`` and ``delete_when`` are SQL expressions on the columns of a row."""

    spark: SparkSession
    path: str
    keys: Sequence[str]
    newest_by: Sequence[str]
    delete_when: str

    def current(self) -> DataFrame | None:
        """Return the table; None when nothing was ever merged."""
        number = self._newest()
        return None if number is None else self._read(self.spark, number)

    def merge(self, rows: DataFrame, _batch: int | None) -> None:
        """Merge rows: keep for each key the newest of the existing and the new rows."""
        number = self._newest()
        session = rows.sparkSession
        if number is not None:
            rows = self._read(session, number).unionByName(rows)
        table = self.newest(rows)
        following = 0 if number is None else number + 1
        table.write.mode("overwrite").parquet(f"{self.path}/{_PREFIX}{following:08d}")
        self._forget(following - _KEPT)

    def newest(self, rows: DataFrame) -> DataFrame:
        """Return the newest row of each key, unless it deletes the key."""
        columns = rows.columns
        newest = sf.max_by(
            sf.struct(*[sf.col(f"`{name}`") for name in columns]),
            sf.struct(*[sf.expr(text) for text in self.newest_by]),
        )
        merged = rows.groupBy(*[sf.col(f"`{name}`") for name in self.keys]).agg(
            newest.alias("(newest)")
        )
        table = merged.select(*[sf.col(f"`(newest)`.`{name}`").alias(name) for name in columns])
        if self.delete_when:
            table = table.where(~sf.coalesce(sf.expr(self.delete_when), sf.lit(False)))
        return table

    def _read(self, session: SparkSession, number: int) -> DataFrame:
        return session.read.parquet(f"{self.path}/{_PREFIX}{number:08d}")

    def _newest(self) -> int | None:
        """Return the highest complete version."""
        files, folder = _files(self.spark, self.path)
        if not files.exists(folder):
            return None
        names = [
            status.getPath().getName()
            for status in files.listStatus(folder)
            if status.isDirectory()
        ]
        numbers = sorted(
            (int(name.removeprefix(_PREFIX)) for name in names if name.startswith(_PREFIX)),
            reverse=True,
        )
        return next(
            (
                number
                for number in numbers
                if files.exists(self._path(f"{_PREFIX}{number:08d}/_SUCCESS"))
            ),
            None,
        )

    def _forget(self, last: int) -> None:
        """Remove versions up to ``last``, newest first.

        Stop at the first gap: older versions are already gone.
        """
        files, _ = _files(self.spark, self.path)
        for number in range(last, -1, -1):
            if not files.delete(self._path(f"{_PREFIX}{number:08d}"), True):
                return

    def _path(self, name: str) -> Any:
        return self.spark._jvm.org.apache.hadoop.fs.Path(f"{self.path}/{name}")

    @staticmethod
    def exists(spark: SparkSession, path: str) -> bool:
        """Whether a folder exists, on any file system that Spark supports."""
        files, folder = _files(spark, path)
        return bool(files.exists(folder))


def _files(spark: SparkSession, path: str) -> tuple[Any, Any]:
    folder = spark._jvm.org.apache.hadoop.fs.Path(path)
    return folder.getFileSystem(spark._jsc.hadoopConfiguration()), folder
