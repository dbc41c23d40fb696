"""``pulsarish completion``: the script with which a shell completes commands, options, and names of
the cluster.
"""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]

_BASH_TAKES: Final = "COMPREPLY+=($value)"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script with which SHELL completes commands, options, and names of tenants,
    namespaces, topics and subscriptions.

    The script asks the broker at --admin-url (PULSARISH_ADMIN_URL) for names, and waits at most
    half a second.

    \b
    Examples, for this shell, for every new one of bash, and for fish:
      eval "$(pulsarish completion bash)"
      pulsarish completion bash >> ~/.bashrc
      pulsarish completion fish > ~/.config/fish/completions/pulsarish.fish
    """
    root = click.get_current_context().find_root()
    found = get_completion_class(shell)
    assert found is not None
    script = found(root.command, {}, "pulsarish", "_PULSARISH_COMPLETE").source()
    # A name that ends in a slash continues: bash would put a space after it.
    click.echo(
        script.replace(
            _BASH_TAKES, f"{_BASH_TAKES}\n            [[ $value == */ ]] && compopt -o nospace"
        )
    )
