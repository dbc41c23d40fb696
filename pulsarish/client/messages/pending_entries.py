"""What a producer keeps for messages that are not completed: the batch that it fills, entries, and
the chunks of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pulsarish.client.messages.entry_encoder import Extras

__all__ = ["Batch", "Callback", "Chunked", "PendingEntry"]

Callback = Any
"""Called with ``(Result.Ok, MessageId)``. The shell reports failures to it."""


class Batch:
    """The batch that the producer fills."""

    __slots__ = (
        "callbacks",
        "extras",
        "first_sequence_id",
        "opened_at",
        "payloads",
        "sequence_ids",
        "size_bytes",
    )

    def __init__(self, first_sequence_id: int, opened_at: float) -> None:
        self.first_sequence_id = first_sequence_id
        self.opened_at = opened_at
        self.payloads: list[bytes] = []
        self.callbacks: list[Callback] = []
        self.extras: dict[int, Extras] = {}
        self.sequence_ids: list[int] | None = None  # None: the ids are consecutive, from the first
        self.size_bytes = 0


class Chunked:
    """What the chunks of one message share: the last entry until it is completed, and the positions
    that are known.
    """

    __slots__ = ("count", "keys", "last")

    def __init__(self, count: int) -> None:
        self.count = count
        self.last: PendingEntry | None = None
        self.keys: list[tuple[int, int]] = []

    def stored(self, ledger_id: int, entry_id: int) -> tuple[tuple[int, int], ...]:
        """Record the receipt of one more chunk. Return all positions after the last chunk.

        Returns nothing before the last chunk, and nothing when the broker does not remember a
        position.
        """
        self.keys.append((ledger_id, entry_id))
        if len(self.keys) < self.count:
            return ()
        self.last = None
        return tuple(self.keys) if all(ledger >= 0 for ledger, _ in self.keys) else ()


class PendingEntry:
    """A sealed entry without an answer.

    ``parts``: everything before the payload, and the payload.
    """

    __slots__ = (
        "callbacks",
        "chunked",
        "deadline",
        "flushes",
        "highest_sequence_id",
        "is_batch",
        "parts",
        "sequence_id",
        "size_bytes",
    )

    def __init__(
        self,
        sequence_id: int,
        highest_sequence_id: int,
        callbacks: Sequence[Callback],
        parts: tuple[bytes, bytes],
        deadline: float,
    ) -> None:
        self.sequence_id = sequence_id
        self.highest_sequence_id = highest_sequence_id
        self.callbacks = callbacks
        # A batch of one message becomes an ordinary entry: smaller, and readable without opening a
        # batch.
        self.is_batch = len(callbacks) > 1
        self.parts = parts
        self.size_bytes = len(parts[0]) + len(parts[1])
        self.deadline = deadline
        self.flushes: Sequence[Callable[[], None]] = ()
        self.chunked: Chunked | None = None
