"""The dispatcher that a type of subscription asks for, with the limits of configuration and policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from pulsarish.broker.commands import KeySharedPolicy, SubscriptionType
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.dispatchers.key_shared import KeySharedDispatcher, LookAhead
from pulsarish.broker.dispatchers.reads import ReadLimits
from pulsarish.broker.dispatchers.several import SharingLimits
from pulsarish.broker.dispatchers.shared import SharedDispatcher
from pulsarish.broker.dispatchers.single_active import SingleActiveDispatcher
from pulsarish.model.policies import (
    MAX_CONSUMERS_PER_SUBSCRIPTION,
    MAX_UNACKED_MESSAGES_PER_CONSUMER,
    MAX_UNACKED_MESSAGES_PER_SUBSCRIPTION,
)
from pulsarish.model.position import Position

if TYPE_CHECKING:
    from pulsarish.broker.policies import Effective

__all__ = ["Dispatcher", "make_dispatcher"]

Dispatcher = SingleActiveDispatcher | SharedDispatcher | KeySharedDispatcher


def make_dispatcher(
    kind: SubscriptionType,
    key_shared: KeySharedPolicy,
    *,
    partition: int,
    read_from: Callable[[], Position],
    acknowledged: Callable[[Position], bool],
    config: BrokerConfig,
    policies: Effective,
) -> Dispatcher:
    limits = ReadLimits(
        config.dispatcher_max_read_batch_size,
        config.dispatcher_max_read_size_bytes,
        config.dispatcher_read_failure_backoff_initial_time_ms / 1000,
        config.dispatcher_read_failure_backoff_max_time_ms / 1000,
    )
    consumers_max = policies[MAX_CONSUMERS_PER_SUBSCRIPTION]
    sharing = SharingLimits(
        consumers_max,
        config.dispatcher_max_round_robin_batch_size,
        policies[MAX_UNACKED_MESSAGES_PER_CONSUMER],
        policies[MAX_UNACKED_MESSAGES_PER_SUBSCRIPTION],
    )
    match kind:
        case SubscriptionType.EXCLUSIVE | SubscriptionType.FAILOVER:
            return SingleActiveDispatcher(
                failover=kind is SubscriptionType.FAILOVER,
                partition=partition,
                read_from=read_from,
                acknowledged=acknowledged,
                limits=limits,
                consumers_max=consumers_max,
            )
        case SubscriptionType.SHARED:
            return SharedDispatcher(read_from=read_from, acknowledged=acknowledged, limits=limits, sharing=sharing)
        case SubscriptionType.KEY_SHARED:
            return KeySharedDispatcher(
                read_from=read_from,
                acknowledged=acknowledged,
                limits=limits,
                sharing=sharing,
                policy=key_shared,
                ring_points=config.subscription_key_shared_consistent_hashing_replica_points,
                look_ahead=LookAhead(
                    config.key_shared_look_ahead_msg_in_replay_threshold_per_consumer,
                    config.key_shared_look_ahead_msg_in_replay_threshold_per_subscription,
                    config.dispatcher_max_read_size_bytes,
                ),
            )
        case _:
            assert_never(kind)
