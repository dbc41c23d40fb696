"""Requests of one store on their way: a bounded number sent and not answered, the rest waiting in order.

Those of one turn of the loop are handed to the client together. What the session's deadline is counted from is kept here too: when the last
request that has been answered was sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from pulsarish.metadata.zookeeper.kazoo_bridge import LoopQueue
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.seams import Clock, OutcomeUnknown, SessionLost

__all__ = ["Asking", "Request", "RequestPipeline"]


class Asking(Protocol):
    """The client: takes requests and tells each its answer, from any thread."""

    def ask(self, requests: Iterable[tuple[Any, Request]]) -> None: ...


class Request:
    """One request. The client's thread calls ``set`` or ``set_exception``; that is heard in the loop, in the order of the calls."""

    __slots__ = ("_pipeline", "connection", "future", "message", "sent_at")

    def __init__(self, pipeline: RequestPipeline, message: Any, future: asyncio.Future[Any]) -> None:
        self._pipeline = pipeline
        self.message = message
        self.future = future
        self.sent_at = 0.0
        self.connection = 0

    def set(self, value: Any) -> None:
        """The answer. The client wakes the queue once it has told all that it has."""
        self._pipeline.queue.post_later(partial(self._pipeline.answered, self, value, None))

    def set_exception(self, error: Exception) -> None:
        """What was answered instead, or that nothing was. That need not come while the client reads, so it wakes the loop itself."""
        self._pipeline.queue.post(partial(self._pipeline.answered, self, None, error))


class RequestPipeline:
    """Owned by the loop; answers are posted into it by the client's thread."""

    def __init__(
        self,
        clock: Clock,
        queue: LoopQueue,
        in_flight_max: int,
        unanswered: Callable[[Exception], OutcomeUnknown | SessionLost | None],
        outside: OutsideWork | None,
    ) -> None:
        """``unanswered`` translates an error that says that there was no answer; for one that the server answered it gives None."""
        self.answered_sent_at = 0.0
        self.queue = queue
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._in_flight_max = in_flight_max
        self._unanswered = unanswered
        self._outside = outside
        self._client: Asking | None = None
        # In the order of sending. What is not in it any more was given up, and its answer is not heard.
        self._sent: dict[Request, None] = {}
        self._waiting: deque[Request] = deque()
        self._turn_ends = False

    def attach(self, client: Asking) -> None:
        """From now on requests go to ``client``."""
        self._client = client

    def detach(self, error: SessionLost) -> None:
        """The client is given up: all that was asked of it fails, and what it still answers is not heard."""
        self._client = None
        requests = [*self._sent, *self._waiting]
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

    def submit(self, message: Any) -> asyncio.Future[Any]:
        """Send at the end of this turn of the loop, or when there is room.

        The future raises ``OutcomeUnknown``, ``SessionLost`` or the error that the server answered.
        """
        request = Request(self, message, self._loop.create_future())
        if self._client is None:
            _fail(request.future, SessionLost("there is no session with the metadata store"))
        else:
            self._waiting.append(request)
            self._send_soon()
        return request.future

    def _send_soon(self) -> None:
        if not self._turn_ends:
            self._turn_ends = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._turn_ends = False
        count = min(len(self._waiting), self._in_flight_max - len(self._sent))
        if self._client is None or count <= 0:
            return
        now = self._clock.monotonic()
        requests = [self._waiting.popleft() for _ in range(count)]
        for request in requests:
            request.sent_at = now
            self._sent[request] = None
            if self._outside is not None:
                self._outside.began()
        self._client.ask((request.message, request) for request in requests)

    def answered(self, request: Request, value: Any, error: Exception | None) -> None:
        """In the loop."""
        if request not in self._sent:
            return  # given up, or ended twice: kazoo does that when its connection closes while a request is handed over
        del self._sent[request]
        if self._outside is not None:
            self._outside.ended()
        unanswered = None if error is None else self._unanswered(error)
        if unanswered is None:
            self.answered_sent_at = max(self.answered_sent_at, request.sent_at)
        if error is not None:
            _fail(request.future, unanswered or error)
        elif not request.future.done():
            request.future.set_result(value)
        if self._waiting:
            self._send_soon()


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
