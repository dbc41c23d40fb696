"""Which listeners a configuration describes, what is refused with which text, and which address a
client gets.
"""

from __future__ import annotations

from typing import Any

import pytest

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.listeners import (
    ListenerPlan,
    Listeners,
    advertised_at,
    broker_named,
    http_at,
    http_url_at,
    plan_listeners,
    pulsar_at,
)
from pulsarish.metadata.records import BrokerRegistration, ListenerAddresses
from pulsarish.model.errors import ConfigError, InvalidArgument, NotFound, ServiceNotReady
from pulsarish.runtime.config import load

INTERNAL = "internal:pulsarish://broker-1:6660"
EXTERNAL = "external:pulsarish://localhost:16660"
EXTERNAL_HTTP = "external:http://localhost:18080"
BIND = "external:pulsarish://0.0.0.0:16660"
BIND_HTTP = "external:http://0.0.0.0:18080"


def plan(
    advertised: list[str],
    bind: list[str] | None = None,
    *,
    internal: str = "",
    advertised_address: str = "",
    http: str = "0.0.0.0:8080",
) -> tuple[ListenerPlan, ...]:
    return plan_listeners(
        advertised_listeners=advertised,
        internal_listener_name=internal,
        bind_addresses=bind or [],
        listen_address="0.0.0.0:6660",
        http_address=http,
        advertised_address=advertised_address,
    )


def test_without_names_there_is_one_listener() -> None:
    assert plan([]) == (ListenerPlan("internal", "0.0.0.0:6660", "0.0.0.0:8080", "", ""),)
    assert plan([], internal="lan", advertised_address="host1:7000") == (
        ListenerPlan("lan", "0.0.0.0:6660", "0.0.0.0:8080", "host1:7000", "host1"),
    )


def test_the_internal_listener_comes_first_and_is_bound_by_the_usual_options() -> None:
    internal = ListenerPlan("internal", "0.0.0.0:6660", "0.0.0.0:8080", "broker-1:6660", "broker-1")
    external = ListenerPlan(
        "external", "0.0.0.0:16660", "0.0.0.0:18080", "localhost:16660", "localhost:18080"
    )
    assert plan([INTERNAL, EXTERNAL, EXTERNAL_HTTP], [BIND, BIND_HTTP]) == (internal, external)
    assert plan([EXTERNAL, EXTERNAL_HTTP, INTERNAL], [BIND, BIND_HTTP], internal="internal") == (
        internal,
        external,
    )


def test_the_binary_protocol_has_addresses_of_its_own() -> None:
    internal, external = plan_listeners(
        advertised_listeners=[INTERNAL, EXTERNAL, "external:pulsar://localhost:16650"],
        internal_listener_name="",
        bind_addresses=[BIND, "external:pulsar://0.0.0.0:16650"],
        listen_address="0.0.0.0:6660",
        http_address="0.0.0.0:8080",
        advertised_address="",
        pulsar_address="0.0.0.0:6650",
    )
    assert (internal.bind_pulsar_address, internal.advertised_pulsar) == (
        "0.0.0.0:6650",
        "broker-1",
    )
    assert (external.bind_pulsar_address, external.advertised_pulsar) == (
        "0.0.0.0:16650",
        "localhost:16650",
    )


def framed(
    advertised: list[str],
    bind: list[str] | None = None,
    *,
    advertised_address: str = "",
    framed_advertised_address: str = "",
) -> list[tuple[str, str]]:
    """Return the bound and the advertised address of frames of each listener."""
    plans = plan_listeners(
        advertised_listeners=advertised,
        internal_listener_name="",
        bind_addresses=bind or [],
        listen_address="0.0.0.0:6660",
        http_address="0.0.0.0:8080",
        advertised_address=advertised_address,
        framed_address="0.0.0.0:0",
        framed_advertised_address=framed_advertised_address,
    )
    return [(plan.bind_framed_address, plan.advertised_framed) for plan in plans]


def test_frames_are_offered_where_it_is_known_how_clients_reach_them() -> None:
    assert framed([]) == [("0.0.0.0:0", "")]
    assert framed([], advertised_address="host1") == [("0.0.0.0:0", "host1")]
    # a port mapping before the gRPC port says nothing about the framed one
    assert framed([], advertised_address="host1:7000") == [("", "")]
    assert framed([], advertised_address="host1:7000", framed_advertised_address="host1:7001") == [
        ("0.0.0.0:0", "host1:7001")
    ]
    assert framed([INTERNAL, EXTERNAL], [BIND]) == [("", ""), ("", "")]
    assert framed(
        [INTERNAL, "internal:framed://broker-1:6662", EXTERNAL, "external:framed://localhost:1662"],
        [BIND, "external:framed://0.0.0.0:16662"],
    ) == [("0.0.0.0:0", "broker-1:6662"), ("0.0.0.0:16662", "localhost:1662")]


def test_frames_that_are_advertised_need_a_port() -> None:
    with pytest.raises(ConfigError, match="internal:framed, and framed_port is -1"):
        plan([INTERNAL, "internal:framed://broker-1:6662"])


def test_the_two_ways_to_advertise_frames_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="framed_advertised_address = 'host1' and advertised_"):
        framed([INTERNAL], framed_advertised_address="host1")
    with pytest.raises(ConfigError, match="that is what framed_port is for"):
        framed([INTERNAL, "internal:framed://broker-1:6662"], ["internal:framed://broker-1:6662"])


def test_a_listener_may_have_no_port_of_its_own() -> None:
    """Clients that connect to another listener name it.

    Its port is outside, for example at a load balancer.
    """
    assert plan([INTERNAL, EXTERNAL])[1] == ListenerPlan("external", "", "", "localhost:16660", "")


@pytest.mark.parametrize(
    ("advertised", "bind", "more", "said"),
    [
        (
            ["external"],
            [],
            {},
            ["advertised_listeners", "'external'", "name:pulsarish://host:port"],
        ),
        (
            ["external:pulsarish://localhost"],
            [],
            {},
            ["advertised_listeners", "name:pulsarish://host:port"],
        ),
        (["external:pulsarish://localhost:65536"], [], {}, ["advertised_listeners", "0 to 65535"]),
        (["ex ternal:pulsarish://localhost:1"], [], {}, ["advertised_listeners", "'ex ternal"]),
        (
            ["external:amqp://localhost:6650"],
            [],
            {},
            ["advertised_listeners", "scheme 'amqp'", "pulsarish"],
        ),
        (
            [INTERNAL, EXTERNAL],
            ["external:pulsar://0.0.0.0:1"],
            {},
            ["bind_addresses", "external:pulsar", "not advertised"],
        ),
        ([INTERNAL], ["internal:pulsar://0.0.0.0:7000"], {}, ["bind_addresses", "pulsar_address"]),
        (
            [INTERNAL, INTERNAL],
            [],
            {},
            ["advertised_listeners", "two entries for internal:pulsarish"],
        ),
        (
            [INTERNAL, "external:pulsarish://broker-1:6660"],
            [],
            {},
            ["advertised_listeners", "share broker-1:6660"],
        ),
        (
            [INTERNAL, EXTERNAL_HTTP],
            [],
            {},
            ["external", "no gRPC address", "external:pulsarish://host:port"],
        ),
        ([INTERNAL], [BIND], {}, ["bind_addresses", "external:pulsarish", "not advertised"]),
        (
            [INTERNAL, EXTERNAL],
            [BIND, BIND_HTTP],
            {},
            ["bind_addresses", "external:http", "not advertised"],
        ),
        (
            [INTERNAL],
            ["internal:pulsarish://0.0.0.0:7000"],
            {},
            ["bind_addresses", "listen_address"],
        ),
        ([INTERNAL], ["internal:http://0.0.0.0:7000"], {}, ["bind_addresses", "http_address"]),
        ([INTERNAL, EXTERNAL], ["external:pulsarish://:1"], {}, ["bind_addresses", "host:port"]),
        (
            [INTERNAL, "external:pulsarish://localhost:0"],
            [],
            {},
            ["advertised_listeners", "port 0", "bind_addresses"],
        ),
        ([], [BIND], {}, ["bind_addresses", "'external'", "advertised_listeners"]),
        ([INTERNAL], [], {"internal": "lan"}, ["internal_listener_name", "'lan'", "internal"]),
        (
            [INTERNAL],
            [],
            {"advertised_address": "host1"},
            ["advertised_address", "'host1'", "advertised_listeners", "leave"],
        ),
    ],
)
def test_what_cannot_work_is_refused_with_the_option_and_what_to_do(
    advertised: list[str], bind: list[str], more: dict[str, Any], said: list[str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        plan(advertised, bind, **more)
    assert [words for words in said if words not in str(refused.value)] == []


def test_the_configuration_takes_lists_and_refuses_at_start() -> None:
    environ = {
        "PULSARISH_BROKER__ADVERTISED_LISTENERS": f"{INTERNAL}, {EXTERNAL}",
        "PULSARISH_BROKER__BIND_ADDRESSES": BIND,
        "PULSARISH_BROKER__INTERNAL_LISTENER_NAME": "internal",
    }
    config = load(BrokerConfig, environ=environ, prefix="PULSARISH_BROKER__")
    assert [each.name for each in config.listener_plans()] == ["internal", "external"]
    with pytest.raises(ConfigError, match="internal_listener_name = 'lan'"):
        load(
            BrokerConfig,
            environ=environ,
            prefix="PULSARISH_BROKER__",
            overrides=["internal_listener_name=lan"],
        )


def test_a_client_gets_the_listener_it_names_or_came_in_on() -> None:
    listeners = Listeners(plan([INTERNAL, EXTERNAL]))
    assert listeners.chosen("", "external") == "external"
    assert listeners.chosen("internal", "external") == "internal"
    with pytest.raises(InvalidArgument, match="'lan'; it has internal, external"):
        listeners.chosen("lan", "external")


def test_a_broker_without_the_listener_is_a_reason_to_try_again_not_an_address() -> None:
    told = {
        "internal": ListenerAddresses("broker-1:6660", "broker-1:8080"),
        "external": ListenerAddresses("localhost:16660"),
    }
    broker = BrokerRegistration(
        "broker-1", "broker-1~1", "broker-1:6660", "broker-1:8080", listeners=told
    )
    assert advertised_at(broker, "external").address == "localhost:16660"
    assert http_at(broker, "internal") == "broker-1:8080"
    with pytest.raises(ServiceNotReady, match="broker-1 has no listener 'lan'"):
        advertised_at(broker, "lan")
    with pytest.raises(ServiceNotReady, match="no HTTP address on listener 'external'"):
        http_at(broker, "external")
    with pytest.raises(
        ServiceNotReady, match="no address of the binary protocol on listener 'external'"
    ):
        pulsar_at(broker, "external")


@pytest.mark.parametrize(
    ("at", "by_http", "by_https"),
    [
        (("b:8080", "b:6650", "b:8443", "b:6651"), "http://b:8080", "https://b:8443"),
        (("", "", "b:8443", "b:6651"), "https://b:8443", "https://b:8443"),
        (("b:8080", "b:6650", "", ""), "http://b:8080", ""),
    ],
)
def test_a_client_that_came_by_tls_gets_no_address_without_it(
    at: tuple[str, str, str, str], by_http: str, by_https: str
) -> None:
    web, binary, web_tls, binary_tls = at
    told = ListenerAddresses("b:6660", web, binary, "", "", web_tls, binary_tls)
    broker = BrokerRegistration("b", "b~1", "b:6660", web, binary, listeners={"internal": told})
    assert http_url_at(broker, "internal") == by_http
    urls = (f"pulsar://{binary}" if binary else "", f"pulsar+ssl://{binary_tls}" * bool(binary_tls))
    assert pulsar_at(broker, "internal") == urls
    if by_https:
        assert http_url_at(broker, "internal", has_tls=True) == by_https
        assert pulsar_at(broker, "internal", has_tls=True) == ("", "pulsar+ssl://b:6651")
    else:
        with pytest.raises(ServiceNotReady, match="b has no HTTPS address on listener 'internal'"):
            http_url_at(broker, "internal", has_tls=True)
        with pytest.raises(ServiceNotReady, match="set pulsar_address_tls"):
            pulsar_at(broker, "internal", has_tls=True)


def test_ports_with_tls_are_beside_the_plain_ones() -> None:
    (found,) = plan_listeners(
        advertised_listeners=[],
        internal_listener_name="",
        bind_addresses=[],
        listen_address="0.0.0.0:6660",
        http_address="0.0.0.0:8080",
        advertised_address="b1",
        pulsar_address="0.0.0.0:6650",
        framed_address="0.0.0.0:0",
        listen_address_tls="0.0.0.0:6661",
        http_address_tls="0.0.0.0:8443",
        pulsar_address_tls="0.0.0.0:6651",
        framed_address_tls="0.0.0.0:0",
    )
    assert (found.bind_address, found.bind_address_tls) == ("0.0.0.0:6660", "0.0.0.0:6661")
    assert (found.bind_http_address_tls, found.bind_pulsar_address_tls) == (
        "0.0.0.0:8443",
        "0.0.0.0:6651",
    )
    assert {
        found.advertised_tls,
        found.advertised_http_tls,
        found.advertised_pulsar_tls,
        found.advertised_framed_tls,
    } == {"b1"}


def test_plain_ports_can_be_switched_off() -> None:
    (found,) = plan_listeners(
        advertised_listeners=[],
        internal_listener_name="",
        bind_addresses=[],
        listen_address="",
        http_address="",
        advertised_address="b1:7000",
        listen_address_tls="0.0.0.0:6661",
    )
    assert (found.bind_address, found.advertised, found.advertised_http) == ("", "", "")
    assert (found.bind_address_tls, found.advertised_tls) == ("0.0.0.0:6661", "b1:7000")


def test_a_listener_may_be_plain_inside_and_tls_outside() -> None:
    internal, external = plan_listeners(
        advertised_listeners=[
            INTERNAL,
            "external:pulsarish+ssl://out:16661",
            "external:https://out:18443",
            "external:pulsar+ssl://out:16651",
            "external:framed+ssl://out:16662",
        ],
        internal_listener_name="",
        bind_addresses=[
            "external:pulsarish+ssl://0.0.0.0:16661",
            "external:https://0.0.0.0:18443",
            "external:pulsar+ssl://0.0.0.0:16651",
            "external:framed+ssl://0.0.0.0:16662",
        ],
        listen_address="0.0.0.0:6660",
        http_address="0.0.0.0:8080",
        advertised_address="",
    )
    assert (internal.bind_address_tls, internal.advertised_tls) == ("", "")
    assert (external.bind_address, external.advertised) == ("", "")
    assert (external.bind_address_tls, external.advertised_tls) == ("0.0.0.0:16661", "out:16661")
    assert (external.bind_http_address_tls, external.advertised_http_tls) == (
        "0.0.0.0:18443",
        "out:18443",
    )
    assert external.advertised_pulsar_tls == "out:16651"
    assert (external.bind_framed_address_tls, external.advertised_framed_tls) == (
        "0.0.0.0:16662",
        "out:16662",
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"listen_address": ""}, "listen_address and listen_address_tls are empty"),
        ({"listen_address_tls": "h:1"}, "is to speak TLS: set tls_certificate_file_path"),
        ({"pulsar_address_tls": "h:1"}, "is to speak TLS: set tls_certificate_file_path"),
        ({"tls_key_file_path": "k"}, "tls_certificate_file_path is not"),
        ({"tls_require_trusted_client_cert_on_connect": True}, "needs TLS"),
    ],
)
def test_options_of_tls_that_do_not_fit_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BrokerConfig(**options).validate()


def test_a_client_is_sent_on_where_its_listener_is_known() -> None:
    broker = BrokerRegistration(
        "b2",
        "b2~1",
        "b2:6660",
        listeners={"internal": ListenerAddresses("b2:6660", pulsar_address="b2:6650")},
    )
    own = ListenerPlan("internal", "0.0.0.0:6660", "", "b2", "", bind_pulsar_address="0.0.0.0:6650")
    listeners = Listeners([own])
    assert listeners.pulsar_of_next(broker, "internal", has_tls=False) == ("pulsar://b2:6650", "")
    assert listeners.pulsar_of_next(broker, "internal", has_tls=True) == ("", "")
    assert listeners.pulsar_of_next(broker, "external", has_tls=False) == ("", "")
    # A client that named this listener comes in on the port of the other one.
    mapped = ListenerPlan("external", "", "", "host", "", advertised_pulsar="host:16650")
    assert Listeners([own, mapped]).pulsar_of_next(broker, "internal", has_tls=False) == ("", "")


def test_shared_addresses_name_a_listener_and_what_is_spoken() -> None:
    config = BrokerConfig(
        shared_addresses=("internal:pulsarish://0.0.0.0:6660", "internal:http://0.0.0.0:8080")
    )
    config.validate()
    assert [(each.listener, each.face, each.is_tls, each.address) for each in config.shared()] == [
        ("internal", "pulsarish", False, "0.0.0.0:6660"),
        ("internal", "http", False, "0.0.0.0:8080"),
    ]
    secure = BrokerConfig(
        http_address_tls="h:8643",
        listen_address_tls="h:6861",
        tls_certificate_file_path="c",
        tls_key_file_path="k",
        shared_addresses=("internal:https://h:8443", "internal:pulsarish+ssl://h:6661"),
    )
    assert [(each.face, each.is_tls) for each in secure.shared()] == [
        ("http", True),
        ("pulsarish", True),
    ]


@pytest.mark.parametrize(
    ("shared", "said"),
    [
        ("outer:http://h:8080", "there is no listener 'outer'; there are internal"),
        ("internal:pulsar://h:6650", "no address of its own for it: set pulsar_address"),
        ("internal:https://h:8443", "set http_address_tls"),
        ("h:8080", "shared_addresses: 'h:8080' is not name:pulsarish://host:port"),
    ],
)
def test_a_shared_address_that_nothing_serves_is_refused(shared: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BrokerConfig(pulsar_address="", shared_addresses=(shared,)).validate()


def test_a_shared_address_with_tls_needs_a_certificate() -> None:
    """Its own address may be that of something else that speaks TLS before the broker."""
    config = BrokerConfig(
        advertised_listeners=("internal:pulsarish://h:6660", "internal:https://before:443"),
        shared_addresses=("internal:https://h:8443",),
    )
    with pytest.raises(ConfigError, match="h:8443 of listener 'internal' is to speak TLS: set tls"):
        config.validate()


def test_a_broker_is_found_by_its_names_or_the_others_are_listed() -> None:
    brokers = [
        BrokerRegistration(
            f"b-{number}",
            f"i-{number}",
            "h:6660",
            http_address=f"h:808{number}",
            listeners={"internal": ListenerAddresses("h:6660")},
        )
        for number in (2, 1)
    ]
    for name in ("b-1", "i-1", "h:8081"):
        assert broker_named(brokers, name, "internal") is brokers[1]
    for name in ("b", ""):
        with pytest.raises(NotFound, match=f"there is no broker '{name}'; there are b-1, b-2"):
            broker_named(brokers, name, "internal")
