"""The limits of a producer's queue."""

from __future__ import annotations

from dataclasses import dataclass

from pulsarish.client.enums import CompressionType
from pulsarish.client.messages.pending_entries import PendingEntry
from pulsarish.model.errors import MessageTooBig, PulsarishError

__all__ = ["SendLimits", "too_big"]


@dataclass(frozen=True, slots=True)
class SendLimits:
    """The options of a producer that the core needs."""

    max_pending_messages: int
    batching: bool
    batch_messages_max: int
    batch_bytes_max: int
    compression: CompressionType
    timeout_seconds: float
    """How long a message may wait for its receipt; 0: no limit."""
    by_key: bool = False
    """A batch holds messages of one key only."""
    chunking: bool = False
    """A message above the broker's limit is split into several entries."""


def too_big(entry: PendingEntry, bytes_max: int) -> PulsarishError:
    """Return the error of an entry above the broker's limit."""
    what = "a batch" if entry.is_batch else "content"
    return MessageTooBig(
        f"{what} of {len(entry.parts[1])} bytes is above the broker's limit of {bytes_max} bytes "
        "an entry"
    )
