"""Where a read, a write or a job finds a cluster, and what it shows there: to brokers the
credentials of its role, to bookies those of an operator or of one that only reads.

These objects travel from the driver to executors, inside plans and tasks. So they hold references
to secrets: an option with a secret in it is refused. A reference is followed where a connection is
opened, so its file or variable must be on each executor. The cluster key is the exception: only the
driver reads it, and tasks carry a token made with it that reads and ends.

The driver imports this module for each query, so it imports nothing of gRPC or asyncio.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pulsarish.admin import Admin
from pulsarish.model.units import parse_duration
from pulsarish.runtime.profiles import Profile, is_tls_url
from pulsarish.security.client_security import PLAIN, ClientSecurity, HttpScheme
from pulsarish.security.tls import TlsClientConfig, TlsOptions

if TYPE_CHECKING:
    from pulsarish.security.cluster_key import ClusterKey
    from pulsarish.security.credentials import Credentials, CredentialsSource, Secret

__all__ = ["NO_BOOKIE_ACCESS", "BookieAccess", "BrokerAccess", "parse_token_life"]

_LIFE_MS: Final = 12 * 3_600_000
_LIFE_MS_MIN: Final = 60_000

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


def parse_token_life(text: str) -> int:
    """Return the life of a task's token in milliseconds.

    Raises ``ValueError`` that says what is allowed.
    """
    from pulsarish.security.cluster_key import READER_LIFE_MS_MAX

    life_ms = 1_000 * parse_duration(text)
    if not _LIFE_MS_MIN <= life_ms <= READER_LIFE_MS_MAX:
        raise ValueError("a token for reading lasts from 1m to 7d")
    return life_ms


@dataclass(frozen=True, slots=True)
class BookieAccess:
    """What is shown to bookies. Empty texts: nothing.

    Args:
        cluster_key_file: a path on the driver. What tasks get has ``token`` instead.
        trust_file, certificate_file, key_file: paths on the driver and on each executor.
        token_life_ms: how long the tokens of tasks last.
        token: of one that only reads, made by the driver.
    """

    cluster_key_file: str = ""
    trust_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    token_life_ms: int = _LIFE_MS
    token: Secret | None = None

    @property
    def is_given(self) -> bool:
        return self != NO_BOOKIE_ACCESS

    def for_tasks(self, token: Secret | None) -> BookieAccess:
        """Return what tasks show: a token instead of the key. ``None``: they are given none."""
        return replace(self, cluster_key_file="", token=token)

    def for_auditing(self, wall_ms: Callable[[], int]) -> BookieAccess:
        """Return what tasks show that read any ledger. Raises ``ConfigError`` for the key."""
        if not self.cluster_key_file:
            return self
        return self.for_tasks(self.cluster_key(wall_ms).reader_token(self.token_life_ms, None))

    def cluster_key(self, wall_ms: Callable[[], int]) -> ClusterKey:
        """Return the key of ``cluster_key_file``. Raises ``ConfigError``."""
        # It loads what makes tokens, which the driver of an open cluster does not wait for.
        from pulsarish.runtime.cluster_members import read_cluster_key

        return read_cluster_key(self.cluster_key_file, wall_ms)

    def security(self) -> ClientSecurity:
        """Return the security of a task's connections to bookies."""
        if self.token is None and self.tls() is None:
            return PLAIN
        return ClientSecurity(None if self.token is None else _ReaderToken(self.token), self.tls())

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
        """Return what is shown to bookies at each opening: the token, or those of an operator.

        Raises ``ConfigError``.
        """
        from pulsarish.security.credentials import no_credentials

        if self.token is not None:
            return _ReaderToken(self.token).credentials
        if not self.cluster_key_file:
            return no_credentials
        return self.cluster_key(wall_ms).credentials_of("operator")


NO_BOOKIE_ACCESS: Final = BookieAccess()
"""Nothing is shown, and connections are plain."""


class _ReaderToken:
    """Gives a token that the driver made, as a ``CredentialsProvider``."""

    is_immediate = True
    holds_secret = True
    secret_file = ""
    http_scheme: HttpScheme = ""

    def __init__(self, token: Secret) -> None:
        from pulsarish.security.cluster_key import CLUSTER_METHOD
        from pulsarish.security.credentials import Credentials

        self._shown = Credentials(CLUSTER_METHOD, token)

    def credentials(self) -> Credentials:
        return self._shown
