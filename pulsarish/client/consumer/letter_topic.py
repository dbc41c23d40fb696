"""Copies messages to the dead letter topic or the retry letter topic.

A message is acknowledged only after its copy is stored: a crash in between duplicates it and does
not lose it. The copy has the bytes of the message and their schema, which the other topic gets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from pulsarish.client.connection.context import ClientContext
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.entry_encoder import Extras
from pulsarish.client.messages.message import Message
from pulsarish.client.messages.options import ProducerOptions
from pulsarish.client.producer.partitioned_producer import PartitionedProducer
from pulsarish.client.producer.topic_producer import Waiter
from pulsarish.client.schemas.schema import BytesSchema, Schema
from pulsarish.model import schema as model
from pulsarish.model.errors import (
    AlreadyClosed,
    CryptoError,
    IncompatibleSchema,
    InvalidSchema,
    PulsarishError,
)
from pulsarish.model.result import Result
from pulsarish.runtime.crypto_key_reader import CryptoKeyReader
from pulsarish.runtime.log import get_logger

__all__ = ["LetterTopic"]

_log = get_logger("client.letters")

Letter = tuple[Message, Extras]
"""A message, and what its copy carries besides the content."""


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


def _settle(outcome: asyncio.Future[PulsarishError | None], error: PulsarishError | None) -> None:
    if not outcome.done():  # otherwise the caller was cancelled
        outcome.set_result(error)


def _key_names(message: Message) -> tuple[str, ...]:
    """Return the names of the keys of a message that was decrypted.

    Raises ``CryptoError`` for one that is still encrypted.
    """
    context = message.encryption_context()
    if context is None:
        return ()
    if context.is_decryption_failed():
        # A copy has metadata of its own, without what decrypts it.
        raise CryptoError(
            f"message {message.message_id()} was not decrypted, and so is not copied: give the "
            "consumer a crypto_key_reader with the private key"
        )
    keys = context.keys()
    return tuple(key.key for key in keys)


class LetterTopic:
    """The dead letter topic or retry letter topic of one consumer.

    Its producers are opened with the first message of each schema version. The copy of a message
    that was decrypted is encrypted for the same keys.
    """

    def __init__(
        self,
        topic: str,
        parts: ClientContext,
        *,
        of: str,
        reader: CryptoKeyReader | None = None,
        initial_subscription: str = "",
    ) -> None:
        """Args:
        of: the topic of the messages, without its partition.
        reader: of the consumer.
        initial_subscription: is created before the first letter, unless it exists; empty: none.
        """
        self.topic = topic
        self._of = of
        self._parts = parts
        self._reader = reader
        self._initial_subscription = initial_subscription
        # by schema version (empty: no schema) and the names of keys (empty: no encryption)
        self._publishings: dict[tuple[bytes, tuple[str, ...]], PartitionedProducer] = {}
        self._waiting: list[tuple[Letter, Callable[[PulsarishError | None], None]]] = []
        self._busy = False
        self._closed = False

    def send(
        self, letters: Sequence[Letter], done: Callable[[PulsarishError | None], None]
    ) -> None:
        """Copy messages. Runs in the loop.

        ``done`` is called once in the loop, with the first error, if any.
        """
        left = len(letters)
        failure: PulsarishError | None = None

        def one(error: PulsarishError | None) -> None:
            nonlocal left, failure
            left -= 1
            failure = failure or error
            if left == 0:
                done(failure)

        self._waiting += [(letter, one) for letter in letters]
        if not self._busy:
            self._busy = True
            _ = self._parts.tasks.spawn(self._run(), name=f"letters {self.topic}")

    async def store(self, letters: Sequence[Letter]) -> list[PulsarishError | None]:
        """Copy messages in their order. Returns why each was not stored, or ``None``."""
        loop = asyncio.get_running_loop()
        outcomes: list[asyncio.Future[PulsarishError | None]] = []
        for letter in letters:
            outcomes.append(loop.create_future())
            self.send((letter,), partial(_settle, outcomes[-1]))
        return [await outcome for outcome in outcomes]

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                for letter, done in batch:
                    await self._copy(letter, done)
                for publishing in list(self._publishings.values()):
                    try:
                        await publishing.flush()
                    except PulsarishError as error:
                        # Each caller is told, too. Others may wait by now.
                        _log.warning("letters not stored", topic=self.topic, reason=error)
        finally:
            self._busy = False

    async def _publishing(self, message: Message) -> PartitionedProducer:
        """Return the producer for a message. Raises why it cannot be copied."""
        version, names = message.schema_version(), _key_names(message)
        if self._is_closed():
            raise AlreadyClosed("the consumer was closed")
        found = self._publishings.get((version, names))
        if found is not None and all(child.failure is None for child in found.children):
            return found
        options = ProducerOptions(
            self.topic,
            schema=await self._schema(version),
            max_pending_messages=1 << 30,
            chunking_enabled=True,
            encryption_key=list(names) or None,
            crypto_key_reader=self._reader if names else None,
        )
        options.initial_subscription = self._initial_subscription
        try:
            opened = await PartitionedProducer.open(options, self._parts)
        except (IncompatibleSchema, InvalidSchema) as error:
            # Store the bytes without their schema rather than not at all.
            _log.warning("letters are stored without their schema", topic=self.topic, reason=error)
            options.schema = BytesSchema()
            opened = await PartitionedProducer.open(options, self._parts)
        if self._is_closed():
            await opened.close()
            raise AlreadyClosed("the consumer was closed")
        self._publishings[version, names] = opened
        return opened

    async def _schema(self, version: bytes) -> Schema:
        if not version:
            return BytesSchema()
        try:
            return _Verbatim(await self._parts.lookup.schema(self._of, version))
        except PulsarishError as error:
            if error.retryable:
                raise
            _log.warning("letters are stored without their schema", topic=self.topic, reason=error)
            return BytesSchema()

    async def _copy(self, letter: Letter, done: Callable[[PulsarishError | None], None]) -> None:
        message, extras = letter
        try:
            publishing = await self._publishing(message)
        except PulsarishError as error:
            _log.warning("letter not stored", topic=self.topic, reason=error)
            done(error)
            return
        payload = message.data()
        try:
            publishing.add(publishing.choose(payload, extras), payload, _Copied(done), extras, None)
        except PulsarishError as refused:
            done(refused)

    def _is_closed(self) -> bool:
        return self._closed

    async def close(self) -> None:
        self._closed = True
        for publishing in list(self._publishings.values()):
            await publishing.close()

    def shutdown(self, error: PulsarishError) -> None:
        self._closed = True
        for publishing in self._publishings.values():
            publishing.shutdown(error)
