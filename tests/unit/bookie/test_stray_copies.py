"""Copies that no metadata name any more, of ledgers that live (rule 12), in simulation."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.stray_copies import unnamed_spans
from pulsarish.ledger.ledger_store import LedgerStore, UnderReplicatedAsRead
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.repair.repair import LedgerRepair
from pulsarish.ledger.repair.repair_core import Part
from pulsarish.metadata import paths
from pulsarish.metadata.records import RestoredTree, UnderReplicated
from pulsarish.model.errors import LedgerFenced
from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)
from pulsarish.model.position import ID_MAX
from pulsarish.runtime.seams import Conflict, ConflictReason, Op, World
from pulsarish.wire.json_record import encode_record
from tests.support.bookies import BookieBench, BookieClient, make_record
from tests.unit.bookie.test_housekeeping import collect, fill, make_ledgers, records

OK = 0
HERE = "?"
"""Stands for the bookie of the bench."""


def ledger(
    *segments: tuple[int, str], state: LedgerState = LedgerState.CLOSED, last: int = 29
) -> LedgerMetadata:
    """Ledger 1, whose segments have one member each."""
    return LedgerMetadata(
        1,
        1,
        1,
        1,
        LedgerPurpose(PurposeKind.DIAGNOSTIC, "stray"),
        tuple(Segment(first, (member,)) for first, member in segments),
        state=state,
        last_entry=last if state is LedgerState.CLOSED else -1,
    )


async def write_record(bench: BookieBench, metadata: LedgerMetadata) -> int:
    """Store the record; return its version."""
    here = bench.bookie.instance_id
    segments = tuple(
        Segment(each.first_entry, tuple(here if m == HERE else m for m in each.members))
        for each in metadata.segments
    )

    async def work(world: World) -> int:
        wanted = msgspec.structs.replace(metadata, segments=segments)
        written = await records(world).update(paths.ledger(1), LedgerMetadata, lambda _: wanted)
        assert written is not None
        return written[1]

    return await bench.client_node.run(work)


async def version(bench: BookieBench) -> int:
    async def work(world: World) -> int:
        found = await LedgerStore(records(world), world.clock).read(1)
        assert found is not None
        return found[1]

    return await bench.client_node.run(work)


async def held(bench: BookieBench) -> list[int]:
    """Entries of ledger 1 that a listing names."""

    async def work(bookie: Bookie) -> list[int]:
        return (await bookie.store.reader.list_entries(1, 0, ID_MAX))[1]

    return await bench.in_bookie(work)


async def write(bench: BookieBench, *wanted: Op) -> None:
    async def work(world: World) -> None:
        for op in wanted:
            await records(world).make_parents(op.path)
            await records(world).commit([op])

    await bench.client_node.run(work)


@pytest.mark.parametrize(
    ("metadata", "spans"),
    [
        (ledger((0, HERE)), []),
        (ledger((0, "other")), [(0, ID_MAX)]),
        (ledger((0, "other"), (10, HERE)), [(0, 9)]),
        (ledger((0, HERE), (10, "other"), (20, HERE)), [(10, 19)]),
        (ledger((0, HERE), (10, "other")), [(10, ID_MAX)]),
        (ledger((0, "other"), state=LedgerState.OPEN), []),
        (ledger((0, "other"), (10, HERE), state=LedgerState.IN_RECOVERY), []),
    ],
)
def test_only_closed_ledgers_have_stray_copies(
    metadata: LedgerMetadata, spans: list[tuple[int, int]]
) -> None:
    assert unnamed_spans(metadata, HERE) == spans


def test_copies_go_the_fence_stays_and_their_space_comes_back() -> None:
    bench = BookieBench(1)

    async def scenario() -> None:
        await bench.client()
        await write_record(bench, ledger((0, HERE), state=LedgerState.OPEN))
        await make_ledgers(bench, 2)
        await fill(bench, 1, entries=90)
        await fill(bench, 2)
        assert (await bench.with_client(lambda client: client.fence(1)))[0] == OK
        before = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
        at = await write_record(bench, ledger((0, HERE), (40, "other"), last=89))
        await collect(bench)
        assert await held(bench) == list(range(40))
        assert await version(bench) == at + 1, "a repair that read the record before is refused"
        assert bench.bookie.garbage.strays.entries_deleted == 50
        await write_record(bench, ledger((0, "other"), last=89))
        await collect(bench)
        assert await held(bench) == []
        left = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
        assert not set(before[: len(before) // 2]) & set(left), "logs with nothing else are gone"
        bench.node.crash()
        bench.start()
        await bench.client()
        assert await held(bench) == []
        late = make_record(1, 90, b"late")

        async def add(client: BookieClient) -> int:
            return (await client.add([late]))[(1, 90)]

        assert await bench.with_client(add) == LedgerFenced.code
        at = await version(bench)
        await collect(bench)
        assert await version(bench) == at, "nothing is left to delete"
        # The other ledger has lost nothing in the logs that both shared.
        code, found = await bench.with_client(lambda client: client.read(2, 0, 29))
        assert (code, len(found)) == (OK, 30)
        assert bench.bookie.garbage.unreadable_logs == {}

    bench.sim.run(scenario)


def test_it_takes_two_looks_and_the_grace_of_the_trash() -> None:
    bench = BookieBench(2, gc_second_look_seconds=60.0, trash_grace_seconds=30.0)

    async def scenario() -> None:
        await bench.client()
        await write_record(bench, ledger((0, "other")))
        await fill(bench, 1)
        await collect(bench)
        await asyncio.sleep(80.0)
        # The bookie was named again in between: the looks begin again.
        await write_record(bench, ledger((0, HERE)))
        await collect(bench)
        await write_record(bench, ledger((0, "other")))
        await collect(bench)
        await asyncio.sleep(80.0)
        await collect(bench)
        assert bench.bookie.garbage.stray_ledgers_count == 1
        assert await held(bench) == list(range(30))
        await asyncio.sleep(20.0)
        await collect(bench)
        assert await held(bench) == []

    bench.sim.run(scenario)


def test_what_was_written_since_the_first_look_stays() -> None:
    bench = BookieBench(3, gc_second_look_seconds=60.0)

    async def scenario() -> None:
        await bench.client()
        await write_record(bench, ledger((0, "other")))
        await fill(bench, 1)
        await collect(bench)

        async def copy_again(client: BookieClient) -> None:
            """As a repair does, whether the bookie has the entries or not."""
            again = [make_record(1, entry, b"x" * 100) for entry in range(10, 20)]
            assert set((await client.add(again, recovery=True)).values()) == {OK}

        await bench.with_client(copy_again)
        await asyncio.sleep(61.0)
        await collect(bench)
        assert await held(bench) == list(range(10, 20))
        code, found = await bench.with_client(lambda client: client.read(1, 10, 19))
        assert (code, len(found)) == (OK, 10)
        await asyncio.sleep(61.0)
        await collect(bench)
        await asyncio.sleep(61.0)
        await collect(bench)
        assert await held(bench) == []

    bench.sim.run(scenario)


@pytest.mark.parametrize(
    "op",
    [
        Op("create", paths.underreplicated(1), b"{}"),
        Op("create", paths.RESTORED, encode_record(RestoredTree("", 0))),
        Op("put", paths.ledger(1), b"no record"),
    ],
)
def test_without_evidence_nothing_goes(op: Op) -> None:
    bench = BookieBench(4)

    async def scenario() -> None:
        await bench.client()
        await write_record(bench, ledger((0, "other")))
        await fill(bench, 1)
        await write(bench, op)
        await collect(bench)
        assert await held(bench) == list(range(30))
        assert bench.bookie.garbage.strays.entries_deleted == 0

    bench.sim.run(scenario)


def test_scrubbing_does_not_miss_them() -> None:
    bench = BookieBench(5)

    async def scenario() -> None:
        await bench.client()
        await write_record(bench, ledger((0, HERE), (10, "other")))
        await make_ledgers(bench, 2)
        await fill(bench, 1, 2, entries=90)
        await collect(bench)
        await bench.in_bookie(lambda bookie: bookie.scrubber.scrub())
        assert bench.bookie.scrubber.damaged == 0
        # With the bookie named for them again they are missing.
        await write_record(bench, ledger((0, HERE)))
        await bench.in_bookie(lambda bookie: bookie.scrubber.scrub())
        assert bench.bookie.scrubber.damaged > 0

    bench.sim.run(scenario)


def test_a_damaged_log_with_deleted_copies_is_kept() -> None:
    """What was deleted from a log must not stand in for what cannot be read of it."""
    bench = BookieBench(6)

    async def scenario() -> None:
        await bench.client()
        await write_record(bench, ledger((0, HERE), state=LedgerState.OPEN, last=-1))
        await fill(bench, 1, entries=90)
        await write_record(bench, ledger((0, "other"), (70, HERE), last=89))

        async def log_of(bookie: Bookie) -> tuple[int, int]:
            places = await bookie.store.index.entry_locations(1, 0, 90)
            log_id = max(place[0] for entry, place in places if entry < 70)
            return log_id, min(place[1] for _, place in places[5:] if place[0] == log_id)

        log_id, offset = await bench.in_bookie(log_of)
        bench.node.disk.flip_bit(bench.bookie.store.logs.path(log_id), offset - 20)
        await collect(bench)
        assert [entry for entry in await held(bench) if entry >= 70] == list(range(70, 90))
        left = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
        places: Any = await bench.in_bookie(
            lambda bookie: bookie.store.index.entry_locations(1, 0, 90)
        )
        assert {place[0] for _, place in places} <= set(left)

    bench.sim.run(scenario)


class Refusing:
    """A ledger store whose record was stored again by another process."""

    def __init__(self, now: LedgerMetadata, published: UnderReplicatedAsRead | None) -> None:
        self.now = now
        self.published = published
        self.stored = 0

    async def store(self, metadata: LedgerMetadata, version: int) -> int:
        if version != 2:
            raise Conflict(0, ConflictReason.BAD_VERSION)
        self.stored += 1
        return 3

    async def read_newest(self, ledger_id: int) -> tuple[LedgerMetadata, int]:
        return self.now, 2

    async def read_missing_copies(self, ledger_id: int) -> UnderReplicatedAsRead | None:
        return self.published


@pytest.mark.parametrize(("created", "stored"), [(7, 1), (8, 0), (None, 0)])
def test_a_repair_names_a_bookie_only_while_its_copies_are_spared(
    created: int | None, stored: int
) -> None:
    """The record was stored again since the repair read it, as by a bookie before it deletes."""
    read = UnderReplicatedAsRead(UnderReplicated(1), 0, 7)
    now = None if created is None else UnderReplicatedAsRead(UnderReplicated(1), 0, created)
    metadata = ledger((0, "lost"))
    store: Any = Refusing(metadata, now)
    unused: Any = None
    repair = LedgerRepair(LedgerOptions(), unused, store, unused, unused, unused, 1)
    part = Part(0, 29, 0, "lost")
    assert asyncio.run(repair._swing(metadata, 1, part, "target", read)) is bool(stored)
    assert store.stored == stored
