"""Which request of captured messages is the newest one."""

from __future__ import annotations

from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.topics.capture_store import CaptureTurns

WHOLE = Bundle("acme", "live", "0x00000000_0x80000000")
LOW = Bundle("acme", "live", "0x00000000_0x40000000")
OTHER = Bundle("acme", "live", "0x80000000_0xffffffff")


def take(turns: CaptureTurns, bundle: Bundle, epoch: int, attempt: int, now: float = 0.0) -> bool:
    return turns.take("into", "acme/live/r", bundle, (epoch, attempt), now)


def test_an_earlier_owner_and_an_earlier_attempt_are_late() -> None:
    turns = CaptureTurns()
    assert take(turns, WHOLE, 1, 7)
    assert take(turns, WHOLE, 1, 7)
    assert not take(turns, WHOLE, 1, 6)
    assert take(turns, WHOLE, 2, 1)
    assert not take(turns, WHOLE, 1, 8)
    assert not turns.is_newest("into", "acme/live/r", WHOLE, (1, 8))
    assert take(turns, OTHER, 1, 1)


def test_the_whole_is_late_after_a_part() -> None:
    turns = CaptureTurns()
    assert take(turns, WHOLE, 5, 5)
    assert take(turns, LOW, 0, 1)
    assert not take(turns, WHOLE, 5, 6)
    assert take(turns, LOW, 0, 2)


def test_turns_are_forgotten_when_no_request_can_be_under_way() -> None:
    turns = CaptureTurns()
    assert take(turns, WHOLE, 5, 5)
    assert not take(turns, WHOLE, 0, 1, now=59.0)
    # The namespace was deleted and made again: epochs begin again.
    assert take(turns, WHOLE, 0, 1, now=61.0)


def test_another_rule_or_topic_has_turns_of_its_own() -> None:
    turns = CaptureTurns()
    assert take(turns, WHOLE, 5, 5)
    assert turns.take("into", "acme/live/other", WHOLE, (1, 1), 0.0)
    assert turns.take("other", "acme/live/r", WHOLE, (1, 1), 0.0)
