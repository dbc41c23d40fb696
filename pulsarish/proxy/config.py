"""The configuration of a proxy."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

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
    BROKER_CLIENT_OPTIONS,
    HttpAddressTls,
    TlsCertificateFile,
    TlsKeyFile,
    check_tls_address,
    check_tls_options,
)
from pulsarish.security.metrics_tokens import MetricsTokenFile
from pulsarish.security.tls import TlsClientConfig

__all__ = ["ProxyConfig"]

_MIB = 1 << 20


class ProxyConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a proxy process."""

    pulsar_address: Annotated[
        str,
        Meta(
            description=(
                "host:port of Apache Pulsar's binary protocol; port 0 picks a free one; empty: "
                "none."
            )
        ),
    ] = "127.0.0.1:6650"
    pulsar_address_tls: Annotated[
        str,
        Meta(
            description=(
                "host:port of Apache Pulsar's binary protocol with TLS, usually 6651; empty: none."
            )
        ),
    ] = ""
    connect_address: Annotated[
        str,
        Meta(
            description=(
                "host:port where CONNECT of HTTP is served, for gRPC clients; port 0 picks a "
                "free one; empty: none."
            )
        ),
    ] = "127.0.0.1:6655"
    connect_address_tls: Annotated[
        str,
        Meta(
            description=(
                "host:port where CONNECT of HTTP is served with TLS, for HTTP tools that reach "
                "their proxy by https; empty: none."
            )
        ),
    ] = ""
    http_address: Annotated[
        str,
        Meta(
            description="host:port of /health and /metrics; port 0 picks a free one; empty: none."
        ),
    ] = "127.0.0.1:8080"
    http_address_tls: HttpAddressTls = ""
    metrics_token_file: MetricsTokenFile = ""
    tls_certificate_file_path: TlsCertificateFile = ""
    tls_key_file_path: TlsKeyFile = ""
    tls_trust_certs_file_path: Annotated[
        str,
        Meta(
            description=(
                "The authorities that certificates of clients are checked with, in PEM form; "
                "empty: clients are not asked for one."
            )
        ),
    ] = ""
    tls_require_trusted_client_cert_on_connect: Annotated[
        bool, Meta(description="Refuse clients without a certificate of these authorities.")
    ] = False
    tls_enabled_with_broker: Annotated[
        bool,
        Meta(
            description=(
                "Connect to brokers by their pulsar_address_tls, and to no port without TLS; "
                "their certificates have to name their hosts. Otherwise by their pulsar_address."
            )
        ),
    ] = False
    broker_client_trust_certs_file_path: Annotated[
        str,
        Meta(
            description=(
                "The authorities that brokers are checked with, in PEM form; empty: those of the "
                "system."
            )
        ),
    ] = ""
    broker_client_certificate_file_path: Annotated[
        str,
        Meta(
            description=(
                "The certificate that the proxy shows to brokers, in PEM form; empty: none. With "
                "it, clients must show credentials other than a certificate."
            )
        ),
    ] = ""
    broker_client_key_file_path: Annotated[
        str, Meta(description="The key of that certificate, in PEM form.")
    ] = ""
    metadata_url: Annotated[
        str,
        Meta(description="Where the metadata is, which knows the brokers: zk://host:port/chroot."),
    ] = "zk://127.0.0.1:2181/pulsarish"
    metadata_session_timeout_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=300_000,
            description="After this long without an answer the session is lost.",
        ),
    ] = 10_000
    metadata_auth_file: MetadataAuthFile = ""
    metadata_open_nodes: MetadataOpenNodes = False
    metadata_tls_trust_certs_file_path: MetadataTlsTrustFile = ""
    metadata_tls_certificate_file_path: MetadataTlsCertificateFile = ""
    metadata_tls_key_file_path: MetadataTlsKeyFile = ""
    broker_listener_name: Annotated[
        str,
        Meta(
            description=(
                "The listener at which the proxy connects to brokers; empty: the internal one."
            )
        ),
    ] = ""
    allowed_brokers: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "host:port of brokers that clients may be relayed to; empty: all registered "
                "ones. The proxy connects to no other."
            )
        ),
    ] = ()
    relay_administration: Annotated[
        bool,
        Meta(
            description=(
                "CONNECT also reaches the brokers' HTTP ports: clients of the proxy can "
                "administer the cluster."
            )
        ),
    ] = False
    connections_max: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "Connections of clients; more are refused. Those before CONNECT make room for "
                "new ones."
            ),
        ),
    ] = 10_000
    connections_per_ip_max: Annotated[
        int, Meta(ge=0, description="Connections of one IP address; 0: no limit.")
    ] = 0
    connect_timeout_seconds: Annotated[
        float, Meta(gt=0, description="A connection that sends no CONNECT in this time is ended.")
    ] = 10.0
    max_partial_input_bytes: Annotated[
        int,
        Meta(
            ge=_MIB,
            description=(
                "Bytes received that wait, of all connections: incomplete frames, questions "
                "that brokers have not answered,"
                " and what brokers do not receive. Above it the connection that has waited "
                "longest without progress is ended."
            ),
        ),
    ] = 128 * _MIB
    max_unsent_bytes: Annotated[
        int,
        Meta(
            ge=_MIB,
            description=(
                "Bytes sent to clients that do not receive them, of all connections; above it "
                "the connection that has received"
                " nothing for the longest is ended."
            ),
        ),
    ] = 256 * _MIB
    broker_connect_timeout_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description="A broker that does not accept a connection in this time is unavailable.",
        ),
    ] = 5.0
    broker_answer_timeout_seconds: Annotated[
        float,
        Meta(gt=0, description="A question that a broker does not answer in this time fails."),
    ] = 30.0
    max_message_size_bytes: Annotated[
        int, Meta(ge=1_024, le=60 * _MIB, description="The brokers' limit, which clients receive.")
    ] = 5 * _MIB
    keep_alive_interval_seconds: Annotated[
        float, Meta(gt=0, description="A silent connection for lookups is pinged after this.")
    ] = 10.0
    keep_alive_timeout_seconds: Annotated[
        float,
        Meta(gt=0, description="A connection for lookups that was silent this long is ended."),
    ] = 30.0

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
        """Raise ``ConfigError`` for settings that do not fit together."""
        if not self.pulsar_address and not self.pulsar_address_tls:
            raise ConfigError(
                "pulsar_address and pulsar_address_tls are empty: a proxy needs one of them"
            )
        check_tls_options(self)
        for option in ("pulsar_address_tls", "connect_address_tls", "http_address_tls"):
            check_tls_address(self, option, getattr(self, option))
        self._check_broker_client()
        for address in self.allowed_brokers:
            host, colon, port = address.rpartition(":")
            if not (host and colon and port.isdecimal()):
                raise ConfigError(f"allowed_brokers: {address!r} is not host:port")
        if self.keep_alive_interval_seconds * 2 > self.keep_alive_timeout_seconds:
            raise ConfigError(
                "keep_alive_timeout_seconds must be at least twice keep_alive_interval_seconds"
            )

    def _check_broker_client(self) -> None:
        if self.tls_enabled_with_broker:
            return
        for option in (
            "broker_client_trust_certs_file_path",
            "broker_client_certificate_file_path",
            "broker_client_key_file_path",
        ):
            if getattr(self, option):
                raise ConfigError(f"{option} needs TLS to brokers: set tls_enabled_with_broker")

    def broker_tls(self) -> TlsClientConfig | None:
        """Return the TLS of the connections to brokers; ``None``: they have none."""
        if not self.tls_enabled_with_broker:
            return None
        return TlsClientConfig(
            self.broker_client_trust_certs_file_path,
            self.broker_client_certificate_file_path,
            self.broker_client_key_file_path,
            options=BROKER_CLIENT_OPTIONS,
        )
