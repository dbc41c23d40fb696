"""The options of a broker for who may do what, and for keys and certificates."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from pulsarish.model.errors import ConfigError
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
        check_tls_options(self)

    def _check_roles(self) -> None:
        if self.authorization_enabled and not self.authentication_enabled:
            raise ConfigError(
                "authorization_enabled = true needs authentication_enabled = true: permissions "
                "are those of roles"
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
