"""Policies of namespaces and topics: one table with each policy, its place in Apache Pulsar and its
allowed values.

The broker derives the rest from the rows of ``POLICIES``: routes and their bodies, validation, the
records in metadata, and the policies in force for a topic. What people see of them, in the admin
client and its commands, has a row in ``admin/policies.py``. Values have Apache Pulsar's own JSON
shapes, in metadata as on the wire. A value that decodes is valid in itself. ``check_together``
rejects contradictions between two policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, TypeVar, cast

import msgspec
from msgspec import Meta

from pulsarish.model.captures import CaptureRule
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.grants import AuthPolicies
from pulsarish.model.policy_words import (
    InactiveDeleteMode,
    QuotaPolicy,
    QuotaType,
    SchemaStrategy,
    SubscriptionAuthMode,
)
from pulsarish.model.subscription_type import SubscriptionType
from pulsarish.model.values import value_of

__all__ = [
    "ALLOW_AUTO_UPDATE_SCHEMA",
    "AUTH_POLICIES",
    "AUTO_SUBSCRIPTION_CREATION",
    "AUTO_TOPIC_CREATION",
    "BACKLOG_QUOTA",
    "BOOKIE_AFFINITY",
    "CAPTURES",
    "DEDUPLICATION",
    "DEDUPLICATION_SNAPSHOT_INTERVAL",
    "DISPATCH_RATE",
    "ENCRYPTION_REQUIRED",
    "INACTIVE_TOPIC",
    "MAX_CONSUMERS_PER_SUBSCRIPTION",
    "MAX_CONSUMERS_PER_TOPIC",
    "MAX_MESSAGE_SIZE",
    "MAX_PRODUCERS_PER_TOPIC",
    "MAX_SUBSCRIPTIONS_PER_TOPIC",
    "MAX_TOPICS_PER_NAMESPACE",
    "MAX_UNACKED_MESSAGES_PER_CONSUMER",
    "MAX_UNACKED_MESSAGES_PER_SUBSCRIPTION",
    "MESSAGE_PRIORITY_WINDOW",
    "MESSAGE_TTL",
    "NO_QUOTA",
    "PERSISTENCE",
    "POLICIES",
    "PRIORITY_WINDOW_MAX",
    "PUBLISH_RATE",
    "RESOURCE_GROUP",
    "RETENTION",
    "SCHEMA_COMPATIBILITY_STRATEGY",
    "SCHEMA_VALIDATION_ENFORCED",
    "STORED_POLICIES",
    "SUBSCRIBE_RATE",
    "SUBSCRIPTION_AUTH_MODE",
    "SUBSCRIPTION_DISPATCH_RATE",
    "SUBSCRIPTION_EXPIRATION_TIME",
    "SUBSCRIPTION_TYPES_ENABLED",
    "UNACKED_REDELIVERY",
    "AutoSubscriptionCreation",
    "AutoTopicCreation",
    "BacklogQuota",
    "BookieAffinity",
    "DispatchRate",
    "InactiveTopicPolicies",
    "PersistencePolicies",
    "Policy",
    "PublishRate",
    "ResourceGroup",
    "RetentionPolicies",
    "SubscribeRate",
    "check_together",
]

T = TypeVar("T")

_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_MIB: Final = 1 << 20

PRIORITY_WINDOW_MAX: Final = 1_000_000

# Apache Pulsar's limits of these values: a Java int or long.
Count = Annotated[int, Meta(ge=0, le=_INT_MAX)]
Rate = Annotated[int, Meta(ge=-1, le=_INT_MAX)]
ByteRate = Annotated[int, Meta(ge=-1, le=_LONG_MAX)]
GroupName = Annotated[str, Meta(max_length=128, pattern="^[^/]*$")]


class PersistencePolicies(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Replication of a topic's ledgers. A change takes effect at the next ledger."""

    ensemble_size: Annotated[
        int, Meta(ge=1, le=1_000, description="Bookies that one ledger is spread over (E).")
    ] = msgspec.field(name="bookkeeperEnsemble")
    write_quorum: Annotated[int, Meta(ge=1, le=1_000, description="Copies of each entry (Qw).")] = (
        msgspec.field(name="bookkeeperWriteQuorum")
    )
    ack_quorum: Annotated[
        int, Meta(ge=1, le=1_000, description="Copies on disk before an entry is confirmed (Qa).")
    ] = msgspec.field(name="bookkeeperAckQuorum")
    mark_delete_rate: Annotated[
        float,
        Meta(
            ge=0,
            le=1_000,
            description=(
                "Times a second that acknowledgements without a waiting client are made "
                "durable; 0: at once."
            ),
        ),
    ] = msgspec.field(name="managedLedgerMaxMarkDeleteRate", default=0.0)
    storage_class: Literal["bookkeeper"] | None = msgspec.field(
        name="managedLedgerStorageClassName", default=None
    )

    def __post_init__(self) -> None:
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum:  # rule 1
            raise ValueError(
                f"bookkeeperEnsemble {self.ensemble_size} >= bookkeeperWriteQuorum "
                f"{self.write_quorum} >= bookkeeperAckQuorum"
                f" {self.ack_quorum} must hold"
            )


_BookieGroups = Annotated[
    str,
    Meta(
        max_length=1_000,
        pattern=r"^([^/,\s]+(,[^/,\s]+)*)?$",
        description="Names of groups, with commas between them; empty: any bookie.",
    ),
]


class BookieAffinity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The groups whose bookies hold a namespace's ledgers. A change takes effect at the next
    ledger.

    Bookies of the secondary ones are used, too, while the primary ones have fewer than E.
    """

    primary: _BookieGroups = msgspec.field(name="bookkeeperAffinityGroupPrimary")
    secondary: _BookieGroups | None = msgspec.field(
        name="bookkeeperAffinityGroupSecondary", default=None
    )

    def __post_init__(self) -> None:
        if self.secondary and not self.primary:
            raise ValueError(
                f"bookkeeperAffinityGroupSecondary {self.secondary} needs a "
                "bookkeeperAffinityGroupPrimary"
            )

    @property
    def groups(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The primary groups, none for any bookie, and the secondary ones."""
        primary, secondary = (
            tuple(names.split(",")) if names else () for names in (self.primary, self.secondary)
        )
        return primary, secondary


class RetentionPolicies(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """How long data is kept that no durable subscription needs: as long as all limits allow it. -1:
    no limit; time and size 0: not at all.
    """

    minutes: Annotated[int, Meta(ge=-1, le=_INT_MAX)] = msgspec.field(name="retentionTimeInMinutes")
    mb: Annotated[int, Meta(ge=-1, le=_LONG_MAX // _MIB)] = msgspec.field(name="retentionSizeInMB")
    count: Annotated[
        int,
        Meta(
            ge=-1,
            le=_LONG_MAX,
            description="Entries that are kept, a batch counts as one; -1: no limit.",
        ),
    ] = msgspec.field(name="retentionCountLimit", default=-1)

    def __post_init__(self) -> None:
        if (self.minutes == 0) != (self.mb == 0):
            raise ValueError(
                f"retentionTimeInMinutes {self.minutes} and retentionSizeInMB {self.mb} "
                "contradict each other: set both to 0, or neither"
            )
        if self.count == 0 or (self.count > 0 and self.minutes == 0):
            raise ValueError(
                f"retentionCountLimit {self.count}, retentionTimeInMinutes {self.minutes} and "
                f"retentionSizeInMB {self.mb} contradict each other: to keep by count, set it to 1 "
                "or more and the others to -1 or to limits; to keep nothing, set the others to 0 "
                "and leave it out"
            )


class BacklogQuota(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limit of a topic's backlog (``destination_storage``: bytes; ``message_age``: seconds), and
    what happens beyond it.
    """

    policy: QuotaPolicy
    limit_size_bytes: (
        Annotated[
            int,
            Meta(
                ge=-1,
                le=_LONG_MAX,
                description="Bytes above the slowest mark-delete position; -1: no limit.",
            ),
        ]
        | None
    ) = msgspec.field(name="limitSize", default=None)
    limit_time_seconds: Annotated[
        int, Meta(ge=-1, le=_INT_MAX, description="Age of the oldest message; -1: no limit.")
    ] = msgspec.field(name="limitTime", default=-1)
    limit: (
        Annotated[int, Meta(ge=-1, le=_LONG_MAX, description="The older name of limitSize.")] | None
    ) = None

    def __post_init__(self) -> None:
        size = self.limit if self.limit_size_bytes is None else self.limit_size_bytes
        msgspec.structs.force_setattr(self, "limit_size_bytes", -1 if size is None else size)
        msgspec.structs.force_setattr(self, "limit", self.limit_size_bytes)

    @property
    def size_bytes(self) -> int:
        """The limit in bytes; -1: no limit."""
        assert self.limit_size_bytes is not None
        return self.limit_size_bytes


NO_QUOTA: Final = BacklogQuota("producer_request_hold")


class AutoTopicCreation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the first producer or consumer creates a topic, and of which kind."""

    allow: bool = msgspec.field(name="allowAutoTopicCreation")
    topic_type: Literal["non-partitioned", "partitioned"] | None = msgspec.field(
        name="topicType", default=None
    )
    partitions: Annotated[int, Meta(ge=1, le=10_000)] | None = msgspec.field(
        name="defaultNumPartitions", default=None
    )

    def __post_init__(self) -> None:
        if self.allow and self.topic_type is None:
            raise ValueError(
                "allowAutoTopicCreation is true, so topicType must be partitioned or "
                "non-partitioned"
            )
        if self.topic_type == "partitioned" and self.partitions is None:
            raise ValueError("topicType is partitioned, so defaultNumPartitions must be 1 to 10000")
        if self.topic_type == "non-partitioned" and self.partitions is not None:
            raise ValueError(
                "topicType is non-partitioned, which has no defaultNumPartitions; leave "
                f"{self.partitions} out"
            )


class AutoSubscriptionCreation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a subscription's first consumer creates it."""

    allow: bool = msgspec.field(name="allowAutoSubscriptionCreation")


class PublishRate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a topic accepts in a second.

    Publishing beyond it is delayed, never failed. -1 or 0: no limit.
    """

    messages: Rate = msgspec.field(name="publishThrottlingRateInMsg", default=-1)
    size_bytes: ByteRate = msgspec.field(name="publishThrottlingRateInByte", default=-1)


class DispatchRate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is delivered in a period; further deliveries wait. -1 or 0: no limit."""

    messages: Rate = msgspec.field(name="dispatchThrottlingRateInMsg", default=-1)
    size_bytes: ByteRate = msgspec.field(name="dispatchThrottlingRateInByte", default=-1)
    relative_to_publish_rate: bool = msgspec.field(name="relativeToPublishRate", default=False)
    period_seconds: Annotated[int, Meta(ge=1, le=_INT_MAX)] = msgspec.field(
        name="ratePeriodInSecond", default=1
    )


class ResourceGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all topics of a resource group together take and deliver in a second, on all brokers.

    -1 or 0: no limit.
    """

    publish_messages: Rate = msgspec.field(name="publishRateInMsgs", default=-1)
    publish_bytes: ByteRate = msgspec.field(name="publishRateInBytes", default=-1)
    dispatch_messages: Rate = msgspec.field(name="dispatchRateInMsgs", default=-1)
    dispatch_bytes: ByteRate = msgspec.field(name="dispatchRateInBytes", default=-1)


class SubscribeRate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often one consumer may subscribe in a period. Further attempts are refused, and clients
    repeat them. -1 or 0: no limit.
    """

    count: Rate = msgspec.field(name="subscribeThrottlingRatePerConsumer", default=-1)
    period_seconds: Annotated[int, Meta(ge=1, le=_INT_MAX)] = msgspec.field(
        name="ratePeriodInSecond", default=30
    )


class InactiveTopicPolicies(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a topic without users is deleted."""

    delete_while_inactive: bool = msgspec.field(name="deleteWhileInactive")
    mode: InactiveDeleteMode = msgspec.field(
        name="inactiveTopicDeleteMode", default="delete_when_no_subscriptions"
    )
    seconds: Annotated[int, Meta(ge=1, le=_INT_MAX)] = msgspec.field(
        name="maxInactiveDurationSeconds", default=60
    )


class DelayedDelivery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether shared subscriptions respect delivery times."""

    active: bool
    tick_ms: Annotated[int, Meta(ge=1, le=_INT_MAX)] = msgspec.field(name="tickTime", default=500)
    max_delay_ms: Annotated[int, Meta(ge=0)] = msgspec.field(
        name="maxDeliveryDelayInMillis", default=0
    )


if TYPE_CHECKING:
    _SubscriptionTitle = str
else:
    _SubscriptionTitle = Literal[tuple(each.title for each in SubscriptionType)]
SubscriptionTypes = tuple[_SubscriptionTitle, ...]


@dataclass(frozen=True, eq=False)  # a frozen generic class cannot have slots
class Policy(Generic[T]):
    """One row.

    ``namespace`` and ``topic`` are the last words of its paths; empty: the policy does not exist at
    that level.
    """

    name: str  # name in metadata, in documentation and on the command line
    kind: Any  # the type T with its ranges, for msgspec
    meaning: str
    namespace: str = ""
    topic: str = ""
    field: str = ""  # name in Apache Pulsar's Policies, which GET of a namespace returns
    by_cluster: bool = False  # in a map by cluster there
    in_query: bool = False  # a query parameter sets a topic's value, not the body
    unset: Any = None  # what GET returns where no value is set; None: 204
    method: str = "POST"  # the HTTP method that sets it
    shows_applied: bool = False  # GET of a namespace may also request the value in force
    namespace_method: str = ""  # the HTTP method that sets a namespace's value, where it differs
    is_name: bool = False  # plain text, and the end of the path that sets it for a namespace
    is_for_operators: bool = False  # only a superuser may change it
    says_nothing: Any = None  # a value that means "not set": setting it removes what is set

    def value(self, raw: Any) -> T:
        """Return the value from its JSON form.

        Raises ``InvalidArgument`` naming field, value and allowed values.
        """
        return cast("T", value_of(self.kind, raw, self.name))


PERSISTENCE: Final = Policy[PersistencePolicies](
    "persistence",
    PersistencePolicies,
    "How a topic's ledgers are replicated; takes effect at the next ledger.",
    namespace="persistence",
    topic="persistence",
    field="persistence",
)
BOOKIE_AFFINITY: Final = Policy[BookieAffinity](
    "bookie_affinity_group",
    BookieAffinity,
    "The groups whose bookies hold the ledgers of a namespace, from each topic's next ledger on.",
    namespace="persistence/bookieAffinity",
    is_for_operators=True,
)
RETENTION: Final = Policy[RetentionPolicies](
    "retention",
    RetentionPolicies,
    "How long data is kept that no durable subscription needs.",
    namespace="retention",
    topic="retention",
    field="retention_policies",
)
MESSAGE_TTL: Final = Policy[int](
    "message_ttl_seconds",
    Count,
    "Messages older than this many seconds count as acknowledged; 0: never.",
    namespace="messageTTL",
    topic="messageTTL",
    field="message_ttl_in_seconds",
    in_query=True,
)
DEDUPLICATION: Final = Policy[bool](
    "deduplication",
    bool,
    "Whether an entry that a producer sends again is recognised by name and sequence id.",
    namespace="deduplication",
    topic="deduplicationEnabled",
    field="deduplicationEnabled",
)
DEDUPLICATION_SNAPSHOT_INTERVAL: Final = Policy[int](
    "deduplication_snapshot_interval_seconds",
    Count,
    "A snapshot of the marks of deduplication is at most this many seconds old; 0: only by number "
    "of entries.",
    namespace="deduplicationSnapshotInterval",
    topic="deduplicationSnapshotInterval",
    field="deduplicationSnapshotIntervalSeconds",
)
BACKLOG_QUOTA: Final = Policy[Mapping[QuotaType, BacklogQuota]](
    "backlog_quota",
    dict[QuotaType, BacklogQuota],
    "How much backlog a topic may have, and what happens beyond it.",
    namespace="backlogQuota",
    topic="backlogQuota",
    field="backlog_quota_map",
    unset={},
)
SUBSCRIPTION_EXPIRATION_TIME: Final = Policy[int](
    "subscription_expiration_time_minutes",
    Count,
    "A subscription without consumers for this many minutes is deleted; 0: never.",
    namespace="subscriptionExpirationTime",
    field="subscription_expiration_time_minutes",
)
AUTO_TOPIC_CREATION: Final = Policy[AutoTopicCreation](
    "auto_topic_creation",
    AutoTopicCreation,
    "Whether, and as what, a topic is made by its first producer or consumer.",
    namespace="autoTopicCreation",
    field="autoTopicCreationOverride",
)
AUTO_SUBSCRIPTION_CREATION: Final = Policy[AutoSubscriptionCreation](
    "auto_subscription_creation",
    AutoSubscriptionCreation,
    "Whether a subscription is made by its first consumer.",
    namespace="autoSubscriptionCreation",
    topic="autoSubscriptionCreation",
    field="autoSubscriptionCreationOverride",
)
COMPACTION_THRESHOLD: Final = Policy[int](
    "compaction_threshold_bytes",
    Count,
    "A topic is compacted when more bytes of it than this are not compacted yet; 0: only on "
    "demand.",
    namespace="compactionThreshold",
    topic="compactionThreshold",
    field="compaction_threshold",
    namespace_method="PUT",
)
MAX_PRODUCERS_PER_TOPIC: Final = Policy[int](
    "max_producers_per_topic",
    Count,
    "Producers connected to one topic; 0: no limit.",
    namespace="maxProducersPerTopic",
    topic="maxProducers",
    field="max_producers_per_topic",
)
MAX_CONSUMERS_PER_TOPIC: Final = Policy[int](
    "max_consumers_per_topic",
    Count,
    "Consumers connected to one topic; 0: no limit.",
    namespace="maxConsumersPerTopic",
    topic="maxConsumers",
    field="max_consumers_per_topic",
)
MAX_CONSUMERS_PER_SUBSCRIPTION: Final = Policy[int](
    "max_consumers_per_subscription",
    Count,
    "Consumers connected to one subscription; 0: no limit.",
    namespace="maxConsumersPerSubscription",
    topic="maxConsumersPerSubscription",
    field="max_consumers_per_subscription",
)
MAX_SUBSCRIPTIONS_PER_TOPIC: Final = Policy[int](
    "max_subscriptions_per_topic",
    Count,
    "Subscriptions of one topic, readers included; 0: no limit.",
    namespace="maxSubscriptionsPerTopic",
    topic="maxSubscriptionsPerTopic",
    field="max_subscriptions_per_topic",
)
MAX_TOPICS_PER_NAMESPACE: Final = Policy[int](
    "max_topics_per_namespace",
    Count,
    "Topics of a namespace, partitions one by one; 0: no limit.",
    namespace="maxTopicsPerNamespace",
    field="max_topics_per_namespace",
)
MAX_UNACKED_MESSAGES_PER_CONSUMER: Final = Policy[int](
    "max_unacked_messages_per_consumer",
    Count,
    "A shared consumer is sent no more at this many unacknowledged messages; 0: no limit.",
    namespace="maxUnackedMessagesPerConsumer",
    topic="maxUnackedMessagesOnConsumer",
    field="max_unacked_messages_per_consumer",
)
MAX_UNACKED_MESSAGES_PER_SUBSCRIPTION: Final = Policy[int](
    "max_unacked_messages_per_subscription",
    Count,
    "The consumers of a shared subscription are sent no more at this many unacknowledged messages "
    "in all; 0: no limit.",
    namespace="maxUnackedMessagesPerSubscription",
    topic="maxUnackedMessagesOnSubscription",
    field="max_unacked_messages_per_subscription",
)
UNACKED_REDELIVERY: Final = Policy[int](
    "unacked_redelivery_seconds",
    Count,
    "A message that a shared consumer has for this many seconds without acknowledging it is "
    "delivered again, by the broker itself; 0: never.",
    namespace="unackedRedelivery",
    topic="unackedRedelivery",
    field="unacked_redelivery_seconds",
)
MESSAGE_PRIORITY_WINDOW: Final = Policy[int](
    "message_priority_window",
    Annotated[int, Meta(ge=0, le=PRIORITY_WINDOW_MAX)],
    "How many entries a shared subscription reads ahead of its consumers, to deliver the highest "
    "priority among them first; 0: messages are delivered in the order of the log.",
    namespace="messagePriorityWindow",
    topic="messagePriorityWindow",
    field="message_priority_window",
)
MAX_MESSAGE_SIZE: Final = Policy[int](
    "max_message_size_bytes",
    Annotated[int, Meta(ge=0, le=60 * _MIB)],
    "The greatest message in bytes, at most what the broker allows; 0: what the broker allows.",
    topic="maxMessageSize",
)
PUBLISH_RATE: Final = Policy[PublishRate](
    "publish_rate",
    PublishRate,
    "What a topic takes in a second; publishing beyond it is held, never failed.",
    namespace="publishRate",
    topic="publishRate",
    field="publishMaxMessageRate",
    by_cluster=True,
)
DISPATCH_RATE: Final = Policy[DispatchRate](
    "dispatch_rate",
    DispatchRate,
    "What a topic delivers in a period, to all its subscriptions together.",
    namespace="dispatchRate",
    topic="dispatchRate",
    field="topicDispatchRate",
    by_cluster=True,
)
SUBSCRIPTION_DISPATCH_RATE: Final = Policy[DispatchRate](
    "subscription_dispatch_rate",
    DispatchRate,
    "What each subscription of a topic is delivered in a period.",
    namespace="subscriptionDispatchRate",
    topic="subscriptionDispatchRate",
    field="subscriptionDispatchRate",
    by_cluster=True,
)
SUBSCRIBE_RATE: Final = Policy[SubscribeRate](
    "subscribe_rate",
    SubscribeRate,
    "How often one consumer may subscribe in a period; further attempts are refused.",
    namespace="subscribeRate",
    topic="subscribeRate",
    field="clusterSubscribeRate",
    by_cluster=True,
)
RESOURCE_GROUP: Final = Policy[str](
    "resource_group",
    GroupName,
    "The resource group whose rates the topics share with all others of the group.",
    namespace="resourcegroup",
    topic="resourceGroup",
    field="resource_group_name",
    is_name=True,
    says_nothing="",
)
INACTIVE_TOPIC: Final = Policy[InactiveTopicPolicies](
    "inactive_topic",
    InactiveTopicPolicies,
    "When a topic without clients is deleted.",
    namespace="inactiveTopicPolicies",
    topic="inactiveTopicPolicies",
    field="inactive_topic_policies",
)
SUBSCRIPTION_TYPES_ENABLED: Final = Policy[SubscriptionTypes](
    "subscription_types_enabled",
    SubscriptionTypes,
    "The types of subscription that consumers may use; empty: all.",
    namespace="subscriptionTypesEnabled",
    topic="subscriptionTypesEnabled",
    field="subscription_types_enabled",
    unset=[],
)
DELAYED_DELIVERY: Final = Policy[DelayedDelivery](
    "delayed_delivery",
    DelayedDelivery,
    "Whether shared and key-shared subscriptions respect the delivery time of a message, and how "
    "exactly.",
    namespace="delayedDelivery",
    topic="delayedDelivery",
    field="delayed_delivery_policies",
)
SCHEMA_COMPATIBILITY_STRATEGY: Final = Policy[SchemaStrategy](
    "schema_compatibility_strategy",
    SchemaStrategy | Literal["UNDEFINED"],
    "What a new schema of a topic must have in common with those before it.",
    namespace="schemaCompatibilityStrategy",
    topic="schemaCompatibilityStrategy",
    field="schema_compatibility_strategy",
    unset="UNDEFINED",
    method="PUT",
    says_nothing="UNDEFINED",
)
ALLOW_AUTO_UPDATE_SCHEMA: Final = Policy[bool](
    "allow_auto_update_schema",
    bool,
    "Whether producers may bring new schemas to a topic; otherwise only the administration does.",
    namespace="isAllowAutoUpdateSchema",
    field="is_allow_auto_update_schema",
    unset=True,
)
SCHEMA_VALIDATION_ENFORCED: Final = Policy[bool](
    "schema_validation_enforced",
    bool,
    "Whether a producer without a schema is refused on a topic that has one.",
    namespace="schemaValidationEnforced",
    topic="schemaValidationEnforced",
    field="schema_validation_enforced",
    unset=False,
    shows_applied=True,
)
ENCRYPTION_REQUIRED: Final = Policy[bool](
    "encryption_required",
    bool,
    "Whether producers must encrypt their messages; others are refused.",
    namespace="encryptionRequired",
    field="encryption_required",
    unset=False,
)
SUBSCRIPTION_AUTH_MODE: Final = Policy[SubscriptionAuthMode](
    "subscription_auth_mode",
    SubscriptionAuthMode,
    "Whether the name of a subscription must begin with the role of its consumer.",
    namespace="subscriptionAuthMode",
    field="subscription_auth_mode",
    unset="None",
    says_nothing="None",
)
AUTH_POLICIES: Final = Policy[AuthPolicies](
    "auth_policies",
    AuthPolicies,
    "Which roles have which permissions.",
    field="auth_policies",
)
"""The grants of a namespace.

They are stored with its policies, and have routes and commands of their own.
"""
CAPTURES: Final = Policy[Mapping[str, CaptureRule]](
    "captures",
    dict[str, CaptureRule],
    "Which non-persistent topics are captured into persistent ones, by name of the rule.",
    field="captures",
)
"""The rules have routes and commands of their own, since who sets one must be allowed to publish to
the persistent topic.
"""

POLICIES: Final[tuple[Policy[Any], ...]] = (
    PERSISTENCE,
    BOOKIE_AFFINITY,
    RETENTION,
    MESSAGE_TTL,
    DEDUPLICATION,
    DEDUPLICATION_SNAPSHOT_INTERVAL,
    BACKLOG_QUOTA,
    SUBSCRIPTION_EXPIRATION_TIME,
    AUTO_TOPIC_CREATION,
    AUTO_SUBSCRIPTION_CREATION,
    COMPACTION_THRESHOLD,
    MAX_PRODUCERS_PER_TOPIC,
    MAX_CONSUMERS_PER_TOPIC,
    MAX_CONSUMERS_PER_SUBSCRIPTION,
    MAX_SUBSCRIPTIONS_PER_TOPIC,
    MAX_TOPICS_PER_NAMESPACE,
    MAX_UNACKED_MESSAGES_PER_CONSUMER,
    MAX_UNACKED_MESSAGES_PER_SUBSCRIPTION,
    UNACKED_REDELIVERY,
    MESSAGE_PRIORITY_WINDOW,
    MAX_MESSAGE_SIZE,
    PUBLISH_RATE,
    DISPATCH_RATE,
    SUBSCRIPTION_DISPATCH_RATE,
    SUBSCRIBE_RATE,
    RESOURCE_GROUP,
    INACTIVE_TOPIC,
    SUBSCRIPTION_TYPES_ENABLED,
    DELAYED_DELIVERY,
    SCHEMA_COMPATIBILITY_STRATEGY,
    ALLOW_AUTO_UPDATE_SCHEMA,
    SCHEMA_VALIDATION_ENFORCED,
    ENCRYPTION_REQUIRED,
    SUBSCRIPTION_AUTH_MODE,
)
STORED_POLICIES: Final[tuple[Policy[Any], ...]] = (*POLICIES, AUTH_POLICIES, CAPTURES)
"""What the record of a namespace may hold."""


def check_together(retention: RetentionPolicies, quotas: Mapping[QuotaType, BacklogQuota]) -> None:
    """Check that limited retention exceeds the backlog quota.

    Raises ``InvalidArgument`` naming both.
    """
    if retention.minutes <= 0 and retention.mb <= 0:
        return
    for name, quota in quotas.items():
        if 0 < retention.mb << 20 <= quota.size_bytes:
            raise InvalidArgument(
                f"retention of retentionSizeInMB {retention.mb} must exceed the backlog quota "
                f"{name} of limitSize {quota.size_bytes} bytes;"
                " raise the retention or lower the quota"
            )
        if 0 < retention.minutes * 60 <= quota.limit_time_seconds:
            raise InvalidArgument(
                f"retention of retentionTimeInMinutes {retention.minutes} must exceed the "
                f"backlog quota {name} of limitTime"
                f" {quota.limit_time_seconds} s; raise the retention or lower the quota"
            )
