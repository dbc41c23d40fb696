"""``pulsarish storage rebuild-index``."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.rebuild import Rebuilt, rebuild_bookie
from pulsarish.cli.output import output_option, print_json, say
from pulsarish.cli.progress import Progress
from pulsarish.cli.storage.access import bookie_config, check_directories, run_locked
from pulsarish.cli.storage.tree import tree_of
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.rocks.index import replace_index, synced_path
from pulsarish.runtime.tasks import Supervisor
from pulsarish.runtime.world import production

__all__ = ["rebuild"]


@click.command("rebuild-index")
@bookie_config
@output_option
def rebuild(config: BookieConfig, output: str) -> None:
    """Rebuild the index of a stopped bookie from its entry logs. The damaged index is moved aside.

    Use the options of the bookie. The metadata must be reachable. Afterwards the bookie answers
    "unknown" instead of "not there" for every ledger that existed, because the logs do not say
    which ledgers were fenced, nor what is missing at their end. Auto-recovery repairs one ledger
    after the other. After an interruption run the command again.

    \b
    Example:
      pulsarish storage rebuild-index --set bookie_id=b1 --set data_directory=/var/lib/b1 --set metadata_url=zk://zk1:2181/pulsarish
    """
    config.validate()
    found, aside = run_locked(_rebuild(config))
    if output == "json":
        print_json(
            {
                "entries": found.entries,
                "ledgers": len(found.ledgers),
                "logs": found.logs,
                "unreadable_records": found.unreadable_records,
                "unfinished_logs": {
                    str(log_id): why for log_id, why in (found.torn | found.damaged).items()
                },
                "damaged_logs": list(found.damaged),
                "old_index": aside,
            }
        )
        return
    say(
        f"{found.entries} entries of {len(found.ledgers)} ledgers were found in {found.logs} "
        f"entry logs; the old index is in {aside}"
    )
    if found.unreadable_records:
        say(f"{found.unreadable_records} records do not match their CRC32C and were left out")
    for why in found.torn.values():
        say(f"a log has a torn end, as a kill leaves it, and counts up to there: {why}")
    for why in found.damaged.values():
        say(f"a log is damaged, counts up to there, and the bookie never deletes it: {why}")
    say(
        "start the bookie and let auto-recovery work: the ledgers that existed are in limbo until "
        "it has repaired them"
    )


async def _rebuild(config: BookieConfig) -> tuple[Rebuilt, str]:
    outside = OutsideWork()
    # A task that fails is this command's failure, not the end of a server.
    parts = production(outside=outside, supervisor=Supervisor(died=lambda _name, _error: None))

    async def given_out() -> int:
        async with tree_of(config) as tree:
            return await tree.ledgers_given_out()

    try:
        check_directories(config)
        with Progress("rebuilding the index") as progress:
            return await rebuild_bookie(
                parts.files,
                parts.open_index,
                config,
                given_out=given_out,
                remove=_remove_index,
                replace=replace_index,
                progress=lambda logs, of, entries: progress.show(
                    f"{logs} of {of} entry logs read, {entries:,} entries"
                ),
            )
    finally:
        await parts.close()


def _remove_index(directory: str) -> None:
    for path in (directory, synced_path(directory)):
        _remove(path)


def _remove(path: str) -> None:
    if Path(path).is_dir():
        shutil.rmtree(path)
    else:
        Path(path).unlink(missing_ok=True)
