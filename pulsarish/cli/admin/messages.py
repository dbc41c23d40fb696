"""Print messages of the administration: one after the other as they come, or as JSON. Batches are
split into messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

import click

from pulsarish.admin.transport import Answer
from pulsarish.cli.output import print_json, print_payload, say
from pulsarish.model.units import format_instant

__all__ = ["form_option", "parse_message_id", "parse_position", "print_messages"]

F = TypeVar("F", bound=Callable[..., object])

_MESSAGE_ID: Final = re.compile(r"(\d+):(\d+)(?::(-1|\d+))?", re.ASCII)
_PRINTED_ID: Final = re.compile(r"\((\d+), ?(\d+), ?(?:-1|\d+), ?(-1|\d+)\)", re.ASCII)
_PROPERTIES: Final = "x-pulsar-property"
_Row = dict[str, Any]


def form_option(command: F) -> F:
    """Add ``--format``, which says how payloads are shown."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(["text", "hex"]),
        default="text",
        show_default=True,
        help="How to show payloads.",
    )(command)


def print_messages(messages: Iterable[Answer], output: str, form: str) -> None:
    """Print messages. Ids, keys and properties go to stderr and payloads to stdout, so a pipe gets
    what was sent.
    """
    rows: list[_Row] = []
    for answer in messages:
        for row in _messages_of(answer):
            payload = row["value"]
            row["value"] = payload.hex(" ") if form == "hex" else payload.decode(errors="replace")
            rows.append(row)
            if output == "table":
                say(_line(row))
                print_payload(payload if form == "text" else row["value"].encode())
    if output == "json":
        print_json(rows)


def _line(row: _Row) -> str:
    words = [row["id"], f"key={row['key'] or '-'}"]
    if row["publish_time"]:
        words.append(f"published={format_instant(row['publish_time'])}")
    words += [f"{name}={value}" for name, value in row["properties"].items()]
    if row.get("encrypted"):
        words.append("encrypted: shown as stored")
    return "  ".join(words)


def _messages_of(answer: Answer) -> Iterator[_Row]:
    headers, payload = answer
    published = headers.get("x-pulsar-publish-time")
    whole: _Row = {
        # as `read` prints and accepts it
        "id": headers.get("x-pulsar-message-id", "").removesuffix(":-1"),
        "key": headers.get("x-pulsar-partition-key"),
        "publish_time": int(datetime.fromisoformat(published).timestamp() * 1000)
        if published
        else None,
        "properties": _properties(headers),
        "value": payload,
    }
    if "x-pulsar-is-encrypted" in headers:
        yield {**whole, "encrypted": True}
        return
    # An entry by its place is a whole batch; a message of a backlog comes alone.
    count = headers.get("x-pulsar-num-batch-message")
    if count is None:
        yield whole
        return
    # Imported here: most commands need neither, and both load slowly.
    from pulsarish.wire._pb.message_pb2 import SingleMessageMetadata
    from pulsarish.wire.payload import split_batch

    for index, head, start, end in split_batch(payload, int(count), lambda *span: span):
        own = SingleMessageMetadata.FromString(payload[head:start])
        yield {
            **whole,
            "id": f"{whole['id']}:{index}",
            "key": own.partition_key or None,
            "properties": {each.key: each.value for each in own.properties},
            "value": payload[start:end],
        }


def _properties(headers: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = json.loads(headers.get(_PROPERTIES, "{}"))
    return found


def parse_position(
    context: click.Context, parameter: click.Parameter, text: str
) -> tuple[int, int]:
    """Return ledger and entry of an id that ``parse_message_id`` takes. The index is ignored."""
    return parse_message_id(context, parameter, text)[:2]


def parse_message_id(
    context: click.Context, parameter: click.Parameter, text: str
) -> tuple[int, int, int | None]:
    """Return ledger, entry and index in the batch of ``LEDGER:ENTRY[:INDEX]``; index ``None``: not
    given, or -1, as clients print it of a message without a batch.

    Python clients print an id as ``(LEDGER,ENTRY,PARTITION,INDEX)``, which is taken, too.
    """
    found = _MESSAGE_ID.fullmatch(text) or _PRINTED_ID.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} must be LEDGER:ENTRY or LEDGER:ENTRY:INDEX")
    ledger_id, entry_id, index = found.groups()
    return int(ledger_id), int(entry_id), None if index in (None, "-1") else int(index)
