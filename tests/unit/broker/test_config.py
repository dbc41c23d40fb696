"""Options of a broker that cannot work together."""

from __future__ import annotations

import msgspec
import pytest

from pulsarish.broker.config import BrokerConfig
from pulsarish.model.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"broker_silence_before_eviction_ms": 2_999},
            ["broker_silence_before_eviction_ms", "3 times", "broker_ping_interval_ms"],
        ),
        (
            {"broker_ping_interval_ms": 1_001},
            ["broker_silence_before_eviction_ms", "3 times", "broker_ping_interval_ms"],
        ),
        (
            {"broker_ping_timeout_ms": 1_001},
            ["broker_silence_before_eviction_ms", "3 times", "broker_ping_timeout_ms"],
        ),
        (
            {"keep_alive_interval_seconds": 1.0, "keep_alive_timeout_seconds": 1.9},
            ["keep_alive_timeout_seconds", "twice"],
        ),
        (
            {"max_message_size_bytes": 64 << 20},
            ["ledger.bookie_queue_bytes", "max_message_size_bytes = 67108864"],
        ),
        (
            {"max_partial_input_bytes": 9 << 20},
            ["max_partial_input_bytes = 9437184", "at least 10485760", "max_message_size_bytes"],
        ),
        (
            {"max_unsent_bytes": 9 << 20},
            ["max_unsent_bytes = 9437184", "at least 10485760", "max_message_size_bytes"],
        ),
        (
            {"dispatcher_read_failure_backoff_initial_time_ms": 70_000},
            ["dispatcher_read_failure_backoff_max_time_ms"],
        ),
        (
            {"default_retention_time_minutes": 5},
            ["default_retention_time_minutes", "default_retention_size_mb"],
        ),
        (
            {"authenticate_metrics_endpoint": True},
            ["authenticate_metrics_endpoint", "authentication_enabled"],
        ),
        ({"audit_topic": "a/b/c"}, ["audit_topic", "audit_log_directory"]),
        (
            {"audit_log_directory": "d", "audit_topic": "non-persistent://a/b/c"},
            ["audit_topic", "persistent"],
        ),
        ({"audit_log_directory": "d", "audit_topic": "a/b"}, ["audit_topic", "2 of 3 parts"]),
    ],
)
def test_each_refusal_names_the_options(options: dict[str, object], said: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(**options).validate()  # type: ignore[arg-type]
    assert [words for words in said if words not in str(refused.value)] == []


def test_what_ships_works() -> None:
    BrokerConfig().validate()
    BrokerConfig(broker_ping_interval_ms=1_000, broker_silence_before_eviction_ms=3_000).validate()


def test_the_client_must_have_two_deliveries_under_way() -> None:
    """A client reports small deliveries two at a time.

    With a limit of one, the next delivery would wait for its heartbeat.
    """
    with pytest.raises(msgspec.ValidationError, match="Expected `int` >= 2"):
        msgspec.convert({"deliveries_under_way_max": 1}, BrokerConfig)
