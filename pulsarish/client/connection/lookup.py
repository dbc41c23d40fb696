"""Find the broker that owns a topic, and ask any broker about topics.

A client may ask any broker. It answers, redirects to one that can, or first evicts a dead owner. So
an unreachable broker costs only the same question to the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from pulsarish.client.connection.broker_stream import refused_credentials
from pulsarish.client.connection.lookup_batcher import LookupBatcher
from pulsarish.client.connection.peer_kinds import advice, look_at
from pulsarish.client.schemas.wire import schema_from
from pulsarish.model.errors import (
    ConnectError,
    MetadataUnavailable,
    PulsarishError,
    ServiceNotReady,
    UnknownError,
    error_from_code,
)
from pulsarish.model.schema import Schema
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.network.addresses import is_tls, plain_address
from pulsarish.runtime.seams import (
    TLS,
    CallFailed,
    ClientConnections,
    Clock,
    NotSpoken,
    StreamBroken,
    Tasks,
    Unreachable,
)
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["Located", "Lookup", "LookupLimits", "TopicList"]

M = TypeVar("M", bound=Message)
T = TypeVar("T")

_SCHEMA: Final = "broker.schema"
_TOPICS: Final = "broker.topics"
_WAITING_MAX: Final = 256
"""Calls of a client that wait for changes of lists.

A connection takes a limited number of calls, and lookups use the same one.
"""
_ADVICE_SECONDS: Final = 10.0
"""For this long it counts what was found at an address that does not speak the protocol."""
_LISTINGS_MAX: Final = 10
"""Readings of a list from its start, when it changed between two pages."""


@dataclass(frozen=True, slots=True)
class LookupLimits:
    call_timeout_seconds: float = 5.0
    redirects_max: int = 20
    known_addresses_max: int = 64
    """Brokers remembered in addition to those of the service URL."""


@dataclass(frozen=True, slots=True)
class Located:
    """A topic with ``partitions`` above 0, or the address of the owner of a topic without
    partitions.
    """

    partitions: int
    address: str


@dataclass(frozen=True, slots=True)
class TopicList:
    """Full names of topics, and the hash by which brokers know the list."""

    names: frozenset[str]
    hash: str


class Lookup:
    """Asks brokers: those of the service URL and those learned from answers, first the one that
    answered last.

    Args:
        book: gets the addresses of each broker that an answer names.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        connections: ClientConnections,
        tasks: Tasks,
        *,
        listener: str,
        limits: LookupLimits,
        book: AddressBook,
        clock: Clock,
    ) -> None:
        self._addresses = list(addresses)
        self._clock = clock
        self._tasks = tasks
        self._find: Callable[[], Awaitable[Sequence[str]]] | None = None
        self._finding: asyncio.Future[None] | None = None
        self._changes_count = 0
        # What listens at addresses that do not speak the protocol, and when that was looked at.
        self._advice: dict[str, tuple[float, str]] = {}
        self._connections = connections
        self._calls = LookupBatcher(connections, tasks, limits.call_timeout_seconds)
        self._listener = listener
        self._limits = limits
        self._book = book
        self._may_wait = asyncio.Semaphore(_WAITING_MAX)

    def use(
        self,
        addresses: Sequence[str],
        find: Callable[[], Awaitable[Sequence[str]]] | None,
    ) -> None:
        """Ask these brokers from now on.

        Args:
            addresses: empty where ``find`` is to return them, when they are needed and again when
                none of them answers.
            find: raises ``PulsarishError``.
        """
        self._changes_count += 1
        self._addresses, self._find = list(addresses), find
        self._finding = None
        self._advice.clear()

    async def owner(self, topic: str, *, avoid: str = "") -> str:
        """Return the address of the topic's owner. The broker ``avoid`` is asked last.

        Raises ``ConnectError`` when no broker answers, or the error that a broker answered.
        """
        return (await self._ask(topic, pb.OWNER, avoid)).address

    async def replica(self, topic: str, *, avoid: str = "") -> str:
        """Return the address of a broker that serves readers of the topic, rather not its owner.

        The broker ``avoid`` is asked last. Raises as ``owner``.
        """
        return (await self._ask(topic, pb.REPLICA, avoid)).address

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions, 0 for a topic without partitions.

        Creates the topic when the cluster allows that.
        """
        return (await self._ask(topic, pb.PARTITIONS, "")).partitions

    async def locate(self, topic: str) -> Located:
        """Return the number of partitions, or the owner of a topic without partitions."""
        found = await self._ask(topic, pb.EITHER, "")
        return Located(found.partitions, found.address)

    async def schema(self, topic: str, version: bytes) -> Schema:
        """Return a version of a topic's schema.

        Raises ``ConnectError`` when no broker answers, or the error that a broker answered.
        """
        request = pb.SchemaRequest(topic=topic, version=version).SerializeToString()
        timeout_seconds = self._limits.call_timeout_seconds
        answer = await self._first(
            lambda address: self._call(
                address, _SCHEMA, request, pb.SchemaResponse, timeout_seconds
            )
        )
        if answer.code:
            raise error_from_code(answer.code, answer.message)
        return schema_from(answer.schema)

    async def topics(
        self,
        namespace: str,
        pattern: str,
        *,
        persistent: bool,
        known: TopicList | None = None,
        wait_seconds: float = 0.0,
    ) -> TopicList:
        """Return the topics of a namespace that match a pattern of RE2.

        Args:
            known: what is returned while the list is still the same.
            wait_seconds: wait for this long until it differs from ``known``.

        Raises ``ConnectError`` when no broker can list them now, or the error that a broker
        answered.
        """
        request = pb.TopicsRequest(
            namespace=namespace,
            pattern=pattern,
            non_persistent=not persistent,
            known_hash=known.hash if known is not None else "",
            wait_ms=int(wait_seconds * 1_000),
        )
        if not wait_seconds:
            return await self._whole_list(request, known)
        async with self._may_wait:
            return await self._whole_list(request, known)

    async def _whole_list(self, request: pb.TopicsRequest, known: TopicList | None) -> TopicList:
        """Read all pages, again when the list changes between two of them."""
        for _ in range(_LISTINGS_MAX):
            names: list[str] = []
            request.after = ""
            answer = await self._page(request)
            if known is not None and answer.hash == known.hash:
                return known
            names += answer.topics
            digest = answer.hash
            request.known_hash, request.wait_ms = "", 0
            while answer.more and answer.hash == digest:
                request.after = names[-1]
                answer = await self._page(request)
                names += answer.topics
            if answer.hash == digest:
                return TopicList(frozenset(names), digest)
        raise ServiceNotReady(f"the topics of {request.namespace} change all the time; try again")

    async def _page(self, request: pb.TopicsRequest) -> pb.TopicsResponse:
        data = request.SerializeToString()
        timeout_seconds = self._limits.call_timeout_seconds + request.wait_ms / 1_000

        async def ask(address: str) -> pb.TopicsResponse:
            answer = await self._call(address, _TOPICS, data, pb.TopicsResponse, timeout_seconds)
            if answer.code:
                error = error_from_code(answer.code, answer.message)
                if error.retryable:  # this broker cannot, so another one is asked
                    raise StreamBroken(f"{address}: {error}")
                raise error
            if not answer.hash:  # it has listed all topics
                raise StreamBroken(f"{address}: this broker knows no topic patterns: upgrade it")
            return answer

        return await self._first(ask)

    async def _call(
        self, address: str, method: str, request: bytes, kind: type[M], timeout_seconds: float
    ) -> M:
        try:
            data = await self._connections.call(
                address, method, request, timeout_seconds=timeout_seconds
            )
            return kind.FromString(data)
        except CallFailed as error:
            raise (
                refused_credentials(address, str(error))
                or UnknownError(f"{method} failed at {address}: {error}")
            ) from None
        except DecodeError as error:
            raise StreamBroken(f"{address} answered what is no {method} answer: {error}") from None

    async def _ask(self, topic: str, wanted: pb.LookupWanted, avoid: str) -> pb.LookupResponse:
        return await self._first(lambda address: self._follow(address, topic, wanted), avoid)

    async def _first(self, ask: Callable[[str], Awaitable[T]], avoid: str = "") -> T:
        """Return the answer of the first broker that answers.

        One that does not reach the metadata service cannot answer; others may. Raises
        ``ConnectError`` when the client goes to other brokers meanwhile.
        """
        changes_count = self._changes_count
        failures: list[str] = []
        away: MetadataUnavailable | None = None
        if not self._addresses:
            await self._asked(self._find_addresses(), changes_count)
        asked = sorted(self._addresses, key=lambda known: known == avoid)
        for address in asked:
            try:
                answer = await self._asked(ask(address), changes_count)
            except NotSpoken as error:
                failures.append(await self._advise(address, error))
                continue
            except Unreachable as error:
                failures.append(f"{error}: start a broker there, or correct host and port")
                continue
            except (StreamBroken, TimeoutError) as error:
                failures.append(str(error).removeprefix(TLS) or f"{address} gave no answer")
                continue
            except MetadataUnavailable as error:
                away = error
                continue
            self._prefer(address)
            return answer
        self._check_unchanged(changes_count)
        if self._find is not None:
            self._addresses.clear()  # others may be behind the service URL now
        if away is not None:
            raise away
        names = ", ".join(map(plain_address, asked))
        raise ConnectError(f"no broker of {names} can be reached: {'; '.join(failures)}")

    async def _asked(self, asking: Awaitable[T], changes_count: int) -> T:
        """Return or raise what a broker answers, unless the client has left it meanwhile."""
        try:
            answer = await asking
        except Exception:
            self._check_unchanged(changes_count)
            raise
        self._check_unchanged(changes_count)
        return answer

    def _check_unchanged(self, changes_count: int) -> None:
        """Raise ``ConnectError`` if the client has gone to another cluster: what brokers of the
        former one answer is not true there.
        """
        if self._changes_count != changes_count:
            raise ConnectError("the client has left the cluster that it asked")

    async def _find_addresses(self) -> None:
        """Ask the hosts of the service URL for addresses; lookups at the same time share it."""
        if self._find is None:
            return
        if self._finding is None:
            self._finding = asyncio.get_running_loop().create_future()
            _ = self._tasks.spawn(
                self._settle_addresses(self._find, self._finding), name="find brokers"
            )
        # Shielded: others wait for the same answer.
        await asyncio.shield(self._finding)

    async def _settle_addresses(
        self, find: Callable[[], Awaitable[Sequence[str]]], finding: asyncio.Future[None]
    ) -> None:
        failure: Exception | None = ConnectError("the client has ended")
        try:
            found = await find()
            if find is self._find:
                self._addresses = list(found)
            failure = None
        except PulsarishError as error:
            failure = error
        finally:
            if self._finding is finding:
                self._finding = None
            if failure is None:
                finding.set_result(None)
            else:
                finding.set_exception(failure)
                # Retrieve the exception so that asyncio does not warn when no caller waits.
                finding.exception()

    async def _advise(self, address: str, error: NotSpoken) -> str:
        """Return what listens at an address instead of a broker, and what helps."""
        now = self._clock.monotonic()
        looked_at, words = self._advice.get(address, (-_ADVICE_SECONDS, ""))
        if now - looked_at >= _ADVICE_SECONDS:
            kind = await look_at(self._connections, address, self._clock, self._tasks)
            words = str(error) if kind is None else advice(address, "pulsarish", kind)
            self._advice[address] = now, words
        return words

    async def _follow(self, address: str, topic: str, wanted: pb.LookupWanted) -> pb.LookupResponse:
        """Look up at a broker and follow its redirects."""
        changes_count = self._changes_count
        request = pb.LookupRequest(topic=topic, wanted=wanted, listener=self._listener)
        for _ in range(self._limits.redirects_max):
            response = await self._calls.ask(address, request)
            self._check_unchanged(changes_count)
            if response.code:
                raise error_from_code(response.code, response.message)
            if is_tls(address):
                # Who asks with TLS goes on with TLS.
                if response.broker_id and not response.address_tls:
                    raise ServiceNotReady(
                        f"broker {response.broker_id} has no address with TLS: set its "
                        "listen_address_tls"
                    )
                response.address = response.address_tls
                response.framed_address = response.framed_address_tls
            self._remember(response.address)
            if response.address:
                self._book.put(response.address, response.address, response.framed_address)
            if not response.redirect:
                return response
            address = response.address
            # The first answer said already that the topic has no partitions.
            request = pb.LookupRequest(topic=topic, authoritative=True, listener=self._listener)
        raise ServiceNotReady(
            f"lookup of {topic} was redirected {self._limits.redirects_max} times: ownership is "
            "moving; try again"
        )

    def next_owner(self, moved_to: pb.BrokerAddresses, former: str) -> str:
        """Return the address of the broker to which a topic moves, as its former owner says it.

        Empty: the topic must be looked up. A client that names a listener in its lookups may not
        reach the addresses of the one that it connected to.
        """
        if is_tls(former):  # who came with TLS goes on with TLS
            address, framed = moved_to.address_tls, moved_to.framed_address_tls
        else:
            address, framed = moved_to.address, moved_to.framed_address
        if self._listener or not address:
            return ""
        self._remember(address)
        self._book.put(address, address, framed)
        return address

    def _prefer(self, address: str) -> None:
        if address in self._addresses[1:]:
            self._addresses.remove(address)
            self._addresses.insert(0, address)

    def _remember(self, address: str) -> None:
        if (
            address
            and address not in self._addresses
            and len(self._addresses) < self._limits.known_addresses_max
        ):
            self._addresses.append(address)
