"""Storage use of ledgers, without I/O: the rows that are summed up, and keys and compression in a
sample of entries.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pulsarish.model.errors import PulsarishError
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.model.topic_name import TopicName
from pulsarish.wire._pb.message_pb2 import SingleMessageMetadata
from pulsarish.wire.entry import as_text, parse_metadata, split_entry
from pulsarish.wire.payload import decompress, split_batch

__all__ = ["Facts", "LedgerUse", "Sample", "places", "shares", "skew", "use_of"]

_KEYS_MAX: Final = 10_000
"""Limit of the different keys that a sample counts."""
_UNPACKED_MAX: Final = 64 << 20


class LedgerUse(NamedTuple):
    """One ledger of a topic. ``stored_bytes``: of all replicas together."""

    tenant: str
    namespace: str
    topic: str
    ledger: int
    kind: str  # topic, compacted, cursor
    entries: int
    length_bytes: int
    stored_bytes: int
    created_ms: int
    closed_ms: int  # 0: open
    freeable: bool
    held: list[tuple[str, int]]  # bytes of the ledger on each bookie


LEDGER_SCHEMA: Final = (
    "tenant string, namespace string, topic string, ledger bigint, kind string, entries bigint, "
    "length_bytes bigint, stored_bytes bigint, created_ms bigint, closed_ms bigint, freeable "
    "boolean, held array<struct<bookie: string, bytes: bigint>>"
)


class Facts(NamedTuple):
    """Facts of a ledger besides its record; for an open one, up to its LAC."""

    entries: int
    length_bytes: int
    closed_ms: int
    freeable: bool


def use_of(name: TopicName, metadata: LedgerMetadata, facts: Facts) -> LedgerUse:
    held = shares(metadata, facts.entries, facts.length_bytes)
    return LedgerUse(
        name.tenant,
        name.namespace_name,
        name.full,
        metadata.ledger_id,
        metadata.purpose.kind.value,
        facts.entries,
        facts.length_bytes,
        sum(size for _, size in held),
        metadata.created_ms,
        facts.closed_ms,
        facts.freeable,
        held,
    )


def shares(metadata: LedgerMetadata, entries: int, length_bytes: int) -> list[tuple[str, int]]:
    """Return the bytes of each member, taking all entries as equally large.

    A bookie may be in several segments.
    """
    found: dict[str, float] = {}
    for index, segment in enumerate(metadata.segments):
        end = (
            metadata.segments[index + 1].first_entry
            if index + 1 < len(metadata.segments)
            else entries
        )
        inside = max(0, min(end, entries) - segment.first_entry)
        share = (
            inside / entries * length_bytes * metadata.write_quorum / metadata.ensemble_size
            if entries
            else 0.0
        )
        for member in segment.members:
            found[member] = found.get(member, 0.0) + share
    return [(member, round(size)) for member, size in found.items()]


def skew(sizes: Sequence[int]) -> float:
    """Return the largest size relative to the mean; 1: all are equal, 0: there are none."""
    return max(sizes) * len(sizes) / sum(sizes) if sizes and sum(sizes) else 0.0


def places(sizes: Sequence[int], count: int) -> list[tuple[int, int]]:
    """Return ``count`` distinct positions, evenly spread over ledgers of these sizes, as pairs of
    index and entry.
    """
    total = sum(sizes)
    found: dict[tuple[int, int], None] = {}
    for number in range(min(count, total)):
        at = total * (2 * number + 1) // (2 * min(count, total))
        for index, size in enumerate(sizes):
            if at < size:
                found[index, at] = None
                break
            at -= size
    return list(found)


@dataclass(slots=True)
class Sample:
    """Counts over some entries of a topic."""

    entries: int = 0
    messages: int = 0
    entry_bytes: int = 0
    plain_bytes: int = 0  # bytes of payloads as programs gave them
    packed_bytes: int = 0  # bytes of the same payloads as they are stored
    # bytes of the same after zlib's fastest level: roughly what compression by a producer would
    # leave
    squeezed_bytes: int = 0
    unread: int = 0  # entries that cannot be decoded: encrypted, of a chunked message, damaged
    keys: Counter[str] = field(default_factory=Counter)

    def take(self, entry: bytes | memoryview) -> None:
        """Count one entry of a topic."""
        self.entries += 1
        self.entry_bytes += len(entry)
        try:
            metadata = parse_metadata(entry)
            if metadata.encryption_keys or metadata.num_chunks_from_msg > 1:
                self.unread += 1
                self.messages += 1
                return
            _, packed = split_entry(entry)
            plain = decompress(
                metadata.compression,
                bytes(packed),
                metadata.uncompressed_size,
                bytes_max=_UNPACKED_MAX,
            )
            keys = [metadata.partition_key] if metadata.HasField("partition_key") else []
            count = 1
            if metadata.HasField("num_messages_in_batch"):
                heads = split_batch(
                    plain,
                    metadata.num_messages_in_batch,
                    lambda _index, head, start, _end: plain[head:start],
                )
                singles = [SingleMessageMetadata.FromString(head) for head in heads]
                keys = [
                    single.partition_key for single in singles if single.HasField("partition_key")
                ]
                count = len(singles)
        except PulsarishError:
            self.unread += 1
            return
        self.messages += count
        self.plain_bytes += len(plain)
        self.packed_bytes += len(packed)
        self.squeezed_bytes += len(zlib.compress(plain, 1))
        for key in keys:
            text = as_text(key)
            if text in self.keys or len(self.keys) < _KEYS_MAX:
                self.keys[text] += 1

    @property
    def compressibility(self) -> float | None:
        """Compressed size of the payloads relative to their size, 0 to 1; ``None`` when none was
        decoded.
        """
        return self.squeezed_bytes / self.plain_bytes if self.plain_bytes else None

    def top_keys(self, count: int) -> list[tuple[str, float]]:
        """Return the most frequent keys and their shares of the sampled messages."""
        return (
            [(key, seen / self.messages) for key, seen in self.keys.most_common(count)]
            if self.messages
            else []
        )
