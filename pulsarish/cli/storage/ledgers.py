"""``pulsarish storage ledger`` and ``pulsarish storage index``."""

from __future__ import annotations

import base64

import click

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.inspection.directories import Damage, Inspected
from pulsarish.bookie.inspection.ledgers import LedgerFacts, facts_of, ledgers_here
from pulsarish.bookie.inspection.logs import InspectedLogs, reason_of
from pulsarish.bookie.ledger_index import ROWS_MAX, LedgerIndex
from pulsarish.cli.groups import Group
from pulsarish.cli.output import output_option, print_table, say
from pulsarish.cli.storage.access import Rows, bookie_config, inspect
from pulsarish.model.errors import NotFound
from pulsarish.wire.record import RECORD_HEAD_SIZE, peek_ids

__all__ = ["index", "ledger"]

_LEDGER = click.argument("ledger_id", metavar="LEDGER", type=click.IntRange(0))
_SHOWN_MAX = 60


@click.group(cls=Group)
def ledger() -> None:
    """The ledgers of a bookie, and their entries as they lie on its disks.

    \b
    Examples:
      pulsarish storage ledger list --config bookie.toml
      pulsarish storage ledger dump 7 --config bookie.toml
    """


@click.group(cls=Group)
def index() -> None:
    """The index of a bookie: which entry lies where.

    \b
    Example:
      pulsarish storage index dump 7 --config bookie.toml
    """


@ledger.command("list")
@bookie_config
@output_option
def list_ledgers(config: BookieConfig, output: str) -> None:
    """List the ledgers of which the index has a row, also those in the trash.

    `lac` is the last entry that the bookie knows to be confirmed, `log_bytes` what was put into
    entry logs. A ledger in limbo may have lost entries here.

    \b
    Example:
      pulsarish storage ledger list --config bookie.toml -o json
    """

    async def work(inspected: Inspected) -> list[LedgerFacts]:
        async with inspected.opened_indexes() as indexes:
            for each in indexes:
                if each.missing:
                    say(f"warning: the index in {each.path} is not complete: {each.missing}")
            return await ledgers_here(inspected, [each.index for each in indexes])

    print_table(
        [each.row() for each in inspect(config, work)],
        ["ledger", "state", "fenced", "limbo", "lac", "last_entry", "log_bytes"],
        output,
    )


@ledger.command("dump")
@_LEDGER
@click.option("--first", default=0, type=click.IntRange(0), help="Begin with this entry.")
@click.option("--payload", is_flag=True, help="Print what is in the entries, too.")
@bookie_config
@output_option
def dump_ledger(
    config: BookieConfig, ledger_id: int, first: int, payload: bool, output: str
) -> None:
    """Read all entries of one ledger from the entry logs, and print one a line.

    An entry that cannot be read is shown with its place and the reason. In JSON a payload is
    base64.

    \b
    Example:
      pulsarish storage ledger dump 7 --first 100 --config bookie.toml
    """
    inspect(config, lambda inspected: _dump(inspected, ledger_id, first, payload, Rows(output)))


async def _dump(
    inspected: Inspected, ledger_id: int, first: int, payload: bool, rows: Rows
) -> None:
    async with inspected.opened_indexes() as indexes:
        await _check_known(inspected, [each.index for each in indexes], ledger_id)
        for each in indexes:
            logs = InspectedLogs(inspected, each.index)
            await logs.open()
            start = first
            while page := await each.index.entry_locations(ledger_id, start, ROWS_MAX // 10):
                found = await logs.read([location for _, location in page])
                for (entry_id, location), data in zip(page, found, strict=True):
                    path = logs.path(location[0])
                    why = reason_of(data, ledger_id, entry_id)
                    if isinstance(data, OSError) or why:
                        rows.put_damage(Damage(path, location[1], f"entry {entry_id}: {why}"))
                        continue
                    _, _, _, lac, length = peek_ids(data)
                    content = bytes(data[RECORD_HEAD_SIZE:])
                    row: dict[str, object] = {
                        "entry": entry_id,
                        "lac": lac,
                        "length": length,
                        "payload_bytes": len(content),
                        "file": path,
                        "offset": location[1],
                    }
                    shown = ""
                    if payload:
                        row["payload"] = base64.b64encode(content).decode()
                        shown = f": {content[:_SHOWN_MAX].decode(errors='replace')}"
                    rows.put(
                        row,
                        f"entry {entry_id} LAC {lac} {len(content)} bytes in {path} at "
                        f"{location[1]}{shown}",
                    )
                start = page[-1][0] + 1
            await logs.close()
    rows.end()


@index.command("dump")
@_LEDGER
@bookie_config
@output_option
def dump_index(config: BookieConfig, ledger_id: int, output: str) -> None:
    """Print the index rows of one ledger: its state, and where each entry lies. Reads no entry.

    \b
    Example:
      pulsarish storage index dump 7 --config bookie.toml
    """
    inspect(config, lambda inspected: _dump_index(inspected, ledger_id, Rows(output)))


async def _dump_index(inspected: Inspected, ledger_id: int, rows: Rows) -> None:
    async with inspected.opened_indexes() as indexes:
        facts = await _check_known(inspected, [each.index for each in indexes], ledger_id)
        if facts is not None:
            row = facts.row()
            del row["log_bytes"]  # which all logs would have to be asked for
            rows.put(row, " ".join(f"{name}={value}" for name, value in row.items()))
        for each in indexes:
            start = 0
            while page := await each.index.entry_locations(ledger_id, start, ROWS_MAX):
                for entry_id, (log_id, offset, size) in page:
                    rows.put(
                        {"entry": entry_id, "log": log_id, "offset": offset, "size_bytes": size},
                        f"entry {entry_id}: log {log_id} offset {offset} size {size}",
                    )
                start = page[-1][0] + 1


async def _check_known(
    inspected: Inspected, indexes: list[LedgerIndex], ledger_id: int
) -> LedgerFacts | None:
    facts = await facts_of(inspected, indexes, ledger_id)
    if facts is None and not any([await each.entry_keys(ledger_id, 1) for each in indexes]):
        raise NotFound(
            f"the index has no row of ledger {ledger_id}: what was added since the last checkpoint "
            f"is in the journal: pulsarish storage journal dump --ledger {ledger_id}"
        )
    return facts
