"""Bad arguments: each is refused when it is given, by an error that names the field and says what
to do.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pulsarish.client.checks import check_timeout
from pulsarish.client.enums import ConsumerType, KeySharedMode
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.consumer_policies import (
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    DeadLetterPolicyBuilder,
    KeySharedPolicy,
)
from pulsarish.client.messages.entry_encoder import Extras
from pulsarish.client.messages.options import ClientOptions, ProducerOptions, make_extras
from pulsarish.model.errors import (
    InvalidArgument,
    InvalidConfiguration,
    InvalidTopicName,
    OperationNotSupported,
    PulsarishError,
)
from pulsarish.runtime.client_authentication import AuthenticationTLS, AuthenticationToken
from pulsarish.runtime.crypto_key_reader import CryptoKeyReader
from pulsarish.security.client_security import PLAIN, ClientSecurity
from pulsarish.security.tls import TlsClientConfig

URL = "pulsarish://localhost"
READER = CryptoKeyReader("public.pem", "private.pem")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"operation_timeout_seconds": 0}, InvalidArgument, "operation_timeout_seconds.*above 0"),
        ({"operation_timeout_seconds": "30"}, InvalidArgument, "operation_timeout_seconds"),
        ({"connection_timeout_ms": -5}, InvalidArgument, "connection_timeout_ms.*1 or more"),
        ({"listener_name": 5}, InvalidArgument, "listener_name.*str"),
        ({"use_tls": True}, InvalidArgument, r"use_tls needs TLS.*pulsarish\+ssl://"),
        ({"tls_allow_insecure_connection": True}, InvalidArgument, "_insecure_connection needs"),
        ({"tls_trust_certs_file_path": "ca.pem"}, InvalidArgument, "tls_trust_certs.* needs TLS"),
        ({"tls_trust_certs_file_path": ""}, InvalidArgument, "tls_trust_certs_file_path is empty"),
        ({"tls_validate_hostname": "no"}, InvalidArgument, "tls_validate_hostname.*True or False"),
        ({"tls_certificate_file_path": "c.pem"}, InvalidArgument, "belong together"),
        (
            {"authentication": AuthenticationTLS("c.pem", "k.pem")},
            InvalidArgument,
            "this authentication needs TLS",
        ),
        ({"authentication": "token:hunter2"}, InvalidArgument, "authentication is of type str"),
        ({"io_threads": "4"}, InvalidArgument, "io_threads is '4'"),
        ({"stats_interval_in_seconds": -1}, InvalidArgument, "stats_interval_in_seconds is -1"),
        ({"logger": object()}, InvalidArgument, "logger is of type object: pass a logging"),
    ],
)
def test_client_options(change: dict[str, Any], error: type[PulsarishError], words: str) -> None:
    with pytest.raises(error, match=words):
        ClientOptions(URL, **change)


def test_the_security_of_a_client() -> None:
    assert ClientOptions(URL).security == PLAIN
    token = AuthenticationToken("t")
    assert ClientOptions(URL, authentication=token).security == ClientSecurity(token.provider)
    tls = ClientOptions("pulsarish+ssl://b1,b2:7000", tls_trust_certs_file_path="ca.pem")
    assert tls.url.addresses == ("tls:b1:6661", "tls:b2:7000")
    assert tls.security == ClientSecurity(
        None, TlsClientConfig(trust_file="ca.pem", is_required=True)
    )
    lax = ClientOptions(
        "pulsarish+ssl://b1",
        authentication=AuthenticationTLS("c.pem", "file:///k.pem"),
        use_tls=True,
        tls_validate_hostname=False,
        tls_allow_insecure_connection=True,
    )
    assert lax.security.tls == TlsClientConfig(
        certificate_file="c.pem",
        key_file="/k.pem",
        validates_host_name=False,
        allows_insecure=True,
        is_required=True,
    )
    with pytest.raises(InvalidArgument, match="both name a certificate"):
        ClientOptions(
            "pulsarish+ssl://b1",
            authentication=AuthenticationTLS("c.pem", "k.pem"),
            tls_certificate_file_path="c",
            tls_private_key_file_path="k",
        )


def test_an_authentication_that_is_none_is_not_shown() -> None:
    with pytest.raises(InvalidArgument) as raised:
        ClientOptions(URL, authentication="token:hunter2")  # type: ignore[arg-type]
    assert "hunter2" not in str(raised.value)


def test_client_url() -> None:
    with pytest.raises(InvalidConfiguration, match="pulsarish://host"):
        ClientOptions("kafka://localhost:9092")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"topic": "a/b"}, InvalidTopicName, "persistent://tenant/namespace/topic"),
        ({"topic": "non-persistent://a/b"}, InvalidTopicName, "non-persistent://"),
        ({"topic": 7}, InvalidArgument, "topic.*str"),
        ({"topic": ""}, InvalidTopicName, "topic"),
        ({"producer_name": 5}, InvalidArgument, "producer_name.*str"),
        ({"schema": 5}, InvalidArgument, "schema.*StringSchema"),
        ({"schema": ConsumerType}, InvalidArgument, "schema"),
        ({"initial_sequence_id": -2}, InvalidArgument, "initial_sequence_id.*-1 or more"),
        ({"send_timeout_millis": -1}, InvalidArgument, "send_timeout_millis.*0 or more"),
        ({"send_timeout_millis": 1.5}, InvalidArgument, "send_timeout_millis.*int"),
        ({"compression_type": "LZ4"}, InvalidArgument, "compression_type.*CompressionType"),
        ({"max_pending_messages": 0}, InvalidArgument, "max_pending_messages.*1 or more"),
        ({"max_pending_messages": True}, InvalidArgument, "max_pending_messages.*int"),
        ({"block_if_queue_full": 1}, InvalidArgument, "block_if_queue_full.*True or False"),
        ({"batching_enabled": "yes"}, InvalidArgument, "batching_enabled"),
        ({"batching_max_messages": 0}, InvalidArgument, "batching_max_messages"),
        (
            {"batching_max_allowed_size_in_bytes": 0},
            InvalidArgument,
            "batching_max_allowed_size_in_bytes",
        ),
        ({"batching_max_publish_delay_ms": -1}, InvalidArgument, "batching_max_publish_delay_ms"),
        ({"chunking_enabled": 1}, InvalidArgument, "chunking_enabled"),
        (
            {"chunking_enabled": True, "batching_enabled": True},
            InvalidArgument,
            "batching_enabled=False",
        ),
        ({"lazy_start_partitioned_producers": 0}, InvalidArgument, "lazy_start.*True or False"),
        ({"batching_type": 1}, InvalidArgument, "batching_type.*BatchingType"),
        ({"encryption_key": "k"}, InvalidArgument, "encryption_key needs crypto_key_reader"),
        ({"encryption_key": 5, "crypto_key_reader": READER}, InvalidArgument, "encryption_key"),
        ({"encryption_key": [], "crypto_key_reader": READER}, InvalidArgument, "empty list"),
        ({"encryption_key": "", "crypto_key_reader": READER}, InvalidArgument, "not empty"),
        (
            {"encryption_key": ["a", "a"], "crypto_key_reader": READER},
            InvalidArgument,
            "'a': give names that are not empty, each once",
        ),
        ({"crypto_key_reader": READER}, InvalidArgument, "needs encryption_key"),
        (
            {"encryption_key": "k", "crypto_key_reader": "keys"},
            InvalidArgument,
            r"crypto_key_reader.*pulsarish\.CryptoKeyReader",
        ),
        ({"message_routing_mode": 1}, InvalidArgument, "message_routing_mode"),
        ({"message_router": 5}, InvalidArgument, "message_router"),
        ({"hashing_scheme": "murmur"}, InvalidArgument, "hashing_scheme"),
        ({"properties": {"a": 1}}, InvalidArgument, "properties.*str"),
        ({"properties": ["a"]}, InvalidArgument, "properties.*dict"),
        ({"access_mode": 0}, InvalidArgument, "access_mode"),
    ],
)
def test_producer_options(change: dict[str, Any], error: type[PulsarishError], words: str) -> None:
    with pytest.raises(error, match=words):
        ProducerOptions(**{"topic": "t", **change})


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"topic": 5}, InvalidArgument, "a compiled pattern or a pulsarish.Wildcard"),
        ({"topic": []}, InvalidArgument, "topic is an empty list"),
        ({"topic": ["a", "persistent://public/default/a"]}, InvalidArgument, "twice"),
        ({"topic": None}, InvalidArgument, "topic is None of type NoneType"),
        ({"subscription_name": ""}, InvalidTopicName, "subscription"),
        ({"subscription_name": 5}, InvalidArgument, "subscription_name"),
        ({"consumer_type": "Shared"}, InvalidArgument, "consumer_type"),
        ({"message_listener": 5}, InvalidArgument, "message_listener"),
        ({"receiver_queue_size": -1}, InvalidArgument, "receiver_queue_size.*0 or more"),
        (
            {"unacked_messages_timeout_ms": 9_999},
            InvalidArgument,
            "unacked_messages_timeout_ms.*10000 or more",
        ),
        (
            {"negative_ack_redelivery_delay_ms": -1},
            InvalidArgument,
            "negative_ack_redelivery_delay_ms",
        ),
        (
            {"negative_ack_redelivery_backoff": 5},
            InvalidArgument,
            "negative_ack_redelivery_backoff",
        ),
        ({"initial_position": "Earliest"}, InvalidArgument, "initial_position"),
        ({"batch_receive_policy": 5}, InvalidArgument, "batch_receive_policy"),
        ({"dead_letter_policy": 5}, InvalidArgument, "dead_letter_policy"),
        (
            {"dead_letter_policy": ConsumerDeadLetterPolicy(1)},
            InvalidArgument,
            "dead_letter_policy.*Shared",
        ),
        (
            {"key_shared_policy": object()},
            InvalidArgument,
            "key_shared_policy.*ConsumerKeySharedPolicy",
        ),
        (
            {"key_shared_policy": ConsumerKeySharedPolicy()},
            InvalidArgument,
            "key_shared_policy needs consumer_type KeyShared",
        ),
        (
            {"consumer_type": ConsumerType.Shared, "is_read_compacted": True},
            InvalidArgument,
            "is_read_compacted.*Exclusive or Failover",
        ),
        ({"replicate_subscription_state_enabled": True}, OperationNotSupported, "one cluster"),
        ({"crypto_key_reader": object()}, InvalidArgument, r"crypto_key_reader.*CryptoKeyReader"),
        ({"ack_receipt_enabled": 1}, InvalidArgument, "ack_receipt_enabled"),
        ({"priority_level": -1}, InvalidArgument, "priority_level"),
    ],
)
def test_consumer_options(change: dict[str, Any], error: type[PulsarishError], words: str) -> None:
    with pytest.raises(error, match=words):
        ConsumerOptions(**{"topic": "t", "subscription_name": "s", **change})


def test_policies() -> None:
    with pytest.raises(InvalidArgument, match="at least one"):
        ConsumerBatchReceivePolicy(0, 0, 0)
    with pytest.raises(InvalidArgument, match=r"max_redeliver_count.*1 or more"):
        ConsumerDeadLetterPolicy(0)
    with pytest.raises(InvalidTopicName, match="initial subscription"):
        ConsumerDeadLetterPolicy(1, initial_subscription_name=" ")
    retried = ConsumerOptions(
        "t",
        "s",
        ConsumerType.Shared,
        dead_letter_policy=ConsumerDeadLetterPolicy(1, initial_subscription_name="graves"),
        retry_enabled=True,
    )
    assert retried.dead_letter_policy is not None
    assert retried.dead_letter_policy.initial_subscription_name == "graves"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("properties", {"a": 1}, "properties.*str"),
        ("properties", {"a": "\ud800"}, "properties.*surrogate"),
        ("partition_key", 5, "partition_key.*str"),
        ("partition_key", "\udfff", "partition_key.*surrogate"),
        ("ordering_key", b"k", "ordering_key.*str"),
        ("event_timestamp", -1, "event_timestamp.*0 or more"),
        ("event_timestamp", 1.5, "event_timestamp.*int"),
        ("deliver_at", "soon", "deliver_at.*int"),
        ("deliver_after", 5, "deliver_after.*timedelta"),
        ("expires_after", 5, "expires_after.*timedelta"),
        ("expires_after", timedelta(0), "expires_after is 0:00:00.*1 ms or more"),
        ("expires_after", timedelta(seconds=-1), "expires_after.*1 ms or more"),
        ("priority", 11, r"priority is 11.*0 \(delivered last\) to 9 \(delivered first\)"),
        ("priority", -1, "priority is -1.*0 .*to 9"),
        ("priority", "high", "priority is 'high'.*int from 0"),
        ("priority", True, "priority is True.*int from 0"),
    ],
)
def test_what_a_message_carries(field: str, value: object, words: str) -> None:
    given: dict[str, Any] = dict.fromkeys(
        (
            "properties",
            "partition_key",
            "ordering_key",
            "event_timestamp",
            "deliver_at",
            "deliver_after",
            "expires_after",
            "priority",
        )
    ) | {field: value}
    with pytest.raises(InvalidArgument, match=words):
        make_extras(**given, now_ms=lambda: 0)


def test_a_time_of_delivery_is_given_or_counted_from_now() -> None:
    for given in ((None, timedelta(seconds=2)), (2_500, None)):
        made = make_extras(None, None, None, None, *given, None, None, lambda: 500)
        assert made.deliver_at_ms == 2_500
    with pytest.raises(InvalidArgument, match="give one"):
        make_extras(None, None, None, None, 1, timedelta(seconds=2), None, None, lambda: 500)


def test_an_expiry_counts_from_now_and_is_a_property() -> None:
    def made(**given: Any) -> Extras:
        names = (
            "properties",
            "partition_key",
            "ordering_key",
            "event_timestamp",
            "deliver_at",
            "deliver_after",
            "expires_after",
            "priority",
        )
        return make_extras(**dict.fromkeys(names) | given, now_ms=lambda: 500)

    brief = made(properties={"a": "b"}, expires_after=timedelta(seconds=2))
    assert brief.properties == {"a": "b", "pulsarish-expires-at-ms": "2500"}
    assert brief.is_sent_alone
    assert made(properties=brief.properties).is_sent_alone, "it was copied from another message"
    assert not made(properties={"a": "b"}).is_sent_alone
    late = made(expires_after=timedelta(seconds=2), deliver_after=timedelta(seconds=1))
    assert late.deliver_at_ms == 1_500
    with pytest.raises(InvalidArgument, match=r"expires_after is 0:00:02.*later.*earlier"):
        made(expires_after=timedelta(seconds=2), deliver_after=timedelta(seconds=2))


def test_a_priority_is_a_property_and_shares_no_batch() -> None:
    urgent = make_extras({"a": "b"}, None, None, None, None, None, None, 9, lambda: 0)
    assert urgent.properties == {"a": "b", "pulsarish-priority": "9"}
    assert urgent.is_sent_alone
    assert urgent.read_by_brokers() == Extras(properties={"pulsarish-priority": "9"})


def test_time_outs() -> None:
    assert check_timeout("timeout_millis", None) is None
    assert check_timeout("timeout_millis", 1_500) == 1.5
    with pytest.raises(InvalidArgument, match=r"timeout_millis.*0 or more"):
        check_timeout("timeout_millis", -1)


def test_defaults_are_those_of_apache_pulsar() -> None:
    producer = ProducerOptions("t")
    assert (
        producer.send_timeout_seconds,
        producer.max_pending_messages,
        producer.batching_enabled,
    ) == (30, 1_000, False)
    assert (
        producer.batching_max_messages,
        producer.batching_max_bytes,
        producer.batching_delay_seconds,
    ) == (1_000, 131_072, 0.01)
    consumer = ConsumerOptions("t", "s")
    assert (
        consumer.receiver_queue_size,
        consumer.negative_ack_delay_ms,
        consumer.unacked_timeout_seconds,
    ) == (1_000, 60_000, 0)
    assert consumer.start is None
    assert MessageId.earliest < MessageId.latest


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"key_shared_mode": 1}, "key_shared_mode.*KeySharedMode"),
        ({"allow_out_of_order_delivery": 1}, "allow_out_of_order_delivery.*True or False"),
        ({"key_shared_mode": KeySharedMode.Sticky}, "sticky_ranges is empty"),
        ({"sticky_ranges": [(0, 1)]}, "needs key_shared_mode KeySharedMode.Sticky"),
        ({"key_shared_mode": KeySharedMode.Sticky, "sticky_ranges": "0-1"}, "list of pairs"),
        ({"key_shared_mode": KeySharedMode.Sticky, "sticky_ranges": [(0, 65536)]}, "0 to 65535"),
        (
            {"key_shared_mode": KeySharedMode.Sticky, "sticky_ranges": [(5, 4)]},
            "first not above last",
        ),
        (
            {"key_shared_mode": KeySharedMode.Sticky, "sticky_ranges": [(0, 5), (9, 10), (5, 6)]},
            r"\[0, 5\] and \[5, 6\], which overlap",
        ),
    ],
)
def test_key_shared_policy(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        ConsumerKeySharedPolicy(**arguments)


def test_policies_in_the_form_that_policy_returns() -> None:
    batch = ConsumerBatchReceivePolicy(7, -1, 5).policy()
    assert (batch.getMaxNumMessages(), batch.getMaxNumBytes(), batch.getTimeoutMs()) == (7, -1, 5)
    sticky = ConsumerKeySharedPolicy(KeySharedMode.Sticky, True, [(0, 9)])
    assert sticky.policy().get_key_shared_mode() is sticky.key_shared_mode
    assert sticky.policy().is_allow_out_of_order_delivery()
    assert sticky.policy().get_sticky_ranges() == sticky.sticky_ranges == [(0, 9)]
    dead = ConsumerDeadLetterPolicy(3)
    assert (dead.dead_letter_topic, dead.initial_subscription_name) == ("", "")
    built = DeadLetterPolicyBuilder().maxRedeliverCount(3).deadLetterTopic("t").build()
    assert built.getDeadLetterTopic() == "t"
    assert (built.getMaxRedeliverCount(), built.getInitialSubscriptionName()) == (3, "")
    named = DeadLetterPolicyBuilder().maxRedeliverCount(3).initialSubscriptionName("graves").build()
    assert named.getInitialSubscriptionName() == "graves"
    with pytest.raises(InvalidArgument, match="call maxRedeliverCount"):
        DeadLetterPolicyBuilder().build()
    with pytest.raises(TypeError, match="sticky_ranges is 5"):
        KeySharedPolicy().set_sticky_ranges(5)  # type: ignore[arg-type]
