"""The blocking consumer and reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Self

from pulsarish.client.checks import check_timeout
from pulsarish.client.consumer.multi_consumer import MultiConsumer
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import AlreadyClosed, CryptoError, ForkedProcess, NotAllowed, PulsarishError, Timeout
from pulsarish.runtime.background import Background, Latch, monotonic, start_thread
from pulsarish.runtime.log import get_logger

__all__ = ["Consumer", "Reader"]

_log = get_logger("client")


class _Receiving:
    """What a consumer and a reader have in common."""

    def __init__(self, consuming: MultiConsumer, background: Background) -> None:
        self._consuming = consuming
        self._background = background
        self._inbox = consuming.inbox
        self._ready = consuming.inbox.ready
        self._refusal: PulsarishError | None = None
        self._waiting: deque[Latch] = deque()
        self._paused: Latch | None = None
        self._inbox.arrived = self._arrived
        background.add_user(self)
        self._may_receive: PulsarishError | None = None
        if consuming.options.message_listener is not None:
            self._may_receive = NotAllowed("messages go to the listener: leave message_listener out to receive them by a call")
            start_thread("pulsarish-listener", self._listen)

    def forked(self, error: ForkedProcess) -> None:
        self._refusal = self._may_receive = error

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _arrived(self) -> None:
        """In the loop: somebody may go on."""
        waiting = self._waiting
        while waiting:
            waiting.popleft().release()

    def _next(self, deadline: float | None) -> Message | None:
        """The next message; ``None`` when none came in time. Raises why nothing comes any more."""
        while True:
            if (message := self._inbox.take()) is not None:
                return message
            latch = Latch()
            self._waiting.append(latch)
            # Once more: a message may have come before the latch was in its place.
            if (message := self._inbox.take()) is not None:
                return message
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                return None
            self._background.check_may_wait()
            latch.wait(left)

    def _receive(self, timeout_millis: int | None) -> Message:
        if self._may_receive is not None:
            raise self._may_receive
        seconds = check_timeout("timeout_millis", timeout_millis)
        message = self._next(None if seconds is None else monotonic() + seconds)
        if message is None:
            raise Timeout(f"no message came within {timeout_millis} ms")
        return message

    def _listen(self) -> None:
        listener = self._consuming.options.message_listener
        assert listener is not None
        while True:
            if (paused := self._paused) is not None:
                paused.wait()
            try:
                message = self._next(None)
            except CryptoError as error:
                _log.error("message not given to the listener", reason=error)
                continue
            except PulsarishError:
                # Closed, or refused for good, which the other calls say.
                return
            try:
                listener(self, message)
            except Exception as error:  # noqa: BLE001 - the program's own code: reported, the next message comes
                _log.error("a listener of the program raised", exception=error)

    def topic(self) -> str:
        return self._consuming.topic

    def is_connected(self) -> bool:
        return self._consuming.is_connected

    def seek(self, messageid: MessageId | int) -> None:
        """Go to a message, or to the first one published at or after a time in ms.

        The message itself comes again only with ``start_message_id_inclusive``. Beyond the end means the end, and what was trimmed the
        first message kept. Raises ``InvalidPosition`` for an id of another topic, ``InvalidArgument``.
        """
        self._check()
        self._background.run(self._consuming.seek(messageid))

    def close(self) -> None:
        """Send the acknowledgements that wait, then leave the broker. Again: nothing."""
        self._check()
        self._background.run(self._consuming.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The child of a fork that leaves its parent's block has nothing to close.
        if not isinstance(self._refusal, ForkedProcess):
            self.close()

    def __iter__(self) -> Iterator[Message]:
        """Messages until it is closed."""
        while True:
            try:
                message = self._receive(None)
            except AlreadyClosed:
                return
            yield message


class Consumer(_Receiving):
    """Receives the messages of a subscription. May be used by several threads."""

    def subscription_name(self) -> str:
        return self._consuming.options.subscription_name

    def consumer_name(self) -> str:
        return self._consuming.options.consumer_name

    def receive(self, timeout_millis: int | None = None) -> Message:
        """The next message. Raises ``Timeout`` when none came in time, ``CryptoError`` in place of an encrypted one, ``AlreadyClosed``."""
        # Whatever else was passed for a time-out is looked at by ``_receive``.
        if self._may_receive is None and (timeout_millis is None or (type(timeout_millis) is int and timeout_millis >= 0)):
            try:
                return self._ready.popleft()
            except IndexError:
                pass
        return self._receive(timeout_millis)

    def batch_receive(self) -> list[Message]:
        """Messages until the batch receive policy says that it is enough; empty when none came in its time."""
        if self._may_receive is not None:
            raise self._may_receive
        policy = self._consuming.options.batch_receive_policy
        messages_max, bytes_max = policy.max_messages, policy.max_bytes
        deadline = None if policy.timeout_seconds is None else monotonic() + policy.timeout_seconds
        messages: list[Message] = []
        size = 0
        ready, append = self._ready, messages.append
        while True:
            try:
                while len(messages) < messages_max and size < bytes_max:
                    message = ready.popleft()
                    append(message)
                    size += message.size()
                return messages
            except IndexError:
                try:
                    following = self._next(deadline)
                except CryptoError as error:
                    if not messages:
                        raise
                    self._inbox.unreadable.appendleft(error)
                    return messages
            if following is None:
                return messages
            append(following)
            size += following.size()

    def acknowledge(self, message: Message | MessageId | Sequence[Message | MessageId]) -> None:
        """Processed: do not deliver it again. With ``ack_receipt_enabled`` it returns once that is durable, otherwise at once."""
        self._acknowledge(self._consuming.acknowledge, message)

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Everything up to this message is processed. Raises ``NotAllowed`` on a shared subscription."""
        self._acknowledge(self._consuming.acknowledge_cumulative, message)

    def _acknowledge(self, acknowledge: Any, what: object) -> None:
        if self._refusal is not None:
            raise self._refusal
        if not self._consuming.options.ack_receipt:
            acknowledge(what, None)
            return
        self._background.check_may_wait()
        latch = Latch()
        failures: list[BaseException] = []

        def done(error: BaseException | None) -> None:
            if error is not None:
                failures.append(error)
            latch.release()

        acknowledge(what, done)
        latch.wait()
        if failures:
            raise failures[0]

    def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Not processed: deliver it again after the consumer's delay. Does not wait."""
        self._check()
        self._consuming.negative_acknowledge(message)

    def redeliver_unacknowledged_messages(self) -> None:
        """Deliver everything again that is not acknowledged. Does not wait."""
        self._check()
        self._consuming.check_open()
        self._background.post(self._consuming.redeliver_unacknowledged)

    def get_last_message_id(self) -> MessageId:
        """The last message of the topic; entry id -1 when it has none."""
        self._check()
        return self._background.run(self._consuming.last_message_id())

    def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription and close. ``force``: also when others use it."""
        self._check()
        self._background.run(self._consuming.unsubscribe(force=force))

    def pause_message_listener(self) -> None:
        """No more messages for the listener after the present one."""
        self._check()
        if self._paused is None:
            self._paused = Latch()

    def resume_message_listener(self) -> None:
        self._check()
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.release()


class Reader(_Receiving):
    """Reads a topic from any message on, without a subscription that outlives it."""

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """The next message. Raises ``Timeout`` when none came in time, ``CryptoError`` in place of an encrypted one, ``AlreadyClosed``."""
        # Whatever else was passed for a time-out is looked at by ``_receive``.
        if self._may_receive is None and (timeout_millis is None or (type(timeout_millis) is int and timeout_millis >= 0)):
            try:
                return self._ready.popleft()
            except IndexError:
                pass
        return self._receive(timeout_millis)

    def has_message_available(self) -> bool:
        """Whether there is a message that was not read yet."""
        self._check()
        if self._ready:
            return True
        return self._background.run(self._consuming.has_message_available())
