"""Fixtures for pytest, which finds them by itself where Pulsarish is installed.

    def test_orders(pulsarish_client, pulsarish_topic):
        producer = pulsarish_client.create_producer(pulsarish_topic)

What they need is imported when a test asks for one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pulsarish.client.api.blocking_client import Client
    from pulsarish.testing.local_server import LocalServer

__all__ = ["pulsarish_client", "pulsarish_server", "pulsarish_topic"]

_numbers: Final = itertools.count(1)
_NAME_CHARACTERS_MAX: Final = 60


@pytest.fixture(scope="session")
def pulsarish_server() -> Iterator[LocalServer]:
    """A server in this process for all tests of the session, on free ports."""
    from pulsarish.testing.local_server import LocalServer

    with LocalServer() as server:
        yield server


@pytest.fixture
def pulsarish_client(pulsarish_server: LocalServer) -> Iterator[Client]:
    """A client of ``pulsarish_server``, closed after the test."""
    client = pulsarish_server.client()
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def pulsarish_topic(request: pytest.FixtureRequest) -> str:
    """The whole name of a topic that no other test uses."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:_NAME_CHARACTERS_MAX].strip("-")
    return f"persistent://public/default/{name}-{next(_numbers)}"
