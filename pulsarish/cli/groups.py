"""Groups of commands that suggest what the user may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import ClassVar, Final

import click

__all__ = ["LINE_MAX", "Group"]

LINE_MAX: Final = 200
"""Characters of a command's line in its group's help, which wraps it: no first sentence is cut
off.
"""


class Group(click.Group):
    """A group that knows other names of its commands.

    ``words`` has them: for ``create-partitioned-topic`` the error names the command to use.
    """

    words: ClassVar[Mapping[str, str]] = {}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        raise click.UsageError(f"No such command {name!r}. {self._hint(ctx, name)}", ctx=ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, each.get_short_help_str(LINE_MAX))
                    for name, each in commands
                    if each is not None and not each.hidden
                ]
            )

    def _hint(self, ctx: click.Context, name: str) -> str:
        if name in self.words:
            return f"Use instead: {self.words[name]}"
        near = difflib.get_close_matches(name, self.list_commands(ctx), 3)
        if near:
            return f"Did you mean {' or '.join(near)}?"
        return f"See: {ctx.command_path} --help"
