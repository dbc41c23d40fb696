"""What brokers and proxies say of their own protocol to a client that knows an address of Apache
Pulsar's protocol or of HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from pulsarish.proxy.config import ProxyConfig
from pulsarish.proxy.main import Proxy
from pulsarish.runtime.seams import HttpRequest, World
from pulsarish.sim.world.connections import SimConnections
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import pulsar_pb2 as pb
from tests.support.binary_client import BinaryClient, Heard
from tests.support.brokers import BrokerCluster


def run(
    scenario: Callable[[World], Awaitable[None]],
    *,
    connect_address: str = "proxy:6655",
) -> None:
    sim = Simulation(1)
    cluster = BrokerCluster(sim, brokers=2)

    async def main() -> None:
        await cluster.start()

        async def proxy(world: World) -> None:
            config = ProxyConfig(
                pulsar_address="proxy:6650",
                http_address="proxy:8080",
                connect_address=connect_address,
                metadata_url="memory:",
            )
            await Proxy(world, config).start()

        async def client(world: World) -> None:
            await world.clock.sleep(1.0)
            await scenario(world)

        await sim.node("proxy").run(proxy)
        await sim.node("client").run(client)

    sim.run(main, 600.0)


async def connected(world: World, address: str, **fields: object) -> Heard:
    client = await BinaryClient.connect(world, address, shake_hands=False)
    connect = pb.Connect(client_version="x", protocol_version=19, **fields)  # type: ignore[arg-type]
    client.say(pb.Command(type=2, connect=connect))
    return await client.next(3, 14)


def test_a_broker_names_itself_first() -> None:
    async def scenario(world: World) -> None:
        for name, other in (("broker0", "broker1"), ("broker1", "broker0")):
            heard = await connected(world, f"{name}:6650", wants_native_urls=True)
            assert list(heard.command.connected.native_urls) == [
                f"pulsarish://{name}:6660",
                f"pulsarish://{other}:6660",
            ]
            assert not heard.command.connected.HasField("connect_port")
        heard = await connected(world, "broker0:6650")
        assert not heard.command.connected.native_urls

    run(scenario)


def test_a_broker_refuses_a_listener_that_it_does_not_have() -> None:
    async def scenario(world: World) -> None:
        heard = await connected(
            world, "broker0:6650", wants_native_urls=True, listener_name="outside"
        )
        assert "no advertised listener 'outside'" in heard.command.error.message

    run(scenario)


def test_a_proxy_names_brokers_and_its_port_for_connect() -> None:
    async def scenario(world: World) -> None:
        heard = await connected(world, "proxy:6650", wants_native_urls=True)
        found = heard.command.connected
        assert sorted(found.native_urls) == [
            "pulsarish://broker0:6660",
            "pulsarish://broker1:6660",
        ]
        assert found.connect_port == 6655

    run(scenario)


def test_a_proxy_without_connect_says_so() -> None:
    async def scenario(world: World) -> None:
        heard = await connected(world, "proxy:6650", wants_native_urls=True)
        assert "set connect_address" in heard.command.error.message

    run(scenario, connect_address="")


@pytest.mark.parametrize(("query", "status"), [({}, 200), ({"listenerName": "outside"}, 412)])
def test_the_http_port_names_them(query: dict[str, str], status: int) -> None:
    async def scenario(world: World) -> None:
        connections = cast("SimConnections", world.connections)
        request = HttpRequest(
            "GET", "/lookup/v2/native-urls", query, {}, b"", ("lookup", "v2", "native-urls")
        )
        answer = await connections.http("broker1:8080", request)
        assert answer.status == status
        if status == 200:
            assert json.loads(answer.body) == {
                "nativeUrls": ["pulsarish://broker1:6660", "pulsarish://broker0:6660"]
            }

    run(scenario)
