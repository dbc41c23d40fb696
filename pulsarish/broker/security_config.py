"""The options of a broker for who may do what, and for keys and certificates."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from pulsarish.model.errors import ConfigError, InvalidTopicName
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.network.tls_options import (
    ClientCertificateFile,
    ClientKeyFile,
    ClientTrustFile,
    TlsCertificateFile,
    TlsKeyFile,
    TlsRequiresClientCertificate,
    TlsTrustFile,
    check_tls_options,
    tls_of_client,
)
from pulsarish.security.cluster_key import ClusterKeyFile
from pulsarish.security.config import AuthenticationConfig
from pulsarish.security.failed_attempts import address_fault
from pulsarish.security.roles import role_fault
from pulsarish.security.tls import TlsClientConfig

__all__ = ["BrokerSecurityConfig"]


class BrokerSecurityConfig(AuthenticationConfig, frozen=True, kw_only=True):
    """What ``BrokerConfig`` has of this."""

    cluster_key_file: ClusterKeyFile = ""
    authorization_enabled: Annotated[
        bool,
        Meta(
            description=(
                "Roles may do what was granted to them, and nothing else; it needs "
                "authentication_enabled."
            )
        ),
    ] = False
    authorization_report_only: Annotated[
        bool,
        Meta(
            description=(
                "Denied permissions are logged, recorded and counted, and nothing is refused for "
                "them: for finding missing grants before authorization is enforced."
            )
        ),
    ] = False
    super_user_roles: Annotated[
        tuple[str, ...], Meta(description="Roles that may do everything.")
    ] = ()
    proxy_roles: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Roles of proxies that speak for others: both roles need each permission. No other "
                "role may name one for which it speaks."
            )
        ),
    ] = ()
    authenticate_original_auth_data: Annotated[
        bool,
        Meta(
            description=(
                "Proxies of proxy_roles must pass on the credentials of their clients, and the "
                "broker checks them, too."
            )
        ),
    ] = False

    authenticate_metrics_endpoint: Annotated[
        bool,
        Meta(
            description=(
                "/metrics, which names topics, is for authenticated roles only; "
                "needs authentication_enabled."
            )
        ),
    ] = False
    authentication_failures_max: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Failed authentications of one address within "
                "authentication_failures_window_seconds, after which its further attempts are "
                "refused until that time is over; 0: they are not."
            ),
        ),
    ] = 100
    authentication_failures_window_seconds: Annotated[
        float,
        Meta(ge=1, le=86_400, description="For how long failed authentications count."),
    ] = 60.0
    trusted_proxy_addresses: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Addresses and networks (10.0.0.0/24) of proxies that show the credentials of "
                "their clients: they are not refused when those are wrong."
            )
        ),
    ] = ()
    audit_log_directory: Annotated[
        str,
        Meta(
            description=(
                "Directory of this broker alone, for the records of who did what: "
                "authentications, denials, changes by administrators; empty: none are kept."
            )
        ),
    ] = ""
    audit_log_file_size_bytes: Annotated[
        int,
        Meta(
            ge=4_096, description="A file of the audit trail of this size is followed by a new one."
        ),
    ] = 16 << 20
    audit_log_files_max: Annotated[
        int,
        Meta(ge=2, le=100_000, description="Files of the audit trail that are kept."),
    ] = 64

    audit_topic: Annotated[
        str,
        Meta(
            description=(
                "Persistent topic to which the records of audit_log_directory are published, too, "
                "once they are on disk; empty: none."
            )
        ),
    ] = ""

    tls_certificate_file_path: TlsCertificateFile = ""
    tls_key_file_path: TlsKeyFile = ""
    tls_trust_certs_file_path: TlsTrustFile = ""
    tls_require_trusted_client_cert_on_connect: TlsRequiresClientCertificate = False
    broker_client_certificate_file_path: ClientCertificateFile = ""
    broker_client_key_file_path: ClientKeyFile = ""
    broker_client_trust_certs_file_path: ClientTrustFile = ""

    def client_tls(self) -> TlsClientConfig | None:
        """Return the TLS of connections to bookies and other brokers."""
        return tls_of_client(
            self,
            certificate_file=self.broker_client_certificate_file_path,
            key_file=self.broker_client_key_file_path,
            trust_file=self.broker_client_trust_certs_file_path,
        )

    def validate(self) -> None:
        """Raise ``ConfigError`` for combinations that cannot work."""
        super().validate()
        self._check_roles()
        self._check_audit_topic()
        check_tls_options(self)
        for text in self.trusted_proxy_addresses:
            if fault := address_fault(text):
                raise ConfigError(f"trusted_proxy_addresses: {text!r} is no address: {fault}")

    def _check_audit_topic(self) -> None:
        if not self.audit_topic:
            return
        if not self.audit_log_directory:
            raise ConfigError(
                "audit_topic needs audit_log_directory: the topic gets the lines of its files"
            )
        try:
            name = TopicName.parse(self.audit_topic)
        except InvalidTopicName as error:
            raise ConfigError(f"audit_topic: {error}") from None
        if not name.persistent:
            raise ConfigError(
                f"audit_topic = {self.audit_topic!r} must be a persistent topic, such as "
                "persistent://audit/trail/records"
            )

    def _check_roles(self) -> None:
        if self.authenticate_metrics_endpoint and not self.authentication_enabled:
            raise ConfigError(
                "authenticate_metrics_endpoint = true needs authentication_enabled = true: without "
                "it, a caller has no role"
            )
        if self.authorization_enabled and not self.authentication_enabled:
            raise ConfigError(
                "authorization_enabled = true needs authentication_enabled = true: permissions "
                "are those of roles"
            )
        if self.authorization_report_only and not self.authorization_enabled:
            raise ConfigError(
                "authorization_report_only = true needs authorization_enabled = true: without it "
                "no permission is checked, so there is nothing to report"
            )
        if self.authorization_enabled and not self.super_user_roles:
            raise ConfigError(
                "authorization_enabled = true, but super_user_roles is empty: no role could grant "
                "anything; name that of an administrator"
            )
        for option, roles in (
            ("super_user_roles", self.super_user_roles),
            ("proxy_roles", self.proxy_roles),
        ):
            for role in roles:
                if fault := role_fault(role):
                    raise ConfigError(f"{option}: the role {role!r} {fault}")
        both = set(self.super_user_roles) & set(self.proxy_roles)
        if both:
            raise ConfigError(
                f"super_user_roles and proxy_roles both have {min(both)!r}: a proxy of that role "
                "would lend its rights to its clients"
            )
