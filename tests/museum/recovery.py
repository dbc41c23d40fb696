"""Exhibits about fencing, the recovery of ledgers, and writers that go on although their ledger is
closed or deleted.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from pulsarish.bookie.store import EntryStore
from pulsarish.client.message_id import MessageId
from pulsarish.ledger import recovery_core
from pulsarish.ledger.bookie_control import BookieControl, FenceAnswer, NoAnswer, RecoveryAnswer
from pulsarish.ledger.coverage import Coverage
from pulsarish.ledger.recovery import Recovery
from pulsarish.ledger.recovery_core import FencingCore
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.sim.mutants.catalogue import MUTANTS
from pulsarish.sim.workloads.safeguard import Patch, all_replaced, replacing
from pulsarish.sim.world.nodes import NodeDied
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.bookie import AddBatch
from tests.museum.exhibit import Defect, Exhibit, Kind
from tests.simulation.test_ledger_scripts import Client, Cluster, entries, play
from tests.simulation.test_replaced_machines import Machines, machine_of
from tests.support.brokered import Brokered, play_with_brokers

__all__ = ["EXHIBITS"]

TOPIC: Final = "persistent://public/default/t"


# -- apache/bookkeeper#2614


class _Unlucky(BookieControl):
    """A recoverer's calls: the fence does not reach one bookie, and another does not answer what it
    reads.
    """

    def __init__(self, control: BookieControl, world: Any, unfenced: str, silent: str) -> None:
        super().__init__(world, control._options, control._book)
        self._world = world
        self._unfenced = unfenced
        self._silent = silent

    async def fence(self, member: str, ledger_id: int) -> FenceAnswer:
        if member == self._unfenced:
            raise NoAnswer("the fence was lost")
        answer = await super().fence(member, ledger_id)
        # Nothing comes with it, so that the entries are read.
        return FenceAnswer(answer.code, answer.message, answer.lac)

    async def recovery_read(
        self, member: str, ledger_id: int, first: int, last: int, max_bytes: int
    ) -> RecoveryAnswer:
        if member == self._silent:
            await self._world.clock.sleep(0.5)
            raise NoAnswer("the answer was lost")
        return await super().recovery_read(member, ledger_id, first, last, max_bytes)


def _check_lost_fence(seed: int) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client, rival = await cluster.client(), await cluster.client("rival")
        writer, listener = await client.create()
        late, _, early = writer.metadata.last_segment.members
        nodes = [member.partition("~")[0] for member in writer.metadata.last_segment.members]
        for node in nodes[:2]:
            sim.network.clog("client", node)

        async def append() -> None:
            writer.append(b"on its way")
            await client.world.clock.sleep(0.1)

        await client.do(append())
        rival.ledgers._pool.control = _Unlucky(
            rival.ledgers._pool.control, rival.world, unfenced=late, silent=early
        )
        reader = await rival.do(rival.ledgers.open(writer.ledger_id))
        sim.network.heal("client", nodes[0])
        await asyncio.sleep(0.3)
        assert listener.last <= reader.last_add_confirmed, (
            f"the ledger was closed at {reader.last_add_confirmed}, and after that its writer had "
            f"entry {listener.last} confirmed"
        )

    play(scenario, seed + 1)


# -- apache/bookkeeper#2615


def _check_empty_ensemble(seed: int) -> None:
    """The writer has stored new members and died before they got an entry; one of them dies,
    too.
    """

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 5)
        client = await cluster.client()
        writer, _ = await client.create(2, 2, 2)
        await client.append(writer, entries(3))
        used = writer.metadata.last_segment.members
        fresh = tuple(member for member in await _members(client) if member not in used)[:2]
        client.node.crash()
        other = await cluster.client("other")
        records = Records(other.world.metadata, other.world.clock, other.world.random)
        path = paths.ledger(writer.ledger_id)
        metadata, version = await other.do(records.get(path, LedgerMetadata))
        await other.do(records.compare_and_set(path, metadata.with_members(3, fresh), version))
        sim.nodes[fresh[0].partition("~")[0]].crash()
        try:
            reader = await other.do(other.ledgers.open(writer.ledger_id))
        except NodeDied:
            raise AssertionError(
                f"recovery came to what may not be: {sim.nodes['other'].ends[-1]!r}"
            ) from None
        assert await other.read_all(reader) == entries(3)
        assert reader.metadata.state is LedgerState.CLOSED

    play(scenario, seed + 1)


async def _members(client: Client) -> list[str]:
    return [candidate.member for candidate in client.ledgers.bookies.candidates()]


def _lac_heard(_was: object) -> object:
    return property(lambda core: core._lac)


# -- apache/bookkeeper#1067 and apache/pulsar#24482


def _check_hanging_bookie(seed: int) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client, other = await cluster.client(), await cluster.client("other")
        writer, _ = await client.create()
        await client.append(writer, entries(5))
        client.node.crash()
        sim.nodes[writer.metadata.last_segment.members[1].partition("~")[0]].pause()
        reader = await other.do(other.ledgers.open(writer.ledger_id))
        assert await other.read_all(reader) == entries(5)

    play(scenario, seed + 1)


def _all_must_deny(_was: object) -> object:
    return lambda write_quorum, _ack_quorum: write_quorum


def _check_lost_bookie(seed: int) -> None:
    """A bookie of the topic's open ledger is gone for good, then the topic's owner dies."""

    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        for number in range(5):
            await producer.send(b"%d" % number)
        brokered.node("bookie1").crash()
        owner = next(
            name
            for name, broker in brokered.cluster.brokers.items()
            if TOPIC in broker._topics.loaded
        )
        brokered.node(owner).crash()
        for number in range(5, 10):
            await producer.send(b"%d" % number)
        reader = await client.create_reader(TOPIC, MessageId.earliest)
        assert [(await reader.read_next()).data() for _ in range(10)] == [
            b"%d" % number for number in range(10)
        ]

    play_with_brokers(scenario, brokers=2, seeds=1, max_virtual_seconds=120)


def _all_must_answer(_was: object) -> object:
    return property(lambda coverage: all(coverage._heard))


# -- apache/bookkeeper#4462 and #4812: whose adds nobody will read


def _check_deleted(seed: int) -> None:
    """Another client deletes the ledger that a writer writes on."""

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client, rival = await cluster.client(), await cluster.client("rival")
        writer, listener = await client.create()
        await client.append(writer, entries(3))
        await rival.do(rival.ledgers.delete(writer.ledger_id))
        await client.append(writer, entries(1, 3))
        assert listener.last == 2, (
            f"entry {listener.last} was confirmed in a ledger that was deleted"
        )

    play(scenario, seed + 1)


def _unfenced(_was: Any) -> object:
    async def fence(recovery: Recovery) -> tuple[LedgerMetadata, int]:
        found = await recovery._store.read_newest(recovery._ledger_id)
        assert found is not None
        return found

    return fence


def _check_blank_machines(seed: int) -> None:
    """A ledger is closed by another client; then empty bookies come to listen where its members
    did.
    """

    async def scenario(sim: Simulation) -> None:
        cluster = Machines(sim, 2)
        client, rival = await cluster.client(), await cluster.client("rival")
        writer, listener = await client.create(2, 2, 2)
        await client.append(writer, entries(1))
        await rival.do(rival.ledgers.open(writer.ledger_id))
        for member in writer.metadata.last_segment.members:
            await cluster.replace(machine_of(member))
        await client.append(writer, entries(1, 1))
        assert listener.last == 0, (
            f"entry {listener.last} was confirmed behind the end of a closed ledger"
        )

    play(scenario, seed + 1)


def _named_by_address() -> Patch:
    """A bookie is whoever listens at its address."""

    def route(was: Any) -> object:
        def find(book: AddressBook, member: str) -> str | None:
            machine = machine_of(member)
            here = [name for name in book._known if name.startswith(machine)]
            return was(book, here[-1]) if here else None

        return find

    def add(was: Any) -> object:
        def take(store: EntryStore, message: bytes, batch: AddBatch, answer: Any) -> object:
            batch.instance_id = store.instance_id
            return was(store, message, batch, answer)

        return take

    return all_replaced(replacing(AddressBook, "route", route), replacing(EntryStore, "add", add))


EXHIBITS: Final = (
    Exhibit(
        name="fence_lost_by_one_bookie",
        upstream=("apache/bookkeeper#2614", "apache/bookkeeper#2616"),
        wrong=(
            "Recovery reads do not fence: a bookie that missed the fence takes a late add, "
            "which is confirmed and then truncated."
        ),
        here=(
            "Lets a fence get lost and an add arrive late at real bookies: what is confirmed "
            "must be within the closed ledger."
        ),
        kind=Kind.SCENARIO,
        check=_check_lost_fence,
        defects=(
            Defect(
                "no_fence_on_recovery_reads",
                "a recovery read fences",
                MUTANTS["no_fence_on_recovery_reads"].patch,
            ),
        ),
    ),
    Exhibit(
        name="empty_last_ensemble",
        upstream=("apache/bookkeeper#2615", "apache/bookkeeper#2654"),
        wrong=(
            "An empty last ensemble answers LAC -1: recovery begins at entry 0, makes an "
            "ensemble that may not be, and fails for good."
        ),
        here="Recovers such a ledger with one bookie of the empty ensemble dead.",
        kind=Kind.SCENARIO,
        check=_check_empty_ensemble,
        defects=(
            Defect(
                "lac_as_heard",
                "recovery never begins before the last ensemble",
                replacing(FencingCore, "lac", _lac_heard),
            ),
        ),
    ),
    Exhibit(
        name="hanging_bookie_blocks_recovery",
        upstream=("apache/bookkeeper#1067", "apache/bookkeeper#1077"),
        wrong=(
            "Recovery waits for every bookie to say that an entry is not there, so one that "
            "hangs keeps a ledger from being closed."
        ),
        here="Recovers a ledger of three bookies while one of them stands still.",
        kind=Kind.SCENARIO,
        check=_check_hanging_bookie,
        defects=(
            Defect(
                "all_must_deny",
                "Qw - Qa + 1 denials are enough",
                replacing(recovery_core, "negatives_needed", _all_must_deny),
            ),
        ),
    ),
    Exhibit(
        name="lost_bookie_blocks_topic",
        upstream=("apache/pulsar#24482", "apache/pulsar#6505", "apache/bookkeeper#2281"),
        wrong=(
            "A bookie is lost for good and the ledger cannot be recovered; the topic is "
            "unavailable (the first thread names no cause)."
        ),
        here=(
            "A bookie of a topic's open ledger is gone, then its owner dies; the next owner "
            "must serve what was there and more."
        ),
        kind=Kind.SCENARIO,
        check=_check_lost_bookie,
        defects=(
            Defect(
                "all_must_answer",
                "fencing needs Qw - Qa + 1 answers",
                replacing(Coverage, "covered", _all_must_answer),
            ),
        ),
    ),
    Exhibit(
        name="written_after_deletion",
        upstream=("apache/bookkeeper#4462",),
        wrong=(
            "A broker that lost its session goes on writing to a ledger that the next owner "
            "has deleted, and gets confirmations."
        ),
        here="Deletes a ledger under its writer: nothing may be confirmed in it from then on.",
        kind=Kind.SCENARIO,
        check=_check_deleted,
        defects=(
            Defect(
                "deleted_without_a_fence",
                "a ledger that may be open is fenced before it goes",
                replacing(Recovery, "fence", _unfenced),
            ),
        ),
    ),
    Exhibit(
        name="blank_bookies_at_known_addresses",
        upstream=("apache/bookkeeper#4812",),
        wrong=(
            "Members are replaced by empty bookies at the same addresses, which take adds for "
            "a closed ledger: confirmed, and lost."
        ),
        here=(
            "Closes a ledger and puts empty machines in the place of its members: its old "
            "writer must get nothing confirmed."
        ),
        kind=Kind.SCENARIO,
        check=_check_blank_machines,
        defects=(
            Defect(
                "named_by_address",
                "a bookie is the instance in its cookie, and says no to what is for another",
                _named_by_address(),
            ),
        ),
    ),
)
