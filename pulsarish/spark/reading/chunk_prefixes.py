"""The first chunks of messages that end in a split and begin before it.

A message in chunks belongs to the split with its last chunk. So one task, and one batch of a
streaming query, reads each message. Its first chunks are searched backwards from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pulsarish.client.messages.message import Entry
from pulsarish.model.errors import LimitReached
from pulsarish.spark.reading.fetch import PAGE_BYTES, Fetcher
from pulsarish.spark.reading.planning import Piece, Split
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import parse_metadata

__all__ = ["LOOK_BACK_BYTES", "ChunkPrefixes"]

LOOK_BACK_BYTES: Final = 1 << 30
"""How far before a split the beginning of a message is searched."""


class ChunkPrefixes:
    def __init__(self, split: Split, fetcher: Fetcher) -> None:
        self._split = split
        self._fetcher = fetcher

    def find(self, entry: Entry, metadata: MessageMetadata) -> list[Entry]:
        """Return the chunks before this one that lie before the split, in order; none when the
        first of them is no longer kept.

        Raises ``LimitReached`` when it is unknown whether it is kept.
        """
        found: list[Entry] = []
        seen_bytes = 0
        for piece in self._backwards():
            page = [each for entries in self._fetcher.pages([piece]) for each in entries]
            seen_bytes += sum(len(each.data) for each in page)
            for each in reversed(page):
                other = parse_metadata(each.data)
                if other.uuid != metadata.uuid:
                    continue
                found.append(each)
                if other.chunk_id == 0:
                    return found[::-1]
            if seen_bytes > LOOK_BACK_BYTES:
                break
        else:
            if self._split.before_all:
                return []
        raise LimitReached(
            f"topic {self._split.topic}: chunk {metadata.chunk_id} at "
            f"{entry.ledger_id}:{entry.entry_id} continues a message whose first chunk is not "
            f"among the {seen_bytes} bytes before the split; set option 'splitBytes' higher"
        )

    def _backwards(self) -> Iterator[Piece]:
        for piece in reversed(self._split.before):
            window = max(1, int(PAGE_BYTES / max(1.0, piece.size_bytes / piece.entries)))
            last = piece.last
            while last >= piece.first:
                first = max(piece.first, last - window + 1)
                yield piece.part(first, last)
                last = first - 1
