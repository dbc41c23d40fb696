"""A queue as one channel has it: its sources, and what came from them and waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pulsarish.client.messages.message import Message
from pulsarish.integrations.kombu.sources import Source

__all__ = ["Delivery", "OpenQueue", "QueueKind"]


class QueueKind(Enum):
    """How long a queue lives."""

    KEPT = "kept"
    """Until it is deleted: shared subscriptions."""
    AUTO_DELETED = "auto-deleted"
    """Until its last consumer is gone: shared subscriptions, which the last one deletes."""
    TEMPORARY = "temporary"
    """As long as this channel: readers, of which nothing is left behind."""

    @classmethod
    def of(cls, *, durable: bool, exclusive: bool, auto_delete: bool) -> QueueKind:
        """Return the kind of a queue that is declared with these properties of AMQP."""
        if exclusive or (auto_delete and not durable):
            return cls.TEMPORARY
        return cls.AUTO_DELETED if auto_delete else cls.KEPT


@dataclass(slots=True)
class Delivery:
    """A message and where to acknowledge it."""

    source: Source
    message: Message
    redelivered: bool


@dataclass(slots=True)
class OpenQueue:
    """What a channel knows of a queue that it declared or receives from."""

    name: str
    kind: QueueKind
    sources: dict[tuple[str, str], Source] = field(default_factory=dict)
    """By topic, and binding key."""
    ready: deque[Delivery] = field(default_factory=deque)
    callback: Callable[[dict[str, Any]], object] | None = None
    """Of the consumer, if there is one."""
    is_acknowledged: bool = True
    """Whether the consumer acknowledges; if not, a message is settled when it is delivered."""
    was_consumed: bool = False
    is_got_from: bool = False
    """Whether a call waits for one message now."""

    @property
    def is_wanted(self) -> bool:
        return self.is_consumed or self.is_got_from

    @property
    def is_consumed(self) -> bool:
        return self.callback is not None

    def ask(self) -> None:
        """Have each source receive one message."""
        for source in list(self.sources.values()):
            source.ask()

    def close(self, *, delete: bool = False) -> None:
        """Close all sources. ``delete``: also the subscriptions that no other consumer uses."""
        for source in self.sources.values():
            source.close(delete=delete)
        self.sources = {}

    def end(self) -> None:
        """End the threads of all sources, once the client is closed."""
        for source in self.sources.values():
            source.end()
