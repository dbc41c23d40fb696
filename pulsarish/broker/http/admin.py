"""All admin routes of a broker, and what their handlers share."""

from __future__ import annotations

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.cluster_routes import ClusterRoutes
from pulsarish.broker.http.face import Route
from pulsarish.broker.http.namespace_routes import NamespaceRoutes
from pulsarish.broker.http.owners import Owners
from pulsarish.broker.http.subscription_routes import SubscriptionRoutes
from pulsarish.broker.http.topic_routes import TopicRoutes
from pulsarish.broker.lookup import Lookup
from pulsarish.broker.namespaces import Namespaces
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.topics import Topics
from pulsarish.metadata.update import Records
from pulsarish.runtime.seams import World

__all__ = ["Admin"]


class Admin:
    """Collects the routes."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        records: Records,
        namespaces: Namespaces,
        ownership: Ownership,
        topics: Topics,
        lookup: Lookup,
    ) -> None:
        owners = Owners(world, lookup, ownership, topics)
        # A path's fixed words are tried before its names in braces: order matters where both fit.
        self._routes = [
            *ClusterRoutes(records, ownership, owners, lookup).routes(),
            *NamespaceRoutes(namespaces, topics, owners).routes(),
            *SubscriptionRoutes(world, records, namespaces, owners).routes(),
            *TopicRoutes(world, config, namespaces, topics, owners).routes(),
        ]

    def routes(self) -> list[Route]:
        return self._routes
