"""Rows into batches: which rows of a task stand together in an entry depends on the rows alone, never on the time."""

from __future__ import annotations

from typing import Final

from pulsarish.client.encoding import BATCHED_BYTES_MAX, Extras, encode_batch

__all__ = ["BATCH_BYTES_MAX", "BATCH_MESSAGES_MAX", "Filling"]

BATCH_MESSAGES_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 128 * 1024


class Filling:
    """The batch that is being filled for one log."""

    __slots__ = ("_extras", "_payloads", "_sequence_ids", "_size_bytes")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._payloads: list[bytes] = []
        self._sequence_ids: list[int] = []
        self._extras: dict[int, Extras] = {}
        self._size_bytes = 0

    def takes(self, size_bytes: int) -> bool:
        """Whether a message of this size still belongs into this batch. An empty one takes any."""
        count = len(self._payloads)
        return not count or (count < BATCH_MESSAGES_MAX and self._size_bytes + size_bytes <= BATCH_BYTES_MAX)

    @staticmethod
    def size_of(payload: bytes, extras: Extras | None) -> int:
        """At least what a message takes in a batch, in bytes."""
        return len(payload) + BATCHED_BYTES_MAX + (extras.size_bytes_max() if extras is not None else 0)

    def add(self, payload: bytes, extras: Extras | None, sequence_id: int, size_bytes: int) -> None:
        if extras is not None:
            self._extras[len(self._payloads)] = extras
        self._payloads.append(payload)
        self._sequence_ids.append(sequence_id)
        self._size_bytes += size_bytes

    def take(self) -> tuple[bytes, int, int, int] | None:
        """What ``BatchPublisher.add`` wants: the encoded batch, its messages, the first and last sequence id. The next one is empty."""
        ids = self._sequence_ids
        if not ids:
            return None
        count, first, last = len(ids), ids[0], ids[-1]
        numbers = range(first, last + 1) if last - first == count - 1 else ids
        encoded = encode_batch(self._payloads, numbers, self._extras)
        self._clear()
        return encoded, count, first, last
