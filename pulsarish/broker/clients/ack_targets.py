"""What an acknowledgement names: whole entries, or messages of batches.

Only the entry knows how many messages it has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pulsarish.broker.clients.commands import Acknowledge
from pulsarish.model.errors import InvalidArgument, NotAllowedError
from pulsarish.model.position import Position
from pulsarish.model.subscription_type import SubscriptionType

__all__ = ["Named", "check_acknowledgement", "named_by", "names_parts"]


@dataclass(slots=True)
class Named:
    """The entries that a command names.

    It may name an entry by some of its messages, and as a whole once the last of them is done.
    """

    whole: list[Position] = field(default_factory=list)
    parts: dict[Position, list[int]] = field(default_factory=dict)
    """Indexes in batches, by entry."""
    sizes: dict[Position, int] = field(default_factory=dict)
    """Number of messages in those batches; 0: the entry no longer exists."""


def check_acknowledgement(command: Acknowledge, kind: SubscriptionType, subscription: str) -> None:
    """Check an acknowledgement.

    Raises ``InvalidArgument`` for a command that contradicts itself, ``NotAllowedError`` for a
    cumulative one on a shared subscription.
    """
    positions = command.positions
    for column in (command.batch_indexes, command.left_unacknowledged):
        if column and len(column) != len(positions):
            raise InvalidArgument(
                f"{len(column)} batch indexes or sets for {len(positions)} positions"
            )
    if command.cumulative:
        if kind.is_spread:
            raise NotAllowedError(
                f"cumulative acknowledgement is not possible on the {kind.name.lower()} "
                f"subscription {subscription!r};"
                " acknowledge messages one by one"
            )
        if len(positions) != 1:
            raise InvalidArgument(
                f"a cumulative acknowledgement names one position, not {len(positions)}"
            )


def names_parts(command: Acknowledge) -> bool:
    """Return whether the command names messages of batches."""
    return any(index >= 0 for index in command.batch_indexes) or any(command.left_unacknowledged)


async def named_by(command: Acknowledge, batch_size: Callable[[Position], Awaitable[int]]) -> Named:
    """Return what a command names.

    ``batch_size`` returns how many messages an entry holds, 0 if it no longer exists.

    Raises ``InvalidArgument`` for an index beyond its batch, and the errors of ``batch_size``.
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
            # The set of unacknowledged messages is complete, also for a cumulative command: later
            # messages may have been acknowledged one by one.
            indexes = [index for index in range(size) if not left >> index & 1]
        elif 0 < size <= index:
            raise InvalidArgument(f"batch index {index} of {position}, which holds {size} messages")
        else:
            indexes = list(range(min(index + 1, size))) if command.cumulative else [index]
        if indexes:
            named.parts.setdefault(position, []).extend(indexes)
    return named
