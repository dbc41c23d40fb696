"""How commands reach a cluster, and as whom: the options before the command, the environment, and
the profile in use, in this order.

Every command imports this module, for the options before the command, so it imports what reads
profiles only when it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from pulsarish.cli.output import say
from pulsarish.model.errors import InvalidArgument

if TYPE_CHECKING:
    import pulsarish
    from pulsarish.admin import Admin
    from pulsarish.runtime.profiles import Profile

__all__ = [
    "ADMIN_URL",
    "SERVICE_URL",
    "admin_url_option",
    "connected_admin",
    "connected_client",
    "connection_arguments",
    "connection_profile",
    "security_options",
    "token_reference",
    "url_of_profile",
    "url_option",
]

F = TypeVar("F", bound=Callable[..., Any])

ADMIN_URL: Final = "http://127.0.0.1:8080"
SERVICE_URL: Final = "pulsarish://127.0.0.1:6660"

_OPTIONS: Final = (
    ("--profile", "NAME", "PULSARISH_PROFILE", "Profile to use; see 'pulsarish profiles'."),
    (
        "--auth-plugin",
        "NAME",
        "PULSARISH_AUTH_PLUGIN",
        "How to authenticate: token, basic, tls, oauth2, or the name of Apache Pulsar's class.",
    ),
    (
        "--auth-params",
        "TEXT",
        "PULSARISH_AUTH_PARAMS",
        (
            "Parameters of --auth-plugin: name:value,name2:value2 or JSON, with references to "
            "secrets: token:file:///path."
        ),
    ),
    (
        "--token-file",
        "FILE",
        "PULSARISH_TOKEN_FILE",
        "File with a token, instead of --auth-plugin token --auth-params token:file:///path.",
    ),
    (
        "--trust-certs-file",
        "FILE",
        "PULSARISH_TRUST_CERTS_FILE",
        "Authorities of the servers' certificates, PEM; default: those of the system.",
    ),
)
_LOOPBACK: Final = {"localhost", "127.0.0.1", "::1"}
_NAMES: Final = tuple(option[2:].replace("-", "_") for option, *_ in _OPTIONS)


def security_options(command: F) -> F:
    """Add the options that stand before the command."""
    for option, metavar, variable, text in reversed(_OPTIONS):
        command = click.option(option, metavar=metavar, envvar=variable, help=text)(command)
    return command


def url_of_profile(context: click.Context, parameter: click.Parameter, url: str) -> str:
    """Return the profile's URL instead of the default of ``--url`` or ``--admin-url``."""
    assert parameter.name is not None
    if context.get_parameter_source(parameter.name) is not ParameterSource.DEFAULT:
        return url
    _, profile = _given(context).profile()
    return (profile.admin_url if "--admin-url" in parameter.opts else profile.url) or url


def url_option(command: F) -> F:
    """Add ``--url``, whose default is the profile's."""
    return click.option(
        "--url",
        envvar="PULSARISH_URL",
        default=SERVICE_URL,
        show_default=True,
        callback=url_of_profile,
        help="gRPC address of any broker; separate several by commas.",
    )(command)


def admin_url_option(command: F) -> F:
    """Add ``--admin-url``, whose default is the profile's."""
    return click.option(
        "--admin-url",
        envvar="PULSARISH_ADMIN_URL",
        default=ADMIN_URL,
        show_default=True,
        callback=url_of_profile,
        help="HTTP address of any broker; separate several by commas.",
    )(command)


def connected_client(url: str, **options: Any) -> pulsarish.Client:
    """Return a client with the credentials and trust of the command that runs.

    Args:
        options: other arguments of the client.
    """
    import pulsarish

    return pulsarish.Client(url, **connection_arguments(url), **options)


def connected_admin(url: str, context: click.Context | None = None) -> Admin:
    """Return an admin client with the credentials and trust of the command that runs.

    Args:
        context: the command's, where shells ask for names and no command runs.
    """
    from pulsarish.admin import Admin

    return Admin(url, **connection_arguments(url, context))


@dataclass(frozen=True, slots=True)
class _Given:
    """The options before the command, or their variables. ``None``: not given."""

    values: dict[str, str | None]
    in_arguments: frozenset[str]
    """Those that other users can see in the list of processes."""

    def profile(self) -> tuple[str, Profile]:
        from pulsarish.runtime.profiles import find_profile

        return find_profile(self.values["profile"])


def _given(context: click.Context) -> _Given:
    root = context.find_root()
    # A command that runs alone, without the options before it, has the environment.
    values = {
        name: root.params[name] if name in root.params else os.environ.get(variable)
        for name, (_, _, variable, _) in zip(_NAMES, _OPTIONS, strict=True)
    }
    return _Given(
        values,
        frozenset(
            name
            for name in _NAMES
            if name in root.params
            and root.get_parameter_source(name) is ParameterSource.COMMANDLINE
        ),
    )


def connection_profile(url: str, context: click.Context | None = None) -> Profile:
    """Return who uses a cluster at this URL: the profile in use, if it is for the URL, with what is
    given for this command.

    Raises the errors of ``find_profile``, ``InvalidArgument``.
    """
    from pulsarish.runtime.profiles import Profile

    context = context or click.get_current_context()
    warn = _silent if context.resilient_parsing else say
    given = _given(context)
    name, profile = given.profile()
    if name and not _is_for(profile, url):
        warn(f"profile {name} is not used: its addresses are others than {url}")
        profile = Profile()
    return _overridden(profile, given.values)


def connection_arguments(url: str, context: click.Context | None = None) -> dict[str, Any]:
    """Return the arguments about security that a client for this URL takes.

    Raises the errors of ``connection_profile`` and of ``Profile.arguments``.
    """
    context = context or click.get_current_context()
    warn = _silent if context.resilient_parsing else say
    given = _given(context)
    found = connection_profile(url, context).arguments(url)
    if "trust_certs_file" in given.in_arguments:
        # Also for a URL without TLS, which the client refuses then.
        found["tls_trust_certs_file_path"] = given.values["trust_certs_file"]
    authentication = found.get("authentication")
    if authentication is not None:
        if "auth_params" in given.in_arguments and authentication.provider.holds_secret:
            warn(
                "warning: other users of this machine can see the secret in --auth-params; refer "
                "to it instead: token:file:///path"
            )
        if not _is_protected(url):
            warn(f"warning: credentials are sent to {url} without TLS, readable on the way")
    return found


def token_reference(path: str) -> str:
    """Return the reference to a file, by its absolute path."""
    from urllib.parse import quote

    return "file://" + quote(os.path.abspath(path))


def _overridden(profile: Profile, values: dict[str, str | None]) -> Profile:
    """Return the profile with what is given for this command. Raises ``InvalidArgument``."""
    plugin, parameters, token_file = (
        values[name] for name in ("auth_plugin", "auth_params", "token_file")
    )
    if token_file is not None:
        if plugin is not None or parameters is not None:
            raise InvalidArgument(
                "--token-file (PULSARISH_TOKEN_FILE) and --auth-plugin or --auth-params "
                "(PULSARISH_AUTH_PLUGIN, PULSARISH_AUTH_PARAMS) are both given: give one"
            )
        plugin, parameters = "token", "token:" + token_reference(token_file)
    if plugin is not None or parameters is not None:
        profile = replace(profile, auth_plugin=plugin or "", auth_params=parameters or "")
    if values["trust_certs_file"]:
        profile = replace(profile, tls_trust_certs_file_path=values["trust_certs_file"])
    return profile


def _hosts(url: str) -> set[str]:
    """Return the hosts of a URL, which may name several."""
    from urllib.parse import urlsplit

    rest = url.partition("://")[2] or url
    try:
        return {urlsplit(f"//{part.strip()}").hostname or "" for part in rest.split(",")}
    except ValueError:
        return set()  # the client refuses such a URL


def _is_for(profile: Profile, url: str) -> bool:
    """Whether the credentials of a profile may go to this URL: it names one of its hosts, and uses
    TLS where the profile does.

    A profile without a URL is for every cluster.
    """
    from pulsarish.runtime.profiles import is_tls_url

    known = [each for each in (profile.url, profile.admin_url) if each]
    return not known or any(
        _hosts(url) & _hosts(each) and (is_tls_url(url) or not is_tls_url(each)) for each in known
    )


def _is_protected(url: str) -> bool:
    """Whether no other machine can read what is sent to this URL."""
    from pulsarish.runtime.profiles import is_tls_url

    return is_tls_url(url) or _hosts(url) <= _LOOPBACK


def _silent(_text: str) -> None:
    """Say nothing: a shell asks for names to complete."""
