"""Messages that were refused too often, on their way to the dead letter topic.

A message is acknowledged only once its copy is stored, so a crash in between leaves it twice rather than nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pulsarish.client.encoding import Extras
from pulsarish.client.message import Message
from pulsarish.client.message_id import MessageId
from pulsarish.client.options import ProducerOptions
from pulsarish.client.parts import ClientParts
from pulsarish.client.publishing import Publishing
from pulsarish.client.result import Result
from pulsarish.client.topic_producer import Waiter
from pulsarish.model.errors import AlreadyClosed, PulsarishError
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


class DeadLetters:
    """The dead letter topic of one consumer; its producer is opened with the first message."""

    def __init__(self, topic: str, parts: ClientParts) -> None:
        self.topic = topic
        self._parts = parts
        self._publishing: Publishing | None = None
        self._waiting: list[tuple[Message, Callable[[PulsarishError | None], None]]] = []
        self._busy = False
        self._closed = False

    def send(self, messages: Sequence[Message], done: Callable[[PulsarishError | None], None]) -> None:
        """Copy the messages of an entry; ``done`` is called once in the loop, when all are stored or with why one is not."""
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
            _ = self._parts.tasks.spawn(self._run(), name=f"dead letters {self.topic}", critical=False)

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                error = await self._open()
                for message, done in batch:
                    self._copy(message, done, error)
                if self._publishing is not None:
                    await self._publishing.flush()
        except PulsarishError as error:
            _log.warning("dead letters not stored", topic=self.topic, reason=error)
        finally:
            self._busy = False

    async def _open(self) -> PulsarishError | None:
        if self._closed:
            return AlreadyClosed("the consumer was closed")
        if self._publishing is not None and self._publishing.children[0].failure is None:
            return None
        try:
            options = ProducerOptions(self.topic, max_pending_messages=1 << 30)
            self._publishing = await Publishing.open(options, self._parts)
        except PulsarishError as error:
            _log.warning("dead letter topic cannot be written", topic=self.topic, reason=error)
            return error
        return None

    def _copy(self, message: Message, done: Callable[[PulsarishError | None], None], error: PulsarishError | None) -> None:
        if error is not None or self._publishing is None:
            done(error or AlreadyClosed("the consumer was closed"))
            return
        extras = Extras(
            # Names of Apache Pulsar's clients.
            properties={**message.properties(), "REAL_TOPIC": message.topic_name(), "ORIGIN_MESSAGE_ID": str(message.message_id())},
            partition_key=message.partition_key() if message.has_partition_key() else None,
            event_timestamp_ms=message.event_timestamp(),
        )
        payload = message.data()
        try:
            self._publishing.add(self._publishing.choose(payload, extras), payload, _Copied(done), extras, None)
        except PulsarishError as refused:
            done(refused)

    async def close(self) -> None:
        self._closed = True
        if self._publishing is not None:
            await self._publishing.close()

    def shutdown(self, error: PulsarishError) -> None:
        self._closed = True
        if self._publishing is not None:
            self._publishing.shutdown(error)
