"""What an acknowledgement names: whole entries, and messages of batches, whose number only the entry itself knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pulsarish.broker.clients.commands import Acknowledge, SubscriptionType
from pulsarish.model.errors import InvalidArgument, NotAllowed
from pulsarish.model.position import Position

__all__ = ["Named", "check_acknowledgement", "named_by", "names_parts"]


@dataclass(slots=True)
class Named:
    """One command may name an entry by some of its messages and then as a whole, once the last of them is done."""

    whole: list[Position] = field(default_factory=list)
    parts: dict[Position, list[int]] = field(default_factory=dict)
    """Indexes in batches."""
    sizes: dict[Position, int] = field(default_factory=dict)
    """Messages of those batches; 0: the entry is not there any more."""


def check_acknowledgement(command: Acknowledge, kind: SubscriptionType, subscription: str) -> None:
    """Raises ``InvalidArgument`` for a command that contradicts itself, ``NotAllowed`` for a cumulative one on a shared subscription."""
    positions = command.positions
    for column in (command.batch_indexes, command.left_unacknowledged):
        if column and len(column) != len(positions):
            raise InvalidArgument(f"{len(column)} batch indexes or sets for {len(positions)} positions")
    if command.cumulative:
        if kind in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
            raise NotAllowed(
                f"cumulative acknowledgement is not possible on the {kind.name.lower()} subscription {subscription!r};"
                " acknowledge messages one by one"
            )
        if len(positions) != 1:
            raise InvalidArgument(f"a cumulative acknowledgement names one position, not {len(positions)}")


def names_parts(command: Acknowledge) -> bool:
    """Whether it names messages of batches."""
    return any(index >= 0 for index in command.batch_indexes) or any(command.left_unacknowledged)


async def named_by(command: Acknowledge, batch_size: Callable[[Position], Awaitable[int]]) -> Named:
    """What a command names. ``batch_size`` answers how many messages an entry holds, 0 for one that is not there any more.

    Raises ``InvalidArgument`` for an index beyond its batch, and what ``batch_size`` raises.
    """
    named = Named()
    for row, position in enumerate(command.positions):
        index = command.batch_indexes[row] if command.batch_indexes else -1
        left = command.left_unacknowledged[row] if command.left_unacknowledged else 0
        if index < 0 and not left:
            named.whole.append(position)
            continue
        size = named.sizes[position] = named.sizes.get(position) or await batch_size(position)
        if index < 0:
            # What is left says all, also of a cumulative one: messages behind its own may have been acknowledged one by one.
            indexes = [index for index in range(size) if not left >> index & 1]
        elif 0 < size <= index:
            raise InvalidArgument(f"batch index {index} of {position}, which holds {size} messages")
        else:
            indexes = list(range(min(index + 1, size))) if command.cumulative else [index]
        if indexes:
            named.parts.setdefault(position, []).extend(indexes)
    return named
