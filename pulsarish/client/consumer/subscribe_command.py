"""The commands with which a consumer subscribes and seeks."""

from __future__ import annotations

from typing import Any

from pulsarish.client.enums import ConsumerType, InitialPosition, KeySharedMode
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.consumer_policies import (
    ConsumerKeySharedPolicy,
)
from pulsarish.client.schemas.wire import schema_message
from pulsarish.model.topic_name import TopicName
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["first_wanted", "subscribe_command"]


def subscribe_command(topic: TopicName, options: ConsumerOptions[Any]) -> pb.Subscribe:
    """Return the command without a reader's start, which moves."""
    return pb.Subscribe(
        topic=topic.full,
        subscription=options.subscription_name,
        type=int(options.consumer_type),  # type: ignore[arg-type]
        consumer_name=options.consumer_name,
        priority_level=options.priority_level,
        durable=options.start is None,
        # All messages of the retry letter topic are for this subscription.
        initial_position=int(
            InitialPosition.Earliest
            if topic.partitioned == options.retry_topic
            else options.initial_position
        ),  # type: ignore[arg-type]
        properties=options.properties,
        subscription_properties=options.subscription_properties,
        read_compacted=options.is_read_compacted,
        schema=schema_message(options.schema),
        replica=options.replica,
        key_shared=_key_shared(options.key_shared_policy)
        if options.consumer_type is ConsumerType.KeyShared
        else None,
        only_existing=not options.creates_topics,
    )


def _key_shared(policy: ConsumerKeySharedPolicy) -> pb.KeySharedPolicy:
    return pb.KeySharedPolicy(
        mode=pb.STICKY if policy.key_shared_mode is KeySharedMode.Sticky else pb.AUTO_SPLIT,
        allow_out_of_order_delivery=policy.allow_out_of_order_delivery,
        range_firsts=[first for first, _ in policy.sticky_ranges],
        range_lasts=[last for _, last in policy.sticky_ranges],
    )


def first_wanted(start: MessageId, *, inclusive: bool) -> pb.MessageId:
    """Return the first entry wanted for a start.

    An excluded message's entry is requested only when it may be part of a batch: otherwise it would
    stay unacknowledged on a durable subscription.
    """
    ledger, entry, index = start.ledger_id(), start.entry_id(), start.batch_index()
    if inclusive and start.chunks():
        ledger, entry = start.chunks()[0]
    is_whole = index < 0 or index + 1 == start.batch_size()
    if is_whole and not inclusive and start not in (MessageId.earliest, MessageId.latest):
        return pb.MessageId(ledger=ledger, entry=entry + 1, batch_index=-1)
    return pb.MessageId(ledger=ledger, entry=entry, batch_index=index)
