"""What a process tells others where it is."""

from __future__ import annotations

import pytest

from pulsarish.runtime.network.addresses import advertised_address, host_of


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
