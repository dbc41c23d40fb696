"""The asyncio consumer and reader."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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
from pulsarish.client.connection.context import ClientContext
from pulsarish.client.consumer.multi_consumer import MultiConsumer
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.client.type_variables import Value_co
from pulsarish.model.errors import AlreadyClosed, CryptoError, PulsarishError, Timeout
from pulsarish.runtime.log import get_logger

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["AsyncConsumer", "AsyncReader"]

_log = get_logger("client")


class _Receiving(Receiving, Generic[Value_co]):
    """Waits in the program's event loop."""

    def __init__(self, consuming: MultiConsumer, parts: ClientContext) -> None:
        super().__init__(consuming)
        self._parts = parts
        self._arrived = asyncio.Event()
        self._inbox.arrived = self._arrived.set
        self._listening = asyncio.Event()
        self._listening.set()
        if self._listener is not None:
            listening = self._listen(self._listener)
            _ = parts.tasks.spawn(listening, name=f"listener {consuming.topic}")

    async def _next(self, timeout_millis: int | None) -> Message[Value_co]:
        seconds = check_timeout("timeout_millis", timeout_millis)
        if self._may_receive is not None:
            raise self._may_receive
        if seconds is None:
            return await self._wait()
        try:
            async with self._parts.clock.timeout(seconds):
                return await self._wait()
        except Timeout:
            raise  # why the consumer is closed
        except TimeoutError:
            raise Timeout(f"no message came within {timeout_millis} ms") from None

    async def _wait(self) -> Message[Value_co]:
        while True:
            # Clear it before looking: what comes afterwards sets it again.
            self._arrived.clear()
            if (message := self._inbox.take()) is not None:
                return message
            await self._arrived.wait()

    async def _collect(
        self, messages_max: int, bytes_max: int, seconds: float | None, *, to_end: bool = False
    ) -> list[Message[Value_co]]:
        """Return messages up to a limit.

        Args:
            to_end: of a reader: stop where the topic ends, too.
        """
        messages: list[Message[Value_co]] = []
        size = 0
        ready = self._inbox.ready
        try:
            async with self._parts.clock.timeout(seconds):
                while len(messages) < messages_max and size < bytes_max:
                    try:
                        if (
                            to_end
                            and not ready
                            and not await self._consuming.has_message_available()
                        ):
                            return messages
                        message = await self._wait()
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
                    messages.append(message)
                    size += message.size()
        except Timeout:
            raise  # why the consumer is closed
        except TimeoutError:
            return messages
        except asyncio.CancelledError:
            self._inbox.put_back(messages)
            raise
        return messages

    async def _tabled(
        self,
        limits: ArrowLimits,
        make: Callable[[pa.Table, list[Message]], Made],
        *,
        to_end: bool = False,
    ) -> Made:
        if self._may_receive is not None:
            raise self._may_receive
        columns = await columns_of(self._consuming)
        messages = await self._collect(limits.rows, limits.size, limits.seconds, to_end=to_end)
        return tabled(self._inbox, messages, columns, make)

    async def _listen(self, listener: Any) -> None:
        while True:
            await self._listening.wait()
            try:
                message = await self._wait()
            except CryptoError as error:
                _log.error("message not given to the listener", reason=error)
                continue
            except PulsarishError:
                # Closed or finally refused; the consumer's other calls raise that.
                return
            try:
                answer = listener(self, message)
                if inspect.isawaitable(answer):
                    await answer
            except Exception as error:  # noqa: BLE001
                # The program's own code: reported, the next message comes.
                self._parts.callback_failed(error)

    async def seek(self, messageid: MessageId | int) -> None:
        """Seek to a message, or to the first message published at or after a time in milliseconds.

        The message itself is delivered only with ``start_message_id_inclusive``. A position beyond
        the end means the end; a trimmed one, the first message kept. Raises ``InvalidPosition`` for
        an id of another topic, or ``InvalidArgument``.
        """
        await self._consuming.seek(messageid)

    async def close(self) -> None:
        await self._consuming.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Message[Value_co]]:
        """Iterate over messages until it is closed."""
        while True:
            try:
                message = await self._next(None)
            except AlreadyClosed:
                return
            yield message


class AsyncConsumer(_Receiving[Value_co]):
    """Receives the messages of a subscription."""

    is_awaited = True

    def __init__(self, consuming: MultiConsumer, parts: ClientContext) -> None:
        # Before a listener may get a message.
        consuming.inbox.consumer = self
        super().__init__(consuming, parts)

    def subscription_name(self) -> str:
        return self._consuming.options.subscription_name

    def consumer_name(self) -> str:
        return self._consuming.options.consumer_name

    async def receive(self, timeout_millis: int | None = None) -> Message[Value_co]:
        """Return the next message.

        Raises ``Timeout``, ``CryptoError`` in place of an encrypted message, or ``AlreadyClosed``.
        """
        return await self._next(timeout_millis)

    async def batch_receive(self) -> list[Message[Value_co]]:
        """Return messages until the batch receive policy is satisfied; an empty list after its
        timeout. When it is cancelled, the messages so far come again with the next call.
        """
        policy = self._consuming.options.batch_receive_policy
        if self._may_receive is not None:
            raise self._may_receive
        return await self._collect(policy.max_messages, policy.max_bytes, policy.timeout_seconds)

    async def fetch_arrow(
        self,
        max_rows: int = FETCH_ROWS,
        max_bytes: int = FETCH_BYTES,
        timeout_millis: int | None = FETCH_MILLIS,
    ) -> ArrowBatch:
        """Return messages as a table, as soon as there are ``max_rows`` or ``max_bytes`` of
        payload, or after the timeout; then it may be empty.

        Acknowledges nothing: ``await consumer.acknowledge(batch.messages)`` does. A message that
        the schema does not decode has its payload in the column ``_corrupt``.

        Raises ``InvalidArgument``; ``OperationNotSupported`` without pyarrow and for a schema that
        has no columns; and the errors of ``batch_receive``.
        """
        limits = arrow_limits(max_rows, max_bytes, timeout_millis)
        return await self._tabled(limits, ArrowBatch)

    async def acknowledge(
        self, message: Message | MessageId | Sequence[Message | MessageId]
    ) -> None:
        """Acknowledge messages.

        With ``ack_receipt_enabled`` it returns when that is durable, otherwise at once.
        """
        await self._acknowledge(self._consuming.acknowledge, message)

    async def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge everything up to and including a message.

        Raises ``CumulativeAcknowledgementNotAllowedError`` on a shared subscription.
        """
        await self._acknowledge(self._consuming.acknowledge_cumulative, message)

    async def _acknowledge(self, acknowledge: Any, what: object) -> None:
        if not self._consuming.options.ack_receipt:
            acknowledge(what, None)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        acknowledge(what, done)
        await future

    async def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Request redelivery of a message after the consumer's delay."""
        self._consuming.negative_acknowledge(message)

    async def ack_extend(self, message: Message | MessageId) -> None:
        """Say that the program goes on working on a message: the time in which it has to
        acknowledge it begins again, ``unacked_messages_timeout_ms`` here and the policy
        ``unackedRedelivery`` at the broker. A batch has one time for all of its messages.
        Does nothing for a message that is acknowledged, and brokers of earlier
        versions do not heed it.
        """
        self._consuming.ack_extend(message)

    async def reconsume_later(
        self, message: Message, delay: timedelta, properties: Mapping[str, str] | None = None
    ) -> None:
        """Have a message consumed again after ``delay``, by any consumer of the subscription, and
        acknowledge it: a copy goes to the retry letter topic, or to the dead letter topic when this
        was asked for more than ``max_redeliver_count`` times.

        Returns when the copy is stored. After a crash before the acknowledgement both come.
        ``properties`` are added to the message's own. Needs ``retry_enabled``.

        Raises ``InvalidArgument``, ``NotAllowedError``, and the errors of ``AsyncProducer.send``;
        then the message is not acknowledged, and is delivered again.
        """
        await self._consuming.reconsume_later(message, delay, properties)
        await self.acknowledge(message)

    def redeliver_unacknowledged_messages(self) -> None:
        """Request redelivery of everything unacknowledged."""
        self._consuming.check_open()
        self._consuming.redeliver_unacknowledged()

    async def get_last_message_id(self) -> MessageId:
        """Return the id of the topic's last message; its entry id is -1 when there is none."""
        return await self._consuming.last_message_id()

    async def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription and close. ``force``: also when other consumers use it."""
        await self._consuming.unsubscribe(force=force)

    def pause_message_listener(self) -> None:
        self._listening.clear()

    def resume_message_listener(self) -> None:
        self._listening.set()


class AsyncReader(_Receiving[Value_co]):
    """Reads a topic from any message on, without a durable subscription."""

    def __init__(
        self, consuming: MultiConsumer, checkpoint: ReaderCheckpoint | None, parts: ClientContext
    ) -> None:
        super().__init__(consuming, parts)
        self._checkpoint = checkpoint

    async def checkpoint(self, message: Message | MessageId) -> None:
        """Store the position durably: the next reader of this name starts after this message.

        Raises ``InvalidArgument`` without ``checkpoint_topic`` and for what is no message of this
        reader, and the errors of ``AsyncProducer.send``; then the position before stays.
        """
        message_id = self._consuming.own_id(message)
        await checkpoint_of(self._checkpoint).store(message_id)

    def last_checkpoint(self) -> MessageId | None:
        """Return the position that is stored; ``None``: none was, and the reader started at
        ``start_message_id``. Raises ``InvalidArgument`` without ``checkpoint_topic``.
        """
        return checkpoint_of(self._checkpoint).position

    async def close(self) -> None:
        await super().close()
        if self._checkpoint is not None:
            await self._checkpoint.close()

    async def read_next(self, timeout_millis: int | None = None) -> Message[Value_co]:
        """Return the next message.

        Raises ``Timeout``, ``CryptoError`` in place of an encrypted message, or ``AlreadyClosed``.
        """
        return await self._next(timeout_millis)

    async def to_arrow(
        self,
        max_rows: int | None = None,
        max_bytes: int = READ_BYTES,
        timeout_millis: int | None = None,
    ) -> pa.Table:
        """Return the messages up to the end of the topic, as a table; fewer when a limit, the
        timeout or an error comes first. The next call continues after them.

        Raises as ``AsyncConsumer.fetch_arrow``.
        """
        limits = arrow_limits(max_rows, max_bytes, timeout_millis)
        return await self._tabled(limits, only_table, to_end=True)

    async def to_pandas(
        self,
        max_rows: int | None = None,
        max_bytes: int = READ_BYTES,
        timeout_millis: int | None = None,
    ) -> pd.DataFrame:
        """Return what ``to_arrow`` does, as a pandas frame."""
        need_pandas()
        limits = arrow_limits(max_rows, max_bytes, timeout_millis)
        return await self._tabled(limits, frame_of, to_end=True)

    async def has_message_available(self) -> bool:
        """Whether there is a message that was not read yet."""
        return await self._consuming.has_message_available()
