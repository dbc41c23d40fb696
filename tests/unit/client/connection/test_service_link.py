"""The way of a client through a proxy that was found."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pulsarish.client.connection.service_link import ServiceLink
from pulsarish.client.messages.options import ClientOptions
from pulsarish.model.errors import ConfigError
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.security.client_security import ClientSecurity


def test_a_proxy_whose_connections_cannot_be_made_is_tried_again() -> None:
    made: list[str] = []
    is_broken = True

    def connect(security: ClientSecurity) -> Any:
        if security.tunnel and is_broken:
            raise ConfigError("the certificate file is being replaced")
        made.append(security.tunnel)
        return object()

    async def release(_connections: object) -> None:
        """Leave them open."""

    unused: Any = None
    chosen = ClientOptions("pulsar://proxy:6650")
    book = AddressBook("auto", failures_max=1)
    link = ServiceLink(chosen, book, connect=connect, release=release, clock=unused, tasks=unused)
    with pytest.raises(ConfigError):
        link._use_tunnel("proxy:6655")
    is_broken = False
    link._use_tunnel("proxy:6655")
    assert made == ["", "proxy:6655"]
    asyncio.run(link.close())
