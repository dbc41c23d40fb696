"""``pulsarish sim``: whole clusters in virtual time, with faults drawn from the seed, checked
against every promise to clients.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from itertools import takewhile
from multiprocessing import get_context
from textwrap import shorten
from types import FrameType
from typing import Final, NamedTuple, TextIO

import click

from pulsarish.cli.groups import Group
from pulsarish.cli.output import fail
from pulsarish.cli.values import FiniteRange
from pulsarish.runtime.clock import SystemClock
from pulsarish.runtime.log import configure_logs
from pulsarish.sim.cluster.stage import Counts
from pulsarish.sim.models.explore import STATES_MAX, TooManyStates, explore
from pulsarish.sim.models.ledger import Quorums
from pulsarish.sim.models.ledger import Rules as LedgerRules
from pulsarish.sim.models.ledger_steps import Bounds, new_ledger
from pulsarish.sim.models.ledger_steps import broken as ledger_broken
from pulsarish.sim.models.ledger_steps import steps as ledger_steps
from pulsarish.sim.models.ownership import Rules as OwnershipRules
from pulsarish.sim.models.ownership import broken as chain_broken
from pulsarish.sim.models.ownership import new_chain
from pulsarish.sim.models.ownership import steps as ownership_steps
from pulsarish.sim.mutants.catalogue import MUTANTS
from pulsarish.sim.workloads.minimise import RUNS_MAX, Trial, minimise, try_seed
from pulsarish.sim.workloads.safeguard import Mutant, run_mutant
from pulsarish.sim.world.faults import Fault
from pulsarish.sim.world.logs import logs_into

__all__ = ["sim"]

_SEEDS_DEFAULT: Final = "0-99"
_SAID_CHARS_MAX: Final = 200
# Processor time, so that a busy machine does not matter: a seed takes a few seconds. A stuck seed
# loops in one callback.
_SEED_SECONDS_MAX: Final = 300


class _Stuck(Exception):
    """A seed does not end."""


def _seeds(_context: click.Context, _option: click.Parameter, value: str) -> tuple[int, int]:
    first, dash, last = value.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise click.BadParameter(f"{value!r} is not a seed or a range of seeds such as 0-99")
    chosen = int(first), int(last) if dash else int(first)
    if chosen[0] > chosen[1]:
        raise click.BadParameter(f"{value!r} ends before it begins")
    return chosen


@click.group(cls=Group)
def sim() -> None:
    """Run whole clusters in simulation. One seed decides everything, so a failure can be repeated.

    \b
    Example:  pulsarish sim run --seeds 0-99
              pulsarish sim replay 17
    """
    # Warnings of simulated nodes belong to the report of a failed seed, not between the lines of
    # progress.
    configure_logs(level="error")


@sim.command()
@click.option(
    "--seeds",
    callback=_seeds,
    default=_SEEDS_DEFAULT,
    show_default=True,
    metavar="A-B",
    help="Seeds to run, both ends included.",
)
@click.option(
    "--seconds", type=FiniteRange(min=0.1), help="Start no further seed after this much real time."
)
@click.option(
    "--jobs",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1_000),
    help="Processes that run seeds side by side.",
)
def run(seeds: tuple[int, int], seconds: float | None, jobs: int) -> None:
    """Run seeds; exit status 1 when one of them breaks a promise.

    \b
    Example:
      pulsarish sim run --seeds 0-99 --jobs 2
    """
    clock = SystemClock()
    began = clock.monotonic()
    total, failed, done = Counts(), 0, 0
    first, last = seeds
    wanted = takewhile(
        lambda _seed: seconds is None or clock.monotonic() - began < seconds, range(first, last + 1)
    )
    _progress(f"seed {first}")
    try:
        for outcome in _outcomes(wanted, jobs):
            done += 1
            if outcome.counts is not None:
                total.add(outcome.counts)
            if outcome.failed:
                failed += 1
                _progress("")
                click.echo(outcome.story)
                click.echo(f"run it again:  pulsarish sim replay {outcome.seed} --minimise\n")
            _progress(f"after seed {outcome.seed}: {done} done, {failed} failed")
    except BrokenProcessPool:
        left = f"{first + done}-{last}"
        fail(
            "a process that ran seeds has died, perhaps out of memory; continue with: pulsarish "
            f"sim run --seeds {left} --jobs 1"
        )
    _progress("")
    spent = clock.monotonic() - began
    click.echo(f"{done} seeds, {failed} failed, {spent:.0f} s")
    click.echo(
        "reached: " + ", ".join(f"{name} {getattr(total, name)}" for name in Counts.__slots__)
    )
    if failed:
        fail(f"{failed} of {done} seeds failed")


@sim.command()
@click.argument("seed", type=click.IntRange(min=0))
@click.option(
    "--trace", type=click.File("w"), help="Write the trace to this file; -: standard output."
)
@click.option(
    "--minimise",
    "smallest",
    is_flag=True,
    help="If the seed fails: drop the faults without which it still fails.",
)
@click.option(
    "--runs",
    default=RUNS_MAX,
    show_default=True,
    type=click.IntRange(min=1),
    help="Maximum number of runs for --minimise.",
)
def replay(seed: int, trace: TextIO | None, smallest: bool, runs: int) -> None:
    """Run one seed and print what happened.

    \b
    Example:
      pulsarish sim replay 7 --minimise
    """
    trial = _run(seed)
    if trial.kinds and smallest:
        trial = _minimised(seed, trial, runs)
    result = trial.result
    if result is not None:
        if trace is not None:
            click.echo(result.trace, file=trace)
        click.echo(f"seed {seed}: trace hash {result.trace_hash}")
        click.echo(
            "reached: "
            + ", ".join(f"{name} {getattr(result.counts, name)}" for name in Counts.__slots__)
        )
    if trial.kinds:
        click.echo(trial.story)
        fail(f"seed {seed} failed")
    click.echo("no anomaly")


def _minimised(seed: int, failed: Trial, runs: int) -> Trial:
    done = 0

    def again(faults: Sequence[Fault]) -> Trial:
        nonlocal done
        done += 1
        _progress(
            f"seed {seed} with {len(faults)} of {len(failed.faults)} faults, run {done} of {runs} "
            "at most"
        )
        return _run(seed, faults)

    trial = minimise(failed, again, runs)
    _progress("")
    click.echo(f"{len(trial.faults)} of {len(failed.faults)} faults remain after {done} runs")
    return trial


def _mutants(
    _context: click.Context, _argument: click.Parameter, value: tuple[str, ...]
) -> list[Mutant]:
    unknown = [name for name in value if name not in MUTANTS]
    if unknown:
        near = get_close_matches(unknown[0], MUTANTS, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(MUTANTS)}"
        raise click.BadParameter(f"there is no mutant {unknown[0]!r}; {hint}")
    return [MUTANTS[name] for name in dict.fromkeys(value or MUTANTS)]


@sim.command()
@click.argument("names", nargs=-1, callback=_mutants, metavar="[NAME]...")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    help="Seeds that a mutant may survive; default: the mutant's own number.",
)
def mutants(names: list[Mutant], seeds: int | None) -> None:
    """Remove safeguards, one at a time. The simulation must notice each; exit status 1 if it does
    not. Without names: all of them.

    \b
    Example:
      pulsarish sim mutants
      pulsarish sim mutants fence_not_journaled mark_by_maximum
    """
    survivors = []
    for mutant in names:
        _progress(f"mutant {mutant.name}")
        with _watched(), logs_into(_nowhere, logging.ERROR):
            verdict = run_mutant(mutant, None if seeds is None else range(seeds))
        _progress("")
        rules = (
            f"rule{'s' if len(mutant.rules) > 1 else ''} {' and '.join(map(str, mutant.rules))}: "
            if mutant.rules
            else ""
        )
        if verdict.killed_at is None:
            survivors.append(mutant.name)
            click.echo(f"SURVIVED  {mutant.name}\n          {rules}{mutant.removes}")
        else:
            said = (
                shorten(str(verdict.error).partition("\n")[0], _SAID_CHARS_MAX)
                or type(verdict.error).__name__
            )
            click.echo(
                f"killed    {mutant.name} at seed {verdict.killed_at}\n          "
                f"{rules}{mutant.removes}\n          noticed: {said}"
            )
    if survivors:
        fail(f"{len(survivors)} of {len(names)} mutants survived: {', '.join(survivors)}")
    click.echo(f"{len(names)} mutants killed")


@sim.command()
@click.option(
    "--bookies",
    default=3,
    show_default=True,
    type=click.IntRange(2, 5),
    help="Number of bookies; the first ones are the ensemble.",
)
@click.option(
    "--quorums",
    default=(3, 3, 2),
    show_default=True,
    type=(int, int, int),
    help="Ensemble, write and acknowledgement quorum.",
)
@click.option(
    "--entries",
    default=2,
    show_default=True,
    type=click.IntRange(1, 4),
    help="Entries that the writer adds.",
)
@click.option("--recoverers", default=2, show_default=True, type=click.IntRange(0, 2))
@click.option(
    "--changes",
    default=0,
    show_default=True,
    type=click.IntRange(0, 2),
    help="Ensemble changes of the writer.",
)
@click.option(
    "--losses",
    default=0,
    show_default=True,
    type=click.IntRange(0, 1),
    help="Bookies that return without their data.",
)
@click.option(
    "--states",
    "states_max",
    default=STATES_MAX,
    show_default=True,
    type=click.IntRange(min=1),
    help="Maximum number of states.",
)
def model(
    bookies: int,
    quorums: tuple[int, int, int],
    entries: int,
    recoverers: int,
    changes: int,
    losses: int,
    states_max: int,
) -> None:
    """Check every state of small models of the ledger protocol and of ownership. Exit status 1 when
    an invariant breaks.

    \b
    Example:
      pulsarish sim model --bookies 4 --recoverers 1 --changes 1
      pulsarish sim model --quorums 3 2 2 --losses 1
    """
    ensemble_size, write_quorum, ack_quorum = quorums
    if not bookies >= ensemble_size >= write_quorum >= ack_quorum >= 1:
        raise click.BadParameter(
            f"{bookies} bookies and quorums {ensemble_size}, {write_quorum}, {ack_quorum} do not "
            "fit: each must be at least the next one"
        )
    if losses >= ack_quorum:
        raise click.BadParameter(
            f"with an acknowledgement quorum of {ack_quorum} the loss of {losses} bookies always "
            "loses entries"
        )
    bounds = Bounds(entries, changes=changes, losses=losses)
    ledger = new_ledger(
        bookies=bookies, recoverers=recoverers, bounds=bounds, quorums=Quorums(*quorums)
    )
    chain = new_chain(brokers=2, takeovers=4, ledgers=5, appends=4)
    try:
        for name, look in (
            (
                "ownership",
                partial(
                    explore,
                    chain,
                    partial(ownership_steps, rules=OwnershipRules()),
                    chain_broken,
                    states_max=states_max,
                ),
            ),
            (
                "ledger",
                partial(
                    explore,
                    ledger,
                    partial(ledger_steps, rules=LedgerRules(), bounds=bounds),
                    ledger_broken,
                    states_max=states_max,
                ),
            ),
        ):
            _progress(f"model of {name}, a minute or more")
            found = look()
            _progress("")
            if found.broken:
                fail(f"{name}: {found.broken} is broken after: " + "; ".join(found.way))
            click.echo(f"{name}: {found.states} states, {found.ends} ends, no invariant broken")
    except TooManyStates as error:
        _progress("")
        fail(f"{error}: nothing is proved; allow more with --states, or make the model smaller")


def _run(seed: int, faults: Sequence[Fault] | None = None) -> Trial:
    with _watched():
        return try_seed(seed, faults)


class _Outcome(NamedTuple):
    """The result of a seed without its trace, which may be large."""

    seed: int
    counts: Counts | None  # the goals that it reached, unless the run itself raised
    failed: bool
    story: str


def _outcome(seed: int) -> _Outcome:
    trial = _run(seed)
    return _Outcome(
        seed,
        trial.result.counts if trial.result is not None else None,
        bool(trial.kinds),
        trial.story if trial.kinds else "",
    )


def _outcomes(seeds: Iterable[int], jobs: int) -> Iterator[_Outcome]:
    """Yield outcomes in the order of the seeds. The next seed starts when a process is free.

    An interruption waits for the seeds that run.
    """
    if jobs == 1:
        yield from map(_outcome, seeds)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin_worker) as pool:
        begun: deque[Future[_Outcome]] = deque()
        for seed in seeds:
            begun.append(pool.submit(_outcome, seed))
            while len(running := [each for each in begun if not each.done()]) >= jobs:
                wait(running, return_when=FIRST_COMPLETED)
            while begun and begun[0].done():
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a running seed is run to its end
    configure_logs(level="error")


def _nowhere(_line: str) -> None:
    """Drop a line: what nodes without their safeguards log does not matter."""


@contextmanager
def _watched() -> Iterator[None]:
    def stuck(_number: int, _frame: FrameType | None) -> None:
        raise _Stuck(f"not done after {_SEED_SECONDS_MAX} s of processor time")

    was = signal.signal(signal.SIGVTALRM, stuck)
    signal.setitimer(signal.ITIMER_VIRTUAL, _SEED_SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, was)


def _progress(text: str) -> None:
    """Write a line of progress over the last one; an empty text clears it."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)
