"""The policies of a broker: what is in force (topic over namespace over broker), and how to change
it.

A change is one compare-and-set. A change of a topic's own policies is one commit with the
namespace's node, which counts such changes. So brokers watch one node for each namespace in use,
and no node for a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

import msgspec

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.group_rates import Groups
from pulsarish.broker.policies.group_store import GroupStore
from pulsarish.broker.policies.shared_rates import Rate, SharedRates
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import ATTEMPTS_MAX, Records
from pulsarish.metadata.records import (
    NamespacePolicies,
    PartitionedTopic,
    TopicPolicies,
    TopicRecord,
)
from pulsarish.model import policies as model
from pulsarish.model.captures import CaptureRule
from pulsarish.model.errors import (
    CorruptData,
    InvalidArgument,
    MetadataUnavailable,
    NotFound,
    TopicNotFound,
)
from pulsarish.model.grants import AuthPolicies
from pulsarish.model.policies import STORED_POLICIES, BacklogQuota, Policy
from pulsarish.model.policy_words import QuotaType
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Conflict, Op
from pulsarish.wire.json_record import encode_record

__all__ = [
    "BrokerDefaults",
    "Change",
    "Defaults",
    "Effective",
    "PolicyStore",
    "Values",
    "broker_defaults",
    "captures_of",
    "decoded",
    "grants_of",
    "policies_path",
    "sources_of",
]

T = TypeVar("T")

Values = Mapping[Policy[Any], Any]
Change = Callable[[Any], Any]
"""Maps the stored JSON value (``None``: nothing is set) to the new one."""

_BY_NAME: Final = {policy.name: policy for policy in STORED_POLICIES}
_TOPIC_CHANGES_KEPT: Final = 32


class Defaults(dict[Policy[Any], Any]):
    """The broker's value of every policy, and the rates that topics of it share: all of them, and
    those of each resource group.
    """

    __slots__ = ("groups", "rates")

    def __init__(self, values: Values, rates: SharedRates, groups: Groups) -> None:
        super().__init__(values)
        self.rates = rates
        self.groups = groups


def broker_defaults(
    config: BrokerConfig, rates: SharedRates | None = None, groups: Groups | None = None
) -> Defaults:
    """Return the broker's value of every policy, for topics and namespaces that set nothing.

    ``rates``: those of the broker, which get the values of the options; without it new ones.
    ``groups``: the resource groups that are in use on the broker; without it none.
    """
    rates = rates or SharedRates("the broker")
    rates.want(
        Rate(
            config.broker_publisher_throttling_max_message_rate,
            config.broker_publisher_throttling_max_byte_rate,
        ),
        Rate(config.dispatch_throttling_rate_in_msg, config.dispatch_throttling_rate_in_byte),
    )
    return Defaults(_default_values(config), rates, groups or Groups())


def _default_values(config: BrokerConfig) -> Values:
    log = config.managed_ledger
    quota = config.backlog_quota_default_retention_policy
    flush_ms = log.cursor_flush_interval_ms
    partitioned = config.allow_auto_topic_creation_type == "partitioned"
    return {
        model.PERSISTENCE: model.PersistencePolicies(
            log.ensemble_size,
            log.write_quorum,
            log.ack_quorum,
            1000 / flush_ms if flush_ms else 0.0,
        ),
        model.BOOKIE_AFFINITY: model.BookieAffinity(
            ",".join(log.isolation_groups), ",".join(log.secondary_isolation_groups) or None
        ),
        model.RETENTION: model.RetentionPolicies(
            config.default_retention_time_minutes, config.default_retention_size_mb
        ),
        model.MESSAGE_TTL: config.ttl_duration_default_in_seconds,
        model.DEDUPLICATION: config.broker_deduplication_enabled,
        model.DEDUPLICATION_SNAPSHOT_INTERVAL: (
            config.broker_deduplication_snapshot_interval_seconds
        ),
        model.BACKLOG_QUOTA: {
            "destination_storage": model.BacklogQuota(
                quota, config.backlog_quota_default_limit_bytes
            ),
            "message_age": model.BacklogQuota(
                quota, limit_time_seconds=config.backlog_quota_default_limit_second
            ),
        },
        model.SUBSCRIPTION_EXPIRATION_TIME: config.subscription_expiration_time_minutes,
        model.AUTO_TOPIC_CREATION: model.AutoTopicCreation(
            config.allow_auto_topic_creation,
            config.allow_auto_topic_creation_type,
            config.default_num_partitions if partitioned else None,
        ),
        model.AUTO_SUBSCRIPTION_CREATION: model.AutoSubscriptionCreation(
            config.allow_auto_subscription_creation
        ),
        model.COMPACTION_THRESHOLD: config.broker_service_compaction_threshold_in_bytes,
        model.MAX_PRODUCERS_PER_TOPIC: config.max_producers_per_topic,
        model.MAX_CONSUMERS_PER_TOPIC: config.max_consumers_per_topic,
        model.MAX_CONSUMERS_PER_SUBSCRIPTION: config.max_consumers_per_subscription,
        model.MAX_SUBSCRIPTIONS_PER_TOPIC: config.max_subscriptions_per_topic,
        model.MAX_TOPICS_PER_NAMESPACE: config.max_topics_per_namespace,
        model.MAX_UNACKED_MESSAGES_PER_CONSUMER: config.max_unacked_messages_per_consumer,
        model.MAX_UNACKED_MESSAGES_PER_SUBSCRIPTION: config.max_unacked_messages_per_subscription,
        model.UNACKED_REDELIVERY: config.unacked_redelivery_seconds,
        model.MESSAGE_PRIORITY_WINDOW: config.message_priority_window,
        model.MAX_MESSAGE_SIZE: config.max_message_size_bytes,
        model.PUBLISH_RATE: model.PublishRate(
            config.max_publish_rate_per_topic_in_messages,
            config.max_publish_rate_per_topic_in_bytes,
        ),
        model.DISPATCH_RATE: model.DispatchRate(
            config.dispatch_throttling_rate_per_topic_in_msg,
            config.dispatch_throttling_rate_per_topic_in_byte,
        ),
        model.SUBSCRIPTION_DISPATCH_RATE: model.DispatchRate(
            config.dispatch_throttling_rate_per_subscription_in_msg,
            config.dispatch_throttling_rate_per_subscription_in_byte,
        ),
        model.SUBSCRIBE_RATE: model.SubscribeRate(
            config.subscribe_throttling_rate_per_consumer,
            config.subscribe_rate_period_per_consumer_in_second,
        ),
        model.RESOURCE_GROUP: "",
        model.INACTIVE_TOPIC: model.InactiveTopicPolicies(
            config.broker_delete_inactive_topics_enabled,
            config.broker_delete_inactive_topics_mode,
            config.broker_delete_inactive_topics_max_inactive_duration_seconds,
        ),
        model.SUBSCRIPTION_TYPES_ENABLED: (),
        model.DELAYED_DELIVERY: model.DelayedDelivery(
            config.delayed_delivery_enabled,
            config.delayed_delivery_tick_time_millis,
            config.delayed_delivery_max_delay_in_millis,
        ),
        model.SCHEMA_COMPATIBILITY_STRATEGY: config.schema_compatibility_strategy,
        model.ALLOW_AUTO_UPDATE_SCHEMA: config.is_allow_auto_update_schema_enabled,
        model.SCHEMA_VALIDATION_ENFORCED: config.is_schema_validation_enforced,
        model.ENCRYPTION_REQUIRED: False,
        model.SUBSCRIPTION_AUTH_MODE: "None",
    }


def decoded(stored: Mapping[str, Any], path: str) -> Values:
    """Decode the values of a record.

    Policies of a newer version are skipped. Raises ``CorruptData``.
    """
    try:
        return {
            _BY_NAME[name]: _BY_NAME[name].value(raw)
            for name, raw in stored.items()
            if name in _BY_NAME
        }
    except InvalidArgument as error:
        # A guessed value could delete data that must be kept.
        raise CorruptData(
            f"metadata node {path} holds a policy that this broker cannot read: {error}"
        ) from None


_NOTHING: Final[Values] = {}
_NO_GRANTS: Final = AuthPolicies()


def grants_of(values: Values) -> AuthPolicies:
    """Return the grants among the policies that a namespace sets."""
    found: AuthPolicies = values.get(model.AUTH_POLICIES, _NO_GRANTS)
    return found


def captures_of(values: Values) -> Mapping[str, CaptureRule]:
    """Return the rules of capture, by name, among the policies that a namespace sets."""
    found: Mapping[str, CaptureRule] = values.get(model.CAPTURES, {})
    return found


class Effective:
    """The policies in force for one topic, or for a namespace when ``topic`` is empty.

    Three references; the values are shared.
    """

    __slots__ = ("defaults", "namespace", "topic")

    def __init__(
        self, defaults: Defaults, namespace: Values = _NOTHING, topic: Values = _NOTHING
    ) -> None:
        self.defaults = defaults
        self.namespace = namespace
        self.topic = topic

    def __getitem__(self, policy: Policy[T]) -> T:
        for level in (self.topic, self.namespace):
            if policy in level:
                found = level[policy]
                return cast("T", found)
        return cast("T", self.defaults[policy])

    def quotas(self) -> Mapping[QuotaType, BacklogQuota]:
        """Return both backlog quotas.

        Each type is a policy of its own, although they are set in one map.
        """
        levels = (self.defaults, self.namespace, self.topic)
        return {
            name: quota
            for level in levels
            for name, quota in level.get(model.BACKLOG_QUOTA, {}).items()
        }


def sources_of(name: TopicName) -> TopicName:
    """Return the topic whose policies apply: for a partition its partitioned topic."""
    return name.partitioned if name.partition >= 0 else name


def policies_path(name: TopicName) -> str:
    """Return the path of the node with the policies of an existing topic or partition."""
    return paths.topic_policies(
        paths.partitioned_topic(name.partitioned) if name.partition >= 0 else paths.topic(name)
    )


class BrokerDefaults:
    """The broker's value of every policy, until an option changes."""

    __slots__ = ("_config", "values")

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.values = broker_defaults(config)

    def options_changed(self) -> None:
        """Make the values again, as another mapping: what has the former one is out of date."""
        self.values = broker_defaults(self._config, self.values.rates, self.values.groups)


class PolicyStore:
    """Reads and changes policies in metadata, for one broker."""

    def __init__(
        self, records: Records, defaults: BrokerDefaults, written: Callable[[str], None]
    ) -> None:
        """Create the store.

        ``written`` is called with the path of a namespace's node after each change, so that the
        next read on this broker sees it.
        """
        self.groups = GroupStore(records)
        self._defaults = defaults
        self._records = records
        self._written = written

    @property
    def defaults(self) -> Defaults:
        """The broker's value of every policy."""
        return self._defaults.values

    # -- policies of a namespace

    async def set_namespace(
        self, tenant: str, namespace: str, policy: Policy[Any], change: Change
    ) -> None:
        """Change a policy of a namespace.

        Raises ``NotFound`` (also a resource group that does not exist), ``InvalidArgument`` (it
        contradicts another policy), and the errors of ``change``.
        """
        path, group = paths.namespace(tenant, namespace), _group(policy, change)

        def decide(record: NamespacePolicies | None) -> NamespacePolicies:
            if record is None:
                raise NotFound(f"namespace {tenant}/{namespace} does not exist")
            wanted = _changed(record.policies, policy, change)
            self._check_together(Effective(self.defaults, decoded(wanted, path)), policy)
            return msgspec.structs.replace(record, policies=wanted)

        for _ in range(ATTEMPTS_MAX):
            ops = await self.groups.use(group, f"{tenant}/{namespace}")
            try:
                await self._records.update(
                    path, NamespacePolicies, decide, with_ops=partial(_with, ops)
                )
            except Conflict:
                continue  # the group changed hands, or was deleted
            self._written(path)
            return
        raise MetadataUnavailable(
            f"resource group {group} changed {ATTEMPTS_MAX} times while {tenant}/{namespace} was "
            "put into it"
        )

    async def set_grants(
        self, tenant: str, namespace: str, change: Callable[[AuthPolicies], AuthPolicies]
    ) -> None:
        """Change the grants of a namespace.

        Raises ``NotFound``, and the errors of ``change``.
        """
        policy, path = model.AUTH_POLICIES, paths.namespace(tenant, namespace)

        def changed(stored: Any) -> Any:
            found = {} if stored is None else {policy.name: stored}
            wanted = change(grants_of(decoded(found, path)))
            return None if wanted.is_empty else msgspec.to_builtins(wanted)

        await self.set_namespace(tenant, namespace, policy, changed)

    async def set_captures(
        self,
        tenant: str,
        namespace: str,
        change: Callable[[Mapping[str, CaptureRule]], Mapping[str, CaptureRule]],
    ) -> None:
        """Change the rules of capture of a namespace.

        Raises ``NotFound``, and the errors of ``change``.
        """
        policy, path = model.CAPTURES, paths.namespace(tenant, namespace)

        def changed(stored: Any) -> Any:
            found = {} if stored is None else {policy.name: stored}
            return msgspec.to_builtins(change(captures_of(decoded(found, path)))) or None

        await self.set_namespace(tenant, namespace, policy, changed)

    def check_namespace(self, path: str, stored: Mapping[str, Any]) -> None:
        """Check the policies of a new namespace.

        Raises ``InvalidArgument`` (they contradict each other).
        """
        self._check_together(Effective(self.defaults, decoded(stored, path)), model.RETENTION)

    async def set_properties(
        self, tenant: str, namespace: str, change: Callable[[dict[str, str]], dict[str, str]]
    ) -> None:
        """Change the properties of a namespace. Raises ``NotFound``."""

        def decide(record: NamespacePolicies | None) -> NamespacePolicies:
            if record is None:
                raise NotFound(f"namespace {tenant}/{namespace} does not exist")
            return msgspec.structs.replace(record, properties=change(dict(record.properties)))

        path = paths.namespace(tenant, namespace)
        await self._records.update(path, NamespacePolicies, decide)
        self._written(path)

    def _check_together(self, effective: Effective, policy: Policy[Any]) -> None:
        if policy in (model.RETENTION, model.BACKLOG_QUOTA):
            model.check_together(effective[model.RETENTION], effective.quotas())

    # -- policies of a topic

    async def owner_path(self, name: TopicName) -> str:
        """Return the path of the node above a topic's policies. Raises ``TopicNotFound``."""
        name = sources_of(name)
        partitioned, topic = paths.partitioned_topic(name), paths.topic(name)
        if await self._records.get(partitioned, PartitionedTopic) is not None:
            return partitioned
        found = await self._records.get(topic, TopicRecord)
        if found is None or found[0].deleted:
            raise TopicNotFound(f"topic {name} does not exist")
        return topic

    async def of_topic(self, name: TopicName) -> Values:
        """Return the policies set for a topic or partition, without checking that it exists.

        Non-persistent topics have none.
        """
        if not name.persistent:
            return _NOTHING
        path = policies_path(name)
        found = await self._records.get(path, TopicPolicies)
        return (
            _NOTHING if found is None or not found[0].policies else decoded(found[0].policies, path)
        )

    async def shown_topic(self, name: TopicName) -> Values:
        """Return the policies set for a plain or partitioned topic. Raises ``TopicNotFound``."""
        path = paths.topic_policies(await self.owner_path(name))
        found = await self._records.get(path, TopicPolicies)
        return _NOTHING if found is None else decoded(found[0].policies, path)

    async def set_topic(self, name: TopicName, policy: Policy[Any], change: Change) -> None:
        """Change a policy of a topic.

        Raises ``TopicNotFound``, ``NotFound`` (a resource group), ``InvalidArgument`` (it
        contradicts another policy), and the errors of ``change``.
        """

        def decide(namespace: Values, stored: Mapping[str, Any], path: str) -> Mapping[str, Any]:
            wanted = _changed(stored, policy, change)
            self._check_together(Effective(self.defaults, namespace, decoded(wanted, path)), policy)
            return wanted

        await self._change_topic(name, decide, _group(policy, change))

    async def clear_topic(self, name: TopicName) -> None:
        """Remove all policies of a topic. Raises ``TopicNotFound``."""
        await self._change_topic(name, lambda _namespace, _stored, _path: {})

    async def _change_topic(
        self,
        name: TopicName,
        decide: Callable[[Values, Mapping[str, Any], str], Mapping[str, Any]],
        group: str = "",
    ) -> None:
        """Store what ``decide`` returns.

        ``decide`` gets the namespace's policies, the topic's own stored policies, and their path.
        ``group``: the resource group that the topic is put into.
        """
        namespace_path = paths.namespace(name.tenant, name.namespace)
        for _ in range(ATTEMPTS_MAX):
            owner = await self.owner_path(name)
            path = paths.topic_policies(owner)
            await self._records.sync(namespace_path)
            space = await self._records.get(namespace_path, NamespacePolicies)
            if space is None:
                raise NotFound(f"namespace {name.tenant}/{name.namespace} does not exist")
            found = await self._records.get(path, TopicPolicies)
            record, version = (TopicPolicies(), None) if found is None else found
            wanted = decide(decoded(space[0].policies, namespace_path), record.policies, path)
            if wanted == record.policies:
                return
            counted = msgspec.structs.replace(
                space[0],
                topic_changes_count=space[0].topic_changes_count + 1,
                topic_changes=(*space[0].topic_changes, sources_of(name).local)[
                    -_TOPIC_CHANGES_KEPT:
                ],
            )
            notice = Op("put", namespace_path, encode_record(counted), space[1])
            uses = await self.groups.use(group, sources_of(name).full)
            try:
                await self._records.compare_and_set(
                    path,
                    msgspec.structs.replace(record, policies=wanted),
                    version,
                    with_ops=[notice, *uses],
                    parents=False,
                )
            except Conflict:
                # another client changed the policies of the topic or namespace, or deleted the
                # topic: try again
                continue
            self._written(namespace_path)
            return
        raise MetadataUnavailable(
            f"policies of {name.namespace} changed {ATTEMPTS_MAX} times while those of {name} "
            "were being set"
        )


def _with(ops: Sequence[Op], _record: object) -> Sequence[Op]:
    return ops


def _group(policy: Policy[Any], change: Change) -> str:
    """Return the resource group that a change names; empty: none."""
    return change(None) or "" if policy is model.RESOURCE_GROUP else ""


def _changed(stored: Mapping[str, Any], policy: Policy[Any], change: Change) -> dict[str, Any]:
    wanted = change(stored.get(policy.name))
    rest = {name: raw for name, raw in stored.items() if name != policy.name}
    return rest if wanted is None else {**rest, policy.name: wanted}
