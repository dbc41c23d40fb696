"""What a proxy with TLS connects to, and options that do nothing without others."""

from __future__ import annotations

import pytest

from pulsarish.metadata.records import BrokerRegistration, ListenerAddresses
from pulsarish.model.errors import ConfigError, NotAllowedError, ServiceNotReady
from pulsarish.proxy.brokers import KnownBrokers
from pulsarish.proxy.config import ProxyConfig
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation

BOTH = ListenerAddresses(
    "b:6660",
    "b:8080",
    "b:6650",
    "framed:b:6760",
    "tls:b:6661",
    "b:8443",
    "b:6651",
    "framed:tls:b:6761",
)
PLAIN = ListenerAddresses("p:6660", "p:8080", "p:6650")
CERTIFICATE = {"tls_certificate_file_path": "c.pem", "tls_key_file_path": "c.key"}


def registration(name: str, at: ListenerAddresses) -> BrokerRegistration:
    return BrokerRegistration(
        name,
        f"{name}~1",
        at.address_tls or at.address,
        at.http_address,
        at.pulsar_address,
        listeners={"internal": at},
    )


def with_brokers(config: ProxyConfig, *told: ListenerAddresses) -> KnownBrokers:
    """Return what a proxy knows after brokers with these addresses have registered."""
    sim, found = Simulation(1), []

    async def main() -> None:
        async def node(world: World) -> None:
            brokers = KnownBrokers(world, config)
            brokers._use([registration(f"b{n}", at) for n, at in enumerate(told)])
            found.append(brokers)

        await sim.node("n").run(node)

    sim.run(main, 10.0)
    return found[0]


def test_with_tls_no_plain_port_is_connected_to() -> None:
    brokers = with_brokers(ProxyConfig(tls_enabled_with_broker=True), BOTH, PLAIN)
    assert brokers.binary("b:6651") == "tls:b:6651"
    for address in ("b:6650", "p:6650"):
        with pytest.raises(NotAllowedError, match="has no TLS"):
            brokers.binary(address)
    with pytest.raises(NotAllowedError, match="not an address of the binary protocol"):
        brokers.binary("b:8443")
    assert {brokers.any() for _ in range(50)} == {"b:6651"}


def test_without_tls_no_port_with_tls_is_connected_to() -> None:
    brokers = with_brokers(ProxyConfig(), BOTH, PLAIN)
    assert brokers.binary("b:6650") == "b:6650"
    with pytest.raises(NotAllowedError, match="has TLS"):
        brokers.binary("b:6651")
    assert {brokers.any() for _ in range(50)} == {"b:6650", "p:6650"}


def test_no_broker_with_tls_is_an_error_that_says_so() -> None:
    brokers = with_brokers(ProxyConfig(tls_enabled_with_broker=True), PLAIN)
    with pytest.raises(ServiceNotReady, match="with TLS"):
        brokers.any()


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_tunnel_reaches_the_ports_for_clients_of_either_kind(has_tls: bool) -> None:
    brokers = with_brokers(ProxyConfig(tls_enabled_with_broker=has_tls), BOTH)
    for address in ("b:6660", "b:6661", "b:6650", "b:6651"):
        brokers.check(address)
    for address in ("b:8080", "b:8443"):
        with pytest.raises(NotAllowedError, match="relay_administration"):
            brokers.check(address)


def test_a_broker_is_allowed_by_its_address_with_tls() -> None:
    config = ProxyConfig(tls_enabled_with_broker=True, allowed_brokers=("b:6651",))
    assert with_brokers(config, BOTH, PLAIN).names == ("b0",)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"pulsar_address": ""}, "a proxy needs one of them"),
        ({"pulsar_address_tls": "h:1"}, "pulsar_address_tls = 'h:1' is to speak TLS"),
        ({"connect_address_tls": "h:1"}, "connect_address_tls = 'h:1' is to speak TLS"),
        ({"http_address_tls": "h:1"}, "http_address_tls = 'h:1' is to speak TLS"),
        ({"broker_client_trust_certs_file_path": "ca.pem"}, "set tls_enabled_with_broker"),
        ({"broker_client_certificate_file_path": "c.pem"}, "set tls_enabled_with_broker"),
    ],
)
def test_options_that_do_nothing_without_others(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ProxyConfig(**settings).validate()


def test_tls_alone_is_enough() -> None:
    ProxyConfig(pulsar_address="", pulsar_address_tls="h:1", **CERTIFICATE).validate()
