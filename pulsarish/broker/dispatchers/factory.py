"""Create the dispatcher of a subscription type, with the limits of configuration and policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, assert_never

from pulsarish.broker.clients.commands import KeySharedPolicy
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.dispatchers.chunks import Chunk
from pulsarish.broker.dispatchers.delayed import DELAYS_OVER
from pulsarish.broker.dispatchers.dispatcher import Dispatcher
from pulsarish.broker.dispatchers.key_shared import KeySharedDispatcher, LookAhead
from pulsarish.broker.dispatchers.multi_consumer import SharingLimits
from pulsarish.broker.dispatchers.reads import ReadLimits, Ready
from pulsarish.broker.dispatchers.shared import SharedDispatcher
from pulsarish.broker.dispatchers.single_active import SingleActiveDispatcher
from pulsarish.model.policies import (
    DELAYED_DELIVERY,
    MAX_CONSUMERS_PER_SUBSCRIPTION,
    MAX_UNACKED_MESSAGES_PER_CONSUMER,
    MAX_UNACKED_MESSAGES_PER_SUBSCRIPTION,
)
from pulsarish.model.position import Position
from pulsarish.model.subscription_type import SubscriptionType
from pulsarish.runtime.seams import Clock
from pulsarish.wire.entry import key_hash, parse_metadata, sticky_key, stored_expiry_time

if TYPE_CHECKING:
    from pulsarish.broker.policies.store import Effective
    from pulsarish.broker.policies.topic_limits import TopicLimits
    from pulsarish.managed_ledger.cursors.cursor import Cursor
    from pulsarish.managed_ledger.log_reader import LogEntry
    from pulsarish.wire._pb.message_pb2 import MessageMetadata

__all__ = ["ReadyMaker", "chunk_of", "make_dispatcher", "shared_ready"]

_LOOK_AGAIN_SECONDS: Final = 10.0


def make_dispatcher(
    kind: SubscriptionType,
    key_shared: KeySharedPolicy,
    *,
    partition: int,
    read_from: Callable[[], Position],
    acknowledged: Callable[[Position], bool],
    config: BrokerConfig,
    policies: Effective,
    keeps_unacked: bool = True,
) -> Dispatcher:
    """Create the dispatcher for a subscription type.

    Args:
        keeps_unacked: ``False`` when a delivered entry counts as acknowledged, so that nothing must
            be limited or waited for.
    """
    limits = ReadLimits(
        config.dispatcher_max_read_batch_size,
        config.dispatcher_max_read_size_bytes,
        config.dispatcher_read_failure_backoff_initial_time_ms / 1000,
        config.dispatcher_read_failure_backoff_max_time_ms / 1000,
        config.delayed_delivery_max_entries_per_subscription,
    )
    consumers_max = policies[MAX_CONSUMERS_PER_SUBSCRIPTION]
    sharing = SharingLimits(
        consumers_max,
        config.dispatcher_max_round_robin_batch_size,
        policies[MAX_UNACKED_MESSAGES_PER_CONSUMER] if keeps_unacked else 0,
        policies[MAX_UNACKED_MESSAGES_PER_SUBSCRIPTION] if keeps_unacked else 0,
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
                hands_over_slowly=keeps_unacked
                and config.active_consumer_failover_delay_time_millis > 0,
            )
        case SubscriptionType.SHARED:
            return SharedDispatcher(
                read_from=read_from, acknowledged=acknowledged, limits=limits, sharing=sharing
            )
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


def chunk_of(metadata: MessageMetadata) -> Chunk | None:
    """Return the chunk that an entry is; ``None`` for a whole message or a batch of whole
    messages.
    """
    count = metadata.num_chunks_from_msg
    return (
        Chunk((metadata.producer_name, metadata.uuid), metadata.chunk_id + 1 >= count)
        if count > 1
        else None
    )


def shared_ready(entry: LogEntry, *, hashes_keys: bool) -> Ready:
    """Return an entry of the log as it is for every subscription of which no part of it is
    acknowledged. ``due_ms`` is its own delivery time, whatever a subscription makes of that.
    """
    position, payload = entry
    metadata = parse_metadata(payload)
    return Ready(
        position,
        payload,
        metadata.num_messages_in_batch,
        None,
        key_hash(sticky_key(metadata)) if hashes_keys else 0,
        metadata.deliver_at_time,
        chunk_of(metadata),
    )


class ReadyMaker:
    """Turns entries of the log into entries for a dispatcher, for one subscription type."""

    def __init__(
        self, kind: SubscriptionType, cursor: Cursor, topic_limits: TopicLimits, clock: Clock
    ) -> None:
        self._hashes_keys = kind is SubscriptionType.KEY_SHARED
        self._may_delay = kind.is_spread
        self._cursor = cursor
        self._topic_limits = topic_limits
        self._clock = clock

    def make(self, entry: LogEntry) -> Ready:
        """Return an entry of the log as an entry for the dispatcher."""
        ready = shared_ready(entry, hashes_keys=self._hashes_keys)
        if ready.messages > 1 and (left := self._cursor.ack_set(ready.position)) is not None:
            ready = ready._replace(ack_set=left.to_bytes((ready.messages + 7) // 8, "little"))
        due_ms = ready.due_ms
        if due_ms and not (self._may_delay and self._clock.wall_ms() < due_ms and self.delays):
            ready = ready._replace(due_ms=0)
        return ready

    def with_expiry(self, entries: Sequence[Ready]) -> list[Ready]:
        """Return the entries with their expiry times. Only entries of ledgers that may have such
        times need this.
        """
        return [
            each._replace(expires_ms=expires_ms)
            if (expires_ms := stored_expiry_time(each.payload))
            else each
            for each in entries
        ]

    @property
    def delays(self) -> bool:
        """Whether delivery times are obeyed."""
        return self._topic_limits.policies[DELAYED_DELIVERY].active

    @property
    def now_ms(self) -> int:
        """The time by which entries are due."""
        return self._clock.wall_ms() if self.delays else DELAYS_OVER

    def release(self, dispatcher: Dispatcher) -> None:
        """Redeliver the delayed entries that are due."""
        reads = dispatcher.reads
        if reads.delayed and dispatcher.has_room:
            reads.delayed.tick_ms = self._topic_limits.policies[DELAYED_DELIVERY].tick_ms
            reads.release(self.now_ms)

    def wait_seconds(self, dispatcher: Dispatcher) -> float | None:
        """Return the seconds until a delayed entry is due; ``None``: no entry is delayed.

        Limited to ``_LOOK_AGAIN_SECONDS``, because the wall clock may be set.
        """
        wait_ms = dispatcher.reads.wait_ms(self._clock.wall_ms()) if dispatcher.has_room else None
        return None if wait_ms is None else min(wait_ms / 1000, _LOOK_AGAIN_SECONDS)
