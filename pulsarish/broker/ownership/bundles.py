"""Bundles: the ranges of a namespace's hash space, the unit of ownership."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from pulsarish.metadata import paths
from pulsarish.metadata.records import NamespacePolicies
from pulsarish.model.topic_name import TopicName

__all__ = ["Bundle", "boundaries_of", "bundle_of", "bundles_of", "topic_hash"]

_HASHES: Final = 1 << 32


@dataclass(frozen=True, slots=True, order=True)
class Bundle:
    """A range of a namespace, named as in Apache Pulsar: ``0x40000000_0x80000000``."""

    tenant: str
    namespace: str
    range: str

    @property
    def path(self) -> str:
        """Path of the node with its owner record."""
        return paths.bundle_owner(self.tenant, self.namespace, self.range)

    @classmethod
    def parse(cls, text: str) -> Bundle:
        """Return the bundle that ``str`` wrote."""
        tenant, namespace, range_ = text.split("/")
        return cls(tenant, namespace, range_)

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}/{self.range}"

    def covers(self, name: TopicName) -> bool:
        """Return whether a topic (or one partition) hashes to this bundle."""
        if (name.tenant, name.namespace) != self.namespace_name:
            return False
        (low, high), value = self.edges, topic_hash(name)
        return low <= value < high or value == high == _HASHES - 1

    @property
    def namespace_name(self) -> tuple[str, str]:
        """Tenant and namespace."""
        return self.tenant, self.namespace

    @property
    def edges(self) -> tuple[int, int]:
        """The first hash of the range, and the first after it (for the last bundle: its last).

        Raises ``ValueError`` if the range is none.
        """
        low, high = self.range.split("_")
        return int(low, 16), int(high, 16)

    def part(self, low: int, high: int) -> Bundle:
        """Return the bundle of the same namespace with these edges."""
        return Bundle(self.tenant, self.namespace, f"0x{low:08x}_0x{high:08x}")


@lru_cache(64)
def _equal(count: int) -> tuple[int, ...]:
    return tuple(min(index * _HASHES // count, _HASHES - 1) for index in range(count + 1))


def boundaries_of(space: NamespacePolicies) -> tuple[int, ...]:
    """Return the edges of a namespace's bundles, ascending, from 0 to the greatest hash."""
    return space.boundaries or _equal(space.bundles)


def bundles_of(tenant: str, namespace: str, space: NamespacePolicies) -> list[Bundle]:
    """Return all bundles of a namespace, in the order of their hashes."""
    whole = Bundle(tenant, namespace, "")
    return [whole.part(low, high) for low, high in pairwise(boundaries_of(space))]


def topic_hash(name: TopicName) -> int:
    """Return what decides about the bundle of a topic, or of one partition: CRC32 of its full
    name.
    """
    return zlib.crc32(name.full.encode())


def bundle_of(name: TopicName, space: NamespacePolicies) -> Bundle:
    """Return the bundle that a topic (or one partition) hashes to."""
    edges = boundaries_of(space)
    index = min(bisect_right(edges, topic_hash(name)), len(edges) - 1)
    return Bundle(name.tenant, name.namespace, f"0x{edges[index - 1]:08x}_0x{edges[index]:08x}")
