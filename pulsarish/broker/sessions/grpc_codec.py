"""Translation between the protobuf messages of ``proto/pulsarish/broker.proto`` and a session's
commands and answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never

from pulsarish.broker.clients.client_errors import TopicMoved, to_client_error
from pulsarish.broker.clients.commands import (
    AccessMode,
    Acknowledge,
    ActiveChanged,
    Answer,
    CloseConsumer,
    CloseProducer,
    Command,
    ConsumerClosed,
    EndOfTopic,
    ExtendAck,
    Flow,
    GetLastMessageId,
    InitialPosition,
    KeySharedMode,
    KeySharedPolicy,
    LastMessageId,
    OpenProducer,
    Outcome,
    ProducerClosed,
    ProducerOpened,
    Receipts,
    Redeliver,
    SchemaFound,
    SchemaVersion,
    Seek,
    SendFailed,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from pulsarish.broker.clients.consumer import Delivery
from pulsarish.model.errors import PulsarishError
from pulsarish.model.position import Position
from pulsarish.model.schema import Schema, SchemaType
from pulsarish.model.subscription_type import SubscriptionType
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire.framing import Buffer, join_records

__all__ = [
    "consume_commands",
    "encode_consume",
    "encode_publish",
    "publish_commands",
    "schema_message",
    "schema_of",
]

# In one message of answers, a producer's opening comes before its receipts, then its failures, then
# its closing. An answer that would break this order waits for the next message.
_NO_PROPERTIES: Final[Mapping[str, str]] = {}  # of most producers, which share it
_RANKS: Final[dict[type[Answer], int]] = {
    ProducerOpened: 0,
    Receipts: 1,
    SendFailed: 2,
    ProducerClosed: 3,
}


def publish_commands(message: pb.PublishRequest) -> list[Command]:
    """Return the commands of a message.

    Raises ``ValueError`` for an unknown number of an enumeration.
    """
    commands: list[Command] = [
        CloseProducer(close.request_id, close.producer_id) for close in message.close
    ]
    for each in message.open:
        mode = AccessMode(each.access_mode)
        properties = dict(each.properties) if each.properties else _NO_PROPERTIES
        schema = schema_of(each.schema) if each.HasField("schema") else None
        commands.append(
            OpenProducer(
                each.request_id,
                each.producer_id,
                each.topic,
                each.producer_name,
                each.epoch,
                mode,
                properties,
                schema=schema,
                initial_subscription=each.initial_subscription,
                topic_epoch=each.topic_epoch - 1,
                instance=each.instance,
                takes_over=each.takes_over,
                was_open=each.was_open,
                encrypts=each.encrypts,
            )
        )
    return commands


def schema_of(message: pb.Schema) -> Schema:
    """Decode a schema. Raises ``ValueError`` for an unknown type."""
    return Schema(SchemaType(message.type), message.data, message.name, dict(message.properties))


def schema_message(schema: Schema) -> pb.Schema:
    return pb.Schema(
        type=int(schema.type),
        data=schema.data,
        name=schema.name,
        properties=dict(schema.properties),
    )


def consume_commands(message: pb.ConsumeRequest) -> list[Command]:
    """Return the commands of a message, in the order of execution.

    Raises ``ValueError`` for columns of different lengths.
    """
    commands: list[Command] = [
        CloseConsumer(close.request_id, close.consumer_id) for close in message.close
    ]
    commands.extend([_subscribe(each) for each in message.subscribe])
    for ack in message.acks:
        positions = _positions(ack.ledgers, ack.entries)
        commands.append(
            Acknowledge(
                ack.consumer_id, positions, ack.request_id, ack.cumulative, tuple(ack.batch_indexes)
            )
        )
    commands.extend(
        [
            Redeliver(
                each.consumer_id,
                _positions(each.ledgers, each.entries),
                request_id=each.request_id,
            )
            for each in message.redeliver
        ]
    )
    commands.extend(
        [
            ExtendAck(each.consumer_id, _positions(each.ledgers, each.entries))
            for each in message.extend
        ]
    )
    for seek in message.seek:
        position = (
            Position(seek.position.ledger, seek.position.entry)
            if seek.HasField("position")
            else None
        )
        commands.append(Seek(seek.request_id, seek.consumer_id, position, seek.publish_time_ms))
    commands.extend(
        [Flow(*row) for row in zip(message.flow_consumers, message.flow_permits, strict=True)]
    )
    commands.extend(
        [GetLastMessageId(each.request_id, each.consumer_id) for each in message.last_message_id]
    )
    commands.extend(
        [Unsubscribe(each.request_id, each.consumer_id, each.force) for each in message.unsubscribe]
    )
    return commands


def _positions(ledgers: Sequence[int], entries: Sequence[int]) -> list[Position]:
    return [
        Position(ledger_id, entry_id) for ledger_id, entry_id in zip(ledgers, entries, strict=True)
    ]


def _subscribe(each: pb.Subscribe) -> Subscribe:
    return Subscribe(
        each.request_id,
        each.consumer_id,
        each.topic,
        each.subscription,
        SubscriptionType(each.type),
        each.consumer_name,
        each.priority_level,
        each.durable,
        Position(each.start.ledger, each.start.entry) if each.HasField("start") else None,
        InitialPosition(each.initial_position),
        dict(each.properties),
        each.read_compacted,
        schema=schema_of(each.schema) if each.HasField("schema") else None,
        key_shared=_key_shared(each.key_shared),
        subscription_properties=dict(each.subscription_properties),
        start_rollback_seconds=max(0, each.start_rollback_seconds),
        replica=each.replica,
        creates_topic=not each.only_existing,
    )


def _key_shared(each: pb.KeySharedPolicy) -> KeySharedPolicy:
    ranges = tuple(zip(each.range_firsts, each.range_lasts, strict=True))
    return KeySharedPolicy(KeySharedMode(each.mode), each.allow_out_of_order_delivery, ranges)


def _outcome(request_id: int, error: PulsarishError | None) -> pb.Outcome:
    return (
        pb.Outcome(request_id=request_id)
        if error is None
        else pb.Outcome(request_id=request_id, **_failure(error))
    )


def _failure(error: PulsarishError) -> dict[str, Any]:
    known = to_client_error(error)
    return {"code": known.code, "message": str(known)}


def _moved_to(error: PulsarishError, listener: str) -> pb.BrokerAddresses | None:
    """Return where clients of a listener find the broker to which their topic moves."""
    found = error.to.listeners.get(listener) if isinstance(error, TopicMoved) else None
    if found is None:
        return None
    return pb.BrokerAddresses(
        address=found.address,
        framed_address=found.framed_address,
        address_tls=found.address_tls,
        framed_address_tls=found.framed_address_tls,
    )


def encode_publish(
    answers: deque[Answer],
    answered: int,
    *,
    heartbeat: bool,
    asks_credentials: bool = False,
    listener: str = "",
) -> bytes:
    """Encode one message of answers, taken from the front of ``answers``.

    Answers that must not be in the same message stay. ``listener`` is that of the client.
    """
    message = pb.PublishResponse(
        answered=answered, heartbeat=heartbeat, ask_credentials=asks_credentials
    )
    reached: dict[int, int] = {}
    while answers:
        answer = answers[0]
        match answer:
            case Receipts() | SendFailed() | ProducerClosed() | ProducerOpened():
                rank = _RANKS[type(answer)]
                if rank < reached.get(answer.producer_id, 0):
                    break
                reached[answer.producer_id] = rank
            case _:
                pass
        answers.popleft()
        match answer:
            case Receipts():
                message.producers.append(answer.producer_id)
                message.counts.append(answer.count)
                message.ledgers.append(answer.ledger_id)
                message.firsts.append(answer.first_entry)
                message.sequence_ids.append(answer.sequence_id)
            case SendFailed():
                message.failed.add(
                    producer_id=answer.producer_id,
                    sequence_id=answer.sequence_id,
                    **_failure(answer.error),
                )
            case ProducerOpened():
                message.opened.add(
                    outcome=_outcome(answer.request_id, answer.error),
                    producer_id=answer.producer_id,
                    producer_name=answer.name,
                    last_sequence_id=answer.last_sequence_id,
                    max_message_bytes=answer.message_bytes_max,
                    deduplication=answer.deduplication,
                    schema_version=answer.schema_version,
                    queued=not answer.ready,
                    topic_epoch=answer.topic_epoch + 1,
                )
            case ProducerClosed():
                message.closed.add(
                    producer_id=answer.producer_id,
                    moved_to=_moved_to(answer.error, listener),
                    **_failure(answer.error),
                )
            case Outcome():
                message.outcomes.append(_outcome(answer.request_id, answer.error))
            case Subscribed() | ConsumerClosed() | ActiveChanged() | LastMessageId() | EndOfTopic():
                raise AssertionError("a consumer's answer on a publish stream")
            case SchemaFound() | SchemaVersion():
                raise AssertionError("schemas are asked for by calls")
            case _:
                assert_never(answer)
    return message.SerializeToString()


def encode_consume(
    answers: deque[Answer],
    deliveries: Sequence[tuple[int, Delivery]],
    *,
    heartbeat: bool,
    asks_credentials: bool = False,
    listener: str = "",
) -> list[Buffer]:
    """Encode one message with all answers and these deliveries, for a client of ``listener``."""
    message = pb.ConsumeResponse(
        heartbeat=heartbeat, counted=bool(deliveries), ask_credentials=asks_credentials
    )
    while answers:
        _put_consume(message, answers.popleft(), listener)
    if not deliveries:
        return [message.SerializeToString()]
    message.consumer_ids.extend([consumer_id for consumer_id, _ in deliveries])
    message.ledgers.extend([delivery.position.ledger_id for _, delivery in deliveries])
    message.entry_ids.extend([delivery.position.entry_id for _, delivery in deliveries])
    message.redelivery_counts.extend([delivery.redelivery_count for _, delivery in deliveries])
    payloads: list[Buffer] = [delivery.payload for _, delivery in deliveries]
    sizes = [len(payload) for payload in payloads]
    message.sizes.extend(sizes)
    for row, (_, delivery) in enumerate(deliveries):
        if delivery.ack_set is not None:
            message.ack_set_rows.append(row)
            message.ack_sets.append(delivery.ack_set)
    return join_records(message, payloads, sum(sizes))


def _put_consume(message: pb.ConsumeResponse, answer: Answer, listener: str) -> None:
    match answer:
        case Outcome():
            message.outcomes.append(_outcome(answer.request_id, answer.error))
        case Subscribed():
            message.subscribed.add(
                outcome=_outcome(answer.request_id, answer.error), consumer_id=answer.consumer_id
            )
        case ConsumerClosed():
            message.closed.add(
                consumer_id=answer.consumer_id,
                moved_to=_moved_to(answer.error, listener),
                **_failure(answer.error),
            )
        case ActiveChanged():
            message.active.add(consumer_id=answer.consumer_id, active=answer.active)
        case LastMessageId():
            message.last_message_id.add(
                outcome=_outcome(answer.request_id, answer.error),
                last=pb.MessageId(
                    ledger=answer.last.ledger_id,
                    entry=answer.last.entry_id,
                    batch_index=answer.batch_index,
                ),
                mark_delete=pb.MessageId(
                    ledger=answer.mark_delete.ledger_id,
                    entry=answer.mark_delete.entry_id,
                    batch_index=-1,
                ),
            )
        case EndOfTopic():
            message.ended.add(consumer_id=answer.consumer_id)
        case ProducerOpened() | ProducerClosed() | Receipts() | SendFailed():
            raise AssertionError("a producer's answer on a consume stream")
        case SchemaFound() | SchemaVersion():
            raise AssertionError("schemas are asked for by calls")
        case _:
            assert_never(answer)
