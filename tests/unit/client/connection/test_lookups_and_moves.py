"""Lookups that are under way while the client goes to another cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from pulsarish.client.connection.lookup import Lookup, LookupLimits
from pulsarish.model.errors import AuthenticationError, ConnectError, PulsarishError, TopicNotFound
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.seams import StreamBroken
from pulsarish.runtime.tasks import Supervisor
from pulsarish.wire._pb import broker_pb2 as pb

OWNER = pb.LookupResponse(address="owner:1", framed_address="framed:owner:2")
REDIRECT = pb.LookupResponse(redirect=True, address="other:1")
REFUSAL = pb.LookupResponse(code=TopicNotFound.code, message="no such topic")


class Brokers:
    """Answer with the next of ``answers``, after the client has done ``meanwhile``."""

    def __init__(self, *answers: pb.LookupResponse | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def call(self, address: str, _method: str, _request: bytes, **_: object) -> bytes:
        self.asked.append(address)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return pb.LookupsResponse(answers=[answer]).SerializeToString()


def lookup_at(brokers: Brokers, book: AddressBook | None = None) -> Lookup:
    unused: Any = None
    connections: Any = brokers
    return Lookup(
        ["here:1", "here:2"],
        connections,
        Supervisor(),
        listener="",
        limits=LookupLimits(),
        book=book or AddressBook("auto", failures_max=1),
        clock=unused,
    )


@pytest.mark.parametrize(
    "answer", [OWNER, REDIRECT, REFUSAL, StreamBroken("lost"), AuthenticationError("expired")]
)
def test_an_answer_of_the_former_cluster_is_not_taken(answer: Any) -> None:
    async def run() -> None:
        brokers = Brokers(answer, OWNER)
        book = AddressBook("auto", failures_max=1)
        lookup = lookup_at(brokers, book)
        brokers.meanwhile = lambda: lookup.use(["there:1"], None)
        with pytest.raises(ConnectError, match="has left the cluster"):
            await lookup.owner("t")
        assert book.get("owner:1") is book.get("other:1") is None
        assert await lookup.owner("t") == "owner:1"
        assert brokers.asked == ["here:1", "there:1"]

    asyncio.run(run())


@pytest.mark.parametrize("failure", [None, AuthenticationError("expired")])
def test_addresses_of_the_former_cluster_are_not_asked(failure: PulsarishError | None) -> None:
    async def run() -> None:
        brokers = Brokers(OWNER)
        lookup = lookup_at(brokers)

        async def find() -> Sequence[str]:
            lookup.use(["there:1"], None)
            if failure is not None:
                raise failure
            return ["here:1"]

        finding: Callable[[], Awaitable[Sequence[str]]] = find
        lookup.use((), finding)
        with pytest.raises(ConnectError, match="has left the cluster"):
            await lookup.owner("t")
        assert await lookup.owner("t") == "owner:1"
        assert brokers.asked == ["there:1"]

    asyncio.run(run())


def test_who_did_not_answer_is_named() -> None:
    async def run() -> None:
        brokers = Brokers(StreamBroken("lost"), StreamBroken("lost, too"))
        lookup = lookup_at(brokers)
        brokers.meanwhile = lambda: lookup._remember("later:1")
        with pytest.raises(ConnectError, match="no broker of here:1, here:2 can be reached: lost;"):
            await lookup.owner("t")

    asyncio.run(run())
