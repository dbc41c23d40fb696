"""A client of the binary protocol by hand, in the simulated network."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field
from typing import cast

from pulsarish.runtime.seams import World
from pulsarish.sim.world.connections import SimConnections
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import FrameReader, command_frame

__all__ = ["BinaryClient", "Heard", "send_frame"]


def send_frame(producer_id: int, sequence_id: int, entry: bytes, **fields: int) -> bytes:
    command = pb.Command(
        type=6, send=pb.Send(producer_id=producer_id, sequence_id=sequence_id, **fields)
    ).SerializeToString()  # type: ignore[arg-type]
    return struct.pack(">II", 4 + len(command) + len(entry), len(command)) + command + entry


@dataclass
class Heard:
    """A command that came, and the entry after it."""

    command: pb.Command
    payload: bytes


@dataclass
class BinaryClient(asyncio.Protocol):
    world: World
    heard: list[Heard] = field(default_factory=list)
    lost: bool = False
    answers_pings: bool = True
    transport: asyncio.Transport | None = None
    _reader: FrameReader = field(default_factory=lambda: FrameReader(10 << 20))
    _request_id: int = 0

    @classmethod
    async def connect(
        cls, world: World, address: str, *, shake_hands: bool = True, version: int = 19
    ) -> BinaryClient:
        assert isinstance(world.connections, SimConnections)
        protocol = await world.connections.open_bytes(address, lambda: cls(world))
        assert isinstance(protocol, BinaryClient)
        if shake_hands:
            protocol.say(
                pb.Command(
                    type=2, connect=pb.Connect(client_version="test", protocol_version=version)
                )
            )
            await protocol.next(3)
        return protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(bytes(data)):
            heard = Heard(pb.Command.FromString(frame.command), bytes(frame.payload))
            if heard.command.type == 18 and self.answers_pings:
                self.say(pb.Command(type=19, pong=pb.Pong()))
            else:
                self.heard.append(heard)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    def say(self, command: pb.Command) -> None:
        self.write(command_frame(command))

    def request(self) -> int:
        self._request_id += 1
        return self._request_id

    def send(self, producer_id: int, sequence_id: int, entry: bytes, **fields: int) -> None:
        self.write(send_frame(producer_id, sequence_id, entry, **fields))

    async def next(self, *types: int) -> Heard:
        """The first command of these types (or of any) that came and was not asked for yet.

        ``EOFError`` when the connection is lost.
        """
        while True:
            for index, each in enumerate(self.heard):
                if not types or each.command.type in types:
                    return self.heard.pop(index)
            if self.lost:
                raise EOFError("the connection is lost")
            await self.world.clock.sleep(0.01)

    async def until_lost(self) -> None:
        while not self.lost:
            await self.world.clock.sleep(0.01)

    async def open_producer(
        self, producer_id: int, topic: str, name: str = "p", **fields: object
    ) -> Heard:
        command = pb.Producer(
            topic=topic,
            producer_id=producer_id,
            request_id=self.request(),
            producer_name=name,
            **fields,
        )  # type: ignore[arg-type]
        self.say(pb.Command(type=5, producer=command))
        return await self.next(17, 14)

    async def subscribe(
        self, consumer_id: int, topic: str, *, permits: int = 1000, kind: int = 0, **fields: object
    ) -> Heard:
        fields = {"subscription": "s", "initial_position": pb.EARLIEST, **fields}
        command = pb.Subscribe(
            topic=topic, consumer_id=consumer_id, request_id=self.request(), sub_type=kind, **fields
        )  # type: ignore[arg-type]
        self.say(pb.Command(type=4, subscribe=command))
        answer = await self.next(13, 14)
        if permits and answer.command.type == 13:
            self.say(
                pb.Command(type=11, flow=pb.Flow(consumer_id=consumer_id, message_permits=permits))
            )
        return answer

    async def take(self, count: int) -> list[Heard]:
        return [await self.next(9) for _ in range(count)]
