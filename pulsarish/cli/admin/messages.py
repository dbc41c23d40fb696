"""Messages that the administration shows: one after the other as they come, or as JSON."""

from __future__ import annotations

from collections.abc import Iterable

import click

from pulsarish.admin.transport import Answer
from pulsarish.cli.output import print_json, say

__all__ = ["parse_position", "print_messages"]

_PROPERTY = "x-pulsar-property-"


def print_messages(messages: Iterable[Answer], output: str) -> None:
    """Ids and keys are talk, payloads are data: what goes into a pipe is what was sent."""
    rows: list[dict[str, object]] = []
    for headers, payload in messages:
        published = headers.get("x-pulsar-publish-time", "")
        row: dict[str, object] = {
            "id": headers.get("x-pulsar-message-id", "").removesuffix(":-1"),  # as `read` prints and takes it
            "key": headers.get("x-pulsar-partition-key"),
            "publish_time": int(published) if published.isdecimal() else None,
            "properties": {name.removeprefix(_PROPERTY): value for name, value in headers.items() if name.startswith(_PROPERTY)},
            "value": payload.decode(errors="replace"),
        }
        rows.append(row)
        if output == "table":
            say(f"{row['id']}  key={row['key'] or '-'}")
            click.echo(row["value"])
    if output == "json":
        print_json(rows)


def parse_position(context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, int]:
    """``LEDGER:ENTRY``; what is printed for a message of a batch has its index behind, which is not asked for here."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(part.isdecimal() for part in parts[:2]):
        raise click.BadParameter(f"{text!r} must be LEDGER:ENTRY")
    return int(parts[0]), int(parts[1])
