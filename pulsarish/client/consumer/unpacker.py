"""Making messages of the entries that one topic delivered, one entry at a time, when the program
asks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pulsarish.client.consumer.chunk_assembler import ChunkAssembler
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.consumer.receive_queue import ReceiveQueue
from pulsarish.client.consumer.unacked_messages import UnackedMessages
from pulsarish.client.consumer.writer_schemas import WriterSchemas
from pulsarish.client.enums import ConsumerCryptoFailureAction
from pulsarish.client.message_id import MessageId, known_id
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.message import Entry, Message
from pulsarish.model.errors import ChecksumError, CryptoError, OperationNotSupported
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock

__all__ = ["Unpacker"]

_log = get_logger("client.consumer")


class Unpacker:
    """Of one topic or partition. The inbox's lock is held around every call.

    Args:
        ordered: nothing may be handed out before what came before it, so entries are not asked for
            one by one.
        wake: has the loop send the permits and acknowledgements that are due; may be called from
            any thread.
    """

    def __init__(
        self,
        topic: TopicName,
        options: ConsumerOptions[Any],
        inbox: MessageQueue,
        incoming: ReceiveQueue,
        chunks: ChunkAssembler,
        unacked: UnackedMessages,
        writers: WriterSchemas,
        clock: Clock,
        wake: Callable[[], None],
        *,
        partition: int,
        ordered: bool,
    ) -> None:
        self._topic = topic
        self._whole_topic = topic.partitioned.full
        self._options = options
        self._inbox = inbox
        self._incoming = incoming
        self._chunks = chunks
        self._unacked = unacked
        self._writers = writers
        self._clock = clock
        self._wake = wake
        self._partition = partition
        self._ordered = ordered

    def open_next(self) -> bool:
        """Open the next entry for the program, and a few that follow it; whether there is a message
        now.
        """
        opened = count = self._open_one()
        # A timeout counts from the moment when a message is opened, so then it is the next one.
        slab = 0 if self._unacked.is_timed else self._incoming.slab_max
        while 0 < opened < slab and count:
            count = self._open_one()
            opened += count
        # Permits may be due although there is no message: a reader drops what it had already.
        if self._incoming.permits_due or (
            opened and (self._unacked.is_timed or self._unacked.acks.is_full)
        ):
            self._wake()
        return opened > 0

    def _open_one(self) -> int:
        """Cut the next entry into messages. Returns their number; 0: there is none now."""
        while True:
            first = self._incoming.first
            if first is not None and not self._writers.know(self._whole_topic, first):
                self._wake()
                return 0
            try:
                opened = self._incoming.open_next()
            except CryptoError as error:
                assert first is not None
                if self._options.crypto_failure_action is ConsumerCryptoFailureAction.DISCARD:
                    self._discard_encrypted(first, error)
                    continue
                key = (first.ledger_id, first.entry_id)
                self._unacked.on_sealed(key, self._clock.monotonic())
                self._wake()  # its permits are due like others
                self._inbox.add_encrypted(
                    f"{first.ledger_id}:{first.entry_id} of {self._topic}", error
                )
                return 0
            except (ChecksumError, OperationNotSupported) as error:
                # Its checksum holds, so the producer wrote it so: it is shown in the log and left
                # unacknowledged, for a client that can.
                _log.error("entry cannot be read", topic=self._topic, reason=error)
                self._wake()  # its permit is due like others
                continue
            if opened is None:
                if self._incoming.want_one():
                    self._wake()
                return 0
            entry, messages = opened
            if messages is None:
                self._give_up_chunks()
                self._wake()
            elif messages:
                if self._hand_out(entry, messages):
                    return len(messages)
            elif self._options.start is None:
                # All of it lies before the start of a seek. On a durable subscription it must be
                # acknowledged.
                self._acknowledge(entry)
                self._wake()

    def _acknowledge(self, entry: Entry) -> None:
        self._unacked.acknowledge(
            [known_id(self._partition, entry.ledger_id, entry.entry_id, -1, 0, "", entry.chunks)]
        )

    def _discard_encrypted(self, entry: Entry, error: CryptoError) -> None:
        _log.warning(
            "encrypted message discarded",
            topic=self._topic,
            ledger=entry.ledger_id,
            entry=entry.entry_id,
            reason=error,
        )
        if self._options.start is None:
            self._acknowledge(entry)
        self._wake()

    def _hand_out(self, entry: Entry, messages: list[Message]) -> bool:
        now = self._clock.monotonic() if self._unacked.is_timed else 0.0
        alive = self._unacked.opened(entry, messages, now)
        if alive:
            self._incoming.hand_out(messages)
            self._inbox.on_opened(len(messages), len(entry.data), again=entry.redelivery_count > 0)
        else:
            self._wake()
        return alive

    def _give_up_chunks(self) -> None:
        """Acknowledge chunks of messages that cannot be put together, on a durable subscription;
        else they would be delivered again.
        """
        lost = self._chunks.take_lost()
        if self._options.start is not None:
            return
        if lost.done or lost.again:
            _log.warning(
                "messages in chunks are incomplete",
                topic=self._topic,
                given_up=lost.done,
                asked_for_again=lost.again,
            )
        self._unacked.acknowledge([MessageId(self._partition, *key) for key in lost.done])
        if not self._ordered:
            # Where order counts they stay unacknowledged, and come again with the next
            # subscription.
            now = self._clock.monotonic()
            for key in lost.again:
                self._unacked.on_damaged(key, now)

    def expire_chunks(self, now: float, *, connected: bool) -> None:
        """Give up messages that have waited for their next chunk for too long, unless that could
        not come.
        """
        due = self._chunks.next_due()
        if due is not None and due <= now:
            if connected and self._incoming.may_receive:
                self._chunks.expire(now)
                self._give_up_chunks()
            else:
                self._chunks.excuse(now)

    def next_due(self) -> float | None:
        """When something of what came is to be given up or asked for again."""
        return min(
            (due for due in (self._unacked.next_due(), self._chunks.next_due()) if due is not None),
            default=None,
        )
