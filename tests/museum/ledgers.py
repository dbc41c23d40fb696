"""Exhibits about ledgers: ensemble changes, repair, and the list of ledgers that a topic is."""

from __future__ import annotations

import random
from typing import Any, Final

import msgspec

from pulsarish.ledger.repair.repair_core import MemberState, plan_repair
from pulsarish.ledger.writer_core import Change, WriterCore
from pulsarish.metadata.records import UnderReplicated
from pulsarish.model.errors import NotEnoughBookies
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, PurposeKind, Segment
from pulsarish.runtime.seams import World
from pulsarish.sim.mutants.catalogue import MUTANTS
from pulsarish.sim.workloads.safeguard import Patch, all_replaced, replacing
from tests.museum.exhibit import Defect, Exhibit, Kind, from_mutant
from tests.support.logs import Shelf, names, simulate

__all__ = ["EXHIBITS"]

QUORUMS: Final = ((2, 2, 1), (2, 2, 2), (3, 3, 2), (3, 2, 2))


# -- apache/bookkeeper#4651 and #3917: what a change of the ensemble leaves in metadata


class _Bookies:
    """A writer's core, bookies that store what reaches them, and metadata: everything arrives when
    the play says so.
    """

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
            new = {
                index: f"bookie{len(self.has) + number}"
                for number, index in enumerate(self.core.failed)
            }
            self.has.update((member, set()) for member in new.values())
            self.change = self.core.begin_change(new)

    def store_change(self) -> None:
        """It is in metadata; the writer hears of that later."""
        if self.change is not None:
            self.stored = self.change.planned

    def end_change(self) -> None:
        if self.change is not None:
            self.store_change()
            self.change = None
            for index in self.core.change_stored(self.stored):
                for entry_id in range(self.core.confirmed + 1, self.core.pushed + 1):
                    if self.core.lacks(index, entry_id):
                        self.sent.append((self.core.members[index], entry_id))

    def run(self) -> None:
        moves = (
            self.push,
            self.arrive,
            self.arrive,
            self.answer,
            self.answer,
            self.fail,
            self.begin_change,
            self.store_change,
        )
        for _ in range(80):
            self.draw.choice((*moves, self.end_change))()
            self.core.confirm()
            self.check_copies()
            self.check_repair()
            self.core.check()

    def check_copies(self) -> None:
        for entry_id in range(self.core.confirmed + 1):
            holders = [
                member for member in self.stored.write_set(entry_id) if entry_id in self.has[member]
            ]
            assert len(holders) >= self.stored.ack_quorum, (
                f"entry {entry_id} is confirmed, and of the bookies that metadata name for it "
                f"only {holders} have it"
            )

    def check_repair(self) -> None:
        """Whatever end recovery may find: repair copies no entry behind it."""
        lost = UnderReplicated(self.stored.ledger_id)
        for last_entry in range(self.core.confirmed, self.core.pushed + 1):
            closed = self.stored.in_recovery().closed(last_entry, 0)
            for step in plan_repair(closed, lost, lambda _: MemberState.LOST, ()).steps:
                assert step.part is not None
                assert step.part.last <= last_entry, (
                    f"repair looks for entry {step.part.last} of a ledger that ends at {last_entry}"
                )


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
    """New members are named from one entry too late, and closing keeps fragments that begin behind
    the end.
    """

    def with_members(was: Any) -> object:
        def change(
            metadata: LedgerMetadata, first_entry: int, members: tuple[str, ...]
        ) -> LedgerMetadata:
            changed: LedgerMetadata = was(metadata, first_entry + 1, members)
            return changed

        return change

    def closed(was: Any) -> object:
        def close(metadata: LedgerMetadata, *end: Any) -> LedgerMetadata:
            found: LedgerMetadata = was(metadata, *end)
            return msgspec.structs.replace(found, segments=metadata.segments)

        return close

    return all_replaced(
        replacing(LedgerMetadata, "with_members", with_members),
        replacing(LedgerMetadata, "closed", closed),
    )


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
            shelf.ledgers.break_writer(
                shelf.ledgers.created[-1], 4, NotEnoughBookies("the bookies are restarted")
            )
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
        wrong=(
            "Entries that were under way complete while an ensemble change runs: metadata "
            "name bookies that lack them, data are lost."
        ),
        here=(
            "Plays adds, answers, failures and changes in many orders; each confirmed entry "
            "must lie on Qa of the bookies in metadata."
        ),
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
        wrong=(
            "Metadata end a fragment behind the ledger's last entry; repair looks for an "
            "entry that never was, and never ends."
        ),
        here=(
            "Impossible: new members are named from LAC + 1 on, and closing drops fragments "
            "behind the end; the same play shows it."
        ),
        kind=Kind.IMPOSSIBLE,
        check=_check_changes,
        defects=(
            Defect(
                "fragment_kept_behind_the_end",
                "new members are named from LAC + 1 on, and closing drops what begins behind the "
                "end",
                _behind_the_end(),
            ),
        ),
    ),
    from_mutant(
        MUTANTS["replaced_member_counted"],
        ("apache/bookkeeper#4097", "apache/bookkeeper#4194"),
        "After ensemble changes entries lie on bookies that were replaced, and those in metadata "
        "have none of them.",
        seed=0,
    ),
    from_mutant(
        MUTANTS["ensemble_used_before_it_is_stored"],
        ("apache/bookkeeper#1591",),
        "While metadata do not answer, new bookies are written to and counted; the process that "
        "recovers the ledger does not know of them.",
        seed=1,
    ),
    Exhibit(
        name="stored_entry_added_again",
        upstream=("apache/pulsar#7490",),
        wrong=(
            "An entry that was stored is reported as failed and added again to the next "
            "ledger: the log has it twice."
        ),
        here=(
            "A ledger breaks off while ten entries are under way, of which it has four: each "
            "must be in the log once, in order."
        ),
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
        "Two brokers load a topic at once: messages are lost, and positions that do not exist are "
        "acknowledged.",
        seed=0,
    ),
)
