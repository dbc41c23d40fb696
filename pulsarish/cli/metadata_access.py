"""The options with which commands log in to metadata servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from pulsarish.metadata.access import NO_ACCESS, MetadataAccess
from pulsarish.security.tls import TlsClientConfig, TlsOptions

__all__ = ["access_options", "chosen_access"]

C = TypeVar("C", bound=Callable[..., Any])

_CHOSEN: Final = "pulsarish.metadata-access"
_AUTH, _TRUST, _CERTIFICATE, _KEY = (
    "--metadata-auth-file",
    "--metadata-trust-certs-file",
    "--metadata-cert-file",
    "--metadata-key-file",
)
_OPTIONS: Final = (
    (_AUTH, "Log in to the metadata servers with the user:password of this file."),
    (_TRUST, "The authorities that metadata servers with TLS (zk+ssl://) are checked with."),
    (_CERTIFICATE, "The certificate to show to them."),
    (_KEY, "The key of that certificate."),
)


def access_options(command: C) -> C:
    """Add the options. ``chosen_access`` returns what was given."""
    for name, meaning in reversed(_OPTIONS):
        command = click.option(
            name,
            type=click.Path(dir_okay=False),
            envvar="PULSARISH_" + name.strip("-").replace("-", "_").upper(),
            show_envvar=True,
            expose_value=False,
            callback=_keep,
            help=meaning,
        )(command)
    return command


def _keep(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value:
        context.meta.setdefault(_CHOSEN, {})[option.opts[0]] = value


def chosen_access() -> MetadataAccess:
    """Return the access that the options of the running command give."""
    given: dict[str, str] = click.get_current_context().meta.get(_CHOSEN, {})
    if not given:
        return NO_ACCESS
    trust, certificate, key = (given.get(name, "") for name in (_TRUST, _CERTIFICATE, _KEY))
    return MetadataAccess(
        given.get(_AUTH, ""),
        auth_option=_AUTH,
        tls=TlsClientConfig(
            trust, certificate, key, options=TlsOptions(_CERTIFICATE, _KEY, _TRUST)
        ),
        is_tls_set=bool(trust or certificate or key),
    )
