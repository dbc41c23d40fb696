"""The options with which commands reach bookies that want a cluster key or TLS."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

if TYPE_CHECKING:
    from pulsarish.runtime.seams import Clock
    from pulsarish.security.credentials import CredentialsSource
    from pulsarish.security.tls import TlsClientConfig

__all__ = ["NO_BOOKIE_FILES", "BookieFiles", "bookie_options"]

F = TypeVar("F", bound=Callable[..., Any])

_TRUST, _CERTIFICATE, _KEY = (
    "--bookie-trust-certs-file",
    "--bookie-certificate-file",
    "--bookie-key-file",
)
_OPTIONS: Final = {
    "cluster_key_file": (
        "--cluster-key-file",
        "The cluster_key_file of the bookies, where they have one.",
    ),
    "trust_file": (
        _TRUST,
        "Authorities of the bookies' certificates, PEM, where they speak TLS.",
    ),
    "certificate_file": (
        _CERTIFICATE,
        "Certificate of an operator, PEM, where bookies ask for one.",
    ),
    "key_file": (_KEY, f"The key of {_CERTIFICATE}, PEM."),
}


@dataclass(frozen=True, slots=True)
class BookieFiles:
    """Files with what an operator shows to bookies. Empty texts: nothing."""

    cluster_key_file: str = ""
    trust_file: str = ""
    certificate_file: str = ""
    key_file: str = ""

    @property
    def credentials(self) -> Callable[[Clock], CredentialsSource]:
        """What makes an operator's credentials; it raises ``ConfigError`` for the key."""
        from pulsarish.runtime.cluster_members import member_credentials

        return member_credentials(self.cluster_key_file, "operator")

    def tls(self) -> TlsClientConfig | None:
        """Return the TLS of connections to bookies; ``None``: they are plain."""
        from pulsarish.security.tls import TlsClientConfig, TlsOptions

        if not (self.trust_file or self.certificate_file):
            return None
        return TlsClientConfig(
            self.trust_file,
            self.certificate_file,
            self.key_file,
            options=TlsOptions(certificate=_CERTIFICATE, key=_KEY, trust=_TRUST),
        )


NO_BOOKIE_FILES: Final = BookieFiles()


def bookie_options(command: F) -> F:
    """Add the options. The command gets them as ``bookies``, a ``BookieFiles``."""

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        bookies = BookieFiles(**{name: given.pop(name) for name in _OPTIONS})
        if bool(bookies.certificate_file) != bool(bookies.key_file):
            raise click.UsageError(f"{_CERTIFICATE} and {_KEY} go together")
        return command(**given, bookies=bookies)

    for name, (option, meaning) in reversed(_OPTIONS.items()):
        variable = "PULSARISH_" + option.strip("-").replace("-", "_").upper()
        run = click.option(option, name, metavar="FILE", envvar=variable, default="", help=meaning)(
            run
        )
    return cast(F, run)
