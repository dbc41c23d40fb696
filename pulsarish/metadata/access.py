"""How a process reaches the metadata servers: its login, its TLS, and the options of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Protocol

from msgspec import Meta

from pulsarish.security.tls import TlsClientConfig, TlsOptions

__all__ = [
    "NO_ACCESS",
    "HasMetadataAccess",
    "MetadataAccess",
    "MetadataAuthFile",
    "MetadataOpenNodes",
    "MetadataTlsCertificateFile",
    "MetadataTlsKeyFile",
    "MetadataTlsTrustFile",
    "access_of",
]

MetadataAuthFile = Annotated[
    str,
    Meta(
        description=(
            "File with user:password in each line, with which this process logs in to the "
            "metadata servers; only these users may then use the nodes that it makes. Empty: no "
            "login."
        )
    ),
]
MetadataOpenNodes = Annotated[
    bool,
    Meta(
        description=(
            "Make nodes that everyone may use in spite of the login, while other members do not "
            "log in yet."
        )
    ),
]
MetadataTlsTrustFile = Annotated[
    str,
    Meta(
        description=(
            "The authorities that metadata servers with TLS (zk+ssl://) are checked with, in PEM "
            "form; empty: those for other processes."
        )
    ),
]
MetadataTlsCertificateFile = Annotated[
    str,
    Meta(
        description=(
            "The certificate that this process shows to metadata servers, in PEM form; empty: the "
            "one for other processes."
        )
    ),
]
MetadataTlsKeyFile = Annotated[
    str,
    Meta(description="The key of that certificate, in PEM form; empty: the one for others."),
]

_OPTIONS: Final = TlsOptions(
    "metadata_tls_certificate_file_path",
    "metadata_tls_key_file_path",
    "metadata_tls_trust_certs_file_path",
)


class HasMetadataAccess(Protocol):
    """The configuration of a process that uses the metadata."""

    @property
    def metadata_auth_file(self) -> str: ...

    @property
    def metadata_open_nodes(self) -> bool: ...

    @property
    def metadata_tls_certificate_file_path(self) -> str: ...

    @property
    def metadata_tls_key_file_path(self) -> str: ...

    @property
    def metadata_tls_trust_certs_file_path(self) -> str: ...


@dataclass(frozen=True, slots=True)
class MetadataAccess:
    """How a process reaches the metadata servers."""

    auth_file: str = ""
    """Has the logins; empty: none."""
    auth_option: str = "metadata_auth_file"
    """The option of that file, for errors."""
    makes_open_nodes: bool = False
    """Whether everyone may use the nodes that are made in spite of a login."""
    tls: TlsClientConfig | None = None
    """For servers with TLS; ``None``: the authorities of the system, and no certificate."""
    is_tls_set: bool = False
    """Whether ``tls`` was given for the metadata alone, so that it must be used."""


NO_ACCESS: Final = MetadataAccess()


def access_of(config: HasMetadataAccess, tls: TlsClientConfig | None = None) -> MetadataAccess:
    """Return what the options of a process say.

    Args:
        tls: for the connections to other processes; the metadata's options go over it.
    """
    certificate, key, trust = (
        config.metadata_tls_certificate_file_path,
        config.metadata_tls_key_file_path,
        config.metadata_tls_trust_certs_file_path,
    )
    is_set = bool(certificate or key or trust)
    if is_set:
        is_own = bool(certificate or key) or tls is None
        tls = TlsClientConfig(
            trust or ("" if tls is None else tls.trust_file),
            certificate if is_own or tls is None else tls.certificate_file,
            key if is_own or tls is None else tls.key_file,
            options=_OPTIONS,
        )
    return MetadataAccess(
        config.metadata_auth_file,
        makes_open_nodes=config.metadata_open_nodes,
        tls=tls,
        is_tls_set=is_set,
    )
