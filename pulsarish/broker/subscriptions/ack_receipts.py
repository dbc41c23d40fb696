"""Receipts of acknowledgements: sent once the cursor is durable.

One write serves all waiting receipts (rule 16).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsarish.broker.clients.commands import Outcome
from pulsarish.broker.clients.consumer import Consumer
from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Tasks

if TYPE_CHECKING:
    from pulsarish.managed_ledger.cursors.cursor import Cursor
    from pulsarish.runtime.containment import Scope

__all__ = ["AckReceipts"]

_log = get_logger("broker.subscription")


class AckReceipts:
    """The receipts that the consumers of one subscription wait for."""

    def __init__(
        self, topic: str, subscription: str, cursor: Cursor, tasks: Tasks, scope: Scope
    ) -> None:
        self._topic = topic
        self._subscription = subscription
        self._cursor = cursor
        self._tasks = tasks
        self._scope = scope
        self._waiting: list[tuple[Consumer, int]] = []
        self._flushing = False

    def wish(self, consumer: Consumer, request_id: int) -> None:
        """Make earlier acknowledgements durable, then answer the request.

        Without a request id (0) do nothing.
        """
        if not request_id:
            return
        self._waiting.append((consumer, request_id))
        if not self._flushing:
            self._flushing = True
            _ = self._tasks.spawn(
                self._flush(), name=f"flush {self._topic} {self._subscription}", scope=self._scope
            )

    def refuse(self, consumer: Consumer, request_id: int, error: PulsarishError) -> None:
        """Answer the request with ``error``. Without a request id (0) only log it."""
        if request_id:
            consumer.outlet.put(Outcome(request_id, error))
        else:
            _log.warning(
                "acknowledgement refused",
                topic=self._topic,
                subscription=self._subscription,
                reason=error,
            )

    async def _flush(self) -> None:
        while self._waiting:
            answered, self._waiting = self._waiting, []
            error: PulsarishError | None = None
            try:
                await self._cursor.flush()
            except PulsarishError as failure:
                error = failure
            for consumer, request_id in answered:
                consumer.outlet.put(Outcome(request_id, error))
        self._flushing = False
