"""The command line in this process: as from the shell, with errors and exit status, and without a
terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import click
from click.testing import CliRunner, Result

from pulsarish.cli.main import main

__all__ = ["run_command"]


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def _shell(arguments: tuple[str, ...]) -> None:
    sys.argv[1:] = arguments
    main()


def run_command(environment: Mapping[str, str], *arguments: str) -> Result:
    before = list(sys.argv)
    try:
        return CliRunner(env=dict(environment)).invoke(_shell, arguments)
    finally:
        sys.argv[:] = before
