"""The commands of ``pulsarish namespaces`` for the capture of non-persistent topics."""

from __future__ import annotations

from typing import Final, get_args

import click

from pulsarish.admin import Admin
from pulsarish.cli.admin.common import admin_option, namespace_argument
from pulsarish.cli.output import output_option, print_record, print_table, say
from pulsarish.model.policy_words import CaptureAcknowledged, CaptureWhenFull
from pulsarish.model.topic_name import TopicName
from pulsarish.model.units import parse_size

__all__ = ["NAMESPACE_CAPTURE_COMMANDS"]

_COLUMNS: Final = (
    "rule",
    "pattern",
    "syntax",
    "into",
    "acknowledged",
    "whenFull",
    "pendingMaxBytes",
)


def _size(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("captures")
@namespace_argument
@admin_option
@output_option
def captures(namespace: str, admin: Admin, output: str) -> None:
    """List which non-persistent topics are captured into persistent ones.

    \b
    Example:
      pulsarish namespaces captures acme/live
    """
    rows = [
        {"rule": name, **rule}
        for name, rule in sorted(admin.namespaces.captures(namespace).items())
    ]
    print_table(rows, _COLUMNS, output)


@click.command("get-capture")
@namespace_argument
@click.argument("rule")
@admin_option
@output_option
def get_capture(namespace: str, rule: str, admin: Admin, output: str) -> None:
    """Show a rule of capture.

    \b
    Example:
      pulsarish namespaces get-capture acme/live temperatures
    """
    print_record(admin.namespaces.capture(namespace, rule), output)


@click.command("set-capture")
@namespace_argument
@click.option(
    "--pattern",
    required=True,
    metavar="PATTERN",
    help="What topics' names match after the namespace: * is one token between dots, > the rest.",
)
@click.option("--regex", is_flag=True, help="PATTERN is a regular expression (RE2).")
@click.option("--into", required=True, metavar="TOPIC", help="The persistent topic, in full.")
@click.option(
    "--name", "rule", default="", metavar="RULE", help="Name of the rule; default: that of TOPIC."
)
@click.option(
    "--acknowledged",
    type=click.Choice(get_args(CaptureAcknowledged)),
    default="received",
    show_default=True,
    help="When publishers get their receipts; stored: once the persistent topic has the message.",
)
@click.option(
    "--when-full",
    type=click.Choice(get_args(CaptureWhenFull)),
    default="pause",
    show_default=True,
    help="Pause publishers while too much waits to be stored, or drop it.",
)
@click.option(
    "--pending-max",
    default=None,
    callback=_size,
    metavar="SIZE",
    help="How much may wait on each broker, such as 32MB (default: 8MB).",
)
@admin_option
def set_capture(
    namespace: str,
    pattern: str,
    regex: bool,
    into: str,
    rule: str,
    acknowledged: CaptureAcknowledged,
    when_full: CaptureWhenFull,
    pending_max: int | None,
    admin: Admin,
) -> None:
    """Store what is published to non-persistent topics in a persistent topic, too. Creates or
    replaces a rule.

    Subscriptions of the persistent topic keep their positions; those of the other topics get
    messages as before. Who sets a rule needs the right to publish to the persistent topic.

    \b
    Examples:
      pulsarish namespaces set-capture acme/live --pattern 'a.*.b' --into persistent://acme/live/b
      pulsarish namespaces set-capture a/b --regex --pattern '.*' --into persistent://a/b/all
    """
    name = rule or TopicName.parse(into).local
    admin.namespaces.set_capture(
        namespace,
        name,
        pattern,
        into,
        syntax="regex" if regex else "wildcard",
        acknowledged=acknowledged,
        when_full=when_full,
        pending_bytes_max=pending_max,
    )
    say(f"rule {name} of {namespace} captures {pattern} into {into}")


@click.command("remove-capture")
@namespace_argument
@click.argument("rule")
@admin_option
def remove_capture(namespace: str, rule: str, admin: Admin) -> None:
    """Remove a rule of capture. What is stored stays; what waits to be stored is dropped.

    \b
    Example:
      pulsarish namespaces remove-capture acme/live temperatures
    """
    admin.namespaces.remove_capture(namespace, rule)
    say(f"rule {rule} of {namespace} removed")


NAMESPACE_CAPTURE_COMMANDS: Final = (captures, get_capture, set_capture, remove_capture)
