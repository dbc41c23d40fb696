"""Lists of topics, as a client reads them page by page from the brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pulsarish.client.connection.lookup import Lookup, LookupLimits, TopicList
from pulsarish.model.errors import AuthorizationError, ConnectError, MetadataUnavailable
from pulsarish.runtime.clock import SystemClock
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.wire._pb import broker_pb2 as pb

Answer = pb.TopicsResponse | Exception


class Brokers:
    """Brokers that answer by a script, and keep what they were asked."""

    def __init__(self, **answers: list[Answer]) -> None:
        self._answers = answers
        self.asked: list[tuple[str, pb.TopicsRequest, float]] = []

    async def call(
        self, address: str, method: str, request: bytes, *, timeout_seconds: float
    ) -> bytes:
        assert method == "broker.topics"
        self.asked.append((address, pb.TopicsRequest.FromString(request), timeout_seconds))
        answer = self._answers[address].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer.SerializeToString()


def page(*names: str, digest: str = "h1", more: bool = False) -> pb.TopicsResponse:
    return pb.TopicsResponse(topics=names, hash=digest, more=more)


def refusal(error: Callable[[str], Any]) -> pb.TopicsResponse:
    made = error("no")
    return pb.TopicsResponse(code=made.code, message=str(made))


def listed(brokers: Brokers, **options: Any) -> TopicList:
    async def read() -> TopicList:
        connections: Any = brokers
        tasks: Any = None
        lookup = Lookup(
            sorted(brokers._answers),
            connections,
            tasks,
            listener="",
            limits=LookupLimits(call_timeout_seconds=5.0),
            book=AddressBook("auto", failures_max=1),
            clock=SystemClock(),
        )
        return await lookup.topics("acme/shop", "acme/shop/.*", **{"persistent": True, **options})

    return asyncio.run(read())


def test_all_pages_make_one_list() -> None:
    brokers = Brokers(a=[page("a", "b", more=True), page("c")])
    assert listed(brokers) == TopicList(frozenset("abc"), "h1")
    assert [request.after for _, request, _ in brokers.asked] == ["", "b"]


def test_a_list_that_changes_between_two_pages_is_read_again() -> None:
    known = TopicList(frozenset("x"), "h0")
    changed = page("c", digest="h2")
    brokers = Brokers(a=[page("a", "b", more=True), changed, page("b", "c", digest="h2")])
    found = listed(brokers, known=known, wait_seconds=10.0)
    assert found == TopicList(frozenset("bc"), "h2")
    # only the first page waits for a change, and as long as it may
    waits = [(request.known_hash, request.wait_ms) for _, request, _ in brokers.asked]
    assert waits == [("h0", 10_000), ("", 0), ("", 0)]
    assert [timeout for _, _, timeout in brokers.asked] == [15.0, 5.0, 5.0]


def test_a_list_that_is_still_the_same_is_returned_as_it_was() -> None:
    known = TopicList(frozenset("x"), "h1")
    assert listed(Brokers(a=[page()]), known=known) is known


@pytest.mark.parametrize(
    "answer",
    [
        TimeoutError(),
        refusal(MetadataUnavailable),
        pb.TopicsResponse(topics=["all", "topics"]),  # of a version that knows no patterns
    ],
)
def test_a_broker_that_cannot_list_now_is_left_for_another_one(answer: Answer) -> None:
    assert listed(Brokers(a=[answer], b=[page("a")])).names == frozenset("a")
    with pytest.raises(ConnectError):
        listed(Brokers(a=[answer]))


def test_a_refusal_is_final() -> None:
    with pytest.raises(AuthorizationError):
        listed(Brokers(a=[refusal(AuthorizationError)], b=[page("a")]))
