"""``pulsarish pipeline``: pipelines on Spark, described in a file."""

from __future__ import annotations

import importlib.util
import signal
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from pulsarish.cli.connections import ADMIN_URL, SERVICE_URL, connection_profile, url_of_profile
from pulsarish.cli.groups import Group
from pulsarish.cli.output import fail, say
from pulsarish.cli.values import properties
from pulsarish.runtime.extras import install_command
from pulsarish.runtime.stop_flag import StopFlag

if TYPE_CHECKING:
    from pulsarish.spark.pipelines.parts import Pipeline

__all__ = ["pipeline"]


_file = click.argument("file", type=click.Path(dir_okay=False))
_set = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    callback=properties,
    help="The value of a parameter; repeatable.",
)


@click.group(cls=Group)
def pipeline() -> None:
    """Run Spark pipelines that a file describes.

    \b
    Examples:
      pulsarish pipeline check delays.yaml
      pulsarish pipeline run delays.yaml --set out=/tmp/delays
    """


@pipeline.command()
@_file
@_set
def check(file: str, settings: dict[str, str]) -> None:
    """Check FILE without starting Spark, and print every mistake with its line. Exit status 1 when
    there is one.

    \b
    Examples:
      pulsarish pipeline check delays.yaml
      pulsarish pipeline check replay.yaml --set month=2
    """
    found = _read(file, settings)
    count = f"{len(found.sources)} sources, {len(found.steps)} steps, {len(found.sinks)} sinks"
    click.echo(f"{file}: pipeline {found.name} is valid: {count}")


@pipeline.command()
def keys() -> None:
    """Print all keys of a pipeline file with their meaning, as Markdown.

    \b
    Example:
      pulsarish pipeline keys
    """
    _need_yaml()
    from pulsarish.spark.pipelines.reference import reference

    click.echo(reference(), nl=False)


@pipeline.command()
@_file
@_set
@click.option(
    "--explain", is_flag=True, help="Print Spark's plan for each sink; read and write nothing."
)
@click.option(
    "--sample",
    "sample_rows",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Print N rows of each source and step; write nothing.",
)
@click.option(
    "--master", help="Spark's master, instead of the file's: local[2], spark://host:7077."
)
@click.option(
    "--url",
    envvar="PULSARISH_URL",
    default=SERVICE_URL,
    show_default=True,
    callback=url_of_profile,
    help="gRPC address of brokers, if FILE names none.",
)
@click.option(
    "--admin-url",
    envvar="PULSARISH_ADMIN_URL",
    default=ADMIN_URL,
    show_default=True,
    callback=url_of_profile,
    help="HTTP address of brokers, if FILE names none.",
)
def run(
    file: str,
    settings: dict[str, str],
    explain: bool,
    sample_rows: int | None,
    master: str | None,
    url: str,
    admin_url: str,
) -> None:
    """Run the pipeline of FILE on Spark, after the same checks as `check`.

    \b
    Examples:
      pulsarish pipeline run delays.yaml --sample 5
      pulsarish pipeline run delays.yaml --explain
      pulsarish pipeline run replay.yaml --set month=2 --master 'local[4]'
    """
    if explain and sample_rows is not None:
        raise click.UsageError("give either --explain or --sample")
    found = _read(file, settings)
    _need_spark()
    from pulsarish.spark.pipelines.running import Runner
    from pulsarish.spark.pipelines.session import cluster_options, session_of

    # These do not concern anything that pipelines use.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    stop = StopFlag()
    options = cluster_options(found, url, admin_url, connection_profile)
    with session_of(found, master) as spark:
        # A first signal ends the run in order: the work in progress is finished or left for the
        # next run. A second one ends it at once.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _stopping(stop))
        runner = Runner(spark, found, options, click.echo, stop)
        if explain:
            runner.explain()
        elif sample_rows is not None:
            runner.sample(sample_rows)
        else:
            runner.run()
            if stop.is_set() and found.run.mode == "once":
                raise SystemExit(130)


def _stopping(stop: StopFlag) -> Callable[[int, object], None]:
    def arrived(_number: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    return arrived


def _read(file: str, settings: dict[str, str]) -> Pipeline:
    """Return the checked pipeline. Its mistakes go to stderr, one per line, and end the command."""
    _need_yaml()
    from pulsarish.spark.pipelines.nodes import InvalidPipeline
    from pulsarish.spark.pipelines.reading import read_pipeline

    try:
        found, hints = read_pipeline(file, settings)
    except InvalidPipeline as error:
        for line in str(error).splitlines():
            say(line)
        count = len(error.mistakes) or 1
        fail(f"{count} {'mistake' if count == 1 else 'mistakes'} in {file}")
        raise AssertionError("fail ends the command") from error
    for each in hints:
        say(f"{file}:{each.line}: {each.text} (a warning)")
    return found


def _need_yaml() -> None:
    if importlib.util.find_spec("yaml") is None:
        fail(f"pipelines need PyYAML: {install_command('spark')}")


def _need_spark() -> None:
    missing = [
        name
        for name in ("pyspark", "pyarrow", "pandas", "matplotlib")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        fail(f"pipelines need {' and '.join(missing)}: {install_command('spark')}")
