"""The deduplication core against an oracle that keeps the whole log, over failures and changes of
owner.
"""

from __future__ import annotations

import random

import pytest

from pulsarish.broker.publishing.dedup import Deduplication, Verdict, sequence_mark


def fresh() -> Deduplication:
    return Deduplication(producers_max=100, inactivity_ms=1_000_000)


class _World:
    """One producer, one log, and changing owners.

    The producer keeps its sequence ids and batches, and resends what has no receipt.

    The oracle is the log itself: with nothing lost and nothing stored twice it holds 0, 1, 2, ...
    whatever happened.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.batches: list[tuple[int, int]] = []
        last = -1
        for _ in range(rng.randint(3, 40)):
            first = last + 1
            last = first + rng.choice([0, 0, 1, 4])
            self.batches.append((first, last))
        self.log: list[tuple[int, int]] = []
        self.snapshot: tuple[dict[str, int], int] = ({}, 0)
        self.receipts = 0  # batches that the producer knows to be in the log
        self.core = fresh()
        self.under_way: list[tuple[int, int]] = []

    def new_owner(self) -> None:
        # Any prefix of the entries in flight may have reached the log before the fence.
        kept = self.rng.randint(0, len(self.under_way))
        self.log.extend(self.under_way[:kept])
        self.under_way.clear()
        self.core = fresh()
        marks, covered = self.snapshot
        self.core.restore(marks, 0)
        for _, last in self.log[self.rng.randint(0, covered) :]:
            self.core.observe("p", sequence_mark(last), 0)

    def send(self) -> None:
        """Send from the first batch without a receipt.

        Some of these batches may still be in flight from before.
        """
        for first, last in self.batches[self.receipts : self.receipts + self.rng.randint(1, 8)]:
            verdict = self.core.push("p", sequence_mark(first), sequence_mark(last))
            if verdict is Verdict.NEW:
                self.under_way.append((first, last))
            elif verdict is Verdict.DUPLICATE:
                assert (first, last) in self.log, "called a duplicate what is not in the log"
                if self.batches[self.receipts] == (first, last):
                    self.receipts += 1
            else:
                assert verdict is Verdict.UNCERTAIN
                assert (first, last) in self.under_way, "only what is under way is uncertain"

    def confirm(self) -> None:
        for first, last in self.under_way[: self.rng.randint(0, len(self.under_way))]:
            self.log.append((first, last))
            self.core.persisted("p", sequence_mark(last))
            self.under_way.pop(0)
            awaited = self.receipts < len(self.batches) and self.batches[self.receipts] == (
                first,
                last,
            )
            # The receipt may be lost on its way; then the producer resends.
            if awaited and self.rng.random() < 0.8:
                self.receipts += 1

    def fail(self) -> None:
        """Fail a suffix of the entries in flight: they were not appended."""
        cut = self.rng.randint(0, len(self.under_way))
        for first, _ in self.under_way[cut:]:
            self.core.failed("p", sequence_mark(first))
        del self.under_way[cut:]

    def store(self) -> None:
        self.snapshot = (self.core.snapshot(), len(self.log))


@pytest.mark.parametrize("seed", range(300))
def test_the_log_holds_each_message_once_in_order(seed: int) -> None:
    rng = random.Random(seed)
    world = _World(rng)
    for _ in range(400):
        if world.receipts == len(world.batches):
            break
        step = rng.choice(
            [
                world.send,
                world.send,
                world.confirm,
                world.confirm,
                world.fail,
                world.store,
                world.new_owner,
            ]
        )
        step()
        world.core.check()
        assert world.log == world.batches[: len(world.log)], "a duplicate, a gap or a wrong order"
    while world.receipts < len(world.batches):
        world.send()
        world.confirm()
    assert world.log == world.batches


def test_a_mark_between_pushed_and_persisted_is_neither_new_nor_duplicate() -> None:
    core = fresh()
    five = sequence_mark(5)
    assert core.push("p", five, five) is Verdict.NEW
    assert core.push("p", five, five) is Verdict.UNCERTAIN
    assert core.last_sequence_id("p") == -1
    core.persisted("p", five)
    assert core.push("p", five, five) is Verdict.DUPLICATE
    assert core.last_sequence_id("p") == 5


def test_a_batch_with_other_boundaries_is_refused() -> None:
    core = fresh()
    assert core.push("p", sequence_mark(0), sequence_mark(4)) is Verdict.NEW
    core.persisted("p", sequence_mark(4))
    assert core.push("p", sequence_mark(3), sequence_mark(6)) is Verdict.PARTLY


def test_chunks_share_a_sequence_id() -> None:
    core = fresh()
    for chunk in range(3):
        mark = sequence_mark(7, chunk, 3)
        assert core.push("p", mark, mark) is Verdict.NEW
        core.persisted("p", mark)
        assert core.push("p", mark, mark) is Verdict.DUPLICATE
        assert core.last_sequence_id("p") == (7 if chunk == 2 else 6)
        other = fresh()
        other.restore(core.snapshot(), 0)
        assert other.push("p", mark, mark) is Verdict.DUPLICATE, (
            "the chunks that are there survive a snapshot"
        )
    following = sequence_mark(8)
    assert core.push("p", following, following) is Verdict.NEW


def test_idle_producers_are_forgotten_and_connected_ones_are_not() -> None:
    core = Deduplication(producers_max=3, inactivity_ms=100)
    for number in range(5):
        core.observe(f"p{number}", sequence_mark(9), now_ms=number)
    core.connect("p0", 5)
    core.purge(now_ms=50)
    assert sorted(core.snapshot()) == ["p0", "p3", "p4"], (
        "the longest idle go when there are too many"
    )
    core.purge(now_ms=104)
    assert sorted(core.snapshot()) == ["p0"]
    core.disconnect("p0", 110)
    core.purge(now_ms=211)
    assert core.snapshot() == {}


def test_what_is_under_way_is_never_forgotten() -> None:
    core = Deduplication(producers_max=1, inactivity_ms=0)
    one = sequence_mark(1)
    assert core.push("busy", one, one) is Verdict.NEW
    core.observe("other", one, 0)
    core.purge(now_ms=1_000)
    assert core.push("busy", one, one) is Verdict.UNCERTAIN
