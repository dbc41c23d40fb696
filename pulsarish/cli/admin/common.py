"""What the commands of the administration share: options and arguments, the question before data
are lost, lists of names.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from pulsarish.admin import Admin
from pulsarish.cli import values
from pulsarish.cli.admin import complete
from pulsarish.cli.admin.teach import add_hints
from pulsarish.cli.connections import ADMIN_URL, connection_arguments, url_of_profile
from pulsarish.cli.groups import Group
from pulsarish.cli.output import print_table, say
from pulsarish.cli.progress import Progress
from pulsarish.model.errors import (
    InvalidConfiguration,
    NotFound,
    PulsarishError,
    ServiceNotReady,
    Timeout,
)

__all__ = [
    "AdminCommand",
    "AdminGroup",
    "admin_option",
    "confirm",
    "finish",
    "hinting_when_unavailable",
    "namespace_argument",
    "namespace_default",
    "page_options",
    "precise_option",
    "print_names",
    "property_option",
    "subscription_argument",
    "tenant_argument",
    "topic_argument",
    "until_followed",
    "warn_if_unchecked",
    "yes_option",
]

F = TypeVar("F", bound=Callable[..., Any])

_ATTEMPTS_MAX: Final = 40
"""Of 30 s each: 20 minutes."""
_LOOK_SECONDS: Final = 0.5
_FOLLOW_SECONDS: Final = 10.0


class AdminCommand(click.Command):
    """A command whose errors say what to do next."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PulsarishError as error:
            add_hints(error, ctx.params)
            raise


class AdminGroup(Group):
    command_class = AdminCommand


def _admin(context: click.Context, parameter: click.Parameter, url: str) -> Admin:
    url = url_of_profile(context, parameter, url)
    arguments = connection_arguments(url, context)
    try:
        return Admin(url, **arguments)
    except InvalidConfiguration as error:
        raise click.BadParameter(str(error)) from None


@contextmanager
def hinting_when_unavailable(hint: str) -> Iterator[None]:
    """Add a hint to the error of a broker, or of its metadata, that cannot answer now."""
    try:
        yield
    except (ServiceNotReady, Timeout) as error:
        error.add_note(hint)
        raise


def admin_option(command: F) -> F:
    """Add ``--admin-url``. The command gets the client as ``admin``, ready for use."""
    return click.option(
        "--admin-url",
        "admin",
        callback=_admin,
        metavar="URL",
        envvar="PULSARISH_ADMIN_URL",
        default=ADMIN_URL,
        show_default=True,
        help="HTTP address of any broker; separate several by commas.",
    )(command)


yes_option: Final = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")

tenant_argument: Final = click.argument("tenant", shell_complete=complete.tenants)
namespace_argument: Final = click.argument("namespace", shell_complete=complete.namespaces)
namespace_default: Final = click.argument(
    "namespace", default="public/default", shell_complete=complete.namespaces
)
topic_argument: Final = click.argument("topic", shell_complete=complete.topics)
subscription_argument: Final = click.argument("subscription", shell_complete=complete.subscriptions)
precise_option: Final = click.option(
    "--get-precise-backlog",
    "precise",
    is_flag=True,
    help="Have the broker read what it lacks to know the number of messages exactly.",
)


def page_options(command: F) -> F:
    """Add ``--after`` and ``--limit``. The command gets them as ``after`` and ``limit``."""
    limit = click.option(
        "-n",
        "--limit",
        type=click.IntRange(1, 100_000),
        help="Maximum number of items; default: all.",
    )
    return click.option(
        "--after",
        default="",
        metavar="NAME",
        help="Only items after this one: the last item of the previous page.",
    )(limit(command))


def property_option(help_text: str) -> Callable[[F], F]:
    """Add a repeatable ``--property NAME=VALUE``. The command gets the record ``properties``."""
    return click.option(
        "-p",
        "--property",
        "properties",
        multiple=True,
        metavar="NAME=VALUE",
        callback=values.properties,
        help=help_text,
    )


def finish(
    label: str,
    work: Callable[[], None],
    *,
    total: int | None = None,
    measure: Callable[[], int] | None = None,
) -> None:
    """Do work that may take a broker longer than one request: repeat the request, which continues
    where it stopped.

    ``total`` and ``measure`` are those of ``Progress``. Raises what ``work`` raises; ``Timeout``
    when it is still not done.
    """
    with Progress(label, total=total, measure=measure):
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            try:
                work()
            except Timeout:
                if attempt == _ATTEMPTS_MAX:
                    raise
            except NotFound:
                if attempt == 1:
                    raise
                return  # the earlier attempt was finished after all
            else:
                return


def warn_if_unchecked(admin: Admin) -> None:
    """Say that what was stored has no effect, when brokers do not check permissions."""
    try:
        if admin.authorization.is_enabled():
            return
    except (PulsarishError, KeyError):
        # The change is made. A broker that does not say whether it checks leaves it at that.
        return
    say(
        "warning: authorization is off (authorization_enabled is false): this was stored, and "
        "every client has every permission until it is switched on"
    )


def confirm(question: str, *, yes: bool) -> None:
    """Ask a person at a terminal. In a script the command itself is the answer, and it waits for no
    input.
    """
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if not click.confirm(question, err=True):
        say("nothing was done")
        raise SystemExit(1)


def print_names(names: Sequence[object], title: str, output: str) -> None:
    print_table([{title: name} for name in names], [title], output)


def until_followed(
    state: dict[str, Any],
    is_done: Callable[[dict[str, Any]], bool],
    look: Callable[[str], dict[str, Any]],
) -> dict[str, Any]:
    """Wait, at most 10 seconds, until a bookie that runs has followed a request.

    Args:
        state: the answer to the request.
        look: returns the state now of an instance id.

    Returns the state as last seen.
    """
    deadline = time.monotonic() + _FOLLOW_SECONDS
    while state["alive"] and not is_done(state) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        state = look(state["instanceId"])
    return state
