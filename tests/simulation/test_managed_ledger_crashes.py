"""A topic's owner dies between any two of its steps: nothing confirmed, acknowledged with a receipt
or subscribed is lost, nothing is invented, and after the next owner has tidied up no ledger is left
that nothing refers to, but for one that was just being made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.managed_ledger.options import Retention
from pulsarish.model.errors import TopicFenced
from pulsarish.model.position import EARLIEST, Position
from pulsarish.sim.world.nodes import NodeDied
from tests.support.logs import Heard, Shelf, names, simulate

Work = Callable[[ManagedLedger], Coroutine[Any, Any, None]]
ROUNDS_MAX = 2_000
ROUND_SECONDS = 0.00001  # a message takes about 50 times as long, a step of the loop a tenth


class Story:
    """What a client knows for certain."""

    def __init__(self) -> None:
        self.heard = Heard()
        self.sent: list[bytes] = []
        self.acked: set[Position] = set()  # flushed
        self.maybe_acked: set[Position] = set()
        self.subscribed: set[str] = set()
        self.done = False

    def append(self, log: ManagedLedger, first: int, last: int) -> None:
        for payload in names(first, last):
            self.sent.append(payload)
            log.append(payload, payload)

    async def acknowledge(self, log: ManagedLedger, numbers: list[int]) -> None:
        cursor = await log.open_cursor("s")
        positions = [self.heard.appended_at[number][0] for number in numbers]
        self.maybe_acked.update(positions)
        cursor.acknowledge(positions)
        await cursor.flush()
        self.acked.update(positions)


async def confirmed(log: ManagedLedger) -> None:
    while log.pending_entries:  # noqa: ASYNC110 - in virtual time; what is to be seen is the state itself
        await asyncio.sleep(0.0005)


async def rolling(story: Story, log: ManagedLedger) -> None:
    story.append(log, 10, 14)
    await log.roll()
    story.append(log, 14, 16)
    await confirmed(log)


async def switching(story: Story, log: ManagedLedger) -> None:
    for number in range(8):
        await story.acknowledge(log, [number] if number != 3 else [number, 9])


async def subscribing(story: Story, log: ManagedLedger) -> None:
    await log.open_cursor("other", initial=EARLIEST)
    story.subscribed.add("other")
    story.subscribed.discard("s")
    await log.delete_cursor("s")
    story.acked.clear()


async def trimming(story: Story, log: ManagedLedger) -> None:
    await story.acknowledge(log, list(range(6)))
    log.trimmer.retention = Retention()
    await log.roll()
    await log.trimmer.trim()


async def closing(story: Story, log: ManagedLedger) -> None:
    story.append(log, 10, 12)
    await story.acknowledge(log, [0, 2])
    await log.close()


async def sealing(story: Story, log: ManagedLedger) -> None:
    story.append(log, 10, 12)
    await log.terminate()


async def opening(story: Story, log: ManagedLedger) -> None:
    """Only what opens the topic; see ``scenario``."""


async def verify(shelf: Shelf, story: Story) -> None:
    """What the next owner finds."""
    try:
        log, heard = await shelf.open("b2")
    except TopicFenced:  # the last commit of the dead arrived meanwhile
        log, heard = await shelf.open("b2")
    await shelf.sleep(2, "b2")
    found = await shelf.read_all(log, "b2")
    first = log.first_position
    kept = [context for position, context in story.heard.appended_at if position >= first]
    assert found[: len(kept)] == kept, "what was confirmed is there, in order"
    rest = found[len(kept) :]
    unknown = [payload for payload in story.sent if payload not in story.heard.confirmed]
    assert rest == unknown[: len(rest)], (
        "what had no answer is there from the first on, once, or not at all"
    )
    assert set(log.cursor_names()) >= story.subscribed
    if "s" in log.cursor_names():
        cursor = await shelf.on("b2", lambda world: log.open_cursor("s"))
        for position in story.acked:
            assert cursor.is_acknowledged(position), f"{position} was acknowledged with a receipt"
        for position, _ in story.heard.appended_at:
            if position >= first and cursor.is_acknowledged(position):
                assert position in story.maybe_acked, f"{position} was skipped"
        # Whatever was trimmed had been acknowledged.
        for position, _ in story.heard.appended_at:
            assert position >= first or position in story.maybe_acked
    if not log.terminated:
        await shelf.append(log, [b"afterwards"], "b2")
        assert heard.confirmed == [b"afterwards"]
    record = await shelf.record("b2")
    assert record.deleting == ()
    named = {ledger.ledger_id for ledger in record.ledgers}
    for name in log.cursor_names():
        cursor_record = await shelf.cursor("b2", name)
        assert cursor_record is not None
        named |= {cursor_record.cursor_ledger, *cursor_record.deleting}
    orphans = [ledger_id for ledger_id in shelf.ledgers.ledgers if ledger_id not in named]
    # One topic ledger and one cursor ledger may have been made and not yet named.
    kinds = [shelf.ledgers.ledgers[ledger_id].purpose.kind for ledger_id in orphans]
    assert len(kinds) == len(set(kinds)), f"ledgers {orphans} were left behind"


async def scenario(
    shelf: Shelf, work: Callable[[Story, ManagedLedger], Coroutine[Any, Any, None]], rounds: int
) -> bool:
    """Run ``work`` on a topic with ten entries, crash its node after so many rounds of the loop;
    whether the work had ended before.
    """
    shelf.set(
        cursor_node_writes_max=2,
        cursor_max_entries_per_ledger=3,
        cursor_snapshot_interval_entries=2,
    )
    story = Story()
    story.subscribed.add("s")
    log, _ = await shelf.open("b1", story.heard)
    await shelf.on("b1", lambda world: log.open_cursor("s", initial=EARLIEST))
    story.sent += names(0, 6)
    await shelf.append(log, names(0, 6))
    await shelf.on("b1", lambda world: log.roll())
    story.sent += names(6, 10)
    await shelf.append(log, names(6, 10))
    if work is opening:
        shelf.sim.nodes["b1"].crash()

    async def main() -> None:
        try:
            if work is opening:
                await shelf.open("b1", Heard())
            else:
                await shelf.on("b1", lambda world: work(story, log))
            story.done = True
        except NodeDied:
            pass

    task = asyncio.get_running_loop().create_task(main())
    for _ in range(rounds):
        await asyncio.sleep(ROUND_SECONDS)
    done = story.done
    shelf.sim.nodes["b1"].crash()
    await task
    await verify(shelf, story)
    return done


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "work", [opening, rolling, switching, subscribing, trimming, closing, sealing]
)
def test_a_crash_between_any_two_steps(
    work: Callable[[Story, ManagedLedger], Coroutine[Any, Any, None]], seed: int
) -> None:
    for rounds in range(0, ROUNDS_MAX, 12):
        if simulate(lambda shelf, rounds=rounds: scenario(shelf, work, rounds + 5 * seed), seed):  # type: ignore[misc]
            return
    raise AssertionError("the work never ended: the last steps were not tried")
