"""Finding the broker that owns a topic.

Any broker can be asked: it answers, or sends on to one that can, or evicts a dead owner first. So a broker that cannot be reached costs
nothing but the question to the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pulsarish.client.lookup_calls import LookupCalls
from pulsarish.model.errors import ConnectError, ServiceNotReady, error_from_code
from pulsarish.runtime.seams import Connections, StreamBroken, Tasks
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["Located", "Lookup", "LookupLimits"]


@dataclass(frozen=True, slots=True)
class LookupLimits:
    call_timeout_seconds: float = 5.0
    redirects_max: int = 20
    known_addresses_max: int = 64
    """Brokers that are remembered beside those of the service URL."""


@dataclass(frozen=True, slots=True)
class Located:
    """A topic that has ``partitions`` (0: none), and otherwise its owner's address."""

    partitions: int
    address: str


class Lookup:
    """Asks the brokers of the service URL, and those that were heard of since, beginning with the one that answered last."""

    def __init__(self, addresses: Sequence[str], connections: Connections, tasks: Tasks, *, listener: str, limits: LookupLimits) -> None:
        self._addresses = list(addresses)
        self._calls = LookupCalls(connections, tasks, limits.call_timeout_seconds)
        self._listener = listener
        self._limits = limits

    async def owner(self, topic: str, *, avoid: str = "") -> str:
        """The address of the topic's owner. ``avoid`` was found dead and is asked last.

        Raises ``ConnectError`` when no broker answers, or the error that a broker answered.
        """
        return (await self._ask(topic, pb.OWNER, avoid)).address

    async def partitions(self, topic: str) -> int:
        """The number of partitions, 0 for a topic that is not partitioned; the topic is made when the cluster allows that."""
        return (await self._ask(topic, pb.PARTITIONS, "")).partitions

    async def locate(self, topic: str) -> Located:
        """Both: the number of partitions, or the owner of a topic that has none."""
        found = await self._ask(topic, pb.EITHER, "")
        return Located(found.partitions, found.address)

    async def _ask(self, topic: str, wanted: pb.LookupWanted, avoid: str) -> pb.LookupResponse:
        """The answer of the first broker that gives one; redirects are followed."""
        failures: list[str] = []
        for address in sorted(self._addresses, key=lambda known: known == avoid):
            try:
                answer = await self._follow(address, topic, wanted)
            except (StreamBroken, TimeoutError) as error:
                failures.append(str(error) or f"{address} gave no answer")
                continue
            if address != self._addresses[0]:
                self._prefer(address)
            return answer
        raise ConnectError(f"no broker of {', '.join(self._addresses)} can be reached: {'; '.join(failures)}")

    async def _follow(self, address: str, topic: str, wanted: pb.LookupWanted) -> pb.LookupResponse:
        request = pb.LookupRequest(topic=topic, wanted=wanted, listener=self._listener)
        for _ in range(self._limits.redirects_max):
            response = await self._calls.ask(address, request)
            if response.code:
                raise error_from_code(response.code, response.message)
            self._remember(response.address)
            if not response.redirect:
                return response
            address = response.address
            # That it has no partitions is known by now.
            request = pb.LookupRequest(topic=topic, authoritative=True, listener=self._listener)
        raise ServiceNotReady(f"lookup of {topic} was redirected {self._limits.redirects_max} times: ownership is moving; try again")

    def _prefer(self, address: str) -> None:
        self._addresses.remove(address)
        self._addresses.insert(0, address)

    def _remember(self, address: str) -> None:
        if address and address not in self._addresses and len(self._addresses) < self._limits.known_addresses_max:
            self._addresses.append(address)
