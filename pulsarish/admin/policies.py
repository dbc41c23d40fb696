"""The policies of namespaces and topics: one table of Apache Pulsar's paths, shapes and units, and
the calls that read and write them.

The command line derives its ``set-``, ``get-`` and ``remove-`` commands from this table. Each row
has the paths of a row in ``model/policies.py``, which declares what the broker accepts; a test
holds the two tables together.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, get_args

from pulsarish.admin.transport import Names, Transport
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.policy_words import (
    InactiveDeleteMode,
    QuotaPolicy,
    QuotaType,
    SchemaStrategy,
    SubscriptionAuthMode,
)
from pulsarish.model.subscription_type import SubscriptionType

__all__ = [
    "NAMESPACE",
    "POLICIES",
    "TOPIC",
    "Field",
    "Level",
    "Policy",
    "PolicyCalls",
    "policies_of",
]

Level = Literal["namespace", "topic"]
NAMESPACE: Final[Level] = "namespace"
TOPIC: Final[Level] = "topic"

Unit = Literal[
    "flag", "count", "rate", "choice", "name", "names", "minutes", "seconds", "megabytes", "bytes"
]


@dataclass(frozen=True, slots=True)
class Field:
    """A part of a policy's value.

    ``key`` is its name in the JSON, empty when the field is the whole value. Units are those of the
    JSON; a megabyte is 1,048,576 bytes, as in Apache Pulsar. ``option`` and ``example`` are for the
    command line. ``unlimited``: -1 stands for no limit. ``minimum``: the least count.
    """

    key: str
    option: str
    unit: Unit
    what: str
    example: str
    choices: tuple[str, ...] = ()
    required: bool = True
    unlimited: bool = False
    minimum: int = 0


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy's name and meaning, its value, and the last word of its paths below a namespace and
    a topic.

    Empty: the policy does not exist there.
    """

    name: str
    what: str
    fields: tuple[Field, ...]
    namespace: str = ""
    topic: str = ""
    read: str = ""  # the last word of the path for reading, where it differs
    # this field's value goes into the query: each kind is set and removed separately
    kind: str = ""
    kind_limits: tuple[str, ...] = ()  # for each kind, the key of its limit
    topic_query: str = ""  # a topic's value goes into the query under this name
    method: str = "POST"  # the HTTP method that sets it
    in_path: bool = False  # a namespace's value is the end of the path that sets it
    namespace_method: str = ""  # the HTTP method that sets a namespace's value, where it differs

    def leaf(self, level: Level) -> str:
        return self.namespace if level == NAMESPACE else self.topic

    @property
    def plain(self) -> Field | None:
        """The one field of a policy whose value is not an object."""
        return self.fields[0] if not self.fields[0].key else None


def _limit(name: str, what: str, namespace: str, topic: str) -> Policy:
    return Policy(
        name, what, (Field("", "count", "count", "0: no limit.", "100"),), namespace, topic
    )


def _rate(messages: str, size: str) -> tuple[Field, ...]:
    return (
        Field(
            messages, "messages", "count", "Number of messages; 0: any.", "1000", (), False, True
        ),
        Field(size, "bytes", "bytes", "Number of bytes; 0: any.", "1MB", (), False, True),
    )


_PERIOD: Final = (
    Field(
        "ratePeriodInSecond",
        "period",
        "seconds",
        "How long a period is; 1s without it.",
        "",
        (),
        False,
    ),
    Field(
        "relativeToPublishRate",
        "relative",
        "flag",
        "Whether this is allowed on top of what is published.",
        "",
        (),
        False,
    ),
)

POLICIES: Final[tuple[Policy, ...]] = (
    Policy(
        "retention",
        "how long and how much is kept that no subscription needs",
        (
            Field(
                "retentionTimeInMinutes",
                "time",
                "minutes",
                "Keep for this long.",
                "7d",
                unlimited=True,
            ),
            Field(
                "retentionSizeInMB",
                "size",
                "megabytes",
                "Size to keep of each topic.",
                "10GB",
                unlimited=True,
            ),
            Field(
                "retentionCountLimit",
                "count",
                "count",
                "Newest entries to keep of each topic, a batch counts as one; without it, all that "
                "the others keep.",
                "",
                required=False,
                unlimited=True,
            ),
        ),
        "retention",
        "retention",
    ),
    Policy(
        "ttl",
        "the age at which messages count as acknowledged by every subscription",
        (Field("", "age", "seconds", "0s: never.", "3d"),),
        "messageTTL",
        "messageTTL",
        topic_query="messageTTL",
    ),
    Policy(
        "backlog-quota",
        "how much backlog a topic may have, and what happens beyond it",
        (
            Field(
                "limitSize",
                "limit",
                "bytes",
                "With --type destination_storage: the size of the backlog.",
                "10GB",
                (),
                False,
                True,
            ),
            Field(
                "limitTime",
                "time",
                "seconds",
                "With --type message_age: the oldest message is at most this old.",
                "",
                (),
                False,
                True,
            ),
            Field(
                "policy",
                "policy",
                "choice",
                "What happens beyond it.",
                "producer_exception",
                get_args(QuotaPolicy),
            ),
            Field(
                "backlogQuotaType",
                "type",
                "choice",
                "What is limited; destination_storage without it.",
                "",
                get_args(QuotaType),
                False,
            ),
        ),
        "backlogQuota",
        "backlogQuota",
        read="backlogQuotaMap",
        kind="backlogQuotaType",
        kind_limits=("limitSize", "limitTime"),
    ),
    Policy(
        "persistence",
        "how many bookies and copies a topic's ledgers have, from its next ledger on",
        (
            Field(
                "bookkeeperEnsemble",
                "ensemble",
                "count",
                "Bookies that one ledger is spread over (E).",
                "3",
                minimum=1,
            ),
            Field(
                "bookkeeperWriteQuorum",
                "write-quorum",
                "count",
                "Copies of each entry (Qw).",
                "3",
                minimum=1,
            ),
            Field(
                "bookkeeperAckQuorum",
                "ack-quorum",
                "count",
                "Copies on disk before a message is confirmed (Qa).",
                "2",
                minimum=1,
            ),
            Field(
                "managedLedgerMaxMarkDeleteRate",
                "mark-delete-rate",
                "rate",
                "Cursor writes a second; 0: at once.",
                "",
                (),
                False,
            ),
        ),
        "persistence",
        "persistence",
    ),
    Policy(
        "bookie-affinity-group",
        "the groups whose bookies hold the ledgers, from each topic's next ledger on",
        (
            Field(
                "bookkeeperAffinityGroupPrimary",
                "primary-group",
                "name",
                "Groups, with commas between them.",
                "payments",
            ),
            Field(
                "bookkeeperAffinityGroupSecondary",
                "secondary-group",
                "name",
                "Groups that are used, too, while those have too few bookies.",
                "spare",
                (),
                False,
            ),
        ),
        "persistence/bookieAffinity",
    ),
    Policy(
        "deduplication",
        "whether a message that a producer sends again is recognised",
        (Field("", "state", "flag", "", "on"),),
        "deduplication",
        "deduplicationEnabled",
    ),
    Policy(
        "deduplication-snapshot-interval",
        "how old a snapshot of deduplication may be",
        (Field("", "age", "seconds", "0s: only by number of entries.", "2m"),),
        "deduplicationSnapshotInterval",
        "deduplicationSnapshotInterval",
    ),
    Policy(
        "subscription-expiration-time",
        "after how long a subscription without consumers is deleted",
        (Field("", "time", "minutes", "0m: never.", "30d"),),
        "subscriptionExpirationTime",
    ),
    Policy(
        "auto-topic-creation",
        "whether, and as what, a topic is made by its first producer or consumer",
        (
            Field("allowAutoTopicCreation", "allow", "flag", "Whether it is.", "on"),
            Field(
                "topicType",
                "type",
                "choice",
                "As what.",
                "partitioned",
                ("partitioned", "non-partitioned"),
                False,
            ),
            Field(
                "defaultNumPartitions",
                "partitions",
                "count",
                "With how many, if partitioned.",
                "4",
                (),
                False,
                minimum=1,
            ),
        ),
        "autoTopicCreation",
    ),
    Policy(
        "auto-subscription-creation",
        "whether a subscription is made by its first consumer",
        (Field("allowAutoSubscriptionCreation", "allow", "flag", "Whether it is.", "off"),),
        "autoSubscriptionCreation",
        "autoSubscriptionCreation",
    ),
    Policy(
        "resource-group",
        "the resource group whose rates the topics share",
        (Field("", "group", "name", "One that exists; see: pulsarish resourcegroups.", "gold"),),
        "resourcegroup",
        "resourceGroup",
        in_path=True,
    ),
    Policy(
        "inactive-topic-policies",
        "whether and when a topic without clients is deleted",
        (
            Field("deleteWhileInactive", "delete", "flag", "Whether it is.", "on"),
            Field("maxInactiveDurationSeconds", "after", "seconds", "After this long.", "7d"),
            Field(
                "inactiveTopicDeleteMode",
                "mode",
                "choice",
                "Which topics count as unused.",
                get_args(InactiveDeleteMode)[0],
                get_args(InactiveDeleteMode),
            ),
        ),
        "inactiveTopicPolicies",
        "inactiveTopicPolicies",
    ),
    Policy(
        "subscription-types-enabled",
        "which types of subscription consumers may use",
        (
            Field(
                "",
                "type",
                "names",
                "All without one.",
                "Shared Key_Shared",
                tuple(each.title for each in SubscriptionType),
                False,
            ),
        ),
        "subscriptionTypesEnabled",
        "subscriptionTypesEnabled",
    ),
    Policy(
        "compaction-threshold",
        "how much of a topic may be uncompacted before it is compacted",
        (Field("", "size", "bytes", "0: only on demand.", "100MB"),),
        "compactionThreshold",
        "compactionThreshold",
        namespace_method="PUT",
    ),
    _limit(
        "max-topics-per-namespace",
        "how many topics a namespace may have",
        "maxTopicsPerNamespace",
        "",
    ),
    _limit(
        "max-producers-per-topic",
        "how many producers a topic may have",
        "maxProducersPerTopic",
        "maxProducers",
    ),
    _limit(
        "max-consumers-per-topic",
        "how many consumers a topic may have",
        "maxConsumersPerTopic",
        "maxConsumers",
    ),
    _limit(
        "max-subscriptions-per-topic",
        "how many subscriptions a topic may have",
        "maxSubscriptionsPerTopic",
        "maxSubscriptionsPerTopic",
    ),
    _limit(
        "max-consumers-per-subscription",
        "how many consumers a subscription may have",
        "maxConsumersPerSubscription",
        "maxConsumersPerSubscription",
    ),
    _limit(
        "max-unacked-messages-per-consumer",
        "how many messages a shared consumer may hold unacknowledged",
        "maxUnackedMessagesPerConsumer",
        "maxUnackedMessagesOnConsumer",
    ),
    _limit(
        "max-unacked-messages-per-subscription",
        "how many messages all consumers of a shared subscription may hold unacknowledged",
        "maxUnackedMessagesPerSubscription",
        "maxUnackedMessagesOnSubscription",
    ),
    Policy(
        "unacked-redelivery",
        "how long a shared consumer may hold a message before the broker delivers it again",
        (Field("", "time", "seconds", "0: never.", "10m"),),
        "unackedRedelivery",
        "unackedRedelivery",
    ),
    Policy(
        "message-priority-window",
        "how far a shared subscription looks ahead for messages with a higher priority",
        (Field("", "count", "count", "0: deliver in the order of the log.", "10000"),),
        "messagePriorityWindow",
        "messagePriorityWindow",
    ),
    Policy(
        "max-message-size",
        "how large a message may be",
        (Field("", "size", "bytes", "0: as large as the broker takes.", "1MB"),),
        topic="maxMessageSize",
    ),
    Policy(
        "publish-rate",
        "how much a topic takes in a second; publishing beyond it is held",
        _rate("publishThrottlingRateInMsg", "publishThrottlingRateInByte"),
        "publishRate",
        "publishRate",
    ),
    Policy(
        "dispatch-rate",
        "how much a topic delivers in a period, to all subscriptions together",
        _rate("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte") + _PERIOD,
        "dispatchRate",
        "dispatchRate",
    ),
    Policy(
        "subscription-dispatch-rate",
        "how much each subscription of a topic is delivered in a period",
        _rate("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte") + _PERIOD,
        "subscriptionDispatchRate",
        "subscriptionDispatchRate",
    ),
    Policy(
        "subscribe-rate",
        "how often one consumer may subscribe in a period; clients repeat what is refused",
        (
            Field(
                "subscribeThrottlingRatePerConsumer",
                "count",
                "count",
                "Number of times; 0: any.",
                "10",
                (),
                False,
                True,
            ),
            Field(
                "ratePeriodInSecond",
                "period",
                "seconds",
                "How long a period is; 30s without it.",
                "",
                (),
                False,
            ),
        ),
        "subscribeRate",
        "subscribeRate",
    ),
    Policy(
        "delayed-delivery",
        "whether shared subscriptions respect the delivery time of a message",
        (
            Field("active", "active", "flag", "Whether they do.", "on"),
            Field(
                "tickTime",
                "tick-ms",
                "count",
                "Times are rounded up to this, in milliseconds, 1 or more; 500 without it.",
                "500",
                (),
                False,
                minimum=1,
            ),
            Field(
                "maxDeliveryDelayInMillis",
                "max-delay-ms",
                "count",
                "How far ahead a time may lie; 0: no limit.",
                "0",
                (),
                False,
            ),
        ),
        "delayedDelivery",
        "delayedDelivery",
    ),
    Policy(
        "schema-compatibility-strategy",
        "what a new schema must have in common with those before it",
        (Field("", "strategy", "choice", "", "BACKWARD", get_args(SchemaStrategy)),),
        "schemaCompatibilityStrategy",
        "schemaCompatibilityStrategy",
        method="PUT",
    ),
    Policy(
        "is-allow-auto-update-schema",
        "whether producers may bring new schemas",
        (Field("", "state", "flag", "", "off"),),
        "isAllowAutoUpdateSchema",
    ),
    Policy(
        "schema-validation-enforced",
        "whether a producer without a schema is refused where there is one",
        (Field("", "state", "flag", "", "on"),),
        "schemaValidationEnforced",
        "schemaValidationEnforced",
    ),
    Policy(
        "encryption-required",
        "whether producers must encrypt their messages",
        (Field("", "state", "flag", "", "on"),),
        "encryptionRequired",
    ),
    Policy(
        "subscription-auth-mode",
        "whether the name of a subscription must begin with the role of its consumer",
        (Field("", "mode", "choice", "", "Prefix", get_args(SubscriptionAuthMode)),),
        "subscriptionAuthMode",
    ),
)


def policies_of(level: Level) -> tuple[Policy, ...]:
    return tuple(policy for policy in POLICIES if policy.leaf(level))


_BY_NAME: Final = {policy.name: policy for policy in POLICIES}


class PolicyCalls:
    """The policy calls of ``Admin.namespaces`` and ``Admin.topics``.

    Policies are named as in ``POLICIES``.

    Values have Apache Pulsar's JSON form: a plain value, or an object with the keys of the policy's
    fields. An unknown name raises ``InvalidArgument``. A policy that this version does not apply
    raises ``OperationNotSupported``.
    """

    _level: ClassVar[Level]
    _transport: Transport

    def _path(self, resource: str) -> Names:
        raise NotImplementedError

    def get_policy(self, resource: str, name: str, *, applied: bool = False) -> Any:
        """Return the value that is set; ``None``, or an empty value, when there is none.

        ``applied``, for topics: the value in force, from any level.
        """
        policy = self._policy(name)
        path = [*self._path(resource), *(policy.read or policy.leaf(self._level)).split("/")]
        if policy.in_path:
            query = {"applied": "true"} if applied else None
            return self._transport.exchange("GET", path, query=query).payload.decode() or None
        return self._transport.request("GET", path, query={"applied": "true"} if applied else None)

    def set_policy(self, resource: str, name: str, value: Any) -> None:
        """Replace the value. Raises ``InvalidArgument`` naming field, value and allowed range."""
        policy = self._policy(name)
        query: dict[str, str] | None = None
        body = value
        if policy.kind and policy.kind in value:
            query = {policy.kind: str(value[policy.kind])}
            body = {key: part for key, part in value.items() if key != policy.kind}
        elif policy.topic_query and self._level == TOPIC:
            query, body = {policy.topic_query: str(value)}, None
        method = (
            policy.namespace_method
            if policy.namespace_method and self._level == NAMESPACE
            else policy.method
        )
        path = [*self._path(resource), *policy.leaf(self._level).split("/")]
        if policy.in_path and self._level == NAMESPACE:
            path, body = [*path, str(value)], None
        self._transport.request(method, path, query=query, body=body)

    def remove_policy(self, resource: str, name: str, *, kind: str = "") -> None:
        """Remove the value.

        A topic then has its namespace's policy, a namespace the broker's. ``kind``: which backlog
        quota.
        """
        policy = self._policy(name)
        query = {policy.kind: kind} if kind else None
        self._transport.request(
            "DELETE", [*self._path(resource), *policy.leaf(self._level).split("/")], query=query
        )

    def _policy(self, name: str) -> Policy:
        policy = _BY_NAME.get(name)
        if policy is None or not policy.leaf(self._level):
            known = [each.name for each in policies_of(self._level)]
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
            raise InvalidArgument(f"a {self._level} has no policy {name!r}{hint}")
        return policy
