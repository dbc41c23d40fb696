"""``pulsarish schemas``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, TextIO, TypeVar

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import (
    AdminGroup,
    admin_option,
    confirm,
    property_option,
    topic_argument,
    yes_option,
)
from pulsarish.cli.output import output_option, print_json, print_record, print_table, say
from pulsarish.model.printable import printable_json

__all__ = ["schemas"]

F = TypeVar("F", bound=Callable[..., Any])

_SHOWN_MAX: Final = 80
_TYPES: Final = (
    "AVRO",
    "JSON",
    "STRING",
    "BOOLEAN",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FLOAT",
    "DOUBLE",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "INSTANT",
    "LOCAL_DATE",
    "LOCAL_TIME",
    "LOCAL_DATE_TIME",
    "KEY_VALUE",
    "PROTOBUF",
    "PROTOBUF_NATIVE",
)


class _Schemas(AdminGroup):
    words: ClassVar[Mapping[str, str]] = {
        "create": "pulsarish schemas upload TOPIC --type AVRO -",
        "get-version": "pulsarish schemas get TOPIC --version 0",
        "test-compatibility": "pulsarish schemas compatibility TOPIC --type AVRO -",
        "versions": "pulsarish schemas list TOPIC",
    }


@click.group(cls=_Schemas)
def schemas() -> None:
    """Schemas, which describe the messages of a topic.

    \b
    Example:
      pulsarish schemas upload orders --type AVRO order.avsc
    """


def _definition(command: F) -> F:
    """Add the type and the definition of a schema."""
    kind = click.option(
        "--type",
        "kind",
        required=True,
        type=click.Choice(_TYPES, case_sensitive=False),
        help="Type of the schema; an Avro schema defines AVRO and JSON.",
    )
    file = click.argument("file", type=click.File("r", encoding="utf-8"), required=False)
    properties = property_option(
        "Property of the schema, such as key.schema.type of KEY_VALUE; repeatable."
    )
    return file(kind(properties(command)))


def _read(file: TextIO | None) -> str:
    return "" if file is None else file.read()


@schemas.command()
@topic_argument
@click.option("--version", type=click.IntRange(0), help="Version to show; default: the newest.")
@admin_option
@output_option
def get(topic: str, version: int | None, admin: Admin, output: str) -> None:
    """Show a topic's schema.

    \b
    Examples:
      pulsarish schemas get orders
      pulsarish schemas get orders --version 0 -o json
    """
    found = admin.schemas.get(topic, version)
    if output == "json":
        print_json(found)
        return
    print_record(
        {name: value for name, value in found.items() if name != "data"}
        | {"timestamp": _time(found["timestamp"])},
        output,
    )
    if found["data"]:
        click.echo(printable_json(_laid_out(found["data"])))


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds")


def _laid_out(definition: str) -> str:
    try:
        return json.dumps(json.loads(definition), indent=2, ensure_ascii=False)
    except ValueError:
        return definition


@schemas.command("list")
@topic_argument
@admin_option
@output_option
def list_versions(topic: str, admin: Admin, output: str) -> None:
    """List the versions of a topic's schema, oldest first.

    \b
    Example:
      pulsarish schemas list orders
    """
    found = admin.schemas.list(topic)
    if output == "json":
        print_json(found)
        return
    rows = [
        each | {"time": _time(each["timestamp"]), "definition": _short(each["data"])}
        for each in found
    ]
    print_table(rows, ["version", "type", "time", "definition"], output)


def _short(definition: str) -> str:
    text = " ".join(definition.split())
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."


@schemas.command()
@topic_argument
@_definition
@admin_option
@output_option
def upload(
    topic: str,
    kind: str,
    file: TextIO | None,
    properties: dict[str, str],
    admin: Admin,
    output: str,
) -> None:
    """Add a schema to a topic, if it is compatible with the existing ones. FILE has the definition;
    - is standard input.

    \b
    Examples:
      pulsarish schemas upload orders --type AVRO order.avsc
      pulsarish schemas upload counters --type INT64
    """
    version = admin.schemas.upload(topic, kind, _read(file), properties)
    print_record({"version": version}, output)


@schemas.command()
@topic_argument
@_definition
@admin_option
@output_option
def compatibility(
    topic: str,
    kind: str,
    file: TextIO | None,
    properties: dict[str, str],
    admin: Admin,
    output: str,
) -> None:
    """Check whether a schema could be uploaded, and why not. Exit status 1: it could not.

    \b
    Example:
      pulsarish schemas compatibility orders --type AVRO order.avsc
    """
    found = admin.schemas.compatibility(topic, kind, _read(file), properties)
    print_record(
        {"compatible": found.is_compatible, "strategy": found.strategy, "reason": found.reason},
        output,
    )
    if not found.is_compatible:
        raise SystemExit(1)


@schemas.command()
@topic_argument
@click.option(
    "--force",
    is_flag=True,
    help="Delete the history, too: versions begin at 0 again, and old messages cannot be decoded.",
)
@yes_option
@admin_option
def delete(topic: str, force: bool, yes: bool, admin: Admin) -> None:
    """Delete all versions of a topic's schema. Its messages stay.

    \b
    Example:
      pulsarish schemas delete orders
    """
    confirm(
        f"Delete the schemas of {topic}? Messages stay, but consumers that need these versions "
        "cannot decode them.",
        yes=yes,
    )
    admin.schemas.delete(topic, force=force)
    say(f"schemas of {topic} deleted")
