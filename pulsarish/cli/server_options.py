"""The options of the commands that run a server: of its configuration, and how many processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
import msgspec

from pulsarish.local_cluster.ports import PORT_STEP
from pulsarish.runtime.config import load, print_config

__all__ = ["config_options", "group_options", "load_config", "processes_option"]

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=msgspec.Struct)

ENVIRONMENT_PREFIXES: Final = {
    role: f"PULSARISH_{role.upper()}__"
    for role in ("metadata", "zookeeper", "bookie", "broker", "autorecovery", "proxy")
}


def config_options(command: F) -> F:
    for option in (
        click.option(
            "--print-config",
            is_flag=True,
            help="Print every option with its default and meaning, and exit.",
        ),
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="KEY=VALUE",
            help="Set an option; repeatable.",
        ),
        click.option(
            "--config",
            "toml_path",
            type=click.Path(dir_okay=False),
            metavar="FILE",
            help="A TOML file with options.",
        ),
    ):
        command = option(command)
    return command


def load_config(
    cls: type[C], role: str, toml_path: str | None, overrides: tuple[str, ...], *, show: bool
) -> C:
    """Return the configuration from file, environment and flags. End the program when only its
    options were requested.
    """
    if show:
        click.echo(print_config(cls))
        raise SystemExit(0)
    return load(
        cls,
        toml_path=toml_path,
        environ=os.environ,
        prefix=ENVIRONMENT_PREFIXES[role],
        overrides=overrides,
    )


_PROCESSES_MAX: Final = 64


class _ProcessCount(click.ParamType[int]):
    """A number of processes, of which 0 and ``auto`` mean one for each core."""

    name = "processes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if str(value) in ("0", "auto"):
            from pulsarish.runtime.usage import cores

            return min(cores(), _PROCESSES_MAX)
        if not str(value).isdecimal() or int(value) > _PROCESSES_MAX:
            text = f"{value!r} is neither auto nor a number of 0 to {_PROCESSES_MAX}"
            self.fail(text, param, ctx)
        return int(value)


def processes_option(name: str, what: str) -> Callable[[F], F]:
    """Return an option with a number of processes. ``what``: the beginning of its help."""
    return click.option(
        name,
        type=_ProcessCount(),
        default="1",
        show_default=True,
        metavar="N",
        help=f"{what}; 0 or auto: one for each core.",
    )


def group_options(command: F) -> F:
    """Give a command the options to run several processes."""
    for option in (
        click.option("--in-group", is_flag=True, hidden=True),
        click.option(
            "--port-step",
            type=click.IntRange(1, 10_000),
            default=PORT_STEP,
            show_default=True,
            help="What the ports of one process are beyond those of the process before it.",
        ),
        processes_option(
            "--processes",
            "Run this many processes, each with an id, ports and a core of its own",
        ),
    ):
        command = option(command)
    return command
