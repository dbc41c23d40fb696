"""The options of TLS that processes share, and what listeners and clients get of them."""

from __future__ import annotations

from typing import Annotated, Final, Protocol

from msgspec import Meta

from pulsarish.model.errors import ConfigError
from pulsarish.security.tls import (
    ClientCertificate,
    TlsClientConfig,
    TlsOptions,
    TlsServerConfig,
)

__all__ = [
    "BROKER_CLIENT_OPTIONS",
    "ClientCertificateFile",
    "ClientKeyFile",
    "ClientTrustFile",
    "HasCertificates",
    "HasMemberOptions",
    "HasTlsOptions",
    "HttpAddressTls",
    "TlsAllowedRoles",
    "TlsCertificateFile",
    "TlsClusterName",
    "TlsKeyFile",
    "TlsRequiresClientCertificate",
    "TlsTrustFile",
    "check_member_options",
    "check_tls_address",
    "check_tls_options",
    "tls_of_client",
    "tls_of_server",
]

TlsCertificateFile = Annotated[
    str,
    Meta(
        description=(
            "The certificate of this process in PEM form, then those that lead to its authority; "
            "empty: no TLS. It is read again when it changes, as the key and the authorities are."
        )
    ),
]
TlsKeyFile = Annotated[str, Meta(description="The key of that certificate, in PEM form.")]
TlsTrustFile = Annotated[
    str,
    Meta(
        description=(
            "The authorities that certificates of clients and of other processes are checked with, "
            "in PEM form; empty: those of the system for other processes, none for clients."
        )
    ),
]
TlsRequiresClientCertificate = Annotated[
    bool,
    Meta(
        description=(
            "Refuse clients without a certificate of these authorities. Otherwise one is asked "
            "for where the authorities are given, but not by gRPC ports."
        )
    ),
]
HttpAddressTls = Annotated[
    str,
    Meta(
        description=(
            "host:port of /health and /metrics with TLS; port 0 picks a free one; empty: none."
        )
    ),
]
TlsClusterName = Annotated[
    str,
    Meta(
        description=(
            "Take only clients whose certificate has the URI pulsarish://NAME/KIND or "
            "pulsarish://NAME/KIND/ID with this name and the kind bookie, broker, "
            "autorecovery or operator, besides tls_allowed_roles; empty: no URI is looked at."
        )
    ),
]
TlsAllowedRoles = Annotated[
    tuple[str, ...],
    Meta(
        description=(
            "Take only clients whose certificate has one of these common names, besides those "
            "of tls_cluster_name; empty, as that: every client with a trusted certificate."
        )
    ),
]
ClientCertificateFile = Annotated[
    str,
    Meta(
        description=(
            "The certificate that this process shows to others; empty: tls_certificate_file_path."
        )
    ),
]
ClientKeyFile = Annotated[
    str, Meta(description="The key of that certificate; empty: tls_key_file_path.")
]
ClientTrustFile = Annotated[
    str,
    Meta(
        description=(
            "The authorities that other processes are checked with; empty: "
            "tls_trust_certs_file_path."
        )
    ),
]

BROKER_CLIENT_OPTIONS: Final = TlsOptions(
    "broker_client_certificate_file_path",
    "broker_client_key_file_path",
    "broker_client_trust_certs_file_path",
)


class HasCertificates(Protocol):
    """The configuration of a process that connects to others with TLS."""

    @property
    def tls_certificate_file_path(self) -> str: ...

    @property
    def tls_key_file_path(self) -> str: ...

    @property
    def tls_trust_certs_file_path(self) -> str: ...


class HasTlsOptions(HasCertificates, Protocol):
    """The configuration of a process that listens with TLS, too."""

    @property
    def tls_require_trusted_client_cert_on_connect(self) -> bool: ...


class HasMemberOptions(HasTlsOptions, Protocol):
    """The configuration of a process that serves members of a cluster only."""

    @property
    def tls_cluster_name(self) -> str: ...

    @property
    def tls_allowed_roles(self) -> tuple[str, ...]: ...


def check_tls_options(config: HasTlsOptions) -> None:
    """Raise ``ConfigError`` for options of TLS that do nothing without others."""
    if config.tls_certificate_file_path:
        return
    if config.tls_require_trusted_client_cert_on_connect:
        raise ConfigError(
            "tls_require_trusted_client_cert_on_connect = true needs TLS: set "
            "tls_certificate_file_path and tls_key_file_path"
        )
    if config.tls_key_file_path:
        raise ConfigError(
            "tls_key_file_path is set and tls_certificate_file_path is not: set both or none"
        )


def check_tls_address(config: HasCertificates, option: str, address: str) -> None:
    """Raise ``ConfigError`` for a port with TLS and without a certificate."""
    if address and not config.tls_certificate_file_path:
        raise ConfigError(
            f"{option} = {address!r} is to speak TLS: set "
            "tls_certificate_file_path and tls_key_file_path"
        )


def check_member_options(config: HasMemberOptions) -> None:
    """Raise ``ConfigError`` for rules about certificates that no client has to show."""
    if config.tls_require_trusted_client_cert_on_connect:
        return
    for option, value in (
        ("tls_cluster_name", config.tls_cluster_name),
        ("tls_allowed_roles", config.tls_allowed_roles),
    ):
        if value:
            raise ConfigError(
                f"{option} needs the certificates of clients: set "
                "tls_require_trusted_client_cert_on_connect = true"
            )


def tls_of_server(config: HasTlsOptions) -> TlsServerConfig | None:
    """Return the TLS of a process's listeners; ``None``: it has none."""
    if not config.tls_certificate_file_path:
        return None
    requires = config.tls_require_trusted_client_cert_on_connect
    asks: ClientCertificate = "optional" if config.tls_trust_certs_file_path else "none"
    return TlsServerConfig(
        config.tls_certificate_file_path,
        config.tls_key_file_path,
        config.tls_trust_certs_file_path,
        "required" if requires else asks,
    )


def tls_of_client(
    config: HasCertificates, *, certificate_file: str = "", key_file: str = "", trust_file: str = ""
) -> TlsClientConfig | None:
    """Return the TLS of a process's own connections; ``None``: nothing is configured.

    Args:
        certificate_file: the ``broker_client_*`` options, for a certificate and authorities other
            than those of its listeners.
    """
    own = bool(certificate_file or key_file)
    found = TlsClientConfig(
        trust_file or config.tls_trust_certs_file_path,
        certificate_file if own else config.tls_certificate_file_path,
        key_file if own else config.tls_key_file_path,
        options=BROKER_CLIENT_OPTIONS if own or trust_file else TlsOptions(),
    )
    return found if found.trust_file or found.certificate_file else None
