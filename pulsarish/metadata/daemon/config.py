"""The options of ``pulsarish metadata``."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pulsarish.metadata.daemon.zkwire import FRAME_MAX_BYTES
from pulsarish.model.errors import ConfigError
from pulsarish.runtime.log import REPEATS_MAX, LogForm
from pulsarish.runtime.network.tls_options import (
    HttpAddressTls,
    TlsAllowedRoles,
    TlsCertificateFile,
    TlsClusterName,
    TlsKeyFile,
    TlsRequiresClientCertificate,
    TlsTrustFile,
    check_member_options,
    check_tls_address,
    check_tls_options,
)
from pulsarish.security.metrics_tokens import MetricsTokenFile

__all__ = ["MetadataConfig"]


class MetadataConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of ``pulsarish metadata``."""

    listen_address: Annotated[
        str,
        Meta(
            description=(
                "host:port for clients; port 0 picks a free one; empty: only listen_address_tls"
            )
        ),
    ] = "127.0.0.1:2181"
    listen_address_tls: Annotated[
        str,
        Meta(description="host:port for clients with TLS; port 0 picks a free one; empty: no TLS"),
    ] = ""
    tls_certificate_file_path: TlsCertificateFile = ""
    tls_key_file_path: TlsKeyFile = ""
    tls_trust_certs_file_path: TlsTrustFile = ""
    tls_require_trusted_client_cert_on_connect: TlsRequiresClientCertificate = False
    tls_cluster_name: TlsClusterName = ""
    tls_allowed_roles: TlsAllowedRoles = ()
    auth_file: Annotated[
        str,
        Meta(
            description=(
                "File with user:password in each line: clients must log in with one of them "
                "before any other request; empty: no login. It is read again when it changes"
            )
        ),
    ] = ""
    auth_optional: Annotated[
        bool,
        Meta(
            description=(
                "serve clients without a login, too, while not all members have theirs; a wrong "
                "one is refused"
            )
        ),
    ] = False
    authentication_failures_max: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "wrong logins of one address within authentication_failures_window_seconds, after "
                "which its further ones are not checked until that time is over; 0: all are"
            ),
        ),
    ] = 100
    authentication_failures_window_seconds: Annotated[
        float, Meta(ge=1, le=86_400, description="for how long wrong logins count")
    ] = 60.0
    http_address: Annotated[
        str, Meta(description="host:port for /health and /metrics; empty: none")
    ] = "127.0.0.1:8100"
    http_address_tls: HttpAddressTls = ""
    metrics_token_file: MetricsTokenFile = ""
    data_directory: Annotated[str, Meta(min_length=1, description="where the tree is kept")] = (
        "data/metadata"
    )
    tick_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=60_000,
            description="how often the daemon searches for expired sessions while one may be due",
        ),
    ] = 500
    session_timeout_min_ms: Annotated[
        int, Meta(ge=100, description="the shortest session timeout a client gets")
    ] = 1_000
    session_timeout_max_ms: Annotated[
        int, Meta(ge=1_000, description="the longest session timeout a client gets")
    ] = 60_000
    connections_max: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "connections; above this the one that has waited longest for its session is "
                "closed, or the new one"
            ),
        ),
    ] = 2_000
    connections_per_address_max: Annotated[
        int, Meta(ge=0, description="connections of one address; 0: no limit")
    ] = 1_000
    sessions_max: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "sessions; above this the oldest one without connection and ephemeral nodes "
                "ends, or the new one is refused"
            ),
        ),
    ] = 10_000
    sessions_per_address_max: Annotated[
        int, Meta(ge=0, description="sessions of one address; 0: no limit")
    ] = 5_000
    peer_timeout_ms: Annotated[
        int,
        Meta(
            ge=100,
            description=(
                "how long a connection may have no session, an unfinished request, or answers "
                "that it does not receive"
            ),
        ),
    ] = 30_000
    held_request_bytes_max: Annotated[
        int,
        Meta(
            ge=1 << 20,
            description=(
                "requests, whole or in part, of all connections; above it the connection that "
                "held some longest is closed"
            ),
        ),
    ] = 128 << 20
    held_answer_bytes_max: Annotated[
        int,
        Meta(
            ge=1 << 20,
            description=(
                "answers that clients do not receive; above it the connection that held some "
                "longest is closed"
            ),
        ),
    ] = 128 << 20
    watch_bytes_max: Annotated[
        int,
        Meta(
            ge=1 << 20,
            description=(
                "memory for the watches of all sessions, each about 400 bytes and its path; "
                "one session gets at most a tenth"
            ),
        ),
    ] = 512 << 20
    tree_bytes_max: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "approximate memory for all nodes; creating more is refused with ZooKeeper's "
                "quota error; 0: no limit"
            ),
        ),
    ] = 1 << 30
    ephemeral_nodes_per_session_max: Annotated[
        int, Meta(ge=1, description="above this, ZooKeeper's quota error refuses more")
    ] = 10_000
    request_bytes_max: Annotated[
        int,
        Meta(
            ge=1_024,
            le=64 << 20,
            description="a larger request ends its connection (ZooKeeper's jute.maxbuffer)",
        ),
    ] = FRAME_MAX_BYTES
    outstanding_requests_max: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "unanswered requests of one connection; at this number its socket is no longer read"
            ),
        ),
    ] = 1_000
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="events of this level and above are logged"),
    ] = "info"
    log_form: Annotated[
        LogForm, Meta(description="text for people, json or logfmt for machines")
    ] = "text"
    log_repeats_max: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "how often one event is written in ten seconds; what is held back is counted; "
                "0: always"
            ),
        ),
    ] = REPEATS_MAX

    def validate(self) -> None:
        """Raise ``ConfigError`` for settings that do not fit together."""
        if self.session_timeout_min_ms > self.session_timeout_max_ms:
            raise ConfigError(
                f"session_timeout_min_ms ({self.session_timeout_min_ms}) is above "
                f"session_timeout_max_ms ({self.session_timeout_max_ms})"
            )
        if not self.listen_address and not self.listen_address_tls:
            raise ConfigError(
                "listen_address and listen_address_tls are empty: the daemon needs one of them"
            )
        check_tls_options(self)
        check_member_options(self)
        check_tls_address(self, "listen_address_tls", self.listen_address_tls)
        check_tls_address(self, "http_address_tls", self.http_address_tls)
        if self.tls_certificate_file_path and not (
            self.listen_address_tls or self.http_address_tls
        ):
            raise ConfigError(
                "tls_certificate_file_path is set: set listen_address_tls or http_address_tls to "
                "the host:port for TLS"
            )
        is_open = not self.auth_file or self.auth_optional
        if self.tls_require_trusted_client_cert_on_connect and self.listen_address and is_open:
            raise ConfigError(
                "tls_require_trusted_client_cert_on_connect = true, and clients of listen_address "
                "need neither certificate nor login: empty listen_address, or set auth_file"
            )
        if self.auth_optional and not self.auth_file:
            raise ConfigError("auth_optional = true does nothing without auth_file: set it")
