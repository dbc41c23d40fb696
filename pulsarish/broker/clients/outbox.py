"""What waits to be sent to one client: answers in order, and deliveries up to a limit in bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from pulsarish.broker.clients.commands import Answer, Receipts
from pulsarish.broker.clients.consumer import Delivery

__all__ = ["Outbox"]


class Outbox:
    """The ``Outlet`` of a session.

    ``changed`` is called when something was put in, or room was made; it wakes the writer.

    Once full, it has no room until half of it is free. Otherwise all consumers of the connection
    would be looked at for each message that its client takes, to give it one more.

    ``doubt`` has the connection find out whether its client lives. By default it goes by silence.
    """

    def __init__(
        self,
        *,
        delivery_bytes_max: int,
        changed: Callable[[], None],
        doubt: Callable[[], None] = lambda: None,
    ) -> None:
        self.answers: deque[Answer] = deque()
        self.deliveries: deque[tuple[int, Delivery]] = deque()
        self.delivery_bytes = 0
        self._is_full = False
        self._has_room_again = False
        self._delivery_bytes_max = delivery_bytes_max
        self._changed = changed
        self.doubt = doubt
        self._closed = False

    @property
    def has_room(self) -> bool:
        return not self._is_full and not self._closed

    def take_room_again(self) -> bool:
        """Return whether it was full and has room since the last call."""
        had, self._has_room_again = self._has_room_again, False
        return had

    def _drained(self, size_bytes: int) -> None:
        self.delivery_bytes -= size_bytes
        if self._is_full and self.delivery_bytes * 2 <= self._delivery_bytes_max:
            self._is_full = False
            self._has_room_again = True

    def put(self, answer: Answer) -> None:
        if self._closed:
            return
        answers = self.answers
        if type(answer) is Receipts and answers:
            last = answers[-1]
            # Join rows that continue each other.
            if (
                type(last) is Receipts
                and last.producer_id == answer.producer_id
                and last.sends is answer.sends
                and last.ledger_id == answer.ledger_id
                and (last.ledger_id < 0 or last.first_entry + last.count == answer.first_entry)
            ):
                last.count += answer.count
                last.sequence_id = answer.sequence_id
                return
        answers.append(answer)
        self._changed()

    def deliver(self, consumer_id: int, deliveries: Sequence[Delivery]) -> None:
        if self._closed:
            return
        self.deliveries.extend([(consumer_id, delivery) for delivery in deliveries])
        self.delivery_bytes += sum([len(delivery.payload) for delivery in deliveries])
        if self.delivery_bytes >= self._delivery_bytes_max:
            self._is_full = True
        self._changed()

    def withdraw(self, consumer_id: int) -> int:
        messages = size_bytes = 0
        kept: deque[tuple[int, Delivery]] = deque()
        for owner, delivery in self.deliveries:
            if owner == consumer_id:
                messages += delivery.messages
                size_bytes += len(delivery.payload)
            else:
                kept.append((owner, delivery))
        self.deliveries = kept
        self._drained(size_bytes)
        if self._has_room_again:
            self._changed()
        return messages

    def take_deliveries(self, bytes_target: int) -> list[tuple[int, Delivery]]:
        """Remove and return the next deliveries, about ``bytes_target`` bytes, but at least one if
        there is any.
        """
        taken: list[tuple[int, Delivery]] = []
        size_bytes = 0
        deliveries = self.deliveries
        while deliveries:
            size_bytes += len(deliveries[0][1].payload)
            if taken and size_bytes > bytes_target:
                size_bytes -= len(deliveries[0][1].payload)
                break
            taken.append(deliveries.popleft())
        self._drained(size_bytes)
        return taken

    def close(self) -> None:
        """Drop everything, because the client is gone.

        Later answers and deliveries are dropped too.
        """
        self._closed = True
        self.answers.clear()
        self.deliveries.clear()
        self.delivery_bytes = 0

    def check(self) -> None:
        assert self.delivery_bytes == sum(len(delivery.payload) for _, delivery in self.deliveries)
        assert self._is_full or self.delivery_bytes < self._delivery_bytes_max
