"""Turn a session's answers into frames of one connection. The core: no I/O.

A session answers in a general form: receipts in rows, and one kind of outcome for all requests.
This protocol needs the numbers of each entry, and its answer to an acknowledgement differs from
that to a seek. So the open requests are kept here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from pulsarish.broker.binary.codec import (
    NO_REQUEST,
    encode_schema,
    error_command,
    failure,
    message_id,
)
from pulsarish.broker.clients.client_errors import TopicMoved
from pulsarish.broker.clients.commands import (
    NO_EPOCH,
    Acknowledge,
    ActiveChanged,
    Answer,
    CloseConsumer,
    Command,
    ConsumerClosed,
    EndOfTopic,
    LastMessageId,
    OpenProducer,
    Outcome,
    ProducerClosed,
    ProducerOpened,
    Receipts,
    SchemaFound,
    SchemaVersion,
    SendFailed,
    Subscribe,
    Subscribed,
)
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import Malformed, PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import command_frame, receipt_frames

__all__ = ["Answers"]

Parts = list[bytes | memoryview]
UrlsOf = Callable[[BrokerRegistration], tuple[str, str]]
"""Returns the URLs of a broker's binary port without and with TLS; one or both may be empty."""


class Answers:
    """Encodes answers for one connection. Notices for a consumer wait for its first permits.

    Apache Pulsar's client for Go knows its consumer only a moment after the answer that it has
    subscribed. It would lose earlier notices.

    ``held`` is called for a consumer with waiting notices. ``urls_of`` returns where this client
    finds another broker.
    """

    def __init__(self, held: Callable[[int], None], urls_of: UrlsOf) -> None:
        self.partitions: dict[int, int] = {}
        """Number of the partition, or -1, by consumer."""
        self._held = held
        self._urls_of = urls_of
        self._highest_producer = -1  # that was ever opened
        self._acks: dict[int, int] = {}  # request -> consumer
        self._subscribing: set[int] = set()
        self._notices: dict[int, list[bytes]] = {}  # notices by consumer, until its first permits

    def expect(self, command: Command) -> None:
        """Note a command before the session gets it."""
        match command:
            case OpenProducer():
                self._highest_producer = max(self._highest_producer, command.producer_id)
            case Subscribe():
                self._subscribing.add(command.consumer_id)
                self._notices[command.consumer_id] = []
                self.partitions[command.consumer_id] = _partition(command.topic)
            case CloseConsumer():
                self.partitions.pop(command.consumer_id, None)
                self._notices.pop(command.consumer_id, None)
            case Acknowledge() if command.request_id:
                self._acks[command.request_id] = command.consumer_id
            case _:
                return

    def take_notices(self, consumer_id: int) -> list[bytes]:
        """Return the notices that waited for this consumer. From now on its notices do not wait."""
        return self._notices.pop(consumer_id, []) if consumer_id not in self._subscribing else []

    def check_opened(self, producer_id: int) -> None:
        """Raise ``Malformed`` for a producer that cannot have been opened: clients number their
        producers upwards.

        Sending to a closed producer is not an error: the client may not know yet that it is closed.
        """
        if producer_id > self._highest_producer:
            raise Malformed(
                f"SEND of producer {producer_id}, which was never opened on this connection"
            )

    def encode(self, answer: Answer, parts: Parts) -> None:
        """Append the frames of an answer to ``parts``."""
        match answer:
            case Receipts() | SendFailed() | ProducerOpened() | ProducerClosed():
                self._to_producer(answer, parts)
            case Subscribed() | ActiveChanged() | ConsumerClosed() | EndOfTopic():
                self._to_consumer(answer, parts)
            case LastMessageId():
                parts.append(command_frame(_last_message_id(answer)))
            case SchemaFound():
                parts.append(command_frame(_schema_found(answer)))
            case SchemaVersion():
                parts.append(command_frame(_schema_version(answer)))
            case Outcome():
                parts.append(command_frame(self._outcome(answer)))
            case _:
                assert_never(answer)

    def _to_producer(
        self, answer: Receipts | SendFailed | ProducerOpened | ProducerClosed, parts: Parts
    ) -> None:
        producer_id = answer.producer_id
        match answer:
            case Receipts():
                assert answer.sends is not None
                sends = answer.sends[: answer.count]
                assert len(sends) == answer.count
                del answer.sends[: answer.count]
                parts.extend(
                    receipt_frames(producer_id, sends, answer.ledger_id, answer.first_entry)
                )
            case SendFailed():
                assert answer.sends is not None
                number, text = failure(answer.error)
                refused = pb.SendError(
                    producer_id=producer_id,
                    sequence_id=answer.sends.pop(0)[0],
                    error=number,
                    message=text,
                )
                parts.append(command_frame(pb.Command(type=8, send_error=refused)))
            case ProducerOpened():
                parts.append(command_frame(_producer_opened(answer)))
            case ProducerClosed():
                closed = pb.CloseProducer(producer_id=producer_id, request_id=NO_REQUEST)
                self._assign(closed, answer.error)
                parts.append(command_frame(pb.Command(type=15, close_producer=closed)))

    def _to_consumer(
        self, answer: Subscribed | ActiveChanged | ConsumerClosed | EndOfTopic, parts: Parts
    ) -> None:
        match answer:
            case Subscribed():
                parts.append(command_frame(_outcome(answer.request_id, answer.error)))
                self._subscribing.discard(answer.consumer_id)
                if answer.error is not None:
                    self._notices.pop(answer.consumer_id, None)
                elif self._notices.get(answer.consumer_id):
                    self._held(answer.consumer_id)
            case ActiveChanged():
                self._unasked(answer.consumer_id, command_frame(_active(answer)), parts)
            case ConsumerClosed():
                gone = pb.CloseConsumer(consumer_id=answer.consumer_id, request_id=NO_REQUEST)
                self._assign(gone, answer.error)
                parts.append(command_frame(pb.Command(type=16, close_consumer=gone)))
            case EndOfTopic():
                ended = pb.ReachedEndOfTopic(consumer_id=answer.consumer_id)
                self._unasked(
                    answer.consumer_id,
                    command_frame(pb.Command(type=27, reached_end_of_topic=ended)),
                    parts,
                )

    def _assign(self, closed: pb.CloseProducer | pb.CloseConsumer, error: PulsarishError) -> None:
        """Name the broker to which the topic moves. Clients that know nothing of it look up."""
        if not isinstance(error, TopicMoved):
            return
        plain, tls = self._urls_of(error.to)
        # A field that is set counts as an address, however empty it is.
        if plain:
            closed.assigned_broker_service_url = plain
        if tls:
            closed.assigned_broker_service_url_tls = tls

    def _unasked(self, consumer_id: int, frame: bytes, parts: Parts) -> None:
        waiting = self._notices.get(consumer_id)
        if waiting is None:
            parts.append(frame)
            return
        waiting.append(frame)
        if consumer_id not in self._subscribing:
            self._held(consumer_id)

    def _outcome(self, answer: Outcome) -> pb.Command:
        consumer_id = self._acks.pop(answer.request_id, None)
        if consumer_id is None:
            return _outcome(answer.request_id, answer.error)
        response = pb.AckResponse(consumer_id=consumer_id, request_id=answer.request_id)
        if answer.error is not None:
            response.error, response.message = failure(answer.error)
        return pb.Command(type=38, ack_response=response)


def _partition(topic: str) -> int:
    try:
        return TopicName.parse(topic).partition
    except PulsarishError:
        return -1  # the session refuses the name


def _outcome(request_id: int, error: PulsarishError | None) -> pb.Command:
    if error is None:
        return pb.Command(type=13, success=pb.Success(request_id=request_id))
    return error_command(request_id, error)


def _producer_opened(answer: ProducerOpened) -> pb.Command:
    if answer.error is not None:
        return _outcome(answer.request_id, answer.error)
    opened = pb.ProducerSuccess(
        request_id=answer.request_id,
        producer_name=answer.name,
        last_sequence_id=answer.last_sequence_id,
    )
    # Set it even when empty: Apache Pulsar's Java client closes its connection over a field that is
    # not set.
    opened.schema_version = answer.schema_version
    if answer.topic_epoch != NO_EPOCH:
        opened.topic_epoch = answer.topic_epoch
    if not answer.ready:
        opened.producer_ready = False
    return pb.Command(type=17, producer_success=opened)


def _active(change: ActiveChanged) -> pb.Command:
    return pb.Command(
        type=31,
        active_consumer_change=pb.ActiveConsumerChange(
            consumer_id=change.consumer_id, is_active=change.active
        ),
    )


def _last_message_id(answer: LastMessageId) -> pb.Command:
    if answer.error is not None:
        return _outcome(answer.request_id, answer.error)
    found = pb.GetLastMessageIdResponse(
        last_message_id=message_id(
            answer.last, partition=answer.partition, batch_index=answer.batch_index
        ),
        request_id=answer.request_id,
        consumer_mark_delete_position=message_id(answer.mark_delete, partition=answer.partition),
    )
    return pb.Command(type=30, get_last_message_id_response=found)


def _schema_found(answer: SchemaFound) -> pb.Command:
    response = pb.GetSchemaResponse(request_id=answer.request_id)
    if answer.error is not None:
        response.error_code, response.error_message = failure(answer.error)
    elif answer.schema is not None:
        response.schema.CopyFrom(encode_schema(answer.schema))
        response.schema_version = answer.version
    return pb.Command(type=35, get_schema_response=response)


def _schema_version(answer: SchemaVersion) -> pb.Command:
    response = pb.GetOrCreateSchemaResponse(request_id=answer.request_id)
    if answer.error is not None:
        response.error_code, response.error_message = failure(answer.error)
    else:
        response.schema_version = answer.version
    return pb.Command(type=40, get_or_create_schema_response=response)
