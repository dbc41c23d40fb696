"""Which proxy the environment names for a host, as gRPC's C core reads it."""

from __future__ import annotations

import pytest

from pulsarish.runtime.network.http_tunnel import proxy_for


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({}, None),
        ({"http_proxy": "http://p:1"}, "p:1"),
        ({"http_proxy": "http://p:1", "https_proxy": "http://q:2"}, "q:2"),
        (
            {"http_proxy": "http://p:1", "https_proxy": "http://q:2", "grpc_proxy": "http://r:3"},
            "r:3",
        ),
        ({"grpc_proxy": "socks5://p:1"}, None),
        ({"grpc_proxy": "p:1"}, None),
        ({"grpc_proxy": "http://p:1", "no_proxy": "localhost, .internal"}, None),
        ({"grpc_proxy": "http://p:1", "no_proxy": "broker.internal.example"}, "p:1"),
        ({"grpc_proxy": "http://p:1", "no_grpc_proxy": "other", "no_proxy": ".internal"}, "p:1"),
    ],
)
def test_proxy(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], proxy: str | None) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    found = proxy_for("broker.internal")
    assert (found.netloc if found is not None else None) == proxy
