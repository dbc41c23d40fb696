"""The streams ``broker.publish`` and ``broker.consume``, by gRPC and in frames, in front of
sessions.

A stream has one reader (its handler), one writer task that sends everything that waits in one
message, and one task that keeps it alive. At most two counted messages of a client are unanswered.
A message is answered when all its entries have their outcome, or after a short time, so that a slow
topic does not hold up the others on the stream. Entries without an outcome are bounded: in bytes
for the connection and for the broker, in entries and bytes for each topic. When one of these limits
is reached, the broker reads nothing from the stream until there is room again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from pulsarish.broker.clients.authorization import Gate
from pulsarish.broker.clients.outbox import Outbox
from pulsarish.broker.clients.producer import PublishRequest
from pulsarish.broker.clients.traffic import ConnectionTraffic
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.sessions.grpc_codec import (
    consume_commands,
    encode_consume,
    encode_publish,
    publish_commands,
)
from pulsarish.broker.sessions.open_sessions import OpenSessions
from pulsarish.broker.sessions.session import Session, TopicSource
from pulsarish.model.errors import ChecksumError, PulsarishError
from pulsarish.runtime.containment import Scope, ScopeKind, contained
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import (
    FINISH,
    Buffer,
    Stream,
    StreamBroken,
    StreamHandler,
    Tasks,
    World,
)
from pulsarish.runtime.wake_signal import WakeSignal
from pulsarish.security.callers import Callers, refusal_text
from pulsarish.security.credentials import Certificate, Credentials, Secret
from pulsarish.security.identity import UNCHECKED
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire.framing import slice_records, split_records

__all__ = ["GrpcFace"]

_log = get_logger("broker.grpc")

_CREDENTIALS_BYTES_MAX: Final = 64 << 10


class GrpcFace:
    """Creates the stream handlers that a broker serves."""

    def __init__(
        self,
        *,
        topics: TopicSource,
        gate: Gate,
        world: World,
        config: BrokerConfig,
        traffic: ConnectionTraffic,
        callers: Callers,
        sessions: OpenSessions,
    ) -> None:
        self._callers = callers
        self._sessions = sessions
        self._topics = topics
        self._gate = gate
        self._world = world
        self._config = config
        self._traffic = traffic
        self._streams: dict[int, _FaceStream] = {}

    def streams(self, came_in_on: str) -> Mapping[str, StreamHandler]:
        """Return the handlers for one listener's port."""
        return {
            "broker.publish": partial(self._serve, _PublishStream, came_in_on),
            "broker.consume": partial(self._serve, _ConsumeStream, came_in_on),
        }

    def _session_parts(self, stream: Stream, tasks: Tasks, outbox: Outbox) -> Session:
        session = Session(
            topics=self._topics,
            gate=self._gate,
            identity=UNCHECKED,
            peer=stream.peer,
            tasks=tasks,
            outbox=outbox,
            config=self._config,
        )
        session.note_client_version(stream.caller.program)
        return session

    async def _serve(self, kind: type[_FaceStream], came_in_on: str, stream: Stream) -> None:
        try:
            identity = await self._callers.identify_caller(stream.caller)
        except PulsarishError as error:
            _log.warning("client refused", peer=stream.peer, reason=error)
            stream.abort(refusal_text(error))
            return
        serving = kind(
            stream,
            came_in_on,
            self._session_parts,
            self._world,
            self._config,
            self._traffic,
            self._renew,
        )
        serving.session.identity = identity
        self._sessions.add(serving)
        number = self._traffic.opened()
        self._streams[number] = serving
        try:
            await serving.run()
        finally:
            del self._streams[number]
            self._sessions.remove(serving)
            self._traffic.ended()

    async def _renew(self, serving: _FaceStream, credentials: Credentials) -> None:
        """Check the new credentials of a stream's client, and move the end of its rights.

        They must be those of the same role. When they cannot be checked now, the ones before are
        valid until they end.
        """
        session = serving.session
        try:
            identity = await self._callers.refresh(
                credentials, serving.certificate, session.identity
            )
        except PulsarishError as error:
            if error.retryable:
                _log.warning("credentials could not be checked", peer=serving.peer, reason=error)
                return
            _log.warning("new credentials are refused", peer=serving.peer, reason=error)
            serving.end_rights(error)
            return
        if serving.is_live:
            session.identity = identity
            self._sessions.add(serving)

    def finish_all(self) -> int:
        """End every stream after its waiting answers are sent, and return how many there are.

        Called when the broker stops.
        """
        streams = list(self._streams.values())
        for stream in streams:
            stream.end()
        return len(streams)

    def abort_all(self, reason: str) -> None:
        """Break every stream that is still open."""
        for stream in list(self._streams.values()):
            stream.abort(reason)


class _Parts(Protocol):
    def __call__(self, stream: Stream, tasks: Tasks, outbox: Outbox) -> Session: ...


_Renew = Callable[["_FaceStream", Credentials], Coroutine[object, object, None]]


class _FaceStream:
    """What both kinds of stream share: reader, writer and the task that keeps the stream alive."""

    def __init__(
        self,
        stream: Stream,
        came_in_on: str,
        parts: _Parts,
        world: World,
        config: BrokerConfig,
        traffic: ConnectionTraffic,
        renew: _Renew,
    ) -> None:
        self._stream = stream
        self._came_in_on = came_in_on
        self._renew = renew
        self._scope = Scope(ScopeKind.CONNECTION, stream.peer, self._failed)
        self._world = world = contained(world, self._scope)
        self._config = config
        self._traffic = traffic
        self._wake = WakeSignal()
        self._outbox = Outbox(
            delivery_bytes_max=config.max_delivery_bytes_per_connection, changed=self._wake.set
        )
        self.session = parts(stream, world.tasks, self._outbox)
        self._over = False
        self._ending = False
        self._heartbeat = False
        self._asks_credentials = False  # is to be sent
        self._awaits_credentials = False  # was asked for, and has not come
        self._received_at = self._sent_at = world.clock.monotonic()

    def end(self) -> None:
        """Send what waits, then end the stream."""
        self._ending = True
        self._wake.set()

    def abort(self, reason: str) -> None:
        self._stream.abort(reason)

    async def check_again(self) -> None:
        await self.session.check_again()

    @property
    def peer(self) -> str:
        return self._stream.peer

    @property
    def certificate(self) -> Certificate | None:
        return self._stream.caller.certificate

    def challenge(self) -> None:
        """Ask the client for new credentials.

        An older one does not answer, and shows them with its next stream.
        """
        self._asks_credentials = self._awaits_credentials = True
        self._wake.set()

    def _take_credentials(self, shown: pb.Credentials) -> None:
        """Have new credentials checked. Raises ``ValueError`` for credentials above the limit."""
        if len(shown.method) + len(shown.data) > _CREDENTIALS_BYTES_MAX:
            raise ValueError(
                f"credentials have {len(shown.data)} bytes, above {_CREDENTIALS_BYTES_MAX}"
            )
        # One check for one question, however often a client answers.
        self._awaits_credentials = False
        credentials = Credentials(shown.method, Secret(shown.data))
        _ = self._world.tasks.spawn(
            self._renew(self, credentials), name=f"credentials {self._stream.peer}"
        )

    def end_rights(self, error: PulsarishError) -> None:
        self._stream.abort(refusal_text(error))

    def _failed(self, error: BaseException) -> None:
        self._stream.abort(f"the connection failed on the broker: {type(error).__name__}")

    async def run(self) -> None:
        """Read until the client is gone, then drop what it opened."""
        tasks, peer = self._world.tasks, self._stream.peer
        writer = tasks.spawn(self._write(), name=f"writer {peer}")
        keep_alive = tasks.spawn(self._keep_alive(), name=f"keeper {peer}")
        try:
            await self._stream.deliver(self._received)
        except StreamBroken as error:
            _log.debug("stream ended", peer=peer, reason=error)
        except (DecodeError, ChecksumError, ValueError) as error:
            _log.warning("malformed message", peer=peer, reason=error)
            self._stream.abort(f"malformed message: {error}")
        except Exception as error:  # noqa: BLE001
            # Whatever it is: it ends this connection, and is counted.
            tasks.contain(f"reader {peer}", error, self._scope)
        finally:
            self._over = True
            self.session.close()
            self._wake.set()
            keep_alive.cancel()
        # what it raised was counted already
        _ = await asyncio.gather(writer, return_exceptions=True)

    def _received(self, data: bytes) -> Awaitable[None] | None:
        self._received_at = self._world.clock.monotonic()
        return self._take(data)

    def _take(self, data: bytes) -> Awaitable[None] | None:
        """Handle a message. Return what to wait for before the next one, if anything.

        Raises ``DecodeError``, ``ChecksumError`` or ``ValueError`` for a malformed one.
        """
        raise NotImplementedError

    def _encoded(self) -> Sequence[Buffer] | None:
        """Return the next message, of everything that waits; ``None`` when nothing does."""
        raise NotImplementedError

    async def _write(self) -> None:
        try:
            await self._stream.feed(self._next_message, self._wake)
        except StreamBroken as error:
            _log.debug("stream broke while sending", peer=self._stream.peer, reason=error)

    def _next_message(self) -> Sequence[Buffer] | None:
        if self._over:
            return FINISH
        message = self._encoded()
        if message is not None:
            self._sent_at = self._world.clock.monotonic()
        elif self._ending:
            return FINISH
        return message

    @property
    def is_live(self) -> bool:
        return not self._over

    async def _keep_alive(self) -> None:
        interval, limit = (
            self._config.keep_alive_interval_seconds,
            self._config.keep_alive_timeout_seconds,
        )
        while self.is_live:
            await self._world.clock.sleep(interval)
            now = self._world.clock.monotonic()
            if now - self._received_at > limit and not self._busy:
                self._stream.abort(f"nothing was received for {limit} s")
                return
            if now - self._sent_at >= interval / 2:
                self._heartbeat = True
                self._wake.set()

    @property
    def _busy(self) -> bool:
        """Whether the broker itself causes the silence, because it does not read at the moment."""
        return False


class _PublishStream(_FaceStream):
    def __init__(
        self,
        stream: Stream,
        came_in_on: str,
        parts: _Parts,
        world: World,
        config: BrokerConfig,
        traffic: ConnectionTraffic,
        renew: _Renew,
    ) -> None:
        super().__init__(stream, came_in_on, parts, world, config, traffic, renew)
        self._budget = traffic.budget
        self._bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._answered = 0
        self._answered_sent = 0
        # Unanswered counted messages and when each came, oldest first.
        self._open: deque[tuple[float, PublishRequest]] = deque()
        self._timing = False
        self._is_paused = False  # nothing is read until there is room

    def _take(self, data: bytes) -> Awaitable[None] | None:
        head, records = split_records(data)
        message = pb.PublishRequest.FromString(head)
        if self._awaits_credentials and message.HasField("credentials"):
            self._take_credentials(message.credentials)
        for command in publish_commands(message):
            self.session.handle(command)
        if message.sizes:
            self._traffic.flows()
            entries = slice_records(records, message.sizes)
            producer_ids = list(message.producer_ids)
            if len(producer_ids) != len(entries):
                raise ValueError(f"{len(producer_ids)} producer ids for {len(entries)} entries")
            size_bytes = len(records)
            self._bytes += size_bytes
            self._budget.use(size_bytes)
            request = PublishRequest(len(entries), size_bytes, self._resolved, self._received_at)
            if message.counted:
                self._open.append((self._received_at, request))
            self.session.publish(producer_ids, entries, request)
            if self._open and not self._timing:
                self._timing = True
                _ = self._world.tasks.spawn(
                    self._answer_late(), name=f"answer timer {self._stream.peer}"
                )
        elif message.counted:
            self._answered += 1
            self._wake.set()
        if not self.session.full and not self._is_full:
            return None
        self._is_paused = True
        return self._wait_for_room()

    @property
    def _is_full(self) -> bool:
        return self._bytes >= self._config.max_publish_bytes_per_connection or self._budget.full

    async def _wait_for_room(self) -> None:
        await self.session.wait_for_room()
        while self.is_live and self._is_full:
            if self._budget.full:
                await self._budget.wait_for_room()
            else:
                self._room.clear()
                await self._room.wait()
        self._is_paused = False

    @property
    def _busy(self) -> bool:
        return self._is_paused

    def _resolved(self, request: PublishRequest, size_bytes: int) -> None:
        self._bytes -= size_bytes
        self._budget.release(size_bytes)
        if self._bytes < self._config.max_publish_bytes_per_connection:
            self._room.set()
        if request.left_entries:
            return
        before = self._answered
        while self._open and not self._open[0][1].left_entries:
            self._open.popleft()
            self._answered += 1
        if self._answered == before:
            # A later message is done before an earlier one. Answer it now: the client only gets the
            # number of answered messages.
            for index, (_, waiting) in enumerate(self._open):
                if waiting is request:
                    del self._open[index]
                    self._answered += 1
                    break
        self._wake.set()

    async def _answer_late(self) -> None:
        """Answer messages that wait too long. Runs only while some wait."""
        delay = self._config.publish_answer_delay_max_ms / 1000
        while self._open and not self._over:
            due = self._open[0][0] + delay
            now = self._world.clock.monotonic()
            if due > now:
                await self._world.clock.sleep(due - now)
                continue
            self._open.popleft()
            self._answered += 1
            self._wake.set()
        self._timing = False

    def _encoded(self) -> Sequence[Buffer] | None:
        outbox = self._outbox
        if not (
            outbox.answers
            or self._answered != self._answered_sent
            or self._heartbeat
            or self._asks_credentials
        ):
            return None
        heartbeat, self._heartbeat = self._heartbeat, False
        asks, self._asks_credentials = self._asks_credentials, False
        self._answered_sent = self._answered
        return [
            encode_publish(
                outbox.answers,
                self._answered,
                heartbeat=heartbeat,
                asks_credentials=asks,
                listener=self._came_in_on,
            )
        ]


class _ConsumeStream(_FaceStream):
    def __init__(
        self,
        stream: Stream,
        came_in_on: str,
        parts: _Parts,
        world: World,
        config: BrokerConfig,
        traffic: ConnectionTraffic,
        renew: _Renew,
    ) -> None:
        super().__init__(stream, came_in_on, parts, world, config, traffic, renew)
        self._counted = 0
        self._taken = 0

    def _take(self, data: bytes) -> None:
        message = pb.ConsumeRequest.FromString(data)
        if message.taken > self._taken:
            if message.taken > self._counted:
                raise ValueError(
                    f"{message.taken} delivery messages were taken of {self._counted} sent"
                )
            self._taken = message.taken
            self._wake.set()
        if self._awaits_credentials and message.HasField("credentials"):
            self._take_credentials(message.credentials)
        for command in consume_commands(message):
            self.session.handle(command)

    def _encoded(self) -> Sequence[Buffer] | None:
        outbox, config = self._outbox, self._config
        if outbox.take_room_again():
            self.session.room_again()
        free = self._counted - self._taken < config.deliveries_under_way_max
        is_due = outbox.answers or self._heartbeat or self._asks_credentials
        if not (is_due or (free and outbox.deliveries)):
            return None
        deliveries = outbox.take_deliveries(config.message_bytes_target) if free else []
        if deliveries:
            self._counted += 1
            self._traffic.flows()
            if outbox.take_room_again():
                self.session.room_again()
        heartbeat, self._heartbeat = self._heartbeat, False
        asks, self._asks_credentials = self._asks_credentials, False
        return encode_consume(
            outbox.answers,
            deliveries,
            heartbeat=heartbeat,
            asks_credentials=asks,
            listener=self._came_in_on,
        )
