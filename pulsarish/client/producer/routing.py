"""Choose the partition of a message."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from pulsarish.client.enums import HashingScheme, PartitionsRoutingMode
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.hashing import boost_hash, java_string_hash, murmur3_32_hash

__all__ = ["OutgoingMessage", "Router", "hash_key", "make_router"]


class OutgoingMessage:
    """What a custom router sees of a message to send, with the names of ``Message``."""

    __slots__ = ("_data", "_partition_key", "_properties")

    def __init__(self, data: bytes, partition_key: str | None, properties: dict[str, str]) -> None:
        self._data = data
        self._partition_key = partition_key
        self._properties = properties

    def data(self) -> bytes:
        return self._data

    def partition_key(self) -> str:
        return self._partition_key or ""

    def properties(self) -> dict[str, str]:
        return self._properties


class Router(Protocol):
    """``route`` returns a partition; ``-1`` leaves the choice to the producer (round robin)."""

    def route(self, message: OutgoingMessage | None, key: str | None) -> int: ...


def hash_key(scheme: HashingScheme, key: str, partitions_count: int) -> int:
    """Return the partition of a key, the same as in Apache Pulsar's clients."""
    if scheme is HashingScheme.JavaStringHash:
        return java_string_hash(key) % partitions_count
    of_bytes = boost_hash if scheme is HashingScheme.BoostHash else murmur3_32_hash
    return of_bytes(key.encode()) % partitions_count


class _KeyRouter:
    """Routes keyed messages by hash, others to one fixed partition or round robin."""

    def __init__(self, scheme: HashingScheme, partitions_count: int, fixed: int) -> None:
        self._scheme = scheme
        self._count = partitions_count
        self._fixed = fixed
        self._known: dict[str, int] = {}

    def route(self, message: OutgoingMessage | None, key: str | None) -> int:
        if key is None:
            return self._fixed
        partition = self._known.get(key)
        if partition is None:
            partition = hash_key(self._scheme, key, self._count)
            if len(self._known) < KNOWN_KEYS_MAX:
                self._known[key] = partition
        return partition


KNOWN_KEYS_MAX = 10_000
"""Keys whose hash a producer remembers: hashing in Python costs more than the rest of a send."""


class _CustomRouter:
    def __init__(self, choose: Callable[[Any, int], int], partitions_count: int) -> None:
        self._choose = choose
        self._count = partitions_count

    def route(self, message: OutgoingMessage | None, key: str | None) -> int:
        partition = self._choose(message, self._count)
        if type(partition) is not int or not 0 <= partition < self._count:
            raise InvalidArgument(
                f"message_router answered {partition!r}: it must answer an int from 0 to "
                f"{self._count - 1}"
            )
        return partition


def make_router(
    mode: PartitionsRoutingMode,
    scheme: HashingScheme,
    partitions_count: int,
    random_stream: random.Random,
    message_router: Callable[[Any, int], int] | None = None,
) -> Router:
    """Return the router of one partitioned producer."""
    if mode is PartitionsRoutingMode.CustomPartition:
        assert message_router is not None, "the options are checked"
        return _CustomRouter(message_router, partitions_count)
    fixed = (
        random_stream.randrange(partitions_count)
        if mode is PartitionsRoutingMode.UseSinglePartition
        else -1
    )
    return _KeyRouter(scheme, partitions_count, fixed)
