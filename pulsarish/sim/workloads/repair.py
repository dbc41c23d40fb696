"""Ledgers whose bookies are lost for good, one after the other: real bookies that host
auto-recovery, and the oracle that counts copies.

What must hold, while bookies crash during the repair (rules 3, 19 and 20):

* when a closed ledger is not published as under-replicated any more, all Qw members that the
  metadata name for an entry have it, and none of them is gone; of an open ledger Qa members have
  each confirmed entry;
* this happens without an operator, within a bounded time after everything else has healed
  (liveness);
* a living writer handles a lost bookie itself: the repair does not stop the writer;
* a bookie that comes back after it was replaced deletes the copies for which the metadata name
  others, and no copy that they name, now or after a repair that runs;
* a bookie that an operator has leave its ledgers is not named by them any more before its copies
  are elsewhere;
* with enforced rules of placement every write quorum that a ledger was ever given keeps them;
* copies that an operator has moved to other bookies are there before these are named;
* at the end everything that was confirmed is read with its bytes.

Each round destroys one machine. The next round begins when the ledgers are whole again: what one
round leaves undone the next one loses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from pulsarish.autorecovery.options import AutoRecoveryOptions
from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.ledger_index import entry_key
from pulsarish.bookie.stray_copies import unnamed_spans
from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.placement import Candidate, PlacementRules, violations
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import ReadOnlyBookie, RebalanceRecord
from pulsarish.model.errors import LedgerFenced, PulsarishError
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, LedgerState, PurposeKind
from pulsarish.runtime.seams import Op, World
from pulsarish.sim.cluster.disk_audit import look_at_disks
from pulsarish.sim.workloads.ledger_oracle import LedgerHistory
from pulsarish.sim.workloads.ledgers import bookie_config
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.json_record import decode_record
from pulsarish.wire.record import RECORD_HEAD_SIZE

__all__ = ["RepairSettings", "run_repair"]

_OPTIONS: Final = LedgerOptions(
    add_timeout_ms=800,
    heartbeat_interval_ms=500,
    check_interval_ms=100,
    read_timeout_ms=600,
    control_timeout_ms=800,
    quarantine_ms=1_000,
    explicit_lac_interval_ms=200,
    recovery_copies_wait_ms=50,
    ledger_id_block=3,
)
_REPAIR: Final = AutoRecoveryOptions(
    lost_bookie_recovery_delay_seconds=0.5,
    auditor_check_interval_seconds=0.3,
    auditor_periodic_bookie_check_interval_seconds=4.0,
    open_ledger_rereplication_grace_period_seconds=4.0,
    replication_batch_bytes=1_024,
    rw_rereplicate_backoff_ms=200,
    rw_rereplicate_backoff_max_ms=1_000,
    ledger=_OPTIONS,
)
_ASKING: Final = msgspec.structs.replace(_REPAIR, auditor_periodic_check_interval_seconds=3.0)
_SLOW: Final = msgspec.structs.replace(
    _REPAIR, replication_batch_bytes=1_024, replication_rate_bytes=1_024, replication_ledgers_max=4
)
_PURPOSE: Final = LedgerPurpose(PurposeKind.DIAGNOSTIC, "simulation")
_BOOT_SECONDS: Final = 2.0
_FAULTS_SECONDS: Final = 4.0
_DYING_LEDGERS: Final = 3
_LOOKS_MAX: Final = 120
_FINAL_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 0.5
_HIDDEN_SECONDS: Final = 4.0
_SILENT_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """Amounts of load and faults."""

    bookies: int = 5
    rounds: int = 2
    """Machines that are destroyed, one after the other."""
    closed_ledgers: int = 4
    open_ledgers: int = 2
    entries: int = 40
    """The most entries of each ledger."""
    quorums: Sequence[tuple[int, int, int]] = ((2, 2, 2), (3, 3, 2), (3, 2, 2))
    crash_seconds: float = 0.6
    """Mean pause between crashes of other bookies during the repair; 0: none."""
    writer_pause_seconds: float = 0.0
    """How long the writers' process is stopped when a machine is lost."""
    dying_writers: int = 0
    """Writers that die, one after the other, while a bookie misses entries that Qa others have
    acknowledged.
    """
    late_is_silent: bool = False
    """That bookie does not answer the client that recovers the ledger, either."""
    slow_write_chance: float = 0.3
    """The chance that a write of metadata is slow."""
    holes: bool = False
    """In each closed ledger one member forgets an entry, and the auditor asks members for what they
    hold.
    """
    leaving: int = 0
    """Bookies that an operator sets read-only and has leave their ledgers, one after the other,
    while they are alive. Meanwhile the metadata lack one ledger for less than the grace time of the
    trash. Each is destroyed in the end.
    """
    second_rack: int = 0
    """Bookies from this number on stand in a second rack, and each write quorum must have both; 0:
    no racks, and no rule.
    """
    late_bookies: int = 0
    """Bookies that come when all closed ledgers are written. Then an operator asks for a rebalance,
    and bookies crash while copies move to them.
    """
    returning: int = 0
    """Bookies that stop until they count as lost, one after the other, and come back with
    their copies during the repair or after it. Bookies collect what no metadata name any more, and
    for a while the record of a ledger cannot be read.
    """
    rotten: bool = False
    """In each closed ledger a bit flips in an entry that its member has cached for readers, and
    bookies scrub what they hold.
    """


class _Workload:
    """One run."""

    def __init__(self, sim: Simulation, settings: RepairSettings) -> None:
        self.sim = sim
        self._settings = settings
        self._options = _OPTIONS
        if settings.second_rack:
            self._options = msgspec.structs.replace(
                _OPTIONS, min_distinct_racks=2, min_distinct_enforced=True
            )
        self._names = [f"bookie{number}" for number in range(settings.bookies)]
        self._lives: dict[str, tuple[int, Bookie]] = {}  # by name, with the life of the node
        self._histories: list[LedgerHistory] = []
        self._writers: list[tuple[LedgerHistory, LedgerWriter]] = []
        self._client: LedgerClient | None = None
        self._mending = self._over = False

    async def run(self) -> None:
        settings, sim = self._settings, self.sim
        sim.metadata.slow_write_chance = settings.slow_write_chance
        late = self._names[len(self._names) - settings.late_bookies :]
        for name in self._names:
            if name not in late:
                sim.node(name, self._bookie(name)).restart_after_seconds = 1.0
        writer = sim.node("writer")
        await asyncio.sleep(_BOOT_SECONDS)
        await writer.run(self._write)
        if settings.holes:
            await self._lose_entries()
        if settings.rotten:
            reader = sim.node("reader")
            for _ in range(2):  # the first time nothing is kept
                await reader.run(self._read_everything)
            await self._spoil_entries()
        writing = asyncio.get_running_loop().create_task(writer.run(self._write_on))
        if late:
            await self._rebalance(late)
        for name in sim.faults.sample(self._names, settings.rounds):
            await self._lose(name)
        for name in sim.faults.sample(self._names, settings.leaving):
            await self._leave(name)
        for name in sim.faults.sample(self._names, settings.returning):
            await self._return(name)
        self._over = True
        await writing
        for number in range(settings.dying_writers):
            await self._lose_writer(f"dying{number}")
        await sim.node("final").run(self._read_everything)

    def _bookie(self, name: str) -> Callable[[World], Coroutine[Any, Any, None]]:
        async def main(world: World) -> None:
            wipes = self.sim.nodes[name].disk.wipes_count
            config = msgspec.structs.replace(
                bookie_config(name),
                # A machine that comes back without its data is another bookie at the same address.
                bookie_id=f"{name}-{wipes}" if wipes else name,
                auto_recovery_daemon_enabled=True,
                auto_recovery=msgspec.structs.replace(
                    _ASKING if self._settings.holes else _REPAIR, ledger=self._options
                ),
            )
            if self._settings.second_rack:
                config = msgspec.structs.replace(config, rack=self._rack(name))
            if self._settings.leaving:
                config = msgspec.structs.replace(
                    config,
                    gc_interval_seconds=0.3,
                    gc_second_look_seconds=0.5,
                    trash_grace_seconds=1_000.0,
                )
            if self._settings.returning:
                config = msgspec.structs.replace(
                    config,
                    auto_recovery=_SLOW,
                    checkpoint_interval_seconds=0.3,
                    gc_interval_seconds=0.3,
                    gc_second_look_seconds=0.4,
                    trash_grace_seconds=0.2,
                )
            if self._settings.rotten:
                config = msgspec.structs.replace(config, local_scrub_interval_seconds=2.0)
            bookie = Bookie(world, config)
            self._lives[name] = self.sim.nodes[name].incarnation, bookie
            await bookie.run()

        return main

    def bookies_up(self) -> Iterator[tuple[str, Bookie]]:
        """Yield the bookies that serve."""
        for name, (incarnation, bookie) in self._lives.items():
            node = self.sim.nodes[name]
            if node.alive and node.incarnation == incarnation and bookie.is_ready:
                yield name, bookie

    def _rack(self, bookie: str) -> str:
        """Return the rack of a bookie, or of an instance of one."""
        return f"rack{int(bookie[len('bookie')]) >= self._settings.second_rack}"

    # -- the load

    async def _write(self, world: World) -> None:
        self._client = client = LedgerClient(world, self._options)
        await client.start()
        rng, settings = self.sim.workload, self._settings
        for number in range(settings.closed_ledgers + settings.open_ledgers):
            history = LedgerHistory(-1)
            ensemble_size, write_quorum, ack_quorum = rng.choice(list(settings.quorums))
            writer = await client.create(
                ensemble_size=ensemble_size,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                purpose=_PURPOSE,
                listener=history,
            )
            history.ledger_id = writer.ledger_id
            self._histories.append(history)
            self._append(writer, history, rng.randrange(1, settings.entries))
            if number < settings.closed_ledgers:
                history.closed(await writer.close())
            else:
                self._writers.append((history, writer))

    async def _write_on(self, world: World) -> None:
        """Run the writers that stay alive.

        Too few bookies may end one; a recovery of its ledger must not.
        """
        while not self._over:
            for history, writer in self._writers:
                assert not isinstance(history.stopped_by, LedgerFenced), (
                    f"ledger {history.ledger_id} was recovered, and its writer lives: "
                    f"{history.stopped_by}"
                )
                if history.stopped_by is None and writer.has_room:
                    self._append(writer, history, 1)
            await world.clock.sleep(_PAUSE_SECONDS)

    def _append(self, writer: LedgerWriter, history: LedgerHistory, count: int) -> None:
        for _ in range(count):
            payload = b"%d:%d" % (
                history.ledger_id,
                len(history.payloads),
            ) + b"." * self.sim.workload.choice((0, 50, 300))
            writer.append(payload)
            history.payloads.append(payload)

    # -- losing a machine, and repair

    async def _lose(self, name: str) -> None:
        sim, node = self.sim, self.sim.nodes[name]
        lost = self._lives[name][1].instance_id
        node.crash()
        node.disk.wipe()
        sim.at(sim.faults.uniform(0.1, 3.0), node.revive)
        if self._settings.writer_pause_seconds:
            writer = sim.nodes["writer"]
            writer.pause()
            sim.at(self._settings.writer_pause_seconds, writer.resume)
        self._mending = True
        sim.at(_FAULTS_SECONDS, self._heal)
        self._crash_soon([other for other in self._names if other != name])
        await asyncio.sleep(_FAULTS_SECONDS + 1.0)
        missing: list[str] = []
        for _ in range(_LOOKS_MAX):
            missing = self._missing(lost)
            if not missing and len(list(self.bookies_up())) == len(self._names):
                break
            await asyncio.sleep(_LOOK_SECONDS)
        assert not missing, (
            f"{lost} is gone, all else is well, and copies are still missing: "
            f"{'; '.join(missing[:3])}"
        )
        await self._count_copies()
        self._check_placement()

    async def _rebalance(self, late: Sequence[str]) -> None:
        """Start bookies, and have copies move to them as an operator does."""
        sim, path = self.sim, paths.rebalance()
        for name in late:
            sim.node(name, self._bookie(name)).restart_after_seconds = 1.0
        await asyncio.sleep(_BOOT_SECONDS)
        await sim.node("operator").run(_ask_to_rebalance)
        self._mending = True
        sim.at(_FAULTS_SECONDS, self._heal)
        self._crash_soon(self._names)
        record = RebalanceRecord()
        for _ in range(_LOOKS_MAX):
            await asyncio.sleep(_LOOK_SECONDS)
            node = sim.metadata.tree.get(path)
            assert node is not None
            record = decode_record(node.data, RebalanceRecord, path)
            if (
                record.ended_ms
                and not self._mending
                and len(list(self.bookies_up())) == len(self._names)
            ):
                break
        assert record.ended_ms, f"all is well, and the rebalance does not end: {record}"
        await self._count_copies()

    async def _leave(self, name: str) -> None:
        """Have a bookie leave all closed ledgers as an operator does, and destroy it."""
        sim, member = self.sim, self._lives[name][1].instance_id
        operator = sim.node(f"operator-{name}")
        await operator.run(partial(self._set_aside, name, member))
        await self._count_copies()
        await operator.run(partial(self._request, member))
        self._mending = True
        sim.at(_FAULTS_SECONDS, self._heal)
        self._crash_soon(self._names)
        left: list[int] = []
        for _ in range(_LOOKS_MAX):
            await asyncio.sleep(_LOOK_SECONDS)
            left = [
                record.ledger_id
                for record in self._records()
                if record.state is LedgerState.CLOSED
                and any(member in segment.members for segment in record.segments)
            ]
            if not left and not self._mending:
                break
        assert not left, f"{member} is to leave, all is well, and ledgers {left} still name it"
        await self._lose(name)

    async def _return(self, name: str) -> None:
        """Stop a bookie for longer than the grace time."""
        sim, node = self.sim, self.sim.nodes[name]
        node.crash()
        sim.at(sim.faults.uniform(4.0, 15.0), node.revive)
        self._mending = True
        sim.at(_FAULTS_SECONDS, self._heal)
        self._crash_soon([other for other in self._names if other != name])
        await asyncio.sleep(_FAULTS_SECONDS + 1.0)
        await self._until_tidy()
        tree = sim.metadata.tree
        closed = [record for record in self._records() if record.state is LedgerState.CLOSED]
        path = paths.ledger(sim.faults.choice(closed).ledger_id)
        before = tree.get(path)
        assert before is not None
        data = before.data
        operator = sim.node(f"operator-{name}")
        await operator.run(partial(_write_node, path, data[1:]))
        await asyncio.sleep(_HIDDEN_SECONDS)
        await operator.run(partial(_write_node, path, data))
        await self._until_tidy()

    async def _until_tidy(self) -> None:
        """Wait until all copies that the metadata name are there, and no others."""
        left: list[str] = []
        for _ in range(_LOOKS_MAX):
            await asyncio.sleep(_LOOK_SECONDS)
            left = [
                f"ledger {record.ledger_id} is published as under-replicated"
                for record in self._records()
                if record.state is LedgerState.CLOSED
                and self.sim.metadata.tree.get(paths.underreplicated(record.ledger_id)) is not None
            ]
            bookies = list(self.bookies_up())
            if len(bookies) < len(self._names):
                left.append("a bookie is down")
            for name, bookie in bookies:
                left += await self.sim.nodes[name].run(partial(_strays, bookie, self._records()))
            if not left:
                break
        assert not left, f"a bookie came back, and all else is well: {'; '.join(left[:3])}"
        await self._count_copies()

    async def _set_aside(self, name: str, member: str, world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        path = paths.read_only_bookie(member)
        await records.make_parents(path)
        _ = await records.update(
            path, ReadOnlyBookie, lambda found: found or ReadOnlyBookie(name, member)
        )
        closed = [record for record in self._records() if record.state is LedgerState.CLOSED]
        hidden = paths.ledger(self.sim.faults.choice(closed).ledger_id)
        (node,) = await records.nodes([hidden])
        assert node is not None
        await world.clock.sleep(1.0)  # the bookie has followed
        await records.commit([Op("delete", hidden)])
        await world.clock.sleep(_HIDDEN_SECONDS)
        await records.commit([Op("create", hidden, node.data)])
        await world.clock.sleep(_HIDDEN_SECONDS)  # it is out of the trash

    async def _request(self, member: str, world: World) -> None:
        client = LedgerClient(world, self._options)
        await client.start()
        for record in self._records():
            if record.state is LedgerState.CLOSED and any(
                member in segment.members for segment in record.segments
            ):
                await client.publish_leaving(record.ledger_id, member)

    async def _lose_entries(self) -> None:
        """Let one member of each closed ledger lose one entry, neither the first nor the last.

        Then wait until all copies are back.
        """
        bookies = {bookie.instance_id: (name, bookie) for name, bookie in self.bookies_up()}
        for record in self._records():
            if record.state is LedgerState.CLOSED and record.last_entry > 1:
                entry_id = self.sim.faults.randrange(1, record.last_entry)
                name, bookie = bookies[self.sim.faults.choice(record.write_set(entry_id))]
                await self.sim.nodes[name].run(
                    partial(_forget, bookie, entry_key(record.ledger_id, entry_id))
                )
        await self._until_copied()

    async def _spoil_entries(self) -> None:
        """Let a bit flip in one entry of each closed ledger, at a member that has it cached.

        Then wait until all copies are whole again.
        """
        spoilt = 0
        for record in self._records():
            if record.state is LedgerState.CLOSED and record.last_entry >= 0:
                entry_id = self.sim.faults.randrange(record.last_entry + 1)
                for name, bookie in self.bookies_up():
                    if bookie.instance_id in record.write_set(entry_id) and await self.sim.nodes[
                        name
                    ].run(partial(_spoil, bookie, self.sim, name, record.ledger_id, entry_id)):
                        spoilt += 1
                        break
        assert spoilt, "no bookie has cached an entry for its readers"
        await self._until_copied()

    async def _until_copied(self) -> None:
        problems: list[str] = []
        for _ in range(_LOOKS_MAX):
            await asyncio.sleep(_LOOK_SECONDS)
            problems = await self._missing_copies()
            if not problems:
                return
        raise AssertionError("; ".join(problems[:3]))

    async def _lose_writer(self, name: str) -> None:
        """Kill a writer that alone knows that a member is behind.

        The client that recovers its ledgers learns it from that member.
        """
        sim, left = self.sim, list[tuple[LedgerHistory, str]]()
        node = sim.node(name)

        async def write(world: World) -> None:
            client = LedgerClient(world, self._options)
            await client.start()
            for _ in range(_DYING_LEDGERS):
                left.append(await self._leave_behind(name, world, client))

        await node.run(write)
        node.crash()
        sim.network.heal_all()
        successor = f"{name}-successor"
        await sim.node(successor).run(partial(self._recover, successor, left))
        problems: list[str] = []
        for _ in range(_LOOKS_MAX):
            await asyncio.sleep(_LOOK_SECONDS)
            problems.clear()
            await look_at_disks(
                self, self._records(), (), lambda kind, what: problems.append(f"{kind}: {what}")
            )
            if not problems:
                break
        assert not problems, (
            "a writer died, all else is well, and copies are still missing: "
            f"{'; '.join(problems[:3])}"
        )

    async def _leave_behind(
        self, name: str, world: World, client: LedgerClient
    ) -> tuple[LedgerHistory, str]:
        """Write to a ledger while one member gets less than the others, for less time than a bookie
        has to answer.

        Return the name of that bookie, too.
        """
        rng, history = self.sim.workload, LedgerHistory(-1)
        ensemble_size, write_quorum, ack_quorum = rng.choice(list(self._settings.quorums))
        writer = await client.create(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            purpose=_PURPOSE,
            listener=history,
        )
        history.ledger_id = writer.ledger_id
        self._histories.append(history)
        self._append(writer, history, rng.randrange(1, self._settings.entries))
        await world.clock.sleep(_PAUSE_SECONDS)
        late = rng.choice(writer.metadata.last_segment.members).partition("~")[0]
        self.sim.network.cut(name, late)
        for _ in range(rng.randrange(1, 5)):
            self._append(writer, history, rng.randrange(1, self._settings.entries))
            await world.clock.sleep(0.02)
        return history, late

    async def _recover(
        self, name: str, left: Sequence[tuple[LedgerHistory, str]], world: World
    ) -> None:
        client = LedgerClient(world, self._options)
        await client.start()
        for history, late in left:
            if self._settings.late_is_silent:
                self.sim.network.cut(name, late)
            history.closed((await client.open(history.ledger_id)).metadata)
            if self._settings.late_is_silent:
                await world.clock.sleep(_SILENT_SECONDS)  # it is known to be silent
                self.sim.network.heal_all()

    def _heal(self) -> None:
        self._mending = False

    def _crash_soon(self, names: Sequence[str]) -> None:
        if not self._settings.crash_seconds:
            return
        faults = self.sim.faults

        def crash() -> None:
            if self._mending:
                node = self.sim.nodes[faults.choice(list(names))]
                node.crash()
                self.sim.at(faults.uniform(0.05, 0.6), node.revive)
                self._crash_soon(names)

        self.sim.at(faults.expovariate(1 / self._settings.crash_seconds), crash)

    def _records(self) -> list[LedgerMetadata]:
        """Return the records of the metadata service, changed for the count of copies.

        The last entry of an open ledger is what its writer has confirmed. Of a closed ledger every
        copy counts, so its ack quorum is set to the write quorum.
        """
        tree, found = self.sim.metadata.tree, []
        for history in self._histories:
            node = tree.get(paths.ledger(history.ledger_id))
            assert node is not None, f"the record of ledger {history.ledger_id} is gone"
            record = decode_record(node.data, LedgerMetadata, paths.ledger(history.ledger_id))
            if record.state is LedgerState.CLOSED:
                record = msgspec.structs.replace(record, ack_quorum=record.write_quorum)
            else:
                record = msgspec.structs.replace(record, last_entry=history.last_confirmed)
            found.append(record)
        return found

    def _missing(self, lost: str) -> list[str]:
        """Return the repairs that are still to be done, according to the metadata."""
        tree = self.sim.metadata.tree
        missing: list[str] = []
        for record in self._records():
            # Copies that are missing at the end of an open ledger are repaired once it is closed.
            if (
                record.state is LedgerState.CLOSED
                and tree.get(paths.underreplicated(record.ledger_id)) is not None
            ):
                missing.append(f"ledger {record.ledger_id} is published as under-replicated")
            elif any(lost in segment.members for segment in record.segments):
                missing.append(f"ledger {record.ledger_id} names {lost}")
        return missing

    def _check_placement(self) -> None:
        rules = PlacementRules.of(self._options)
        for record in self._records():
            for segment in record.segments:
                places = [
                    Candidate(member, member, self._rack(member)) for member in segment.members
                ]
                broken = violations(places, record.write_quorum, rules)
                assert not broken, f"ledger {record.ledger_id} breaks a rule: {broken[0]}"

    async def _count_copies(self) -> None:
        problems = await self._missing_copies()
        assert not problems, "; ".join(problems[:3])

    async def _missing_copies(self) -> list[str]:
        problems: list[str] = []
        await look_at_disks(
            self, self._records(), (), lambda name, what: problems.append(f"{name}: {what}")
        )
        return problems

    # -- the end

    async def _read_everything(self, world: World) -> None:
        client = LedgerClient(world, self._options)
        await client.start()
        async with asyncio.timeout(_FINAL_SECONDS):
            for history in self._histories:
                while not await self._was_read(client, history):
                    await world.clock.sleep(_LOOK_SECONDS)

    async def _was_read(self, client: LedgerClient, history: LedgerHistory) -> bool:
        try:
            reader = await client.open(history.ledger_id)
            history.closed(reader.metadata)
            entry_id = 0
            while entry_id <= reader.last_add_confirmed:
                for entry in await reader.read(
                    entry_id, reader.last_add_confirmed, max_bytes=4_096
                ):
                    history.read(entry.entry_id, bytes(entry.payload))
                    entry_id = entry.entry_id + 1
        except PulsarishError as error:
            self.sim.trace(f"cannot read: {error}")
            return False
        return True


async def _ask_to_rebalance(world: World) -> None:
    records = Records(world.metadata, world.clock, world.random)
    await records.make_parents(paths.rebalance())
    request = RebalanceRecord(number=1, rate_bytes=20_000, tolerance_percent=5)
    _ = await records.update(paths.rebalance(), RebalanceRecord, lambda _found: request)


async def _spoil(
    bookie: Bookie, sim: Simulation, name: str, ledger_id: int, entry_id: int, _world: World
) -> bool:
    """Flip a bit of an entry in its log, if a read of it is answered from the cache."""
    store = bookie.store
    (place,) = await store.index.locations([entry_key(ledger_id, entry_id)])
    if place is None or store.read_cache.get(place) is None:
        return False
    sim.nodes[name].disk.flip_bit(store.logs.path(place[0]), place[1] + RECORD_HEAD_SIZE - 1)
    return True


async def _strays(bookie: Bookie, records: Sequence[LedgerMetadata], _world: World) -> list[str]:
    """Return the ledgers of which a bookie has copies for which the record names others."""
    return [
        f"{bookie.instance_id} holds entries {found} of ledger {record.ledger_id}"
        for record in records
        for first, last in unnamed_spans(record, bookie.instance_id)
        if (found := await bookie.store.index.entry_ids(record.ledger_id, first, last))
    ]


async def _write_node(path: str, data: bytes, world: World) -> None:
    await Records(world.metadata, world.clock, world.random).commit([Op("put", path, data)])


async def _forget(bookie: Bookie, key: bytes, _world: World) -> None:
    """Remove an entry's row from the index, once it is there."""
    for _ in range(2):  # the first may end a flush that was running
        await bookie.store.checkpoint()
    await bookie.store.index.rows.write([], [key], sync=True)


def run_repair(seed: int, settings: RepairSettings | None = None) -> int:
    """Run one seed.

    Return the number of confirmed entries. Raises ``AssertionError`` when a promise was broken.
    """
    sim = Simulation(seed)
    workload = _Workload(sim, settings or RepairSettings())
    sim.run(workload.run, max_virtual_seconds=600)
    return sum(history.last_confirmed + 1 for history in workload._histories)
