"""What only the daemon does: its limits, four-letter words, refusals, and sessions at its
restart.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from typing import Any, cast

import pytest

from pulsarish.metadata.connect import connect
from pulsarish.metadata.daemon.daemon import MetadataDaemon
from pulsarish.model.errors import ConfigError, MetadataUnavailable
from pulsarish.runtime.seams import Clock, HttpRequest, Locked
from tests.support.metadata_daemons import daemon_of, with_daemon
from tests.support.metadata_stores import free_port, production
from tests.support.worlds import run_in_production_loop
from tests.support.zk_client import Gone, RawClient, acl, create, text

CREATE, EXISTS, GET, CLOSE, AUTH = 1, 3, 4, -11, 100


async def word(address: str, what: bytes) -> str:
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(what)
    answer = await reader.read()
    writer.close()
    return answer.decode()


def test_four_letter_words_and_health(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        assert "for production run an ensemble" in caplog.text
        client = RawClient(address)
        assert await client.connect()
        await client.request(CREATE, create("/e", flags=1))
        await client.request(EXISTS, text("/e") + b"\1")
        assert await word(address, b"ruok") == "imok"
        assert "Mode: standalone\n" in await word(address, b"srvr")
        assert "zookeeper.version=3.9." in await word(address, b"envi")
        numbers = dict(line.split("\t") for line in (await word(address, b"mntr")).splitlines())
        assert (
            numbers["zk_znode_count"],
            numbers["zk_ephemerals_count"],
            numbers["zk_watch_count"],
        ) == ("2", "1", "1")
        health = await daemon._http(HttpRequest("GET", "/health", {}, {}, b""))
        assert (health.status, health.body) == (200, b'{"ready":true}')
        assert (
            b"\nzk_znode_count 2"
            in (await daemon._http(HttpRequest("GET", "/metrics", {}, {}, b""))).body
        )
        client.abort()

    with_daemon(scenario)


def test_limits_end_the_connection_that_breaks_them() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        good, bad, noise = RawClient(address), RawClient(address), RawClient(address)
        for client in (good, bad, noise):
            assert await client.connect()
        one_too_many = RawClient(address)
        with pytest.raises(Gone):
            await one_too_many.connect()
        with pytest.raises(Gone):
            await bad.request(CREATE, create("/big", bytes(2000)))
        with pytest.raises(Gone):
            await noise.request(CREATE, b"\x7f\xff\xff\xff")
        assert (await good.request(EXISTS, text("/big") + b"\0")).error == -101
        # Its session lives on until its time is over: it may come back.
        assert await bad.reattach()
        for client in (good, bad, noise, one_too_many):
            client.abort()

    with_daemon(scenario, connections_max=3, request_bytes_max=1500)


def test_a_flood_is_answered_in_order_while_reading_pauses() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        client = RawClient(address)
        assert await client.connect()
        sent = [await client.send(CREATE, create(f"/{number}")) for number in range(3000)]
        assert [(await client.reply()).xid for _ in sent] == sent
        client.abort()

    with_daemon(scenario, outstanding_requests_max=10)


def test_what_is_not_done_is_refused_clearly() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        client = RawClient(address)
        assert await client.connect()
        for kind, body in [
            (19, create("/c")),
            (21, create("/t") + bytes(8)),
            (16, b""),
            (106, text("/") + bytes(4)),
            (22, b""),
        ]:
            assert (await client.request(kind, body)).error == -6
        assert (
            await client.request(CREATE, text("/a") + text(b"") + acl(1) + bytes(4))
        ).error == -114
        assert (
            await client.request(AUTH, bytes(4) + text("digest") + text(b"u:p"), xid=-4)
        ).error == 0
        assert (
            await client.request(AUTH, bytes(4) + text("x509") + text(b""), xid=-4)
        ).error == -115
        assert await client.at_end()
        client.abort()

    with_daemon(scenario)


def test_a_session_that_moves_leaves_its_old_connection() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        old, new, thief = RawClient(address), RawClient(address), RawClient(address)
        assert await old.connect()
        assert not await thief.connect(1000, old.session_id, bytes(16))
        assert (await old.request(CREATE, create("/mine", flags=1))).error == 0
        assert await new.connect(30_000, old.session_id, old.password)
        assert await old.at_end()
        assert (await new.request(GET, text("/mine") + b"\0")).error == 0
        for client in (old, new, thief):
            client.abort()

    with_daemon(scenario)


def test_a_client_that_has_seen_more_is_refused() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        client = RawClient(address)
        client.last_zxid = 1000
        with pytest.raises(Gone):
            await client.connect()
        client.abort()

    with_daemon(scenario)


def test_timeouts_are_negotiated_and_silence_expires() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        short, long, watcher = RawClient(address), RawClient(address), RawClient(address)
        assert await short.connect(1)
        assert await long.connect(10_000_000)
        assert (short.timeout_ms, long.timeout_ms) == (6_000, 60_000)
        await short.request(CREATE, create("/short", flags=1))
        assert await watcher.connect()
        await watcher.request(EXISTS, text("/short") + b"\1")
        while not watcher.events:
            await watcher.request(EXISTS, text("/") + b"\0")
            await asyncio.sleep(0.01)
        assert watcher.events == [(2, "/short")]
        assert await short.at_end()
        assert not await short.reattach()
        for client in (short, long, watcher):
            client.abort()

    # So long that the session does not end before it is watched, whatever the disk or the machine
    # waits for.
    with_daemon(scenario, session_timeout_min_ms=6_000)


class CountingClock:
    """A clock that counts how often something sleeps."""

    def __init__(self, clock: Clock) -> None:
        self.sleeps = 0
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)

    async def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        await self._clock.sleep(seconds)


def test_the_daemon_searches_only_while_a_session_may_have_expired() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        clock = CountingClock(daemon._clock)
        daemon._clock = cast("Clock", clock)
        long = RawClient(address)
        assert await long.connect(60_000)
        await asyncio.sleep(0.2)
        clock.sleeps = 0
        await asyncio.sleep(0.5)
        assert clock.sleeps <= 2  # a search every 20 ms would be 25
        # It ends in its own time, not in that of the session that was there before.
        short = RawClient(address)
        assert await short.connect(100)
        assert await short.at_end()
        assert daemon._numbers_now()["zk_global_sessions"] == 1
        assert clock.sleeps > 2
        for client in (short, long):
            client.abort()

    with_daemon(scenario)


def test_a_session_whose_ping_came_while_the_daemon_stood_still_lives_on() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        client = RawClient(address)
        assert await client.connect(1_000)
        await asyncio.sleep(0.3)
        await client.send(EXISTS, text("/") + b"\0")
        # The daemon is not searching now, and its next search comes after the timeout.
        time.sleep(1.0)  # noqa: ASYNC251  # it is the loop that stands still
        assert (await client.reply()).error == 0
        await client.request(EXISTS, text("/") + b"\0")
        assert daemon._numbers_now()["zk_global_sessions"] == 1
        client.abort()

    with_daemon(scenario)


def test_a_restart_keeps_everything_but_watches() -> None:
    with tempfile.TemporaryDirectory(prefix="pulsarish-") as directory:

        async def run() -> None:
            node = production()
            port = free_port()
            daemon = daemon_of(node, directory, listen_address=f"127.0.0.1:{port}")
            address = (await daemon.start()).address
            client, closed = RawClient(address), RawClient(address)
            assert await client.connect()
            assert await closed.connect()
            await client.request(CREATE, create("/kept", b"data"))
            for _ in range(3):
                await client.request(CREATE, create("/kept/n-", flags=3))
            await closed.request(CREATE, create("/closed", flags=1))
            await closed.request(CLOSE)
            before = (await client.request(GET, text("/kept") + b"\0")).body
            second = production()
            with pytest.raises(Locked):
                await daemon_of(second, directory).start()
            await second.close()
            await daemon.stop()
            await node.close()

            node = production()
            daemon = daemon_of(node, directory, listen_address=f"127.0.0.1:{port}")
            await daemon.start()
            assert await client.reattach()
            assert (await client.request(GET, text("/kept") + b"\0")).body == before
            assert (await client.request(EXISTS, text("/closed") + b"\0")).error == -101
            reply = await client.request(CREATE, create("/kept/n-", flags=3))
            assert reply.body == text("/kept/n-0000000003")
            client.abort()
            closed.abort()
            await daemon.stop()
            await node.close()

        run_in_production_loop(run)


def test_errors_of_connecting_say_what_to_do() -> None:
    async def run() -> None:
        node = production()
        parts = {
            "clock": node.clock,
            "tasks": node.tasks,
            "rng": node.random,
            "files": node.files,
            "open_index": node.open_index,
        }
        with pytest.raises(MetadataUnavailable, match="is it running there"):
            await connect(f"zk://127.0.0.1:{free_port()}/x", connect_timeout_seconds=0.3, **parts)
        with pytest.raises(ConfigError, match="embedded:"):
            await connect("zk:/x", **parts)
        await node.close()

    run_in_production_loop(run)
