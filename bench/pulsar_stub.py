"""A broker that answers every send of an official client at once and stores nothing: what is left
is the client's own ceiling.

python -m bench.pulsar_stub PORT
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import FrameReader, command_frame, receipt_frames


class Stub(asyncio.Protocol):
    def __init__(self, port: int) -> None:
        self._port = port
        self._reader = FrameReader(16 << 20)
        self._entry_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        parts: list[bytes] = []
        for frame in self._reader.feed(data):
            command = pb.Command.FromString(frame.command)
            if command.type == 6:
                send = command.send
                parts += receipt_frames(
                    send.producer_id,
                    [(send.sequence_id, send.highest_sequence_id)],
                    1,
                    self._entry_id,
                )
                self._entry_id += 1
            elif (answer := self._answer(command)) is not None:
                parts.append(command_frame(answer))
        self._transport.writelines(parts)

    def _answer(self, command: pb.Command) -> pb.Command | None:
        match command.type:
            case 2:
                connected = pb.Connected(
                    server_version="stub", protocol_version=19, max_message_size=5 << 20
                )
                return pb.Command(type=3, connected=connected)
            case 5:
                opened = pb.ProducerSuccess(
                    request_id=command.producer.request_id, producer_name="stub"
                )
                return pb.Command(type=17, producer_success=opened)
            case 15:
                return pb.Command(
                    type=13, success=pb.Success(request_id=command.close_producer.request_id)
                )
            case 18:
                return pb.Command(type=19, pong=pb.Pong())
            case 21:
                found = pb.PartitionedMetadataResponse(
                    request_id=command.partitioned_metadata.request_id, partitions=0
                )
                found.response = pb.PartitionedMetadataResponse.SUCCESS
                return pb.Command(type=22, partitioned_metadata_response=found)
            case 23:
                owner = pb.LookupTopicResponse(
                    request_id=command.lookup.request_id, authoritative=True
                )
                owner.response = pb.LookupTopicResponse.CONNECT
                owner.broker_service_url = f"pulsar://127.0.0.1:{self._port}"
                return pb.Command(type=24, lookup_response=owner)
            case _:
                return None


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Stub(port), "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
