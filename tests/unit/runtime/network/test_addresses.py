"""What a process tells others where it is."""

from __future__ import annotations

import pytest

from pulsarish.runtime.network.addresses import (
    advertised_address,
    host_of,
    is_tls,
    plain_address,
    split_address,
    transport_of,
)


@pytest.mark.parametrize(
    ("advertised", "told"),
    [
        ("", "0.0.0.0:3181"),
        ("b1.example", "b1.example:3181"),
        ("b1.example:0", "b1.example:3181"),
        ("b1.example:4000", "b1.example:4000"),
        ("[fd00::1]", "[fd00::1]:3181"),
        ("[fd00::1]:4000", "[fd00::1]:4000"),
    ],
)
def test_the_host_or_both_may_be_said(advertised: str, told: str) -> None:
    assert advertised_address(advertised, "0.0.0.0:3181") == told


def test_the_host_of_an_address() -> None:
    assert [host_of(address) for address in ("b1:1", "[fd00::1]:1")] == ["b1", "[fd00::1]"]


def test_an_address_says_its_transport_and_tls() -> None:
    addresses = ("h:1", "tls:h:1", "framed:h:1", "framed:tls:[fd00::1]:1")
    assert [plain_address(address) for address in addresses] == ["h:1", "h:1", "h:1", "[fd00::1]:1"]
    assert [is_tls(address) for address in addresses] == [False, True, False, True]
    assert [transport_of(address) for address in addresses] == [
        "",
        "tls:",
        "framed:",
        "framed:tls:",
    ]
    assert split_address("framed:tls:[fd00::1]:7") == ("[fd00::1]", 7)
    assert host_of("framed:tls:h:1") == "h"


def test_what_is_advertised_has_the_transport_of_the_listener() -> None:
    assert advertised_address("", "framed:tls:h:1") == "framed:tls:h:1"
    assert advertised_address("out", "framed:tls:h:1") == "framed:tls:out:1"
    assert advertised_address("out:7", "tls:h:1") == "tls:out:7"
    assert advertised_address("out:0", "h:1") == "out:1"
