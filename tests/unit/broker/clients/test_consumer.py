"""What an acknowledgement names: a table of commands, and which of them are refused."""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.broker.clients.ack_targets import check_acknowledgement, named_by, names_parts
from pulsarish.broker.clients.commands import Acknowledge
from pulsarish.model.errors import InvalidArgument, NotAllowedError
from pulsarish.model.position import Position
from pulsarish.model.subscription_type import SubscriptionType

A, B, GONE = Position(1, 0), Position(1, 1), Position(1, 9)
SIZES = {A: 3, B: 2, GONE: 0}


async def size_of(position: Position) -> int:
    return SIZES[position]


@pytest.mark.parametrize(
    ("command", "whole", "parts"),
    [
        (Acknowledge(1, [A, B]), [A, B], {}),
        (Acknowledge(1, [A, A], batch_indexes=[2, 0]), [], {A: [2, 0]}),
        # Some messages of the entry, then the entry as a whole.
        (Acknowledge(1, [A, B, A], batch_indexes=[1, -1, -1]), [B, A], {A: [1]}),
        # Everything up to an index in its batch.
        (Acknowledge(1, [A], cumulative=True, batch_indexes=[1]), [], {A: [0, 1]}),
        # The messages that stay unacknowledged: none means the whole entry, all means nothing.
        (Acknowledge(1, [A, B], left_unacknowledged=[0b101, 0]), [B], {A: [1]}),
        (Acknowledge(1, [B], left_unacknowledged=[0b11]), [], {}),
        # For a cumulative one the unacknowledged messages are listed completely: later ones may
        # have been acknowledged one by one.
        (Acknowledge(1, [A], cumulative=True, left_unacknowledged=[0b010]), [], {A: [0, 2]}),
        # An entry that no longer exists: nothing is known, and nothing is refused.
        (Acknowledge(1, [GONE], batch_indexes=[7]), [], {GONE: [7]}),
        (Acknowledge(1, [GONE], cumulative=True, batch_indexes=[7]), [], {}),
    ],
)
def test_what_a_command_names(
    command: Acknowledge, whole: list[Position], parts: dict[Position, list[int]]
) -> None:
    check_acknowledgement(command, SubscriptionType.EXCLUSIVE, "s")
    assert names_parts(command) is bool(len(whole) < len(command.positions))
    named = asyncio.run(named_by(command, size_of))
    assert (named.whole, named.parts) == (whole, parts)
    assert all(named.sizes[position] == SIZES[position] for position in parts)


def test_an_index_beyond_its_batch_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="batch index 3 of 1:0, which holds 3 messages"):
        asyncio.run(named_by(Acknowledge(1, [A], batch_indexes=[3]), size_of))


@pytest.mark.parametrize(
    ("command", "kind", "error", "said"),
    [
        (
            Acknowledge(1, [A, B], batch_indexes=[1]),
            SubscriptionType.SHARED,
            InvalidArgument,
            "1 batch indexes or sets for 2 positions",
        ),
        (
            Acknowledge(1, [A], left_unacknowledged=[1, 2]),
            SubscriptionType.SHARED,
            InvalidArgument,
            "2 batch indexes or sets for 1",
        ),
        (
            Acknowledge(1, [A], cumulative=True),
            SubscriptionType.SHARED,
            NotAllowedError,
            "shared subscription 's'",
        ),
        (
            Acknowledge(1, [A], cumulative=True),
            SubscriptionType.KEY_SHARED,
            NotAllowedError,
            "one by one",
        ),
        (
            Acknowledge(1, [A, B], cumulative=True),
            SubscriptionType.FAILOVER,
            InvalidArgument,
            "one position, not 2",
        ),
        (
            Acknowledge(1, [], cumulative=True),
            SubscriptionType.EXCLUSIVE,
            InvalidArgument,
            "one position, not 0",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(
    command: Acknowledge, kind: SubscriptionType, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        check_acknowledgement(command, kind, "s")
