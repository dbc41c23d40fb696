"""One client's connection in Apache Pulsar's binary protocol: frames become commands of a session,
answers and deliveries become frames.

All entries of one read go to their topics together. Everything that waits for the client leaves in
one write.

Memory is bounded whatever the client does. The broker does not read while the client does not
receive, while its unanswered entries are above a limit, or while too many of its requests are open.
When all connections together hold too much, the connection that has held an incomplete frame, or
has not received, for the longest time is closed (``runtime/peer_limits.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, Protocol, cast

from pulsarish.broker.binary.answers import Answers
from pulsarish.broker.binary.codec import (
    NO_REQUEST,
    ack_words,
    consumer_stats,
    error_command,
    failure,
    refused_transaction,
    refused_unknown,
    session_command,
)
from pulsarish.broker.clients.commands import Flow
from pulsarish.broker.clients.consumer import Delivery
from pulsarish.broker.clients.outbox import Outbox
from pulsarish.broker.clients.producer import PublishRequest
from pulsarish.broker.clients.traffic import ConnectionTraffic
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.sessions.open_sessions import OpenSessions
from pulsarish.broker.sessions.session import Session
from pulsarish.broker.topics.topic_lists import TopicWatch
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import Malformed, NotAllowedError, PulsarishError
from pulsarish.model.position import Position
from pulsarish.runtime.contained_protocol import ContainedProtocol
from pulsarish.runtime.containment import contained
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Tasks, World
from pulsarish.security.callers import Callers, Original
from pulsarish.security.credentials import Certificate, shown_in_connect
from pulsarish.security.identity import Identity, Origin
from pulsarish.security.tls import certificate_of
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import (
    ENVELOPE_BYTES_MAX,
    Frame,
    FrameReader,
    carried_entry,
    command_frame,
    delivery_frame_head,
    delivery_place,
    parse_command,
)

__all__ = ["PROTOCOL_VERSION", "Connection", "Questions"]

_log = get_logger("broker.binary")

PROTOCOL_VERSION: Final = 20
"""The newest supported version of the protocol: all commands below are part of it."""
_CONNECT: Final = 2
_AUTH_CHALLENGE: Final = 36
_AUTH_RESPONSE: Final = 37
_REFUSED_SECONDS: Final = 5.0
"""Time for a client to take the refusal of its credentials."""
_REFRESH: Final = b"PulsarAuthRefresh"
"""What a challenge carries when the broker wants new credentials of the same role."""
_SEND: Final = 6
_PING: Final = 18
_PONG: Final = 19
_CONSUMER_STATS: Final = 25
_WATCH_TOPIC_LIST: Final = 64
_WATCH_TOPIC_LIST_CLOSE: Final = 67
_WATCHES_MAX: Final = 1_000  # of one connection
_UNHEARD_SECONDS_MAX: Final = 1.0  # notices for a consumer without permits wait at most this long
_QUESTIONS_MAX: Final = 100
"""Unanswered lookups and similar requests of a client.

At this number its further frames wait, and nothing is read.
"""
_DOUBT_SECONDS: Final = 5.0
"""A client that was asked whether it lives has this long to answer."""
_FIRST_FRAME_BYTES_MAX: Final = 64 << 10
"""The largest frame before CONNECTED: CONNECT has at most a token and a few names."""


class Questions(Protocol):
    """Requests for the broker that do not concern an open producer or consumer."""

    async def answer(
        self, question: pb.Command, came_in_on: str, identity: Identity, *, has_tls: bool
    ) -> pb.Command | None:
        """Answer a request; ``None`` when it is not one of these.

        A client that came by TLS gets no address without it.

        A refusal is an answer; nothing is raised.
        """
        ...

    def urls_of(
        self, broker: BrokerRegistration, came_in_on: str, *, has_tls: bool
    ) -> tuple[str, str]:
        """Return the URLs of a broker's binary port for a client, as ``pulsar_of_next``."""
        ...

    def native_urls(self, named: str, came_in_on: str, *, has_tls: bool) -> list[str]:
        """Return the service URLs of the own protocol for a client that asks in its CONNECT.

        Args:
            named: the listener that the client names; empty: none.

        Raises ``ServiceNotReady`` when there are none, ``InvalidArgument`` for the listener.
        """
        ...

    async def watch(
        self, asked: pb.WatchTopicList, say: Callable[[pb.Command], None], identity: Identity
    ) -> tuple[TopicWatch | None, pb.Command]:
        """Start a watch.

        Return it, ``None`` when it is refused, and the answer. ``say`` gets the updates.
        """
        ...

    async def may_watch(self, watch: TopicWatch, identity: Identity) -> bool:
        """Return whether a client may still watch. Raises the error when that is not known."""
        ...

    def unwatch(self, watch: TopicWatch) -> None: ...


class Connection(ContainedProtocol):
    """A connection that a listener accepted."""

    def __init__(
        self,
        *,
        world: World,
        config: BrokerConfig,
        traffic: ConnectionTraffic,
        questions: Questions,
        came_in_on: str,
        callers: Callers,
        sessions: OpenSessions,
        make_session: Callable[[str, Tasks, Outbox], Session],
        opened: Callable[[Connection], None],
        ended: Callable[[Connection], None],
    ) -> None:
        super().__init__(world.tasks)
        self._world = world
        self._config = config
        self._traffic = traffic
        self._questions = questions
        self._came_in_on = came_in_on
        self._callers = callers
        self._sessions = sessions
        self._make_session = make_session
        self._opened = opened
        self._ended = ended
        self._peer = ""
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(_FIRST_FRAME_BYTES_MAX)
        self._holds_input = False
        self._wake = asyncio.Event()
        self._outbox = Outbox(
            delivery_bytes_max=config.max_delivery_bytes_per_connection,
            changed=self._wake.set,
            doubt=self._doubt,
        )
        self.session: Session
        self._admitted = False
        self._connected = False
        self._authenticating = False
        self._can_refresh = False
        self._is_refused = False
        self._certificate: Certificate | None = None
        self._has_tls = False
        self._replies: list[bytes] = []
        self._replies_bytes = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._received_at = self._held_since = world.clock.monotonic()
        # Reasons to stop reading: topics or limits are full, the client does not receive, too many
        # requests are open.
        self._reading = True
        self._waiting_for_room = False
        self._bytes = 0
        self._room = asyncio.Event()
        self._questions_open = 0
        # received, and not handled while too many questions are open
        self._behind: list[Frame] = []
        self._finishing = False
        self._is_relayed = False
        self._answers = Answers(self._held, self._urls_of)
        self._watches: dict[int, TopicWatch] = {}
        self._keep_alive_task: asyncio.Task[None] | None = None
        self._is_in_doubt = False

    # -- callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        self._transport = cast("asyncio.Transport", transport)
        # None: the client had closed the connection before it was accepted.
        host, port = (transport.get_extra_info("peername") or ("unknown", 0))[:2]
        self._peer = f"{host}:{port}"
        ssl_object = transport.get_extra_info("ssl_object")
        self._has_tls, self._certificate = ssl_object is not None, certificate_of(ssl_object)
        refused = self._traffic.limits.slots.take(self, str(host))
        if refused:
            _log.warning("connection refused", peer=self._peer, reason=refused)
            error = NotAllowedError(
                f"{refused}; close others, or raise broker_max_connections or "
                "broker_max_connections_per_ip of the broker"
            )
            self._transport.write(command_frame(error_command(NO_REQUEST, error)))
            self._transport.close()
            return
        self._admitted = True
        self._world = contained(self._world, self.scope)
        self.session = self._make_session(self._peer, self._world.tasks, self._outbox)
        self._opened(self)
        _ = self._world.tasks.spawn(self._write(), name=f"writer {self._peer}")
        self._keep_alive_task = self._world.tasks.spawn(
            self._keep_alive(), name=f"keeper {self._peer}"
        )

    def connection_lost(self, exc: Exception | None) -> None:
        _log.debug("connection ended", peer=self._peer, reason=exc or "closed")
        self._transport = None
        if not self._admitted:
            return
        self._behind.clear()
        self._sessions.remove(self)
        # its tasks end later, and must not keep the bytes of an incomplete frame
        self._reader = FrameReader(0)
        self._traffic.limits.slots.leave(self)
        self._traffic.limits.partial_input.set(self, 0)
        self._traffic.limits.unsent.set(self, 0)
        self.session.close()
        for watch in self._watches.values():
            self._questions.unwatch(watch)
        self._watches.clear()
        if self._keep_alive_task is not None:
            # while asleep it would keep all of this in memory; a peer may open thousands of
            # connections per second
            self._keep_alive_task.cancel()
        self._room.set()
        self._writable.set()
        self._wake.set()
        self._ended(self)

    def pause_writing(self) -> None:
        self._writable.clear()
        self._note_unsent()
        self._pace()

    def resume_writing(self) -> None:
        self._writable.set()
        self._traffic.limits.unsent.set(self, 0)
        self._go_on()

    def data_received(self, data: bytes) -> None:
        if not self._admitted or self._is_refused:
            return
        self._received_at = self._world.clock.monotonic()
        frames = self._reader.feed(data)
        if self._behind or self._authenticating:
            self._behind += frames
            self._note_partial_input(progress=False)
        else:
            self._take(frames)
        self._pace()

    def _take(self, frames: Sequence[Frame]) -> None:
        """Handle frames until too many questions are open; the others wait."""
        sends: list[tuple[pb.Send, memoryview]] = []
        try:
            for place, (encoded, payload) in enumerate(frames, 1):
                command = parse_command(encoded)
                if command.type == _SEND and self._connected:
                    sends.append((command.send, payload))
                    continue
                if sends:
                    self._publish(sends)
                    sends = []
                self._handle(command)
                if self._transport is None or self._transport.is_closing():
                    return
                if self._questions_open >= _QUESTIONS_MAX or self._authenticating:
                    self._behind = list(frames[place:])
                    break
            if sends:
                self._publish(sends)
            if self._reader.broken is not None and not self._behind:
                raise self._reader.broken
            self._note_partial_input(progress=bool(frames))
        except (Malformed, ValueError) as error:
            self.abort(f"malformed: {error}")

    def _go_on(self) -> None:
        """Handle the frames that wait, as far as there is room now, and read on or not."""
        while (
            self._behind
            and not self._authenticating
            and self._questions_open <= _QUESTIONS_MAX // 2
            and self._writable.is_set()
            and self._is_open()
        ):
            frames, self._behind = self._behind, []
            self._take(frames)
        self._pace()

    def _note_partial_input(self, *, progress: bool) -> None:
        held_bytes = self._reader.held_bytes
        if self._behind:
            held_bytes += sum(len(frame.command) + len(frame.payload) for frame in self._behind)
        if held_bytes or self._holds_input:
            if progress and self._holds_input:
                # a frame was completed: the time of holding starts again
                self._traffic.limits.partial_input.set(self, 0)
            self._holds_input = held_bytes > 0
            self._traffic.limits.partial_input.set(self, held_bytes)

    def finish(self) -> None:
        """Close after the waiting answers are sent."""
        self._finishing = True
        self._wake.set()

    def abort(self, reason: str) -> None:
        """Close at once. The client may connect again."""
        if self._transport is not None and not self._transport.is_closing():
            _log.warning("connection closed", peer=self._peer, reason=reason)
            self._transport.abort()

    # -- received commands

    def _handle(self, command: pb.Command) -> None:
        if not self._connected:
            self._shake_hands(command)
            return
        kind = command.type
        if kind == _PING:
            self._reply(pb.Command(type=_PONG, pong=pb.Pong()))
        elif kind == _PONG:
            return
        elif kind == _AUTH_RESPONSE:
            self._begin_authentication(self._refresh(command.auth_response.response))
        elif (refused := refused_transaction(command)) is not None:
            self._reply(refused)
        else:
            try:
                asked = session_command(command)
            except NotAllowedError as error:
                self._refuse(command, error)
                return
            if asked is not None:
                if type(asked) is Flow:
                    self._send_notices(asked.consumer_id)
                self._answers.expect(asked)
                self.session.handle(asked)
            elif kind == _CONSUMER_STATS:
                found = self.session.consumer(command.consumer_stats.consumer_id)
                self._reply(
                    consumer_stats(command.consumer_stats, found, self._world.clock.monotonic())
                )
            else:
                self._questions_open += 1
                _ = self._world.tasks.spawn(self._ask(command), name=f"question {self._peer}")

    def _shake_hands(self, command: pb.Command) -> None:
        if command.type != _CONNECT:
            raise Malformed(
                f"a connection begins with CONNECT, not with a command of type {command.type}"
            )
        connect = command.connect
        if self._callers.are_checked:
            self._begin_authentication(self._authenticate(connect))
            return
        if connect.auth_data or connect.auth_method_name not in ("", "none"):
            _log.warning(
                "client connected; its credentials are not checked, because "
                "authentication_enabled is false",
                peer=self._peer,
                client=connect.client_version,
                method=connect.auth_method_name,
            )
        self._accept(connect)

    def _begin_authentication(self, work: Coroutine[object, object, None]) -> None:
        """Handle nothing that the client sends until ``work`` is done."""
        self._authenticating = True
        _ = self._world.tasks.spawn(self._after(work), name=f"authentication {self._peer}")

    async def _after(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except PulsarishError as error:
            self.end_rights(error)
            return
        self._authenticating = False
        self._go_on()

    async def _authenticate(self, connect: pb.Connect) -> None:
        original = Original(
            connect.original_principal,
            shown_in_connect(connect.original_auth_method, connect.original_auth_data),
        )
        shown = shown_in_connect(connect.auth_method_name, connect.auth_data)
        self.session.identity = await self._callers.identify(
            shown, self._certificate, original, Origin(self._peer, "binary")
        )
        self._can_refresh = connect.feature_flags.supports_auth_refresh
        if self._is_open():
            self._sessions.add(self)
            self._accept(connect)

    async def _refresh(self, response: pb.AuthData) -> None:
        """Take new credentials, which must be those of the same role."""
        try:
            self.session.identity = await self._callers.refresh(
                shown_in_connect(response.auth_method_name, response.auth_data),
                self._certificate,
                self.session.identity,
            )
        except PulsarishError as error:
            if not error.retryable:
                raise
            # The ones before are valid until they end.
            _log.warning("credentials could not be checked", peer=self._peer, reason=error)
            return
        if self._is_open():
            self._sessions.add(self)

    async def check_again(self) -> None:
        await self.session.check_again()
        for watcher_id, watch in list(self._watches.items()):
            may_watch = await self._questions.may_watch(watch, self.session.identity)
            if not may_watch and self._watches.get(watcher_id) is watch:
                # The protocol has no word for it. The client asks for lists, and is told.
                self._questions.unwatch(self._watches.pop(watcher_id))

    def challenge(self) -> None:
        if self._can_refresh:
            challenge = pb.AuthChallenge(
                server_version="Pulsarish",
                protocol_version=PROTOCOL_VERSION,
                challenge=pb.AuthData(
                    auth_method_name=self.session.identity.method, auth_data=_REFRESH
                ),
            )
            self._reply(pb.Command(type=_AUTH_CHALLENGE, auth_challenge=challenge))

    def end_rights(self, error: PulsarishError) -> None:
        _log.warning("client refused", peer=self._peer, reason=error)
        self._reply(error_command(NO_REQUEST, error))
        # What the client opened ends now, also when it does not take this answer.
        self._is_refused = True
        self._behind.clear()
        self.session.close()
        self.finish()
        _ = self._world.tasks.spawn(self._abort_refused(), name=f"refused {self._peer}")

    async def _abort_refused(self) -> None:
        await self._world.clock.sleep(_REFUSED_SECONDS)
        self.abort("it did not take the refusal of its credentials")

    def _accept(self, connect: pb.Connect) -> None:
        native_urls: list[str] = []
        if connect.wants_native_urls:
            try:
                native_urls = self._questions.native_urls(
                    connect.listener_name, self._came_in_on, has_tls=self._has_tls
                )
            except PulsarishError as error:
                self.end_rights(error)
                return
        self._connected = True
        self._is_relayed = bool(connect.proxy_version or connect.original_principal)
        self._reader.frame_bytes_max = self._config.max_message_size_bytes + ENVELOPE_BYTES_MAX
        self._traffic.limits.slots.mark_active(self)
        self.session.note_client_version(connect.client_version)
        version = min(connect.protocol_version, PROTOCOL_VERSION)
        _log.debug(
            "client connected",
            peer=self._peer,
            client=connect.client_version,
            version=version,
            role=self.session.identity.role,
        )
        flags = pb.FeatureFlags(
            supports_get_partitioned_metadata_without_auto_creation=True,
            supports_topic_watchers=True,
        )
        connected = pb.Connected(
            server_version="Pulsarish",
            protocol_version=version,
            max_message_size=self._config.max_message_size_bytes,
            feature_flags=flags,
            native_urls=native_urls,
        )
        self._reply(pb.Command(type=3, connected=connected))

    def _publish(self, sends: Sequence[tuple[pb.Send, memoryview]]) -> None:
        self._traffic.flows()
        producer_ids: list[int] = []
        entries: list[memoryview] = []
        names: list[tuple[int, int]] = []
        size_bytes = 0
        for send, payload in sends:
            if send.txnid_least_bits or send.txnid_most_bits:
                raise Malformed("SEND in a transaction; there are none here")
            self._answers.check_opened(send.producer_id)
            producer_ids.append(send.producer_id)
            names.append((send.sequence_id, send.highest_sequence_id))
            entry = carried_entry(payload)
            size_bytes += len(entry)
            entries.append(entry if type(entry) is memoryview else memoryview(entry))
        self._bytes += size_bytes
        self._traffic.budget.use(size_bytes)
        request = PublishRequest(len(entries), size_bytes, self._resolved, self._received_at)
        self.session.publish(producer_ids, entries, request, names)

    def _resolved(self, _request: PublishRequest, size_bytes: int) -> None:
        self._bytes -= size_bytes
        self._traffic.budget.release(size_bytes)
        if self._bytes < self._config.max_publish_bytes_per_connection:
            self._room.set()

    def _pace(self) -> None:
        """Pause or resume reading."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not self._waiting_for_room and (
            self.session.full
            or self._bytes >= self._config.max_publish_bytes_per_connection
            or self._traffic.budget.full
        ):
            self._waiting_for_room = True
            _ = self._world.tasks.spawn(self._wait_for_room(), name=f"room {self._peer}")
        wanted = (
            not (
                self._waiting_for_room
                or self._behind
                or self._authenticating
                or self._questions_open >= _QUESTIONS_MAX
            )
            and self._writable.is_set()
        )
        if wanted != self._reading:
            self._reading = wanted
            now = self._world.clock.monotonic()
            if wanted:
                self._received_at = now
                transport.resume_reading()
            else:
                self._held_since = now
                transport.pause_reading()

    async def _wait_for_room(self) -> None:
        await self.session.wait_for_room()
        while self._transport is not None and (
            self._bytes >= self._config.max_publish_bytes_per_connection
            or self._traffic.budget.full
        ):
            if self._traffic.budget.full:
                await self._traffic.budget.wait_for_room()
            else:
                self._room.clear()
                await self._room.wait()
        self._waiting_for_room = False
        self._pace()

    async def _ask(self, command: pb.Command) -> None:
        if not self._is_open():
            return
        if command.type == _WATCH_TOPIC_LIST:
            await self._watch(command.watch_topic_list)
        elif command.type == _WATCH_TOPIC_LIST_CLOSE:
            self._unwatch(command.watch_topic_list_close)
        elif (
            answer := await self._questions.answer(
                command, self._came_in_on, self.session.identity, has_tls=self._has_tls
            )
        ) is not None:
            self._reply(answer)
        else:
            _log.warning("unknown command", peer=self._peer, type=command.type)
            if (refused := refused_unknown(command)) is not None:
                self._reply(refused)
        self._questions_open -= 1
        self._go_on()

    async def _watch(self, asked: pb.WatchTopicList) -> None:
        watch, answer = await self._questions.watch(asked, self._reply, self.session.identity)
        if watch is not None:
            before = self._watches.pop(asked.watcher_id, None)
            if before is not None:
                self._questions.unwatch(before)
            self._watches[asked.watcher_id] = watch
            if self._transport is None or len(self._watches) > _WATCHES_MAX:
                self._questions.unwatch(self._watches.pop(asked.watcher_id))
                error = NotAllowedError(
                    f"a connection may watch {_WATCHES_MAX} patterns; close some"
                )
                answer = error_command(asked.request_id, error)
        self._reply(answer)

    def _unwatch(self, asked: pb.WatchTopicListClose) -> None:
        watch = self._watches.pop(asked.watcher_id, None)
        if watch is not None:
            self._questions.unwatch(watch)
        self._reply(pb.Command(type=13, success=pb.Success(request_id=asked.request_id)))

    def _refuse(self, command: pb.Command, error: PulsarishError) -> None:
        if command.type == 10:
            number, text = failure(error)
            ack = command.ack
            answer = pb.AckResponse(
                consumer_id=ack.consumer_id, request_id=ack.request_id, error=number, message=text
            )
            self._reply(pb.Command(type=38, ack_response=answer))
        else:
            self._reply(error_command(command.producer.request_id, error))

    # -- sent answers and deliveries

    def _urls_of(self, broker: BrokerRegistration) -> tuple[str, str]:
        """Return where this client finds another broker; empty: it has to look up.

        A client behind a proxy asks the proxy.
        """
        if self._is_relayed:
            return "", ""
        return self._questions.urls_of(broker, self._came_in_on, has_tls=self._has_tls)

    def _send_notices(self, consumer_id: int) -> None:
        for frame in self._answers.take_notices(consumer_id):
            self._send(frame)

    def _held(self, consumer_id: int) -> None:
        async def tell() -> None:
            await self._world.clock.sleep(_UNHEARD_SECONDS_MAX)
            self._send_notices(consumer_id)

        _ = self._world.tasks.spawn(tell(), name=f"unheard {self._peer}")

    def _reply(self, command: pb.Command) -> None:
        self._send(command_frame(command))

    def _send(self, frame: bytes) -> None:
        if not self._is_open():
            return
        self._replies.append(frame)
        self._replies_bytes += len(frame)
        if not self._writable.is_set():
            self._note_unsent()
        self._wake.set()

    def _note_unsent(self) -> None:
        """Count what the client does not receive. This may end the connection."""
        if self._transport is not None:
            self._traffic.limits.unsent.set(
                self, self._transport.get_write_buffer_size() + self._replies_bytes
            )

    def _is_open(self) -> bool:
        return self._transport is not None

    async def _write(self) -> None:
        outbox, wake = self._outbox, self._wake
        while self._is_open() and not self._finishing:
            await wake.wait()
            wake.clear()
            while True:
                await self._writable.wait()
                # The connection may have ended during the wait, and uvloop's transports refuse
                # writes after that.
                transport = self._transport
                if transport is None:
                    return
                parts: list[bytes | memoryview] = []
                if self._replies:
                    parts.extend(self._replies)
                    self._replies.clear()
                    self._replies_bytes = 0
                answers = outbox.answers
                while answers:
                    self._answers.encode(answers.popleft(), parts)
                self._take_deliveries(parts)
                if not parts:
                    break
                transport.writelines(parts)
        if self._transport is not None:
            self._transport.close()

    def _take_deliveries(self, parts: list[bytes | memoryview]) -> None:
        outbox = self._outbox
        if outbox.deliveries:
            self._encode_deliveries(
                outbox.take_deliveries(self._config.message_bytes_target), parts
            )
        if outbox.take_room_again():
            self.session.room_again()

    def _encode_deliveries(
        self, deliveries: Sequence[tuple[int, Delivery]], parts: list[bytes | memoryview]
    ) -> None:
        partitions = self._answers.partitions
        # Consumers of one topic get an entry after each other.
        known: Position | None = None
        place = b""
        for consumer_id, (
            position,
            payload,
            _,
            redelivery_count,
            ack_set,
            epoch,
        ) in deliveries:
            if position is not known:
                known, place = position, delivery_place(position, partitions.get(consumer_id, -1))
            head = delivery_frame_head(
                consumer_id,
                place,
                len(payload),
                redelivery_count=redelivery_count,
                ack_set=ack_words(ack_set),
                epoch=epoch,
            )
            parts.append(head)
            parts.append(payload)
        self._traffic.flows()

    # -- keep-alive

    async def _keep_alive(self) -> None:
        interval, limit = (
            self._config.keep_alive_interval_seconds,
            self._config.keep_alive_timeout_seconds,
        )
        clock = self._world.clock
        connected_until = clock.monotonic() + self._config.connect_timeout_seconds
        while self._transport is not None:
            await clock.sleep(
                interval
                if self._connected
                else max(min(interval, connected_until - clock.monotonic()), 0)
            )
            now = clock.monotonic()
            if not self._connected and now >= connected_until:
                self.abort(f"no CONNECT was received in {self._config.connect_timeout_seconds} s")
            elif not self._writable.is_set() and now - self._held_since > limit:
                self.abort(f"nothing that was sent was taken for {limit} s")
            elif self._reading and now - self._received_at > limit:
                self.abort(f"nothing was received for {limit} s")
            elif self._connected and now - self._received_at >= interval / 2:
                self._reply(pb.Command(type=_PING, ping=pb.Ping()))

    def _doubt(self) -> None:
        """Ask the client whether it lives: another one asks for what this one has."""
        if not self._is_in_doubt and self._transport is not None:
            self._is_in_doubt = True
            _ = self._world.tasks.spawn(self._find_out(), name=f"doubt {self._peer}")

    async def _find_out(self) -> None:
        clock = self._world.clock
        asked_at = clock.monotonic()
        self._reply(pb.Command(type=_PING, ping=pb.Ping()))
        await clock.sleep(_DOUBT_SECONDS)
        self._is_in_doubt = False
        if self._reading and self._received_at < asked_at:
            self.abort(f"nothing was received for {_DOUBT_SECONDS} s, and another client waits")
