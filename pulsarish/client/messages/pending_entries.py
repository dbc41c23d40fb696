"""What a producer holds of messages that are not completed: the batch that is being filled, entries, and the chunks of a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pulsarish.client.messages.entry_encoder import Extras

__all__ = ["Batch", "Callback", "Chunked", "PendingEntry"]

Callback = Any
"""Called with ``(Result.Ok, MessageId)``; the shell knows how to tell it a failure."""


class Batch:
    """The batch that is being filled."""

    __slots__ = ("callbacks", "extras", "first_sequence_id", "opened_at", "payloads", "sequence_ids", "size_bytes")

    def __init__(self, first_sequence_id: int, opened_at: float) -> None:
        self.first_sequence_id = first_sequence_id
        self.opened_at = opened_at
        self.payloads: list[bytes] = []
        self.callbacks: list[Callback] = []
        self.extras: dict[int, Extras] = {}
        self.sequence_ids: list[int] | None = None  # None: they follow each other from the first
        self.size_bytes = 0


class Chunked:
    """What the entries of a message in chunks share: the last one until it is completed, and where they lie as far as that is known."""

    __slots__ = ("count", "keys", "last")

    def __init__(self, count: int) -> None:
        self.count = count
        self.last: PendingEntry | None = None
        self.keys: list[tuple[int, int]] = []

    def stored(self, ledger_id: int, entry_id: int) -> tuple[tuple[int, int], ...]:
        """One more has its receipt. Where all lie after the last; nothing before that, and when the broker does not remember a place."""
        self.keys.append((ledger_id, entry_id))
        if len(self.keys) < self.count:
            return ()
        self.last = None
        return tuple(self.keys) if all(ledger >= 0 for ledger, _ in self.keys) else ()


class PendingEntry:
    """One entry that was sealed and is not answered yet. ``parts``: all before the payload, and the payload."""

    __slots__ = ("callbacks", "chunked", "deadline", "flushes", "highest_sequence_id", "is_batch", "parts", "sequence_id", "size_bytes")

    def __init__(
        self, sequence_id: int, highest_sequence_id: int, callbacks: Sequence[Callback], parts: tuple[bytes, bytes], deadline: float
    ) -> None:
        self.sequence_id = sequence_id
        self.highest_sequence_id = highest_sequence_id
        self.callbacks = callbacks
        # A batch of one message is an ordinary entry: smaller, and readable without opening a batch.
        self.is_batch = len(callbacks) > 1
        self.parts = parts
        self.size_bytes = len(parts[0]) + len(parts[1])
        self.deadline = deadline
        self.flushes: Sequence[Callable[[], None]] = ()
        self.chunked: Chunked | None = None
