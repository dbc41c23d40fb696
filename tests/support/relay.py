"""A TCP relay before a server, whose connections are ended or held up, at any byte."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

__all__ = ["Fault", "Relay"]


@dataclass
class Fault:
    """Where the stream is to end or to be held: after so many bytes of one direction, counted from
    when the fault is set.
    """

    to_server: bool
    after_bytes: int
    holds: bool = False
    met: bool = False


class Relay:
    """A TCP relay of one store, byte by byte where that matters."""

    def __init__(self, target: str, piece_bytes: int = 1 << 16, *, host: str = "127.0.0.1") -> None:
        self._at = host
        self._host, port = target.rsplit(":", 1)
        self._port = int(port)
        self._piece_bytes = piece_bytes
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None
        self._passing = asyncio.Event()
        self._passing.set()
        self.fault: Fault | None = None
        self.passed_bytes = {True: 0, False: 0}
        self.address = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._relay, self._at, 0)
        self.address = f"{self._at}:{self._server.sockets[0].getsockname()[1]}"

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        await self._passing.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        self._writers += [writer, far_writer]
        await asyncio.gather(
            self._pump(reader, far_writer, True), self._pump(far_reader, writer, False)
        )

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to_server: bool
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._passing.wait()
                if writer.transport.is_closing():
                    return
                fault = self.fault
                if fault is not None and fault.to_server is to_server and not fault.met:
                    first, data = data[: fault.after_bytes], data[fault.after_bytes :]
                    fault.after_bytes -= len(first)
                    writer.write(first)
                    if not fault.after_bytes:
                        fault.met = True
                        if fault.holds:
                            self._passing.clear()
                            await self._passing.wait()
                        else:
                            self.drop()  # what was written leaves before the end does
                        if writer.transport.is_closing():
                            return
                for start in range(0, len(data), self._piece_bytes):
                    piece = data[start : start + self._piece_bytes]
                    self.passed_bytes[to_server] += len(piece)
                    writer.write(piece)
                    await writer.drain()
                    if len(data) > self._piece_bytes:
                        await asyncio.sleep(0)
                        if writer.transport.is_closing():
                            return
        except OSError:
            pass
        writer.close()

    def drop(self, *, abort: bool = False) -> None:
        """End all connections; ``abort``: what was written and has not left never does."""
        writers, self._writers = self._writers, []
        for writer in writers:
            if abort:
                writer.transport.abort()
            else:
                writer.close()

    def hold(self) -> None:
        self._passing.clear()

    def release(self) -> None:
        self._passing.set()

    async def close(self) -> None:
        self.drop()
        self.release()
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        await asyncio.gather(*self._tasks)
