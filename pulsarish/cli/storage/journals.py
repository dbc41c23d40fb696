"""``pulsarish storage journal`` and ``pulsarish storage last-mark``."""

from __future__ import annotations

import click

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.inspection.directories import Damage, Inspected
from pulsarish.bookie.inspection.journals import describe, files_of, ledgers_of
from pulsarish.bookie.journal.journal_format import JournalRecord
from pulsarish.bookie.journal.mark import Mark
from pulsarish.cli.groups import Group
from pulsarish.cli.output import output_option, print_record, print_table, say
from pulsarish.cli.storage.access import Rows, bookie_config, inspect
from pulsarish.model.errors import CorruptData, NotFound

__all__ = ["journal", "last_mark"]


@click.group(cls=Group)
def journal() -> None:
    """The files of a bookie's journal, and their records.

    \b
    Examples:
      pulsarish storage journal list --config bookie.toml
      pulsarish storage journal dump --file 12 --config bookie.toml
    """


@journal.command("list")
@bookie_config
@output_option
def list_files(config: BookieConfig, output: str) -> None:
    """List the files of the journal, the records in each, and what cannot be read.

    A start replays from the file of the mark on. What is damaged before it is not needed any more.

    \b
    Example:
      pulsarish storage journal list --set bookie_id=b1 --set data_directory=/var/lib/b1
    """
    rows = inspect(config, _files)
    print_table(rows, ["file", "state", "size_bytes", "first", "last", "damaged"], output)


async def _files(inspected: Inspected) -> list[dict[str, object]]:
    mark = await _mark_or_none(inspected)
    rows: list[dict[str, object]] = []
    async for file in files_of(inspected):
        records = file.records
        needed = mark is None or file.file_id >= mark.file_id
        rows.append(
            {
                "file": file.path,
                "file_id": file.file_id,
                "state": ("needed" if needed else "not needed") if file.is_begun else "not begun",
                "size_bytes": file.size_bytes,
                "records": len(records),
                "first": records[0].sequence if records else None,
                "last": records[-1].sequence if records else None,
                "damaged": len(file.damages),
            }
        )
    return rows


async def _mark_or_none(inspected: Inspected) -> Mark | None:
    try:
        return await inspected.mark()
    except CorruptData as error:
        say(f"warning: {error}")
        return None


@journal.command()
@click.option("--file", "file_id", type=click.IntRange(0), help="Only the file with this id.")
@click.option("--ledger", type=click.IntRange(0), help="Only records of this ledger.")
@bookie_config
@output_option
def dump(config: BookieConfig, file_id: int | None, ledger: int | None, output: str) -> None:
    """Print all records of the journal that can be read, one a line, and where none can be read.

    As JSON one object is printed for each line.

    \b
    Examples:
      pulsarish storage journal dump --config bookie.toml
      pulsarish storage journal dump --ledger 7 -o json --config bookie.toml
    """
    inspect(config, lambda inspected: _dump(inspected, file_id, ledger, Rows(output)))


async def _dump(inspected: Inspected, file_id: int | None, ledger: int | None, rows: Rows) -> None:
    found = False
    async for file in files_of(inspected, file_id):
        found = True
        for part in file.parts:
            if not isinstance(part, JournalRecord):
                if ledger is not None and not part.is_damage:
                    continue
                rows.put_damage(
                    Damage(file.path, part.offset, part.reason, is_damage=part.is_damage)
                )
                continue
            item = describe(file.path, part)
            if isinstance(item, Damage):
                rows.put_damage(item)
                continue
            if ledger is not None and ledger not in ledgers_of(item):
                continue
            size_bytes = len(part.payload)
            rows.put(
                {
                    "file": file.path,
                    "offset": part.offset,
                    "sequence": part.sequence,
                    "durable_up_to": part.durable_up_to,
                    "type": part.type.name,
                    "size_bytes": size_bytes,
                    "text": item.text,
                    "entries": [
                        {"ledger": head[1], "entry": head[2], "lac": head[3], "length": head[4]}
                        for head in item.heads
                    ],
                },
                f"{file.path} {part.offset}: record {part.sequence} {part.type.name} "
                f"{size_bytes} bytes: {item.text}",
            )
    if file_id is not None and not found:
        raise NotFound(f"there is no file {file_id} in {', '.join(inspected.journals)}")
    rows.end()


@click.command("last-mark")
@bookie_config
@output_option
def last_mark(config: BookieConfig, output: str) -> None:
    """Show the mark: from which record of the journal the next start replays.

    \b
    Example:
      pulsarish storage last-mark --config bookie.toml
    """
    found = inspect(config, lambda inspected: inspected.mark())
    if found is None:
        raise NotFound(f"there is no mark in {config.ledger_path}: the bookie was never started")
    print_record(
        {
            "file_id": found.file_id,
            "sequence": found.sequence,
            "index_write": found.index_write or None,
        },
        output,
    )
