"""``pulsarish bookies simple-test``."""

from __future__ import annotations

import click

from pulsarish.cli.bookie_access import BookieFiles, bookie_options
from pulsarish.cli.metadata_access import access_options
from pulsarish.cli.output import output_option, print_record, say

__all__ = ["simple_test"]


@click.command("simple-test")
@click.argument("url", metavar="METADATA_URL")
@click.option(
    "-n",
    "--entries",
    default=1_000,
    show_default=True,
    type=click.IntRange(1, 10_000_000),
    help="Entries to write.",
)
@click.option(
    "--size",
    default=1_024,
    show_default=True,
    type=click.IntRange(0, 1 << 20),
    help="Bytes of an entry.",
)
@click.option(
    "--ensemble-size", default=3, show_default=True, type=click.IntRange(1), help="Bookies."
)
@click.option(
    "--write-quorum", default=3, show_default=True, type=click.IntRange(1), help="Copies."
)
@click.option(
    "--ack-quorum",
    default=2,
    show_default=True,
    type=click.IntRange(1),
    help="Copies that must be on disk before an entry counts.",
)
@bookie_options
@access_options
@output_option
def simple_test(
    url: str,
    entries: int,
    size: int,
    ensemble_size: int,
    write_quorum: int,
    ack_quorum: int,
    bookies: BookieFiles,
    output: str,
) -> None:
    """Write one ledger to bookies, read it again, compare, and delete it. No broker takes part.

    METADATA_URL is the servers' metadata URL, such as zk://HOST:PORT/CHROOT.

    \b
    Examples:
      pulsarish bookies simple-test zk://127.0.0.1:2181/pulsarish
      pulsarish bookies simple-test zk://127.0.0.1:2181/pulsarish -n 100 --ack-quorum 3
    """
    # Here, because the other commands about bookies need none of it.
    from pulsarish.cli.metadata.trees import run, tree_at
    from pulsarish.ledger.client import LedgerClient
    from pulsarish.ledger.options import LedgerOptions
    from pulsarish.ledger.trial import Trial, write_and_read

    async def work() -> Trial:
        async with tree_at(url, bookies=bookies) as world:
            client = LedgerClient(world, LedgerOptions(), may_end_process=False)
            await client.start()
            try:
                return await write_and_read(
                    client,
                    world.clock,
                    entries=entries,
                    entry_bytes=size,
                    ensemble_size=ensemble_size,
                    write_quorum=write_quorum,
                    ack_quorum=ack_quorum,
                )
            finally:
                await client.close()

    found = run(work())
    if len(found.members) < ensemble_size:
        say(f"warning: only {len(found.members)} bookies are writable")
    print_record(
        {
            "ledger": found.ledger_id,
            "bookies": list(found.members),
            "entries": found.entries,
            "bytes": found.size_bytes,
            "write_seconds": round(found.write_seconds, 3),
            "read_seconds": round(found.read_seconds, 3),
        },
        output,
    )
