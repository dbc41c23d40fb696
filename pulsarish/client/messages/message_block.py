"""What ``with message:`` does: acknowledge the message at the end of the block."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol, Self

from pulsarish.model.errors import NotAllowedError, PulsarishError
from pulsarish.runtime.log import get_logger

__all__ = ["Acknowledges", "Arrived", "Inbox", "MessageBlock"]

_log = get_logger("client")


class Acknowledges(Protocol):
    """A consumer that the program has, of the blocking or the asyncio client."""

    is_awaited: bool

    def acknowledge(self, message: Any) -> Any: ...

    def negative_acknowledge(self, message: Any) -> Any: ...


class Inbox(Protocol):
    """Where the entries of a consumer or reader arrive."""

    consumer: Acknowledges | None


class Arrived(Protocol):
    """The entry of a message."""

    inbox: Inbox | None
    """Where it arrived; ``None``: it came to no consumer."""


class MessageBlock:
    """A message that a block acknowledges. It has no attributes of its own."""

    __slots__ = ()

    _entry: Arrived

    def _consumer(self, *, is_awaited: bool) -> Acknowledges:
        """Return the consumer that acknowledges the message. Raises ``NotAllowedError``."""
        inbox = self._entry.inbox
        consumer = None if inbox is None else inbox.consumer
        if consumer is None:
            raise NotAllowedError(
                "the message did not come to a consumer, and nothing acknowledges it: use it "
                "without a block"
            )
        if consumer.is_awaited is not is_awaited:
            raise NotAllowedError(
                "the message is of an asyncio client: write async with message"
                if consumer.is_awaited
                else "the message is of a blocking client: write with message"
            )
        return consumer

    def _not_refused(self, error: PulsarishError) -> None:
        """Log why the negative acknowledgement failed: the block's own error goes to the caller,
        and the message is delivered again, to another consumer.
        """
        _log.warning("message not negatively acknowledged", message=self, reason=error)

    def __enter__(self) -> Self:
        """Raise ``NotAllowedError`` for a message of a reader or of an asyncio client."""
        self._consumer(is_awaited=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Acknowledge the message, or negatively when the block has raised.

        Raises what ``Consumer.acknowledge`` raises.
        """
        consumer = self._consumer(is_awaited=False)
        if kind is None:
            consumer.acknowledge(self)
            return
        try:
            consumer.negative_acknowledge(self)
        except PulsarishError as failure:
            self._not_refused(failure)

    async def __aenter__(self) -> Self:
        """Raise ``NotAllowedError`` for a message of a reader or of a blocking client."""
        self._consumer(is_awaited=True)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Do what ``__exit__`` does."""
        consumer = self._consumer(is_awaited=True)
        if kind is None:
            await consumer.acknowledge(self)
            return
        try:
            await consumer.negative_acknowledge(self)
        except PulsarishError as failure:
            self._not_refused(failure)
