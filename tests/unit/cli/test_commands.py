"""The tree of commands: every one teaches by an example, every example is one that the command
takes, and none imports what it need not.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pulsarish.cli.groups import Group
from pulsarish.cli.main import pulsarish

HEAVY = {
    "asyncio",
    "google.protobuf",
    "grpc",
    "kazoo",
    "lz4",
    "msgspec",
    "rocksdict",
    "uvloop",
    "zstandard",
}


def walk(
    command: click.Command, path: str, parent: click.Context | None = None
) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path, parent=parent)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None, f"{path} lists {name}, which it does not have"
            yield from walk(child, f"{path} {name}", context)


COMMANDS = dict(walk(pulsarish, "pulsarish"))


def examples(help_text: str) -> Iterator[str]:
    """The commands of a help text's examples, one by one."""
    for line in help_text.partition("Example")[2].splitlines()[1:]:
        words = shlex.split(line, comments=True)
        if words[:1] == ["pulsarish"] and not {">", ">>", "|"} & set(words):
            yield line.strip()


def parse(words: list[str]) -> None:
    """As on the command line, down to the last command, without running it. Raises what click finds
    wrong.
    """
    command: click.Command = pulsarish
    context: click.Context | None = None
    name, rest = words[0], words[1:]
    while True:
        # A group's own context keeps what is behind its options; a name that the group does not
        # know is refused by resolve_command.
        with command.make_context(name, rest, parent=context) as context:
            left = [*context._protected_args, *context.args]
            if not isinstance(command, click.Group) or (
                command.invoke_without_command and not left
            ):
                return
            found, child, rest = command.resolve_command(context, left)
            assert found is not None
            assert child is not None
            name, command = found, child


@pytest.mark.parametrize("path", [path for path in COMMANDS if path != "pulsarish"])
def test_every_command_teaches_by_an_example_that_it_takes(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = COMMANDS[path].help or ""
    assert "Example" in text, f"{path} --help shows no example"
    found = list(examples(text))
    assert found or path == "pulsarish completion", f"the example of {path} is no command"
    monkeypatch.chdir(tmp_path)
    for line in found:
        words = shlex.split(line, comments=True)
        assert line.startswith(path), f"the example of {path} is of another command: {line}"
        for word in words:
            if Path(word).suffix in (".avsc", ".gz", ".jsonl", ".toml"):
                (tmp_path / word).touch()
        parse(words)


ADMINISTRATION = (
    "tenants",
    "namespaces",
    "topics",
    "subscriptions",
    "schemas",
    "brokers",
    "bookies",
    "ledgers",
    "cluster-info",
)


@pytest.mark.parametrize(
    "path", [path for path in COMMANDS if path.split()[1:2] and path.split()[1] in ADMINISTRATION]
)
def test_every_option_of_the_administration_says_what_it_is(path: str) -> None:
    for parameter in COMMANDS[path].params:
        assert not isinstance(parameter, click.Option) or parameter.help, (
            f"{path} {parameter.opts[0]} has no help"
        )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["topcis"], "Did you mean topics?"),
        (["topics", "lokup", "t"], "Did you mean lookup"),
        (
            ["topics", "create-partitioned-topic", "t"],
            "pulsarish topics create TOPIC --partitions 8",
        ),
        (["namespaces", "set-retension", "n"], "set-retention"),
        (["tenants", "zzz"], "See: pulsarish tenants --help"),
    ],
)
def test_a_command_that_is_not_there_is_answered_with_one_that_is(
    arguments: list[str], text: str
) -> None:
    with pytest.raises(click.UsageError, match=r"No such command") as raised:
        parse(["pulsarish", *arguments])
    assert text in str(raised.value)


WORDS = [
    (path, word, line)
    for path, command in COMMANDS.items()
    if isinstance(command, Group)
    for word, line in command.words.items()
]


@pytest.mark.parametrize(("path", "word", "line"), WORDS)
def test_what_others_call_a_command_leads_to_one(path: str, word: str, line: str) -> None:
    assert f"{path} {word}" not in COMMANDS, "the word is a command itself"
    parse(shlex.split(line))


def imported(*arguments: str) -> set[str]:
    """The modules in a process that has run a command against nobody."""
    script = (
        "import sys\n"
        f"sys.argv = {['pulsarish', *arguments]!r}\n"
        "from pulsarish.cli.main import main\n"
        "try:\n    main()\n"
        "finally:\n    print(*sorted(sys.modules), sep='\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return set(done.stdout.split())


SECURITY = {
    "pulsarish.client",
    "pulsarish.client.checks",
    "pulsarish.client.errors",
    "pulsarish.client.messages",
    "pulsarish.client.messages.security_options",
    "pulsarish.runtime",
    "pulsarish.runtime.authentication_parameters",
    "pulsarish.runtime.client_authentication",
    "pulsarish.runtime.profiles",
    "pulsarish.runtime.secret_references",
    "pulsarish.security",
    "pulsarish.security.client_security",
    "pulsarish.security.credentials",
    "pulsarish.security.tls",
}
"""What profiles and credentials take; they import only the standard library."""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("completion", "fish"),
        ("topics", "list", "--admin-url", "http://127.0.0.1:1"),
        (
            "namespaces",
            "set-retention",
            "a/b",
            "--time",
            "1d",
            "--size",
            "1GB",
            "--admin-url",
            "http://127.0.0.1:1",
        ),
        ("subscriptions", "peek", "t", "s", "--admin-url", "http://127.0.0.1:1"),
        ("cluster-info", "--admin-url", "http://127.0.0.1:1"),
    ],
)
def test_administration_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    """It has 0.3 s from enter to answer; that none of these is there is what can be said about it
    without a clock.
    """
    modules = imported(*arguments)
    assert modules & HEAVY == set()
    ours = {name for name in modules if name.startswith("pulsarish.")}
    others = {name for name in ours if name.split(".")[1] not in ("admin", "cli", "model")}
    assert others <= SECURITY
    assert arguments[0] not in ("--help", "completion") or "pulsarish.admin" not in modules


@pytest.mark.parametrize(
    "group",
    [
        "cluster",
        "topics",
        "subscriptions",
        "namespaces",
        "brokers",
        "perf",
        "sim",
        "metadata",
        "chaos",
    ],
)
def test_no_line_of_a_groups_help_is_cut_off(group: str) -> None:
    done = CliRunner().invoke(pulsarish, [group, "--help"], prog_name="pulsarish")
    assert done.exit_code == 0, done.output
    assert not [
        line for line in done.output.splitlines() if line.endswith("...") and "Usage:" not in line
    ]


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(
    "command",
    [
        "produce t --message x --rate",
        "perf produce t --rate",
        "chaos run no-fault --rate",
        "chaos run slow-producer --duration",
        "bookies decommission b --wait-seconds",
        "cluster restart --rolling --wait-seconds",
        "health broker --timeout",
        "sim run --seconds",
    ],
)
def test_a_number_is_finite(command: str, number: str) -> None:
    done = CliRunner().invoke(pulsarish, [*command.split(), number])
    assert (done.exit_code, command.split()[-1] in done.output) == (2, True), done.output


def test_the_document_of_commands_is_current() -> None:
    done = CliRunner().invoke(pulsarish, ["commands"], prog_name="pulsarish")
    assert done.exit_code == 0, done.output
    document = Path(__file__).resolve().parents[3] / "docs" / "commands.md"
    assert done.stdout == document.read_text(), (
        "write it again: python -m pulsarish commands > docs/commands.md"
    )


def test_the_document_of_commands_has_them_all() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "commands.md").read_text()
    for path in COMMANDS:
        verb, _, policy = path.rpartition(" ")[2].partition("-")
        has_row = verb in ("set", "get", "remove") and f"| {policy} |" in text
        assert has_row or path == "pulsarish" or f"# `{path}`\n" in text, (
            f"{path} is not in the document"
        )
