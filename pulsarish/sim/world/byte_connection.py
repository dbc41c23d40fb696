"""A byte connection in the simulated network: an ``asyncio.Transport`` over a ``SimStream``.

It promises what a TCP connection promises. Bytes arrive in order, cut into pieces anywhere. The
protocol gets ``pause_writing`` when the other side does not read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pulsarish.runtime.seams import StreamBroken

if TYPE_CHECKING:
    from pulsarish.sim.world.stream import SimStream

__all__ = ["SimTransport"]

HIGH_WATER_BYTES = 64 * 1024
LOW_WATER_BYTES = 16 * 1024
PIECE_BYTES = 16 * 1024


class SimTransport(asyncio.Transport):
    """One end of a byte connection.

    ``run`` moves the bytes and ends with the connection. It runs in the process that has this end.
    """

    def __init__(self, stream: SimStream, protocol: asyncio.Protocol) -> None:
        host, _, port = stream.peer.rpartition(":")
        super().__init__(extra={"peername": (host, int(port))})
        self._stream = stream
        self._protocol: asyncio.BaseProtocol = protocol
        self._buffer = bytearray()
        self._wanted = asyncio.Event()  # there is something to send, or the end was reached
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._high_water_bytes = HIGH_WATER_BYTES
        self._low_water_bytes = LOW_WATER_BYTES
        self._writing_paused = False
        self._closing = False

    def begin(self) -> SimTransport:
        """Give the protocol its transport before the connecting client continues, as asyncio
        does.
        """
        self._protocol.connection_made(self)
        return self

    async def run(self) -> None:
        writer = asyncio.get_running_loop().create_task(
            self._write(), name=f"bytes-write-{self._stream.number}"
        )
        error: Exception | None = None
        try:
            await self._read()
        except StreamBroken as broken:
            error = None if self._closing else ConnectionResetError(str(broken))
        self.close()
        await writer
        self._protocol.connection_lost(error)

    async def _read(self) -> None:
        while (data := await self._stream.receive()) is not None:
            await self._may_read.wait()
            if not self._closing:
                assert isinstance(self._protocol, asyncio.Protocol)
                self._protocol.data_received(data)
        if not self._closing:
            assert isinstance(self._protocol, asyncio.Protocol)
            # "True" would keep our half open for writing. Neither Pulsar's clients nor its brokers
            # use half-open connections.
            assert not self._protocol.eof_received(), "a half-open connection is not simulated"

    async def _write(self) -> None:
        try:
            while self._buffer or not self._closing:
                if not self._buffer:
                    self._wanted.clear()
                    await self._wanted.wait()
                    continue
                piece = bytes(self._buffer[: self._stream.draw_size(PIECE_BYTES)])
                del self._buffer[: len(piece)]
                await self._stream.send([piece])
                if self._writing_paused and len(self._buffer) <= self._low_water_bytes:
                    self._writing_paused = False
                    self._protocol.resume_writing()
            await self._stream.finish()
        except StreamBroken:
            # The reading side reports this to the protocol, even when the protocol has paused
            # reading.
            self._closing = True
            self._may_read.set()

    # -- asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closing:
            return
        self._buffer += data
        self._wanted.set()
        if not self._writing_paused and len(self._buffer) > self._high_water_bytes:
            self._writing_paused = True
            self._protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_water_bytes = HIGH_WATER_BYTES if high is None else high
        self._low_water_bytes = self._high_water_bytes // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Send what is in the buffer, then end the connection."""
        self._closing = True
        self._may_read.set()
        self._wanted.set()

    def abort(self) -> None:
        self._buffer.clear()
        self.close()
        self._stream.abort("the transport was aborted")

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def is_reading(self) -> bool:
        return self._may_read.is_set()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol
