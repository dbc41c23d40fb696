"""Requests of one store on their way: a bounded number sent and not answered, the rest waiting in order.

It also keeps what the session's deadline is counted from: when the last request that has been answered was sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pulsarish.metadata.kazoo_bridge import LoopQueue
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.seams import Clock, OutcomeUnknown, SessionLost

__all__ = ["RequestPipeline", "Send"]

Send = Callable[[Any], Any]
"""Sends one request on the client given; its answer has ``rawlink``, ``exception`` and ``value``."""


@dataclass(slots=True)
class _Request:
    send: Send
    future: asyncio.Future[Any]
    sent_at: float = 0.0


class RequestPipeline:
    """Owned by the loop; answers are posted into it by the client's thread."""

    def __init__(
        self,
        clock: Clock,
        queue: LoopQueue,
        in_flight_max: int,
        seam_error: Callable[[Exception], OutcomeUnknown | SessionLost | None],
        outside: OutsideWork | None,
    ) -> None:
        """``seam_error`` translates an error that says that there was no answer; for one that the server answered it gives None."""
        self.answered_sent_at = 0.0
        self._clock = clock
        self._queue = queue
        self._in_flight_max = in_flight_max
        self._seam_error = seam_error
        self._outside = outside
        self._client: Any = None
        # Answers that come after their client was given up carry an older generation.
        self._generation = 0
        self._numbers = 0
        self._sent: dict[int, _Request] = {}
        self._waiting: deque[_Request] = deque()

    def attach(self, client: Any) -> None:
        """From now on requests go to ``client``."""
        self._client = client

    def detach(self, error: SessionLost) -> None:
        """The client is given up: all that was asked of it fails, and what it still answers is not heard."""
        self._client = None
        self._generation += 1
        requests = [*self._sent.values(), *self._waiting]
        if self._outside is not None:
            for _ in self._sent:
                self._outside.ended()
        self._sent.clear()
        self._waiting.clear()
        for request in requests:
            _fail(request.future, error)

    def fail_waiting(self, error: OutcomeUnknown) -> None:
        """The connection broke: what was not sent is not going to be. (What was sent, its client fails.)"""
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            _fail(request.future, error)

    def submit(self, send: Send) -> asyncio.Future[Any]:
        """Send now or when there is room. The future raises ``OutcomeUnknown``, ``SessionLost`` or the error that the server answered."""
        request = _Request(send, asyncio.get_running_loop().create_future())
        if len(self._sent) < self._in_flight_max:
            self._send(request)
        else:
            self._waiting.append(request)
        return request.future

    def _send(self, request: _Request) -> None:
        if self._client is None:
            _fail(request.future, SessionLost("there is no session with the metadata store"))
            return
        self._numbers += 1
        number, generation = self._numbers, self._generation
        self._sent[number] = request
        if self._outside is not None:
            self._outside.began()
        request.sent_at = self._clock.monotonic()
        answer = request.send(self._client)
        answer.rawlink(lambda result: self._queue.post(partial(self._answered, generation, number, result)))

    def _answered(self, generation: int, number: int, result: Any) -> None:
        if generation != self._generation:
            return
        request = self._sent.pop(number, None)
        if request is None:
            return  # kazoo ends a request twice when its connection closes while it is handed over
        if self._outside is not None:
            self._outside.ended()
        error = result.exception
        unanswered = None if error is None else self._seam_error(error)
        if unanswered is None:
            self.answered_sent_at = max(self.answered_sent_at, request.sent_at)
        if error is not None:
            _fail(request.future, unanswered or error)
        elif not request.future.done():
            request.future.set_result(result.value)
        while self._waiting and len(self._sent) < self._in_flight_max:
            self._send(self._waiting.popleft())


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
