"""``pulsarish storage verify``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, astuple

import click

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.inspection.verify import Counts, Finding, Verification
from pulsarish.cli.output import counted, output_option, print_json, print_line, say
from pulsarish.cli.progress import Progress
from pulsarish.cli.storage.access import bookie_volumes, inspecting
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
@bookie_volumes
@output_option
def verify(
    volumes: list[BookieConfig],
    wanted: list[BookieConfig],
    metadata: bool,
    rate: int | None,
    output: str,
) -> None:
    """Verify all that is on the disks of a bookie. Exit status 1 when something is wrong.

    Every checksum of the journal and the entry logs is computed, every entry of the index is read,
    and confirmed entries of the logs are looked up in the index. With --metadata the entries of
    closed ledgers that the bookie should have are looked up, too, and ledgers that no metadata
    name are listed. Each finding says what decides. The bookie may run. Changes nothing.

    Of a bookie with several volumes all are verified, or the one that --volume names. The metadata
    are compared with all of them together.

    \b
    Examples:
      pulsarish storage verify --config bookie.toml
      pulsarish storage verify --metadata --rate 32MB -o json --config bookie.toml
    """
    if rate is not None and rate <= 0:
        raise click.BadParameter("--rate of 0 would never end: 1 is the least")
    progress = Progress("verifying")

    async def work() -> list[Verification]:
        clock = SystemClock()
        limiter = None if rate is None else RateLimiter(clock, rate)

        async def pay(count: float) -> None:
            if limiter is not None:
                await limiter.take(count)

        async with AsyncExitStack() as stack:
            inspected = {
                each.ledger_path: await stack.enter_async_context(inspecting(each))
                for each in (volumes if metadata else wanted)
            }
            records = await stack.enter_async_context(_records(wanted[0], wanted=metadata))
            found: list[Verification] = []
            for each in wanted:
                own = inspected[each.ledger_path]
                verification = Verification(
                    own,
                    each.bookie_id,
                    rate=pay,
                    others=[other for other in inspected.values() if other is not own],
                    progress=lambda what, done: progress.show(f"{done:,} {what}"),
                )
                # The ledgers of the metadata are looked for once, in all volumes together.
                await verification.run(records, compares=each is wanted[-1])
                found.append(verification)
            return found

    with progress:
        found = asyncio.run(work())
    counts = Counts(
        *(sum(each) for each in zip(*(astuple(one.counts) for one in found), strict=True))
    )
    findings = [each for one in found for each in one.findings]
    if output == "json":
        print_json({"counts": asdict(counts), "findings": [each.row() for each in findings]})
    else:
        _print(counts, findings, with_metadata=metadata)
    if any(each.is_wrong for each in findings):
        raise SystemExit(1)


@asynccontextmanager
async def _records(config: BookieConfig, *, wanted: bool) -> AsyncIterator[Records | None]:
    if not wanted:
        yield None
        return
    async with tree_of(config) as tree:
        yield tree.records


def _print(counts: Counts, findings: Sequence[Finding], *, with_metadata: bool) -> None:
    say(
        f"verified: {counted(counts.index_entries, 'entry', 'entries')} of the index in "
        f"{counted(counts.ledgers, 'ledger', 'ledgers')}, {counts.log_entries:,} "
        f"({human_bytes(counts.log_bytes)}) in {counted(counts.logs, 'entry log', 'entry logs')}, "
        f"{counted(counts.journal_records, 'record', 'records')} of the journal"
        + (f", {counts.metadata_ledgers:,} ledgers of the metadata" if with_metadata else "")
    )
    for each in findings:
        print_line(f"{each.kind}: {each.where}: {each.reason}")
        print_line(f"  decides: {each.decides}")
    if not any(each.is_wrong for each in findings):
        say("nothing is wrong")
