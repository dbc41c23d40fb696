"""Old copies move when an operator asks for it: to emptier bookies by `bookies rebalance`, to
better placed ones by `bookies placement-audit`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from pulsarish.autorecovery import rebalancer
from pulsarish.autorecovery.rebalancer import Rebalancer
from pulsarish.ledger.repair.moves_core import add_held_bytes
from pulsarish.ledger.repair.repair import LedgerRepair, Outcome
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookiePlace, BookieRacks, RebalanceRecord
from pulsarish.model.ledger_metadata import BookieGroups, LedgerMetadata
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation
from tests.simulation.test_autorecovery import Repaired, held, metadata, read_all, written
from tests.simulation.test_ledger_scripts import Client, entries, play

REQUEST = RebalanceRecord(number=1, rate_bytes=1 << 20, tolerance_percent=30, asked_ms=1)


def records_of(client: Client) -> Records:
    return Records(client.world.metadata, client.world.clock, client.world.random)


async def ask(client: Client, **fields: Any) -> None:
    await client.do(records_of(client).make_parents(paths.rebalance()))
    await client.do(
        records_of(client).update(
            paths.rebalance(),
            RebalanceRecord,
            lambda now: msgspec.structs.replace(now or REQUEST, **fields),
        )
    )


async def state(client: Client) -> RebalanceRecord:
    found = await client.do(records_of(client).get(paths.rebalance(), RebalanceRecord))
    assert found is not None
    record: RebalanceRecord = found[0]
    return record


async def until_ended(client: Client) -> RebalanceRecord:
    for _ in range(600):
        if (now := await state(client)).ended_ms:
            return now
        await client.do(client.world.clock.sleep(0.2))
    raise AssertionError(f"it does not end: {now}")


async def grown(sim: Simulation, cluster: Repaired, client: Client, ledgers: int = 12) -> list[int]:
    """Return ledgers that were written before two more bookies came."""
    found = [(await written(client, 2, 2, 2)).ledger_id for _ in range(ledgers)]
    for name in ("b3", "b4"):
        sim.node(name, cluster._main(name)).restart_after_seconds = 1.0
    while len(await client.do(records_of(client).children(paths.BOOKIES))) < 5:
        await client.do(client.world.clock.sleep(0.2))
    return found


async def bytes_held(client: Client, ledgers: list[int]) -> dict[str, int]:
    """Return the bytes by bookie's name."""
    held_bytes: dict[str, int] = {}
    for ledger_id in ledgers:
        record = await metadata(client, ledger_id)
        held_bytes |= {
            member: held_bytes.get(member, 0)
            for segment in record.segments
            for member in segment.members
        }
        add_held_bytes(held_bytes, record)
    return {member.partition("~")[0]: size for member, size in held_bytes.items()}


async def check_copies(cluster: Repaired, client: Client, ledgers: list[int]) -> None:
    """Check that each member has all that it should hold."""
    for ledger_id in ledgers:
        record = await metadata(client, ledger_id)
        for member in record.last_segment.members:
            assert await held(cluster, client, ledger_id, member) == list(range(30))
        assert await read_all(client, ledger_id) == entries(30)


def test_two_new_bookies_get_their_share_and_every_copy_is_there() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3)
        client = await cluster.client()
        ledgers = await grown(sim, cluster, client)
        assert set(await bytes_held(client, ledgers)) == {"b0", "b1", "b2"}
        await ask(client, dry_run=True)
        planned = await until_ended(client)
        assert planned.ledgers_planned > 5
        assert planned.ledgers_moved == 0
        assert set(await bytes_held(client, ledgers)) == {"b0", "b1", "b2"}
        await ask(client, number=2, dry_run=False, ended_ms=0)
        done = await until_ended(client)
        assert done.reason == "bookies are even"
        assert done.ledgers_moved >= planned.ledgers_planned
        now = await bytes_held(client, ledgers)
        assert len(now) == 5
        assert max(now.values()) - min(now.values()) <= 0.3 * sum(now.values()) / 5
        await check_copies(cluster, client, ledgers)
        # Nothing is left to do for the next one.
        await ask(client, number=3, ended_ms=0, ledgers_moved=0, bytes_moved=0)
        assert (await until_ended(client)).ledgers_moved == 0

    play(scenario)


def test_the_next_auditor_goes_on_with_it() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3)
        client = await cluster.client()
        ledgers = await grown(sim, cluster, client)
        await ask(client, rate_bytes=3_000)
        crashed: list[str] = []
        for _ in range(3):
            while not (working := [each for each in cluster.recoveries() if _moves(each)]):
                assert not (await state(client)).ended_ms
                await client.do(client.world.clock.sleep(0.1))
            (name,) = [
                name
                for name, bookie in cluster.running.items()
                if bookie.auto_recovery is working[0]
            ]
            before = (await state(client)).ledgers_moved
            while (await state(client)).ledgers_moved == before:
                await client.do(client.world.clock.sleep(0.1))
            sim.nodes[name].crash()
            sim.at(0.5, sim.nodes[name].revive)
            crashed.append(name)
            await client.do(client.world.clock.sleep(1.0))
        done = await until_ended(client)
        assert done.reason == "bookies are even"
        assert done.ledgers_moved > 3
        assert len(set(crashed)) > 1
        await check_copies(cluster, client, ledgers)

    play(scenario)


def _moves(recovery: Any) -> bool:
    moving: Rebalancer = recovery.rebalancer
    return moving.is_running


def test_it_stops_when_an_operator_says_so_or_at_the_limit() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3)
        client = await cluster.client()
        ledgers = await grown(sim, cluster, client)
        await ask(client, ledgers_max=2)
        done = await until_ended(client)
        assert (done.ledgers_moved, done.ledgers_planned) == (2, 2)
        assert done.reason == "2 ledgers were moved, as asked"
        await ask(client, number=2, ended_ms=0, ledgers_max=0, ledgers_moved=0, rate_bytes=3_000)
        while not (await state(client)).ledgers_moved:
            await client.do(client.world.clock.sleep(0.1))
        await ask(client, ended_ms=7, reason="stopped")
        await client.do(client.world.clock.sleep(5.0))
        stopped = await state(client)
        await client.do(client.world.clock.sleep(20.0))
        assert await state(client) == stopped
        assert (stopped.reason, stopped.ended_ms) == ("stopped", 7)
        await check_copies(cluster, client, ledgers)

    play(scenario)


def test_a_ledger_that_lacks_copies_and_one_that_is_open_stay_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def mend(_repair: LedgerRepair, _ledger_id: int, *, may_recover: bool) -> Outcome:
        assert may_recover in (True, False)
        return Outcome(done=False, reason="a test says so")

    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3)
        client = await cluster.client()
        still_open, listener = await client.create(2, 2, 2)
        await client.append(still_open, entries(30))
        ledgers = await grown(sim, cluster, client, 4)
        monkeypatch.setattr(LedgerRepair, "mend", mend)
        # Fewer than the ledgers that are left to their repair, and come first.
        monkeypatch.setattr(rebalancer, "_FAILURES_MAX", 2)
        before = {each: await metadata(client, each) for each in ledgers}
        for each in ledgers[:3]:
            member = before[each].last_segment.members[0]
            await client.do(client.ledgers.publish_found(each, [member], below_policy=False))
        noted: list[dict[str, object]] = []
        was = Rebalancer._note

        async def note(self: Rebalancer, **fields: object) -> None:
            noted.append(fields)
            await was(self, **fields)

        monkeypatch.setattr(Rebalancer, "_note", note)
        await ask(client)
        done = await until_ended(client)
        assert [each for each in noted if list(each) == ["reason"]] == [], "no write for each"
        assert done.ledgers_moved == 1
        assert "lacks copies, which are made first" in done.reason
        for each in ledgers[:3]:
            assert await metadata(client, each) == before[each]
        assert await metadata(client, ledgers[3]) != before[ledgers[3]]
        members = still_open.metadata.last_segment.members
        assert (await metadata(client, still_open.ledger_id)).last_segment.members == members
        assert listener.error is None

    play(scenario)


class OnHosts(Repaired):
    """The first two bookies share a host; each of the others has one of its own."""

    def _main(self, name: str) -> Callable[[World], Coroutine[Any, Any, None]]:
        self.settings = {"host": "shared" if name in ("b0", "b1") else name}
        return super()._main(name)


async def misplaced(sim: Simulation, cluster: Repaired, client: Client, count: int) -> list[int]:
    """Return ledgers whose copies share a host, and start two bookies elsewhere."""
    found = [(await written(client, 2, 2, 2)).ledger_id for _ in range(count)]
    for name in ("b2", "b3"):
        sim.node(name, cluster._main(name)).restart_after_seconds = 1.0
    while len(await client.do(records_of(client).children(paths.BOOKIES))) < 4:
        await client.do(client.world.clock.sleep(0.2))
    return found


async def sharing(client: Client, ledgers: list[int]) -> list[int]:
    return [
        ledger_id
        for ledger_id in ledgers
        if {name[:2] for name in (await metadata(client, ledger_id)).last_segment.members}
        == {"b0", "b1"}
    ]


def counted(cluster: Repaired) -> int:
    return max(each.rebalancer.misplaced_count for each in cluster.recoveries())


def test_copies_that_share_a_host_are_found_and_moved_one_at_a_time() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = OnHosts(sim, 2)
        client = await cluster.client()
        ledgers = await misplaced(sim, cluster, client, 4)
        assert await sharing(client, ledgers) == ledgers
        await ask(client, placement=True, dry_run=True)
        found = await until_ended(client)
        assert (found.ledgers_planned, found.ledgers_moved) == (4, 0)
        assert found.first_ledgers == tuple(ledgers)
        assert (await sharing(client, ledgers), counted(cluster)) == (ledgers, 4)
        await ask(client, number=2, dry_run=False, ended_ms=0, ledgers_max=1)
        assert (await until_ended(client)).ledgers_moved == 1
        assert len(await sharing(client, ledgers)) == 3
        await ask(client, number=3, ended_ms=0, ledgers_max=0, ledgers_moved=0, bytes_moved=0)
        done = await until_ended(client)
        assert done.ledgers_moved == 3
        assert done.reason == "no other bookie would be a better choice"
        assert (await sharing(client, ledgers), counted(cluster)) == ([], 0)
        await check_copies(cluster, client, ledgers)

    play(scenario)


@pytest.mark.parametrize("is_repaired", [True, False])
def test_the_auditor_looks_at_placement_now_and_then(is_repaired: bool) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = OnHosts(
            sim,
            2,
            auditor_periodic_placement_policy_check_interval_seconds=5.0,
            repaired_placement_policy_not_adhering_bookie_enable=is_repaired,
        )
        client = await cluster.client()
        ledgers = await misplaced(sim, cluster, client, 3)
        await client.do(client.world.clock.sleep(20.0))
        left = [] if is_repaired else ledgers
        assert (await sharing(client, ledgers), counted(cluster)) == (left, len(left))
        await check_copies(cluster, client, ledgers)
        # Only the auditor counts them: otherwise a former one would count for as long as it runs.
        (auditor,) = [each for each in cluster.recoveries() if each.election.is_mine]
        await client.do(auditor.election.stop())
        await client.do(client.world.clock.sleep(20.0))
        assert (auditor.rebalancer.misplaced_count, counted(cluster)) == (0, len(left))

    play(scenario)


@pytest.mark.parametrize("placement", [True, False])
def test_copies_of_a_ledger_with_groups_stay_in_them(*, placement: bool) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = OnHosts(sim, 2)
        client = await cluster.client()
        ledgers = await misplaced(sim, cluster, client, 4)
        records = records_of(client)
        await client.do(records.make_parents(paths.BOOKIE_RACKS))
        racks = BookieRacks({"b2": BookiePlace(group="other"), "b3": BookiePlace(group="other")})
        await client.do(records.update(paths.BOOKIE_RACKS, BookieRacks, lambda _found: racks))
        groups = BookieGroups(("default",), ("other",))
        for ledger_id in ledgers[1:]:
            await client.do(
                records.update(
                    paths.ledger(ledger_id),
                    LedgerMetadata,
                    lambda found: found and msgspec.structs.replace(found, groups=groups),
                )
            )
        await client.do(client.world.clock.sleep(2.0))
        await ask(client, placement=placement)
        assert (await until_ended(client)).ledgers_moved == 1
        assert await sharing(client, ledgers) == ledgers[1:]
        await check_copies(cluster, client, ledgers)

    play(scenario)
