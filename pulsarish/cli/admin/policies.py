"""The ``set-``, ``get-`` and ``remove-`` commands of single policies, made from the table in
``pulsarish.admin.policies``.

People write units (``7d``, ``10GB``, ``on``) and read them in tables; JSON has Apache Pulsar's
plain numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import click

from pulsarish.admin import Admin
from pulsarish.admin.policies import (
    NAMESPACE,
    TOPIC,
    Field,
    Level,
    Policy,
    PolicyCalls,
    policies_of,
)
from pulsarish.cli.admin.common import (
    AdminCommand,
    AdminGroup,
    admin_option,
    namespace_argument,
    topic_argument,
)
from pulsarish.cli.groups import LINE_MAX
from pulsarish.cli.output import output_option, print_json, print_record, say
from pulsarish.model.errors import PulsarishError
from pulsarish.model.quorums import weak_quorum
from pulsarish.model.units import (
    UNLIMITED,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)

__all__ = ["PLACEHOLDERS", "PolicyGroup", "format_value"]

_UNIT_SECONDS: Final = {"minutes": 60, "seconds": 1}
_UNIT_BYTES: Final = {"megabytes": 1 << 20, "bytes": 1}
_PERSISTENCE: Final = "persistence"
_EXAMPLE_RESOURCE: Final = {"namespace": "acme/orders", "topic": "acme/orders/new"}
PLACEHOLDERS: Final[Mapping[str, str]] = {
    "minutes": "TIME",
    "seconds": "TIME",
    "megabytes": "SIZE",
    "bytes": "SIZE",
    "count": "NUMBER",
    "rate": "NUMBER",
    "name": "NAME",
}
"""The placeholder in help for a value that is not a choice, by the field's unit."""
_WORD: Final = re.compile(r"\w+")
_VERBS: Final = ("set", "get", "remove")

_Run = Callable[..., None]


class PolicyGroup(AdminGroup):
    """A group with three more commands for each policy of its level, which are made on demand."""

    level: ClassVar[Level]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return super().list_commands(ctx) + [
            f"{verb}-{policy.name}" for policy in policies_of(self.level) for verb in _VERBS
        ]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        verb, _, name = cmd_name.partition("-")
        policy = next((each for each in policies_of(self.level) if each.name == name), None)
        if policy is None or verb not in _VERBS:
            return None
        return {"set": _set_command, "get": _get_command, "remove": _remove_command}[verb](
            self.level, policy
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, and one line for each policy instead of one for each of its three
        commands.
        """
        with formatter.section("Commands"):
            commands = [(name, self.commands[name]) for name in super().list_commands(ctx)]
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(LINE_MAX))
                    for name, command in commands
                    if not command.hidden
                ]
            )
        with formatter.section(
            "Policies, each with the commands set-NAME, get-NAME and remove-NAME"
        ):
            formatter.write_dl([(policy.name, policy.what) for policy in policies_of(self.level)])


def _parse(text: str, field: Field) -> int | float:
    """Return a number of a policy from what people write. Raises ``ValueError`` that says how to
    write it.
    """
    match field.unit:
        case "minutes" | "seconds":
            return parse_duration(
                text, unit_seconds=_UNIT_SECONDS[field.unit], unlimited=field.unlimited
            )
        case "megabytes" | "bytes":
            return parse_size(text, unit_bytes=_UNIT_BYTES[field.unit], unlimited=field.unlimited)
        case _:
            return _number(text, field)


def _number(text: str, field: Field) -> int | float:
    if field.unlimited and text in ("unlimited", "-1"):
        return UNLIMITED
    try:
        if text.isdecimal():
            number: int | float = int(text)
        else:
            number = float(text) if field.unit == "rate" else UNLIMITED
    except ValueError:
        number = UNLIMITED
    if not field.minimum <= number < float("inf"):
        raise ValueError(
            f"{text!r} must be a number, {field.minimum} or more"
            + (", or unlimited" if field.unlimited else "")
        )
    return number


def format_value(value: Any, field: Field) -> str:
    """Return a value as people write it; a missing one is ``-``."""
    if value is None:
        return "-"
    match field.unit:
        case "minutes" | "seconds":
            return format_duration(value, unit_seconds=_UNIT_SECONDS[field.unit])
        case "megabytes" | "bytes":
            return format_size(value, unit_bytes=_UNIT_BYTES[field.unit])
        case "flag":
            return "on" if value else "off"
        case "names":
            return " ".join(value) or "-"
        case _:
            return "unlimited" if field.unlimited and value == UNLIMITED else str(value)


def _parameter(field: Field) -> Callable[[_Run], _Run]:
    """Return the argument or option that a field has on the command line."""

    def parsed(
        context: click.Context, parameter: click.Parameter, text: str | None
    ) -> int | float | None:
        try:
            return None if text is None else _parse(text, field)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    choices = ("on", "off") if field.unit == "flag" else field.choices
    attributes: dict[str, Any] = {}
    if choices:
        attributes["type"] = click.Choice(choices, case_sensitive=False)
    elif field.unit != "name":
        attributes["callback"] = parsed
    if not field.key:
        many = field.unit == "names"
        metavar = (
            "|".join(choices)
            if choices and not many
            else field.option.upper() + ("..." if many else "")
        )
        return click.argument("value", nargs=-1 if many else 1, metavar=metavar, **attributes)
    if not choices:
        attributes["metavar"] = PLACEHOLDERS[field.unit]
    no_limit = (
        f" {'forever' if field.unit in _UNIT_SECONDS else 'unlimited'} (-1): without a limit."
        if field.unlimited
        else ""
    )
    return click.option(
        f"--{field.option}",
        _name(field),
        required=field.required,
        help=field.what + no_limit,
        **attributes,
    )


def _name(field: Field) -> str:
    return field.option.replace("-", "_")


def _command(
    level: Level,
    verb: str,
    policy: Policy,
    run: _Run,
    what: str,
    parameters: Sequence[Callable[[_Run], _Run]] = (),
    arguments: str = "",
) -> click.Command:
    """Return the command of a function. ``parameters`` are its own; ``arguments`` are those of the
    example.
    """
    example = " ".join(
        [
            "pulsarish",
            f"{level}s",
            f"{verb}-{policy.name}",
            _EXAMPLE_RESOURCE[level],
            *arguments.split(),
        ]
    )
    run = admin_option(run)
    for parameter in reversed(parameters):
        run = parameter(run)
    run = namespace_argument(run) if level == NAMESPACE else topic_argument(run)
    return click.command(
        f"{verb}-{policy.name}", cls=AdminCommand, help=f"{what}\n\n\b\nExample:\n  {example}"
    )(run)


def _calls(admin: Admin, level: Level) -> PolicyCalls:
    return admin.namespaces if level == NAMESPACE else admin.topics


def _set_command(level: Level, policy: Policy) -> click.Command:
    def run(admin: Admin, **values: Any) -> None:
        try:
            _calls(admin, level).set_policy(values[level], policy.name, _sent(policy, values))
        except PulsarishError as error:
            for note in _in_options(str(error), level, policy):
                error.add_note(note)
            raise
        if policy.name == _PERSISTENCE and (
            risk := weak_quorum(int(values["write_quorum"]), int(values["ack_quorum"]))
        ):
            say(f"warning: {risk}")
        say(f"{policy.name} of {level} {values[level]} set")

    parameters = [_parameter(field) for field in policy.fields]
    arguments = [
        f"--{field.option} {field.example}" if field.key else field.example
        for field in policy.fields
        if field.example
    ]
    return _command(
        level,
        "set",
        policy,
        run,
        f"Set {policy.what}.{_note(policy)}",
        parameters,
        " ".join(arguments),
    )


def _in_options(text: str, level: Level, policy: Policy) -> list[str]:
    """Replace field names of a broker's error, which are those of the JSON, by their options."""
    words = set(_WORD.findall(text))
    own = {field.key for field in policy.fields}
    notes = [f"{field.key} is --{field.option}" for field in policy.fields if field.key in words]
    for other in policies_of(level):
        notes += [
            f"{field.key} is --{field.option} of set-{other.name}"
            for field in other.fields
            if field.key in words - own
        ]
    return notes


def _sent(policy: Policy, values: Mapping[str, Any]) -> Any:
    """Return the policy's JSON form from the command's values."""
    if policy.plain is not None:
        return _json(values["value"], policy.plain)
    given = {
        field.key: _json(values[_name(field)], field)
        for field in policy.fields
        if values[_name(field)] is not None
    }
    if not given:
        raise click.UsageError(
            f"give at least one of {', '.join(f'--{field.option}' for field in policy.fields)}"
        )
    if policy.kind_limits:
        _check_limit(policy, given)
    return given


def _check_limit(policy: Policy, given: Mapping[str, Any]) -> None:
    """Refuse a limit of a kind that the policy does not use: it would be stored and never
    applied.
    """
    fields = {field.key: field for field in policy.fields}
    kinds = fields[policy.kind]
    kind = given.get(policy.kind, kinds.choices[0])
    limit = policy.kind_limits[kinds.choices.index(kind)]
    strange = next((key for key in policy.kind_limits if key in given and key != limit), None)
    if strange is not None:
        belongs = kinds.choices[policy.kind_limits.index(strange)]
        raise click.UsageError(
            f"--{fields[strange].option} has no effect with --{kinds.option} {kind}; add "
            f"--{kinds.option} {belongs}"
        )
    if limit not in given:
        raise click.UsageError(
            f"give --{fields[limit].option}, the limit of --{kinds.option} {kind}"
        )


def _json(value: Any, field: Field) -> Any:
    match field.unit:
        case "flag":
            return value == "on"
        case "names":
            return list(value)
        case _:
            return value


_FORMS: Final = {
    "seconds": " is written as 90s, 10m, 12h or 7d.",
    "minutes": " is written as 10m, 12h or 7d.",
    "bytes": " is written as 100KB or 1MB.",
}


def _note(policy: Policy) -> str:
    """Return what the single argument means, because arguments have no line of their own in the
    help.
    """
    field = policy.plain
    if field is None or not field.what:
        return ""
    return f"\n\n{field.option.upper()}{_FORMS.get(field.unit, ':')} {field.what}"


def _get_command(level: Level, policy: Policy) -> click.Command:
    def run(admin: Admin, output: str, applied: bool = False, **values: Any) -> None:
        found = _calls(admin, level).get_policy(values[level], policy.name, applied=applied)
        if output == "json":
            print_json(found)
        elif found is None or found in ({}, []):
            say(
                f"{policy.name} is not set for {level} {values[level]}"
                + ("; --applied shows the value in force" if level == TOPIC else "")
            )
        elif policy.plain is not None:
            click.echo(format_value(found, policy.plain))
        elif policy.kind:
            print_record({kind: _shown(value, policy) for kind, value in found.items()}, output)
        else:
            print_record(_shown(found, policy), output)

    applied = click.option(
        "--applied", is_flag=True, help="Show the value in force, from any level."
    )
    return _command(
        level,
        "get",
        policy,
        run,
        f"Show {policy.what}.",
        [*([applied] if level == TOPIC else []), output_option],
    )


def _shown(value: dict[str, Any], policy: Policy) -> dict[str, str]:
    return {
        field.option: format_value(value[field.key], field)
        for field in policy.fields
        if field.key in value
    }


def _remove_command(level: Level, policy: Policy) -> click.Command:
    def run(admin: Admin, **values: Any) -> None:
        kind = values.get("type") or ""
        _calls(admin, level).remove_policy(values[level], policy.name, kind=kind)
        which = f" ({kind or kinds.choices[0]})" if kinds is not None else ""
        say(f"{policy.name}{which} of {level} {values[level]} removed")

    kinds = next(
        (field for field in policy.fields if policy.kind and field.key == policy.kind), None
    )
    source = "the broker's configuration" if level == NAMESPACE else "the policy of its namespace"
    what = f"Remove the policy of {policy.what}: {source} applies again."
    return _command(
        level, "remove", policy, run, what, [_parameter(kinds)] if kinds is not None else []
    )
