"""The entry point of the admin client: one object with a part for each kind of resource."""

from __future__ import annotations

from pulsarish.admin.cluster import Bookies, Brokers, Clusters, Ledgers
from pulsarish.admin.namespaces import Namespaces
from pulsarish.admin.schemas import Schemas
from pulsarish.admin.subscriptions import Subscriptions
from pulsarish.admin.tenants import Tenants
from pulsarish.admin.topics import Topics
from pulsarish.admin.transport import Transport

__all__ = ["Admin"]


class Admin:
    """Administration of a cluster over HTTP, through any of its brokers.

    Calls block; no connection stays open between them.

        admin = Admin("http://127.0.0.1:8080") admin.namespaces.create("acme/orders", bundles=8)
        admin.namespaces.set_policy("acme/orders", "retention", {"retentionTimeInMinutes": 10080,
        "retentionSizeInMB": -1}) admin.topics.create("acme/orders/new", partitions=4)
        admin.topics.stats("acme/orders/new-partition-0")["msgRateIn"]

    Args:
        url: ``http://host:8080[,host2:8080]``: any of the brokers; the client tries the next when
            one cannot be reached.
        timeout_seconds: for one request and its answer. Brokers answer within 30 s, at least with
            the reason of a delay.

    Raises ``InvalidConfiguration`` for a url of another form. Every call raises the error that the
    broker named, a class of ``pulsarish.PulsarException``: ``NotFound`` and its subclasses,
    ``AlreadyExists``, ``NotEmpty``, ``InvalidArgument`` for a value that is not allowed,
    ``UnsupportedFeature`` for what this version does not support, ``ServiceNotReady`` and
    ``Timeout`` for requests that may succeed a moment later, ``ConnectError`` when no broker can be
    reached.
    """

    def __init__(
        self, url: str = "http://127.0.0.1:8080", *, timeout_seconds: float = 35.0
    ) -> None:
        self._url = url
        transport = Transport(url, timeout_seconds)
        self.tenants = Tenants(transport)
        self.namespaces = Namespaces(transport)
        self.topics = Topics(transport)
        self.subscriptions = Subscriptions(transport)
        self.schemas = Schemas(transport)
        self.brokers = Brokers(transport)
        self.bookies = Bookies(transport)
        self.ledgers = Ledgers(transport)
        self.clusters = Clusters(transport)

    def with_timeout(self, seconds: float) -> Admin:
        """Return an ``Admin`` for the same brokers with another timeout."""
        return Admin(self._url, timeout_seconds=seconds)
