"""Lost copies are created again: what happens when a bookie dies for good, loses entries, or comes
back too late, one story each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from pulsarish.autorecovery.absent_bookies import AbsentBookies
from pulsarish.autorecovery.autorecovery import AutoRecovery
from pulsarish.autorecovery.backlog import Backlog
from pulsarish.autorecovery.options import AutoRecoveryOptions
from pulsarish.autorecovery.worker import ReplicationWorker
from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.ledger_index import LedgerIndex, entry_key
from pulsarish.ledger.bookie_control import BookieControl, NoAnswer
from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.read_stream import ReadStream
from pulsarish.ledger.repair.copy_probe import MissingCopies
from pulsarish.ledger.repair.repair import LedgerRepair
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.metadata import paths
from pulsarish.metadata.election import Election
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie, GivenUpBookie, UnderReplicated
from pulsarish.model.errors import BookieIOError
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.runtime.seams import Op, World
from pulsarish.sim.workloads.ledgers import bookie_config
from pulsarish.sim.workloads.safeguard import replaced
from pulsarish.sim.world.world import Simulation
from tests.simulation.test_ledger_scripts import OPTIONS, Client, Cluster, entries, play

RECOVERY = AutoRecoveryOptions(
    lost_bookie_recovery_delay_seconds=3.0,
    auditor_check_interval_seconds=0.2,
    open_ledger_rereplication_grace_period_seconds=2.0,
    rw_rereplicate_backoff_ms=300,
    rw_rereplicate_backoff_max_ms=2_000,
    replication_batch_bytes=1_024,
    ledger=OPTIONS,
)


class Repaired(Cluster):
    """Bookies that host auditors and workers."""

    def __init__(
        self, sim: Simulation, bookies: int, settings: dict[str, Any] | None = None, **options: Any
    ) -> None:
        self.options = msgspec.structs.replace(RECOVERY, **options)
        self.settings = settings or {}
        super().__init__(sim, bookies)

    def _main(self, name: str) -> Callable[[World], Coroutine[Any, Any, None]]:
        config = msgspec.structs.replace(
            bookie_config(name),
            auto_recovery_daemon_enabled=True,
            auto_recovery=self.options,
            **self.settings,
        )

        async def main(world: World) -> None:
            self.running[name] = bookie = Bookie(world, config)
            await bookie.run()

        return main

    def name_of(self, member: str) -> str:
        return member.partition("~")[0]

    def lose(self, member: str) -> None:
        """For good: the machine is gone."""
        node = self.sim.nodes[self.name_of(member)]
        node.restart_after_seconds = None
        node.crash()

    def recoveries(self) -> list[AutoRecovery]:
        return [
            bookie.auto_recovery
            for name, bookie in self.running.items()
            if self.sim.nodes[name].alive and bookie.auto_recovery
        ]


async def written(client: Client, *quorums: int, count: int = 30) -> LedgerWriter:
    writer, _ = await client.create(*quorums)
    await client.append(writer, entries(count))
    await client.do(writer.close())
    return writer


async def lacking(client: Client) -> list[str]:
    records = Records(client.world.metadata, client.world.clock, client.world.random)
    return await client.do(records.children(paths.UNDERREPLICATED))


async def why(client: Client, ledger_id: int) -> str:
    records = Records(client.world.metadata, client.world.clock, client.world.random)
    found = await client.do(records.get(paths.underreplicated(ledger_id), UnderReplicated))
    return found[0].reason if found else ""


async def metadata(client: Client, ledger_id: int) -> LedgerMetadata:
    found = await client.do(client.ledgers.metadata(ledger_id))
    assert isinstance(found, LedgerMetadata)
    return found


async def until_mended(client: Client, seconds: float = 30.0) -> None:
    """Wait until something was found lacking, and nothing is any more."""
    for _ in range(int(seconds * 5)):
        if await lacking(client):
            break
        await client.do(client.world.clock.sleep(0.2))
    for _ in range(int(seconds * 5)):
        left = await lacking(client)
        if not left:
            return
        await client.do(client.world.clock.sleep(0.2))
    raise AssertionError(f"still lacking: {left}")


async def read_all(client: Client, ledger_id: int) -> list[bytes]:
    reader = await client.do(client.ledgers.open(ledger_id))
    found: list[bytes] = []
    while len(found) <= reader.last_add_confirmed:
        found += [
            bytes(entry.payload)
            for entry in await client.do(
                reader.read(len(found), reader.last_add_confirmed, max_bytes=1 << 20)
            )
        ]
    return found


def test_a_bookie_waits_with_its_registration_while_the_ids_of_ledgers_cannot_be_read() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3)
        client = await cluster.client()
        _ = await written(client, 3, 3, 2)
        records = Records(client.world.metadata, client.world.clock, client.world.random)
        found = await client.do(records.nodes([paths.LEDGER_IDS]))
        await client.do(records.commit([Op("put", paths.LEDGER_IDS, b"{", -1)]))
        node = sim.nodes[min(cluster.running)]
        life, before = node.incarnation, node.session_id
        sim.metadata.expire(before)
        await client.do(client.world.clock.sleep(20.0))
        names = await client.do(records.children(paths.BOOKIES))
        assert (len(names), node.incarnation) == (2, life)
        await client.do(records.commit([Op("put", paths.LEDGER_IDS, found[0].data, -1)]))
        while len(names) < 3:
            await client.do(client.world.clock.sleep(0.2))
            names = await client.do(records.children(paths.BOOKIES))
        assert node.incarnation == life

    play(scenario)


def test_only_what_a_lost_bookie_held_of_a_striped_ledger_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    ask = ReadStream.ask

    def counted(self: ReadStream, ledger_id: int, spans: Any, *rest: Any, **named: Any) -> Any:
        asked.append(sum(last - first + 1 for first, last in spans))
        return ask(self, ledger_id, spans, *rest, **named)

    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 6)
        client = await cluster.client()
        writer = await written(client, 5, 3, 2, count=500)
        monkeypatch.setattr(ReadStream, "ask", counted)
        cluster.lose(writer.metadata.last_segment.members[1])
        await until_mended(client)
        copied = [each.worker.repair.copied for each in cluster.recoveries()]
        assert sum(each.entries for each in copied) == 300
        assert sum(each.read_bytes for each in copied) == sum(each.bytes for each in copied)
        assert sum(asked) < 2 * 300, "far more entries were asked for than fit into the answers"
        assert await read_all(client, writer.ledger_id) == entries(500)

    play(scenario)


class Defect(Exception):
    """What nobody has thought of."""


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (Backlog, "published"),
        (ReplicationWorker, "_begin"),
        (AbsentBookies, "observe"),
        (AbsentBookies, "give_up"),
        (Election, "_take"),
        (BookiePool, "_forget"),
    ],
)
def test_auto_recovery_that_fails_does_not_end_its_bookie_and_goes_on(
    kind: type, method: str
) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 5)
        client = await cluster.client()
        writer = await written(client, 3, 3, 2)
        gone = writer.metadata.last_segment.members[0]
        failed: list[object] = []

        def fail_once(was: Any) -> object:
            def call(this: object, *arguments: Any) -> Any:
                if this is not client.ledgers._pool and this not in failed:
                    failed.append(this)
                    raise Defect
                return was(this, *arguments)

            return call

        for node in sim.nodes.values():
            node.expect(Defect)
        lives = {name: node.incarnation for name, node in sim.nodes.items()}
        with replaced(kind, method, fail_once):
            cluster.lose(gone)
            for recovery in cluster.recoveries():
                recovery._given_up_changed.set()
                recovery.election._changed.set()
            await until_mended(client, 60.0)
        assert failed
        assert {name: node.incarnation for name, node in sim.nodes.items()} == lives
        assert await read_all(client, writer.ledger_id) == entries(30)

    play(scenario)


def test_a_bookie_starts_whatever_the_start_of_its_auto_recovery_meets() -> None:
    async def scenario(sim: Simulation) -> None:
        failed: list[object] = []

        def fail_once(was: Any) -> object:
            async def call(this: object, *arguments: Any) -> Any:
                if this not in failed:
                    failed.append(this)
                    raise Defect
                return await was(this, *arguments)

            return call

        cluster = Repaired(sim, 5)
        for node in cluster.bookies:
            node.expect(Defect)
        with replaced(BookieControl, "tree_seen", fail_once):
            await asyncio.sleep(2.0)
        assert len(failed) == 5
        client = await cluster.client()
        writer = await written(client, 3, 3, 2)
        cluster.lose(writer.metadata.last_segment.members[0])
        await until_mended(client, 60.0)
        assert [node.incarnation for node in cluster.bookies] == [1] * 5

    play(scenario)


def test_nodes_that_anybody_made_in_the_metadata_stop_neither_bookies_nor_auto_recovery() -> None:
    deep = b'{"unknown":' + 100_000 * b"["
    foreign = {
        f"{paths.UNDERREPLICATED}/not-a-ledger": b"",
        f"{paths.UNDERREPLICATED}/L{10**18 * 9 + 10**18}": b"",
        f"{paths.LEDGERS}/00/0000/not-a-ledger": b"",
        f"{paths.LEDGERS}/00/not-a-branch": b"",
        f"{paths.BOOKIES}/deep": deep,
        f"{paths.given_up_bookies()}/deep": deep,
    }

    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 5)
        client = await cluster.client()
        writer = await written(client, 3, 3, 2)
        records = Records(client.world.metadata, client.world.clock, client.world.random)
        for path, data in foreign.items():
            await client.do(records.make_parents(path))
            await client.do(records.commit([Op("create", path, data)]))
        lives = {name: node.incarnation for name, node in sim.nodes.items()}
        await client.do(client.world.clock.sleep(3.0))
        assert {name: node.incarnation for name, node in sim.nodes.items()} == lives
        await client.do(records.commit([Op("delete", f"{paths.given_up_bookies()}/deep")]))
        gone = writer.metadata.last_segment.members[0]
        cluster.lose(gone)
        while gone in (await metadata(client, writer.ledger_id)).last_segment.members:
            await client.do(client.world.clock.sleep(0.2))
        assert await read_all(client, writer.ledger_id) == entries(30)

    play(scenario)


@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2), (2, 2, 2), (4, 3, 2)])
def test_a_bookie_that_is_gone_for_good_is_replaced_and_another_may_go(
    quorums: tuple[int, int, int],
) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 6)
        client = await cluster.client()
        writers = [await written(client, *quorums) for _ in range(4)]
        first = writers[0].metadata.last_segment.members[0]
        cluster.lose(first)
        await until_mended(client)
        for writer in writers:
            members = (await metadata(client, writer.ledger_id)).last_segment.members
            assert first not in members
            assert len(set(members)) == quorums[0]
        # Qw - 1 of the old members may go now, one after the other: what was copied is all there is
        # of some entries.
        second = (await metadata(client, writers[0].ledger_id)).last_segment.members[1]
        cluster.lose(second)
        await until_mended(client)
        for writer in writers:
            assert await read_all(client, writer.ledger_id) == entries(30)
            assert second not in (await metadata(client, writer.ledger_id)).last_segment.members

    play(scenario)


def test_copies_are_whole_by_themselves() -> None:
    """After the mending everything is read from the new member alone."""

    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4)
        client = await cluster.client()
        writer = await written(client)
        old = writer.metadata.last_segment.members
        cluster.lose(old[0])
        await until_mended(client)
        members = (await metadata(client, writer.ledger_id)).last_segment.members
        (new,) = [member for member in members if member not in old]
        for member in old[1:]:
            cluster.lose(member)
        assert await read_all(client, writer.ledger_id) == entries(30)
        assert new in members

    play(scenario)


def test_nothing_is_copied_for_a_bookie_that_comes_back_in_time() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4)
        client = await cluster.client()
        writer = await written(client)
        member = writer.metadata.last_segment.members[0]
        node = sim.nodes[cluster.name_of(member)]
        for _ in range(4):
            node.crash()
            await client.do(client.world.clock.sleep(2.0))
            node.revive()
            await client.do(client.world.clock.sleep(2.0))
        assert (
            await metadata(client, writer.ledger_id)
        ).last_segment.members == writer.metadata.last_segment.members
        assert sum(recovery.worker.repair.copied.entries for recovery in cluster.recoveries()) == 0

    play(scenario)


def test_when_too_many_are_gone_an_operator_decides() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 5)
        client = await cluster.client()
        writer = await written(client)
        members = writer.metadata.last_segment.members
        others = [
            node.name
            for node in cluster.bookies
            if node.name not in [cluster.name_of(member) for member in members]
        ]
        for name in (cluster.name_of(members[0]), *others):
            cluster.lose(name)
        await client.do(client.world.clock.sleep(20.0))
        assert not await lacking(client)
        active = [recovery for recovery in cluster.recoveries() if recovery.auditor.is_active]
        assert len(active) == 1
        assert len(active[0].auditor.stalled_by) == 3
        assert members[0] in active[0].unwell_reason()

    play(scenario)


def test_workers_that_have_just_started_know_that_too_many_are_gone() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 7)
        client = await cluster.client()
        writer = await written(client)
        gone, *left = writer.metadata.last_segment.members
        others = [
            node.name
            for node in cluster.bookies
            if node.name not in [cluster.name_of(member) for member in (gone, *left)]
        ]
        for name in (cluster.name_of(gone), *others[:3]):
            cluster.lose(name)
        await client.do(client.world.clock.sleep(15.0))
        for name in (*map(cluster.name_of, left), others[3]):
            sim.nodes[name].crash()
            sim.nodes[name].revive()
        await client.do(client.ledgers.publish_found(writer.ledger_id, [gone], below_policy=False))
        await client.do(client.world.clock.sleep(30.0))
        assert gone in (await metadata(client, writer.ledger_id)).last_segment.members

    play(scenario)


def test_a_bookie_that_is_decommissioned_is_missed_nowhere_any_more() -> None:
    """Else those that were replaced over the years would make too many that are gone."""

    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 5)
        client = await cluster.client()
        gone = (await written(client)).metadata.last_segment.members[0]
        cluster.lose(gone)
        records = Records(client.world.metadata, client.world.clock, client.world.random)

        async def give_up() -> None:
            await records.update(
                paths.given_up(gone),
                GivenUpBookie,
                lambda _found: GivenUpBookie(cluster.name_of(gone), gone, 1),
            )

        await client.do(give_up())
        await until_mended(client)
        while await client.do(records.get(paths.cookie(cluster.name_of(gone)), Cookie)) is not None:
            await client.do(client.world.clock.sleep(1.0))
        await client.do(client.world.clock.sleep(20.0))
        for recovery in cluster.recoveries():
            assert recovery._absences.gone(1e9) == []

    play(scenario)


@pytest.mark.parametrize("leaves_again", [False, True])
def test_a_bookie_that_was_given_up_and_comes_back_keeps_its_cookie_for_what_it_takes_then(
    leaves_again: bool,
) -> None:
    """It comes while all ledgers are looked through for its name, and a ledger is made on it that
    this look has passed.
    """

    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4, auditor_page_ledgers=1, auditor_ledgers_per_second=0.5)
        client = await cluster.client()
        writers = [await written(client) for _ in range(4)]
        gone = writers[0].metadata.last_segment.members[0]
        cluster.lose(gone)
        records = Records(client.world.metadata, client.world.clock, client.world.random)

        async def give_up() -> None:
            await records.update(
                paths.given_up(gone),
                GivenUpBookie,
                lambda _found: GivenUpBookie(cluster.name_of(gone), gone, 1),
            )

        await client.do(give_up())
        for writer in writers:
            while gone in (await metadata(client, writer.ledger_id)).last_segment.members:
                await client.do(client.world.clock.sleep(1.0))
        (auditor,) = [
            recovery.auditor for recovery in cluster.recoveries() if recovery.auditor.is_active
        ]
        walks = auditor.counts.walks
        while auditor.counts.walks == walks:
            await client.do(client.world.clock.sleep(0.1))
        checked = auditor.counts.ledgers_checked
        while auditor.counts.ledgers_checked == checked:
            await client.do(client.world.clock.sleep(0.1))
        assert auditor.counts.walks == walks + 1, (
            "the look that finds that none names it is under way"
        )
        node = sim.nodes[cluster.name_of(gone)]
        node.start()
        await client.do(client.world.clock.sleep(1.5))
        writer = await written(client, 4, 4, 2)
        assert gone in writer.metadata.last_segment.members
        if leaves_again:
            node.crash()
        while auditor.counts.walks == walks + 1:
            await client.do(client.world.clock.sleep(0.1))
        assert await client.do(records.get(paths.cookie(cluster.name_of(gone)), Cookie)) is not None

    play(scenario)


def test_an_auditor_that_wakes_after_its_successor_began_does_no_harm() -> None:
    """For a moment two of them believe that they are the one: locks and versions decide, not the
    belief.
    """

    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 7)
        client = await cluster.client()
        writers = [await written(client) for _ in range(6)]
        await client.do(client.world.clock.sleep(2.0))

        def active() -> list[str]:
            hosts = cluster.running.items()
            return [
                name
                for name, bookie in hosts
                if sim.nodes[name].alive
                and bookie.auto_recovery
                and bookie.auto_recovery.auditor.is_active
            ]

        (first,) = active()
        lost = next(
            member
            for member in writers[0].metadata.last_segment.members
            if cluster.name_of(member) != first
        )
        cluster.lose(lost)
        await client.do(client.world.clock.sleep(RECOVERY.lost_bookie_recovery_delay_seconds - 0.5))
        sim.nodes[first].pause()
        await until_mended(client)
        assert len(active()) == 2, "the paused one does not know yet"
        sim.nodes[first].resume()
        await client.do(client.world.clock.sleep(15.0))
        assert len(active()) == 1
        assert not await lacking(client)
        for writer in writers:
            members = (await metadata(client, writer.ledger_id)).last_segment.members
            assert lost not in members
            assert len(set(members)) == 3
            assert await read_all(client, writer.ledger_id) == entries(30)

    play(scenario)


def test_an_open_ledger_is_left_to_its_writer_and_else_recovered() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4)
        client = await cluster.client()
        writer, listener = await client.create()
        await client.append(writer, entries(10))
        idle, heard = await client.create()
        await client.append(idle, entries(10))
        both = [
            member
            for member in writer.metadata.last_segment.members
            if member in idle.metadata.last_segment.members
        ]
        cluster.lose(both[0])
        for number in range(10):
            await client.append(writer, [b"later %d" % number])
            await client.do(client.world.clock.sleep(1.0))
        await until_mended(client)
        # The one that is written has changed its ensemble by itself; its first segment was repaired
        # under it, and it never noticed.
        assert listener.error is None
        now = await metadata(client, writer.ledger_id)
        assert now.state is LedgerState.OPEN
        assert all(both[0] not in segment.members for segment in now.segments)
        await client.append(writer, [b"and on"])
        await client.do(writer.close())
        assert await read_all(client, writer.ledger_id) == [
            *entries(10),
            *(b"later %d" % number for number in range(10)),
            b"and on",
        ]
        # The idle one was recovered and repaired; its writer hears of it with the next append (rule
        # 4).
        assert (await metadata(client, idle.ledger_id)).state is LedgerState.CLOSED
        assert both[0] not in (await metadata(client, idle.ledger_id)).last_segment.members
        assert await read_all(client, idle.ledger_id) == entries(10)
        idle.append(b"too late")
        await client.do(client.world.clock.sleep(1.0))
        assert type(heard.error).__name__ == "LedgerFenced"

    play(scenario)


def test_without_a_bookie_to_copy_to_the_reason_is_there_and_it_goes_on_when_one_appears() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3)
        client = await cluster.client()
        writer = await written(client)
        lost = writer.metadata.last_segment.members[2]
        cluster.lose(lost)
        await client.do(client.world.clock.sleep(15.0))
        assert await lacking(client)
        assert "no other writable bookie" in await why(client, writer.ledger_id)
        sim.node("b9", cluster._main("b9"))
        await until_mended(client)
        assert lost not in (await metadata(client, writer.ledger_id)).last_segment.members
        assert await read_all(client, writer.ledger_id) == entries(30)

    play(scenario)


def test_a_ledger_made_with_too_few_copies_gets_the_others() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 2)
        client = await cluster.client()
        writer = await written(client)
        assert writer.metadata.write_quorum == 2
        sim.node("b9", cluster._main("b9"))
        await until_mended(client)
        now = await metadata(client, writer.ledger_id)
        assert (now.ensemble_size, now.write_quorum, now.below_policy) == (3, 3, False)
        for member in writer.metadata.last_segment.members:
            cluster.lose(member)
        assert await read_all(client, writer.ledger_id) == entries(30)

    play(scenario)


@pytest.mark.parametrize("place", ["copied", "swung", "locked", "before the record is deleted"])
def test_a_worker_that_dies_at_any_step_loses_nothing_and_another_goes_on(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker that comes to the place dies there, with its bookie; whoever is next
    finishes the work.
    """
    died: list[str] = []
    cluster: Repaired | None = None

    def die_once(owner: type, name: str, *, after: bool) -> None:
        real = getattr(owner, name)

        async def dying(self: Any, *arguments: Any, **named: Any) -> Any:
            if after:
                done = await real(self, *arguments, **named)
            if not died:
                assert cluster is not None
                world = (self._pool if owner is LedgerRepair else self)._world
                node = next(node for node in cluster.bookies if node.world is world)
                died.append(node.name)
                node.crash()
                await world.clock.sleep(1.0)  # nothing of it runs any more
            return done if after else await real(self, *arguments, **named)

        monkeypatch.setattr(owner, name, dying)

    async def scenario(sim: Simulation) -> None:
        nonlocal cluster
        cluster = Repaired(sim, 6)
        client = await cluster.client()
        writers = [await written(client) for _ in range(3)]
        match place:
            case "copied":
                die_once(LedgerRepair, "_swing", after=False)
            case "swung":
                die_once(LedgerRepair, "_swing", after=True)
            case "locked":
                die_once(ReplicationWorker, "_lock", after=True)
            case _:
                die_once(LedgerRepair, "_repaired", after=False)
        lost = writers[0].metadata.last_segment.members[0]
        cluster.lose(lost)
        await until_mended(client, 60.0)
        assert died
        sim.nodes[died[0]].revive()
        for writer in writers:
            members = (await metadata(client, writer.ledger_id)).last_segment.members
            assert lost not in members
        # Every copy is whole: each ledger is read from one bookie alone, a different one each time.
        for number, writer in enumerate(writers):
            await alone(cluster, client, writer.ledger_id, number)

    play(scenario)


async def alone(cluster: Repaired, client: Client, ledger_id: int, number: int) -> None:
    """Read a ledger while only one of its members is up."""
    members = (await metadata(client, ledger_id)).last_segment.members
    await client.do(client.world.clock.sleep(2.0))
    away = [
        cluster.sim.nodes[cluster.name_of(member)]
        for place, member in enumerate(members)
        if place != number % len(members)
    ]
    for node in away:
        node.crash()
    assert await read_all(client, ledger_id) == entries(30)
    for node in away:
        node.revive()


@pytest.mark.parametrize(
    "entry_ids",
    [(0, 1, 7, 8, 9, 20, 29), (14,), tuple(range(30))],
    ids=["in many places", "in the middle", "all"],
)
@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2)])
def test_one_that_is_there_and_lacks_entries_gets_them_itself(
    quorums: tuple[int, int, int], entry_ids: tuple[int, ...]
) -> None:
    """The auditor asks each member what it holds; the others go away, and the repaired copy has
    everything.
    """

    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3, auditor_periodic_check_interval_seconds=4.0)
        client = await cluster.client()
        writer = await written(client, *quorums)
        member = writer.metadata.write_set(14)[1]
        await lose_entries(cluster, member, writer.ledger_id, *entry_ids)
        await until_mended(client)
        if quorums == (3, 2, 2):
            assert await held(cluster, client, writer.ledger_id, member) == [
                e for e in range(30) if member in writer.metadata.write_set(e)
            ]
            return
        assert (
            await metadata(client, writer.ledger_id)
        ).last_segment.members == writer.metadata.last_segment.members
        await alone(cluster, client, writer.ledger_id, 1)

    play(scenario)


async def held(cluster: Repaired, client: Client, ledger_id: int, member: str) -> list[int]:
    answer = await client.do(client.ledgers.control.list_entries(member, ledger_id, 0, 29))
    assert answer.code == 0
    return [entry_id for first, last in answer.spans for entry_id in range(first, last + 1)]


@pytest.mark.parametrize("answer", ["an error", "silence"])
def test_a_member_that_does_not_say_what_it_holds_lacks_nothing(answer: str) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3)
        client = await cluster.client()
        writer = await written(client)
        member = writer.metadata.last_segment.members[1]
        bookie, node = cluster.running[cluster.name_of(member)], sim.nodes[cluster.name_of(member)]
        await lose_entries(cluster, member, writer.ledger_id, 14)

        closed = await metadata(client, writer.ledger_id)

        async def gaps() -> MissingCopies:
            return await client.do(
                client.ledgers.find_missing_copies(closed, closed.last_segment.members)
            )

        assert (await gaps()).missing == [member]
        if answer == "an error":
            index = bookie.store.index
            with replaced(
                LedgerIndex,
                "entry_ids",
                lambda was: lambda this, *what: fail() if this is index else was(this, *what),
            ):
                found = await gaps()
        else:
            node.pause()
            found = await gaps()
            node.resume()
        assert found.missing == []
        assert list(found.unanswered) == [member]

    async def fail() -> list[int]:
        raise BookieIOError("the index cannot be read")

    play(scenario)


def test_a_ledger_of_which_an_entry_is_nowhere_stays_lacking_and_says_why() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4)
        client = await cluster.client()
        writer = await written(client)
        members = writer.metadata.last_segment.members
        for member in members[1:]:
            await lose_entries(cluster, member, writer.ledger_id, 5)
        cluster.lose(members[0])
        await client.do(client.world.clock.sleep(30.0))
        assert await lacking(client)
        assert "entry 5 of ledger" in await why(client, writer.ledger_id)
        now = (await metadata(client, writer.ledger_id)).last_segment.members
        assert now == members, "nobody is named as holding what it does not have"

    play(scenario)


def test_a_deleted_ledger_lacks_nothing() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3)
        client = await cluster.client()
        writer = await written(client)
        cluster.lose(writer.metadata.last_segment.members[0])
        await client.do(client.world.clock.sleep(15.0))
        assert await lacking(client)
        await client.do(client.ledgers._store._records.delete(paths.ledger(writer.ledger_id)))
        await until_mended(client)

    play(scenario)


def test_what_is_published_while_a_ledger_is_mended_stays() -> None:
    """The record is deleted only at the version that was read before the mending (a writer may lack
    more by then).
    """

    async def scenario(sim: Simulation) -> None:
        client = await Cluster(sim, 3).client()
        store = client.ledgers._store
        await client.do(store.publish_missing(7, ["b1~1"]))
        before = await client.do(store.read_missing_copies(7))
        await client.do(store.publish_missing(7, ["b1~1"]))
        assert not await client.do(store.delete_missing_copies(before))
        now = await client.do(store.read_missing_copies(7))
        assert await client.do(store.delete_missing_copies(now))
        # A record that was created again begins at the same version, and is another one.
        await client.do(store.publish_missing(7, ["b2~1"]))
        await client.do(store.publish_missing(7, ["b2~1"]))
        anew = await client.do(store.read_missing_copies(7))
        assert anew.version == now.version
        assert not await client.do(store.delete_missing_copies(now))

    play(scenario)


async def lose_entries(cluster: Repaired, member: str, ledger_id: int, *entry_ids: int) -> None:
    """Take entries away from one bookie: from its cache and its index, as if they had never
    come.
    """
    bookie = cluster.running[cluster.name_of(member)]

    async def work(_world: object) -> None:
        await bookie.store.checkpoint()
        await bookie.store.checkpoint()
        await bookie.store.index.rows.write(
            [], [entry_key(ledger_id, entry_id) for entry_id in entry_ids], sync=True
        )

    await cluster.sim.nodes[cluster.name_of(member)].run(work)


@pytest.mark.parametrize("how", ["flipped bit", "bad sector"])
def test_bit_rot_is_found_at_rest_and_mended_from_another_copy(how: str) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3, settings={"local_scrub_interval_seconds": 2.0})
        client = await cluster.client()
        writer = await written(client)
        member = writer.metadata.last_segment.members[1]
        bookie, node = cluster.running[cluster.name_of(member)], sim.nodes[cluster.name_of(member)]
        await client.do(client.world.clock.sleep(4.0))  # the entries are in the log by now
        ((_, (log_id, offset, _)),) = await node.run(
            lambda _: bookie.store.index.entry_locations(writer.ledger_id, 7, 1)
        )
        path = bookie.store.logs.path(log_id)
        if how == "flipped bit":
            node.disk.flip_bit(path, offset + 40, bit=3)
        else:
            node.disk.spoil_sector(path, offset)
        await until_mended(client)
        assert bookie.scrubber.damaged > 0
        assert (
            await metadata(client, writer.ledger_id)
        ).last_segment.members == writer.metadata.last_segment.members
        await alone(cluster, client, writer.ledger_id, 1)

    play(scenario)


def test_a_bookie_in_limbo_is_made_whole_ledger_by_ledger_and_vouches_again() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4)
        client = await cluster.client()
        writers = [await written(client) for _ in range(4)]
        member = writers[0].metadata.last_segment.members[0]
        theirs = [writer for writer in writers if member in writer.metadata.last_segment.members]
        node = sim.nodes[cluster.name_of(member)]
        await lose_entries(cluster, member, writers[0].ledger_id, 3, 4)

        async def into_limbo(_world: object) -> None:
            await cluster.running[node.name].store.limbo.enter(100, "a test says so")

        await node.run(into_limbo)
        node.crash()
        node.revive()
        await until_mended(client)
        for again in range(2):
            for writer in theirs:
                assert await client.do(client.ledgers.in_limbo(writer.ledger_id, [member])) == []
            # A ledger that nobody has made whole stays in limbo: it may be one that was lost here
            # altogether.
            assert await client.do(client.ledgers.in_limbo(50, [member])) == [member]
            if not again:  # durable, and what was cleared is fenced
                for writer in theirs:
                    state = await node.run(
                        lambda _, writer=writer: cluster.running[node.name].store.states.get(
                            writer.ledger_id
                        )
                    )
                    assert state.fenced
                node.crash()
                node.revive()
                await client.do(client.world.clock.sleep(2.0))
        place = theirs[0].metadata.last_segment.members.index(member)
        await alone(cluster, client, theirs[0].ledger_id, place)

    play(scenario)


def test_the_ledgers_of_a_volume_that_fails_are_copied_into_the_others() -> None:
    places = ("/data/0", "/data/1")
    settings: dict[str, Any] = {
        f"{kind}_directories": tuple(f"{place}/{kind}" for place in places)
        for kind in ("journal", "ledger", "index")
    }

    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3, settings)
        client = await cluster.client()
        writers = [await written(client) for _ in range(6)]
        name = cluster.name_of(writers[0].metadata.last_segment.members[0])
        node, bookie = sim.nodes[name], cluster.running[name]
        failing = bookie.volumes[1]

        async def inside(_world: object) -> list[bool]:
            return await failing.store.knows([writer.ledger_id for writer in writers])

        there = await node.run(inside)
        assert any(there)
        assert not all(there)
        node.disk.kill("/data/1/")
        await until_mended(client)
        assert bookie.lost_directories == failing.config.paths
        assert node.alive
        member = bookie.instance_id
        for writer in writers:
            assert await client.do(client.ledgers.in_limbo(writer.ledger_id, [member])) == []
        # Not by another bookie, which would leave this one short of copies for good.
        assert [(await metadata(client, each.ledger_id)).segments for each in writers] == [
            each.metadata.segments for each in writers
        ]
        for writer in writers:
            place = writer.metadata.last_segment.members.index(member)
            await alone(cluster, client, writer.ledger_id, place)
            await client.do(client.world.clock.sleep(2.0))

    play(scenario)


def test_a_bookie_that_comes_into_limbo_again_is_made_whole_again() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4)
        client = await cluster.client()
        ledger_id = (writer := await written(client)).ledger_id
        member = writer.metadata.last_segment.members[0]
        node = sim.nodes[cluster.name_of(member)]

        async def into_limbo(_world: object) -> None:
            await cluster.running[node.name].store.limbo.enter(100, "a test says so")

        for _ in range(2):
            await lose_entries(cluster, member, ledger_id, 3, 4)
            await node.run(into_limbo)
            node.crash()
            node.revive()
            await until_mended(client)
            assert await client.do(client.ledgers.in_limbo(ledger_id, [member])) == []
        await alone(cluster, client, ledger_id, 0)

    play(scenario)


async def restarted_in_limbo(cluster: Repaired, member: str) -> None:
    """Have a bookie doubt all ids that were drawn: the tests' client draws 100 at a time."""
    node = cluster.sim.nodes[cluster.name_of(member)]

    async def into_limbo(_world: object) -> None:
        await cluster.running[node.name].store.limbo.enter(100, "a test says so")

    await node.run(into_limbo)
    node.crash()
    node.revive()


def test_a_ledger_that_is_made_after_a_limbo_began_is_not_in_it() -> None:
    """Found by a soak: a bookie in limbo refuses all adds to ids that were drawn before, used or
    not. With three bookies each new ledger has it, and topics moved until the ids were used up.
    """

    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3)
        client = await cluster.client()
        member = (await written(client)).metadata.last_segment.members[0]
        await restarted_in_limbo(cluster, member)
        await client.do(client.world.clock.sleep(20.0))
        later = await written(client)
        assert later.ledger_id >= 100
        assert member in later.metadata.last_segment.members
        assert await client.do(client.ledgers.in_limbo(later.ledger_id, [member])) == []

    play(scenario)


def test_no_bookie_in_limbo_for_a_ledger_takes_the_place_of_a_member() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4)
        client = await cluster.client()
        writer, _ = await client.create(3, 3, 2)
        await client.append(writer, entries(10))
        members = writer.metadata.last_segment.members
        (spare,) = set(client.ledgers.bookies.members()) - set(members)
        await restarted_in_limbo(cluster, spare)
        await client.do(client.world.clock.sleep(5.0))
        sim.nodes[cluster.name_of(members[0])].crash()
        await client.append(writer, entries(10))
        assert spare not in writer.metadata.last_segment.members
        await client.do(writer.close())

    play(scenario)


def test_a_bookie_in_limbo_that_did_not_answer_the_auditor_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3)
        client = await cluster.client()
        ledger = await written(client)
        member = ledger.metadata.last_segment.members[0]
        silent = [True]
        read_lac = BookieControl.read_lac

        async def held(self: BookieControl, asked: str, ledger_id: int) -> object:
            if silent[0] and asked == member:
                raise NoAnswer(f"{asked} is silent")
            return await read_lac(self, asked, ledger_id)

        monkeypatch.setattr(BookieControl, "read_lac", held)
        await restarted_in_limbo(cluster, member)
        await client.do(client.world.clock.sleep(30.0))
        silent[0] = False
        assert await client.do(client.ledgers.in_limbo(ledger.ledger_id, [member])) == [member]
        await client.do(client.world.clock.sleep(120.0))
        assert await client.do(client.ledgers.in_limbo(ledger.ledger_id, [member])) == []

    play(scenario)


def test_a_limbo_that_began_while_a_ledger_was_made_whole_is_not_ended_by_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4)
        client = await cluster.client()
        ledger_id = (writer := await written(client)).ledger_id
        member = writer.metadata.last_segment.members[0]
        node = sim.nodes[cluster.name_of(member)]
        reached, go_on = asyncio.Event(), asyncio.Event()
        clear = BookieControl.clear_limbo

        async def held(*arguments: Any) -> None:
            if not go_on.is_set():
                reached.set()
                await go_on.wait()
            await clear(*arguments)

        monkeypatch.setattr(BookieControl, "clear_limbo", held)

        async def into_limbo(_world: object) -> None:
            await cluster.running[node.name].store.limbo.enter(100, "a test says so")

        async def lose_some() -> None:
            await lose_entries(cluster, member, ledger_id, 3, 4)
            await node.run(into_limbo)
            node.crash()
            node.revive()
            await client.do(client.world.clock.sleep(2.0))

        await lose_some()
        await reached.wait()
        await lose_some()
        go_on.set()
        while await client.do(client.ledgers.in_limbo(ledger_id, [member])):
            await client.do(client.world.clock.sleep(0.1))
        await alone(cluster, client, ledger_id, 0)

    play(scenario)
