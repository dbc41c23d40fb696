"""SIGKILL of the metadata daemon in the middle of pipelined commits: what was answered is there,
and sessions go on.
"""

from __future__ import annotations

import asyncio
import signal
import struct
import sys
from pathlib import Path

import pytest

from tests.support.metadata_stores import free_port
from tests.support.zk_client import Gone, RawClient, acl, read_strings, text

CREATE, EXISTS, CHILDREN, CLOSE = 1, 3, 8, -11
NO_NODE = -101
CLIENTS = 4
ROUNDS = 3
PIPELINED = 3000
KILL_AFTER_ANSWERS = 400
SESSION_TIMEOUT_MS = 6_000  # longer than the disk or the machine may stand still


class Daemon:
    """``pulsarish metadata`` as a process on one port and directory."""

    def __init__(self, directory: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        settings = {
            "data_directory": str(self._directory),
            "listen_address": self.address,
            "http_address": "",
            "tick_ms": "50",
            "session_timeout_min_ms": "100",
        }
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from pulsarish.cli.main import main; main()",
            "metadata",
            *[f"--set={name}={value}" for name, value in settings.items()],
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert b"metadata ready" in line, line

    async def end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        await self._process.wait()


def create(path: str, flags: int = 0) -> bytes:
    return text(path) + text(b"data") + acl() + struct.pack(">i", flags)


async def made(client: RawClient, path: str) -> list[str]:
    reply = await client.request(CHILDREN, text(path) + b"\0")
    assert reply.error == 0
    return sorted(read_strings(reply.body)[0])


async def publish(client: RawClient, path: str, answered: list[int], enough: asyncio.Event) -> None:
    """Send many creates without waiting; count the answers, which come in order, until the daemon
    dies.
    """

    async def send() -> None:
        try:
            for number in range(PIPELINED):
                await client.send(CREATE, create(f"{path}/{number:06d}"))
        except OSError:
            pass  # the daemon died while this was sent

    sending = asyncio.ensure_future(send())
    try:
        while True:
            reply = await client.reply()
            assert reply.error == 0
            answered[0] += 1
            if answered[0] >= KILL_AFTER_ANSWERS:
                enough.set()
    except Gone:
        await sending


@pytest.mark.timeout(90)
def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    async def run() -> None:
        daemon = Daemon(tmp_path / "metadata")
        await daemon.start()
        clients = [RawClient(daemon.address) for _ in range(CLIENTS)]
        for number, client in enumerate(clients):
            assert await client.connect(30_000)
            assert (await client.request(CREATE, create(f"/live-{number}", flags=1))).error == 0
        for round_number in range(ROUNDS):
            paths = [f"/round-{round_number}-{number}" for number in range(CLIENTS)]
            for client, path in zip(clients, paths, strict=True):
                assert (await client.request(CREATE, create(path))).error == 0
            counts = [[0] for _ in clients]
            enough = asyncio.Event()
            publishing = [
                asyncio.ensure_future(publish(client, path, count, enough))
                for client, path, count in zip(clients, paths, counts, strict=True)
            ]
            await enough.wait()
            await daemon.end(signal.SIGKILL)
            await asyncio.gather(*publishing)
            assert any(count[0] < PIPELINED for count in counts), (
                "the kill came too late to interrupt anything"
            )
            await daemon.start()
            for number, (client, path, count) in enumerate(
                zip(clients, paths, counts, strict=True)
            ):
                assert await client.reattach(), "the session survives the restart"
                names = await made(client, path)
                # A session's commits happen in its order: what is there is a beginning of what was
                # sent, with all that was answered.
                assert names == [f"{index:06d}" for index in range(len(names))]
                assert len(names) >= count[0]
                assert (await client.request(EXISTS, text(f"/live-{number}") + b"\0")).error == 0
        for client in clients:
            await client.request(CLOSE)
            client.abort()
        await daemon.end(signal.SIGTERM)

    asyncio.run(run())


@pytest.mark.timeout(60)
def test_ephemeral_nodes_end_with_the_sessions_that_do_not_come_back(tmp_path: Path) -> None:
    async def run() -> None:
        daemon = Daemon(tmp_path / "metadata")
        await daemon.start()
        stays, leaves, watcher = (RawClient(daemon.address) for _ in range(3))
        for client, timeout_ms in (
            (stays, SESSION_TIMEOUT_MS),
            (leaves, SESSION_TIMEOUT_MS),
            (watcher, 30_000),
        ):
            assert await client.connect(timeout_ms)
        assert (await stays.request(CREATE, create("/stays", flags=1))).error == 0
        assert (await leaves.request(CREATE, create("/leaves", flags=1))).error == 0
        await daemon.end(signal.SIGKILL)
        # Longer than the session's time-out: while there is no daemon no time passes for sessions.
        await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 + 0.2)
        await daemon.start()
        assert await stays.reattach()
        assert await watcher.reattach()
        assert (await watcher.request(EXISTS, text("/leaves") + b"\1")).error == 0

        while not watcher.events:
            assert (await stays.request(EXISTS, text("/stays") + b"\0")).error == 0
            await watcher.request(EXISTS, text("/stays") + b"\0")
            await asyncio.sleep(0.05)
        assert watcher.events == [(2, "/leaves")]
        assert (await watcher.request(EXISTS, text("/leaves") + b"\0")).error == NO_NODE
        assert not await leaves.reattach(), "its session has expired"
        assert (await stays.request(EXISTS, text("/stays") + b"\0")).error == 0
        for client in (stays, leaves, watcher):
            client.abort()
        await daemon.end(signal.SIGTERM)

    asyncio.run(run())
