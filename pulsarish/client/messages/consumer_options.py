"""The options of consumers and readers, checked when the program gives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Final, Generic, Self

from pulsarish.client.backoff import MultiplierRedeliveryBackoff
from pulsarish.client.checks import (
    check_callable,
    check_flag,
    check_mapping,
    check_number,
    check_text,
    check_type,
)
from pulsarish.client.enums import (
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    RegexSubscriptionMode,
)
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_policies import (
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
)
from pulsarish.client.messages.letters import RECONSUMES_MAX, letter_topic_name
from pulsarish.client.messages.options import check_key_reader, check_schema, topics_of, unsupported
from pulsarish.client.messages.topic_filter import TopicFilter, Wildcard, filter_of
from pulsarish.client.schemas.schema import Schema
from pulsarish.client.type_variables import Chosen
from pulsarish.model.errors import InvalidArgument, InvalidConfiguration, InvalidTopicName
from pulsarish.model.message_filter import FILTER_PROPERTY, parse_filter
from pulsarish.model.topic_name import TopicName, check_name
from pulsarish.runtime.crypto_key_reader import CryptoKeyReader

__all__ = ["ConsumerOptions", "Listener", "Topics"]

Topics = str | list[str] | re.Pattern[str] | Wildcard
Listener = Callable[[Any, Any], object]

_PERMITS_MAX: Final = 2**31 - 1
_SECONDS_MAX: Final = 2**31 - 1


class ConsumerOptions(Generic[Chosen]):
    """Options of ``subscribe``, and after ``read_from`` of ``create_reader``."""

    def __init__(
        self,
        topic: Topics,
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Schema[Chosen] | None = None,
        message_listener: Listener | None = None,
        receiver_queue_size: int = 1_000,
        max_total_receiver_queue_size_across_partitions: int = 50_000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30_000,
        negative_ack_redelivery_delay_ms: int = 60_000,
        is_read_compacted: bool = False,
        properties: Mapping[str, str] | None = None,
        pattern_auto_discovery_period: int = 60,
        initial_position: InitialPosition = InitialPosition.Latest,
        crypto_key_reader: CryptoKeyReader | None = None,
        replicate_subscription_state_enabled: bool = False,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        start_message_id_inclusive: bool = False,
        batch_receive_policy: ConsumerBatchReceivePolicy | None = None,
        key_shared_policy: ConsumerKeySharedPolicy | None = None,
        batch_index_ack_enabled: bool = True,
        regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly,
        dead_letter_policy: ConsumerDeadLetterPolicy | None = None,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
        *,
        negative_ack_redelivery_backoff: MultiplierRedeliveryBackoff | None = None,
        expire_time_of_incomplete_chunked_message_ms: int = 60_000,
        ack_receipt_enabled: bool = False,
        priority_level: int = 0,
        subscription_properties: Mapping[str, str] | None = None,
        retry_enabled: bool = False,
        filter: str | None = None,  # noqa: A002  # what a program writes
    ) -> None:
        """Check the options.

        Args:
            topic: its name, a list of names, or a compiled pattern or ``Wildcard`` for all topics
                of a namespace that match, also those that come later.
            subscription_name: consumers of one name share the subscription and its position.
            consumer_type: how they share the messages.
            schema: of the messages; ``None``: they are bytes.
            message_listener: a function (consumer, message) that gets the messages.
            receiver_queue_size: how many messages wait in the client; 0: one comes when the program
                asks for it.
            max_total_receiver_queue_size_across_partitions: the same for all topics together.
            consumer_name: shown in statistics; of Failover consumers the first name in the order of
                the alphabet is active. ``None``: one is made up.
            unacked_messages_timeout_ms: after how long a message that is not acknowledged comes
                again, 10,000 or more; ``None`` or 0: when the consumer is gone.
            broker_consumer_stats_cache_time_ms: no effect.
            negative_ack_redelivery_delay_ms: after how long a message comes again that was
                negatively acknowledged.
            is_read_compacted: whether only the latest message of each key comes, from the compacted
                view of the topic.
            properties: of the consumer, shown in statistics.
            pattern_auto_discovery_period: in seconds; a pattern's topics are looked up at least
                this often; 0: only when it subscribes.
            initial_position: where a new subscription begins.
            crypto_key_reader: reads the private keys of encrypted messages.
            replicate_subscription_state_enabled: only ``False``; there is one cluster.
            max_pending_chunked_message: how many messages in chunks may be incomplete; 0: no limit.
            auto_ack_oldest_chunked_message_on_queue_full: whether the oldest incomplete one is then
                acknowledged; otherwise it comes again.
            start_message_id_inclusive: whether the message comes that a seek or a reader starts at.
            batch_receive_policy: when ``batch_receive`` returns; ``None``: at 10 MiB or after
                100 ms.
            key_shared_policy: how KeyShared consumers share the keys.
            batch_index_ack_enabled: whether brokers note acknowledgements of single messages of a
                batch.
            regex_subscription_mode: which topics a pattern finds: persistent ones, others or both.
            dead_letter_policy: where messages go that failed too often, of Shared and KeyShared
                consumers.
            crypto_failure_action: what happens to messages that cannot be decrypted.
            negative_ack_redelivery_backoff: a delay that grows with each redelivery, in place of
                ``negative_ack_redelivery_delay_ms``.
            expire_time_of_incomplete_chunked_message_ms: after how long an incomplete message is
                given up; 0: never.
            ack_receipt_enabled: whether acknowledging waits until that is stored.
            priority_level: of a Shared consumer: those with 0 get messages first, then 1, up to
                1,000.
            subscription_properties: of a new subscription.
            retry_enabled: whether ``reconsume_later`` works, through a retry letter topic.
            filter: a condition that messages must fulfil; others count as acknowledged.
        """
        unsupported(
            locals(),
            replicate_subscription_state_enabled=(False, "there is one cluster"),
        )
        check_type(
            "regex_subscription_mode",
            regex_subscription_mode,
            RegexSubscriptionMode,
            "a pulsarish.RegexSubscriptionMode",
        )
        self.filter: TopicFilter | None = None
        """Which topics the consumer has, if it is one of a pattern."""
        self.topics: list[TopicName] = []
        if isinstance(topic, (re.Pattern, Wildcard)):
            self.filter = filter_of(topic, regex_subscription_mode)
        else:
            self.topics = topics_of(topic)
        self.creates_topics = self.filter is None
        self.discovery_seconds = check_number(
            "pattern_auto_discovery_period", pattern_auto_discovery_period, 0, _SECONDS_MAX
        )
        """A pattern's list is read at least this often; 0: only when the program subscribes."""
        self.subscription_name = check_name(
            "subscription", check_text("subscription_name", subscription_name)
        )
        check_type("consumer_type", consumer_type, ConsumerType, "a pulsarish.ConsumerType")
        self.consumer_type = consumer_type
        self.schema: Schema[Chosen] = check_schema(schema)
        if message_listener is not None:
            check_callable("message_listener", message_listener, "a function (consumer, message)")
        self.message_listener = message_listener
        self.receiver_queue_size = check_number(
            "receiver_queue_size", receiver_queue_size, 0, _PERMITS_MAX
        )
        total = "max_total_receiver_queue_size_across_partitions"
        self.receiver_queue_total = check_number(
            total, max_total_receiver_queue_size_across_partitions, 1
        )
        self.consumer_name = (
            check_text("consumer_name", consumer_name) if consumer_name is not None else ""
        )
        # Less than ten seconds would redeliver messages that the program still works on, as in
        # Apache Pulsar.
        self.unacked_timeout_seconds = 0.0
        if unacked_messages_timeout_ms is not None and check_number(
            "unacked_messages_timeout_ms", unacked_messages_timeout_ms, 0
        ):
            self.unacked_timeout_seconds = (
                check_number("unacked_messages_timeout_ms", unacked_messages_timeout_ms, 10_000)
                / 1_000
            )
        self.negative_ack_delay_ms = check_number(
            "negative_ack_redelivery_delay_ms", negative_ack_redelivery_delay_ms, 0
        )
        if negative_ack_redelivery_backoff is not None:
            check_type(
                "negative_ack_redelivery_backoff",
                negative_ack_redelivery_backoff,
                MultiplierRedeliveryBackoff,
                "a pulsarish.MultiplierRedeliveryBackoff",
            )
        self.negative_ack_backoff = negative_ack_redelivery_backoff
        self.is_read_compacted = check_flag("is_read_compacted", is_read_compacted)
        if self.is_read_compacted and consumer_type.is_spread:
            raise InvalidConfiguration(
                "is_read_compacted needs consumer_type Exclusive or Failover, not "
                f"{consumer_type.name}"
            )
        self.properties = check_mapping("properties", properties)
        check_type(
            "initial_position", initial_position, InitialPosition, "a pulsarish.InitialPosition"
        )
        self.initial_position = initial_position
        # As in Apache Pulsar, 0 is no limit on the number of messages. The limit in bytes always
        # applies.
        self.pending_chunked_max = check_number(
            "max_pending_chunked_message", max_pending_chunked_message, 0
        )
        self.ack_oldest_chunked = check_flag(
            "auto_ack_oldest_chunked_message_on_queue_full",
            auto_ack_oldest_chunked_message_on_queue_full,
        )
        expire_ms = expire_time_of_incomplete_chunked_message_ms
        self.chunked_expire_seconds = (
            check_number("expire_time_of_incomplete_chunked_message_ms", expire_ms, 0) / 1_000
        )
        self.start_inclusive = check_flag("start_message_id_inclusive", start_message_id_inclusive)
        if batch_receive_policy is not None:
            check_type(
                "batch_receive_policy",
                batch_receive_policy,
                ConsumerBatchReceivePolicy,
                "a pulsarish.ConsumerBatchReceivePolicy",
            )
        self.batch_receive_policy = batch_receive_policy or ConsumerBatchReceivePolicy()
        if key_shared_policy is not None:
            check_type(
                "key_shared_policy",
                key_shared_policy,
                ConsumerKeySharedPolicy,
                "a pulsarish.ConsumerKeySharedPolicy",
            )
            if consumer_type is not ConsumerType.KeyShared:
                raise InvalidArgument(
                    f"key_shared_policy needs consumer_type KeyShared, not {consumer_type.name}"
                )
        self.key_shared_policy = key_shared_policy or ConsumerKeySharedPolicy()
        self.batch_index_ack = check_flag("batch_index_ack_enabled", batch_index_ack_enabled)
        self.dead_letter_policy = dead_letter_policy
        self.retry_topic: TopicName | None = None
        """Where ``reconsume_later`` copies messages to; one of ``topics``."""
        self._check_letters(retry_enabled)
        check_type(
            "crypto_failure_action",
            crypto_failure_action,
            ConsumerCryptoFailureAction,
            "a pulsarish.ConsumerCryptoFailureAction",
        )
        self.crypto_failure_action = crypto_failure_action
        self.crypto_key_reader = check_key_reader(crypto_key_reader)
        # This has no effect: statistics of consumers come from the admin API.
        check_number("broker_consumer_stats_cache_time_ms", broker_consumer_stats_cache_time_ms, 0)
        self.ack_receipt = check_flag("ack_receipt_enabled", ack_receipt_enabled)
        self.priority_level = check_number("priority_level", priority_level, 0, 1_000)
        self.subscription_properties = check_mapping(
            "subscription_properties", subscription_properties
        )
        if filter is not None:
            self._add_filter(check_text("filter", filter))
        self.start: MessageId | None = None
        """Readers: where to start; ``None``: a durable subscription."""
        self.start_rollback_seconds = 0
        """Readers: start with messages published this many seconds ago instead; 0: use
        ``start``.
        """
        self.checkpoint_topic = ""
        """Readers: full name of the topic that keeps the reader's position; empty: none."""
        self.replica = False
        """Readers: whether any broker serves them, rather than the owner."""

    def read_from(
        self,
        start: MessageId,
        start_message_from_rollback_seconds: int = 0,
        checkpoint_topic: str | None = None,
        replica: bool = False,
    ) -> Self:
        """Make these the options of a reader. Raises ``InvalidArgument``, ``InvalidTopicName``."""
        self.start = start
        self.start_rollback_seconds = check_number(
            "start_message_from_rollback_seconds",
            start_message_from_rollback_seconds,
            0,
            _SECONDS_MAX,
        )
        if self.start_rollback_seconds and start not in (MessageId.earliest, MessageId.latest):
            raise InvalidArgument(
                "start_message_from_rollback_seconds needs MessageId.earliest or MessageId.latest "
                "to start from"
            )
        if checkpoint_topic is not None:
            self._keep_position(check_text("checkpoint_topic", checkpoint_topic))
        self.replica = check_flag("replica", replica)
        if self.replica and self.is_read_compacted:
            raise InvalidArgument(
                "replica=True and is_read_compacted=True do not go together, because only the "
                "owner of a topic has its compacted view: leave out replica, and the owner serves "
                "the view and then the log, or is_read_compacted, and any broker serves the whole "
                "log"
            )
        return self

    def _add_filter(self, text: str) -> None:
        """Put the condition that messages must fulfil into the subscription's properties."""
        parse_filter(text)
        if self.subscription_properties.setdefault(FILTER_PROPERTY, text) != text:
            raise InvalidArgument(
                f"filter and the subscription property {FILTER_PROPERTY} differ: leave one out"
            )

    def _check_letters(self, retry_enabled: object) -> None:
        policy = self.dead_letter_policy
        if policy is not None:
            check_type(
                "dead_letter_policy",
                policy,
                ConsumerDeadLetterPolicy,
                "a pulsarish.ConsumerDeadLetterPolicy",
            )
            if not self.consumer_type.is_spread:
                raise InvalidArgument(
                    "dead_letter_policy needs consumer_type Shared or KeyShared, not "
                    f"{self.consumer_type.name}: others count no redeliveries"
                )
        if check_flag("retry_enabled", retry_enabled):
            self._receive_retries()
        elif policy is not None and policy.retry_letter_topic:
            raise InvalidArgument("retry_letter_topic needs retry_enabled=True")

    def _receive_retries(self) -> None:
        """Add the retry letter topic, and name it and the dead letter topic after the first topic:
        one of each for all topics.
        """
        if self.filter is not None:
            raise InvalidArgument(
                "retry_enabled needs topics by name: a pattern or wildcard has no first topic to "
                "name the retry letter topic after"
            )
        if not self.consumer_type.is_spread:
            raise InvalidArgument(
                "retry_enabled needs consumer_type Shared or KeyShared, not "
                f"{self.consumer_type.name}: others get a message at once, whatever its delay"
            )
        policy = self.dead_letter_policy or ConsumerDeadLetterPolicy(RECONSUMES_MAX)
        first, name = self.topics[0], self.subscription_name
        dead, retry = (
            TopicName.parse(given or letter_topic_name(first, name, suffix)).full
            for given, suffix in (
                (policy.dead_letter_topic, "DLQ"),
                (policy.retry_letter_topic, "RETRY"),
            )
        )
        self.dead_letter_policy = ConsumerDeadLetterPolicy(
            policy.max_redeliver_count, dead, policy.initial_subscription_name, retry
        )
        self.retry_topic = TopicName.parse(retry)
        if not self.retry_topic.persistent:
            raise InvalidArgument(
                f"retry_letter_topic is {retry}, which loses what waits in it: give a persistent "
                "topic in dead_letter_policy"
            )
        if retry == dead or self.retry_topic in self.topics:
            raise InvalidArgument(
                f"retry_letter_topic is {retry}, which is the dead letter topic or a topic that is "
                "subscribed to: give another one"
            )
        self.topics.append(self.retry_topic)

    def _keep_position(self, checkpoint_topic: str) -> None:
        try:
            (kept,) = topics_of(checkpoint_topic)
        except InvalidTopicName as error:
            raise InvalidTopicName(f"checkpoint_topic {checkpoint_topic!r}: {error}") from None
        if not self.consumer_name:
            raise InvalidArgument(
                "checkpoint_topic needs reader_name: the position is stored under that name"
            )
        if not kept.persistent or not self.topics[0].persistent:
            raise InvalidArgument(
                "checkpoint_topic needs persistent topics, to read and to store the position in, "
                f"not {self.topics[0]} and {kept}"
            )
        if kept == self.topics[0]:
            raise InvalidArgument(
                f"checkpoint_topic is {kept}, the topic that is read: pass another one"
            )
        self.checkpoint_topic = kept.full

    def continue_after(self, message_id: MessageId) -> None:
        """Have a reader start after a message, wherever it was to start."""
        self.start, self.start_inclusive, self.start_rollback_seconds = message_id, False, 0

    def of_found_topic(self) -> Self:
        """Return options for one topic of a pattern, which may change as it is opened."""
        return copy(self)

    def negative_ack_delay(self, redelivery_count: int) -> int:
        """Return the delay of a negative acknowledgement, in ms."""
        return (
            self.negative_ack_delay_ms
            if self.negative_ack_backoff is None
            else self.negative_ack_backoff.next(redelivery_count)
        )
