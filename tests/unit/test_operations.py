"""docs/operations.md holds: every command in it exists with its options and arguments, and every
alert has its section.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from pulsarish.cli.main import pulsarish

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/operations.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
LINES = [
    line.partition("#")[0].strip()
    for block in BLOCKS
    for line in block.replace("\\\n", " ").splitlines()
]
COMMANDS = [line for line in LINES if line]
SPANS: list[str] = re.findall(r"`(pulsarish [^`\n]+)`", TEXT)


def resolve(words: list[str]) -> tuple[click.Command, click.Context, list[str]]:
    """The command that the words name, and what is left of them for it."""
    command: click.Command = pulsarish
    context = click.Context(command, info_name="pulsarish")
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(context, rest[0])
        assert found is not None, f"{' '.join(words)}: there is no {rest[0]!r}"
        context = click.Context(found, parent=context, info_name=rest[0])
        command, rest = found, rest[1:]
    return command, context, rest


def check(line: str) -> None:
    words = shlex.split(line)
    assert words[0] == "pulsarish", f"not a command of ours: {line}"
    command, context, rest = resolve(words)
    given, left, _ = command.make_parser(context).parse_args(list(rest))
    assert left == [], f"{line}: too many arguments"
    if "--help" in rest:
        return
    for parameter in command.params:
        # What is missing is None or a mark of click's own; nothing has been converted yet.
        is_given = isinstance(given.get(str(parameter.name)), str | list | tuple)
        assert is_given or not parameter.required, f"{line}: {parameter.name} is missing"


def test_there_are_commands_to_check() -> None:
    assert len(COMMANDS) > 20


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_exist_with_their_options(line: str) -> None:
    check(line)


@pytest.mark.parametrize("span", sorted(set(SPANS)))
def test_commands_named_in_the_text_exist(span: str) -> None:
    resolve(shlex.split(span))


@pytest.mark.parametrize(
    "line",
    [
        "pulsarish topics unknown greetings",
        "pulsarish topics skip-lost greetings --unknown",
        "pulsarish topics skip-lost greetings",
        "pulsarish metadata diff left",
        "pulsarish metadata diff left right more",
        "docker ps",
    ],
)
def test_the_check_finds_mistakes(line: str) -> None:
    with pytest.raises((AssertionError, click.ClickException)):
        check(line)


def test_every_alert_has_its_section() -> None:
    sections = re.findall(r"^### `(\w+)`$", TEXT.partition("\n## Alerts\n")[2], re.MULTILINE)
    assert sections
    assert len(sections) == len(set(sections))
    for file in (ROOT / "deploy").rglob("alerts.yml"):
        assert set(re.findall(r"^\s*- alert: (\w+)$", file.read_text(), re.MULTILINE)) == set(
            sections
        )
