"""Rounds of garbage collection that are asked for in several volumes."""

from __future__ import annotations

from typing import cast

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.garbage import GarbageCollector
from pulsarish.bookie.volume import Volume
from pulsarish.bookie.volume_garbage import VolumesGarbage


class Rounds:
    """The rounds of one volume."""

    def __init__(self) -> None:
        self.begun = self.ended = self.wanted = 0

    def ask(self) -> None:
        self.wanted = self.begun + 1

    def begin(self) -> None:
        self.begun += 1

    def end(self) -> None:
        self.ended = self.begun


def garbage_of(*rounds: Rounds) -> tuple[VolumesGarbage, list[Volume]]:
    config = BookieConfig(bookie_id="b1", data_directory="/d", metadata_url="embedded:/m")
    volumes = [Volume(str(number), config) for number in range(len(rounds))]
    return VolumesGarbage(volumes, cast("list[GarbageCollector]", list(rounds))), volumes


def test_a_second_request_does_not_end_the_first_one() -> None:
    first, second = Rounds(), Rounds()
    garbage, _ = garbage_of(first, second)
    garbage.ask()
    assert (garbage.wanted, garbage.ended) == (1, 0)
    first.begin()
    second.begin()
    garbage.ask()
    assert (garbage.wanted, garbage.ended) == (2, 0)
    first.end()
    assert garbage.ended == 0
    second.end()
    assert garbage.ended == 1
    first.begin()
    second.begin()
    first.end()
    second.end()
    assert garbage.ended == 2


def test_requests_before_a_round_begins_are_one() -> None:
    rounds = Rounds()
    garbage, _ = garbage_of(rounds)
    garbage.ask()
    garbage.ask()
    assert (garbage.wanted, garbage.ended) == (1, 0)


def test_a_volume_that_fails_is_not_waited_for() -> None:
    first, second = Rounds(), Rounds()
    garbage, volumes = garbage_of(first, second)
    garbage.ask()
    first.begin()
    first.end()
    assert garbage.ended == 0
    volumes[1].failure = OSError("the disk has failed")
    assert garbage.ended == 1
