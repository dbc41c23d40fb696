"""The proxy's own connections to brokers, on which it asks questions for its clients.

A connection shows what the clients for which it asks have shown, the role for which they say that
they speak included. So a broker answers a client through the proxy as it would without one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, cast

from google.protobuf.message import DecodeError

from pulsarish.model.errors import AuthenticationError, PulsarishError, ServiceNotReady
from pulsarish.proxy.config import ProxyConfig
from pulsarish.runtime.contained_protocol import ContainedProtocol
from pulsarish.runtime.seams import StreamBroken, Tasks, World
from pulsarish.security.callers import NO_ORIGINAL, Original
from pulsarish.security.credentials import NO_CREDENTIALS, Credentials
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import (
    ENVELOPE_BYTES_MAX,
    FrameReader,
    command_body,
    command_frame,
)

__all__ = ["BrokerLink", "BrokerLinks", "Shown"]

_PROTOCOL_VERSION = 20
_IDLE_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Shown:
    """What a client shows in its CONNECT."""

    credentials: Credentials = NO_CREDENTIALS
    original: Original = NO_ORIGINAL
    """Of the client for which it says that it speaks, as a proxy does."""


class BrokerLink(ContainedProtocol):
    """A connection that carries questions of many clients, under request ids of its own.

    Args:
        shown: what its clients show.
    """

    def __init__(self, tasks: Tasks, config: ProxyConfig, shown: Shown) -> None:
        super().__init__(tasks)
        self.lost = False
        self._shown = shown
        self._refused: AuthenticationError | None = None
        self._writable = asyncio.Event()
        self._turns = asyncio.Lock()  # of questions, while the broker does not receive them
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(config.max_message_size_bytes + ENVELOPE_BYTES_MAX)
        self._waiting: dict[int, asyncio.Future[pb.Command]] = {}
        self._asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._writable.set()
        connect = pb.Connect(client_version="Pulsarish-proxy", protocol_version=_PROTOCOL_VERSION)
        credentials, original = self._shown.credentials, self._shown.original
        if credentials != NO_CREDENTIALS:
            connect.auth_method_name = credentials.method
            connect.auth_data = credentials.data.reveal()
        if original != NO_ORIGINAL:
            connect.original_principal = original.role
            connect.original_auth_method = original.credentials.method
            connect.original_auth_data = original.credentials.data.reveal()
        self._say(pb.Command(type=2, connect=connect))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._transport = None
        self._writable.set()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._gone())
        self._waiting.clear()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                command = pb.Command.FromString(frame.command)
                if command.type == 18:
                    self._say(pb.Command(type=19, pong=pb.Pong()))
                elif command.type == 14 and command.error.error == pb.AUTHENTICATION_ERROR:
                    # Not the answer of a question: the broker refuses the connection.
                    self._refused = AuthenticationError(command.error.message)
                    self.close()
                elif (body := command_body(command)) is not None:
                    self._answered(body.request_id, command)
        except DecodeError:
            self.close()
        if self._reader.broken is not None:
            self.close()

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    def _gone(self) -> PulsarishError:
        if self._refused is not None:
            return AuthenticationError(str(self._refused))
        return ServiceNotReady("the broker that was asked is gone; try again")

    def _answered(self, request_id: int, command: pb.Command) -> None:
        future = self._waiting.pop(request_id, None)
        if future is not None and not future.done():
            future.set_result(command)

    async def ask(self, question: pb.Command) -> pb.Command:
        """Return the answer, under the question's own request id.

        Raises ``ServiceNotReady`` when the broker goes away, ``AuthenticationError`` when it
        refuses the credentials.
        """
        body = command_body(question)
        assert body is not None
        async with self._turns:
            await self._writable.wait()
        if self._transport is None:
            raise self._gone()
        self._asked += 1
        number, client_number = self._asked, body.request_id
        future: asyncio.Future[pb.Command] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        body.request_id = number
        try:
            self._say(question)
            answer = await future
        finally:
            self._waiting.pop(number, None)
        answered = command_body(answer)
        assert answered is not None
        answered.request_id = client_number
        return answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _say(self, command: pb.Command) -> None:
        if self._transport is not None:
            self._transport.write(command_frame(command))


class BrokerLinks:
    """One link for each broker and what clients show, made when it is needed.

    Of links without a question at most ``_IDLE_MAX`` stay open.
    """

    def __init__(self, world: World, config: ProxyConfig) -> None:
        self._world = world
        self._config = config
        self._links: dict[tuple[str, Shown], BrokerLink] = {}  # in order of last use

    async def ask(self, address: str, question: pb.Command, shown: Shown) -> pb.Command:
        """Return the answer of the broker at an address.

        Raises ``ServiceNotReady`` when there is no answer in time, ``AuthenticationError``.
        """
        try:
            async with self._world.clock.timeout(self._config.broker_answer_timeout_seconds):
                return await (await self._link(address, shown)).ask(question)
        except (StreamBroken, TimeoutError) as error:
            raise ServiceNotReady(
                f"broker {address} does not answer: {error or 'no answer in time'}; try again"
            ) from None

    async def _link(self, address: str, shown: Shown) -> BrokerLink:
        key = address, shown
        link = self._links.pop(key, None)
        if link is not None and not link.lost:
            self._links[key] = link
        else:
            async with self._world.clock.timeout(self._config.broker_connect_timeout_seconds):
                protocol = await self._world.connections.open_bytes(
                    address, lambda: BrokerLink(self._world.tasks, self._config, shown)
                )
            assert isinstance(protocol, BrokerLink)
            before = self._links.get(key)
            if before is not None and not before.lost:
                protocol.close()  # another task made the link first
                return before
            link = self._links[key] = protocol
            self._close_idle()
        return link

    def _close_idle(self) -> None:
        idle = [key for key, link in self._links.items() if link.is_idle]
        # the newest one is about to carry a question
        for key in idle[: max(0, len(idle) - _IDLE_MAX)]:
            self._links.pop(key).close()

    def close(self) -> None:
        for link in self._links.values():
            link.close()
