"""Hostile clients of the metadata daemon: each loses its own connection at most, the daemon's
memory is bounded, and others are served.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import stat
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pulsarish.metadata.connect import connect
from pulsarish.metadata.daemon.daemon import MetadataDaemon
from pulsarish.metadata.daemon.zkwire import MULTI_OPS_MAX, PATH_MAX_BYTES, STRINGS_MAX
from pulsarish.model.errors import ConfigError, MetadataUnavailable
from pulsarish.runtime.seams import MetadataStore, Op
from tests.support.hostile_zookeeper import handshake, hostile_bytes, request
from tests.support.metadata_daemons import with_daemon
from tests.support.metadata_stores import production
from tests.support.zk_client import (
    Gone,
    RawClient,
    create,
    multi_body,
    read_stat,
    read_strings,
    text,
)

CREATE, DELETE, EXISTS, GET, SET, CHILDREN, CHECK, MULTI, SET_WATCHES, CLOSE = (
    1,
    2,
    3,
    4,
    5,
    8,
    13,
    14,
    101,
    -11,
)
QUOTA, BAD_ARGUMENTS = -125, -8
READS = 300
BIG_BYTES = 1_000_000
GROWTH_MAX_MB = 100
PEER_TIMEOUT_MS = 500


_writers: list[asyncio.StreamWriter] = []
"""Of the running test, ended at its end."""


async def opened(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    _writers.append(writer)
    return reader, writer


def end_connections() -> None:
    for writer in _writers:
        writer.transport.abort()
    _writers.clear()


def attack(scenario: Callable[[MetadataDaemon, str], Awaitable[None]], **options: Any) -> None:
    """Run the scenario with a daemon of these options."""

    async def run(daemon: MetadataDaemon, address: str) -> None:
        try:
            await scenario(daemon, address)
        finally:
            end_connections()

    with_daemon(run, **options)


async def with_session(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await opened(address)
    writer.write(handshake())
    await frame_of(reader)
    return reader, writer


async def frame_of(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def is_served(address: str) -> None:
    client = RawClient(address)
    assert await client.connect()
    assert (await client.request(EXISTS, text("/") + b"\0")).error == 0
    await client.request(CLOSE)
    client.abort()


async def connections_are(daemon: MetadataDaemon, count: int) -> None:
    """Returns when the daemon has no more connections than these."""
    while len(daemon._connections) > count:  # noqa: ASYNC110  # the daemon tells nobody
        await asyncio.sleep(0.01)


async def is_closed(reader: asyncio.StreamReader) -> None:
    """Returns when the daemon has closed the connection."""
    with contextlib.suppress(ConnectionError):
        await reader.read()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A daemon as a process of its own, and its address."""
    options = (
        f"data_directory={tmp_path}/data/metadata",
        "listen_address=127.0.0.1:0",
        "http_address=",
    )
    server = subprocess.Popen(
        [sys.executable, "-m", "pulsarish", "metadata", *[f"--set={option}" for option in options]],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        yield server, server.stdout.readline().strip().rpartition("=")[2]
    finally:
        server.kill()
        server.communicate()


def memory_mb(server: subprocess.Popen[str], which: str) -> int:
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith(which))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_answers_that_are_not_taken_are_not_made(
    process: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    """Reads of a large node, pipelined and not read: their answers are made as the client takes
    them, and then all of them come.
    """
    server, address = process
    before = memory_mb(server, "VmRSS")

    async def run() -> None:
        reader, writer = await with_session(address)
        writer.write(request(CREATE, create("/big", b"x" * BIG_BYTES)))
        await frame_of(reader)
        writer.write(b"".join(request(GET, text("/big") + b"\0", xid) for xid in range(READS)))
        for _ in range(20):
            await is_served(address)
        assert memory_mb(server, "VmHWM") - before < GROWTH_MAX_MB
        for xid in range(READS):
            frame = await frame_of(reader)
            assert struct.unpack_from(">i", frame)[0] == xid
            assert frame[20 : 20 + BIG_BYTES] == b"x" * BIG_BYTES
        end_connections()

    asyncio.run(run())
    for directory, _, names in os.walk(tmp_path / "data"):
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
        for name in names:
            assert stat.S_IMODE(os.stat(os.path.join(directory, name)).st_mode) == 0o600, name


def test_long_answers_are_whole() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        client = RawClient(address)
        assert await client.connect()
        names = [f"n-{number:05}-ü" for number in range(3000)]
        for start in range(0, len(names), 500):
            ops = [(CREATE, create(f"/{name}")) for name in names[start : start + 500]]
            assert (await client.request(MULTI, multi_body(ops))).error == 0
        assert read_strings((await client.request(CHILDREN, text("/") + b"\0")).body)[0] == names
        found, at = read_strings((await client.request(12, text("/") + b"\0")).body)
        assert found == names
        client.abort()
        assert at

    attack(scenario)


def test_silent_connections_make_room() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        working = RawClient(address)
        assert await working.connect()
        silent = [await opened(address) for _ in range(20)]
        await is_served(address)
        await is_closed(silent[0][0])
        assert (await working.request(EXISTS, text("/") + b"\0")).error == 0
        assert len(daemon._connections) <= 10
        working.abort()

    attack(scenario, connections_max=10)


def test_a_connection_that_keeps_the_daemon_waiting_is_closed() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        patient = RawClient(address)
        assert await patient.connect()
        silent, _ = await opened(address)
        half, half_writer = await with_session(address)
        half_writer.write(request(GET, text("/"))[:-3])
        unread, unread_writer = await with_session(address)
        unread_writer.write(request(CREATE, create("/big", bytes(BIG_BYTES))))
        await frame_of(unread)
        unread_writer.write(request(GET, text("/big") + b"\0") * 50 + request(CLOSE))
        unread_writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport that also reads
        await is_closed(silent)
        await is_closed(half)
        await connections_are(daemon, 1)
        # A session may be silent for as long as its own timeout.
        assert (await patient.request(EXISTS, text("/big") + b"\0")).error == 0
        patient.abort()

    attack(scenario, peer_timeout_ms=PEER_TIMEOUT_MS)


def test_a_handshake_is_small() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        reader, writer = await opened(address)
        writer.write(struct.pack(">i", 1_000_000))
        await is_closed(reader)
        await is_served(address)

    attack(scenario)


def test_parts_of_requests_are_bounded_together() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        parts = [await with_session(address) for _ in range(4)]
        for _, writer in parts:
            writer.write(request(SET, text("/") + text(bytes(900_000)) + bytes(4))[:-4])
            await writer.drain()
        await is_closed(parts[0][0])
        assert daemon.limits.requests.used_bytes <= 2 << 20
        await is_served(address)
        end_connections()
        await connections_are(daemon, 0)
        assert daemon.limits.requests.used_bytes == daemon.limits.answers.used_bytes == 0

    attack(scenario, held_request_bytes_max=2 << 20)


def test_sessions_that_nobody_uses_make_room_and_others_stay() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        holder, working = RawClient(address), RawClient(address)
        assert await holder.connect()
        assert (await holder.request(CREATE, create("/mine", flags=1))).error == 0
        assert await working.connect()
        holder.abort()
        for _ in range(20):
            reader, writer = await with_session(address)
            writer.close()
            await is_closed(reader)
        assert daemon._engine is not None
        # one that makes room ends right after the new one began
        assert len(daemon._engine.tree.sessions) <= 6
        assert await holder.reattach()
        assert (await working.request(EXISTS, text("/mine") + b"\0")).error == 0
        # All in use: the new one is refused.
        used = [holder, working]
        with pytest.raises(Gone):
            while True:
                used.append(RawClient(address))
                assert await used[-1].connect()
        assert len(used) == 6
        for client in used:
            client.abort()

    attack(scenario, sessions_max=5)


def test_what_a_client_may_fill_is_bounded() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        client = RawClient(address)
        assert await client.connect()
        assert (await client.request(CREATE, create("/kept", b"data"))).error == 0
        assert (await client.request(CREATE, create("/e-", flags=3))).error == 0
        assert (await client.request(CREATE, create("/e-", flags=3))).error == QUOTA
        count = 0
        while (
            error := (await client.request(CREATE, create(f"/{count}", bytes(10_000)))).error
        ) == 0:
            count += 1
        assert (error, count) == (QUOTA, 9)
        assert (
            await client.request(SET, text("/kept") + text(bytes(20_000)) + struct.pack(">i", -1))
        ).error == QUOTA
        refused = await client.request(
            MULTI,
            multi_body(
                [
                    (DELETE, text("/kept") + struct.pack(">i", -1)),
                    (CREATE, create("/x", bytes(20_000))),
                ]
            ),
        )
        assert struct.pack(">i", QUOTA) in refused.body
        # Nothing of it happened, and what makes room is taken.
        assert (await client.request(GET, text("/kept") + b"\0")).body[4:8] == b"data"
        assert (await client.request(DELETE, text("/0") + struct.pack(">i", -1))).error == 0
        assert (await client.request(CREATE, create("/again", bytes(10_000)))).error == 0
        watched = 0
        while (
            error := (await client.request(EXISTS, text(f"/w{watched:03}") + b"\1")).error
        ) == -101:
            watched += 1
        assert (error, watched) == (QUOTA, (1 << 20) // 10 // 405)
        assert (await client.request(EXISTS, text("/one-more") + b"\1")).error == QUOTA
        assert (await client.request(EXISTS, text("/one-more") + b"\0")).error == -101
        client.abort()

    attack(
        scenario, tree_bytes_max=100_000, ephemeral_nodes_per_session_max=1, watch_bytes_max=1 << 20
    )


def test_a_node_is_told_which_limit_is_reached() -> None:
    async def scenario(_daemon: MetadataDaemon, address: str) -> None:
        node = production()

        async def connected(root: str) -> MetadataStore:
            return await connect(
                f"zk://{address}/{root}",
                clock=node.clock,
                tasks=node.tasks,
                rng=node.random,
                files=node.files,
                open_index=node.open_index,
            )

        try:
            store = await connected("first")
            for size in (10_000, 1_000, 100, 0):
                with pytest.raises(MetadataUnavailable, match="raise tree_bytes_max"):
                    for number in range(1_000):
                        _ = await store.commit([Op("create", f"/{size}-{number}", bytes(size))])
            with pytest.raises(MetadataUnavailable, match="ephemeral_nodes_per_session_max"):
                _ = await store.commit([Op("create_ephemeral", "/a-node-with-a-long-name")])
            with pytest.raises(ConfigError, match="raise tree_bytes_max"):
                _ = await connected("a-root-with-a-long-name")
            paths = [f"/w{number:03}" for number in range((1 << 20) // 10 // 405 + 1)]
            with pytest.raises(MetadataUnavailable, match="raise watch_bytes_max"):
                _ = await store.get_many(paths, watch=lambda _path: None)
            assert await store.get_many(paths) == [None] * len(paths)
            await store.close()
        finally:
            await node.close()

    attack(scenario, tree_bytes_max=100_000, watch_bytes_max=1 << 20)


def test_requests_that_hold_up_the_others_are_refused() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        client = RawClient(address)
        assert await client.connect()
        check = (CHECK, text("/") + struct.pack(">i", -1))
        paths = struct.pack(">i", STRINGS_MAX + 1) + text("/") * (STRINGS_MAX + 1)
        excessive = [
            (MULTI, multi_body([check] * (MULTI_OPS_MAX + 1))),
            (SET_WATCHES, bytes(8) + paths + bytes(8)),
            (CREATE, create("/" + "x" * PATH_MAX_BYTES)),
            (EXISTS, text("/" + "x" * PATH_MAX_BYTES) + b"\1"),
        ]
        for kind, body in excessive:
            assert (await client.request(kind, body)).error == BAD_ARGUMENTS
        assert (await client.request(MULTI, multi_body([check] * MULTI_OPS_MAX))).error == 0
        client.abort()

    attack(scenario)


def test_counts_begin_again_where_the_wire_has_no_room_for_them() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        client = RawClient(address)
        assert await client.connect()
        assert (await client.request(CREATE, create("/a"))).error == 0
        assert daemon._engine is not None
        node = daemon._engine.tree.nodes["/a"]
        node.version, node.creates = 2**31 - 1, 2**30
        assert (
            await client.request(SET, text("/a") + text(b"x") + struct.pack(">i", 2**31 - 1))
        ).error == 0
        written = read_stat((await client.request(EXISTS, text("/a") + b"\0")).body)[0]
        assert written[4:6] == (-(2**31), -(2**31))
        client.abort()

    attack(scenario)


def test_requests_of_an_old_connection_are_not_done_after_the_session_has_moved() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        for _ in range(5):
            old, new = RawClient(address), RawClient(address)
            assert await old.connect()
            for number in range(300):
                await old.send(CREATE, create(f"/{old.session_id}-{number:03}"))
            old.abort()
            assert await new.connect(30_000, old.session_id, old.password)
            names = read_strings((await new.request(CHILDREN, text("/") + b"\0")).body)[0]
            for _ in range(10):
                assert (
                    read_strings((await new.request(CHILDREN, text("/") + b"\0")).body)[0] == names
                )
            assert daemon._engine is not None
            assert daemon._engine.waiting == 0
            new.abort()

    attack(scenario)


class HostilePeer(asyncio.Protocol):
    """Takes what comes, and knows when it is over."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


@pytest.mark.parametrize("seed", range(4))
def test_hostile_bytes_end_their_own_connection_at_most(seed: int) -> None:
    """A short run.

    Whatever is sent, a client beside it is answered, the tree is sound, and in the end nothing is
    held.
    """
    rng = random.Random(seed)

    async def hostile(address: str) -> None:
        host, port = address.rsplit(":", 1)
        transport, peer = await asyncio.get_running_loop().create_connection(
            HostilePeer, host, int(port)
        )
        content = hostile_bytes(rng)
        size = rng.choice((7, 1000, 1 << 20))
        for start in range(0, len(content), size):
            if not transport.is_closing():
                transport.write(content[start : start + size])
                await asyncio.sleep(0)
        if rng.random() < 0.5 and not transport.is_closing():
            transport.write_eof()
            await peer.ended.wait()
        transport.abort()
        await peer.ended.wait()

    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        witness = RawClient(address)
        assert await witness.connect()
        assert (await witness.request(CREATE, create("/witness", b"kept"))).error == 0
        for _ in range(25):
            await asyncio.gather(*(hostile(address) for _ in range(10)))
            assert (await witness.request(GET, text("/witness") + b"\0")).body[4:8] == b"kept"
        await connections_are(daemon, 1)
        assert daemon._engine is not None
        daemon._engine.tree.check()
        assert (
            daemon._engine.waiting
            == daemon.limits.requests.used_bytes
            == daemon.limits.answers.used_bytes
            == 0
        )
        await is_served(address)
        witness.abort()

    attack(scenario)
