"""The entry point of the admin client: one object with a part for each kind of resource."""

from __future__ import annotations

import copy
from typing import Self

from pulsarish.admin.authorization import Authorization
from pulsarish.admin.cluster import AutoRecovery, Bookies, Brokers, Clusters, Ledgers
from pulsarish.admin.namespaces import Namespaces
from pulsarish.admin.placement import FailureDomains, IsolationPolicies
from pulsarish.admin.resource_groups import ResourceGroups
from pulsarish.admin.schemas import Schemas
from pulsarish.admin.subscriptions import Subscriptions
from pulsarish.admin.tenants import Tenants
from pulsarish.admin.topics import Topics
from pulsarish.admin.transport import Transport
from pulsarish.client.messages.security_options import security_of
from pulsarish.runtime.client_authentication import Authentication
from pulsarish.runtime.profiles import profile_arguments

__all__ = ["Admin"]


class Admin:
    """Administration of a cluster over HTTP, through any of its brokers.

    Calls block; no connection stays open between them.

        admin = Admin("http://127.0.0.1:8080")
        admin.namespaces.create("acme/orders", bundles=8)
        admin.topics.create("acme/orders/new", partitions=4)
        admin.topics.stats("acme/orders/new-partition-0")["msgRateIn"]

    Args:
        url: ``http://host:8080[,host2:8080]``, or ``https://host:8443``: any of the brokers; the
            client tries the next when one cannot be reached.
        authentication: how the client proves who it is, as for ``pulsarish.Client``.
        tls_trust_certs_file_path: the authorities of the brokers' certificates, PEM; ``None``:
            those of the system.
        tls_allow_insecure_connection: whether any certificate of a broker will do.
        tls_validate_hostname: whether a certificate has to name the host in the URL.
        tls_private_key_file_path: the key of ``tls_certificate_file_path``, PEM.
        tls_certificate_file_path: the client's own certificate, PEM.
        timeout_seconds: for one request and its answer. Brokers answer within 30 s, at least with
            the reason of a delay.

    Raises ``InvalidConfiguration`` for a url of another form, ``InvalidArgument`` for options that
    do not fit. Every call raises the error that the broker named, a class of
    ``pulsarish.PulsarException``: ``NotFound`` and its subclasses, ``AlreadyExists``, ``NotEmpty``,
    ``InvalidArgument`` for a value that is not allowed, ``AuthenticationError`` when the broker
    does not know who this is, ``AuthorizationError`` for what this one may not do,
    ``OperationNotSupported`` for what this version does not support, ``ServiceNotReady`` and
    ``Timeout`` for requests that may succeed a moment later, ``ConnectError`` when no broker can be
    reached.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        timeout_seconds: float = 35.0,
        authentication: Authentication | None = None,
        tls_trust_certs_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = True,
        tls_private_key_file_path: str | None = None,
        tls_certificate_file_path: str | None = None,
    ) -> None:
        security = security_of(
            authentication,
            is_tls=url.startswith("https://"),
            tls_url="url that begins with https://",
            trust_file=tls_trust_certs_file_path,
            allows_insecure=tls_allow_insecure_connection,
            validates_host_name=tls_validate_hostname,
            certificate_file=tls_certificate_file_path,
            key_file=tls_private_key_file_path,
        )
        self._use(Transport(url, timeout_seconds, security))

    @classmethod
    def from_profile(cls, name: str | None = None, *, timeout_seconds: float = 35.0) -> Self:
        """Return the client of a profile, as ``pulsarish.Client.from_profile``."""
        url, found = profile_arguments(name, admin=True)
        return cls(url, timeout_seconds=timeout_seconds, **found)

    def _use(self, transport: Transport) -> None:
        self._transport = transport
        self.tenants = Tenants(transport)
        self.namespaces = Namespaces(transport)
        self.topics = Topics(transport)
        self.subscriptions = Subscriptions(transport)
        self.schemas = Schemas(transport)
        self.brokers = Brokers(transport)
        self.autorecovery = AutoRecovery(transport)
        self.bookies = Bookies(transport)
        self.ledgers = Ledgers(transport)
        self.clusters = Clusters(transport)
        self.isolation_policies = IsolationPolicies(transport)
        self.failure_domains = FailureDomains(transport)
        self.resource_groups = ResourceGroups(transport)
        self.authorization = Authorization(transport)

    def with_timeout(self, seconds: float) -> Admin:
        """Return an ``Admin`` for the same brokers with another timeout."""
        other = copy.copy(self)
        other._use(self._transport.with_timeout(seconds))
        return other
