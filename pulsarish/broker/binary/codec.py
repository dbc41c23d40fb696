"""Translation between the commands of Apache Pulsar's binary protocol and a session's commands and
answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from pulsarish.broker.clients.client_errors import to_client_error
from pulsarish.broker.clients.commands import (
    NO_EPOCH,
    NO_INSTANCE,
    AccessMode,
    Acknowledge,
    CloseConsumer,
    CloseProducer,
    Command,
    Flow,
    GetLastMessageId,
    GetOrCreateSchema,
    GetSchema,
    InitialPosition,
    KeySharedMode,
    KeySharedPolicy,
    OpenProducer,
    Redeliver,
    Seek,
    Subscribe,
    Unsubscribe,
)
from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.clients.interfaces import ServedSubscription
from pulsarish.model.errors import NotAllowedError, NotFound, PulsarishError
from pulsarish.model.position import Position
from pulsarish.model.schema import Schema, SchemaType
from pulsarish.model.subscription_type import SubscriptionType
from pulsarish.wire._pb import pulsar_pb2 as pb

__all__ = [
    "NO_REQUEST",
    "ack_words",
    "consumer_stats",
    "encode_schema",
    "error_command",
    "failure",
    "message_id",
    "refused_transaction",
    "refused_unknown",
    "session_command",
]

NO_REQUEST: Final = 2**64 - 1
"""The request id of a command that a broker sends without a request."""

_BATCH_INDEX_ACK: Final = "pulsarish.batch-index-ack"
"""The property with the value ``true`` by which a consumer says that it acknowledges single
messages of batches: the protocol has no field for that.
"""
_WORD: Final = 2**64
_SIGN: Final = 2**63
_TRANSACTIONS: Final = {
    50: ("new_txn", "new_txn_response"),
    52: ("add_partition_to_txn", "add_partition_to_txn_response"),
    54: ("add_subscription_to_txn", "add_subscription_to_txn_response"),
    56: ("end_txn", "end_txn_response"),
    58: ("end_txn_on_partition", "end_txn_on_partition_response"),
    60: ("end_txn_on_subscription", "end_txn_on_subscription_response"),
    62: ("tc_client_connect", "tc_client_connect_response"),
}


def session_command(command: pb.Command) -> Command | None:
    """Translate a command for the session; ``None`` if it is not for a session.

    Raises ``NotAllowedError`` for commands of a transaction.
    """
    match command.type:
        case 4:
            return _subscribe(command.subscribe)
        case 5:
            return _open_producer(command.producer)
        case 10:
            return _acknowledge(command.ack)
        case 11:
            return Flow(command.flow.consumer_id, command.flow.message_permits)
        case 12:
            return Unsubscribe(
                command.unsubscribe.request_id,
                command.unsubscribe.consumer_id,
                command.unsubscribe.force,
            )
        case 15:
            return CloseProducer(
                command.close_producer.request_id, command.close_producer.producer_id
            )
        case 16:
            return CloseConsumer(
                command.close_consumer.request_id, command.close_consumer.consumer_id
            )
        case 20:
            redeliver = command.redeliver
            epoch = redeliver.consumer_epoch if redeliver.HasField("consumer_epoch") else -1
            return Redeliver(
                redeliver.consumer_id,
                tuple([_position(each) for each in redeliver.message_ids]),
                epoch,
            )
        case 28:
            seek = command.seek
            position = _position(seek.message_id) if seek.HasField("message_id") else None
            return Seek(seek.request_id, seek.consumer_id, position, seek.message_publish_time)
        case 29:
            return GetLastMessageId(
                command.get_last_message_id.request_id, command.get_last_message_id.consumer_id
            )
        case 34:
            schema = command.get_schema
            return GetSchema(
                schema.request_id,
                schema.topic,
                schema.schema_version if schema.HasField("schema_version") else None,
            )
        case 39:
            asked = command.get_or_create_schema
            return GetOrCreateSchema(asked.request_id, asked.topic, _schema(asked.schema))
        case _:
            return None


def refused_unknown(command: pb.Command) -> pb.Command | None:
    """Return the answer to an unknown command; ``None`` when the command has no request id."""
    error = NotAllowedError(f"a command of type {command.type} is not known here")
    for field, body in command.ListFields():
        if field.message_type is not None and "request_id" in field.message_type.fields_by_name:
            return error_command(body.request_id, error)
    return None


def _signed(value: int) -> int:
    return value - _WORD if value >= _SIGN else value


def _position(sent: pb.MessageIdData) -> Position:
    """Decode a position. -1 travels as the largest unsigned number."""
    return Position(_signed(sent.ledger_id), _signed(sent.entry_id))


def _schema(sent: pb.Schema) -> Schema:
    """Decode a schema. Raises ``ValueError`` for a type unknown in this version of the protocol."""
    return Schema(
        SchemaType(sent.type),
        sent.schema_data,
        sent.name,
        {each.key: each.value for each in sent.properties},
    )


def encode_schema(schema: Schema) -> pb.Schema:
    properties = [pb.KeyValue(key=key, value=value) for key, value in schema.properties.items()]
    return pb.Schema(
        name=schema.name, schema_data=schema.data, type=int(schema.type), properties=properties
    )


def _open_producer(sent: pb.Producer) -> OpenProducer:
    if sent.txn_enabled:
        raise NotAllowedError(
            "transactions are not supported; make the client without enableTransaction"
        )
    return OpenProducer(
        sent.request_id,
        sent.producer_id,
        sent.topic,
        sent.producer_name,
        sent.epoch,
        AccessMode(sent.producer_access_mode),
        {each.key: each.value for each in sent.metadata},
        schema=_schema(sent.schema) if sent.HasField("schema") else None,
        initial_subscription=sent.initial_subscription_name,
        topic_epoch=sent.topic_epoch if sent.HasField("topic_epoch") else NO_EPOCH,
        # Clients of one name cannot be told apart, unless a broker chose the name for one of them.
        instance=None if sent.user_provided_producer_name else NO_INSTANCE,
        encrypts=sent.encrypted,
    )


def _subscribe(sent: pb.Subscribe) -> Subscribe:
    # The cursor decides where a durable subscription starts. The client drops the messages of an
    # entry before its start message.
    start = (
        _position(sent.start_message_id)
        if sent.HasField("start_message_id") and not sent.durable
        else None
    )
    return Subscribe(
        sent.request_id,
        sent.consumer_id,
        sent.topic,
        sent.subscription,
        SubscriptionType(sent.sub_type),
        sent.consumer_name,
        sent.priority_level,
        sent.durable,
        start,
        InitialPosition(sent.initial_position),
        {each.key: each.value for each in sent.metadata},
        sent.read_compacted,
        schema=_schema(sent.schema) if sent.HasField("schema") else None,
        subscription_properties={each.key: each.value for each in sent.subscription_properties},
        start_rollback_seconds=sent.start_message_rollback_duration_sec,
        epoch=sent.consumer_epoch if sent.HasField("consumer_epoch") else -1,
        key_shared=_key_shared(sent.key_shared_meta)
        if sent.HasField("key_shared_meta")
        else KeySharedPolicy(),
        creates_topic=sent.force_topic_creation,
        replicates_state=sent.replicate_subscription_state,
        takes_parts=any(
            each.key == _BATCH_INDEX_ACK and each.value == "true" for each in sent.metadata
        ),
    )


def _key_shared(sent: pb.KeySharedMeta) -> KeySharedPolicy:
    ranges = tuple([(each.start, each.end) for each in sent.hash_ranges])
    return KeySharedPolicy(
        KeySharedMode(sent.key_shared_mode), sent.allow_out_of_order_delivery, ranges
    )


def _acknowledge(sent: pb.Ack) -> Acknowledge:
    if sent.txnid_least_bits or sent.txnid_most_bits:
        raise NotAllowedError("transactions are not supported; acknowledge outside of one")
    positions: list[Position] = []
    left: list[int] = []
    for each in sent.message_id:
        positions.append(_position(each))
        left.append(
            sum([(word % _WORD) << (64 * index) for index, word in enumerate(each.ack_set)])
            if each.ack_set
            else 0
        )
    return Acknowledge(
        sent.consumer_id,
        positions,
        sent.request_id,
        sent.ack_type == pb.Ack.CUMULATIVE,
        left_unacknowledged=left if any(left) else (),
    )


def message_id(
    position: Position, *, partition: int = -1, batch_index: int = -1
) -> pb.MessageIdData:
    return pb.MessageIdData(
        ledger_id=position.ledger_id % _WORD,
        entry_id=position.entry_id % _WORD,
        partition=partition,
        batch_index=batch_index,
    )


def ack_words(bits: bytes | None) -> Sequence[int]:
    """Return the words of a delivery's set of messages, lowest bits first; empty when all messages
    are to be delivered.
    """
    if bits is None:
        return ()
    return [int.from_bytes(bits[at : at + 8], "little") for at in range(0, len(bits), 8)]


def failure(error: PulsarishError) -> tuple[pb.ServerError, str]:
    """Return an error's number and text for clients of this protocol.

    On SERVICE_NOT_READY they close their whole connection, with everything on it. On METADATA_ERROR
    they look up only the one topic again. A missing resource that is not a topic is final for them
    only as a missing topic.
    """
    known = to_client_error(error)
    number = pb.TOPIC_NOT_FOUND if type(known) is NotFound else known.server_error
    if number == pb.SERVICE_NOT_READY:
        number = pb.METADATA_ERROR
    return cast("pb.ServerError", number), str(known)


def error_command(request_id: int, error: PulsarishError) -> pb.Command:
    number, text = failure(error)
    return pb.Command(type=14, error=pb.Error(request_id=request_id, error=number, message=text))


def consumer_stats(
    asked: pb.ConsumerStats, found: tuple[ServedSubscription, Consumer] | None, now: float
) -> pb.Command:
    """Answer what a client asks about its consumer.

    ``found`` is this consumer, or ``None`` if it is not connected.
    """
    answer = pb.ConsumerStatsResponse(request_id=asked.request_id)
    if found is None:
        answer.error_code = pb.CONSUMER_NOT_FOUND
        answer.error_message = f"consumer {asked.consumer_id} is not connected"
    else:
        subscription, consumer = found
        answer.msg_rate_out, answer.msg_throughput_out = consumer.out.rates(now)
        answer.msg_rate_redeliver = consumer.redelivered.rates(now)[0]
        answer.message_ack_rate = consumer.acked.rates(now)[0]
        answer.msg_rate_expired = subscription.expired.rates(now)[0]
        answer.consumer_name = consumer.name
        answer.available_permits = max(consumer.permits, 0)
        answer.unacked_messages = consumer.unacked
        answer.blocked_consumer_on_unacked_msgs = consumer.blocked
        answer.address = consumer.address
        answer.connected_since = str(consumer.connected_ms)
        answer.type = subscription.type.title
        answer.msg_backlog = subscription.backlog
    return pb.Command(type=26, consumer_stats_response=answer)


def refused_transaction(command: pb.Command) -> pb.Command | None:
    """Return the answer to a command of transactions, which do not exist here; ``None`` for any
    other command.
    """
    if command.type not in _TRANSACTIONS:
        return None
    asked, answered = _TRANSACTIONS[command.type]
    answer = pb.Command(type=command.type + 1)
    body = getattr(answer, answered)
    body.request_id = getattr(command, asked).request_id
    body.error = pb.NOT_ALLOWED_ERROR
    body.message = "transactions are not supported; make the client without enableTransaction"
    return answer
