"""The blocking consumer and reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Self

from pulsarish.client.api.arrow_batch import (
    FETCH_BYTES,
    FETCH_MILLIS,
    FETCH_ROWS,
    READ_BYTES,
    ArrowBatch,
    ArrowLimits,
    Made,
    arrow_limits,
    columns_of,
    frame_of,
    need_pandas,
    only_table,
    tabled,
)
from pulsarish.client.api.reader_checkpoint import ReaderCheckpoint
from pulsarish.client.api.receiving import Receiving, checkpoint_of
from pulsarish.client.checks import check_timeout
from pulsarish.client.consumer.multi_consumer import MultiConsumer
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.client.type_variables import Value_co
from pulsarish.model.errors import (
    AlreadyClosed,
    CryptoError,
    ForkedProcess,
    InvalidConfiguration,
    PulsarishError,
    Timeout,
)
from pulsarish.runtime.background import Background, Latch, monotonic, start_thread
from pulsarish.runtime.log import get_logger

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Consumer", "Reader"]

_log = get_logger("client")


class _Receiving(Receiving, Generic[Value_co]):
    """Waits in the program's threads."""

    def __init__(self, consuming: MultiConsumer, background: Background) -> None:
        super().__init__(consuming)
        self._background = background
        self._ready = consuming.inbox.ready
        self._refusal: PulsarishError | None = None
        self._waiting: deque[Latch] = deque()
        self._paused: Latch | None = None
        self._inbox.arrived = self._arrived
        background.add_user(self)
        if self._listener is not None:
            start_thread("pulsarish-listener", self._listen)

    def _on_fork(self, error: ForkedProcess) -> None:
        self._refusal = self._may_receive = error

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _arrived(self) -> None:
        """Wake waiting threads, in the loop."""
        waiting = self._waiting
        while waiting:
            waiting.popleft().release()

    def _next(self, deadline: float | None) -> Message[Value_co] | None:
        """Return the next message; ``None`` after the timeout. Raises why no more messages come."""
        while True:
            if (message := self._inbox.take()) is not None:
                return message
            latch = Latch()
            self._waiting.append(latch)
            # Look again: a message may have come before the latch was in place.
            if (message := self._inbox.take()) is not None:
                return message
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                return None
            self._background.check_may_wait()
            latch.wait(left)

    def _collect(
        self, messages_max: int, bytes_max: int, seconds: float | None, *, to_end: bool = False
    ) -> list[Message[Value_co]]:
        """Return messages up to a limit.

        Args:
            to_end: of a reader: stop where the topic ends, too.
        """
        deadline = None if seconds is None else monotonic() + seconds
        messages: list[Message[Value_co]] = []
        size = 0
        ready, append = self._ready, messages.append
        try:
            while True:
                try:
                    while len(messages) < messages_max and size < bytes_max:
                        message = ready.popleft()
                        append(message)
                        size += message.size()
                    return messages
                except IndexError:
                    try:
                        following = self._inbox.take()
                        if following is None:
                            if to_end and not self._background.run(
                                self._consuming.has_message_available()
                            ):
                                return messages
                            following = self._next(deadline)
                    except CryptoError as error:
                        if not messages:
                            raise
                        self._inbox.unreadable.appendleft(error)
                        return messages
                    except PulsarishError:
                        # What a reader has taken does not come again: the next call raises.
                        if not messages or not to_end:
                            raise
                        return messages
                if following is None:
                    return messages
                append(following)
                size += following.size()
        except KeyboardInterrupt:
            self._inbox.put_back(messages)
            raise

    def _tabled(
        self,
        limits: ArrowLimits,
        make: Callable[[pa.Table, list[Message]], Made],
        *,
        to_end: bool = False,
    ) -> Made:
        if self._may_receive is not None:
            raise self._may_receive
        columns = self._background.run(columns_of(self._consuming))
        messages = self._collect(limits.rows, limits.size, limits.seconds, to_end=to_end)
        return tabled(self._inbox, messages, columns, make)

    def _receive(self, timeout_millis: int | None) -> Message[Value_co]:
        if self._may_receive is not None:
            raise self._may_receive
        seconds = check_timeout("timeout_millis", timeout_millis)
        message = self._next(None if seconds is None else monotonic() + seconds)
        if message is None:
            raise Timeout(f"no message came within {timeout_millis} ms")
        return message

    def _listen(self) -> None:
        listener = self._listener
        assert listener is not None
        while True:
            try:
                message = self._next(None)
            except CryptoError as error:
                _log.error("message not given to the listener", reason=error)
                continue
            except PulsarishError:
                # Closed or finally refused; the other calls raise that.
                return
            # Looked at here: it may have been paused while it waited for the message.
            while (paused := self._paused) is not None:
                paused.wait()
            try:
                listener(self, message)
            except Exception as error:  # noqa: BLE001
                # The program's own code: reported, the next message comes.
                _log.error("a listener of the program raised", exception=error)

    def seek(self, messageid: MessageId | int) -> None:
        """Seek to a message, or to the first message published at or after a time in milliseconds.

        The message itself is delivered only with ``start_message_id_inclusive``. A position beyond
        the end means the end; a trimmed one, the first message kept. Raises ``InvalidPosition`` for
        an id of another topic, or ``InvalidArgument``.
        """
        self._check()
        self._background.run(self._consuming.seek(messageid))

    def close(self) -> None:
        """Send waiting acknowledgements, then close the consumer at the broker.

        Does nothing when closed already.
        """
        self._check()
        self._background.run(self._consuming.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The child of a fork that leaves its parent's block has nothing to close.
        if not isinstance(self._refusal, ForkedProcess):
            self.close()

    def __iter__(self) -> Iterator[Message[Value_co]]:
        """Iterate over messages until it is closed."""
        while True:
            try:
                message = self._receive(None)
            except AlreadyClosed:
                return
            yield message


class Consumer(_Receiving[Value_co]):
    """Receives the messages of a subscription. Several threads may use it."""

    is_awaited = False

    def __init__(self, consuming: MultiConsumer, background: Background) -> None:
        # Before a listener may get a message.
        consuming.inbox.consumer = self
        super().__init__(consuming, background)

    def subscription_name(self) -> str:
        return self._consuming.options.subscription_name

    def consumer_name(self) -> str:
        return self._consuming.options.consumer_name

    def receive(self, timeout_millis: int | None = None) -> Message[Value_co]:
        """Return the next message.

        Raises ``Timeout``, ``CryptoError`` in place of an encrypted message, or ``AlreadyClosed``.
        """
        # ``_receive`` checks any other timeout.
        if self._may_receive is None and (
            timeout_millis is None or (type(timeout_millis) is int and timeout_millis >= 0)
        ):
            try:
                return self._ready.popleft()
            except IndexError:
                pass
        return self._receive(timeout_millis)

    def batch_receive(self) -> list[Message[Value_co]]:
        """Return messages until the batch receive policy is satisfied; an empty list after its
        timeout.
        """
        if self._may_receive is not None:
            raise self._may_receive
        policy = self._consuming.options.batch_receive_policy
        return self._collect(policy.max_messages, policy.max_bytes, policy.timeout_seconds)

    def fetch_arrow(
        self,
        max_rows: int = FETCH_ROWS,
        max_bytes: int = FETCH_BYTES,
        timeout_millis: int | None = FETCH_MILLIS,
    ) -> ArrowBatch:
        """Return messages as a table, as soon as there are ``max_rows`` or ``max_bytes`` of
        payload, or after the timeout; then it may be empty.

        Acknowledges nothing: ``consumer.acknowledge(batch.messages)`` does. A message that the
        schema does not decode has its payload in the column ``_corrupt``.

        Raises ``InvalidArgument``; ``OperationNotSupported`` without pyarrow and for a schema that
        has no columns; and the errors of ``batch_receive``.
        """
        limits = arrow_limits(max_rows, max_bytes, timeout_millis)
        return self._tabled(limits, ArrowBatch)

    def acknowledge(self, message: Message | MessageId | Sequence[Message | MessageId]) -> None:
        """Acknowledge messages.

        With ``ack_receipt_enabled`` it returns when that is durable, otherwise at once.
        """
        if self._refusal is None and not self._consuming.options.ack_receipt:
            self._consuming.acknowledge(message, None)
        else:
            self._acknowledge(self._consuming.acknowledge, message)

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge everything up to and including a message.

        Raises ``CumulativeAcknowledgementNotAllowedError`` on a shared subscription.
        """
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
        """Request redelivery of a message after the consumer's delay. Does not wait."""
        self._check()
        self._consuming.negative_acknowledge(message)

    def ack_extend(self, message: Message | MessageId) -> None:
        """Say that the program goes on working on a message: the time in which it has to
        acknowledge it begins again, ``unacked_messages_timeout_ms`` here and the policy
        ``unackedRedelivery`` at the broker. A batch has one time for all of its messages.
        Does not wait. Does nothing for a message that is acknowledged, and brokers of earlier
        versions do not heed it.
        """
        self._check()
        self._consuming.ack_extend(message)

    def reconsume_later(
        self, message: Message, delay: timedelta, properties: Mapping[str, str] | None = None
    ) -> None:
        """Have a message consumed again after ``delay``, by any consumer of the subscription, and
        acknowledge it: a copy goes to the retry letter topic, or to the dead letter topic when this
        was asked for more than ``max_redeliver_count`` times.

        Returns when the copy is stored. After a crash before the acknowledgement both come.
        ``properties`` are added to the message's own. Needs ``retry_enabled``.

        Raises ``InvalidArgument``, ``NotAllowedError``, and the errors of ``Producer.send``; then
        the message is not acknowledged, and is delivered again.
        """
        self._check()
        self._background.run(self._consuming.reconsume_later(message, delay, properties))
        self.acknowledge(message)

    def redeliver_unacknowledged_messages(self) -> None:
        """Request redelivery of everything unacknowledged. Does not wait."""
        self._check()
        self._consuming.check_open()
        self._background.post(self._consuming.redeliver_unacknowledged)

    def get_last_message_id(self) -> MessageId:
        """Return the id of the topic's last message; its entry id is -1 when there is none."""
        self._check()
        return self._background.run(self._consuming.last_message_id())

    def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription and close. ``force``: also when other consumers use it."""
        self._check()
        self._background.run(self._consuming.unsubscribe(force=force))

    def _check_listener(self) -> None:
        self._check()
        if self._listener is None:
            raise InvalidConfiguration(
                "the consumer has no listener to pause: pass message_listener to subscribe"
            )

    def pause_message_listener(self) -> None:
        """Stop calling the listener after the present message.

        Raises ``InvalidConfiguration`` without a ``message_listener``.
        """
        self._check_listener()
        if self._paused is None:
            self._paused = Latch()

    def resume_message_listener(self) -> None:
        self._check_listener()
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.release()


class Reader(_Receiving[Value_co]):
    """Reads a topic from any message on, without a durable subscription."""

    def __init__(
        self, consuming: MultiConsumer, checkpoint: ReaderCheckpoint | None, background: Background
    ) -> None:
        super().__init__(consuming, background)
        self._checkpoint = checkpoint

    def checkpoint(self, message: Message | MessageId) -> None:
        """Store the position durably: the next reader of this name starts after this message.

        Raises ``InvalidArgument`` without ``checkpoint_topic`` and for what is no message of this
        reader, and the errors of ``Producer.send``; then the position before stays.
        """
        self._check()
        message_id = self._consuming.own_id(message)
        self._background.run(checkpoint_of(self._checkpoint).store(message_id))

    def last_checkpoint(self) -> MessageId | None:
        """Return the position that is stored; ``None``: none was, and the reader started at
        ``start_message_id``. Raises ``InvalidArgument`` without ``checkpoint_topic``.
        """
        self._check()
        return checkpoint_of(self._checkpoint).position

    def close(self) -> None:
        """Close the reader at the broker. Does nothing when closed already."""
        super().close()
        if self._checkpoint is not None:
            self._background.run(self._checkpoint.close())

    def read_next(self, timeout_millis: int | None = None) -> Message[Value_co]:
        """Return the next message.

        Raises ``Timeout``, ``CryptoError`` in place of an encrypted message, or ``AlreadyClosed``.
        """
        # ``_receive`` checks any other timeout.
        if self._may_receive is None and (
            timeout_millis is None or (type(timeout_millis) is int and timeout_millis >= 0)
        ):
            try:
                return self._ready.popleft()
            except IndexError:
                pass
        return self._receive(timeout_millis)

    def to_arrow(
        self,
        max_rows: int | None = None,
        max_bytes: int = READ_BYTES,
        timeout_millis: int | None = None,
    ) -> pa.Table:
        """Return the messages up to the end of the topic, as a table; fewer when a limit, the
        timeout or an error comes first. The next call continues after them.

        Raises as ``Consumer.fetch_arrow``.
        """
        limits = arrow_limits(max_rows, max_bytes, timeout_millis)
        return self._tabled(limits, only_table, to_end=True)

    def to_pandas(
        self,
        max_rows: int | None = None,
        max_bytes: int = READ_BYTES,
        timeout_millis: int | None = None,
    ) -> pd.DataFrame:
        """Return what ``to_arrow`` does, as a pandas frame."""
        need_pandas()
        limits = arrow_limits(max_rows, max_bytes, timeout_millis)
        return self._tabled(limits, frame_of, to_end=True)

    def has_message_available(self) -> bool:
        """Whether there is a message that was not read yet."""
        self._check()
        if self._ready:
            return True
        return self._background.run(self._consuming.has_message_available())
