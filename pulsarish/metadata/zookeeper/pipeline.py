"""The requests of one store: a bounded number is sent and unanswered, the others wait in order.

Requests of one turn of the loop are passed to the client together. The pipeline also keeps the time
from which the session's deadline counts: when the last answered request was sent.
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
    """The client: takes requests and gives each its answer, from any thread."""

    def ask(self, requests: Iterable[tuple[Any, Request]]) -> None: ...


class Request:
    """One request.

    The client's thread calls ``set`` or ``set_exception``; the loop gets the calls in their order.
    """

    __slots__ = ("_pipeline", "connection", "future", "message", "sent_at")

    def __init__(
        self, pipeline: RequestPipeline, message: Any, future: asyncio.Future[Any]
    ) -> None:
        self._pipeline = pipeline
        self.message = message
        self.future = future
        self.sent_at = 0.0
        self.connection = 0

    def set(self, value: Any) -> None:
        """Set the answer. The client wakes the queue once it has set all its answers."""
        self._pipeline.queue.post_later(partial(self._pipeline.answered, self, value, None))

    def set_exception(self, error: Exception) -> None:
        """Set an error: the server's answer, or that there was none.

        This may happen while the client does not read, so it wakes the loop itself.
        """
        self._pipeline.queue.post(partial(self._pipeline.answered, self, None, error))


class RequestPipeline:
    """The queue of requests. The loop owns it; the client's thread posts answers into the loop."""

    def __init__(
        self,
        clock: Clock,
        queue: LoopQueue,
        in_flight_max: int,
        unanswered: Callable[[Exception], OutcomeUnknown | SessionLost | None],
        outside: OutsideWork | None,
    ) -> None:
        """Make a pipeline.

        ``unanswered`` translates an error that means "no answer"; for an answer of the server it
        returns None.
        """
        self.answered_sent_at = 0.0
        self.queue = queue
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._in_flight_max = in_flight_max
        self._unanswered = unanswered
        self._outside = outside
        self._client: Asking | None = None
        # In the order of sending. A request that is missing here was given up, and its answer is
        # ignored.
        self._sent: dict[Request, None] = {}
        self._waiting: deque[Request] = deque()
        self._turn_ends = False

    def attach(self, client: Asking) -> None:
        """Send requests to ``client`` from now on."""
        self._client = client

    def detach(self, error: SessionLost) -> None:
        """Give the client up: all its requests fail, and its later answers are ignored."""
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
        """Fail the requests that were not sent, because the connection broke.

        (The client fails those that it sent.)
        """
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
        """End a request, in the loop."""
        if request not in self._sent:
            # given up, or ended twice: kazoo does that when its connection closes while it takes a
            # request
            return
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
