"""The configuration of an autorecovery process."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pulsarish.autorecovery.options import AutoRecoveryOptions
from pulsarish.metadata.access import (
    MetadataAuthFile,
    MetadataOpenNodes,
    MetadataTlsCertificateFile,
    MetadataTlsKeyFile,
    MetadataTlsTrustFile,
)
from pulsarish.model.errors import ConfigError
from pulsarish.runtime.log import REPEATS_MAX
from pulsarish.runtime.network.tls_options import (
    HttpAddressTls,
    TlsKeyFile,
    TlsRequiresClientCertificate,
    check_tls_address,
    check_tls_options,
)
from pulsarish.security.cluster_key import ClusterKeyFile
from pulsarish.security.metrics_tokens import MetricsTokenFile

__all__ = ["AutoRecoveryConfig"]

ClientCertificate = Annotated[
    str,
    Meta(
        description=(
            "The certificate that this process shows to bookies, and at http_address_tls, in PEM "
            "form; empty: none. It is read again when it changes, as the key and the authorities "
            "are."
        )
    ),
]
ClientTrust = Annotated[
    str,
    Meta(
        description=(
            "The authorities that bookies with TLS are checked with, and clients of "
            "http_address_tls, in PEM form; empty: those of the system for bookies, none for "
            "clients."
        )
    ),
]


class AutoRecoveryConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be set on a process of its own; a bookie that hosts auto-recovery has the
    table ``auto_recovery`` too.
    """

    autorecovery_id: Annotated[
        str, Meta(description="What others read in its locks; empty: its HTTP address.")
    ] = ""
    metadata_url: Annotated[
        str,
        Meta(description="Where the metadata is: zk://host:port/chroot, embedded:DIR or memory:."),
    ] = "zk://127.0.0.1:2181/pulsarish"
    metadata_session_timeout_ms: Annotated[
        int, Meta(ge=1000, description="After this long without an answer the session is lost.")
    ] = 10_000
    metadata_auth_file: MetadataAuthFile = ""
    metadata_open_nodes: MetadataOpenNodes = False
    metadata_tls_trust_certs_file_path: MetadataTlsTrustFile = ""
    metadata_tls_certificate_file_path: MetadataTlsCertificateFile = ""
    metadata_tls_key_file_path: MetadataTlsKeyFile = ""
    cluster_key_file: ClusterKeyFile = ""
    http_address: Annotated[
        str,
        Meta(
            description="host:port of /health and /metrics; port 0 picks a free one; empty: none."
        ),
    ] = "127.0.0.1:8001"
    http_address_tls: HttpAddressTls = ""
    metrics_token_file: MetricsTokenFile = ""
    tls_certificate_file_path: ClientCertificate = ""
    tls_key_file_path: TlsKeyFile = ""
    tls_trust_certs_file_path: ClientTrust = ""
    tls_require_trusted_client_cert_on_connect: TlsRequiresClientCertificate = False
    auto_recovery: AutoRecoveryOptions = AutoRecoveryOptions()

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Events of this level and above are logged."),
    ] = "info"
    log_form: Annotated[
        Literal["text", "json", "logfmt"],
        Meta(description="Text for people, JSON or logfmt for machines."),
    ] = "text"
    log_repeats_max: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "How often one event is written in ten seconds; what is held back is counted; "
                "0: always."
            ),
        ),
    ] = REPEATS_MAX

    def validate(self) -> None:
        """Raises ``ConfigError`` for settings that do not fit together."""
        self.auto_recovery.validate()
        check_tls_options(self)
        check_tls_address(self, "http_address_tls", self.http_address_tls)
        if not (self.autorecovery_id or self.http_address or self.http_address_tls):
            raise ConfigError(
                "autorecovery_id is empty and there is no HTTP address that others could know "
                "this process by: set autorecovery_id"
            )
