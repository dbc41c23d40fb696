"""``pulsarish commands``: writes docs/commands.md from the tree of commands, so that the two always
agree.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from pulsarish.admin.policies import NAMESPACE, Policy, policies_of
from pulsarish.cli.admin.policies import PLACEHOLDERS, PolicyGroup

__all__ = ["commands"]

_HEAD: Final = """\
# Commands

`pulsarish commands` writes this page from the commands themselves; `--help` after any
command prints the same.

* **Where.** `--admin-url` (`PULSARISH_ADMIN_URL`) names the HTTP address of any broker,
  or of several, separated by commas: when one cannot be reached, the next is asked.
  `--url` (`PULSARISH_URL`) does the same for messages. Defaults are this machine's
  well-known ports. These two and `-o` (`PULSARISH_OUTPUT`) may also come before the
  command.
* **As whom.** `--token-file FILE` (`PULSARISH_TOKEN_FILE`), or `--auth-plugin`
  (`PULSARISH_AUTH_PLUGIN`) with `--auth-params` (`PULSARISH_AUTH_PARAMS`) as in Apache
  Pulsar's tools, come before the command. So does `--trust-certs-file`
  (`PULSARISH_TRUST_CERTS_FILE`), for `https://` and `pulsarish+ssl://`. Refer to secrets:
  `token:file:///path`, `token:env:NAME`; others can see what a command line holds.
  `pulsarish profiles create` saves all of it by name, and `--profile NAME`
  (`PULSARISH_PROFILE`) chooses. Options go before variables, and variables before the
  profile. A profile's credentials go to its own hosts only.
* **Output.** Data goes to stdout; messages, questions and progress go to stderr. Exit
  status: 0 done, 1 failed, 2 bad usage, 130 interrupted.
* **JSON.** `-o json` is for scripts. Later versions add fields and remove none. A list
  is an array of objects, even when an item has only a name: `[{"topic":
  "persistent://public/default/orders"}]`; the same holds for `tenant`, `namespace`,
  `subscription`, `bundle`, `ledger`. Brokers, bookies and ledgers are as in the
  metadata, with names in snake case. Statistics and policies are Apache Pulsar's JSON
  with its names and plain numbers (minutes, seconds, megabytes of 1,048,576 bytes); a
  policy that is not set is `null` or empty. `topics lookup`: `{"topic", "bundle",
  "node", "service_urls"}`; `cluster-info`: `{"cluster", "version", "brokers", "leader",
  "bookies", "read_only_bookies", "tenants", "service_urls"}`; messages: `[{"id", "key",
  "publish_time", "properties", "value"}]`.
* **Units.** Durations are `90s`, `10m`, `1h30m`, `7d`, sizes `4096`, `100KB`, `512MB`,
  `10GB` (powers of 1,024); `forever`, `unlimited` or `-1` where a value may be
  unlimited. Times are `2026-11-21T08:00` in this machine's zone, milliseconds since the
  epoch, or an age: `2h`. Sizes are printed in KiB, MiB and GiB (powers of 1,024); MB
  and MB/s are powers of 1,000.
* **Completion.** `eval "$(pulsarish completion bash)"` (or `zsh`, `fish`) completes
  commands, options, and names of the cluster.
* **Questions.** A command that deletes data asks first at a terminal, unless `--yes` is
  given. In a script it does not ask.
"""


@click.command(hidden=True)
def commands() -> None:
    """Print docs/commands.md.

    \b
    Example:
      pulsarish commands > docs/commands.md
    """
    root = click.get_current_context().find_root()
    click.echo(_HEAD)
    click.echo("\n".join(_group(root, root.command, "pulsarish")).rstrip())


def _group(context: click.Context, group: click.Command, path: str) -> Iterator[str]:
    assert isinstance(group, click.Group)
    names = group.list_commands(context)
    if isinstance(group, PolicyGroup):
        names = [name for name in names if name in group.commands]
    for name in names:
        command = group.get_command(context, name)
        assert command is not None
        yield from _command(context, command, f"{path} {name}", name)
    if isinstance(group, PolicyGroup):
        yield from _policies(group, path)


def _command(parent: click.Context, command: click.Command, path: str, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    yield f"{'#' * min(len(path.split()), 4)} `{path}`"
    yield ""
    usage = " ".join(command.collect_usage_pieces(context))
    if not isinstance(command, click.Group):
        yield f"`{path} {usage}`"
        yield ""
    yield from _help(command.help or "")
    options = [row for row in (_option(context, parameter) for parameter in command.params) if row]
    if options:
        yield from ["| option | meaning |", "| --- | --- |", *options, ""]
    if isinstance(command, click.Group):
        yield from _group(context, command, path)


def _help(text: str) -> Iterator[str]:
    """Yield paragraphs as they are, and line-by-line text as a block."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        lines = paragraph.strip("\n").splitlines()
        if lines and lines[0].strip() == "\b":
            title, first = lines[1].partition(":")[::2]
            block = [first.strip()] if first.strip() else []
            yield from [
                f"{title}:",
                "```",
                *block,
                *inspect.cleandoc("\n".join(lines[2:])).splitlines(),
                "```",
                "",
            ]
        else:
            yield from [" ".join(line.strip() for line in lines), ""]


"""Options that the head of the document explains."""
_METAVARS: Final = {"INTEGER RANGE": "N", "INTEGER": "N", "FLOAT RANGE": "N", "FLOAT": "N"}


def _option(context: click.Context, parameter: click.Parameter) -> str:
    if not isinstance(parameter, click.Option) or parameter.hidden:
        return ""
    if parameter.name == "output" or parameter.envvar in ("PULSARISH_URL", "PULSARISH_ADMIN_URL"):
        return ""  # the head of the document explains them
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    metavar = "" if parameter.is_flag or parameter.count else parameter.make_metavar(context)
    notes = [parameter.help or ""]
    if (
        parameter.show_default
        and isinstance(parameter.default, str | int | float | Path)
        and parameter.default not in ("", False)
    ):
        notes.append(f"Default: {parameter.default}.")
    if parameter.required:
        notes.append("Required.")
    meaning = " ".join(note for note in notes if note)
    return (
        "| "
        + " | ".join(
            cell.replace("|", "\\|")
            for cell in (f"`{f'{names} {_METAVARS.get(metavar, metavar)}'.strip()}`", meaning)
        )
        + " |"
    )


def _policies(group: PolicyGroup, path: str) -> Iterator[str]:
    """Yield one line for each policy's three commands, with the values that it takes."""
    resource = group.level.upper()
    yield from [f"### Policies: `{path} set-NAME`, `get-NAME`, `remove-NAME`", ""]
    if group.level == NAMESPACE:
        yield from ["Without a policy of the namespace, the broker's configuration applies.", ""]
    else:
        yield from [
            (
                "Without a policy of the topic, its namespace's applies; `get-NAME --applied` "
                "shows the value in force."
            ),
            "",
        ]
    yield from ["| name | meaning | set with |", "| --- | --- | --- |"]
    for policy in policies_of(group.level):
        yield (
            f"| {policy.name} | {policy.what} | `set-{policy.name} {resource} "
            f"{_arguments(policy)}` |"
        )
    yield ""


def _arguments(policy: Policy) -> str:
    words = []
    for field in policy.fields:
        values = (
            "on/off"
            if field.unit == "flag"
            else "/".join(field.choices) or field.example or PLACEHOLDERS[field.unit]
        )
        word = f"--{field.option} {values}" if field.key else values
        words.append(word if field.required else f"[{word}]")
    return " ".join(words)
