"""``pulsarish passwords``: users of basic authentication."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pulsarish.cli.groups import Group
from pulsarish.cli.output import print_line, say
from pulsarish.cli.secret_files import read_stdin, write_file

__all__ = ["passwords"]


@click.group(cls=Group)
def passwords() -> None:
    """Make the file of users that basic_auth_conf names.

    \b
    Example:
      pulsarish passwords hash ann --file users.htpasswd
    """


@passwords.command("hash")
@click.argument("user")
@click.option(
    "--cost",
    type=click.IntRange(4, 14),
    default=10,
    show_default=True,
    help="Work of each check: 10 takes about 0.05 s, and each step more doubles it.",
)
@click.option(
    "--file",
    "path",
    metavar="FILE",
    help="Put the user into this file, or replace the user's line in it; only you may read it.",
)
def hash_password(user: str, cost: int, path: str | None) -> None:
    """Print the line of USER for basic_auth_conf, with the hash (bcrypt) of a password.

    At a terminal it asks for the password, elsewhere it reads one line from stdin. Brokers read a
    changed file again within a second.

    \b
    Examples:
      pulsarish passwords hash ann --file users.htpasswd
      pulsarish passwords hash ann < password.txt >> users.htpasswd
    """
    import bcrypt

    from pulsarish.security.basic_provider import password_fault
    from pulsarish.security.roles import role_fault

    fault = role_fault(user) or ("has a colon, which ends the name in the file" * (":" in user))
    if fault:
        raise click.UsageError(f"the user's name {fault}")
    password = _read_password()
    if fault := password_fault(password):
        raise click.UsageError(f"the password {fault}")
    line = f"{user}:{bcrypt.hashpw(password, bcrypt.gensalt(cost)).decode()}"
    if path is None:
        print_line(line)
    else:
        _put(path, user, line)
        say(f"the user {user} is in {path}")


def _read_password() -> bytes:
    if sys.stdin.isatty():
        prompted: str = click.prompt(
            "password", hide_input=True, confirmation_prompt="again", err=True
        )
        return prompted.encode()
    content = read_stdin().removesuffix(b"\n").removesuffix(b"\r")
    if b"\n" in content:
        raise click.UsageError("stdin has several lines; a password is one line")
    return content


def _put(path: str, user: str, line: str) -> None:
    from pulsarish.security.basic_provider import parse_users

    file = Path(path)
    lines = file.read_text().splitlines() if file.exists() else []
    kept = [each for each in lines if each.partition(":")[0].strip() != user]
    content = ("\n".join([*kept, line]) + "\n").encode()
    # A line that brokers would refuse is reported now, not at their next start.
    parse_users(content, path)
    write_file(path, content, force=True)
