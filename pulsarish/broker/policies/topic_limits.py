"""The limits that policies set for one loaded topic: counts, sizes, rates, and whether the backlog
quota blocks producers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from pulsarish.broker.clients.commands import Subscribe
from pulsarish.broker.clients.meters import Meter
from pulsarish.broker.clients.wait_reasons import shown_rate
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.shared_rates import SharedRates
from pulsarish.broker.policies.store import Effective
from pulsarish.managed_ledger.options import ManagedLedgerOptions, Retention
from pulsarish.model import policies as model
from pulsarish.model.errors import (
    ConsumerBusy,
    InvalidArgument,
    NotAllowedError,
    ProducerBusy,
    PulsarishError,
    SubscriptionNotFound,
    TooManyRequests,
)
from pulsarish.model.message_filter import FILTER_PROPERTY, parse_filter
from pulsarish.model.rate_limits import CallerRates, RateLimit
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.network.addresses import host_of
from pulsarish.runtime.seams import Clock

__all__ = [
    "ENTRY_ENVELOPE_BYTES",
    "RATE_WAIT_MAX_SECONDS",
    "DispatchLimits",
    "TopicLimits",
    "check_subscription_properties",
]

_PROPERTIES_BYTES_MAX: Final = 16 << 10

RATE_WAIT_MAX_SECONDS: Final = 1.0
"""The longest wait for a rate before it is checked again: the limit may have been changed, or the
topic closed.
"""

ENTRY_ENVELOPE_BYTES: Final = 10 << 10
"""Space for an entry's head and metadata in addition to the largest message, as in Apache
Pulsar.
"""


@lru_cache(maxsize=1_000)
def _retention(minutes: int, mb: int, count: int, until_compacted: bool) -> Retention:
    """Return the retention. All topics with the same one share it."""
    return Retention(minutes, mb, count, until_compacted)


class TopicLimits:
    """The limits of one topic. ``use`` applies each change of its policies."""

    __slots__ = (
        "_came",
        "_clock",
        "_config",
        "_name",
        "_publish_limits",
        "_subscribes",
        "dispatch_limits_of_all",
        "dispatch_rate",
        "entry_bytes_max",
        "has_priorities",
        "has_quota",
        "message_bytes_max",
        "needs_encryption",
        "policies",
        "publish_rate",
        "quota_error",
        "quota_since_ms",
        "relative",
        "shared_rates",
        "switching",
    )

    def __init__(
        self, name: TopicName, config: BrokerConfig, clock: Clock, policies: Effective, came: Meter
    ) -> None:
        """Create the limits. ``came``: the meter of what is published to the topic."""
        self.quota_error: PulsarishError | None = None
        """Why publishing is blocked: the backlog is above its quota; ``None``: it is not
        blocked.
        """
        self.quota_since_ms = 0
        """When the quota began to block publishing (wall clock); 0: it does not."""
        self.switching: PulsarishError | None = None
        """Why producers have to wait: deduplication is being switched on; ``None``: it is not."""
        self.shared_rates: tuple[SharedRates, ...] = ()
        """The rates that the topic shares with others: of the broker, none while they are off, and
        of its resource group.
        """
        self.publish_rate = RateLimit()
        self.dispatch_rate = RateLimit()
        self._name = name
        self._config = config
        self._clock = clock
        self._came = came
        self._subscribes: CallerRates | None = None  # while they are limited
        self.use(policies)

    def use(self, policies: Effective) -> None:
        self.policies = policies
        self.relative = (
            policies[model.DISPATCH_RATE].relative_to_publish_rate
            or policies[model.SUBSCRIPTION_DISPATCH_RATE].relative_to_publish_rate
        )
        self.message_bytes_max = min(
            policies[model.MAX_MESSAGE_SIZE] or self._config.max_message_size_bytes,
            self._config.max_message_size_bytes,
        )
        self.entry_bytes_max = self.message_bytes_max + ENTRY_ENVELOPE_BYTES
        self.has_priorities = policies[model.MESSAGE_PRIORITY_WINDOW] > 0
        self.needs_encryption = (
            policies[model.ENCRYPTION_REQUIRED] or self._config.encryption_require_on_producer
        )
        quotas = policies.quotas()
        self.has_quota = (
            quotas["destination_storage"].size_bytes >= 0
            or quotas["message_age"].limit_time_seconds >= 0
        )
        rate, now = policies[model.PUBLISH_RATE], self._clock.monotonic()
        self.publish_rate.limit(rate.messages, rate.size_bytes, 1.0, now)
        broker, group = policies.defaults.rates, policies[model.RESOURCE_GROUP]
        broker.apply(now)
        # The former ones are let go last: a group that only this topic is in stays in use.
        self.shared_rates = (
            *([broker] if broker.limited else []),
            *([policies.defaults.groups.find(group)] if group else []),
        )
        self._publish_limits = (self.publish_rate, *[each.publish for each in self.shared_rates])
        self.dispatch_limits_of_all: tuple[RateLimit, ...] = (
            self.dispatch_rate,
            *[each.dispatch for each in self.shared_rates],
        )
        self.limit_dispatch(self.dispatch_rate, policies[model.DISPATCH_RATE])
        subscribes = policies[model.SUBSCRIBE_RATE]
        if subscribes.count <= 0:
            self._subscribes = None
        else:
            self._subscribes = self._subscribes or CallerRates()
            self._subscribes.limit(subscribes.count, subscribes.period_seconds)

    def close(self) -> None:
        """Leave the resource group: without open topics it is not in use on the broker."""
        self.shared_rates = ()

    def limit_dispatch(self, limit: RateLimit, rate: model.DispatchRate) -> None:
        """Set a limit of deliveries.

        One that is relative to the publish rate changes with it, so set it before each use.
        """
        now = self._clock.monotonic()
        messages, size_bytes = float(rate.messages), float(rate.size_bytes)
        if rate.relative_to_publish_rate:
            came_messages, came_bytes = self._came.rates(now)
            messages += came_messages * rate.period_seconds if messages > 0 else 0.0
            size_bytes += came_bytes * rate.period_seconds if size_bytes > 0 else 0.0
        limit.limit(messages, size_bytes, rate.period_seconds, now)

    def publish_wait_seconds(self) -> float:
        """Return the seconds to receive nothing more, because the publish rate was exceeded; 0:
        continue.
        """
        now, seconds = self._clock.monotonic(), 0.0
        for limit in self._publish_limits:
            seconds = max(seconds, limit.wait_seconds(now))
        return seconds

    def published(self, messages: int, size_bytes: int, now: float) -> None:
        """Count what was published. Call it once for a batch, never once for each entry."""
        for limit in self._publish_limits:
            limit.take(messages, size_bytes, now)

    async def publish_rate_allows(self) -> bool:
        """Wait for the publish rate, at most ``RATE_WAIT_MAX_SECONDS``.

        Return whether publishing is allowed.

        The wait is short because the limit may be changed, or the topic closed.
        """
        wait_seconds = self.publish_wait_seconds()
        if wait_seconds:
            await self._clock.sleep(min(wait_seconds, RATE_WAIT_MAX_SECONDS))
        return not wait_seconds

    def dispatch_limits(self) -> DispatchLimits:
        """Return the dispatch limits of one subscription of the topic."""
        return DispatchLimits(self, self._config, self._clock)

    # -- the log

    def log_options(self) -> ManagedLedgerOptions:
        """Return the log's options: those of the broker, with the values of the policies about
        persistence and bookies.
        """
        base = self._config.managed_ledger
        affinity = self.policies[model.BOOKIE_AFFINITY]
        if affinity != self.policies.defaults[model.BOOKIE_AFFINITY]:
            primary, secondary = affinity.groups
            base = msgspec.structs.replace(
                base, isolation_groups=primary, secondary_isolation_groups=secondary
            )
        wanted = self.policies[model.PERSISTENCE]
        if wanted == self.policies.defaults[model.PERSISTENCE]:
            return base
        return msgspec.structs.replace(
            base,
            ensemble_size=wanted.ensemble_size,
            write_quorum=wanted.write_quorum,
            ack_quorum=wanted.ack_quorum,
            cursor_flush_interval_ms=max(1, round(1000 / wanted.mark_delete_rate))
            if wanted.mark_delete_rate
            else 0,
        )

    def retention(self) -> Retention:
        wanted = self.policies[model.RETENTION]
        return _retention(
            wanted.minutes,
            wanted.mb,
            wanted.count,
            self.policies[model.COMPACTION_THRESHOLD] > 0,
        )

    def hold(self, error: PulsarishError | None) -> None:
        """Block publishing with ``error``; ``None`` unblocks it."""
        if error is None or self.quota_error is None:
            self.quota_since_ms = 0 if error is None else self._clock.wall_ms()
        self.quota_error = error

    # -- checks of new producers, consumers and subscriptions

    def check_producer(self, there: int) -> None:
        """Check that a topic with ``there`` producers accepts another one.

        Raises ``ProducerBusy``, or why publishing is blocked.
        """
        for refusal in (self.switching, self.quota_error):
            if refusal is not None:
                raise refusal
        limit = self.policies[model.MAX_PRODUCERS_PER_TOPIC]
        if 0 < limit <= there:
            raise ProducerBusy(
                f"topic {self._name} has reached max_producers_per_topic ({limit}): close a "
                "producer, or raise the limit"
            )

    def check_encryption(self, *, encrypts: bool) -> None:
        """Check that a producer encrypts its messages where it must. Raises ``NotAllowedError``."""
        if self.needs_encryption and not encrypts:
            raise NotAllowedError(
                f"messages to {self._name} must be encrypted (encryption_required): give the "
                "producer an encryption_key and a crypto_key_reader"
            )

    def check_delay(self, due_ms: int) -> None:
        """Check the delivery time of a delayed message. Raises ``NotAllowedError``."""
        limit_ms = self.policies[model.DELAYED_DELIVERY].max_delay_ms
        if 0 < limit_ms < due_ms - self._clock.wall_ms():
            raise NotAllowedError(
                f"the message is to be delivered more than {limit_ms} ms from now, the limit of "
                f"topic {self._name} (delayed_delivery)"
            )

    def check_subscribe_rate(self, command: Subscribe, address: str) -> None:
        """Check that a consumer does not subscribe too often, and count that it does.

        A consumer is known by the host of its ``address``, its name and its number there, as in
        Apache Pulsar. Raises ``TooManyRequests``, which clients retry.
        """
        if self._subscribes is None:
            return
        caller = (host_of(address), command.name, command.consumer_id)
        wait_seconds = self._subscribes.refused_seconds(caller, self._clock.monotonic())
        if wait_seconds:
            rate = self.policies[model.SUBSCRIBE_RATE]
            raise TooManyRequests(
                f"the consumer has subscribed to topic {self._name} {rate.count} times in "
                f"{rate.period_seconds} s, the limit (subscribe_rate); try again in "
                f"{wait_seconds:.1f} s"
            )

    def check_consumer(self, there: int, command: Subscribe) -> None:
        """Check that a topic with ``there`` consumers on all subscriptions accepts another one.

        Raises ``ConsumerBusy``, ``NotAllowedError``.
        """
        limit = self.policies[model.MAX_CONSUMERS_PER_TOPIC]
        if 0 < limit <= there:
            raise ConsumerBusy(
                f"topic {self._name} has reached max_consumers_per_topic ({limit}): close a "
                "consumer, or raise the limit"
            )
        enabled = self.policies[model.SUBSCRIPTION_TYPES_ENABLED]
        if enabled and command.type.title not in enabled:
            raise NotAllowedError(
                f"topic {self._name} allows subscriptions of type {', '.join(enabled)} "
                "(subscription_types_enabled),"
                f" not {command.type.title}"
            )

    def check_auto_subscription(self, command: Subscribe) -> None:
        """Check that a consumer may create its subscription.

        A reader always may. Raises ``SubscriptionNotFound``.
        """
        if command.durable and not self.policies[model.AUTO_SUBSCRIPTION_CREATION].allow:
            raise SubscriptionNotFound(
                f"topic {self._name} has no subscription {command.subscription!r}, and "
                "consumers may not make one"
                " (auto_subscription_creation); create it first"
            )

    def check_subscription(self, there: int) -> None:
        """Check that a topic with ``there`` subscriptions accepts another one.

        Raises ``NotAllowedError``, which clients do not retry.
        """
        limit = self.policies[model.MAX_SUBSCRIPTIONS_PER_TOPIC]
        if 0 < limit <= there:
            raise NotAllowedError(
                f"topic {self._name} has reached max_subscriptions_per_topic ({limit}): delete a "
                "subscription, or raise the limit"
            )


def check_subscription_properties(properties: Mapping[str, str]) -> None:
    """Raise ``InvalidArgument`` for properties that are larger than a metadata node should hold, or
    have a filter that is none.
    """
    if FILTER_PROPERTY in properties:
        parse_filter(properties[FILTER_PROPERTY])
    size_bytes = sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())
    if size_bytes > _PROPERTIES_BYTES_MAX:
        raise InvalidArgument(
            f"subscription properties of {size_bytes} bytes: at most {_PROPERTIES_BYTES_MAX} are "
            "kept"
        )


class DispatchLimits:
    """Dispatch limits of one subscription: its own rate, and the topic's rate, which all
    subscriptions share.
    """

    def __init__(self, topic_limits: TopicLimits, config: BrokerConfig, clock: Clock) -> None:
        self._topic_limits = topic_limits
        self._config = config
        self._clock = clock
        self._own = RateLimit()
        self._messages_per_entry = 0.0  # of the last read; 0: not known yet
        self.policies_changed()

    def policies_changed(self) -> None:
        topic_limits = self._topic_limits
        topic_limits.limit_dispatch(
            self._own, topic_limits.policies[model.SUBSCRIPTION_DISPATCH_RATE]
        )
        topic_limits.limit_dispatch(
            topic_limits.dispatch_rate, topic_limits.policies[model.DISPATCH_RATE]
        )

    def allowed(self) -> tuple[float, int, int]:
        """Return the seconds to wait (0: read now), and the most entries and bytes of the next
        read.

        How many messages the next entries have is judged by those of the last read. Before the
        first one, a limit of messages allows one entry.
        """
        if self._topic_limits.relative:
            self.policies_changed()
        entries_max, bytes_max = (
            self._config.dispatcher_max_read_batch_size,
            self._config.dispatcher_max_read_size_bytes,
        )
        now = self._clock.monotonic()
        for limit in self._limits():
            if limit.limited:
                wait_seconds = limit.wait_seconds(now)
                if wait_seconds:
                    return min(wait_seconds, RATE_WAIT_MAX_SECONDS), 0, 0
                if limit.messages.rate > 0:
                    per_entry = self._messages_per_entry
                    allowed = limit.messages.available(now) / per_entry if per_entry else 1
                    entries_max = int(min(entries_max, max(1, allowed)))
                bytes_max = int(min(bytes_max, max(1, limit.size_bytes.available(now))))
        return 0.0, entries_max, bytes_max

    @property
    def is_unlimited(self) -> bool:
        """Whether no rate limits deliveries."""
        return not (self._topic_limits.relative or any(limit.limited for limit in self._limits()))

    def _limits(self) -> tuple[RateLimit, ...]:
        return (self._own, *self._topic_limits.dispatch_limits_of_all)

    def reached(self) -> tuple[str, str]:
        """Return the policy whose rate limits deliveries now, or would first, and the rate as
        text.

        Without a policy when the broker limits them more, or longer, by a rate of its own.
        ``resource-group`` when the topic's group does.
        """
        now = self._clock.monotonic()
        policies = (self._own, self._topic_limits.dispatch_rate)
        has_policy = any(limit.limited for limit in policies)
        own_seconds = max(limit.wait_seconds(now) for limit in policies)
        shared = [each for each in self._topic_limits.shared_rates if each.dispatch.limited]
        if shared:
            most = max(shared, key=lambda each: each.dispatch.wait_seconds(now))
            if not has_policy or most.dispatch.wait_seconds(now) > own_seconds:
                return most.policy, most.dispatch_text
        is_own = self._own.wait_seconds(now) >= self._topic_limits.dispatch_rate.wait_seconds(now)
        name = (
            model.SUBSCRIPTION_DISPATCH_RATE
            if is_own and self._own.limited
            else model.DISPATCH_RATE
        )
        rate = self._topic_limits.policies[name]
        return name.name.replace(
            "_", "-"
        ), f"{shown_rate(rate.messages, rate.size_bytes)} in {rate.period_seconds} s"

    def note_read(self, entries: int, messages: int) -> None:
        """Note how many messages a read of ``entries``, 1 or more, brought."""
        self._messages_per_entry = messages / entries

    def take(self, messages: int, size_bytes: int) -> None:
        """Count messages and bytes that were read for delivery."""
        now = self._clock.monotonic()
        for limit in self._limits():
            limit.take(messages, size_bytes, now)
