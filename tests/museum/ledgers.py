"""Exhibits about ledgers: ensemble changes, fencing, recovery, repair, and the list of ledgers that a topic is."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

import msgspec

from pulsarish.client.message_id import MessageId
from pulsarish.ledger import recovery_core
from pulsarish.ledger.control import BookieControl, LacAnswer, NoAnswer, RecoveryAnswer
from pulsarish.ledger.coverage import Coverage
from pulsarish.ledger.recovery_core import FencingCore
from pulsarish.ledger.repair_core import MemberState, plan_repair
from pulsarish.ledger.writer_core import Change, WriterCore
from pulsarish.metadata import paths
from pulsarish.metadata.records import UnderReplicated
from pulsarish.metadata.update import Records
from pulsarish.model.errors import NotEnoughBookies
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, LedgerState, PurposeKind, Segment
from pulsarish.runtime.seams import World
from pulsarish.sim.all_mutants import MUTANTS
from pulsarish.sim.mutants import Patch, all_replaced, replacing
from pulsarish.sim.nodes import NodeDied
from pulsarish.sim.world import Simulation
from tests.museum.exhibit import Defect, Exhibit, Kind, from_mutant
from tests.simulation.test_ledger_scripts import Client, Cluster, entries, play
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.logs import Shelf, names, simulate

__all__ = ["EXHIBITS"]

TOPIC: Final = "persistent://public/default/t"
QUORUMS: Final = ((2, 2, 1), (2, 2, 2), (3, 3, 2), (3, 2, 2))


# -- apache/bookkeeper#4651 and #3917: what a change of the ensemble leaves in metadata


class _Bookies:
    """A writer's core, bookies that store what reaches them, and metadata: everything arrives when the play says so."""

    def __init__(self, quorums: tuple[int, int, int], draw: random.Random) -> None:
        ensemble, write, ack = quorums
        purpose = LedgerPurpose(PurposeKind.DIAGNOSTIC, "museum")
        members = tuple(f"bookie{number}" for number in range(ensemble))
        self.stored = LedgerMetadata(1, ensemble, write, ack, purpose, (Segment(0, members),))
        self.core = WriterCore(self.stored)
        self.has: dict[str, set[int]] = {member: set() for member in members}
        self.sent: list[tuple[str, int]] = []
        self.answers: list[tuple[str, int]] = []
        self.change: Change | None = None
        self.draw = draw

    def push(self) -> None:
        first = self.core.push(self.draw.randrange(1, 4))
        for entry_id in range(first, self.core.pushed + 1):
            for index, member in enumerate(self.core.members):
                if self.core.takes(index) and self.core.holds(index, entry_id):
                    self.sent.append((member, entry_id))

    def arrive(self) -> None:
        if self.sent:
            member, entry_id = self.sent.pop(self.draw.randrange(len(self.sent)))
            self.has[member].add(entry_id)
            self.answers.append((member, entry_id))

    def answer(self) -> None:
        if self.answers:
            member, entry_id = self.answers.pop(self.draw.randrange(len(self.answers)))
            self.core.acked(member, entry_id, entry_id)

    def fail(self) -> None:
        if len(self.has) < 9:
            self.core.fail(self.draw.choice(self.core.members))

    def begin_change(self) -> None:
        if self.core.failed and self.change is None:
            new = {index: f"bookie{len(self.has) + number}" for number, index in enumerate(self.core.failed)}
            self.has.update((member, set()) for member in new.values())
            self.change = self.core.begin_change(new)

    def store_change(self) -> None:
        """It is in metadata; the writer hears of that later."""
        if self.change is not None:
            self.stored = self.change.wished

    def end_change(self) -> None:
        if self.change is not None:
            self.store_change()
            self.change = None
            for index in self.core.change_stored(self.stored):
                for entry_id in range(self.core.confirmed + 1, self.core.pushed + 1):
                    if self.core.lacks(index, entry_id):
                        self.sent.append((self.core.members[index], entry_id))

    def run(self) -> None:
        moves = (self.push, self.arrive, self.arrive, self.answer, self.answer, self.fail, self.begin_change, self.store_change)
        for _ in range(80):
            self.draw.choice((*moves, self.end_change))()
            self.core.confirm()
            self.check_copies()
            self.check_repair()
            self.core.check()

    def check_copies(self) -> None:
        for entry_id in range(self.core.confirmed + 1):
            holders = [member for member in self.stored.write_set(entry_id) if entry_id in self.has[member]]
            assert len(holders) >= self.stored.ack_quorum, (
                f"entry {entry_id} is confirmed, and of the bookies that metadata name for it only {holders} have it"
            )

    def check_repair(self) -> None:
        """Whatever end recovery may find: repair copies no entry behind it."""
        lost = UnderReplicated(self.stored.ledger_id)
        for last_entry in range(self.core.confirmed, self.core.pushed + 1):
            closed = self.stored.in_recovery().closed(last_entry, 0)
            for step in plan_repair(closed, lost, lambda _: MemberState.LOST, ()).steps:
                assert step.part is not None
                assert step.part.last <= last_entry, f"repair looks for entry {step.part.last} of a ledger that ends at {last_entry}"


def _check_changes(seed: int) -> None:
    for number in range(40):
        _Bookies(QUORUMS[number % len(QUORUMS)], random.Random(f"changes {seed} {number}")).run()


def _confirm_meanwhile(was: Any) -> object:
    def confirm(core: WriterCore) -> int:
        failed, change = core._failed, core._change
        core._failed, core._change = [], None
        try:
            count: int = was(core)
        finally:
            core._failed, core._change = failed, change
        return count

    return confirm


def _behind_the_end() -> Patch:
    """New members are named from one entry too late, and closing keeps fragments that begin behind the end."""

    def with_members(was: Any) -> object:
        def change(metadata: LedgerMetadata, first_entry: int, members: tuple[str, ...]) -> LedgerMetadata:
            changed: LedgerMetadata = was(metadata, first_entry + 1, members)
            return changed

        return change

    def closed(was: Any) -> object:
        def close(metadata: LedgerMetadata, *end: Any) -> LedgerMetadata:
            found: LedgerMetadata = was(metadata, *end)
            return msgspec.structs.replace(found, segments=metadata.segments)

        return close

    return all_replaced(replacing(LedgerMetadata, "with_members", with_members), replacing(LedgerMetadata, "closed", closed))


# -- apache/bookkeeper#2614


class _Unlucky(BookieControl):
    """A recoverer's calls: the fence does not reach one bookie, and another does not answer what it reads."""

    def __init__(self, control: BookieControl, world: Any, unfenced: str, silent: str) -> None:
        super().__init__(world, control._options, control._book)
        self._world = world
        self._unfenced = unfenced
        self._silent = silent

    async def fence(self, member: str, ledger_id: int) -> LacAnswer:
        if member == self._unfenced:
            raise NoAnswer("the fence was lost")
        return await super().fence(member, ledger_id)

    async def recovery_read(self, member: str, ledger_id: int, first: int, last: int, max_bytes: int) -> RecoveryAnswer:
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
        rival.ledgers._pool.control = _Unlucky(rival.ledgers._pool.control, rival.world, unfenced=late, silent=early)
        reader = await rival.do(rival.ledgers.open(writer.ledger_id))
        sim.network.heal("client", nodes[0])
        await asyncio.sleep(0.3)
        assert listener.last <= reader.last_add_confirmed, (
            f"the ledger was closed at {reader.last_add_confirmed}, and after that its writer had entry {listener.last} confirmed"
        )

    play(scenario, seed + 1)


# -- apache/bookkeeper#2615


def _check_empty_ensemble(seed: int) -> None:
    """The writer has stored new members and died before they got an entry; one of them dies, too."""

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
            raise AssertionError(f"recovery came to what may not be: {sim.nodes['other'].ends[-1]!r}") from None
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
        owner = next(name for name, broker in brokered.cluster.brokers.items() if TOPIC in broker._topics.loaded)
        brokered.node(owner).crash()
        for number in range(5, 10):
            await producer.send(b"%d" % number)
        reader = await client.create_reader(TOPIC, MessageId.earliest)
        assert [(await reader.read_next()).data() for _ in range(10)] == [b"%d" % number for number in range(10)]

    play_with_brokers(scenario, brokers=2, seeds=1, max_virtual_seconds=120)


def _all_must_answer(_was: object) -> object:
    return property(lambda coverage: all(coverage._heard))


# -- apache/pulsar#7490


def _check_broken_off(seed: int) -> None:
    async def scenario(shelf: Shelf) -> None:
        log, heard = await shelf.open("b1")
        await shelf.append(log, names(0, 5))
        shelf.ledgers.hold = True

        async def append(world: World) -> None:
            for payload in names(5, 15):
                log.append(payload, payload)
            await world.clock.sleep(0.01)
            shelf.ledgers.break_writer(shelf.ledgers.created[-1], 4, NotEnoughBookies("the bookies are restarted"))
            shelf.ledgers.hold = False
            while log.pending_entries:
                await world.clock.sleep(0.01)

        await shelf.on("b1", append)
        assert not heard.failed
        assert await shelf.read_all(log) == names(0, 15), "the log does not have each entry once"

    simulate(scenario, seed + 1)


EXHIBITS: Final = (
    Exhibit(
        name="confirmed_during_an_ensemble_change",
        upstream=("apache/bookkeeper#4651",),
        wrong="Entries that were under way complete while an ensemble change runs: metadata name bookies that lack them, data are lost.",
        here="Plays adds, answers, failures and changes in many orders; each confirmed entry must lie on Qa of the bookies in metadata.",
        kind=Kind.SCENARIO,
        check=_check_changes,
        defects=(
            Defect(
                "confirmed_meanwhile",
                "nothing is confirmed while a change runs or is due",
                replacing(WriterCore, "confirm", _confirm_meanwhile),
            ),
        ),
    ),
    Exhibit(
        name="fragment_behind_the_end",
        upstream=("apache/bookkeeper#3917",),
        wrong="Metadata end a fragment behind the ledger's last entry; repair looks for an entry that never was, and never ends.",
        here="Impossible: new members are named from LAC + 1 on, and closing drops fragments behind the end; the same play shows it.",
        kind=Kind.IMPOSSIBLE,
        check=_check_changes,
        defects=(
            Defect(
                "fragment_kept_behind_the_end",
                "new members are named from LAC + 1 on, and closing drops what begins behind the end",
                _behind_the_end(),
            ),
        ),
    ),
    Exhibit(
        name="fence_lost_by_one_bookie",
        upstream=("apache/bookkeeper#2614", "apache/bookkeeper#2616"),
        wrong="Recovery reads do not fence: a bookie that missed the fence takes a late add, which is confirmed and then truncated.",
        here="Lets a fence get lost and an add arrive late at real bookies: what is confirmed must be within the closed ledger.",
        kind=Kind.SCENARIO,
        check=_check_lost_fence,
        defects=(Defect("no_fence_on_recovery_reads", "a recovery read fences", MUTANTS["no_fence_on_recovery_reads"].patch),),
    ),
    Exhibit(
        name="empty_last_ensemble",
        upstream=("apache/bookkeeper#2615", "apache/bookkeeper#2654"),
        wrong="An empty last ensemble answers LAC -1: recovery begins at entry 0, makes an ensemble that may not be, and fails for good.",
        here="Recovers such a ledger with one bookie of the empty ensemble dead.",
        kind=Kind.SCENARIO,
        check=_check_empty_ensemble,
        defects=(Defect("lac_as_heard", "recovery never begins before the last ensemble", replacing(FencingCore, "lac", _lac_heard)),),
    ),
    Exhibit(
        name="hanging_bookie_blocks_recovery",
        upstream=("apache/bookkeeper#1067", "apache/bookkeeper#1077"),
        wrong="Recovery waits for every bookie to say that an entry is not there, so one that hangs keeps a ledger from being closed.",
        here="Recovers a ledger of three bookies while one of them stands still.",
        kind=Kind.SCENARIO,
        check=_check_hanging_bookie,
        defects=(Defect("all_must_deny", "Qw - Qa + 1 denials are enough", replacing(recovery_core, "negatives_needed", _all_must_deny)),),
    ),
    Exhibit(
        name="lost_bookie_blocks_topic",
        upstream=("apache/pulsar#24482", "apache/pulsar#6505", "apache/bookkeeper#2281"),
        wrong="A bookie is lost for good and the ledger cannot be recovered; the topic is unavailable (the first thread names no cause).",
        here="A bookie of a topic's open ledger is gone, then its owner dies; the next owner must serve what was there and more.",
        kind=Kind.SCENARIO,
        check=_check_lost_bookie,
        defects=(Defect("all_must_answer", "fencing needs Qw - Qa + 1 answers", replacing(Coverage, "covered", _all_must_answer)),),
    ),
    from_mutant(
        MUTANTS["replaced_member_counted"],
        ("apache/bookkeeper#4097", "apache/bookkeeper#4194"),
        "After ensemble changes entries lie on bookies that were replaced, and those in metadata have none of them.",
        seed=0,
    ),
    from_mutant(
        MUTANTS["ensemble_used_before_it_is_stored"],
        ("apache/bookkeeper#1591",),
        "While metadata do not answer, new bookies are written to and counted; whoever recovers the ledger does not know of them.",
        seed=1,
    ),
    Exhibit(
        name="stored_entry_added_again",
        upstream=("apache/pulsar#7490",),
        wrong="An entry that was stored is reported as failed and added again to the next ledger: the log has it twice.",
        here="A ledger breaks off while ten entries are under way, of which it has four: each must be in the log once, in order.",
        kind=Kind.SCENARIO,
        check=_check_broken_off,
        defects=(
            Defect(
                "resend_what_recovery_kept",
                "only what the closed ledger lacks is added to the next one",
                MUTANTS["resend_what_recovery_kept"].patch,
            ),
        ),
    ),
    from_mutant(
        MUTANTS["list_swung_without_version"],
        ("apache/pulsar#24722",),
        "Two brokers load a topic at once: messages are lost, and positions that do not exist are acknowledged.",
        seed=0,
    ),
)
