"""What commands print: data to stdout as a table or JSON, messages and errors to stderr, never a
traceback for a user's mistake.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from pulsarish.model.errors import PulsarishError
from pulsarish.model.printable import printable, printable_json
from pulsarish.model.units import format_instant, format_millis

__all__ = [
    "TLS",
    "counted",
    "fail",
    "output_option",
    "print_json",
    "print_line",
    "print_payload",
    "print_record",
    "print_table",
    "report_errors",
    "say",
]

F = TypeVar("F", bound=Callable[..., Any])

# Fields in answers of the administration, as Apache Pulsar and Pulsarish name them.
TLS: Final = "tls:"
"""What an address of gRPC with TLS begins with; people are shown it without."""
_INSTANTS: Final = re.compile(
    r"\w*[tT]imestamp|earliestMsgPublishTimeInBacklogs?|(?:since|at|retryAt|closed|skipped)Ms|(?:since|closed|created|started)_ms"
)
_DURATIONS: Final = re.compile(r"\w*(?:AgeMs|LagMs|tookMs)")
_INSTANT_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: a greater number is not a time."""


def output_option(command: F) -> F:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        envvar="PULSARISH_OUTPUT",
        default="table",
        show_default=True,
        help="How to print the result.",
    )(command)


def say(text: str) -> None:
    """Print a line for the person to stderr."""
    click.echo(printable(text, keep="\n\t"), err=True)


def print_line(text: str) -> None:
    """Print a line to stdout; characters that could harm a terminal are escaped."""
    click.echo(printable(text))


def print_payload(payload: bytes) -> None:
    """Print a message's content to stdout: escaped on a terminal, unchanged anywhere else."""
    out = sys.stdout.buffer
    out.write(
        (
            printable(payload.decode(errors="replace"), keep="\n\t").encode()
            if sys.stdout.isatty()
            else payload
        )
        + b"\n"
    )
    out.flush()


def fail(text: str) -> None:
    """Print what went wrong and end with status 1."""
    say(f"error: {text}")
    raise SystemExit(1)


@contextmanager
def report_errors() -> Iterator[None]:
    """Turn errors of this project, and a closed pipe, into an exit status and a sentence."""
    try:
        yield
    except PulsarishError as error:
        name = type(error).__name__
        say(f"error: {name}: {error}" if str(error) else f"error: {name}")
        for hint in getattr(error, "__notes__", ()):
            say(f"  {hint}")
        raise SystemExit(1) from None
    except BrokenPipeError:
        # The reader of the output has gone (head, less): not an error, and nothing may be flushed
        # to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except OSError as error:
        # Files and directories that the user named. Defects of this project usually raise other
        # errors.
        where = f": {error.filename}" if error.filename else ""
        say(f"error: {error.strerror or error}{where}")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def counted(count: int, one: str, many: str) -> str:
    """Return a count with its word, which differs for one."""
    return f"{count:,} {one if count == 1 else many}"


def print_json(value: object) -> None:
    click.echo(printable_json(json.dumps(value, indent=2, ensure_ascii=False, default=str)))


def print_table(rows: Sequence[Mapping[str, object]], columns: Sequence[str], output: str) -> None:
    """Print rows as a table with the given columns, or as a JSON list of the whole rows."""
    if output == "json":
        print_json(list(rows))
        return
    cells = [[printable(_cell(row.get(column))) for column in columns] for row in rows]
    widths = [
        max(len(column), *(len(line[index]) for line in cells), 0)
        for index, column in enumerate(columns)
    ]
    click.echo(
        "  ".join(
            column.upper().ljust(width) for column, width in zip(columns, widths, strict=True)
        ).rstrip()
    )
    for line in cells:
        click.echo(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )
    if not rows:
        say("(none)")


def print_record(record: object, output: str) -> None:
    """Print one record: JSON, or one line for each field, with nested records indented and times in
    readable form.
    """
    if output == "json":
        print_json(record)
    else:
        for line in _lines(_for_people(record, time.time_ns() // 1_000_000), ""):
            print_line(line)


def _for_people(value: object, now_ms: int, name: str = "") -> object:
    """Return ``value`` with milliseconds as readable times and durations. The names of the fields
    say which they are.
    """
    if isinstance(value, dict):
        # Users have chosen these names.
        return {
            key: item if "roperties" in str(key) else _for_people(item, now_ms, str(key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_for_people(item, now_ms) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if _INSTANTS.fullmatch(name):
        if value <= 0:
            return None  # never, or not yet
        ago = f" ({format_millis(now_ms - int(value))} ago)" if value <= now_ms else ""
        return format_instant(int(value)) + ago if value <= _INSTANT_MAX else value
    return format_millis(int(value)) if _DURATIONS.fullmatch(name) and value >= 0 else value


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list | tuple):
        return ", ".join(_cell(item) for item in value) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_cell(item)}" for key, item in value.items()) or "-"
    return str(value)


def _lines(value: object, indent: str) -> Iterator[str]:
    if isinstance(value, dict):
        width = max((len(str(key)) for key in value), default=0)
        for key, item in value.items():
            if (isinstance(item, dict) and item) or (
                isinstance(item, list) and any(isinstance(part, dict) for part in item)
            ):
                yield f"{indent}{key}:"
                yield from _lines(item, indent + "  ")
            else:
                yield f"{indent}{str(key).ljust(width)}  {_cell(item)}"
    elif isinstance(value, list):
        for number, item in enumerate(value):
            if number:
                yield ""
            yield from _lines(item, indent)
    else:
        yield f"{indent}{_cell(value)}"
