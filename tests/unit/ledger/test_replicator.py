"""What a replicator announces, to whom, and when it is over, with queues that are full after one
entry.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, Final

import pytest

from pulsarish.ledger.add_stream import AddStream
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.placement import Candidate
from pulsarish.ledger.placement_policy import Placement
from pulsarish.ledger.replicator import Replicator
from pulsarish.ledger.writer_core import Change, WriterCore
from pulsarish.model.errors import (
    BookieIOError,
    EntryUnknown,
    LedgerClosed,
    MetadataUnavailable,
    NotEnoughBookies,
    PulsarishError,
)
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, PurposeKind, Segment
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.seams import Stream, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.bookie import AddResult, decode_add, encode_add_response

OPTIONS: Final = LedgerOptions(bookie_queue_bytes=1_000, message_bytes_target=1_024)
MEMBERS: Final = ("A", "B", "C")
PURPOSE: Final = LedgerPurpose(PurposeKind.DIAGNOSTIC, "test")
SOON: Final = 0.1


class Bookies:
    """Bookies that take adds and answer when the test says so; also what the replicators know of
    them.
    """

    def __init__(self, members: Sequence[str]) -> None:
        self.book = AddressBook()
        self.members = members
        self.spare: list[str] = []
        self.is_metadata_away = False
        self.quarantined: list[str] = []
        self._streams: dict[str, Stream] = {}
        self._answered: dict[str, int] = {}

    async def serve(self, world: World) -> None:
        for member in [*self.members, "spare"]:
            self.book.put(member, f"b:{member}")
            await world.connections.serve(f"b:{member}", {"bookie.add": self._taker(member)}, {})

    def _taker(self, member: str) -> Callable[[Stream], Coroutine[Any, Any, None]]:
        async def take(stream: Stream) -> None:
            self._streams[member], self._answered[member] = stream, 0
            while (message := await stream.receive()) is not None:
                decode_add(message)

        return take

    async def answer(self, member: str, *rows: AddResult) -> None:
        """The next message of this bookie's stream is answered."""
        self._answered[member] += 1
        await self._streams[member].send([encode_add_response(self._answered[member], list(rows))])
        await asyncio.sleep(SOON)

    async def break_stream(self, *members: str) -> None:
        for member in members:
            self._streams[member].abort("the bookie dies")
        await asyncio.sleep(SOON)

    # -- as the replicators see them

    def candidates(self) -> list[Candidate]:
        return self.describe(self.spare)

    def may_lack(self, _member: str, _ledger_id: int) -> bool:
        return False

    def describe(self, members: Sequence[str]) -> list[Candidate]:
        return [Candidate(member, host=member) for member in members]

    def quarantine(self, member: str) -> None:
        self.quarantined.append(member)


class Pool:
    """One stream to each bookie, shared by all ledgers."""

    def __init__(self, world: World, bookies: Bookies) -> None:
        self.bookies = bookies
        self.placement = Placement(OPTIONS, world.random)
        self.streams: dict[str, AddStream] = {}
        self._world = world

    def adder(self, member: str, *, recovery: bool) -> AddStream:
        if member not in self.streams:
            self.streams[member] = AddStream(
                self._world, OPTIONS, self.bookies.book, member, recovery=recovery
            )
        return self.streams[member]

    def usable(self, _member: str) -> bool:
        return True


class Owner:
    """Notes what it was told, and what was confirmed at that moment."""

    def __init__(self) -> None:
        self.replicator: Replicator
        self.announced = -1
        self.announcements = 0
        self.ended_by: PulsarishError | None = None
        self.stores = asyncio.Event()
        self.stores.set()

    async def store_change(self, change: Change) -> LedgerMetadata:
        await self.stores.wait()
        return change.planned

    def publish_missing(self, members: Sequence[str]) -> None:
        pass

    def confirmed(self, count: int, size_bytes: int) -> None:
        pass

    def progressed(self) -> None:
        self.announced = self.replicator.core.confirmed
        self.announcements += 1

    def ended(self, error: PulsarishError) -> None:
        self.ended_by = error


class Bench:
    """Replicators of several ledgers in one process."""

    def __init__(self, world: World, bookies: Bookies) -> None:
        self.bookies = bookies
        self.pool = Pool(world, bookies)
        self.world = SimpleNamespace(clock=world.clock, tasks=world.tasks, random=random.Random(1))

    def replicator(
        self, ledger_id: int, ack_quorum: int = 2, *, recovery: bool = True
    ) -> tuple[Replicator, Owner]:
        metadata = LedgerMetadata(ledger_id, 3, 3, ack_quorum, PURPOSE, (Segment(0, MEMBERS),))
        owner = Owner()
        core = WriterCore(metadata)
        owner.replicator = Replicator(
            self.world, OPTIONS, self.pool, core, owner, recovery=recovery
        )  # type: ignore[arg-type]  # fakes
        return owner.replicator, owner

    async def push(self, replicator: Replicator, size_bytes: int) -> None:
        replicator.push([b"h" * 36, b"x" * (size_bytes - 36)], [size_bytes])
        await asyncio.sleep(SOON)


def play(story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    sim = Simulation(1)
    bookies = Bookies(MEMBERS)

    async def scenario() -> None:
        await sim.node("b").run(bookies.serve)
        await sim.node("a").run(lambda world: story(Bench(world, bookies)))

    sim.run(scenario, 100)


@pytest.mark.parametrize("dead", [("A", "B"), ("A", "B", "C")])
def test_room_in_a_queue_that_is_lost_with_its_stream_is_announced(dead: tuple[str, ...]) -> None:
    """Whoever waits for room behind another ledger's entries owes nothing itself to the bookies
    that fail.
    """

    async def story(bench: Bench) -> None:
        first, _ = bench.replicator(1)
        waiting, owner = bench.replicator(2)
        await bench.push(first, 900)
        waiting.look_for_crowd()
        assert waiting.crowded
        before = owner.announcements
        await bench.bookies.break_stream(*dead)
        assert owner.announcements > before
        assert not waiting.crowded

    play(story)


@pytest.mark.parametrize(
    ("code", "quarantined"), [(EntryUnknown.code, []), (BookieIOError.code, ["C"])]
)
def test_a_bookie_that_may_have_lost_entries_of_a_ledger_is_well_for_others(
    code: int, quarantined: list[str]
) -> None:
    async def story(bench: Bench) -> None:
        replicator, _ = bench.replicator(1)
        bench.bookies.spare.append("spare")
        await bench.push(replicator, 100)
        await bench.bookies.answer("C", AddResult(1, 0, 0, code))
        assert replicator.core.members == ("A", "B", "spare")
        assert bench.bookies.quarantined == quarantined

    play(story)


def test_room_that_another_ledger_gives_back_is_announced() -> None:
    """A ledger that is over takes its entries out of the queues; nobody answers for them any
    more.
    """

    async def story(bench: Bench) -> None:
        first, _ = bench.replicator(1)
        second, _ = bench.replicator(3)
        waiting, owner = bench.replicator(2)
        await bench.push(first, 400)  # is out
        await bench.push(second, 200)  # waits behind it
        waiting.look_for_crowd()
        assert waiting.crowded
        before = owner.announcements
        second.abandon(LedgerClosed("it is over"))
        await asyncio.sleep(SOON)
        assert owner.announcements > before
        assert not waiting.crowded

    play(story)


def test_a_confirmation_at_the_end_of_a_change_is_announced() -> None:
    async def story(bench: Bench) -> None:
        replicator, owner = bench.replicator(1)
        bench.bookies.spare.append("spare")
        owner.stores.clear()
        await bench.push(replicator, 100)
        await bench.bookies.break_stream("C")
        assert replicator.core.changing
        for member in ("A", "B"):
            await bench.bookies.answer(member, AddResult(1, 0, 0, 0))
        assert replicator.core.confirmed == -1, "nothing is confirmed while the ensemble changes"
        owner.stores.set()
        await asyncio.sleep(SOON)
        assert replicator.core.confirmed == 0
        assert owner.announced == 0

    play(story)


def test_room_that_a_change_makes_is_announced() -> None:
    async def story(bench: Bench) -> None:
        replicator, owner = bench.replicator(1, ack_quorum=3)
        bench.bookies.spare.append("spare")
        owner.stores.clear()
        await bench.push(replicator, 100)
        await bench.bookies.break_stream("C")
        replicator.look_for_crowd()
        assert replicator.crowded, "two members cannot reach Qa = 3"
        before = owner.announcements
        owner.stores.set()
        await asyncio.sleep(SOON / 100)
        assert owner.announcements > before
        assert not replicator.crowded

    play(story)


def test_without_metadata_a_member_is_left_out_and_replaced_when_they_are_back() -> None:
    async def story(bench: Bench) -> None:
        replicator, owner = bench.replicator(1, recovery=False)
        bench.bookies.spare.append("spare")
        bench.bookies.is_metadata_away = True
        await bench.push(replicator, 100)
        await bench.bookies.break_stream("C")
        assert not replicator.core.changing, "it could not be stored now"
        for member in ("A", "B"):
            await bench.bookies.answer(member, AddResult(1, 0, 0, 0))
        assert owner.announced == 0
        bench.pool.usable = lambda member: member == "spare"  # type: ignore[method-assign]
        replicator.mend()
        assert replicator.core.members == MEMBERS
        bench.bookies.is_metadata_away = False
        replicator.mend()
        await asyncio.sleep(SOON)
        assert replicator.core.members == ("A", "B", "spare")

    play(story)


def test_without_metadata_a_ledger_below_its_quorum_ends_by_their_name() -> None:
    async def story(bench: Bench) -> None:
        replicator, owner = bench.replicator(1, recovery=False)
        bench.bookies.spare.append("spare")
        bench.bookies.is_metadata_away = True

        async def store_change(_change: Change) -> LedgerMetadata:
            raise MetadataUnavailable("the metadata service is away")

        owner.store_change = store_change  # type: ignore[method-assign]
        await bench.push(replicator, 100)
        await bench.bookies.break_stream("B", "C")
        assert isinstance(owner.ended_by, MetadataUnavailable)
        assert "ledger 1 lost bookies" in str(owner.ended_by)

    play(story)


def test_a_change_that_is_stored_after_the_end_changes_nothing() -> None:
    async def story(bench: Bench) -> None:
        replicator, owner = bench.replicator(1)
        bench.bookies.spare.append("spare")
        owner.stores.clear()
        await bench.push(replicator, 100)
        await bench.bookies.break_stream("C")
        assert replicator.core.changing
        replicator.abandon(LedgerClosed("it is over"))
        owner.stores.set()
        await asyncio.sleep(SOON)
        assert "spare" not in bench.pool.streams, "the new member is sent nothing"
        assert not any(stream.in_use for stream in bench.pool.streams.values())
        assert owner.ended_by is None, "whoever ends it knows"
        assert isinstance(replicator.stopped_by, LedgerClosed)

    play(story)


def test_members_that_fail_together_are_told_to_each_ledger_once() -> None:
    async def story(bench: Bench) -> None:
        made = [bench.replicator(ledger_id) for ledger_id in range(3)]
        for replicator, _ in made:
            await bench.push(replicator, 100)
        await bench.bookies.break_stream("A", "B")
        for replicator, owner in made:
            assert isinstance(owner.ended_by, NotEnoughBookies)
            assert replicator.stopped_by is owner.ended_by
        assert not any(stream.in_use for stream in bench.pool.streams.values())

    play(story)
