"""Rows into batches.

Which rows of a task share an entry depends on the rows only, never on the time. A row that says
when it expires shares none, because brokers do not look into batches.
"""

from __future__ import annotations

from typing import Final

from pulsarish.client.messages.entry_encoder import (
    BATCHED_BYTES_MAX,
    NO_EXTRAS,
    Extras,
    encode_batch,
)

__all__ = ["BATCH_BYTES_MAX", "BATCH_MESSAGES_MAX", "Filling", "Made"]

BATCH_MESSAGES_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 128 * 1024


Made = tuple[bytes, int, int, int, Extras]
"""The arguments of ``BatchPublisher.add``: the encoded batch, its messages, the first and last
sequence id, and what the metadata of the entry carries.
"""


class Filling:
    """The batch that is being filled for one log."""

    __slots__ = ("_extras", "_of_all", "_payloads", "_sequence_ids", "_size_bytes")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._payloads: list[bytes] = []
        self._sequence_ids: list[int] = []
        self._extras: dict[int, Extras] = {}
        self._size_bytes = 0
        self._of_all = NO_EXTRAS

    def add(self, payload: bytes, extras: Extras | None, sequence_id: int) -> Made | None:
        """Add a message. Return the previous batch when this message did not fit into it."""
        size_bytes = len(payload) + BATCHED_BYTES_MAX
        if extras is not None:
            size_bytes += extras.size_bytes_max()
        made = None
        count = len(self._payloads)
        is_alone = extras is not None and extras.is_sent_alone
        if count and (
            count >= BATCH_MESSAGES_MAX
            or self._size_bytes + size_bytes > BATCH_BYTES_MAX
            or is_alone
            or self._of_all is not NO_EXTRAS
        ):
            made, count = self.take(), 0
        if extras is not None:
            self._extras[count] = extras
            if is_alone:
                self._of_all = extras.read_by_brokers()
        self._payloads.append(payload)
        self._sequence_ids.append(sequence_id)
        self._size_bytes += size_bytes
        return made

    def take(self) -> Made | None:
        """Return the batch; the next one is empty."""
        ids = self._sequence_ids
        if not ids:
            return None
        count, first, last = len(ids), ids[0], ids[-1]
        numbers = range(first, last + 1) if last - first == count - 1 else ids
        encoded = encode_batch(self._payloads, numbers, self._extras)
        of_all = self._of_all
        self._clear()
        return encoded, count, first, last, of_all
