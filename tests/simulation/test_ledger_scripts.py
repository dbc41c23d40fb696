"""One story each: what the ledger layer does when a bookie dies, comes back, stands still or rots;
and what it says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from pulsarish.bookie.bookie import Bookie
from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.reader import LedgerReader
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookiePlace, BookieRacks, UnderReplicated
from pulsarish.model.errors import (
    EntryUnknown,
    InvalidArgument,
    LedgerClosed,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
    PulsarishError,
)
from pulsarish.model.ledger_metadata import BookieGroups, LedgerPurpose, LedgerState, PurposeKind
from pulsarish.runtime.seams import World
from pulsarish.sim.workloads.ledgers import bookie_config
from pulsarish.sim.world.world import Simulation

OPTIONS = LedgerOptions(
    add_timeout_ms=1_000,
    check_interval_ms=100,
    read_timeout_ms=500,
    control_timeout_ms=1_000,
    quarantine_ms=1_000,
    explicit_lac_interval_ms=200,
    window_entries=100,
)
PURPOSE = LedgerPurpose(PurposeKind.DIAGNOSTIC, "test")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Listener:
    def __init__(self) -> None:
        self.last = -1
        self.error: PulsarishError | None = None

    def confirmed(self, last_entry: int) -> None:
        self.last = last_entry

    def stopped(self, error: PulsarishError) -> None:
        self.error = error


class Cluster:
    """Bookies b0, b1, ... and clients, each on its node."""

    def __init__(self, sim: Simulation, bookies: int) -> None:
        self.sim = sim
        self.running: dict[str, Bookie] = {}
        self.bookies = [
            sim.node(f"b{number}", self._main(f"b{number}")) for number in range(bookies)
        ]
        self.warnings: list[str] = []

    def _main(self, name: str) -> Callable[[World], Coroutine[Any, Any, None]]:
        async def main(world: World) -> None:
            self.running[name] = bookie = Bookie(world, bookie_config(name))
            await bookie.run()

        return main

    async def client(self, name: str = "client", **options: int | str | bool) -> Client:
        if not self.warnings:
            await asyncio.sleep(1.0)
        node = self.sim.node(name)
        assert node.world is not None

        async def start(world: World) -> LedgerClient:
            ledgers = LedgerClient(
                world, msgspec.structs.replace(OPTIONS, **options), on_warning=self.warnings.append
            )
            await ledgers.start()
            return ledgers

        return Client(self, name, node.world, await node.run(start))


class Client:
    """A ledger client whose calls run in its node."""

    def __init__(self, cluster: Cluster, name: str, world: World, ledgers: LedgerClient) -> None:
        self.node = cluster.sim.nodes[name]
        self.world = world
        self.ledgers = ledgers

    async def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await self.node.run(lambda _: work)

    async def create(self, *quorums: int) -> tuple[LedgerWriter, Listener]:
        ensemble, write, ack = quorums or (3, 3, 2)
        listener = Listener()
        writer: LedgerWriter = await self.do(
            self.ledgers.create(
                ensemble_size=ensemble,
                write_quorum=write,
                ack_quorum=ack,
                purpose=PURPOSE,
                listener=listener,
            )
        )
        return writer, listener

    async def append(self, writer: LedgerWriter, payloads: Sequence[bytes]) -> None:
        """Append and wait until all is confirmed and the third copies have had their time, or the
        writer has stopped.
        """

        async def work() -> None:
            for payload in payloads:
                writer.append(payload)
            while writer.last_add_confirmed < writer.last_add_pushed and not writer.stopped:
                await self.world.clock.sleep(0.005)
            await self.world.clock.sleep(0.1)

        await self.do(work())

    async def read_all(self, reader: LedgerReader) -> list[bytes]:
        async def work() -> list[bytes]:
            found: list[bytes] = []
            while len(found) <= reader.last_add_confirmed:
                found += [
                    bytes(entry.payload)
                    for entry in await reader.read(
                        len(found), reader.last_add_confirmed, max_bytes=1_000
                    )
                ]
            return found

        got: list[bytes] = await self.do(work())
        return got

    async def lacking(self, ledger_id: int) -> UnderReplicated | None:
        records = Records(self.world.metadata, self.world.clock, self.world.random)
        found = await self.do(records.get(paths.underreplicated(ledger_id), UnderReplicated))
        return None if found is None else found[0]


def entries(count: int, start: int = 0) -> list[bytes]:
    return [b"entry %d" % number for number in range(start, start + count)]


def play(scenario: Callable[[Simulation], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    sim = Simulation(seed)
    sim.run(lambda: scenario(sim), 300)


def test_written_closed_and_read() -> None:
    async def scenario(sim: Simulation) -> None:
        client = await Cluster(sim, 3).client()
        writer, listener = await client.create()
        await client.append(writer, entries(50))
        closed = await client.do(writer.close())
        assert (closed.state, closed.last_entry, closed.length_bytes) == (
            LedgerState.CLOSED,
            49,
            sum(map(len, entries(50))),
        )
        assert listener.last == 49
        with pytest.raises(LedgerClosed):
            writer.append(b"more")
        reader = await client.do(client.ledgers.open(writer.ledger_id))
        assert await client.read_all(reader) == entries(50)
        with pytest.raises(NoSuchEntry, match="readable up to entry 49"):
            await client.do(reader.read(50, 60, max_bytes=100))
        with pytest.raises(InvalidArgument):
            await client.do(reader.read(5, 4, max_bytes=100))
        assert await client.lacking(writer.ledger_id) is None

    play(scenario)


def test_a_striped_ledger_lies_on_all_members() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 5)
        client = await cluster.client()
        writer, _ = await client.create(5, 2, 2)
        await client.append(writer, entries(40))
        rival = await cluster.client("rival")
        reader = await rival.do(rival.ledgers.open(writer.ledger_id))
        assert reader.last_add_confirmed == 39
        assert await rival.read_all(reader) == entries(40)

    play(scenario)


def test_an_empty_ledger_is_recovered_as_empty() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client()
        writer, _ = await client.create()
        reader = await client.do(client.ledgers.open(writer.ledger_id))
        assert (reader.last_add_confirmed, reader.length_bytes) == (-1, 0)
        with pytest.raises(NoSuchLedger):
            await client.do(client.ledgers.open(12_345))

    play(scenario)


def test_an_old_owner_confirms_nothing_after_recovery() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client, rival = await cluster.client(), await cluster.client("rival")
        writer, listener = await client.create()
        await client.append(writer, entries(10))
        reader = await rival.do(rival.ledgers.open(writer.ledger_id))
        assert reader.last_add_confirmed == 9
        await client.append(writer, [b"too late"])
        assert isinstance(listener.error, LedgerFenced)
        assert listener.last == 9
        with pytest.raises(LedgerFenced):
            writer.append(b"again")
        with pytest.raises(LedgerFenced):
            await client.do(writer.close())

    play(scenario)


def test_closing_a_ledger_in_recovery_is_left_to_recovery() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client, rival = await cluster.client(), await cluster.client("rival")
        writer, listener = await client.create()
        await client.append(writer, entries(3))
        await rival.do(rival.ledgers.open(writer.ledger_id))
        with pytest.raises(LedgerFenced):
            await client.do(writer.close())
        assert isinstance(listener.error, LedgerFenced)

    play(scenario)


def test_a_failed_bookie_is_replaced_while_there_is_another() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 4)
        client = await cluster.client()
        writer, listener = await client.create()
        await client.append(writer, entries(10))
        member = writer.metadata.last_segment.members[0]
        sim.nodes[member.partition("~")[0]].crash()
        await client.append(writer, entries(10, 10))
        assert listener.last == 19
        first, second = writer.metadata.segments
        assert (first.first_entry, first.members[0]) == (0, member)
        assert second.first_entry == 10
        assert member not in second.members
        assert second.members[1:] == first.members[1:]
        rival = await cluster.client("rival")
        assert await rival.read_all(
            await rival.do(rival.ledgers.open(writer.ledger_id))
        ) == entries(20)

    play(scenario)


def test_one_of_three_dead_for_good_stops_nothing() -> None:
    """Publishing, roll-over, the owner's death and a new reader, with two bookies of three (the
    rule on too few bookies).
    """

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client()
        writer, listener = await client.create()
        await client.append(writer, entries(5))
        dead = writer.metadata.last_segment.members[1]
        sim.nodes[dead.partition("~")[0]].crash()
        await client.append(writer, entries(5, 5))
        assert (listener.last, listener.error) == (9, None)
        await asyncio.sleep(0.5)
        lacking = await client.lacking(writer.ledger_id)
        assert lacking is not None
        assert lacking.missing_members == (dead,)
        await client.do(writer.close())
        # The registration goes with its session; then a new ledger takes the two that are left.
        await asyncio.sleep(20.0)
        second, _ = await client.create()
        assert (
            second.metadata.ensemble_size,
            second.metadata.write_quorum,
            second.metadata.ack_quorum,
        ) == (2, 2, 2)
        assert second.metadata.below_policy
        marked = await client.lacking(second.ledger_id)
        assert marked is not None
        assert marked.below_policy
        await client.append(second, entries(5))
        client.node.crash()
        other = await cluster.client("other")
        for ledger_id, count in ((writer.ledger_id, 10), (second.ledger_id, 5)):
            assert await other.read_all(await other.do(other.ledgers.open(ledger_id))) == entries(
                count
            )

    play(scenario)


def test_recovery_with_one_of_three_dead_publishes_what_is_missing() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client()
        writer, _ = await client.create()
        await client.append(writer, entries(5))
        dead = writer.metadata.last_segment.members[2]
        client.node.crash()
        sim.nodes[dead.partition("~")[0]].crash()
        other = await cluster.client("other")
        reader = await other.do(other.ledgers.open(writer.ledger_id))
        assert await other.read_all(reader) == entries(5)
        lacking = await other.lacking(writer.ledger_id)
        assert lacking is not None
        assert dead in lacking.missing_members

    play(scenario)


def test_below_the_acknowledgement_quorum_the_writer_says_who_is_down() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client()
        writer, listener = await client.create()
        await client.append(writer, entries(3))
        for name in ("b0", "b2"):
            sim.nodes[name].crash()
        await client.append(writer, [b"nobody left"])
        assert isinstance(listener.error, NotEnoughBookies)
        assert "needs 2 bookies" in str(listener.error)
        assert "b0~" in str(listener.error)
        assert "b2~" in str(listener.error)
        await asyncio.sleep(20.0)
        with pytest.raises(NotEnoughBookies, match="1 are there, 2 more are known and down"):
            await client.create()
        with pytest.raises(NotEnoughBookies, match="cannot be fenced now"):
            await client.do(client.ledgers.open(writer.ledger_id))
        for name in ("b0", "b2"):
            sim.nodes[name].start()
        await asyncio.sleep(2.0)
        reader = await client.do(client.ledgers.open(writer.ledger_id))
        assert reader.last_add_confirmed in (2, 3)

    play(scenario)


def test_a_bookie_that_comes_back_gets_what_is_not_confirmed_and_all_that_follows() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client()
        writer, listener = await client.create()
        await client.append(writer, entries(5))
        sim.nodes["b1"].crash()
        await client.append(writer, entries(5, 5))
        sim.nodes["b1"].start()
        await asyncio.sleep(3.0)
        await client.append(writer, entries(5, 10))
        assert (listener.last, len(writer.metadata.segments)) == (14, 1)
        # Now another one dies: with b1 back the quorum still holds.
        sim.nodes["b0"].crash()
        await client.append(writer, entries(5, 15))
        assert (listener.last, listener.error) == (19, None)

    play(scenario)


def test_a_new_bookie_takes_the_place_that_was_left_open() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client()
        writer, _ = await client.create()
        dead = writer.metadata.last_segment.members[0]
        sim.nodes[dead.partition("~")[0]].crash()
        await client.append(writer, entries(5))
        assert len(writer.metadata.segments) == 1
        sim.node("b9", cluster._main("b9"))
        await asyncio.sleep(2.0)
        assert writer.metadata.last_segment.first_entry == 5
        assert writer.metadata.last_segment.members[0].startswith("b9~")
        await client.append(writer, entries(5, 5))
        lacking = await client.lacking(writer.ledger_id)
        assert lacking is not None
        assert lacking.missing_members == (dead,)

    play(scenario)


def test_a_bookie_that_stands_still_holds_bounded_memory_and_stops_nobody() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client(
            bookie_queue_bytes=1 << 20, message_bytes_target=1 << 16, window_entries=10_000
        )
        writer, listener = await client.create()
        slow = writer.metadata.last_segment.members[0]
        await client.append(writer, entries(1))
        sim.nodes[slow.partition("~")[0]].pause()
        for _ in range(30):
            await client.append(writer, [bytes(10_000)] * 20)
            backlog = client.ledgers.backlog_bytes()
            assert backlog < 2 << 20
        assert (listener.last, listener.error) == (600, None)
        lacking = await client.lacking(writer.ledger_id)
        assert lacking is not None
        assert lacking.missing_members == (slow,)

    play(scenario)


def test_a_quorum_that_stands_still_is_sent_no_more_than_its_queues_hold() -> None:
    """Appenders that do not ask for room: what is beyond the limits waits in the writers, and no
    bookie counts as too slow for it.
    """

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client(
            bookie_queue_bytes=1 << 20,
            message_bytes_target=1 << 16,
            window_entries=60,
            add_timeout_ms=20_000,
        )
        made = [await client.create() for _ in range(4)]
        for writer, _ in made:
            await client.append(writer, entries(1))
        stuck = [
            sim.nodes[member.partition("~")[0]]
            for member in made[0][0].metadata.last_segment.members[:2]
        ]
        for node in stuck:
            node.pause()

        async def flood(_: World) -> None:
            for number in range(1_500):
                made[number % 4][0].append(bytes(10_000))
                if number % 100 == 0:
                    await client.world.clock.sleep(0.01)

        await client.node.run(flood)
        await asyncio.sleep(2.0)
        # The bookie that goes on has answered; the others hold less than their queues.
        assert client.ledgers.backlog_bytes() <= 2 << 20
        assert [listener.last for _, listener in made] == [0] * 4
        for writer, _ in made:
            assert await client.lacking(writer.ledger_id) is None, "a bookie was taken for failed"
        for node in stuck:
            node.resume()
        await asyncio.sleep(5.0)
        assert [(listener.last, listener.error) for _, listener in made] == [(375, None)] * 4

    play(scenario)


def test_no_more_than_the_window_is_sent_and_unconfirmed() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client(window_entries=10, add_timeout_ms=20_000)
        writer, listener = await client.create()
        nodes = [
            sim.nodes[member.partition("~")[0]] for member in writer.metadata.last_segment.members
        ]
        await client.append(writer, entries(1))
        for node in nodes:
            node.pause()

        async def flood(_: World) -> None:
            for payload in entries(100, 1):
                writer.append(payload)

        await client.node.run(flood)
        await asyncio.sleep(1.0)
        # Three copies of ten entries, each with a head of less than 100 bytes, of a hundred that
        # wait.
        assert 3 * 10 * 10 < client.ledgers.backlog_bytes() < 3 * 10 * 120
        for node in nodes:
            node.resume()
        await asyncio.sleep(2.0)
        assert (listener.last, listener.error) == (100, None)
        reader = await client.do(client.ledgers.open(writer.ledger_id))
        assert await client.read_all(reader) == entries(101)

    play(scenario)


def test_a_copy_that_fails_after_the_close_is_published() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client()
        writer, _ = await client.create()
        late = writer.metadata.last_segment.members[0]
        await client.append(writer, entries(1))
        sim.nodes[late.partition("~")[0]].pause()
        await client.append(writer, entries(5, 1))
        closed = await client.do(writer.close())
        assert closed.last_entry == 5
        assert await client.lacking(writer.ledger_id) is None, "it is late, not lost"
        await asyncio.sleep(3.0)
        lacking = await client.lacking(writer.ledger_id)
        assert lacking is not None
        assert lacking.missing_members == (late,)

    play(scenario)


def test_an_idle_ledger_tells_its_last_entry_to_readers_without_recovery() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client, other = await cluster.client(), await cluster.client("other")
        writer, _ = await client.create()
        await client.append(writer, entries(4))
        reader = await other.do(other.ledgers.open_no_recovery(writer.ledger_id))
        # The records carry a LAC that is behind; after a while of idleness the last one is told.
        assert reader.last_add_confirmed < 3
        await asyncio.sleep(1.0)
        assert await other.do(reader.refresh()) == 3
        assert await other.read_all(reader) == entries(4)
        waiting = asyncio.get_running_loop().create_task(
            other.do(reader.refresh(wait_seconds=20.0))
        )
        await asyncio.sleep(0.5)
        assert not waiting.done(), "nothing new to tell"
        await client.append(writer, entries(2, 4))
        assert await waiting > 3
        await client.do(writer.close())
        assert await other.do(reader.refresh()) == 5
        assert reader.metadata.state is LedgerState.CLOSED

    play(scenario)


def test_idle_ledgers_tell_their_last_entries_together_and_are_then_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client, other = await cluster.client(), await cluster.client("other")
        writers = [(await client.create())[0] for _ in range(30)]
        ticks, tick = [0] * len(writers), LedgerWriter.tick

        def counted(writer: LedgerWriter) -> None:
            ticks[writers.index(writer)] += 1
            tick(writer)

        monkeypatch.setattr(LedgerWriter, "tick", counted)
        for writer in writers:
            await client.append(writer, [b"x"])
        await asyncio.sleep(2.0)
        for writer in writers:
            reader = await other.do(other.ledgers.open_no_recovery(writer.ledger_id))
            assert reader.last_add_confirmed == 0
        before = list(ticks)
        assert all(0 < count < 10 for count in before)
        await asyncio.sleep(2.0)
        assert ticks == before, "an idle ledger costs nothing"
        # A bookie dies, and comes back: an entry stirs its ledger, and what is missing keeps it
        # stirred until it is repaired.
        cluster.bookies[0].crash()
        await client.append(writers[0], [b"y"])
        await asyncio.sleep(1.0)
        assert ticks[0] > before[0] + 5
        assert ticks[1:] == before[1:]
        cluster.bookies[0].start()
        await asyncio.sleep(5.0)
        assert not writers[0].is_short
        before = list(ticks)
        await asyncio.sleep(2.0)
        assert ticks == before

    play(scenario)


def test_readers_go_on_with_the_other_replicas() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client()
        writer, _ = await client.create()
        await client.append(writer, entries(20))
        await client.do(writer.close())
        reader = await client.do(client.ledgers.open(writer.ledger_id))
        for name in ("b0", "b1", "b2"):
            sim.nodes[name].crash()
            assert await client.read_all(reader) == entries(20)
            sim.nodes[name].start()
            await asyncio.sleep(3.0)
        for name in ("b0", "b1", "b2"):
            sim.nodes[name].crash()
        with pytest.raises(EntryUnknown, match=r"cannot be read now .*b0~.*try again") as raised:
            await client.do(reader.read(0, 5, max_bytes=100))
        assert raised.value.retryable
        for name in ("b1", "b2"):
            assert f"{name}~" in str(raised.value)

    play(scenario)


def test_deleting_a_ledger_fences_its_writer() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client, other = await cluster.client(), await cluster.client("other")
        writer, listener = await client.create()
        await client.append(writer, entries(3))
        await other.do(other.ledgers.delete(writer.ledger_id))
        assert await other.do(other.ledgers.metadata(writer.ledger_id)) is None
        await client.append(writer, [b"into nothing"])
        assert isinstance(listener.error, LedgerFenced)
        assert listener.last == 2
        await other.do(other.ledgers.delete(writer.ledger_id))
        with pytest.raises(NoSuchLedger):
            await other.do(other.ledgers.open(writer.ledger_id))

    play(scenario)


def test_ids_are_never_given_out_twice() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        clients = [await cluster.client(f"c{number}", ledger_id_block=2) for number in range(3)]
        made = await asyncio.gather(*(client.create() for client in clients for _ in range(5)))
        ids = [writer.ledger_id for writer, _ in made]
        assert len(set(ids)) == 15

    play(scenario)


def test_weak_quorums_are_warned_of_once() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client()
        for quorums in ((3, 3, 1), (3, 3, 1), (3, 3, 2)):
            await client.create(*quorums)
        assert len(cluster.warnings) == 1
        assert "write_quorum 3 with ack_quorum 1" in cluster.warnings[0]
        with pytest.raises(InvalidArgument):
            await client.create(2, 3, 2)

    play(scenario)


def test_room_in_the_window_is_waited_for() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client(window_entries=10)
        writer, listener = await client.create()

        async def flood() -> None:
            for payload in entries(500):
                await writer.wait_for_room()
                assert writer.last_add_pushed - writer.last_add_confirmed < 10
                writer.append(payload)

        await client.do(flood())
        await asyncio.sleep(1.0)
        assert listener.last == 499

    play(scenario)


def test_the_replica_on_the_own_host_is_read_first_and_the_others_when_it_is_gone() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 4)
        client = await cluster.client(local_host="b1", slow_bookie_avoided_ms=0)
        writer, _ = await client.create(4, 4, 3)
        await client.append(writer, entries(200))
        await client.do(writer.close())
        reader = await client.do(client.ledgers.open(writer.ledger_id))
        local = client.ledgers.local_reads
        assert local is not None
        assert await client.read_all(reader) == entries(200)
        assert local.local_count > 5
        assert local.remote_count == 0
        cluster.bookies[1].crash()
        assert await client.read_all(reader) == entries(200)
        assert local.remote_count > 5

    play(scenario)


def test_new_ledgers_avoid_a_bookie_that_is_slow_with_adds_for_a_while() -> None:
    async def scenario(sim: Simulation) -> None:
        client = await Cluster(sim, 4).client(
            add_timeout_ms=5_000, slow_adds_period_ms=1_000, quarantine_ms=3_000
        )
        bookies = client.ledgers.bookies
        writer, _ = await client.create(4, 4, 3)
        sim.network.slow("b2", 0.3)
        for number in range(20):
            await client.append(writer, entries(1, number))
        assert bookies.slow_count() == 1
        assert writer.metadata.last_segment.members == writer.metadata.segments[0].members
        chosen = [(await client.create())[0].metadata for _ in range(8)]
        names = {bookies.name_of(member) for each in chosen for member in each.segments[0].members}
        assert names == {"b0", "b1", "b3"}
        # It is taken where it is needed, and again after the time.
        assert len((await client.create(4, 4, 3))[0].metadata.segments[0].members) == 4
        sim.network.slow("b2", 0.0)
        await asyncio.sleep(10)
        assert bookies.slow_count() == 0

    play(scenario)


def test_a_ledger_of_a_group_stays_on_its_bookies_when_members_are_replaced() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 5)
        client = await cluster.client()
        records = Records(client.world.metadata, client.world.clock, client.world.random)
        places = {name: BookiePlace("pay") for name in ("b1", "b2", "b3")}
        places["b4"] = BookiePlace("spare", "r9")
        await client.do(
            records.update(paths.BOOKIE_RACKS, BookieRacks, lambda _: BookieRacks(places))
        )
        await asyncio.sleep(1.0)  # the client has followed
        bookies = client.ledgers.bookies
        (last,) = (each for each in bookies.candidates() if bookies.name_of(each.member) == "b4")
        assert (last.group, last.rack) == ("spare", "r9")

        writer = await client.do(
            client.ledgers.create(
                ensemble_size=2,
                write_quorum=2,
                ack_quorum=2,
                purpose=PURPOSE,
                listener=Listener(),
                groups=BookieGroups(("pay",), ("spare",)),
            )
        )

        def members() -> set[str]:
            return {bookies.name_of(each) for each in writer.metadata.last_segment.members}

        first, stays = sorted(members())
        assert {first, stays} < {"b1", "b2", "b3"}
        cluster.bookies[int(first[1])].crash()
        await client.append(writer, entries(5))
        assert members() == {"b1", "b2", "b3"} - {first}
        cluster.bookies[int(stays[1])].crash()
        await client.append(writer, entries(5, 5))
        assert "b4" in members()
        # No other bookie is of the groups: b0 is free, and the ledger ends instead.
        cluster.bookies[4].crash()
        await client.append(writer, entries(1, 10))
        assert writer.stopped
        stored = (await client.do(client.ledgers.open_no_recovery(writer.ledger_id))).metadata
        assert stored.bookie_groups == BookieGroups(("pay",), ("spare",))

    play(scenario)
