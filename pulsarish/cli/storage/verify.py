"""``pulsarish storage verify``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

import click

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.inspection.verify import Verification
from pulsarish.cli.output import counted, output_option, print_json, print_line, say
from pulsarish.cli.progress import Progress
from pulsarish.cli.storage.access import bookie_config, has_several_volumes, inspecting
from pulsarish.cli.storage.tree import tree_of
from pulsarish.metadata.record_store import Records
from pulsarish.model.units import human_bytes, parse_size
from pulsarish.runtime.clock import SystemClock
from pulsarish.runtime.rate_limiter import RateLimiter

__all__ = ["verify"]


def _rate(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option("--metadata", is_flag=True, help="Compare with the metadata, too.")
@click.option(
    "--rate",
    metavar="SIZE",
    callback=_rate,
    help="Read at most this much a second, such as 32MB; default: no limit.",
)
@bookie_config
@output_option
def verify(config: BookieConfig, metadata: bool, rate: int | None, output: str) -> None:
    """Verify all that is on the disks of a bookie. Exit status 1 when something is wrong.

    Every checksum of the journal and the entry logs is computed, every entry of the index is read,
    and confirmed entries of the logs are looked up in the index. With --metadata the entries of
    closed ledgers that the bookie should have are looked up, too, and ledgers that no metadata
    name are listed. Each finding says what decides. The bookie may run. Changes nothing.

    \b
    Examples:
      pulsarish storage verify --config bookie.toml
      pulsarish storage verify --metadata --rate 32MB -o json --config bookie.toml
    """
    if rate is not None and rate <= 0:
        raise click.BadParameter("--rate of 0 would never end: 1 is the least")
    if metadata and has_several_volumes():
        raise click.BadParameter(
            "--metadata compares a whole bookie, and this one has several volumes; leave it out: "
            "what other volumes have would count as missing"
        )
    progress = Progress("verifying")

    async def work() -> Verification:
        clock = SystemClock()
        limiter = None if rate is None else RateLimiter(clock, rate)

        async def pay(count: float) -> None:
            if limiter is not None:
                await limiter.take(count)

        async with inspecting(config) as inspected:
            found = Verification(
                inspected,
                config.bookie_id,
                rate=pay,
                progress=lambda what, done: progress.show(f"{done:,} {what}"),
            )
            async with _records(config, wanted=metadata) as records:
                await found.run(records)
            return found

    with progress:
        found = asyncio.run(work())
    if output == "json":
        rows = [each.row() for each in found.findings]
        print_json({"counts": asdict(found.counts), "findings": rows})
    else:
        _print(found, with_metadata=metadata)
    if found.is_wrong:
        raise SystemExit(1)


@asynccontextmanager
async def _records(config: BookieConfig, *, wanted: bool) -> AsyncIterator[Records | None]:
    if not wanted:
        yield None
        return
    async with tree_of(config) as tree:
        yield tree.records


def _print(found: Verification, *, with_metadata: bool) -> None:
    counts = found.counts
    say(
        f"verified: {counted(counts.index_entries, 'entry', 'entries')} of the index in "
        f"{counted(counts.ledgers, 'ledger', 'ledgers')}, {counts.log_entries:,} "
        f"({human_bytes(counts.log_bytes)}) in {counted(counts.logs, 'entry log', 'entry logs')}, "
        f"{counted(counts.journal_records, 'record', 'records')} of the journal"
        + (f", {counts.metadata_ledgers:,} ledgers of the metadata" if with_metadata else "")
    )
    for each in found.findings:
        print_line(f"{each.kind}: {each.where}: {each.reason}")
        print_line(f"  decides: {each.decides}")
    if not found.is_wrong:
        say("nothing is wrong")
