"""``pulsarish job``: offline jobs over ledgers, run by Spark."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from pulsarish.cli.admin.common import confirm, yes_option
from pulsarish.cli.bookie_access import bookie_options
from pulsarish.cli.connections import admin_url_option, connection_profile, url_option
from pulsarish.cli.groups import Group
from pulsarish.cli.metadata_access import access_options, chosen_access
from pulsarish.cli.output import (
    counted,
    output_option,
    print_json,
    print_table,
    say,
)
from pulsarish.model.errors import AlreadyExists, InvalidArgument, NotFound
from pulsarish.model.units import UNLIMITED, format_instant, human_bytes, parse_duration, parse_size
from pulsarish.runtime.extras import install_command

if TYPE_CHECKING:
    from pulsarish.spark.access import BookieAccess, BrokerAccess
    from pulsarish.spark.jobs.cluster_access import JobCluster
    from pulsarish.spark.jobs.verify import Report

__all__ = ["job"]

F = TypeVar("F", bound=Callable[..., Any])

_ROWS_SHOWN: Final = 200
_METADATA_URL: Final = "zk://127.0.0.1:2181/pulsarish"


@click.group(cls=Group)
def job() -> None:
    """Run offline jobs over ledgers with Spark, on this machine or a Spark cluster.

    They need the extra pulsarish[spark] and Java 17. Export and import connect to brokers, the
    others to the metadata and the bookies.

    \b
    Examples:
      pulsarish job verify
      pulsarish job verify flights --save findings.parquet
      pulsarish job leaks --metadata-url zk://zoo:2181/pulsarish --master spark://host:7077
    """


def _spark_options(command: F) -> F:
    options = (
        click.option(
            "--master",
            default="local[*]",
            show_default=True,
            help="Spark's master, as for spark-submit.",
        ),
        click.option(
            "--conf",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="An option of Spark's configuration; repeatable.",
        ),
        output_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def _job_options(command: F) -> F:
    """Add the options of a job that reads metadata and bookies.

    Its function gets them as ``metadata_url`` and ``bookies``, a ``BookieAccess``.
    """

    life = click.option(
        "--bookie-token-life",
        "token_life_ms",
        default="12h",
        show_default=True,
        metavar="DURATION",
        callback=_token_life,
        help="How long tasks may read bookies with the token that --cluster-key-file makes for "
        "them, from 1m to 7d.",
    )
    metadata = click.option(
        "--metadata-url",
        envvar="PULSARISH_METADATA_URL",
        default=_METADATA_URL,
        show_default=True,
        help="The metadata_url of the servers.",
    )

    @functools.wraps(command)
    def run(**given: Any) -> None:
        from pulsarish.spark.access import BookieAccess

        files, life_ms = given.pop("bookies"), given.pop("token_life_ms")
        command(**given, bookies=BookieAccess(**dataclasses.asdict(files), token_life_ms=life_ms))

    return cast(F, metadata(access_options(bookie_options(life(_spark_options(run))))))


def _token_life(_context: click.Context, _parameter: click.Parameter, text: str) -> int:
    from pulsarish.spark.access import parse_token_life

    try:
        return parse_token_life(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _scope_options(command: F) -> F:
    namespace = click.option(
        "--namespace",
        default="",
        metavar="TENANT/NAMESPACE",
        help="Select all topics of a namespace.",
    )
    return click.argument("topics", nargs=-1)(namespace(command))


@contextmanager
def _session(name: str, master: str, settings: Sequence[str]) -> Iterator[Any]:
    if importlib.util.find_spec("pyspark") is None:
        raise NotFound(
            f"jobs run on Spark, which is not installed here: {install_command('spark')}"
        )
    from pulsarish.spark.jobs.session import spark_session

    with spark_session(f"job {name}", master, settings) as spark:
        yield spark


@contextmanager
def _spark(
    name: str, metadata_url: str, bookies: BookieAccess, master: str, settings: Sequence[str]
) -> Iterator[tuple[Any, JobCluster]]:
    """Yield a Spark session and its cluster, whose metadata and bookies this process can reach."""
    with _session(name, master, settings) as spark:
        from pulsarish.spark.jobs.cluster_access import JobCluster, check_url, leave, site

        check_url(metadata_url)
        where = JobCluster(metadata_url, bookies, chosen_access())
        try:
            _ = site(where)
            yield spark, where
        finally:
            leave(where)


def _check_new(path: str | None) -> None:
    if path is None:
        return
    if Path(path).exists():
        raise AlreadyExists(f"{path} exists already: use a new name")
    if importlib.util.find_spec("pyspark") is not None:
        from pulsarish.spark.jobs.session import format_of

        format_of(path)


@job.command()
@_scope_options
@click.option(
    "--save",
    "save_to",
    metavar="PATH",
    help="Also write the findings to this folder; its name must end with .parquet, .json or .csv.",
)
@click.option(
    "--acked",
    type=click.Path(exists=True, dir_okay=False),
    help="Also check the messages that this log of `produce --acked` names.",
)
@_job_options
def verify(
    topics: tuple[str, ...],
    namespace: str,
    acked: str | None,
    save_to: str | None,
    metadata_url: str,
    bookies: BookieAccess,
    master: str,
    settings: tuple[str, ...],
    output: str,
) -> None:
    """Read every copy of every entry from every bookie that should have it, check it, and compare
    the copies.

    Without TOPICS and --namespace it reads all ledgers of the cluster, those of cursors, schemas
    and compacted views, too. Of open ledgers it reads the confirmed entries. Exit status 1 when
    anything is wrong.

    \b
    Examples:
      pulsarish job verify
      pulsarish job verify flights planes --save findings.parquet
      pulsarish job verify --namespace public/default -o json
      pulsarish job verify load --acked acked.jsonl
    """
    _check_new(save_to)
    with _spark("verify", metadata_url, bookies, master, settings) as (spark, where):
        from pulsarish.spark.jobs.ledger_selection import LedgerSelection
        from pulsarish.spark.jobs.session import save
        from pulsarish.spark.jobs.verify import FINDING_SCHEMA, verify

        report = verify(spark, where, LedgerSelection(topics, namespace), acked=acked)
        if save_to is not None:
            save(spark, report.findings, FINDING_SCHEMA, save_to)
    rows = [finding._asdict() for finding in report.findings]
    if output == "json":
        print_json({**report.totals(), "findings": rows})
    else:
        if rows:
            columns = [
                "finding",
                "ledger",
                "first_entry",
                "last_entry",
                "bookie",
                "owner",
                "repair",
                "detail",
            ]
            print_table(rows[:_ROWS_SHOWN], columns, output)
        _say_more(len(rows), "--save or -o json has")
        say(_verified(report))
        if acked is not None:
            looked_for = counted(report.acked, "acknowledged message", "acknowledged messages")
            say(
                f"{looked_for} looked for, {report.acked_trimmed:,} of them in ledgers that were "
                "trimmed since"
            )
    if rows:
        raise SystemExit(1)


def _verified(report: Report) -> str:
    """Return what was read and how much of it is wrong."""
    read = ", ".join(
        (
            counted(report.ledgers, "ledger", "ledgers"),
            counted(report.entries, "entry", "entries"),
            counted(report.copies, "copy", "copies"),
            f"{human_bytes(report.read_bytes)} read",
        )
    )
    wrong = sum(finding.entries for finding in report.findings)
    return (
        f"{read}: {counted(wrong, 'is wrong', 'are wrong') if report.findings else 'nothing wrong'}"
    )


def _broker_defaults(command: F) -> F:
    """Add options for the brokers' configuration, which applies where no policy is set and which
    the metadata do not have.
    """
    minutes = click.option(
        "--default-retention",
        metavar="DURATION",
        help="default_retention_time_minutes of the brokers, like 3h or forever, unless it is 0.",
    )
    size = click.option(
        "--default-retention-size",
        metavar="SIZE",
        help="default_retention_size_mb of the brokers, like 500MB or unlimited, unless it is 0.",
    )
    return minutes(size(command))


def _retention(minutes: str | None, size: str | None) -> Any:
    """Return retention limits. If only one is given, the other is unlimited; if neither is, nothing
    is retained.
    """
    from pulsarish.managed_ledger.options import Retention

    try:
        kept_minutes = (
            None if minutes is None else parse_duration(minutes, unit_seconds=60, unlimited=True)
        )
        kept_mb = None if size is None else parse_size(size, unit_bytes=1 << 20, unlimited=True)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if kept_minutes is None:
        kept_minutes = UNLIMITED if kept_mb else 0
    if kept_mb is None:
        kept_mb = UNLIMITED if kept_minutes else 0
    found = Retention(kept_minutes, kept_mb)
    found.check()
    return found


def _milliseconds(_context: click.Context, _parameter: click.Parameter, text: str) -> int:
    try:
        return 1000 * parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@job.command()
@click.option(
    "--plan",
    "plan_to",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the orphans to this file, for --remove.",
)
@click.option(
    "--remove",
    "plan_from",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Remove the orphans of this plan.",
)
@click.option(
    "--restore",
    "restore_from",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Restore the ledgers of this backup.",
)
@click.option(
    "--backup",
    type=click.Path(path_type=Path),
    help="With --remove: a new folder for a backup of the removed ledgers.",
)
@click.option(
    "--min-age",
    default="1h",
    show_default=True,
    callback=_milliseconds,
    help="Ignore younger ledgers: their topic may not list them yet.",
)
@click.option(
    "--grace",
    default="1h",
    show_default=True,
    callback=_milliseconds,
    help="With --remove: minimum age of the plan.",
)
@_broker_defaults
@click.option(
    "--save",
    "save_to",
    metavar="PATH",
    help="Also write the findings to this folder; its name must end with .parquet or .json.",
)
@yes_option
@_job_options
def leaks(
    plan_to: Path | None,
    plan_from: Path | None,
    restore_from: Path | None,
    backup: Path | None,
    min_age: int,
    grace: int,
    default_retention: str | None,
    default_retention_size: str | None,
    save_to: str | None,
    yes: bool,
    metadata_url: str,
    bookies: BookieAccess,
    master: str,
    settings: tuple[str, ...],
    output: str,
) -> None:
    """Find ledgers that no topic needs, are missing, have too few or too many copies, or are older
    than policies allow.

    Orphans are removed in two phases. --plan writes them to a file. --remove checks them again
    after a grace period, then backs up and deletes those that are still orphans. It refuses when it
    cannot read everything. --restore restores a backup. Exit status 1 when anything was found, or
    kept.

    \b
    Examples:
      pulsarish job leaks --plan orphans.json
      pulsarish job leaks --min-age 6h --save leaks.parquet
    """
    if sum(each is not None for each in (plan_to, plan_from, restore_from)) > 1:
        raise click.UsageError("give one of --plan, --remove and --restore")
    if (plan_from is None) != (backup is None):
        raise click.UsageError("--remove PLAN and --backup FOLDER go together")
    _check_new(save_to)
    if plan_to is not None and plan_to.exists():
        raise AlreadyExists(f"{plan_to} exists already: use a new name")
    retention = _retention(default_retention, default_retention_size)
    if plan_from is not None:
        confirm(f"Remove the ledgers of {plan_from} that are still orphans?", yes=yes)
    with _spark("leaks", metadata_url, bookies, master, settings) as (spark, where):
        from pulsarish.spark.jobs import removal
        from pulsarish.spark.jobs.leaks import LEAK_SCHEMA, find_leaks
        from pulsarish.spark.jobs.session import save

        if restore_from is not None:
            _print_removal(removal.restore(spark, where, restore_from), "brought back", output)
            return
        if plan_from is not None and backup is not None:
            plan = removal.read_plan(plan_from)
            done = removal.remove(
                spark,
                where,
                plan,
                backup,
                retention=retention,
                min_age_ms=min_age,
                grace_ms=grace,
            )
            _print_removal(done, "removed", output)
            return
        found = find_leaks(spark, where, retention=retention, min_age_ms=min_age)
        if save_to is not None:
            save(spark, found.found, LEAK_SCHEMA, save_to)
        if plan_to is not None:
            plan = removal.make_plan(where, found)
            removal.write_plan(plan, plan_to)
            say(f"{len(plan.ledgers):,} orphans in {plan_to}")
    rows = [leak._asdict() for leak in found.found]
    if output == "json":
        gaps = [{"what": what, "why": why} for what, why in found.gaps]
        print_json(
            {
                "ledgers": found.ledgers,
                "gaps": gaps,
                "restored": found.restored,
                "settled": found.settled,
                "findings": rows,
            }
        )
    else:
        _print_leaks(rows)
    for what, why in found.gaps:
        say(f"could not be read: {what}: {why}")
    if rows or found.gaps:
        raise SystemExit(1)


def _print_leaks(rows: Sequence[dict[str, Any]]) -> None:
    shown = [
        {
            **row,
            "finding": row["kind"],
            "ledger": row["ledger_id"] if row["ledger_id"] >= 0 else None,
            "bytes": human_bytes(row["size_bytes"]) if row["size_bytes"] >= 0 else "not known",
            "created": format_instant(row["created_ms"]) if row["created_ms"] else None,
        }
        for row in rows[:_ROWS_SHOWN]
    ]
    if shown:
        print_table(
            shown, ["finding", "ledger", "owner", "bytes", "created", "bookies", "detail"], "table"
        )
    _say_more(len(rows), "--save or -o json has")
    kinds: dict[str, list[int]] = {}
    for row in rows:
        kinds.setdefault(row["kind"], []).append(max(row["size_bytes"], 0))
    for kind, sizes in kinds.items():
        say(f"{len(sizes):,} {kind}, {human_bytes(sum(sizes))}")
    if not rows:
        say("no leaks found")


def _print_removal(done: Any, verb: str, output: str) -> None:
    if output == "json":
        print_json(
            {
                verb.replace(" ", "_"): done.removed,
                "kept": done.kept,
                "entries": done.entries,
                "size_bytes": done.size_bytes,
            }
        )
    else:
        rows = [{"ledger": ledger, "outcome": verb, "why": ""} for ledger in done.removed]
        rows += [
            {"ledger": ledger, "outcome": "kept", "why": why} for ledger, why in done.kept.items()
        ]
        print_table(rows, ["ledger", "outcome", "why"], output)
        say(
            f"{len(done.removed):,} ledgers {verb}, {done.entries:,} entries, "
            f"{human_bytes(done.size_bytes)} on all bookies"
        )
    if done.kept:
        raise SystemExit(1)


@job.command()
@_scope_options
@click.option(
    "--sample",
    default=20,
    show_default=True,
    type=click.IntRange(0, 1000),
    help="Places to read entries from, in each shown topic.",
)
@click.option(
    "--top",
    default=50,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Number of topics to show, the largest first.",
)
@click.option(
    "--if-retention",
    metavar="DURATION",
    help="Show what this retention would free, instead of all policies.",
)
@click.option("--plot", type=click.Path(dir_okay=False), help="Also draw a plot (PNG).")
@_broker_defaults
@_job_options
def usage(
    topics: tuple[str, ...],
    namespace: str,
    sample: int,
    top: int,
    if_retention: str | None,
    plot: str | None,
    default_retention: str | None,
    default_retention_size: str | None,
    metadata_url: str,
    bookies: BookieAccess,
    master: str,
    settings: tuple[str, ...],
    output: str,
) -> None:
    """Show the usage of the bookies by tenant, namespace, topic and bookie: bytes, entries, rates,
    ages, freeable space.

    A sample of entries shows the most frequent keys and how well messages compress. Without TOPICS
    and --namespace: the whole cluster.

    \b
    Examples:
      pulsarish job usage --plot usage.png
      pulsarish job usage --namespace public/default --if-retention 3d -o json
    """
    retention = _retention(default_retention, default_retention_size)
    wanted = None if if_retention is None else _retention(if_retention, None)
    with _spark("usage", metadata_url, bookies, master, settings) as (spark, where):
        from pulsarish.spark.jobs.ledger_selection import LedgerSelection
        from pulsarish.spark.jobs.usage import draw, usage

        found = usage(
            spark,
            where,
            LedgerSelection(topics, namespace),
            retention=retention,
            wanted=wanted,
            samples=sample,
            topics_max=top,
        )
    if plot is not None:
        draw(found, plot)
        say(f"plot written to {plot}")
    if output == "json":
        print_json(found.record())
        return
    sizes = ["entries", "bytes", "stored", "freeable", "since", "per_second"]
    for rows, columns in (
        (found.tenants, ["tenant", "topics", "ledgers", *sizes]),
        (found.namespaces, ["namespace", "topics", "ledgers", *sizes]),
        (
            found.topics,
            [
                "topic",
                "ledgers",
                *sizes,
                "message_bytes",
                "per_entry",
                "compressed",
                "compressible",
                "top_keys",
            ],
        ),
        (found.bookies, ["bookie", "ledgers", "stored", "freeable"]),
    ):
        print_table([_usage_row(row) for row in rows], columns, output)
        click.echo()
    say(f"the fullest bookie holds {found.skew:.2f} times the average of all bookies")


def _usage_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with numbers as people read them."""
    shown = dict(row)
    for name, size in (
        ("bytes", "bytes"),
        ("stored", "stored_bytes"),
        ("freeable", "freeable_bytes"),
        ("message_bytes", "message_bytes"),
    ):
        if row.get(size) is not None:
            shown[name] = human_bytes(row[size])
    if row.get("oldest_ms"):
        shown["since"] = format_instant(row["oldest_ms"])
        shown["per_second"] = (
            f"{row['entries_per_second']:,.1f} ({human_bytes(row['bytes_per_second'])})"
        )
    for name, share in (("compressed", "compressed_to"), ("compressible", "compressible_to")):
        if row.get(share) is not None:
            shown[name] = f"{row[share]:.0%}"
    shown["per_entry"] = row.get("messages_per_entry")
    shown["top_keys"] = [f"{each['key']} {each['share']:.0%}" for each in row.get("top_keys", [])]
    return shown


def _url_options(command: F) -> F:
    return url_option(admin_url_option(command))


def _brokers(url: str, admin_url: str) -> BrokerAccess:
    """Return the access of the command that runs. Raises ``InvalidArgument`` for a secret."""
    from pulsarish.spark.access import BrokerAccess

    profile = connection_profile(url)
    profile.check()
    if connection_profile(admin_url) != profile:
        raise InvalidArgument(
            f"the profile in use is for only one of {url} and {admin_url}; give both addresses of "
            "one cluster"
        )
    return BrokerAccess.at(url, admin_url, profile)


@job.command("export")
@click.argument("topics", nargs=-1, required=True)
@click.option(
    "--to", "folder", type=click.Path(path_type=Path), required=True, help="The new folder."
)
@_url_options
@_spark_options
def export_(
    topics: tuple[str, ...],
    folder: Path,
    url: str,
    admin_url: str,
    master: str,
    settings: tuple[str, ...],
    output: str,
) -> None:
    """Write TOPICS to a folder as Parquet, with ids, keys, properties, times, sequence ids and
    producers of the messages.

    \b
    Example:
      pulsarish job export flights planes --to flights-export
    """
    with _session("export", master, settings) as spark:
        from pulsarish.spark.jobs.transfer import export

        made = export(spark, _brokers(url, admin_url), topics, folder)
    rows = [
        {"topic": each.topic, "partitions": each.partitions, "messages": each.messages}
        for each in made.topics
    ]
    print_table(rows, ["topic", "partitions", "messages"], output)


@job.command("import")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--namespace",
    default="",
    metavar="TENANT/NAMESPACE",
    help="Namespace for all topics, instead of their own.",
)
@click.option(
    "--enable-deduplication",
    is_flag=True,
    help="Enable deduplication for the topics where it is off.",
)
@click.option(
    "--keep-origin",
    is_flag=True,
    help="Add old ids, publish times, producers and sequence ids as properties.",
)
@_url_options
@_spark_options
def import_(
    folder: Path,
    namespace: str,
    enable_deduplication: bool,
    keep_origin: bool,
    url: str,
    admin_url: str,
    master: str,
    settings: tuple[str, ...],
    output: str,
) -> None:
    """Publish the messages of an export, each partition in order. Published messages are skipped:
    run it again after an interruption.

    \b
    Example:
      pulsarish job import flights-export --namespace public/copies --enable-deduplication
    """
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}")
    with _session("import", master, settings) as spark:
        from pulsarish.spark.jobs.transfer import import_

        done = import_(
            spark,
            _brokers(url, admin_url),
            folder,
            namespace=namespace,
            enable_deduplication=enable_deduplication,
            keep_origin=keep_origin,
        )
    rows = [
        {"topic": topic, "published": count, "passed_over": done.passed_over[topic]}
        for topic, count in done.published.items()
    ]
    print_table(rows, ["topic", "published", "passed_over"], output)


def _say_more(count: int, where: str) -> None:
    if count > _ROWS_SHOWN:
        say(f"and {count - _ROWS_SHOWN:,} more rows: {where} all")
