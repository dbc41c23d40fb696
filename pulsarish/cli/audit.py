"""``pulsarish audit``: the audit trails of brokers."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pulsarish.cli.groups import Group
from pulsarish.cli.output import counted, fail, print_line, say

if TYPE_CHECKING:
    from pulsarish.security.audit_chain import ChainCheck

__all__ = ["audit"]

_STANDARD_INPUT: Final = Path("-")
_ANCHOR: Final = re.compile(r"([1-9][0-9]{0,17}):([0-9a-f]{64})")


@click.group(cls=Group)
def audit() -> None:
    """Check the records of who did what on a broker.

    \b
    Example:
      pulsarish audit verify /var/lib/pulsarish/audit
    """


def _anchors(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[int, str]:
    found = {}
    for value in values:
        match = _ANCHOR.fullmatch(value)
        if match is None:
            raise click.BadParameter("an anchor is NUMBER:HASH, as verify prints it")
        found[int(match[1])] = match[2]
    return found


@audit.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--anchor",
    "anchors",
    multiple=True,
    metavar="NUMBER:HASH",
    callback=_anchors,
    help="A record that an earlier check printed and that must still be there (repeatable).",
)
def verify(source: Path, anchors: dict[int, str]) -> None:
    """Check the chain of records in SOURCE, which audit_log_directory of a broker names.

    It finds records that are missing, edited, moved or inserted, and says where. It ends with 1
    if there are any. Keep the anchor that it prints elsewhere: only with one does a later check
    find an end that was cut off, or a trail that was written again.

    SOURCE may also be a file with lines of one broker from audit_topic, or - for those of the
    standard input, in any order.

    \b
    Examples:
      pulsarish audit verify /var/lib/pulsarish/audit
      cat exported/part-* | pulsarish audit verify -
    """
    from pulsarish.security.audit_chain import ChainCheck

    check = ChainCheck(anchors)
    if source.is_dir():
        files_count = _read_files(check, source)
        where = f"{counted(files_count, 'file', 'files')}"
    else:
        where = "the standard input" if source == _STANDARD_INPUT else str(source)
        check.read_export(where, _read_export(source))
    check.finish()
    for text in check.notes:
        say(f"note: {text}")
    for text in check.faults:
        say(f"fault: {text}")
    if check.first is not None and check.last is not None:
        print_line(
            f"{counted(check.records_count, 'record', 'records')} in {where}, "
            f"{check.first.sequence} to {check.last.sequence}"
        )
        print_line(f"anchor {check.last.sequence}:{check.last.hash}")
    if check.faults:
        fail(f"the trail has {counted(len(check.faults), 'fault', 'faults')}")
    if check.last is None:
        fail(f"{source} has no record")
    print_line("the chain is whole")


def _read_export(source: Path) -> bytes:
    if source == _STANDARD_INPUT:
        return sys.stdin.buffer.read()
    content = b""
    try:
        content = source.read_bytes()
    except OSError as error:
        fail(f"{source} cannot be read: {error.strerror}")
    return content


def _read_files(check: ChainCheck, directory: Path) -> int:
    """Read the files of a trail, oldest first. Return how many there are."""
    from pulsarish.security.audit_chain import file_number

    found: list[str] = []
    try:
        found = [path.name for path in directory.iterdir()]
    except OSError as error:
        fail(f"{directory} cannot be read: {error.strerror}")
    names = sorted(name for name in found if file_number(name) is not None)
    if not names:
        fail(f"{directory} has no file of an audit trail (audit-0000000001.jsonl)")
    for name in names:
        try:
            check.read_file(name, (directory / name).read_bytes())
        except FileNotFoundError:
            # A broker that runs removes old files; what is missing then is a fault below.
            continue
        except OSError as error:
            fail(f"{name} cannot be read: {error.strerror}")
    return len(names)
