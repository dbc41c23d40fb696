"""Random scripts on a subscription with crashes and take-overs in between, against a dumb oracle of
sets.
"""

from __future__ import annotations

import random

import pytest

from pulsarish.managed_ledger.cursors.cursor import Cursor
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.model.errors import NotEnoughBookies, PulsarishError
from pulsarish.model.position import EARLIEST, Position
from tests.support.logs import Heard, Shelf, seek, simulate

ENTRIES = 40
BATCH = 4
Left = dict[Position, int]  # for each entry the indexes that remain, as bits; 0: acknowledged


class Model:
    """``now`` is what is acknowledged in memory; after a crash any state between ``durable`` and
    ``now`` may be found, index by index.
    """

    def __init__(self, at: list[Position]) -> None:
        self.at = at
        self.now: Left = dict.fromkeys(at, (1 << BATCH) - 1)
        self.durable: Left = dict(self.now)

    def done(self, position: Position, indexes: int) -> None:
        self.now[position] &= ~indexes

    def compare(self, cursor: Cursor) -> None:
        for position in self.at:
            remaining = cursor.ack_set(position)
            if self.now[position] in (0, (1 << BATCH) - 1):
                assert remaining is None
                assert cursor.is_acknowledged(position) == (self.now[position] == 0), position
            else:
                assert remaining == self.now[position], position
        backlog = sum(1 for left in self.now.values() if left)
        assert cursor.backlog() == backlog

    def adopt(self, cursor: Cursor) -> None:
        """After a crash: what is found lies between the two, and becomes the truth."""
        for position in self.at:
            remaining = cursor.ack_set(position)
            found = (
                remaining
                if remaining is not None
                else (0 if cursor.is_acknowledged(position) else (1 << BATCH) - 1)
            )
            assert found & ~self.durable[position] == 0, (
                f"{position}: acknowledged durably and comes again"
            )
            assert self.now[position] & ~found == 0, f"{position}: nobody acknowledged it"
            self.now[position] = found
        self.durable = dict(self.now)


async def play(shelf: Shelf, seed: int) -> None:
    rng = random.Random(seed)
    shelf.set(
        max_entries_per_ledger=7,
        cursor_node_writes_max=rng.choice((0, 2, 1_000)),
        cursor_max_entries_per_ledger=rng.choice((3, 12)),
        cursor_snapshot_interval_entries=rng.choice((1, 3)),
        cursor_snapshot_part_bytes=256,
        cursor_flush_interval_ms=rng.choice((5, 60_000)),
        cursor_idle_seconds=1,
        max_unacked_ranges_to_persist_in_metadata_store=rng.choice((0, 3, 1_000)),
    )
    heard = Heard()
    log, _ = await shelf.open("b1", heard)
    cursor = await shelf.on("b1", lambda world: log.open_cursor("s", initial=EARLIEST))
    for _ in range(0, ENTRIES, 4):
        await shelf.append(log, [b"x"] * 4)
        await shelf.sleep(0.05)
    model = Model([position for position, _ in heard.appended_at])
    node = "b1"
    for step in range(60):
        cursor, log, node = await act(shelf, rng, model, cursor, log, node, step)
        model.compare(cursor)


async def act(  # noqa: C901 - one case each
    shelf: Shelf,
    rng: random.Random,
    model: Model,
    cursor: Cursor,
    log: ManagedLedger,
    node: str,
    step: int,
) -> tuple[Cursor, ManagedLedger, str]:
    position = rng.choice(model.at)
    everything = (1 << BATCH) - 1
    match rng.choice(
        (
            "one",
            "one",
            "some",
            "indexes",
            "indexes",
            "upto",
            "flush",
            "flush",
            "seek",
            "rest",
            "break",
            "crash",
            "take",
            "close",
        )
    ):
        case "one":
            cursor.acknowledge([position])
            model.done(position, everything)
        case "some":
            chosen = rng.sample(model.at, 5)
            cursor.acknowledge(chosen)
            for one in chosen:
                model.done(one, everything)
        case "indexes":
            indexes = rng.sample(range(BATCH), rng.randrange(1, BATCH))
            cursor.acknowledge_batch(position, BATCH, indexes)
            model.done(position, sum(1 << index for index in indexes))
        case "upto" if rng.random() < 0.3:
            cursor.acknowledge_cumulative(position)
            for one in model.at:
                if one <= position:
                    model.done(one, everything)
        case "flush":
            await shelf.on(node, lambda world: cursor.flush())
            model.durable = dict(model.now)
        case "seek" if rng.random() < 0.3:
            await shelf.on(node, lambda world: seek(cursor, position))
            model.now = {one: 0 if one < position else everything for one in model.at}
            model.durable = dict(model.now)
        case "rest":
            await shelf.sleep(rng.choice((0.01, 3.0)), node)
        case "break":
            record = await shelf.cursor(node)
            assert record is not None
            ledger = shelf.ledgers.ledgers.get(record.cursor_ledger)
            if ledger is not None and ledger.writer is not None and not ledger.writer.stopped:
                shelf.ledgers.break_writer(record.cursor_ledger, 0, NotEnoughBookies("down"))
        case "crash" | "take" | "close" as how:
            if how == "crash":
                shelf.sim.nodes[node].crash()
            elif how == "close":
                await shelf.on(node, lambda world: log.close())
                model.durable = dict(model.now)
            other = f"b{step % 3 + 1}"
            new_log, _ = await shelf.open(other)
            new = await shelf.on(other, lambda world: new_log.open_cursor("s"))
            model.adopt(new)
            if how == "take":
                # The one before finds out, and nothing of what it still has gets through.
                cursor.acknowledge(model.at)
                with pytest.raises(PulsarishError):
                    await shelf.on(node, lambda world: cursor.flush())
            return new, new_log, other
    return cursor, log, node


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_random_scripts_agree_with_sets(first: int) -> None:
    for seed in range(first, first + 10):
        simulate(lambda shelf, seed=seed: play(shelf, seed), seed)  # type: ignore[misc]
