"""``pulsarish storage entry-log``."""

from __future__ import annotations

import click

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.inspection.directories import Damage, Inspected
from pulsarish.bookie.inspection.logs import InspectedLogs
from pulsarish.bookie.ledger_index import entry_key
from pulsarish.cli.groups import Group
from pulsarish.cli.output import output_option, print_table
from pulsarish.cli.storage.access import Rows, bookie_config, inspect
from pulsarish.model.errors import NotFound

__all__ = ["entry_log"]


@click.group("entry-log", cls=Group)
def entry_log() -> None:
    """The entry logs of a bookie, and the entries in them.

    \b
    Examples:
      pulsarish storage entry-log list --config bookie.toml
      pulsarish storage entry-log dump 3 --config bookie.toml
    """


@entry_log.command("list")
@bookie_config
@output_option
def list_logs(config: BookieConfig, output: str) -> None:
    """List the entry logs, with the ledgers and bytes that the index knows of each.

    `bytes_put` counts what was ever put into the log, deleted entries included. A log that the
    index does not know is never collected.

    \b
    Example:
      pulsarish storage entry-log list --config bookie.toml
    """
    rows = inspect(config, _logs)
    print_table(rows, ["log", "file", "size_bytes", "in_index", "ledgers", "bytes_put"], output)


async def _logs(inspected: Inspected) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    async with inspected.opened_indexes() as indexes:
        logs = InspectedLogs(inspected, indexes[0].index)
        await logs.open()
        begun = {log_id for each in indexes for log_id in await each.index.logs_begun()}
        for log_id in sorted(begun.union(logs.ids)):
            sizes: dict[int, int] = {}
            for each in indexes:
                sizes.update(await each.index.log_ledgers(log_id))
            rows.append(
                {
                    "log": log_id,
                    "file": logs.path(log_id) if log_id in logs.ids else None,
                    "size_bytes": await logs.size_bytes(log_id),
                    "in_index": log_id in begun,
                    "ledgers": len(sizes),
                    "bytes_put": sum(sizes.values()),
                }
            )
    return rows


@entry_log.command()
@click.argument("log", type=click.IntRange(0))
@click.option("--ledger", type=click.IntRange(0), help="Only entries of this ledger.")
@bookie_config
@output_option
def dump(config: BookieConfig, log: int, ledger: int | None, output: str) -> None:
    """Print all entries of one entry log, one a line, and what cannot be read.

    `live` says whether the index points to this copy of the entry.

    \b
    Example:
      pulsarish storage entry-log dump 3 --ledger 7 --config bookie.toml
    """
    inspect(config, lambda inspected: _dump(inspected, log, ledger, Rows(output)))


async def _dump(inspected: Inspected, log_id: int, ledger: int | None, rows: Rows) -> None:
    async with inspected.opened_indexes() as indexes:
        logs = InspectedLogs(inspected, indexes[0].index)
        await logs.open()
        if log_id not in logs.ids:
            raise NotFound(f"there is no entry log {log_id} in {', '.join(inspected.ledgers)}")
        path = logs.path(log_id)
        async for chunk in logs.walk(log_id):
            if isinstance(chunk, Damage):
                rows.put_damage(chunk)
                continue
            if ledger is not None and chunk.ledger_id != ledger:
                continue
            records = await logs.records(chunk.ledger_id, chunk.locations)
            keys = [entry_key(chunk.ledger_id, each.entry_id) for each in records]
            places = [await each.index.locations(keys) for each in indexes]
            for number, record in enumerate(records):
                offset, size = record.location[1:]
                if record.damage:
                    rows.put_damage(Damage(path, offset, record.damage))
                    continue
                live = any(found[number] == record.location for found in places)
                rows.put(
                    {
                        "file": path,
                        "offset": offset,
                        "ledger": record.ledger_id,
                        "entry": record.entry_id,
                        "lac": record.lac,
                        "length": record.length_bytes,
                        "size_bytes": size,
                        "live": live,
                    },
                    f"{path} {offset}: ledger {record.ledger_id} entry {record.entry_id} "
                    f"LAC {record.lac} {size} bytes{'' if live else ' (not live)'}",
                )
        await logs.close()
    rows.end()
