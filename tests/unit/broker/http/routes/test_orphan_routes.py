"""Which broker searches for orphans when an operator asks for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.route import Call, Moved
from pulsarish.broker.http.routes.orphan_routes import OrphanRoutes
from pulsarish.broker.listeners import INTERNAL
from pulsarish.broker.topics.orphan_search import OrphanSearch
from pulsarish.metadata.records import BrokerRegistration, ListenerAddresses
from pulsarish.model.errors import NotFound
from pulsarish.runtime.seams import HttpRequest, HttpResponse


class Broker:
    """The routes of a broker, with what they ask."""

    def __init__(self, leader: BrokerRegistration | None, *, leads: bool) -> None:
        config: Any = BrokerConfig()
        ownership: Any = SimpleNamespace(leader=SimpleNamespace(is_leader=leads, leader=leader))
        unused: Any = SimpleNamespace(clock=None)
        self.search = OrphanSearch(unused, config, unused, ownership)
        self._routes = {
            route.name: route for route in OrphanRoutes(config, ownership, self.search).routes()
        }

    def ask(self, name: str) -> HttpResponse:
        method, _, path = name.partition(" ")
        request = HttpRequest(method, path, {}, {}, b"", tuple(path.strip("/").split("/")))

        async def answered() -> HttpResponse:
            return await self._routes[name].handler(Call(request, INTERNAL, {"limit": 10}))

        return asyncio.run(answered())


SEARCH = "POST /admin/v2/ledgers/orphans/search"


def test_the_leader_searches_and_its_list_says_so() -> None:
    broker = Broker(None, leads=True)

    def is_searching() -> object:
        return msgspec.json.decode(broker.ask("GET /admin/v2/ledgers/orphans").body)["searching"]

    assert is_searching() is False
    assert broker.ask(SEARCH).status == 204
    assert is_searching() is True


def test_another_broker_sends_the_request_to_the_leader() -> None:
    at = {INTERNAL: ListenerAddresses("b-1:6660", http_address="b-1:8080")}
    leader = BrokerRegistration("b-1", "b-1~1", "b-1:6660", listeners=at)
    broker = Broker(leader, leads=False)
    with pytest.raises(Moved, match="http://b-1:8080"):
        broker.ask(SEARCH)
    assert not broker.search.is_searching


def test_no_broker_searches_while_a_leader_is_elected() -> None:
    broker = Broker(None, leads=False)
    with pytest.raises(NotFound, match="one is being elected"):
        broker.ask(SEARCH)
    assert not broker.search.is_searching
