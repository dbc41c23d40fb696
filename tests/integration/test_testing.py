"""``pulsarish.testing`` as the tests of a program use it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import pulsarish
import pulsarish.asyncio
from pulsarish.model.errors import AlreadyClosed, ConfigError
from pulsarish.testing import LocalServer

TESTS_OF_A_PROGRAM = """
import asyncio

import pulsarish
import pulsarish.asyncio

seen = []


def test_one(pulsarish_client, pulsarish_topic):
    consumer = pulsarish_client.subscribe(pulsarish_topic, "s")
    pulsarish_client.create_producer(pulsarish_topic).send(b"x")
    assert consumer.receive(timeout_millis=30_000).data() == b"x"
    seen.append(pulsarish_topic)


def test_two(pulsarish_server, pulsarish_topic):
    async def work():
        async with pulsarish.asyncio.Client(pulsarish_server.service_url) as client:
            reader = await client.create_reader(pulsarish_topic, pulsarish.MessageId.earliest)
            assert not await reader.has_message_available()

    asyncio.run(work())
    assert pulsarish_topic not in seen
"""


def test_the_fixtures_are_there_without_being_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "test_program.py"
    file.write_text(TESTS_OF_A_PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_several_servers_at_a_time_know_nothing_of_each_other() -> None:
    with LocalServer() as one, LocalServer() as other, one.client() as client:
        client.create_producer("orders").send(b"x")
        topic = "persistent://public/default/orders"
        assert one.admin().topics.list("public/default") == [topic]
        assert other.admin().topics.list("public/default") == []
        with urllib.request.urlopen(f"{one.admin_url}/health", timeout=30) as answer:
            assert answer.status == 200
        assert one.service_url in repr(one)
        assert one.pulsar_url.startswith("pulsar://127.0.0.1:")


def test_a_directory_keeps_what_was_stored(tmp_path: Path) -> None:
    directory = str(tmp_path / "kept")
    with LocalServer(directory) as server, server.client() as client:
        client.create_producer("orders").send(b"x")
    with LocalServer(directory) as server, server.client() as client:
        reader = client.create_reader("orders", pulsarish.MessageId.earliest)
        assert reader.read_next(timeout_millis=30_000).data() == b"x"


def test_options_are_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSARISH_BROKER__CLUSTER_NAME", "of-the-shell")
    with LocalServer(settings=["cluster_name=tests"]) as server:
        assert server.admin().clusters.list() == ["tests"]
    with pytest.raises(ConfigError, match="no_such_option"):
        LocalServer(settings=["no_such_option=1"])


def test_a_closed_server_says_so() -> None:
    server = LocalServer()
    server.close()
    server.close()
    assert repr(server) == "LocalServer(closed)"
    with pytest.raises(AlreadyClosed, match="make a new one"):
        server.client()


def test_a_server_may_be_made_where_an_event_loop_runs() -> None:
    async def work() -> None:
        with LocalServer() as server:
            async with pulsarish.asyncio.Client(server.service_url) as client:
                await (await client.create_producer("orders")).send(b"x")

    asyncio.run(work())
