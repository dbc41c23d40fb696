"""Clients with credentials, on gRPC and on frames, against the fake broker in another process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import pulsarish
import pulsarish.asyncio
from pulsarish.runtime.background import background
from tests.integration.test_client_blocking import run, start_broker


@pytest.fixture(scope="module", params=["grpc", "framed"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    process, address = start_broker("token=good", "token=other", request.param)
    yield f"pulsarish://{address}"
    process.kill()
    process.communicate()


def exchange(client: pulsarish.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", initial_position=pulsarish.InitialPosition.Earliest)
    client.create_producer(topic).send(b"x")
    assert consumer.receive(timeout_millis=60_000).data() == b"x"


def test_each_client_has_credentials_of_its_own(url: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("good\n")
    kinds = [
        pulsarish.AuthenticationToken("good"),
        pulsarish.AuthenticationToken(lambda: "other"),
        pulsarish.Authentication("token", f"file://{path}"),
    ]
    clients = [pulsarish.Client(url, authentication=each) for each in kinds]
    refused = [
        pulsarish.Client(url),
        pulsarish.Client(url, pulsarish.AuthenticationToken("bad")),
        pulsarish.Client(url, pulsarish.AuthenticationToken(lambda: "bad")),
    ]
    for number, client in enumerate(clients):
        for bad in refused:
            with pytest.raises(pulsarish.AuthenticationError, match="an unknown token"):
                bad.create_producer("t")
        exchange(client, f"t{number}")
    with pytest.raises(pulsarish.AuthenticationError):
        refused[0].subscribe("t", "s")
    kept = len(background().world._own)
    for client in clients[:2]:
        client.close()
    clients[2].shutdown()
    for client in refused:
        client.close()
    assert len(background().world._own) == kept - 5


def test_the_awaitable_client(url: str) -> None:
    async def main() -> None:
        async with pulsarish.asyncio.Client(
            url, authentication=pulsarish.AuthenticationToken(lambda: "good")
        ) as client:
            producer = await client.create_producer("awaited")
            await producer.send(b"x")
        async with pulsarish.asyncio.Client(url) as client:
            with pytest.raises(pulsarish.AuthenticationError, match="an unknown token"):
                await client.create_producer("awaited")

    asyncio.run(main())


def test_a_forked_child_shows_its_credentials(url: str) -> None:
    program = f"""
import os, sys
import pulsarish

def exchange(topic, token):
    with pulsarish.Client({url!r}, authentication=pulsarish.AuthenticationToken(token)) as client:
        producer = client.create_producer(topic)
        producer.send(b"x")
        return client, producer

with pulsarish.Client({url!r}, authentication=pulsarish.AuthenticationToken("good")) as parent:
    parent.create_producer("parent").send(b"x")
    child = os.fork()
    if child == 0:
        exchange("child", lambda: "other")
        try:
            exchange("child", "bad")
        except pulsarish.AuthenticationError as error:
            assert "an unknown token" in str(error)
            sys.exit(0)
        sys.exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    parent.create_producer("after").send(b"x")
print("ok")
"""
    assert run(program)[:2] == (0, "ok\n")
