"""Copies messages that were redelivered too often to the dead letter topic.

A message is acknowledged only after its copy is stored: a crash in between duplicates it and does
not lose it. The copy has the bytes of the message and their schema, which the dead letter topic
gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pulsarish.client.connection.context import ClientContext
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.client.messages.options import ProducerOptions
from pulsarish.client.producer.partitioned_producer import PartitionedProducer
from pulsarish.client.producer.topic_producer import Waiter
from pulsarish.client.result import Result
from pulsarish.client.schemas.schema import BytesSchema, Schema
from pulsarish.model import schema as model
from pulsarish.model.errors import AlreadyClosed, IncompatibleSchema, InvalidSchema, PulsarishError
from pulsarish.runtime.log import get_logger

__all__ = ["DeadLetters"]

_log = get_logger("client.dead_letters")


class _Copied(Waiter):
    __slots__ = ("_done",)

    def __init__(self, done: Callable[[PulsarishError | None], None]) -> None:
        self._done = done

    def __call__(self, result: Result, message_id: MessageId) -> None:
        self._done(None)

    def fail(self, error: PulsarishError) -> None:
        self._done(error)


class _Verbatim(BytesSchema):
    """Bytes that were encoded by another schema already."""

    def __init__(self, writer: model.Schema) -> None:
        self._writer = writer

    def schema_info(self) -> model.Schema:
        return self._writer


class DeadLetters:
    """The dead letter topic of one consumer.

    Its producers are opened with the first message of each schema version.
    """

    def __init__(self, topic: str, parts: ClientContext, *, of: str) -> None:
        """``of``: the topic of the messages, without its partition."""
        self.topic = topic
        self._of = of
        self._parts = parts
        # by schema version; empty: no schema
        self._publishings: dict[bytes, PartitionedProducer] = {}
        self._waiting: list[tuple[Message, Callable[[PulsarishError | None], None]]] = []
        self._busy = False
        self._closed = False

    def send(
        self, messages: Sequence[Message], done: Callable[[PulsarishError | None], None]
    ) -> None:
        """Copy the messages of an entry.

        ``done`` is called once in the loop, with the first error, if any.
        """
        left = len(messages)
        failure: PulsarishError | None = None

        def one(error: PulsarishError | None) -> None:
            nonlocal left, failure
            left -= 1
            failure = failure or error
            if left == 0:
                done(failure)

        self._waiting += [(message, one) for message in messages]
        if not self._busy:
            self._busy = True
            _ = self._parts.tasks.spawn(self._run(), name=f"dead letters {self.topic}")

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                for message, done in batch:
                    await self._copy(message, done)
                for publishing in list(self._publishings.values()):
                    await publishing.flush()
        except PulsarishError as error:
            _log.warning("dead letters not stored", topic=self.topic, reason=error)
        finally:
            self._busy = False

    async def _publishing(self, version: bytes) -> PartitionedProducer:
        """Return the producer for messages of a version. Raises why the topic cannot be written."""
        if self._closed:
            raise AlreadyClosed("the consumer was closed")
        found = self._publishings.get(version)
        if found is not None and found.children[0].failure is None:
            return found
        options = ProducerOptions(
            self.topic,
            schema=await self._schema(version),
            max_pending_messages=1 << 30,
            chunking_enabled=True,
        )
        try:
            opened = await PartitionedProducer.open(options, self._parts)
        except (IncompatibleSchema, InvalidSchema) as error:
            # Store the bytes without their schema rather than not at all.
            _log.warning(
                "dead letters are stored without their schema", topic=self.topic, reason=error
            )
            opened = await PartitionedProducer.open(
                ProducerOptions(self.topic, max_pending_messages=1 << 30, chunking_enabled=True),
                self._parts,
            )
        self._publishings[version] = opened
        return opened

    async def _schema(self, version: bytes) -> Schema:
        if not version:
            return BytesSchema()
        try:
            return _Verbatim(await self._parts.lookup.schema(self._of, version))
        except PulsarishError as error:
            if error.retryable:
                raise
            _log.warning(
                "dead letters are stored without their schema", topic=self.topic, reason=error
            )
            return BytesSchema()

    async def _copy(self, message: Message, done: Callable[[PulsarishError | None], None]) -> None:
        try:
            publishing = await self._publishing(message.schema_version())
        except PulsarishError as error:
            _log.warning("dead letter topic cannot be written", topic=self.topic, reason=error)
            done(error)
            return
        # The names of Apache Pulsar's clients.
        extras = message.copied(
            {"REAL_TOPIC": message.topic_name(), "ORIGIN_MESSAGE_ID": str(message.message_id())}
        )
        payload = message.data()
        try:
            publishing.add(publishing.choose(payload, extras), payload, _Copied(done), extras, None)
        except PulsarishError as refused:
            done(refused)

    async def close(self) -> None:
        self._closed = True
        for publishing in list(self._publishings.values()):
            await publishing.close()

    def shutdown(self, error: PulsarishError) -> None:
        self._closed = True
        for publishing in self._publishings.values():
            publishing.shutdown(error)
