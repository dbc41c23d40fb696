"""``pulsarish chaos``: the published chaos test of Apache Pulsar, and harsher ones, against real
processes.
"""

from __future__ import annotations

import math
import signal
import tempfile
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pulsarish.cli.groups import Group
from pulsarish.cli.output import fail, output_option, print_json, print_table, say
from pulsarish.cli.values import FiniteRange
from pulsarish.model.units import parse_duration

if TYPE_CHECKING:
    from pulsarish.chaos.run import Outcome
    from pulsarish.chaos.scenario import Scenario
    from pulsarish.chaos.stage import Options

__all__ = ["chaos"]

_ROLES: Final = ("metadata", "zookeeper", "bookie", "broker")


_WINDOW_MAX: Final = 10_000
"""Unacknowledged messages, unless chosen. In a short run a larger window would be sent whole before
the fault comes.
"""


@click.group(cls=Group)
def chaos() -> None:
    """Break real processes while numbered messages are published: acknowledged messages must be
    there, in order.

    \b
    Examples:
      pulsarish chaos list
      pulsarish chaos run kill-broker kill-bookie --messages 100000
    """


@chaos.command("list")
@output_option
def list_scenarios(output: str) -> None:
    """List the scenarios. Those with a number are from the published test of Apache Pulsar, with
    its quorums.

    \b
    Example:
      pulsarish chaos list
    """
    from pulsarish.chaos.scenarios import SCENARIOS

    rows = [
        {
            "number": scenario.number,
            "name": scenario.name,
            "quorums": str(scenario.quorums),
            "brokers": scenario.brokers,
            "bookies": scenario.bookies,
            "what": scenario.summary,
        }
        for scenario in SCENARIOS.values()
    ]
    print_table(rows, ["number", "name", "quorums", "brokers", "bookies", "what"], output)


def _setting(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    found = []
    for value in values:
        role, dot, setting = value.partition(".")
        if not dot or role not in _ROLES or "=" not in setting:
            raise click.BadParameter(
                f"{value!r} is not ROLE.KEY=VALUE with a role of {', '.join(_ROLES)}"
            )
        found.append((role, setting))
    return tuple(found)


def _duration(_context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Return the seconds in an option: a number, or a text such as ``3h``."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    if not math.isfinite(seconds) or seconds < 1:
        raise click.BadParameter(f"{value} is not a time of a second or more")
    return seconds


def _groups(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[tuple[str, ...], ...]:
    if value is None:
        return ()
    groups = tuple(tuple(name.strip() for name in group.split(",")) for group in value.split("|"))
    if len(groups) < 2 or not all(name for group in groups for name in group):
        raise click.BadParameter(
            f"{value!r} must be two or more groups of names, like broker-1,zk|bookie-2"
        )
    return groups


@chaos.command()
@click.argument("scenarios", nargs=-1, required=True, metavar="SCENARIO...|all")
@click.option(
    "-n",
    "--messages",
    default=100_000,
    show_default=True,
    type=click.IntRange(1),
    help="Messages to send; more are sent until the fault is over.",
)
@click.option(
    "--runs",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="Runs of each scenario, each on a new cluster.",
)
@click.option(
    "--quorums", metavar="E-QW-QA", help="Quorums, like 3-3-2; default: the published ones."
)
@click.option(
    "--brokers", type=click.IntRange(2, 20), help="Number of brokers; default: the scenario's."
)
@click.option(
    "--bookies", type=click.IntRange(1, 20), help="Number of bookies; default: the scenario's."
)
@click.option(
    "--fault-at",
    type=click.IntRange(1),
    help="Acknowledgements before the fault; default: a quarter of the messages.",
)
@click.option(
    "--dedup/--no-dedup",
    default=None,
    help="Deduplication; default: the scenario's. `all` runs those that allow it.",
)
@click.option(
    "--window",
    type=click.IntRange(1),
    help="Maximum of unacknowledged messages; default: a tenth, at most 10,000.",
)
@click.option(
    "--rate",
    type=FiniteRange(min=0, min_open=True),
    help="Messages per second; default: as fast as possible, for soak 1,000.",
)
@click.option(
    "--partitions",
    default=0,
    show_default=True,
    type=click.IntRange(0, 100),
    help="Partitions of the topic; messages then have keys.",
)
@click.option(
    "--send-timeout",
    default=30.0,
    show_default=True,
    type=FiniteRange(min=0),
    help="Seconds until a send fails; 0: never.",
)
@click.option(
    "--metadata",
    type=click.Choice(["embedded", "zookeeper"]),
    default="embedded",
    show_default=True,
    help=(
        "The daemon, or the real ZooKeeper, which needs Java 17; zookeeper-ensemble always "
        "has three servers."
    ),
)
@click.option(
    "--isolate",
    metavar="A,B|C",
    callback=_groups,
    help="Groups for the isolate scenarios: nodes, zk, client, owner, member.",
)
@click.option(
    "--duration",
    default="1h",
    show_default=True,
    callback=_duration,
    help="How long slow-producer and soak take, as 90s, 10m or 3h; a number is seconds.",
)
@click.option(
    "--fault-every",
    default="60s",
    show_default=True,
    callback=_duration,
    help="Time between two faults of soak.",
)
@click.option(
    "--topics",
    default=4,
    show_default=True,
    type=click.IntRange(1, 100),
    help="Topics of soak.",
)
@click.option(
    "--message-size",
    default=1_000,
    show_default=True,
    type=click.IntRange(20, 1 << 20),
    help="Bytes of a message of soak.",
)
@click.option(
    "--cuts", default=5, show_default=True, type=click.IntRange(1), help="Power cuts in one run."
)
@click.option(
    "--seed",
    default=1,
    show_default=True,
    type=click.IntRange(0),
    help="Decides what power cuts destroy and the faults of soak; each run adds its number.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="Tokens, grants and a cluster key, as `cluster up --secure` has, without its TLS.",
)
@click.option(
    "--url",
    help=(
        "gRPC address of an existing cluster, with --admin-url; only for scenarios that need "
        "no access to its hosts."
    ),
)
@click.option("--admin-url", help="HTTP address of that cluster's brokers.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    callback=_setting,
    metavar="ROLE.KEY=VALUE",
    help="An option of all nodes of a role.",
)
@click.option(
    "--results",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for JSON, plots, misplaced messages; earlier runs stay.",
)
@output_option
def run(
    scenarios: tuple[str, ...], runs: int, directory: Path | None, output: str, **given: Any
) -> None:
    """Run scenarios by name or number. Exit status 1 when a message is lost, out of order or
    wrongly doubled, or a run is void.

    \b
    Examples:
      pulsarish chaos run all --messages 50000 --results results
      pulsarish chaos run 1 4 --quorums 3-3-2 --runs 5
      pulsarish chaos run kill-broker --dedup --partitions 4 --metadata zookeeper
      pulsarish chaos run isolate --isolate 'broker-1,zk|bookie-2'
      pulsarish chaos run soak --duration 3h --rate 1000 --results results
      pulsarish chaos run all --url pulsarish://10.0.0.5:6660 --admin-url http://10.0.0.5:8080
    """
    from pulsarish.chaos.report import COLUMNS, last_run, table_row, write_files
    from pulsarish.runtime.log import configure_logs

    configure_logs(level="error")  # broken connections are the purpose of the test
    # leave no process behind, however the command ends
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # as under nohup
            signal.signal(ending, signal.default_int_handler)
    if bool(given["url"]) != bool(given["admin_url"]):
        raise click.UsageError("--url and --admin-url belong together")
    if given["url"] and (ours := [option for option, value in _of_our_clusters(given) if value]):
        raise click.UsageError(f"{' and '.join(ours)} cannot be chosen for the cluster at --url")
    found = [
        each
        for name in scenarios
        for each in _find(name, in_hand=not given["url"], dedup=given["dedup"])
    ]
    chosen = list(dict.fromkeys(found))  # --runs repeats: each run has files of its own
    outcomes: list[Outcome] = []
    # check all of them before the first one runs
    judged = [(scenario, _options(scenario, given)) for scenario in chosen]
    if directory is not None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise click.BadParameter(
                f"{directory} cannot be created: {error.strerror}", param_hint="--results"
            ) from None
    for scenario, options in judged:
        before = 0 if directory is None else last_run(directory, scenario.name)
        for number in range(1, runs + 1):
            outcome = _run(
                scenario,
                replace(options, seed=options.seed + number - 1),
                before + number,
                directory,
            )
            outcomes.append(outcome)
            _tell(outcome)
            if directory is not None:
                write_files(outcome, directory)
    if output == "json":
        print_json([outcome.row() for outcome in outcomes])
    else:
        print_table([table_row(outcome) for outcome in outcomes], COLUMNS, output)
    bad = [outcome for outcome in outcomes if outcome.verdict != "ok"]
    if bad:
        fail(
            f"{len(bad)} of {len(outcomes)} runs are not ok: "
            f"{', '.join(sorted({outcome.scenario for outcome in bad}))}"
        )


def _of_our_clusters(given: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the options that say how a cluster is made, as the user set them."""
    chosen = [(f"--{name}", given[name]) for name in ("quorums", "brokers", "bookies")]
    return [
        *chosen,
        ("--metadata", given["metadata"] != "embedded"),
        ("--secure", given["secure"]),
        ("--set", given["settings"]),
    ]


def _find(name: str, *, in_hand: bool, dedup: bool | None) -> list[Scenario]:
    """Return the scenarios of a name, for "all" those that are possible.

    ``in_hand``: this command starts the cluster, so that everything can be done to it.
    """
    from pulsarish.chaos.scenarios import SCENARIOS

    if name == "all":
        able = [
            each
            for each in SCENARIOS.values()
            if not each.by_name_only and (in_hand or not each.needs_hosts)
        ]
        return [each for each in able if dedup is None or each.dedup in (None, dedup)]
    found = [each for each in SCENARIOS.values() if name in (each.name, str(each.number))]
    if not found:
        near = get_close_matches(name.lower(), SCENARIOS, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "see: pulsarish chaos list"
        raise click.UsageError(f"there is no scenario {name!r}; {hint}")
    if found[0].needs_hosts and not in_hand:
        possible = ", ".join(each.name for each in SCENARIOS.values() if not each.needs_hosts)
        raise click.UsageError(
            f"{found[0].name} needs the hosts of the cluster; against --url there are {possible}"
        )
    return found


def _options(scenario: Scenario, given: dict[str, Any]) -> Options:
    from pulsarish.chaos.stage import Options, Quorums

    try:
        quorums = Quorums.parse(given["quorums"]) if given["quorums"] else scenario.quorums
    except ValueError:
        raise click.BadParameter(
            f"{given['quorums']!r} is not E-QW-QA with E >= QW >= QA >= 1, like 3-3-2",
            param_hint="--quorums",
        ) from None
    bookies = given["bookies"] or max(scenario.bookies, quorums.ensemble)
    if bookies < quorums.ensemble:
        raise click.BadParameter(
            f"{bookies} bookies are fewer than the ensemble {quorums.ensemble}",
            param_hint="--bookies",
        )
    if scenario.dedup is not None and given["dedup"] not in (None, scenario.dedup):
        is_on, given_as = ("on", "--no-dedup") if scenario.dedup else ("off", "--dedup")
        raise click.UsageError(f"{scenario.name} has deduplication {is_on}: leave {given_as} out")
    messages = given["messages"]
    return Options(
        quorums=quorums,
        brokers=given["brokers"] or scenario.brokers,
        bookies=bookies,
        metadata=scenario.metadata or given["metadata"],
        metadata_servers=scenario.metadata_servers,
        dedup=bool(scenario.dedup if scenario.dedup is not None else given["dedup"]),
        messages=messages,
        fault_at=min(given["fault_at"] or max(1, messages // 4), messages),
        window=given["window"] or min(_WINDOW_MAX, max(1, messages // 10)),
        rate=given["rate"] or scenario.rate,
        partitions=given["partitions"],
        send_timeout_ms=int(given["send_timeout"] * 1_000),
        url=given["url"] or "",
        admin_url=given["admin_url"] or "",
        isolate=given["isolate"],
        duration_seconds=given["duration"],
        topics=given["topics"] if scenario.is_soak else 1,
        message_bytes=given["message_size"] if scenario.is_soak else 0,
        fault_every_seconds=given["fault_every"] if scenario.is_soak else 0.0,
        cuts=given["cuts"],
        seed=given["seed"],
        secure=given["secure"],
        settings=(*scenario.settings, *given["settings"]),
    )


def _run(scenario: Scenario, options: Options, number: int, results: Path | None) -> Outcome:
    from pulsarish.chaos.run import run_scenario

    where = options.url or f"quorums {options.quorums}"
    say(f"{scenario.name}, run {number}: {scenario.summary} ({options.messages} messages, {where})")
    with tempfile.TemporaryDirectory(prefix="pulsarish-chaos-") as directory:
        return run_scenario(
            scenario,
            options,
            number,
            Path(directory),
            results / f"{scenario.name}-{number}-logs" if results else None,
            say,
        )


def _tell(outcome: Outcome) -> None:
    for mark in outcome.marks:
        say(f"  {mark.seconds:6.1f} s, message {mark.sent}: {mark.what}: {mark.text}")
    for note in outcome.notes:
        say(f"  note: {note}")
    for why, count in outcome.failures.items():
        say(f"  {count} sends failed: {why}")
    for reason in outcome.reasons:
        say(f"  {outcome.verdict}: {reason}")
    say(f"  {outcome.verdict} after {outcome.seconds:.0f} s")
