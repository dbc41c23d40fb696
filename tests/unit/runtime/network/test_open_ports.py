"""Which processes say that every program of other machines may use them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.main import open_bookie_options
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.main import open_broker_options
from pulsarish.runtime.config import load
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.network.open_ports import open_options, warn_of_open_ports


@pytest.mark.parametrize(
    ("address", "is_open"),
    [
        ("", False),
        ("127.0.0.1:6660", False),
        ("127.8.0.1:6660", False),
        ("localhost:6660", False),
        ("[::1]:6660", False),
        ("0.0.0.0:6660", True),
        ("[::]:6660", True),
        (":6660", True),
        ("192.0.2.7:6660", True),
        ("broker-1:6660", True),
    ],
)
def test_only_loopback_is_closed(address: str, is_open: bool) -> None:
    assert open_options([("listen_address", address)]) == ["listen_address"] * is_open


def broker(**settings: str) -> list[str]:
    config = load(
        BrokerConfig,
        environ={},
        prefix="PULSARISH_BROKER__",
        overrides=[f"{name}={value}" for name, value in settings.items()],
    )
    return open_broker_options(config)


_TWO_LISTENERS: Mapping[str, str] = {
    "advertised_listeners": "a:pulsarish://h:1,b:pulsarish://h:2,b:http://h:3",
    "bind_addresses": "b:pulsarish://0.0.0.0:2,b:http://0.0.0.0:3",
}


def test_a_broker_names_its_open_options() -> None:
    assert broker() == []
    assert broker(http_address="0.0.0.0:8080", pulsar_address="0.0.0.0:6650") == [
        "http_address",
        "pulsar_address",
    ]
    assert broker(listen_address="0.0.0.0:6660") == ["listen_address"]
    assert broker(shared_addresses="internal:http://0.0.0.0:8080") == ["shared_addresses"]
    assert broker(**_TWO_LISTENERS) == ["bind_addresses"]


def test_a_broker_with_authentication_or_tls_alone_is_not_open() -> None:
    assert broker(listen_address="0.0.0.0:6660", authentication_enabled="false") != []
    locked = {
        "authentication_enabled": "true",
        "authentication_providers": "token",
        "token_secret_key": "/key",
    }
    assert broker(listen_address="0.0.0.0:6660", **locked) == []
    tls = {"tls_certificate_file_path": "c", "tls_key_file_path": "k"}
    assert broker(listen_address="", listen_address_tls="0.0.0.0:6660", **tls) == []


def bookie(**settings: str) -> list[str]:
    config = load(
        BookieConfig,
        defaults={"bookie_id": "b", "data_directory": "d", "metadata_url": "zk://h:1/p"},
        environ={},
        prefix="PULSARISH_BOOKIE__",
        overrides=[f"{name}={value}" for name, value in settings.items()],
    )
    return open_bookie_options(config)


def test_a_bookie_is_open_without_cluster_key_and_tls() -> None:
    address = "0.0.0.0:3181"
    tls = {"tls_certificate_file_path": "c", "tls_key_file_path": "k"}
    assert bookie() == []
    assert bookie(listen_address=address) == ["listen_address"]
    assert bookie(listen_address=address, cluster_key_file="k") == []
    assert bookie(listen_address=address, **tls) == []


def test_there_is_one_line_with_the_options_and_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_open_ports(get_logger("test"), [], "set it")
        assert caplog.messages == []
        warn_of_open_ports(get_logger("test"), ["listen_address", "http_address"], "set it")
    (line,) = caplog.messages
    assert "listen_address, http_address" in line
    assert "set it; or bind to 127.0.0.1" in line
