"""A client's connection to the proxy.

It begins with CONNECT. One that names a broker is passed on to it, byte for byte from then on, if the broker may be relayed to. Any other
one asks questions: lookups are followed to their end, so that the answer names the owner, with the word that it is reached through here.
"""

from __future__ import annotations

from typing import Final

from pulsarish.model.errors import Malformed, NotAllowed, PulsarishError, ServiceNotReady
from pulsarish.proxy.broker_link import BrokerLinks
from pulsarish.proxy.brokers import KnownBrokers
from pulsarish.proxy.config import ProxyConfig
from pulsarish.proxy.relayed import Counts, RelayedConnection
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import ENVELOPE_BYTES_MAX, FrameReader, command_body, command_frame, parse_command

__all__ = ["ClientConnection"]

_log = get_logger("proxy")

_PROTOCOL_VERSION: Final = 20
_REDIRECTS_MAX: Final = 10
_FIRST_FRAME_BYTES_MAX: Final = 64 << 10
"""The largest frame before CONNECTED: CONNECT has at most a token and a few names."""
_QUESTIONS_MAX: Final = 1_000
_ASKED_OF_BROKERS: Final = frozenset({21, 32, 34, 39})
_NEED_A_BROKER: Final = "this connection is for lookups; connect to the broker that a lookup names, through this proxy"


class ClientConnection(RelayedConnection):
    """Made for each connection that is accepted."""

    def __init__(self, world: World, config: ProxyConfig, brokers: KnownBrokers, links: BrokerLinks, counts: Counts) -> None:
        super().__init__(world, config, brokers, counts)
        self._links = links
        self._reader = FrameReader(_FIRST_FRAME_BYTES_MAX)
        self._connected = False
        self._passed_on = False
        self._questions = 0
        self._received_at = world.clock.monotonic()

    def begun(self) -> None:
        self.watch(self._keep_alive(), "keeper")

    def received(self, data: bytes) -> None:
        self._received_at = self._world.clock.monotonic()
        try:
            for frame in self._reader.feed(data):
                command = parse_command(frame.command)
                _check_required(command)
                self._handle(command)
                if self._passed_on:
                    return  # clients send nothing more before the CONNECT that is passed on is answered
            if self._reader.broken is not None:
                raise self._reader.broken
        except Malformed as error:
            self.abort(f"malformed: {error}")
            return
        self._counts.limits.partial_input.set(self, self._reader.held_bytes)

    # -- what comes in

    def _handle(self, command: pb.Command) -> None:
        if not self._connected:
            if command.type != 2:
                raise Malformed(f"a connection begins with CONNECT, not with a command of type {command.type}")
            self._connected = True
            self.started()
            self._reader.frame_bytes_max = self._config.max_message_size_bytes + ENVELOPE_BYTES_MAX
            if command.connect.proxy_to_broker_url:
                self._passed_on = True
                self.hold()
                _ = self._world.tasks.spawn(self._connect(command), name=f"relay {self.peer}")
                return
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
            _ = self._world.tasks.spawn(self._answer(command), name=f"question {self.peer}")
        elif command.type != 19:
            body = command_body(command)
            request_id = 0 if body is None else body.request_id
            self._say(_refusal(command.type, request_id, NotAllowed(_NEED_A_BROKER)))

    async def _connect(self, command: pb.Command) -> None:
        """Give the broker that the client names the client's CONNECT as if it had come straight."""
        address = command.connect.proxy_to_broker_url.rpartition("://")[2].rstrip("/")
        command.connect.ClearField("proxy_to_broker_url")
        try:
            self._brokers.check_binary(address)
            await self.pass_on(address, command_frame(command))
        except PulsarishError as error:
            _log.warning("not relayed", peer=self.peer, broker=address, reason=error)
            self._say(_refusal(2, 0, error))
            self.close()

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
        if self._questions == _QUESTIONS_MAX // 2 and not self._unsent:
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
            try:
                self._brokers.check_binary(address)
            except NotAllowed as error:
                # The broker may have registered just now, and the proxy does not know it yet.
                raise ServiceNotReady(f"{topic} is served by {address}: {error}; try again") from None
            if found.response == pb.LookupTopicResponse.CONNECT:
                found.proxy_through_service_url = True
                return answer
            authoritative = found.authoritative
        raise ServiceNotReady(f"{topic} was not found within {_REDIRECTS_MAX} redirections; try again")

    def _say(self, command: pb.Command) -> None:
        self.write(command_frame(command))

    async def _keep_alive(self) -> None:
        """Ends silent connections for lookups. On relayed ones broker and client see to that themselves."""
        interval, limit = self._config.keep_alive_interval_seconds, self._config.keep_alive_timeout_seconds
        while not self._not_for_lookups():
            await self._world.clock.sleep(interval)
            silent = self._world.clock.monotonic() - self._received_at
            if self._not_for_lookups():
                return
            if silent > limit:
                self.abort(f"nothing was received for {limit:g} s")
            elif self._connected and silent >= interval / 2:
                self._say(pb.Command(type=18, ping=pb.Ping()))

    def _not_for_lookups(self) -> bool:
        return not self.alive or self._passed_on


def _check_required(command: pb.Command) -> None:
    """Raise ``Malformed`` for a command without a required field: it could not be encoded again for a broker."""
    body = command_body(command)
    if not command.IsInitialized() or (body is not None and not body.IsInitialized()):
        raise Malformed(f"a command of type {command.type} is without a required field")


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
