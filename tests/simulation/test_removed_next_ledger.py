"""The next ledger of a topic is in no list until the current one has ended, which may take hours
where its bookies cannot say what they have. Whoever looks for orphans may take it for one and
remove it meanwhile. A cursor's ledger is in none until metadata and bookies have answered. That of
a topic's new owner is made in the commit that names it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from pulsarish.managed_ledger.cursors import cursor_log
from pulsarish.managed_ledger.ledger_changes import Goal, LedgerChanges
from pulsarish.managed_ledger.owned_topic_record import OwnedTopicRecord
from pulsarish.metadata import paths
from pulsarish.metadata.records import CursorRecord
from pulsarish.model.errors import ServiceNotReady, TopicFenced
from pulsarish.model.position import EARLIEST
from pulsarish.runtime.seams import Op
from pulsarish.sim.world.world import Simulation
from tests.simulation.test_ledger_scripts import Client, Cluster, play
from tests.simulation.test_topic_creation import OPTIONS, Maker, ledgers_in, name_of

# A cursor with a hole takes a ledger.
NO_HOLES = msgspec.structs.replace(OPTIONS, max_unacked_ranges_to_persist_in_metadata_store=0)


async def remove(job: Client, ledger_id: int, is_gone: bool) -> None:
    """Recovered first, and then either gone already or about to be."""
    await job.do(job.ledgers.delete(ledger_id) if is_gone else job.ledgers.open(ledger_id))


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_topic_does_not_name_a_ledger_that_was_removed_as_an_orphan(
    is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        owner, job, heir = (
            Maker(await cluster.client("one")),
            await cluster.client("two"),
            Maker(await cluster.client("three")),
        )
        log = await owner.create(0)
        await owner.client.node.run(lambda _world: log.open_cursor("keep", initial=EARLIEST))
        await owner.append(log, b"one")
        (current,) = ledgers_in(sim)
        end_current = LedgerChanges._end_current

        async def while_the_next_is_removed(changes: LedgerChanges, goal: Goal) -> None:
            monkeypatch.setattr(LedgerChanges, "_end_current", end_current)
            (following,) = ledgers_in(sim) - {current}
            await remove(job, following, is_gone)
            await end_current(changes, goal)

        monkeypatch.setattr(LedgerChanges, "_end_current", while_the_next_is_removed)
        await owner.client.node.run(lambda _world: log.roll())
        found = await owner.topic(0)
        assert found is not None
        assert {link.ledger_id for link in found[0].ledgers} <= ledgers_in(sim)
        await owner.append(log, b"two")
        assert owner.heard[0].confirmed == [b"one", b"two"]
        assert (await heir.open(0)).entries == 2

    play(scenario)


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_cursor_does_not_name_a_ledger_that_was_removed_as_an_orphan(
    is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        owner, job, heir = (
            Maker(await cluster.client("one"), NO_HOLES),
            await cluster.client("two"),
            Maker(await cluster.client("three")),
        )
        log = await owner.create(0)
        cursor = await owner.client.node.run(lambda _world: log.open_cursor("s", initial=EARLIEST))
        for payload in (b"one", b"two", b"three"):
            await owner.append(log, payload)
        positions = [position for position, _ in owner.heard[0].appended_at]
        before = ledgers_in(sim)
        write_snapshot = cursor_log.CursorLog.write_snapshot

        async def and_it_is_removed(self: cursor_log.CursorLog, image: object) -> None:
            monkeypatch.undo()
            await write_snapshot(self, image)  # type: ignore[arg-type]
            await remove(job, self.ledger_id, is_gone)

        monkeypatch.setattr(cursor_log.CursorLog, "write_snapshot", and_it_is_removed)
        cursor.acknowledge([positions[1]])
        with pytest.raises(ServiceNotReady):
            await owner.client.node.run(lambda _world: cursor.flush())
        await owner.client.node.run(lambda _world: cursor.flush())
        path = paths.cursor(name_of(0), "s")
        found = await owner.client.do(owner.records.get(path, CursorRecord))
        assert found is not None
        assert {found[0].cursor_ledger} == ledgers_in(sim) - before
        cursor.acknowledge([positions[2]])
        await owner.client.node.run(lambda _world: cursor.flush())
        taken = await heir.open(0)
        left = await heir.client.node.run(lambda _world: taken.open_cursor("s"))
        assert [left.is_acknowledged(position) for position in positions] == [False, True, True]

    play(scenario)


def test_a_new_owner_makes_its_ledger_with_the_list_that_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So none is ever without a list, also when the commit fails."""

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        owner, heir = Maker(await cluster.client("one")), Maker(await cluster.client("two"))
        await owner.append(await owner.create(0), b"one")
        before = ledgers_in(sim)

        async def is_refused(_topic: OwnedTopicRecord, *_: object, **more: Sequence[Op]) -> None:
            monkeypatch.undo()
            assert [op.kind for op in more["with_ops"]] == ["create"]
            raise TopicFenced("another owner came first")

        monkeypatch.setattr(OwnedTopicRecord, "change", is_refused)
        log = await heir.open(0)  # there was no other owner, so it takes the topic over again
        assert {link.ledger_id for link in log.ledgers} == ledgers_in(sim)
        assert len(ledgers_in(sim) - before) == 1
        await heir.append(log, b"two")
        assert heir.heard[0].confirmed == [b"two"]
        assert (await owner.open(0)).entries == 2

    play(scenario)
