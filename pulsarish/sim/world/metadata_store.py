"""``MetadataStore`` of one process in the simulation: a session with the metadata service and the
events that its holder gets.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from pulsarish.metadata.tree.nodes import Event, EventKind
from pulsarish.metadata.tree.translate import check_ops
from pulsarish.runtime.seams import Op, OutcomeUnknown, SessionLost, SessionState, Versioned
from pulsarish.sim.world.metadata_service import Answer, Connection, MetadataService, Request
from pulsarish.sim.world.nodes import Process, SimClock

__all__ = ["SimMetadata"]

CONNECT_SECONDS = 1.0  # one attempt
_SILENT_PART = 0.4

Watch = Callable[[str], None]
_PING = Request(lambda service, session_id: None)
_SYNC = Request(MetadataService.sync)


class _Pending:
    def __init__(
        self,
        request: Request,
        future: asyncio.Future[Answer],
        watch: tuple[bool, str, Watch] | None,
    ) -> None:
        self.request = request
        self.future = future
        self.watch = watch
        self.sent_at = 0.0


class SimMetadata:
    """The store.

    It keeps itself connected. The node's own clock or the service decides that the session is
    ``LOST``.
    """

    def __init__(self, service: MetadataService, process: Process, clock: SimClock) -> None:
        self.process = process
        self.session_id = 0
        self.zxid = 0
        self.state = SessionState.SUSPENDED
        self._service = service
        self._clock = clock
        self._network = service.network
        self._listeners: list[Callable[[SessionState], None]] = []
        self._connection: Connection | None = None  # the attached connection
        self._attempt: Connection | None = None  # the connection that asks to be attached
        self._pending: dict[int, _Pending] = {}  # sent and not answered, oldest first
        self._next_request = 0
        self._watches: dict[tuple[bool, str], dict[Watch, None]] = {}  # (of children, path)
        self._inbox: deque[Callable[[], None]] = deque()
        self.answered_at = clock.monotonic()
        self.reached_since = 0.0
        """Since when the service answers without a pause of nearly half a session timeout, by true
        time.
        """
        self.changed_at = 0.0
        """When the session came into its state, by true time."""
        self._heard_at = clock.monotonic()
        self._closed = False
        self._opened = asyncio.Event()
        if service.reachable(process.node.name):
            # The boot includes the first connection, so a test need not wait for it.
            connection = Connection(self._network, self)
            attached = service.attach(connection, 0)
            assert attached, "a reachable process opens sessions"
            self._attached(connection, attached)
        else:
            self._reconnect()

    @property
    def is_silent(self) -> bool:
        """Whether the service has not answered for nearly half a session timeout."""
        return self._clock.monotonic() - self.answered_at > self._timeout() * _SILENT_PART

    async def opened(self) -> None:
        """Wait for the first session."""
        await self._opened.wait()

    # -- the seam

    def listen(self, changed: Callable[[SessionState], None]) -> None:
        self._listeners.append(changed)

    async def get_many(
        self, paths: Sequence[str], *, watch: Watch | None = None
    ) -> list[Versioned | None]:
        # Each path is read at a time of its own, as a pipeline of reads in production.
        futures = [
            self._send(
                Request(partial(MetadataService.get, path=path, watch=watch is not None)),
                None if watch is None else (False, path, watch),
            )
            for path in paths
        ]
        answers = await asyncio.gather(*futures, return_exceptions=True)
        found: list[Versioned | None] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer)
        return found

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        names: list[str] = await self._send(
            Request(partial(MetadataService.children, path=path, watch=watch is not None)),
            None if watch is None else (True, path, watch),
        )
        return names

    async def commit(self, ops: Sequence[Op]) -> list[str | int]:
        check_ops(ops)

        result: list[str | int] = await self._send(
            Request(partial(MetadataService.commit, ops=list(ops)), is_commit=True), None
        )
        return result

    async def sync(self, path: str) -> None:
        await self._send(_SYNC, None)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._connection is not None:
            # When this fails, the session ends after its timeout.
            with contextlib.suppress(OutcomeUnknown, SessionLost):
                await self._send(Request(MetadataService.close), None, closing=True)
        self._attempt = None
        self._lose("the store is closed")

    # -- sending

    def _send(
        self, request: Request, watch: tuple[bool, str, Watch] | None, *, closing: bool = False
    ) -> asyncio.Future[Answer]:
        self.process.check()
        future: asyncio.Future[Answer] = self._network.loop.create_future()
        if self.state is SessionState.LOST or (self._closed and not closing):
            future.set_exception(SessionLost("there is no session"))
            return future
        connection = self._connection
        if connection is None:
            future.set_exception(OutcomeUnknown("not connected to the metadata store"))
            return future
        self._next_request += 1
        number = self._next_request
        pending = _Pending(request, future, watch)
        pending.sent_at = self._clock.monotonic()
        self._pending[number] = pending
        connection.out.carry(lambda: self._service.handle(connection, number, request))
        return future

    # -- receiving: called by the network; handled in the process, in the order of arrival

    def hear(self, connection: Connection, number: int, answer: Answer, zxid: int) -> None:
        self._put(lambda: self._answered(connection, number, answer, zxid))

    def hear_event(self, connection: Connection, event: Event, loose_seconds: float) -> None:
        self._put(lambda: self._fired(connection, event, loose_seconds))

    def hear_broken(self, connection: Connection) -> None:
        self._put(lambda: self._broken(connection))

    def _put(self, what: Callable[[], None]) -> None:
        self._inbox.append(what)
        self._network.loop.call_soon(self._drain, context=self.process.context)

    def _drain(self) -> None:
        while self._inbox:
            self._inbox.popleft()()

    def _answered(self, connection: Connection, number: int, answer: Answer, zxid: int) -> None:
        if connection is not self._connection:
            return
        self.zxid = max(self.zxid, zxid)
        pending = self._pending.pop(number)
        self._heard_at = self._clock.monotonic()
        if self.is_silent:
            self.reached_since = self._network.loop.time()
        self.answered_at = max(self.answered_at, pending.sent_at)
        refused = isinstance(answer, BaseException)
        if pending.watch is not None and not refused:
            of_children, path, watch = pending.watch
            self._watches.setdefault((of_children, path), {})[watch] = None
        if pending.future.done():
            return
        if refused:
            pending.future.set_exception(answer)
        else:
            pending.future.set_result(answer)

    def _fired(self, connection: Connection, event: Event, loose_seconds: float) -> None:
        if connection is not self._connection:
            return
        keys = {
            EventKind.CHILD: ((True, event.path),),
            EventKind.DELETED: ((False, event.path), (True, event.path)),
        }.get(event.kind, ((False, event.path),))
        fired: dict[Watch, None] = {}
        for key in keys:
            fired |= self._watches.pop(key, {})
        for watch in fired:
            if loose_seconds:
                self._network.loop.call_later(
                    loose_seconds, watch, event.path, context=self.process.context
                )
            else:
                watch(event.path)

    # -- the session

    def _set_state(self, state: SessionState) -> None:
        if state is not self.state:
            self.state = state
            self.changed_at = self._network.loop.time()
            self._network.trace(f"meta {self.process} {state.value} {self.session_id:x}")
            for changed in list(self._listeners):
                changed(state)

    def _attached(self, connection: Connection, session_id: int) -> None:
        self.zxid = 0
        self.session_id = session_id
        self._connection = connection
        self._heard_at = self.answered_at = self._clock.monotonic()
        self.reached_since = self._network.loop.time()
        self._opened.set()
        self._set_state(SessionState.CONNECTED)
        self._later(self._timeout() / 3, self._keep_alive, connection)

    def _timeout(self) -> float:
        return self._service.session_timeout_seconds

    def _later(self, seconds: float, callback: Callable[..., None], *args: object) -> None:
        self._network.loop.call_later(
            seconds / self._clock.rate, callback, *args, context=self.process.context
        )

    def _keep_alive(self, connection: Connection) -> None:
        """Send a ping a third of the timeout after the last one.

        After two thirds without any answer, treat the connection as dead.
        """
        if connection is not self._connection:
            return
        if self._clock.monotonic() - self._heard_at > self._timeout() * 2 / 3:
            self._broken(connection)
            return
        ping = self._send(_PING, None, closing=True)
        ping.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._later(self._timeout() / 3, self._keep_alive, connection)

    def _broken(self, connection: Connection) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        self._set_state(SessionState.SUSPENDED)
        self._fail_pending(OutcomeUnknown("the connection to the metadata store broke"))
        self._fire_all()
        if not self._closed:
            self._reconnect()
            self._check_lost(self.session_id)

    def _check_lost(self, session_id: int) -> None:
        """Check by our own clock, as the seam says: a session is lost one timeout after the last
        answered request was sent.
        """
        if (
            session_id != self.session_id
            or self.state is not SessionState.SUSPENDED
            or session_id == 0
        ):
            return
        left = self.answered_at + self._timeout() - self._clock.monotonic()
        if left <= 0:
            self._lose("no answer for a session time-out")
        else:
            self._later(left + 0.001, self._check_lost, session_id)

    def _lose(self, why: str) -> None:
        """Report the session as lost to its holder and ask for a new one."""
        self._network.trace(f"meta lost {self.process} {self.session_id:x}: {why}")
        self._connection = None
        self.session_id = 0
        self._set_state(SessionState.LOST)
        self._fail_pending(SessionLost(why))
        self._fire_all()

    def _fail_pending(self, error: Exception) -> None:
        pending, self._pending = self._pending, {}
        for request in pending.values():
            if not request.future.done():
                request.future.set_exception(type(error)(*error.args))

    def _fire_all(self) -> None:
        watches, self._watches = self._watches, {}
        for (_, path), waiting in watches.items():
            for watch in waiting:
                watch(path)

    def _reconnect(self) -> None:
        """Try until attached: to the same session, or to a new one when the session is lost."""
        connection = self._attempt = Connection(self._network, self)
        asked = self.session_id

        def attach() -> None:
            if not connection.given_up:
                answer = self._service.attach(connection, asked)
                if answer is None:
                    return
                connection.back.carry(
                    lambda: self._put(lambda: self._attach_answered(connection, asked, answer))
                )

        connection.out.carry(attach)
        self._later(CONNECT_SECONDS, self._give_up, connection)

    def _give_up(self, connection: Connection) -> None:
        if connection is self._attempt:
            connection.given_up = True
            self._reconnect()

    def _attach_answered(self, connection: Connection, asked: int, answer: int) -> None:
        # An answer for a session that was lost in the meantime is useless. The attempt ends at its
        # own timeout.
        if connection is not self._attempt or asked != self.session_id:
            return
        self._attempt = None
        if answer:
            self._attached(connection, answer)
        else:
            self._lose("the service has expired it")
            self._reconnect()
