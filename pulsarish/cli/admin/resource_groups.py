"""``pulsarish resourcegroups``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import (
    AdminGroup,
    admin_option,
    confirm,
    page_options,
    print_names,
    yes_option,
)
from pulsarish.cli.output import output_option, print_json, print_record, say
from pulsarish.model.units import UNLIMITED, format_size, parse_size

__all__ = ["resource_groups"]


@click.group(cls=AdminGroup)
def resource_groups() -> None:
    """Resource groups: namespaces and topics that share rates, on all brokers together.

    \b
    Examples:
      pulsarish resourcegroups create gold --publish-messages 10000 --publish-bytes 20MB
      pulsarish resourcegroups get gold
    """


def _count(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    if text in ("unlimited", str(UNLIMITED)):
        return UNLIMITED
    raise click.BadParameter(f"{text!r} must be a number of 1 or more, or unlimited")


def _size(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else parse_size(text, unit_bytes=1, unlimited=True)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_LIMITS: Final = {
    "publish-messages": ("publishRateInMsgs", "Messages that are published in a second."),
    "publish-bytes": ("publishRateInBytes", "Bytes that are published in a second."),
    "dispatch-messages": ("dispatchRateInMsgs", "Messages that are delivered in a second."),
    "dispatch-bytes": ("dispatchRateInBytes", "Bytes that are delivered in a second."),
}


def _limit_options(run: Callable[..., None]) -> Callable[..., None]:
    for name, (_, meaning) in reversed(_LIMITS.items()):
        is_size = name.endswith("bytes")
        run = click.option(
            f"--{name}",
            metavar="SIZE" if is_size else "NUMBER",
            callback=_size if is_size else _count,
            help=f"{meaning} unlimited, -1 or 0: no limit.",
        )(run)
    return run


def _given(limits: Mapping[str, int | None]) -> None:
    if all(value is None for value in limits.values()):
        raise click.UsageError(f"give at least one of {', '.join(f'--{each}' for each in _LIMITS)}")


@resource_groups.command("create")
@click.argument("group")
@_limit_options
@admin_option
def create(group: str, admin: Admin, **limits: int | None) -> None:
    """Create a resource group, or change limits of one. What all its topics take and deliver
    together, on all brokers, stays within the limits.

    \b
    Example:
      pulsarish resourcegroups create gold --publish-messages 10000 --dispatch-bytes 50MB
    """
    _given(limits)
    admin.resource_groups.set(group, **limits)
    say(
        f"resource group {group} has these limits; put a namespace or a topic into it with "
        "set-resource-group"
    )


@resource_groups.command("update")
@click.argument("group")
@_limit_options
@admin_option
def update(group: str, admin: Admin, **limits: int | None) -> None:
    """Change limits of a resource group. What is left out stays as it is.

    \b
    Example:
      pulsarish resourcegroups update gold --publish-messages unlimited
    """
    _given(limits)
    _ = admin.resource_groups.get(group)
    admin.resource_groups.set(group, **limits)
    say(f"resource group {group} updated")


@resource_groups.command("get")
@click.argument("group")
@admin_option
@output_option
def get(group: str, admin: Admin, output: str) -> None:
    """Show the limits of a resource group, in a second.

    \b
    Example:
      pulsarish resourcegroups get gold
    """
    found = admin.resource_groups.get(group)
    if output == "json":
        print_json(found)
        return
    print_record({name: _shown(name, found[key]) for name, (key, _) in _LIMITS.items()}, output)


def _shown(name: str, limit: int) -> str:
    if limit <= 0:
        return "unlimited"
    return format_size(limit, unit_bytes=1) if name.endswith("bytes") else str(limit)


@resource_groups.command("list")
@page_options
@admin_option
@output_option
def list_groups(after: str, limit: int | None, admin: Admin, output: str) -> None:
    """List the resource groups.

    \b
    Example:
      pulsarish resourcegroups list
    """
    print_names(admin.resource_groups.list(after=after, limit=limit), "group", output)


@resource_groups.command("delete")
@click.argument("group")
@yes_option
@admin_option
def delete(group: str, yes: bool, admin: Admin) -> None:
    """Delete a resource group that no namespace and no topic is in.

    \b
    Example:
      pulsarish resourcegroups delete gold
    """
    confirm(f"Delete resource group {group}?", yes=yes)
    admin.resource_groups.delete(group)
    say(f"resource group {group} deleted")
