"""A client's connection to the proxy.

It begins with CONNECT. If CONNECT names a broker, and clients may be relayed to it, the connection
is passed on to that broker, byte for byte from then on. Any other connection asks questions. The
proxy follows lookups to their end, so that the answer names the owner, and says that the owner is
reached through the proxy.

All clients that ask share one connection to each broker. So a client may have few open questions at
a time, and they must be small. The proxy does not begin its next ones while it does not receive
answers.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from pulsarish.model.errors import (
    AuthenticationError,
    Malformed,
    NotAllowedError,
    PulsarishError,
    ServiceNotReady,
)
from pulsarish.proxy.broker_link import BrokerLinks, Shown
from pulsarish.proxy.brokers import KnownBrokers
from pulsarish.proxy.config import ProxyConfig
from pulsarish.proxy.relayed import Counts, RelayedConnection
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World
from pulsarish.security.callers import Original
from pulsarish.security.credentials import NO_CREDENTIALS, Credentials, shown_in_connect
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import FrameReader, command_body, command_frame, parse_command

__all__ = ["ClientConnection"]

_log = get_logger("proxy")

_PROTOCOL_VERSION: Final = 20
_SERVER_VERSION: Final = "Pulsarish-proxy"
_REDIRECTS_MAX: Final = 10
_FIRST_FRAME_BYTES_MAX: Final = 64 << 10
"""The largest frame before CONNECTED: CONNECT has at most a token and a few names."""
_QUESTIONS_MAX: Final = 20
"""Questions of one connection that wait for a broker's answer.

The next ones wait until one of them is answered. A broker answers 100 questions of a connection at
a time, and all clients of the proxy share that connection.
"""
_QUESTION_BYTES_MAX: Final = 1 << 20
"""The largest question: one with a schema, which has to fit into a node of the metadata."""
_QUESTION_COST_BYTES: Final = 4 << 10
"""The memory of an open question besides its bytes."""
_COMMAND_COST_BYTES: Final = 64
"""The memory of a received command that is not begun, besides its bytes."""
_ASKED_OF_BROKERS: Final = frozenset({21, 32, 34, 39})
_NEED_A_BROKER: Final = (
    "this connection is for lookups; connect to the broker that a lookup names, through this proxy"
)

_NEEDS_CREDENTIALS: Final = (
    "this proxy shows brokers a certificate of its own, so a client without credentials would be "
    "taken for the proxy; show a token or another credential that is no certificate"
)


class ClientConnection(RelayedConnection):
    """One accepted connection of a client of the binary protocol."""

    def __init__(
        self,
        world: World,
        config: ProxyConfig,
        brokers: KnownBrokers,
        links: BrokerLinks,
        counts: Counts,
    ) -> None:
        super().__init__(world, config, brokers, counts)
        self._links = links
        self._reader = FrameReader(_FIRST_FRAME_BYTES_MAX)
        self._connected = False
        self._shown = Shown()
        self._passed_on = False
        self._commands: deque[bytes] = deque()  # received and not begun
        self._commands_bytes = 0
        self._questions = 0
        self._questions_bytes = 0
        self._received_at = self._held_since = world.clock.monotonic()

    def begun(self) -> None:
        self.watch(self._keep_alive(), "keeper")

    def received(self, data: bytes) -> None:
        self._received_at = self._world.clock.monotonic()
        for frame in self._reader.feed(data):
            self._commands.append(frame.command)
            self._commands_bytes += len(frame.command) + _COMMAND_COST_BYTES
        self.pace()

    def pace(self) -> None:
        """Begin received questions as far as the limits allow, and read on or pause."""
        try:
            while self._commands and self._may_begin():
                encoded = self._commands.popleft()
                self._commands_bytes -= len(encoded) + _COMMAND_COST_BYTES
                command = parse_command(encoded)
                _check_required(command)
                self._handle(command, len(encoded))
            if self._reader.broken is not None and not self._commands and not self._passed_on:
                raise self._reader.broken
        except Malformed as error:
            self.abort(f"malformed: {error}")
            return
        reading = self._reading
        self.read(wanted=not self._commands and self._may_begin())
        if reading != self._reading:
            self._received_at = self._held_since = self._world.clock.monotonic()
        if not self._passed_on:
            self.input_waits(self._reader.held_bytes + self._commands_bytes + self._questions_bytes)

    def _may_begin(self) -> bool:
        return (
            self.alive
            and not self._passed_on
            and not self._unsent
            and self._questions < _QUESTIONS_MAX
        )

    def _handle(self, command: pb.Command, size_bytes: int) -> None:
        if not self._connected:
            if command.type != 2:
                raise Malformed(
                    f"a connection begins with CONNECT, not with a command of type {command.type}"
                )
            self._connected = True
            self.started()
            # A broker accepts frames a little larger than the largest message, so that a question
            # may grow on its way.
            self._reader.frame_bytes_max = min(
                self._config.max_message_size_bytes, _QUESTION_BYTES_MAX
            )
            connect = command.connect
            credentials = shown_in_connect(connect.auth_method_name, connect.auth_data)
            original = shown_in_connect(connect.original_auth_method, connect.original_auth_data)
            self._shown = Shown(credentials, Original(connect.original_principal, original))
            if self._config.broker_client_certificate_file_path and _has_only_certificate(
                credentials
            ):
                self._passed_on = True  # nothing more of it is looked at
                self._say(_refusal(2, 0, AuthenticationError(_NEEDS_CREDENTIALS)))
                self.close()
                return
            if connect.proxy_to_broker_url:
                self._passed_on = True
                address = command.connect.proxy_to_broker_url.rpartition("://")[2].rstrip("/")
                command.connect.ClearField("proxy_to_broker_url")
                command.connect.proxy_version = _SERVER_VERSION
                self.hold(command_frame(command))
                self.watch(self._connect(address), "relay")
                return
            version = min(command.connect.protocol_version, _PROTOCOL_VERSION)
            flags = pb.FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True)
            size = self._config.max_message_size_bytes
            connected = pb.Connected(
                server_version=_SERVER_VERSION,
                protocol_version=version,
                max_message_size=size,
                feature_flags=flags,
            )
            if connect.wants_native_urls and not self._name_brokers(connected):
                return
            self._say(pb.Command(type=3, connected=connected))
        elif command.type == 18:
            self._say(pb.Command(type=19, pong=pb.Pong()))
        elif command.type == 23 or command.type in _ASKED_OF_BROKERS:
            self._questions += 1
            self._questions_bytes += size_bytes + _QUESTION_COST_BYTES
            self.watch(self._answer(command, size_bytes), "question")
        elif command.type != 19:
            body = command_body(command)
            request_id = 0 if body is None else body.request_id
            self._say(_refusal(command.type, request_id, NotAllowedError(_NEED_A_BROKER)))

    def _name_brokers(self, connected: pb.Connected) -> bool:
        """Say where brokers' own protocol is, and the port of CONNECT by which clients get there.

        Return whether that could be said; a client that asks for it is refused otherwise.
        """
        try:
            port = self._counts.connect_port()
            connected.native_urls.extend(self._brokers.native_urls(has_tls=self.has_tls))
        except PulsarishError as error:
            self._passed_on = True  # nothing more of it is looked at
            self._say(_refusal(2, 0, error))
            self.close()
            return False
        connected.connect_port = port
        return True

    async def _connect(self, address: str) -> None:
        """Send the client's CONNECT to the broker that it names, as if the client had connected
        directly.
        """
        try:
            await self.pass_on(self._brokers.binary(address))
        except PulsarishError as error:
            _log.warning("not relayed", peer=self.peer, broker=address, reason=error)
            self._say(_refusal(2, 0, error))
            self.close()

    async def _answer(self, question: pb.Command, size_bytes: int) -> None:
        body = command_body(question)
        assert body is not None
        request_id, kind = body.request_id, question.type
        try:
            answer = await (
                self._look_up(question)
                if kind == 23
                else self._links.ask(
                    self._brokers.binary(self._brokers.any()), question, self._shown
                )
            )
        except PulsarishError as error:
            answer = _refusal(kind, request_id, error)
        self._say(answer)
        self._questions -= 1
        self._questions_bytes -= size_bytes + _QUESTION_COST_BYTES
        self.input_waits(0)  # it made progress, and its waiting time starts again
        self.pace()

    async def _look_up(self, question: pb.Command) -> pb.Command:
        request_id = question.lookup.request_id
        has_tls = self._config.tls_enabled_with_broker
        address, authoritative = (
            self._brokers.binary(self._brokers.any()),
            question.lookup.authoritative,
        )
        topic = question.lookup.topic
        for _ in range(_REDIRECTS_MAX):
            lookup = pb.LookupTopic(topic=topic, request_id=request_id, authoritative=authoritative)
            if self._config.broker_listener_name:
                lookup.advertised_listener_name = self._config.broker_listener_name
            answer = await self._links.ask(address, pb.Command(type=23, lookup=lookup), self._shown)
            found = answer.lookup_response
            if found.response == pb.LookupTopicResponse.FAILED:
                return answer
            url = found.broker_service_url_tls if has_tls else found.broker_service_url
            if not url:
                raise ServiceNotReady(
                    f"{topic} is served by a broker {'without' if has_tls else 'with only'} TLS, "
                    f"at {found.broker_service_url or found.broker_service_url_tls}, and this "
                    f"proxy connects to brokers {'with' if has_tls else 'without'} it (option "
                    "tls_enabled_with_broker)"
                )
            try:
                address = self._brokers.binary(url.rpartition("://")[2])
            except NotAllowedError as error:
                # The broker may have registered just now, and the proxy does not know it yet.
                raise ServiceNotReady(f"{topic} is served by {url}: {error}; try again") from None
            if found.response == pb.LookupTopicResponse.CONNECT:
                # Whether the client speaks TLS with the proxy says nothing of the way behind it.
                found.broker_service_url = found.broker_service_url_tls = url
                found.proxy_through_service_url = True
                return answer
            authoritative = found.authoritative
        raise ServiceNotReady(
            f"{topic} was not found within {_REDIRECTS_MAX} redirections; try again"
        )

    def _say(self, command: pb.Command) -> None:
        self.write(command_frame(command))

    async def _keep_alive(self) -> None:
        """Close silent connections that ask questions.

        On relayed ones broker and client do that themselves.
        """
        interval, limit = (
            self._config.keep_alive_interval_seconds,
            self._config.keep_alive_timeout_seconds,
        )
        while not self._not_for_lookups():
            await self._world.clock.sleep(interval)
            now = self._world.clock.monotonic()
            silent = now - self._received_at
            if self._not_for_lookups():
                return
            if self._unsent and now - self._held_since > limit:
                self.abort(f"the client received nothing for {limit:g} s")
            elif self._reading and silent > limit:
                self.abort(f"nothing was received for {limit:g} s")
            elif self._connected and silent >= interval / 2:
                self._say(pb.Command(type=18, ping=pb.Ping()))

    def _not_for_lookups(self) -> bool:
        return not self.alive or self._passed_on


def _has_only_certificate(credentials: Credentials) -> bool:
    """Whether a broker would know the client by the certificate of its connection."""
    return credentials == NO_CREDENTIALS or credentials.method == "tls"


def _check_required(command: pb.Command) -> None:
    """Raise ``Malformed`` for a command without a required field: it could not be encoded again for
    a broker.
    """
    body = command_body(command)
    if not command.IsInitialized() or (body is not None and not body.IsInitialized()):
        raise Malformed(f"a command of type {command.type} misses a required field")


def _refusal(kind: int, request_id: int, error: PulsarishError) -> pb.Command:
    number = pb.METADATA_ERROR if error.retryable else pb.NOT_ALLOWED_ERROR
    if isinstance(error, AuthenticationError):
        number = pb.AUTHENTICATION_ERROR
    if kind == 23:
        failed = pb.LookupTopicResponse(
            request_id=request_id,
            response=pb.LookupTopicResponse.FAILED,
            error=number,
            message=str(error),
        )
        return pb.Command(type=24, lookup_response=failed)
    if kind == 21:
        refused = pb.PartitionedMetadataResponse.FAILED
        answer = pb.PartitionedMetadataResponse(
            request_id=request_id, response=refused, error=number, message=str(error)
        )
        return pb.Command(type=22, partitioned_metadata_response=answer)
    return pb.Command(
        type=14, error=pb.Error(request_id=request_id, error=number, message=str(error))
    )
