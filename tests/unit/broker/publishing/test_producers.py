"""Access modes: which producers may connect together, whose turn is next, and which producer is
fenced.
"""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.broker.clients.access_modes import Access, Admission
from pulsarish.broker.clients.commands import NO_EPOCH, AccessMode, OpenProducer
from pulsarish.broker.clients.outbox import Outbox
from pulsarish.broker.clients.producer import Flight, Producer
from pulsarish.model.errors import (
    AlreadyClosed,
    ProducerBusy,
    ProducerFenced,
    PulsarishError,
    TopicTerminated,
)

SHARED, EXCLUSIVE = AccessMode.SHARED, AccessMode.EXCLUSIVE
WAITING, FENCING = AccessMode.WAIT_FOR_EXCLUSIVE, AccessMode.EXCLUSIVE_WITH_FENCING
NOW, CLOSING, TURN = Admission.NOW, Admission.AFTER_CLOSING_ALL, Admission.IN_TURN


def connected(mode: AccessMode) -> Producer:
    return Producer(
        1, "there", 0, mode, Outbox(delivery_bytes_max=1, changed=lambda: None), Flight()
    )


def shown(others: list[Producer]) -> tuple[Producer | None, int]:
    """Return what ``judge`` gets about the other producers."""
    return (others[0] if others else None), len(others)


def asked(mode: AccessMode, epoch: int = NO_EPOCH) -> OpenProducer:
    return OpenProducer(1, 1, "t", "new", access_mode=mode, topic_epoch=epoch)


@pytest.mark.parametrize(
    ("mode", "others", "queue", "expected"),
    [
        (SHARED, [], 0, NOW),
        (SHARED, [SHARED], 0, NOW),
        (SHARED, [EXCLUSIVE], 0, ProducerBusy),
        (SHARED, [WAITING], 0, ProducerBusy),
        (SHARED, [SHARED], 1, ProducerBusy),
        (EXCLUSIVE, [], 0, NOW),
        (EXCLUSIVE, [SHARED], 0, ProducerFenced),
        (EXCLUSIVE, [FENCING], 0, ProducerFenced),
        (EXCLUSIVE, [], 1, ProducerFenced),
        (WAITING, [], 0, NOW),
        (WAITING, [SHARED], 0, TURN),
        (WAITING, [EXCLUSIVE], 0, TURN),
        (WAITING, [], 1, TURN),
        (FENCING, [], 0, CLOSING),
        (FENCING, [SHARED, SHARED], 1, CLOSING),
        (FENCING, [FENCING], 0, CLOSING),
    ],
)
def test_who_may_connect(
    mode: AccessMode,
    others: list[AccessMode],
    queue: int,
    expected: Admission | type[PulsarishError],
) -> None:
    access = Access("t")
    for number in range(queue):
        access.enqueue(f"waiting{number}")
    producers = [connected(each) for each in others]
    if isinstance(expected, Admission):
        assert access.judge(asked(mode), *shown(producers), NO_EPOCH, comes_back=False) is expected
    else:
        with pytest.raises(expected):
            access.judge(asked(mode), *shown(producers), NO_EPOCH, comes_back=False)


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAITING, FENCING])
def test_who_comes_back_is_fenced_when_another_was_there(mode: AccessMode) -> None:
    access = Access("t")
    with pytest.raises(ProducerFenced, match="epoch 4, this producer at 3"):
        access.judge(asked(mode, 3), None, 0, 4, comes_back=False)
    assert access.judge(asked(mode, 4), None, 0, 4, comes_back=False) in (NOW, CLOSING)
    assert access.judge(asked(mode), None, 0, 4, comes_back=False) in (NOW, CLOSING), (
        "one that is new has no epoch yet"
    )
    assert access.judge(asked(SHARED, 3), None, 0, 4, comes_back=False) is NOW


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAITING, FENCING])
@pytest.mark.parametrize("named", [6, 2**63 - 1, 2**64 - 1])
def test_an_epoch_that_the_topic_never_gave_out_is_refused(mode: AccessMode, named: int) -> None:
    access = Access("t")
    with pytest.raises(ProducerFenced, match=f"never gave out epoch {named}"):
        access.judge(asked(mode, named), None, 0, 4, comes_back=False)
    access.check_epoch(asked(mode, 5), 4)
    assert access.next_epoch(asked(mode, 5), 4) == 5


@pytest.mark.parametrize("stored", [NO_EPOCH, 2**64 - 1, 2**70])
def test_an_epoch_that_a_client_made_up_is_forgotten(stored: int) -> None:
    """A broker once stored epochs that clients named.

    With the greatest one the next exclusive producer failed, on each later owner too.
    """
    access = Access("t")
    for named in (NO_EPOCH, 0, 2**64 - 1):
        access.check_epoch(asked(EXCLUSIVE, named), stored)
        assert access.next_epoch(asked(EXCLUSIVE, named), stored) == 0


@pytest.mark.parametrize("mode", list(AccessMode))
def test_who_takes_the_place_of_its_former_connection_waits_for_nobody(mode: AccessMode) -> None:
    access = Access("t")
    access.enqueue("waiting")
    others = [connected(SHARED)] if mode is SHARED else []
    assert access.judge(asked(mode, 4), *shown(others), 4, comes_back=True) is NOW
    if mode is not SHARED:
        with pytest.raises(ProducerFenced):
            access.judge(asked(mode, 3), *shown(others), 4, comes_back=True)


def test_turns_come_one_by_one_in_order_and_who_leaves_is_passed() -> None:
    async def scenario() -> None:
        access = Access("t")
        first, second, third = (access.enqueue(name) for name in "abc")
        access.next_turn()
        await first.come()
        access.next_turn()
        assert access.waiting_count == 3, "the first keeps its place until it is connected"
        access.leave(second)
        with pytest.raises(AlreadyClosed):
            await second.come()
        access.leave(first)
        access.next_turn()
        await third.come()
        fourth = access.enqueue("d")
        access.end(TopicTerminated("sealed"))
        with pytest.raises(TopicTerminated):
            await fourth.come()
        assert access.waiting_count == 0

    asyncio.run(scenario())
