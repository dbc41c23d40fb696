"""Bundles: the ranges of a namespace's hash space, the unit of ownership."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from pulsarish.metadata import paths
from pulsarish.model.topic_name import TopicName

__all__ = ["Bundle", "bundle_of", "bundles_of"]

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
        if (name.tenant, name.namespace) != (self.tenant, self.namespace):
            return False
        low, high = (int(edge, 16) for edge in self.range.split("_"))
        value = zlib.crc32(name.full.encode())
        return low <= value < high or value == high == _HASHES - 1


def _range(index: int, count: int) -> str:
    low = index * _HASHES // count
    high = min((index + 1) * _HASHES // count, _HASHES - 1)
    return f"0x{low:08x}_0x{high:08x}"


def bundles_of(tenant: str, namespace: str, count: int) -> list[Bundle]:
    """Return all bundles of a namespace that is split into ``count``."""
    return [Bundle(tenant, namespace, _range(index, count)) for index in range(count)]


def bundle_of(name: TopicName, count: int) -> Bundle:
    """Return the bundle that a topic (or one partition) hashes to: CRC32 of its full name."""
    index = (zlib.crc32(name.full.encode()) * count) // _HASHES
    # The ranges are cut by integer division, so an index next to a cut may be one off.
    value = zlib.crc32(name.full.encode())
    while value < index * _HASHES // count:
        index -= 1
    while index + 1 < count and value >= (index + 1) * _HASHES // count:
        index += 1
    return Bundle(name.tenant, name.namespace, _range(index, count))
