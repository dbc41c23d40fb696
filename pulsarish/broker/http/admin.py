"""All admin routes of a broker, and the parts that their handlers share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pulsarish.broker.clients.authorization import Gate
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.dynamic_options import DynamicOptions
from pulsarish.broker.http.admission import LoopShare
from pulsarish.broker.http.listing import Listing
from pulsarish.broker.http.missing_features import MissingFeatures
from pulsarish.broker.http.owner_calls import OwnerCalls
from pulsarish.broker.http.route import Route
from pulsarish.broker.http.routes.audit_routes import AuditRoutes
from pulsarish.broker.http.routes.authorization_routes import AuthorizationRoutes
from pulsarish.broker.http.routes.autorecovery_routes import AutoRecoveryRoutes
from pulsarish.broker.http.routes.broker_routes import BrokerRoutes
from pulsarish.broker.http.routes.broker_stats_routes import BrokerStatsRoutes
from pulsarish.broker.http.routes.capture_routes import CaptureRoutes
from pulsarish.broker.http.routes.cluster_routes import ClusterRoutes
from pulsarish.broker.http.routes.compaction_routes import CompactionRoutes
from pulsarish.broker.http.routes.cordon_routes import CordonRoutes
from pulsarish.broker.http.routes.garbage_routes import GarbageRoutes
from pulsarish.broker.http.routes.grant_routes import GrantRoutes
from pulsarish.broker.http.routes.lookup_routes import LookupRoutes
from pulsarish.broker.http.routes.message_routes import MessageRoutes
from pulsarish.broker.http.routes.namespace_routes import NamespaceRoutes
from pulsarish.broker.http.routes.namespace_work_routes import NamespaceWorkRoutes
from pulsarish.broker.http.routes.non_persistent_routes import NonPersistentRoutes
from pulsarish.broker.http.routes.orphan_routes import OrphanRoutes
from pulsarish.broker.http.routes.partition_routes import PartitionRoutes
from pulsarish.broker.http.routes.placement_routes import PlacementRoutes
from pulsarish.broker.http.routes.policy_routes import NamespacePolicyRoutes
from pulsarish.broker.http.routes.read_only_routes import ReadOnlyRoutes
from pulsarish.broker.http.routes.rebalance_routes import RebalanceRoutes
from pulsarish.broker.http.routes.recover_routes import RecoverRoutes
from pulsarish.broker.http.routes.repair_routes import RepairRoutes
from pulsarish.broker.http.routes.resource_group_routes import ResourceGroupRoutes
from pulsarish.broker.http.routes.schedule_routes import ScheduleRoutes
from pulsarish.broker.http.routes.schema_routes import SchemaRoutes
from pulsarish.broker.http.routes.stats_routes import StatsRoutes
from pulsarish.broker.http.routes.storage_routes import StorageRoutes
from pulsarish.broker.http.routes.subscription_routes import SubscriptionRoutes
from pulsarish.broker.http.routes.sweep_routes import SweepRoutes
from pulsarish.broker.http.routes.tenant_routes import TenantRoutes
from pulsarish.broker.http.routes.topic_policy_routes import TopicPolicyRoutes
from pulsarish.broker.http.routes.topic_routes import TopicRoutes
from pulsarish.broker.http.routes.trash_routes import TrashRoutes
from pulsarish.broker.http.routes.volume_addition_routes import VolumeAdditionRoutes
from pulsarish.broker.http.routes.volume_drain_routes import VolumeDrainRoutes
from pulsarish.broker.http.routes.volume_removal_routes import VolumeRemovalRoutes
from pulsarish.broker.listeners import Listeners
from pulsarish.broker.ownership.group_sharing import GroupSharing
from pulsarish.broker.ownership.lookup import Lookup
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.schemas.registry import SchemaRegistry
from pulsarish.broker.stats.broker_load import LoadMeter
from pulsarish.broker.stats.topic_stats import Statistics
from pulsarish.broker.topics.drain import Drain
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.broker.topics.orphan_search import OrphanSearch
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata.limited_store import LimitedStore
from pulsarish.metadata.record_store import Records
from pulsarish.runtime.seams import World

__all__ = ["Admin"]


class Admin:
    """Collects the admin routes.

    Their metadata operations have a limit of their own, except for lookups.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        lookups: Namespaces,
        ownership: Ownership,
        topics: LoadedTopics,
        ledgers: LedgerClient,
        lookup: Lookup,
        listeners: Listeners,
        unready_reason: Callable[[], str],
        statistics: Statistics,
        metrics: Callable[[], Awaitable[bytes]],
        share: LoopShare,
        gate: Gate,
        meter: LoadMeter,
        drain: Drain,
        orphans: OrphanSearch,
        options: DynamicOptions,
        sharing: GroupSharing,
    ) -> None:
        store = LimitedStore(world.metadata, config.admin_metadata_operations_max)
        records = Records(store, world.clock, world.random, guard=ledgers.age)
        namespaces = lookups.through(records)
        self.owners = owners = OwnerCalls(world, config, lookup, ownership, topics)
        listing = Listing(world, records, namespaces, share, gate)
        sweep = SweepRoutes(namespaces, topics, owners)
        self.sweep = sweep.ask
        """Asks the owner of a bundle to maintain topics of it."""
        audit = AuditRoutes(world, config, topics, owners, gate)
        self.publish_audit_lines = audit.publish
        """Has the owner of ``audit_topic`` store lines of this broker's audit trail."""
        schedules = ScheduleRoutes(world, namespaces, topics, owners)
        self.publish_due = schedules.ask
        """Has the owner of a topic publish what is due of its schedules."""
        work = NamespaceWorkRoutes(records, namespaces, topics, owners, listing)
        self.move_bundle = work.move
        """Has a broker hand a bundle over to another one."""
        broker_stats = BrokerStatsRoutes(
            world, topics, ownership, lookups, statistics, metrics, meter, owners
        )
        self.ask_load = broker_stats.ask
        """Asks a broker for its load."""
        resource_groups = ResourceGroupRoutes(namespaces.store.groups, sharing, owners)
        self.ask_shares = resource_groups.ask
        """Asks the leader for shares of the limits of resource groups."""
        persistent = [
            *TopicPolicyRoutes(namespaces).routes(),
            *MissingFeatures(config.cluster_name, namespaces).routes(),
            *CompactionRoutes(namespaces, owners).routes(),
            *TopicRoutes(records, namespaces, topics, owners, listing).routes(),
            *PartitionRoutes(config, records, namespaces, lookups, topics, owners).routes(),
            *StatsRoutes(records, namespaces, topics, owners, statistics).routes(),
            *MessageRoutes(world, config, ledgers, namespaces, owners).routes(),
            *schedules.routes(),
            *SubscriptionRoutes(world, config, records, namespaces, owners, topics).routes(),
        ]
        self._routes = [
            *LookupRoutes(lookup, lookups, listeners).routes(),
            *ClusterRoutes(config, ownership).routes(),
            *PlacementRoutes(config, records, namespaces, ownership).routes(),
            *resource_groups.routes(),
            *BrokerRoutes(config, records, ownership, unready_reason, drain, options).routes(),
            *broker_stats.routes(),
            *StorageRoutes(records, ledgers).routes(),
            *OrphanRoutes(config, ownership, orphans).routes(),
            *AutoRecoveryRoutes(records, world.clock).routes(),
            *ReadOnlyRoutes(records, world.clock, config.managed_ledger).routes(),
            *CordonRoutes(records, config.managed_ledger).routes(),
            *VolumeDrainRoutes(records, ledgers, config.managed_ledger).routes(),
            *VolumeRemovalRoutes(records, ledgers).routes(),
            *VolumeAdditionRoutes(records, ledgers).routes(),
            *RebalanceRoutes(records, world.clock).routes(),
            *RecoverRoutes(records, ledgers).routes(),
            *RepairRoutes(records, world.clock).routes(),
            *TrashRoutes(ledgers).routes(),
            *GarbageRoutes(ledgers, records).routes(),
            *TenantRoutes(config, namespaces, listing, gate).routes(),
            *NamespaceRoutes(config, namespaces).routes(),
            *NamespacePolicyRoutes(namespaces).routes(),
            *GrantRoutes(namespaces, gate).routes(),
            *CaptureRoutes(namespaces, gate).routes(),
            *AuthorizationRoutes(gate).routes(),
            *SchemaRoutes(
                SchemaRegistry(records, world.clock, config), namespaces, topics
            ).routes(),
            *sweep.routes(),
            *audit.routes(),
            *work.routes(),
            *persistent,
            *NonPersistentRoutes(namespaces, topics.not_kept, owners, statistics, listing).routes(
                persistent
            ),
        ]

    def routes(self) -> list[Route]:
        return self._routes
