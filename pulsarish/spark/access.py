"""Where a read, a write or a job finds a cluster, and what it shows there: to brokers the
credentials of its role, to bookies those of an operator.

These objects travel from the driver to executors, inside plans and tasks. So they hold references
to secrets, never secrets: an option with a secret in it is refused. A reference is followed where a
connection is opened, so its file or variable must be on each executor.

The driver imports this module for each query, so it imports nothing of gRPC or asyncio.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pulsarish.admin import Admin
from pulsarish.runtime.profiles import Profile, is_tls_url
from pulsarish.security.client_security import PLAIN, ClientSecurity, HttpScheme
from pulsarish.security.tls import TlsClientConfig, TlsOptions

if TYPE_CHECKING:
    from pulsarish.security.credentials import Credentials, CredentialsSource

__all__ = ["NO_BOOKIE_ACCESS", "BookieAccess", "BrokerAccess"]

_OPTIONS: Final = TlsOptions(
    certificate="bookieTlsCertificateFilePath",
    key="bookieTlsPrivateKeyFilePath",
    trust="bookieTlsTrustCertsFilePath",
)


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """The brokers of a cluster, and who uses them.

    Args:
        profile: both of its URLs are set, and it has passed ``Profile.check``.
    """

    profile: Profile

    @property
    def service_url(self) -> str:
        return self.profile.url

    @property
    def admin_url(self) -> str:
        return self.profile.admin_url

    @property
    def is_known(self) -> bool:
        """Whether the brokers learn who this is."""
        return bool(self.profile.auth_plugin or self.profile.tls_certificate_file_path)

    def admin(self) -> Admin:
        """Return a client of the administration. Raises the errors of ``Profile.arguments``."""
        return Admin(self.admin_url, **self.profile.arguments(self.admin_url))

    def client_arguments(self) -> dict[str, Any]:
        """Return the arguments of a ``Client`` for ``service_url``, about who this is.

        Raises the errors of ``Profile.arguments``.
        """
        return self.profile.arguments(self.service_url)

    def options(self) -> dict[str, str]:
        """Return the options of the data source that mean this."""
        profile = self.profile
        given = {
            "service.url": self.service_url,
            "admin.url": self.admin_url,
            "authPlugin": profile.auth_plugin,
            "authParams": profile.auth_params,
        }
        if is_tls_url(self.service_url) or is_tls_url(self.admin_url):
            given |= {
                "tlsTrustCertsFilePath": profile.tls_trust_certs_file_path,
                "tlsCertificateFilePath": profile.tls_certificate_file_path,
                "tlsPrivateKeyFilePath": profile.tls_private_key_file_path,
                "tlsValidateHostname": str(profile.tls_validate_hostname).lower(),
                "tlsAllowInsecureConnection": str(profile.tls_allow_insecure_connection).lower(),
            }
        return {name: value for name, value in given.items() if value}

    @classmethod
    def at(cls, service_url: str, admin_url: str, profile: Profile | None = None) -> BrokerAccess:
        """Return the access to brokers at these URLs; without a profile they are not told who this
        is.
        """
        return cls(replace(profile or Profile(), url=service_url, admin_url=admin_url))


@dataclass(frozen=True, slots=True)
class BookieAccess:
    """What an operator shows to bookies. Empty texts: nothing. Paths are those on each executor."""

    cluster_key_file: str = ""
    trust_file: str = ""
    certificate_file: str = ""
    key_file: str = ""

    @property
    def is_given(self) -> bool:
        return self != NO_BOOKIE_ACCESS

    def security(self, wall_ms: Callable[[], int]) -> ClientSecurity:
        """Return the security of connections to bookies.

        Raises ``ConfigError`` for a cluster key that cannot be used.
        """
        if not self.is_given:
            return PLAIN
        key = _MemberKey(self.cluster_key_file, wall_ms) if self.cluster_key_file else None
        return ClientSecurity(key, self.tls())

    def tls(self) -> TlsClientConfig | None:
        """Return the TLS of connections to bookies; ``None``: they are plain."""
        if not (self.trust_file or self.certificate_file):
            return None
        return TlsClientConfig(
            trust_file=self.trust_file,
            certificate_file=self.certificate_file,
            key_file=self.key_file,
            options=_OPTIONS,
        )

    def credentials(self, wall_ms: Callable[[], int]) -> CredentialsSource:
        """Return what is shown to bookies at each opening. Raises ``ConfigError``."""
        # It loads what makes tokens, which the driver does not wait for.
        from pulsarish.runtime.cluster_members import read_cluster_key
        from pulsarish.security.credentials import no_credentials

        if not self.cluster_key_file:
            return no_credentials
        return read_cluster_key(self.cluster_key_file, wall_ms).credentials_of("operator")


NO_BOOKIE_ACCESS: Final = BookieAccess()
"""Nothing is shown, and connections are plain."""


class _MemberKey:
    """Gives the tokens of an operator, as a ``CredentialsProvider``."""

    is_immediate = True
    holds_secret = False
    http_scheme: HttpScheme = ""

    def __init__(self, path: str, wall_ms: Callable[[], int]) -> None:
        self.secret_file = path
        self._current = BookieAccess(path).credentials(wall_ms)

    def credentials(self) -> Credentials:
        return self._current()
