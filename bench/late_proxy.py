"""A TCP proxy that delivers everything late: ``python -m bench.late_proxy LISTEN_PORT TARGET_PORT
DELAY_MS``.

The kernel of a small machine has no delay of its own (``tc netem``), so a process stands in for a
slow network or a slow bookie.
"""

from __future__ import annotations

import asyncio
import sys

_CHUNK_BYTES = 1 << 18


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_seconds: float
) -> None:
    """Deliver each chunk ``delay_seconds`` after it came, in order; the bytes on the way are
    bounded by the queue.
    """
    loop = asyncio.get_running_loop()
    on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=256)

    async def deliver() -> None:
        while True:
            due, data = await on_the_way.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()

    delivering = asyncio.create_task(deliver())
    try:
        while data := await reader.read(_CHUNK_BYTES):
            await on_the_way.put((loop.time() + delay_seconds, data))
    except ConnectionError:
        pass
    await on_the_way.put((loop.time() + delay_seconds, b""))
    await delivering


async def main() -> None:
    listen_port, target_port, delay_ms = (int(text) for text in sys.argv[1:4])

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target_reader, target_writer = await asyncio.open_connection("127.0.0.1", target_port)
        await asyncio.gather(
            _pump(reader, target_writer, delay_ms / 2000),
            _pump(target_reader, writer, delay_ms / 2000),
            return_exceptions=True,
        )

    server = await asyncio.start_server(connected, "127.0.0.1", listen_port)
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
