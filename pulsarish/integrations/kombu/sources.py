"""Where the messages of a queue come from: a subscription of a topic, or a reader of it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Protocol

from pulsarish.client.api.blocking_consumer import Consumer, Reader
from pulsarish.client.messages.message import Message
from pulsarish.integrations.kombu.addresses import ROUTING_KEY
from pulsarish.model.errors import AlreadyClosed, ConsumerBusy, CryptoError, PulsarishError, Timeout
from pulsarish.runtime.background import start_thread
from pulsarish.runtime.log import get_logger

__all__ = ["Accepts", "ReaderSource", "Receives", "Source", "SubscriptionSource"]

_log = get_logger("integrations.kombu")

_LOOK_MS: Final = 1_000
"""How long a close may go unnoticed by the thread that receives."""

Accepts = Callable[[str], bool]
"""Whether a queue is bound with a key that matches this routing key."""


class Receives(Protocol):
    """Who gets the messages. Called in the thread of the source."""

    def on_message(self, source: Source, message: Message) -> None: ...

    def on_failure(self, error: PulsarishError) -> None: ...


class Source(ABC):
    """Receives one message each time it is asked, in a thread of its own."""

    def __init__(self, accepts: Accepts | None, receiver: Receives, topic: str) -> None:
        self.is_asked = False
        self.held: set[object] = set()
        """Ids of messages that this process has and has not settled."""
        self._accepts = accepts
        self._receiver = receiver
        self._turns = threading.Semaphore(0)
        self._is_closed = False
        start_thread(f"pulsarish-kombu {topic}", self._receive_in_turn)

    def ask(self) -> None:
        """Have one message received. Does nothing while that is under way."""
        if not self.is_asked:
            self.is_asked = True
            self._turns.release()

    def acknowledge(self, message: Message) -> None:
        self.held.discard(message.message_id())

    @abstractmethod
    def requeue(self, message: Message) -> bool:
        """Have a message delivered again. Return whether a broker does."""

    @abstractmethod
    def extend(self, message: Message) -> None:
        """Say that the message is still worked on."""

    @abstractmethod
    def close(self, *, delete: bool = False) -> None:
        """Close the consumer or reader, and end the thread.

        Args:
            delete: whether to delete the subscription, too, unless other consumers use it.

        Raises ``ForkedProcess`` in the child of a fork.
        """

    def end(self) -> None:
        """End the thread, once the client is closed."""
        self._is_closed = True
        self._turns.release()

    @abstractmethod
    def _take(self) -> Message: ...

    def _receive_in_turn(self) -> None:
        try:
            while True:
                self._turns.acquire()
                if self._is_closed:
                    return
                message = self._next()
                if message is not None:
                    self._receiver.on_message(self, message)
        except AlreadyClosed:
            pass
        except PulsarishError as error:
            if not self._is_closed:
                self._receiver.on_failure(error)

    def _next(self) -> Message | None:
        """Return the next message that is new here and matches; ``None``: closed."""
        while not self._is_closed:
            try:
                message = self._take()
            except Timeout:
                continue
            except CryptoError as error:
                _log.error("message not given to the program", reason=error)
                continue
            if self._accepts is not None and not self._accepts(
                message.properties().get(ROUTING_KEY, "")
            ):
                self.acknowledge(message)
            elif message.message_id() not in self.held:
                # What is held comes again when the connection was lost. It is settled by the copy
                # that the program has.
                self.held.add(message.message_id())
                return message
        return None


class SubscriptionSource(Source):
    """A shared subscription: each message goes to one of its consumers, until one acknowledges."""

    def __init__(self, consumer: Consumer, accepts: Accepts | None, receiver: Receives) -> None:
        self._consumer = consumer
        super().__init__(accepts, receiver, consumer.topic())

    def acknowledge(self, message: Message) -> None:
        self._consumer.acknowledge(message)
        super().acknowledge(message)

    def requeue(self, message: Message) -> bool:
        super().acknowledge(message)
        self._consumer.negative_acknowledge(message)
        return True

    def extend(self, message: Message) -> None:
        self._consumer.ack_extend(message)

    def close(self, *, delete: bool = False) -> None:
        if delete:
            try:
                self._consumer.unsubscribe()
            except ConsumerBusy as error:
                _log.info("subscription kept", subscription=self._consumer, reason=error)
        self._consumer.close()
        self.end()

    def _take(self) -> Message:
        return self._consumer.receive(timeout_millis=_LOOK_MS)


class ReaderSource(Source):
    """A reader: gets all messages from its start on, and is gone with its process."""

    def __init__(self, reader: Reader, accepts: Accepts | None, receiver: Receives) -> None:
        self._reader = reader
        super().__init__(accepts, receiver, reader.topic())

    def requeue(self, message: Message) -> bool:
        return False

    def extend(self, message: Message) -> None:
        """Do nothing: no other process has the message."""

    def close(self, *, delete: bool = False) -> None:
        self._reader.close()
        self.end()

    def _take(self) -> Message:
        return self._reader.read_next(timeout_millis=_LOOK_MS)
