"""``pulsarish job``: offline jobs over ledgers, run by Spark."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from pulsarish.cli.groups import Group
from pulsarish.cli.output import human_bytes, output_option, print_json, print_table, say
from pulsarish.model.errors import AlreadyExists, NotFound

__all__ = ["job"]

F = TypeVar("F", bound=Callable[..., Any])

_ROWS_SHOWN: Final = 200
_METADATA_URL: Final = "zk://127.0.0.1:2181/pulsarish"


@click.group(cls=Group)
def job() -> None:
    """Offline jobs over ledgers, run by Spark: from this machine alone to a Spark cluster.

    They need the extra pulsarish[spark] and Java 17, and reach the metadata and the bookies, no broker.

    \b
    Examples:
      pulsarish job verify
      pulsarish job verify flights --save findings.parquet
      pulsarish job verify --metadata-url zk://zoo:2181/pulsarish --master spark://host:7077
    """


def _job_options(command: F) -> F:
    options = (
        click.option(
            "--metadata-url",
            envvar="PULSARISH_METADATA_URL",
            default=_METADATA_URL,
            show_default=True,
            help="As the servers have it.",
        ),
        click.option("--master", default="local[*]", show_default=True, help="Where Spark runs, as spark-submit takes it."),
        click.option("--conf", "settings", multiple=True, metavar="KEY=VALUE", help="Spark's configuration; may be given many times."),
        output_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def _scope_options(command: F) -> F:
    namespace = click.option("--namespace", default="", metavar="TENANT/NAMESPACE", help="All topics of a namespace.")
    return click.argument("topics", nargs=-1)(namespace(command))


@contextmanager
def _spark(name: str, metadata_url: str, master: str, settings: Sequence[str]) -> Iterator[Any]:
    if importlib.util.find_spec("pyspark") is None:
        raise NotFound("jobs run on Spark, which is not installed here: pip install 'pulsarish[spark]'")
    from pulsarish.spark.jobs.session import spark_session
    from pulsarish.spark.jobs.site import check_url, leave, site

    check_url(metadata_url)
    with spark_session(name, master, settings) as spark:
        try:
            _ = site(metadata_url)
            yield spark
        finally:
            leave(metadata_url)


def _check_new(path: str | None) -> None:
    if path is None:
        return
    if Path(path).exists():
        raise AlreadyExists(f"{path} exists already: give a new name")
    if importlib.util.find_spec("pyspark") is not None:
        from pulsarish.spark.jobs.session import format_of

        format_of(path)


@job.command()
@_scope_options
@click.option(
    "--save", "save_to", metavar="PATH", help="Also write the findings to this folder: its name ends with .parquet, .json or .csv."
)
@_job_options
def verify(
    topics: tuple[str, ...],
    namespace: str,
    save_to: str | None,
    metadata_url: str,
    master: str,
    settings: tuple[str, ...],
    output: str,
) -> None:
    """Read every copy of every entry from every bookie that should have it, check it, and compare the copies.

    Without TOPICS and --namespace: all ledgers of the cluster, those of cursors, schemas and compacted views too. Of open ledgers what is
    confirmed. Exit status 1 when anything is wrong.

    \b
    Examples:
      pulsarish job verify
      pulsarish job verify flights planes --save findings.parquet
      pulsarish job verify --namespace public/default -o json
    """
    _check_new(save_to)
    with _spark("verify", metadata_url, master, settings) as spark:
        from pulsarish.spark.jobs.scope import Scope
        from pulsarish.spark.jobs.session import save
        from pulsarish.spark.jobs.verify import FINDING_SCHEMA, verify

        report = verify(spark, metadata_url, Scope(topics, namespace))
        if save_to is not None:
            save(spark, report.findings, FINDING_SCHEMA, save_to)
    rows = [finding._asdict() for finding in report.findings]
    if output == "json":
        print_json({**report.totals(), "findings": rows})
    else:
        if rows:
            columns = ["finding", "ledger", "first_entry", "last_entry", "bookie", "owner", "repair", "detail"]
            print_table(rows[:_ROWS_SHOWN], columns, output)
        _say_more(len(rows), "--save or -o json has")
        say(
            f"{report.ledgers:,} ledgers, {report.entries:,} entries, {report.copies:,} copies, {human_bytes(report.read_bytes)} read: "
            + (f"{sum(finding.entries for finding in report.findings):,} copies are not as they should be" if rows else "nothing wrong")
        )
    if rows:
        raise SystemExit(1)


def _say_more(count: int, where: str) -> None:
    if count > _ROWS_SHOWN:
        say(f"and {count - _ROWS_SHOWN:,} rows more: {where} all")
