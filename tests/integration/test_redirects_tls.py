"""Redirects and lookups between brokers of which only some have TLS, or nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import cycle

import msgspec

from pulsarish.broker.config import BrokerConfig
from pulsarish.runtime.seams import HttpRequest, HttpResponse, World
from pulsarish.sim.world.connections import SimConnections
from pulsarish.sim.world.world import Simulation
from tests.support.brokers import BrokerCluster

TLS = {"tls_certificate_file_path": "server.pem", "tls_key_file_path": "server.key"}
BOTH, PLAIN, SECURE = "broker0", "broker1", "broker2"
PORTS = {
    BOTH: {**TLS, "http_address_tls": f"{BOTH}:8443", "pulsar_address_tls": f"{BOTH}:6651"},
    PLAIN: {},
    SECURE: {
        **TLS,
        "http_address": "",
        "http_address_tls": f"{SECURE}:8443",
        "pulsar_address": "",
        "pulsar_address_tls": f"{SECURE}:6651",
    },
}
WEB = {BOTH: f"{BOTH}:8080", PLAIN: f"{PLAIN}:8080", SECURE: f"tls:{SECURE}:8443"}
ENTRY = {"http": f"{BOTH}:8080", "https": f"tls:{BOTH}:8443"}
TOPICS = [f"t{number}" for number in range(12)]


class MixedCluster(BrokerCluster):
    def config(self, name: str) -> BrokerConfig:
        return msgspec.structs.replace(super().config(name), **PORTS[name])


async def ask(
    world: World, address: str, *segments: str, query: dict[str, str] | None = None
) -> HttpResponse:
    assert isinstance(world.connections, SimConnections)
    request = HttpRequest("GET", "/" + "/".join(segments), query or {}, {}, b"", segments)
    for _ in range(100):
        found = await world.connections.http(address, request)
        if found.status != 503 or b"has no" in found.body:
            return found
        await world.clock.sleep(0.2)
    raise AssertionError(f"no answer: {found.body!r}")


async def owners(world: World) -> dict[str, str]:
    """Return a topic of each broker: the broker that is asked first takes a bundle."""
    found: dict[str, str] = {}
    for topic, address in zip(TOPICS, cycle(WEB.values()), strict=False):
        lookup = ("lookup", "v2", "topic", "persistent", *NAMESPACE, topic)
        answer = await ask(world, address, *lookup, query={"authoritative": "true"})
        if answer.status == 200:
            found.setdefault(json.loads(answer.body)["brokerId"], topic)
    assert found.keys() == PORTS.keys()
    return found


NAMESPACE = ("public", "default")


def locations(world: World, topics: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    for owner in (PLAIN, SECURE):
        for scheme in ENTRY:
            yield owner, scheme, topics[owner]


def test_redirects_and_lookups_keep_tls() -> None:
    sim = Simulation(1)
    cluster = MixedCluster(sim, brokers=3)

    async def main() -> None:
        await cluster.start()

        async def client(world: World) -> None:
            topics = await owners(world)
            redirected: dict[tuple[str, str], str] = {}
            looked_up: dict[tuple[str, str], tuple[str, ...]] = {}
            for owner, scheme, topic in locations(world, topics):
                stats = ("admin", "v2", "persistent", *NAMESPACE, topic, "stats")
                answer = await ask(world, ENTRY[scheme], *stats)
                redirected[owner, scheme] = (
                    answer.headers["Location"].partition("/admin")[0]
                    if answer.status == 307
                    else json.loads(answer.body)["reason"]
                )
                lookup = ("lookup", "v2", "topic", "persistent", *NAMESPACE, topic)
                answer = await ask(world, ENTRY[scheme], *lookup)
                body = json.loads(answer.body)
                keys = ("brokerUrl", "brokerUrlTls", "httpUrl", "httpUrlTls", "nativeUrl")
                looked_up[owner, scheme] = (
                    tuple(body[key] for key in keys) if answer.status == 200 else (body["reason"],)
                )
            https = f"broker {PLAIN} has no HTTPS address on listener 'internal'"
            assert redirected.pop((PLAIN, "https")).startswith(https)
            assert redirected == {
                (PLAIN, "http"): f"http://{PLAIN}:8080",
                (SECURE, "http"): f"https://{SECURE}:8443",
                (SECURE, "https"): f"https://{SECURE}:8443",
            }
            (reason,) = looked_up.pop((PLAIN, "https"))
            assert "has no address with TLS" in reason
            plain = (f"pulsar://{PLAIN}:6650", "", f"http://{PLAIN}:8080", "")
            secure = ("", f"pulsar+ssl://{SECURE}:6651", "", f"https://{SECURE}:8443")
            assert looked_up == {
                (PLAIN, "http"): (*plain, f"pulsarish://{PLAIN}:6660"),
                (SECURE, "http"): (*secure, f"pulsarish://{SECURE}:6660"),
                # It has no port with TLS for the own protocol.
                (SECURE, "https"): (*secure, ""),
            }

        await sim.node("client").run(client)

    sim.run(main, 300.0)


def test_a_broker_names_the_addresses_that_it_serves() -> None:
    sim = Simulation(1)
    cluster = MixedCluster(sim, brokers=3)

    async def main() -> None:
        await cluster.start()

        async def client(world: World) -> None:
            plain = {name: (f"http://{name}:8080", f"pulsar://{name}:6650") for name in PORTS}
            tls = {name: (f"https://{name}:8443", f"pulsar+ssl://{name}:6651") for name in PORTS}
            plain[SECURE] = tls[PLAIN] = ("", "")
            for name, web in WEB.items():
                answer = await ask(world, web, "admin", "v2", "clusters", "pulsarish")
                assert json.loads(answer.body) == {
                    "serviceUrl": plain[name][0],
                    "serviceUrlTls": tls[name][0],
                    "brokerServiceUrl": plain[name][1],
                    "brokerServiceUrlTls": tls[name][1],
                }
                answer = await ask(world, web, "admin", "v2", "broker-stats", "load-report")
                report = json.loads(answer.body)
                assert (report["webServiceUrl"], report["pulsarServiceUrl"]) == plain[name]
                assert (report["webServiceUrlTls"], report["pulsarServiceUrlTls"]) == tls[name]

        await sim.node("client").run(client)

    sim.run(main, 300.0)
