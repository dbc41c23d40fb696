"""A client's connection to the proxy.

It begins with CONNECT. One that names a broker is passed on to it, byte for byte from then on, if the broker may be relayed to. Any other
one asks questions: lookups are followed to their end, so that the answer names the owner, with the word that it is reached through here.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, cast

from pulsarish.model.errors import Malformed, NotAllowed, PulsarishError, ServiceNotReady
from pulsarish.proxy.broker_link import BrokerLinks
from pulsarish.proxy.brokers import KnownBrokers
from pulsarish.proxy.config import ProxyConfig
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import StreamBroken, World
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import ENVELOPE_BYTES_MAX, FrameReader, command_body, command_frame, parse_command

__all__ = ["ClientConnection", "Counts"]

_log = get_logger("proxy")

_PROTOCOL_VERSION: Final = 20
_REDIRECTS_MAX: Final = 10
_QUESTIONS_MAX: Final = 1_000
_ASKED_OF_BROKERS: Final = frozenset({21, 32, 34, 39})
_NEED_A_BROKER: Final = "this connection is for lookups; connect to the broker that a lookup names, through this proxy"


class Counts(Protocol):
    """Who counts connections."""

    def opened(self, connection: ClientConnection) -> bool:
        """False when there are too many."""
        ...

    def ended(self, connection: ClientConnection) -> None: ...

    def relayed(self, size_bytes: int) -> None: ...


class _Other(asyncio.Protocol):
    """The broker's end of a relayed connection."""

    def __init__(self, client: ClientConnection) -> None:
        self.transport: asyncio.Transport | None = None
        self._client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._client.to_client(data)

    def pause_writing(self) -> None:
        self._client.read(wanted=False)

    def resume_writing(self) -> None:
        self._client.read(wanted=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._client.close()


class ClientConnection(asyncio.Protocol):
    """Made for each connection that is accepted."""

    def __init__(self, world: World, config: ProxyConfig, brokers: KnownBrokers, links: BrokerLinks, counts: Counts) -> None:
        self._world = world
        self._config = config
        self._brokers = brokers
        self._links = links
        self._counts = counts
        self._transport: asyncio.Transport | None = None
        self._reader: FrameReader | None = FrameReader(config.max_message_size_bytes + ENVELOPE_BYTES_MAX)  # until bytes are relayed
        self._held = bytearray()  # came while the broker was being connected to
        self._connected = False
        self._other: _Other | None = None
        self._peer = ""
        self._questions = 0
        self._received_at = world.clock.monotonic()

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        host, port = transport.get_extra_info("peername")[:2]
        self._peer = f"{host}:{port}"
        if not self._counts.opened(self):
            self._transport.abort()
            return
        _ = self._world.tasks.spawn(self._keep_alive(), name=f"keeper {self._peer}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._counts.ended(self)
        if self._other is not None and self._other.transport is not None:
            self._other.transport.close()

    def pause_writing(self) -> None:
        if self._other is not None and self._other.transport is not None:
            self._other.transport.pause_reading()
        else:
            self.read(wanted=False)

    def resume_writing(self) -> None:
        if self._other is not None and self._other.transport is not None:
            self._other.transport.resume_reading()
        else:
            self.read(wanted=True)

    def data_received(self, data: bytes) -> None:
        self._received_at = self._world.clock.monotonic()
        if self._other is not None:
            if self._reader is not None:
                self._held += data
            elif self._other.transport is not None:
                self._counts.relayed(len(data))
                self._other.transport.write(data)
            return
        assert self._reader is not None
        try:
            for frame in self._reader.feed(data):
                if self._handle(parse_command(frame.command)):
                    return  # clients send nothing more before the CONNECT that is passed on is answered
            if self._reader.broken is not None:
                raise self._reader.broken
        except Malformed as error:
            _log.warning("connection closed", peer=self._peer, reason=f"malformed: {error}")
            self.close()

    def to_client(self, data: bytes) -> None:
        self._counts.relayed(len(data))
        if self._transport is not None:
            self._transport.write(data)

    def read(self, *, wanted: bool) -> None:
        """Read on from the client or not."""
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    def close(self) -> None:
        """What was written is sent first."""
        if self._transport is not None:
            self._transport.close()

    # -- what comes in

    def _handle(self, command: pb.Command) -> bool:
        """Whether the connection belongs to a broker from here on."""
        if not self._connected:
            if command.type != 2:
                raise Malformed(f"a connection begins with CONNECT, not with a command of type {command.type}")
            self._connected = True
            if command.connect.proxy_to_broker_url:
                self._other = _Other(self)
                _ = self._world.tasks.spawn(self._pass_on(command, self._other), name=f"relay {self._peer}")
                return True
            version = min(command.connect.protocol_version, _PROTOCOL_VERSION)
            flags = pb.FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True)
            size = self._config.max_message_size_bytes
            connected = pb.Connected(server_version="Pulsarish-proxy", protocol_version=version, max_message_size=size, feature_flags=flags)
            self._say(pb.Command(type=3, connected=connected))
        elif command.type == 18:
            self._say(pb.Command(type=19, pong=pb.Pong()))
        elif command.type == 23 or command.type in _ASKED_OF_BROKERS:
            self._questions += 1
            if self._questions >= _QUESTIONS_MAX:
                self.read(wanted=False)
            _ = self._world.tasks.spawn(self._answer(command), name=f"question {self._peer}")
        elif command.type != 19:
            body = command_body(command)
            request_id = 0 if body is None else body.request_id
            self._say(_refusal(command.type, request_id, NotAllowed(_NEED_A_BROKER)))
        return False

    async def _pass_on(self, command: pb.Command, other: _Other) -> None:
        """Connect to the broker that the client names, and give it the client's CONNECT as if it had come straight."""
        address = command.connect.proxy_to_broker_url.rpartition("://")[2].rstrip("/")
        try:
            if not self._brokers.allowed(address):
                raise NotAllowed(f"{address} is no broker that this proxy may connect to")
            async with self._world.clock.timeout(self._config.broker_connect_timeout_seconds):
                await self._world.connections.open_bytes(address, lambda: other)
        except (PulsarishError, StreamBroken, TimeoutError) as error:
            _log.warning("not relayed", peer=self._peer, broker=address, reason=error or "no connection in time")
            self._say(_refusal(2, 0, error if isinstance(error, NotAllowed) else ServiceNotReady(f"broker {address} is away: {error}")))
            self.close()
            return
        if self._transport is None or other.transport is None:
            if other.transport is not None:
                other.transport.abort()
            return
        command.connect.ClearField("proxy_to_broker_url")
        other.transport.write(command_frame(command) + bytes(self._held))
        self._held.clear()
        self._reader = None

    async def _answer(self, question: pb.Command) -> None:
        body = command_body(question)
        assert body is not None
        request_id, kind = body.request_id, question.type
        try:
            answer = await (self._look_up(question) if kind == 23 else self._links.ask(self._brokers.any(), question))
        except PulsarishError as error:
            answer = _refusal(kind, request_id, error)
        self._say(answer)
        self._questions -= 1
        if self._questions == _QUESTIONS_MAX // 2:
            self.read(wanted=True)

    async def _look_up(self, question: pb.Command) -> pb.Command:
        request_id = question.lookup.request_id
        address, authoritative = self._brokers.any(), question.lookup.authoritative
        topic = question.lookup.topic
        for _ in range(_REDIRECTS_MAX):
            lookup = pb.LookupTopic(topic=topic, request_id=request_id, authoritative=authoritative)
            if self._config.broker_listener_name:
                lookup.advertised_listener_name = self._config.broker_listener_name
            answer = await self._links.ask(address, pb.Command(type=23, lookup=lookup))
            found = answer.lookup_response
            if found.response == pb.LookupTopicResponse.FAILED:
                return answer
            address = found.broker_service_url.rpartition("://")[2]
            if not self._brokers.allowed(address):
                raise ServiceNotReady(f"{topic} is served by {address}, which this proxy does not know or may not relay to; try again")
            if found.response == pb.LookupTopicResponse.CONNECT:
                found.proxy_through_service_url = True
                return answer
            authoritative = found.authoritative
        raise ServiceNotReady(f"{topic} was not found within {_REDIRECTS_MAX} redirections; try again")

    def _say(self, command: pb.Command) -> None:
        if self._transport is not None:
            self._transport.write(command_frame(command))

    async def _keep_alive(self) -> None:
        """Ends silent connections for lookups. On relayed ones broker and client see to that themselves."""
        interval, limit = self._config.keep_alive_interval_seconds, self._config.keep_alive_timeout_seconds
        while not self._not_for_lookups():
            await self._world.clock.sleep(interval)
            silent = self._world.clock.monotonic() - self._received_at
            if self._not_for_lookups():
                return
            if silent > limit:
                self.close()
            elif self._connected and silent >= interval / 2:
                self._say(pb.Command(type=18, ping=pb.Ping()))

    def _not_for_lookups(self) -> bool:
        return self._transport is None or self._other is not None


def _refusal(kind: int, request_id: int, error: PulsarishError) -> pb.Command:
    number = pb.METADATA_ERROR if error.retryable else pb.NOT_ALLOWED_ERROR
    if kind == 23:
        failed = pb.LookupTopicResponse(request_id=request_id, response=pb.LookupTopicResponse.FAILED, error=number, message=str(error))
        return pb.Command(type=24, lookup_response=failed)
    if kind == 21:
        refused = pb.PartitionedMetadataResponse.FAILED
        answer = pb.PartitionedMetadataResponse(request_id=request_id, response=refused, error=number, message=str(error))
        return pb.Command(type=22, partitioned_metadata_response=answer)
    return pb.Command(type=14, error=pb.Error(request_id=request_id, error=number, message=str(error)))
