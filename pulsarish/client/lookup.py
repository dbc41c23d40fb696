"""Finding the broker that owns a topic.

Any broker can be asked: it answers, or sends on to one that can, or evicts a dead owner first. So a broker that cannot be reached costs
nothing but the question to the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from pulsarish.model.errors import ConnectError, ServiceNotReady, UnknownError, error_from_code
from pulsarish.runtime.seams import CallFailed, Connections, StreamBroken
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["Lookup", "LookupLimits"]


@dataclass(frozen=True, slots=True)
class LookupLimits:
    call_timeout_seconds: float = 5.0
    redirects_max: int = 20
    known_addresses_max: int = 64
    """Brokers that are remembered beside those of the service URL."""


class Lookup:
    """Asks the brokers of the service URL, and those that were heard of since, beginning with the one that answered last."""

    def __init__(self, addresses: Sequence[str], connections: Connections, *, listener: str, limits: LookupLimits) -> None:
        self._addresses = list(addresses)
        self._connections = connections
        self._listener = listener
        self._limits = limits

    async def owner(self, topic: str, *, avoid: str = "") -> str:
        """The address of the topic's owner. ``avoid`` was found dead and is asked last.

        Raises ``ConnectError`` when no broker answers, or the error that a broker answered.
        """
        request = pb.LookupRequest(topic=topic, listener=self._listener)
        response = pb.LookupResponse()
        response.ParseFromString(await self._ask("broker.lookup", request.SerializeToString(), avoid, topic))
        self._remember(response.address)
        return response.address

    async def partitions(self, topic: str) -> int:
        """The number of partitions, 0 for a topic that is not partitioned; the topic is made when the cluster allows that."""
        request = pb.PartitionsRequest(topic=topic, create=True)
        response = pb.PartitionsResponse()
        response.ParseFromString(await self._ask("broker.partitions", request.SerializeToString(), "", topic))
        return response.partitions

    async def _ask(self, method: str, request: bytes, avoid: str, topic: str) -> bytes:
        """The answer of the first broker that gives one; redirects are followed."""
        failures: list[str] = []
        for address in sorted(self._addresses, key=lambda known: known == avoid):
            try:
                answer = await self._follow(method, address, request, topic)
            except (StreamBroken, TimeoutError) as error:
                failures.append(str(error) or f"{address} gave no answer")
                continue
            except CallFailed as error:
                raise UnknownError(f"{method} failed at {address}: {error}") from None
            self._prefer(address)
            return answer
        raise ConnectError(f"no broker of {', '.join(self._addresses)} can be reached: {'; '.join(failures)}")

    async def _follow(self, method: str, address: str, request: bytes, topic: str) -> bytes:
        timeout = self._limits.call_timeout_seconds
        for _ in range(self._limits.redirects_max):
            answer = await self._connections.call(address, method, request, timeout_seconds=timeout)
            try:
                # Both answers have code and message in the same fields.
                response = pb.LookupResponse.FromString(answer) if method == "broker.lookup" else pb.PartitionsResponse.FromString(answer)
            except DecodeError as error:
                raise StreamBroken(f"{address} answered what is no {method} answer: {error}") from None
            if response.code:
                raise error_from_code(response.code, response.message)
            if not isinstance(response, pb.LookupResponse) or not response.redirect:
                return answer
            address = response.address
            self._remember(address)
            request = pb.LookupRequest(topic=topic, authoritative=True, listener=self._listener).SerializeToString()
        raise ServiceNotReady(f"lookup of {topic} was redirected {self._limits.redirects_max} times: ownership is moving; try again")

    def _prefer(self, address: str) -> None:
        self._addresses.remove(address)
        self._addresses.insert(0, address)

    def _remember(self, address: str) -> None:
        if address and address not in self._addresses and len(self._addresses) < self._limits.known_addresses_max:
            self._addresses.append(address)
