"""Where a client finds its cluster, and what may change that at runtime: with the names and
arguments of Apache Pulsar's Python client.
"""

from __future__ import annotations

from collections.abc import Callable

from pulsarish.client.checks import check_number, check_text, check_type
from pulsarish.client.service_url import parse_service_url
from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.client_authentication import Authentication

__all__ = ["AutoClusterFailover", "Service", "ServiceInfo", "ServiceInfoProvider"]


class ServiceInfo:
    """One cluster: its service URL, and what a client shows and trusts there."""

    def __init__(
        self,
        service_url: str,
        authentication: Authentication | None = None,
        tls_trust_certs_file_path: str | None = None,
    ) -> None:
        """Raises ``InvalidConfiguration`` for a service URL that is none, ``InvalidArgument``."""
        self._url = parse_service_url(service_url)
        if authentication is not None:
            what = "a pulsarish.Authentication, such as pulsarish.AuthenticationToken"
            check_type("authentication", authentication, Authentication, what, is_secret=True)
        if tls_trust_certs_file_path is not None:
            check_text("tls_trust_certs_file_path", tls_trust_certs_file_path)
        self._authentication = authentication
        self._trust_file = tls_trust_certs_file_path

    @classmethod
    def wrap(cls, service_info: ServiceInfo) -> ServiceInfo:
        """Return the argument. Apache Pulsar's client has two classes of these, and here is one."""
        return service_info

    @property
    def service_url(self) -> str:
        return self._url.text

    @property
    def use_tls(self) -> bool:
        """Whether the service URL asks for TLS."""
        return self._url.has_tls

    @property
    def authentication(self) -> Authentication | None:
        return self._authentication

    @property
    def tls_trust_certs_file_path(self) -> str | None:
        return self._trust_file

    def __repr__(self) -> str:
        return (
            f"ServiceInfo(service_url={self.service_url!r}, use_tls={self.use_tls!r}, "
            f"tls_trust_certs_file_path={self._trust_file!r})"
        )


class ServiceInfoProvider:
    """Says where the cluster is, and says so again when that changes: a base for classes of
    programs.
    """

    def initial_service_info(self) -> ServiceInfo:
        """Return where a new client begins. Called once, before ``initialize``."""
        raise NotImplementedError

    def initialize(self, on_service_info_update: Callable[[ServiceInfo], None]) -> None:
        """Begin to watch.

        ``on_service_info_update`` may be kept and called from any thread until ``close``: the
        client goes to that cluster with all its producers, consumers and readers.
        """
        raise NotImplementedError

    def close(self) -> None:
        """End what ``initialize`` began. Called when the client is closed."""


class AutoClusterFailover:
    """Has a client go to a secondary cluster while the primary one cannot be reached."""

    def __init__(
        self,
        primary: ServiceInfo,
        secondary: list[ServiceInfo],
        check_interval_ms: int = 5000,
        failover_threshold: int = 1,
        switch_back_threshold: int = 1,
    ) -> None:
        """Check the cluster in use every ``check_interval_ms``.

        Args:
            secondary: clusters in the order in which they are tried.
            failover_threshold: checks in a row that must fail before the client leaves a cluster.
            switch_back_threshold: checks of the primary cluster in a row that must succeed before
                the client returns to it.

        Raises ``InvalidArgument``.
        """
        # A service URL in place of one may hold a password.
        check_type("primary", primary, ServiceInfo, "a pulsarish.ServiceInfo", is_secret=True)
        check_type("secondary", secondary, list, "a list of pulsarish.ServiceInfo", is_secret=True)
        if not secondary:
            raise InvalidArgument("secondary is an empty list: pass one or more ServiceInfo")
        for index, each in enumerate(secondary):
            name = f"secondary[{index}]"
            check_type(name, each, ServiceInfo, "a pulsarish.ServiceInfo", is_secret=True)
        self.primary = primary
        self.secondary = list(secondary)
        self.check_interval_ms = check_number("check_interval_ms", check_interval_ms, 1)
        self.failover_threshold = check_number("failover_threshold", failover_threshold, 1)
        self.switch_back_threshold = check_number("switch_back_threshold", switch_back_threshold, 1)

    def __repr__(self) -> str:
        return (
            f"AutoClusterFailover(primary={self.primary!r}, secondary={self.secondary!r}, "
            f"check_interval_ms={self.check_interval_ms}, "
            f"failover_threshold={self.failover_threshold}, "
            f"switch_back_threshold={self.switch_back_threshold})"
        )


Service = str | ServiceInfoProvider | AutoClusterFailover
"""What a client may get as its service URL."""
